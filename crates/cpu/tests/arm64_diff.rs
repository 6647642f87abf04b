//! arm64 instructions against QEMU: random instruction words of each encoding class, with interesting
//! register contents, executed by `qemu-aarch64` and by this CPU; every register must agree.
//!
//! The words go into one freestanding program. Around each, it loads all registers from a data set and then
//! folds all of them (and the memory around the base register) into a hash that it prints.
#![expect(
    clippy::print_stderr,
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    reason = "a test that says what it skips and makes its own inputs"
)]

#[path = "harness/mod.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    clippy::allow_attributes,
    reason = "shared between test programs"
)]
mod harness;

use cpu::arm64::decode::decode;
use harness::{End, Guest};
use std::fmt::Write;
use std::path::PathBuf;
use std::process::Command;

/// Data sets that every word runs with.
const SETS: usize = 4;
/// Words of one dumped state: X0–X27, SP, NZCV, FPSR.QC, V0–V31, and 4 KiB of memory.
const DUMP_WORDS: usize = 28 + 4 + 64 + 512;

/// What the program writes for each word.
#[derive(Clone, Copy, PartialEq)]
enum Output {
    /// One hash.
    Hash,
    /// The whole state.
    Dump,
}

struct Random(u64);
impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 20) % n
    }
}

/// A 64-bit value that is often a corner case of some interpretation.
fn interesting(r: &mut Random) -> u64 {
    const CORNERS: [u64; 36] = [
        0,
        1,
        u64::MAX,
        1 << 63,
        i64::MAX as u64,
        0x8000_0000,
        0x7fff_ffff,
        0xffff_ffff,
        0x1_0000_0000,
        0x8000_8000_8000_8000,
        0x7fff_7fff_7fff_7fff,
        0x8080_8080_8080_8080,
        0x7f7f_7f7f_7f7f_7f7f,
        0x0101_0101_0101_0101,
        0x3ff0_0000_0000_0000,
        0xbff8_0000_0000_0000,
        0x7ff0_0000_0000_0000,
        0xfff0_0000_0000_0000,
        0x7ff8_0000_0000_0001,
        0xfff4_0000_0000_0002,
        0x0000_0000_0000_0005,
        0x000f_ffff_ffff_ffff,
        0x4330_0000_0000_0001,
        0x43e0_0000_0000_0000,
        0x3f80_0000_3f80_0000,
        0x7f80_0000_ff80_0000,
        0x7fc0_0001_7fa0_0002,
        0x4f00_0000_cf00_0000,
        0x0000_0001_8000_0000,
        0x4b00_0001_bf00_0000,
        0x3fe0_0000_0000_0000,
        0x4004_0000_0000_0000,
        0x3c00_bc00_7c00_7e01,
        0x0102_0304_0506_0708,
        0x0000_0040_0000_003f,
        0x00ff_00fe_0001_0002,
    ];
    match r.below(5) {
        0 | 1 => CORNERS[r.below(36) as usize],
        2 => u64::from(r.next() as u32) << 32 | CORNERS[r.below(36) as usize] & 0xffff_ffff,
        3 => r.below(256),
        _ => r.next(),
    }
}

