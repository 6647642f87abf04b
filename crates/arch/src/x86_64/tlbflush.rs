//! TLB flushes by generation counting and IPIs.
//!
//! Each mm counts its flush requests (`tlb_gen`); each CPU remembers, for each of six tagged
//! slots, whose entries it holds and up to which request they were flushed. A CPU that is one
//! request behind flushes page by page, one further behind flushes everything; one that is lazy
//! is left alone until it comes back.
//!
//! FIDELITY: invlpgb — broadcast flushes of AMD machines do not exist here.
//!
//! FIDELITY: pti-roots — user and kernel half share one root here: with PTI the flush of the
//! user tag is counted where Linux does it, the flushes of kernel entry and exit are not.
//!
//! Source: Linux 7.3 arch/x86/mm/tlb.c, arch/x86/include/asm/{tlb,tlbflush}.h.

use super::X86_64;
use crate::pt::{FlushRange, GatherFlush, MmId, Pt};
use crate::{Platform, SwitchKind, Teardown, TlbOp, TlbPort};
use events::{Event, Sink};
use units::{Asid, CpuId, VirtAddr};

/// Tags per CPU (`TLB_NR_DYN_ASIDS`).
const DYN_ASIDS: usize = 6;
/// What distinguishes the user half's PCID from the kernel half's under PTI.
const USER_PCID: u16 = 1 << 11;

/// A set of CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuMask {
    words: Vec<u64>,
}

impl CpuMask {
    fn set(&mut self, cpu: usize) {
        if self.words.len() <= cpu / 64 {
            self.words.resize(cpu / 64 + 1, 0);
        }
        self.words[cpu / 64] |= 1 << (cpu % 64);
    }

    fn clear(&mut self, cpu: usize) {
        if let Some(word) = self.words.get_mut(cpu / 64) {
            *word &= !(1 << (cpu % 64));
        }
    }

    fn contains(&self, cpu: usize) -> bool {
        self.words.get(cpu / 64).is_some_and(|w| w >> (cpu % 64) & 1 != 0)
    }

    fn any_but(&self, cpu: usize) -> bool {
        self.words.iter().enumerate().any(|(i, &word)| {
            let own = if i == cpu / 64 { 1 << (cpu % 64) } else { 0 };
            word & !own != 0
        })
    }

    fn union(&mut self, other: &CpuMask) {
        if self.words.len() < other.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        for (word, add) in self.words.iter_mut().zip(&other.words) {
            *word |= add;
        }
    }

    fn reset(&mut self) {
        self.words.fill(0);
    }
}

/// Source of mm identities that never repeat (`last_mm_ctx_id`).
#[derive(Clone, Debug, Default)]
pub struct Slots {
    last_ctx_id: u64,
}

/// What an mm keeps (`mm_context_t`, `mm_cpumask`).
#[derive(Clone, Debug)]
pub struct MmTlb {
    ctx_id: u64,
    tlb_gen: u64,
    cpumask: CpuMask,
    next_trim_cpumask: u64,
}

impl MmTlb {
    pub(super) fn new<P: Platform<Arch = X86_64>>(pt: &mut Pt<P>) -> MmTlb {
        pt.global.last_ctx_id += 1;
        MmTlb {
            ctx_id: pt.global.last_ctx_id,
            tlb_gen: 0,
            cpumask: CpuMask::default(),
            next_trim_cpumask: pt.jiffies + crate::pt::HZ,
        }
    }
}

/// Whose entries a tag holds, and how fresh they are.
#[derive(Clone, Copy, Debug, Default)]
struct TlbContext {
    ctx_id: u64,
    tlb_gen: u64,
}

/// What a CPU keeps (`cpu_tlbstate`).
#[derive(Clone, Debug)]
pub struct CpuTlb {
    /// `None` is `init_mm`.
    loaded_mm: Option<MmId>,
    loaded_asid: usize,
    next_asid: usize,
    is_lazy: bool,
    ctxs: [TlbContext; DYN_ASIDS],
}

impl CpuTlb {
    pub(super) fn new() -> CpuTlb {
        CpuTlb {
            loaded_mm: None,
            loaded_asid: 0,
            next_asid: 1,
            is_lazy: false,
            ctxs: [TlbContext::default(); DYN_ASIDS],
        }
    }
}

/// What a flush is about (`flush_tlb_info`).
#[derive(Clone, Copy, Debug)]
struct FlushInfo {
    /// `None`: whatever each CPU has loaded.
    mm: Option<MmId>,
    /// `None`: everything.
    range: Option<FlushRange>,
    /// `None`: of a batch.
    new_tlb_gen: Option<u64>,
    freed_tables: bool,
    trim_cpumask: bool,
}

