//! The fast TLB model equals the slow one, count for count and address for address, on random and
//! adversarial streams over tables that change under it.

#![expect(clippy::cast_possible_truncation, reason = "spaces, tags and leaves are few")]

mod common;

use arch::{Arm64, Broadcast, LeafOnly, SwitchKind, TableLevel, TlbOp, TlbPort, X86_64};
use common::reference::{ReferenceCpu, is_broadcast};
use common::tables::{Tables, Words};
use mmu::{Access, Contiguous, Controls, Exact, Geometry, Machine, Mmu, OnDenial, parse_arrays};
use proptest::prelude::*;
use units::{Asid, CpuId, NrPages, PhysAddr, Reach, VirtAddr};

const RAM: u64 = 4 << 30;
const SPACES: u64 = 3;
const CPUS: u16 = 2;

/// A step of a stream.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// One access by a CPU.
    Access(u16, Access, u64),
    /// Several in a row, a stride apart.
    Sweep { cpu: u16, access: Access, va: u64, stride: u64, count: u64, rounds: u64 },
    /// A flush by a CPU.
    Flush(u16, TlbOp),
    /// A CPU goes over to an address space.
    Switch(u16, u64, SwitchKind),
    /// A table entry of an address space is rewritten.
    Edit(u64, u64, Edit),
}

#[derive(Clone, Copy, Debug)]
enum Edit {
    Clear,
    Restore,
    ReadOnly,
    Old,
    Clean,
    Global,
    Remap,
}

/// Where leaves are, and which; the same in every address space, over different frames.
const SMALL: u64 = 0x10_0000_0000;
const SMALL_FAR: u64 = 0x40_0000_0000 + 0x4000_0000;
const SMALL_OTHER_GIB: u64 = 0x90_0000_0000;
const SMALL_PAGES: u64 = 96;
const BLOCKS: u64 = 0x20_0000_0000;
const BLOCKS_NR: u64 = 6;
const LARGE: u64 = 0x30_0000_0000;
const LARGE_NR: u64 = 24;
const GIANT: u64 = 0x50_0000_0000;

struct World<A> {
    tables: Tables,
    roots: Vec<PhysAddr>,
    marker: std::marker::PhantomData<A>,
}

impl<A: Words> World<A> {
    fn new() -> World<A> {
        let mut tables = Tables::new(RAM);
        let roots: Vec<_> = (0..SPACES).map(|_| tables.table()).collect();
        let mut world = World { tables, roots, marker: std::marker::PhantomData };
        for space in 0..SPACES {
            for (va, level) in world.leaves() {
                let raw = world.original(space, va, level);
                let root = world.roots[space as usize];
                world.tables.map::<A>(root, va, level, raw);
            }
        }
        world
    }

    fn leaves(&self) -> Vec<(u64, TableLevel)> {
        let mut leaves = Vec::new();
        for base in [SMALL, SMALL_FAR, SMALL_OTHER_GIB] {
            leaves.extend((0..SMALL_PAGES).map(|i| (base + i * 4096, TableLevel::Pte)));
        }
        leaves.extend((0..BLOCKS_NR * 16).map(|i| (BLOCKS + i * 4096, TableLevel::Pte)));
        leaves.extend((0..LARGE_NR).map(|i| (LARGE + (i << 21), TableLevel::Pmd)));
        leaves.push((GIANT, TableLevel::Pud));
        leaves
    }

    fn original(&self, space: u64, va: u64, level: TableLevel) -> u64 {
        let page = va >> 12 & 0xfff;
        match va & !0xf_ffff_ffff {
            BLOCKS => {
                let base = (space * 0x100_0000 + 0x400_0000 + (va - BLOCKS)) & !0xfff;
                A::contiguous(A::leaf(base, level))
            }
            LARGE => {
                let raw = A::leaf(0x4000_0000 + (space << 26) + (va - LARGE), level);
                // The first sixteen are contiguous; some of the rest can be executed or are old.
                match (va - LARGE) >> 21 {
                    0..16 => A::contiguous(raw),
                    16..18 => A::executable(raw),
                    18..20 => A::clean(A::old(raw)),
                    _ => raw,
                }
            }
            GIANT => A::executable(A::leaf(0x8000_0000, level)),
            _ => {
                let base = 0x800_0000 + space * 0x100_0000 + (va >> 34 & 7) * 0x10_0000;
                let raw = A::leaf(base + page * 4096, level);
                match page % 8 {
                    // Two groups of four in eight would coalesce, but for what one of them is.
                    1 if page > 32 => A::clean(raw),
                    5 if page > 64 => A::read_only(raw),
                    6 if page > 48 => A::old(raw),
                    7 => A::executable(raw),
                    _ if page == 0 && va == SMALL => A::global(raw),
                    _ => raw,
                }
            }
        }
    }

