//! The third oracle: does what `struct page`, the swap map and the counters say agree with what
//! walking every page table finds?

use crate::Mm;
use arch::{Arch, MmId, Platform, Pmdp, Pte, Table, TableLevel};
use phys::PageFlags;
use std::collections::BTreeMap;
use units::{Pfn, PhysAddr, VirtAddr};

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
    /// PTEs per swap slot.
    swap: BTreeMap<u64, u32>,
    anon: u64,
    file: u64,
    swapents: u64,
    violations: Vec<Violation>,
}

impl Found {
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
            let before = (all.anon, all.file, all.swapents);
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
            let walked = (all.anon - before.0, all.file - before.1, all.swapents - before.2);
            if walked != (rss.anon, rss.file, rss.swapents) {
                all.complain(format!(
                    "address space {index}: counters say {} anonymous, {} file, {} swapped \
                     pages, the page tables hold {}, {}, {}",
                    rss.anon, rss.file, rss.swapents, walked.0, walked.1, walked.2
                ));
            }
        }
        self.validate_mapcounts(&mut all);
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
                Table::Leaf => self.validate_leaf(found, Pmdp { slot, va, mm }),
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

    fn validate_ptes(&self, found: &mut Found, mm: MmId, table: PhysAddr, base: VirtAddr) {
        if let Err(what) = P::Arch::check_pte_table(&self.pt, table) {
            found.complain(format!("page table for {base}: {what}"));
        }
        for i in 0..512u64 {
            let raw = self.pt.ram.load_u64(PhysAddr::new(table.get() + i * 8));
            let pte = Pte::<P::Arch>::from_raw(raw);
            let va = VirtAddr::new(base.get() + i * units::PAGE_SIZE);
            if pte.is_none() || (pte.is_present() && pte.is_special()) {
                continue;
            }
            if self.vma_lookup(mm, va).is_none() {
                found.complain(format!("the entry at {va} belongs to no mapping"));
            }
            if pte.is_present() {
                let pfn = pte.pfn();
                *found.ptes.entry(pfn).or_default() += 1;
                let folio = self.page_folio(pfn);
                match self.folio_test(folio, PageFlags::ANON) {
                    true => found.anon += 1,
                    false => found.file += 1,
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
            if head.refcount < ptes + pmds {
                wrong.push(format!(
                    "{folio:?} has {} references for {} mappings",
                    head.refcount,
                    ptes + pmds
                ));
            }
        }
        for what in wrong {
            found.complain(what);
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
