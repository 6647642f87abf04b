//! One set-associative array of cached translations or table pointers.
//!
//! An array knows keys (page number and reach), the spaces that entries belong to, and which way
//! makes room: the order of last use is read from *stamps*, one number per way that a use
//! overwrites with the current count. The smallest stamp of a set is its least recently used way;
//! a tree-PLRU node points away from the half that holds the larger stamp, because the half used
//! last through a node is the half with the latest use below it. So one store per hit keeps both
//! policies exact. Stamps are the caller's, so that its hit path can reach them.

use crate::geometry::Policy;
use crate::spaces::{SpaceId, Spaces};
use units::Asid;

/// What is cached: a page number in units of the reach, and the reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key(u64);

impl Key {
    const NONE: Key = Key(u64::MAX);

    /// The entry of reach `2^shift` around base page `page`.
    #[inline]
    pub(crate) const fn around(page: u64, shift: u32) -> Key {
        Key(page >> (shift - units::PAGE_SHIFT) << 6 | shift as u64)
    }
    /// log2 of the bytes covered.
    #[inline]
    pub(crate) const fn shift(self) -> u32 {
        (self.0 & 0x3f) as u32
    }
    /// Page number in units of the reach.
    #[inline]
    pub(crate) const fn unit(self) -> u64 {
        self.0 >> 6
    }
    /// First base page covered.
    #[inline]
    pub(crate) const fn first_page(self) -> u64 {
        self.unit() << (self.shift() - units::PAGE_SHIFT)
    }
    /// Base pages covered.
    #[inline]
    pub(crate) const fn pages(self) -> u64 {
        1 << (self.shift() - units::PAGE_SHIFT)
    }
    fn hash(self) -> u64 {
        self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
    }
}

/// The rest of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Cached {
    /// First byte covered, or the next table.
    pub(crate) base: u64,
    /// The tag it was cached under, whether or not it is global.
    pub(crate) tag: Asid,
    /// x86-64 protection key.
    pub(crate) key: u8,
    /// `Rights` and the flags below.
    pub(crate) flags: u8,
    /// log2 of what the leaf entry spans.
    pub(crate) span: u8,
}

impl Cached {
    /// A write needs no update of the table.
    pub(crate) const DIRTY: u8 = 1 << 3;
    pub(crate) const GLOBAL: u8 = 1 << 4;
    /// The entry in the table has changed since.
    pub(crate) const STALE: u8 = 1 << 5;
    /// Fast entries may point here.
    pub(crate) const FAST: u8 = 1 << 6;

    #[inline]
    pub(crate) const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Ways above which a set is searched by hash and its victims are queued.
const SCANNED_WAYS_MAX: usize = 16;

const END: u32 = u32::MAX;

/// Ways by hash of their key.
#[derive(Clone, Debug)]
struct Chains {
    mask: u64,
    heads: Vec<u32>,
    next: Vec<u32>,
}

impl Chains {
    fn new(entries: usize) -> Chains {
        let buckets = (entries * 2).next_power_of_two();
        Chains { mask: buckets as u64 - 1, heads: vec![END; buckets], next: vec![END; entries] }
    }

    fn bucket(&self, key: Key) -> usize {
        usize::try_from(key.hash() & self.mask).expect("fewer buckets than memory")
    }

    fn insert(&mut self, key: Key, way: usize) {
        let bucket = self.bucket(key);
        self.next[way] = self.heads[bucket];
        self.heads[bucket] = u32::try_from(way).expect("arrays are small");
    }

    fn remove(&mut self, key: Key, way: usize) {
        let bucket = self.bucket(key);
        let mut at = self.heads[bucket];
        if at as usize == way {
            self.heads[bucket] = self.next[way];
            return;
        }
        while at != END {
            let next = self.next[at as usize];
            if next as usize == way {
                self.next[at as usize] = self.next[way];
                return;
            }
            at = next;
        }
    }
}

/// Victims of one large LRU set, in the order in which they will be due.
///
/// Stamps only grow, so ways sorted by stamp stay in order; one that was used since has another
/// stamp and is passed over, being younger than all that remain.
#[derive(Clone, Debug, Default)]
struct Queue {
    /// Stamp and way, the next one last.
    due: Vec<(u64, u32)>,
    /// Ways erased one by one.
    free: Vec<u32>,
    /// Flushes seen when `due` was made.
    flushes: u64,
}

/// A way of an array.
pub(crate) type Way = usize;

/// What a way holds.
#[derive(Clone, Copy, Debug)]
struct Slot {
    key: Key,
    space: SpaceId,
    entry: Cached,
}

impl Slot {
    const EMPTY: Slot = Slot {
        key: Key::NONE,
        space: SpaceId::NONE,
        entry: Cached { base: 0, tag: Asid::new(0), key: 0, flags: 0, span: 0 },
    };

