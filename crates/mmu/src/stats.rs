//! What the TLB model counts.

use std::ops::AddAssign;

macro_rules! stats {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        /// Counters of one CPU's TLBs and walker, or of several added up.
        ///
        /// An access is a data access or a fetch that the CPU asked to translate; one that
        /// crosses a page boundary is two. Hits of the first level are the accesses that did not
        /// miss; they are known by kind, not by page size, because a hit costs one store.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
        pub struct TlbStats {
            $($(#[$doc])* pub $name: u64,)*
            /// By kind of flush: how many, and the TLB and walk-cache entries they dropped.
            pub flushes: [FlushStats; FlushKind::COUNT],
        }

        impl TlbStats {
            /// Names and values in a fixed order, flushes last.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
                let plain = [$((stringify!($name), self.$name),)*];
                let flushes = FlushKind::NAMES.iter().zip(&self.flushes).flat_map(|(names, f)| {
                    names.iter().copied().zip([f.ops, f.entries, f.walk_entries])
                });
                plain.into_iter().chain(flushes)
            }
        }

        impl AddAssign<&TlbStats> for TlbStats {
            fn add_assign(&mut self, other: &TlbStats) {
                $(self.$name += other.$name;)*
                for (sum, f) in self.flushes.iter_mut().zip(&other.flushes) {
                    sum.ops += f.ops;
                    sum.entries += f.entries;
                    sum.walk_entries += f.walk_entries;
                }
            }
        }
    };
}

stats! {
    /// Data accesses.
    data_accesses;
    /// Translations of instruction addresses: one per block entered on another page.
    fetches;
    /// Data accesses that the first level served.
    l1d_hits;
    /// Data accesses that it did not.
    l1d_misses;
    /// … of them reads.
    l1d_read_misses;
    /// … of them writes.
    l1d_write_misses;
    /// Entries written into the first level for data.
    l1d_inserts;
    /// … that replaced a valid one.
    l1d_evictions;
    /// Fetches that the first level served.
    l1i_hits;
    /// Fetches that it did not.
    l1i_misses;
    /// Entries written into the first level for fetches, if apart.
    l1i_inserts;
    /// … that replaced a valid one.
    l1i_evictions;
    /// First-level misses that the second level served.
    l2_hits;
    /// First-level misses that it did not, or that had no second level to go to.
    l2_misses;
    /// Second-level hits for fetches (among `l2_hits`).
    l2_fetch_hits;
    /// Second-level misses for fetches (among `l2_misses`).
    l2_fetch_misses;
    /// Second-level hits on 4 KiB entries.
    l2_hits_4k;
    /// … on coalesced 16 KiB entries.
    l2_hits_16k;
    /// … on contiguous 64 KiB entries.
    l2_hits_64k;
    /// … on 2 MiB entries.
    l2_hits_2m;
    /// … on contiguous 32 MiB entries.
    l2_hits_32m;
    /// … on larger ones.
    l2_hits_1g;
    /// Entries written into the second level.
    l2_inserts;
    /// … that replaced a valid one.
    l2_evictions;
    /// Page-table walks.
    walks;
    /// Walks that found a 4 KiB translation.
    walks_4k;
    /// … a coalesced 16 KiB one.
    walks_16k;
    /// … a contiguous 64 KiB one.
    walks_64k;
    /// … a 2 MiB one.
    walks_2m;
    /// … a contiguous 32 MiB one.
    walks_32m;
    /// … a larger one.
    walks_1g;
    /// Walks that ended in a fault.
    walk_faults;
    /// Walks because a write hit an entry whose page was not known to be dirty (among `walks`).
    dirty_walks;
    /// Walks because a cached translation denied an access (among `walks`).
    denial_walks;
    /// Faults that a cached translation caused without a walk.
    tlb_denials;
    /// Table entries loaded by walks.
    walk_loads;
    /// … at level 0 (PGD, PML4E).
    walk_loads_l0;
    /// … at level 1 (PUD, PDPTE).
    walk_loads_l1;
    /// … at level 2 (PMD, PDE).
    walk_loads_l2;
    /// … at level 3 (PTE).
    walk_loads_l3;
    /// Walks that began below a cached PGD entry.
    walk_cache_hits_l0;
    /// … PUD entry.
    walk_cache_hits_l1;
    /// … PMD entry.
    walk_cache_hits_l2;
    /// Walks that began at the root.
    walk_cache_misses;
    /// Entries written into walk caches.
    walk_cache_inserts;
    /// … that replaced a valid one.
    walk_cache_evictions;
    /// Table entries in which the walker set the accessed state.
    accessed_writes;
    /// … the dirty state.
    dirty_writes;
    /// Uses of a translation whose table entry had changed (only if watched).
    stale_uses;
}

