//! A bus over the real TLB model and real page tables, small enough to be compared whole.

#[path = "../../../mmu/tests/common/tables.rs"]
pub mod tables;

use arch::{SwitchKind, TableLevel};
use cpu::{Bus, Scalar};
use jit::HitBus;
use mmu::hit::HitShape;
use mmu::{Access, Controls, CpuTlb, Fault, Geometry, HitPath, Model, OnDenial, parse_arrays};
use phys::Ram;
use tables::{Tables, Words};
use units::{Asid, CpuId, PAGE_SIZE, PhysAddr, VirtAddr};

pub const RAM: u64 = 1 << 20;
/// First mapped address.
pub const BASE: u64 = 0x40_0000;
/// Pages from [`BASE`] on: half can be written, then some can only be read; those after are not mapped.
pub const WRITABLE_PAGES: u64 = 24;
pub const READ_ONLY_PAGES: u64 = 4;
const FRAME: u64 = 0x4_0000;

/// Where a page from [`BASE`] on lies; the last ones are other names of the first ones.
pub fn frame(page: u64) -> u64 {
    FRAME + page % 22 * PAGE_SIZE
}

#[derive(Debug)]
pub struct Paged<A: Words, M: Model> {
    pub tlb: CpuTlb<A, M>,
    pub ram: Ram,
}

impl<A: Words, M: Model> Paged<A, M> {
    pub fn new() -> Self {
        let mut tables = Tables::new(RAM);
        let root = tables.table();
        for page in 0..WRITABLE_PAGES + READ_ONLY_PAGES {
            let leaf = A::leaf(frame(page), TableLevel::Pte);
            let leaf = if page < WRITABLE_PAGES { leaf } else { A::read_only(leaf) };
            tables.map::<A>(root, BASE + page * PAGE_SIZE, TableLevel::Pte, A::executable(leaf));
        }
        let mut ram = tables.ram;
        for (i, byte) in ram.slice_mut(PhysAddr::new(FRAME), 22 << 12).iter_mut().enumerate() {
            *byte = (i * 31 % 251) as u8;
        }
        let geometry = Geometry {
            load: parse_arrays("4K:6/full").expect("a constant"),
            store: None,
            fetch: Some(parse_arrays("4K:2/full").expect("a constant")),
            l2: parse_arrays("4K:8/2").expect("a constant"),
            l2_fetch: None,
            walk: parse_arrays("pmd:2/full").expect("a constant"),
            on_denial: OnDenial::Fault,
        };
        let mut tlb = CpuTlb::new(CpuId::new(0), geometry, Controls::new(RAM));
        tlb.switch(root, Asid::new(1), SwitchKind::Keep);
        Paged { tlb, ram }
    }

    fn translate(&mut self, va: VirtAddr, access: Access) -> Result<PhysAddr, Fault> {
        self.tlb.translate(&mut self.ram, va, access)
    }

    /// Both pages of an access that crosses, and the bytes on the first.
    fn split(
        &mut self,
        va: VirtAddr,
        access: Access,
    ) -> Result<(PhysAddr, PhysAddr, usize), Fault> {
        let first = PAGE_SIZE - va.page_offset();
        let low = self.translate(va, access)?;
        let high = self.translate(va.wrapping_add(first), access)?;
        self.tlb.count_accesses(1);
        Ok((low, high, first as usize))
    }

    fn read<T: Scalar>(&mut self, va: VirtAddr, access: Access) -> Result<T, Fault> {
        let n = T::BYTES as usize;
        if va.page_offset() + n as u64 <= PAGE_SIZE {
            let pa = self.translate(va, access)?;
            return Ok(T::read(self.ram.slice(pa, n)));
        }
        let (low, high, first) = self.split(va, access)?;
        let mut bytes = self.ram.slice(low, first).to_vec();
        bytes.extend(self.ram.slice(high, n - first));
        Ok(T::read(&bytes))
    }
}

impl<A: Words, M: Model> Bus for Paged<A, M> {
    type Fault = Fault;

    fn load<T: Scalar>(&mut self, va: VirtAddr) -> Result<T, Fault> {
        self.read(va, Access::Read)
    }
    fn load_for_write<T: Scalar>(&mut self, va: VirtAddr) -> Result<T, Fault> {
        self.read(va, Access::Write)
    }
    fn store<T: Scalar>(&mut self, va: VirtAddr, value: T) -> Result<(), Fault> {
        let n = T::BYTES as usize;
        if va.page_offset() + n as u64 <= PAGE_SIZE {
            let pa = self.translate(va, Access::Write)?;
            value.write(self.ram.slice_mut(pa, n));
            return Ok(());
        }
        let (low, high, first) = self.split(va, Access::Write)?;
        let mut bytes = vec![0; n];
        value.write(&mut bytes);
        self.ram.slice_mut(low, first).copy_from_slice(&bytes[..first]);
        self.ram.slice_mut(high, n - first).copy_from_slice(&bytes[first..]);
        Ok(())
    }
    fn fetch(&mut self, va: VirtAddr) -> Result<PhysAddr, Fault> {
        self.translate(va, Access::Exec)
    }
    fn read_code(&mut self, pa: PhysAddr, into: &mut [u8]) {
        into.copy_from_slice(self.ram.slice(pa, into.len()));
    }
    fn note_code(&mut self, pa: PhysAddr) {
        self.ram.watch(pa.pfn());
    }
    fn code_dirty(&self) -> bool {
        self.ram.has_written()
    }
    fn take_dirty_code(&mut self) -> Option<PhysAddr> {
        self.ram.take_written().map(|pfn| pfn.addr())
    }
    fn count_accesses(&mut self, n: i64) {
        self.tlb.count_accesses(n);
    }
    fn counter(&mut self, retired_in_run_nr: u64) -> u64 {
        retired_in_run_nr
    }
    fn counter_hz(&self) -> u64 {
        1_000_000_000
    }
}

impl<A: Words, M: Model> HitBus for Paged<A, M> {
    const SHAPE: HitShape = CpuTlb::<A, M>::HIT_SHAPE;

    fn hit_path(&mut self) -> HitPath<'_> {
        self.tlb.hit_path(&mut self.ram)
    }
}

/// A small generator of numbers that look random.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
    /// Small, large, at the edges, or anything.
    pub fn value(&mut self) -> u64 {
        let edges =
            [0, 1, 2, 3, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 1 << 31, (1 << 31) - 1, u64::MAX];
        match self.below(5) {
            0 => self.pick(&edges),
            1 => self.pick(&edges).wrapping_neg(),
            2 => self.pick(&edges) << 32,
            3 => self.below(256),
            _ => self.next(),
        }
    }
}
