//! Random guest code through the whole engine: blocks, links, limits, faults and code that writes over code, with every block compiled
//! at once, against the interpreter alone.

#![cfg(all(target_arch = "x86_64", unix))]
#![allow(
    clippy::allow_attributes,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    dead_code,
    missing_docs,
    unreachable_pub,
    reason = "test code, some of it shared"
)]

mod common;

use arch::{Arm64, X86_64};
use common::tables::Words;
use common::{BASE, Paged, Random, frame};
use cpu::{Cpu, Exit};
use mmu::Exact;
use units::{ArchId, PAGE_SIZE, PhysAddr, VirtAddr};

/// Pages that begin with code.
const CODE_PAGES: u64 = 3;

fn machine<A: Words>(arch: ArchId, code: &[Vec<u8>]) -> (Cpu<Paged<A, Exact>>, Paged<A, Exact>) {
    let mut bus = Paged::new();
    for (page, bytes) in (0..).zip(code) {
        bus.ram.slice_mut(PhysAddr::new(frame(page)), bytes.len()).copy_from_slice(bytes);
    }
    (Cpu::new(arch), bus)
}

fn seen<A: Words>(
    cpu: &Cpu<Paged<A, Exact>>,
    bus: &Paged<A, Exact>,
) -> impl PartialEq + std::fmt::Debug {
    let s = cpu.state();
    let flags = (cpu::flags::eflags(s), cpu::flags::nzcv(s));
    (s.pc, s.r[..64].to_vec(), s.v[..32].to_vec(), flags, bus.tlb.stats())
}

fn memory<A: Words>(bus: &Paged<A, Exact>) -> &[u8] {
    bus.ram.slice(PhysAddr::new(0), common::RAM as usize)
}

/// Runs both, in quanta, over all that goes wrong, and compares at every stop.
fn compare<A: Words>(arch: ArchId, seed: u64, code: &[Vec<u8>], hot: u32) -> u64 {
    let (mut native, mut native_bus) = machine::<A>(arch, code);
    let (mut plain, mut plain_bus) = machine::<A>(arch, code);
    native.set_native(jit::native().expect("this host can"), hot);
    let mut r = Random(seed);
    let mut retired = 0;
    for turn in 0..12 {
        let mut state =
            cpu::CpuState { pc: BASE + r.below(CODE_PAGES) * PAGE_SIZE, ..Default::default() };
        for slot in 0..34 {
            let at = BASE + r.below(20) * PAGE_SIZE + r.below(PAGE_SIZE);
            state.r[slot] = if r.one_in(3) { r.value() } else { at };
        }
        *native.state_mut() = state.clone();
        *plain.state_mut() = state;
        for _ in 0..8 {
            let quantum = r.below(300) + 1;
            let a: Exit<_> = native.run(&mut native_bus, quantum);
            let b = plain.run(&mut plain_bus, quantum);
            let context = || format!("seed {seed:#x}, turn {turn}, code {code:02x?}");
            assert_eq!(a, b, "{}", context());
            assert_eq!(native.retired_nr(), plain.retired_nr(), "{}", context());
            assert_eq!(seen(&native, &native_bus), seen(&plain, &plain_bus), "{}", context());
            retired += native.retired_nr();
            if a != Exit::Limit {
                // On at the next instruction boundary that both know.
                let pc = BASE + r.below(CODE_PAGES) * PAGE_SIZE;
                native.state_mut().set_pc(VirtAddr::new(pc));
                plain.state_mut().set_pc(VirtAddr::new(pc));
            }
        }
        assert!(memory(&native_bus) == memory(&plain_bus), "memory differs, seed {seed:#x}");
    }
    assert!(native.stats().compiled_nr > 0);
    retired
}

/// Instructions that programs consist of, at random, with short jumps among them.
fn x86_code(r: &mut Random) -> Vec<u8> {
    let mut code = Vec::new();
    while code.len() < 200 {
        let reg = |r: &mut Random| r.below(8) as u8;
        let modrm =
            |mode: u8, r: &mut Random| mode << 6 | reg(r) << 3 | r.pick(&[0, 1, 2, 3, 6, 7]);
        let rex = r.pick(&[0x48, 0x48, 0x49, 0x4c, 0x41, 0x40]);
        let alu = r.below(8) as u8 * 8;
        match r.below(10) {
            0 | 1 => code.extend([rex, alu + r.pick(&[1, 3]), modrm(3, r)]),
            2 => code.extend([rex, alu + r.pick(&[0, 1, 2, 3]), modrm(1, r), r.next() as u8]),
            3 => code.extend([rex, 0x83, modrm(3, r), r.next() as u8]),
            4 => code.extend([rex, r.pick(&[0x89, 0x8b, 0x88, 0x8a]), modrm(1, r), r.next() as u8]),
            5 => code.extend([rex, r.pick(&[0xc1, 0xd3, 0xf7, 0xff]), modrm(3, r), 5]),
            6 => code.extend([
                r.pick(&[0x70, 0x74, 0x75, 0x7c, 0x72, 0x7f]) + r.below(1) as u8,
                r.below(60) as u8,
            ]),
            7 => {
                code.extend([r.pick(&[0x75, 0x72, 0xeb, 0x7e]), (r.below(60) as u8).wrapping_neg()])
            }
            8 if r.one_in(4) => code.extend([0xe8, r.below(100) as u8, 0, 0, 0]),
            8 if r.one_in(4) => code.push(0xc3),
            8 => code.extend([
                0x66,
                0x0f,
                r.pick(&[0x6f, 0xef, 0xfe, 0xd4, 0x58, 0x7f]),
                modrm(r.pick(&[1, 3]), r),
                16,
            ]),
            _ => code.extend([0x0f, r.pick(&[0xb6, 0xbe, 0xaf, 0x44, 0x4c, 0x92]), modrm(3, r)]),
        }
    }
    code
}

