use crate::arm64::bits;
use crate::{Arm64, Pmd, Pte, PteFormat, Softleaf, VmaProt};
use proptest::prelude::*;
use units::{PAGE_SIZE, Pfn};

type P = Pte<Arm64>;

fn private_rw() -> P {
    let prot = VmaProt { read: true, write: true, ..VmaProt::default() };
    P::new(Pfn::new(0x1234), Arm64::vm_get_page_prot(prot))
}

#[test]
fn base_protections_are_the_documented_bits() {
    let of = |prot: VmaProt| P::new(Pfn::default(), Arm64::vm_get_page_prot(prot)).raw();
    let all = VmaProt { read: true, write: true, ..VmaProt::default() };
    let common = bits::VALID | bits::TABLE | bits::AF | bits::SHARED | bits::PXN | bits::RDONLY;
    assert_eq!(of(all), common | bits::USER | bits::NG | bits::UXN);
    assert_eq!(of(VmaProt { shared: true, ..all }), of(all) | bits::WRITE);
    assert_eq!(of(VmaProt { exec: true, ..all }), of(all) & !bits::UXN);
    let none = common & !bits::VALID | bits::PRESENT_INVALID | bits::UXN;
    assert_eq!(of(VmaProt::default()), none);
    let pte = P::from_raw(none);
    assert!(pte.is_present() && pte.is_protnone() && !pte.is_accessible());
    assert_eq!(pte.raw() & bits::USER, 0);
}

#[test]
fn dirty_and_write_take_the_four_documented_forms() {
    let form = |p: P| {
        let bit = |b| u8::from(p.raw() & b != 0);
        (bit(bits::RDONLY), bit(bits::WRITE), bit(bits::DIRTY))
    };
    let clean = private_rw();
    assert_eq!(form(clean), (1, 0, 0));
    assert_eq!(form(clean.mkwrite()), (1, 1, 0));
    assert_eq!(form(clean.mkdirty()), (1, 0, 1));
    assert_eq!(form(clean.mkwrite().mkdirty()), (0, 1, 1));
    assert_eq!(form(clean.mkdirty().mkwrite()), (0, 1, 1));
    // Hardware marked it dirty: only RDONLY went.
    let by_hw = P::from_raw(clean.mkwrite().raw() & !bits::RDONLY);
    assert!(by_hw.is_dirty());
    assert_eq!(form(by_hw.wrprotect()), (1, 0, 1));
    assert_eq!(form(by_hw.mkclean()), (1, 1, 0));
}

#[test]
fn modify_keeps_hardware_dirtiness() {
    let shared = VmaProt { read: true, write: true, shared: true, ..VmaProt::default() };
    let dirty = private_rw().mkwrite().mkdirty().mkyoung();
    let read = Arm64::vm_get_page_prot(VmaProt { read: true, ..VmaProt::default() });
    let ro = dirty.modify(read);
    assert!(ro.is_dirty() && !ro.is_write() && ro.is_young());
    let back = ro.modify(Arm64::vm_get_page_prot(shared));
    assert!(back.is_dirty() && back.is_write() && back.raw() & bits::RDONLY == 0);
    let none = dirty.modify(Arm64::vm_get_page_prot(VmaProt::default()));
    assert!(none.is_protnone() && none.is_dirty() && none.pfn() == dirty.pfn());
}

#[test]
fn an_invalidated_leaf_is_hidden_from_hardware_only() {
    let prot = VmaProt { read: true, write: true, shared: true, ..VmaProt::default() };
    let leaf = Pmd::<Arm64>::new_leaf(Pfn::new(0x1200), Arm64::vm_get_page_prot(prot)).mkdirty();
    let hidden = super::pmd_mkinvalid(leaf);
    assert_eq!(hidden.raw() & bits::VALID, 0);
    assert!(hidden.is_present() && hidden.is_leaf() && hidden.table().is_none());
    assert_eq!((hidden.pfn(), hidden.is_dirty()), (leaf.pfn(), true));
    assert!(!hidden.is_protnone());
}

proptest! {
    #[test]
    fn present_entries_round_trip(
        pfn in 0u64..1 << 36, read: bool, write: bool, exec: bool, shared: bool,
    ) {
        let prot = Arm64::vm_get_page_prot(VmaProt { read, write, exec, shared, pkey: 0 });
        let pte = P::new(Pfn::new(pfn), prot);
        prop_assert_eq!(pte.pfn(), Pfn::new(pfn));
        prop_assert!(pte.is_present() && !pte.is_none() && !pte.is_dirty());
        prop_assert_eq!(pte.is_write(), write && shared);
        prop_assert_eq!(pte.is_protnone(), !(read || write || exec));
        prop_assert_eq!(pte.mkyoung().mkold().is_young(), false);
        prop_assert_eq!(pte.mkdirty().mkclean().is_dirty(), false);
        prop_assert_eq!(pte.mkdirty().wrprotect().is_dirty(), true);
    }

    #[test]
    fn huge_leaves_round_trip(pfn in 0u64..1 << 27, write: bool, shared: bool) {
        let prot = VmaProt { read: true, write, shared, ..VmaProt::default() };
        let pmd = Pmd::<Arm64>::new_leaf(Pfn::new(pfn << 9), Arm64::vm_get_page_prot(prot));
        prop_assert_eq!(pmd.pfn(), Pfn::new(pfn << 9));
        prop_assert!(pmd.is_leaf() && pmd.is_present() && pmd.table().is_none());
        prop_assert_eq!(pmd.mkdirty().wrprotect().is_dirty(), true);
    }

    #[test]
    fn software_leaves_round_trip(ty in 0u8..32, offset in 0u64..1 << 50) {
        let leaf = Softleaf { ty, offset };
        let pte = P::from_softleaf(leaf);
        prop_assert!(!pte.is_present());
        prop_assert_eq!(pte.raw() & 3, 0);
        prop_assert_eq!(pte.softleaf(), leaf);
        let flagged = pte.swp_mkexclusive().swp_mkuffd_wp();
        prop_assert_eq!(flagged.softleaf(), leaf);
        prop_assert!(flagged.is_swp_exclusive() && flagged.is_swp_uffd_wp());
        prop_assert_eq!(flagged.swp_clear_exclusive().swp_clear_uffd_wp(), pte);
    }

    #[test]
    fn every_word_decodes(raw: u64) {
        let pte = P::from_raw(raw);
        let pmd = Pmd::<Arm64>::from_raw(raw);
        let _ = (pte.softleaf(), pte.is_protnone(), pte.mkwrite().wrprotect(), pte.advance_pfn(3));
        prop_assert!(pte.pfn().get() < 1 << 36);
        prop_assert!(!(pmd.is_leaf() && pmd.table().is_some()));
        prop_assert!(pmd.table().is_none_or(|t| t.is_aligned(PAGE_SIZE)));
        prop_assert_eq!(pte.is_none(), raw == 0);
    }
}
