//! How the CPU sees memory: a trait that the machine implements over TLB model and guest RAM.
//!
//! Everything is generic and monomorphised, so an implementor's inlined hit path becomes part of
//! the interpreter's handlers. The CPU promises the order of architectural accesses; the bus
//! promises that a failed access changed nothing, and that its fault names the first byte that
//! could not be accessed (which differs from the address given when an access crosses a page).

use units::{PhysAddr, VirtAddr};

/// A value of one memory access: `u8`, `u16`, `u32`, `u64` or `u128`, little endian.
pub trait Scalar: Copy + Default + std::fmt::Debug + PartialEq + 'static {
    /// Bytes of the access: 1, 2, 4, 8 or 16.
    const BYTES: u32;
    /// Zero-extends to 128 bits.
    fn to_u128(self) -> u128;
    /// Truncates from 128 bits.
    fn from_u128(value: u128) -> Self;
    /// Reads from a slice of exactly [`Self::BYTES`] bytes; zero if it is shorter.
    fn read(bytes: &[u8]) -> Self;
    /// Writes to a slice of exactly [`Self::BYTES`] bytes; nothing if it is shorter.
    fn write(self, bytes: &mut [u8]);
}

macro_rules! scalar {
    ($($t:ty),*) => {$(
        impl Scalar for $t {
            const BYTES: u32 = <$t>::BITS / 8;
            #[inline(always)]
            fn to_u128(self) -> u128 {
                u128::from(self)
            }
            #[inline(always)]
            #[allow(
                clippy::allow_attributes,
                clippy::cast_possible_truncation,
                clippy::unnecessary_cast,
                reason = "truncation is what the method promises; u128 is one of the types"
            )]
            fn from_u128(value: u128) -> Self {
                value as $t
            }
            #[inline(always)]
            fn read(bytes: &[u8]) -> Self {
                match bytes.first_chunk() {
                    Some(b) => <$t>::from_le_bytes(*b),
                    None => 0,
                }
            }
            #[inline(always)]
            fn write(self, bytes: &mut [u8]) {
                if let Some(b) = bytes.first_chunk_mut() {
                    *b = self.to_le_bytes();
                }
            }
        }
    )*};
}
scalar!(u8, u16, u32, u64, u128);

/// Memory and time as one CPU sees them.
///
/// **Counting.** The CPU counts data accesses statically: one per load or store micro-op
/// (a read-modify-write is a load and a store: two), told by [`count_accesses`](Bus::count_accesses)
/// once per executed block, before the block runs, and corrected when a block is left early. So a bus counts
/// only TLB misses on its slow path, and hits = accesses − misses. Accesses made through
/// [`fill`](Bus::fill) and [`copy`](Bus::copy) (x86 string instructions) are not in the static
/// count: the CPU adds one per element and per direction after each call.
///
/// **Code.** The CPU fetches instructions once, when it decodes a block; entering a block on
/// another page than the current one calls [`fetch`](Bus::fetch), so the instruction TLB sees one
/// access per page change. The bus remembers which physical pages hold decoded code
/// ([`note_code`](Bus::note_code)) and reports stores to them.
pub trait Bus {
    /// What a failed access yields; it is handed through to [`Exit::Fault`](crate::Exit::Fault).
    type Fault: Copy + std::fmt::Debug;

    /// Loads `T` from `va`, any alignment.
    ///
    /// # Errors
    /// The architectural fault; nothing was changed.
    fn load<T: Scalar>(&mut self, va: VirtAddr) -> Result<T, Self::Fault>;

    /// Stores `value` at `va`, any alignment.
    ///
    /// # Errors
    /// The architectural fault; nothing was changed, not even a leading part on another page.
    fn store<T: Scalar>(&mut self, va: VirtAddr, value: T) -> Result<(), Self::Fault>;

    /// Loads `T` from `va` with write intent: it faults as a write would, so the store of the same
    /// size to the same address that follows cannot fault.
    ///
    /// # Errors
    /// The architectural fault, as of a write.
    fn load_for_write<T: Scalar>(&mut self, va: VirtAddr) -> Result<T, Self::Fault>;

