//! The counted PTE and PMD primitives: raw accesses, and the public ones that send folded
//! blocks to the contpte layer.
//!
//! Before each store of a single entry the layer looks whether the entry is in a folded block:
//! that is the one raw read that setters have on arm64 and not elsewhere.
//!
//! Source: Linux 7.3 and 6.12 arch/arm64/include/asm/pgtable.h, arch/arm64/mm/fault.c.

use super::contpte;
use super::hugetlbpage;
use super::pte::{self, mknoncont, pmd_mkinvalid, valid_cont};
use super::tlbflush::{self, Wait};
use super::{Arm64, bbm, bits};
use crate::hugetlb::{HugeSize, Hugep};
use crate::pt::{FlushRange, GatherFlush, MmId, Pmdp, Pt, Ptep, TableLevel};
use crate::{
    Arch, Broadcast, ClearYoungDirty, FaultAccess, Hw, KernelConfig, Platform, Pmd, Pte, Teardown,
};
use events::Event;
use units::{ArchId, CpuId, NrPages, PTRS_PER_TABLE, PhysAddr, Reach, VirtAddr};

/// `__ptep_get()`. Events: one raw read.
#[inline(always)]
pub(super) fn raw_get<P: Platform<Arch = Arm64>>(pt: &mut Pt<P>, at: Ptep) -> Pte<Arm64> {
    pt.count(Event::PteRead, 1);
    pt.touch(at.slot);
    Pte::from_raw(pt.ram.load_u64(at.slot))
}

/// `__set_ptes()`. Events: `nr` plain stores.
#[inline(always)]
pub(super) fn raw_set<P: Platform<Arch = Arm64>>(
    pt: &mut Pt<P>,
    at: Ptep,
    pte: Pte<Arm64>,
    nr: u64,
) {
    pt.count(Event::PteWrite, nr);
    let mut pte = pte;
    for i in 0..nr {
        store(pt, at.add(i), pte.raw());
        pte = pte.advance_pfn(1);
    }
}

/// `__ptep_get_and_clear()`. Events: one exchange.
#[inline(always)]
pub(super) fn xchg_zero<P: Platform<Arch = Arm64>>(pt: &mut Pt<P>, at: Ptep) -> Pte<Arm64> {
    pt.count(Event::PteXchg, 1);
    let old = pt.ram.load_u64(at.slot);
    store(pt, at, 0);
    Pte::from_raw(old)
}

/// The same when the whole mm goes: no CPU can use the entry any more.
#[inline(always)]
fn xchg_zero_full<P: Platform<Arch = Arm64>>(pt: &mut Pt<P>, at: Ptep) -> Pte<Arm64> {
    pt.count(Event::PteXchg, 1);
    pt.touch(at.slot);
    let old = pt.ram.load_u64(at.slot);
    pt.ram.store_u64(at.slot, 0);
    Pte::from_raw(old)
}

/// A compare-and-exchange that succeeds. Events: one attempt.
#[inline(always)]
pub(super) fn cmpxchg<P: Platform<Arch = Arm64>>(
    pt: &mut Pt<P>,
    at: Ptep,
    _old: Pte<Arm64>,
    new: Pte<Arm64>,
) {
    pt.count(Event::PteCmpxchg, 1);
    store(pt, at, new.raw());
}

/// Stores an entry and lets the oracles look; the caller counts.
#[inline(always)]
fn store<P: Platform<Arch = Arm64>>(pt: &mut Pt<P>, at: Ptep, new: u64) {
    pt.touch(at.slot);
    if pt.watches_ptes() {
        let old = pt.ram.load_u64(at.slot);
        watch(pt, at.mm, at.va, Reach::K4, old, new);
    }
    pt.ram.store_u64(at.slot, new);
}

