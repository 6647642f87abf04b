//! Instructions one by one, with expected values, faults and exits; no tools needed.

use super::HWCAP;
use crate::ir::{Reg, SP, TPIDR};
use crate::testbus::{FlatBus, FlatFault};
use crate::{Cpu, Engine, Exit, flags};
use units::{ArchId, VirtAddr};

const BASE: u64 = 0x1_0000;
const CODE: u64 = BASE + 0x1000;
const DATA: u64 = BASE + 0x4000;
const SIZE: usize = 0x8000;

struct Bench {
    cpu: Cpu<FlatBus>,
    bus: FlatBus,
}

impl Bench {
    fn new(words: &[u32]) -> Bench {
        let mut bus = FlatBus::new(VirtAddr::new(BASE), SIZE);
        for (i, word) in words.iter().enumerate() {
            let at = VirtAddr::new(CODE + 4 * i as u64);
            bus.slice_mut(at, 4).expect("code fits").copy_from_slice(&word.to_le_bytes());
        }
        let mut cpu = Cpu::new(ArchId::Arm64);
        cpu.state_mut().pc = CODE;
        Bench { cpu, bus }
    }
    fn x(mut self, n: u8, value: u64) -> Bench {
        self.cpu.state_mut().set_reg(Reg(n), value);
        self
    }
    fn get(&self, n: u8) -> u64 {
        self.cpu.state().reg(Reg(n))
    }
    fn put(mut self, at: u64, value: u64) -> Bench {
        let to = self.bus.slice_mut(VirtAddr::new(at), 8).expect("data in memory");
        to.copy_from_slice(&value.to_le_bytes());
        self
    }
    fn memory(&self, at: u64) -> u64 {
        let bytes = self.bus.slice(VirtAddr::new(at), 8).and_then(|b| b.first_chunk());
        bytes.map_or(0, |b| u64::from_le_bytes(*b))
    }
    fn run(&mut self, insns: u64) -> Exit<FlatFault> {
        self.cpu.run(&mut self.bus, insns)
    }
}

/// Runs one instruction with X1–X3 and reads X0.
fn value_of(word: u32, [x1, x2, x3]: [u64; 3]) -> u64 {
    let mut b = Bench::new(&[word]).x(0, 0x5555_5555_5555_5555).x(1, x1).x(2, x2).x(3, x3);
    assert_eq!(b.run(1), Exit::Limit, "{word:08x}");
    b.get(0)
}

#[test]
fn integer_instructions_compute_what_the_manual_says() {
    const M: u64 = u64::MAX;
    let cases: &[(&str, u32, [u64; 3], u64)] = &[
        ("add x0, x1, x2, lsl #4", 0x8b02_1020, [5, 3, 0], 53),
        ("add w0, w1, w2", 0x0b02_0020, [0xffff_ffff, 1, 0], 0),
        ("add x0, x1, w2, sxtb #2", 0x8b22_8820, [100, 0xff, 0], 96),
        ("sub x0, x1, #0xabc, lsl #12", 0xd16a_f020, [0xabd000, 0, 0], 0x1000),
        ("neg x0, x2", 0xcb02_03e0, [0, 7, 0], 7u64.wrapping_neg()),
        ("and x0, x1, #0xff00ff00ff00ff00", 0x9208_9c20, [M, 0, 0], 0xff00_ff00_ff00_ff00),
        ("orr w0, wzr, #0x55555555", 0x3200_f3e0, [0, 0, 0], 0x5555_5555),
        ("eor x0, x1, x2, ror #8", 0xcac2_2020, [0, 0x1ff, 0], 0xff00_0000_0000_0001),
        ("bic x0, x1, x2", 0x8a22_0020, [0xff, 0x0f, 0], 0xf0),
        ("orn w0, w1, w2", 0x2a22_0020, [0, 0xffff_fff0, 0], 0xf),
        ("movn x0, #0x1234, lsl #16", 0x92a2_4680, [0, 0, 0], 0xffff_ffff_edcb_ffff),
        ("movk x0, #0x1234, lsl #32", 0xf2c2_4680, [0, 0, 0], 0x5555_1234_5555_5555),
        ("ubfx x0, x1, #4, #8", 0xd344_2c20, [0xabcd, 0, 0], 0xbc),
        ("sbfiz x0, x1, #8, #4", 0x9378_0c20, [0xf, 0, 0], 0xffff_ffff_ffff_ff00),
        ("bfi x0, x1, #4, #8", 0xb37c_1c20, [0xab, 0, 0], 0x5555_5555_5555_5ab5),
        ("asr w0, w1, #31", 0x131f_7c20, [0x8000_0000, 0, 0], 0xffff_ffff),
        ("extr x0, x1, x2, #4", 0x93c2_1020, [0xf, 0x10, 0], 0xf000_0000_0000_0001),
        ("udiv x0, x1, x2", 0x9ac2_0820, [7, 0, 0], 0),
        ("sdiv w0, w1, w2", 0x1ac2_0c20, [0x8000_0000, 0xffff_ffff, 0], 0x8000_0000),
        ("lslv w0, w1, w2", 0x1ac2_2020, [1, 33, 0], 2),
        ("madd x0, x1, x2, x3", 0x9b02_0c20, [3, 4, 5], 17),
        ("msub w0, w1, w2, w3", 0x1b02_8c20, [3, 4, 5], 0xffff_fff9),
        ("smaddl x0, w1, w2, x3", 0x9b22_0c20, [0xffff_ffff, 2, 5], 3),
        ("umulh x0, x1, x2", 0x9bc2_7c20, [M, M, 0], M - 1),
        ("smulh x0, x1, x2", 0x9b42_7c20, [M, M, 0], 0),
        ("clz w0, w1", 0x5ac0_1020, [1, 0, 0], 31),
        ("cls x0, x1", 0xdac0_1420, [M, 0, 0], 63),
        ("rbit w0, w1", 0x5ac0_0020, [1, 0, 0], 0x8000_0000),
        ("rev16 x0, x1", 0xdac0_0420, [0x0102_0304, 0, 0], 0x0201_0403),
        ("rev32 x0, x1", 0xdac0_0820, [0x0102_0304, 0, 0], 0x0403_0201),
    ];
    for &(name, word, sources, expected) in cases {
        assert_eq!(value_of(word, sources), expected, "{name}");
    }
}

