//! What is behind a page of an address space, read without being counted: for `/proc` and
//! `mincore()`, which are questions about the system and not part of what is measured.
// FIDELITY: procfs-uncounted — Linux reads page tables for smaps, pagemap and mincore through
// ptep_get; here these reads count nothing.

use crate::kernel::Kernel;
use arch::{MmId, Platform, Pmd, Pmdp, Pte, SoftleafKind};
use phys::PageFlags;
use units::{PAGE_SIZE, PMD_SIZE, Pfn, VirtAddr};

/// What is behind a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resident {
    /// Nothing, or a marker.
    No,
    /// A frame.
    Page(Mapped),
    /// A slot of a swap device.
    Swap {
        /// The device.
        device: u8,
        /// The slot.
        slot: u64,
    },
}

/// A frame that is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapped {
    pub(crate) pfn: Pfn,
    pub(crate) dirty: bool,
    pub(crate) young: bool,
    pub(crate) soft_dirty: bool,
    pub(crate) huge: bool,
    /// The zero page: nobody's.
    pub(crate) special: bool,
}

impl<P: Platform> Kernel<P> {
    /// What is behind the page of `va`.
    pub(crate) fn resident(&self, mm: MmId, va: VirtAddr) -> Resident {
        let Some(pmdp) = self.mm.pt.pmd_offset(mm, va) else { return Resident::No };
        let pmd = self.mm.pt.pmdp_get(pmdp);
        if pmd.is_leaf() {
            return self.resident_huge(pmd, va);
        }
        let Some(at) = self.mm.pt.pte_offset(pmdp, va) else { return Resident::No };
        let pte = Pte::<P::Arch>::from_raw(self.mm.pt.ram.load_u64(at.slot));
        if pte.is_none() {
            return Resident::No;
        }
        if !pte.is_present() {
            let leaf = pte.softleaf();
            return match leaf.kind() {
                SoftleafKind::Swap => Resident::Swap { device: leaf.ty, slot: leaf.offset },
                _ => Resident::No,
            };
        }
        Resident::Page(Mapped {
            pfn: pte.pfn(),
            dirty: pte.is_dirty(),
            young: pte.is_young(),
            soft_dirty: pte.is_soft_dirty(),
            huge: false,
            special: pte.is_special(),
        })
    }

    fn resident_huge(&self, pmd: Pmd<P::Arch>, va: VirtAddr) -> Resident {
        if !pmd.is_present() {
            return Resident::No;
        }
        let index = (va.get() & (PMD_SIZE - 1)) / PAGE_SIZE;
        let pfn = pmd.pfn().add(index);
        let anon = self.head_flags(pfn).contains(PageFlags::ANON);
        Resident::Page(Mapped {
            pfn,
            dirty: pmd.is_dirty(),
            young: pmd.is_young(),
            soft_dirty: false,
            huge: true,
            special: !anon,
        })
    }

    fn head_flags(&self, pfn: Pfn) -> PageFlags {
        if !self.mm.pt.pages.is_valid(pfn) {
            return PageFlags::RESERVED;
        }
        self.mm.pt.pages.page(self.mm.pt.pages.folio_head(pfn)).flags
    }

    /// Whether a frame is anonymous memory.
    pub(crate) fn is_anon(&self, pfn: Pfn) -> bool {
        self.head_flags(pfn).contains(PageFlags::ANON)
    }

    /// Whether an anonymous frame was given up by MADV_FREE.
    pub(crate) fn is_lazyfree(&self, pfn: Pfn) -> bool {
        let flags = self.head_flags(pfn);
        flags.contains(PageFlags::ANON) && !flags.contains(PageFlags::SWAPBACKED)
    }

    /// Whether a frame is a merged page.
    pub(crate) fn is_ksm(&self, pfn: Pfn) -> bool {
        self.head_flags(pfn).contains(PageFlags::KSM)
    }

    /// Whether a frame belongs to one process only.
    pub(crate) fn is_exclusive(&self, pfn: Pfn) -> bool {
        let pages = &self.mm.pt.pages;
        pages.is_valid(pfn) && pages.page(pfn).flags.contains(PageFlags::ANON_EXCLUSIVE)
    }

    /// How many page-table entries map a frame.
    pub(crate) fn mapcount(&self, pfn: Pfn) -> u64 {
        let pages = &self.mm.pt.pages;
        if !pages.is_valid(pfn) {
            return 0;
        }
        let entire = pages.page(pages.folio_head(pfn)).entire_mapcount;
        u64::from(pages.page(pfn).mapcount) + u64::from(entire)
    }

    /// Address after the table that would hold `va`, where there is none: nothing is resident up to there.
    pub(crate) fn skip_hole(&self, mm: MmId, va: VirtAddr) -> Option<VirtAddr> {
        let table = |at: Pmdp| !self.mm.pt.pmdp_get(at).is_none();
        if self.mm.pt.pmd_offset(mm, va).is_some_and(table) {
            return None;
        }
        va.align_down(PMD_SIZE).checked_add(PMD_SIZE)
    }
}
