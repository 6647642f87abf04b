//! Page-table entries as values: what software asks of them and how it changes them.
//!
//! [`Pte`] and [`Pmd`] are raw words tagged with their architecture; all their methods are pure.
//! The encodings are in `x86_64/pte.rs` and `arm64/pte.rs`, behind [`PteFormat`] and
//! [`PmdFormat`].

use crate::{Arch, Softleaf};
use std::fmt;
use std::marker::PhantomData;
use units::{Pfn, PhysAddr};

/// What a VMA allows, for its base protection (`vm_get_page_prot`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct VmaProt {
    /// PROT_READ.
    pub read: bool,
    /// PROT_WRITE.
    pub write: bool,
    /// PROT_EXEC.
    pub exec: bool,
    /// MAP_SHARED: writable entries need no copy-on-write.
    pub shared: bool,
    /// x86-64 protection key, 0–15.
    pub pkey: u8,
}

/// Which bits `clear_young_dirty_ptes()` clears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClearYoungDirty {
    /// `CYDP_CLEAR_YOUNG`.
    Young,
    /// `CYDP_CLEAR_DIRTY`.
    Dirty,
    /// Both.
    Both,
}

/// A raw word of architecture `A` that protects a VMA's pages (`pgprot_t`).
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct Prot<A>(pub(crate) u64, PhantomData<A>);

impl<A> Prot<A> {
    pub(crate) const fn from_raw(raw: u64) -> Self {
        Prot(raw, PhantomData)
    }
}

impl<A> fmt::Debug for Prot<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Prot({:#x})", self.0)
    }
}

macro_rules! entry {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[repr(transparent)]
        pub struct $name<A>(u64, PhantomData<A>);

        impl<A> Clone for $name<A> {
            #[inline(always)]
            fn clone(&self) -> Self {
                *self
            }
        }
        impl<A> Copy for $name<A> {}
        impl<A> PartialEq for $name<A> {
            #[inline(always)]
            fn eq(&self, other: &Self) -> bool {
                self.0 == other.0
            }
        }
        impl<A> Eq for $name<A> {}
        impl<A> fmt::Debug for $name<A> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#018x})"), self.0)
            }
        }
        impl<A> $name<A> {
            /// The empty entry.
            pub const NONE: Self = $name(0, PhantomData);

            /// Wraps a raw word.
            #[inline(always)]
            pub const fn from_raw(raw: u64) -> Self {
                $name(raw, PhantomData)
            }
            /// The raw word.
            #[inline(always)]
            pub const fn raw(self) -> u64 {
                self.0
            }
        }
    };
}

entry! {
    /// A last-level entry (`pte_t`).
    Pte
}
entry! {
    /// A PMD entry (`pmd_t`): a table, a 2 MiB leaf, a non-present leaf, or nothing.
    Pmd
}

