//! The stable tree: merged pages, by contents, with what was merged into each.
//!
//! Source: Linux mm/ksm.c.

use super::rbtree::Side;
use super::{Ksm, NO_NODE, NodeKind, Place, RmapId, StableId, StableNode};
use crate::Mm;
use crate::folio::Folio;
use crate::vma::VmaId;
use arch::Platform;
use events::Event;
use phys::PageFlags;
use std::cmp::Ordering;
use std::collections::VecDeque;
use units::{Order, Pfn, VirtAddr};

/// Whether chains are looked through for pages that are gone (`chain_prune()` or `chain()`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Prune {
    Yes,
    No,
}

impl Ksm {
    /// `is_page_sharing_candidate()`, with room for `offset` more.
    fn is_page_sharing_candidate(&self, id: StableId, offset: u64) -> bool {
        let sharers = self[id].items.len() as u64;
        sharers > 0 && sharers + offset < self.knobs.max_page_sharing
    }

    fn is_chain(&self, id: StableId) -> bool {
        matches!(self[id].kind, NodeKind::Chain { .. })
    }

    fn new_node(&mut self, kind: NodeKind, kpfn: Pfn) -> StableId {
        StableId(self.nodes.insert(StableNode { kind, kpfn, items: Vec::new() }))
    }

    fn dups_mut(&mut self, chain: StableId) -> &mut VecDeque<StableId> {
        match &mut self[chain].kind {
            NodeKind::Chain { dups, .. } => dups,
            NodeKind::Single | NodeKind::Dup(_) => panic!("{chain:?} is no chain"),
        }
    }

    /// `stable_node_chain_add_dup()`.
    fn chain_add_dup(&mut self, chain: StableId, dup: StableId) {
        self[dup].kind = NodeKind::Dup(chain);
        self.dups_mut(chain).push_front(dup);
        self.stats.stable_node_dups += 1;
    }

    /// `alloc_stable_node_chain()`: a chain in the place of its first page.
    fn new_chain(&mut self, first: StableId) -> StableId {
        let kind = NodeKind::Chain { dups: VecDeque::new(), pruned_ns: self.now_ns };
        let chain = self.new_node(kind, Pfn::new(0));
        self.stats.stable_node_chains += 1;
        self.stable.replace(first.0, chain.0);
        self.chain_add_dup(chain, first);
        chain
    }

    /// `free_stable_node_chain()`.
    fn free_chain(&mut self, chain: StableId) {
        debug_assert!(self.dups_mut(chain).is_empty());
        self.stable.erase(chain.0);
        self.stats.stable_node_chains -= 1;
        self.nodes.remove(chain.0);
    }

    /// Takes an item off the list of its node.
    fn unlist(&mut self, id: StableId, item: RmapId) {
        let position = self[item].position;
        let items = &mut self[id].items;
        debug_assert_eq!(items[position as usize], item);
        items.swap_remove(position as usize);
        if let Some(&moved) = items.get(position as usize) {
            self[moved].position = position;
        }
    }

    /// Every page of the tree, for the end of everything and for `validate()`.
    pub(super) fn pages(&self) -> Vec<StableId> {
        let mut all = Vec::new();
        for id in self.stable.in_order().into_iter().map(StableId) {
            match &self[id].kind {
                NodeKind::Chain { dups, .. } => all.extend(dups),
                NodeKind::Single | NodeKind::Dup(_) => all.push(id),
            }
        }
        all
    }
}

/// `memcmp_pages()`.
pub(super) fn memcmp_pages<P: Platform>(mm: &mut Mm<P>, a: Pfn, b: Pfn) -> Ordering {
    mm.pt.count(Event::PageCompare, 1);
    mm.pt.ram.frame(a).cmp(mm.pt.ram.frame(b))
}

fn page_folio(page: Pfn) -> Folio {
    Folio { pfn: page, order: Order::ZERO }
}

