//! arm64 descriptors as Linux encodes them: PTE, PMD, and non-present forms.
//!
//! Dirtiness is spread over three bits: with WRITE (DBM) set, RDONLY means clean; a software bit
//! keeps the dirtiness of entries that are not writable. A 2 MiB leaf has the bits of a page,
//! except that it is a block.
//!
//! Source: Linux 7.3 arch/arm64/include/asm/pgtable.h, arch/arm64/mm/mmap.c.

use super::Arm64;
use super::bits::*;
use crate::Softleaf;
use crate::pte::{Pmd, PmdFormat, Prot, Pte, PteFormat, VmaProt};
use crate::softleaf;
use units::{Pfn, PhysAddr};

/// What `pte_modify()` takes from the new protection.
const MODIFY_MASK: u64 =
    USER | PXN | UXN | RDONLY | PRESENT_INVALID | VALID | WRITE | GP | ATTR_MASK | PO_IDX_MASK;

const PROT_DEFAULT: u64 = VALID | TABLE | AF | SHARED;

const SWP_EXCLUSIVE: u64 = 1 << 2;
const SWP_UFFD_WP: u64 = 1 << 3;
const SWP_TYPE_SHIFT: u32 = 6;
const SWP_OFFSET_SHIFT: u32 = 12;
const SWP_OFFSET_MASK: u64 = softleaf::OFFSET_MASK << SWP_OFFSET_SHIFT;

const fn present(raw: u64) -> bool {
    raw & (VALID | PRESENT_INVALID) != 0
}

const fn protnone(raw: u64) -> bool {
    raw & (VALID | PRESENT_INVALID | USER | UXN) == PRESENT_INVALID | UXN
}

/// Whether hardware would find the entry written to.
const fn hw_dirty(raw: u64) -> bool {
    raw & (WRITE | RDONLY) == WRITE
}

const fn dirty(raw: u64) -> bool {
    raw & DIRTY != 0 || hw_dirty(raw)
}

const fn mkdirty(raw: u64) -> u64 {
    let raw = raw | DIRTY;
    if raw & WRITE != 0 { raw & !RDONLY } else { raw }
}

const fn mkclean(raw: u64) -> u64 {
    raw & !DIRTY | RDONLY
}

const fn mkwrite(raw: u64) -> u64 {
    let raw = raw | WRITE;
    if raw & DIRTY != 0 { raw & !RDONLY } else { raw }
}

const fn wrprotect(raw: u64) -> u64 {
    let raw = if hw_dirty(raw) { raw | DIRTY } else { raw };
    raw & !WRITE | RDONLY
}

const fn modify(raw: u64, prot: u64) -> u64 {
    let raw = if hw_dirty(raw) { raw | DIRTY } else { raw };
    let raw = raw & !MODIFY_MASK | prot & MODIFY_MASK;
    if raw & DIRTY != 0 { mkdirty(raw) } else { raw }
}

/// `pte_mknoncont()`.
#[inline(always)]
pub(super) fn mknoncont(pte: Pte<Arm64>) -> Pte<Arm64> {
    Pte::from_raw(pte.raw() & !CONT)
}

/// `pte_mkcont()`.
#[inline(always)]
pub(super) fn mkcont(pte: Pte<Arm64>) -> Pte<Arm64> {
    Pte::from_raw(pte.raw() | CONT)
}

/// `pte_valid_cont()`.
#[inline(always)]
pub(super) const fn valid_cont(pte: Pte<Arm64>) -> bool {
    pte.raw() & (VALID | CONT) == VALID | CONT
}

/// `pmd_mkinvalid()`: hidden from hardware, everything else kept.
#[inline]
pub(super) fn pmd_mkinvalid(pmd: Pmd<Arm64>) -> Pmd<Arm64> {
    Pmd::from_raw(pmd.raw() & !VALID | PRESENT_INVALID)
}

