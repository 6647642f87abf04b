//! Ops: the named kernel operations that events are attributed to.

use crate::Event;

macro_rules! ops {
    ($($variant:ident $name:literal $scope:ident $function:ident;)*) => {
        /// A kernel operation, named as the Linux function that it mirrors.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Op {
            $(#[doc = concat!("`", $name, "()`")] $variant,)*
        }

        impl Op {
            /// Every op.
            pub const ALL: &'static [Op] = &[$(Op::$variant,)*];

            /// The name in op paths.
            pub const fn name(self) -> &'static str {
                match self { $(Op::$variant => $name,)* }
            }
            /// The ground-truth scope that the op opens; `None` keeps the one around it.
            pub const fn scope(self) -> Option<Scope> {
                match self { $(Op::$variant => ops!(@scope $scope),)* }
            }
            /// The function-entry event counted when the op is entered.
            pub const fn function(self) -> Option<Event> {
                match self { $(Op::$variant => ops!(@function $function),)* }
            }
        }
    };
    (@scope Keep) => { None };
    (@scope $scope:ident) => { Some(Scope::$scope) };
    (@function Silent) => { None };
    (@function $function:ident) => { Some(Event::$function) };
}

// variant, name, scope (Keep: that of the caller), function-entry event (Silent: none)
ops! {
    HandleMmFault "handle_mm_fault" Keep FnHandleMmFault;
    HandlePteFault "handle_pte_fault" Fault FnHandlePteFault;
    DoAnonymousPage "do_anonymous_page" AnonFault FnDoAnonymousPage;
    DoHugePmdAnonymousPage "do_huge_pmd_anonymous_page" AnonFault FnDoHugePmdAnonymousPage;
    DoSwapPage "do_swap_page" SwapFault FnDoSwapPage;
    DoWpPage "do_wp_page" WpFault FnDoWpPage;
    DoHugePmdWpPage "do_huge_pmd_wp_page" WpFault FnDoHugePmdWpPage;
    WpPageCopy "wp_page_copy" Keep FnWpPageCopy;
    WpPageReuse "wp_page_reuse" Keep FnWpPageReuse;
    DoFault "do_fault" Keep FnDoFault;
    HugetlbFault "hugetlb_fault" Fault FnHugetlbFault;
    HugetlbNoPage "hugetlb_no_page" AnonFault FnHugetlbNoPage;
    HugetlbWp "hugetlb_wp" WpFault FnHugetlbWp;
    UnmapHugepageRange "__unmap_hugepage_range" Zap FnUnderUnmapHugepageRange;
    CopyHugetlbPageRange "copy_hugetlb_page_range" ForkCopy FnCopyHugetlbPageRange;
    HugetlbChangeProtection "hugetlb_change_protection" Mprotect FnHugetlbChangeProtection;
    MoveHugetlbPageTables "move_hugetlb_page_tables" Mremap FnMoveHugetlbPageTables;
    FollowHugetlbPage "follow_hugetlb_page" GupSlow FnFollowHugetlbPage;
    MadvisePageout "madvise_pageout" Keep Silent;
    MadviseCold "madvise_cold" Keep Silent;
    MadviseFree "madvise_free_single_vma" Keep Silent;
    MadviseDontneed "madvise_dontneed_single_vma" Keep Silent;
    MadviseColdOrPageoutPteRange "madvise_cold_or_pageout_pte_range" MadvPageout FnMadviseColdOrPageoutPteRange;
    MadviseFreePteRange "madvise_free_pte_range" MadvFree FnMadviseFreePteRange;
    MadviseFreeHugePmd "madvise_free_huge_pmd" Keep FnMadviseFreeHugePmd;
    ReclaimPages "reclaim_pages" Keep FnReclaimPages;
    ShrinkFolioList "shrink_folio_list" Keep FnShrinkFolioList;
    TryToUnmapOne "try_to_unmap_one" Unmap FnTryToUnmapOne;
    FolioReferencedOne "folio_referenced_one" Referenced FnFolioReferencedOne;
    TryToMigrateOne "try_to_migrate_one" Migrate FnTryToMigrateOne;
    SplitHugePmdLocked "__split_huge_pmd_locked" SplitPmd FnUnderSplitHugePmdLocked;
    HpageCollapseScanPmd "hpage_collapse_scan_pmd" Keep Silent;
    CollapseHugePage "collapse_huge_page" Keep Silent;
    SplitFolio "split_folio" Keep Silent;
    RemoveMigrationPte "remove_migration_pte" Keep Silent;
    ZapPteRange "zap_pte_range" Keep Silent;
    ZapHugePmd "zap_huge_pmd" Keep FnZapHugePmd;
    UnmapPageRange "unmap_page_range" Zap FnUnmapPageRange;
    ZapVmaRange "__zap_vma_range" Zap FnUnderZapVmaRange;
    TlbFinishMmu "tlb_finish_mmu" Keep FnTlbFinishMmu;
    ExitMmap "exit_mmap" ExitMmap FnExitMmap;
    FreePgtables "free_pgtables" Keep Silent;
    CopyPageRange "copy_page_range" ForkCopy FnCopyPageRange;
    ChangeProtection "change_protection" Mprotect FnChangeProtection;
    MovePageTables "move_page_tables" Mremap FnMovePageTables;
    GetUserPages "__get_user_pages" Keep FnUnderGetUserPages;
    FollowPageMask "follow_page_mask" GupSlow FnFollowPageMask;
    GupFast "gup_fast" Keep Silent;
    GupFastPteRange "gup_fast_pte_range" GupFast FnGupFastPteRange;
    BreakKsm "break_ksm" KsmBreak FnBreakKsm;
    UnmergeKsmPages "unmerge_ksm_pages" Keep Silent;
    ScanGetNextRmapItem "scan_get_next_rmap_item" Keep Silent;
    CmpAndMergePage "cmp_and_merge_page" KsmScan FnCmpAndMergePage;
    KsmWriteProtect "write_protect_page" KsmWrprot FnWriteProtectPage;
    KsmReplace "replace_page" KsmReplace FnReplacePage;
    ContpteFold "contpte_fold" Keep Silent;
    ContpteUnfold "contpte_unfold" Keep Silent;
    FlushTlbBatchedPending "flush_tlb_batched_pending" Keep FnFlushTlbBatchedPending;
    TryToUnmapFlush "try_to_unmap_flush" Keep FnTryToUnmapFlush;
    TryToUnmapFlushDirty "try_to_unmap_flush_dirty" Keep FnTryToUnmapFlushDirty;
    TlbFlush "tlb_flush" Keep FnTlbFlush;
    SwitchMm "switch_mm" Keep Silent;
    CopyUser "copy_user" Keep Silent;
}

macro_rules! scopes {
    ($($variant:ident $name:literal;)*) => {
        /// The scopes that the instrumented Linux kernels keep apart: the innermost one that is
        /// open takes the count.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Scope {
            $(#[doc = concat!("`", $name, "`")] $variant,)*
        }

        impl Scope {
            /// The name in `mm_events`.
            pub const fn name(self) -> &'static str {
                match self { $(Scope::$variant => $name,)* }
            }
        }
    };
}

scopes! {
    None "none";
    MadvPageout "madv_pageout";
    MadvFree "madv_free";
    Unmap "unmap";
    Referenced "referenced";
    Migrate "migrate";
    SplitPmd "split_pmd";
    Fault "fault";
    AnonFault "anon_fault";
    SwapFault "swap_fault";
    WpFault "wp_fault";
    GupSlow "gup_slow";
    GupFast "gup_fast";
    ForkCopy "fork_copy";
    Zap "zap";
    Mprotect "mprotect";
    Mremap "mremap";
    KsmBreak "ksm_break";
    KsmScan "ksm_scan";
    KsmWrprot "ksm_wrprot";
    KsmReplace "ksm_replace";
    ExitMmap "exit_mmap";
}
