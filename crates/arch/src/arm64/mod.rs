//! arm64: encodings, the contpte layer over the primitives, and broadcast TLB maintenance.

mod bbm;
pub mod bits;
mod contpte;
mod hugetlbpage;
mod pte;
mod ptops;
mod tlbflush;

pub use bbm::{ContBlockMismatch, check_cont_block, is_bbm_violation};
pub use tlbflush::{AsidAllocator, CpuAsid, MmAsid};

/// AArch64, VMSAv8-64 with 4 KiB granule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arm64;
