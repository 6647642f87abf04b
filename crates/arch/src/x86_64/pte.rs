//! x86-64 entries as Linux encodes them: PTE, PMD, and non-present forms.
//!
//! Two encodings surprise: the address of an entry with P clear is stored inverted (the L1TF
//! defence), and a read-only dirty entry keeps its dirtiness in a software bit, because R/W=0
//! with D=1 would mean a shadow-stack page.
//!
//! Source: Linux 7.3 arch/x86/include/asm/{pgtable,pgtable_64,pgtable-invert}.h and
//! arch/x86/mm/pgprot.c.

use super::X86_64;
use super::bits::*;
use crate::pte::{Pmd, PmdFormat, Prot, Pte, PteFormat, VmaProt};
use crate::{Softleaf, softleaf};
use units::{Pfn, PhysAddr};

/// What `pte_modify()` keeps of the old entry.
const CHG_MASK: u64 =
    ADDR_MASK | PCD | PWT | SPECIAL | ACCESSED | DIRTY | SAVED_DIRTY | SOFT_DIRTY | UFFD_WP;
const PTE_CHG_MASK: u64 = CHG_MASK | PAT;
const PMD_CHG_MASK: u64 = CHG_MASK | PSE | PAT_LARGE;

const SWP_SOFT_DIRTY: u64 = 1 << 1;
const SWP_UFFD_WP: u64 = 1 << 2;
const SWP_EXCLUSIVE: u64 = 1 << 3;
const SWP_OFFSET_SHIFT: u32 = 9;
const SWP_OFFSET_MASK: u64 = softleaf::OFFSET_MASK << SWP_OFFSET_SHIFT;
const SWP_TYPE_SHIFT: u32 = 59;

/// All ones if the address of `raw` is stored inverted.
#[inline(always)]
const fn invert_mask(raw: u64) -> u64 {
    if raw != 0 && raw & PRESENT == 0 { !0 } else { 0 }
}

/// Frame of an entry whose address is under `mask`.
#[inline(always)]
const fn pfn_of(raw: u64, mask: u64) -> Pfn {
    Pfn::new(((raw ^ invert_mask(raw)) & mask) >> units::PAGE_SHIFT)
}

#[inline(always)]
const fn make(pfn: Pfn, flags: u64, mask: u64) -> u64 {
    let addr = (pfn.get() << units::PAGE_SHIFT) ^ invert_mask(flags);
    (addr & mask) | flags
}

/// Moves D to saved-dirty on a read-only entry, and back on a writable one.
#[inline(always)]
const fn settle_dirty(raw: u64) -> u64 {
    if raw >> RW_SHIFT & 1 == 0 {
        let dirty = raw >> DIRTY_SHIFT & 1;
        (raw | dirty << SAVED_DIRTY_SHIFT) & !DIRTY
    } else {
        let dirty = raw >> SAVED_DIRTY_SHIFT & 1;
        (raw | dirty << DIRTY_SHIFT) & !SAVED_DIRTY
    }
}

/// Re-inverts the address if the change of flags from `old` to `new` asks for it.
#[inline(always)]
const fn flip_guard(old: u64, new: u64, mask: u64) -> u64 {
    if invert_mask(old) != invert_mask(new) { (new & !mask) | (!new & mask) } else { new }
}

#[inline(always)]
const fn modify(raw: u64, prot: u64, keep: u64, addr: u64) -> u64 {
    let new = (raw & keep) | (prot & !keep);
    settle_dirty(flip_guard(raw, new, addr))
}

const fn is_protnone(raw: u64) -> bool {
    raw & (PROTNONE | PRESENT) == PROTNONE
}

