//! Kernel versions and patches as data: one field per behaviour, each naming the change in
//! Linux that it stands for.

/// How KSM breaks a merged page (`break_ksm()`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakKsm {
    /// `follow_page()` per page, with a reference taken (until 6.1).
    FollowPage,
    /// `walk_page_range_vma()` per page, one callback (6.2; patch `ksm-walk-vma`).
    WalkVma,
    /// The same with a second callback (patch `ksm-walk-vma-pud`).
    WalkVmaPud,
    /// `folio_walk_start()` per page (6.12).
    FolioWalk,
    /// One range walk per VMA that stops at each KSM page (7.3).
    RangeWalk,
}

/// Which functions the swap layer is made of; the page-table work is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwapApi {
    /// `add_to_swap()`, per-CPU slot caches, `swap_duplicate()`, `swap_free_nr()`.
    SlotCache,
    /// `folio_alloc_swap()`, `folio_dup_swap()`, `folio_put_swap()` over locked clusters.
    Cluster,
}

/// The behaviours of one kernel: a preset with patches applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelConfig {
    /// Name as given: `v7.3+anon-unmap-batch`.
    pub name: String,
    /// Anonymous folios of orders 2–8 (6.8, "mTHP").
    pub anon_mthp: bool,
    /// arm64 contpte layer (6.9).
    pub contpte: bool,
    /// The folded `ptep_get()` stops once it saw young and dirty (after 6.12).
    pub contpte_get_early_stop: bool,
    /// arm64 skips the flush inside a fold or unfold on cores with BBML2-noabort (7.2).
    pub bbml2_noabort: bool,
    /// … and on cores with BBML3 or on the longer list (7.3).
    pub bbml3: bool,
    /// Raising access flags flushes only this CPU on arm64 (7.2).
    pub access_flags_flush_local: bool,
    /// Young bits of a large folio are tested and cleared in one call (7.x).
    pub young_ptes_batched: bool,
    /// `page_vma_mapped_walk()` pre-checks with a lockless read, and stops by itself once all
    /// pages of the folio were seen (7.2).
    pub pvmw_lockless_precheck: bool,
    /// Lazyfree and file folios are unmapped in batches (6.15, 7.2).
    pub lazyfree_unmap_batched: bool,
    /// A PMD-mapped lazyfree folio is discarded whole (6.15).
    pub lazyfree_pmd_discard: bool,
    /// Anonymous swap-backed folios are unmapped in batches (patch `anon-unmap-batch`).
    pub anon_unmap_batched: bool,
    /// `set_softleaf_ptes()` stores each entry through `set_pte_at()`, which on arm64 reads it
    /// first. The posted series does not settle this.
    pub softleaf_raw_check: bool,
    /// The batched path also looks at the first entry once, as the marker helper does.
    pub anon_unmap_marker_check: bool,
    /// A child starts with its parent's `tlb_flush_batched`, so that its first operation after
    /// a reclaim of the parent flushes (6.12; reset since).
    pub fork_copies_tlb_batch: bool,
    /// x86-64 frees page tables through `tlb_remove_table()` (6.14, for INVLPGB).
    pub x86_rcu_table_free: bool,
    /// DONTNEED frees page tables that it emptied (CONFIG_PT_RECLAIM, 6.14).
    pub pt_reclaim: bool,
    /// MADV_COLD of a young PMD goes through `pmdp_invalidate()` (7.x); 6.12 clears the bit.
    pub cold_pmd_invalidate: bool,
    /// `mprotect()` changes runs of PTEs (6.17).
    pub mprotect_batched: bool,
    /// `try_to_migrate()` splits a PMD leaf where its walk finds it (7.x); before the walk, by
    /// address, until then.
    pub migrate_splits_in_walk: bool,
    /// arm64 flushes after a change of protection only if the entry was valid and more than
    /// software bits changed (7.x); always before.
    pub arm64_pte_needs_flush: bool,
    /// `mremap()` moves folded runs of PTEs (6.17).
    pub mremap_batched: bool,
    /// A write to an exclusive large folio reuses it (6.15).
    pub wp_reuse_large: bool,
    /// The uffd-wp marker helper looks at the entry even for anonymous memory
    /// (CONFIG_PTE_MARKER_UFFD_WP, the `M` of the closed forms).
    pub pte_marker_uffd_wp: bool,
    /// `follow_page_mask()` keeps the THP stride when pages are recorded (6.5; patch
    /// `gup-thp-stride`).
    pub gup_thp_stride: bool,
    /// hugetlb goes through `follow_page_mask()` and `faultin_page()` (6.5; patch
    /// `gup-hugetlb-unify`).
    pub gup_hugetlb_unified: bool,
    /// Long-term pins for writing of shared mappings that a file system writes back are refused
    /// (6.5).
    pub gup_longterm_file_refused: bool,
    /// hugetlb has no page-table walk of its own in GUP: the generic one finds its leaves, and
    /// takes contiguous entries one by one (6.10).
    pub gup_hugetlb_generic: bool,
    /// arm64 flushes a contiguous set of hugetlb by the size of its entries, leaves only, and
    /// not at all when it is written over invalid entries (6.15).
    pub hugetlb_tlb_hints: bool,
    /// Unmapping the last mapping of a private huge page gives its reservation back to the
    /// mapping (6.9).
    pub hugetlb_restore_reserve: bool,
    /// `follow_page_mask()` returns runs of PTEs (patch `gup-pte-batch`).
    pub gup_pte_batch: bool,
    /// A private mapping of `/dev/zero` is placed at a multiple of 2 MiB, as other anonymous
    /// memory (after 6.12).
    pub zero_device_aligned: bool,
    /// A run's references are taken in one call, instead of one for the first page and one for
    /// the rest. The posted series does not settle this.
    pub gup_merge_grab: bool,
    /// `follow_pte_batch()` finds a run in a loop of its own, with the same looks at entries as
    /// `folio_pte_batch()`, which it calls when this is off. The series is not public enough to
    /// tell; what was measured on 6.12 has the loop, on 7.3 the call.
    pub gup_batch_own_scan: bool,
    /// Runs of read-only entries are taken too, bounded by pages that are equally exclusive; off,
    /// a read-only entry that is pinned or written by force is a run of its own, as in the first
    /// posting. The review asked for the former.
    pub gup_ro_pin_exclusive_run: bool,
    /// GUP-fast re-checks by `ptep_get_lockless()` (7.x), by `ptep_get()` before.
    pub gup_fast_recheck_lockless: bool,
    /// The vDSO's data pages are those of lib/vdso/datastore.c, one VMA of four pages, and x86-64
    /// has the clocks of hypervisors in one of its own (6.14).
    pub vdso_generic_data: bool,
    /// A fault says that it wrote (VM_FAULT_WRITE), so that `break_ksm()` looks once for each
    /// page (until 6.1; removed at the start of the series of `ksm-walk-vma`).
    pub ksm_fault_write: bool,
    /// The form of `break_ksm()`.
    pub break_ksm: BreakKsm,
    /// The form of the swap layer.
    pub swap_api: SwapApi,
}