impl<P: Platform> Mm<P> {
    /// The node of a merged page; none before it is in the tree (`folio_stable_node()`).
    pub(super) fn folio_stable_node(&self, folio: Folio) -> Option<StableId> {
        let head = self.pt.pages.page(folio.pfn);
        (head.flags.contains(PageFlags::KSM) && head.mapping != NO_NODE)
            .then_some(StableId(head.mapping))
    }

    /// `folio_set_stable_node()`.
    pub(super) fn folio_set_stable_node(&mut self, folio: Folio, node: Option<StableId>) {
        let head = self.pt.pages.page_mut(folio.pfn);
        head.flags.insert(PageFlags::KSM);
        head.mapping = node.map_or(NO_NODE, |node| node.0);
    }
}

/// A reference to the page of a node. A node whose page is gone is gone afterwards too.
/// Source: Linux mm/ksm.c `ksm_get_folio()`.
fn ksm_get_folio<P: Platform>(mm: &mut Mm<P>, id: StableId) -> Option<Folio> {
    let folio = page_folio(mm.ksm[id].kpfn);
    if mm.folio_stable_node(folio) == Some(id) {
        mm.folio_ref_add(folio, 1);
        return Some(folio);
    }
    remove_node_from_stable_tree(mm, id);
    None
}

/// Source: Linux mm/ksm.c `remove_node_from_stable_tree()`.
fn remove_node_from_stable_tree<P: Platform>(mm: &mut Mm<P>, id: StableId) {
    while let Some(item) = mm.ksm[id].items.pop() {
        forget_sharer(mm, id, item);
    }
    let ksm = &mut mm.ksm;
    match ksm[id].kind {
        NodeKind::Dup(chain) => {
            ksm.dups_mut(chain).retain(|&dup| dup != id);
            ksm.stats.stable_node_dups -= 1;
        }
        NodeKind::Single | NodeKind::Chain { .. } => ksm.stable.erase(id.0),
    }
    ksm.nodes.remove(id.0);
}

/// An item has left the list of its node.
fn forget_sharer<P: Platform>(mm: &mut Mm<P>, id: StableId, item: RmapId) {
    let ksm = &mut mm.ksm;
    match ksm[id].items.is_empty() {
        true => ksm.stats.pages_shared -= 1,
        false => ksm.stats.pages_sharing -= 1,
    }
    let it = &mut ksm[item];
    (it.place, it.anon_vma) = (Place::Nowhere, None);
    let owner = it.mm;
    mm.mm_mut(owner).ksm.merging_pages -= 1;
}

/// Takes the item out of the tree that it is in.
/// Source: Linux mm/ksm.c `remove_rmap_item_from_tree()`.
pub(super) fn remove_rmap_item_from_tree<P: Platform>(mm: &mut Mm<P>, item: RmapId) {
    match mm.ksm[item].place {
        Place::Nowhere => {}
        Place::Unstable(seqnr) => {
            let ksm = &mut mm.ksm;
            // The tree of the scan before has been forgotten as a whole.
            if seqnr == ksm.cursor.seqnr {
                ksm.unstable.erase(item.0);
            }
            ksm.stats.pages_unshared -= 1;
            ksm[item].place = Place::Nowhere;
        }
        Place::Stable(node) => {
            let Some(folio) = ksm_get_folio(mm, node) else { return };
            mm.folio_put_refs(folio, 1);
            mm.ksm.unlist(node, item);
            forget_sharer(mm, node, item);
        }
    }
}

