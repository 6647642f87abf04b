//! What a program sees does not depend on the TLB model: with flushes where they are due, the bare
//! cache of translations and the exact model give the same addresses and faults.

mod common;

use arch::{Arm64, Broadcast, LeafOnly, SwitchKind, TableLevel, TlbOp, TlbPort, X86_64};
use common::tables::{Tables, Words};
use mmu::{Access, Exact, Machine, Mmu, Model, Untracked};
use proptest::prelude::*;
use units::{Asid, CpuId, PhysAddr, VirtAddr};

const RAM: u64 = 1 << 30;
const SMALL: u64 = 0x10_0000_0000;
const LARGE: u64 = 0x10_4000_0000;
const CPU: CpuId = CpuId::new(0);

fn tables<A: Words>() -> (Tables, [PhysAddr; 2]) {
    let mut tables = Tables::new(RAM);
    let roots = [tables.table(), tables.table()];
    for (i, &root) in (0..).zip(&roots) {
        for page in 0..64u64 {
            let raw = A::leaf(0x1000_0000 + (page + i * 64) * 4096, TableLevel::Pte);
            let raw = if page % 5 == 1 { A::read_only(raw) } else { A::clean(raw) };
            let raw = if page % 3 == 0 { A::contiguous(raw) & !0xf000 } else { raw };
            tables.map::<A>(root, SMALL + page * 4096, TableLevel::Pte, raw);
        }
        let raw = A::executable(A::leaf(0x2000_0000, TableLevel::Pmd));
        tables.map::<A>(root, LARGE, TableLevel::Pmd, raw);
    }
    (tables, roots)
}

/// Page and access, with a change of the page and its flush first; or another address space.
type Step = (u64, u8, u8);

fn observe<A: Words, M: Model>(machine: &str, steps: &[Step]) -> Vec<String> {
    let (mut tables, roots) = tables::<A>();
    let mut mmu: Mmu<A, M> = Machine::by_name(machine).expect("a preset").mmu(RAM);
    let mut space = 0usize;
    let tag = |space: usize| Asid::new(if space == 0 { 1 } else { 2 });
    mmu.switch(CPU, roots[space], tag(space), SwitchKind::Keep);
    let mut seen = Vec::new();
    for &(page, access, change) in steps {
        let va = if page < 64 { SMALL + page * 4096 } else { LARGE + page * 4096 };
        match change {
            0 if page < 64 => {
                tables.map::<A>(roots[space], va, TableLevel::Pte, 0);
                let (asid, va, broadcast) = (tag(space), VirtAddr::new(va), Broadcast::Yes);
                mmu.flush(CPU, TlbOp::TlbiVa { asid, va, leaf_only: LeafOnly::Yes, broadcast });
            }
            1 if page < 64 => {
                let raw = A::leaf(0x1800_0000 + page * 4096, TableLevel::Pte);
                tables.map::<A>(roots[space], va, TableLevel::Pte, raw);
                mmu.flush(CPU, TlbOp::InvpcidAll);
            }
            2 => {
                space = 1 - space;
                mmu.switch(CPU, roots[space], tag(space), SwitchKind::Keep);
            }
            _ => {}
        }
        let access = Access::ALL[usize::from(access)];
        let result = mmu.translate(CPU, &mut tables.ram, VirtAddr::new(va + 5), access);
        seen.push(format!("{result:?}"));
    }
    seen
}

proptest! {
    #[test]
    fn the_model_is_invisible_to_programs(
        steps in prop::collection::vec((0..80u64, 0..3u8, 0..16u8), 1..300),
    ) {
        // These presets ignore the contiguous bit, which the tables here set without regard.
        for machine in ["qemu-max-arm64", "qemu-cortex-a72"] {
            let exact = observe::<Arm64, Exact>(machine, &steps);
            assert_eq!(observe::<Arm64, Untracked>(machine, &steps), exact);
        }
        for machine in ["skylake", "golden-cove", "zen2", "qemu-max-x86_64"] {
            let exact = observe::<X86_64, Exact>(machine, &steps);
            assert_eq!(observe::<X86_64, Untracked>(machine, &steps), exact);
        }
    }
}
