use crate::x86_64::bits;
use crate::{Pmd, Pte, PteFormat, Softleaf, VmaProt, X86_64};
use proptest::prelude::*;
use units::{PAGE_SIZE, Pfn};

type P = Pte<X86_64>;

fn of(prot: VmaProt) -> P {
    P::new(Pfn::new(0x1234), X86_64::vm_get_page_prot(prot))
}

#[test]
fn base_protections_are_the_documented_bits() {
    let flags = |prot: VmaProt| of(prot).raw() & !bits::ADDR_MASK;
    let rw = VmaProt { read: true, write: true, ..VmaProt::default() };
    let base = bits::PRESENT | bits::USER | bits::ACCESSED;
    assert_eq!(flags(rw), base | bits::NX);
    assert_eq!(flags(VmaProt { shared: true, ..rw }), base | bits::NX | bits::RW);
    assert_eq!(flags(VmaProt { exec: true, ..rw }), base);
    assert_eq!(flags(VmaProt::default()), bits::ACCESSED | bits::PROTNONE);
    assert_eq!(bits::pkey(of(VmaProt { pkey: 9, ..rw }).raw()), 9);
}

#[test]
fn prot_none_stores_its_address_inverted() {
    let none = of(VmaProt::default());
    assert_eq!(none.raw() & bits::ADDR_MASK, !(0x1234 << 12) & bits::ADDR_MASK);
    assert!(none.is_present() && none.is_protnone() && !none.is_accessible());
    assert_eq!(none.pfn(), Pfn::new(0x1234));
    assert_eq!(none.advance_pfn(3).pfn(), Pfn::new(0x1237));
    let back = none.modify(X86_64::vm_get_page_prot(VmaProt { read: true, ..VmaProt::default() }));
    assert_eq!(back.raw() & bits::ADDR_MASK, 0x1234 << 12);
}

#[test]
fn a_read_only_dirty_entry_keeps_its_dirtiness_in_software() {
    let dirty = of(VmaProt { read: true, ..VmaProt::default() }).mkwrite().mkdirty();
    assert_ne!(dirty.raw() & bits::DIRTY, 0);
    let ro = dirty.wrprotect();
    assert_eq!(ro.raw() & (bits::DIRTY | bits::SAVED_DIRTY), bits::SAVED_DIRTY);
    assert!(ro.is_dirty());
    assert_eq!(ro.mkwrite().raw(), dirty.raw());
    assert!(!ro.mkclean().is_dirty());
    assert!(ro.mkuffd_wp().is_uffd_wp() && !ro.mkuffd_wp().is_write());
}

#[test]
fn an_entry_with_only_accessed_and_dirty_is_none() {
    assert!(P::from_raw(bits::ACCESSED | bits::DIRTY).is_none());
    assert!(!P::from_raw(bits::SOFT_DIRTY).is_none());
}

#[test]
fn an_invalidated_leaf_still_counts_as_present() {
    let prot = VmaProt { read: true, write: true, shared: true, ..VmaProt::default() };
    let leaf = Pmd::<X86_64>::new_leaf(Pfn::new(0x1200), X86_64::vm_get_page_prot(prot)).mkdirty();
    let hidden = super::pmd_mkinvalid(leaf);
    assert_eq!(hidden.raw() & bits::PRESENT, 0);
    assert!(hidden.is_present() && hidden.is_leaf() && hidden.table().is_none());
    assert_eq!((hidden.pfn(), hidden.is_dirty()), (leaf.pfn(), true));
}

proptest! {
    #[test]
    fn present_entries_round_trip(
        pfn in 0u64..1 << 40, read: bool, write: bool, exec: bool, shared: bool, pkey in 0u8..16,
    ) {
        let prot = X86_64::vm_get_page_prot(VmaProt { read, write, exec, shared, pkey });
        let pte = P::new(Pfn::new(pfn), prot);
        prop_assert_eq!(pte.pfn(), Pfn::new(pfn));
        prop_assert!(pte.is_present() && pte.is_young() && !pte.is_dirty());
        prop_assert_eq!(pte.is_protnone(), !(read || write || exec));
        prop_assert_eq!(pte.is_write(), write && shared);
        prop_assert_eq!(pte.mkdirty().wrprotect().mkold().is_dirty(), true);
        prop_assert_eq!(pte.mkdirty().wrprotect().pfn(), Pfn::new(pfn));
    }

    #[test]
    fn modify_keeps_frame_and_state(
        pfn in 0u64..1 << 40, from: (bool, bool, bool), to: (bool, bool, bool), dirty: bool,
    ) {
        let prot = |(read, write, exec)| {
            X86_64::vm_get_page_prot(VmaProt { read, write, exec, shared: true, pkey: 0 })
        };
        let pte = P::new(Pfn::new(pfn), prot(from));
        let pte = if dirty { pte.mkdirty() } else { pte };
        let new = pte.modify(prot(to));
        prop_assert_eq!((new.pfn(), new.is_dirty(), new.is_young()), (pte.pfn(), dirty, true));
        // D without R/W would be a shadow-stack page.
        prop_assert!(new.raw() & bits::RW != 0 || new.raw() & bits::DIRTY == 0);
    }

    #[test]
    fn huge_leaves_round_trip(pfn in 0u64..1 << 31, read: bool) {
        let prot = X86_64::vm_get_page_prot(VmaProt { read, ..VmaProt::default() });
        let pmd = Pmd::<X86_64>::new_leaf(Pfn::new(pfn << 9), prot);
        prop_assert_eq!(pmd.pfn(), Pfn::new(pfn << 9));
        prop_assert!(pmd.is_leaf() && pmd.is_present() && pmd.table().is_none());
        prop_assert_eq!(pmd.is_protnone(), !read);
    }

    #[test]
    fn software_leaves_round_trip(ty in 0u8..32, offset in 0u64..(1 << 50) - 1) {
        let leaf = Softleaf { ty, offset };
        let pte = P::from_softleaf(leaf);
        prop_assert!(!pte.is_present() && !pte.is_none());
        prop_assert_eq!(pte.softleaf(), leaf);
        let flagged = pte.swp_mkexclusive().swp_mkuffd_wp().swp_mksoft_dirty();
        prop_assert_eq!(flagged.softleaf(), leaf);
        prop_assert!(!flagged.is_present() && !Pmd::<X86_64>::from_raw(flagged.raw()).is_leaf());
        prop_assert!(flagged.is_swp_exclusive() && flagged.is_swp_uffd_wp());
        prop_assert!(flagged.is_swp_soft_dirty());
    }

    #[test]
    fn every_word_decodes(raw: u64) {
        let pte = P::from_raw(raw);
        let pmd = Pmd::<X86_64>::from_raw(raw);
        let _ = (pte.softleaf(), pte.is_protnone(), pte.mkwrite().wrprotect(), pte.advance_pfn(3));
        prop_assert!(pte.pfn().get() < 1 << 40);
        prop_assert!(!(pmd.is_leaf() && pmd.table().is_some()));
        prop_assert!(pmd.table().is_none_or(|t| t.is_aligned(PAGE_SIZE)));
    }
}