impl PteFormat for X86_64 {
    fn vm_get_page_prot(prot: VmaProt) -> Prot<Self> {
        let pkey = u64::from(prot.pkey & 0xf) << PKEY_SHIFT;
        if !(prot.read || prot.write || prot.exec) {
            return Prot::from_raw(ACCESSED | PROTNONE | pkey);
        }
        let write = if prot.write && prot.shared { RW } else { 0 };
        let exec = if prot.exec { 0 } else { NX };
        Prot::from_raw(PRESENT | USER | ACCESSED | write | exec | pkey)
    }
    #[inline(always)]
    fn pfn_pte(pfn: Pfn, prot: Prot<Self>) -> Pte<Self> {
        Pte::from_raw(make(pfn, prot.0, ADDR_MASK))
    }
    #[inline(always)]
    fn pte_none(pte: Pte<Self>) -> bool {
        pte.raw() & !ERRATUM == 0
    }
    #[inline(always)]
    fn pte_present(pte: Pte<Self>) -> bool {
        pte.raw() & (PRESENT | PROTNONE) != 0
    }
    #[inline(always)]
    fn pte_protnone(pte: Pte<Self>) -> bool {
        is_protnone(pte.raw())
    }
    #[inline(always)]
    fn pte_accessible(pte: Pte<Self>) -> bool {
        // FIDELITY: protnone-accessible — PROTNONE counts as accessible in Linux while another
        // CPU's flush is pending. Operations are atomic here, so none ever is.
        pte.raw() & PRESENT != 0
    }
    #[inline(always)]
    fn pte_pfn(pte: Pte<Self>) -> Pfn {
        pfn_of(pte.raw(), ADDR_MASK)
    }
    #[inline(always)]
    fn pte_young(pte: Pte<Self>) -> bool {
        pte.raw() & ACCESSED != 0
    }
    #[inline(always)]
    fn pte_dirty(pte: Pte<Self>) -> bool {
        pte.raw() & (DIRTY | SAVED_DIRTY) != 0
    }
    #[inline(always)]
    fn pte_write(pte: Pte<Self>) -> bool {
        pte.raw() & RW != 0
    }
    #[inline(always)]
    fn pte_special(pte: Pte<Self>) -> bool {
        pte.raw() & SPECIAL != 0
    }
    #[inline(always)]
    fn pte_soft_dirty(pte: Pte<Self>) -> bool {
        pte.raw() & SOFT_DIRTY != 0
    }
    #[inline(always)]
    fn pte_uffd_wp(pte: Pte<Self>) -> bool {
        pte.raw() & UFFD_WP != 0
    }
    #[inline(always)]
    fn pte_cont(_: Pte<Self>) -> bool {
        false
    }
    #[inline(always)]
    fn pte_mkyoung(pte: Pte<Self>) -> Pte<Self> {
        Pte::from_raw(pte.raw() | ACCESSED)
    }
    #[inline(always)]
    fn pte_mkold(pte: Pte<Self>) -> Pte<Self> {
        Pte::from_raw(pte.raw() & !ACCESSED)
    }
    #[inline(always)]
    fn pte_mkdirty(pte: Pte<Self>) -> Pte<Self> {
        Pte::from_raw(settle_dirty(pte.raw() | DIRTY | SOFT_DIRTY))
    }
    #[inline(always)]
    fn pte_mkclean(pte: Pte<Self>) -> Pte<Self> {
        Pte::from_raw(pte.raw() & !(DIRTY | SAVED_DIRTY))
    }
    #[inline(always)]
    fn pte_mkwrite(pte: Pte<Self>) -> Pte<Self> {
        Pte::from_raw(settle_dirty(pte.raw() | RW))
    }
    #[inline(always)]
    fn pte_wrprotect(pte: Pte<Self>) -> Pte<Self> {
        Pte::from_raw(settle_dirty(pte.raw() & !RW))
    }
    #[inline(always)]
    fn pte_mkspecial(pte: Pte<Self>) -> Pte<Self> {
        Pte::from_raw(pte.raw() | SPECIAL)
    }
    #[inline(always)]
    fn pte_mksoft_dirty(pte: Pte<Self>) -> Pte<Self> {
        Pte::from_raw(pte.raw() | SOFT_DIRTY)
    }
    #[inline(always)]
    fn pte_clear_soft_dirty(pte: Pte<Self>) -> Pte<Self> {
        Pte::from_raw(pte.raw() & !SOFT_DIRTY)
    }
    #[inline(always)]
    fn pte_mkuffd_wp(pte: Pte<Self>) -> Pte<Self> {
        Pte::from_raw(settle_dirty((pte.raw() | UFFD_WP) & !RW))
    }
    #[inline(always)]
    fn pte_clear_uffd_wp(pte: Pte<Self>) -> Pte<Self> {
        Pte::from_raw(pte.raw() & !UFFD_WP)
    }
    #[inline(always)]
    fn pte_modify(pte: Pte<Self>, prot: Prot<Self>) -> Pte<Self> {
        Pte::from_raw(modify(pte.raw(), prot.0, PTE_CHG_MASK, ADDR_MASK))
    }
    #[inline(always)]
    fn pte_advance_pfn(pte: Pte<Self>, nr: u64) -> Pte<Self> {
        // The inverted address counts down.
        let step = (nr << units::PAGE_SHIFT) & ADDR_MASK;
        if invert_mask(pte.raw()) != 0 {
            return Pte::from_raw(pte.raw().wrapping_sub(step));
        }
        Pte::from_raw(pte.raw().wrapping_add(step))
    }
    #[inline(always)]
    fn softleaf_to_pte(leaf: Softleaf) -> Pte<Self> {
        let offset = !(leaf.offset << SWP_OFFSET_SHIFT) & SWP_OFFSET_MASK;
        Pte::from_raw(offset | u64::from(leaf.ty & 31) << SWP_TYPE_SHIFT)
    }
    #[inline(always)]
    fn softleaf_from_pte(pte: Pte<Self>) -> Softleaf {
        let offset = (!pte.raw() & SWP_OFFSET_MASK) >> SWP_OFFSET_SHIFT;
        Softleaf { ty: (pte.raw() >> SWP_TYPE_SHIFT).to_le_bytes()[0], offset }
    }
    #[inline(always)]
    fn pte_swp_exclusive(pte: Pte<Self>) -> bool {
        pte.raw() & SWP_EXCLUSIVE != 0
    }
    #[inline(always)]
    fn pte_swp_mkexclusive(pte: Pte<Self>) -> Pte<Self> {
        Pte::from_raw(pte.raw() | SWP_EXCLUSIVE)
    }
    #[inline(always)]
    fn pte_swp_clear_exclusive(pte: Pte<Self>) -> Pte<Self> {
        Pte::from_raw(pte.raw() & !SWP_EXCLUSIVE)
    }
    #[inline(always)]
    fn pte_swp_soft_dirty(pte: Pte<Self>) -> bool {
        pte.raw() & SWP_SOFT_DIRTY != 0
    }
    #[inline(always)]
    fn pte_swp_mksoft_dirty(pte: Pte<Self>) -> Pte<Self> {
        Pte::from_raw(pte.raw() | SWP_SOFT_DIRTY)
    }
    #[inline(always)]
    fn pte_swp_clear_soft_dirty(pte: Pte<Self>) -> Pte<Self> {
        Pte::from_raw(pte.raw() & !SWP_SOFT_DIRTY)
    }
    #[inline(always)]
    fn pte_swp_uffd_wp(pte: Pte<Self>) -> bool {
        pte.raw() & SWP_UFFD_WP != 0
    }
    #[inline(always)]
    fn pte_swp_mkuffd_wp(pte: Pte<Self>) -> Pte<Self> {
        Pte::from_raw(pte.raw() | SWP_UFFD_WP)
    }
    #[inline(always)]
    fn pte_swp_clear_uffd_wp(pte: Pte<Self>) -> Pte<Self> {
        Pte::from_raw(pte.raw() & !SWP_UFFD_WP)
    }
}