/// The program that runs `words`.
fn program(words: &[u32], output: Output, seed: u64) -> String {
    let mut r = Random(seed);
    let mut s = String::from(
        ".text\n.globl _start\n_start:\n adr x0, pass\n str xzr, [x0]\n\
         again:\n",
    );
    for w in words {
        let _ = writeln!(s, " bl setup\n .inst {w:#010x}\n bl save");
    }
    let _ = writeln!(
        s,
        " adr x0, pass\n ldr x1, [x0]\n add x1, x1, #1\n str x1, [x0]\n cmp x1, #{SETS}\n b.lt again\n\
         mov x0, #1\n adrp x1, out\n add x1, x1, :lo12:out\n adrp x2, outp\n ldr x2, [x2, :lo12:outp]\n\
         sub x2, x2, x1\n mov x8, #64\n svc #0\n mov x0, #0\n mov x8, #94\n svc #0"
    );
    s.push_str(
        "setup:\n adr x28, pass\n ldr x28, [x28]\n adrp x29, sets\n add x29, x29, :lo12:sets\n\
         mov x27, #1024\n madd x29, x28, x27, x29\n",
    );
    // Memory around the base: a pattern, anew for each word.
    s.push_str(
        " adrp x0, mem\n add x0, x0, :lo12:mem\n mov x1, #512\n mov x2, #0x1234\n movk x2, #0x9e37, lsl #48\n\
         1: str x2, [x0], #8\n add x2, x2, x2, lsr #7\n subs x1, x1, #1\n b.ne 1b\n",
    );
    for v in 0..16 {
        let _ = writeln!(s, " ldp q{}, q{}, [x29, #{}]", 2 * v, 2 * v + 1, 32 * v);
    }
    s.push_str(" ldr x0, [x29, #768]\n msr nzcv, x0\n msr fpsr, xzr\n clrex\n mov sp, x29\n add x29, x29, #512\n");
    for x in 0..14 {
        let _ = writeln!(s, " ldp x{}, x{}, [x29, #{}]", 2 * x, 2 * x + 1, 16 * x);
    }
    s.push_str(" adrp x27, mem\n add x27, x27, :lo12:mem\n add x27, x27, #2048\n ret\n");
    s.push_str("save:\n adrp x28, state\n add x28, x28, :lo12:state\n");
    for x in 0..14 {
        let _ = writeln!(s, " stp x{}, x{}, [x28, #{}]", 2 * x, 2 * x + 1, 16 * x);
    }
    s.push_str(
        " mov x0, sp\n mrs x1, nzcv\n mrs x2, fpsr\n and x2, x2, #0x8000000\n\
         stp x0, x1, [x28, #224]\n stp x2, xzr, [x28, #240]\n add x28, x28, #256\n",
    );
    for v in 0..16 {
        let _ = writeln!(s, " stp q{}, q{}, [x28, #{}]", 2 * v, 2 * v + 1, 32 * v);
    }
    s.push_str(
        " add x28, x28, #512\n adrp x0, mem\n add x0, x0, :lo12:mem\n mov x1, #256\n\
         2: ldp x2, x3, [x0], #16\n stp x2, x3, [x28], #16\n subs x1, x1, #1\n b.ne 2b\n\
         adrp x28, state\n add x28, x28, :lo12:state\n adrp x4, outp\n add x4, x4, :lo12:outp\n ldr x5, [x4]\n",
    );
    let _ = writeln!(s, " mov x1, #{DUMP_WORDS}");
    s.push_str(match output {
        Output::Hash => {
            " mov x6, #0x193\n movk x6, #0x100, lsl #32\n mov x0, #0x2325\n\
             3: ldr x2, [x28], #8\n eor x0, x0, x2\n mul x0, x0, x6\n ror x0, x0, #23\n subs x1, x1, #1\n b.ne 3b\n\
             str x0, [x5], #8\n str x5, [x4]\n ret\n"
        }
        Output::Dump => {
            "3: ldr x2, [x28], #8\n str x2, [x5], #8\n subs x1, x1, #1\n b.ne 3b\n str x5, [x4]\n ret\n"
        }
    });
    s.push_str("pass: .quad 0\n.data\n.balign 4096\nsets:\n");
    for _ in 0..SETS {
        for i in 0..128 {
            let value = match i {
                96 => r.next() & 0xf000_0000,
                // X26 is the index of loads and stores.
                90 => r.below(8) * 16,
                _ => interesting(&mut r),
            };
            let _ = writeln!(s, " .quad {value:#x}");
        }
    }
    let per_word = if output == Output::Hash { 8 } else { DUMP_WORDS * 8 };
    let _ = writeln!(
        s,
        "outp: .quad out\n.bss\n.balign 4096\nmem: .skip 8192\nstate: .skip 8192\nout: .skip {}",
        words.len() * SETS * per_word
    );
    // The patched counter lives in text.
    s
}

/// Builds the program; `None` without a cross compiler.
fn build(tag: &str, words: &[u32], output: Output, seed: u64) -> Option<PathBuf> {
    let dir = std::env::temp_dir();
    let source = dir.join(format!("a64-diff-{tag}-{}.S", std::process::id()));
    let binary = source.with_extension("elf");
    std::fs::write(&source, program(words, output, seed)).expect("temporary directory is writable");
    let built = Command::new("aarch64-linux-gnu-gcc")
        .args(["-nostdlib", "-static", "-Wl,-N", "-o"])
        .args([&binary, &source])
        .output();
    let _ = std::fs::remove_file(&source);
    let Ok(built) = built else {
        eprintln!("SKIPPED: aarch64-linux-gnu-gcc is not installed");
        return None;
    };
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Some(binary)
}