#[test]
fn conditions_follow_from_the_flags() {
    // cset x0, <cond> is csinc x0, xzr, xzr, <inverse>.
    for nzcv in 0..16u64 {
        let (n, z) = (nzcv & 8 != 0, nzcv & 4 != 0);
        let (c, v) = (nzcv & 2 != 0, nzcv & 1 != 0);
        let holds = [z, c, n, v, c && !z, n == v, !z && n == v];
        for (pair, expected) in (0u32..).zip(holds) {
            for inverse in [false, true] {
                let cond = pair << 1 | u32::from(inverse);
                let word = 0x9a9f_07e0 | (cond ^ 1) << 12;
                let mut b = Bench::new(&[0xd51b_4201, word]).x(1, nzcv << 28); // msr nzcv, x1
                b.run(2);
                assert_eq!(b.get(0), u64::from(expected != inverse), "{cond} {nzcv:04b}");
            }
        }
    }
}

#[test]
fn subtraction_sets_carry_when_there_is_no_borrow() {
    for (a, b, expected) in
        [(5u64, 5u64, 0b0110), (4, 5, 0b1000), (5, 4, 0b0010), (1 << 63, 1, 0b0011)]
    {
        let mut bench = Bench::new(&[0xeb02_003f]).x(1, a).x(2, b); // cmp x1, x2
        bench.run(1);
        assert_eq!(flags::nzcv(bench.cpu.state()) >> 28, expected, "{a} {b}");
    }
}

#[test]
fn constants_fold_across_instructions() {
    // movz, movk, movk, movk; adrp, add.
    let words = [0xd282_4680, 0xf2aa_cf00, 0xf2d3_5780, 0xf2fb_de00, 0x9000_0001, 0x9100_4021];
    let mut b = Bench::new(&words);
    b.run(6);
    assert_eq!(b.get(0), 0xdef0_9abc_5678_1234);
    assert_eq!(b.get(1), CODE + 0x10);
}

#[test]
fn the_thread_pointer_is_written_from_any_register() {
    let mut b = Bench::new(&[0xd51b_d053, 0xd53b_d040]).x(19, 0x1234_5678); // msr x19; mrs x0
    b.run(2);
    assert_eq!((b.cpu.state().reg(TPIDR), b.get(0)), (0x1234_5678, 0x1234_5678));
}

