//! What this CPU says it is: HWCAP for the auxiliary vector, and the ID registers EL0 may read.
//!
//! The two agree with each other and with what [`decode`](super::decode) accepts: Armv8.0-A with
//! FP, Advanced SIMD, the cryptographic instructions, CRC-32 and the atomics of Armv8.1. FP16, dot product, SVE and the rest are not announced, and undefined.
//!
//! Source: Arm DDI 0487, "AArch64 System Register Descriptions"; Linux
//! `Documentation/arch/arm64/elf_hwcaps.rst` and `cpu-feature-registers.rst`.

/// `HWCAP_FP`.
const HWCAP_FP: u64 = 1 << 0;
/// `HWCAP_ASIMD`.
const HWCAP_ASIMD: u64 = 1 << 1;
/// `HWCAP_AES`.
const HWCAP_AES: u64 = 1 << 3;
/// `HWCAP_PMULL`: 64-bit polynomial products.
const HWCAP_PMULL: u64 = 1 << 4;
/// `HWCAP_SHA1`.
const HWCAP_SHA1: u64 = 1 << 5;
/// `HWCAP_SHA2`: SHA-256.
const HWCAP_SHA2: u64 = 1 << 6;
/// `HWCAP_CRC32`.
const HWCAP_CRC32: u64 = 1 << 7;
/// `HWCAP_ATOMICS`: FEAT_LSE.
const HWCAP_ATOMICS: u64 = 1 << 8;
/// `HWCAP_CPUID`: EL0 reads of the ID registers work.
const HWCAP_CPUID: u64 = 1 << 11;

/// `AT_HWCAP` for the auxiliary vector.
pub const HWCAP: u64 = HWCAP_FP
    | HWCAP_ASIMD
    | HWCAP_AES
    | HWCAP_PMULL
    | HWCAP_SHA1
    | HWCAP_SHA2
    | HWCAP_CRC32
    | HWCAP_ATOMICS
    | HWCAP_CPUID;
/// `AT_HWCAP2` for the auxiliary vector.
pub const HWCAP2: u64 = 0;

/// Cache type: 64-byte lines, PIPT instruction cache, maintenance needed (IDC and DIC clear).
pub(crate) const CTR_EL0: u64 = 1 << 31 | 4 << 24 | 4 << 20 | 4 << 16 | 3 << 14 | 4;
/// `DC ZVA` is allowed and zeroes 64 bytes (4 << 4 words of four bytes).
pub(crate) const DCZID_EL0: u64 = 4;
/// A generic implementation: implementer 0 (reserved for software), architecture by ID registers.
const MIDR_EL1: u64 = 0xf << 16;
/// One CPU, no affinity: bit 31 is RES1.
const MPIDR_EL1: u64 = 1 << 31;
/// EL0 and EL1 AArch64 only, FP and Advanced SIMD without FP16.
const ID_AA64PFR0_EL1: u64 = 0x11;
/// AES with PMULL in bits 7–4, SHA1, SHA2, CRC32, atomics (FEAT_LSE) in bits 23–20.
const ID_AA64ISAR0_EL1: u64 = 2 << 4 | 1 << 8 | 1 << 12 | 1 << 16 | 2 << 20;

/// Value of the ID register with these bits (20 to 5 of the instruction word), as Linux lets EL0 read it.
///
/// All of `op0 == 3, op1 == 0, CRn == 0, CRm` 0 and 2–7 are readable; those not named are zero.
pub(crate) const fn id_register(register: u32) -> Option<u64> {
    if register >> 7 != 3 << 7 {
        return None;
    }
    match (register >> 3 & 15, register & 7) {
        (0, 0) => Some(MIDR_EL1),
        (0, 5) => Some(MPIDR_EL1),
        (0, 6) => Some(0),
        (4, 0) => Some(ID_AA64PFR0_EL1),
        (6, 0) => Some(ID_AA64ISAR0_EL1),
        (2..=7, _) => Some(0),
        _ => None,
    }
}
