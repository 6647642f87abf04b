//! A64 decoding: `yaxpeax-arm` behind a screen of our own.
//!
//! `yaxpeax-arm` 0.5 names and splits nearly every A64 word that gcc emits, but it accepts a
//! number of reserved encodings, returns some as `Ok` with [`Opcode::Invalid`], reads the `Rt`
//! field of `MSR (register)` with four bits, and knows extensions that this CPU does not announce
//! in its ID registers. [`decode`] therefore applies a table of rules first (each row is one sentence of
//! the manual as mask and value), then asks `yaxpeax-arm`, then refuses what is not announced.
//!
//! Left out: SVE, SME, MTE, pointer authentication beyond the hint space, and everything after
//! Armv8.0 that [`crate::arm64::HWCAP`] does not list.
//!
//! Source: Arm DDI 0487, "A64 Instruction Set Encoding".

use yaxpeax_arch::{Decoder, U8Reader};
use yaxpeax_arm::armv8::a64::{InstDecoder, Instruction, Opcode, Operand, SizeCode};

/// One decoded A64 instruction: what `yaxpeax-arm` says, and the word it said it about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct A64 {
    /// The instruction word, in host order.
    pub word: u32,
    /// Opcode and operands, with the `MSR (register)` source corrected.
    pub inst: Instruction,
}

/// The word is not an instruction of this CPU: executing it is an Undefined Instruction exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("undefined A64 word {word:#010x} ({why})")]
pub struct Undef {
    /// The refused word.
    pub word: u32,
    /// Which rule refused it.
    pub why: &'static str,
}

/// A class of words that are UNDEFINED: those with `word & mask == value` and a bit of `any` set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    /// What is reserved, in a few words.
    pub(crate) name: &'static str,
    /// The bits that decide.
    pub(crate) mask: u32,
    /// What they must be for the word to be refused.
    pub(crate) value: u32,
    /// At least one of these must be set as well; all ones where `mask` says everything.
    pub(crate) any: u32,
}

impl Rule {
    /// Whether the rule refuses `word`.
    pub(crate) const fn refuses(&self, word: u32) -> bool {
        word & self.mask == self.value && word & self.any != 0
    }
}

const fn rule(name: &'static str, mask: u32, value: u32) -> Rule {
    Rule { name, mask, value, any: !0 }
}

const fn rule_any(name: &'static str, mask: u32, value: u32, any: u32) -> Rule {
    Rule { name, mask, value, any }
}