#[test]
fn a_faulting_access_changes_no_base_register_and_can_be_restarted() {
    let cases = [
        ("ldr x0, [x1], #8", 0xf840_8420),
        ("ldr x0, [x1, #8]!", 0xf840_8c20),
        ("str x0, [x1], #16", 0xf801_0420),
        ("ldp x0, x2, [x1], #16", 0xa8c1_0820),
        ("stp x0, x2, [x1, #-16]!", 0xa9bf_0820),
        ("ld1 {v0.16b, v1.16b}, [x1], #32", 0x4cdf_a020),
        ("st1 {v0.b}[3], [x1], #1", 0x0d9f_0c20),
        ("ldr q0, [x1], #16", 0x3cc1_0420),
        ("ldadd x2, x0, [x1]", 0xf822_0020),
    ];
    for (name, word) in cases {
        let mut b = Bench::new(&[word]).x(1, 0x9999_0000);
        let exit = b.run(10);
        assert!(matches!(exit, Exit::Fault { pc, .. } if pc.get() == CODE), "{name}: {exit:?}");
        // A read-modify-write counts as its two accesses even if the first of them faults.
        let accesses = if name.starts_with("ldadd") { 2 } else { 1 };
        assert_eq!((b.get(1), b.cpu.retired_nr()), (0x9999_0000, 0), "{name}");
        assert_eq!(b.bus.accesses, accesses, "{name}");
        b.cpu.state_mut().set_reg(Reg(1), DATA);
        assert_eq!(b.run(1), Exit::Limit, "{name} again");
    }
}

#[test]
fn a_pair_load_over_its_own_base_restarts_when_the_second_half_faults() {
    // ldp x1, x2, [x1], with the second doubleword past the end of memory.
    let end = BASE + SIZE as u64;
    let mut b = Bench::new(&[0xa940_0821]).x(1, end - 8).put(end - 8, 77);
    let exit = b.run(1);
    let Exit::Fault { fault, .. } = exit else { panic!("{exit:?}") };
    assert_eq!((fault.va.get(), b.get(1)), (end, end - 8));
}

#[test]
fn exclusive_stores_succeed_only_on_what_was_loaded() {
    let pair = [0xc85f_7c20, 0xc803_7c22]; // ldxr x0, [x1]; stxr w3, x2, [x1]
    let mut b = Bench::new(&pair).x(1, DATA).x(2, 9).put(DATA, 5);
    b.run(2);
    assert_eq!((b.get(0), b.get(3), b.memory(DATA)), (5, 0, 9));
    let mut b = Bench::new(&pair).x(1, DATA).x(2, 9).put(DATA, 5);
    b.run(1);
    let mut b = b.put(DATA, 6);
    b.run(1);
    assert_eq!((b.get(3), b.memory(DATA)), (1, 6));
    let mut b = Bench::new(&pair[1..]).x(1, DATA).x(2, 9).put(DATA, 5);
    b.run(1);
    assert_eq!((b.get(3), b.memory(DATA)), (1, 5));
}

