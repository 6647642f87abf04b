//! The architecture layer: both page-table formats, the counted PTE primitives over them, and
//! the TLB flush decisions that Linux keeps under `arch/`.
//!
//! [`Arch`] is the list of what an architecture must say; [`X86_64`] and [`Arm64`] say it, side
//! by side and always compiled. [`Pt`] is what `mm` holds: RAM, `struct page`, the sink, the TLB
//! port and the kernel and machine configuration; its methods are Linux's primitives under their
//! own names (`ptep_get`, `set_ptes`, `flush_tlb_range`, …) and are the only place where touches
//! of page tables are counted. On arm64 they run through the contpte layer
//! (`arm64/contpte.rs`), on x86-64 they touch one entry each.
//!
//! What is not here: how hardware walks (that is `mmu`, which reads the same encodings), and
//! when any primitive is called (that is `mm`).

pub mod arm64;
mod hugetlb;
mod hw;
mod kconfig;
mod pt;
mod pte;
mod softleaf;
#[cfg(test)]
mod testing;
mod tlbport;
pub mod x86_64;

pub use arm64::Arm64;
pub use hugetlb::{HugeSize, Hugep};
pub use hw::{BbmLevel, Hw};
pub use kconfig::{BreakKsm, KernelConfig, SwapApi, UnknownKernel};
pub use pt::{FlushRange, GatherFlush, MmId, Pmdp, Pt, Ptep, Table, TableLevel};
pub use pte::{ClearYoungDirty, Pmd, PmdFormat, Prot, Pte, PteFormat, VmaProt};
pub use softleaf::{Softleaf, SoftleafKind};
pub use tlbport::{Broadcast, LeafOnly, PteChange, SwitchKind, TlbOp, TlbPort};
pub use x86_64::X86_64;

use events::Sink;
use std::fmt::Debug;
use units::{ArchId, CpuId, NrPages, PhysAddr, VirtAddr};

/// What a run is made of: an architecture, someone who counts, and the hardware TLBs.
pub trait Platform: Debug + Sized + 'static {
    /// The guest architecture.
    type Arch: Arch;
    /// Where events go.
    type Sink: Sink;
    /// The TLBs that flushes reach.
    type Tlb: TlbPort;
}

