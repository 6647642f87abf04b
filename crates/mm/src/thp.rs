//! Knobs and statistics of large folios: /sys/kernel/mm/transparent_hugepage.
//!
//! Source: Linux mm/huge_memory.c (`thp_vma_allowable_orders()`), include/linux/huge_mm.h.

use crate::vma::{VmFlags, Vma};
use units::{Order, PMD_ORDER, VirtAddr};

/// `transparent_hugepage/enabled`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ThpGlobal {
    /// Everywhere.
    Always,
    /// Where MADV_HUGEPAGE asked.
    #[default]
    Madvise,
    /// Nowhere.
    Never,
}

/// `hugepages-<kB>kB/enabled`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ThpSize {
    /// Everywhere.
    Always,
    /// As the global knob says.
    Inherit,
    /// Where MADV_HUGEPAGE asked.
    Madvise,
    /// Nowhere.
    #[default]
    Never,
}

/// `transparent_hugepage/defrag`; only remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ThpDefrag {
    /// always
    Always,
    /// defer
    Defer,
    /// defer+madvise
    DeferMadvise,
    /// madvise
    #[default]
    Madvise,
    /// never
    Never,
}

macro_rules! mthp_stats {
    ($($field:ident $name:literal;)*) => {
        /// `hugepages-<kB>kB/stats/*`.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct MthpStats {
            $(#[doc = concat!("`", $name, "`")] pub $field: u64,)*
        }

        impl MthpStats {
            /// Names and values, in the kernel's order.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$(($name, self.$field),)*].into_iter()
            }
        }
    };
}

mthp_stats! {
    anon_fault_alloc "anon_fault_alloc";
    anon_fault_fallback "anon_fault_fallback";
    anon_fault_fallback_charge "anon_fault_fallback_charge";
    collapse_alloc "collapse_alloc";
    collapse_alloc_failed "collapse_alloc_failed";
    zswpout "zswpout";
    swpin "swpin";
    swpin_fallback "swpin_fallback";
    swpin_fallback_charge "swpin_fallback_charge";
    swpout "swpout";
    swpout_fallback "swpout_fallback";
    shmem_alloc "shmem_alloc";
    shmem_fallback "shmem_fallback";
    shmem_fallback_charge "shmem_fallback_charge";
    split "split";
    split_failed "split_failed";
    split_deferred "split_deferred";
    nr_anon "nr_anon";
    nr_anon_partially_mapped "nr_anon_partially_mapped";
}

/// One folio size.
#[derive(Clone, Copy, Debug, Default)]
pub struct Size {
    /// Whether faults may use it.
    pub enabled: ThpSize,
    /// `shmem_enabled`; only remembered.
    pub shmem_enabled: ThpSize,
    /// What happened.
    pub stats: MthpStats,
}

/// All knobs.
#[derive(Clone, Debug)]
pub struct Thp {
    /// `enabled`.
    pub enabled: ThpGlobal,
    /// `defrag`.
    pub defrag: ThpDefrag,
    /// `use_zero_page`.
    pub use_zero_page: bool,
    sizes: [Size; Thp::SIZES],
}

impl Thp {
    const FIRST: u8 = 2;
    const SIZES: usize = 8;

    /// Orders with a directory of their own: 2 (16 kB) to 9 (2 MB).
    pub fn orders() -> impl DoubleEndedIterator<Item = Order> {
        (Thp::FIRST..=PMD_ORDER.get()).filter_map(Order::new)
    }

    /// The order of a folio size in kB, if it is one of those.
    pub fn order_of_kib(kib: u64) -> Option<Order> {
        Thp::orders().find(|order| order.kib() == kib)
    }

    /// As Linux boots: global madvise, the PMD size inherits, every other size never.
    pub fn boot() -> Thp {
        let mut thp = Thp {
            enabled: ThpGlobal::Madvise,
            defrag: ThpDefrag::Madvise,
            use_zero_page: true,
            sizes: [Size::default(); Thp::SIZES],
        };
        thp.size_mut(PMD_ORDER).enabled = ThpSize::Inherit;
        thp
    }

    /// As `--thp` asks for: only the named sizes, global madvise, every other size never.
    pub fn only(sizes: impl IntoIterator<Item = (Order, ThpSize)>) -> Thp {
        let mut thp = Thp::boot();
        thp.size_mut(PMD_ORDER).enabled = ThpSize::Never;
        for (order, enabled) in sizes {
            thp.size_mut(order).enabled = enabled;
        }
        thp
    }

    /// The size of an order from 2 to 9.
    ///
    /// # Panics
    /// For any other order.
    pub fn size(&self, order: Order) -> &Size {
        &self.sizes[usize::from(order.get() - Thp::FIRST)]
    }

    /// The same, to change.
    ///
    /// # Panics
    /// For any other order.
    pub fn size_mut(&mut self, order: Order) -> &mut Size {
        &mut self.sizes[usize::from(order.get() - Thp::FIRST)]
    }

    /// Statistics of an order, if it has any.
    pub(crate) fn stats(&mut self, order: Order) -> Option<&mut MthpStats> {
        (Thp::FIRST..=PMD_ORDER.get())
            .contains(&order.get())
            .then(|| &mut self.size_mut(order).stats)
    }

    /// `thp_vma_allowable_order()` for an anonymous fault: whether `order` is enabled for `vma`.
    fn allowed(&self, vma: &Vma, order: Order) -> bool {
        if vma.flags.contains(VmFlags::NOHUGEPAGE) {
            return false;
        }
        let advised = vma.flags.contains(VmFlags::HUGEPAGE);
        match self.size(order).enabled {
            ThpSize::Always => true,
            ThpSize::Madvise => advised,
            ThpSize::Inherit => match self.enabled {
                ThpGlobal::Always => true,
                ThpGlobal::Madvise => advised,
                ThpGlobal::Never => false,
            },
            ThpSize::Never => false,
        }
    }

    /// `thp_vma_suitable_order()`: whether the naturally aligned block around `va` fits `vma`.
    pub(crate) fn suitable(vma: &Vma, va: VirtAddr, order: Order) -> bool {
        let start = va.align_down(order.bytes());
        start >= vma.start && start.checked_add(order.bytes()).is_some_and(|end| end <= vma.end)
    }

    /// Orders below the PMD's that a fault at `va` may use, largest first.
    pub(crate) fn anon_orders(&self, vma: &Vma, va: VirtAddr) -> impl Iterator<Item = Order> {
        Thp::orders()
            .rev()
            .filter(move |&o| o < PMD_ORDER && self.allowed(vma, o) && Thp::suitable(vma, va, o))
    }

    /// Whether a fault at `va` may use a PMD leaf.
    pub(crate) fn anon_pmd(&self, vma: &Vma, va: VirtAddr) -> bool {
        self.allowed(vma, PMD_ORDER) && Thp::suitable(vma, va, PMD_ORDER)
    }
}