    fn edit(&mut self, space: u64, leaf: u64, edit: Edit) {
        let leaves = self.leaves();
        let (va, level) = leaves[(leaf % leaves.len() as u64) as usize];
        let root = self.roots[space as usize];
        let slot = self.tables.slot::<A>(root, va, level);
        let raw = self.tables.ram.load_u64(slot);
        let raw = match edit {
            Edit::Clear => 0,
            _ if raw == 0 => self.original(space, va, level),
            Edit::Restore => self.original(space, va, level),
            Edit::ReadOnly => A::read_only(raw),
            Edit::Old => A::old(raw),
            Edit::Clean => A::clean(raw),
            Edit::Global => A::global(raw),
            Edit::Remap => raw ^ (1 << 30) ^ if level == TableLevel::Pud { 1 << 30 } else { 0 },
        };
        self.tables.ram.store_u64(slot, raw);
    }
}

struct Pair<A: Words> {
    world: World<A>,
    fast: Mmu<A, Exact>,
    slow: Vec<ReferenceCpu<A>>,
}

impl<A: Words> Pair<A> {
    fn new(geometry: &Geometry, controls: Controls) -> Pair<A> {
        let mut pair = Pair {
            world: World::new(),
            fast: Mmu::new(geometry, controls, CPUS),
            slow: (0..CPUS).map(|_| ReferenceCpu::new(geometry, controls)).collect(),
        };
        for cpu in 0..CPUS {
            pair.run(Step::Switch(cpu, 0, SwitchKind::Keep));
        }
        pair
    }

    fn access(&mut self, cpu: u16, access: Access, va: u64) {
        let va = VirtAddr::new(va);
        let id = CpuId::new(cpu);
        let root = self.fast.cpu(id).root();
        let ram = &mut self.world.tables.ram;
        // Both walkers write the same accessed and dirty bits; the fast model must see the table
        // as the slow one did, so what that wrote is taken back.
        let before = table_words::<A>(ram, root, va);
        let slow = self.slow[usize::from(cpu)].translate(ram, va, access);
        let after = table_words::<A>(ram, root, va);
        for &(slot, raw) in &before {
            ram.store_u64(slot, raw);
        }
        let fast = self.fast.translate(id, ram, va, access);
        let now = table_words::<A>(ram, root, va);
        if access != Access::Exec {
            self.fast.cpu_mut(id).count_accesses(1);
        }
        assert_eq!(fast, slow, "CPU {cpu}, {access:?} of {va}");
        assert_eq!(now, after, "accessed and dirty bits after {access:?} of {va}");
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Access(cpu, access, va) => self.access(cpu, access, va),
            Step::Sweep { cpu, access, va, stride, count, rounds } => {
                for i in (0..rounds).flat_map(|_| 0..count) {
                    self.access(cpu, access, va + i * stride);
                }
            }
            Step::Flush(cpu, op) => {
                self.fast.flush(CpuId::new(cpu), op);
                if is_broadcast(op) {
                    self.slow.iter_mut().for_each(|cpu| cpu.flush(op));
                } else {
                    self.slow[usize::from(cpu)].flush(op);
                }
            }
            Step::Switch(cpu, space, kind) => {
                let root = self.world.roots[space as usize];
                let tag = Asid::new(space as u16 + 1);
                self.fast.switch(CpuId::new(cpu), root, tag, kind);
                self.slow[usize::from(cpu)].switch(root, tag, kind);
            }
            Step::Edit(space, leaf, edit) => self.world.edit(space, leaf, edit),
        }
    }

    fn check(&self) {
        for (n, slow) in (0..).zip(&self.slow) {
            let fast = self.fast.cpu(CpuId::new(n));
            let differ: Vec<_> = fast
                .stats()
                .iter()
                .zip(slow.stats().iter())
                .filter(|(fast, slow)| fast != slow)
                .map(|((name, fast), (_, slow))| format!("{name}: fast {fast}, slow {slow}"))
                .collect();
            assert!(differ.is_empty(), "CPU {n}: {}", differ.join("; "));
            let sorted = |mut entries: Vec<_>| {
                entries.sort_by_key(|&(tag, page, shift, leaf)| {
                    (tag, page, shift, format!("{leaf:?}"))
                });
                entries
            };
            let cached = fast.cached().map(|entry| {
                (entry.tag.get(), entry.va.get() >> 12, entry.leaf.reach.shift(), entry.leaf)
            });
            assert_eq!(sorted(cached.collect()), sorted(slow.cached()), "CPU {n}");
        }
    }
}

