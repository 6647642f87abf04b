//! The third oracle: does what `struct page`, the swap map and the counters say agree with what
//! walking every page table finds?

use crate::Mm;
use crate::memory::RssKind;
use arch::{Arch, HugeSize, MmId, Platform, Pmdp, Pte, Table, TableLevel};
use phys::PageFlags;
use std::collections::BTreeMap;
use units::{PAGE_SIZE, Pfn, PhysAddr, VirtAddr};

/// Something that does not agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// One sentence.
    pub what: String,
}

/// What walking the page tables found.
#[derive(Debug, Default)]
struct Found {
    /// PTEs per page.
    ptes: BTreeMap<Pfn, u32>,
    /// PMD leaves per folio.
    pmds: BTreeMap<Pfn, u32>,
    /// Entries of huge pages per folio.
    huge: BTreeMap<Pfn, u32>,
    hugetlb: u64,
    /// PTEs per swap slot.
    swap: BTreeMap<u64, u32>,
    anon: u64,
    file: u64,
    shmem: u64,
    swapents: u64,
    violations: Vec<Violation>,
}

impl Found {
    /// Anonymous, file, shmem, swapped and huge pages, so far.
    fn sums(&self) -> [u64; 5] {
        [self.anon, self.file, self.shmem, self.swapents, self.hugetlb]
    }

    fn complain(&mut self, what: String) {
        self.violations.push(Violation { what });
    }
}

impl<P: Platform> Mm<P> {
    /// Everything that does not agree; empty if all is well. Costs a walk of every page table.
    pub fn validate(&self) -> Vec<Violation> {
        let mut all = Found::default();
        for index in 0..self.mms.len() {
            let Some(id) = self.live_mm(index) else { continue };
            let before = all.sums();
            self.validate_table(&mut all, id, TableLevel::Pgd, self.pt.root(id), VirtAddr::ZERO);
            let tables = self.count_tables(TableLevel::Pgd, self.pt.root(id));
            let kept = self.deposited.keys().filter(|at| at.0 == id).count() as u64;
            let known = self.mms[index].pgtables;
            if tables + kept != known {
                all.complain(format!(
                    "address space {index}: {known} page tables are accounted for, {tables} are \
                     reachable and {kept} kept for splits"
                ));
            }
            let rss = self.mms[index].rss;
            let usage = self.mms[index].hugetlb_usage;
            let known = [rss.anon, rss.file, rss.shmem, rss.swapents, usage];
            let sums = all.sums();
            let walked: [u64; 5] = std::array::from_fn(|i| sums[i] - before[i]);
            if walked != known {
                all.complain(format!(
                    "address space {index}: counters say {known:?} anonymous, file, shmem, \
                     swapped and huge pages, the page tables hold {walked:?}"
                ));
            }
        }
        self.validate_mapcounts(&mut all);
        self.validate_huge_mapcounts(&mut all);
        self.validate_page_cache(&mut all);
        self.validate_huge_pools(&mut all);
        self.validate_swap(&mut all);
        for what in self.validate_ksm() {
            all.complain(what);
        }
        all.violations.extend(self.pt.violations.iter().map(|v| Violation { what: v.clone() }));
        all.violations
    }

    /// Tables reachable from the one at `table`, itself included.
    fn count_tables(&self, level: TableLevel, table: PhysAddr) -> u64 {
        let below = match level {
            TableLevel::Pgd => TableLevel::Pud,
            TableLevel::Pud => TableLevel::Pmd,
            TableLevel::Pmd | TableLevel::Pte => return 1 + self.children(table).count() as u64,
        };
        1 + self.children(table).map(|child| self.count_tables(below, child)).sum::<u64>()
    }

    fn children(&self, table: PhysAddr) -> impl Iterator<Item = PhysAddr> {
        (0..512u64).filter_map(move |i| {
            match self.pt.table_at(PhysAddr::new(table.get() + i * 8)) {
                Table::Next(child) => Some(child),
                Table::None | Table::Leaf => None,
            }
        })
    }

    fn live_mm(&self, index: usize) -> Option<MmId> {
        self.mms[index].tree.values().next().map(|&id| self.vma(id).mm)
    }