fn arm64_code(r: &mut Random) -> Vec<u8> {
    // Opcode bits, and the bits that may be anything.
    let forms: [(u32, u32); 16] = [
        (0x0b00_0000, 0xe0df_fc1f | 0x1f_03e0), // add, sub (shifted register)
        (0x0a00_0000, 0xe0df_fc1f | 0x3f_03e0), // logical (shifted register)
        (0x1100_0000, 0xe0ff_ffff),             // add, sub (immediate)
        (0x1200_0000, 0xe0ff_ffff),             // logical (immediate)
        (0x5280_0000, 0xc01f_ffff),             // movn, movz, movk
        (0x1300_0000, 0xe03f_7fff),             // bit fields
        (0x1a80_0000, 0xc01f_f7ff),             // conditional select
        (0x1b00_0000, 0x801f_ffff),             // multiply-add
        (0x3900_0000, 0xc0c0_03ff),             // loads and stores
        (0x3800_0400, 0xc0df_ffff),             // loads and stores, pre- and post-indexed
        (0x5400_0000, 0x0000_01ef),             // conditional branch, forwards
        (0x3400_0000, 0x8100_01ff),             // cbz, cbnz, forwards
        (0x54ff_fe00, 0x0000_01ef),             // conditional branch, backwards
        (0x9400_0000, 0x0000_001f),             // bl, forwards
        (0xd65f_0000, 0x0000_03e0),             // ret
        (0x3600_0000, 0x81f8_01ff),             // tbz, tbnz, forwards
    ];
    let mut code = Vec::new();
    for _ in 0..60 {
        let (fixed, free) = r.pick(&forms);
        code.extend((fixed | r.next() as u32 & free).to_le_bytes());
    }
    code
}

#[test]
fn random_programs_agree_with_the_interpreter() {
    let mut r = Random(0xfeed_5eed);
    let mut retired = 0;
    for round in 0..100 {
        let hot = if round % 2 == 0 { 1 } else { 3 };
        let x86: Vec<_> = (0..CODE_PAGES).map(|_| x86_code(&mut r)).collect();
        retired += compare::<X86_64>(ArchId::X86_64, r.next(), &x86, hot);
        let arm64: Vec<_> = (0..CODE_PAGES).map(|_| arm64_code(&mut r)).collect();
        retired += compare::<Arm64>(ArchId::Arm64, r.next(), &arm64, hot);
    }
    assert!(retired > 100_000, "only {retired} instructions ran");
}

/// A loop that calls a function on its own page from two places, the second at `second`, and through another name of the
/// page; now and then it changes the function.
fn calls(second: i32) -> Vec<u8> {
    const AGAIN: i32 = 5;
    const FUNCTION: i32 = 0x100;
    const OTHER_NAME: i32 = 22 * 4096;
    let relative = |at: i32, len: i32, to: i32| (to - at - len).to_le_bytes();
    let mut code = vec![0; 0x600];
    let mut put = |at: i32, opcode: &[u8], rest: [u8; 4]| {
        let at = at as usize;
        code[at..at + opcode.len()].copy_from_slice(opcode);
        code[at + opcode.len()..at + opcode.len() + 4].copy_from_slice(&rest);
    };
    put(0, &[0xb9], 300i32.to_le_bytes()); // mov ecx, 300
    put(AGAIN, &[0xe8], relative(AGAIN, 5, FUNCTION)); // call
    put(AGAIN + 5, &[0xe9], relative(AGAIN + 5, 5, second)); // jmp
    put(FUNCTION, &[0x05, 0x11, 0, 0, 0, 0xc3], [0; 4]); // add eax, 11h; ret
    put(second, &[0xe8], relative(second, 5, FUNCTION)); // call
    put(second + 5, &[0xe8], relative(second + 5, 5, FUNCTION + OTHER_NAME)); // call
    // test cl, 31; jnz over; mov [rdi], cl; over: dec ecx
    put(second + 10, &[0xf6, 0xc1, 0x1f, 0x75, 0x02], [0x88, 0x0f, 0xff, 0xc9]);
    put(second + 19, &[0x0f, 0x85], relative(second + 19, 6, AGAIN)); // jnz again
    put(second + 25, &[0xcc], [0; 4]); // int3
    code
}

#[test]
fn returns_lead_where_the_interpreter_returns_to() {
    // Return addresses with a place of their own in the table of targets, and with one place for both.
    check_calls(0x505);
    check_calls(0x405);
}

fn check_calls(second: i32) {
    let (mut native, mut native_bus) = machine::<X86_64>(ArchId::X86_64, &[calls(second)]);
    let (mut plain, mut plain_bus) = machine::<X86_64>(ArchId::X86_64, &[calls(second)]);
    native.set_native(jit::native().expect("this host can"), 1);
    for cpu in [&mut native, &mut plain] {
        let state = cpu.state_mut();
        state.set_pc(VirtAddr::new(BASE));
        state.r[4] = BASE + 10 * PAGE_SIZE;
        state.r[7] = BASE + 0x101;
    }
    loop {
        let (a, b) = (native.run(&mut native_bus, 997), plain.run(&mut plain_bus, 997));
        assert_eq!(a, b);
        assert_eq!(seen(&native, &native_bus), seen(&plain, &plain_bus));
        if a != Exit::Limit {
            break;
        }
    }
    assert!(matches!(native.state().r[1], 0), "the loop ended");
    assert!(native.stats().dropped_nr > 0 && native.stats().compiled_nr > 10);
}
