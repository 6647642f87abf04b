//! What the architecture forbids software to do to live descriptors.
//!
//! Source: Arm DDI 0487, "TLB maintenance requirements when updating a translation table
//! entry" and "The Contiguous bit"; Linux 7.3 arch/arm64/mm/mmu.c `pgattr_change_is_safe()`,
//! arch/arm64/kernel/cpufeature.c.

use super::Arm64;
use super::bits::*;
use crate::{BbmLevel, Hw, KernelConfig, Pte};
use std::fmt;
use units::Reach;

/// Whether Linux, on this core, changes block sizes and CONT bits of live entries without
/// invalidating them first.
#[inline]
pub(super) fn may_skip_bbm(hw: &Hw, kernel: &KernelConfig) -> bool {
    match hw.bbm {
        BbmLevel::Level0 => false,
        BbmLevel::Level2NoAbort => kernel.bbml2_noabort || kernel.bbml3,
        BbmLevel::Level3 => kernel.bbml3,
    }
}

/// Whether replacing the live descriptor `old` directly by `new` breaks the rule
/// "invalidate, flush, write".
///
/// Both are descriptors of the same level. Anything to or from an invalid descriptor is fine.
pub fn is_bbm_violation(old: u64, new: u64, hw: &Hw, kernel: &KernelConfig) -> bool {
    if old & VALID == 0 || new & VALID == 0 {
        return false;
    }
    let diff = old ^ new;
    let moved = diff & (ADDR_MASK | SHARED_MASK) != 0;
    let resized = diff & (TABLE | CONT) != 0 && !may_skip_bbm(hw, kernel);
    let (from, to) = ((old & ATTR_MASK) >> ATTR_SHIFT, (new & ATTR_MASK) >> ATTR_SHIFT);
    // Normal (0) and Normal-Tagged (1) may alternate.
    let retyped = from != to && (from > 1 || to > 1);
    let globalised = old & !new & NG != 0;
    moved || resized || retyped || globalised
}

/// How a contiguous block is not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContBlockMismatch {
    /// Which of the 16 entries.
    pub index: usize,
    /// What the first entry asks for.
    pub expected: Pte<Arm64>,
    /// What is there.
    pub found: Pte<Arm64>,
}

impl fmt::Display for ContBlockMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ContBlockMismatch { index, expected, found } = self;
        write!(f, "entry {index} of a contiguous block is {found:?}, expected {expected:?}")
    }
}

impl std::error::Error for ContBlockMismatch {}

/// Checks an aligned block of 16 entries of one level, each covering `span`: CONT in all or
/// none; if in all, contiguous frames from an aligned one on, and equal attributes apart from
/// access and dirty state.
///
/// # Errors
/// The first entry that does not fit.
pub fn check_cont_block(block: &[u64; 16], span: Reach) -> Result<(), ContBlockMismatch> {
    let plain = |raw: u64| raw & (VALID | CONT) != VALID | CONT;
    if block.iter().all(|&raw| plain(raw)) {
        return Ok(());
    }
    // An aligned frame, or the last entry cannot match.
    let first = base(block[0]) & !((CONT_PTES - 1) << span.shift());
    for (index, (&raw, step)) in block.iter().zip(0u64..).enumerate() {
        let expected = first + (step << span.shift());
        if base(raw) != expected || plain(raw) {
            let (expected, found) = (Pte::from_raw(expected | CONT), Pte::from_raw(raw));
            return Err(ContBlockMismatch { index, expected, found });
        }
    }
    Ok(())
}

/// The entry without access and dirty state.
fn base(raw: u64) -> u64 {
    Pte::<Arm64>::from_raw(raw).mkold().mkclean().raw()
}

#[cfg(test)]
mod tests;