/// What dropped entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushKind {
    /// x86-64 INVLPG.
    Invlpg,
    /// x86-64 MOV to CR3 of the root that is loaded.
    Cr3Reload,
    /// x86-64 INVPCID type 0.
    InvpcidAddr,
    /// x86-64 INVPCID type 1.
    InvpcidSingle,
    /// x86-64 INVPCID type 2, or a toggle of CR4.PGE.
    InvpcidAll,
    /// arm64 TLBI by address, heard by this CPU.
    TlbiVa,
    /// arm64 TLBI by range.
    TlbiRange,
    /// arm64 TLBI by ASID.
    TlbiAsid,
    /// arm64 TLBI of everything.
    TlbiAll,
    /// A switch of address spaces that flushes the new one.
    Switch,
    /// x86-64: a page fault drops what its address used.
    PageFault,
}

impl FlushKind {
    /// How many kinds.
    pub const COUNT: usize = 11;
    /// Names of the three counters of each kind.
    const NAMES: [[&'static str; 3]; FlushKind::COUNT] = [
        ["flush_invlpg_ops", "flush_invlpg_entries", "flush_invlpg_walk_entries"],
        ["flush_cr3_ops", "flush_cr3_entries", "flush_cr3_walk_entries"],
        ["flush_invpcid_addr_ops", "flush_invpcid_addr_entries", "flush_invpcid_addr_walk_entries"],
        [
            "flush_invpcid_single_ops",
            "flush_invpcid_single_entries",
            "flush_invpcid_single_walk_entries",
        ],
        ["flush_invpcid_all_ops", "flush_invpcid_all_entries", "flush_invpcid_all_walk_entries"],
        ["flush_tlbi_va_ops", "flush_tlbi_va_entries", "flush_tlbi_va_walk_entries"],
        ["flush_tlbi_range_ops", "flush_tlbi_range_entries", "flush_tlbi_range_walk_entries"],
        ["flush_tlbi_asid_ops", "flush_tlbi_asid_entries", "flush_tlbi_asid_walk_entries"],
        ["flush_tlbi_all_ops", "flush_tlbi_all_entries", "flush_tlbi_all_walk_entries"],
        ["flush_switch_ops", "flush_switch_entries", "flush_switch_walk_entries"],
        ["flush_page_fault_ops", "flush_page_fault_entries", "flush_page_fault_walk_entries"],
    ];
}

/// Flushes of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FlushStats {
    /// How many this CPU carried out.
    pub ops: u64,
    /// TLB entries dropped, both levels.
    pub entries: u64,
    /// Walk-cache entries dropped.
    pub walk_entries: u64,
}

impl TlbStats {
    pub(crate) fn l2_hits_of(&mut self, shift: u32) -> &mut u64 {
        match shift {
            ..=12 => &mut self.l2_hits_4k,
            13..=14 => &mut self.l2_hits_16k,
            15..=16 => &mut self.l2_hits_64k,
            17..=21 => &mut self.l2_hits_2m,
            22..=25 => &mut self.l2_hits_32m,
            26.. => &mut self.l2_hits_1g,
        }
    }

    pub(crate) fn walks_of(&mut self, shift: u32) -> &mut u64 {
        match shift {
            ..=12 => &mut self.walks_4k,
            13..=14 => &mut self.walks_16k,
            15..=16 => &mut self.walks_64k,
            17..=21 => &mut self.walks_2m,
            22..=25 => &mut self.walks_32m,
            26.. => &mut self.walks_1g,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique() {
        let stats = TlbStats::default();
        let names: BTreeSet<_> = stats.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), stats.iter().count());
        assert!(names.contains("l1d_hits") && names.contains("flush_tlbi_va_entries"));
    }
}
