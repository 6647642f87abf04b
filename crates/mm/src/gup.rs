//! References to and pins on the pages behind user addresses.
//!
//! Source: Linux mm/gup.c; mm/internal.h `gup_must_unshare()`, `try_grab_folio()`.
//!
//! What Linux has and nothing here can be: VM_IO, VM_PFNMAP, secret and DAX mappings, device
//! memory, CMA and movable zones, faults that drop the mmap lock.

use crate::errno::Errno;
use crate::folio::{Folio, GUP_PIN_COUNTING_BIAS};
use crate::memory::{FaultSignal, handle_mm_fault, pmd_addr_end};
use crate::pte_batch::Fpb;
use crate::vma::{VmFlags, Vma, VmaId};
use crate::{Mm, huge_memory, hugetlb};
use arch::{Arch, FaultAccess, HugeSize, MmId, Platform, Pmd, Pmdp, Pte, Ptep, TableLevel};
use events::{Event, Op};
use phys::PageFlags;
use units::{NrPages, PAGE_SIZE, PMD_SIZE, PUD_SIZE, Pfn, VirtAddr};

bitflags::bitflags! {
    /// What a caller of GUP asks for (`FOLL_*`, as of 7.3).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Foll: u32 {
        /// The pages will be written.
        const WRITE = 0x1;
        /// Take references.
        const GET = 0x2;
        /// For a core dump: a hole is an error.
        const DUMP = 0x4;
        /// In spite of the mapping's protection, if it may be changed.
        const FORCE = 0x8;
        /// Start no I/O.
        const NOWAIT = 0x10;
        /// Serve no fault.
        const NOFAULT = 0x20;
        /// A page with a hardware error has an error of its own.
        const HWPOISON = 0x40;
        /// Anonymous memory only.
        const ANON = 0x80;
        /// The pages stay pinned as long as user space wants.
        const LONGTERM = 0x100;
        /// A PMD leaf is split first.
        const SPLIT_PMD = 0x200;
        /// Peer-to-peer device pages are taken too.
        const PCI_P2PDMA = 0x400;
        /// Any signal interrupts.
        const INTERRUPTIBLE = 0x800;
        /// PROT_NONE entries of accessible mappings fault (NUMA balancing).
        const HONOR_NUMA_FAULT = 0x1000;
        /// Internal: mark the pages accessed, and dirty for a write.
        const TOUCH = 0x1_0000;
        /// Internal: the lock was dropped once already.
        const TRIED = 0x2_0000;
        /// Internal: the pages are another task's.
        const REMOTE = 0x4_0000;
        /// Internal: pin instead of taking references.
        const PIN = 0x8_0000;
        /// Internal: GUP-fast without fallback.
        const FAST_ONLY = 0x10_0000;
        /// Internal: the mmap lock may be dropped.
        const UNLOCKABLE = 0x20_0000;
        /// Internal: for MADV_POPULATE, which has errors of its own.
        const MADV_POPULATE = 0x40_0000;
    }
}

/// Flags that callers may not pass.
const INTERNAL: Foll = Foll::TOUCH
    .union(Foll::TRIED)
    .union(Foll::REMOTE)
    .union(Foll::PIN)
    .union(Foll::FAST_ONLY)
    .union(Foll::UNLOCKABLE)
    .union(Foll::MADV_POPULATE);

/// Flags that GUP-fast takes from callers.
const FAST_FLAGS: Foll = Foll::WRITE
    .union(Foll::GET)
    .union(Foll::LONGTERM)
    .union(Foll::FORCE)
    .union(Foll::NOFAULT)
    .union(Foll::PCI_P2PDMA)
    .union(Foll::HONOR_NUMA_FAULT);

/// Faults served for one page before GUP gives up: each makes progress, so more is a bug.
const PATIENCE: usize = 16;

/// What a walk looks for.
#[derive(Clone, Copy, Debug)]
struct Walk {
    id: VmaId,
    vma: Vma,
    va: VirtAddr,
    /// First address after what the caller still wants (`@end` of the batching series).
    end: VirtAddr,
    flags: Foll,
}

/// A page that a walk found and took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Followed {
    page: Pfn,
    extent: Extent,
}

/// How far the mapping that was found goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// `page_mask`: the pages of the naturally aligned leaf, less one.
    Mask(u64),
    /// `nr_pages`: from this page on (patch `gup-pte-batch`).
    Pages {
        nr: NrPages,
        /// How many of them the walk took references on already.
        grabbed: NrPages,
    },
}

/// Why a walk found no page to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NoPage {
    /// NULL: a fault may help.
    Missing,
    /// `-EMLINK`: the page must be unshared first.
    Shared,
    /// An error to return.
    Refused(Errno),
}

type Follow = Result<Followed, NoPage>;

impl Extent {
    /// Pages to step over from `va` on, of `left` that are wanted.
    fn stride(self, va: VirtAddr, left: u64) -> u64 {
        match self {
            Extent::Mask(mask) => (1 + (!va.vpn().get() & mask)).min(left),
            Extent::Pages { nr, .. } => nr.get().min(left),
        }
    }

    /// A run of which the walk takes all references, or those of its first page.
    fn run<P: Platform>(mm: &Mm<P>, nr: NrPages) -> Extent {
        let grabbed = if mm.pt.kernel.gup_merge_grab { nr } else { NrPages::ONE };
        Extent::Pages { nr, grabbed }
    }

    /// References that the walk itself takes.
    fn grabbed(self) -> u64 {
        match self {
            Extent::Mask(_) => 1,
            Extent::Pages { grabbed, .. } => grabbed.get(),
        }
    }
}

// ---- entry points