    fn validate_table(
        &self,
        found: &mut Found,
        mm: MmId,
        level: TableLevel,
        table: PhysAddr,
        base: VirtAddr,
    ) {
        let below = match level {
            TableLevel::Pgd => TableLevel::Pud,
            TableLevel::Pud => TableLevel::Pmd,
            TableLevel::Pmd | TableLevel::Pte => TableLevel::Pte,
        };
        if level == TableLevel::Pmd
            && let Err(what) = P::Arch::check_pmd_table(&self.pt, table)
        {
            found.complain(format!("page table for {base}: {what}"));
        }
        // The upper half of the root belongs to the kernel on x86-64, and is empty here.
        for i in 0..512u64 {
            let va = VirtAddr::new(base.get() + (i << level.shift()));
            let slot = PhysAddr::new(table.get() + i * 8);
            match self.pt.table_at(slot) {
                Table::None => {}
                Table::Next(next) if level == TableLevel::Pmd => {
                    self.validate_ptes(found, mm, next, va);
                }
                Table::Next(next) => self.validate_table(found, mm, below, next, va),
                Table::Leaf => match self.vma_lookup(mm, va).and_then(|id| self.vma(id).huge) {
                    Some(size) => {
                        let pmd = self.pt.pmdp_get(Pmdp { slot, va, mm });
                        self.validate_huge_entry(found, size, va, pmd.pfn());
                    }
                    None if level == TableLevel::Pud => {
                        found.complain(format!("the PUD leaf at {va} maps no huge page"));
                    }
                    None => self.validate_leaf(found, Pmdp { slot, va, mm }),
                },
            }
        }
    }

    fn validate_leaf(&self, found: &mut Found, pmdp: Pmdp) {
        let pmd = self.pt.pmdp_get(pmdp);
        if pmd.is_special() {
            return;
        }
        let folio = self.page_folio(pmd.pfn());
        if folio.pfn != pmd.pfn() || !folio.is_pmd_mappable() {
            found.complain(format!("the PMD leaf at {} maps no 2 MiB folio", pmdp.va));
            return;
        }
        *found.pmds.entry(folio.pfn).or_default() += 1;
        found.anon += 512;
    }

    /// One entry of a huge page: it belongs to the right page of the right folio.
    fn validate_huge_entry(&self, found: &mut Found, size: HugeSize, va: VirtAddr, pfn: Pfn) {
        let folio = self.page_folio(pfn);
        let index = (va.get() & (size.bytes() - 1)) / PAGE_SIZE;
        let right = self.folio_test(folio, PageFlags::HUGETLB)
            && folio.order == size.order()
            && folio.index_of(pfn) == index;
        if !right {
            found.complain(format!("the entry at {va} maps {pfn:?} of {folio:?}"));
            return;
        }
        found.hugetlb += size.entry_reach().pages();
        if index == 0 {
            *found.huge.entry(folio.pfn).or_default() += 1;
        }
    }

    fn validate_ptes(&self, found: &mut Found, mm: MmId, table: PhysAddr, base: VirtAddr) {
        if let Err(what) = P::Arch::check_pte_table(&self.pt, table) {
            found.complain(format!("page table for {base}: {what}"));
        }
        for i in 0..512u64 {
            let raw = self.pt.ram.load_u64(PhysAddr::new(table.get() + i * 8));
            let pte = Pte::<P::Arch>::from_raw(raw);
            let va = VirtAddr::new(base.get() + i * PAGE_SIZE);
            if pte.is_none() || (pte.is_present() && pte.is_special()) {
                continue;
            }
            let vma = self.vma_lookup(mm, va);
            if vma.is_none() {
                found.complain(format!("the entry at {va} belongs to no mapping"));
            }
            let huge = vma.and_then(|id| self.vma(id).huge).filter(|_| pte.is_present());
            if let Some(size) = huge {
                self.validate_huge_entry(found, size, va, pte.pfn());
            } else if pte.is_present() {
                let pfn = pte.pfn();
                *found.ptes.entry(pfn).or_default() += 1;
                let folio = self.page_folio(pfn);
                match self.rss_kind(folio) {
                    RssKind::Anon => found.anon += 1,
                    RssKind::File => found.file += 1,
                    RssKind::Shmem => found.shmem += 1,
                }
                if self.folio_test_ksm(folio) && self.page_anon_exclusive(pfn) {
                    found.complain(format!("{va} maps a merged page that claims to be exclusive"));
                }
                if self.folio_test(folio, PageFlags::ANON)
                    && let Some(vma) = self.vma_lookup(mm, va)
                    && !self.rmap_finds(folio, pfn, vma, va)
                {
                    found.complain(format!("no reverse mapping leads from {folio:?} to {va}"));
                }
                if pte.is_write()
                    && self.folio_test(folio, PageFlags::ANON)
                    && !self.page_anon_exclusive(pfn)
                {
                    found.complain(format!("{va} may write a page that is not exclusive"));
                }
            } else if pte.softleaf().is_swap() {
                *found.swap.entry(pte.softleaf().offset).or_default() += 1;
                found.swapents += 1;
            }
        }
    }