/// Whose CPUs a flush goes to.
#[derive(Clone, Copy, Debug)]
enum Cpus {
    Of(MmId),
    Batch,
}

fn cpu_id(cpu: usize) -> CpuId {
    CpuId::new(u16::try_from(cpu).expect("a machine has at most 65536 CPUs"))
}

fn tag<P: Platform<Arch = X86_64>>(pt: &Pt<P>, asid: usize) -> Asid {
    if !pt.hw.pcid {
        return Asid::default();
    }
    let kernel = u16::try_from(asid + 1).expect("six tags");
    Asid::new(if pt.hw.kpti { kernel | USER_PCID } else { kernel })
}

fn mm_tlb<P: Platform<Arch = X86_64>>(pt: &Pt<P>, mm: MmId) -> &MmTlb {
    pt.contexts[mm.index()].as_ref().expect("the mm is alive")
}

/// Whether another CPU than this one may hold entries of `mm`.
pub(super) fn other_cpus_present<P: Platform<Arch = X86_64>>(pt: &Pt<P>, mm: MmId) -> bool {
    mm_tlb(pt, mm).cpumask.any_but(pt.cpu.index())
}

/// The mm is gone: CPUs that had it loaded, lazily, are on `init_mm`.
pub(super) fn forget<P: Platform<Arch = X86_64>>(pt: &mut Pt<P>, mm: MmId) {
    for cpu in 0..pt.cpus.len() {
        if pt.cpus[cpu].loaded_mm == Some(mm) {
            load_init_mm(pt, cpu);
        }
    }
}

/// Loads the kernel's own root. Not counted: Linux does not instrument it.
fn load_init_mm<P: Platform<Arch = X86_64>>(pt: &mut Pt<P>, cpu: usize) {
    pt.cpus[cpu].loaded_mm = None;
    pt.cpus[cpu].is_lazy = false;
    if !pt.hw.pcid {
        pt.flush_tlb(cpu_id(cpu), TlbOp::Cr3Reload);
    }
}

/// `enter_lazy_tlb()`.
pub(super) fn enter_lazy_tlb<P: Platform<Arch = X86_64>>(pt: &mut Pt<P>, cpu: CpuId) {
    let state = &mut pt.cpus[cpu.index()];
    state.is_lazy = state.loaded_mm.is_some();
}

/// `switch_mm_irqs_off()`.
///
/// Events: `cr3_write_noflush` if the entries under the new tag may stay.
pub(super) fn switch_mm<P: Platform<Arch = X86_64>>(
    pt: &mut Pt<P>,
    cpu: CpuId,
    next: Option<MmId>,
) {
    let Some(next) = next else { return load_init_mm(pt, cpu.index()) };
    let was_lazy = std::mem::take(&mut pt.cpus[cpu.index()].is_lazy);
    let (ctx_id, tlb_gen) = (mm_tlb(pt, next).ctx_id, mm_tlb(pt, next).tlb_gen);
    let state = &pt.cpus[cpu.index()];
    let (asid, need_flush) = if state.loaded_mm == Some(next) {
        let asid = state.loaded_asid;
        if !was_lazy || state.ctxs[asid].tlb_gen == tlb_gen {
            return;
        }
        (asid, true)
    } else {
        choose_new_asid(pt, cpu, ctx_id, tlb_gen)
    };
    // The previous mm keeps this CPU in its mask, to be trimmed by a later flush.
    pt.context(next).cpumask.set(cpu.index());
    let state = &mut pt.cpus[cpu.index()];
    state.ctxs[asid] = TlbContext { ctx_id, tlb_gen };
    state.loaded_mm = Some(next);
    state.loaded_asid = asid;
    let kind = if need_flush {
        SwitchKind::Flush
    } else {
        pt.count(Event::Cr3WriteNoflush, 1);
        SwitchKind::Keep
    };
    let (root, asid) = (pt.root(next), tag(pt, asid));
    pt.tlb.switch(cpu, root, asid, kind);
}

/// `choose_new_asid()`: the tag to use, and whether its entries must go.
fn choose_new_asid<P: Platform<Arch = X86_64>>(
    pt: &mut Pt<P>,
    cpu: CpuId,
    ctx_id: u64,
    tlb_gen: u64,
) -> (usize, bool) {
    if !pt.hw.pcid {
        return (0, true);
    }
    let state = &mut pt.cpus[cpu.index()];
    if let Some(asid) = state.ctxs.iter().position(|c| c.ctx_id == ctx_id) {
        return (asid, state.ctxs[asid].tlb_gen < tlb_gen);
    }
    let asid = if state.next_asid < DYN_ASIDS { state.next_asid } else { 0 };
    state.next_asid = asid + 1;
    (asid, true)
}