/// Reserved and unannounced encodings, by section of the encoding index.
pub(crate) const RULES: &[Rule] = &[
    // Data processing, immediate.
    rule("32-bit logical immediate with N=1", 0x9fc0_0000, 0x1240_0000),
    rule("logical immediate, N=1, all ones", 0x1fc0_fc00, 0x1240_fc00),
    rule("logical immediate, 32-bit element, all ones", 0x1fc0_fc00, 0x1200_7c00),
    rule("logical immediate, 16-bit element, all ones", 0x1fc0_fc00, 0x1200_bc00),
    rule("logical immediate, 8-bit element, all ones", 0x1fc0_fc00, 0x1200_dc00),
    rule("logical immediate, 4-bit element, all ones", 0x1fc0_fc00, 0x1200_ec00),
    rule("logical immediate, 2-bit element, all ones", 0x1fc0_fc00, 0x1200_f400),
    rule("logical immediate, element of one bit", 0x1fc0_f800, 0x1200_f800),
    rule("32-bit MOVN/MOVZ/MOVK with hw>=2", 0x9fc0_0000, 0x12c0_0000),
    rule("MOV wide with opc=01", 0x7f80_0000, 0x3280_0000),
    rule("32-bit bitfield or EXTR with N=1", 0x9f40_0000, 0x1340_0000),
    rule("64-bit bitfield or EXTR with N=0", 0x9f40_0000, 0x9300_0000),
    rule("32-bit bitfield or EXTR with imms>=32", 0x9f00_8000, 0x1300_8000),
    rule("32-bit bitfield with immr>=32", 0x9fa0_0000, 0x1320_0000),
    rule("bitfield with opc=11", 0x7f80_0000, 0x7300_0000),
    rule_any("EXTR with op21 or o0 set", 0x1f80_0000, 0x1380_0000, 0x6020_0000),
    // Branches.
    rule("conditional branch with o1=1", 0xff00_0000, 0x5500_0000),
    rule("BC.cond (hinted conditional branches, not announced)", 0xff00_0010, 0x5400_0010),
    // Data processing, register.
    rule("32-bit logical shift by 32 or more", 0x9f00_8000, 0x0a00_8000),
    rule("32-bit add/sub shift by 32 or more", 0x9f20_8000, 0x0b00_8000),
    rule("add/sub with shift type ROR", 0x1fe0_0000, 0x0bc0_0000),
    rule_any("add/sub extended with opt!=0", 0x1f20_0000, 0x0b20_0000, 0x00c0_0000),
    rule("add/sub extended with shift 5 or 7", 0x1f20_1400, 0x0b20_1400),
    rule("add/sub extended with shift 6 or 7", 0x1f20_1800, 0x0b20_1800),
    rule("ADC, CSEL, CCMP, 2-source with bit 21 set", 0x1f20_0000, 0x1a20_0000),
    rule("conditional select with S=1", 0x3fe0_0000, 0x3a80_0000),
    rule("conditional select with op2<1>=1", 0x1fe0_0800, 0x1a80_0800),
    rule("conditional compare with S=0", 0x3fe0_0000, 0x1a40_0000),
    rule_any("conditional compare with o2 or o3 set", 0x1fe0_0000, 0x1a40_0000, 0x410),
    // Loads and stores.
    rule("register offset with option<1>=0", 0x3b20_4c00, 0x3820_0800),
    rule("STGP (tagging, not announced)", 0xfe40_0000, 0x6800_0000),
    rule("LDNPSW does not exist", 0xffc0_0000, 0x6840_0000),
    rule("integer pair with opc=11", 0xfe00_0000, 0xe800_0000),
    rule("vector pair with opc=11", 0xfe00_0000, 0xec00_0000),
    rule("vector structures with bit 31 set", 0xbe00_0000 | 0x8000_0000, 0x8c00_0000),
    rule_any("LDn/STn multiple, no offset, Rm!=0", 0xbfa0_0000, 0x0c00_0000, 0x001f_0000),
    rule("LDn/STn multiple with bit 21 set", 0xbf20_0000, 0x0c20_0000),
    rule_any("LDn/STn single, no offset, Rm!=0", 0xbf80_0000, 0x0d00_0000, 0x001f_0000),
    rule("LD2 to LD4, one 64-bit lane", 0xff00_2c00, 0x0c00_0c00),
    rule("load/store tags (tagging, not announced)", 0xff20_0000, 0xd920_0000),
    // Scalar floating point.
    rule_any("FCMP with opcode2<2:0>!=0", 0x5f20_3c00, 0x1e20_2000, 7),
    rule_any("FCMP with op!=0", 0x5f20_3c00, 0x1e20_2000, 0xc000),
    rule("32-bit fixed-point conversion with scale<32", 0xdf20_8000, 0x1e00_0000),
    rule("fixed-point conversion to FP with rmode!=0 (bit 20)", 0x5f36_0000, 0x1e12_0000),
    rule("fixed-point conversion to FP with rmode!=0 (bit 19)", 0x5f2e_0000, 0x1e0a_0000),
    rule("fixed-point conversion from FP with rmode<0>=0", 0x5f2e_0000, 0x1e00_0000),
    rule("fixed-point conversion from FP with rmode<1>=0", 0x5f36_0000, 0x1e00_0000),
    rule("FMOV immediate with imm5!=0 (bits 9:8)", 0x5f20_1f00, 0x1e20_1300),
    rule("half-precision fixed-point conversion", 0x5fe0_0000, 0x1ec0_0000),
    rule("half-precision FP 3-source", 0xffc0_0000, 0x1fc0_0000),
    rule("half-precision conversion to or from integer", 0x5fe0_fc00, 0x1ee0_0000),
    rule("half-precision FP 2-source", 0x5fe0_0c00, 0x1ee0_0800),
    rule("half-precision FCCMP", 0x5fe0_0c00, 0x1ee0_0400),
    rule("half-precision FCSEL", 0x5fe0_0c00, 0x1ee0_0c00),
    rule("half-precision FCMP", 0x5fe0_3c00, 0x1ee0_2000),
    rule("half-precision FMOV immediate", 0x5fe0_1c00, 0x1ee0_1000),
    rule("half-precision FMOV, FABS, FNEG, FSQRT", 0x5ffe_7c00, 0x1ee0_4000),
    rule("half-precision FRINTN to FRINTI", 0x5ffc_7c00, 0x1ee4_4000),
    // Advanced SIMD, copies and permutes.
    rule("copy with imm5=x0000", 0x9fef_8400, 0x0e00_0400),
    rule("scalar copy with imm5=x0000", 0xdfef_8400, 0x5e00_0400),
    rule("DUP element to one 64-bit lane", 0xffef_fc00, 0x0e08_0400),
    rule("DUP general to one 64-bit lane", 0xffef_fc00, 0x0e08_0c00),
    rule("INS general with Q=0", 0xffe0_fc00, 0x0e00_1c00),
    rule("INS element with Q=0", 0xffe0_8400, 0x2e00_0400),
    rule("SMOV word to W", 0xffe7_fc00, 0x0e04_2c00),
    rule("SMOV doubleword to W", 0xffef_fc00, 0x0e08_2c00),
    rule("SMOV doubleword to X", 0xffef_fc00, 0x4e08_2c00),
    rule("UMOV doubleword to W", 0xffef_fc00, 0x0e08_3c00),
    rule("UMOV byte to X", 0xffe1_fc00, 0x4e01_3c00),
    rule("UMOV halfword to X", 0xffe3_fc00, 0x4e02_3c00),
    rule("UMOV word to X", 0xffe7_fc00, 0x4e04_3c00),
    rule_any("copy class with bits 23:22 set", 0x9f20_8400, 0x0e00_0400, 0x00c0_0000),
    rule_any("scalar copy class with bits 23:22 set", 0xdf20_8400, 0x5e00_0400, 0x00c0_0000),
    rule("permute of one 64-bit lane", 0xffe0_8c00, 0x0ec0_0800),
    rule_any("TBL with op2!=0", 0xbf20_8c00, 0x0e00_0000, 0x00c0_0000),
    rule_any("EXT with op2!=0", 0xbf20_8400, 0x2e00_0000, 0x00c0_0000),
    rule("64-bit EXT with imm4>=8", 0xffe0_c400, 0x2e00_4000),
    // Advanced SIMD, immediates and shifts.
    rule("modified immediate with o2=1", 0x9ff8_0c00, 0x0f00_0c00),
    rule("FMOV double immediate with Q=0", 0xfff8_fc00, 0x2f00_f400),
    rule("64-bit shift with Q=0", 0xdfc0_0400, 0x0f40_0400),
    rule("narrowing shift from 128 bits", 0x9fc0_e400, 0x0f40_8400),
    rule("widening shift to 128 bits", 0x9fc0_fc00, 0x0f40_a400),
    rule("half-precision SCVTF/UCVTF, fixed point", 0x9ff0_fc00, 0x0f10_e400),
    rule("half-precision SCVTF/UCVTF, fixed point (scalar)", 0xdff0_fc00, 0x5f10_e400),
    rule("byte SCVTF/UCVTF, fixed point", 0x9ff8_fc00, 0x0f08_e400),
    rule("byte SCVTF/UCVTF, fixed point (scalar)", 0xdff8_fc00, 0x5f08_e400),
    rule("half-precision FCVTZS/FCVTZU, fixed point", 0x9ff0_fc00, 0x0f10_fc00),
    rule("half-precision FCVTZS/FCVTZU, fixed point (scalar)", 0xdff0_fc00, 0x5f10_fc00),
    rule("byte FCVTZS/FCVTZU, fixed point", 0x9ff8_fc00, 0x0f08_fc00),
    rule("byte FCVTZS/FCVTZU, fixed point (scalar)", 0xdff8_fc00, 0x5f08_fc00),
    // Advanced SIMD, extensions that are not announced.
    rule("three-same extra: RDM, dot product, complex", 0x9f20_8400, 0x0e00_8400),
    rule("scalar three-same extra: RDM", 0xdf20_8400, 0x5e00_8400),
    rule("half-precision two-register", 0x9f7e_0c00, 0x0e78_0800),
    rule("scalar half-precision two-register", 0xdf7e_0c00, 0x5e78_0800),
    rule("half-precision FMLA, FMLS by element", 0x9fc0_b400, 0x0f00_1000),
    rule("half-precision FMLA, FMLS by element (scalar)", 0xdfc0_b400, 0x5f00_1000),
    rule("half-precision FMUL by element", 0x9fc0_f400, 0x0f00_9000),
    rule("half-precision FMUL by element (scalar)", 0xdfc0_f400, 0x5f00_9000),
    rule("FMLA by element, double, L=1", 0x9fe0_b400, 0x0fe0_1000),
    rule("FMLA by element, double, L=1 (scalar)", 0xdfe0_b400, 0x5fe0_1000),
    rule("FMUL by element, double, L=1", 0x9fe0_f400, 0x0fe0_9000),
    rule("FMUL by element, double, L=1 (scalar)", 0xdfe0_f400, 0x5fe0_9000),
];