impl<P: Platform> Mm<P> {
    /// `get_user_pages()`: references to `nr` pages from `start` on, appended to `pages` if it
    /// is given. Returns how many there are, which can be fewer.
    ///
    /// # Errors
    /// If not even the first page can be had: EINVAL for flags that contradict each other,
    /// EFAULT over a hole or where the mapping forbids it, ENOMEM, EEXIST, EOPNOTSUPP.
    pub fn get_user_pages(
        &mut self,
        mm: MmId,
        start: VirtAddr,
        nr: u64,
        flags: Foll,
        pages: Option<&mut Vec<Pfn>>,
    ) -> Result<u64, Errno> {
        let flags = valid_gup_args(pages.is_some(), flags, Foll::TOUCH)?;
        __get_user_pages_locked(self, mm, start, nr, flags, pages)
    }

    /// `pin_user_pages()`: the same for pins; with [`Foll::LONGTERM`] also looks at each folio
    /// whether it may stay where it is.
    ///
    /// # Errors
    /// As [`Mm::get_user_pages`].
    pub fn pin_user_pages(
        &mut self,
        mm: MmId,
        start: VirtAddr,
        nr: u64,
        flags: Foll,
        pages: &mut Vec<Pfn>,
    ) -> Result<u64, Errno> {
        let flags = valid_gup_args(true, flags, Foll::PIN)?;
        __gup_longterm_locked(self, mm, start, nr, flags, pages)
    }

    /// `get_user_pages_fast()`: without locks as far as possible.
    ///
    /// # Errors
    /// As [`Mm::get_user_pages`], and EOVERFLOW for a range that wraps.
    pub fn get_user_pages_fast(
        &mut self,
        mm: MmId,
        start: VirtAddr,
        nr: u64,
        flags: Foll,
        pages: &mut Vec<Pfn>,
    ) -> Result<u64, Errno> {
        let flags = valid_gup_args(true, flags, Foll::GET)?;
        gup_fast_fallback(self, mm, start, nr, flags, pages)
    }

    /// `pin_user_pages_fast()`.
    ///
    /// # Errors
    /// As [`Mm::get_user_pages_fast`].
    pub fn pin_user_pages_fast(
        &mut self,
        mm: MmId,
        start: VirtAddr,
        nr: u64,
        flags: Foll,
        pages: &mut Vec<Pfn>,
    ) -> Result<u64, Errno> {
        let flags = valid_gup_args(true, flags, Foll::PIN)?;
        gup_fast_fallback(self, mm, start, nr, flags, pages)
    }

    /// `put_page()`: drops one reference that [`Mm::get_user_pages`] took.
    pub fn put_page(&mut self, page: Pfn) {
        let folio = self.page_folio(page);
        self.folio_put_refs(folio, 1);
    }

    /// `unpin_user_pages()`: drops pins, those of consecutive pages of one folio at once.
    pub fn unpin_user_pages(&mut self, pages: &[Pfn]) {
        self.fentry(Event::FnUnpinUserPages);
        self.pt.count(Event::FnUnpinUserPagesPages, pages.len() as u64);
        let mut rest = pages;
        while let Some(&first) = rest.first() {
            // gup_folio_next()
            let folio = self.page_folio(first);
            let run = rest.iter().take_while(|&&page| folio.contains(page)).count();
            gup_put_folio(self, folio, run as u64, Foll::PIN);
            rest = &rest[run..];
        }
    }

    /// Whether DMA may be going on to the page, as `page_maybe_dma_pinned()` says.
    pub fn page_maybe_dma_pinned(&self, page: Pfn) -> bool {
        self.folio_maybe_dma_pinned(self.page_folio(page))
    }

    /// `is_zero_page()`.
    pub fn is_zero_page(&self, page: Pfn) -> bool {
        page == self.zero_page
    }
}

/// `is_valid_gup_args()`: the flags with those that the entry point adds.
fn valid_gup_args(has_pages: bool, flags: Foll, add: Foll) -> Result<Foll, Errno> {
    if flags.intersects(INTERNAL) {
        return Err(Errno::EINVAL);
    }
    let flags = flags | add;
    let (get, pin) = (flags.contains(Foll::GET), flags.contains(Foll::PIN));
    let longterm = flags.contains(Foll::LONGTERM);
    let device = flags.contains(Foll::PCI_P2PDMA);
    if (get && pin)
        || (longterm && !pin)
        || ((get || pin) && !has_pages)
        || (device && longterm)
        || (device && !(get || pin))
    {
        return Err(Errno::EINVAL);
    }
    Ok(flags)
}

// ---- the slow walk

/// Source: Linux mm/gup.c `__gup_longterm_locked()`.
fn __gup_longterm_locked<P: Platform>(
    mm: &mut Mm<P>,
    id: MmId,
    start: VirtAddr,
    nr: u64,
    flags: Foll,
    pages: &mut Vec<Pfn>,
) -> Result<u64, Errno> {
    mm.fentry(Event::FnUnderGupLongtermLocked);
    let before = pages.len();
    let got = __get_user_pages_locked(mm, id, start, nr, flags, Some(pages))?;
    if flags.contains(Foll::LONGTERM) && got > 0 {
        collect_longterm_unpinnable_folios(mm, &pages[before..]);
    }
    Ok(got)
}

/// Looks at each folio once whether it may stay pinned for long. All of RAM may, here: there is
/// no movable zone, no CMA and no device memory.
/// Source: Linux mm/gup.c `collect_longterm_unpinnable_folios()`.
fn collect_longterm_unpinnable_folios<P: Platform>(mm: &mut Mm<P>, pages: &[Pfn]) {
    mm.fentry(Event::FnCollectLongtermUnpinnableFolios);
    let mut last: Option<Folio> = None;
    let mut tests = 0;
    for &page in pages {
        if last.is_some_and(|folio| folio.contains(page)) {
            continue;
        }
        last = Some(mm.page_folio(page));
        tests += 1;
    }
    mm.pt.count(Event::FolioPinnableTest, tests);
}

