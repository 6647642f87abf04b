//! What `ksmd` does: page after page, address space after address space.
//!
//! Source: Linux mm/ksm.c.
//
// FIDELITY: ksm-scan-range kernels before the range walk of the scan (6.12.y, 7.x) and before
// smart scan (6.7) scan as later ones do

use super::merge::{
    find_mergeable_vma, split_huge_page, try_to_merge_two_pages, try_to_merge_with_ksm_page,
    try_to_merge_with_zero_page,
};
use super::rbtree::Side;
use super::stable::{
    memcmp_pages, remove_rmap_item_from_tree, stable_tree_append, stable_tree_insert,
    stable_tree_search,
};
use super::{Place, RmapId, RmapItem, Switch};
use crate::Mm;
use crate::folio::Folio;
use crate::pagewalk::{
    Action, Callbacks, Fw, MmWalk, MmWalkOps, Span, Step, folio_walk_start, pte_offset_map_lock,
    walk_page_range_vma,
};
use crate::vma::{VmFlags, VmaId};
use arch::{Platform, Pmdp};
use events::{Event, Op};
use phys::PageFlags;
use std::cmp::Ordering;
use std::ops::ControlFlow;
use twox_hash::XxHash64;
use units::{PAGE_SIZE, Pfn, VirtAddr};

/// `calc_checksum()` of a page.
pub(super) fn checksum(page: &[u8]) -> u32 {
    // `xxhash()`, cut to 32 bits.
    XxHash64::oneshot(0, page) as u32
}

impl<P: Platform> Mm<P> {
    /// `ksmd` scans a batch of at most `npages` pages; returns how many it looked at. `now_ns`
    /// is what the clock says. Source: Linux mm/ksm.c `ksm_do_scan()`.
    ///
    /// **Events**: per page one `ptep_get` to find it, one checksum; per merged page two
    /// exchanges, two flushes of a page and two stores (one of each for the page that the
    /// others are merged with).
    pub fn ksm_do_scan(&mut self, npages: u64, now_ns: u64) -> u64 {
        self.ksm.now_ns = now_ns;
        for done in 0..npages {
            let Some((page, item)) = scan_get_next_rmap_item(self) else { return done };
            cmp_and_merge_page(self, page, item);
            let folio = self.page_folio(page);
            self.folio_put_refs(folio, 1);
            self.ksm.stats.pages_scanned += 1;
        }
        npages
    }
}

/// The next page that is worth a look, with a reference, and its item. `None` at the end of a
/// scan of everything.
/// Source: Linux mm/ksm.c `scan_get_next_rmap_item()`.
fn scan_get_next_rmap_item<P: Platform>(mm: &mut Mm<P>) -> Option<(Pfn, RmapId)> {
    let mm = &mut *mm.enter(Op::ScanGetNextRmapItem);
    let ksm = &mut mm.ksm;
    if ksm.slots.is_empty() {
        return None;
    }
    if ksm.cursor.slot == ksm.slots.len() {
        ksm.unstable.clear();
        ksm.cursor.slot = 0;
        (ksm.cursor.address, ksm.cursor.passed) = (VirtAddr::ZERO, VirtAddr::ZERO);
    }
    while mm.ksm.cursor.slot < mm.ksm.slots.len() {
        if let Some(found) = scan_mm(mm) {
            return Some(found);
        }
        leave_mm(mm);
    }
    mm.ksm.cursor.seqnr += 1;
    None
}

/// The next page of the address space that the scan is at.
fn scan_mm<P: Platform>(mm: &mut Mm<P>) -> Option<(Pfn, RmapId)> {
    let slot = &mm.ksm.slots[mm.ksm.cursor.slot];
    let id = slot.mm;
    if slot.exited {
        (mm.ksm.cursor.address, mm.ksm.cursor.passed) = (VirtAddr::ZERO, VirtAddr::ZERO);
        return None;
    }
    let mut next = mm.find_vma(id, mm.ksm.cursor.address);
    while let Some(vma_id) = next {
        let vma = *mm.vma(vma_id);
        if vma.flags.contains(VmFlags::MERGEABLE) {
            let cursor = &mut mm.ksm.cursor;
            cursor.address = cursor.address.max(vma.start);
            if vma.anon_vma.is_none() {
                cursor.address = vma.end;
            }
            if let Some(found) = scan_vma(mm, vma_id, vma.end) {
                return Some(found);
            }
        }
        next = mm.find_vma(id, vma.end);
    }
    None
}

