//! What a huge page of hugetlb is to the page tables: its sizes, and where its entries are.
//!
//! hugetlb uses PTE helpers at every level, so its touches count as touches of PTEs. The
//! primitives are in `x86_64/hugetlbpage.rs` and `arm64/hugetlbpage.rs`, as in Linux.

use crate::pt::{MmId, Ptep, TableLevel};
use units::{Order, PAGE_SIZE, PhysAddr, Reach, VirtAddr};

/// A size of huge pages. Ascending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HugeSize {
    /// 64 KiB: a contiguous block of last-level entries (arm64).
    ContPte,
    /// 2 MiB: a PMD leaf.
    Pmd,
    /// 32 MiB: a contiguous block of PMD leaves (arm64).
    ContPmd,
    /// 1 GiB: a PUD leaf.
    Pud,
}

impl HugeSize {
    /// Every size that some architecture has.
    pub const ALL: [HugeSize; 4] =
        [HugeSize::ContPte, HugeSize::Pmd, HugeSize::ContPmd, HugeSize::Pud];

    /// What all entries of one page cover.
    pub const fn reach(self) -> Reach {
        match self {
            HugeSize::ContPte => Reach::K64,
            HugeSize::Pmd => Reach::M2,
            HugeSize::ContPmd => Reach::M32,
            HugeSize::Pud => Reach::G1,
        }
    }
    /// What one entry covers (`pgsize`).
    pub const fn entry_reach(self) -> Reach {
        match self {
            HugeSize::ContPte => Reach::K4,
            HugeSize::Pmd | HugeSize::ContPmd => Reach::M2,
            HugeSize::Pud => Reach::G1,
        }
    }
    /// Bytes of a page (`huge_page_size()`).
    pub const fn bytes(self) -> u64 {
        self.reach().bytes()
    }
    /// log2 of its base pages (`huge_page_order()`).
    pub const fn order(self) -> Order {
        let order = match self {
            HugeSize::ContPte => Order::new(4),
            HugeSize::Pmd => Order::new(9),
            HugeSize::ContPmd => Order::new(13),
            HugeSize::Pud => Order::new(18),
        };
        match order {
            Some(order) => order,
            None => Order::ZERO,
        }
    }
    /// The size with that order.
    pub fn of_order(order: Order) -> Option<HugeSize> {
        HugeSize::ALL.into_iter().find(|size| size.order() == order)
    }
    /// The level that its entries are at.
    pub const fn level(self) -> TableLevel {
        match self {
            HugeSize::ContPte => TableLevel::Pte,
            HugeSize::Pmd | HugeSize::ContPmd => TableLevel::Pmd,
            HugeSize::Pud => TableLevel::Pud,
        }
    }
    /// Entries of one page (`num_contig_ptes()`).
    pub const fn entries(self) -> u64 {
        self.bytes() / self.entry_reach().bytes()
    }
}

/// Where the first entry of a huge page is (`pte_t *` of hugetlb).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hugep {
    /// Physical address of the entry.
    pub slot: PhysAddr,
    /// First address that the page translates.
    pub va: VirtAddr,
    /// The address space.
    pub mm: MmId,
    /// The size of the page.
    pub size: HugeSize,
}

impl Hugep {
    /// The entry `i` of the page, as the PTE helpers take it.
    pub(crate) fn entry(self, i: u64) -> Ptep {
        Ptep {
            slot: PhysAddr::new(self.slot.get() + i * 8),
            va: self.va.wrapping_add(i * self.size.entry_reach().bytes()),
            mm: self.mm,
        }
    }
    /// Base pages from one entry's frame to the next one's.
    pub(crate) const fn entry_pages(self) -> u64 {
        self.size.entry_reach().bytes() / PAGE_SIZE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_support_matrix() {
        let of = |size: HugeSize| (size.bytes() >> 10, size.entries(), size.level());
        assert_eq!(of(HugeSize::ContPte), (64, 16, TableLevel::Pte));
        assert_eq!(of(HugeSize::Pmd), (2048, 1, TableLevel::Pmd));
        assert_eq!(of(HugeSize::ContPmd), (32 << 10, 16, TableLevel::Pmd));
        assert_eq!(of(HugeSize::Pud), (1 << 20, 1, TableLevel::Pud));
        assert!(HugeSize::ALL.iter().all(|size| size.order().bytes() == size.bytes()));
        assert!(HugeSize::ALL.iter().all(|&s| HugeSize::of_order(s.order()) == Some(s)));
    }
}
