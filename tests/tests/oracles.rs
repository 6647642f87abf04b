//! Each oracle catches a bug that is planted for it.
//!
//! The stale-use oracle needs a TLB that remembers; its planted bugs are in `crates/mmu`.

use arch::{Arch, Arm64, Hw, KernelConfig, Pmdp, Pte, Ptep, X86_64};
use mm::{MapFlags, Thp, ThpSize, VmProt, advice};
use ptescope_tests::guest::{Guest, Oracle};
use units::{NrPages, PAGE_SIZE, PhysAddr, VirtAddr};

const MIB: u64 = 1 << 20;
const AT: VirtAddr = VirtAddr::new(0x4000_0000);

/// A process with 2 MiB of 64K folios.
fn guest<A: Arch>(hw: Hw) -> Guest<A> {
    let kernel = KernelConfig::parse(KernelConfig::DEFAULT).expect("the default exists");
    let thp = Thp::only(Thp::order_of_kib(64).map(|order| (order, ThpSize::Always)));
    let mut guest = Guest::new(kernel, Hw { cpus: 2, ..hw }, thp, 64 * MIB, 64 * MIB);
    let prot = VmProt::READ | VmProt::WRITE;
    guest.mmap(AT, 2 * MIB, prot, MapFlags::FIXED).expect("address space");
    guest.memset(AT, 2 * MIB, 7);
    guest.assert_valid("filled");
    guest
}

fn ptep<A: Arch>(guest: &Guest<A>, page: u64) -> Ptep {
    let va = AT.wrapping_add(page * PAGE_SIZE);
    let pmdp: Pmdp = guest.mm.pt.pmd_offset(guest.id, va).expect("a table");
    guest.mm.pt.pte_offset(pmdp, va).expect("a table")
}

fn pte<A: Arch>(guest: &Guest<A>, at: Ptep) -> Pte<A> {
    Pte::from_raw(guest.mm.pt.ram.load_u64(at.slot))
}

/// Plants `bug` and expects a complaint that says `what`.
fn caught<A: Arch>(hw: Hw, what: &str, bug: impl Fn(&mut Guest<A>)) {
    let mut guest = guest::<A>(hw);
    guest.mm.pt.tlb.oracle = Oracle::On;
    bug(&mut guest);
    let complaints = guest.mm.validate();
    assert!(complaints.iter().any(|c| c.what.contains(what)), "{what:?} not in {complaints:#?}");
}

fn caught_on_both(what: &str, bug: impl Fn(&mut dyn Planted)) {
    caught::<Arm64>(Hw::arm64(), what, |guest| bug(guest));
    caught::<X86_64>(Hw::x86_64(), what, |guest| bug(guest));
}

/// The bugs, whatever the architecture.
trait Planted {
    fn change_mapcount(&mut self, by: i32);
    fn lose_reference(&mut self);
    fn lose_pte(&mut self);
    fn lose_swap_entry(&mut self);
    fn map_twice(&mut self);
    fn lose_exclusive(&mut self);
    fn lose_table(&mut self);
    fn lose_way_back(&mut self);
}

impl<A: Arch> Planted for Guest<A> {
    fn change_mapcount(&mut self, by: i32) {
        let pfn = pte(self, ptep(self, 3)).pfn();
        let page = self.mm.pt.pages.page_mut(pfn);
        page.mapcount = page.mapcount.wrapping_add_signed(by);
    }
    fn lose_reference(&mut self) {
        let pfn = pte(self, ptep(self, 0)).pfn();
        self.mm.pt.pages.page_mut(pfn).refcount -= 1;
    }
    fn lose_pte(&mut self) {
        let at = ptep(self, 5);
        self.mm.pt.ram.store_u64(at.slot, 0);
    }
    fn lose_swap_entry(&mut self) {
        self.mm.madvise(self.id, AT, 2 * MIB, advice::PAGEOUT).expect("advice is taken");
        self.assert_valid("paged out");
        let at = ptep(self, 5);
        assert!(!pte(self, at).is_present());
        self.mm.pt.ram.store_u64(at.slot, 0);
    }
    fn map_twice(&mut self) {
        let (from, to) = (ptep(self, 20), ptep(self, 5));
        let raw = self.mm.pt.ram.load_u64(from.slot);
        self.mm.pt.ram.store_u64(to.slot, raw);
    }
    fn lose_exclusive(&mut self) {
        let pfn = pte(self, ptep(self, 9)).pfn();
        self.mm.pt.pages.page_mut(pfn).flags.remove(phys::PageFlags::ANON_EXCLUSIVE);
    }
    fn lose_way_back(&mut self) {
        let pfn = pte(self, ptep(self, 32)).pfn();
        self.mm.pt.pages.page_mut(pfn).index += 1;
    }
    fn lose_table(&mut self) {
        let pmdp = self.mm.pt.pmd_offset(self.id, AT).expect("a table");
        self.mm.pt.ram.store_u64(pmdp.slot, 0);
    }
}

