//! A small machine for tests: one address space with one last-level table, and a TLB that
//! only takes notes.

use crate::{
    Arch, Hw, KernelConfig, MmId, Platform, Pmdp, Prot, Pt, Pte, PteChange, Ptep, SwitchKind,
    TableLevel, TlbOp, TlbPort, VmaProt,
};
use events::{Counters, Event};
use phys::{PageFlags, Ram};
use std::marker::PhantomData;
use units::{Asid, CpuId, Order, Pfn, PhysAddr, VirtAddr};

/// A TLB that writes down what it is told.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub(crate) ops: Vec<(CpuId, TlbOp)>,
    pub(crate) switches: Vec<(CpuId, PhysAddr, Asid, SwitchKind)>,
    pub(crate) changes: Vec<PteChange>,
    pub(crate) watch: bool,
}

impl TlbPort for Notes {
    fn flush(&mut self, cpu: CpuId, op: TlbOp) {
        self.ops.push((cpu, op));
    }
    fn switch(&mut self, cpu: CpuId, root: PhysAddr, asid: Asid, kind: SwitchKind) {
        self.switches.push((cpu, root, asid, kind));
    }
    fn watches_ptes(&self) -> bool {
        self.watch
    }
    fn pte_changed(&mut self, change: PteChange) {
        self.changes.push(change);
    }
}

/// The platform of the tests.
#[derive(Debug)]
pub(crate) struct Lab<A>(PhantomData<A>);

impl<A: Arch> Platform for Lab<A> {
    type Arch = A;
    type Sink = Counters;
    type Tlb = Notes;
}

/// Where the one last-level table maps.
pub(crate) const BASE: VirtAddr = VirtAddr::new(0x4000_0000);
const RAM: u64 = 32 << 20;
/// Aligned to any folio of the tests.
pub(crate) const FRAME: Pfn = Pfn::new(0x800);

/// An address space with the tables above [`BASE`], loaded on CPU 0.
pub(crate) fn lab<A: Arch>(kernel: &str, hw: Hw) -> (Pt<Lab<A>>, MmId) {
    let ram = Ram::new(RAM).expect("a little RAM");
    let kernel = KernelConfig::parse(kernel).expect("a known kernel");
    let mut pt = Pt::<Lab<A>>::new(ram, Counters::new(), Notes::default(), kernel, hw);
    let mm = pt.mm_init(Pfn::new(1).addr());
    let mut table = pt.root(mm);
    for (level, frame) in [(TableLevel::Pgd, 2), (TableLevel::Pud, 3), (TableLevel::Pmd, 4)] {
        let next = Pfn::new(frame).addr();
        pt.populate(level, level.slot(table, BASE), next);
        table = next;
    }
    pt.switch_mm(CpuId::new(0), mm);
    pt.sink = Counters::new();
    (pt, mm)
}

/// Another address space, without tables.
pub(crate) fn another_mm<A: Arch>(pt: &mut Pt<Lab<A>>, frame: u64) -> MmId {
    pt.mm_init(Pfn::new(0x100 + frame).addr())
}

/// The entry of page `i` after [`BASE`].
pub(crate) fn ptep<A: Arch>(pt: &Pt<Lab<A>>, mm: MmId, i: u64) -> Ptep {
    let va = BASE.wrapping_add(i * units::PAGE_SIZE);
    pt.pte_offset(pmdp(pt, mm), va).expect("the tables exist")
}

/// The PMD entry of [`BASE`].
pub(crate) fn pmdp<A: Arch>(pt: &Pt<Lab<A>>, mm: MmId) -> Pmdp {
    pt.pmd_offset(mm, BASE).expect("the tables exist")
}

/// Marks frames from `head` on as one folio.
pub(crate) fn folio<A: Arch>(pt: &mut Pt<Lab<A>>, head: Pfn, order: Order) {
    for i in 0..order.pages() {
        let page = pt.pages.page_mut(head.add(i));
        page.order = order;
        page.flags = if i == 0 { PageFlags::HEAD } else { PageFlags::TAIL };
    }
}

/// Base protection of private anonymous memory.
pub(crate) fn prot<A: Arch>() -> Prot<A> {
    A::vm_get_page_prot(VmaProt { read: true, write: true, ..VmaProt::default() })
}

/// A writable, dirty, young entry.
pub(crate) fn rw<A: Arch>(pfn: Pfn) -> Pte<A> {
    Pte::new(pfn, prot()).mkwrite().mkdirty().mkyoung()
}

/// What `body` counts.
pub(crate) fn counted<A: Arch, R>(
    pt: &mut Pt<Lab<A>>,
    body: impl FnOnce(&mut Pt<Lab<A>>) -> R,
) -> (R, Counters) {
    let before = pt.sink.clone();
    pt.tlb.ops.clear();
    let result = body(pt);
    (result, pt.sink.since(&before))
}

/// Checks that exactly `expected` was counted among the events that `of` picks.
#[track_caller]
pub(crate) fn check(got: &Counters, of: impl Fn(Event) -> bool, expected: &[(Event, u64)]) {
    let mut want = Counters::new();
    for &(event, n) in expected {
        events::Sink::add(&mut want, event, n);
    }
    let pick = |c: &Counters| c.nonzero().filter(|&(e, _)| of(e)).collect::<Vec<_>>();
    let names = |v: Vec<(Event, u64)>| v.iter().map(|(e, n)| (e.name(), *n)).collect::<Vec<_>>();
    assert_eq!(names(pick(got)), names(pick(&want)));
}
