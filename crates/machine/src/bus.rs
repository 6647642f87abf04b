//! The CPU's view of memory: the TLB model over guest RAM.

use crate::guest::{Emulated, Observer};
use cpu::{Bus, Scalar};
use events::Event;
use jit::HitBus;
use kernel::Kernel;
use mmu::hit::HitShape;
use mmu::{Access, CpuTlb, Fault, HitPath, HwWalk, Model, WalkStats};
use phys::Ram;
use units::{CpuId, PAGE_SIZE, PhysAddr, VirtAddr};

/// Nominal frequency of the counters that `RDTSC` and `CNTVCT_EL0` read: one tick a nanosecond.
const COUNTER_HZ: u64 = 1_000_000_000;

/// The kernel with all memory, as seen by the CPU that runs now.
#[derive(Debug)]
pub struct World<A, S, M>
where
    A: HwWalk + arch::Arch,
    S: Observer,
    M: Model,
{
    /// The kernel.
    pub kernel: Kernel<Emulated<A, S, M>>,
    /// The CPU that runs.
    pub(crate) cpu: CpuId,
    /// Its MMU, while it runs guest code; else a spare one.
    tlb: Box<CpuTlb<A, M>>,
    /// Virtual time when it began to run.
    pub(crate) started_ns: u64,
    /// Nanoseconds per 1024 instructions, for the counters in between.
    pub(crate) ns_per_kilo_instruction: u64,
}

impl<A, S, M> World<A, S, M>
where
    A: HwWalk + arch::Arch,
    S: Observer,
    M: Model,
{
    /// TLBs of the running CPU, and RAM.
    #[inline(always)]
    fn parts(&mut self) -> (&mut CpuTlb<A, M>, &mut Ram) {
        (&mut self.tlb, &mut self.kernel.mm.pt.ram)
    }

    /// A world whose CPU 0 is about to run; `spare` stands in for a CPU's MMU while it is out.
    pub(crate) fn new(kernel: Kernel<Emulated<A, S, M>>, spare: CpuTlb<A, M>) -> Self {
        World {
            kernel,
            cpu: CpuId::default(),
            tlb: Box::new(spare),
            started_ns: 0,
            ns_per_kilo_instruction: 0,
        }
    }

    /// Gives the running CPU its MMU, or takes it back.
    pub(crate) fn exchange_tlb(&mut self) {
        self.kernel.mm.pt.tlb.exchange(self.cpu, &mut self.tlb);
    }

    /// What the walker of the running CPU has done so far.
    pub(crate) fn walks(&self) -> WalkStats {
        self.tlb.walk_stats()
    }

    // FIDELITY: refill the TLB model refills for guest code; the kernel's own misses are not modelled.
    /// Counts what it has done since it had done `before`. Events: `hw_walk`, `hw_walk_load`.
    pub(crate) fn count_walks(&mut self, before: WalkStats) {
        let now = self.walks();
        let pt = &mut self.kernel.mm.pt;
        pt.count(Event::HwWalk, now.walks - before.walks);
        pt.count(Event::HwWalkLoad, now.loads_total() - before.loads_total());
    }

    #[inline(always)]
    fn translate(&mut self, va: VirtAddr, access: Access) -> Result<PhysAddr, Fault> {
        let (tlb, ram) = self.parts();
        tlb.translate(ram, va, access)
    }

    /// Where a page-crossing access of `bytes` bytes lies: both parts are translated before
    /// anything happens.
    #[cold]
    #[inline(never)]
    fn translate_split(
        &mut self,
        va: VirtAddr,
        bytes: u32,
        access: Access,
    ) -> Result<(PhysAddr, PhysAddr, usize), Fault> {
        let first = usize::try_from(PAGE_SIZE - va.page_offset()).unwrap_or(0);
        let low = self.translate(va, access)?;
        let high = self.translate(va.wrapping_add(first as u64), access)?;
        let (tlb, _) = self.parts();
        // One micro-op, two translations.
        tlb.count_accesses(1);
        debug_assert!(first < bytes as usize);
        Ok((low, high, first))
    }

    #[cold]
    #[inline(never)]
    fn load_split<T: Scalar>(&mut self, va: VirtAddr, access: Access) -> Result<T, Fault> {
        let (low, high, first) = self.translate_split(va, T::BYTES, access)?;
        let mut bytes = [0; 16];
        let n = T::BYTES as usize;
        let (_, ram) = self.parts();
        bytes[..first].copy_from_slice(ram.slice(low, first));
        bytes[first..n].copy_from_slice(ram.slice(high, n - first));
        Ok(T::read(&bytes[..n]))
    }

    #[cold]
    #[inline(never)]
    fn store_split<T: Scalar>(&mut self, va: VirtAddr, value: T) -> Result<(), Fault> {
        let (low, high, first) = self.translate_split(va, T::BYTES, Access::Write)?;
        let mut bytes = [0; 16];
        let n = T::BYTES as usize;
        value.write(&mut bytes[..n]);
        let (_, ram) = self.parts();
        ram.slice_mut(low, first).copy_from_slice(&bytes[..first]);
        ram.slice_mut(high, n - first).copy_from_slice(&bytes[first..n]);
        Ok(())
    }

    #[inline(always)]
    fn load_as<T: Scalar>(&mut self, va: VirtAddr, access: Access) -> Result<T, Fault> {
        if crosses::<T>(va) {
            return self.load_split(va, access);
        }
        let (tlb, ram) = self.parts();
        let pa = tlb.translate(ram, va, access)?;
        Ok(T::read(ram.slice(pa, T::BYTES as usize)))
    }
}