/// The lane sizes that a class of Advanced SIMD words allows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lanes {
    /// The bits that name the class.
    pub(crate) mask: u32,
    /// Their value.
    pub(crate) value: u32,
    /// Bit `size << 1 | Q` is set where that combination is allocated.
    pub(crate) allowed: u8,
}

/// All but one 64-bit lane.
const ALL: u8 = 0xbf;
/// 8, 16 and 32-bit lanes.
const BHS: u8 = 0x3f;
/// 16 and 32-bit lanes.
const HS: u8 = 0x3c;
/// 8-bit lanes.
const B: u8 = 0x03;
/// 8 and 16-bit lanes.
const BH: u8 = 0x0f;
/// 8 and 16-bit lanes, and four of 32 bits: what a reduction takes.
const REDUCE: u8 = 0x2f;
/// Single and double lanes by `sz`, but not one double.
const FP: u8 = 0xbb;
/// As [`FP`], of the classes where `size<1>` is one.
const FP1: u8 = 0xb0;
/// Scalars of every size.
const ANY1: u8 = 0xaa;
/// The 64-bit scalar.
const D1: u8 = 0x80;
/// 16 and 32-bit scalars.
const HS1: u8 = 0x28;
/// Scalars that are the narrow side of a narrowing.
const NARROW1: u8 = 0x2a;

