//! Bits of an x86-64 paging-structure entry.
//!
//! Source: Intel SDM 3A, "4-Level Paging and 5-Level Paging"; the software bits as Linux 7.3
//! arch/x86/include/asm/pgtable_types.h assigns them.

/// P: present.
pub const PRESENT: u64 = 1 << 0;
/// R/W: writable, ANDed over the levels.
pub const RW: u64 = 1 << 1;
/// U/S: user, ANDed over the levels.
pub const USER: u64 = 1 << 2;
/// PWT: cache-mode index bit 0.
pub const PWT: u64 = 1 << 3;
/// PCD: cache-mode index bit 1.
pub const PCD: u64 = 1 << 4;
/// A: accessed, on every level that a walk used.
pub const ACCESSED: u64 = 1 << 5;
/// D: dirty, leaves only.
pub const DIRTY: u64 = 1 << 6;
/// PS: a leaf, above the last level.
pub const PSE: u64 = 1 << 7;
/// PAT of a 4 KiB leaf: cache-mode index bit 2.
pub const PAT: u64 = 1 << 7;
/// G: global, leaves only.
pub const GLOBAL: u64 = 1 << 8;
/// The same bit while P is clear: PROT_NONE.
pub const PROTNONE: u64 = GLOBAL;
/// Software: no `struct page` behind it.
pub const SPECIAL: u64 = 1 << 9;
/// Software: userfaultfd write protection.
pub const UFFD_WP: u64 = 1 << 10;
/// Software: soft-dirty.
pub const SOFT_DIRTY: u64 = 1 << 11;
/// PAT of a 2 MiB or 1 GiB leaf.
pub const PAT_LARGE: u64 = 1 << 12;
/// Software: dirty on a read-only leaf, where D would mean a shadow-stack page.
pub const SAVED_DIRTY: u64 = 1 << SAVED_DIRTY_SHIFT;
/// XD: no instruction fetch, ORed over the levels.
pub const NX: u64 = 1 << 63;
/// Position of the protection key of a leaf.
pub const PKEY_SHIFT: u32 = 59;
/// Protection key of a leaf.
pub const PKEY_MASK: u64 = 0xf << PKEY_SHIFT;
/// Address of the next table, or of a 4 KiB page.
pub const ADDR_MASK: u64 = 0x000f_ffff_ffff_f000;
/// Address of a 2 MiB page.
pub const ADDR_MASK_2M: u64 = 0x000f_ffff_ffe0_0000;
/// Address of a 1 GiB page.
pub const ADDR_MASK_1G: u64 = 0x000f_ffff_c000_0000;
/// Reserved in a 2 MiB leaf (between PAT and the address).
pub const RSVD_2M: u64 = 0x001f_e000;
/// Reserved in a 1 GiB leaf.
pub const RSVD_1G: u64 = 0x3fff_e000;

pub(crate) const RW_SHIFT: u32 = 1;
pub(crate) const DIRTY_SHIFT: u32 = 6;
pub(crate) const SAVED_DIRTY_SHIFT: u32 = 58;
/// Hardware may set these in an empty entry (an erratum that Linux tolerates).
pub(crate) const ERRATUM: u64 = ACCESSED | DIRTY;
/// What Linux puts into an entry that points to a user table.
pub(crate) const TABLE: u64 = PRESENT | RW | USER | ACCESSED | DIRTY;

/// Protection key of a leaf entry.
#[inline(always)]
pub const fn pkey(entry: u64) -> u8 {
    ((entry & PKEY_MASK) >> PKEY_SHIFT).to_le_bytes()[0]
}
