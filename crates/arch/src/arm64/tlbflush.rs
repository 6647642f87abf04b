//! TLB maintenance by broadcast instructions, and the ASID allocator.
//!
//! Source: Linux 7.3 and 6.12 arch/arm64/include/asm/{tlb,tlbflush}.h, arch/arm64/mm/context.c.

use super::Arm64;
use crate::pt::{FlushRange, GatherFlush, MmId, Pt};
use crate::{Broadcast, LeafOnly, Platform, SwitchKind, Teardown, TlbOp, TlbPort};
use events::Event;
use units::{Asid, CpuId, NrPages, Reach, VirtAddr};

/// Without range instructions, a flush of this many entries becomes one of the whole ASID
/// (`MAX_DVM_OPS`).
const MAX_DVM_OPS: u64 = 512;
/// With them, a flush of more pages than this does (`MAX_TLBI_RANGE_PAGES`).
const MAX_RANGE_PAGES: u64 = 1 << 21;

/// Whether to wait for the end of an invalidation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// A trailing DSB.
    Sync,
    /// The caller, or a later barrier, does.
    NoSync,
}

/// Bit of the ASID that marks the user half of a pair under KPTI.
const USER_ASID_FLAG: u16 = 1;

/// Issues one instruction; twice under KPTI, for each half of the pair.
#[inline]
fn tlbi_user<P: Platform<Arch = Arm64>>(
    pt: &mut Pt<P>,
    mm: MmId,
    event: Event,
    op: impl Fn(Asid) -> TlbOp,
) {
    let asid = pt.context(mm).asid();
    pt.count(event, 1);
    pt.flush_tlb(pt.cpu, op(asid));
    if pt.hw.kpti {
        pt.count(event, 1);
        pt.flush_tlb(pt.cpu, op(Asid::new(asid.get() | USER_ASID_FLAG)));
    }
}

fn barrier_before<P: Platform<Arch = Arm64>>(pt: &mut Pt<P>, broadcast: Broadcast) {
    pt.count(
        match broadcast {
            Broadcast::Yes => Event::DsbIshst,
            Broadcast::No => Event::DsbNshst,
        },
        1,
    );
}

fn barrier_after<P: Platform<Arch = Arm64>>(pt: &mut Pt<P>, broadcast: Broadcast) {
    pt.count(
        match broadcast {
            Broadcast::Yes => Event::DsbIsh,
            Broadcast::No => Event::DsbNsh,
        },
        1,
    );
}

const fn va_event(leaf_only: LeafOnly, broadcast: Broadcast) -> Event {
    match (leaf_only, broadcast) {
        (LeafOnly::Yes, Broadcast::Yes) => Event::TlbiVale1is,
        (LeafOnly::No, Broadcast::Yes) => Event::TlbiVae1is,
        (_, Broadcast::No) => Event::TlbiVale1,
    }
}

const fn range_event(leaf_only: LeafOnly, broadcast: Broadcast) -> Event {
    match (leaf_only, broadcast) {
        (LeafOnly::Yes, Broadcast::Yes) => Event::TlbiRvale1is,
        (LeafOnly::No, Broadcast::Yes) => Event::TlbiRvae1is,
        (_, Broadcast::No) => Event::TlbiRvale1,
    }
}

/// Pages that one range instruction takes off `pages` at `scale`: the 5-bit digit of `pages` at
/// that scale, in units of 2^(5·scale+1); zero if there is nothing to do.
#[inline]
pub(super) const fn range_digit(pages: u64, scale: u32) -> u64 {
    let shift = 5 * scale + 1;
    let most = 32 << shift;
    let pages = if pages < most { pages } else { most };
    pages >> shift << shift
}

/// `__flush_tlb_range_op()`: as few instructions as the machine allows.
///
/// Events: with range instructions one per non-zero digit of the page count (base 32, after
/// halving) and one single-page instruction if it is odd; without, one per stride.
fn range_op<P: Platform<Arch = Arm64>>(
    pt: &mut Pt<P>,
    mm: MmId,
    range: FlushRange,
    broadcast: Broadcast,
) {
    let leaf_only = range.leaf_only;
    let mut va = range.start;
    let mut pages = range.end.bytes_since(va) >> units::PAGE_SHIFT;
    let mut scale = 3;
    while pages > 0 {
        if !pt.hw.tlbi_range || pages == 1 {
            tlbi_user(pt, mm, va_event(leaf_only, broadcast), |asid| TlbOp::TlbiVa {
                asid,
                va,
                leaf_only,
                broadcast,
            });
            va = va.wrapping_add(range.stride.bytes());
            pages = pages.saturating_sub(range.stride.pages());
            continue;
        }
        let step = range_digit(pages, scale);
        if step > 0 {
            tlbi_user(pt, mm, range_event(leaf_only, broadcast), |asid| TlbOp::TlbiRange {
                asid,
                va,
                pages: NrPages::new(step),
                leaf_only,
                broadcast,
            });
            va = va.wrapping_add(NrPages::new(step).bytes());
            pages -= step;
        }
        // Scale 0 leaves at most one page, which the branch above takes.
        scale = scale.saturating_sub(1);
    }
}

