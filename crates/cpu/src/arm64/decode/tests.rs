//! The decoder against objdump, and the screen against its own table.

#![expect(
    clippy::print_stderr,
    clippy::cast_possible_truncation,
    reason = "tests that say what they skip and make random words"
)]

use super::*;
use std::collections::BTreeMap;
use std::process::Command;

/// What objdump makes of each word (mnemonic without aliases, operands), or `None` without objdump.
fn objdump(tag: &str, words: &[u32]) -> Option<Vec<String>> {
    let path = std::env::temp_dir().join(format!("a64-{tag}-{}.bin", std::process::id()));
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    std::fs::write(&path, bytes).expect("the temporary directory is writable");
    let out = Command::new("aarch64-linux-gnu-objdump")
        .args(["-D", "-z", "-b", "binary", "-m", "aarch64", "-M", "no-aliases"])
        .arg(&path)
        .output();
    let _ = std::fs::remove_file(&path);
    let Ok(out) = out else {
        eprintln!("SKIPPED: aarch64-linux-gnu-objdump is not installed");
        return None;
    };
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let listed: Vec<String> = text.lines().filter_map(instruction_of).collect();
    assert_eq!(listed.len(), words.len(), "objdump lists every word");
    Some(listed)
}

fn instruction_of(line: &str) -> Option<String> {
    let mut columns = line.split('\t');
    let address = columns.next()?;
    let (_word, mnemonic) = (columns.next()?, columns.next()?);
    let operands = columns.next().unwrap_or("");
    address.trim_end().ends_with(':').then(|| format!("{} {operands}", mnemonic.trim()))
}

/// Mnemonics of extensions that the CPU does not announce, in objdump's spelling; `*` is a suffix.
const UNANNOUNCED: &str = "addg subg smax smin umax umin cnt bc.* tcancel cpy* set* ld64b st64b* ldapr* ldapur* stlur* \
    ldlar* stllr* ldraa ldrab ldg* stg* stzg* st2g stz2g gmi irg subp* pac* aut* xpac* rmif \
    sha512* sm3* sm4* bcax eor3 rax1 xar bf* fmlal* fmlsl* fcmla fcadd fjcvtzs \
    frint32* frint64* sdot udot usdot sudot smmla ummla usmmla sqrdmlah sqrdmlsh sb cfinv axflag \
    xaflag wfet wfit retaa* retab* braa* brab* blraa* blrab* eretaa eretab ctz abs";

/// Whether objdump names an instruction that this CPU does not have.
fn is_unannounced(listed: &str) -> bool {
    let (mnemonic, operands) = listed.split_once(' ').unwrap_or((listed, ""));
    let named = UNANNOUNCED.split_whitespace().any(|p| match p.strip_suffix('*') {
        Some(prefix) => mnemonic.starts_with(prefix),
        None => mnemonic == p,
    });
    // Scalar minimum and maximum are CSSC; the vector ones are ours.
    let vector = operands.starts_with('v') || operands.starts_with(['b', 'h', 's', 'd']);
    let cssc = ["smax", "smin", "umax", "umin", "cnt", "abs"].contains(&mnemonic);
    if cssc && vector {
        return false;
    }
    let float = mnemonic.starts_with('f') || mnemonic.contains("cvtf");
    let half = operands.split([',', ' ']).any(|o| {
        o.ends_with(".4h") || o.ends_with(".8h") || o.starts_with('h') || o.contains(".h[")
    });
    let converts = ["fcvt", "fcvtl", "fcvtl2", "fcvtn", "fcvtn2"].contains(&mnemonic);
    named || (float && half && !converts)
}

fn is_undefined(listed: &str) -> bool {
    listed.contains("undefined") || listed.starts_with(".inst")
}

/// Words that objdump refuses and the architecture leaves open (should-be-one fields that the
/// hardware ignores, `CONSTRAINED UNPREDICTABLE` write-back): we accept them, as QEMU does.
fn is_tolerated(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::LDAR | Opcode::LDARB | Opcode::LDARH | Opcode::LDPSW)
        || matches!(opcode, Opcode::STLR | Opcode::STLRB | Opcode::STLRH)
}

