//! The kernel side: an emulated Linux mm.
//!
//! One file per Linux file, functions named as there, so that a reader can hold both open:
//! `memory` (faults, COW, zap), `fork` (copying), `gup`, `gup_test`, `mmap`, `mprotect`, `mremap`,
//! `madvise`, `mlock`, `mseal`, `ksm`, `pagewalk`, `rmap`, `page_vma_mapped`, `vmscan`, `swap`, `huge_memory`,
//! `khugepaged`, `migrate`, `mmu_gather`, `page_alloc`, `filemap`, `shmem`, `hugetlb`, `task_mmu`, `debug`; ours
//! are `folio`, `vma`, `pte_batch`, `thp`, `stats`, `uaccess` and `validate`.
//!
//! [`Mm`] is the whole memory manager: every address space, all of RAM. Algorithms touch page
//! tables only through [`arch::Pt`], which counts; [`Mm::enter`] attributes what is counted to
//! the operation under way. They know neither the TLB model nor a price, and nothing here asks
//! which architecture it runs on. Kernel operations are atomic with respect to guest
//! instructions, so locks are events, not mechanisms.

#![expect(clippy::cast_possible_truncation, reason = "frame numbers and mapcounts fit 32 bits")]

mod debug;
mod errno;
mod filemap;
mod folio;
mod fork;
mod gup;
mod gup_test;
mod huge_memory;
mod hugetlb;
mod khugepaged;
mod ksm;
mod madvise;
mod memory;
mod migrate;
mod mlock;
mod mmap;
mod mmu_gather;
mod mprotect;
mod mremap;
mod mseal;
mod page_alloc;
mod page_vma_mapped;
mod pagewalk;
mod pte_batch;
mod rmap;
mod shmem;
mod stats;
mod swap;
mod task_mmu;
mod thp;
mod uaccess;
mod validate;
mod vma;
mod vmscan;

pub use arch::{HugeSize, MmId};
pub use errno::Errno;
pub use filemap::FileId;
pub use folio::Folio;
pub use gup::Foll;
pub use gup_test::{GupTest, GupTestCommand, GupTestPages};
pub use hugetlb::{HugePool, ResvId};
pub use khugepaged::Khugepaged;
pub use ksm::{Ksm, KsmKnobs, KsmRun, KsmStats, MmKsm, Switch};
pub use madvise::advice;
pub use memory::{Access, FaultSignal};
pub use mlock::{Lock, Mcl};
pub use mmap::{Backing, MapFlags};
pub use mremap::MremapFlags;
pub use rmap::AnonVmaId;
pub use stats::{MemInfo, VmStat};
pub use task_mmu::ClearRefs;
pub use thp::{MthpStats, Size, Thp, ThpDefrag, ThpGlobal, ThpSize};
pub use validate::Violation;
pub use vma::{Mdwe, MmStruct, Rss, VmFlags, VmProt, Vma, VmaId};

use arch::{Hw, KernelConfig, Platform, Pt};
use events::{Event, Op, Sink};
use phys::{PageFlags, Ram};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::{Deref, DerefMut};
use units::{NrPages, Pfn, PhysAddr, VirtAddr};

/// A page, by its frame.
pub(crate) type Page = Pfn;

/// `fault_around_bytes` at boot.
const FAULT_AROUND_BYTES: u64 = 64 << 10;

/// What a memory manager is built for.
#[derive(Clone, Debug)]
pub struct MmConfig {
    /// Bytes of guest RAM.
    pub ram_bytes: u64,
    /// Bytes of swap; 0 for none.
    pub swap_bytes: u64,
    /// The kernel that is modelled.
    pub kernel: KernelConfig,
    /// The machine.
    pub hw: Hw,
    /// Large folios.
    pub thp: Thp,
}

/// The memory manager.
#[derive(Debug)]
pub struct Mm<P: Platform> {
    /// Page tables, RAM, TLBs and counting.
    pub pt: Pt<P>,
    /// Knobs and statistics of large folios.
    pub thp: Thp,
    /// Knobs and progress of khugepaged.
    pub khugepaged: Khugepaged,
    /// The window of pages that a read fault of a file maps (debugfs `fault_around_bytes`): a
    /// power of two, at least a page.
    pub fault_around_bytes: u64,
    /// /proc/vmstat.
    pub vmstat: VmStat,
    /// Kernel samepage merging.
    pub ksm: Ksm,
    mms: Vec<MmStruct>,
    vmas: Vec<Vma>,
    free_vmas: Vec<VmaId>,
    /// anon_vmas that each VMA is linked to.
    anon_chains: Vec<Vec<AnonVmaId>>,
    anon_vmas: rmap::AnonVmas,
    buddy: page_alloc::Buddy,
    lru: vmscan::Lru,
    swap: swap::Swap,
    ubc: rmap::Ubc,
    files: filemap::Files,
    hugetlb: hugetlb::Hugetlb,
    /// Page tables kept for the split of a PMD leaf.
    deposited: BTreeMap<(MmId, VirtAddr), PhysAddr>,
    deferred_split: BTreeSet<Pfn>,
    zero_page: Pfn,
    huge_zero: Option<Folio>,
}

