//! The single list of events.

/// What kind of thing an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventKind {
    /// A page-table primitive was called.
    PteApi,
    /// Memory of a page table was touched by the kernel.
    PteTouch,
    /// A TLB instruction, its barriers, or an interrupt for its sake.
    Tlb,
    /// The kernel decided how to flush.
    FlushDecision,
    /// A kernel structure other than a page table was touched.
    Struct,
    /// A kernel function was entered.
    Function,
}

macro_rules! events {
    ($($variant:ident $name:literal $kind:ident $meaning:literal;)*) => {
        /// Something that is counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        pub enum Event {
            $(#[doc = $meaning] $variant,)*
        }

        impl Event {
            /// Every event, in the order of the list.
            pub const ALL: &'static [Event] = &[$(Event::$variant,)*];
            /// How many events there are.
            pub const COUNT: usize = Event::ALL.len();

            /// The name in reports and in `mm_events`.
            pub const fn name(self) -> &'static str {
                match self { $(Event::$variant => $name,)* }
            }
            /// One sentence on what is counted.
            pub const fn meaning(self) -> &'static str {
                match self { $(Event::$variant => $meaning,)* }
            }
            /// What kind of thing it is.
            pub const fn kind(self) -> EventKind {
                match self { $(Event::$variant => EventKind::$kind,)* }
            }
            /// The event of that name.
            pub fn parse(name: &str) -> Option<Event> {
                Event::ALL.iter().copied().find(|e| e.name() == name)
            }
        }
    };
}