/// Stores a PMD and lets the oracles look; the caller counts.
fn store_pmd<P: Platform<Arch = Arm64>>(pt: &mut Pt<P>, at: Pmdp, new: u64) {
    if pt.watches_ptes() {
        let old = pt.ram.load_u64(at.slot);
        watch(pt, at.mm, at.va, Reach::M2, old, new);
    }
    pt.ram.store_u64(at.slot, new);
}

#[cold]
fn watch<P: Platform<Arch = Arm64>>(
    pt: &mut Pt<P>,
    mm: MmId,
    va: VirtAddr,
    reach: Reach,
    old: u64,
    new: u64,
) {
    watch_bbm(pt, &va, old, new);
    if loses_rights(old, new, pt.hw.hw_access_dirty) {
        pt.pte_changed(mm, va, reach);
    }
}

fn watch_bbm<P: Platform<Arch = Arm64>>(
    pt: &mut Pt<P>,
    place: &dyn std::fmt::Display,
    old: u64,
    new: u64,
) {
    if bbm::is_bbm_violation(old, new, &pt.hw, &pt.kernel) {
        let op = pt.op.name();
        pt.violation(format!(
            "{op}: live descriptor {old:#x} at {place} replaced by {new:#x} without \
             break-before-make"
        ));
    }
}

/// Whether a cached copy of `old` would grant what `new` does not.
const fn loses_rights(old: u64, new: u64, hw_dirty: bool) -> bool {
    if old & bits::VALID == 0 {
        return false;
    }
    let lost = old & !new & (bits::VALID | bits::USER);
    let barred = new & !old & (bits::UXN | bits::PXN);
    let moved = (old ^ new) & bits::ADDR_MASK;
    let was_writable = old & bits::RDONLY == 0 || (hw_dirty && old & bits::WRITE != 0);
    let read_only = new & (bits::RDONLY | bits::WRITE) == bits::RDONLY;
    lost | barred | moved != 0 || (was_writable && read_only)
}

/// Whom a raise of access flags must reach: nobody else needs it, but 6.12 told everyone.
pub(super) fn access_flags_scope<P: Platform<Arch = Arm64>>(pt: &Pt<P>) -> Broadcast {
    if pt.kernel.access_flags_flush_local { Broadcast::No } else { Broadcast::Yes }
}

/// The flags of `old` raised to those of `entry`.
const fn raised(old: u64, entry: u64) -> u64 {
    // RDONLY is the one flag whose absence is the permission.
    let flags = entry & (bits::RDONLY | bits::AF | bits::WRITE | bits::DIRTY);
    ((old ^ bits::RDONLY) | (flags ^ bits::RDONLY)) ^ bits::RDONLY
}

/// `__ptep_set_access_flags()`: raises one entry; flushes it if the fault was a write.
///
/// Events: one raw read, one compare-and-exchange; one page flush.
pub(super) fn set_access_flags<P: Platform<Arch = Arm64>>(
    pt: &mut Pt<P>,
    at: Ptep,
    entry: Pte<Arm64>,
    access: FaultAccess,
) -> bool {
    set_access_flags_of(pt, at, entry, access, Reach::K4)
}

/// The same of an entry that covers `reach`.
pub(super) fn set_access_flags_of<P: Platform<Arch = Arm64>>(
    pt: &mut Pt<P>,
    at: Ptep,
    entry: Pte<Arm64>,
    access: FaultAccess,
    reach: Reach,
) -> bool {
    count_set_access_flags(pt);
    let old = raw_get(pt, at);
    if old == entry {
        return false;
    }
    cmpxchg(pt, at, old, Pte::from_raw(raised(old.raw(), entry.raw())));
    if access == FaultAccess::Write {
        flush_raised(pt, at.mm, at.va, reach);
    }
    true
}

fn count_set_access_flags<P: Platform<Arch = Arm64>>(pt: &mut Pt<P>) {
    let old_names = pt.kernel.has_6_12_names();
    let event = if old_names {
        Event::FnUnderPtepSetAccessFlags
    } else {
        Event::FnUnderPtepSetAccessFlagsAnysz
    };
    pt.count(event, 1);
}