#[test]
fn dc_zva_zeroes_the_64_byte_block_around_its_address() {
    let mut b =
        Bench::new(&[0xd50b_7421]).x(1, DATA + 0x65).put(DATA + 0x38, 1).put(DATA + 0x80, 2);
    for at in (0x40..0x80).step_by(8) {
        b = b.put(DATA + at, u64::MAX);
    }
    assert_eq!(b.run(1), Exit::Limit);
    let block: Vec<u64> = (0x38..=0x80).step_by(8).map(|at| b.memory(DATA + at)).collect();
    assert_eq!(block, [1, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    assert_eq!(b.bus.accesses, 8);
}

#[test]
fn new_code_runs_after_instruction_cache_maintenance() {
    // str w0, [x1]; dc cvau, x1; dsb ish; ic ivau, x1; dsb ish; isb; nop -> mov x2, #1
    let words =
        [0xb900_0020, 0xd50b_7b21, 0xd503_3b9f, 0xd50b_7521, 0xd503_3b9f, 0xd503_3fdf, 0xd503_201f];
    let mut b = Bench::new(&words).x(0, 0xd280_0022).x(1, CODE + 24);
    assert_eq!(b.run(7), Exit::Limit);
    assert_eq!((b.get(2), b.cpu.retired_nr()), (1, 7));
}

#[test]
fn system_calls_breakpoints_and_undefined_words_leave_with_the_right_pc() {
    let exit = |word: u32| {
        let mut b = Bench::new(&[0xd503_201f, word]);
        let exit = b.run(10);
        (exit, b.cpu.state().pc - CODE)
    };
    assert_eq!(exit(0xd400_0001), (Exit::Syscall, 8)); // svc #0
    assert!(matches!(exit(0xd420_0000), (Exit::Breakpoint { .. }, 4))); // brk #0
    let undefined = [
        ("udf #0", 0x0000_0000),
        ("hvc #0", 0xd400_0002),
        ("eret", 0xd69f_03e0),
        ("hlt #0", 0xd440_0000),
        ("mrs x0, sctlr_el1", 0xd538_1000),
        ("msr daifset, #2", 0xd503_42df),
        ("tlbi vmalle1", 0xd508_871f),
        ("dc isw, x0", 0xd508_7640),
        ("sdot v0.4s, v1.16b, v2.16b", 0x4e82_9420),
        ("ld1b z0.b, p0/z, [x0]", 0xa400_a000),
        ("irg x0, x1", 0x9adf_1020),
    ];
    for (name, word) in undefined {
        let (exit, pc) = exit(word);
        assert!(matches!(exit, Exit::Undefined { .. }) && pc == 4, "{name}: {exit:?}");
    }
}

#[test]
fn the_id_registers_say_what_hwcap_says() {
    let read = |register: u32| {
        let mut b = Bench::new(&[0xd538_0000 | register << 5]).x(0, 1); // mrs x0, s3_0_c0_...
        assert_eq!(b.run(1), Exit::Limit);
        b.get(0)
    };
    let (isar0, pfr0) = (read(6 << 3), read(4 << 3));
    let field = |value: u64, at: u32| value >> at & 15;
    assert_eq!(field(isar0, 20) == 2, HWCAP >> 8 & 1 != 0, "atomics");
    assert_eq!(field(isar0, 16) == 1, HWCAP >> 7 & 1 != 0, "CRC32");
    assert_eq!(field(isar0, 4) >= 1, HWCAP >> 3 & 1 != 0, "AES");
    assert_eq!(field(pfr0, 16) == 0, HWCAP & 1 != 0, "FP");
    assert_eq!(field(pfr0, 20) == 0, HWCAP >> 1 & 1 != 0, "Advanced SIMD");
    assert_eq!(field(pfr0, 32), 0, "SVE");
    let mut b = Bench::new(&[0xd53b_00e0]); // mrs x0, dczid_el0
    b.run(1);
    assert_eq!(4 << b.get(0), 64);
}

#[test]
fn rounding_modes_other_than_nearest_are_refused() {
    let write = |value: u64| Bench::new(&[0xd51b_4401]).x(1, value).run(1); // msr fpcr, x1
    assert_eq!(write(0), Exit::Limit);
    assert_eq!(write(0x9f00), Exit::Limit); // trap enables read as zero
    for mode in [1u64 << 22, 1 << 23, 1 << 24, 1 << 25] {
        assert!(matches!(write(mode), Exit::Unsupported { .. }), "{mode:x}");
    }
}

#[test]
fn the_stack_pointer_is_not_the_zero_register() {
    let mut b = Bench::new(&[0xd100_83ff, 0xf900_07ff, 0x9100_03e0]); // sub sp; str xzr, [sp, #8]; mov x0, sp
    b.cpu.state_mut().set_reg(SP, DATA + 32);
    let mut b = b.put(DATA + 8, 5);
    b.run(3);
    assert_eq!((b.get(0), b.memory(DATA + 8)), (DATA, 0));
}

#[test]
fn both_engines_survive_any_word_and_agree() {
    let mut seed = 0x1357_9bdf_2468_ace1u64;
    let mut next = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    for _ in 0..60_000 {
        let word = (next() >> 24 & 0xffff_ffff) as u32;
        if super::decode::decode(word).is_err() {
            continue;
        }
        let mut seeds = [0u64; 96];
        seeds.fill_with(|| if next() & 1 == 0 { next() } else { DATA + (next() & 0xff) });
        let end_state = |engine| {
            let mut b = Bench::new(&[word]);
            b.cpu.set_engine(engine);
            for (n, value) in (0u8..).zip(&seeds[..32]) {
                b.cpu.state_mut().set_reg(Reg(n), *value);
            }
            for (n, pair) in seeds[32..].chunks(2).enumerate() {
                b.cpu.state_mut().v[n] = u128::from(pair[0]) << 64 | u128::from(pair[1]);
            }
            let exit = b.run(1);
            let s = b.cpu.state().clone();
            (format!("{exit:?}"), s.pc, s.r, s.v, flags::nzcv(&s), s.fpsr)
        };
        let (a, b) = (end_state(Engine::Match), end_state(Engine::Threaded));
        assert!(a == b, "{word:08x}");
    }
}
