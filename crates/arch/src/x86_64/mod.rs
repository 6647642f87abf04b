//! x86-64: encodings, primitives that touch one entry each, and IPI-driven TLB flushes.

pub mod bits;
mod hugetlbpage;
mod pte;
mod ptops;
mod tlbflush;

pub use tlbflush::{CpuMask, CpuTlb, MmTlb, Slots};

/// x86-64 with four-level paging.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct X86_64;