/// `flush_tlb_mm_range()`; no `range` means everything.
///
/// Events: `fn_flush_tlb_mm_range`, `mm_tlb_gen_inc`, `flush_tlb_mm_range_full` if it is or
/// becomes a full flush, and those of `flush_tlb_func()` on each CPU that is reached.
pub(super) fn flush_tlb_mm_range<P: Platform<Arch = X86_64>>(
    pt: &mut Pt<P>,
    mm: MmId,
    range: Option<FlushRange>,
    freed_tables: bool,
) {
    pt.count(Event::FnFlushTlbMmRange, 1);
    let ceiling = pt.hw.tlb_single_page_flush_ceiling;
    let range = range.filter(|r| r.end.bytes_since(r.start) >> r.stride.shift() <= ceiling);
    if range.is_none() {
        pt.count(Event::FlushTlbMmRangeFull, 1);
    }
    let new_tlb_gen = Some(inc_mm_tlb_gen(pt, mm));
    let mut info =
        FlushInfo { mm: Some(mm), range, new_tlb_gen, freed_tables, trim_cpumask: false };
    if other_cpus_present(pt, mm) {
        info.trim_cpumask = should_trim_cpumask(pt, mm);
        flush_tlb_multi(pt, Cpus::Of(mm), &info);
    } else if pt.cpus[pt.cpu.index()].loaded_mm == Some(mm) {
        flush_tlb_func(pt, pt.cpu, &info);
    }
}

fn inc_mm_tlb_gen<P: Platform<Arch = X86_64>>(pt: &mut Pt<P>, mm: MmId) -> u64 {
    pt.count(Event::MmTlbGenInc, 1);
    let context = pt.context(mm);
    context.tlb_gen += 1;
    context.tlb_gen
}

/// `should_trim_cpumask()`: at most once per second.
fn should_trim_cpumask<P: Platform<Arch = X86_64>>(pt: &mut Pt<P>, mm: MmId) -> bool {
    let now = pt.jiffies;
    let context = pt.context(mm);
    let due = now > context.next_trim_cpumask;
    if due {
        context.next_trim_cpumask = now + crate::pt::HZ;
    }
    due
}

/// `native_flush_tlb_multi()`: this CPU and, by IPI, others.
///
/// Events: `fn_native_flush_tlb_multi`, `fn_smp_call_function_many_cond`; `csd_queued_cpu` and
/// `ipi_call_cpu` per remote CPU, whose work is counted in the context `irq`.
fn flush_tlb_multi<P: Platform<Arch = X86_64>>(pt: &mut Pt<P>, cpus: Cpus, info: &FlushInfo) {
    pt.count(Event::FnNativeFlushTlbMulti, 1);
    pt.count(Event::FnSmpCallFunctionManyCond, 1);
    let this = pt.cpu.index();
    for cpu in 0..pt.cpus.len() {
        if cpu == this || !is_target(pt, cpus, cpu, info) {
            continue;
        }
        pt.count(Event::CsdQueuedCpu, 1);
        pt.count(Event::IpiCallCpu, 1);
        pt.sink.begin("irq");
        pt.count(Event::FlushTlbFuncRemote, 1);
        flush_tlb_func(pt, cpu_id(cpu), info);
        pt.sink.end();
    }
    if is_target(pt, cpus, this, info) {
        flush_tlb_func(pt, pt.cpu, info);
    }
}

fn is_target<P: Platform<Arch = X86_64>>(
    pt: &Pt<P>,
    cpus: Cpus,
    cpu: usize,
    info: &FlushInfo,
) -> bool {
    let mask = match cpus {
        Cpus::Of(mm) => &mm_tlb(pt, mm).cpumask,
        Cpus::Batch => &pt.batch,
    };
    mask.contains(cpu) && (info.freed_tables || should_flush_tlb(&pt.cpus[cpu], info))
}

/// `should_flush_tlb()`.
fn should_flush_tlb(state: &CpuTlb, info: &FlushInfo) -> bool {
    if state.is_lazy {
        return false;
    }
    info.mm.is_none() || state.loaded_mm == info.mm || info.trim_cpumask
}

