//! User memory without a CPU: accesses walk the page tables as hardware would, and fault.

use arch::{
    Arch, Hw, KernelConfig, MmId, Platform, Pmd, Pte, PteChange, SwitchKind, TableLevel, TlbOp,
    TlbPort,
};
use events::{ByOp, Counters, Scope, Sink};
use kernel::CountsByScope;
use mm::{Access, Backing, Errno, FaultSignal, MapFlags, Mm, MmConfig, Thp, VmProt};
use std::collections::BTreeMap;
use std::marker::PhantomData;
use units::{Asid, CpuId, PAGE_SIZE, PhysAddr, VirtAddr};

/// Whether changes of entries are looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Oracle {
    /// No.
    #[default]
    Off,
    /// Break-before-make is watched.
    On,
}

/// TLBs that are always empty: nothing to flush, and nothing to be stale.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTlb {
    /// Whether changes of entries are looked at.
    pub oracle: Oracle,
}

impl TlbPort for NoTlb {
    fn flush(&mut self, _: CpuId, _: TlbOp) {}
    fn switch(&mut self, _: CpuId, _: PhysAddr, _: Asid, _: SwitchKind) {}
    fn watches_ptes(&self) -> bool {
        self.oracle == Oracle::On
    }
    fn pte_changed(&mut self, _: PteChange) {}
}

/// A platform whose counts are kept by op and whose TLBs are empty.
#[derive(Debug)]
pub struct Lab<A>(PhantomData<A>);

impl<A: Arch> Platform for Lab<A> {
    type Arch = A;
    type Sink = ByOp;
    type Tlb = NoTlb;
}

/// The CPU that programs run on.
pub const CPU: CpuId = CpuId::new(1);

/// A machine with one running process.
#[derive(Debug)]
pub struct Guest<A: Arch> {
    /// The memory manager.
    pub mm: Mm<Lab<A>>,
    /// The process that runs.
    pub id: MmId,
}

/// Where hardware finds the leaf for an address, and what it holds.
enum Leaf<A> {
    None,
    Pte(PhysAddr, Pte<A>),
    /// Above the last level, with what it covers.
    Block(PhysAddr, Pmd<A>, u64),
}

impl<A: Arch> Guest<A> {
    /// A machine with `ram_bytes` of RAM and as much swap as asked for, and a process that owns
    /// nothing yet.
    ///
    /// # Panics
    /// If the host has no room for the guest's RAM.
    pub fn new(kernel: KernelConfig, hw: Hw, thp: Thp, ram_bytes: u64, swap_bytes: u64) -> Self {
        let config = MmConfig { ram_bytes, swap_bytes, kernel, hw, thp };
        let mut mm: Mm<Lab<A>> =
            Mm::new(config, ByOp::new(), NoTlb::default()).expect("guest RAM can be reserved");
        mm.pt.sink.begin("program");
        let id = mm.mm_alloc().expect("a root table");
        mm.pt.cpu = CPU;
        mm.pt.switch_mm(CPU, id);
        Guest { mm, id }
    }

    /// Counts since the start, by scope, without the interrupts of other CPUs.
    pub fn counts(&self) -> BTreeMap<Scope, Counters> {
        CountsByScope::by_scope(&self.mm.pt.sink)
    }

    /// Counts since the start, by scope, on all CPUs.
    pub fn counts_of_all_cpus(&self) -> BTreeMap<Scope, Counters> {
        kernel::by_scope_on_all_cpus(&self.mm.pt.sink)
    }

    /// Another process runs from now on.
    pub fn switch_to(&mut self, id: MmId) {
        self.id = id;
        self.mm.pt.switch_mm(CPU, id);
    }

    /// mmap(2) of private anonymous memory.
    ///
    /// # Errors
    /// Those of mmap(2).
    pub fn mmap(
        &mut self,
        at: VirtAddr,
        len: u64,
        prot: VmProt,
        more: MapFlags,
    ) -> Result<VirtAddr, Errno> {
        let flags = MapFlags::PRIVATE | MapFlags::ANONYMOUS | more;
        self.mm.mmap(self.id, at, len, prot, flags, Backing::Anonymous)
    }