/// The name is no preset or patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownKernel {
    /// What was asked for.
    pub name: String,
    /// What could have been.
    pub known: Vec<&'static str>,
}

impl std::fmt::Display for UnknownKernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "unknown kernel or patch `{}`; known: {}", self.name, self.known.join(", "))
    }
}

impl std::error::Error for UnknownKernel {}

/// A patch: name, what it does, and the field it flips.
struct Patch {
    name: &'static str,
    summary: &'static str,
    apply: fn(&mut KernelConfig, bool),
}

const PATCHES: &[Patch] = &[
    Patch {
        name: "gup-thp-stride",
        summary: "GUP keeps the THP stride when pages are recorded",
        apply: |k, on| k.gup_thp_stride = on,
    },
    Patch {
        name: "gup-hugetlb-unify",
        summary: "GUP walks hugetlb through follow_page_mask() and faultin_page()",
        apply: |k, on| k.gup_hugetlb_unified = on,
    },
    Patch {
        name: "ksm-walk-vma",
        summary: "break_ksm() by walk_page_range_vma() with one callback",
        apply: |k, on| k.set_break_ksm(BreakKsm::WalkVma, on),
    },
    Patch {
        name: "ksm-walk-vma-pud",
        summary: "break_ksm() by walk_page_range_vma() with two callbacks",
        apply: |k, on| k.set_break_ksm(BreakKsm::WalkVmaPud, on),
    },
    Patch {
        name: "gup-pte-batch",
        summary: "follow_page_mask() returns runs of PTEs of one large folio",
        apply: |k, on| k.gup_pte_batch = on,
    },
    Patch {
        name: "anon-unmap-batch",
        summary: "try_to_unmap_one() unmaps anonymous swap-backed folios in batches",
        apply: |k, on| k.anon_unmap_batched = on,
    },
];