/// System registers that `yaxpeax-arm` does not list (op0 of 0 or 1): no such registers exist.
fn is_absent_system_register(word: u32) -> bool {
    word & 0xffd0_0000 == 0xd500_0000
}

/// Whether objdump's mnemonic is the name of our opcode; conditions and orderings are suffixes there.
fn is_named(decoded: &A64, mnemonic: &str) -> bool {
    let full = format!("{:?}", decoded.inst.opcode).to_lowercase();
    let base = full.split('(').next().unwrap_or("");
    if base == "bcc" {
        return mnemonic.starts_with("b.");
    }
    // CASB is `casb`, `casab`, `caslb` or `casalb`.
    let (stem, width) = match base.strip_suffix(['b', 'h']) {
        Some(stem) if full.contains('(') && stem != "bl" => (stem, &base[stem.len()..]),
        _ => (base, ""),
    };
    let ordering = mnemonic.strip_prefix(stem).and_then(|rest| rest.strip_suffix(width));
    ordering.is_some_and(|o| o.is_empty() || (full.contains('(') && ["a", "l", "al"].contains(&o)))
}

/// A word-sized random stream: xorshift, fixed seed.
fn random_words(seed: u64) -> impl FnMut() -> u32 {
    let mut s = seed;
    move || {
        s ^= s << 13;
        s ^= s >> 7;
        s ^= s << 17;
        (s >> 20) as u32
    }
}

/// Compares both decoders on `words`; returns the kinds of disagreement with an example of each.
fn disagreements(words: &[u32], listed: &[String]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for (&word, listed) in words.iter().zip(listed) {
        let mnemonic = listed.split(' ').next().unwrap_or("");
        let kind = match decode(word) {
            Ok(d) if is_undefined(listed) && !is_tolerated(d.inst.opcode) => {
                format!("accepted {:?}", d.inst.opcode)
            }
            Ok(d) if !is_undefined(listed) && !is_named(&d, mnemonic) => {
                if mnemonic == "hint" || matches!(mnemonic, "dsb" | "ssbb" | "pssbb" | "sys") {
                    continue;
                }
                if d.inst.opcode == Opcode::MSR {
                    continue; // CFINV and friends are PSTATE forms of MSR here
                }
                format!("named {:?} for {mnemonic}", d.inst.opcode)
            }
            Ok(_) => continue,
            Err(_) if is_undefined(listed) || is_unannounced(listed) => continue,
            Err(_) if is_absent_system_register(word) => continue,
            Err(_) => format!("refused {mnemonic}"),
        };
        found.entry(kind).or_insert_with(|| format!("{word:08x} {listed}"));
    }
    found
}

#[test]
fn random_words_of_every_section_agree_with_objdump() {
    let sections: [(&str, u32, u32); 5] = [
        ("immediate", 0x1c00_0000, 0x1000_0000),
        ("branch", 0x1c00_0000, 0x1400_0000),
        ("loadstore", 0x0a00_0000, 0x0800_0000),
        ("register", 0x0e00_0000, 0x0a00_0000),
        ("simd", 0x0e00_0000, 0x0e00_0000),
    ];
    let mut next = random_words(0x9e37_79b9_7f4a_7c15);
    for (name, mask, value) in sections {
        let words: Vec<u32> = (0..200_000).map(|_| (next() & !mask) | value).collect();
        let Some(listed) = objdump(name, &words) else { return };
        let found = disagreements(&words, &listed);
        assert!(found.is_empty(), "{name}: {found:#?}");
    }
}

