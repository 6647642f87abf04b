//! Guest instructions per second of the two interpreters on flat memory: an integer loop and a memory loop as gcc
//! compiles them for x86-64, and a bulk store. Criterion's throughput is guest instructions.
#![allow(missing_docs, clippy::allow_attributes, reason = "benches")]

use cpu::ir::Reg;
use cpu::testbus::FlatBus;
use cpu::{Cpu, Engine};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use units::{ArchId, VirtAddr};

const BASE: u64 = 0x10_0000;
const INSNS: u64 = 1_000_000;

/// x = x * r9 + r8; s += (x >> 33) ^ n; if (s & 4) s -= 3; n++; loop
const INT_LOOP: &[u8] = &[
    0x49, 0x0f, 0xaf, 0xd1, // imul rdx, r9
    0x4c, 0x01, 0xc2, // add rdx, r8
    0x48, 0x89, 0xd6, // mov rsi, rdx
    0x48, 0xc1, 0xee, 0x21, // shr rsi, 33
    0x48, 0x31, 0xce, // xor rsi, rcx
    0x48, 0x01, 0xf0, // add rax, rsi
    0xa8, 0x04, // test al, 4
    0x48, 0x8d, 0x70, 0xfd, // lea rsi, [rax - 3]
    0x48, 0x0f, 0x45, 0xc6, // cmovne rax, rsi
    0x48, 0x83, 0xc1, 0x01, // add rcx, 1
    0x48, 0x39, 0xcf, // cmp rdi, rcx
    0x75, 0xd9, // jne
];

/// v = *p; s += v; *p = v + s; p++ over 16 KiB, for ever
const MEM_LOOP: &[u8] = &[
    0x48, 0x8d, 0x87, 0x00, 0xc0, 0xff, 0xff, // lea rax, [rdi - 0x4000]
    0x8b, 0x30, // mov esi, [rax]
    0x48, 0x83, 0xc0, 0x04, // add rax, 4
    0x48, 0x89, 0xf2, // mov rdx, rsi
    0x48, 0x01, 0xf1, // add rcx, rsi
    0x01, 0xca, // add edx, ecx
    0x89, 0x50, 0xfc, // mov [rax - 4], edx
    0x48, 0x39, 0xf8, // cmp rax, rdi
    0x75, 0xea, // jne
    0xeb, 0xe1, // jmp to the start
];

/// rep stosb of 1 MiB, for ever
const FILL: &[u8] = &[
    0xbf, 0x00, 0x00, 0x20, 0x00, // mov edi, 0x200000
    0xb9, 0x00, 0x00, 0x10, 0x00, // mov ecx, 0x100000
    0xf3, 0xaa, // rep stosb
    0xeb, 0xf2, // jmp
];

fn machine(code: &[u8], engine: Engine) -> (Cpu<FlatBus>, FlatBus) {
    let mut bus = FlatBus::new(VirtAddr::new(BASE), 4 << 20);
    if let Some(to) = bus.slice_mut(VirtAddr::new(BASE), code.len()) {
        to.copy_from_slice(code);
    }
    let mut cpu = Cpu::new(ArchId::X86_64);
    cpu.set_engine(engine);
    cpu.state_mut().set_pc(VirtAddr::new(BASE));
    cpu.state_mut().set_reg(Reg(9), 6_364_136_223_846_793_005);
    cpu.state_mut().set_reg(Reg(8), 1_442_695_040_888_963_407);
    cpu.state_mut().set_reg(Reg(7), u64::MAX);
    (cpu, bus)
}

fn loops(c: &mut Criterion) {
    let mut group = c.benchmark_group("instructions");
    group.throughput(Throughput::Elements(INSNS));
    for (name, code) in [("intloop", INT_LOOP), ("memloop", MEM_LOOP)] {
        for engine in [Engine::Match, Engine::Threaded] {
            let (mut cpu, mut bus) = machine(code, engine);
            if name == "memloop" {
                cpu.state_mut().set_reg(Reg(7), BASE + (1 << 20));
            }
            group.bench_function(format!("{name}/{engine:?}"), |b| {
                b.iter(|| black_box(cpu.run(&mut bus, INSNS)));
            });
        }
    }
    group.finish();
    let mut group = c.benchmark_group("bulk");
    group.throughput(Throughput::Bytes(16 << 20));
    let (mut cpu, mut bus) = machine(FILL, Engine::Threaded);
    group.bench_function("rep stosb of 1 MiB", |b| {
        // Four instructions a round, sixteen rounds.
        b.iter(|| black_box(cpu.run(&mut bus, 4 * 16)));
    });
    group.finish();
}

criterion_group!(benches, loops);
criterion_main!(benches);