fn scan_vma<P: Platform>(mm: &mut Mm<P>, vma: VmaId, end: VirtAddr) -> Option<(Pfn, RmapId)> {
    while mm.ksm.cursor.address < end {
        let span = Span { start: mm.ksm.cursor.address, end };
        let ControlFlow::Break((page, at)) = walk_page_range_vma(mm, vma, span, &mut NextPage)
        else {
            mm.ksm.cursor.address = end;
            break;
        };
        let item = get_next_rmap_item(mm, at);
        mm.ksm.cursor.address = at.wrapping_add(PAGE_SIZE);
        mm.ksm.cursor.passed = mm.ksm.cursor.address;
        if !should_skip_rmap_item(mm, page, item) {
            return Some((page, item));
        }
        let folio = mm.page_folio(page);
        mm.folio_put_refs(folio, 1);
    }
    None
}

/// The scan of an address space is over: items behind the last page go, and the address space
/// too if nothing in it is mergeable.
fn leave_mm<P: Platform>(mm: &mut Mm<P>) {
    let at = mm.ksm.cursor.slot;
    remove_items(mm, at, mm.ksm.cursor.passed, None);
    if mm.ksm.cursor.address == VirtAddr::ZERO {
        let id = mm.ksm.slots[at].mm;
        mm.ksm.remove_slot(at);
        let state = &mut mm.mm_mut(id).ksm;
        (state.mergeable, state.merge_any) = (false, false);
    } else {
        mm.ksm.cursor.slot += 1;
    }
    let cursor = &mut mm.ksm.cursor;
    (cursor.address, cursor.passed) = (VirtAddr::ZERO, VirtAddr::ZERO);
}

/// Drops the items of an address space in `[from, to)`.
/// Source: Linux mm/ksm.c `remove_trailing_rmap_items()`.
pub(super) fn remove_items<P: Platform>(
    mm: &mut Mm<P>,
    slot: usize,
    from: VirtAddr,
    to: Option<VirtAddr>,
) {
    let items = &mm.ksm.slots[slot].items;
    let gone: Vec<RmapId> = match to {
        Some(to) if to <= from => return,
        Some(to) => items.range(from..to).map(|(_, &id)| id).collect(),
        None => items.range(from..).map(|(_, &id)| id).collect(),
    };
    for id in gone {
        remove_rmap_item_from_tree(mm, id);
        let RmapItem { mm: owner, address, .. } = mm.ksm[id];
        mm.ksm.slots[slot].items.remove(&address);
        mm.ksm.items.remove(id.0);
        mm.ksm.stats.rmap_items -= 1;
        mm.mm_mut(owner).ksm.rmap_items -= 1;
    }
}

/// The item for the address; those of addresses that were passed over had no page.
/// Source: Linux mm/ksm.c `get_next_rmap_item()`.
fn get_next_rmap_item<P: Platform>(mm: &mut Mm<P>, address: VirtAddr) -> RmapId {
    let slot = mm.ksm.cursor.slot;
    remove_items(mm, slot, mm.ksm.cursor.passed, Some(address));
    if let Some(&item) = mm.ksm.slots[slot].items.get(&address) {
        return item;
    }
    let id = mm.ksm.slots[slot].mm;
    let item = RmapId(mm.ksm.items.insert(RmapItem {
        mm: id,
        address,
        anon_vma: None,
        oldchecksum: 0,
        age: 0,
        remaining_skips: 0,
        place: Place::Nowhere,
        position: 0,
    }));
    mm.ksm.slots[slot].items.insert(address, item);
    mm.ksm.stats.rmap_items += 1;
    mm.mm_mut(id).ksm.rmap_items += 1;
    item
}