    /// Whether [`load_fast`](Bus::load_fast) and [`store_fast`](Bus::store_fast) are worth calling.
    const HAS_FAST: bool = false;

    /// As [`load`](Bus::load) where that is cheap (a hit in the translation cache, one page); `None`
    /// if it is not, with nothing done and nothing counted: the CPU then calls `load`. Must inline
    /// to a few instructions without a call.
    #[inline(always)]
    fn load_fast<T: Scalar>(&mut self, va: VirtAddr) -> Option<T> {
        let _ = va;
        None
    }

    /// As [`store`](Bus::store) where that is cheap; `false` if it is not, with nothing done and
    /// nothing counted.
    #[inline(always)]
    fn store_fast<T: Scalar>(&mut self, va: VirtAddr, value: T) -> bool {
        let _ = (va, value);
        false
    }

    /// Translates an instruction address (instruction TLB, execute permission) to the physical
    /// address of that byte.
    ///
    /// # Errors
    /// The architectural fault of an instruction fetch at `va`.
    fn fetch(&mut self, va: VirtAddr) -> Result<PhysAddr, Self::Fault>;

    /// Reads code bytes at `pa`, inside one page, for the decoder. Counts nothing.
    fn read_code(&mut self, pa: PhysAddr, into: &mut [u8]);

    /// Says that the page of `pa` now holds decoded code: later stores to it (by this CPU,
    /// another one, the kernel layer or a device) must show in [`code_dirty`](Bus::code_dirty).
    fn note_code(&mut self, pa: PhysAddr);

    /// Whether pages given to [`note_code`](Bus::note_code) were written since they were last
    /// taken. Asked once per block, so it must be a plain flag test.
    fn code_dirty(&self) -> bool;

    /// Next written code page, if any; its blocks are dropped and the page is no longer noted.
    fn take_dirty_code(&mut self) -> Option<PhysAddr>;

    /// Adds `n` data accesses (negative when a block was left early).
    fn count_accesses(&mut self, n: i64);

    /// Virtual time of `RDTSC` and `CNTVCT_EL0`, given the instructions retired by this CPU since
    /// [`run`](crate::Cpu::run) was entered, this one included.
    fn counter(&mut self, retired_in_run_nr: u64) -> u64;

    /// Frequency of [`counter`](Bus::counter) in Hz (`CNTFRQ_EL0`).
    fn counter_hz(&self) -> u64;

    /// arm64 `DC ZVA` and bulk stores: writes `count` elements of `T` upwards from `va`. Returns how
    /// many elements were written before a fault. An implementor translates once per page; elements that
    /// straddle pages go through [`store`](Bus::store). The default is a loop of stores.
    #[inline]
    fn fill<T: Scalar>(
        &mut self,
        va: VirtAddr,
        value: T,
        count: u64,
    ) -> (u64, Result<(), Self::Fault>) {
        for i in 0..count {
            let at = va.wrapping_add(i.wrapping_mul(u64::from(T::BYTES)));
            if let Err(fault) = self.store(at, value) {
                return (i, Err(fault));
            }
        }
        (count, Ok(()))
    }

    /// Copies `count` elements of `T` upwards, element by element in order (so overlapping regions
    /// replicate, as `rep movs` does). Returns how many elements were copied before a fault. The default is
    /// a loop of loads and stores.
    #[inline]
    fn copy<T: Scalar>(
        &mut self,
        to: VirtAddr,
        from: VirtAddr,
        count: u64,
    ) -> (u64, Result<(), Self::Fault>) {
        for i in 0..count {
            let offset = i.wrapping_mul(u64::from(T::BYTES));
            let value = match self.load::<T>(from.wrapping_add(offset)) {
                Ok(value) => value,
                Err(fault) => return (i, Err(fault)),
            };
            if let Err(fault) = self.store(to.wrapping_add(offset), value) {
                return (i, Err(fault));
            }
        }
        (count, Ok(()))
    }
}