#[test]
fn every_rule_refuses_only_what_objdump_calls_undefined_or_is_unannounced() {
    let mut next = random_words(0x1234_5678_9abc_def1);
    for (i, rule) in RULES.iter().enumerate() {
        let words: Vec<u32> = (0..64)
            .map(|_| {
                let free = (next() & !rule.mask) | rule.value;
                if rule.any == !0 { free } else { free | (rule.any & rule.any.wrapping_neg()) }
            })
            .collect();
        assert!(words.iter().all(|&w| rule.refuses(w) && decode(w).is_err()), "{}", rule.name);
        let Some(listed) = objdump(&format!("rule{i}"), &words) else { return };
        for (word, listed) in words.iter().zip(&listed) {
            let right = is_undefined(listed) || is_unannounced(listed);
            assert!(right, "{}: {word:08x} is {listed}", rule.name);
        }
    }
}

#[test]
fn every_lane_row_refuses_only_sizes_that_objdump_calls_undefined_or_are_unannounced() {
    let mut next = random_words(0x0fed_cba9_8765_4321);
    let mut words = Vec::new();
    for row in LANES {
        for _ in 0..64 {
            let word = (next() & !row.mask) | row.value;
            if row.refuses(word) {
                assert!(decode(word).is_err());
                words.push(word);
            }
        }
    }
    let Some(listed) = objdump("lanes", &words) else { return };
    for (word, listed) in words.iter().zip(&listed) {
        assert!(is_undefined(listed) || is_unannounced(listed), "{word:08x} is {listed}");
    }
}

#[test]
fn msr_register_reads_all_five_bits_of_rt() {
    for rt in 0..32u16 {
        let word = 0xd51b_d040 | u32::from(rt); // msr tpidr_el0, x<rt>
        let decoded = decode(word).expect("MSR TPIDR_EL0 is defined");
        assert_eq!(decoded.inst.operands[1], Operand::Register(SizeCode::X, rt));
    }
}

#[test]
fn every_word_decodes_to_an_answer() {
    let mut next = random_words(42);
    for _ in 0..200_000 {
        let word = next();
        if let Ok(decoded) = decode(word) {
            assert_eq!(decoded.word, word);
        }
    }
}

#[test]
fn udf_decodes_as_itself() {
    assert_eq!(decode(0x0000_1234).map(|d| d.inst.opcode), Ok(Opcode::UDF));
}

#[test]
fn a_static_glibc_program_decodes_as_objdump_reads_it() {
    let dir = std::env::temp_dir();
    let (source, binary, text) = (
        dir.join(format!("a64-real-{}.c", std::process::id())),
        dir.join(format!("a64-real-{}", std::process::id())),
        dir.join(format!("a64-real-{}.text", std::process::id())),
    );
    let program = "#include <stdio.h>\nint main(void){printf(\"%g\\n\", 1.5);return 0;}\n";
    std::fs::write(&source, program).expect("the temporary directory is writable");
    let built = Command::new("aarch64-linux-gnu-gcc")
        .args(["-O2", "-static", "-o"])
        .args([&binary, &source])
        .status();
    let Ok(status) = built else {
        eprintln!("SKIPPED: aarch64-linux-gnu-gcc is not installed");
        return;
    };
    assert!(status.success(), "a static program links");
    let copied = Command::new("aarch64-linux-gnu-objcopy")
        .args(["-O", "binary", "--only-section=.text"])
        .args([&binary, &text])
        .status();
    assert!(copied.is_ok_and(|s| s.success()), "objcopy takes the text out");
    let bytes = std::fs::read(&text).expect("objcopy wrote the text");
    for file in [source, binary, text] {
        let _ = std::fs::remove_file(file);
    }
    let words: Vec<u32> =
        bytes.chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect();
    assert!(words.len() > 50_000);
    let Some(listed) = objdump("real", &words) else { return };
    let mut found = disagreements(&words, &listed);
    // SVE variants of the string functions are picked by HWCAP only, and are refused.
    found.retain(|_, example| {
        let word = u32::from_str_radix(example.get(..8).unwrap_or("0"), 16).unwrap_or(0);
        let section = word >> 25 & 15;
        section != 2
    });
    assert!(found.is_empty(), "{found:#?}");
}