/// How many rounds a page of that age is left out (`skip_age()`).
fn skip_age(age: u8) -> u8 {
    match age {
        0..=3 => 1,
        4..=5 => 2,
        6..=8 => 4,
        _ => 8,
    }
}

/// Source: Linux mm/ksm.c `should_skip_rmap_item()`.
fn should_skip_rmap_item<P: Platform>(mm: &mut Mm<P>, page: Pfn, item: RmapId) -> bool {
    if mm.ksm.knobs.smart_scan == Switch::Off || mm.folio_test_ksm(mm.page_folio(page)) {
        return false;
    }
    let it = &mut mm.ksm[item];
    let age = it.age;
    it.age = age.saturating_add(1);
    if age < 3 {
        return false;
    }
    if it.remaining_skips == 0 {
        it.remaining_skips = skip_age(age);
        return false;
    }
    it.remaining_skips -= 1;
    mm.ksm.stats.pages_skipped += 1;
    remove_rmap_item_from_tree(mm, item);
    true
}

/// Finds the next anonymous page (`ksm_next_page_ops`) and takes a reference on it.
struct NextPage;

impl<P: Platform> MmWalkOps<P> for NextPage {
    type Stop = (Pfn, VirtAddr);
    const CALLBACKS: Callbacks = Callbacks::PMD_ENTRY;

    /// Source: Linux mm/ksm.c `ksm_next_page_pmd_entry()`.
    fn pmd_entry(
        &mut self,
        mm: &mut Mm<P>,
        _: &MmWalk,
        pmdp: Pmdp,
        span: Span,
    ) -> Step<(Pfn, VirtAddr)> {
        mm.lock_ptl();
        let pmd = mm.pt.pmdp_get(pmdp);
        if pmd.is_leaf() {
            if !pmd.is_special() {
                let page = pmd.pfn().add(span.start.vpn().get() - pmdp.va.vpn().get());
                grab_anon_page(mm, page, span.start)?;
            }
            return Step::Continue(Action::Continue);
        }
        let Some(first) = pte_offset_map_lock(mm, pmdp, span.start) else {
            return Step::Continue(Action::Continue);
        };
        for i in 0..span.pages().get() {
            let at = first.add(i);
            let pte = mm.pt.ptep_get(at);
            if pte.is_present() && !pte.is_special() {
                grab_anon_page(mm, pte.pfn(), at.va)?;
            }
        }
        Step::Continue(Action::Continue)
    }
}

/// Ends the walk at an anonymous page.
fn grab_anon_page<P: Platform>(
    mm: &mut Mm<P>,
    page: Pfn,
    at: VirtAddr,
) -> ControlFlow<(Pfn, VirtAddr)> {
    let folio = mm.page_folio(page);
    if !mm.folio_test(folio, PageFlags::ANON) {
        return ControlFlow::Continue(());
    }
    mm.folio_ref_add(folio, 1);
    ControlFlow::Break((page, at))
}

/// Looks for pages of the same contents, and merges with what it finds.
/// Source: Linux mm/ksm.c `cmp_and_merge_page()`.
fn cmp_and_merge_page<P: Platform>(mm: &mut Mm<P>, page: Pfn, item: RmapId) {
    let mm = &mut *mm.enter(Op::CmpAndMergePage);
    let folio = mm.page_folio(page);
    match mm.folio_stable_node(folio) {
        Some(node) if mm.ksm[item].place == Place::Stable(node) => return,
        // A merged page that a fork spread may go over the limit of sharers.
        Some(_) => {}
        None => {
            remove_rmap_item_from_tree(mm, item);
            if !checksum_is_stable(mm, page, item)
                || try_to_merge_with_zero_page(mm, item, page).is_ok()
            {
                return;
            }
        }
    }
    let kfolio = stable_tree_search(mm, page);
    remove_rmap_item_from_tree(mm, item);
    if let Some(kfolio) = kfolio {
        if try_to_merge_with_ksm_page(mm, item, page, Some(kfolio.pfn)).is_ok()
            && let Some(node) = mm.folio_stable_node(kfolio)
        {
            stable_tree_append(mm, item, node);
        }
        mm.folio_put_refs(kfolio, 1);
        return;
    }
    if let Some((tree_item, tree_page)) = unstable_tree_search_insert(mm, item, page) {
        merge_with_unstable_page(mm, item, page, tree_item, tree_page);
    }
}