/// The words of the tables on the way to `va`, and the group around the last one.
fn table_words<A: Words>(ram: &phys::Ram, root: PhysAddr, va: VirtAddr) -> Vec<(PhysAddr, u64)> {
    let mut words = Vec::new();
    let mut table = root;
    for level in mmu::LEVELS {
        let slot = level.slot(table, va);
        let first = slot.align_down(128);
        words.extend((0..16).map(|i| first.wrapping_add(i * 8)).map(|at| (at, ram.load_u64(at))));
        match A::decode(ram.load_u64(slot), level, &Controls::new(RAM)) {
            mmu::Entry::Table { next, .. } => table = next,
            _ => break,
        }
    }
    words
}

fn geometry(load: &str, store: &str, fetch: &str, l2: &str, l2i: &str, walk: &str) -> Geometry {
    let arrays = |text: &str| parse_arrays::<Reach>(text).expect("a constant");
    let own = |text: &str| (text != "shared").then(|| arrays(text));
    Geometry {
        load: arrays(load),
        store: own(store),
        fetch: own(fetch),
        l2: arrays(l2),
        l2_fetch: own(l2i),
        walk: parse_arrays(walk).expect("a constant"),
        on_denial: OnDenial::Fault,
    }
}

/// Small, odd and real shapes.
fn geometries() -> Vec<Geometry> {
    let mut shapes = vec![
        geometry("4K:2/full", "shared", "shared", "none", "shared", "none"),
        geometry("4K+64K+2M+1G:6/3", "shared", "4K:4/full", "4K+2M:15/5", "shared", "pmd:2/full"),
        geometry(
            "4K:12/3/plru, 2M:4/2, 1G:1/1",
            "shared",
            "4K:7/full/plru, 2M:2/full",
            "4K+2M:24/6/plru",
            "shared",
            "pgd:1/full, pud:1/full, pmd:3/full",
        ),
        geometry(
            "4K+16K+64K+2M:20/full",
            "4K+2M+1G:18/full",
            "4K+2M:17/full/plru",
            "4K+16K+64K+2M+32M+1G:40/20",
            "shared",
            "pgd+pud+pmd:18/full",
        ),
        geometry(
            "4K:8/4, 4K+2M:8/2",
            "shared",
            "4K:4/2",
            "4K+2M:16/4, 4K+1G:16/4",
            "4K+2M:6/3",
            "pgd+pud+pmd:4/2/plru",
        ),
    ];
    shapes.extend(Machine::all().map(|machine| machine.geometry));
    shapes
}

fn controls(choice: u8) -> Controls {
    Controls {
        contiguous: match choice & 3 {
            0 => Contiguous::Ignored,
            1 => Contiguous::First,
            _ => Contiguous::Faulting,
        },
        coalesce: (choice & 4 != 0).then_some(Reach::K16),
        access_dirty: match choice & 8 {
            0 => mmu::AccessDirty::Hardware,
            _ => mmu::AccessDirty::Software,
        },
        ..Controls::new(RAM)
    }
}