events! {
    ClearFlushYoungPtes "clear_flush_young_ptes" PteApi "`clear_flush_young_ptes()` calls.";
    ClearFlushYoungPtesPages "clear_flush_young_ptes_pages" PteApi "Entries handled by `clear_flush_young_ptes()`.";
    ClearFullPtes "clear_full_ptes" PteApi "`clear_full_ptes()` calls.";
    ClearFullPtesPages "clear_full_ptes_pages" PteApi "Entries cleared by `clear_full_ptes()`.";
    ClearYoungDirtyPtes "clear_young_dirty_ptes" PteApi "`clear_young_dirty_ptes()` calls.";
    ClearYoungDirtyPtesPages "clear_young_dirty_ptes_pages" PteApi "Entries handled by `clear_young_dirty_ptes()`.";
    ContpteFoldDone "contpte_fold_done" PteApi "Contiguous blocks folded by rewriting 16 live entries (arm64).";
    ContpteSetPtesBlocks "contpte_set_ptes_blocks" PteApi "Contiguous blocks written folded from the start (arm64).";
    ContpteUnfoldDone "contpte_unfold_done" PteApi "Contiguous blocks unfolded (arm64).";
    FolioPteBatchNr "folio_pte_batch_nr" PteApi "Sum of the run lengths that `folio_pte_batch()` returned.";
    GetAndClearFullPtes "get_and_clear_full_ptes" PteApi "`get_and_clear_full_ptes()` calls.";
    GetAndClearFullPtesPages "get_and_clear_full_ptes_pages" PteApi "Entries cleared by `get_and_clear_full_ptes()`.";
    ModifyProtCommitPtes "modify_prot_commit_ptes" PteApi "`modify_prot_commit_ptes()` calls.";
    ModifyProtCommitPtesPages "modify_prot_commit_ptes_pages" PteApi "Entries handled by `modify_prot_commit_ptes()`.";
    ModifyProtStartPtes "modify_prot_start_ptes" PteApi "`modify_prot_start_ptes()` calls.";
    ModifyProtStartPtesPages "modify_prot_start_ptes_pages" PteApi "Entries handled by `modify_prot_start_ptes()`.";
    PteClear "pte_clear" PteApi "`pte_clear()` calls.";
    PtepClearFlushYoung "ptep_clear_flush_young" PteApi "`ptep_clear_flush_young()` calls.";
    PtepGet "ptep_get" PteApi "`ptep_get()` calls. On x86-64 they include the lockless ones, which fall back to it.";
    PtepGetAndClear "ptep_get_and_clear" PteApi "`ptep_get_and_clear()` calls.";
    PtepGetLockless "ptep_get_lockless" PteApi "`ptep_get_lockless()` calls.";
    PtepSetAccessFlags "ptep_set_access_flags" PteApi "`ptep_set_access_flags()` calls (arm64).";
    PtepSetWrprotect "ptep_set_wrprotect" PteApi "`ptep_set_wrprotect()` calls (x86-64).";
    PtepTestAndClearYoung "ptep_test_and_clear_young" PteApi "`ptep_test_and_clear_young()` calls (x86-64).";
    SetPtes "set_ptes" PteApi "`set_ptes()` calls, any length.";
    SetPtesNr1 "set_ptes_nr1" PteApi "`set_ptes()` calls for one entry.";
    SetPtesPages "set_ptes_pages" PteApi "Entries written through `set_ptes()`.";
    WrprotectPtes "wrprotect_ptes" PteApi "`wrprotect_ptes()` calls.";
    WrprotectPtesPages "wrprotect_ptes_pages" PteApi "Entries handled by `wrprotect_ptes()`.";
    HugeLeafWrite "huge_leaf_write" PteTouch "Stores of a block descriptor above the last level (arm64).";
    LocalPtepGetAndClear "local_ptep_get_and_clear" PteTouch "Plain load and store instead of an atomic clear, when a whole mm is torn down (x86-64).";
    PmdCmpxchg "pmd_cmpxchg" PteTouch "Compare-and-exchange attempts on a PMD.";
    PmdWrite "pmd_write" PteTouch "Plain PMD stores (x86-64).";
    PmdXchg "pmd_xchg" PteTouch "Atomic exchanges of a PMD.";
    PteCmpxchg "pte_cmpxchg" PteTouch "Compare-and-exchange attempts on a PTE, and locked bit clears.";
    PteLine "pte_line" Struct "Cache lines (64 bytes) of page tables that the kernel fetched into a cache of 256 KiB.";
    PteRead "pte_read" PteTouch "Raw PTE loads by the kernel (8 bytes each); hardware walks are not counted here.";
    PteWrite "pte_write" PteTouch "Plain PTE stores by the kernel.";
    PteXchg "pte_xchg" PteTouch "Atomic exchanges of a PTE.";
    Cr3Reload "cr3_reload" Tlb "CR3 rewrites that flush the current address space.";
    CsdQueuedCpu "csd_queued_cpu" Tlb "CPUs for which a cross-call was queued.";
    DsbIsh "dsb_ish" Tlb "DSB ISH of the TLB code: waits until broadcast invalidations have finished everywhere.";
    DsbIshst "dsb_ishst" Tlb "DSB ISHST of the TLB code: makes PTE stores visible before an invalidation.";
    DsbNsh "dsb_nsh" Tlb "DSB NSH of the TLB code: waits for a local invalidation.";
    DsbNshst "dsb_nshst" Tlb "DSB NSHST of the TLB code.";
    Invlpg "invlpg" Tlb "INVLPG instructions.";
    IpiCallCpu "ipi_call_cpu" Tlb "CPUs sent an inter-processor interrupt.";
    HwWalk "hw_walk" Struct "Page-table walks by the hardware for guest code.";
    HwWalkLoad "hw_walk_load" Struct "Page-table entries that those walks loaded.";
    TlbiAside1is "tlbi_aside1is" Tlb "TLBI ASIDE1IS: a whole ASID, broadcast.";
    TlbiRvae1is "tlbi_rvae1is" Tlb "TLBI RVAE1IS: a range, all levels, broadcast.";
    TlbiRvale1 "tlbi_rvale1" Tlb "TLBI RVALE1: a range, last level only, this CPU.";
    TlbiRvale1is "tlbi_rvale1is" Tlb "TLBI RVALE1IS: a range, last level only, broadcast.";
    TlbiVae1is "tlbi_vae1is" Tlb "TLBI VAE1IS: one page, all levels, broadcast.";
    TlbiVale1 "tlbi_vale1" Tlb "TLBI VALE1: one page, last level only, this CPU.";
    TlbiVale1is "tlbi_vale1is" Tlb "TLBI VALE1IS: one page, last level only, broadcast.";
    FlushRangeLocal "flush_range_local" FlushDecision "Range flushes that stayed on this CPU (arm64).";
    FlushRangePages "flush_range_pages" FlushDecision "Pages covered by range flushes (arm64).";
    FlushTlbFuncFull "flush_tlb_func_full" FlushDecision "`flush_tlb_func()` decisions for a full flush (x86-64).";
    FlushTlbFuncPartial "flush_tlb_func_partial" FlushDecision "`flush_tlb_func()` decisions for a page-by-page flush (x86-64).";
    FlushTlbFuncRemote "flush_tlb_func_remote" FlushDecision "`flush_tlb_func()` runs on another CPU than the initiator's (x86-64).";
    FlushTlbFuncUptodate "flush_tlb_func_uptodate" FlushDecision "`flush_tlb_func()` runs that found nothing to do (x86-64).";
    FlushTlbMmRangeFull "flush_tlb_mm_range_full" FlushDecision "`flush_tlb_mm_range()` calls that asked for a full flush (x86-64).";
    TlbFlushFullmm "tlb_flush_fullmm" FlushDecision "`tlb_flush()` of a whole mm that is going away.";
    TlbFlushMmuTlbonly "tlb_flush_mmu_tlbonly" FlushDecision "`tlb_flush_mmu_tlbonly()` calls.";
    TlbiVmalle1 "tlbi_vmalle1" Tlb "TLBI VMALLE1: every entry of this CPU (ASID roll-over).";
    Invpcid "invpcid" Tlb "INVPCID instructions (second half of a flush under PTI, global flushes).";
    MmTlbGenInc "mm_tlb_gen_inc" Struct "Atomic increments of an mm's TLB generation (x86-64).";
    TlbFlushBatchedInc "tlb_flush_batched_inc" Struct "Increments of an mm's count of pending batched unmaps.";
    Cr3WriteNoflush "cr3_write_noflush" Tlb "CR3 writes that keep the tagged entries (PCID).";
    FolioRefRmw "folio_ref_rmw" Struct "Atomic changes of a folio's reference count.";
    FolioPincountRmw "folio_pincount_rmw" Struct "Atomic changes of a large folio's pin count.";
    FolioPinnableTest "folio_pinnable_test" Struct "Folios tested for whether they may stay pinned for long.";
    GupPageStore "gup_page_store" Struct "Pages noted in the array of a GUP caller.";
    MapcountRmw "mapcount_rmw" Struct "Atomic changes of a page's `_mapcount`.";
    LargeMapcountLock "large_mapcount_lock" Struct "Acquisitions of a large folio's mapcount lock.";
    AnonExclusiveClear "anon_exclusive_clear" Struct "PageAnonExclusive flags cleared.";
    AnonExclusiveBarrier "anon_exclusive_barrier" Struct "Full barriers around clearing PageAnonExclusive.";
    MmCounterUpdate "mm_counter_update" Struct "Updates of an mm's resident-set counters.";
    SwapClusterLock "swap_cluster_lock" Struct "Acquisitions of a swap cluster's lock.";
    SwapCountInc "swap_count_inc" Struct "Swap slot counts raised by one.";
    PageZero "page_zero" Struct "Base pages cleared.";
    PageCopy "page_copy" Struct "Base pages copied.";
    PageScanZero "page_scan_zero" Struct "Base pages compared with zero at swap-out.";
    PageCompress "page_compress" Struct "Base pages compressed into the swap backing.";
    PageDecompress "page_decompress" Struct "Base pages restored from the swap backing.";
    PageCompare "page_compare" Struct "Base pages compared with another.";
    PageChecksum "page_checksum" Struct "Base pages run through a checksum.";
    PageWalk "page_walk" Struct "Walks started by `walk_page_range()` or `walk_page_range_vma()`.";
    PageWalkCallback "page_walk_callback" Struct "Indirect calls of the callbacks of a page walk (`struct mm_walk_ops`).";
    PageAlloc "page_alloc" Struct "Blocks taken from the page allocator.";
    PageFree "page_free" Struct "Blocks given back to the page allocator.";
    PageAllocPages "page_alloc_pages" Struct "Base pages in the blocks that the page allocator handed out.";
    PageFreePages "page_free_pages" Struct "Base pages in the blocks that it took back.";
    PtlLock "ptl_lock" Struct "Page-table lock acquisitions.";
    FolioLock "folio_lock" Struct "Folio lock acquisitions.";
    FolioLine "folio_line" Struct "Cache lines of `struct page` that the kernel fetched into a cache of 256 KiB, of single pages and of the first pages of folios.";
    PageLine "page_line" Struct "The same of later pages of folios, which lie beside their neighbours.";
    PageFaultTrap "page_fault_trap" Struct "Exceptions taken for a memory access.";
    SyscallTrap "syscall_trap" Struct "System calls entered.";
    FnUnderContpteTryFold "fn___contpte_try_fold" Function "Entries of `__contpte_try_fold()`.";
    FnUnderContpteTryUnfold "fn___contpte_try_unfold" Function "Entries of `__contpte_try_unfold()`.";
    FnUnderCopyPresentPtes "fn___copy_present_ptes" Function "Entries of `__copy_present_ptes()`.";
    FnUnderDeleteFromSwapCache "fn___delete_from_swap_cache" Function "Entries of `__delete_from_swap_cache()` (6.12).";
    FnUnderDoFlushTlbRange "fn___do_flush_tlb_range" Function "Entries of `__do_flush_tlb_range()` (7.3).";
    FnUnderFlushTlbPage "fn___flush_tlb_page" Function "Entries of `__flush_tlb_page()` (7.3).";
    FnUnderFlushTlbPageNosync "fn___flush_tlb_page_nosync" Function "Entries of `__flush_tlb_page_nosync()` (6.12).";
    FnUnderFlushTlbRange "fn___flush_tlb_range" Function "Entries of `__flush_tlb_range()`.";
    FnUnderFlushTlbRangeNosync "fn___flush_tlb_range_nosync" Function "Entries of `__flush_tlb_range_nosync()` (6.12).";
    FnUnderFolioSplit "fn___folio_split" Function "Entries of `__folio_split()` (7.3).";
    FnUnderFolioTryShareAnonRmap "fn___folio_try_share_anon_rmap" Function "Entries of `__folio_try_share_anon_rmap()` (7.3).";
    FnUnderGetUserPages "fn___get_user_pages" Function "Entries of `__get_user_pages()`.";
    FnUnderGupLongtermLocked "fn___gup_longterm_locked" Function "Entries of `__gup_longterm_locked()`.";
    FnUnderPtepSetAccessFlags "fn___ptep_set_access_flags" Function "Entries of `__ptep_set_access_flags()` (6.12).";
    FnUnderPtepSetAccessFlagsAnysz "fn___ptep_set_access_flags_anysz" Function "Entries of `__ptep_set_access_flags_anysz()` (7.3).";
    FnUnderRemoveMapping "fn___remove_mapping" Function "Entries of `__remove_mapping()`.";
    FnUnderSplitHugePageToListToOrder "fn___split_huge_page_to_list_to_order" Function "Entries of `__split_huge_page_to_list_to_order()` (7.3).";
    FnUnderSplitHugePmdLocked "fn___split_huge_pmd_locked" Function "Entries of `__split_huge_pmd_locked()`.";
    FnUnderSwapCacheAlloc "fn___swap_cache_alloc" Function "Entries of `__swap_cache_alloc()` (7.3).";
    FnUnderSwapCacheDelFolio "fn___swap_cache_del_folio" Function "Entries of `__swap_cache_del_folio()` (7.3).";
    FnUnderSwapDuplicate "fn___swap_duplicate" Function "Entries of `__swap_duplicate()` (6.12).";
    FnUnderSwapDuplicatePages "fn___swap_duplicate_pages" Function "Pages handled by `__swap_duplicate()` (6.12).";
    FnUnderSwapWritepage "fn___swap_writepage" Function "Entries of `__swap_writepage()` (7.3).";
    FnUnderUnmapHugepageRange "fn___unmap_hugepage_range" Function "Entries of `__unmap_hugepage_range()`.";
    FnUnderZapVmaRange "fn___zap_vma_range" Function "Entries of `__zap_vma_range()` (7.3).";
    FnAddToSwap "fn_add_to_swap" Function "Entries of `add_to_swap()` (6.12).";
    FnArchFlushTlbBatchedPending "fn_arch_flush_tlb_batched_pending" Function "Entries of `arch_flush_tlb_batched_pending()` (6.12).";
    FnArchTlbbatchAddPending "fn_arch_tlbbatch_add_pending" Function "Entries of `arch_tlbbatch_add_pending()`.";
    FnArchTlbbatchFlush "fn_arch_tlbbatch_flush" Function "Entries of `arch_tlbbatch_flush()`.";
    FnBreakKsm "fn_break_ksm" Function "Entries of `break_ksm()`.";
    FnBreakKsmPmdEntry "fn_break_ksm_pmd_entry" Function "Entries of `break_ksm_pmd_entry()`, one per callback of the walks that look for KSM pages.";
    FnCanChangePteWritable "fn_can_change_pte_writable" Struct "Entries of `can_change_pte_writable()`, or of what decides for a run of entries (7.3).";
    FnChangeHugePmd "fn_change_huge_pmd" Function "Entries of `change_huge_pmd()`.";
    FnChangePresentPtes "fn_change_present_ptes" Function "Entries of `change_present_ptes()` (7.3).";
    FnChangeProtection "fn_change_protection" Function "Entries of `change_protection()`.";
    FnChangePteRange "fn_change_pte_range" Function "Entries of `change_pte_range()` (7.3).";
    FnCheckPte "fn_check_pte" Function "Entries of `check_pte()`.";
    FnCmpAndMergePage "fn_cmp_and_merge_page" Function "Entries of `cmp_and_merge_page()`.";
    FnCollectLongtermUnpinnableFolios "fn_collect_longterm_unpinnable_folios" Function "Entries of `collect_longterm_unpinnable_folios()`.";
    FnCondInstallUffdWpPtes "fn_cond_install_uffd_wp_ptes" Function "Entries of `cond_install_uffd_wp_ptes()` (7.3).";
    FnCondInstallUffdWpPtesPages "fn_cond_install_uffd_wp_ptes_pages" Function "Pages handled by `cond_install_uffd_wp_ptes()` (7.3).";
    FnContpteAllSubptesMatchAccessFlags "fn_contpte_all_subptes_match_access_flags" Function "Entries of `contpte_all_subptes_match_access_flags()` (7.3).";
    FnContpteClearFlushYoungPtes "fn_contpte_clear_flush_young_ptes" Function "Entries of `contpte_clear_flush_young_ptes()` (7.3).";
    FnContpteClearFullPtes "fn_contpte_clear_full_ptes" Function "Entries of `contpte_clear_full_ptes()`.";
    FnContpteClearYoungDirtyPtes "fn_contpte_clear_young_dirty_ptes" Function "Entries of `contpte_clear_young_dirty_ptes()`.";
    FnContpteConvert "fn_contpte_convert" Function "Entries of `contpte_convert()`.";
    FnContpteGetAndClearFullPtes "fn_contpte_get_and_clear_full_ptes" Function "Entries of `contpte_get_and_clear_full_ptes()`.";
    FnContptePtepClearFlushYoung "fn_contpte_ptep_clear_flush_young" Function "Entries of `contpte_ptep_clear_flush_young()` (6.12).";
    FnContptePtepGet "fn_contpte_ptep_get" Function "Entries of `contpte_ptep_get()`.";
    FnContptePtepGetLockless "fn_contpte_ptep_get_lockless" Function "Entries of `contpte_ptep_get_lockless()`.";
    FnContptePtepSetAccessFlags "fn_contpte_ptep_set_access_flags" Function "Entries of `contpte_ptep_set_access_flags()`.";
    FnContptePtepTestAndClearYoung "fn_contpte_ptep_test_and_clear_young" Function "Entries of `contpte_ptep_test_and_clear_young()` (6.12).";
    FnContpteSetPtes "fn_contpte_set_ptes" Function "Entries of `contpte_set_ptes()`.";
    FnContpteTestAndClearYoungPtes "fn_contpte_test_and_clear_young_ptes" Function "Entries of `contpte_test_and_clear_young_ptes()` (7.3).";
    FnContpteTryUnfoldPartial "fn_contpte_try_unfold_partial" Function "Entries of `contpte_try_unfold_partial()`.";
    FnContpteWrprotectPtes "fn_contpte_wrprotect_ptes" Function "Entries of `contpte_wrprotect_ptes()`.";
    FnCopyHugePmd "fn_copy_huge_pmd" Function "Entries of `copy_huge_pmd()`.";
    FnCopyHugetlbPageRange "fn_copy_hugetlb_page_range" Function "Entries of `copy_hugetlb_page_range()`.";
    FnCopyPageRange "fn_copy_page_range" Function "Entries of `copy_page_range()`.";
    FnCopyPresentPtes "fn_copy_present_ptes" Function "Entries of `copy_present_ptes()`.";
    FnDeferredSplitFolio "fn_deferred_split_folio" Function "Entries of `deferred_split_folio()`.";
    FnDoAnonymousPage "fn_do_anonymous_page" Function "Entries of `do_anonymous_page()`.";
    FnDoFault "fn_do_fault" Function "Entries of `do_fault()`.";
    FnDoHugePmdAnonymousPage "fn_do_huge_pmd_anonymous_page" Function "Entries of `do_huge_pmd_anonymous_page()`.";
    FnDoHugePmdWpPage "fn_do_huge_pmd_wp_page" Function "Entries of `do_huge_pmd_wp_page()`.";
    FnDoPageFault "fn_do_page_fault" Function "Entries of `do_page_fault()`.";
    FnDoSwapPage "fn_do_swap_page" Function "Entries of `do_swap_page()`.";
    FnDoUserAddrFault "fn_do_user_addr_fault" Function "Entries of `do_user_addr_fault()`.";
    FnDoWpPage "fn_do_wp_page" Function "Entries of `do_wp_page()`.";
    FnExitMmap "fn_exit_mmap" Function "Entries of `exit_mmap()`.";
    FnFlushTlbBatchedPending "fn_flush_tlb_batched_pending" Function "Entries of `flush_tlb_batched_pending()`.";
    FnFlushTlbFunc "fn_flush_tlb_func" Function "Entries of `flush_tlb_func()`.";
    FnFlushTlbMm "fn_flush_tlb_mm" Function "Entries of `flush_tlb_mm()`.";
    FnFlushTlbMmRange "fn_flush_tlb_mm_range" Function "Entries of `flush_tlb_mm_range()`.";
    FnFlushTlbPage "fn_flush_tlb_page" Function "Entries of `flush_tlb_page()`.";
    FnFlushTlbRange "fn_flush_tlb_range" Function "Entries of `flush_tlb_range()`.";
    FnFolioAddAnonRmapPtes "fn_folio_add_anon_rmap_ptes" Function "Entries of `folio_add_anon_rmap_ptes()`.";
    FnFolioAddAnonRmapPtesPages "fn_folio_add_anon_rmap_ptes_pages" Function "Pages handled by `folio_add_anon_rmap_ptes()`.";
    FnFolioAddNewAnonRmap "fn_folio_add_new_anon_rmap" Function "Entries of `folio_add_new_anon_rmap()`.";
    FnFolioAllocSwap "fn_folio_alloc_swap" Function "Entries of `folio_alloc_swap()`.";
    FnFolioCheckReferences "fn_folio_check_references" Function "Entries of `folio_check_references()`.";
    FnFolioDupSwap "fn_folio_dup_swap" Function "Entries of `folio_dup_swap()` (7.3).";
    FnFolioFreeSwap "fn_folio_free_swap" Function "Entries of `folio_free_swap()` (7.3).";
    FnFolioIsolateLru "fn_folio_isolate_lru" Function "Entries of `folio_isolate_lru()`.";
    FnFolioPteBatch "fn_folio_pte_batch" Function "Entries of `folio_pte_batch()` (6.12).";
    FnFolioPteBatchFlags "fn_folio_pte_batch_flags" Function "Entries of `folio_pte_batch_flags()` (7.3).";
    FnFolioPutSwap "fn_folio_put_swap" Function "Entries of `folio_put_swap()` (7.3).";
    FnFolioReferenced "fn_folio_referenced" Function "Entries of `folio_referenced()`.";
    FnFolioReferencedOne "fn_folio_referenced_one" Function "Entries of `folio_referenced_one()`.";
    FnFolioRemoveRmapPmd "fn_folio_remove_rmap_pmd" Function "Entries of `folio_remove_rmap_pmd()`.";
    FnFolioRemoveRmapPtes "fn_folio_remove_rmap_ptes" Function "Entries of `folio_remove_rmap_ptes()`.";
    FnFolioRemoveRmapPtesPages "fn_folio_remove_rmap_ptes_pages" Function "Pages handled by `folio_remove_rmap_ptes()`.";
    FnFolioUnmapPteBatch "fn_folio_unmap_pte_batch" Function "Entries of `folio_unmap_pte_batch()` (7.3).";
    FnFolioWalkStart "fn_folio_walk_start" Function "Entries of `folio_walk_start()`.";
    FnFollowHugePmd "fn_follow_huge_pmd" Function "Entries of `follow_huge_pmd()`.";
    FnFollowHugePud "fn_follow_huge_pud" Function "Entries of `follow_huge_pud()`.";
    FnFollowHugetlbPage "fn_follow_hugetlb_page" Function "Entries of `follow_hugetlb_page()`.";
    FnFollowPageMask "fn_follow_page_mask" Function "Entries of `follow_page_mask()`.";
    FnFollowPagePte "fn_follow_page_pte" Function "Entries of `follow_page_pte()`.";
    FnFreeSwapAndCacheNr "fn_free_swap_and_cache_nr" Function "Entries of `free_swap_and_cache_nr()` (6.12).";
    FnFreeSwapAndCacheNrPages "fn_free_swap_and_cache_nr_pages" Function "Pages handled by `free_swap_and_cache_nr()` (6.12).";
    FnGetSwapPages "fn_get_swap_pages" Function "Entries of `get_swap_pages()` (6.12).";
    FnGupFastPmdLeaf "fn_gup_fast_pmd_leaf" Function "Entries of `gup_fast_pmd_leaf()`.";
    FnGupFastPteRange "fn_gup_fast_pte_range" Function "Entries of `gup_fast_pte_range()`.";
    FnGupFastPudLeaf "fn_gup_fast_pud_leaf" Function "Entries of `gup_fast_pud_leaf()`.";
    FnGupPutFolio "fn_gup_put_folio" Function "Entries of `gup_put_folio()`.";
    FnGupPutFolioRefs "fn_gup_put_folio_refs" Function "References handled by `gup_put_folio()`.";
    FnHandleMmFault "fn_handle_mm_fault" Function "Entries of `handle_mm_fault()`.";
    FnHandlePteFault "fn_handle_pte_fault" Function "Entries of `handle_pte_fault()`.";
    FnHugetlbChangeProtection "fn_hugetlb_change_protection" Function "Entries of `hugetlb_change_protection()`.";
    FnHugetlbFault "fn_hugetlb_fault" Function "Entries of `hugetlb_fault()`.";
    FnHugetlbFollowPageMask "fn_hugetlb_follow_page_mask" Function "Entries of `hugetlb_follow_page_mask()`.";
    FnHugetlbNoPage "fn_hugetlb_no_page" Function "Entries of `hugetlb_no_page()`.";
    FnHugetlbWp "fn_hugetlb_wp" Function "Entries of `hugetlb_wp()`.";
    FnMadviseColdOrPageoutPteRange "fn_madvise_cold_or_pageout_pte_range" Function "Entries of `madvise_cold_or_pageout_pte_range()`.";
    FnMadviseFreeHugePmd "fn_madvise_free_huge_pmd" Function "Entries of `madvise_free_huge_pmd()`.";
    FnMadviseFreePteRange "fn_madvise_free_pte_range" Function "Entries of `madvise_free_pte_range()`.";
    FnMapPte "fn_map_pte" Function "Entries of `map_pte()`.";
    FnModifyProtCommitPtes "fn_modify_prot_commit_ptes" Function "Entries of `modify_prot_commit_ptes()` (7.3).";
    FnModifyProtCommitPtesPages "fn_modify_prot_commit_ptes_pages" Function "Pages handled by `modify_prot_commit_ptes()` (7.3).";
    FnModifyProtStartPtes "fn_modify_prot_start_ptes" Function "Entries of `modify_prot_start_ptes()` (7.3).";
    FnModifyProtStartPtesPages "fn_modify_prot_start_ptes_pages" Function "Pages handled by `modify_prot_start_ptes()` (7.3).";
    FnMoveHugePmd "fn_move_huge_pmd" Function "Entries of `move_huge_pmd()`.";
    FnMoveHugetlbPageTables "fn_move_hugetlb_page_tables" Function "Entries of `move_hugetlb_page_tables()`.";
    FnMovePageTables "fn_move_page_tables" Function "Entries of `move_page_tables()`.";
    FnMovePtes "fn_move_ptes" Function "Entries of `move_ptes()`.";
    FnMprotectFolioPteBatch "fn_mprotect_folio_pte_batch" Function "Entries of `mprotect_folio_pte_batch()` (7.3).";
    FnMremapFolioPteBatch "fn_mremap_folio_pte_batch" Function "Entries of `mremap_folio_pte_batch()` (7.3).";
    FnNativeFlushTlbLocal "fn_native_flush_tlb_local" Function "Entries of `native_flush_tlb_local()`.";
    FnNativeFlushTlbMulti "fn_native_flush_tlb_multi" Function "Entries of `native_flush_tlb_multi()`.";
    FnNativeFlushTlbOneUser "fn_native_flush_tlb_one_user" Function "Entries of `native_flush_tlb_one_user()`.";
    FnPageVmaMappedWalk "fn_page_vma_mapped_walk" Function "Entries of `page_vma_mapped_walk()`.";
    FnPageout "fn_pageout" Function "Entries of `pageout()`.";
    FnPmdpHugeClearFlush "fn_pmdp_huge_clear_flush" Function "Entries of `pmdp_huge_clear_flush()` (7.3).";
    FnPtepClearFlush "fn_ptep_clear_flush" Function "Entries of `ptep_clear_flush()`.";
    FnPtepSetAccessFlags "fn_ptep_set_access_flags" Function "Entries of `ptep_set_access_flags()`.";
    FnPutSwapFolio "fn_put_swap_folio" Function "Entries of `put_swap_folio()` (6.12).";
    FnReclaimFolioList "fn_reclaim_folio_list" Function "Entries of `reclaim_folio_list()`.";
    FnReclaimPages "fn_reclaim_pages" Function "Entries of `reclaim_pages()`.";
    FnReplacePage "fn_replace_page" Function "Entries of `replace_page()`.";
    FnSetTlbUbcFlushPending "fn_set_tlb_ubc_flush_pending" Function "Entries of `set_tlb_ubc_flush_pending()`.";
    FnSetTlbUbcFlushPendingPages "fn_set_tlb_ubc_flush_pending_pages" Function "Pages handled by `set_tlb_ubc_flush_pending()` (7.3).";
    FnShrinkFolioList "fn_shrink_folio_list" Function "Entries of `shrink_folio_list()`.";
    FnSmpCallFunctionManyCond "fn_smp_call_function_many_cond" Function "Entries of `smp_call_function_many_cond()`.";
    FnSplitHugePageToListToOrder "fn_split_huge_page_to_list_to_order" Function "Entries of `split_huge_page_to_list_to_order()` (6.12).";
    FnSwapAllocFast "fn_swap_alloc_fast" Function "Entries of `swap_alloc_fast()` (7.3).";
    FnSwapAllocSlow "fn_swap_alloc_slow" Function "Entries of `swap_alloc_slow()` (7.3).";
    FnSwapCacheDelFolio "fn_swap_cache_del_folio" Function "Entries of `swap_cache_del_folio()` (7.3).";
    FnSwapDupEntriesCluster "fn_swap_dup_entries_cluster" Function "Entries of `swap_dup_entries_cluster()` (7.3).";
    FnSwapDupEntriesClusterPages "fn_swap_dup_entries_cluster_pages" Function "Pages handled by `swap_dup_entries_cluster()` (7.3).";
    FnSwapDuplicate "fn_swap_duplicate" Function "Entries of `swap_duplicate()` (6.12).";
    FnSwapFreeNr "fn_swap_free_nr" Function "Entries of `swap_free_nr()` (6.12).";
    FnSwapFreeNrPages "fn_swap_free_nr_pages" Function "Pages handled by `swap_free_nr()` (6.12).";
    FnSwapPteBatch "fn_swap_pte_batch" Function "Entries of `swap_pte_batch()`.";
    FnSwapPutEntriesCluster "fn_swap_put_entries_cluster" Function "Entries of `swap_put_entries_cluster()` (7.3).";
    FnSwapPutEntriesClusterPages "fn_swap_put_entries_cluster_pages" Function "Pages handled by `swap_put_entries_cluster()` (7.3).";
    FnSwapPutEntriesDirect "fn_swap_put_entries_direct" Function "Entries of `swap_put_entries_direct()` (7.3).";
    FnSwapPutEntriesDirectPages "fn_swap_put_entries_direct_pages" Function "Pages handled by `swap_put_entries_direct()` (7.3).";
    FnSwapReadFolio "fn_swap_read_folio" Function "Entries of `swap_read_folio()`.";
    FnSwapWriteout "fn_swap_writeout" Function "Entries of `swap_writeout()` (7.3).";
    FnSwapWritepage "fn_swap_writepage" Function "Entries of `swap_writepage()` (6.12).";
    FnSwapZeromapFolioSet "fn_swap_zeromap_folio_set" Function "Entries of `swap_zeromap_folio_set()` (7.3).";
    FnSwapcachePrepare "fn_swapcache_prepare" Function "Entries of `swapcache_prepare()` (6.12).";
    FnSwapinSync "fn_swapin_sync" Function "Entries of `swapin_sync()` (7.3).";
    FnTlbFinishMmu "fn_tlb_finish_mmu" Function "Entries of `tlb_finish_mmu()`.";
    FnTlbFlush "fn_tlb_flush" Function "Entries of `tlb_flush()`.";
    FnTlbFlushMmu "fn_tlb_flush_mmu" Function "Entries of `tlb_flush_mmu()`.";
    FnTryGrabFolio "fn_try_grab_folio" Function "Entries of `try_grab_folio()`.";
    FnTryGrabFolioFast "fn_try_grab_folio_fast" Function "Entries of `try_grab_folio_fast()`.";
    FnTryGrabFolioFastRefs "fn_try_grab_folio_fast_refs" Function "References handled by `try_grab_folio_fast()`.";
    FnTryGrabFolioRefs "fn_try_grab_folio_refs" Function "References handled by `try_grab_folio()`.";
    FnTryToMergeOnePage "fn_try_to_merge_one_page" Function "Entries of `try_to_merge_one_page()`.";
    FnTryToMigrateOne "fn_try_to_migrate_one" Function "Entries of `try_to_migrate_one()`.";
    FnTryToUnmap "fn_try_to_unmap" Function "Entries of `try_to_unmap()`.";
    FnTryToUnmapFlush "fn_try_to_unmap_flush" Function "Entries of `try_to_unmap_flush()`.";
    FnTryToUnmapFlushDirty "fn_try_to_unmap_flush_dirty" Function "Entries of `try_to_unmap_flush_dirty()`.";
    FnTryToUnmapOne "fn_try_to_unmap_one" Function "Entries of `try_to_unmap_one()`.";
    FnTtuAnonLazyfreeFolio "fn_ttu_anon_lazyfree_folio" Function "Entries of `ttu_anon_lazyfree_folio()` (7.3).";
    FnTtuAnonSwapbackedFolio "fn_ttu_anon_swapbacked_folio" Function "Entries of `ttu_anon_swapbacked_folio()` (7.3).";
    FnUnmapHugePmdLocked "fn_unmap_huge_pmd_locked" Function "Entries of `unmap_huge_pmd_locked()` (7.3).";
    FnUnmapPageRange "fn_unmap_page_range" Function "Entries of `unmap_page_range()` (6.12).";
    FnUnmapRegion "fn_unmap_region" Function "Entries of `unmap_region()` (7.3).";
    FnUnmergeKsmPages "fn_unmerge_ksm_pages" Function "Entries of `unmerge_ksm_pages()` (6.12).";
    FnUnpinUserPages "fn_unpin_user_pages" Function "Entries of `unpin_user_pages()`.";
    FnUnpinUserPagesPages "fn_unpin_user_pages_pages" Function "Pages handled by `unpin_user_pages()`.";
    FnWalkPageRange "fn_walk_page_range" Function "Entries of `walk_page_range()` (6.12).";
    FnWpPageCopy "fn_wp_page_copy" Function "Entries of `wp_page_copy()`.";
    FnWpPageReuse "fn_wp_page_reuse" Function "Entries of `wp_page_reuse()`.";
    FnWriteProtectPage "fn_write_protect_page" Function "Entries of `write_protect_page()`.";
    FnZapHugePmd "fn_zap_huge_pmd" Function "Entries of `zap_huge_pmd()`.";
    FnZapPresentFolioPtes "fn_zap_present_folio_ptes" Function "Entries of `zap_present_folio_ptes()`.";
    FnZapPresentPtes "fn_zap_present_ptes" Function "Entries of `zap_present_ptes()`.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_parse_back() {
        for &event in Event::ALL {
            assert_eq!(Event::parse(event.name()), Some(event));
            assert!(event.meaning().ends_with('.'), "{}", event.name());
        }
    }
}