const fn lanes(mask: u32, value: u32, allowed: u8) -> Lanes {
    Lanes { mask, value, allowed }
}
const fn same3(op: u32, allowed: u8) -> Lanes {
    lanes(0x9f20_fc00, 0x0e20_0400 | op << 11, allowed)
}
const fn same3_scalar(op: u32, allowed: u8) -> Lanes {
    lanes(0xdf20_fc00, 0x5e20_0400 | op << 11, allowed)
}
const fn diff3(op: u32, allowed: u8) -> Lanes {
    lanes(0x9f20_fc00, 0x0e20_0000 | op << 12, allowed)
}
const fn misc2(op: u32, allowed: u8) -> Lanes {
    lanes(0x9f3f_fc00, 0x0e20_0800 | op << 12, allowed)
}
const fn misc2_u(u: u32, op: u32, allowed: u8) -> Lanes {
    lanes(0xbf3f_fc00, 0x0e20_0800 | u << 29 | op << 12, allowed)
}
const fn misc2_scalar(op: u32, allowed: u8) -> Lanes {
    lanes(0xdf3f_fc00, 0x5e20_0800 | op << 12, allowed)
}
const fn across(u: u32, op: u32, allowed: u8) -> Lanes {
    lanes(0xbf3f_fc00, 0x0e30_0800 | u << 29 | op << 12, allowed)
}
const fn pairwise(u: u32, op: u32, allowed: u8) -> Lanes {
    lanes(0xff3f_fc00, 0x5e30_0800 | u << 29 | op << 12, allowed)
}
const fn element(op: u32, allowed: u8) -> Lanes {
    lanes(0x9f00_f400, 0x0f00_0000 | op << 12, allowed)
}
const fn element_scalar(op: u32, allowed: u8) -> Lanes {
    lanes(0xdf00_f400, 0x5f00_0000 | op << 12, allowed)
}

