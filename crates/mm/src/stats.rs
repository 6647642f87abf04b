//! /proc/vmstat and /proc/meminfo.

macro_rules! vmstat {
    ($($field:ident;)*) => {
        /// Event counters of /proc/vmstat, as the emulated kernel has them.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct VmStat {
            $(#[doc = concat!("`", stringify!($field), "`")] pub $field: u64,)*
        }

        impl VmStat {
            /// Names and values.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($field), self.$field),)*].into_iter()
            }
        }
    };
}

vmstat! {
    pgfault;
    pgmajfault;
    pswpin;
    pswpout;
    swpin_zero;
    swpout_zero;
    pgsteal_anon;
    pgscan_anon;
    pglazyfree;
    pglazyfreed;
    pgmigrate_success;
    thp_fault_alloc;
    thp_fault_fallback;
    thp_collapse_alloc;
    thp_collapse_alloc_failed;
    thp_split_page;
    thp_split_page_failed;
    thp_split_pmd;
    thp_deferred_split_page;
    thp_swpout;
    thp_swpout_fallback;
    ksm_swpin_copy;
    cow_ksm;
    oom_kill;
    nr_tlb_remote_flush;
    nr_tlb_remote_flush_received;
    nr_tlb_local_flush_all;
    nr_tlb_local_flush_one;
    nr_foll_pin_acquired;
    nr_foll_pin_released;
}

/// What /proc/meminfo is made of, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemInfo {
    /// MemTotal.
    pub total: u64,
    /// MemFree.
    pub free: u64,
    /// SwapTotal.
    pub swap_total: u64,
    /// SwapFree.
    pub swap_free: u64,
    /// AnonPages.
    pub anon: u64,
    /// PageTables.
    pub page_tables: u64,
    /// Shmem.
    pub shmem: u64,
}
