//! Migration entries: what stands in for a page while its folio is split.
//!
//! Source: Linux mm/rmap.c `try_to_migrate_one()`, mm/migrate.c `remove_migration_pte()`.

use crate::folio::Folio;
use crate::huge_memory::Freeze;
use crate::page_vma_mapped::{Mapped, PageVmaMappedWalk, Pvmw};
use crate::rmap::{Exclusive, Ttu};
use crate::vma::VmaId;
use crate::{Mm, huge_memory};
use arch::{Arch, Platform, Pte, PteFormat, Ptep, Softleaf, SoftleafKind};
use events::Op;
use phys::PageFlags;
use units::{NrPages, Order, Pfn, VirtAddr};

/// What a migration entry keeps of the mapping that it stands in for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MigrationOf {
    pub(crate) write: bool,
    pub(crate) exclusive: bool,
    pub(crate) young: bool,
    pub(crate) dirty: bool,
    pub(crate) soft_dirty: bool,
    pub(crate) uffd_wp: bool,
}

impl MigrationOf {
    /// The entry for one page.
    pub(crate) fn entry<A: Arch>(self, page: Pfn) -> Pte<A> {
        let kind = match (self.write, self.exclusive) {
            (true, _) => SoftleafKind::MigrationWrite,
            (false, true) => SoftleafKind::MigrationReadExclusive,
            (false, false) => SoftleafKind::MigrationRead,
        };
        let leaf = Softleaf::migration(kind, page, self.young, self.dirty);
        let mut entry = Pte::from_softleaf(leaf);
        if self.soft_dirty {
            entry = entry.swp_mksoft_dirty();
        }
        if self.uffd_wp {
            entry = entry.swp_mkuffd_wp();
        }
        entry
    }
}

/// Replaces every entry that maps the folio by a migration entry.
/// Source: Linux mm/huge_memory.c `unmap_folio()`, mm/rmap.c `try_to_migrate()`.
pub(crate) fn unmap_folio_for_split<P: Platform>(mm: &mut Mm<P>, folio: Folio) {
    for (id, address) in mm.rmap_targets(folio) {
        try_to_migrate_one(mm, folio, id, address);
    }
    mm.try_to_unmap_flush();
}

fn try_to_migrate_one<P: Platform>(mm: &mut Mm<P>, folio: Folio, id: VmaId, address: VirtAddr) {
    let mm = &mut *mm.enter(Op::TryToMigrateOne);
    let vma = *mm.vma(id);
    if !mm.pt.kernel.migrate_splits_in_walk
        && let Some(pmdp) = mm.pt.pmd_offset(vma.mm, address)
        && mm.pt.pmdp_get(pmdp).is_leaf()
    {
        // split_huge_pmd_address(): by address, before the walk starts.
        mm.lock_ptl();
        huge_memory::split_huge_pmd_locked(mm, id, pmdp, Freeze::Yes);
    }
    let mut walk = PageVmaMappedWalk::new(folio, &vma, address, Pvmw::Sync);
    while let Some(mapped) = walk.next(mm) {
        match mapped {
            Mapped::Pmd(pmdp) => {
                huge_memory::split_huge_pmd_locked(mm, id, pmdp, Freeze::Yes);
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
    let pte = if mm.should_defer_flush(at.mm, Ttu::BATCH_FLUSH) {
        let pte = mm.pt.ptep_get_and_clear(at);
        mm.set_tlb_ubc_flush_pending(at, pte, NrPages::ONE);
        pte
    } else {
        mm.pt.ptep_clear_flush(at)
    };
    if pte.is_dirty() {
        mm.folio_set(folio, PageFlags::DIRTY);
    }
    if exclusive && mm.folio_try_share_anon_rmap_ptes(folio, page, NrPages::ONE).is_err() {
        mm.pt.set_pte_at(at, pte);
        return;
    }
    let of = MigrationOf {
        write: pte.is_write(),
        exclusive,
        young: pte.is_young(),
        dirty: pte.is_dirty(),
        soft_dirty: pte.is_soft_dirty(),
        uffd_wp: pte.is_uffd_wp(),
    };
    let entry = of.entry(page);
    mm.pt.set_pte_at(at, entry);
    mm.folio_remove_rmap_ptes(folio, page, NrPages::ONE);
    mm.folio_put_refs(folio, 1);
}

/// Puts the pages of a split folio back where their migration entries are.
/// Source: Linux mm/huge_memory.c `remap_page()`, mm/migrate.c `remove_migration_ptes()`.
pub(crate) fn remap_split_pages<P: Platform>(mm: &mut Mm<P>, folio: Folio) {
    for i in 0..folio.nr_pages().get() {
        let page = Folio { pfn: folio.pfn.add(i), order: Order::ZERO };
        for (id, address) in mm.rmap_targets(page) {
            remove_migration_pte(mm, page, id, address);
        }
    }
}

fn remove_migration_pte<P: Platform>(mm: &mut Mm<P>, folio: Folio, id: VmaId, address: VirtAddr) {
    let mm = &mut *mm.enter(Op::RemoveMigrationPte);
    let vma = *mm.vma(id);
    let mut walk = PageVmaMappedWalk::new(folio, &vma, address, Pvmw::Migration);
    while let Some(mapped) = walk.next(mm) {
        let Mapped::Pte(at) = mapped else { return };
        let old = mm.pt.ptep_get(at);
        let leaf = old.softleaf();
        let mut pte = Pte::new(leaf.pfn(), P::Arch::vm_get_page_prot(vma.page_prot()));
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
        mm.folio_ref_add(folio, 1);
        mm.folio_add_anon_rmap_ptes(folio, leaf.pfn(), NrPages::ONE, exclusive);
        mm.pt.set_pte_at(at, pte);
    }
}