/// Source: Linux mm/gup.c `__get_user_pages_locked()`; the lock is never dropped here, so there
/// is nothing to resume.
fn __get_user_pages_locked<P: Platform>(
    mm: &mut Mm<P>,
    id: MmId,
    start: VirtAddr,
    nr: u64,
    flags: Foll,
    pages: Option<&mut Vec<Pfn>>,
) -> Result<u64, Errno> {
    let get = pages.is_some() && !flags.contains(Foll::PIN);
    let flags = if get { flags | Foll::GET } else { flags };
    __get_user_pages(mm, id, start, nr, flags, pages)
}

/// Source: Linux mm/gup.c `__get_user_pages()`.
fn __get_user_pages<P: Platform>(
    mm: &mut Mm<P>,
    id: MmId,
    start: VirtAddr,
    nr: u64,
    flags: Foll,
    mut pages: Option<&mut Vec<Pfn>>,
) -> Result<u64, Errno> {
    let mm = &mut *mm.enter(Op::GetUserPages);
    let mut va = start.align_down(PAGE_SIZE);
    let mut current: Option<(VmaId, Vma)> = None;
    let mut done = 0;
    while done < nr {
        let left = nr - done;
        let step = gup_vma(mm, id, &mut current, va, flags).and_then(|(id, vma)| {
            let end = va.checked_add(left.saturating_mul(PAGE_SIZE)).unwrap_or(vma.end);
            let walk = Walk { id, vma, va, end, flags };
            if let Some(size) = vma.huge.filter(|_| !mm.pt.kernel.gup_hugetlb_unified) {
                return follow_hugetlb_page(mm, &walk, size, left, pages.as_deref_mut());
            }
            let found = follow_or_fault(mm, walk)?;
            record(mm, found, va, left, flags, pages.as_deref_mut())
        });
        match step {
            Ok(step) => {
                done += step;
                va = va.wrapping_add(step * PAGE_SIZE);
            }
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(done)
}

/// The VMA at `va`, looked up and checked when the walk enters it.
fn gup_vma<P: Platform>(
    mm: &Mm<P>,
    id: MmId,
    current: &mut Option<(VmaId, Vma)>,
    va: VirtAddr,
    flags: Foll,
) -> Result<(VmaId, Vma), Errno> {
    if let Some(known) = *current
        && va < known.1.end
    {
        return Ok(known);
    }
    let populate = flags.contains(Foll::MADV_POPULATE);
    let hole = if populate { Errno::ENOMEM } else { Errno::EFAULT };
    let found = mm.vma_lookup(id, va).ok_or(hole)?;
    let vma = *mm.vma(found);
    check_vma_flags(mm, &vma, flags).map_err(|e| if populate { Errno::EINVAL } else { e })?;
    *current = Some((found, vma));
    Ok((found, vma))
}

/// Source: Linux mm/gup.c `check_vma_flags()`.
fn check_vma_flags<P: Platform>(mm: &Mm<P>, vma: &Vma, flags: Foll) -> Result<(), Errno> {
    // hugetlb has no way to write what the mapping forbids.
    let write = flags.contains(Foll::WRITE);
    let force = flags.contains(Foll::FORCE) && !(write && vma.huge.is_some());
    if vma.flags.contains(VmFlags::PFNMAP) {
        return Err(Errno::EFAULT);
    }
    if flags.contains(Foll::ANON) && !vma.is_anonymous() {
        return Err(Errno::EFAULT);
    }
    if flags.contains(Foll::SPLIT_PMD) && vma.flags.contains(VmFlags::HUGETLB) {
        return Err(Errno::EOPNOTSUPP);
    }
    if write && !writable_file_mapping_allowed(mm, vma, flags) {
        return Err(Errno::EFAULT);
    }
    let allowed = if write {
        vma.flags.contains(VmFlags::WRITE) || (force && vma.is_cow())
    } else {
        vma.flags.contains(VmFlags::READ) || (force && vma.flags.contains(VmFlags::MAYREAD))
    };
    if allowed { Ok(()) } else { Err(Errno::EFAULT) }
}

/// A page that is pinned for long may be written at any time, which a file system that writes
/// back shared mappings would not notice.
/// Source: Linux mm/gup.c `writable_file_mapping_allowed()`.
fn writable_file_mapping_allowed<P: Platform>(mm: &Mm<P>, vma: &Vma, flags: Foll) -> bool {
    let shared_writable = VmFlags::SHARED | VmFlags::WRITE;
    !mm.pt.kernel.gup_longterm_file_refused
        || !flags.contains(Foll::PIN | Foll::LONGTERM)
        || !vma.flags.contains(shared_writable)
        || !vma.file.is_some_and(|file| mm.file_needs_dirty_tracking(file))
}

/// Walks until there is a page, serving faults in between.
fn follow_or_fault<P: Platform>(mm: &mut Mm<P>, walk: Walk) -> Result<Followed, Errno> {
    for _ in 0..PATIENCE {
        let unshare = match follow_page_mask(mm, &walk) {
            Ok(found) => return Ok(found),
            Err(NoPage::Refused(error)) => return Err(error),
            Err(NoPage::Missing) => false,
            Err(NoPage::Shared) => true,
        };
        faultin_page(mm, &walk, unshare)?;
    }
    Err(Errno::EFAULT)
}

/// Steps over what was found, takes the references that are still missing, and notes the pages.
/// Returns the stride. Source: Linux mm/gup.c `__get_user_pages()` from `next_page` on.
fn record<P: Platform>(
    mm: &mut Mm<P>,
    found: Followed,
    va: VirtAddr,
    left: u64,
    flags: Foll,
    pages: Option<&mut Vec<Pfn>>,
) -> Result<u64, Errno> {
    let Some(pages) = pages else { return Ok(found.extent.stride(va, left)) };
    let stride = match found.extent {
        Extent::Mask(_) if !mm.pt.kernel.gup_thp_stride => 1,
        extent => extent.stride(va, left),
    };
    let missing = stride - found.extent.grabbed();
    if missing > 0 {
        let folio = mm.page_folio(found.page);
        if try_grab_folio(mm, folio, missing, flags).is_err() {
            gup_put_folio(mm, folio, found.extent.grabbed(), flags);
            return Err(Errno::EFAULT);
        }
    }
    mm.pt.count(Event::GupPageStore, stride);
    pages.extend((0..stride).map(|i| found.page.add(i)));
    Ok(stride)
}

/// The page at an address, with a reference, if it is there.
/// Source: Linux v6.1 mm/gup.c `follow_page()`, with FOLL_GET and FOLL_REMOTE.
pub(crate) fn follow_page<P: Platform>(mm: &mut Mm<P>, id: VmaId, va: VirtAddr) -> Option<Pfn> {
    let (vma, end) = (*mm.vma(id), va.wrapping_add(PAGE_SIZE));
    let walk = Walk { id, vma, va, end, flags: Foll::GET | Foll::REMOTE };
    follow_page_mask(mm, &walk).ok().map(|followed| followed.page)
}

/// The page at an address, with a reference or pin if asked for. From the root each time.
/// Source: Linux mm/gup.c `follow_page_mask()`, `follow_p4d_mask()`, `follow_pud_mask()`.
fn follow_page_mask<P: Platform>(mm: &mut Mm<P>, walk: &Walk) -> Follow {
    let mm = &mut *mm.enter(Op::FollowPageMask);
    if let Some(size) = walk.vma.huge.filter(|_| !mm.pt.kernel.gup_hugetlb_generic) {
        return hugetlb_follow_page_mask(mm, walk, size);
    }
    if let Some(pud) = mm.huge_pud(walk.vma.mm, walk.va) {
        return follow_huge_pud(mm, walk, pud);
    }
    match mm.pt.pmd_offset(walk.vma.mm, walk.va) {
        Some(pmdp) => follow_pmd_mask(mm, walk, pmdp),
        None => Err(no_page_table(mm, walk)),
    }
}

/// A core dump leaves a hole where a fault would only find zeroes.
/// Source: Linux mm/gup.c `no_page_table()`.
fn no_page_table<P: Platform>(mm: &Mm<P>, walk: &Walk) -> NoPage {
    let zeroes = match walk.vma.huge {
        Some(_) => mm.hugetlbfs_pagecache(&walk.vma, walk.va).is_none(),
        // Anonymous memory is what has no fault handler of its own here.
        None => walk.vma.is_anonymous(),
    };
    match walk.flags.contains(Foll::DUMP) && zeroes {
        true => NoPage::Refused(Errno::EFAULT),
        false => NoPage::Missing,
    }
}

impl<P: Platform> Mm<P> {
    /// The leaf at PUD level that maps `va`, if there is one.
    fn huge_pud(&self, id: MmId, va: VirtAddr) -> Option<Pmd<P::Arch>> {
        let (slot, level) = self.pt.leaf_slot(id, va)?;
        (level == TableLevel::Pud).then(|| Pmd::from_raw(self.pt.ram.load_u64(slot)))
    }
}

/// Source: Linux mm/gup.c `follow_huge_pud()`.
fn follow_huge_pud<P: Platform>(mm: &mut Mm<P>, walk: &Walk, pud: Pmd<P::Arch>) -> Follow {
    mm.lock_ptl();
    mm.fentry(Event::FnFollowHugePud);
    if (walk.flags.contains(Foll::WRITE) && !pud.is_write()) || !pud.is_present() {
        return Err(no_page_table(mm, walk));
    }
    let index = walk.va.vpn().get() % (PUD_SIZE / PAGE_SIZE);
    let page = pud.pfn().add(index);
    if !pud.is_write() && gup_must_unshare(mm, walk.flags, page, Some(&walk.vma)) {
        return Err(NoPage::Shared);
    }
    let extent = leaf_extent(mm, walk, PUD_SIZE);
    let folio = mm.page_folio(page);
    try_grab_folio(mm, folio, extent.grabbed(), walk.flags).map_err(NoPage::Refused)?;
    Ok(Followed { page, extent })
}

/// How far a leaf of `bytes` goes on.
fn leaf_extent<P: Platform>(mm: &Mm<P>, walk: &Walk, bytes: u64) -> Extent {
    match mm.pt.kernel.gup_pte_batch {
        true if !mm.pt.kernel.gup_thp_stride => Extent::Mask(0),
        true => {
            let leaf_end = walk.va.align_down(bytes).wrapping_add(bytes);
            let end = leaf_end.min(walk.end);
            Extent::run(mm, NrPages::covering(end.bytes_since(walk.va)))
        }
        false => Extent::Mask(bytes / PAGE_SIZE - 1),
    }
}

// ---- hugetlb by itself

/// One huge page by hugetlb's own look-up, which knows its size.
/// Source: Linux 6.5 mm/hugetlb.c `hugetlb_follow_page_mask()`.
///
/// Events: one look at the entry, one reference.
fn hugetlb_follow_page_mask<P: Platform>(mm: &mut Mm<P>, walk: &Walk, size: HugeSize) -> Follow {
    mm.fentry(Event::FnHugetlbFollowPageMask);
    let Some(at) = mm.pt.huge_pte_offset(walk.vma.mm, walk.va, size) else {
        return Err(no_page_table(mm, walk));
    };
    mm.lock_ptl();
    let pte = mm.pt.huge_ptep_get(at);
    if !pte.is_present() || pte.is_none() {
        return Err(no_page_table(mm, walk));
    }
    if !pte.is_write() && walk.flags.contains(Foll::WRITE) {
        return Err(no_page_table(mm, walk));
    }
    if !pte.is_write() && gup_must_unshare(mm, walk.flags, pte.pfn(), Some(&walk.vma)) {
        return Err(NoPage::Shared);
    }
    let folio = mm.page_folio(pte.pfn());
    let extent = leaf_extent(mm, walk, size.bytes());
    try_grab_folio(mm, folio, extent.grabbed(), walk.flags).map_err(NoPage::Refused)?;
    let index = walk.va.bytes_since(at.va) / PAGE_SIZE;
    Ok(Followed { page: pte.pfn().add(index), extent })
}

/// The pages of one huge page from `walk.va` on, in one step, with faults of its own.
/// Source: Linux 6.1 mm/hugetlb.c `follow_hugetlb_page()`, one turn of its loop.
///
/// Events: three looks at the entry (whether it is there, whether it will do, its page), one
/// reference or pin for all pages.
fn follow_hugetlb_page<P: Platform>(
    mm: &mut Mm<P>,
    walk: &Walk,
    size: HugeSize,
    left: u64,
    pages: Option<&mut Vec<Pfn>>,
) -> Result<u64, Errno> {
    let mm = &mut *mm.enter(Op::FollowHugetlbPage);
    for _ in 0..PATIENCE {
        let fault = match hugetlb_look(mm, walk, size)? {
            Ok(pte) => return record_subpages(mm, walk, size, pte, left, pages),
            Err(fault) => fault,
        };
        // FOLL_NOFAULT is not looked at here.
        hugetlb::hugetlb_fault(mm, walk.id, size, walk.va, fault).map_err(errno_of)?;
    }
    Err(Errno::EFAULT)
}

/// The entry, or the fault that must come first.
///
/// # Errors
/// EFAULT for a hole in a core dump.
fn hugetlb_look<P: Platform>(
    mm: &mut Mm<P>,
    walk: &Walk,
    size: HugeSize,
) -> Result<Result<Pte<P::Arch>, FaultAccess>, Errno> {
    let write = walk.flags.contains(Foll::WRITE);
    let plain = if write { FaultAccess::Write } else { FaultAccess::Read };
    let at = mm.pt.huge_pte_offset(walk.vma.mm, walk.va, size);
    let there = at.filter(|&at| {
        mm.lock_ptl();
        !mm.pt.huge_ptep_get(at).is_none()
    });
    let Some(at) = there else {
        let dump = walk.flags.contains(Foll::DUMP);
        return match dump && mm.hugetlbfs_pagecache(&walk.vma, walk.va).is_none() {
            true => Err(Errno::EFAULT),
            false => Ok(Err(plain)),
        };
    };
    // __follow_hugetlb_must_fault()
    let pte = mm.pt.huge_ptep_get(at);
    if !pte.is_present() || (write && !pte.is_write()) {
        return Ok(Err(plain));
    }
    if !pte.is_write() && gup_must_unshare(mm, walk.flags, pte.pfn(), Some(&walk.vma)) {
        return Ok(Err(FaultAccess::Unshare));
    }
    Ok(Ok(mm.pt.huge_ptep_get(at)))
}

/// Notes the pages and takes all their references at once.
fn record_subpages<P: Platform>(
    mm: &mut Mm<P>,
    walk: &Walk,
    size: HugeSize,
    pte: Pte<P::Arch>,
    left: u64,
    pages: Option<&mut Vec<Pfn>>,
) -> Result<u64, Errno> {
    let base = walk.va.align_down(size.bytes());
    let index = walk.va.bytes_since(base) / PAGE_SIZE;
    let in_vma = walk.vma.end.bytes_since(walk.va) / PAGE_SIZE;
    let refs = (size.order().pages() - index).min(left).min(in_vma);
    let Some(pages) = pages else { return Ok(refs) };
    mm.pt.count(Event::GupPageStore, refs);
    let folio = mm.page_folio(pte.pfn());
    try_grab_folio(mm, folio, refs, walk.flags)?;
    pages.extend((0..refs).map(|i| pte.pfn().add(index + i)));
    Ok(refs)
}

/// Source: Linux mm/internal.h `gup_can_follow_protnone()`.
fn gup_can_follow_protnone(walk: &Walk) -> bool {
    let accessible = VmFlags::READ | VmFlags::WRITE | VmFlags::EXEC;
    !walk.flags.contains(Foll::HONOR_NUMA_FAULT) || !walk.vma.flags.intersects(accessible)
}

/// Source: Linux mm/gup.c `follow_pmd_mask()`.
fn follow_pmd_mask<P: Platform>(mm: &mut Mm<P>, walk: &Walk, pmdp: Pmdp) -> Follow {
    let pmd = mm.pt.pmdp_get(pmdp);
    if pmd.is_none() || !pmd.is_present() {
        return Err(no_page_table(mm, walk));
    }
    if !pmd.is_leaf() {
        return follow_page_pte(mm, walk, pmdp);
    }
    if pmd.is_protnone() && !gup_can_follow_protnone(walk) {
        return Err(no_page_table(mm, walk));
    }
    mm.lock_ptl();
    if walk.flags.contains(Foll::SPLIT_PMD) {
        huge_memory::split_huge_pmd(mm, walk.id, pmdp);
        return follow_page_pte(mm, walk, pmdp);
    }
    follow_huge_pmd(mm, walk, pmdp, pmd)
}

/// Source: Linux mm/gup.c `follow_huge_pmd()` (mm/huge_memory.c `follow_trans_huge_pmd()`
/// before 6.5).
fn follow_huge_pmd<P: Platform>(
    mm: &mut Mm<P>,
    walk: &Walk,
    pmdp: Pmdp,
    pmd: Pmd<P::Arch>,
) -> Follow {
    mm.fentry(Event::FnFollowHugePmd);
    let head = pmd.pfn();
    if walk.flags.contains(Foll::WRITE)
        && !pmd.is_write()
        && !can_follow_write_common(mm, head, walk)
    {
        return Err(NoPage::Missing);
    }
    if walk.flags.contains(Foll::DUMP) && pmd.is_special() {
        return Err(NoPage::Refused(Errno::EFAULT));
    }
    if !pmd.is_write() && gup_must_unshare(mm, walk.flags, head, Some(&walk.vma)) {
        return Err(NoPage::Shared);
    }
    let folio = mm.page_folio(head);
    let extent = leaf_extent(mm, walk, PMD_SIZE);
    try_grab_folio(mm, folio, extent.grabbed(), walk.flags).map_err(NoPage::Refused)?;
    if walk.flags.contains(Foll::TOUCH) {
        touch_pmd(mm, pmdp, pmd, walk.flags);
    }
    let index = walk.va.vpn().get() - pmdp.va.vpn().get();
    Ok(Followed { page: head.add(index), extent })
}

/// Source: Linux mm/huge_memory.c `touch_pmd()`.
fn touch_pmd<P: Platform>(mm: &mut Mm<P>, pmdp: Pmdp, pmd: Pmd<P::Arch>, flags: Foll) {
    let (entry, access) = match flags.contains(Foll::WRITE) {
        true => (pmd.mkyoung().mkdirty(), FaultAccess::Write),
        false => (pmd.mkyoung(), FaultAccess::Read),
    };
    mm.pt.pmdp_set_access_flags(pmdp, entry, access);
}

/// Source: Linux mm/gup.c `follow_page_pte()`.
fn follow_page_pte<P: Platform>(mm: &mut Mm<P>, walk: &Walk, pmdp: Pmdp) -> Follow {
    mm.fentry(Event::FnFollowPagePte);
    let Some(at) = mm.pt.pte_offset(pmdp, walk.va) else { return Err(no_page_table(mm, walk)) };
    mm.lock_ptl();
    let pte = mm.pt.ptep_get(at);
    if !pte.is_present() {
        return Err(if pte.is_none() { no_page_table(mm, walk) } else { NoPage::Missing });
    }
    if pte.is_protnone() && !gup_can_follow_protnone(walk) {
        return Err(NoPage::Missing);
    }
    let normal = !pte.is_special();
    if walk.flags.contains(Foll::WRITE) && !can_follow_write_pte(mm, pte, walk) {
        return Err(NoPage::Missing);
    }
    if !normal && walk.flags.contains(Foll::DUMP) {
        return Err(NoPage::Refused(Errno::EFAULT));
    }
    if !normal && pte.pfn() != mm.zero_page {
        return Err(NoPage::Refused(Errno::EEXIST));
    }
    if !pte.is_write() && gup_must_unshare(mm, walk.flags, pte.pfn(), Some(&walk.vma)) {
        return Err(NoPage::Shared);
    }
    let folio = mm.page_folio(pte.pfn());
    let extent = match mm.pt.kernel.gup_pte_batch {
        true => {
            let nr = follow_pte_batch(mm, walk, folio, at, pte);
            Extent::run(mm, nr)
        }
        false => Extent::Mask(0),
    };
    try_grab_folio(mm, folio, extent.grabbed(), walk.flags).map_err(NoPage::Refused)?;
    if walk.flags.contains(Foll::TOUCH) {
        if walk.flags.contains(Foll::WRITE) && !pte.is_dirty() {
            mm.folio_set(folio, PageFlags::DIRTY);
        }
        mm.folio_mark_accessed(folio);
    }
    Ok(Followed { page: pte.pfn(), extent })
}

/// How many entries from `at` on map consecutive pages of the folio with the same write bit, up
/// to the end of the table, of the VMA, of the folio and of what is wanted. What was checked for
/// the first holds for all (patch `gup-pte-batch`).
fn follow_pte_batch<P: Platform>(
    mm: &mut Mm<P>,
    walk: &Walk,
    folio: Folio,
    at: Ptep,
    pte: Pte<P::Arch>,
) -> NrPages {
    if !folio.is_large() {
        return NrPages::ONE;
    }
    // Whether a read-only page may be taken depends on each page's own exclusiveness.
    let per_page = !pte.is_write() && walk.flags.intersects(Foll::WRITE | Foll::PIN);
    let by_run = mm.pt.kernel.gup_ro_pin_exclusive_run;
    if per_page && !by_run {
        return NrPages::ONE;
    }
    let end = pmd_addr_end(walk.va, walk.end.min(walk.vma.end));
    let max = NrPages::covering(end.bytes_since(walk.va));
    let run = match mm.pt.kernel.gup_batch_own_scan {
        true => mm.pte_run(folio, at, pte, max, Fpb::RESPECT_WRITE),
        false => mm.folio_pte_batch(folio, at, pte, max, Fpb::RESPECT_WRITE),
    };
    let nr = run.nr;
    if !per_page || !mm.folio_test(folio, PageFlags::ANON) {
        return nr;
    }
    let exclusive = mm.page_anon_exclusive(pte.pfn());
    let equal = |&i: &u64| mm.page_anon_exclusive(pte.pfn().add(i)) == exclusive;
    NrPages::new((0..nr.get()).take_while(equal).count() as u64)
}

/// Source: Linux mm/gup.c `can_follow_write_pte()`; neither soft-dirty tracking nor
/// write-protecting userfaults exist.
fn can_follow_write_pte<P: Platform>(mm: &Mm<P>, pte: Pte<P::Arch>, walk: &Walk) -> bool {
    pte.is_write() || (!pte.is_special() && can_follow_write_common(mm, pte.pfn(), walk))
}

/// Whether a page that is mapped read-only may be written all the same: an exclusive anonymous
/// page of a private mapping that its owner made read-only.
/// Source: Linux mm/gup.c `can_follow_write_common()`.
fn can_follow_write_common<P: Platform>(mm: &Mm<P>, page: Pfn, walk: &Walk) -> bool {
    walk.flags.contains(Foll::FORCE)
        && walk.vma.is_cow()
        && !walk.vma.flags.contains(VmFlags::WRITE)
        && mm.folio_test(mm.page_folio(page), PageFlags::ANON)
        && mm.page_anon_exclusive(page)
}

/// Whether a read-only pin would lose touch with the page at the next copy-on-write. GUP-fast
/// knows no VMA. Source: Linux mm/internal.h `gup_must_unshare()`.
fn gup_must_unshare<P: Platform>(mm: &Mm<P>, flags: Foll, page: Pfn, vma: Option<&Vma>) -> bool {
    if flags & (Foll::WRITE | Foll::PIN) != Foll::PIN {
        return false;
    }
    if !mm.folio_test(mm.page_folio(page), PageFlags::ANON) {
        return flags.contains(Foll::LONGTERM) && vma.is_none_or(Vma::is_cow);
    }
    !mm.page_anon_exclusive(page)
}

/// Serves the fault that stands between the caller and the page.
/// Source: Linux mm/gup.c `faultin_page()`.
fn faultin_page<P: Platform>(mm: &mut Mm<P>, walk: &Walk, unshare: bool) -> Result<(), Errno> {
    if walk.flags.contains(Foll::NOFAULT) {
        return Err(Errno::EFAULT);
    }
    let access = match walk.flags.contains(Foll::WRITE) {
        true => FaultAccess::Write,
        false if unshare => FaultAccess::Unshare,
        false => FaultAccess::Read,
    };
    mm.vmstat.pgfault += 1;
    handle_mm_fault(mm, walk.id, walk.va, access).map_err(errno_of)
}

/// `vm_fault_to_errno()`.
fn errno_of(signal: FaultSignal) -> Errno {
    match signal {
        FaultSignal::OutOfMemory => Errno::ENOMEM,
        FaultSignal::Bus | FaultSignal::SegvMapErr | FaultSignal::SegvAccErr => Errno::EFAULT,
    }
}

// ---- references

/// Takes `refs` references on, or pins of, a folio.
/// Source: Linux mm/gup.c `try_grab_folio()`.
fn try_grab_folio<P: Platform>(
    mm: &mut Mm<P>,
    folio: Folio,
    refs: u64,
    flags: Foll,
) -> Result<(), Errno> {
    if !flags.intersects(Foll::GET | Foll::PIN) {
        return Ok(());
    }
    mm.fentry(Event::FnTryGrabFolio);
    mm.pt.count(Event::FnTryGrabFolioRefs, refs);
    if mm.folio_ref_count(folio) == 0 {
        return Err(Errno::ENOMEM);
    }
    if flags.contains(Foll::GET) {
        mm.folio_ref_add(folio, refs);
        return Ok(());
    }
    if mm.is_zero_page(folio.pfn) {
        return Ok(());
    }
    if folio.is_large() {
        mm.folio_ref_add(folio, refs);
        mm.folio_pincount_add(folio, refs);
    } else {
        mm.folio_ref_add(folio, refs * u64::from(GUP_PIN_COUNTING_BIAS));
    }
    mm.vmstat.nr_foll_pin_acquired += refs;
    Ok(())
}

/// The same without a lock: first a reference, unless the folio is on its way out, then the pin.
/// Source: Linux mm/gup.c `try_grab_folio_fast()`.
fn try_grab_folio_fast<P: Platform>(
    mm: &mut Mm<P>,
    page: Pfn,
    refs: u64,
    flags: Foll,
) -> Option<Folio> {
    mm.fentry(Event::FnTryGrabFolioFast);
    mm.pt.count(Event::FnTryGrabFolioFastRefs, refs);
    let folio = mm.page_folio(page);
    let pin = flags.contains(Foll::PIN);
    if pin && mm.is_zero_page(page) {
        return Some(folio);
    }
    if mm.folio_ref_count(folio) == 0 {
        return None;
    }
    mm.folio_ref_add(folio, refs);
    if pin && folio.is_large() {
        mm.folio_pincount_add(folio, refs);
    } else if pin {
        mm.folio_ref_add(folio, refs * u64::from(GUP_PIN_COUNTING_BIAS - 1));
    }
    if pin {
        mm.vmstat.nr_foll_pin_acquired += refs;
    }
    Some(folio)
}

/// Gives `refs` references or pins back. Source: Linux mm/gup.c `gup_put_folio()`.
fn gup_put_folio<P: Platform>(mm: &mut Mm<P>, folio: Folio, refs: u64, flags: Foll) {
    mm.fentry(Event::FnGupPutFolio);
    mm.pt.count(Event::FnGupPutFolioRefs, refs);
    let mut drop = refs;
    if flags.contains(Foll::PIN) {
        if mm.is_zero_page(folio.pfn) {
            return;
        }
        mm.vmstat.nr_foll_pin_released += refs;
        if folio.is_large() {
            mm.folio_pincount_sub(folio, refs);
        } else {
            drop *= u64::from(GUP_PIN_COUNTING_BIAS);
        }
    }
    mm.folio_put_refs(folio, drop);
}

// ---- GUP-fast

/// Source: Linux mm/gup.c `gup_fast_fallback()`.
fn gup_fast_fallback<P: Platform>(
    mm: &mut Mm<P>,
    id: MmId,
    start: VirtAddr,
    nr: u64,
    flags: Foll,
    pages: &mut Vec<Pfn>,
) -> Result<u64, Errno> {
    if !(FAST_FLAGS | Foll::PIN | Foll::FAST_ONLY).contains(flags) {
        return Err(Errno::EINVAL);
    }
    let start = start.align_down(PAGE_SIZE);
    let end = nr.checked_mul(PAGE_SIZE).and_then(|len| start.checked_add(len));
    let end = end.ok_or(Errno::EOVERFLOW)?;
    if end > P::Arch::TASK_SIZE {
        return Err(Errno::EFAULT);
    }
    let fast = gup_fast(mm, id, start, end, flags, pages);
    if fast == nr || flags.contains(Foll::FAST_ONLY) {
        return Ok(fast);
    }
    let rest = start.wrapping_add(fast * PAGE_SIZE);
    let flags = flags | Foll::TOUCH | Foll::UNLOCKABLE;
    match __gup_longterm_locked(mm, id, rest, nr - fast, flags, pages) {
        Ok(slow) => Ok(fast + slow),
        Err(_) if fast > 0 => Ok(fast),
        Err(error) => Err(error),
    }
}

/// As many pages as can be had without locks or faults. No fork can be under way, so the check
/// of `write_protect_seq` always passes.
/// Source: Linux mm/gup.c `gup_fast()`, `gup_fast_pmd_range()`.
fn gup_fast<P: Platform>(
    mm: &mut Mm<P>,
    id: MmId,
    start: VirtAddr,
    end: VirtAddr,
    flags: Foll,
    pages: &mut Vec<Pfn>,
) -> u64 {
    let mm = &mut *mm.enter(Op::GupFast);
    let before = pages.len();
    let mut va = start;
    while va < end {
        if let Some(pud) = mm.huge_pud(id, va) {
            let next = va.align_down(PUD_SIZE).wrapping_add(PUD_SIZE).min(end);
            mm.fentry(Event::FnGupFastPudLeaf);
            if !gup_fast_leaf(mm, pud, PUD_SIZE, (va, next), flags, pages) {
                break;
            }
            va = next;
            continue;
        }
        let next = pmd_addr_end(va, end);
        let Some(pmdp) = mm.pt.pmd_offset(id, va) else { break };
        let pmd = mm.pt.pmdp_get(pmdp);
        if !pmd.is_present() {
            break;
        }
        let whole = match pmd.is_leaf() {
            true => gup_fast_pmd_leaf(mm, pmd, (va, next), flags, pages),
            false => gup_fast_pte_range(mm, pmdp, va, next, flags, pages),
        };
        if !whole {
            break;
        }
        va = next;
    }
    (pages.len() - before) as u64
}

/// Returns whether the whole range was taken. Source: Linux mm/gup.c `gup_fast_pmd_leaf()`.
fn gup_fast_pmd_leaf<P: Platform>(
    mm: &mut Mm<P>,
    pmd: Pmd<P::Arch>,
    range: (VirtAddr, VirtAddr),
    flags: Foll,
    pages: &mut Vec<Pfn>,
) -> bool {
    if pmd.is_protnone() {
        return false;
    }
    mm.fentry(Event::FnGupFastPmdLeaf);
    gup_fast_leaf(mm, pmd, PMD_SIZE, range, flags, pages)
}

/// A leaf of `bytes`: one reference or pin for all of its pages in the range.
/// Source: Linux mm/gup.c `gup_fast_pmd_leaf()`, `gup_fast_pud_leaf()`.
fn gup_fast_leaf<P: Platform>(
    mm: &mut Mm<P>,
    leaf: Pmd<P::Arch>,
    bytes: u64,
    (va, end): (VirtAddr, VirtAddr),
    flags: Foll,
    pages: &mut Vec<Pfn>,
) -> bool {
    let refused = flags.contains(Foll::WRITE) && !leaf.is_write();
    if !leaf.is_present() || leaf.is_protnone() || leaf.is_special() || refused {
        return false;
    }
    let page = leaf.pfn().add(va.vpn().get() % (bytes / PAGE_SIZE));
    let refs = NrPages::covering(end.bytes_since(va)).get();
    let Some(folio) = try_grab_folio_fast(mm, page, refs, flags) else { return false };
    if !gup_fast_folio_allowed(mm, folio, flags)
        || (!leaf.is_write() && gup_must_unshare(mm, flags, folio.pfn, None))
    {
        gup_put_folio(mm, folio, refs, flags);
        return false;
    }
    mm.folio_set(folio, PageFlags::REFERENCED);
    mm.pt.count(Event::GupPageStore, refs);
    pages.extend((0..refs).map(|i| page.add(i)));
    true
}

/// Returns whether the whole range was taken. Source: Linux mm/gup.c `gup_fast_pte_range()`.
fn gup_fast_pte_range<P: Platform>(
    mm: &mut Mm<P>,
    pmdp: Pmdp,
    va: VirtAddr,
    end: VirtAddr,
    flags: Foll,
    pages: &mut Vec<Pfn>,
) -> bool {
    let mm = &mut *mm.enter(Op::GupFastPteRange);
    let Some(first) = mm.pt.pte_offset(pmdp, va) else { return false };
    for i in 0..NrPages::covering(end.bytes_since(va)).get() {
        match gup_fast_pte(mm, first.add(i), flags) {
            Some(page) => pages.push(page),
            None => return false,
        }
    }
    true
}

/// One page of [`gup_fast_pte_range`].
fn gup_fast_pte<P: Platform>(mm: &mut Mm<P>, at: Ptep, flags: Foll) -> Option<Pfn> {
    let pte = mm.pt.ptep_get_lockless(at);
    let permitted = pte.is_present() && (!flags.contains(Foll::WRITE) || pte.is_write());
    if pte.is_protnone() || !permitted || pte.is_special() {
        return None;
    }
    let page = pte.pfn();
    let folio = try_grab_folio_fast(mm, page, 1, flags)?;
    // The folio may have been freed and used again between the look and the reference.
    let again = match mm.pt.kernel.gup_fast_recheck_lockless {
        true => mm.pt.ptep_get_lockless(at),
        false => mm.pt.ptep_get(at),
    };
    let shared = !pte.is_write() && gup_must_unshare(mm, flags, page, None);
    if again != pte || !gup_fast_folio_allowed(mm, folio, flags) || shared {
        gup_put_folio(mm, folio, 1, flags);
        return None;
    }
    mm.folio_set(folio, PageFlags::REFERENCED);
    mm.pt.count(Event::GupPageStore, 1);
    Some(page)
}

/// A long-term writer must not bypass the dirty tracking of a file system; what is in memory only
/// has none. Source: Linux mm/gup.c `gup_fast_folio_allowed()`.
fn gup_fast_folio_allowed<P: Platform>(mm: &Mm<P>, folio: Folio, flags: Foll) -> bool {
    let in_memory = PageFlags::HUGETLB | PageFlags::ANON | PageFlags::SWAPBACKED;
    !mm.pt.kernel.gup_longterm_file_refused
        || !flags.contains(Foll::PIN | Foll::LONGTERM | Foll::WRITE)
        || mm.pt.pages.page(folio.pfn).flags.intersects(in_memory)
}
