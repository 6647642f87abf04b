//! Newtypes of the emulator: addresses, frame and page numbers, counts, orders and reaches.
//!
//! Every signature in the workspace speaks in these; a bare `u64` is never an address, a frame
//! or a count. Arithmetic is deliberately sparse: what is not lawful for a kind is not offered.
//! The base page is 4 KiB everywhere (the granule that both modelled architectures share).

mod addr;
mod page;

pub use addr::{PhysAddr, VirtAddr};
pub use page::{Asid, CpuId, NrPages, Order, Pfn, Reach, Vpn};

/// log2 of the base page size.
pub const PAGE_SHIFT: u32 = 12;
/// Size of a base page in bytes.
pub const PAGE_SIZE: u64 = 1 << PAGE_SHIFT;
/// Entries of one translation table (x86-64 and VMSAv8-64 with 4 KiB granule alike).
pub const PTRS_PER_TABLE: usize = 512;
/// log2 of the span of one last-level table, and of a PMD leaf: 2 MiB.
pub const PMD_SHIFT: u32 = 21;
/// Span of one last-level table, and of a PMD leaf, in bytes.
pub const PMD_SIZE: u64 = 1 << PMD_SHIFT;
/// log2 of the span of a PUD leaf: 1 GiB.
pub const PUD_SHIFT: u32 = 30;
/// Span of a PUD leaf in bytes.
pub const PUD_SIZE: u64 = 1 << PUD_SHIFT;
/// Order of a PMD-sized folio.
pub const PMD_ORDER: Order = Order::PMD;

/// A CPU architecture that can be emulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ArchId {
    /// AArch64, VMSAv8-64 with 4 KiB granule.
    Arm64,
    /// x86-64 with four-level paging.
    X86_64,
}

impl ArchId {
    /// Both architectures, in the order reports list them.
    pub const ALL: [ArchId; 2] = [ArchId::Arm64, ArchId::X86_64];

    /// The name used on the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            ArchId::Arm64 => "arm64",
            ArchId::X86_64 => "x86_64",
        }
    }

    /// Parses a name; accepts the spellings that users type.
    pub fn parse(name: &str) -> Option<ArchId> {
        match name {
            "arm64" | "aarch64" => Some(ArchId::Arm64),
            "x86_64" | "x86-64" | "x86" | "amd64" => Some(ArchId::X86_64),
            _ => None,
        }
    }
}

impl std::fmt::Display for ArchId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
