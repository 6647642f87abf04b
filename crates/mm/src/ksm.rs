//! Kernel samepage merging: pages of equal contents become one, mapped read-only everywhere.
//!
//! `ksmd` scans the mergeable VMAs ([`Mm::ksm_do_scan`]). A page whose checksum did not change
//! since the last scan is looked for in the *stable* tree of merged pages, else in the *unstable*
//! tree of ordinary ones, which is emptied for each scan. [`merge`] holds the page-table work of
//! merging, [`unmerge`] the ways back: `break_ksm()` in the form of each kernel version.
//!
//! What knows a merged page is its stable node, with one rmap item for each address that was
//! merged into it; `folio->mapping` of the page is the node. A page that has as many sharers as
//! `max_page_sharing` allows gets a duplicate in the same place of the tree, a chain.
//! Source: Linux mm/ksm.c.
//
// FIDELITY: ksm-nodes one NUMA node, so merge_across_nodes changes nothing; no page of a stable
// node is ever migrated

mod merge;
mod rbtree;
mod scan;
mod stable;
mod unmerge;
mod validate;

use crate::errno::Errno;
use crate::rmap::AnonVmaId;
use crate::vma::{VmFlags, Vma, VmaId};
use crate::{Folio, Mm};
use arch::{MmId, Platform, Pte};
use phys::PageFlags;
use rbtree::RbTree;
use std::collections::{BTreeMap, VecDeque};
use std::ops::{Index, IndexMut};
use units::{PAGE_SIZE, Pfn, VirtAddr};

pub(crate) use stable::rmap_walk_ksm;

/// `sizeof(struct ksm_rmap_item)`: what an item costs in the profit that sysfs shows.
const RMAP_ITEM_BYTES: u64 = 64;

/// What `ksmd` is told to do (`/sys/kernel/mm/ksm/run`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KsmRun {
    /// 0: rest, and keep what is merged.
    Stop,
    /// 1: scan and merge.
    Merge,
    /// 2: rest, and nothing stays merged.
    Unmerge,
}

impl KsmRun {
    /// The value of that number.
    pub fn new(value: u64) -> Option<KsmRun> {
        [KsmRun::Stop, KsmRun::Merge, KsmRun::Unmerge].get(usize::try_from(value).ok()?).copied()
    }
}

/// Whether a knob is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// 0
    Off,
    /// 1
    On,
}

/// Knobs that change nothing when they are written (/sys/kernel/mm/ksm).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KsmKnobs {
    /// Pages that are scanned before `ksmd` sleeps.
    pub pages_to_scan: u64,
    /// How long it sleeps.
    pub sleep_millisecs: u64,
    /// Whether pages of different NUMA nodes are merged.
    pub merge_across_nodes: Switch,
    /// Whether empty pages are merged with the zero page.
    pub use_zero_pages: Switch,
    /// Addresses that may share one merged page.
    pub max_page_sharing: u64,
    /// How often a chain is looked through for pages that are gone.
    pub stable_node_chains_prune_millisecs: u64,
    /// Whether pages that never merge are skipped more and more.
    pub smart_scan: Switch,
}

impl Default for KsmKnobs {
    fn default() -> Self {
        KsmKnobs {
            pages_to_scan: 100,
            sleep_millisecs: 20,
            merge_across_nodes: Switch::On,
            use_zero_pages: Switch::Off,
            max_page_sharing: 256,
            stable_node_chains_prune_millisecs: 2000,
            smart_scan: Switch::On,
        }
    }
}

/// What sysfs shows of the state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KsmStats {
    /// Merged pages.
    pub pages_shared: u64,
    /// Mappings that were saved.
    pub pages_sharing: u64,
    /// Pages that wait in the unstable tree for another of the same contents.
    pub pages_unshared: u64,
    /// Rmap items of all processes.
    pub rmap_items: u64,
    /// Pages looked at.
    pub pages_scanned: u64,
    /// Pages left out by smart scan.
    pub pages_skipped: u64,
    /// Zero pages that stand for merged empty ones.
    pub zero_pages: u64,
    /// Merged pages in chains, as chains.
    pub stable_node_chains: u64,
    /// Merged pages in chains.
    pub stable_node_dups: u64,
    /// Scans of everything since the last unmerging of everything.
    pub full_scans: u64,
}

