//! The engine's contracts: exact counts, restartable faults, chaining, code that changes.
#![allow(
    clippy::allow_attributes,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "test code"
)]

use cpu::ir::Reg;
use cpu::testbus::{FlatBus, FlatFault};
use cpu::{Cpu, Engine, Exit};
use units::{ArchId, VirtAddr};

const BASE: u64 = 0x1000;
const RAX: Reg = Reg(0);
const RCX: Reg = Reg(1);
const RSI: Reg = Reg(6);
const RDI: Reg = Reg(7);

/// A CPU and 16 pages of memory with `code` at `at`.
fn machine(at: u64, code: &[u8]) -> (Cpu<FlatBus>, FlatBus) {
    let mut bus = FlatBus::new(VirtAddr::new(BASE), 16 * 4096);
    bus.slice_mut(VirtAddr::new(at), code.len()).unwrap().copy_from_slice(code);
    let mut cpu = Cpu::new(ArchId::X86_64);
    cpu.state_mut().set_pc(VirtAddr::new(at));
    cpu.state_mut().set_sp(ArchId::X86_64, VirtAddr::new(BASE + 8 * 4096));
    (cpu, bus)
}

fn both(test: impl Fn(Engine)) {
    test(Engine::Match);
    test(Engine::Threaded);
}

/// mov ecx, 10; 1: inc eax; dec ecx; jnz 1b; int3
const LOOP: &[u8] = &[0xb9, 10, 0, 0, 0, 0xff, 0xc0, 0xff, 0xc9, 0x75, 0xfa, 0xcc];

#[test]
fn instructions_are_counted_exactly() {
    both(|engine| {
        let (mut cpu, mut bus) = machine(BASE, LOOP);
        cpu.set_engine(engine);
        let exit = cpu.run(&mut bus, 1000);
        assert_eq!(exit, Exit::Breakpoint { pc: VirtAddr::new(BASE + 11) });
        assert_eq!(cpu.retired_nr(), 1 + 3 * 10 + 1);
        assert_eq!(cpu.state().reg(RAX), 10);
        assert_eq!(cpu.state().pc().get(), BASE + 12);
    });
}

#[test]
fn a_limit_stops_at_any_instruction_and_the_rest_follows() {
    both(|engine| {
        for step in 1..=33 {
            let (mut cpu, mut bus) = machine(BASE, LOOP);
            cpu.set_engine(engine);
            let mut total = 0;
            while cpu.run(&mut bus, step) == Exit::Limit {
                assert_eq!(cpu.retired_nr(), step);
                total += step;
            }
            assert_eq!(total + cpu.retired_nr(), 32, "in steps of {step}");
            assert_eq!(cpu.state().reg(RAX), 10);
        }
    });
}

#[test]
fn a_fault_leaves_the_instruction_undone_and_counts_what_was_done() {
    both(|engine| {
        // inc eax; add [rdi], rax; inc eax
        let (mut cpu, mut bus) = machine(BASE, &[0xff, 0xc0, 0x48, 0x01, 0x07, 0xff, 0xc0, 0xcc]);
        cpu.set_engine(engine);
        cpu.state_mut().set_reg(RDI, BASE + 16 * 4096 - 4);
        let exit = cpu.run(&mut bus, 100);
        let fault = FlatFault { va: VirtAddr::new(BASE + 16 * 4096), write: true };
        assert_eq!(exit, Exit::Fault { fault, pc: VirtAddr::new(BASE + 2) });
        assert_eq!((cpu.retired_nr(), bus.accesses), (1, 1));
        assert_eq!(cpu.state().pc().get(), BASE + 2);
        // Repaired, it goes on.
        cpu.state_mut().set_reg(RDI, BASE + 4096);
        assert!(matches!(cpu.run(&mut bus, 100), Exit::Breakpoint { .. }));
        assert_eq!((cpu.retired_nr(), bus.accesses), (3, 3));
    });
}

