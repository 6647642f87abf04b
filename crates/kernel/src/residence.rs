//! What is behind a page of an address space, read without being counted: for `/proc` and
//! `mincore()`, which are questions about the system and not part of what is measured.
// FIDELITY: procfs-uncounted — Linux reads page tables for smaps, pagemap and mincore through
// ptep_get; here these reads count nothing.

use crate::kernel::Kernel;
use arch::{MmId, Platform, Pmd, Pte, Softleaf, SoftleafKind, TableLevel};
use phys::PageFlags;
use units::{PAGE_SIZE, PMD_SIZE, Pfn, VirtAddr};

/// What is behind a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resident {
    /// Nothing.
    No,
    /// A marker in place of a page.
    Marker(Softleaf),
    /// A frame.
    Page(Mapped),
    /// A slot of a swap device.
    Swap {
        /// The device.
        device: u8,
        /// The slot.
        slot: u64,
        /// Written since the soft-dirty bits were cleared.
        soft_dirty: bool,
        /// Write-protected by userfaultfd.
        uffd_wp: bool,
    },
}

/// A frame that is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapped {
    pub(crate) pfn: Pfn,
    pub(crate) dirty: bool,
    pub(crate) young: bool,
    pub(crate) soft_dirty: bool,
    pub(crate) uffd_wp: bool,
    pub(crate) huge: bool,
    /// The zero page: nobody's.
    pub(crate) special: bool,
}

impl<P: Platform> Kernel<P> {
    /// What is behind the page of `va`.
    pub(crate) fn resident(&self, mm: MmId, va: VirtAddr) -> Resident {
        let Some((slot, level)) = self.mm.pt.leaf_slot(mm, va) else { return Resident::No };
        let raw = self.mm.pt.ram.load_u64(slot);
        if level != TableLevel::Pte {
            return self.resident_huge(Pmd::from_raw(raw), 1 << level.shift(), va);
        }
        let pte = Pte::<P::Arch>::from_raw(raw);
        if pte.is_none() {
            return Resident::No;
        }
        if !pte.is_present() {
            let leaf = pte.softleaf();
            return match leaf.kind() {
                SoftleafKind::Swap => Resident::Swap {
                    device: leaf.ty,
                    slot: leaf.offset,
                    soft_dirty: pte.is_swp_soft_dirty(),
                    uffd_wp: pte.is_swp_uffd_wp(),
                },
                SoftleafKind::Marker => Resident::Marker(leaf),
                _ => Resident::No,
            };
        }
        Resident::Page(Mapped {
            pfn: pte.pfn(),
            dirty: pte.is_dirty(),
            young: pte.is_young(),
            soft_dirty: pte.is_soft_dirty(),
            uffd_wp: pte.is_uffd_wp(),
            huge: false,
            special: pte.is_special(),
        })
    }

    /// A leaf that covers `span` bytes.
    fn resident_huge(&self, pmd: Pmd<P::Arch>, span: u64, va: VirtAddr) -> Resident {
        if !pmd.is_present() {
            return Resident::No;
        }
        let index = (va.get() & (span - 1)) / PAGE_SIZE;
        let pfn = pmd.pfn().add(index);
        let owned = self.head_flags(pfn).intersects(PageFlags::ANON | PageFlags::HUGETLB);
        Resident::Page(Mapped {
            pfn,
            dirty: pmd.is_dirty(),
            young: pmd.is_young(),
            soft_dirty: pmd.is_soft_dirty(),
            uffd_wp: pmd.is_uffd_wp(),
            huge: true,
            special: !owned,
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

    /// Whether a frame belongs to a huge page of hugetlb.
    pub(crate) fn is_hugetlb(&self, pfn: Pfn) -> bool {
        self.head_flags(pfn).contains(PageFlags::HUGETLB)
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
        if self.mm.pt.leaf_slot(mm, va).is_some() {
            return None;
        }
        va.align_down(PMD_SIZE).checked_add(PMD_SIZE)
    }
}