#[test]
fn validate_catches_a_page_that_its_folio_does_not_lead_to() {
    caught_on_both("no reverse mapping", |g| g.lose_way_back());
}

#[test]
fn validate_catches_a_wrong_mapcount() {
    caught_on_both("says it is mapped", |g| g.change_mapcount(1));
    caught_on_both("says it is mapped", |g| g.change_mapcount(-1));
}

#[test]
fn validate_catches_a_lost_reference() {
    caught_on_both("references for", |g| g.lose_reference());
}

#[test]
fn validate_catches_a_lost_entry() {
    caught_on_both("counters say", |g| g.lose_pte());
    caught_on_both("the swap map", |g| g.lose_swap_entry());
}

#[test]
fn validate_catches_a_page_mapped_behind_the_counters() {
    caught_on_both("says it is mapped", |g| g.map_twice());
}

#[test]
fn validate_catches_a_shared_page_that_may_be_written() {
    caught_on_both("not exclusive", |g| g.lose_exclusive());
}

#[test]
fn validate_catches_a_lost_page_table() {
    caught_on_both("page tables are accounted for", |g| g.lose_table());
}

#[test]
fn validate_catches_a_block_that_is_not_uniform() {
    const CONT: u64 = 1 << 52;
    caught::<Arm64>(Hw::arm64(), "contiguous block", |guest| {
        let at = ptep(guest, 5);
        let raw = guest.mm.pt.ram.load_u64(at.slot);
        guest.mm.pt.ram.store_u64(at.slot, raw & !CONT);
    });
}

#[test]
fn a_live_entry_that_is_replaced_breaks_before_make() {
    caught::<Arm64>(Hw::arm64(), "live", |guest| {
        // A copy-on-write that forgot to clear and flush first.
        let at = ptep(guest, 5);
        let next = pte(guest, at).advance_pfn(16);
        guest.mm.pt.set_ptes(at, next, NrPages::ONE);
    });
}

#[test]
fn a_live_leaf_that_is_replaced_by_its_table_breaks_before_make() {
    caught::<Arm64>(Hw::arm64(), "live", |guest| {
        // A split that forgot to invalidate the leaf.
        let pmdp = guest.mm.pt.pmd_offset(guest.id, AT).expect("a table");
        let table: PhysAddr = guest.mm.pt.pmdp_get(pmdp).table().expect("a table");
        let prot = pte(guest, ptep(guest, 0));
        let leaf = arch::Pmd::<Arm64>::from_raw(prot.raw() & !(1 << 1 | 1 << 52 | 0x1f_f000));
        assert!(leaf.is_leaf());
        guest.mm.pt.ram.store_u64(pmdp.slot, leaf.raw());
        guest.mm.pt.populate(arch::TableLevel::Pmd, pmdp.slot, table);
    });
}

#[test]
fn correct_code_breaks_nothing() {
    let mut guest = guest::<Arm64>(Hw::arm64());
    guest.mm.pt.tlb.oracle = Oracle::On;
    let id = guest.id;
    let half = MIB + 5 * PAGE_SIZE;
    guest.mm.mprotect(id, AT, half, VmProt::READ).expect("a mapping");
    let child = guest.mm.dup_mmap(id).expect("memory");
    guest.mm.mprotect(id, AT, half, VmProt::READ | VmProt::WRITE).expect("a mapping");
    guest.memset(AT, 2 * MIB, 8);
    guest.mm.madvise(id, AT, 2 * MIB, advice::PAGEOUT).expect("advice is taken");
    guest.memset(AT, 2 * MIB, 9);
    guest.mm.munmap(id, AT.wrapping_add(3 * PAGE_SIZE), 40 * PAGE_SIZE).expect("a range");
    guest.mm.mmput(child);
    guest.assert_valid("all of it");
}