/// The flush after a raise: 6.12 sends one page to everyone, later kernels the entry to nobody
/// else.
fn flush_raised<P: Platform<Arch = Arm64>>(pt: &mut Pt<P>, mm: MmId, va: VirtAddr, reach: Reach) {
    match access_flags_scope(pt) {
        Broadcast::Yes => tlbflush::flush_tlb_page(pt, mm, va),
        Broadcast::No => {
            let range = tlbflush::leaf_range(va, 1, reach);
            tlbflush::flush_range(pt, mm, range, Broadcast::No, Wait::Sync);
        }
    }
}

/// Unfolds for a store to the one entry `at`. Events: the setter's raw read.
#[inline(always)]
fn unfold_for_one<P: Platform<Arch = Arm64>>(pt: &mut Pt<P>, at: Ptep) {
    if pt.kernel.contpte {
        let pte = raw_get(pt, at);
        contpte::try_unfold(pt, at, pte);
    }
}

/// Unfolds whatever a store to `nr` entries would break.
#[inline(always)]
fn unfold_for<P: Platform<Arch = Arm64>>(pt: &mut Pt<P>, at: Ptep, nr: u64, layer: Event) {
    if nr == 1 {
        return unfold_for_one(pt, at);
    }
    if pt.kernel.contpte {
        pt.count(layer, 1);
        contpte::try_unfold_partial(pt, at, nr);
    }
}

/// Whether an operation on `nr` entries goes to the contpte layer. Events: one raw read if `nr`
/// is one.
#[inline(always)]
fn goes_to_contpte<P: Platform<Arch = Arm64>>(pt: &mut Pt<P>, at: Ptep, nr: u64) -> bool {
    pt.kernel.contpte && (nr != 1 || valid_cont(raw_get(pt, at)))
}

/// `__clear_young_dirty_ptes()`. Events: per entry one raw read, and one store if both go, else
/// one compare-and-exchange.
fn clear_young_dirty<P: Platform<Arch = Arm64>>(
    pt: &mut Pt<P>,
    at: Ptep,
    nr: u64,
    what: ClearYoungDirty,
) {
    for i in 0..nr {
        let at = at.add(i);
        let old = raw_get(pt, at);
        match what {
            ClearYoungDirty::Both => raw_set(pt, at, old.mkold().mkclean(), 1),
            ClearYoungDirty::Young => cmpxchg(pt, at, old, old.mkold()),
            ClearYoungDirty::Dirty => cmpxchg(pt, at, old, old.mkclean()),
        }
    }
}

impl Arch for Arm64 {
    const ID: ArchId = ArchId::Arm64;
    const CONT_PTES: u64 = bits::CONT_PTES;
    const TASK_SIZE: VirtAddr = VirtAddr::new(1 << 48);
    const FLUSH_AT_VMA_END: bool = true;
    const PREFAULT_OLD: bool = true;

    fn frees_tables_by_rcu(_: &KernelConfig) -> bool {
        true
    }

    fn pte_needs_flush(kernel: &KernelConfig, old: Pte<Self>, new: Pte<Self>) -> bool {
        !kernel.arm64_pte_needs_flush || pte::flags_need_flush(old.raw(), new.raw())
    }
    fn huge_pmd_needs_flush(kernel: &KernelConfig, old: Pmd<Self>, new: Pmd<Self>) -> bool {
        !kernel.arm64_pte_needs_flush || pte::flags_need_flush(old.raw(), new.raw())
    }

    fn count_user_fault<P: Platform<Arch = Self>>(pt: &mut Pt<P>) {
        pt.count(Event::FnDoPageFault, 1);
    }
    type MmContext = tlbflush::MmAsid;
    type CpuState = tlbflush::CpuAsid;
    type Global = tlbflush::AsidAllocator;
    type TlbBatch = ();