/// `flush_tlb_func()` on `cpu`: nothing, page by page, or everything.
///
/// Events: `fn_flush_tlb_func`; one of `flush_tlb_func_{uptodate,partial,full}` with those of
/// the flushes themselves, unless the CPU uses another mm or is lazy.
fn flush_tlb_func<P: Platform<Arch = X86_64>>(pt: &mut Pt<P>, cpu: CpuId, info: &FlushInfo) {
    pt.count(Event::FnFlushTlbFunc, 1);
    let state = &pt.cpus[cpu.index()];
    let loaded = state.loaded_mm;
    if let Some(mm) = info.mm.filter(|_| info.mm != loaded) {
        pt.context(mm).cpumask.clear(cpu.index());
        return;
    }
    let Some(loaded) = loaded else { return };
    if state.is_lazy {
        return load_init_mm(pt, cpu.index());
    }
    let asid = state.loaded_asid;
    let local_tlb_gen = state.ctxs[asid].tlb_gen;
    let mm_tlb_gen = mm_tlb(pt, loaded).tlb_gen;
    let behind = info.new_tlb_gen.is_none_or(|new| new > local_tlb_gen);
    if !behind || local_tlb_gen == mm_tlb_gen {
        pt.count(Event::FlushTlbFuncUptodate, 1);
        return;
    }
    let next_in_line =
        info.new_tlb_gen == Some(local_tlb_gen + 1) && info.new_tlb_gen == Some(mm_tlb_gen);
    match info.range {
        Some(range) if next_in_line => flush_partial(pt, cpu, asid, range),
        _ => flush_full(pt, cpu),
    }
    pt.cpus[cpu.index()].ctxs[asid].tlb_gen = mm_tlb_gen;
}

/// Page by page (`native_flush_tlb_one_user()`).
fn flush_partial<P: Platform<Arch = X86_64>>(
    pt: &mut Pt<P>,
    cpu: CpuId,
    asid: usize,
    range: FlushRange,
) {
    pt.count(Event::FlushTlbFuncPartial, 1);
    let pcid = tag(pt, asid);
    let mut va = range.start;
    while va < range.end {
        pt.count(Event::FnNativeFlushTlbOneUser, 1);
        pt.count(Event::Invlpg, 1);
        pt.flush_tlb(cpu, TlbOp::Invlpg { va });
        if pt.hw.kpti && pt.hw.pcid && pt.hw.invpcid {
            pt.count(Event::Invpcid, 1);
            pt.flush_tlb(cpu, TlbOp::InvpcidAddr { pcid, va });
        }
        va = VirtAddr::new(va.get().saturating_add(range.stride.bytes()));
    }
}

/// Everything of the loaded mm (`native_flush_tlb_local()`).
fn flush_full<P: Platform<Arch = X86_64>>(pt: &mut Pt<P>, cpu: CpuId) {
    pt.count(Event::FlushTlbFuncFull, 1);
    pt.count(Event::FnNativeFlushTlbLocal, 1);
    pt.count(Event::Cr3Reload, 1);
    pt.flush_tlb(cpu, TlbOp::Cr3Reload);
}

/// `tlb_flush()`.
pub(super) fn tlb_flush<P: Platform<Arch = X86_64>>(
    pt: &mut Pt<P>,
    mm: MmId,
    gather: &GatherFlush,
) {
    let range = match gather.teardown {
        Teardown::FullMm => None,
        Teardown::Partial => Some(gather.range()),
    };
    flush_tlb_mm_range(pt, mm, range, gather.freed_tables);
}

/// `arch_tlbbatch_add_pending()`. Events: `fn_arch_tlbbatch_add_pending`, `mm_tlb_gen_inc`.
pub(super) fn add_pending<P: Platform<Arch = X86_64>>(pt: &mut Pt<P>, mm: MmId) {
    pt.count(Event::FnArchTlbbatchAddPending, 1);
    inc_mm_tlb_gen(pt, mm);
    let context = pt.contexts[mm.index()].as_ref().expect("the mm is alive");
    pt.batch.union(&context.cpumask);
}

/// `arch_tlbbatch_flush()`: every CPU of the batch flushes whatever it has loaded.
pub(super) fn batch_flush<P: Platform<Arch = X86_64>>(pt: &mut Pt<P>) {
    pt.count(Event::FnArchTlbbatchFlush, 1);
    if !pt.kernel.has_6_12_names() {
        // Since 7.x whoever builds a request says that it is for everything.
        pt.count(Event::FlushTlbMmRangeFull, 1);
    }
    let info = FlushInfo {
        mm: None,
        range: None,
        new_tlb_gen: None,
        freed_tables: false,
        trim_cpumask: false,
    };
    if pt.batch.any_but(pt.cpu.index()) {
        flush_tlb_multi(pt, Cpus::Batch, &info);
    } else if pt.batch.contains(pt.cpu.index()) {
        flush_tlb_func(pt, pt.cpu, &info);
    }
    pt.batch.reset();
}

#[cfg(test)]
mod tests;