    #[inline]
    fn is_live(&self, spaces: &Spaces) -> bool {
        spaces.is_live(self.entry.tag, self.space)
    }
}

/// An array of sets.
#[derive(Clone, Debug)]
pub(crate) struct Assoc {
    sets: u64,
    /// `sets - 1` where that picks the low bits.
    set_mask: Option<u64>,
    ways: usize,
    policy: Policy,
    /// Where this array's stamps begin.
    pub(crate) stamps_at: usize,
    slots: Vec<Slot>,
    chains: Option<Chains>,
    queues: Vec<Queue>,
    /// By set: the count of flushes when all its ways were last seen valid, if none was erased
    /// since; such a set need not be searched for room.
    full_since: Vec<u64>,
}

impl Assoc {
    pub(crate) fn new(entries: u32, ways: u32, policy: Policy, stamps_at: usize) -> Assoc {
        let (entries, ways) = (entries as usize, ways as usize);
        let sets = entries / ways;
        let large = ways > SCANNED_WAYS_MAX;
        let queued = large && policy == Policy::Lru;
        Assoc {
            sets: sets as u64,
            set_mask: sets.is_power_of_two().then_some(sets as u64 - 1),
            ways,
            policy,
            stamps_at,
            slots: vec![Slot::EMPTY; entries],
            chains: large.then(|| Chains::new(entries)),
            queues: vec![Queue::default(); if queued { sets } else { 0 }],
            full_since: vec![u64::MAX; sets],
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The set for a unit number that is this array's own (interleaving removed).
    #[inline]
    pub(crate) fn set_of(&self, unit: u64) -> usize {
        let set = match self.set_mask {
            Some(mask) => unit & mask,
            None => unit % self.sets,
        };
        usize::try_from(set).expect("fewer sets than memory")
    }

    /// The way of `set` that holds `key` for one of two spaces.
    ///
    /// Both hold it where an address is global in one address space and not in the other, which
    /// Arm calls a TLB conflict, and where the choice is the implementation's (Arm ARM, "TLB conflict aborts"):
    /// here the entry of the address space itself.
    #[inline]
    pub(crate) fn find(&self, set: usize, key: Key, own: SpaceId, global: SpaceId) -> Option<Way> {
        let way = self.find_either(set, key, own, global)?;
        if own == global || self.slots[way].space == own {
            return Some(way);
        }
        self.find_either(set, key, own, own).or(Some(way))
    }

    #[inline]
    fn find_either(&self, set: usize, key: Key, own: SpaceId, global: SpaceId) -> Option<Way> {
        let matches = |slot: &Slot| slot.key == key && (slot.space == own || slot.space == global);
        let Some(chains) = &self.chains else {
            let first = set * self.ways;
            let slots = &self.slots[first..first + self.ways];
            return slots.iter().position(matches).map(|i| first + i);
        };
        let mut at = chains.heads[chains.bucket(key)];
        while at != END {
            if matches(&self.slots[at as usize]) {
                return Some(at as usize);
            }
            at = chains.next[at as usize];
        }
        None
    }

    pub(crate) fn key(&self, way: Way) -> Key {
        self.slots[way].key
    }

    pub(crate) fn entry(&self, way: Way) -> &Cached {
        &self.slots[way].entry
    }

    pub(crate) fn entry_mut(&mut self, way: Way) -> &mut Cached {
        &mut self.slots[way].entry
    }

    pub(crate) fn space(&self, way: Way) -> SpaceId {
        self.slots[way].space
    }

    /// Whether the way holds something valid.
    #[inline]
    pub(crate) fn is_live(&self, way: Way, spaces: &Spaces) -> bool {
        self.slots[way].is_live(spaces)
    }

    /// Chooses the way of `set` that makes room; entries of `now` are known to be valid.
    #[inline]
    pub(crate) fn victim(
        &mut self,
        set: usize,
        stamps: &[u64],
        spaces: &Spaces,
        now: SpaceId,
    ) -> Way {
        if !self.queues.is_empty() {
            return self.next_due(set, stamps, spaces);
        }
        let first = set * self.ways;
        if self.full_since[set] != spaces.flushes() {
            let dead = |slot: &Slot| slot.space != now && !slot.is_live(spaces);
            if let Some(i) = self.slots[first..first + self.ways].iter().position(dead) {
                return first + i;
            }
            self.full_since[set] = spaces.flushes();
        }
        let stamps = &stamps[self.stamps_at + first..][..self.ways];
        first
            + match self.policy {
                Policy::Lru => oldest(stamps),
                Policy::TreePlru => tree_plru(stamps),
            }
    }

    fn next_due(&mut self, set: usize, stamps: &[u64], spaces: &Spaces) -> Way {
        let mut queue = std::mem::take(&mut self.queues[set]);
        let way = self.take_due(&mut queue, set, stamps, spaces);
        self.queues[set] = queue;
        way
    }

    fn take_due(&self, queue: &mut Queue, set: usize, stamps: &[u64], spaces: &Spaces) -> Way {
        while let Some(way) = queue.free.pop() {
            if !self.is_live(way as usize, spaces) {
                return way as usize;
            }
        }
        if queue.flushes != spaces.flushes() {
            queue.due.clear();
        }
        // A queue that was just made has at least one entry that is still due.
        for _ in 0..2 {
            while let Some((stamp, way)) = queue.due.pop() {
                let way = way as usize;
                let unused = stamps[self.stamps_at + way] == stamp;
                if unused || (stamp == 0 && !self.is_live(way, spaces)) {
                    return way;
                }
            }
            self.fill_queue(queue, set, stamps, spaces);
        }
        unreachable!("a set has ways (checked by `Geometry::check`)")
    }

    /// Queues the ways that hold nothing valid, or if there are none, all by age.
    fn fill_queue(&self, queue: &mut Queue, set: usize, stamps: &[u64], spaces: &Spaces) {
        let first = set * self.ways;
        let number = |way: Way| u32::try_from(way).expect("arrays are small");
        queue.flushes = spaces.flushes();
        let dead = (first..first + self.ways).rev().filter(|&way| !self.is_live(way, spaces));
        queue.due.extend(dead.map(|way| (0, number(way))));
        if queue.due.is_empty() {
            let ages = &stamps[self.stamps_at + first..][..self.ways];
            queue.due.extend(ages.iter().zip(first..).map(|(&stamp, way)| (stamp, number(way))));
            queue.due.sort_unstable_by_key(|&due| std::cmp::Reverse(due));
        }
    }

    /// Puts an entry into `way`. The caller has done with what was there.
    #[inline]
    pub(crate) fn write(&mut self, way: Way, key: Key, space: SpaceId, entry: Cached) {
        let slot = &mut self.slots[way];
        if let Some(chains) = &mut self.chains {
            if slot.key != Key::NONE {
                chains.remove(slot.key, way);
            }
            chains.insert(key, way);
        }
        *slot = Slot { key, space, entry };
    }

    /// Erases a way. Its stamp stays: a PLRU tree does not hear of invalidations.
    pub(crate) fn erase(&mut self, way: Way) {
        if let Some(chains) = &mut self.chains {
            chains.remove(self.slots[way].key, way);
        }
        let set = way / self.ways;
        self.full_since[set] = u64::MAX;
        if !self.queues.is_empty() {
            let number = u32::try_from(way).expect("arrays are small");
            self.queues[set].free.push(number);
        }
        self.slots[way].key = Key::NONE;
        self.slots[way].space = SpaceId::NONE;
    }
}

/// Index of the smallest stamp, the lowest of equals.
fn oldest(stamps: &[u64]) -> usize {
    let (mut found, mut smallest) = (0, u64::MAX);
    for (i, &stamp) in stamps.iter().enumerate() {
        let smaller = stamp < smallest;
        found = if smaller { i } else { found };
        smallest = if smaller { stamp } else { smallest };
    }
    found
}

/// Follows the tree to the half that was used longer ago, the left one of equals.
fn tree_plru(stamps: &[u64]) -> usize {
    let (mut first, mut len) = (0, stamps.len());
    while len > 1 {
        let left = len.next_power_of_two() / 2;
        let latest = |range: std::ops::Range<usize>| stamps[range].iter().max().copied();
        if latest(first..first + left) > latest(first + left..first + len) {
            (first, len) = (first + left, len - left);
        } else {
            len = left;
        }
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tree-PLRU as hardware keeps it: a bit per node.
    #[derive(Default)]
    struct Bits(std::collections::BTreeMap<(usize, usize), bool>);

    impl Bits {
        fn touch(&mut self, way: usize, ways: usize) {
            let (mut first, mut len) = (0, ways);
            while len > 1 {
                let left = len.next_power_of_two() / 2;
                let go_left = way < first + left;
                self.0.insert((first, len), go_left);
                (first, len) = if go_left { (first, left) } else { (first + left, len - left) };
            }
        }
        fn victim(&self, ways: usize) -> usize {
            let (mut first, mut len) = (0, ways);
            while len > 1 {
                let left = len.next_power_of_two() / 2;
                let right_is_old = self.0.get(&(first, len)).copied().unwrap_or(false);
                (first, len) =
                    if right_is_old { (first + left, len - left) } else { (first, left) };
            }
            first
        }
    }

    #[test]
    fn stamps_carry_the_plru_tree() {
        for ways in [1, 2, 3, 4, 5, 8, 12, 16] {
            let mut bits = Bits::default();
            let mut stamps = vec![0; ways];
            let mut seed = 12345u64;
            for now in 1..2000 {
                assert_eq!(tree_plru(&stamps), bits.victim(ways), "{ways} ways, use {now}");
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let way = usize::try_from(seed >> 33).expect("31 bits") % ways;
                stamps[way] = now;
                bits.touch(way, ways);
            }
        }
    }
}