macro_rules! forward {
    ($entry:ident: $($(#[$doc:meta])* $name:ident => $function:ident($($arg:ident: $ty:ty),*) -> $ret:ty;)*) => {
        impl<A: Arch> $entry<A> {
            $($(#[$doc])*
            #[inline(always)]
            pub fn $name(self $(, $arg: $ty)*) -> $ret {
                A::$function(self $(, $arg)*)
            })*
        }
    };
}

/// Encoding of last-level entries.
pub trait PteFormat: Sized {
    /// Base protection of a VMA (`vm_get_page_prot`).
    fn vm_get_page_prot(prot: VmaProt) -> Prot<Self>;
    /// A present entry (`pfn_pte`): frame and protection, otherwise clean.
    fn pfn_pte(pfn: Pfn, prot: Prot<Self>) -> Pte<Self>;
    /// `pte_none`.
    fn pte_none(pte: Pte<Self>) -> bool;
    /// `pte_present`: valid for hardware, or PROT_NONE.
    fn pte_present(pte: Pte<Self>) -> bool;
    /// `pte_protnone`.
    fn pte_protnone(pte: Pte<Self>) -> bool;
    /// `pte_accessible`: could sit in a TLB.
    fn pte_accessible(pte: Pte<Self>) -> bool;
    /// `pte_pfn`.
    fn pte_pfn(pte: Pte<Self>) -> Pfn;
    /// `pte_young`.
    fn pte_young(pte: Pte<Self>) -> bool;
    /// `pte_dirty`.
    fn pte_dirty(pte: Pte<Self>) -> bool;
    /// `pte_write`.
    fn pte_write(pte: Pte<Self>) -> bool;
    /// `pte_special`.
    fn pte_special(pte: Pte<Self>) -> bool;
    /// `pte_soft_dirty`; never where the architecture has none.
    fn pte_soft_dirty(pte: Pte<Self>) -> bool;
    /// `pte_uffd_wp`.
    fn pte_uffd_wp(pte: Pte<Self>) -> bool;
    /// `pte_cont`: member of a contiguous block (arm64).
    fn pte_cont(pte: Pte<Self>) -> bool;
    /// `pte_mkyoung`.
    fn pte_mkyoung(pte: Pte<Self>) -> Pte<Self>;
    /// `pte_mkold`.
    fn pte_mkold(pte: Pte<Self>) -> Pte<Self>;
    /// `pte_mkdirty`.
    fn pte_mkdirty(pte: Pte<Self>) -> Pte<Self>;
    /// `pte_mkclean`.
    fn pte_mkclean(pte: Pte<Self>) -> Pte<Self>;
    /// `pte_mkwrite`.
    fn pte_mkwrite(pte: Pte<Self>) -> Pte<Self>;
    /// `pte_wrprotect`.
    fn pte_wrprotect(pte: Pte<Self>) -> Pte<Self>;
    /// `pte_mkspecial`.
    fn pte_mkspecial(pte: Pte<Self>) -> Pte<Self>;
    /// `pte_mksoft_dirty`.
    fn pte_mksoft_dirty(pte: Pte<Self>) -> Pte<Self>;
    /// `pte_clear_soft_dirty`.
    fn pte_clear_soft_dirty(pte: Pte<Self>) -> Pte<Self>;
    /// `pte_mkuffd_wp` (write-protects as well).
    fn pte_mkuffd_wp(pte: Pte<Self>) -> Pte<Self>;
    /// `pte_clear_uffd_wp`.
    fn pte_clear_uffd_wp(pte: Pte<Self>) -> Pte<Self>;
    /// `pte_modify`: new protection; frame, young, dirty and software state stay.
    fn pte_modify(pte: Pte<Self>, prot: Prot<Self>) -> Pte<Self>;
    /// `pte_advance_pfn`.
    fn pte_advance_pfn(pte: Pte<Self>, nr: u64) -> Pte<Self>;

    /// `softleaf_to_pte` (`swp_entry_to_pte`).
    fn softleaf_to_pte(leaf: Softleaf) -> Pte<Self>;
    /// `softleaf_from_pte` (`pte_to_swp_entry`); meaningful if neither none nor present.
    fn softleaf_from_pte(pte: Pte<Self>) -> Softleaf;
    /// `pte_swp_exclusive`.
    fn pte_swp_exclusive(pte: Pte<Self>) -> bool;
    /// `pte_swp_mkexclusive`.
    fn pte_swp_mkexclusive(pte: Pte<Self>) -> Pte<Self>;
    /// `pte_swp_clear_exclusive`.
    fn pte_swp_clear_exclusive(pte: Pte<Self>) -> Pte<Self>;
    /// `pte_swp_soft_dirty`.
    fn pte_swp_soft_dirty(pte: Pte<Self>) -> bool;
    /// `pte_swp_mksoft_dirty`.
    fn pte_swp_mksoft_dirty(pte: Pte<Self>) -> Pte<Self>;
    /// `pte_swp_clear_soft_dirty`.
    fn pte_swp_clear_soft_dirty(pte: Pte<Self>) -> Pte<Self>;
    /// `pte_swp_uffd_wp`.
    fn pte_swp_uffd_wp(pte: Pte<Self>) -> bool;
    /// `pte_swp_mkuffd_wp`.
    fn pte_swp_mkuffd_wp(pte: Pte<Self>) -> Pte<Self>;
    /// `pte_swp_clear_uffd_wp`.
    fn pte_swp_clear_uffd_wp(pte: Pte<Self>) -> Pte<Self>;
}

forward! { Pte:
    /// `pte_none`.
    is_none => pte_none() -> bool;
    /// `pte_present`: valid for hardware, or PROT_NONE.
    is_present => pte_present() -> bool;
    /// `pte_protnone`.
    is_protnone => pte_protnone() -> bool;
    /// `pte_accessible`: could sit in a TLB.
    is_accessible => pte_accessible() -> bool;
    /// `pte_pfn`.
    pfn => pte_pfn() -> Pfn;
    /// `pte_young`.
    is_young => pte_young() -> bool;
    /// `pte_dirty`.
    is_dirty => pte_dirty() -> bool;
    /// `pte_write`.
    is_write => pte_write() -> bool;
    /// `pte_special`.
    is_special => pte_special() -> bool;
    /// `pte_soft_dirty`.
    is_soft_dirty => pte_soft_dirty() -> bool;
    /// `pte_uffd_wp`.
    is_uffd_wp => pte_uffd_wp() -> bool;
    /// `pte_cont`.
    is_cont => pte_cont() -> bool;
    /// `pte_mkyoung`.
    mkyoung => pte_mkyoung() -> Pte<A>;
    /// `pte_mkold`.
    mkold => pte_mkold() -> Pte<A>;
    /// `pte_mkdirty`.
    mkdirty => pte_mkdirty() -> Pte<A>;
    /// `pte_mkclean`.
    mkclean => pte_mkclean() -> Pte<A>;
    /// `pte_mkwrite`.
    mkwrite => pte_mkwrite() -> Pte<A>;
    /// `pte_wrprotect`.
    wrprotect => pte_wrprotect() -> Pte<A>;
    /// `pte_mkspecial`.
    mkspecial => pte_mkspecial() -> Pte<A>;
    /// `pte_mksoft_dirty`.
    mksoft_dirty => pte_mksoft_dirty() -> Pte<A>;
    /// `pte_clear_soft_dirty`.
    clear_soft_dirty => pte_clear_soft_dirty() -> Pte<A>;
    /// `pte_mkuffd_wp`.
    mkuffd_wp => pte_mkuffd_wp() -> Pte<A>;
    /// `pte_clear_uffd_wp`.
    clear_uffd_wp => pte_clear_uffd_wp() -> Pte<A>;
    /// `pte_modify`.
    modify => pte_modify(prot: Prot<A>) -> Pte<A>;
    /// `pte_advance_pfn`.
    advance_pfn => pte_advance_pfn(nr: u64) -> Pte<A>;
    /// `softleaf_from_pte`.
    softleaf => softleaf_from_pte() -> Softleaf;
    /// `pte_swp_exclusive`.
    is_swp_exclusive => pte_swp_exclusive() -> bool;
    /// `pte_swp_mkexclusive`.
    swp_mkexclusive => pte_swp_mkexclusive() -> Pte<A>;
    /// `pte_swp_clear_exclusive`.
    swp_clear_exclusive => pte_swp_clear_exclusive() -> Pte<A>;
    /// `pte_swp_soft_dirty`.
    is_swp_soft_dirty => pte_swp_soft_dirty() -> bool;
    /// `pte_swp_mksoft_dirty`.
    swp_mksoft_dirty => pte_swp_mksoft_dirty() -> Pte<A>;
    /// `pte_swp_clear_soft_dirty`.
    swp_clear_soft_dirty => pte_swp_clear_soft_dirty() -> Pte<A>;
    /// `pte_swp_uffd_wp`.
    is_swp_uffd_wp => pte_swp_uffd_wp() -> bool;
    /// `pte_swp_mkuffd_wp`.
    swp_mkuffd_wp => pte_swp_mkuffd_wp() -> Pte<A>;
    /// `pte_swp_clear_uffd_wp`.
    swp_clear_uffd_wp => pte_swp_clear_uffd_wp() -> Pte<A>;
}

impl<A: Arch> Pte<A> {
    /// `mk_pte`/`pfn_pte`: a present entry.
    #[inline(always)]
    pub fn new(pfn: Pfn, prot: Prot<A>) -> Self {
        A::pfn_pte(pfn, prot)
    }
    /// `softleaf_to_pte`.
    #[inline(always)]
    pub fn from_softleaf(leaf: Softleaf) -> Self {
        A::softleaf_to_pte(leaf)
    }
}

/// Encoding of PMD entries.
pub trait PmdFormat: Sized {
    /// `pfn_pmd` made huge: a 2 MiB leaf.
    fn pfn_pmd(pfn: Pfn, prot: Prot<Self>) -> Pmd<Self>;
    /// `pmd_none`.
    fn pmd_none(pmd: Pmd<Self>) -> bool;
    /// `pmd_present`: a table, a leaf, or a leaf made invalid for hardware.
    fn pmd_present(pmd: Pmd<Self>) -> bool;
    /// `pmd_leaf` (`pmd_trans_huge`): a present leaf, invalid or not.
    fn pmd_leaf(pmd: Pmd<Self>) -> bool;
    /// The table that the entry points to, if it is a table.
    fn pmd_table(pmd: Pmd<Self>) -> Option<PhysAddr>;
    /// `pmd_protnone`.
    fn pmd_protnone(pmd: Pmd<Self>) -> bool;
    /// `pmd_pfn` of a leaf.
    fn pmd_pfn(pmd: Pmd<Self>) -> Pfn;
    /// `pmd_young`.
    fn pmd_young(pmd: Pmd<Self>) -> bool;
    /// `pmd_dirty`.
    fn pmd_dirty(pmd: Pmd<Self>) -> bool;
    /// `pmd_write`.
    fn pmd_write(pmd: Pmd<Self>) -> bool;
    /// `pmd_special`: the huge zero page.
    fn pmd_special(pmd: Pmd<Self>) -> bool;
    /// `pmd_soft_dirty`.
    fn pmd_soft_dirty(pmd: Pmd<Self>) -> bool;
    /// `pmd_uffd_wp`.
    fn pmd_uffd_wp(pmd: Pmd<Self>) -> bool;
    /// `pmd_mkyoung`.
    fn pmd_mkyoung(pmd: Pmd<Self>) -> Pmd<Self>;
    /// `pmd_mkold`.
    fn pmd_mkold(pmd: Pmd<Self>) -> Pmd<Self>;
    /// `pmd_mkdirty`.
    fn pmd_mkdirty(pmd: Pmd<Self>) -> Pmd<Self>;
    /// `pmd_mkclean`.
    fn pmd_mkclean(pmd: Pmd<Self>) -> Pmd<Self>;
    /// `pmd_mksoft_dirty`.
    fn pmd_mksoft_dirty(pmd: Pmd<Self>) -> Pmd<Self>;
    /// `pmd_clear_soft_dirty`.
    fn pmd_clear_soft_dirty(pmd: Pmd<Self>) -> Pmd<Self>;
    /// `pmd_mkwrite`.
    fn pmd_mkwrite(pmd: Pmd<Self>) -> Pmd<Self>;
    /// `pmd_wrprotect`.
    fn pmd_wrprotect(pmd: Pmd<Self>) -> Pmd<Self>;
    /// `pmd_mkspecial`.
    fn pmd_mkspecial(pmd: Pmd<Self>) -> Pmd<Self>;
    /// `pmd_modify`.
    fn pmd_modify(pmd: Pmd<Self>, prot: Prot<Self>) -> Pmd<Self>;
}

forward! { Pmd:
    /// `pmd_none`.
    is_none => pmd_none() -> bool;
    /// `pmd_present`.
    is_present => pmd_present() -> bool;
    /// `pmd_leaf`.
    is_leaf => pmd_leaf() -> bool;
    /// The table that the entry points to, if it is a table.
    table => pmd_table() -> Option<PhysAddr>;
    /// `pmd_protnone`.
    is_protnone => pmd_protnone() -> bool;
    /// `pmd_pfn` of a leaf.
    pfn => pmd_pfn() -> Pfn;
    /// `pmd_young`.
    is_young => pmd_young() -> bool;
    /// `pmd_dirty`.
    is_dirty => pmd_dirty() -> bool;
    /// `pmd_write`.
    is_write => pmd_write() -> bool;
    /// `pmd_special`.
    is_special => pmd_special() -> bool;
    /// `pmd_soft_dirty`.
    is_soft_dirty => pmd_soft_dirty() -> bool;
    /// `pmd_uffd_wp`.
    is_uffd_wp => pmd_uffd_wp() -> bool;
    /// `pmd_mkyoung`.
    mkyoung => pmd_mkyoung() -> Pmd<A>;
    /// `pmd_mkold`.
    mkold => pmd_mkold() -> Pmd<A>;
    /// `pmd_mkdirty`.
    mkdirty => pmd_mkdirty() -> Pmd<A>;
    /// `pmd_mkclean`.
    mkclean => pmd_mkclean() -> Pmd<A>;
    /// `pmd_mksoft_dirty`.
    mksoft_dirty => pmd_mksoft_dirty() -> Pmd<A>;
    /// `pmd_clear_soft_dirty`.
    clear_soft_dirty => pmd_clear_soft_dirty() -> Pmd<A>;
    /// `pmd_mkwrite`.
    mkwrite => pmd_mkwrite() -> Pmd<A>;
    /// `pmd_wrprotect`.
    wrprotect => pmd_wrprotect() -> Pmd<A>;
    /// `pmd_mkspecial`.
    mkspecial => pmd_mkspecial() -> Pmd<A>;
    /// `pmd_modify`.
    modify => pmd_modify(prot: Prot<A>) -> Pmd<A>;
}

impl<A: Arch> Pmd<A> {
    /// A 2 MiB leaf.
    #[inline(always)]
    pub fn new_leaf(pfn: Pfn, prot: Prot<A>) -> Self {
        A::pfn_pmd(pfn, prot)
    }
}
