//! A flat memory as a [`Bus`], for tests, benches and experiments: one writable, executable region
//! at a fixed address, everything else faults. Physical address = offset into the region.

use crate::bus::{Bus, Scalar};
use std::collections::BTreeSet;
use units::{PAGE_SIZE, PhysAddr, VirtAddr};

/// Why an access failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlatFault {
    /// First byte that could not be accessed.
    pub va: VirtAddr,
    /// Whether it was a write (or a read with write intent).
    pub write: bool,
}

/// The flat memory.
#[derive(Debug)]
pub struct FlatBus {
    base: u64,
    ram: Vec<u8>,
    /// Data accesses counted.
    pub accesses: i64,
    /// Page changes of instruction fetch.
    pub fetches: u64,
    /// Bytes from here on cannot be written (for fault tests); the end by default.
    pub read_only_from: u64,
    code_pages: Vec<bool>,
    dirty: BTreeSet<u64>,
}

impl FlatBus {
    /// `bytes` of zeros at `base`, both rounded to pages by the caller.
    pub fn new(base: VirtAddr, bytes: usize) -> Self {
        FlatBus {
            base: base.get(),
            ram: vec![0; bytes],
            accesses: 0,
            fetches: 0,
            read_only_from: u64::MAX,
            code_pages: vec![false; bytes / 4096 + 1],
            dirty: BTreeSet::new(),
        }
    }

    /// The bytes at `va`, if all are there.
    pub fn slice(&self, va: VirtAddr, len: usize) -> Option<&[u8]> {
        let at = usize::try_from(va.get().checked_sub(self.base)?).ok()?;
        self.ram.get(at..at.checked_add(len)?)
    }

    /// The bytes at `va` for writing, if all are there. Does not notice code.
    pub fn slice_mut(&mut self, va: VirtAddr, len: usize) -> Option<&mut [u8]> {
        let at = usize::try_from(va.get().checked_sub(self.base)?).ok()?;
        self.ram.get_mut(at..at.checked_add(len)?)
    }

    #[cold]
    fn fault(&self, va: u64, write: bool) -> FlatFault {
        let end = self.base + self.ram.len() as u64;
        let limit = if write { end.min(self.read_only_from) } else { end };
        let first = if va < self.base || va >= limit { va } else { limit };
        FlatFault { va: VirtAddr::new(first), write }
    }

    #[inline(always)]
    fn range<T: Scalar>(&self, va: VirtAddr) -> std::ops::Range<usize> {
        let at = usize::try_from(va.get().wrapping_sub(self.base)).unwrap_or(usize::MAX);
        at..at.saturating_add(T::BYTES as usize)
    }
}

impl Bus for FlatBus {
    type Fault = FlatFault;

    #[inline(always)]
    fn load<T: Scalar>(&mut self, va: VirtAddr) -> Result<T, FlatFault> {
        match self.ram.get(self.range::<T>(va)) {
            Some(bytes) => Ok(T::read(bytes)),
            None => Err(self.fault(va.get(), false)),
        }
    }

    #[inline(always)]
    fn store<T: Scalar>(&mut self, va: VirtAddr, value: T) -> Result<(), FlatFault> {
        let range = self.range::<T>(va);
        if va.get().wrapping_add(u64::from(T::BYTES)) > self.read_only_from {
            return Err(self.fault(va.get(), true));
        }
        let Some(bytes) = self.ram.get_mut(range.clone()) else {
            return Err(self.fault(va.get(), true));
        };
        value.write(bytes);
        if self.code_pages.get(range.start / 4096).copied().unwrap_or(false)
            || self.code_pages.get((range.end - 1) / 4096).copied().unwrap_or(false)
        {
            self.dirty.insert(range.start as u64 & !(PAGE_SIZE - 1));
            self.dirty.insert((range.end - 1) as u64 & !(PAGE_SIZE - 1));
        }
        Ok(())
    }

    #[inline(always)]
    fn load_for_write<T: Scalar>(&mut self, va: VirtAddr) -> Result<T, FlatFault> {
        if va.get().wrapping_add(u64::from(T::BYTES)) > self.read_only_from {
            return Err(self.fault(va.get(), true));
        }
        self.load(va).map_err(|f| FlatFault { write: true, ..f })
    }

    const HAS_FAST: bool = true;

    #[inline(always)]
    fn load_fast<T: Scalar>(&mut self, va: VirtAddr) -> Option<T> {
        self.ram.get(self.range::<T>(va)).map(T::read)
    }

    fn fetch(&mut self, va: VirtAddr) -> Result<PhysAddr, FlatFault> {
        self.fetches += 1;
        let at = va.get().wrapping_sub(self.base);
        if at >= self.ram.len() as u64 {
            return Err(FlatFault { va, write: false });
        }
        Ok(PhysAddr::new(at))
    }

    fn read_code(&mut self, pa: PhysAddr, into: &mut [u8]) {
        let at = usize::try_from(pa.get()).unwrap_or(usize::MAX);
        for (i, byte) in into.iter_mut().enumerate() {
            *byte = self.ram.get(at.saturating_add(i)).copied().unwrap_or(0);
        }
    }

    fn note_code(&mut self, pa: PhysAddr) {
        let page = usize::try_from(pa.get() / PAGE_SIZE).unwrap_or(usize::MAX);
        if let Some(flag) = self.code_pages.get_mut(page) {
            *flag = true;
        }
    }

    #[inline(always)]
    fn code_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    fn take_dirty_code(&mut self) -> Option<PhysAddr> {
        let page = self.dirty.pop_first()?;
        let index = usize::try_from(page / PAGE_SIZE).unwrap_or(usize::MAX);
        if let Some(flag) = self.code_pages.get_mut(index) {
            *flag = false;
        }
        Some(PhysAddr::new(page))
    }

    #[inline(always)]
    fn count_accesses(&mut self, n: i64) {
        self.accesses += n;
    }

    fn counter(&mut self, retired_in_run_nr: u64) -> u64 {
        retired_in_run_nr
    }

    fn counter_hz(&self) -> u64 {
        1_000_000_000
    }

    fn fill<T: Scalar>(
        &mut self,
        va: VirtAddr,
        value: T,
        count: u64,
    ) -> (u64, Result<(), FlatFault>) {
        // One page at a time through the plain path at its edges, in bulk inside.
        let mut done = 0;
        while done < count {
            let at = va.wrapping_add(done.wrapping_mul(u64::from(T::BYTES)));
            let room = (PAGE_SIZE - at.page_offset()) / u64::from(T::BYTES);
            let n = room.min(count - done);
            if n <= 1 {
                if let Err(fault) = self.store(at, value) {
                    return (done, Err(fault));
                }
                done += 1;
                continue;
            }
            if let Err(fault) = self.store(at, value) {
                return (done, Err(fault));
            }
            let last = at.wrapping_add((n - 1) * u64::from(T::BYTES));
            if self.store(last, value).is_err() {
                if let Err(fault) = self.store(at.wrapping_add(u64::from(T::BYTES)), value) {
                    return (done + 1, Err(fault));
                }
                done += 2;
                continue;
            }
            let bytes = usize::try_from(n * u64::from(T::BYTES)).unwrap_or(0);
            if let Some(slice) = self.slice_mut(at, bytes) {
                for chunk in slice.chunks_exact_mut(T::BYTES as usize) {
                    value.write(chunk);
                }
            }
            done += n;
        }
        (done, Ok(()))
    }
}