/// What both print for `words`; `None` if a tool is missing.
fn both(tag: &str, words: &[u32], output: Output, seed: u64) -> Option<(Vec<u64>, Vec<u64>)> {
    let binary = build(tag, words, output, seed)?;
    let elf = std::fs::read(&binary).expect("the linker wrote it");
    let reference = Command::new("qemu-aarch64").arg(&binary).output();
    let _ = std::fs::remove_file(&binary);
    let Ok(reference) = reference else {
        eprintln!("SKIPPED: qemu-aarch64 is not installed");
        return None;
    };
    assert!(reference.status.success(), "{:?}", reference.status);
    let mut guest = Guest::new(&elf, &["diff"]);
    let end = guest.run(u64::MAX);
    assert_eq!(end, End::Status(0), "pc {:#x}", guest.cpu.state().pc);
    let quads = |b: &[u8]| -> Vec<u64> {
        b.chunks_exact(8).map(|c| u64::from_le_bytes(c.try_into().expect("eight"))).collect()
    };
    Some((quads(&reference.stdout), quads(&guest.out)))
}

/// Name of word `i` of a dumped state.
fn field(i: usize) -> String {
    match i {
        0..=27 => format!("x{i}"),
        28 => "sp".into(),
        29 => "nzcv".into(),
        30 => "fpsr.qc".into(),
        31 => "-".into(),
        32..=95 => format!("v{}[{}]", (i - 32) / 2, (i - 32) % 2),
        _ => format!("mem{:+#x}", (i as i64 - 96) * 8 - 2048),
    }
}

/// Runs the words on both; every state must agree.
fn check(tag: &str, words: &[u32], seed: u64) {
    let Some((expected, got)) = both(tag, words, Output::Hash, seed) else { return };
    assert_eq!(expected.len(), words.len() * SETS);
    let mut bad: Vec<u32> = (0..expected.len())
        .filter(|&i| got.get(i) != Some(&expected[i]))
        .map(|i| words[i % words.len()])
        .collect();
    bad.sort_unstable();
    bad.dedup();
    if bad.is_empty() {
        return;
    }
    let nr = bad.len();
    let mut names = std::collections::BTreeMap::<String, u32>::new();
    for &w in &bad {
        *names
            .entry(format!("{:?}", decode(w).expect("decoded before").inst.opcode))
            .or_default() += 1;
    }
    let mut shown = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for &w in &bad {
        let name = format!("{:?}", decode(w).expect("decoded before").inst.opcode);
        if seen.insert(name) && shown.len() < 12 {
            shown.push(w);
        }
    }
    let (expected, got) = both(tag, &shown, Output::Dump, seed).expect("both ran before");
    let mut report = String::new();
    for (i, (e, g)) in expected.chunks(DUMP_WORDS).zip(got.chunks(DUMP_WORDS)).enumerate() {
        let word = shown[i % shown.len()];
        for (at, (e, g)) in e.iter().zip(g).enumerate() {
            if e != g {
                let insn = decode(word).expect("decoded before").inst;
                let name = field(at);
                let _ = writeln!(report, "{word:08x} {insn}: {name} is {g:016x}, not {e:016x}");
            }
        }
    }
    panic!("{tag}: {nr} of {} words differ: {names:?}\n{report}", words.len());
}

/// Words of a class that decode and that do not touch what the program needs.
fn words_of(mask: u32, value: u32, nr: usize, r: &mut Random, accept: fn(u32) -> bool) -> Vec<u32> {
    let mut words = Vec::new();
    for _ in 0..nr * 200 {
        if words.len() == nr {
            break;
        }
        let mut w = (r.next() >> 16) as u32;
        // Few registers, so that sources and destinations meet.
        if r.below(2) == 0 {
            w &= !(0x18 << 16 | 0x18 << 5 | 0x18);
        }
        w = w & !mask | value;
        if accept(w) && decode(w).is_ok() {
            words.push(w);
        }
    }
    assert!(!words.is_empty(), "{mask:08x} {value:08x}: no such words");
    words
}