/// Lane sizes by class and opcode. A word is refused if a row matches and does not allow its size.
#[rustfmt::skip]
pub(crate) const LANES: &[Lanes] = &[
    // Three registers of the same type: halving, saturating, compare, shift, max, arithmetic.
    same3(0x00, BHS), same3(0x01, ALL), same3(0x02, BHS), same3(0x04, BHS), same3(0x05, ALL),
    same3(0x06, ALL), same3(0x07, ALL), same3(0x08, ALL), same3(0x09, ALL), same3(0x0a, ALL),
    same3(0x0b, ALL), same3(0x0c, BHS), same3(0x0d, BHS), same3(0x0e, BHS), same3(0x0f, BHS),
    same3(0x10, ALL), same3(0x11, ALL), same3(0x12, BHS), same3(0x13, BHS), same3(0x14, BHS),
    same3(0x15, BHS), same3(0x16, HS), same3(0x17, ALL), same3(0x18, FP), same3(0x19, FP),
    same3(0x1a, FP), same3(0x1b, FP), same3(0x1c, FP), same3(0x1d, FP), same3(0x1e, FP),
    same3(0x1f, FP),
    lanes(0xbf20_fc00, 0x2e20_9c00, B), // PMUL
    same3_scalar(0x01, ANY1), same3_scalar(0x05, ANY1), same3_scalar(0x06, D1),
    same3_scalar(0x07, D1), same3_scalar(0x08, D1), same3_scalar(0x09, ANY1),
    same3_scalar(0x0a, D1), same3_scalar(0x0b, ANY1), same3_scalar(0x10, D1),
    same3_scalar(0x11, D1), same3_scalar(0x16, HS1),
    // Three registers of different types; PMULL is of 8 or 64 bits.
    diff3(0x0, BHS), diff3(0x1, BHS), diff3(0x2, BHS), diff3(0x3, BHS), diff3(0x4, BHS),
    diff3(0x5, BHS), diff3(0x6, BHS), diff3(0x7, BHS), diff3(0x8, BHS), diff3(0x9, HS),
    diff3(0xa, BHS), diff3(0xb, HS), diff3(0xc, BHS), diff3(0xd, HS), diff3(0xe, 0xc3),
    // Two registers.
    misc2_u(0, 0x00, BHS), misc2_u(1, 0x00, BH), misc2_u(0, 0x01, B), misc2(0x02, BHS),
    misc2(0x03, ALL), misc2(0x04, BHS), misc2_u(0, 0x05, B), misc2_u(1, 0x05, BH),
    misc2(0x06, BHS), misc2(0x07, ALL), misc2(0x08, ALL), misc2(0x09, ALL), misc2(0x0a, ALL),
    misc2(0x0b, ALL), misc2(0x0c, FP1), misc2(0x0d, FP1), misc2(0x0e, FP1), misc2(0x0f, FP1),
    misc2(0x12, BHS), misc2(0x13, BHS), misc2(0x14, BHS), misc2_u(0, 0x16, BH),
    misc2_u(1, 0x16, 0x0c), misc2(0x17, BH), misc2(0x18, FP), misc2(0x19, FP),
    misc2(0x1a, FP), misc2(0x1b, FP), misc2(0x1c, 0x3b), misc2(0x1d, FP), misc2(0x1f, FP1),
    misc2_scalar(0x03, ANY1), misc2_scalar(0x07, ANY1), misc2_scalar(0x08, D1),
    misc2_scalar(0x09, D1), misc2_scalar(0x0a, D1), misc2_scalar(0x0b, D1),
    misc2_scalar(0x12, NARROW1), misc2_scalar(0x14, NARROW1), misc2_scalar(0x16, 0x08),
    // Reductions; the half-precision ones (U=0) are not announced.
    across(0, 0x03, REDUCE), across(1, 0x03, REDUCE), across(0, 0x0a, REDUCE),
    across(1, 0x0a, REDUCE), across(0, 0x1a, REDUCE), across(1, 0x1a, REDUCE),
    across(0, 0x1b, REDUCE), across(0, 0x0c, 0), across(1, 0x0c, 0x22), across(0, 0x0f, 0),
    across(1, 0x0f, 0x22), pairwise(0, 0x1b, D1), pairwise(0, 0x0c, 0), pairwise(0, 0x0d, 0),
    pairwise(0, 0x0f, 0),
    // By element.
    element(0x0, HS), element(0x1, 0xb0), element(0x2, HS), element(0x3, HS), element(0x4, HS),
    element(0x5, 0xb0), element(0x6, HS), element(0x7, HS), element(0x8, HS),
    element(0x9, 0xb0), element(0xa, HS), element(0xb, HS), element(0xc, HS), element(0xd, HS),
    element_scalar(0x1, 0xa0), element_scalar(0x3, HS1), element_scalar(0x5, 0xa0),
    element_scalar(0x7, HS1), element_scalar(0x9, 0xa0), element_scalar(0xb, HS1),
    element_scalar(0xc, HS1), element_scalar(0xd, HS1),
];

