//! The TLBs of all CPUs, and the instructions that maintain them.
//!
//! [`Mmu`] is the machine's [`TlbPort`]: each [`TlbOp`] drops exactly what the architecture says,
//! on the CPUs that hear it. Sources: Intel SDM 3A, "Invalidation of TLBs and Paging-Structure
//! Caches"; Arm DDI 0487, "TLB maintenance instructions". What is not dropped stays usable,
//! however stale, so that a missing flush shows.

use crate::geometry::Geometry;
use crate::stats::{FlushKind, TlbStats};
use crate::tlb::{CpuTlb, Exact, Model, StaleUse, Tables};
use crate::walk::{Controls, HwWalk, Scope};
use crate::{Access, Fault};
use arch::{Broadcast, LeafOnly, PteChange, SwitchKind, TlbOp, TlbPort};
use phys::Ram;
use units::{Asid, CpuId, PhysAddr, VirtAddr};

/// Whether uses of stale translations are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum StaleUseOracle {
    /// They are not.
    #[default]
    Off,
    /// They are recorded.
    On,
}

/// The MMUs of a machine.
#[derive(Debug)]
pub struct Mmu<A, M = Exact> {
    /// Boxed, so that a CPU's can be taken out and put back as a pointer.
    cpus: Vec<Box<CpuTlb<A, M>>>,
    oracle: StaleUseOracle,
}

impl<A: HwWalk, M: Model> Mmu<A, M> {
    /// MMUs of `cpus` CPUs, alike and empty.
    ///
    /// # Panics
    /// If the geometry does not pass [`Geometry::check`].
    pub fn new(geometry: &Geometry, controls: Controls, cpus: u16) -> Self {
        let cpu = |n| Box::new(CpuTlb::new(CpuId::new(n), geometry.clone(), controls));
        Mmu { cpus: (0..cpus).map(cpu).collect(), oracle: StaleUseOracle::Off }
    }

    /// Switches the stale-use oracle; what it marked stays marked.
    pub fn set_oracle(&mut self, oracle: StaleUseOracle) {
        self.oracle = oracle;
    }

    /// Stale uses since they were last taken, CPU by CPU.
    pub fn take_stale_uses(&mut self) -> Vec<StaleUse> {
        self.cpus.iter_mut().flat_map(|cpu| cpu.take_stale_uses()).collect()
    }

    /// One CPU's MMU.
    #[inline(always)]
    pub fn cpu(&self, cpu: CpuId) -> &CpuTlb<A, M> {
        &self.cpus[cpu.index()]
    }

    /// One CPU's MMU, to translate with.
    #[inline(always)]
    pub fn cpu_mut(&mut self, cpu: CpuId) -> &mut CpuTlb<A, M> {
        &mut self.cpus[cpu.index()]
    }

    /// Exchanges one CPU's MMU with `other`: while that CPU runs guest code, its bus holds it.
    pub fn exchange(&mut self, cpu: CpuId, other: &mut Box<CpuTlb<A, M>>) {
        std::mem::swap(&mut self.cpus[cpu.index()], other);
    }

    /// Translates on one CPU; see [`CpuTlb::translate`].
    ///
    /// # Errors
    /// The architectural fault.
    #[inline(always)]
    pub fn translate(
        &mut self,
        cpu: CpuId,
        ram: &mut Ram,
        va: VirtAddr,
        access: Access,
    ) -> Result<PhysAddr, Fault> {
        self.cpu_mut(cpu).translate(ram, va, access)
    }

    /// Counters of all CPUs, added up.
    pub fn stats(&self) -> TlbStats {
        let mut sum = TlbStats::default();
        for cpu in &self.cpus {
            sum += &cpu.stats();
        }
        sum
    }

    fn heard_by(&mut self, cpu: CpuId, broadcast: Broadcast) -> &mut [Box<CpuTlb<A, M>>] {
        match broadcast {
            Broadcast::Yes => &mut self.cpus,
            Broadcast::No => std::slice::from_mut(&mut self.cpus[cpu.index()]),
        }
    }
}

const fn walk_caches(leaf_only: LeafOnly) -> Tables {
    match leaf_only {
        LeafOnly::Yes => Tables::Keep,
        LeafOnly::No => Tables::Covering,
    }
}

impl<A: HwWalk, M: Model> TlbPort for Mmu<A, M> {
    fn flush(&mut self, cpu: CpuId, op: TlbOp) {
        let this = &mut self.cpus[cpu.index()];
        match op {
            TlbOp::Invlpg { va } => {
                let spaces = this.matching(this.tag(), Scope::Global);
                this.flush_pages(FlushKind::Invlpg, (va, 1), spaces, Tables::All);
            }
            TlbOp::Cr3Reload => this.flush_tag(FlushKind::Cr3Reload, this.tag()),
            TlbOp::InvpcidAddr { pcid, va } => {
                let spaces = this.matching(pcid, Scope::AddressSpace);
                this.flush_pages(FlushKind::InvpcidAddr, (va, 1), spaces, Tables::All);
            }
            TlbOp::InvpcidSingle { pcid } => this.flush_tag(FlushKind::InvpcidSingle, pcid),
            TlbOp::InvpcidAll => this.flush_all(FlushKind::InvpcidAll),
            TlbOp::TlbiVa { asid, va, leaf_only, broadcast } => {
                for cpu in self.heard_by(cpu, broadcast) {
                    let spaces = cpu.matching(asid, Scope::Global);
                    let tables = walk_caches(leaf_only);
                    cpu.flush_pages(FlushKind::TlbiVa, (va, 1), spaces, tables);
                }
            }
            TlbOp::TlbiRange { asid, va, pages, leaf_only, broadcast } => {
                for cpu in self.heard_by(cpu, broadcast) {
                    let spaces = cpu.matching(asid, Scope::Global);
                    let tables = walk_caches(leaf_only);
                    cpu.flush_pages(FlushKind::TlbiRange, (va, pages.get()), spaces, tables);
                }
            }
            TlbOp::TlbiAsid { asid, broadcast } => {
                for cpu in self.heard_by(cpu, broadcast) {
                    cpu.flush_tag(FlushKind::TlbiAsid, asid);
                }
            }
            TlbOp::TlbiAll { broadcast } => {
                for cpu in self.heard_by(cpu, broadcast) {
                    cpu.flush_all(FlushKind::TlbiAll);
                }
            }
        }
    }

    fn switch(&mut self, cpu: CpuId, root: PhysAddr, asid: Asid, kind: SwitchKind) {
        self.cpus[cpu.index()].switch(root, asid, kind);
    }

    fn watches_ptes(&self) -> bool {
        M::EXACT && self.oracle == StaleUseOracle::On
    }

    fn pte_changed(&mut self, change: PteChange) {
        if !self.watches_ptes() {
            return;
        }
        for cpu in &mut self.cpus {
            cpu.mark_stale(&change);
        }
    }
}