    fn leaf(&self, va: VirtAddr) -> Leaf<A> {
        let Some((slot, level)) = self.mm.pt.leaf_slot(self.id, va) else { return Leaf::None };
        let raw = self.mm.pt.ram.load_u64(slot);
        match level {
            TableLevel::Pte => Leaf::Pte(slot, Pte::from_raw(raw)),
            _ => Leaf::Block(slot, Pmd::from_raw(raw), 1 << level.shift()),
        }
    }

    /// What the MMU does for one access: translates, and sets access and dirty state where it
    /// may; `None` is a fault.
    pub fn translate(&mut self, va: VirtAddr, access: Access) -> Option<PhysAddr> {
        let write = access == Access::Write;
        let hw = self.mm.pt.hw.hw_access_dirty;
        match self.leaf(va) {
            Leaf::None => None,
            Leaf::Pte(slot, pte) => {
                let valid = pte.is_present() && !pte.is_protnone() && (!write || pte.is_write());
                let ready = pte.is_young() && (!write || pte.is_dirty());
                if !valid || !(hw || ready) {
                    return None;
                }
                if !ready {
                    let pte = if write { pte.mkyoung().mkdirty() } else { pte.mkyoung() };
                    self.mm.pt.hardware_set_dirty(slot, pte.raw());
                }
                Some(pte.pfn().addr().wrapping_add(va.page_offset()))
            }
            Leaf::Block(slot, pmd, span) => {
                let valid = pmd.is_present()
                    && pmd.table().is_none()
                    && !pmd.is_protnone()
                    && (!write || pmd.is_write());
                let ready = pmd.is_young() && (!write || pmd.is_dirty());
                if !valid || !(hw || ready) {
                    return None;
                }
                if !ready {
                    let pmd = if write { pmd.mkyoung().mkdirty() } else { pmd.mkyoung() };
                    self.mm.pt.hardware_set_dirty(slot, pmd.raw());
                }
                Some(pmd.pfn().addr().wrapping_add(va.get() & (span - 1)))
            }
        }
    }

    /// Translates, faulting as often as it takes.
    ///
    /// # Errors
    /// The signal that a fault ended in.
    ///
    /// # Panics
    /// If faults are served without ever allowing the access.
    pub fn access(&mut self, va: VirtAddr, access: Access) -> Result<PhysAddr, FaultSignal> {
        const PATIENCE: usize = 8;
        for _ in 0..PATIENCE {
            if let Some(pa) = self.translate(va, access) {
                return Ok(pa);
            }
            self.mm.pt.sink.begin("fault");
            let served = self.mm.handle_user_fault(self.id, va, access);
            self.mm.pt.sink.end();
            served?;
        }
        panic!("{access:?} at {va} faults for ever");
    }

    /// A load of one byte.
    ///
    /// # Errors
    /// The signal that it raises.
    pub fn load(&mut self, va: VirtAddr) -> Result<u8, FaultSignal> {
        let pa = self.access(va, Access::Read)?;
        Ok(self.mm.pt.ram.slice(pa, 1)[0])
    }

    /// A store of one byte.
    ///
    /// # Errors
    /// The signal that it raises.
    pub fn store(&mut self, va: VirtAddr, byte: u8) -> Result<(), FaultSignal> {
        let pa = self.access(va, Access::Write)?;
        self.mm.pt.ram.slice_mut(pa, 1)[0] = byte;
        Ok(())
    }

    /// memset(3), a page at a time.
    ///
    /// # Panics
    /// If the memory is not the program's to write.
    pub fn memset(&mut self, start: VirtAddr, len: u64, byte: u8) {
        for va in pages(start, len) {
            let pa = self.access(va, Access::Write).expect("writable memory");
            let page = usize::try_from(PAGE_SIZE).expect("small");
            self.mm.pt.ram.slice_mut(pa, page).fill(byte);
        }
    }

    /// What the third oracle and the architecture layer have to say.
    ///
    /// # Panics
    /// With the first complaint.
    pub fn assert_valid(&self, when: &str) {
        let violations = self.mm.validate();
        assert!(violations.is_empty(), "{when}: {:#?}", violations);
    }
}

/// The pages of a range.
pub fn pages(start: VirtAddr, len: u64) -> impl Iterator<Item = VirtAddr> {
    (0..len).step_by(usize::try_from(PAGE_SIZE).expect("small")).map(move |i| start.wrapping_add(i))
}