/// Whether an access of `T` at `va` reaches into the next page.
#[inline(always)]
fn crosses<T: Scalar>(va: VirtAddr) -> bool {
    va.page_offset() + u64::from(T::BYTES) > PAGE_SIZE
}

/// Whole elements of `T` from `va` to the end of its page.
fn elements_in_page<T: Scalar>(va: VirtAddr) -> u64 {
    (PAGE_SIZE - va.page_offset()) / u64::from(T::BYTES)
}

impl<A, S, M> Bus for World<A, S, M>
where
    A: HwWalk + arch::Arch,
    S: Observer,
    M: Model,
{
    type Fault = Fault;

    #[inline(always)]
    fn load<T: Scalar>(&mut self, va: VirtAddr) -> Result<T, Fault> {
        self.load_as(va, Access::Read)
    }

    #[inline(always)]
    fn store<T: Scalar>(&mut self, va: VirtAddr, value: T) -> Result<(), Fault> {
        if crosses::<T>(va) {
            return self.store_split(va, value);
        }
        let (tlb, ram) = self.parts();
        let pa = tlb.translate(ram, va, Access::Write)?;
        value.write(ram.slice_mut(pa, T::BYTES as usize));
        Ok(())
    }

    #[inline(always)]
    fn load_for_write<T: Scalar>(&mut self, va: VirtAddr) -> Result<T, Fault> {
        self.load_as(va, Access::Write)
    }

    const HAS_FAST: bool = true;

    #[inline(always)]
    fn load_fast<T: Scalar>(&mut self, va: VirtAddr) -> Option<T> {
        if crosses::<T>(va) {
            return None;
        }
        let pa = self.tlb.translate_hit(va, Access::Read)?;
        Some(T::read(self.kernel.mm.pt.ram.slice(pa, T::BYTES as usize)))
    }

    #[inline(always)]
    fn store_fast<T: Scalar>(&mut self, va: VirtAddr, value: T) -> bool {
        if crosses::<T>(va) {
            return false;
        }
        let Some(pa) = self.tlb.translate_hit(va, Access::Write) else { return false };
        value.write(self.kernel.mm.pt.ram.slice_mut(pa, T::BYTES as usize));
        true
    }

    fn fetch(&mut self, va: VirtAddr) -> Result<PhysAddr, Fault> {
        self.translate(va, Access::Exec)
    }

    fn read_code(&mut self, pa: PhysAddr, into: &mut [u8]) {
        let (_, ram) = self.parts();
        into.copy_from_slice(ram.slice(pa, into.len()));
    }

    fn note_code(&mut self, pa: PhysAddr) {
        self.kernel.mm.pt.ram.watch(pa.pfn());
    }

    #[inline(always)]
    fn code_dirty(&self) -> bool {
        self.kernel.mm.pt.ram.has_written()
    }

    fn take_dirty_code(&mut self) -> Option<PhysAddr> {
        self.kernel.mm.pt.ram.take_written().map(|pfn| pfn.addr())
    }

    #[inline(always)]
    fn count_accesses(&mut self, n: i64) {
        let (tlb, _) = self.parts();
        tlb.count_accesses(n);
    }

    fn counter(&mut self, retired_in_run_nr: u64) -> u64 {
        let ns = retired_in_run_nr.saturating_mul(self.ns_per_kilo_instruction) / 1024;
        self.started_ns.saturating_add(ns)
    }

    fn counter_hz(&self) -> u64 {
        COUNTER_HZ
    }

    fn fill<T: Scalar>(&mut self, va: VirtAddr, value: T, count: u64) -> (u64, Result<(), Fault>) {
        let size = u64::from(T::BYTES);
        let mut done = 0;
        while done < count {
            let at = va.wrapping_add(done * size);
            let run = elements_in_page::<T>(at).min(count - done);
            if run == 0 {
                if let Err(fault) = self.store(at, value) {
                    return (done, Err(fault));
                }
                done += 1;
                continue;
            }
            let (tlb, ram) = self.parts();
            let pa = match tlb.translate(ram, at, Access::Write) {
                Ok(pa) => pa,
                Err(fault) => return (done, Err(fault)),
            };
            let bytes = usize::try_from(run * size).unwrap_or(0);
            fill_slice(ram.slice_mut(pa, bytes), value);
            done += run;
        }
        (count, Ok(()))
    }

    fn copy<T: Scalar>(
        &mut self,
        to: VirtAddr,
        from: VirtAddr,
        count: u64,
    ) -> (u64, Result<(), Fault>) {
        let size = u64::from(T::BYTES);
        let mut done = 0;
        while done < count {
            let (source, target) = (from.wrapping_add(done * size), to.wrapping_add(done * size));
            let run =
                elements_in_page::<T>(source).min(elements_in_page::<T>(target)).min(count - done);
            match self.copy_run::<T>(target, source, run) {
                Ok(copied) => done += copied,
                Err(fault) => return (done, Err(fault)),
            }
        }
        (count, Ok(()))
    }
}