/// Rounds a range outwards to its stride.
fn round(range: FlushRange) -> FlushRange {
    let stride = range.stride.bytes();
    let start = range.start.align_down(stride);
    let end = range.end.checked_align_up(stride).unwrap_or(range.end);
    FlushRange { start, end, ..range }
}

/// `__flush_tlb_range_nosync()` (6.12), `__do_flush_tlb_range()` (7.3).
///
/// Events: the function's own, `flush_range_pages`, one DSB before, the instructions, one DSB
/// after if `wait`. Too large a range becomes [`flush_tlb_mm`].
fn do_flush_range<P: Platform<Arch = Arm64>>(
    pt: &mut Pt<P>,
    mm: MmId,
    range: FlushRange,
    broadcast: Broadcast,
    wait: Wait,
) {
    let range = round(range);
    let pages = range.end.bytes_since(range.start) >> units::PAGE_SHIFT;
    let old_names = pt.kernel.has_6_12_names();
    pt.count(
        if old_names { Event::FnUnderFlushTlbRangeNosync } else { Event::FnUnderDoFlushTlbRange },
        1,
    );
    pt.count(Event::FlushRangePages, pages);
    if broadcast == Broadcast::No {
        pt.count(Event::FlushRangeLocal, 1);
    }
    let excess = if pt.hw.tlbi_range {
        pages > MAX_RANGE_PAGES
    } else {
        pages >= MAX_DVM_OPS * range.stride.pages()
    };
    if excess {
        flush_tlb_mm(pt, mm);
        // 6.12 waits in the caller, once more.
        if old_names && wait == Wait::Sync {
            barrier_after(pt, broadcast);
        }
        return;
    }
    barrier_before(pt, broadcast);
    range_op(pt, mm, range, broadcast);
    if wait == Wait::Sync {
        barrier_after(pt, broadcast);
    }
}

/// `__flush_tlb_range()`.
pub(super) fn flush_range<P: Platform<Arch = Arm64>>(
    pt: &mut Pt<P>,
    mm: MmId,
    range: FlushRange,
    broadcast: Broadcast,
    wait: Wait,
) {
    // 6.12 reaches the part that does not wait directly.
    if !pt.kernel.has_6_12_names() || wait == Wait::Sync {
        pt.count(Event::FnUnderFlushTlbRange, 1);
    }
    do_flush_range(pt, mm, range, broadcast, wait);
}

/// One last-level entry (`__flush_tlb_page_nosync()` in 6.12, `__flush_tlb_page()` in 7.3).
pub(super) fn flush_page<P: Platform<Arch = Arm64>>(
    pt: &mut Pt<P>,
    mm: MmId,
    va: VirtAddr,
    broadcast: Broadcast,
    wait: Wait,
) {
    let va = va.align_down(units::PAGE_SIZE);
    if !pt.kernel.has_6_12_names() {
        pt.count(Event::FnUnderFlushTlbPage, 1);
        return do_flush_range(pt, mm, leaf_range(va, 1, Reach::K4), broadcast, wait);
    }
    pt.count(Event::FnUnderFlushTlbPageNosync, 1);
    barrier_before(pt, broadcast);
    range_op(pt, mm, leaf_range(va, 1, Reach::K4), broadcast);
    if wait == Wait::Sync {
        barrier_after(pt, broadcast);
    }
}

/// `nr` last-level entries of size `stride` from `start` on.
#[inline]
pub(super) fn leaf_range(start: VirtAddr, nr: u64, stride: Reach) -> FlushRange {
    let end = start.wrapping_add(nr * stride.bytes());
    FlushRange { start, end, stride, leaf_only: LeafOnly::Yes }
}

/// `flush_tlb_page()`.
pub(super) fn flush_tlb_page<P: Platform<Arch = Arm64>>(pt: &mut Pt<P>, mm: MmId, va: VirtAddr) {
    pt.count(Event::FnFlushTlbPage, 1);
    flush_page(pt, mm, va, Broadcast::Yes, Wait::Sync);
}

