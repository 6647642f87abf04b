//! Making two pages one.
//!
//! Source: Linux mm/ksm.c.

use super::stable::{memcmp_pages, remove_rmap_item_from_tree};
use super::{RmapId, Switch};
use crate::folio::Folio;
use crate::page_vma_mapped::{Mapped, PageVmaMappedWalk, Pvmw};
use crate::rmap::Exclusive;
use crate::vma::{VmFlags, VmaId};
use crate::{Mm, huge_memory};
use arch::{Platform, Pte, PteFormat, Ptep};
use events::{Event, Op};
use phys::PageFlags;
use std::cmp::Ordering;
use units::{NrPages, Order, Pfn, VirtAddr};

/// The page could not be merged now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotMerged;

/// The mergeable VMA at the address of an item, if it has anonymous pages.
/// Source: Linux mm/ksm.c `find_mergeable_vma()`.
pub(super) fn find_mergeable_vma<P: Platform>(mm: &Mm<P>, item: RmapId) -> Option<VmaId> {
    let item = &mm.ksm[item];
    let id = mm.vma_lookup(item.mm, item.address)?;
    let vma = mm.vma(id);
    (vma.flags.contains(VmFlags::MERGEABLE) && vma.anon_vma.is_some()).then_some(id)
}

/// Makes `page` of the item the same as `kpage`; without one, it becomes a merged page itself.
/// Source: Linux mm/ksm.c `try_to_merge_with_ksm_page()`.
pub(super) fn try_to_merge_with_ksm_page<P: Platform>(
    mm: &mut Mm<P>,
    item: RmapId,
    page: Pfn,
    kpage: Option<Pfn>,
) -> Result<(), NotMerged> {
    let vma = find_mergeable_vma(mm, item).ok_or(NotMerged)?;
    try_to_merge_one_page(mm, vma, item, page, kpage)?;
    remove_rmap_item_from_tree(mm, item);
    mm.ksm[item].anon_vma = mm.vma(vma).anon_vma;
    Ok(())
}

/// Makes two ordinary pages one merged page. If only the first step succeeds, it is undone.
/// Source: Linux mm/ksm.c `try_to_merge_two_pages()`.
pub(super) fn try_to_merge_two_pages<P: Platform>(
    mm: &mut Mm<P>,
    item: RmapId,
    page: Pfn,
    tree_item: RmapId,
    tree_page: Pfn,
) -> Result<Folio, NotMerged> {
    try_to_merge_with_ksm_page(mm, item, page, None)?;
    if let Err(error) = try_to_merge_with_ksm_page(mm, tree_item, tree_page, Some(page)) {
        super::unmerge::break_cow(mm, item);
        return Err(error);
    }
    Ok(Folio { pfn: page, order: Order::ZERO })
}

/// Maps the zero page in place of an empty page. `Ok` if that ends the matter: also when the
/// item is out of date.
/// Source: Linux mm/ksm.c `try_to_merge_with_zero_page()`.
pub(super) fn try_to_merge_with_zero_page<P: Platform>(
    mm: &mut Mm<P>,
    item: RmapId,
    page: Pfn,
) -> Result<(), NotMerged> {
    let empty = mm.ksm[item].oldchecksum == mm.ksm.zero_checksum;
    if mm.ksm.knobs.use_zero_pages == Switch::Off || !empty {
        return Err(NotMerged);
    }
    let Some(vma) = find_mergeable_vma(mm, item) else { return Ok(()) };
    let zero = mm.zero_page;
    try_to_merge_one_page(mm, vma, item, page, Some(zero))
}

/// Source: Linux mm/ksm.c `try_to_merge_one_page()`.
fn try_to_merge_one_page<P: Platform>(
    mm: &mut Mm<P>,
    vma: VmaId,
    item: RmapId,
    page: Pfn,
    kpage: Option<Pfn>,
) -> Result<(), NotMerged> {
    mm.fentry(Event::FnTryToMergeOnePage);
    if kpage == Some(page) {
        // A merged page that a fork spread.
        return Ok(());
    }
    let mut folio = mm.page_folio(page);
    if !mm.folio_test(folio, PageFlags::ANON) || !mm.folio_trylock(folio) {
        return Err(NotMerged);
    }
    if folio.is_large() {
        if !split_huge_page(mm, page) {
            mm.folio_unlock(folio);
            return Err(NotMerged);
        }
        folio = mm.page_folio(page);
    }
    let address = mm.ksm[item].address;
    let result = merge_locked_page(mm, vma, address, folio, kpage);
    mm.folio_unlock(folio);
    result
}

fn merge_locked_page<P: Platform>(
    mm: &mut Mm<P>,
    vma: VmaId,
    address: VirtAddr,
    folio: Folio,
    kpage: Option<Pfn>,
) -> Result<(), NotMerged> {
    let orig = write_protect_page(mm, vma, address, folio)?;
    let Some(kpage) = kpage else {
        mm.folio_set_stable_node(folio, None);
        mm.folio_mark_accessed(folio);
        // Reclaim would drop a clean page that is not in swap.
        mm.folio_set(folio, PageFlags::DIRTY);
        return Ok(());
    };
    if memcmp_pages(mm, folio.pfn, kpage) != Ordering::Equal {
        return Err(NotMerged);
    }
    replace_page(mm, vma, address, folio, kpage, orig)
}

