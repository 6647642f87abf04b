//! One level of TLB, or the walk caches: arrays, and which of them holds which reach.

use crate::assoc::{Assoc, Cached, Key, Way};
use crate::geometry::{ArrayGeometry, Covers};
use crate::spaces::{Held, SpaceId, Spaces};
use units::{Asid, PAGE_SHIFT};

/// Where an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// Which array of the level.
    pub(crate) array: usize,
    /// Which way of the array.
    pub(crate) way: Way,
}

/// A reach that the level holds.
#[derive(Clone, Debug)]
struct Route {
    shift: u32,
    /// Arrays that hold it; units are dealt out to them in turn.
    arrays: Vec<usize>,
    /// Entries of this reach in the arrays, valid or not: a reach without any is not looked up.
    stored: usize,
}

/// What a new entry displaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Displaced {
    /// Nothing valid.
    Nothing,
    /// A valid entry.
    Entry,
}

/// The spaces that a lookup matches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Match {
    pub(crate) own: SpaceId,
    pub(crate) global: SpaceId,
}

impl Match {
    fn has(self, id: SpaceId) -> bool {
        id != SpaceId::NONE && (id == self.own || id == self.global)
    }
}

/// Base pages of an address range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pages {
    pub(crate) first: u64,
    pub(crate) count: u64,
}

impl Pages {
    fn overlaps(self, first: u64, count: u64) -> bool {
        first < self.first.saturating_add(self.count) && self.first < first.saturating_add(count)
    }

    pub(crate) fn contains(self, page: u64) -> bool {
        page.wrapping_sub(self.first) < self.count
    }
}

/// A level.
#[derive(Clone, Debug)]
pub(crate) struct Level {
    held: Held,
    arrays: Vec<Assoc>,
    /// By reach, smallest first.
    routes: Vec<Route>,
    /// Index of the route by reach.
    route_of: [u8; 64],
    /// Pieces of larger leaves in the arrays, valid or not.
    pieces: usize,
    /// Entries of all arrays.
    entries_nr: u64,
}

impl Level {
    /// Builds the arrays; their stamps begin at `*stamps_at`, which is advanced past them.
    pub(crate) fn new<T: Covers>(
        held: Held,
        geometry: &[ArrayGeometry<T>],
        stamps_at: &mut usize,
    ) -> Level {
        let mut level = Level {
            held,
            arrays: Vec::new(),
            routes: Vec::new(),
            route_of: [0; 64],
            pieces: 0,
            entries_nr: 0,
        };
        for array in geometry {
            let index = level.arrays.len();
            level.arrays.push(Assoc::new(array.entries, array.ways, array.policy, *stamps_at));
            *stamps_at += array.entries as usize;
            level.entries_nr += u64::from(array.entries);
            for shift in array.holds.iter().map(|&reach| reach.shift()) {
                match level.routes.iter_mut().find(|route| route.shift == shift) {
                    Some(route) => route.arrays.push(index),
                    None => level.routes.push(Route { shift, arrays: vec![index], stored: 0 }),
                }
            }
        }
        level.routes.sort_by_key(|route| route.shift);
        for (index, route) in (0..).zip(&level.routes) {
            level.route_of[route.shift as usize] = index;
        }
        level
    }

    pub(crate) fn entry(&self, at: Place) -> &Cached {
        self.arrays[at.array].entry(at.way)
    }
    pub(crate) fn entry_mut(&mut self, at: Place) -> &mut Cached {
        self.arrays[at.array].entry_mut(at.way)
    }
    pub(crate) fn key(&self, at: Place) -> Key {
        self.arrays[at.array].key(at.way)
    }
    /// Index of the entry's stamp.
    #[inline]
    pub(crate) fn stamp_at(&self, at: Place) -> usize {
        self.arrays[at.array].stamps_at + at.way
    }

    /// The largest reach held that is at most `2^shift`.
    pub(crate) fn reach_within(&self, shift: u32) -> Option<u32> {
        self.routes.iter().rev().map(|route| route.shift).find(|&held| held <= shift)
    }

    #[inline]
    fn home(&self, route: &Route, key: Key) -> (usize, usize) {
        let unit = key.unit();
        let array = match route.arrays.as_slice() {
            [only] => return (*only, self.arrays[*only].set_of(unit)),
            several => {
                let turn = unit % several.len() as u64;
                several[usize::try_from(turn).expect("a few arrays")]
            }
        };
        (array, self.arrays[array].set_of(unit / route.arrays.len() as u64))
    }

    /// The entry that translates base page `page`, smallest reach first.
    #[inline]
    pub(crate) fn find(&self, page: u64, spaces: Match) -> Option<Place> {
        for route in &self.routes {
            if route.stored == 0 {
                continue;
            }
            let key = Key::around(page, route.shift);
            let (array, set) = self.home(route, key);
            if let Some(way) = self.arrays[array].find(set, key, spaces.own, spaces.global) {
                return Some(Place { array, way });
            }
        }
        None
    }