/// Registers 28 to 30 belong to the program, in all places where a register may be named.
fn registers_are_free(w: u32) -> bool {
    [0, 5, 10, 16].iter().all(|&at| !(28..=30).contains(&(w >> at & 31)))
}

fn ends_are_free(w: u32) -> bool {
    [0, 5].iter().all(|&at| !(28..=30).contains(&(w >> at & 31)))
}

fn any(_: u32) -> bool {
    true
}

#[test]
fn integer_immediates_agree() {
    let mut r = Random(1);
    let classes = [
        (0x1f00_0000, 0x1000_0000), // ADR, ADRP
        (0x1f80_0000, 0x1100_0000), // add, subtract
        (0x1f80_0000, 0x1200_0000), // logical
        (0x1f80_0000, 0x1280_0000), // move wide
        (0x1f80_0000, 0x1300_0000), // bit field
        (0x1f80_0000, 0x1380_0000), // extract
    ];
    let words: Vec<u32> = classes
        .iter()
        .flat_map(|&(mask, value)| {
            let accept = if value == 0x1380_0000 { registers_are_free } else { ends_are_free };
            words_of(mask, value, 200, &mut r, accept)
        })
        .collect();
    check("int-imm", &words, 11);
}

#[test]
fn integer_registers_agree() {
    let mut r = Random(2);
    let classes = [
        (0x1f00_0000, 0x0a00_0000), // logical shifted
        (0x1f20_0000, 0x0b00_0000), // add, subtract shifted
        (0x1f20_0000, 0x0b20_0000), // add, subtract extended
        (0x1fe0_0000, 0x1a00_0000), // with carry
        (0x1fe0_0000, 0x1a40_0000), // conditional compare
        (0x1fe0_0000, 0x1a80_0000), // conditional select
        (0x5fe0_0000, 0x1ac0_0000), // two sources
        (0x5fff_c000, 0x5ac0_0000), // one source
        (0x1f00_0000, 0x1b00_0000), // three sources
    ];
    let words: Vec<u32> = classes
        .iter()
        .flat_map(|&(mask, value)| words_of(mask, value, 200, &mut r, registers_are_free))
        .collect();
    check("int-reg", &words, 12);
}

#[test]
fn scalar_floating_point_agrees() {
    let mut r = Random(3);
    let classes = [
        (0xff20_7c00, 0x1e20_4000), // one source
        (0xff20_0c00, 0x1e20_0800), // two sources
        (0xff00_0000, 0x1f00_0000), // three sources
        (0xff20_3c00, 0x1e20_2000), // compare
        (0xff20_0c00, 0x1e20_0400), // conditional compare
        (0xff20_0c00, 0x1e20_0c00), // select
        (0xff20_1c00, 0x1e20_1000), // immediate
        (0x7f20_fc00, 0x1e20_0000), // to and from integers
        (0x7f20_0000, 0x1e00_0000), // fixed point
    ];
    let words: Vec<u32> = classes
        .iter()
        .flat_map(|&(mask, value)| words_of(mask, value, 250, &mut r, ends_are_free))
        .collect();
    check("fp", &words, 13);
}

#[test]
fn vectors_agree() {
    let mut r = Random(4);
    let classes: [(u32, u32, usize); 18] = [
        (0x9f20_0400, 0x0e20_0400, 1200), // three of the same type
        (0xdf20_0400, 0x5e20_0400, 400),
        (0x9f20_0c00, 0x0e20_0000, 500), // three of different types
        (0xdf20_0c00, 0x5e20_0000, 100),
        (0x9f3e_0c00, 0x0e20_0800, 900), // two registers
        (0xdf3e_0c00, 0x5e20_0800, 400),
        (0x9f3e_0c00, 0x0e30_0800, 150), // across lanes
        (0xdf3e_0c00, 0x5e30_0800, 80),  // scalar pairs
        (0x9fe0_8400, 0x0e00_0400, 250), // copies
        (0xdfe0_8400, 0x5e00_0400, 60),
        (0xbf20_8c00, 0x0e00_0800, 150), // permutes
        (0xbfe0_8c00, 0x0e00_0000, 100), // tables
        (0xbfe0_8400, 0x2e00_0000, 60),  // EXT
        (0x9ff8_0400, 0x0f00_0400, 200), // immediates
        (0x9f80_0400, 0x0f00_0400, 700), // shifts
        (0xdf80_0400, 0x5f00_0400, 300),
        (0x9f00_0400, 0x0f00_0000, 600), // by element
        (0xdf00_0400, 0x5f00_0000, 200),
    ];
    for (i, (mask, value, nr)) in classes.into_iter().enumerate() {
        let accept = if value & 0x0fe0_8400 == 0x0e00_0400 { ends_are_free } else { any };
        let words = words_of(mask, value, nr, &mut r, accept);
        check(&format!("simd{i}"), &words, 14 + i as u64);
    }
}

