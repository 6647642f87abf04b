//! The stale-use oracle: a page-table change whose flush is missing is caught when, and only when,
//! the old translation is used.

mod common;

use arch::{Arm64, Broadcast, LeafOnly, PteChange, SwitchKind, TableLevel, TlbOp, TlbPort, X86_64};
use common::tables::{Tables, Words};
use events::Op;
use mmu::{Access, Exact, Machine, Mmu, StaleUse, StaleUseOracle};
use units::{Asid, CpuId, PhysAddr, Reach, VirtAddr};

const RAM: u64 = 1 << 30;
const VA: u64 = 0x10_0000_0000;
const PAGE: u64 = 0x1000_0000;
const CPU: CpuId = CpuId::new(0);
const OTHER: CpuId = CpuId::new(1);
const TAG: Asid = Asid::new(5);

struct Rig<A: Words> {
    tables: Tables,
    root: PhysAddr,
    mmu: Mmu<A, Exact>,
}

impl<A: Words> Rig<A> {
    fn new(machine: &str) -> Rig<A> {
        let mut tables = Tables::new(RAM);
        let root = tables.table();
        for page in 0..256 {
            let raw = A::leaf(PAGE + page * 4096, TableLevel::Pte);
            tables.map::<A>(root, VA + page * 4096, TableLevel::Pte, raw);
        }
        let mut machine = Machine::by_name(machine).expect("a preset");
        machine.hw.cpus = 2;
        let mut mmu = machine.mmu(RAM);
        mmu.set_oracle(StaleUseOracle::On);
        for cpu in [CPU, OTHER] {
            TlbPort::switch(&mut mmu, cpu, root, TAG, SwitchKind::Keep);
        }
        Rig { tables, root, mmu }
    }

    fn touch(&mut self, cpu: CpuId, va: u64) {
        let ram = &mut self.tables.ram;
        let _ = self.mmu.translate(cpu, ram, VirtAddr::new(va), Access::Read);
    }

    fn clear(&mut self, va: u64) {
        self.tables.map::<A>(self.root, va, TableLevel::Pte, 0);
        self.change(va, Reach::K4);
    }

    fn change(&mut self, va: u64, reach: Reach) {
        let (root, va) = (self.root, VirtAddr::new(va));
        self.mmu.pte_changed(PteChange { root, va, reach, owed_by: Op::ZapPteRange });
    }

    fn uses(&mut self) -> Vec<(CpuId, u64)> {
        let uses = self.mmu.take_stale_uses();
        assert!(uses.iter().all(|u| u.owed_by == Op::ZapPteRange && u.access == Access::Read));
        uses.iter().map(|u| (u.cpu, u.va.get())).collect()
    }
}

#[test]
fn use_after_a_change_without_a_flush_is_caught_once() {
    let mut rig = Rig::<X86_64>::new("skylake");
    rig.touch(CPU, VA);
    rig.clear(VA);
    rig.touch(CPU, VA + 8);
    assert_eq!(rig.uses(), [(CPU, VA + 8)]);
    rig.touch(CPU, VA + 16);
    assert_eq!(rig.uses(), []);
    assert_eq!(rig.mmu.stats().stale_uses, 1);
}

#[test]
fn a_flush_in_time_leaves_nothing_to_catch() {
    let mut rig = Rig::<X86_64>::new("skylake");
    rig.touch(CPU, VA);
    rig.clear(VA);
    rig.mmu.flush(CPU, TlbOp::Invlpg { va: VirtAddr::new(VA) });
    rig.touch(CPU, VA);
    assert_eq!(rig.uses(), []);
    let mut rig = Rig::<Arm64>::new("neoverse-n1");
    rig.touch(CPU, VA);
    rig.touch(OTHER, VA);
    rig.clear(VA);
    let (asid, va, broadcast) = (TAG, VirtAddr::new(VA), Broadcast::Yes);
    let op = TlbOp::TlbiVa { asid, va, leaf_only: LeafOnly::Yes, broadcast };
    rig.mmu.flush(CPU, op);
    rig.touch(CPU, VA);
    rig.touch(OTHER, VA);
    assert_eq!(rig.uses(), []);
}

