//! Host time of a translation and a load: the exact model against none, and misses.
//!
//! Each group is one stream of addresses; `none` is the bare cache of translations, the other lines
//! are machine presets. Read ratios within a group: absolute times depend on the host.

use arch::{Arm64, SwitchKind, TableLevel, TlbOp, TlbPort, X86_64};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use mmu::{Access, Exact, HwWalk, Machine, Mmu, Model, Untracked};
use phys::Ram;
use std::hint::black_box;
use units::{Asid, CpuId, PAGE_SIZE, PhysAddr, VirtAddr};

#[path = "../tests/common/tables.rs"]
#[expect(dead_code, unreachable_pub, reason = "shared with the tests")]
mod tables;
use tables::{Tables, Words};

const RAM: u64 = 1 << 30;
const MAPPED: u64 = 256 << 20;
const BASE: u64 = 0x10_0000_0000;
const FRAMES: u64 = 512 << 20;
const CPU: CpuId = CpuId::new(0);

struct Rig<A, M> {
    ram: Ram,
    root: PhysAddr,
    mmu: Mmu<A, M>,
}

impl<A: Words + HwWalk, M: Model> Rig<A, M> {
    fn new(machine: &str) -> Rig<A, M> {
        let mut tables = Tables::new(RAM);
        let root = tables.table();
        for page in 0..MAPPED / PAGE_SIZE {
            let raw = A::leaf(FRAMES + page * PAGE_SIZE, TableLevel::Pte);
            tables.map::<A>(root, BASE + page * PAGE_SIZE, TableLevel::Pte, raw);
        }
        let machine = Machine::by_name(machine).expect("a preset");
        let mut mmu = machine.mmu::<A, M>(RAM);
        mmu.switch(CPU, root, Asid::new(1), SwitchKind::Keep);
        Rig { ram: tables.ram, root, mmu }
    }

    /// Translates and loads, as a bus does.
    fn run(&mut self, stream: &[u64]) -> u64 {
        let (cpu, ram) = (self.mmu.cpu_mut(CPU), &mut self.ram);
        let mut sum = 0u64;
        for &va in stream {
            let pa = cpu.translate(ram, VirtAddr::new(va), Access::Read).expect("mapped");
            sum = sum.wrapping_add(ram.load_u64(pa));
        }
        cpu.count_accesses(stream.len().cast_signed() as i64);
        sum
    }
}

fn random(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    *seed >> 33
}

/// Streams of addresses, worst last.
fn streams() -> Vec<(&'static str, Vec<u64>)> {
    let n = 1u64 << 16;
    let mut seed = 1;
    vec![
        ("loop_over_32k", (0..n).map(|i| BASE + i * 8 % (32 << 10)).collect()),
        ("sequential_64m", (0..n * 4).map(|i| BASE + i * 256).collect()),
        (
            "two_streams_64m_apart",
            (0..n).map(|i| BASE + (i & 1) * (64 << 20) + (i / 2) * 8 % (128 << 10)).collect(),
        ),
        (
            "random_32_pages",
            (0..n).map(|_| BASE + random(&mut seed) % 32 * PAGE_SIZE + 8).collect(),
        ),
        (
            "random_4k_of_256m",
            (0..n).map(|_| BASE + random(&mut seed) % (MAPPED / PAGE_SIZE) * PAGE_SIZE).collect(),
        ),
    ]
}

fn translations(c: &mut Criterion) {
    let mut none_x86 = Rig::<X86_64, Untracked>::new("skylake");
    let mut none_arm = Rig::<Arm64, Untracked>::new("neoverse-n1");
    let mut skylake = Rig::<X86_64, Exact>::new("skylake");
    let mut n1 = Rig::<Arm64, Exact>::new("neoverse-n1");
    let mut apple = Rig::<Arm64, Exact>::new("apple-m3-vm");
    for (name, stream) in streams() {
        let mut group = c.benchmark_group(name);
        group.throughput(Throughput::Elements(stream.len() as u64));
        group.sample_size(20);
        group.bench_function("none_x86_64", |b| b.iter(|| black_box(none_x86.run(&stream))));
        group.bench_function("skylake", |b| b.iter(|| black_box(skylake.run(&stream))));
        group.bench_function("none_arm64", |b| b.iter(|| black_box(none_arm.run(&stream))));
        group.bench_function("neoverse-n1", |b| b.iter(|| black_box(n1.run(&stream))));
        group.bench_function("apple-m3-vm", |b| b.iter(|| black_box(apple.run(&stream))));
        group.finish();
    }
}

/// A flush of everything and the misses of a small working set after it.
fn flushes(c: &mut Criterion) {
    let mut rig = Rig::<X86_64, Exact>::new("skylake");
    let stream: Vec<u64> = (0..8).map(|i| BASE + i * PAGE_SIZE).collect();
    c.bench_function("full_flush_and_8_misses", |b| {
        b.iter(|| {
            rig.mmu.flush(CPU, TlbOp::Cr3Reload);
            black_box(rig.run(&stream))
        });
    });
    c.bench_function("full_flush", |b| b.iter(|| rig.mmu.flush(CPU, TlbOp::Cr3Reload)));
    let va = VirtAddr::new(BASE);
    c.bench_function("invlpg", |b| b.iter(|| rig.mmu.flush(CPU, TlbOp::Invlpg { va })));
    let root = rig.root;
    c.bench_function("switch_keep", |b| {
        b.iter(|| rig.mmu.switch(CPU, root, Asid::new(1), SwitchKind::Keep));
    });
}

criterion_group!(benches, translations, flushes);
criterion_main!(benches);