#[test]
fn a_push_that_faults_leaves_the_stack_pointer() {
    let (mut cpu, mut bus) = machine(BASE, &[0x50, 0xcc]);
    cpu.state_mut().set_sp(ArchId::X86_64, VirtAddr::new(BASE + 4));
    assert!(matches!(cpu.run(&mut bus, 100), Exit::Fault { .. }));
    assert_eq!(cpu.state().sp(ArchId::X86_64).get(), BASE + 4);
}

#[test]
fn a_string_instruction_keeps_its_progress_at_a_fault() {
    // rep movsb
    let (mut cpu, mut bus) = machine(BASE, &[0xf3, 0xa4, 0xcc]);
    bus.read_only_from = BASE + 3 * 4096;
    cpu.state_mut().set_reg(RSI, BASE);
    cpu.state_mut().set_reg(RDI, BASE + 3 * 4096 - 100);
    cpu.state_mut().set_reg(RCX, 300);
    assert!(matches!(cpu.run(&mut bus, 100), Exit::Fault { .. }));
    assert_eq!(cpu.retired_nr(), 0);
    assert_eq!(cpu.state().reg(RCX), 200);
    assert_eq!(cpu.state().reg(RDI), BASE + 3 * 4096);
    bus.read_only_from = u64::MAX;
    assert!(matches!(cpu.run(&mut bus, 100), Exit::Breakpoint { .. }));
    assert_eq!(cpu.state().reg(RCX), 0);
}

#[test]
fn a_written_code_page_is_decoded_again() {
    both(|engine| {
        // mov byte [rip+1f], 0x90-pattern: writes over the instruction at `patch`, then jumps there.
        // c6 05 disp32 imm8: mov byte [rip+disp], imm; jmp patch; patch: inc eax (ff c0) -> dec eax (ff c8)
        let code = [0xc6, 0x05, 3, 0, 0, 0, 0xc8, 0xeb, 0, 0xff, 0xc0, 0xcc];
        let (mut cpu, mut bus) = machine(BASE, &code);
        cpu.set_engine(engine);
        // First decode the old instruction.
        cpu.state_mut().set_pc(VirtAddr::new(BASE + 9));
        assert!(matches!(cpu.run(&mut bus, 100), Exit::Breakpoint { .. }));
        assert_eq!(cpu.state().reg(RAX), 1);
        cpu.state_mut().set_pc(VirtAddr::new(BASE));
        assert!(matches!(cpu.run(&mut bus, 100), Exit::Breakpoint { .. }));
        assert_eq!(cpu.state().reg(RAX), 0);
        assert!(cpu.stats().dropped_nr > 0);
    });
}

#[test]
fn an_instruction_across_pages_runs_and_faults_on_its_second_page() {
    // mov eax, imm32 whose last two bytes are on the next page.
    let (mut cpu, mut bus) = machine(BASE + 4096 - 3, &[0xb8, 1, 2, 3, 4, 0xcc]);
    assert!(matches!(cpu.run(&mut bus, 100), Exit::Breakpoint { .. }));
    assert_eq!(cpu.state().reg(RAX), 0x0403_0201);
    assert_eq!(cpu.retired_nr(), 2);
    let end = BASE + 16 * 4096;
    let (mut cpu, mut bus) = machine(end - 3, &[0xb8, 1, 2]);
    let exit = cpu.run(&mut bus, 100);
    let fault = FlatFault { va: VirtAddr::new(end), write: false };
    assert_eq!(exit, Exit::Fault { fault, pc: VirtAddr::new(end - 3) });
}

#[test]
fn control_that_stays_on_a_page_fetches_once() {
    let (mut cpu, mut bus) = machine(BASE, LOOP);
    cpu.run(&mut bus, 1000);
    assert_eq!(bus.fetches, 1);
}