impl Lanes {
    /// Whether the row matches `word` and does not allow its size.
    pub(crate) const fn refuses(&self, word: u32) -> bool {
        let combination = (word >> 21 & 6) | (word >> 30 & 1);
        word & self.mask == self.value && self.allowed >> combination & 1 == 0
    }
}

/// Whether the opcode belongs to the announced instruction set (Armv8.0-A, FP and Advanced SIMD).
///
/// Words of other extensions are UNDEFINED, as on a CPU whose ID registers read as ours do.
fn announced(opcode: Opcode) -> bool {
    use Opcode::*;
    match opcode {
        // Limited ordering regions, RCpc.
        LDLAR | LDLARB | LDLARH | STLLR | STLLRB | STLLRH => false,
        LDAPR | LDAPRB | LDAPRH | LDAPUR | LDAPURB | LDAPURH | LDAPURSB | LDAPURSH => false,
        LDAPURSW | STLUR | STLURB | STLURH => false,
        // Tagging, pointer authentication outside the hint space, flag manipulation, SB.
        LDG | LDGM | STG | STGM | STZG | STZGM | ST2G | STZ2G | GMI | IRG | SUBP | SUBPS => false,
        LDRAA | LDRAB | BLRAA | BLRAAZ | BLRAB | BLRABZ | BRAA | BRAAZ | BRAB | BRABZ => false,
        RETAA | RETAB | ERETAA | ERETAB | PACIA | PACIB | PACDA | PACDB | AUTIA | AUTIB => false,
        AUTDA | AUTDB | PACIZA | PACIZB | PACDZA | PACDZB | AUTIZA | AUTIZB | AUTDZA => false,
        AUTDZB | XPACI | XPACD | PACGA | RETAASPPC | RETABSPPC | RETAASPPCR | RETABSPPCR => false,
        PACIASPPC | PACNBIASPPC | PACIBSPPC | PACNBIBSPPC | AUTIASPPC | AUTIASPPCR => false,
        AUTIBSPPC | AUTIBSPPCR | PACIA171615 | PACIB171615 | AUTIA171615 | AUTIB171615 => false,
        PACM | SETF8 | SETF16 | RMIF | SB => false,
        // Cryptography beyond what is announced, dot product, complex, rounding, half products.
        SHA512H | SHA512H2 | SHA512SU1 | SHA512SU0 | RAX1 | BCAX | EOR3 | XAR => false,
        SM3TT1A | SM3TT1B | SM3TT2A | SM3TT2B | SM3PARTW1 | SM3PARTW2 | SM3SS1 | SM4E | SM4EKEY => {
            false
        }
        UDOT | SDOT | FCMLA | FCADD | SQRDMLAH | SQRDMLSH | FMLAL | FMLSL | FMLAL2 | FMLSL2 => {
            false
        }
        FRINT32Z | FRINT32X | FRINT64Z | FRINT64X | FJCVTZS | BFCVT => false,
        Invalid => false,
        _ => true,
    }
}

/// Decodes one word.
///
/// # Errors
/// [`Undef`] for reserved words and for instructions of extensions that are not announced.
pub fn decode(word: u32) -> Result<A64, Undef> {
    let undef = |why| Undef { word, why };
    if let Some(rule) = RULES.iter().find(|r| r.refuses(word)) {
        return Err(undef(rule.name));
    }
    let is_simd = word >> 25 & 7 == 7;
    if is_simd && LANES.iter().any(|l| l.refuses(word)) {
        return Err(undef("reserved lane size"));
    }
    let bytes = word.to_le_bytes();
    let mut reader = U8Reader::new(&bytes);
    let mut inst =
        InstDecoder::default().decode(&mut reader).map_err(|_no_such| undef("unallocated"))?;
    if !announced(inst.opcode) {
        return Err(undef("unallocated, or of an extension that is not announced"));
    }
    if word & 0xfff0_0000 == 0xd510_0000 {
        // yaxpeax-arm masks Rt of MSR (register) to four bits.
        let rt = (word & 31) as u16;
        inst.operands[1] = Operand::Register(SizeCode::X, rt);
    }
    Ok(A64 { word, inst })
}

#[cfg(test)]
mod tests;
