//! The counted PTE and PMD primitives: one memory access per entry, and no state beyond the
//! entry itself.
//!
//! Which events each emits was read off the instrumented kernels. Where the generic Linux helper
//! is a loop over single-entry primitives, those count too.
//!
//! Source: Linux 7.3 arch/x86/include/asm/pgtable.h, arch/x86/mm/pgtable.c, include/linux/pgtable.h.

use super::hugetlbpage;
use super::tlbflush;
use super::{X86_64, bits, pte};
use crate::hugetlb::{HugeSize, Hugep};
use crate::pt::{FlushRange, GatherFlush, MmId, Pmdp, Pt, Ptep, TableLevel};
use crate::{
    Arch, ClearYoungDirty, FaultAccess, Hw, KernelConfig, LeafOnly, Platform, Pmd, Pte, Teardown,
};
use events::Event;
use units::{ArchId, CpuId, NrPages, PMD_SIZE, PhysAddr, Reach, VirtAddr};

/// Whether a cached copy of `old` would grant what `new` does not.
pub(super) const fn loses_rights(old: u64, new: u64) -> bool {
    if old & bits::PRESENT == 0 {
        return false;
    }
    let lost = old & !new & (bits::PRESENT | bits::RW | bits::USER);
    let barred = new & !old & bits::NX;
    let moved = (old ^ new) & bits::ADDR_MASK;
    lost | barred | moved != 0
}

/// Stores a PTE and lets the oracle look; the caller counts the access.
#[inline(always)]
fn store<P: Platform<Arch = X86_64>>(pt: &mut Pt<P>, at: Ptep, new: u64) {
    pt.touch(at.slot);
    if pt.watches_ptes() {
        let old = pt.ram.load_u64(at.slot);
        if loses_rights(old, new) {
            pt.pte_changed(at.mm, at.va, Reach::K4);
        }
    }
    pt.ram.store_u64(at.slot, new);
}

/// Stores a PMD leaf and lets the oracle look; the caller counts the access.
fn store_pmd<P: Platform<Arch = X86_64>>(pt: &mut Pt<P>, at: Pmdp, new: u64) {
    if pt.watches_ptes() {
        let old = pt.ram.load_u64(at.slot);
        if loses_rights(old, new) {
            pt.pte_changed(at.mm, at.va, Reach::M2);
        }
    }
    pt.ram.store_u64(at.slot, new);
}

/// An exchange with zero of an entry that comes back, so that the oracle need not know.
/// Events: `ptep_get_and_clear`, `pte_xchg`.
#[inline(always)]
fn take<P: Platform<Arch = X86_64>>(pt: &mut Pt<P>, at: Ptep) -> Pte<X86_64> {
    pt.count(Event::PtepGetAndClear, 1);
    pt.count(Event::PteXchg, 1);
    pt.touch(at.slot);
    let old = pt.ram.load_u64(at.slot);
    pt.ram.store_u64(at.slot, 0);
    Pte::from_raw(old)
}

/// One atomic exchange with zero. Events: `ptep_get_and_clear`, `pte_xchg`.
#[inline(always)]
fn get_and_clear<P: Platform<Arch = X86_64>>(pt: &mut Pt<P>, at: Ptep) -> Pte<X86_64> {
    pt.count(Event::PtepGetAndClear, 1);
    pt.count(Event::PteXchg, 1);
    let old = pt.ram.load_u64(at.slot);
    store(pt, at, 0);
    Pte::from_raw(old)
}

/// `ptep_get_and_clear_full()`: plain load and store when nobody can use the mm any more.
#[inline(always)]
fn get_and_clear_full<P: Platform<Arch = X86_64>>(
    pt: &mut Pt<P>,
    at: Ptep,
    teardown: Teardown,
) -> Pte<X86_64> {
    if teardown == Teardown::Partial {
        return get_and_clear(pt, at);
    }
    pt.count(Event::LocalPtepGetAndClear, 1);
    pt.count(Event::PteRead, 1);
    pt.count(Event::PteWrite, 1);
    pt.touch(at.slot);
    let old = pt.ram.load_u64(at.slot);
    pt.ram.store_u64(at.slot, 0);
    Pte::from_raw(old)
}