#[test]
fn a_local_flush_does_not_pay_for_another_cpu() {
    let mut rig = Rig::<Arm64>::new("neoverse-n1");
    rig.touch(CPU, VA);
    rig.touch(OTHER, VA);
    rig.clear(VA);
    let (asid, va, broadcast) = (TAG, VirtAddr::new(VA), Broadcast::No);
    rig.mmu.flush(CPU, TlbOp::TlbiVa { asid, va, leaf_only: LeafOnly::Yes, broadcast });
    rig.touch(CPU, VA);
    rig.touch(OTHER, VA);
    assert_eq!(rig.uses(), [(OTHER, VA)]);
}

#[test]
fn a_flush_of_another_tag_pays_for_nothing() {
    let mut rig = Rig::<X86_64>::new("skylake");
    rig.touch(CPU, VA);
    rig.clear(VA);
    rig.mmu.flush(CPU, TlbOp::InvpcidSingle { pcid: Asid::new(6) });
    rig.touch(CPU, VA);
    assert_eq!(rig.uses(), [(CPU, VA)]);
}

#[test]
fn a_stale_second_level_entry_is_caught_too() {
    let mut rig = Rig::<X86_64>::new("skylake");
    rig.touch(CPU, VA);
    // Pages of the same first-level set push the translation out of the first level.
    for i in 1..=4 {
        rig.touch(CPU, VA + i * 16 * 4096);
    }
    rig.clear(VA);
    rig.touch(CPU, VA);
    assert_eq!(rig.uses(), [(CPU, VA)]);
    assert_eq!(rig.mmu.stats().l2_hits, 1);
}

#[test]
fn entries_of_a_switched_away_space_are_marked_as_well() {
    let mut rig = Rig::<X86_64>::new("skylake");
    rig.touch(CPU, VA);
    let idle = rig.tables.table();
    rig.mmu.switch(CPU, idle, Asid::new(9), SwitchKind::Keep);
    rig.clear(VA);
    rig.mmu.switch(CPU, rig.root, TAG, SwitchKind::Keep);
    rig.touch(CPU, VA);
    assert_eq!(rig.uses(), [(CPU, VA)]);
}

#[test]
fn only_the_changed_page_of_a_shared_entry_is_stale() {
    let mut rig = Rig::<Arm64>::new("neoverse-n1");
    for page in 0..16 {
        let raw = Arm64::contiguous(Arm64::leaf(PAGE + page * 4096, TableLevel::Pte));
        rig.tables.map::<Arm64>(rig.root, VA + page * 4096, TableLevel::Pte, raw);
    }
    rig.touch(CPU, VA);
    rig.clear(VA + 3 * 4096);
    rig.touch(CPU, VA + 4 * 4096);
    assert_eq!(rig.uses(), []);
    rig.touch(CPU, VA + 3 * 4096);
    assert_eq!(rig.uses(), [(CPU, VA + 3 * 4096)]);
}

#[test]
fn a_freed_table_in_a_walk_cache_is_caught() {
    let mut rig = Rig::<X86_64>::new("skylake");
    rig.touch(CPU, VA);
    let slot = rig.tables.slot::<X86_64>(rig.root, VA, TableLevel::Pmd);
    rig.tables.ram.store_u64(slot, 0);
    rig.change(VA, Reach::M2);
    rig.touch(CPU, VA + 9 * 4096);
    assert_eq!(rig.uses(), [(CPU, VA + 9 * 4096)]);
}

#[test]
fn nothing_is_watched_unless_asked_for() {
    let mut rig = Rig::<X86_64>::new("skylake");
    rig.mmu.set_oracle(StaleUseOracle::Off);
    assert!(!rig.mmu.watches_ptes());
    rig.touch(CPU, VA);
    rig.clear(VA);
    rig.touch(CPU, VA);
    assert_eq!(rig.uses(), []);
}

#[test]
fn a_violation_reads_as_one_sentence() {
    let va = VirtAddr::new(VA);
    let stale = StaleUse { cpu: OTHER, va, access: Access::Write, owed_by: Op::ZapPteRange };
    assert_eq!(
        stale.to_string(),
        "CPU 1 wrote 0x1000000000 through a TLB entry that zap_pte_range changed in the page table \
         and did not flush"
    );
}