/// A preset: name, what it stands for, and its behaviours.
type Preset = (&'static str, &'static str, fn() -> KernelConfig);

const PRESETS: &[Preset] = &[
    ("v6.1", "before the GUP unification and before mTHP", KernelConfig::v6_1),
    (
        "v6.5",
        "GUP unified, THP at full stride, break_ksm by walk_page_range_vma",
        KernelConfig::v6_5,
    ),
    ("v6.12", "mTHP and contpte; everything page by page (measured)", KernelConfig::v6_12),
    (
        "v7.3",
        "batched mprotect, mremap, lazyfree; BBM levels (measured; default)",
        KernelConfig::v7_3,
    ),
];

impl KernelConfig {
    /// Whether functions that were renamed between 6.12 and 7.3 without doing anything else
    /// are counted under their old names.
    #[inline]
    pub(crate) fn has_6_12_names(&self) -> bool {
        self.swap_api == SwapApi::SlotCache
    }

    /// The preset that is used when none is named.
    pub const DEFAULT: &'static str = "v7.3";

    /// Presets with a line on each.
    pub fn presets() -> impl Iterator<Item = (&'static str, &'static str)> {
        PRESETS.iter().map(|p| (p.0, p.1))
    }

    /// Patches with a line on each.
    pub fn patches() -> impl Iterator<Item = (&'static str, &'static str)> {
        PATCHES.iter().map(|p| (p.name, p.summary))
    }

    /// Parses `PRESET[(+|-)PATCH]…`.
    ///
    /// # Errors
    /// [`UnknownKernel`] with the name that is not known and those that are.
    pub fn parse(spec: &str) -> Result<KernelConfig, UnknownKernel> {
        let end = spec.find(['+', '-']).unwrap_or(spec.len());
        let (base, mut rest) = spec.split_at(end);
        let Some(preset) = PRESETS.iter().find(|p| p.0 == base) else {
            let known = PRESETS.iter().map(|p| p.0).collect();
            return Err(UnknownKernel { name: base.to_owned(), known });
        };
        let mut config = (preset.2)();
        while let Some(sign) = rest.chars().next() {
            let (name, tail) = next_patch(&rest[1..]);
            let Some(patch) = PATCHES.iter().find(|p| p.name == name) else {
                let known = PATCHES.iter().map(|p| p.name).collect();
                return Err(UnknownKernel { name: name.to_owned(), known });
            };
            (patch.apply)(&mut config, sign == '+');
            rest = tail;
        }
        config.name = spec.to_owned();
        Ok(config)
    }

    /// Without either patch, `break_ksm()` is what their series replaced.
    fn set_break_ksm(&mut self, form: BreakKsm, on: bool) {
        self.break_ksm = if on { form } else { BreakKsm::FollowPage };
        self.ksm_fault_write = false;
    }

    fn v6_1() -> KernelConfig {
        KernelConfig {
            name: "v6.1".to_owned(),
            anon_mthp: false,
            contpte: false,
            gup_thp_stride: false,
            gup_longterm_file_refused: false,
            gup_hugetlb_unified: false,
            ksm_fault_write: true,
            gup_hugetlb_generic: false,
            hugetlb_restore_reserve: false,
            break_ksm: BreakKsm::FollowPage,
            ..KernelConfig::v6_12()
        }
    }

    fn v6_5() -> KernelConfig {
        KernelConfig {
            name: "v6.5".to_owned(),
            anon_mthp: false,
            contpte: false,
            gup_hugetlb_generic: false,
            hugetlb_restore_reserve: false,
            break_ksm: BreakKsm::WalkVma,
            ..KernelConfig::v6_12()
        }
    }