/// An operation under way: derefs to the [`Mm`], and ends the attribution when dropped.
#[derive(Debug)]
pub struct Entered<'a, P: Platform> {
    mm: &'a mut Mm<P>,
    outer: Op,
}

impl<P: Platform> Deref for Entered<'_, P> {
    type Target = Mm<P>;
    #[inline(always)]
    fn deref(&self) -> &Mm<P> {
        self.mm
    }
}

impl<P: Platform> DerefMut for Entered<'_, P> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Mm<P> {
        self.mm
    }
}

impl<P: Platform> Drop for Entered<'_, P> {
    #[inline(always)]
    fn drop(&mut self) {
        self.mm.pt.count_lines();
        self.mm.pt.sink.exit();
        self.mm.pt.op = self.outer;
    }
}

impl<P: Platform> Mm<P> {
    /// Memory at rest: all of RAM free but the zero page.
    ///
    /// # Errors
    /// If the host refuses the mapping for guest RAM.
    pub fn new(config: MmConfig, sink: P::Sink, tlb: P::Tlb) -> io::Result<Mm<P>> {
        let ram = Ram::new(config.ram_bytes)?;
        let end = Pfn::new(ram.frames());
        let mut pt = Pt::new(ram, sink, tlb, config.kernel, config.hw);
        // Frame 0 stays unused, so that no table or page has physical address 0.
        let zero_page = Pfn::new(1);
        if end <= Pfn::new(16) {
            return Err(io::Error::other("guest RAM must hold at least 16 pages"));
        }
        let zero = pt.pages.page_mut(zero_page);
        zero.flags = PageFlags::RESERVED | PageFlags::ALLOCATED;
        zero.refcount = 1;
        Ok(Mm {
            pt,
            thp: config.thp,
            khugepaged: Khugepaged::default(),
            fault_around_bytes: FAULT_AROUND_BYTES,
            vmstat: VmStat::default(),
            ksm: Ksm::default(),
            mms: Vec::new(),
            vmas: Vec::new(),
            free_vmas: Vec::new(),
            anon_chains: Vec::new(),
            anon_vmas: rmap::AnonVmas::default(),
            buddy: page_alloc::Buddy::new(Pfn::new(2), end),
            lru: vmscan::Lru::default(),
            swap: swap::Swap::new(NrPages::covering(config.swap_bytes).get()),
            ubc: rmap::Ubc::default(),
            files: filemap::Files::default(),
            hugetlb: hugetlb::Hugetlb::new(<P::Arch as arch::Arch>::HUGE_SIZES),
            deposited: BTreeMap::new(),
            deferred_split: BTreeSet::new(),
            zero_page,
            huge_zero: None,
        })
    }

    /// The operation `op` starts: what is counted until the guard drops belongs to it.
    #[inline(always)]
    pub fn enter(&mut self, op: Op) -> Entered<'_, P> {
        let outer = std::mem::replace(&mut self.pt.op, op);
        self.pt.count_lines();
        self.pt.sink.enter(op);
        Entered { mm: self, outer }
    }

    /// A function that is no operation of its own was entered, as ftrace would see it.
    #[inline(always)]
    pub(crate) fn fentry(&mut self, function: Event) {
        self.pt.count(function, 1);
    }

    /// The same for a function that has another name since 7.x.
    #[inline(always)]
    pub(crate) fn fentry_since(&mut self, before: Event, since: Event) {
        let function = match self.pt.kernel.swap_api {
            arch::SwapApi::SlotCache => before,
            arch::SwapApi::Cluster => since,
        };
        self.pt.count(function, 1);
    }

    /// `mmput()` of the last user: the address space and everything in it goes away.
    pub fn mmput(&mut self, mm: MmId) {
        self.ksm_exit(mm);
        memory::exit_mmap(self, mm);
    }

    /// What /proc/meminfo says.
    pub fn meminfo(&self) -> MemInfo {
        MemInfo {
            total: self.pt.ram.frames(),
            free: self.buddy.free_pages(),
            swap_total: self.swap.total(),
            swap_free: self.swap.free(),
            anon: self.mms.iter().map(|ms| ms.rss.anon).sum(),
            page_tables: self.mms.iter().map(|ms| ms.pgtables).sum(),
            shmem: self.shmem_pages(),
        }
    }
}