#[test]
fn undefined_unsupported_and_divide_errors_are_told_apart() {
    let (mut cpu, mut bus) = machine(BASE, &[0x90, 0x0f, 0x0b]);
    let exit = cpu.run(&mut bus, 100);
    assert!(matches!(exit, Exit::Undefined { pc, .. } if pc.get() == BASE + 1), "{exit:?}");
    assert_eq!(cpu.retired_nr(), 1);
    // vaddps ymm0, ymm0, ymm0
    let (mut cpu, mut bus) = machine(BASE, &[0xc5, 0xfc, 0x58, 0xc0]);
    let Exit::Unsupported { mnemonic, bytes, .. } = cpu.run(&mut bus, 100) else { panic!() };
    assert_eq!((mnemonic.as_str(), bytes.to_string().as_str()), ("vaddps", "c5 fc 58 c0"));
    // hlt: privileged
    let (mut cpu, mut bus) = machine(BASE, &[0xf4]);
    assert_eq!(cpu.run(&mut bus, 100), Exit::Misaligned { pc: VirtAddr::new(BASE) });
    // xor ecx, ecx; div ecx
    let (mut cpu, mut bus) = machine(BASE, &[0x31, 0xc9, 0xf7, 0xf1]);
    assert_eq!(cpu.run(&mut bus, 100), Exit::DivideError { pc: VirtAddr::new(BASE + 2) });
    // movaps [rsp + 8], xmm0
    let (mut cpu, mut bus) = machine(BASE, &[0x0f, 0x29, 0x44, 0x24, 0x08]);
    assert_eq!(cpu.run(&mut bus, 100), Exit::Misaligned { pc: VirtAddr::new(BASE) });
}

#[test]
fn any_bytes_decode_to_something() {
    // A cheap fuzz: pseudo-random bytes must end in some exit, never in a panic.
    let mut seed = 1u64;
    for _ in 0..3000 {
        let mut code = [0u8; 24];
        for byte in &mut code {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = (seed >> 56) as u8;
        }
        let (mut cpu, mut bus) = machine(BASE, &code);
        for i in 0..16 {
            cpu.state_mut().set_reg(Reg(i), BASE + 4096 + u64::from(i) * 64);
        }
        cpu.run(&mut bus, 50);
    }
}

/// cmp eax, 1; jmp +0; cmp ecx, 3; mov [rdi], al; jb 1f; int3; 1: nop; int3
const COMPARE_STORE_BRANCH: &[u8] =
    &[0x83, 0xf8, 1, 0xeb, 0, 0x83, 0xf9, 3, 0x88, 0x07, 0x72, 1, 0xcc, 0x90, 0xcc];

#[test]
fn flags_survive_a_fault_between_a_comparison_and_its_branch() {
    both(|engine| {
        let (mut cpu, mut bus) = machine(BASE, COMPARE_STORE_BRANCH);
        cpu.set_engine(engine);
        cpu.state_mut().set_reg(RCX, 5);
        cpu.state_mut().set_reg(RDI, BASE + 16 * 4096);
        let exit = cpu.run(&mut bus, 100);
        assert!(matches!(exit, Exit::Fault { pc, .. } if pc.get() == BASE + 8), "{exit:?}");
        // Repaired, it goes on: 5 is not below 3, whatever was compared before.
        cpu.state_mut().set_reg(RDI, BASE + 4096);
        let exit = cpu.run(&mut bus, 100);
        assert_eq!(exit, Exit::Breakpoint { pc: VirtAddr::new(BASE + 12) });
    });
}

#[test]
fn flags_survive_a_limit_between_a_comparison_and_its_branch() {
    both(|engine| {
        for step in 1..6 {
            let (mut cpu, mut bus) = machine(BASE, COMPARE_STORE_BRANCH);
            cpu.set_engine(engine);
            cpu.state_mut().set_reg(RCX, 5);
            cpu.state_mut().set_reg(RDI, BASE + 4096);
            let mut exit = cpu.run(&mut bus, step);
            while exit == Exit::Limit {
                exit = cpu.run(&mut bus, step);
            }
            assert_eq!(exit, Exit::Breakpoint { pc: VirtAddr::new(BASE + 12) }, "{step}");
        }
    });
}