/// `flush_tlb_range()`; with the stride of a PMD leaf, `flush_pmd_tlb_range()`.
pub(super) fn flush_tlb_range<P: Platform<Arch = Arm64>>(
    pt: &mut Pt<P>,
    mm: MmId,
    range: FlushRange,
) {
    if range.stride == Reach::K4 {
        pt.count(Event::FnFlushTlbRange, 1);
    }
    let range = FlushRange { leaf_only: LeafOnly::No, ..range };
    flush_range(pt, mm, range, Broadcast::Yes, Wait::Sync);
}

/// `flush_tlb_mm()`. Events: one DSB ISHST, one TLBI ASIDE1IS (two under KPTI), one DSB ISH.
pub(super) fn flush_tlb_mm<P: Platform<Arch = Arm64>>(pt: &mut Pt<P>, mm: MmId) {
    pt.count(Event::FnFlushTlbMm, 1);
    barrier_before(pt, Broadcast::Yes);
    tlbi_user(pt, mm, Event::TlbiAside1is, |asid| TlbOp::TlbiAsid {
        asid,
        broadcast: Broadcast::Yes,
    });
    barrier_after(pt, Broadcast::Yes);
}

/// `tlb_flush()`: a dying mm is flushed only for the sake of its walk-cache entries, as its
/// ASID is not used again without a flush.
pub(super) fn tlb_flush<P: Platform<Arch = Arm64>>(pt: &mut Pt<P>, mm: MmId, gather: &GatherFlush) {
    if gather.teardown == Teardown::FullMm {
        pt.count(Event::TlbFlushFullmm, 1);
        if gather.freed_tables {
            flush_tlb_mm(pt, mm);
        }
        return;
    }
    flush_range(pt, mm, gather.range(), Broadcast::Yes, Wait::Sync);
}

/// `arch_tlbbatch_add_pending()`: invalidates at once, and leaves the waiting to
/// [`batch_flush`].
pub(super) fn add_pending<P: Platform<Arch = Arm64>>(
    pt: &mut Pt<P>,
    mm: MmId,
    start: VirtAddr,
    nr: NrPages,
) {
    pt.count(Event::FnArchTlbbatchAddPending, 1);
    if pt.kernel.has_6_12_names() && nr == NrPages::ONE {
        return flush_page(pt, mm, start, Broadcast::Yes, Wait::NoSync);
    }
    let range = leaf_range(start, nr.get(), Reach::K4);
    flush_range(pt, mm, range, Broadcast::Yes, Wait::NoSync);
}

/// `arch_tlbbatch_flush()`. Events: one DSB ISH.
pub(super) fn batch_flush<P: Platform<Arch = Arm64>>(pt: &mut Pt<P>) {
    pt.count(Event::FnArchTlbbatchFlush, 1);
    barrier_after(pt, Broadcast::Yes);
}

// ---- ASIDs

/// What an mm keeps: generation and ASID in one word, 0 for none (`context.id`).
#[derive(Clone, Copy, Debug, Default)]
pub struct MmAsid {
    id: u64,
}

impl MmAsid {
    /// `ASID()`.
    fn asid(self) -> Asid {
        let [low, high, ..] = self.id.to_le_bytes();
        Asid::new(u16::from_le_bytes([low, high]))
    }
}

/// What a CPU keeps (`active_asids`, `reserved_asids`, its bit of `tlb_flush_pending`).
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuAsid {
    active: u64,
    reserved: u64,
    flush_pending: bool,
    loaded: Option<MmId>,
}

/// Generations start at this, above any 16-bit ASID (`ASID_FIRST_VERSION`).
const FIRST_GENERATION: u64 = 1 << 16;

/// Hands out ASIDs, and starts a new generation when they run out.
#[derive(Clone, Debug)]
pub struct AsidAllocator {
    generation: u64,
    map: Vec<u64>,
    cursor: usize,
    kpti: bool,
}

impl AsidAllocator {
    pub(super) fn new(asid_bits: u8, kpti: bool) -> AsidAllocator {
        let words = (1usize << asid_bits) / 64;
        let mut asids =
            AsidAllocator { generation: FIRST_GENERATION, map: vec![0; words], cursor: 1, kpti };
        asids.reset();
        asids
    }

    /// No ASID in use but those never handed out: under KPTI the odd ones, which belong to the
    /// user halves.
    fn reset(&mut self) {
        let word = if self.kpti { 0xaaaa_aaaa_aaaa_aaaa } else { 0 };
        self.map.fill(word);
    }