/// An architecture: encodings (pure), primitives (counted) and flush policy.
///
/// Each primitive takes the whole [`Pt`]; its **Events** are those of the Linux function that it
/// is named after, as `events` lists them.
pub trait Arch: PteFormat + PmdFormat + Copy + Debug + Default + 'static {
    /// Which architecture.
    const ID: ArchId;
    /// PTEs in a contiguous block; 1 where the architecture has none.
    const CONT_PTES: u64;
    /// First address after user space (`TASK_SIZE`).
    const TASK_SIZE: VirtAddr;
    /// What an mm adds for the TLB's sake (`mm_context_t`, `mm_cpumask`).
    type MmContext: Debug + Clone;
    /// What a CPU keeps (`cpu_tlbstate`, active ASIDs).
    type CpuState: Debug + Clone;
    /// State of the machine as a whole (ASID allocator).
    type Global: Debug + Clone;
    /// Flushes put off by the running task (`tlb_ubc`).
    type TlbBatch: Debug + Clone + Default;

    /// Fresh per-CPU state.
    fn cpu_state(hw: &Hw) -> Self::CpuState;
    /// Fresh global state.
    fn global(hw: &Hw) -> Self::Global;
    /// Context of a new mm, not yet loaded anywhere.
    fn mm_context<P: Platform<Arch = Self>>(pt: &mut Pt<P>, mm: MmId) -> Self::MmContext;

    /// The mm's root table goes: no CPU may keep it loaded, not even lazily.
    fn mm_destroy<P: Platform<Arch = Self>>(pt: &mut Pt<P>, mm: MmId);

    /// `ptep_get()`.
    fn ptep_get<P: Platform<Arch = Self>>(pt: &mut Pt<P>, at: Ptep) -> Pte<Self>;
    /// `ptep_get_lockless()`.
    fn ptep_get_lockless<P: Platform<Arch = Self>>(pt: &mut Pt<P>, at: Ptep) -> Pte<Self>;
    /// `pte_batch_hint()`: entries from `at` to the end of its contiguous block; 1 without one.
    fn pte_batch_hint(at: Ptep, pte: Pte<Self>) -> NrPages;
    /// `set_ptes()`: `nr` entries, frames advancing from that of `pte`. Entries beyond the first
    /// must be empty before.
    fn set_ptes<P: Platform<Arch = Self>>(pt: &mut Pt<P>, at: Ptep, pte: Pte<Self>, nr: NrPages);
    /// `pte_clear()`.
    fn pte_clear<P: Platform<Arch = Self>>(pt: &mut Pt<P>, at: Ptep);
    /// `ptep_get_and_clear()`.
    fn ptep_get_and_clear<P: Platform<Arch = Self>>(pt: &mut Pt<P>, at: Ptep) -> Pte<Self>;
    /// `get_and_clear_full_ptes()`: the first entry's value with young and dirty of all `nr`.
    fn get_and_clear_full_ptes<P: Platform<Arch = Self>>(
        pt: &mut Pt<P>,
        at: Ptep,
        nr: NrPages,
        teardown: Teardown,
    ) -> Pte<Self>;
    /// `clear_full_ptes()`.
    fn clear_full_ptes<P: Platform<Arch = Self>>(
        pt: &mut Pt<P>,
        at: Ptep,
        nr: NrPages,
        teardown: Teardown,
    );
    /// `wrprotect_ptes()`; of one entry, `ptep_set_wrprotect()`.
    fn wrprotect_ptes<P: Platform<Arch = Self>>(pt: &mut Pt<P>, at: Ptep, nr: NrPages);
    /// `ptep_set_access_flags()`: raises young, dirty or write of a present entry to those of
    /// `entry`. Returns whether the entry changed.
    fn ptep_set_access_flags<P: Platform<Arch = Self>>(
        pt: &mut Pt<P>,
        at: Ptep,
        entry: Pte<Self>,
        access: FaultAccess,
    ) -> bool;
    /// `flush_tlb_fix_spurious_fault()`: the fault was someone else's work already done.
    fn flush_tlb_fix_spurious_fault<P: Platform<Arch = Self>>(pt: &mut Pt<P>, at: Ptep);
    /// `test_and_clear_young_ptes()` (`ptep_test_and_clear_young()` in 6.12 for one entry).
    fn test_and_clear_young_ptes<P: Platform<Arch = Self>>(
        pt: &mut Pt<P>,
        at: Ptep,
        nr: NrPages,
    ) -> bool;
    /// `clear_flush_young_ptes()` (`ptep_clear_flush_young()` in 6.12 for one entry).
    fn clear_flush_young_ptes<P: Platform<Arch = Self>>(
        pt: &mut Pt<P>,
        at: Ptep,
        nr: NrPages,
    ) -> bool;
    /// `clear_young_dirty_ptes()`.
    fn clear_young_dirty_ptes<P: Platform<Arch = Self>>(
        pt: &mut Pt<P>,
        at: Ptep,
        nr: NrPages,
        what: ClearYoungDirty,
    );
    /// `modify_prot_start_ptes()`: clears `nr` entries for a change of protection.
    fn modify_prot_start_ptes<P: Platform<Arch = Self>>(
        pt: &mut Pt<P>,
        at: Ptep,
        nr: NrPages,
    ) -> Pte<Self>;
    /// `modify_prot_commit_ptes()`: writes them back as `pte`, frames advancing.
    fn modify_prot_commit_ptes<P: Platform<Arch = Self>>(
        pt: &mut Pt<P>,
        at: Ptep,
        pte: Pte<Self>,
        nr: NrPages,
    );
    /// Stores a swap entry over an empty or swap entry: the step of `set_softleaf_ptes()`.
    /// The generic helper is a loop of `set_pte_at()`; `raw_check` is whether each step reads
    /// the entry first, as `set_ptes()` does on arm64.
    fn set_softleaf_pte<P: Platform<Arch = Self>>(pt: &mut Pt<P>, at: Ptep, pte: Pte<Self>);

    /// `pmdp_huge_get_and_clear()`.
    fn pmdp_huge_get_and_clear<P: Platform<Arch = Self>>(
        pt: &mut Pt<P>,
        at: Pmdp,
        teardown: Teardown,
    ) -> Pmd<Self>;
    /// `set_pmd_at()`: a leaf (or an invalid leaf) into `at`.
    fn set_pmd_at<P: Platform<Arch = Self>>(pt: &mut Pt<P>, at: Pmdp, pmd: Pmd<Self>);
    /// `pmdp_invalidate()`: makes the leaf not valid for hardware, and flushes it.
    fn pmdp_invalidate<P: Platform<Arch = Self>>(pt: &mut Pt<P>, at: Pmdp) -> Pmd<Self>;
    /// `pmdp_invalidate_ad()`: the same, where only accessed and dirty must not change any
    /// more. An architecture whose walker sets them by a locked update of a present entry needs
    /// no flush for that.
    fn pmdp_invalidate_ad<P: Platform<Arch = Self>>(pt: &mut Pt<P>, at: Pmdp) -> Pmd<Self> {
        Self::pmdp_invalidate(pt, at)
    }
    /// `pmdp_test_and_clear_young()`.
    fn pmdp_test_and_clear_young<P: Platform<Arch = Self>>(pt: &mut Pt<P>, at: Pmdp) -> bool;
    /// `pmdp_set_wrprotect()`.
    fn pmdp_set_wrprotect<P: Platform<Arch = Self>>(pt: &mut Pt<P>, at: Pmdp);
    /// `pmdp_set_access_flags()`.
    fn pmdp_set_access_flags<P: Platform<Arch = Self>>(
        pt: &mut Pt<P>,
        at: Pmdp,
        entry: Pmd<Self>,
        access: FaultAccess,
    ) -> bool;
    /// `pmd_populate()`, `pud_populate()`, …: hangs `table` under the entry at `slot`.
    fn populate<P: Platform<Arch = Self>>(
        pt: &mut Pt<P>,
        level: TableLevel,
        slot: PhysAddr,
        table: PhysAddr,
    );
    /// `pmd_clear()`, `pud_clear()`, …: removes a table from the entry at `slot`.
    fn clear_table<P: Platform<Arch = Self>>(pt: &mut Pt<P>, level: TableLevel, slot: PhysAddr);

    /// Sizes of huge pages, ascending.
    const HUGE_SIZES: &'static [HugeSize];

    /// `arch_make_huge_pte()`: a present entry as an entry of a huge page.
    fn arch_make_huge_pte(entry: Pte<Self>, size: HugeSize) -> Pte<Self>;
    /// `huge_ptep_get()`: the first entry, with young and dirty of all.
    fn huge_ptep_get<P: Platform<Arch = Self>>(pt: &mut Pt<P>, at: Hugep) -> Pte<Self>;
    /// `set_huge_pte_at()`: all entries of the page.
    fn set_huge_pte_at<P: Platform<Arch = Self>>(pt: &mut Pt<P>, at: Hugep, pte: Pte<Self>);
    /// `huge_ptep_get_and_clear()`; the flush is the caller's.
    fn huge_ptep_get_and_clear<P: Platform<Arch = Self>>(pt: &mut Pt<P>, at: Hugep) -> Pte<Self>;
    /// `huge_ptep_clear_flush()`.
    fn huge_ptep_clear_flush<P: Platform<Arch = Self>>(pt: &mut Pt<P>, at: Hugep) -> Pte<Self>;
    /// `huge_ptep_set_wrprotect()`; a flush of the mm is the caller's.
    fn huge_ptep_set_wrprotect<P: Platform<Arch = Self>>(pt: &mut Pt<P>, at: Hugep);
    /// `huge_ptep_set_access_flags()`. Returns whether the entry changed.
    fn huge_ptep_set_access_flags<P: Platform<Arch = Self>>(
        pt: &mut Pt<P>,
        at: Hugep,
        pte: Pte<Self>,
        access: FaultAccess,
    ) -> bool;

    /// `flush_tlb_page()`: one page of `at.mm`, and waits.
    fn flush_tlb_page<P: Platform<Arch = Self>>(pt: &mut Pt<P>, mm: MmId, va: VirtAddr);
    /// `flush_tlb_range()`, or with the stride of a PMD leaf `flush_pmd_tlb_range()`, and waits.
    fn flush_tlb_range<P: Platform<Arch = Self>>(pt: &mut Pt<P>, mm: MmId, range: FlushRange);
    /// `flush_tlb_mm()`.
    fn flush_tlb_mm<P: Platform<Arch = Self>>(pt: &mut Pt<P>, mm: MmId);
    /// `tlb_flush()`: what an `mmu_gather` owes.
    fn tlb_flush<P: Platform<Arch = Self>>(pt: &mut Pt<P>, mm: MmId, gather: &GatherFlush);
    /// Whether the architecture flushes at the end of each VMA (`tlb_end_vma`), or lets ranges
    /// of several VMAs merge.
    const FLUSH_AT_VMA_END: bool;

    /// `arch_wants_old_prefaulted_pte()`: fault-around maps the neighbours old where hardware
    /// sets the access flag.
    const PREFAULT_OLD: bool;

    /// Whether page tables are freed through `tlb_remove_table()`, which flushes once more
    /// before it lets go of them (CONFIG_MMU_GATHER_RCU_TABLE_FREE).
    fn frees_tables_by_rcu(kernel: &KernelConfig) -> bool;
    /// `pte_needs_flush()` for a changed protection.
    fn pte_needs_flush(kernel: &KernelConfig, old: Pte<Self>, new: Pte<Self>) -> bool;
    /// `huge_pmd_needs_flush()`: the same for a PMD leaf.
    fn huge_pmd_needs_flush(kernel: &KernelConfig, old: Pmd<Self>, new: Pmd<Self>) -> bool;
    /// The exception handler's entry into the fault path, as function entries count it.
    fn count_user_fault<P: Platform<Arch = Self>>(pt: &mut Pt<P>);

    /// `arch_tlbbatch_should_defer()`.
    fn tlbbatch_should_defer<P: Platform<Arch = Self>>(pt: &Pt<P>, mm: MmId) -> bool;
    /// `arch_tlbbatch_add_pending()`: the flush of `[start, start + nr pages)` may wait.
    fn tlbbatch_add_pending<P: Platform<Arch = Self>>(
        pt: &mut Pt<P>,
        mm: MmId,
        start: VirtAddr,
        nr: NrPages,
    );
    /// `arch_tlbbatch_flush()`.
    fn tlbbatch_flush<P: Platform<Arch = Self>>(pt: &mut Pt<P>);

    /// `switch_mm()`: `cpu` goes over to `next`.
    fn switch_mm<P: Platform<Arch = Self>>(pt: &mut Pt<P>, cpu: CpuId, next: MmId);
    /// `enter_lazy_tlb()`: `cpu` idles or runs a kernel thread.
    fn enter_lazy_tlb<P: Platform<Arch = Self>>(pt: &mut Pt<P>, cpu: CpuId);

    /// For `validate()`: whether the entries of a last-level table keep the architecture's
    /// rules among each other (uniform contiguous blocks).
    ///
    /// # Errors
    /// What is wrong, in a sentence.
    fn check_pte_table<P: Platform<Arch = Self>>(_: &Pt<P>, _: PhysAddr) -> Result<(), String> {
        Ok(())
    }

    /// The same for a table of PMD entries.
    ///
    /// # Errors
    /// What is wrong, in a sentence.
    fn check_pmd_table<P: Platform<Arch = Self>>(_: &Pt<P>, _: PhysAddr) -> Result<(), String> {
        Ok(())
    }
}

/// Whether entries go because the whole mm does (`full` in Linux).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Teardown {
    /// The mm lives on.
    Partial,
    /// The mm is being torn down: no CPU can use it any more.
    FullMm,
}

/// What the fault that raises access flags was about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultAccess {
    /// A read.
    Read,
    /// A write: the entry becomes dirty.
    Write,
    /// A read-only pin (`FAULT_FLAG_UNSHARE`): a page that others share is copied, and the
    /// entry stays read-only.
    Unshare,
}