fn va() -> impl Strategy<Value = u64> {
    let page = prop_oneof![
        6 => (0..SMALL_PAGES).prop_map(|i| SMALL + i * 4096),
        2 => (0..SMALL_PAGES).prop_map(|i| SMALL_FAR + i * 4096),
        2 => (0..SMALL_PAGES).prop_map(|i| SMALL_OTHER_GIB + i * 4096),
        3 => (0..BLOCKS_NR * 16).prop_map(|i| BLOCKS + i * 4096),
        3 => (0..LARGE_NR * 512).prop_map(|i| LARGE + i * 4096),
        1 => (0..262_144u64).prop_map(|i| GIANT + i * 4096),
        1 => Just(0x7fff_ffff_f000),
        1 => Just(0xffff_8000_0000_0000),
        1 => Just(0x0001_0000_0000_0000),
    ];
    (page, 0..4096u64).prop_map(|(page, offset)| page + offset)
}

fn access() -> impl Strategy<Value = Access> {
    prop_oneof![4 => Just(Access::Read), 3 => Just(Access::Write), 1 => Just(Access::Exec)]
}

fn flush() -> impl Strategy<Value = TlbOp> {
    let tag = || (1..=SPACES as u16 + 1).prop_map(Asid::new);
    let at = || va().prop_map(VirtAddr::new);
    let leaf_only = || prop_oneof![Just(LeafOnly::Yes), Just(LeafOnly::No)];
    let broadcast = || prop_oneof![Just(Broadcast::Yes), Just(Broadcast::No)];
    let pages = prop_oneof![Just(2), Just(16), 1..64u64, Just(1 << 16)].prop_map(NrPages::new);
    prop_oneof![
        4 => at().prop_map(|va| TlbOp::Invlpg { va }),
        1 => Just(TlbOp::Cr3Reload),
        2 => (tag(), at()).prop_map(|(pcid, va)| TlbOp::InvpcidAddr { pcid, va }),
        1 => tag().prop_map(|pcid| TlbOp::InvpcidSingle { pcid }),
        1 => Just(TlbOp::InvpcidAll),
        4 => (tag(), at(), leaf_only(), broadcast()).prop_map(|(asid, va, leaf_only, broadcast)| {
            TlbOp::TlbiVa { asid, va, leaf_only, broadcast }
        }),
        4 => (tag(), at(), pages, leaf_only(), broadcast()).prop_map(
            |(asid, va, pages, leaf_only, broadcast)| TlbOp::TlbiRange {
                asid, va, pages, leaf_only, broadcast
            }
        ),
        1 => (tag(), broadcast()).prop_map(|(asid, broadcast)| TlbOp::TlbiAsid { asid, broadcast }),
        1 => broadcast().prop_map(|broadcast| TlbOp::TlbiAll { broadcast }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let edit = prop_oneof![
        Just(Edit::Clear),
        Just(Edit::Restore),
        Just(Edit::Restore),
        Just(Edit::ReadOnly),
        Just(Edit::Old),
        Just(Edit::Clean),
        Just(Edit::Global),
        Just(Edit::Remap),
    ];
    let kind = prop_oneof![2 => Just(SwitchKind::Keep), 1 => Just(SwitchKind::Flush)];
    let stride = prop_oneof![Just(4096u64), Just(64), Just(16 * 4096), Just(1 << 21)];
    let sweep = (0..CPUS, access(), va(), stride, 1..48u64, 1..4u64);
    prop_oneof![
        24 => (0..CPUS, access(), va()).prop_map(|(cpu, access, va)| Step::Access(cpu, access, va)),
        6 => sweep.prop_map(|(cpu, access, va, stride, count, rounds)| {
            Step::Sweep { cpu, access, va, stride, count, rounds }
        }),
        4 => (0..CPUS, flush()).prop_map(|(cpu, op)| Step::Flush(cpu, op)),
        2 => (0..CPUS, 0..SPACES, kind).prop_map(|(cpu, space, k)| Step::Switch(cpu, space, k)),
        3 => (0..SPACES, any::<u64>(), edit).prop_map(|(space, at, e)| Step::Edit(space, at, e)),
    ]
}

fn check<A: Words>(shape: usize, choice: u8, rewalk: bool, steps: &[Step]) {
    let shapes = geometries();
    let mut geometry = shapes[shape % shapes.len()].clone();
    if rewalk {
        geometry.on_denial = OnDenial::Rewalk;
    }
    let mut pair = Pair::<A>::new(&geometry, controls(choice));
    for &step in steps {
        pair.run(step);
    }
    pair.check();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn fast_equals_slow_on_arm64(
        shape in 0..15usize,
        choice in any::<u8>(),
        rewalk in any::<bool>(),
        steps in prop::collection::vec(step(), 1..400),
    ) {
        check::<Arm64>(shape, choice, rewalk, &steps);
    }

    #[test]
    fn fast_equals_slow_on_x86_64(
        shape in 0..15usize,
        choice in 0..8u8,
        rewalk in any::<bool>(),
        steps in prop::collection::vec(step(), 1..400),
    ) {
        check::<X86_64>(shape, choice, rewalk, &steps);
    }
}

/// A page that is global in one address space and not in another: both translations match in the
/// second, and its own must win. One of sixteen contiguous entries is enough.
#[test]
fn an_address_space_comes_before_a_global_translation_of_another() {
    let read = |page: u64| Step::Access(1, Access::Read, LARGE + (page << 21));
    let at = World::<Arm64>::new().leaves().iter().position(|&(va, _)| va == LARGE + (13 << 21));
    let leaf = at.expect("the fourteenth large page") as u64;
    let steps = [
        Step::Edit(0, leaf, Edit::Global),
        Step::Switch(1, 2, SwitchKind::Keep),
        read(0),
        Step::Switch(1, 0, SwitchKind::Keep),
        read(13),
        Step::Switch(1, 2, SwitchKind::Keep),
        read(1),
    ];
    for shape in 0..geometries().len() {
        check::<Arm64>(shape, 106, false, &steps);
        check::<X86_64>(shape, 106 & 7, false, &steps);
    }
}

/// Streams that are bad for one structure each: one page more than fits, two streams whose pages
/// meet in the fast cache, strides that hit one set, and everything flushed all the time.
fn adversarial<A: Words>() {
    let read = Access::Read;
    let all = TlbOp::TlbiAll { broadcast: Broadcast::No };
    for geometry in geometries() {
        let mut pair = Pair::<A>::new(&geometry, controls(2));
        for count in [3, 5, 17, 49, 65, 96] {
            let va = SMALL;
            pair.run(Step::Sweep { cpu: 0, access: read, va, stride: 4096, count, rounds: 3 });
        }
        for i in (0..300).map(|i| i % 40) {
            pair.run(Step::Access(0, Access::Read, SMALL + i * 4096));
            pair.run(Step::Access(0, Access::Write, SMALL_FAR + i * 4096));
            pair.run(Step::Access(0, Access::Read, BLOCKS + i * 4096));
        }
        for i in 0..64 {
            pair.run(Step::Access(0, Access::Read, SMALL + (i % 12) * 8 * 4096));
            pair.run(Step::Access(0, Access::Write, LARGE + ((i % LARGE_NR) << 21) + i * 64));
            pair.run(Step::Access(0, Access::Exec, GIANT + i * 0x20_0000));
            pair.run(Step::Access(0, Access::Exec, SMALL + 7 * 4096));
        }
        for i in 0..200 {
            pair.run(Step::Flush(0, if i % 3 == 0 { TlbOp::Cr3Reload } else { all }));
            pair.run(Step::Access(0, Access::Read, SMALL + i % 9 * 4096));
            pair.run(Step::Access(0, Access::Write, SMALL + i % 7 * 4096));
        }
        // More generations than a tag can count.
        for i in 0..9000 {
            pair.run(Step::Switch(0, i % SPACES, SwitchKind::Keep));
            pair.run(Step::Access(0, Access::Read, SMALL + 4096));
        }
        pair.check();
    }
}

#[test]
fn fast_equals_slow_on_adversarial_streams_of_arm64() {
    adversarial::<Arm64>();
}

#[test]
fn fast_equals_slow_on_adversarial_streams_of_x86_64() {
    adversarial::<X86_64>();
}