    fn v6_12() -> KernelConfig {
        KernelConfig {
            name: "v6.12".to_owned(),
            anon_mthp: true,
            contpte: true,
            contpte_get_early_stop: false,
            bbml2_noabort: false,
            bbml3: false,
            access_flags_flush_local: false,
            young_ptes_batched: false,
            pvmw_lockless_precheck: false,
            lazyfree_unmap_batched: false,
            lazyfree_pmd_discard: false,
            anon_unmap_batched: false,
            softleaf_raw_check: true,
            anon_unmap_marker_check: true,
            fork_copies_tlb_batch: true,
            x86_rcu_table_free: false,
            pt_reclaim: false,
            cold_pmd_invalidate: false,
            mprotect_batched: false,
            migrate_splits_in_walk: false,
            arm64_pte_needs_flush: false,
            mremap_batched: false,
            wp_reuse_large: false,
            pte_marker_uffd_wp: true,
            gup_thp_stride: true,
            gup_longterm_file_refused: true,
            gup_hugetlb_unified: true,
            gup_hugetlb_generic: true,
            hugetlb_tlb_hints: false,
            hugetlb_restore_reserve: true,
            gup_pte_batch: false,
            zero_device_aligned: false,
            gup_merge_grab: false,
            gup_batch_own_scan: false,
            gup_ro_pin_exclusive_run: false,
            gup_fast_recheck_lockless: false,
            vdso_generic_data: false,
            ksm_fault_write: false,
            break_ksm: BreakKsm::FolioWalk,
            swap_api: SwapApi::SlotCache,
        }
    }

    fn v7_3() -> KernelConfig {
        KernelConfig {
            name: "v7.3".to_owned(),
            contpte_get_early_stop: true,
            bbml2_noabort: true,
            bbml3: true,
            access_flags_flush_local: true,
            young_ptes_batched: true,
            pvmw_lockless_precheck: true,
            lazyfree_unmap_batched: true,
            lazyfree_pmd_discard: true,
            pt_reclaim: true,
            fork_copies_tlb_batch: false,
            x86_rcu_table_free: true,
            cold_pmd_invalidate: true,
            mprotect_batched: true,
            migrate_splits_in_walk: true,
            arm64_pte_needs_flush: true,
            mremap_batched: true,
            wp_reuse_large: true,
            gup_fast_recheck_lockless: true,
            vdso_generic_data: true,
            zero_device_aligned: true,
            hugetlb_tlb_hints: true,
            break_ksm: BreakKsm::RangeWalk,
            swap_api: SwapApi::Cluster,
            ..KernelConfig::v6_12()
        }
    }
}

/// Splits at the sign before the next patch name: patch names contain `-` themselves, so the
/// longest known name wins.
fn next_patch(rest: &str) -> (&str, &str) {
    let known = PATCHES
        .iter()
        .map(|p| p.name)
        .filter(|name| {
            rest.strip_prefix(name).is_some_and(|t| t.is_empty() || t.starts_with(['+', '-']))
        })
        .max_by_key(|name| name.len());
    match known {
        Some(name) => rest.split_at(name.len()),
        None => rest.split_at(rest.find('+').unwrap_or(rest.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_are_added_and_removed() {
        let k = KernelConfig::parse("v7.3+anon-unmap-batch-gup-thp-stride").expect("known");
        assert!(k.anon_unmap_batched && !k.gup_thp_stride);
        assert_eq!(k.name, "v7.3+anon-unmap-batch-gup-thp-stride");
        let k = KernelConfig::parse("v6.1+ksm-walk-vma-pud+gup-pte-batch").expect("known");
        assert_eq!((k.break_ksm, k.gup_pte_batch), (BreakKsm::WalkVmaPud, true));
    }

    #[test]
    fn unknown_names_list_the_known_ones() {
        let err = KernelConfig::parse("v5.0").expect_err("unknown");
        assert!(err.to_string().contains("v6.12"), "{err}");
        let err = KernelConfig::parse("v7.3+nonsense").expect_err("unknown");
        assert!(err.to_string().contains("`nonsense`") && err.known.contains(&"gup-pte-batch"));
    }
}