impl PteFormat for Arm64 {
    fn vm_get_page_prot(prot: VmaProt) -> Prot<Self> {
        if !(prot.read || prot.write || prot.exec) {
            let raw = PROT_DEFAULT & !VALID | PRESENT_INVALID | RDONLY | PXN | UXN;
            return Prot::from_raw(raw);
        }
        let write = if prot.write && prot.shared { WRITE } else { 0 };
        let exec = if prot.exec { 0 } else { UXN };
        Prot::from_raw(PROT_DEFAULT | USER | RDONLY | NG | PXN | write | exec)
    }
    #[inline(always)]
    fn pfn_pte(pfn: Pfn, prot: Prot<Self>) -> Pte<Self> {
        Pte::from_raw(pfn.get() << units::PAGE_SHIFT & ADDR_MASK | prot.0)
    }
    #[inline(always)]
    fn pte_none(pte: Pte<Self>) -> bool {
        pte.raw() == 0
    }
    #[inline(always)]
    fn pte_present(pte: Pte<Self>) -> bool {
        present(pte.raw())
    }
    #[inline(always)]
    fn pte_protnone(pte: Pte<Self>) -> bool {
        protnone(pte.raw())
    }
    #[inline(always)]
    fn pte_accessible(pte: Pte<Self>) -> bool {
        // FIDELITY: protnone-accessible — present-invalid counts as accessible in Linux while
        // another CPU's flush is pending. Operations are atomic here, so none ever is.
        pte.raw() & VALID != 0
    }
    #[inline(always)]
    fn pte_pfn(pte: Pte<Self>) -> Pfn {
        Pfn::new((pte.raw() & ADDR_MASK) >> units::PAGE_SHIFT)
    }
    #[inline(always)]
    fn pte_young(pte: Pte<Self>) -> bool {
        pte.raw() & AF != 0
    }
    #[inline(always)]
    fn pte_dirty(pte: Pte<Self>) -> bool {
        dirty(pte.raw())
    }
    #[inline(always)]
    fn pte_write(pte: Pte<Self>) -> bool {
        pte.raw() & WRITE != 0
    }
    #[inline(always)]
    fn pte_special(pte: Pte<Self>) -> bool {
        pte.raw() & SPECIAL != 0
    }
    #[inline(always)]
    fn pte_soft_dirty(_: Pte<Self>) -> bool {
        false
    }
    #[inline(always)]
    fn pte_uffd_wp(pte: Pte<Self>) -> bool {
        pte.raw() & UFFD_WP != 0
    }
    #[inline(always)]
    fn pte_cont(pte: Pte<Self>) -> bool {
        pte.raw() & CONT != 0
    }
    #[inline(always)]
    fn pte_mkyoung(pte: Pte<Self>) -> Pte<Self> {
        Pte::from_raw(pte.raw() | AF)
    }
    #[inline(always)]
    fn pte_mkold(pte: Pte<Self>) -> Pte<Self> {
        Pte::from_raw(pte.raw() & !AF)
    }
    #[inline(always)]
    fn pte_mkdirty(pte: Pte<Self>) -> Pte<Self> {
        Pte::from_raw(mkdirty(pte.raw()))
    }
    #[inline(always)]
    fn pte_mkclean(pte: Pte<Self>) -> Pte<Self> {
        Pte::from_raw(mkclean(pte.raw()))
    }
    #[inline(always)]
    fn pte_mkwrite(pte: Pte<Self>) -> Pte<Self> {
        Pte::from_raw(mkwrite(pte.raw()))
    }
    #[inline(always)]
    fn pte_wrprotect(pte: Pte<Self>) -> Pte<Self> {
        Pte::from_raw(wrprotect(pte.raw()))
    }
    #[inline(always)]
    fn pte_mkspecial(pte: Pte<Self>) -> Pte<Self> {
        Pte::from_raw(pte.raw() | SPECIAL)
    }
    #[inline(always)]
    fn pte_mksoft_dirty(pte: Pte<Self>) -> Pte<Self> {
        pte
    }
    #[inline(always)]
    fn pte_clear_soft_dirty(pte: Pte<Self>) -> Pte<Self> {
        pte
    }
    #[inline(always)]
    fn pte_mkuffd_wp(pte: Pte<Self>) -> Pte<Self> {
        Pte::from_raw(wrprotect(pte.raw() | UFFD_WP))
    }
    #[inline(always)]
    fn pte_clear_uffd_wp(pte: Pte<Self>) -> Pte<Self> {
        Pte::from_raw(pte.raw() & !UFFD_WP)
    }
    #[inline(always)]
    fn pte_modify(pte: Pte<Self>, prot: Prot<Self>) -> Pte<Self> {
        Pte::from_raw(modify(pte.raw(), prot.0))
    }
    #[inline(always)]
    fn pte_advance_pfn(pte: Pte<Self>, nr: u64) -> Pte<Self> {
        Pte::from_raw(pte.raw().wrapping_add(nr << units::PAGE_SHIFT))
    }
    #[inline(always)]
    fn softleaf_to_pte(leaf: Softleaf) -> Pte<Self> {
        let offset = leaf.offset << SWP_OFFSET_SHIFT & SWP_OFFSET_MASK;
        Pte::from_raw(offset | u64::from(leaf.ty & 31) << SWP_TYPE_SHIFT)
    }
    #[inline(always)]
    fn softleaf_from_pte(pte: Pte<Self>) -> Softleaf {
        let ty = (pte.raw() >> SWP_TYPE_SHIFT & 31).to_le_bytes()[0];
        Softleaf { ty, offset: (pte.raw() & SWP_OFFSET_MASK) >> SWP_OFFSET_SHIFT }
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
    fn pte_swp_soft_dirty(_: Pte<Self>) -> bool {
        false
    }
    #[inline(always)]
    fn pte_swp_mksoft_dirty(pte: Pte<Self>) -> Pte<Self> {
        pte
    }
    #[inline(always)]
    fn pte_swp_clear_soft_dirty(pte: Pte<Self>) -> Pte<Self> {
        pte
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

impl PmdFormat for Arm64 {
    #[inline]
    fn pfn_pmd(pfn: Pfn, prot: Prot<Self>) -> Pmd<Self> {
        Pmd::from_raw(pfn.get() << units::PAGE_SHIFT & ADDR_MASK_2M | prot.0 & !TABLE)
    }
    #[inline(always)]
    fn pmd_none(pmd: Pmd<Self>) -> bool {
        pmd.raw() == 0
    }
    #[inline(always)]
    fn pmd_present(pmd: Pmd<Self>) -> bool {
        present(pmd.raw())
    }
    #[inline(always)]
    fn pmd_leaf(pmd: Pmd<Self>) -> bool {
        present(pmd.raw()) && pmd.raw() & TABLE == 0
    }
    #[inline(always)]
    fn pmd_table(pmd: Pmd<Self>) -> Option<PhysAddr> {
        if pmd.raw() & (VALID | TABLE) != VALID | TABLE {
            return None;
        }
        Some(PhysAddr::new(pmd.raw() & ADDR_MASK))
    }
    #[inline]
    fn pmd_protnone(pmd: Pmd<Self>) -> bool {
        protnone(pmd.raw())
    }
    #[inline]
    fn pmd_pfn(pmd: Pmd<Self>) -> Pfn {
        Pfn::new((pmd.raw() & ADDR_MASK_2M) >> units::PAGE_SHIFT)
    }
    #[inline]
    fn pmd_young(pmd: Pmd<Self>) -> bool {
        pmd.raw() & AF != 0
    }
    #[inline]
    fn pmd_dirty(pmd: Pmd<Self>) -> bool {
        dirty(pmd.raw())
    }
    #[inline]
    fn pmd_write(pmd: Pmd<Self>) -> bool {
        pmd.raw() & WRITE != 0
    }
    #[inline]
    fn pmd_special(pmd: Pmd<Self>) -> bool {
        pmd.raw() & SPECIAL != 0
    }
    #[inline]
    fn pmd_soft_dirty(_: Pmd<Self>) -> bool {
        false
    }
    #[inline]
    fn pmd_uffd_wp(pmd: Pmd<Self>) -> bool {
        pmd.raw() & UFFD_WP != 0
    }
    #[inline]
    fn pmd_mkyoung(pmd: Pmd<Self>) -> Pmd<Self> {
        Pmd::from_raw(pmd.raw() | AF)
    }
    #[inline]
    fn pmd_mkold(pmd: Pmd<Self>) -> Pmd<Self> {
        Pmd::from_raw(pmd.raw() & !AF)
    }
    #[inline]
    fn pmd_mkdirty(pmd: Pmd<Self>) -> Pmd<Self> {
        Pmd::from_raw(mkdirty(pmd.raw()))
    }
    #[inline]
    fn pmd_mkclean(pmd: Pmd<Self>) -> Pmd<Self> {
        Pmd::from_raw(mkclean(pmd.raw()))
    }
    #[inline(always)]
    fn pmd_mksoft_dirty(pmd: Pmd<Self>) -> Pmd<Self> {
        pmd
    }
    #[inline(always)]
    fn pmd_clear_soft_dirty(pmd: Pmd<Self>) -> Pmd<Self> {
        pmd
    }
    #[inline]
    fn pmd_mkwrite(pmd: Pmd<Self>) -> Pmd<Self> {
        Pmd::from_raw(mkwrite(pmd.raw()))
    }
    #[inline]
    fn pmd_wrprotect(pmd: Pmd<Self>) -> Pmd<Self> {
        Pmd::from_raw(wrprotect(pmd.raw()))
    }
    #[inline]
    fn pmd_mkspecial(pmd: Pmd<Self>) -> Pmd<Self> {
        Pmd::from_raw(pmd.raw() | SPECIAL)
    }
    #[inline]
    fn pmd_modify(pmd: Pmd<Self>, prot: Prot<Self>) -> Pmd<Self> {
        Pmd::from_raw(modify(pmd.raw(), prot.0))
    }
}

#[cfg(test)]
mod tests;

/// Whether anything but software bits of a valid entry changed.
/// Source: Linux arch/arm64/include/asm/tlbflush.h `__pte_flags_need_flush()`.
pub(super) const fn flags_need_flush(old: u64, new: u64) -> bool {
    old & VALID != 0 && (old ^ new) & !SWBITS_MASK != 0
}
