//! What a non-present, non-empty entry stands for: a swap slot, a migrating page, a marker.
//!
//! Source: Linux 7.3 include/linux/leafops.h and swapops.h; type numbers as include/linux/swap.h
//! yields them with memory failure, migration and device memory configured.

use units::Pfn;

/// Type and offset of a non-present entry, independent of how the architecture packs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Softleaf {
    /// Swap device or special type, 5 bits.
    pub ty: u8,
    /// Swap slot, frame number with flags, or marker bits: 50 bits.
    pub offset: u64,
}

/// What a [`Softleaf`] means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SoftleafKind {
    /// A slot of a swap device.
    Swap,
    /// `hwpoison`.
    HwPoison,
    /// A page under migration, mapped read-only before.
    MigrationRead,
    /// A page under migration, exclusive and read-only before.
    MigrationReadExclusive,
    /// A page under migration, writable before.
    MigrationWrite,
    /// Device memory; never created here.
    Device,
    /// A PTE marker.
    Marker,
}

/// Bits that an offset has.
pub(crate) const OFFSET_MASK: u64 = (1 << 50) - 1;

impl Softleaf {
    /// Real swap devices (`MAX_SWAPFILES`): types below are swap.
    pub const MAX_SWAPFILES: u8 = 24;
    const HWPOISON: u8 = 24;
    const MIGRATION_READ: u8 = 25;
    const MIGRATION_READ_EXCLUSIVE: u8 = 26;
    const MIGRATION_WRITE: u8 = 27;
    const MARKER: u8 = 31;
    /// Bits of a frame number in the offset; migration flags lie above.
    const PFN_BITS: u32 = 40;

    /// Marker bit: uffd write protection.
    pub const MARKER_UFFD_WP: u64 = 1 << 0;
    /// Marker bit: poisoned.
    pub const MARKER_POISONED: u64 = 1 << 1;
    /// Marker bit: guard region.
    pub const MARKER_GUARD: u64 = 1 << 2;

    /// A slot of swap device `ty`.
    pub const fn swap(ty: u8, offset: u64) -> Self {
        Softleaf { ty, offset }
    }

    /// A marker with the given bits.
    pub const fn marker(bits: u64) -> Self {
        Softleaf { ty: Softleaf::MARKER, offset: bits }
    }

    /// A migration entry for `pfn`.
    pub const fn migration(kind: SoftleafKind, pfn: Pfn, young: bool, dirty: bool) -> Self {
        let ty = match kind {
            SoftleafKind::MigrationWrite => Softleaf::MIGRATION_WRITE,
            SoftleafKind::MigrationReadExclusive => Softleaf::MIGRATION_READ_EXCLUSIVE,
            _ => Softleaf::MIGRATION_READ,
        };
        let flags = (young as u64) | (dirty as u64) << 1;
        Softleaf { ty, offset: pfn.get() | flags << Softleaf::PFN_BITS }
    }

    /// What it means.
    pub const fn kind(self) -> SoftleafKind {
        match self.ty {
            0..Softleaf::MAX_SWAPFILES => SoftleafKind::Swap,
            Softleaf::HWPOISON => SoftleafKind::HwPoison,
            Softleaf::MIGRATION_READ => SoftleafKind::MigrationRead,
            Softleaf::MIGRATION_READ_EXCLUSIVE => SoftleafKind::MigrationReadExclusive,
            Softleaf::MIGRATION_WRITE => SoftleafKind::MigrationWrite,
            Softleaf::MARKER => SoftleafKind::Marker,
            _ => SoftleafKind::Device,
        }
    }

    /// Whether it names a swap slot.
    pub const fn is_swap(self) -> bool {
        matches!(self.kind(), SoftleafKind::Swap)
    }

    /// Whether it is a migration entry.
    pub const fn is_migration(self) -> bool {
        matches!(
            self.kind(),
            SoftleafKind::MigrationRead
                | SoftleafKind::MigrationReadExclusive
                | SoftleafKind::MigrationWrite
        )
    }

    /// The frame of a migration entry.
    pub const fn pfn(self) -> Pfn {
        Pfn::new(self.offset & ((1 << Softleaf::PFN_BITS) - 1))
    }

    /// Whether the migrating page was young.
    pub const fn migration_young(self) -> bool {
        self.offset >> Softleaf::PFN_BITS & 1 != 0
    }

    /// Whether the migrating page was dirty.
    pub const fn migration_dirty(self) -> bool {
        self.offset >> Softleaf::PFN_BITS & 2 != 0
    }

    /// The entry `n` slots further.
    pub const fn advance(self, n: u64) -> Self {
        Softleaf { ty: self.ty, offset: self.offset + n }
    }
}
