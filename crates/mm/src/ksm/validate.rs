//! Does what KSM knows of its pages agree with itself and with the pages?

use super::{NodeKind, Place, RmapId, StableId};
use crate::Mm;
use crate::folio::Folio;
use arch::Platform;
use std::collections::BTreeMap;
use units::{Order, Pfn};

/// Pages in the trees, counted anew.
#[derive(Debug, Default, PartialEq, Eq)]
struct Recount {
    shared: u64,
    sharing: u64,
    unshared: u64,
    chains: u64,
    dups: u64,
}

impl<P: Platform> Mm<P> {
    /// What does not agree, in sentences. Nodes whose page is gone count until they are met.
    pub(crate) fn validate_ksm(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let ksm = &self.ksm;
        let mut now = Recount::default();
        for (id, node) in ksm.nodes.iter() {
            match &node.kind {
                NodeKind::Chain { dups, .. } => {
                    now.chains += 1;
                    let of_chain = |dup: &StableId| ksm[*dup].kind == NodeKind::Dup(StableId(id));
                    if !dups.iter().all(of_chain) || !node.items.is_empty() {
                        wrong.push(format!("chain {id} of merged pages is inconsistent"));
                    }
                }
                NodeKind::Single => {}
                NodeKind::Dup(_) => now.dups += 1,
            }
            let n = node.items.len() as u64;
            (now.shared, now.sharing) = (now.shared + n.min(1), now.sharing + n.saturating_sub(1));
            let placed = |(at, item): (u32, &RmapId)| {
                let item = &ksm[*item];
                item.place == Place::Stable(StableId(id)) && item.position == at
            };
            if !(0..).zip(&node.items).all(placed) {
                wrong.push(format!("stable node {id} lists an item that is not in it"));
            }
        }
        let unstable = |p: Place| matches!(p, Place::Unstable(_));
        now.unshared = ksm.items.iter().filter(|(_, it)| unstable(it.place)).count() as u64;
        let stats = ksm.stats();
        let known = Recount {
            shared: stats.pages_shared,
            sharing: stats.pages_sharing,
            unshared: stats.pages_unshared,
            chains: stats.stable_node_chains,
            dups: stats.stable_node_dups,
        };
        if now != known {
            wrong.push(format!("KSM counts {known:?}, its trees hold {now:?}"));
        }
        self.validate_ksm_items(&mut wrong);
        self.validate_stable_order(&mut wrong);
        wrong
    }

    fn validate_ksm_items(&self, wrong: &mut Vec<String>) {
        let mut per_mm: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
        for (_, item) in self.ksm.items.iter() {
            let counts = per_mm.entry(item.mm.index()).or_default();
            counts.0 += 1;
            counts.1 += u64::from(matches!(item.place, Place::Stable(_)));
        }
        let listed: usize = self.ksm.slots.iter().map(|slot| slot.items.len()).sum();
        let all: u64 = per_mm.values().map(|counts| counts.0).sum();
        if listed as u64 != all || all != self.ksm.stats.rmap_items {
            wrong.push(format!("{all} rmap items exist, {listed} are listed"));
        }
        for (index, ms) in self.mms.iter().enumerate() {
            let (items, merging) = per_mm.get(&index).copied().unwrap_or_default();
            if (ms.ksm.rmap_items, ms.ksm.merging_pages) != (items, merging) {
                wrong.push(format!(
                    "address space {index}: {:?}, but {items} items, {merging} merged",
                    ms.ksm
                ));
            }
        }
    }

    /// Merged pages cannot change, so the tree that they are in stays sorted.
    fn validate_stable_order(&self, wrong: &mut Vec<String>) {
        let mut last: Option<Pfn> = None;
        for id in self.ksm.stable.in_order().into_iter().map(StableId) {
            let page = match &self.ksm[id].kind {
                NodeKind::Chain { dups, .. } => dups.iter().copied().find(|&d| self.is_live(d)),
                NodeKind::Single | NodeKind::Dup(_) => Some(id).filter(|&id| self.is_live(id)),
            };
            let Some(page) = page.map(|id| self.ksm[id].kpfn) else { continue };
            if last.is_some_and(|last| self.pt.ram.frame(last) >= self.pt.ram.frame(page)) {
                wrong.push(format!("the stable tree is not in order at {page:?}"));
            }
            last = Some(page);
        }
    }

    fn is_live(&self, id: StableId) -> bool {
        let folio = Folio { pfn: self.ksm[id].kpfn, order: Order::ZERO };
        self.folio_stable_node(folio) == Some(id)
    }
}