/// A page that the tree holds in the place of `id`, preferably one that can take a sharer more,
/// with a reference. The node in the tree may become another: `None` if it held nothing any
/// more, and the tree must be searched again.
/// Source: Linux mm/ksm.c `__stable_node_chain()`, `stable_node_dup()`.
fn stable_node_chain<P: Platform>(
    mm: &mut Mm<P>,
    id: StableId,
    prune: Prune,
) -> Option<(StableId, Folio)> {
    if !mm.ksm.is_chain(id) {
        return Some((id, ksm_get_folio(mm, id)?));
    }
    let prune = prune == Prune::Yes && prune_is_due(&mut mm.ksm, id);
    let mut found: Option<(StableId, Folio)> = None;
    let mut nr = 0;
    // One that is gone leaves the list, and the next is at its position.
    while let Some(&dup) = mm.ksm.dups_mut(id).get(nr) {
        let Some(folio) = ksm_get_folio(mm, dup) else { continue };
        nr += 1;
        if found.is_some_and(|(best, _)| !is_better(&mm.ksm, dup, best)) {
            mm.folio_put_refs(folio, 1);
            continue;
        }
        if let Some((_, before)) = found.replace((dup, folio)) {
            mm.folio_put_refs(before, 1);
        }
        if !prune && mm.ksm.is_page_sharing_candidate(dup, 0) {
            break;
        }
    }
    let ksm = &mut mm.ksm;
    let Some((dup, folio)) = found else {
        ksm.free_chain(id);
        return None;
    };
    if nr == 1 && prune {
        // One that is left needs no chain.
        ksm.dups_mut(id).clear();
        ksm[dup].kind = NodeKind::Single;
        ksm.stable.replace(id.0, dup.0);
        ksm.nodes.remove(id.0);
        ksm.stats.stable_node_chains -= 1;
        ksm.stats.stable_node_dups -= 1;
    } else if ksm.is_page_sharing_candidate(dup, 1) {
        // The next search is to find it at once.
        let dups = ksm.dups_mut(id);
        if dups.front() != Some(&dup) {
            dups.retain(|&other| other != dup);
            dups.push_front(dup);
        }
    }
    Some((dup, folio))
}

fn prune_is_due(ksm: &mut Ksm, id: StableId) -> bool {
    let now = ksm.now_ns;
    let every = ksm.knobs.stable_node_chains_prune_millisecs.saturating_mul(1_000_000);
    let NodeKind::Chain { pruned_ns, .. } = &mut ksm[id].kind else { return false };
    let due = now >= pruned_ns.saturating_add(every);
    if due {
        *pruned_ns = now;
    }
    due
}

/// Of two pages with room, the one with more sharers is to fill up first.
fn is_better(ksm: &Ksm, dup: StableId, best: StableId) -> bool {
    ksm.is_page_sharing_candidate(dup, 0)
        && (!ksm.is_page_sharing_candidate(best, 0) || ksm[dup].items.len() > ksm[best].items.len())
}

/// Where a search in the stable tree ended.
struct Found {
    /// The node in the tree with the same contents, and the page in it that was looked at.
    equal: Option<(StableId, StableId, Folio)>,
    /// Where there is none: the place for it.
    place: Option<(u32, Side)>,
}

fn descend<P: Platform>(mm: &mut Mm<P>, page: Pfn, prune: Prune) -> Found {
    'again: loop {
        let (mut next, mut place) = (mm.ksm.stable.root(), None);
        while let Some(at) = next {
            let Some((dup, folio)) = stable_node_chain(mm, StableId(at), prune) else {
                continue 'again;
            };
            // A chain of one was dissolved: its page is the node now.
            let node = match mm.ksm[dup].kind {
                NodeKind::Dup(chain) => chain,
                NodeKind::Single | NodeKind::Chain { .. } => dup,
            };
            let order = memcmp_pages(mm, page, folio.pfn);
            mm.folio_put_refs(folio, 1);
            let side = match order {
                Ordering::Equal => return Found { equal: Some((node, dup, folio)), place },
                Ordering::Less => Side::Left,
                Ordering::Greater => Side::Right,
            };
            place = Some((node.0, side));
            next = mm.ksm.stable.child(node.0, side);
        }
        return Found { equal: None, place };
    }
}