impl KsmStats {
    /// `pages_volatile`: items that are in neither tree.
    pub fn pages_volatile(&self) -> u64 {
        let placed = self.pages_shared + self.pages_sharing + self.pages_unshared;
        self.rmap_items.saturating_sub(placed)
    }

    /// `general_profit`: bytes saved less bytes spent.
    pub fn general_profit(&self) -> i64 {
        profit(self.pages_sharing + self.zero_pages, self.rmap_items)
    }
}

fn profit(pages: u64, rmap_items: u64) -> i64 {
    (pages * PAGE_SIZE).cast_signed() - (rmap_items * RMAP_ITEM_BYTES).cast_signed()
}

/// What an address space knows of KSM (`mm->ksm_*`, `MMF_VM_MERGE*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MmKsm {
    /// `ksmd` knows the address space (`MMF_VM_MERGEABLE`).
    pub mergeable: bool,
    /// Every VMA that can be is mergeable, by prctl(2) (`MMF_VM_MERGE_ANY`).
    pub merge_any: bool,
    /// Its rmap items.
    pub rmap_items: u64,
    /// Its addresses that share a merged page.
    pub merging_pages: u64,
    /// Its addresses where the zero page stands for a merged empty one.
    pub zero_pages: u64,
}

impl MmKsm {
    /// `ksm_process_profit()`.
    pub fn profit(&self) -> i64 {
        profit(self.merging_pages + self.zero_pages, self.rmap_items)
    }
}

/// An rmap item, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RmapId(u32);

/// A stable node, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct StableId(u32);

/// `folio->mapping` of a merged page that is in no stable node yet.
const NO_NODE: u32 = u32::MAX;

/// An address that was scanned (`struct ksm_rmap_item`).
#[derive(Clone, Copy, Debug)]
struct RmapItem {
    mm: MmId,
    address: VirtAddr,
    /// Whose VMAs may map the merged page there; of items in the stable tree.
    anon_vma: Option<AnonVmaId>,
    oldchecksum: u32,
    age: u8,
    remaining_skips: u8,
    place: Place,
    /// Position in the list of the stable node that it is in.
    position: u32,
}

/// Which tree an item is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Nowhere,
    /// In the unstable tree of that scan.
    Unstable(u64),
    Stable(StableId),
}

/// A merged page, or the head of several of equal contents (`struct ksm_stable_node`).
#[derive(Clone, Debug)]
struct StableNode {
    kind: NodeKind,
    kpfn: Pfn,
    /// Items, in any order; each knows its position.
    items: Vec<RmapId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum NodeKind {
    /// In the tree.
    Single,
    /// In the chain.
    Dup(StableId),
    /// In the tree, without a page of its own: its pages, the first to be tried first.
    Chain { dups: VecDeque<StableId>, pruned_ns: u64 },
}

/// An address space that `ksmd` knows (`struct ksm_mm_slot`).
#[derive(Debug)]
struct MmSlot {
    mm: MmId,
    items: BTreeMap<VirtAddr, RmapId>,
    /// Its last user is gone (`ksm_test_exit`).
    exited: bool,
}

/// Where the scan is (`struct ksm_scan`).
#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    /// Position in the list of address spaces; behind the last is the head of the list.
    slot: usize,
    address: VirtAddr,
    /// Items of the address space below this address have been passed (`rmap_list`).
    passed: VirtAddr,
    seqnr: u64,
}

