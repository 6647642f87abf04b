//! Bits of a VMSAv8-64 stage 1 descriptor, 4 KiB granule, 48-bit addresses.
//!
//! Source: Arm DDI 0487, "The VMSAv8-64 translation table format"; the software bits as Linux
//! 7.3 arch/arm64/include/asm/pgtable-prot.h assigns them.

/// A walk may use the descriptor.
pub const VALID: u64 = 1 << 0;
/// With VALID: a table above the last level, a page at the last level; without it, a block.
pub const TABLE: u64 = 1 << 1;
/// Position of the memory-type index into MAIR.
pub const ATTR_SHIFT: u32 = 2;
/// The memory-type index into MAIR. 0 is Normal, 1 Normal-Tagged.
pub const ATTR_MASK: u64 = 7 << ATTR_SHIFT;
/// AP\[1\]: EL0 may access.
pub const USER: u64 = 1 << 6;
/// AP\[2\]: read-only for everyone.
pub const RDONLY: u64 = 1 << 7;
/// SH: shareability.
pub const SHARED_MASK: u64 = 3 << 8;
/// SH: inner shareable.
pub const SHARED: u64 = 3 << 8;
/// Access flag.
pub const AF: u64 = 1 << 10;
/// nG: tagged with the ASID.
pub const NG: u64 = 1 << 11;
/// The same bit while VALID is clear: present for software only.
pub const PRESENT_INVALID: u64 = NG;
/// Guarded page (BTI).
pub const GP: u64 = 1 << 50;
/// DBM, which Linux calls WRITE: hardware may turn a read-only leaf writable to mark it dirty.
pub const WRITE: u64 = 1 << 51;
/// Contiguous.
pub const CONT: u64 = 1 << 52;
/// No instruction fetch at EL1.
pub const PXN: u64 = 1 << 53;
/// No instruction fetch at EL0.
pub const UXN: u64 = 1 << 54;
/// Software: dirty.
pub const DIRTY: u64 = 1 << 55;
/// Software: no `struct page` behind it.
pub const SPECIAL: u64 = 1 << 56;
/// Software: userfaultfd write protection.
pub const UFFD_WP: u64 = 1 << 58;
/// Software: changes that stay within these bits never need a TLB flush.
pub const SWBITS_MASK: u64 = 1 << 63 | 0xf << 55;
/// Permission overlay index.
pub const PO_IDX_MASK: u64 = 7 << 60;
/// Address of the next table, or of a page.
pub const ADDR_MASK: u64 = 0x0000_ffff_ffff_f000;
/// Address of a 2 MiB block.
pub const ADDR_MASK_2M: u64 = 0x0000_ffff_ffe0_0000;
/// Address of a 1 GiB block.
pub const ADDR_MASK_1G: u64 = 0x0000_ffff_c000_0000;
/// Table descriptor: no fetch at EL1 below it.
pub const TABLE_PXN: u64 = 1 << 59;
/// Table descriptor: no fetch at EL0 below it.
pub const TABLE_UXN: u64 = 1 << 60;
/// Table descriptor, APTable\[0\]: no EL0 access below it.
pub const TABLE_NO_USER: u64 = 1 << 61;
/// Table descriptor, APTable\[1\]: read-only below it.
pub const TABLE_RDONLY: u64 = 1 << 62;

/// Entries of a contiguous block at the last level, and at level 2.
pub const CONT_PTES: u64 = 16;
/// Bytes that a contiguous block of last-level entries spans.
pub const CONT_PTE_SIZE: u64 = CONT_PTES << units::PAGE_SHIFT;