    /// Chooses where `key` goes; what is there must be gone before [`Level::write`].
    #[inline]
    pub(crate) fn make_room(
        &mut self,
        key: Key,
        stamps: &[u64],
        spaces: &Spaces,
        now: SpaceId,
    ) -> Place {
        let (array, set) = self.home(&self.routes[self.route(key.shift())], key);
        Place { array, way: self.arrays[array].victim(set, stamps, spaces, now) }
    }

    #[inline]
    fn route(&self, shift: u32) -> usize {
        usize::from(self.route_of[shift as usize])
    }

    /// Caches an entry in the place that [`Level::make_room`] chose.
    #[inline]
    pub(crate) fn write(
        &mut self,
        at: Place,
        key: Key,
        space: SpaceId,
        entry: Cached,
        spaces: &mut Spaces,
    ) -> Displaced {
        let displaced = self.forget(at, spaces);
        self.arrays[at.array].write(at.way, key, space, entry);
        let route = self.route(key.shift());
        self.routes[route].stored += 1;
        self.pieces += usize::from(u32::from(entry.span) > key.shift());
        spaces.added(entry.tag, space, self.held);
        displaced
    }

    /// Takes an entry out of the books, but leaves it in the array.
    #[inline]
    fn forget(&mut self, at: Place, spaces: &mut Spaces) -> Displaced {
        let array = &self.arrays[at.array];
        let (key, space, entry) = (array.key(at.way), array.space(at.way), *array.entry(at.way));
        if space == SpaceId::NONE {
            return Displaced::Nothing;
        }
        let route = self.route(key.shift());
        self.routes[route].stored -= 1;
        self.pieces -= usize::from(u32::from(entry.span) > key.shift());
        if spaces.is_live(entry.tag, space) {
            spaces.removed(entry.tag, space, self.held);
            Displaced::Entry
        } else {
            Displaced::Nothing
        }
    }

    /// Drops an entry.
    pub(crate) fn erase(&mut self, at: Place, spaces: &mut Spaces) -> Displaced {
        let displaced = self.forget(at, spaces);
        self.arrays[at.array].erase(at.way);
        displaced
    }

    /// The entries of the given spaces that translate any of `pages`, or are pieces of a leaf that
    /// does.
    pub(crate) fn overlapping(&self, pages: Pages, spaces: Match, found: &mut Vec<Place>) {
        found.clear();
        if self.is_empty() {
            return;
        }
        let smallest = self.routes.first().map_or(PAGE_SHIFT, |route| route.shift);
        let lookups = pages.count >> (smallest - PAGE_SHIFT);
        if self.pieces > 0 || lookups > 4 + self.entries_nr / 8 {
            return self.scan(pages, spaces, found);
        }
        for route in self.routes.iter().filter(|route| route.stored > 0) {
            let first = pages.first >> (route.shift - PAGE_SHIFT);
            let last = pages.first.saturating_add(pages.count - 1) >> (route.shift - PAGE_SHIFT);
            for unit in first..=last {
                let key = Key::around(unit << (route.shift - PAGE_SHIFT), route.shift);
                let (array, set) = self.home(route, key);
                for space in [spaces.own, spaces.global] {
                    if space == SpaceId::NONE {
                        continue;
                    }
                    let way = self.arrays[array].find(set, key, space, space);
                    found.extend(way.map(|way| Place { array, way }));
                }
            }
        }
    }

    fn scan(&self, pages: Pages, spaces: Match, found: &mut Vec<Place>) {
        for (index, array) in self.arrays.iter().enumerate() {
            for way in 0..array.len() {
                if !spaces.has(array.space(way)) {
                    continue;
                }
                let key = array.key(way);
                let shift = key.shift().max(u32::from(array.entry(way).span));
                let leaf = Key::around(key.first_page(), shift);
                if pages.overlaps(leaf.first_page(), leaf.pages()) {
                    found.push(Place { array: index, way });
                }
            }
        }
    }

    /// All entries of one space.
    pub(crate) fn of_space(&self, space: SpaceId, found: &mut Vec<Place>) {
        found.clear();
        if space == SpaceId::NONE || self.is_empty() {
            return;
        }
        for (index, array) in self.arrays.iter().enumerate() {
            let ways = (0..array.len()).filter(|&way| array.space(way) == space);
            found.extend(ways.map(|way| Place { array: index, way }));
        }
    }

    /// Whether nothing is in the arrays, valid or not.
    pub(crate) fn is_empty(&self) -> bool {
        self.routes.iter().all(|route| route.stored == 0)
    }

    /// Every valid entry: key, tag, entry; for tests and dumps.
    pub(crate) fn live<'a>(
        &'a self,
        spaces: &'a Spaces,
    ) -> impl Iterator<Item = (Key, Asid, Cached)> + 'a {
        self.arrays.iter().flat_map(move |array| {
            let ways = (0..array.len()).filter(|&way| array.is_live(way, spaces));
            ways.map(|way| (array.key(way), array.entry(way).tag, *array.entry(way)))
        })
    }
}
