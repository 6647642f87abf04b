//! The pools of huge pages: `/proc/sys/vm/nr_hugepages` and
//! `/sys/kernel/mm/hugepages/hugepages-<kB>kB/`.
//!
//! Source: Linux Documentation/admin-guide/mm/hugetlbpage.rst, mm/hugetlb.c.

#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use super::sysfs::Table;
use super::{PseudoFile, number};
use crate::errno::EINVAL;
use crate::kernel::Kernel;
use crate::task::ProcessId;
use arch::{Arch, Platform};
use mm::{Errno, HugePool, HugeSize};
use std::sync::Arc;

/// The size that is meant where none is named.
pub(crate) const DEFAULT_SIZE: HugeSize = HugeSize::Pmd;

/// What a file shows.
#[derive(Clone, Copy, Debug)]
enum Field {
    Nr,
    Overcommit,
    Free,
    Resv,
    Surplus,
}

/// Paths and files.
pub(super) fn table<P: Platform>() -> Table<P> {
    let mut table: Table<P> = Vec::new();
    let mut add = |path: String, size, field| table.push((path, Arc::new(PoolFile(size, field))));
    for &size in P::Arch::HUGE_SIZES {
        let dir = format!("/sys/kernel/mm/hugepages/hugepages-{}kB", size.bytes() >> 10);
        for (name, field) in [
            ("nr_hugepages", Field::Nr),
            ("nr_hugepages_mempolicy", Field::Nr),
            ("nr_overcommit_hugepages", Field::Overcommit),
            ("free_hugepages", Field::Free),
            ("resv_hugepages", Field::Resv),
            ("surplus_hugepages", Field::Surplus),
        ] {
            add(format!("{dir}/{name}"), size, field);
        }
    }
    for (name, field) in [
        ("nr_hugepages", Field::Nr),
        ("nr_hugepages_mempolicy", Field::Nr),
        ("nr_overcommit_hugepages", Field::Overcommit),
    ] {
        add(format!("/proc/sys/vm/{name}"), DEFAULT_SIZE, field);
    }
    table
}

/// A file of one pool.
#[derive(Debug)]
struct PoolFile(HugeSize, Field);

impl<P: Platform> PseudoFile<P> for PoolFile {
    fn mode(&self) -> u32 {
        match self.1 {
            Field::Nr | Field::Overcommit => 0o644,
            Field::Free | Field::Resv | Field::Surplus => 0o444,
        }
    }
    fn read(&self, kernel: &mut Kernel<P>, _: ProcessId) -> Result<Vec<u8>, Errno> {
        let pool = kernel.mm.huge_pool(self.0).ok_or(EINVAL)?;
        let value = match self.1 {
            Field::Nr => pool.total,
            Field::Overcommit => pool.overcommit,
            Field::Free => pool.free,
            Field::Resv => pool.reserved,
            Field::Surplus => pool.surplus,
        };
        Ok(format!("{value}\n").into_bytes())
    }
    fn write(&self, kernel: &mut Kernel<P>, _: ProcessId, data: &[u8]) -> Result<(), Errno> {
        let value = number(data).ok_or(EINVAL)?;
        match self.1 {
            Field::Nr => kernel.mm.set_nr_hugepages(self.0, value),
            Field::Overcommit => kernel.mm.set_nr_overcommit_hugepages(self.0, value)?,
            Field::Free | Field::Resv | Field::Surplus => return Err(EINVAL),
        }
        Ok(())
    }
}

/// The lines of /proc/meminfo. Source: Linux mm/hugetlb.c `hugetlb_report_meminfo()`.
pub(super) fn meminfo(pools: impl Iterator<Item = HugePool>) -> String {
    let mut text = String::new();
    let mut kib = 0u64;
    for pool in pools {
        let page_kib = pool.size.bytes() >> 10;
        kib = kib.saturating_add(page_kib.saturating_mul(pool.total));
        if pool.size == DEFAULT_SIZE {
            for (name, value) in [
                ("Total", pool.total),
                ("Free", pool.free),
                ("Rsvd", pool.reserved),
                ("Surp", pool.surplus),
            ] {
                text += &format!("{:<19}{value:>5}\n", format!("HugePages_{name}:"));
            }
            text += &format!("Hugepagesize:   {page_kib:>8} kB\n");
        }
    }
    text + &format!("Hugetlb:        {kib:>8} kB\n")
}