/// `pmd_mkinvalid()`: hidden from hardware; PS stays, so that it still counts as present.
#[inline]
pub(super) fn pmd_mkinvalid(pmd: Pmd<X86_64>) -> Pmd<X86_64> {
    let flags = pmd.raw() & !ADDR_MASK_2M & !(PRESENT | PROTNONE);
    Pmd::from_raw(make(X86_64::pmd_pfn(pmd), flags, ADDR_MASK_2M))
}

impl PmdFormat for X86_64 {
    #[inline]
    fn pfn_pmd(pfn: Pfn, prot: Prot<Self>) -> Pmd<Self> {
        Pmd::from_raw(make(pfn, prot.0 | PSE, ADDR_MASK_2M))
    }
    #[inline(always)]
    fn pmd_none(pmd: Pmd<Self>) -> bool {
        pmd.raw() & !ERRATUM == 0
    }
    #[inline(always)]
    fn pmd_present(pmd: Pmd<Self>) -> bool {
        pmd.raw() & (PRESENT | PROTNONE | PSE) != 0
    }
    #[inline(always)]
    fn pmd_leaf(pmd: Pmd<Self>) -> bool {
        pmd.raw() & PSE != 0
    }
    #[inline(always)]
    fn pmd_table(pmd: Pmd<Self>) -> Option<PhysAddr> {
        if pmd.raw() & (PRESENT | PSE) != PRESENT {
            return None;
        }
        Some(PhysAddr::new(pmd.raw() & ADDR_MASK))
    }
    #[inline]
    fn pmd_protnone(pmd: Pmd<Self>) -> bool {
        is_protnone(pmd.raw())
    }
    #[inline]
    fn pmd_pfn(pmd: Pmd<Self>) -> Pfn {
        pfn_of(pmd.raw(), ADDR_MASK_2M)
    }
    #[inline]
    fn pmd_young(pmd: Pmd<Self>) -> bool {
        pmd.raw() & ACCESSED != 0
    }
    #[inline]
    fn pmd_dirty(pmd: Pmd<Self>) -> bool {
        pmd.raw() & (DIRTY | SAVED_DIRTY) != 0
    }
    #[inline]
    fn pmd_write(pmd: Pmd<Self>) -> bool {
        pmd.raw() & RW != 0
    }
    #[inline]
    fn pmd_special(pmd: Pmd<Self>) -> bool {
        pmd.raw() & SPECIAL != 0
    }
    #[inline]
    fn pmd_soft_dirty(pmd: Pmd<Self>) -> bool {
        pmd.raw() & SOFT_DIRTY != 0
    }
    #[inline]
    fn pmd_uffd_wp(pmd: Pmd<Self>) -> bool {
        pmd.raw() & UFFD_WP != 0
    }
    #[inline]
    fn pmd_mkyoung(pmd: Pmd<Self>) -> Pmd<Self> {
        Pmd::from_raw(pmd.raw() | ACCESSED)
    }
    #[inline]
    fn pmd_mkold(pmd: Pmd<Self>) -> Pmd<Self> {
        Pmd::from_raw(pmd.raw() & !ACCESSED)
    }
    #[inline]
    fn pmd_mkdirty(pmd: Pmd<Self>) -> Pmd<Self> {
        Pmd::from_raw(settle_dirty(pmd.raw() | DIRTY | SOFT_DIRTY))
    }
    #[inline]
    fn pmd_mkclean(pmd: Pmd<Self>) -> Pmd<Self> {
        Pmd::from_raw(pmd.raw() & !(DIRTY | SAVED_DIRTY))
    }
    #[inline(always)]
    fn pmd_mksoft_dirty(pmd: Pmd<Self>) -> Pmd<Self> {
        Pmd::from_raw(pmd.raw() | SOFT_DIRTY)
    }
    #[inline(always)]
    fn pmd_clear_soft_dirty(pmd: Pmd<Self>) -> Pmd<Self> {
        Pmd::from_raw(pmd.raw() & !SOFT_DIRTY)
    }
    #[inline]
    fn pmd_mkwrite(pmd: Pmd<Self>) -> Pmd<Self> {
        Pmd::from_raw(settle_dirty(pmd.raw() | RW))
    }
    #[inline]
    fn pmd_wrprotect(pmd: Pmd<Self>) -> Pmd<Self> {
        Pmd::from_raw(settle_dirty(pmd.raw() & !RW))
    }
    #[inline]
    fn pmd_mkspecial(pmd: Pmd<Self>) -> Pmd<Self> {
        Pmd::from_raw(pmd.raw() | SPECIAL)
    }
    #[inline]
    fn pmd_modify(pmd: Pmd<Self>, prot: Prot<Self>) -> Pmd<Self> {
        Pmd::from_raw(modify(pmd.raw(), prot.0, PMD_CHG_MASK, ADDR_MASK_2M))
    }
}

#[cfg(test)]
mod tests;

/// Whether a cached copy of `old` grants what `new` does not.
/// Source: Linux arch/x86/include/asm/tlbflush.h `pte_flags_need_flush()`.
pub(super) const fn flags_need_flush(old: u64, new: u64) -> bool {
    const SOFTWARE: u64 = SPECIAL | UFFD_WP | SOFT_DIRTY | SAVED_DIRTY;
    const CLEARED: u64 = DIRTY | PRESENT | ACCESSED;
    let flags = !ADDR_MASK & !SOFTWARE;
    let (old, new) = (old & flags, new & flags);
    if old & PRESENT == 0 {
        return false;
    }
    let changed = old ^ new;
    changed & old & CLEARED != 0 || changed & !CLEARED != 0
}