/// The merged page of the same contents as `page` that can take it, with a reference.
/// Source: Linux mm/ksm.c `stable_tree_search()`.
pub(super) fn stable_tree_search<P: Platform>(mm: &mut Mm<P>, page: Pfn) -> Option<Folio> {
    let own = page_folio(page);
    if mm.folio_stable_node(own).is_some() {
        // A merged page that a fork spread.
        mm.folio_ref_add(own, 1);
        return Some(own);
    }
    let (_, dup, _) = descend(mm, page, Prune::Yes).equal?;
    // A chain that is full waits for a match in the unstable tree to grow.
    if !mm.ksm.is_page_sharing_candidate(dup, 0) {
        return None;
    }
    ksm_get_folio(mm, dup)
}

/// Puts a page that was just merged into the tree.
/// Source: Linux mm/ksm.c `stable_tree_insert()`.
pub(super) fn stable_tree_insert<P: Platform>(mm: &mut Mm<P>, kfolio: Folio) -> StableId {
    let found = descend(mm, kfolio.pfn, Prune::No);
    let ksm = &mut mm.ksm;
    let new = ksm.new_node(NodeKind::Single, kfolio.pfn);
    match found.equal {
        None => ksm.stable.insert(new.0, found.place),
        Some((node, _, _)) => {
            let chain = if ksm.is_chain(node) { node } else { ksm.new_chain(node) };
            ksm.chain_add_dup(chain, new);
        }
    }
    mm.folio_set_stable_node(kfolio, Some(new));
    new
}

/// Notes that the item's address maps the page of the node.
/// Source: Linux mm/ksm.c `stable_tree_append()`.
pub(super) fn stable_tree_append<P: Platform>(mm: &mut Mm<P>, item: RmapId, node: StableId) {
    let ksm = &mut mm.ksm;
    match ksm[node].items.is_empty() {
        true => ksm.stats.pages_shared += 1,
        false => ksm.stats.pages_sharing += 1,
    }
    ksm[item].position = ksm[node].items.len() as u32;
    ksm[node].items.push(item);
    ksm[item].place = Place::Stable(node);
    let owner = ksm[item].mm;
    mm.mm_mut(owner).ksm.merging_pages += 1;
}

/// Forgets the pages that nothing maps any more.
/// Source: Linux mm/ksm.c `remove_all_stable_nodes()`.
pub(super) fn remove_all_stable_nodes<P: Platform>(mm: &mut Mm<P>) {
    for id in mm.ksm.pages() {
        let Some(folio) = ksm_get_folio(mm, id) else { continue };
        if !mm.folio_mapped(folio) {
            mm.folio_set_stable_node(folio, None);
            remove_node_from_stable_tree(mm, id);
        }
        mm.folio_put_refs(folio, 1);
    }
    let empty = |id: &StableId| matches!(&mm.ksm[*id].kind, NodeKind::Chain { dups, .. } if dups.is_empty());
    let chains: Vec<StableId> =
        mm.ksm.stable.in_order().into_iter().map(StableId).filter(empty).collect();
    for chain in chains {
        mm.ksm.free_chain(chain);
    }
}

/// VMAs that may map a merged page, with the address where: first those that were merged, then
/// those that forks added since.
/// Source: Linux mm/ksm.c `rmap_walk_ksm()`.
pub(crate) fn rmap_walk_ksm<P: Platform>(mm: &Mm<P>, folio: Folio) -> Vec<(VmaId, VirtAddr)> {
    let Some(node) = mm.folio_stable_node(folio) else { return Vec::new() };
    let (mut merged, mut forked) = (Vec::new(), Vec::new());
    for item in mm.ksm[node].items.iter().rev().map(|&id| &mm.ksm[id]) {
        let Some(anon_vma) = item.anon_vma else { continue };
        for &id in mm.anon_vma_members(anon_vma) {
            let vma = mm.vma(id);
            if !vma.contains(item.address) {
                continue;
            }
            let list = if vma.mm == item.mm { &mut merged } else { &mut forked };
            list.push((id, item.address));
        }
    }
    merged.append(&mut forked);
    merged
}