    fn cpu_state(_: &Hw) -> Self::CpuState {
        tlbflush::CpuAsid::default()
    }
    fn global(hw: &Hw) -> Self::Global {
        tlbflush::AsidAllocator::new(hw.asid_bits, hw.kpti)
    }
    fn mm_context<P: Platform<Arch = Self>>(_: &mut Pt<P>, _: MmId) -> Self::MmContext {
        tlbflush::MmAsid::default()
    }
    fn mm_destroy<P: Platform<Arch = Self>>(pt: &mut Pt<P>, mm: MmId) {
        tlbflush::forget(pt, mm);
    }

    #[inline(always)]
    fn ptep_get<P: Platform<Arch = Self>>(pt: &mut Pt<P>, at: Ptep) -> Pte<Self> {
        pt.count(Event::PtepGet, 1);
        let pte = raw_get(pt, at);
        if !valid_cont(pte) || !pt.kernel.contpte {
            return pte;
        }
        pt.count(Event::FnContptePtepGet, 1);
        contpte::gather(pt, at, pte)
    }
    #[inline(always)]
    fn ptep_get_lockless<P: Platform<Arch = Self>>(pt: &mut Pt<P>, at: Ptep) -> Pte<Self> {
        pt.count(Event::PtepGetLockless, 1);
        let pte = raw_get(pt, at);
        if !valid_cont(pte) || !pt.kernel.contpte {
            return pte;
        }
        pt.count(Event::FnContptePtepGetLockless, 1);
        // FIDELITY: contpte-lockless-retry — Linux starts over if the block changes under the
        // scan; here nothing can.
        let pte = raw_get(pt, at);
        contpte::gather(pt, at, pte)
    }
    #[inline(always)]
    fn pte_batch_hint(at: Ptep, pte: Pte<Self>) -> NrPages {
        if !valid_cont(pte) {
            return NrPages::ONE;
        }
        NrPages::new(bits::CONT_PTES - at.index() % bits::CONT_PTES)
    }
    #[inline]
    fn set_ptes<P: Platform<Arch = Self>>(pt: &mut Pt<P>, at: Ptep, pte: Pte<Self>, nr: NrPages) {
        let nr = nr.get();
        pt.count(Event::SetPtes, 1);
        pt.count(Event::SetPtesPages, nr);
        let pte = if pte.is_present() { mknoncont(pte) } else { pte };
        if nr == 1 {
            pt.count(Event::SetPtesNr1, 1);
            unfold_for_one(pt, at);
            raw_set(pt, at, pte, 1);
            if pt.kernel.contpte {
                contpte::try_fold(pt, at, pte);
            }
        } else if pt.kernel.contpte {
            contpte::set_ptes(pt, at, pte, nr);
        } else {
            raw_set(pt, at, pte, nr);
        }
    }
    #[inline]
    fn pte_clear<P: Platform<Arch = Self>>(pt: &mut Pt<P>, at: Ptep) {
        pt.count(Event::PteClear, 1);
        unfold_for_one(pt, at);
        raw_set(pt, at, Pte::NONE, 1);
    }
    #[inline]
    fn ptep_get_and_clear<P: Platform<Arch = Self>>(pt: &mut Pt<P>, at: Ptep) -> Pte<Self> {
        pt.count(Event::PtepGetAndClear, 1);
        unfold_for_one(pt, at);
        xchg_zero(pt, at)
    }
    fn get_and_clear_full_ptes<P: Platform<Arch = Self>>(
        pt: &mut Pt<P>,
        at: Ptep,
        nr: NrPages,
        teardown: Teardown,
    ) -> Pte<Self> {
        let nr = nr.get();
        pt.count(Event::GetAndClearFullPtes, 1);
        pt.count(Event::GetAndClearFullPtesPages, nr);
        unfold_for(pt, at, nr, Event::FnContpteGetAndClearFullPtes);
        match teardown {
            Teardown::Partial => contpte::get_and_clear_range(pt, at, nr, xchg_zero),
            Teardown::FullMm => contpte::get_and_clear_range(pt, at, nr, xchg_zero_full),
        }
    }
    fn clear_full_ptes<P: Platform<Arch = Self>>(
        pt: &mut Pt<P>,
        at: Ptep,
        nr: NrPages,
        teardown: Teardown,
    ) {
        let nr = nr.get();
        pt.count(Event::ClearFullPtes, 1);
        pt.count(Event::ClearFullPtesPages, nr);
        unfold_for(pt, at, nr, Event::FnContpteClearFullPtes);
        for i in 0..nr {
            match teardown {
                Teardown::Partial => xchg_zero(pt, at.add(i)),
                Teardown::FullMm => xchg_zero_full(pt, at.add(i)),
            };
        }
    }
    fn wrprotect_ptes<P: Platform<Arch = Self>>(pt: &mut Pt<P>, at: Ptep, nr: NrPages) {
        let nr = nr.get();
        pt.count(Event::WrprotectPtes, 1);
        pt.count(Event::WrprotectPtesPages, nr);
        if nr == 1 {
            // The read that tests the contiguous bit serves the exchange as well.
            let pte = raw_get(pt, at);
            if pt.kernel.contpte {
                contpte::try_unfold(pt, at, pte);
            }
            let old = Pte::<Self>::from_raw(pt.ram.load_u64(at.slot));
            return cmpxchg(pt, at, old, old.wrprotect());
        }
        unfold_for(pt, at, nr, Event::FnContpteWrprotectPtes);
        for i in 0..nr {
            let at = at.add(i);
            let old = raw_get(pt, at);
            cmpxchg(pt, at, old, old.wrprotect());
        }
    }
    fn ptep_set_access_flags<P: Platform<Arch = Self>>(
        pt: &mut Pt<P>,
        at: Ptep,
        entry: Pte<Self>,
        access: FaultAccess,
    ) -> bool {
        pt.count(Event::PtepSetAccessFlags, 1);
        let entry = mknoncont(entry);
        if pt.kernel.contpte && valid_cont(raw_get(pt, at)) {
            return contpte::set_access_flags_folded(pt, at, entry, access);
        }
        set_access_flags(pt, at, entry, access)
    }
    fn flush_tlb_fix_spurious_fault<P: Platform<Arch = Self>>(pt: &mut Pt<P>, at: Ptep) {
        // Where raises are broadcast, no CPU is left with the old entry.
        if pt.kernel.access_flags_flush_local {
            tlbflush::flush_page(pt, at.mm, at.va, Broadcast::No, Wait::Sync);
        }
    }
    fn test_and_clear_young_ptes<P: Platform<Arch = Self>>(
        pt: &mut Pt<P>,
        at: Ptep,
        nr: NrPages,
    ) -> bool {
        if goes_to_contpte(pt, at, nr.get()) {
            return contpte::test_and_clear_young(pt, at, nr.get());
        }
        let mut young = false;
        for i in 0..nr.get() {
            young |= contpte::clear_young(pt, at.add(i));
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
        if goes_to_contpte(pt, at, nr.get()) {
            return contpte::clear_flush_young(pt, at, nr.get());
        }
        let mut young = false;
        for i in 0..nr.get() {
            let at = at.add(i);
            if contpte::clear_young(pt, at) {
                tlbflush::flush_page(pt, at.mm, at.va, Broadcast::Yes, Wait::NoSync);
                young = true;
            }
        }
        young
    }
    fn clear_young_dirty_ptes<P: Platform<Arch = Self>>(
        pt: &mut Pt<P>,
        at: Ptep,
        nr: NrPages,
        what: ClearYoungDirty,
    ) {
        let nr = nr.get();
        pt.count(Event::ClearYoungDirtyPtes, 1);
        pt.count(Event::ClearYoungDirtyPtesPages, nr);
        let (first, nr) = if goes_to_contpte(pt, at, nr) {
            pt.count(Event::FnContpteClearYoungDirtyPtes, 1);
            contpte::expand(pt, at, nr)
        } else {
            (at, nr)
        };
        clear_young_dirty(pt, first, nr, what);
    }
    fn modify_prot_start_ptes<P: Platform<Arch = Self>>(
        pt: &mut Pt<P>,
        at: Ptep,
        nr: NrPages,
    ) -> Pte<Self> {
        pt.open_prot_window(at, nr);
        if !pt.kernel.mprotect_batched {
            pt.count(Event::PtepGetAndClear, 1);
            unfold_for_one(pt, at);
            return xchg_zero_full(pt, at);
        }
        pt.count(Event::FnModifyProtStartPtes, 1);
        pt.count(Event::FnModifyProtStartPtesPages, nr.get());
        Self::get_and_clear_full_ptes(pt, at, nr, Teardown::FullMm)
    }
    fn modify_prot_commit_ptes<P: Platform<Arch = Self>>(
        pt: &mut Pt<P>,
        at: Ptep,
        pte: Pte<Self>,
        nr: NrPages,
    ) {
        if pt.kernel.mprotect_batched {
            pt.count(Event::FnModifyProtCommitPtes, 1);
            pt.count(Event::FnModifyProtCommitPtesPages, nr.get());
        }
        Self::set_ptes(pt, at, pte, nr);
        let hw_dirty = pt.hw.hw_access_dirty;
        pt.close_prot_window(at, |old, new| loses_rights(old, new, hw_dirty));
    }
    fn set_softleaf_pte<P: Platform<Arch = Self>>(pt: &mut Pt<P>, at: Ptep, pte: Pte<Self>) {
        if pt.kernel.softleaf_raw_check {
            return Self::set_ptes(pt, at, pte, NrPages::ONE);
        }
        raw_set(pt, at, pte, 1);
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
        pt.count(Event::HugeLeafWrite, 1);
        store_pmd(pt, at, pmd.raw());
    }
    fn pmdp_invalidate<P: Platform<Arch = Self>>(pt: &mut Pt<P>, at: Pmdp) -> Pmd<Self> {
        pt.count(Event::PmdXchg, 1);
        let old = Pmd::from_raw(pt.ram.load_u64(at.slot));
        store_pmd(pt, at, pmd_mkinvalid(old).raw());
        tlbflush::flush_tlb_range(pt, at.mm, tlbflush::leaf_range(at.va, 1, Reach::M2));
        old
    }
    fn pmdp_test_and_clear_young<P: Platform<Arch = Self>>(pt: &mut Pt<P>, at: Pmdp) -> bool {
        // Linux goes through the PTE helper, and is counted there.
        pt.count(Event::PteRead, 1);
        pt.count(Event::PteCmpxchg, 1);
        let old = Pmd::<Self>::from_raw(pt.ram.load_u64(at.slot));
        store_pmd(pt, at, old.mkold().raw());
        old.is_young()
    }
    fn pmdp_set_wrprotect<P: Platform<Arch = Self>>(pt: &mut Pt<P>, at: Pmdp) {
        pt.count(Event::PteRead, 1);
        pt.count(Event::PteCmpxchg, 1);
        let old = Pmd::<Self>::from_raw(pt.ram.load_u64(at.slot));
        store_pmd(pt, at, old.wrprotect().raw());
    }
    fn pmdp_set_access_flags<P: Platform<Arch = Self>>(
        pt: &mut Pt<P>,
        at: Pmdp,
        entry: Pmd<Self>,
        access: FaultAccess,
    ) -> bool {
        count_set_access_flags(pt);
        pt.count(Event::PteRead, 1);
        let old = pt.ram.load_u64(at.slot);
        if old == entry.raw() {
            return false;
        }
        let old_names = pt.kernel.has_6_12_names();
        pt.count(if old_names { Event::PteCmpxchg } else { Event::PmdCmpxchg }, 1);
        store_pmd(pt, at, raised(old, entry.raw()));
        if access == FaultAccess::Write {
            flush_raised(pt, at.mm, at.va, Reach::M2);
        }
        true
    }
    fn populate<P: Platform<Arch = Self>>(
        pt: &mut Pt<P>,
        _: TableLevel,
        slot: PhysAddr,
        table: PhysAddr,
    ) {
        let raw = table.get() | bits::VALID | bits::TABLE | bits::TABLE_PXN;
        // No walker ever sees the entry on the kernel stack.
        if pt.watches_ptes() && slot != PhysAddr::ZERO {
            let old = pt.ram.load_u64(slot);
            watch_bbm(pt, &format!("the entry at {slot}"), old, raw);
        }
        pt.ram.store_u64(slot, raw);
    }
    fn clear_table<P: Platform<Arch = Self>>(pt: &mut Pt<P>, _: TableLevel, slot: PhysAddr) {
        pt.ram.store_u64(slot, 0);
    }

    const HUGE_SIZES: &'static [HugeSize] = &HugeSize::ALL;

    fn arch_make_huge_pte(entry: Pte<Self>, size: HugeSize) -> Pte<Self> {
        hugetlbpage::make(entry, size)
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
        tlbflush::flush_tlb_page(pt, mm, va);
    }
    fn flush_tlb_range<P: Platform<Arch = Self>>(pt: &mut Pt<P>, mm: MmId, range: FlushRange) {
        tlbflush::flush_tlb_range(pt, mm, range);
    }
    fn flush_tlb_mm<P: Platform<Arch = Self>>(pt: &mut Pt<P>, mm: MmId) {
        tlbflush::flush_tlb_mm(pt, mm);
    }
    fn tlb_flush<P: Platform<Arch = Self>>(pt: &mut Pt<P>, mm: MmId, gather: &GatherFlush) {
        tlbflush::tlb_flush(pt, mm, gather);
    }
    fn tlbbatch_should_defer<P: Platform<Arch = Self>>(_: &Pt<P>, _: MmId) -> bool {
        true
    }
    fn tlbbatch_add_pending<P: Platform<Arch = Self>>(
        pt: &mut Pt<P>,
        mm: MmId,
        start: VirtAddr,
        nr: NrPages,
    ) {
        tlbflush::add_pending(pt, mm, start, nr);
    }
    fn tlbbatch_flush<P: Platform<Arch = Self>>(pt: &mut Pt<P>) {
        tlbflush::batch_flush(pt);
    }
    fn switch_mm<P: Platform<Arch = Self>>(pt: &mut Pt<P>, cpu: CpuId, next: MmId) {
        tlbflush::switch_mm(pt, cpu, next);
    }
    fn enter_lazy_tlb<P: Platform<Arch = Self>>(_: &mut Pt<P>, _: CpuId) {
        // Broadcast invalidations reach lazy CPUs like any other.
    }
    fn check_pte_table<P: Platform<Arch = Self>>(
        pt: &Pt<P>,
        table: PhysAddr,
    ) -> Result<(), String> {
        check_table(pt, table, Reach::K4)
    }
    fn check_pmd_table<P: Platform<Arch = Self>>(
        pt: &Pt<P>,
        table: PhysAddr,
    ) -> Result<(), String> {
        check_table(pt, table, Reach::M2)
    }
}

/// Checks each block of a table whose entries cover `span`.
fn check_table<P: Platform<Arch = Arm64>>(
    pt: &Pt<P>,
    table: PhysAddr,
    span: Reach,
) -> Result<(), String> {
    for start in (0..PTRS_PER_TABLE as u64).step_by(16) {
        let block = std::array::from_fn(|i| {
            pt.ram.load_u64(PhysAddr::new(table.get() + (start + i as u64) * 8))
        });
        bbm::check_cont_block(&block, span).map_err(|e| format!("table {table}, {start}: {e}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