/// One entry of `test_and_clear_young`. Events: `ptep_test_and_clear_young`, one read, and one
/// locked bit clear if it was young.
#[inline(always)]
fn test_and_clear_young<P: Platform<Arch = X86_64>>(pt: &mut Pt<P>, at: Ptep) -> bool {
    pt.count(Event::PtepTestAndClearYoung, 1);
    pt.count(Event::PteRead, 1);
    pt.touch(at.slot);
    let old = pt.ram.load_u64(at.slot);
    let young = old & bits::ACCESSED != 0;
    if young {
        pt.count(Event::PteCmpxchg, 1);
        pt.ram.store_u64(at.slot, old & !bits::ACCESSED);
    }
    young
}

/// Young and dirty of `pte`, added to `sum`.
#[inline(always)]
fn gather(sum: Pte<X86_64>, pte: Pte<X86_64>) -> Pte<X86_64> {
    let sum = if pte.is_dirty() { sum.mkdirty() } else { sum };
    if pte.is_young() { sum.mkyoung() } else { sum }
}

/// The range of one PMD leaf as `flush_pmd_tlb_range()` has it: 512 strides of 4 KiB.
fn pmd_range(va: VirtAddr) -> FlushRange {
    let end = va.wrapping_add(PMD_SIZE);
    FlushRange { start: va, end, stride: Reach::K4, leaf_only: LeafOnly::Yes }
}

impl Arch for X86_64 {
    const ID: ArchId = ArchId::X86_64;
    const CONT_PTES: u64 = 1;
    const TASK_SIZE: VirtAddr = VirtAddr::new((1 << 47) - units::PAGE_SIZE);
    const FLUSH_AT_VMA_END: bool = false;
    const PREFAULT_OLD: bool = false;

    fn frees_tables_by_rcu(kernel: &KernelConfig) -> bool {
        kernel.x86_rcu_table_free
    }

    fn pte_needs_flush(_: &KernelConfig, old: Pte<Self>, new: Pte<Self>) -> bool {
        pte::flags_need_flush(old.raw(), new.raw())
    }
    fn huge_pmd_needs_flush(_: &KernelConfig, old: Pmd<Self>, new: Pmd<Self>) -> bool {
        pte::flags_need_flush(old.raw(), new.raw())
    }

    fn count_user_fault<P: Platform<Arch = Self>>(pt: &mut Pt<P>) {
        pt.count(Event::FnDoUserAddrFault, 1);
    }
    type MmContext = tlbflush::MmTlb;
    type CpuState = tlbflush::CpuTlb;
    type Global = tlbflush::Slots;
    type TlbBatch = tlbflush::CpuMask;

    fn cpu_state(_: &Hw) -> Self::CpuState {
        tlbflush::CpuTlb::new()
    }
    fn global(_: &Hw) -> Self::Global {
        tlbflush::Slots::default()
    }
    fn mm_context<P: Platform<Arch = Self>>(pt: &mut Pt<P>, _: MmId) -> Self::MmContext {
        tlbflush::MmTlb::new(pt)
    }
    fn mm_destroy<P: Platform<Arch = Self>>(pt: &mut Pt<P>, mm: MmId) {
        tlbflush::forget(pt, mm);
    }

