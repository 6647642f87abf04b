//! Migration entries: what stands in for a page while its folio is split.
//!
//! Source: Linux mm/rmap.c `try_to_migrate_one()`, mm/migrate.c `remove_migration_pte()`.

use crate::folio::Folio;
use crate::page_vma_mapped::{Mapped, PageVmaMappedWalk, Pvmw};
use crate::rmap::Exclusive;
use crate::vma::VmaId;
use crate::{Mm, huge_memory};
use arch::{Platform, Pte, PteFormat, Ptep, Softleaf, SoftleafKind};
use events::Op;
use phys::PageFlags;
use units::{NrPages, Order, Pfn, VirtAddr};

/// Replaces every entry that maps the folio by a migration entry, and remembers where.
pub(crate) fn unmap_folio_for_split<P: Platform>(mm: &mut Mm<P>, folio: Folio) {
    for (id, address) in mm.rmap_targets(folio) {
        try_to_migrate_one(mm, folio, id, address);
    }
    mm.try_to_unmap_flush();
}

fn try_to_migrate_one<P: Platform>(mm: &mut Mm<P>, folio: Folio, id: VmaId, address: VirtAddr) {
    let mm = &mut *mm.enter(Op::TryToMigrateOne);
    let vma = *mm.vma(id);
    let mut walk = PageVmaMappedWalk::new(folio, &vma, address, Pvmw::Sync);
    while let Some(mapped) = walk.next(mm) {
        match mapped {
            Mapped::Pmd(pmdp) => {
                huge_memory::split_huge_pmd_locked(mm, id, pmdp);
                walk.restart();
            }
            Mapped::Pte(at) => migrate_pte(mm, folio, at),
        }
    }
}

fn migrate_pte<P: Platform>(mm: &mut Mm<P>, folio: Folio, at: Ptep) {
    let pte = mm.pt.ptep_get(at);
    let page = pte.pfn();
    let exclusive = mm.page_anon_exclusive(page);
    // A page that may be pinned keeps its exclusivity: the split was refused before.
    let pte = mm.pt.ptep_clear_flush(at);
    if pte.is_dirty() {
        mm.folio_set(folio, PageFlags::DIRTY);
    }
    if exclusive {
        mm.clear_page_anon_exclusive(page);
    }
    let kind = match (pte.is_write(), exclusive) {
        (true, _) => SoftleafKind::MigrationWrite,
        (false, true) => SoftleafKind::MigrationReadExclusive,
        (false, false) => SoftleafKind::MigrationRead,
    };
    let leaf = Softleaf::migration(kind, page, pte.is_young(), pte.is_dirty());
    let mut entry = Pte::from_softleaf(leaf);
    if pte.is_soft_dirty() {
        entry = entry.swp_mksoft_dirty();
    }
    if pte.is_uffd_wp() {
        entry = entry.swp_mkuffd_wp();
    }
    mm.pt.set_pte_at(at, entry);
    mm.folio_remove_rmap_ptes(folio, page, NrPages::ONE);
    mm.folio_put_refs(folio, 1);
}

/// Puts the pages of a split folio back where their migration entries are.
pub(crate) fn remap_split_pages<P: Platform>(mm: &mut Mm<P>, folio: Folio) {
    let targets = mm.rmap_targets_of_range(folio);
    for (id, start, page, nr) in targets {
        for i in 0..nr {
            let va = start.wrapping_add(i * units::PAGE_SIZE);
            remove_migration_pte(mm, id, va, page.add(i));
        }
    }
}

fn remove_migration_pte<P: Platform>(mm: &mut Mm<P>, id: VmaId, va: VirtAddr, page: Pfn) {
    let mm = &mut *mm.enter(Op::RemoveMigrationPte);
    let vma = *mm.vma(id);
    let Some(at) = mm.pte_at(vma.mm, va) else { return };
    // page_vma_mapped_walk() with PVMW_MIGRATION looks first, then checks.
    let old = mm.pt.ptep_get(at);
    if old.is_none() || old.is_present() || !old.softleaf().is_migration() {
        return;
    }
    let leaf = old.softleaf();
    if leaf.pfn() != page {
        return;
    }
    let old = mm.pt.ptep_get(at);
    let mut pte = Pte::new(page, P::Arch::vm_get_page_prot(vma.page_prot()));
    pte = if leaf.migration_young() { pte.mkyoung() } else { pte.mkold() };
    if leaf.migration_dirty() {
        pte = pte.mkdirty();
    }
    if leaf.kind() == SoftleafKind::MigrationWrite {
        pte = pte.mkwrite();
    }
    if old.is_swp_soft_dirty() {
        pte = pte.mksoft_dirty();
    }
    if old.is_swp_uffd_wp() {
        pte = pte.mkuffd_wp();
    }
    let exclusive = match leaf.kind() {
        SoftleafKind::MigrationRead => Exclusive::No,
        _ => Exclusive::Yes,
    };
    let folio = Folio { pfn: page, order: Order::ZERO };
    mm.folio_ref_add(folio, 1);
    mm.folio_add_anon_rmap_ptes(folio, page, NrPages::ONE, exclusive);
    mm.pt.set_pte_at(at, pte);
}