/// Sets the base register to X27 and, for register offsets, the index to X26.
fn loads_and_stores(classes: &[(u32, u32, usize)], tag: &str, accept: fn(u32) -> bool) {
    let mut r = Random(5);
    for (i, &(mask, value, nr)) in classes.iter().enumerate() {
        let base = mask | 31 << 5;
        let words = words_of(base, value | 27 << 5, nr, &mut r, accept);
        check(&format!("{tag}{i}"), &words, 40 + i as u64);
    }
}

/// Transfer registers that are neither the base nor the program's, and not the same twice.
fn transfers_are_free(w: u32) -> bool {
    let (t, t2, s) = (w & 31, w >> 10 & 31, w >> 16 & 31);
    let taken = |n: u32| (27..=30).contains(&n);
    let vector = w >> 26 & 1 != 0;
    t != t2 && (vector || (!taken(t) && !taken(t2) && !taken(s) && s != t && s != t2))
}

fn transfer_is_free(w: u32) -> bool {
    w >> 26 & 1 != 0 || !(27..=30).contains(&(w & 31))
}

#[test]
fn cryptography_agrees() {
    let mut r = Random(6);
    let classes = [
        (0xffff_0c00, 0x4e28_0800), // AES
        (0xffe0_8c00, 0x5e00_0000), // SHA, three registers
        (0xffff_0c00, 0x5e28_0800), // SHA, two registers
        (0xbfe0_fc00, 0x0ee0_e000), // PMULL of 64 bits
    ];
    let words: Vec<u32> =
        classes.iter().flat_map(|&(mask, value)| words_of(mask, value, 80, &mut r, any)).collect();
    check("crypto", &words, 60);
}

#[test]
fn loads_and_stores_agree() {
    let near = |mask: u32| mask | 0xfc0 << 10 & 0x003f_0000;
    loads_and_stores(
        &[
            (near(0x3b00_0000), 0x3900_0000, 400), // unsigned offset, small
            (0x3b20_0000, 0x3800_0000, 500),       // unscaled, pre, post, unprivileged
            (0x3b3f_0c00, 0x383a_0800, 400),       // register offset by X26
        ],
        "ldst",
        transfer_is_free,
    );
    loads_and_stores(&[(0x3a00_0000, 0x2800_0000, 500)], "pair", transfers_are_free);
}

#[test]
fn exclusives_and_atomics_agree() {
    loads_and_stores(
        &[
            (0x3f80_0000, 0x0800_0000, 200), // exclusives
            (0x3fa0_0000, 0x0880_0000, 100), // ordered
            (0x3fa0_7c00, 0x08a0_7c00, 150), // CAS
            (0xbfa0_7c00, 0x0820_7c00, 60),  // CASP
            (0x3f20_0c00, 0x3820_0000, 400), // LD<op>, SWP
        ],
        "atomic",
        transfers_are_free,
    );
}

#[test]
fn structure_loads_and_stores_agree() {
    loads_and_stores(
        &[
            (0xbfbf_0000, 0x0c00_0000, 250), // multiple
            (0xbfbf_0000, 0x0c9f_0000, 200), // multiple, post-indexed
            (0xbfbf_0000, 0x0c9a_0000, 100), // post-indexed by X26
            (0xbf9f_0000, 0x0d00_0000, 300), // single
            (0xbf9f_0000, 0x0d9f_0000, 200),
            (0xbf9f_0000, 0x0d9a_0000, 100),
        ],
        "struct",
        any,
    );
}