    #[inline(always)]
    fn ptep_get<P: Platform<Arch = Self>>(pt: &mut Pt<P>, at: Ptep) -> Pte<Self> {
        pt.count(Event::PtepGet, 1);
        pt.count(Event::PteRead, 1);
        pt.touch(at.slot);
        Pte::from_raw(pt.ram.load_u64(at.slot))
    }
    #[inline(always)]
    fn ptep_get_lockless<P: Platform<Arch = Self>>(pt: &mut Pt<P>, at: Ptep) -> Pte<Self> {
        pt.count(Event::PtepGetLockless, 1);
        Self::ptep_get(pt, at)
    }
    #[inline(always)]
    fn pte_batch_hint(_: Ptep, _: Pte<Self>) -> NrPages {
        NrPages::ONE
    }
    #[inline]
    fn set_ptes<P: Platform<Arch = Self>>(pt: &mut Pt<P>, at: Ptep, pte: Pte<Self>, nr: NrPages) {
        let n = nr.get();
        pt.count(Event::SetPtes, 1);
        pt.count(Event::SetPtesPages, n);
        pt.count(Event::PteWrite, n);
        if n == 1 {
            pt.count(Event::SetPtesNr1, 1);
        }
        let mut entry = pte;
        for i in 0..n {
            store(pt, at.add(i), entry.raw());
            entry = entry.advance_pfn(1);
        }
    }
    #[inline]
    fn pte_clear<P: Platform<Arch = Self>>(pt: &mut Pt<P>, at: Ptep) {
        pt.count(Event::PteWrite, 1);
        store(pt, at, 0);
    }
    #[inline]
    fn ptep_get_and_clear<P: Platform<Arch = Self>>(pt: &mut Pt<P>, at: Ptep) -> Pte<Self> {
        get_and_clear(pt, at)
    }
    fn get_and_clear_full_ptes<P: Platform<Arch = Self>>(
        pt: &mut Pt<P>,
        at: Ptep,
        nr: NrPages,
        teardown: Teardown,
    ) -> Pte<Self> {
        pt.count(Event::GetAndClearFullPtes, 1);
        pt.count(Event::GetAndClearFullPtesPages, nr.get());
        let mut sum = get_and_clear_full(pt, at, teardown);
        for i in 1..nr.get() {
            let pte = get_and_clear_full(pt, at.add(i), teardown);
            sum = gather(sum, pte);
        }
        sum
    }
    fn clear_full_ptes<P: Platform<Arch = Self>>(
        pt: &mut Pt<P>,
        at: Ptep,
        nr: NrPages,
        teardown: Teardown,
    ) {
        pt.count(Event::ClearFullPtes, 1);
        pt.count(Event::ClearFullPtesPages, nr.get());
        for i in 0..nr.get() {
            get_and_clear_full(pt, at.add(i), teardown);
        }
    }
    fn wrprotect_ptes<P: Platform<Arch = Self>>(pt: &mut Pt<P>, at: Ptep, nr: NrPages) {
        let n = nr.get();
        pt.count(Event::WrprotectPtes, 1);
        pt.count(Event::WrprotectPtesPages, n);
        pt.count(Event::PtepSetWrprotect, n);
        pt.count(Event::PteRead, n);
        pt.count(Event::PteCmpxchg, n);
        for i in 0..n {
            let at = at.add(i);
            let old = pt.ram.load_u64(at.slot);
            store(pt, at, Pte::<Self>::from_raw(old).wrprotect().raw());
        }
    }
    fn ptep_set_access_flags<P: Platform<Arch = Self>>(
        pt: &mut Pt<P>,
        at: Ptep,
        entry: Pte<Self>,
        access: FaultAccess,
    ) -> bool {
        pt.count(Event::FnPtepSetAccessFlags, 1);
        let old = pt.ram.load_u64(at.slot);
        let changed = old != entry.raw();
        if changed && access == FaultAccess::Write {
            pt.count(Event::PteWrite, 1);
            store(pt, at, entry.raw());
        }
        changed
    }
    fn flush_tlb_fix_spurious_fault<P: Platform<Arch = Self>>(_: &mut Pt<P>, _: Ptep) {
        // The fault itself dropped the entry.
    }
    fn test_and_clear_young_ptes<P: Platform<Arch = Self>>(
        pt: &mut Pt<P>,
        at: Ptep,
        nr: NrPages,
    ) -> bool {
        let mut young = false;
        for i in 0..nr.get() {
            young |= test_and_clear_young(pt, at.add(i));
        }
        young
    }
    fn clear_flush_young_ptes<P: Platform<Arch = Self>>(
        pt: &mut Pt<P>,
        at: Ptep,
        nr: NrPages,
    ) -> bool {
        if pt.kernel.young_ptes_batched {
            pt.count(Event::ClearFlushYoungPtes, 1);
            pt.count(Event::ClearFlushYoungPtesPages, nr.get());
        } else {
            pt.count(Event::PtepClearFlushYoung, nr.get());
        }
        // No flush: an old entry that stays cached is only a page that looks colder than it is.
        Self::test_and_clear_young_ptes(pt, at, nr)
    }
    fn clear_young_dirty_ptes<P: Platform<Arch = Self>>(
        pt: &mut Pt<P>,
        at: Ptep,
        nr: NrPages,
        what: ClearYoungDirty,
    ) {
        pt.count(Event::ClearYoungDirtyPtes, 1);
        pt.count(Event::ClearYoungDirtyPtesPages, nr.get());
        if what == ClearYoungDirty::Young {
            Self::test_and_clear_young_ptes(pt, at, nr);
            return;
        }
        for i in 0..nr.get() {
            let at = at.add(i);
            let old = take(pt, at);
            let old = if what == ClearYoungDirty::Both { old.mkold() } else { old };
            Self::set_ptes(pt, at, old.mkclean(), NrPages::ONE);
        }
    }
    fn modify_prot_start_ptes<P: Platform<Arch = Self>>(
        pt: &mut Pt<P>,
        at: Ptep,
        nr: NrPages,
    ) -> Pte<Self> {
        if pt.kernel.mprotect_batched {
            pt.count(Event::ModifyProtStartPtes, 1);
            pt.count(Event::ModifyProtStartPtesPages, nr.get());
        }
        pt.open_prot_window(at, nr);
        let mut sum = take(pt, at);
        for i in 1..nr.get() {
            let pte = take(pt, at.add(i));
            sum = gather(sum, pte);
        }
        sum
    }
    fn modify_prot_commit_ptes<P: Platform<Arch = Self>>(
        pt: &mut Pt<P>,
        at: Ptep,
        pte: Pte<Self>,
        nr: NrPages,
    ) {
        if pt.kernel.mprotect_batched {
            pt.count(Event::ModifyProtCommitPtes, 1);
            pt.count(Event::ModifyProtCommitPtesPages, nr.get());
        }
        for i in 0..nr.get() {
            Self::set_ptes(pt, at.add(i), pte.advance_pfn(i), NrPages::ONE);
        }
        pt.close_prot_window(at, loses_rights);
    }
    fn set_softleaf_pte<P: Platform<Arch = Self>>(pt: &mut Pt<P>, at: Ptep, pte: Pte<Self>) {
        if pt.kernel.softleaf_raw_check {
            return Self::set_ptes(pt, at, pte, NrPages::ONE);
        }
        pt.count(Event::PteWrite, 1);
        store(pt, at, pte.raw());
    }