impl<A, S, M> HitBus for World<A, S, M>
where
    A: HwWalk + arch::Arch,
    S: Observer,
    M: Model,
{
    const SHAPE: HitShape = CpuTlb::<A, M>::HIT_SHAPE;

    fn hit_path(&mut self) -> HitPath<'_> {
        let (tlb, ram) = self.parts();
        tlb.hit_path(ram)
    }
}

fn fill_slice<T: Scalar>(bytes: &mut [u8], value: T) {
    let mut pattern = [0; 16];
    let size = T::BYTES as usize;
    value.write(&mut pattern[..size]);
    if pattern[..size].iter().all(|&b| b == pattern[0]) {
        bytes.fill(pattern[0]);
        return;
    }
    for chunk in bytes.chunks_exact_mut(size) {
        chunk.copy_from_slice(&pattern[..size]);
    }
}

impl<A, S, M> World<A, S, M>
where
    A: HwWalk + arch::Arch,
    S: Observer,
    M: Model,
{
    /// Copies up to `run` elements that lie in one page on either side; one, if an element
    /// crosses a page or the sides overlap so that copying replicates.
    fn copy_run<T: Scalar>(
        &mut self,
        to: VirtAddr,
        from: VirtAddr,
        run: u64,
    ) -> Result<u64, Fault> {
        let bytes = usize::try_from(run * u64::from(T::BYTES)).unwrap_or(0);
        let replicates = to.get().wrapping_sub(from.get()) < bytes as u64;
        if run == 0 || (replicates && to != from) {
            let value = self.load::<T>(from)?;
            self.store(to, value)?;
            return Ok(1);
        }
        let (tlb, ram) = self.parts();
        let source = tlb.translate(ram, from, Access::Read)?;
        let target = tlb.translate(ram, to, Access::Write)?;
        if source.get() < target.get() && target.get() < source.get() + bytes as u64 {
            // Two names of one page.
            let value = T::read(ram.slice(source, T::BYTES as usize));
            value.write(ram.slice_mut(target, T::BYTES as usize));
            return Ok(1);
        }
        ram.copy(target, source, bytes);
        Ok(run)
    }
}