/// Whether the page is as it was a scan ago.
fn checksum_is_stable<P: Platform>(mm: &mut Mm<P>, page: Pfn, item: RmapId) -> bool {
    mm.pt.count(Event::PageChecksum, 1);
    let now = checksum(mm.pt.ram.frame(page));
    std::mem::replace(&mut mm.ksm[item].oldchecksum, now) == now
}

/// Two pages of the same contents become a new page of the stable tree.
fn merge_with_unstable_page<P: Platform>(
    mm: &mut Mm<P>,
    item: RmapId,
    page: Pfn,
    tree_item: RmapId,
    tree_page: Pfn,
) {
    let merged = try_to_merge_two_pages(mm, item, page, tree_item, tree_page);
    // Two pages of one folio hold a reference each, so that it could not be split.
    let folio = mm.page_folio(page);
    let same_folio = folio.is_large() && folio == mm.page_folio(tree_page);
    let tree_folio = mm.page_folio(tree_page);
    mm.folio_put_refs(tree_folio, 1);
    if let Ok(kfolio) = merged {
        let node = stable_tree_insert(mm, kfolio);
        stable_tree_append(mm, tree_item, node);
        stable_tree_append(mm, item, node);
    } else if same_folio && mm.folio_trylock(folio) {
        split_huge_page(mm, page);
        let left = mm.page_folio(page);
        mm.folio_unlock(left);
    }
}

/// The page of an item, with a reference.
/// Source: Linux mm/ksm.c `get_mergeable_page()`.
fn get_mergeable_page<P: Platform>(mm: &mut Mm<P>, item: RmapId) -> Option<Pfn> {
    let vma = find_mergeable_vma(mm, item)?;
    let address = mm.ksm[item].address;
    let walked = folio_walk_start(mm, vma, address, Fw::empty())?;
    if !mm.folio_test(walked.folio, PageFlags::ANON) {
        return None;
    }
    mm.folio_ref_add(walked.folio, 1);
    Some(walked.page)
}

/// The item in the unstable tree whose page has the same contents, and that page with a
/// reference. If there is none, `item` is in the tree afterwards.
/// Source: Linux mm/ksm.c `unstable_tree_search_insert()`.
fn unstable_tree_search_insert<P: Platform>(
    mm: &mut Mm<P>,
    item: RmapId,
    page: Pfn,
) -> Option<(RmapId, Pfn)> {
    let (mut next, mut place) = (mm.ksm.unstable.root(), None);
    while let Some(at) = next {
        let tree_page = get_mergeable_page(mm, RmapId(at))?;
        let tree_folio: Folio = mm.page_folio(tree_page);
        if tree_page == page {
            // A page that a fork spread is no other page.
            mm.folio_put_refs(tree_folio, 1);
            return None;
        }
        let side = match memcmp_pages(mm, page, tree_page) {
            Ordering::Equal => return Some((RmapId(at), tree_page)),
            Ordering::Less => Side::Left,
            Ordering::Greater => Side::Right,
        };
        mm.folio_put_refs(tree_folio, 1);
        place = Some((at, side));
        next = mm.ksm.unstable.child(at, side);
    }
    let ksm = &mut mm.ksm;
    ksm.unstable.insert(item.0, place);
    ksm[item].place = Place::Unstable(ksm.cursor.seqnr);
    ksm.stats.pages_unshared += 1;
    None
}