    fn validate_mapcounts(&self, found: &mut Found) {
        let mut heads: BTreeMap<Pfn, (u32, u32)> = BTreeMap::new();
        let mut wrong = Vec::new();
        for (&pfn, &n) in &found.ptes {
            let page = self.pt.pages.page(pfn);
            if page.mapcount != n {
                wrong.push(format!("{pfn:?} says it is mapped {} times, found {n}", page.mapcount));
            }
            let head = heads.entry(self.pt.pages.folio_head(pfn)).or_default();
            head.0 += n;
        }
        for (&pfn, &n) in &found.pmds {
            heads.entry(pfn).or_default().1 += n;
        }
        for (pfn, (ptes, pmds)) in heads {
            let folio = self.page_folio(pfn);
            let head = self.pt.pages.page(pfn);
            if folio.is_large()
                && (head.large_mapcount != ptes + pmds || head.entire_mapcount != pmds)
            {
                wrong.push(format!(
                    "{folio:?} says {} mappings, {} of them whole; found {} and {pmds}",
                    head.large_mapcount,
                    head.entire_mapcount,
                    ptes + pmds
                ));
            }
            let needed = u64::from(ptes + pmds) + u64::from(head.pincount);
            if u64::from(head.refcount) < needed {
                wrong.push(format!(
                    "{folio:?} has {} references for {} mappings and {} pins",
                    head.refcount,
                    ptes + pmds,
                    head.pincount
                ));
            }
        }
        for what in wrong {
            found.complain(what);
        }
    }

    fn validate_huge_mapcounts(&self, found: &mut Found) {
        let mut wrong = Vec::new();
        for (&pfn, &n) in &found.huge {
            let head = self.pt.pages.page(pfn);
            if head.entire_mapcount != n || head.large_mapcount != n {
                let says = head.entire_mapcount;
                wrong.push(format!("the huge page {pfn:?} says {says} mappings, found {n}"));
            }
            let needed = n + head.pincount;
            if head.refcount < needed {
                let has = head.refcount;
                wrong
                    .push(format!("the huge page {pfn:?} has {has} references for {needed} users"));
            }
            if head.flags.contains(PageFlags::ANON_EXCLUSIVE) && n > 1 {
                wrong.push(format!("the huge page {pfn:?} is exclusive and mapped {n} times"));
            }
        }
        for what in wrong {
            found.complain(what);
        }
    }

    /// The cache holds a reference to each of its pages beside those of their mappings.
    fn validate_page_cache(&self, found: &mut Found) {
        for pfn in self.cached_frames() {
            let head = self.pt.pages.page(pfn);
            let mapped = head.mapcount.max(head.entire_mapcount);
            if head.refcount < mapped + head.pincount + 1 {
                found.complain(format!(
                    "{pfn:?} is in the page cache, mapped {mapped} times and has {} references",
                    head.refcount
                ));
            }
            if head.flags.contains(PageFlags::ANON) {
                found.complain(format!("{pfn:?} is in the page cache and anonymous"));
            }
        }
    }

    /// Every page of a pool is free or in use, and the pool promised what mappings count on.
    fn validate_huge_pools(&self, found: &mut Found) {
        if self.huge_pools().all(|pool| pool.total == 0) {
            return;
        }
        let mut used: BTreeMap<HugeSize, (u64, i64)> = BTreeMap::new();
        for frame in 0..self.pt.pages.frames() {
            let page = self.pt.pages.page(Pfn::new(frame));
            let head = page.flags.contains(PageFlags::HUGETLB | PageFlags::HEAD);
            if let Some(size) = HugeSize::of_order(page.order).filter(|_| head) {
                let sum = used.entry(size).or_default();
                sum.0 += u64::from(page.refcount > 0);
                sum.1 += i64::from(page.flags.contains(PageFlags::RESTORE_RESERVE));
            }
        }
        for pool in self.huge_pools() {
            let (in_use, owed) = used.get(&pool.size).copied().unwrap_or_default();
            if pool.free + in_use != pool.total {
                found.complain(format!("{pool:?} and {in_use} in use do not add up"));
            }
            let promised = self.promised_huge_pages(pool.size).cast_signed() - owed;
            if pool.reserved.cast_signed() != promised {
                found.complain(format!("{pool:?} and mappings that count on {promised}"));
            }
        }
        for pfn in self.free_huge_frames() {
            if self.pt.pages.page(pfn).refcount != 0 {
                found.complain(format!("the huge page {pfn:?} is free and has references"));
            }
        }
    }

    fn validate_swap(&self, found: &mut Found) {
        let counts: BTreeMap<u64, u32> =
            self.swap_counts().into_iter().map(|(slot, n)| (slot, u32::from(n))).collect();
        if counts != found.swap {
            let slots = counts.len().max(found.swap.len());
            found.complain(format!(
                "the swap map and the page tables disagree over some of {slots} slots"
            ));
        }
    }
}