    fn pmdp_huge_get_and_clear<P: Platform<Arch = Self>>(
        pt: &mut Pt<P>,
        at: Pmdp,
        teardown: Teardown,
    ) -> Pmd<Self> {
        pt.count(Event::PmdXchg, 1);
        let old = pt.ram.load_u64(at.slot);
        match teardown {
            Teardown::Partial => store_pmd(pt, at, 0),
            Teardown::FullMm => pt.ram.store_u64(at.slot, 0),
        }
        Pmd::from_raw(old)
    }
    fn set_pmd_at<P: Platform<Arch = Self>>(pt: &mut Pt<P>, at: Pmdp, pmd: Pmd<Self>) {
        pt.count(Event::PmdWrite, 1);
        store_pmd(pt, at, pmd.raw());
    }
    fn pmdp_invalidate<P: Platform<Arch = Self>>(pt: &mut Pt<P>, at: Pmdp) -> Pmd<Self> {
        let old = Self::pmdp_invalidate_ad(pt, at);
        Self::flush_tlb_range(pt, at.mm, pmd_range(at.va));
        old
    }
    fn pmdp_invalidate_ad<P: Platform<Arch = Self>>(pt: &mut Pt<P>, at: Pmdp) -> Pmd<Self> {
        pt.count(Event::PmdXchg, 1);
        let old = Pmd::from_raw(pt.ram.load_u64(at.slot));
        store_pmd(pt, at, pte::pmd_mkinvalid(old).raw());
        old
    }
    fn pmdp_test_and_clear_young<P: Platform<Arch = Self>>(pt: &mut Pt<P>, at: Pmdp) -> bool {
        let old = pt.ram.load_u64(at.slot);
        pt.ram.store_u64(at.slot, old & !bits::ACCESSED);
        old & bits::ACCESSED != 0
    }
    fn pmdp_set_wrprotect<P: Platform<Arch = Self>>(pt: &mut Pt<P>, at: Pmdp) {
        pt.count(Event::PmdCmpxchg, 1);
        let old = Pmd::<Self>::from_raw(pt.ram.load_u64(at.slot));
        store_pmd(pt, at, old.wrprotect().raw());
    }
    fn pmdp_set_access_flags<P: Platform<Arch = Self>>(
        pt: &mut Pt<P>,
        at: Pmdp,
        entry: Pmd<Self>,
        access: FaultAccess,
    ) -> bool {
        let old = pt.ram.load_u64(at.slot);
        let changed = old != entry.raw();
        if changed && access == FaultAccess::Write {
            pt.count(Event::PmdWrite, 1);
            store_pmd(pt, at, entry.raw());
        }
        changed
    }
    fn populate<P: Platform<Arch = Self>>(
        pt: &mut Pt<P>,
        level: TableLevel,
        slot: PhysAddr,
        table: PhysAddr,
    ) {
        if level == TableLevel::Pmd {
            pt.count(Event::PmdWrite, 1);
        }
        pt.ram.store_u64(slot, table.get() | bits::TABLE);
    }
    fn clear_table<P: Platform<Arch = Self>>(pt: &mut Pt<P>, level: TableLevel, slot: PhysAddr) {
        if level == TableLevel::Pmd {
            pt.count(Event::PmdWrite, 1);
        }
        pt.ram.store_u64(slot, 0);
    }