    fn number(&self, id: u64) -> usize {
        let most = (self.map.len() * 64) as u64 - 1;
        usize::try_from(id & most).expect("at most 16 bits")
    }

    fn test_and_set(&mut self, number: usize) -> bool {
        let (word, bit) = (&mut self.map[number / 64], 1 << (number % 64));
        let was = *word & bit != 0;
        *word |= bit;
        was
    }

    fn next_free(&self, from: usize) -> Option<usize> {
        let mut word = from / 64;
        let mut free = !*self.map.get(word)? & (u64::MAX << (from % 64));
        while free == 0 {
            word += 1;
            free = !*self.map.get(word)?;
        }
        Some(word * 64 + free.trailing_zeros() as usize)
    }

    fn is_current(&self, id: u64) -> bool {
        id >> 16 == self.generation >> 16
    }
}

/// `flush_context()`: a new generation keeps the ASIDs that are live on CPUs, and owes each CPU
/// a flush.
fn flush_context<P: Platform<Arch = Arm64>>(pt: &mut Pt<P>) {
    pt.global.reset();
    for cpu in &mut pt.cpus {
        let active = std::mem::take(&mut cpu.active);
        if active != 0 {
            cpu.reserved = active;
        }
        let number = pt.global.number(cpu.reserved);
        pt.global.test_and_set(number);
        cpu.flush_pending = true;
    }
}

/// `check_update_reserved_asid()`: a live ASID goes over to the new generation.
fn update_reserved(cpus: &mut [CpuAsid], old: u64, new: u64) -> bool {
    let mut hit = false;
    for cpu in cpus.iter_mut().filter(|c| c.reserved == old) {
        cpu.reserved = new;
        hit = true;
    }
    hit
}

/// `new_context()`.
fn new_context<P: Platform<Arch = Arm64>>(pt: &mut Pt<P>, old: u64) -> u64 {
    if old != 0 {
        let number = pt.global.number(old);
        let new = pt.global.generation | number as u64;
        if update_reserved(&mut pt.cpus, old, new) || !pt.global.test_and_set(number) {
            return new;
        }
    }
    let number = match pt.global.next_free(pt.global.cursor) {
        Some(number) => number,
        None => {
            pt.global.generation += FIRST_GENERATION;
            flush_context(pt);
            // More ASIDs than CPUs, so that one is free after a roll-over.
            pt.global.next_free(1).expect("a machine has fewer CPUs than ASIDs")
        }
    };
    pt.global.test_and_set(number);
    pt.global.cursor = number;
    pt.global.generation | number as u64
}

/// `check_and_switch_context()`.
///
/// Events: none with an ASID of the current generation; after a roll-over one local TLBI
/// VMALLE1 with its barriers on each CPU.
pub(super) fn switch_mm<P: Platform<Arch = Arm64>>(pt: &mut Pt<P>, cpu: CpuId, next: MmId) {
    let index = cpu.index();
    if pt.cpus[index].loaded == Some(next) {
        return;
    }
    let mut id = pt.context(next).id;
    let fast = pt.cpus[index].active != 0 && pt.global.is_current(id);
    if !fast {
        if !pt.global.is_current(id) {
            id = new_context(pt, id);
            pt.context(next).id = id;
        }
        if std::mem::take(&mut pt.cpus[index].flush_pending) {
            local_flush_tlb_all(pt, cpu);
        }
    }
    pt.cpus[index].active = id;
    pt.cpus[index].loaded = Some(next);
    let asid = pt.context(next).asid().get();
    let asid = Asid::new(if pt.hw.kpti { asid | USER_ASID_FLAG } else { asid });
    let root = pt.root(next);
    pt.tlb.switch(cpu, root, asid, SwitchKind::Keep);
}

/// `local_flush_tlb_all()`.
fn local_flush_tlb_all<P: Platform<Arch = Arm64>>(pt: &mut Pt<P>, cpu: CpuId) {
    barrier_before(pt, Broadcast::No);
    pt.count(Event::TlbiVmalle1, 1);
    pt.flush_tlb(cpu, TlbOp::TlbiAll { broadcast: Broadcast::No });
    barrier_after(pt, Broadcast::No);
}

/// The mm is gone: a later mm must not be taken for it.
pub(super) fn forget<P: Platform<Arch = Arm64>>(pt: &mut Pt<P>, mm: MmId) {
    for cpu in &mut pt.cpus {
        if cpu.loaded == Some(mm) {
            cpu.loaded = None;
        }
    }
}

#[cfg(test)]
mod tests;
