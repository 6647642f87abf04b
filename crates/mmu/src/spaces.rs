//! Address spaces as a TLB sees them: a number per tag that a flush replaces.
//!
//! Each cached entry carries the number that its tag (ASID, PCID) had when it was cached, so giving
//! the tag a new number flushes all its entries at once, and giving all tags new ones flushes
//! everything: both in constant time. How many valid entries carry a number is kept beside it.

use units::Asid;

/// The number that an entry carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SpaceId(u32);

impl SpaceId {
    /// Of ways that hold nothing.
    pub(crate) const NONE: SpaceId = SpaceId(0);
}

/// Entries of one kind or the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Live {
    /// In TLBs.
    pub(crate) leaves: u64,
    /// In walk caches.
    pub(crate) tables: u64,
}

/// Which of the two an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    Leaf,
    Table,
}

impl Live {
    fn count(&mut self, held: Held) -> &mut u64 {
        match held {
            Held::Leaf => &mut self.leaves,
            Held::Table => &mut self.tables,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Space {
    /// The flush of everything that the rest is newer than.
    era: u32,
    id: u32,
    live: Live,
}

/// The numbers of one CPU.
#[derive(Clone, Debug)]
pub(crate) struct Spaces {
    era: u32,
    next_id: u32,
    global: Space,
    tagged: Vec<Space>,
    /// Flushes so far: victims queued before the last one are out of date.
    flushes: u64,
}

impl Spaces {
    pub(crate) fn new() -> Spaces {
        let mut spaces =
            Spaces { era: 0, next_id: 1, global: Space::default(), tagged: Vec::new(), flushes: 0 };
        spaces.flush_all();
        spaces
    }

    fn fresh(&mut self) -> Space {
        let id = self.next_id;
        self.next_id += 1;
        Space { era: self.era, id, live: Live::default() }
    }

    /// Whether numbers run out, so that all entries must be erased and [`Spaces::new`] begun with.
    pub(crate) fn exhausted(&self) -> bool {
        self.next_id > u32::MAX - 4 || self.era > u32::MAX - 4
    }

    /// Leaves few numbers.
    #[cfg(test)]
    pub(crate) fn use_up(&mut self) {
        self.next_id = u32::MAX - 9;
    }

    /// The number of `tag`, a new one if it has none.
    pub(crate) fn id(&mut self, tag: Asid) -> SpaceId {
        let index = usize::from(tag.get());
        if self.tagged.len() <= index {
            self.tagged.resize(index + 1, Space::default());
        }
        if self.tagged[index].era != self.era {
            self.tagged[index] = self.fresh();
        }
        SpaceId(self.tagged[index].id)
    }

    /// The number of `tag`, or [`SpaceId::NONE`] if nothing can carry it.
    pub(crate) fn existing(&self, tag: Asid) -> SpaceId {
        match self.tagged.get(usize::from(tag.get())) {
            Some(space) if space.era == self.era => SpaceId(space.id),
            _ => SpaceId::NONE,
        }
    }

    /// The number of global entries.
    pub(crate) fn global(&self) -> SpaceId {
        SpaceId(self.global.id)
    }

    /// Whether an entry of `tag` that carries `id` is valid.
    #[inline]
    pub(crate) fn is_live(&self, tag: Asid, id: SpaceId) -> bool {
        id != SpaceId::NONE && (id == self.global() || id == self.existing(tag))
    }

    /// Flushes so far.
    pub(crate) fn flushes(&self) -> u64 {
        self.flushes
    }

    /// A valid entry was cached.
    pub(crate) fn added(&mut self, tag: Asid, id: SpaceId, held: Held) {
        *self.live(tag, id).count(held) += 1;
    }

    /// A valid entry was dropped.
    pub(crate) fn removed(&mut self, tag: Asid, id: SpaceId, held: Held) {
        *self.live(tag, id).count(held) -= 1;
    }

    fn live(&mut self, tag: Asid, id: SpaceId) -> &mut Live {
        if id == self.global() {
            &mut self.global.live
        } else {
            &mut self.tagged[usize::from(tag.get())].live
        }
    }

    /// Drops the non-global entries of `tag`; says how many there were.
    pub(crate) fn flush(&mut self, tag: Asid) -> Live {
        if self.existing(tag) == SpaceId::NONE {
            return Live::default();
        }
        self.flushes += 1;
        let fresh = self.fresh();
        std::mem::replace(&mut self.tagged[usize::from(tag.get())], fresh).live
    }

    /// Drops everything, global entries too; says how much there was.
    pub(crate) fn flush_all(&mut self) -> Live {
        let mut sum = self.global.live;
        for space in self.tagged.iter().filter(|space| space.era == self.era) {
            sum.leaves += space.live.leaves;
            sum.tables += space.live.tables;
        }
        self.flushes += 1;
        self.era += 1;
        self.global = self.fresh();
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_is_a_new_number() {
        let mut spaces = Spaces::new();
        let (one, two) = (Asid::new(1), Asid::new(2));
        let (first, other) = (spaces.id(one), spaces.id(two));
        spaces.added(one, first, Held::Leaf);
        spaces.added(two, other, Held::Table);
        assert!(spaces.is_live(one, first) && !spaces.is_live(two, first));
        assert_eq!(spaces.flush(one), Live { leaves: 1, tables: 0 });
        assert!(!spaces.is_live(one, first) && spaces.is_live(two, other));
        let global = spaces.global();
        spaces.added(one, global, Held::Leaf);
        assert_eq!(spaces.flush(one), Live::default());
        assert!(spaces.is_live(one, global));
        assert_eq!(spaces.flush_all(), Live { leaves: 1, tables: 1 });
        assert!(!spaces.is_live(one, global) && !spaces.is_live(two, other));
        assert_eq!(spaces.flush(two), Live::default());
    }
}