/// Numbered things; numbers of those that are gone are used again.
#[derive(Debug)]
struct Arena<T> {
    slots: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Arena<T> {
    fn default() -> Self {
        Arena { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Arena<T> {
    fn insert(&mut self, value: T) -> u32 {
        if let Some(id) = self.free.pop() {
            self.slots[id as usize] = Some(value);
            return id;
        }
        self.slots.push(Some(value));
        u32::try_from(self.slots.len() - 1).expect("fewer than there are pages")
    }

    fn remove(&mut self, id: u32) {
        self.slots[id as usize] = None;
        self.free.push(id);
    }

    fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..).zip(&self.slots).filter_map(|(id, slot)| Some((id, slot.as_ref()?)))
    }
}

impl Index<RmapId> for Ksm {
    type Output = RmapItem;
    fn index(&self, id: RmapId) -> &RmapItem {
        self.items.slots[id.0 as usize].as_ref().expect("the item exists")
    }
}

impl IndexMut<RmapId> for Ksm {
    fn index_mut(&mut self, id: RmapId) -> &mut RmapItem {
        self.items.slots[id.0 as usize].as_mut().expect("the item exists")
    }
}

impl Index<StableId> for Ksm {
    type Output = StableNode;
    fn index(&self, id: StableId) -> &StableNode {
        self.nodes.slots[id.0 as usize].as_ref().expect("the node exists")
    }
}

impl IndexMut<StableId> for Ksm {
    fn index_mut(&mut self, id: StableId) -> &mut StableNode {
        self.nodes.slots[id.0 as usize].as_mut().expect("the node exists")
    }
}

/// All state of KSM.
#[derive(Debug)]
pub struct Ksm {
    /// Knobs without a duty.
    pub knobs: KsmKnobs,
    stats: KsmStats,
    run: KsmRun,
    slots: Vec<MmSlot>,
    cursor: Cursor,
    items: Arena<RmapItem>,
    nodes: Arena<StableNode>,
    stable: RbTree,
    unstable: RbTree,
    zero_checksum: u32,
    /// What the clock said when `ksmd` was last woken.
    now_ns: u64,
}

impl Default for Ksm {
    fn default() -> Self {
        Ksm {
            knobs: KsmKnobs::default(),
            stats: KsmStats::default(),
            run: KsmRun::Stop,
            slots: Vec::new(),
            cursor: Cursor::default(),
            items: Arena::default(),
            nodes: Arena::default(),
            stable: RbTree::default(),
            unstable: RbTree::default(),
            zero_checksum: scan::checksum(&[0; PAGE_SIZE as usize]),
            now_ns: 0,
        }
    }
}

impl Ksm {
    /// What sysfs shows.
    pub fn stats(&self) -> KsmStats {
        KsmStats { full_scans: self.cursor.seqnr, ..self.stats }
    }

    /// What `ksmd` was told to do.
    pub fn run(&self) -> KsmRun {
        self.run
    }

    /// `max_page_sharing_store()`.
    ///
    /// # Errors
    /// EINVAL below 2, EBUSY while pages are merged.
    pub fn set_max_page_sharing(&mut self, value: u64) -> Result<(), Errno> {
        if value < 2 {
            return Err(Errno::EINVAL);
        }
        if self.knobs.max_page_sharing != value && self.stats.pages_shared > 0 {
            return Err(Errno::EBUSY);
        }
        self.knobs.max_page_sharing = value;
        Ok(())
    }

    /// Whether `ksmd` has something to do (`ksmd_should_run()`).
    pub fn should_run(&self) -> bool {
        self.run == KsmRun::Merge && !self.slots.is_empty()
    }

    fn slot_of(&self, mm: MmId) -> Option<usize> {
        self.slots.iter().position(|slot| slot.mm == mm)
    }

    /// Takes an address space off the list.
    fn remove_slot(&mut self, at: usize) {
        debug_assert!(self.slots[at].items.is_empty());
        self.slots.remove(at);
        if self.cursor.slot > at {
            self.cursor.slot -= 1;
        }
    }
}

/// `vma_ksm_compatible()`.
fn vma_ksm_compatible(vma: &Vma) -> bool {
    !vma.flags.intersects(VmFlags::SHARED | VmFlags::HUGETLB | VmFlags::DROPPABLE)
}

impl<P: Platform> Mm<P> {
    /// Whether the page is merged (`folio_test_ksm`).
    pub(crate) fn folio_test_ksm(&self, folio: Folio) -> bool {
        self.folio_test(folio, PageFlags::KSM)
    }

    /// Whether the entry maps a zero page that stands for a merged empty one: such an entry is
    /// dirty, which no other entry of the zero page is (`is_ksm_zero_pte()`).
    pub fn is_ksm_zero_pte(&self, pte: Pte<P::Arch>) -> bool {
        pte.is_special() && pte.pfn() == self.zero_page && pte.is_dirty()
    }

    /// Whether a merged page is still what others merge with.
    pub(crate) fn ksm_page_is_stable(&self, folio: Folio) -> bool {
        self.folio_stable_node(folio).is_some() && self.ksm.run != KsmRun::Unmerge
    }

    /// `ksm_might_unmap_zero_page()`.
    pub(crate) fn ksm_might_unmap_zero_page(&mut self, id: MmId, pte: Pte<P::Arch>) {
        if self.is_ksm_zero_pte(pte) {
            // Kernels before 6.12 leave such entries behind when they unmerge, uncounted.
            let of_mm = &mut self.mm_mut(id).ksm.zero_pages;
            *of_mm = of_mm.saturating_sub(1);
            self.ksm.stats.zero_pages = self.ksm.stats.zero_pages.saturating_sub(1);
        }
    }

    /// MADV_MERGEABLE and MADV_UNMERGEABLE of a part of a VMA: the flags that it has afterwards.
    /// Source: Linux mm/ksm.c `ksm_madvise()`.
    ///
    /// # Errors
    /// ENOMEM if there is no room for copies of the merged pages.
    pub(crate) fn ksm_madvise(
        &mut self,
        id: VmaId,
        start: VirtAddr,
        end: VirtAddr,
        mergeable: Switch,
    ) -> Result<VmFlags, Errno> {
        let vma = *self.vma(id);
        let merges = vma.flags.contains(VmFlags::MERGEABLE);
        match mergeable {
            Switch::On if !merges && vma_ksm_compatible(&vma) => {
                self.ksm_enter(vma.mm);
                Ok(vma.flags | VmFlags::MERGEABLE)
            }
            Switch::Off if merges => {
                if vma.anon_vma.is_some() {
                    unmerge::unmerge_ksm_pages(self, id, start, end)?;
                }
                Ok(vma.flags - VmFlags::MERGEABLE)
            }
            // Advice that does not apply is ignored.
            Switch::On | Switch::Off => Ok(vma.flags),
        }
    }

    /// `ksmd` gets to know the address space, behind the one that it is at.
    /// Source: Linux mm/ksm.c `__ksm_enter()`.
    fn ksm_enter(&mut self, id: MmId) {
        if std::mem::replace(&mut self.mm_mut(id).ksm.mergeable, true) {
            return;
        }
        let slot = MmSlot { mm: id, items: BTreeMap::new(), exited: false };
        let ksm = &mut self.ksm;
        match ksm.run {
            KsmRun::Unmerge => {
                // The end of the list stays behind whoever was there.
                let at_head = ksm.cursor.slot == ksm.slots.len();
                ksm.slots.push(slot);
                ksm.cursor.slot += usize::from(at_head);
            }
            KsmRun::Stop | KsmRun::Merge => {
                ksm.slots.insert(ksm.cursor.slot, slot);
                ksm.cursor.slot += 1;
            }
        }
    }

    /// The last user of the address space is gone. What `ksmd` knows of it, it forgets when it
    /// comes by. Source: Linux mm/ksm.c `__ksm_exit()`.
    pub(crate) fn ksm_exit(&mut self, id: MmId) {
        let ksm = &mut self.ksm;
        let Some(at) = ksm.slot_of(id) else { return };
        ksm.slots[at].exited = true;
        if at == ksm.cursor.slot {
            return;
        }
        if ksm.slots[at].items.is_empty() {
            ksm.remove_slot(at);
            return;
        }
        // It is the next that the scan comes to.
        let slot = ksm.slots.remove(at);
        if ksm.cursor.slot > at {
            ksm.cursor.slot -= 1;
        }
        let next = if ksm.cursor.slot == ksm.slots.len() { 0 } else { ksm.cursor.slot + 1 };
        let at_head = ksm.cursor.slot == ksm.slots.len();
        ksm.slots.insert(next, slot);
        ksm.cursor.slot += usize::from(at_head);
    }

    /// A child has the merged pages of its parent. Source: Linux include/linux/ksm.h
    /// `ksm_fork()`.
    pub(crate) fn ksm_fork(&mut self, parent: MmId, child: MmId) {
        let from = self.mm_struct(parent).ksm;
        self.mm_mut(child).ksm.merge_any = from.merge_any;
        if from.mergeable {
            self.mm_mut(child).ksm.zero_pages = from.zero_pages;
            self.ksm.stats.zero_pages += from.zero_pages;
            self.ksm_enter(child);
        }
    }

    /// `prctl(PR_SET_MEMORY_MERGE, 1)`: every VMA that can be is mergeable, also new ones.
    /// Source: Linux mm/ksm.c `ksm_enable_merge_any()`.
    pub fn ksm_enable_merge_any(&mut self, id: MmId) {
        if self.mm_struct(id).ksm.merge_any {
            return;
        }
        self.ksm_enter(id);
        self.mm_mut(id).ksm.merge_any = true;
        for vma in self.vmas_in(id, VirtAddr::ZERO, VirtAddr::new(u64::MAX)) {
            self.ksm_add_vma(vma);
        }
    }

    /// `prctl(PR_SET_MEMORY_MERGE, 0)`: nothing is mergeable any more.
    /// Source: Linux mm/ksm.c `ksm_disable_merge_any()`, `ksm_del_vmas()`.
    ///
    /// # Errors
    /// ENOMEM if there is no room for copies of the merged pages; then nothing changes.
    pub fn ksm_disable_merge_any(&mut self, id: MmId) -> Result<(), Errno> {
        if !self.mm_struct(id).ksm.merge_any {
            return Ok(());
        }
        let vmas = self.vmas_in(id, VirtAddr::ZERO, VirtAddr::new(u64::MAX));
        for &vma in &vmas {
            if let Err(error) = self.ksm_del_vma(vma) {
                vmas.iter().for_each(|&vma| self.ksm_add_vma(vma));
                return Err(error);
            }
        }
        self.mm_mut(id).ksm.merge_any = false;
        Ok(())
    }

    /// `ksm_add_vma()`: a VMA of a process that merges everything is mergeable if it can be.
    pub(crate) fn ksm_add_vma(&mut self, id: VmaId) {
        let vma = self.vma(id);
        if self.mm_struct(vma.mm).ksm.merge_any && vma_ksm_compatible(vma) {
            self.vmas[id.index()].flags.insert(VmFlags::MERGEABLE);
        }
    }

    fn ksm_del_vma(&mut self, id: VmaId) -> Result<(), Errno> {
        let vma = *self.vma(id);
        let flags = self.ksm_madvise(id, vma.start, vma.end, Switch::Off)?;
        self.vmas[id.index()].flags = flags;
        Ok(())
    }

    /// `/sys/kernel/mm/ksm/run`.
    /// Source: Linux mm/ksm.c `run_store()`.
    ///
    /// # Errors
    /// ENOMEM if there is no room for copies of the merged pages; `ksmd` is stopped then.
    pub fn ksm_set_run(&mut self, run: KsmRun) -> Result<(), Errno> {
        if std::mem::replace(&mut self.ksm.run, run) == run || run != KsmRun::Unmerge {
            return Ok(());
        }
        let result = unmerge::unmerge_and_remove_all_rmap_items(self);
        if result.is_err() {
            self.ksm.run = KsmRun::Stop;
        }
        result
    }
}