/// `split_huge_page()`: splits the locked folio of `page`; the caller's lock and reference are
/// those of the page afterwards.
pub(super) fn split_huge_page<P: Platform>(mm: &mut Mm<P>, page: Pfn) -> bool {
    let folio = mm.page_folio(page);
    if !huge_memory::split_folio(mm, folio) {
        return false;
    }
    let of = |pfn| Folio { pfn, order: Order::ZERO };
    if page != folio.pfn {
        mm.folio_ref_add(of(page), 1);
        mm.folio_set(of(page), PageFlags::LOCKED);
        mm.folio_unlock(of(folio.pfn));
        mm.folio_put_refs(of(folio.pfn), 1);
    }
    true
}

/// Makes sure that nobody can write the page through the entry at `address`, nor holds it for
/// I/O. Returns the entry as it is then.
/// Source: Linux mm/ksm.c `write_protect_page()`.
///
/// **Events**: one exchange, one flush of a page and one store, unless the entry is clean,
/// read-only and shared already.
fn write_protect_page<P: Platform>(
    mm: &mut Mm<P>,
    id: VmaId,
    address: VirtAddr,
    folio: Folio,
) -> Result<Pte<P::Arch>, NotMerged> {
    let mm = &mut *mm.enter(Op::KsmWriteProtect);
    let vma = *mm.vma(id);
    let mut walk = PageVmaMappedWalk::new(folio, &vma, address, Pvmw::Racy);
    let Some(Mapped::Pte(at)) = walk.next(mm) else { return Err(NotMerged) };
    let exclusive = mm.page_anon_exclusive(folio.pfn);
    let entry = mm.pt.ptep_get(at);
    if !entry.is_write() && !entry.is_dirty() && !exclusive {
        return Ok(entry);
    }
    let swapped = u64::from(mm.folio_test(folio, PageFlags::SWAPCACHE));
    let entry = mm.pt.ptep_clear_flush(at);
    // ksmd's own reference is the one more; I/O or a pin would have others.
    let expected = mm.folio_mapcount(folio) + 1 + swapped;
    if expected != u64::from(mm.folio_ref_count(folio)) {
        mm.pt.set_pte_at(at, entry);
        return Err(NotMerged);
    }
    if exclusive && mm.folio_try_share_anon_rmap_ptes(folio, folio.pfn, NrPages::ONE).is_err() {
        mm.pt.set_pte_at(at, entry);
        return Err(NotMerged);
    }
    if entry.is_dirty() {
        mm.folio_set(folio, PageFlags::DIRTY);
    }
    let mut entry = entry.mkclean();
    if entry.is_write() {
        entry = entry.wrprotect();
    }
    mm.pt.set_pte_at(at, entry);
    Ok(entry)
}

/// Maps `kpage` in place of the page, which is write-protected and has the same contents.
/// Source: Linux mm/ksm.c `replace_page()`.
///
/// **Events**: one exchange, one flush of a page and one store.
fn replace_page<P: Platform>(
    mm: &mut Mm<P>,
    id: VmaId,
    address: VirtAddr,
    folio: Folio,
    kpage: Pfn,
    orig: Pte<P::Arch>,
) -> Result<(), NotMerged> {
    let mm = &mut *mm.enter(Op::KsmReplace);
    let vma = *mm.vma(id);
    let at: Ptep = mm.pte_at(vma.mm, address).ok_or(NotMerged)?;
    mm.lock_ptl();
    if mm.pt.ptep_get(at) != orig {
        return Err(NotMerged);
    }
    let new = Pte::new(kpage, P::Arch::vm_get_page_prot(vma.page_prot()));
    let new = if kpage == mm.zero_page {
        mm.ksm.stats.zero_pages += 1;
        mm.mm_mut(vma.mm).ksm.zero_pages += 1;
        mm.add_rss_anon(vma.mm, -1);
        // The dirty bit tells it from a zero page that a read fault brought.
        new.mkspecial().mkdirty()
    } else {
        let kfolio = mm.page_folio(kpage);
        mm.folio_ref_add(kfolio, 1);
        mm.folio_add_anon_rmap_ptes(kfolio, kpage, NrPages::ONE, Exclusive::No);
        new
    };
    // flush_cache_page() is told the frame, and so the entry is read once more.
    mm.pt.ptep_get(at);
    mm.pt.ptep_clear_flush(at);
    mm.pt.set_pte_at(at, new);
    mm.folio_remove_rmap_ptes(folio, folio.pfn, NrPages::ONE);
    if !mm.folio_mapped(folio) {
        mm.folio_free_swap(folio);
    }
    mm.folio_put_refs(folio, 1);
    Ok(())
}