    const HUGE_SIZES: &'static [HugeSize] = &[HugeSize::Pmd, HugeSize::Pud];

    fn arch_make_huge_pte(entry: Pte<Self>, _: HugeSize) -> Pte<Self> {
        hugetlbpage::make(entry)
    }
    fn huge_ptep_get<P: Platform<Arch = Self>>(pt: &mut Pt<P>, at: Hugep) -> Pte<Self> {
        hugetlbpage::get(pt, at)
    }
    fn set_huge_pte_at<P: Platform<Arch = Self>>(pt: &mut Pt<P>, at: Hugep, pte: Pte<Self>) {
        hugetlbpage::set(pt, at, pte);
    }
    fn huge_ptep_get_and_clear<P: Platform<Arch = Self>>(pt: &mut Pt<P>, at: Hugep) -> Pte<Self> {
        hugetlbpage::get_and_clear(pt, at)
    }
    fn huge_ptep_clear_flush<P: Platform<Arch = Self>>(pt: &mut Pt<P>, at: Hugep) -> Pte<Self> {
        hugetlbpage::clear_flush(pt, at)
    }
    fn huge_ptep_set_wrprotect<P: Platform<Arch = Self>>(pt: &mut Pt<P>, at: Hugep) {
        hugetlbpage::set_wrprotect(pt, at);
    }
    fn huge_ptep_set_access_flags<P: Platform<Arch = Self>>(
        pt: &mut Pt<P>,
        at: Hugep,
        pte: Pte<Self>,
        access: FaultAccess,
    ) -> bool {
        hugetlbpage::set_access_flags(pt, at, pte, access)
    }

    fn flush_tlb_page<P: Platform<Arch = Self>>(pt: &mut Pt<P>, mm: MmId, va: VirtAddr) {
        let start = va.align_down(units::PAGE_SIZE);
        let end = start.wrapping_add(units::PAGE_SIZE);
        let range = FlushRange { start, end, stride: Reach::K4, leaf_only: LeafOnly::Yes };
        tlbflush::flush_tlb_mm_range(pt, mm, Some(range), false);
    }
    fn flush_tlb_range<P: Platform<Arch = Self>>(pt: &mut Pt<P>, mm: MmId, range: FlushRange) {
        // Also for PMD leaves: 512 pages, so that each is a full flush.
        let range = FlushRange { stride: Reach::K4, ..range };
        tlbflush::flush_tlb_mm_range(pt, mm, Some(range), false);
    }
    fn flush_tlb_mm<P: Platform<Arch = Self>>(pt: &mut Pt<P>, mm: MmId) {
        tlbflush::flush_tlb_mm_range(pt, mm, None, true);
    }
    fn tlb_flush<P: Platform<Arch = Self>>(pt: &mut Pt<P>, mm: MmId, gather: &GatherFlush) {
        tlbflush::tlb_flush(pt, mm, gather);
    }
    fn tlbbatch_should_defer<P: Platform<Arch = Self>>(pt: &Pt<P>, mm: MmId) -> bool {
        tlbflush::other_cpus_present(pt, mm)
    }
    fn tlbbatch_add_pending<P: Platform<Arch = Self>>(
        pt: &mut Pt<P>,
        mm: MmId,
        _: VirtAddr,
        _: NrPages,
    ) {
        tlbflush::add_pending(pt, mm);
    }
    fn tlbbatch_flush<P: Platform<Arch = Self>>(pt: &mut Pt<P>) {
        tlbflush::batch_flush(pt);
    }
    fn switch_mm<P: Platform<Arch = Self>>(pt: &mut Pt<P>, cpu: CpuId, next: MmId) {
        tlbflush::switch_mm(pt, cpu, Some(next));
    }
    fn enter_lazy_tlb<P: Platform<Arch = Self>>(pt: &mut Pt<P>, cpu: CpuId) {
        tlbflush::enter_lazy_tlb(pt, cpu);
    }
}

#[cfg(test)]
mod tests;
