//! Pipes: a bounded queue of bytes between two ends.
//!
//! Source: Linux fs/pipe.c; pipe(7) for what is atomic.

use phys::Ram;
use std::collections::{BTreeMap, VecDeque};
use units::Pfn;

/// A pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PipeId(u32);

/// Bytes that a pipe holds.
pub(crate) const CAPACITY: usize = 65536;
/// Bytes of a page.
const PAGE: usize = 4096;
/// Writes up to this length are atomic.
pub(crate) const PIPE_BUF: usize = 4096;

/// What a pipe holds next to each other.
#[derive(Clone, Debug)]
enum Segment {
    /// What was written.
    Bytes(VecDeque<u8>),
    /// Part of a user page that `vmsplice()` put in: it shows what the page holds when it is read.
    Page { page: Pfn, offset: usize, len: usize },
}

impl Segment {
    fn len(&self) -> usize {
        match self {
            Segment::Bytes(bytes) => bytes.len(),
            Segment::Page { len, .. } => *len,
        }
    }

    /// Room that it takes: a page is a buffer of its own.
    fn takes(&self) -> usize {
        match self {
            Segment::Bytes(bytes) => bytes.len(),
            Segment::Page { .. } => PAGE,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Pipe {
    segments: VecDeque<Segment>,
    /// Open file descriptions of each end.
    pub(crate) readers: u32,
    pub(crate) writers: u32,
}

impl Pipe {
    pub(crate) fn len(&self) -> usize {
        self.segments.iter().map(Segment::len).sum()
    }

    pub(crate) fn room(&self) -> usize {
        let taken: usize = self.segments.iter().map(Segment::takes).sum();
        CAPACITY.saturating_sub(taken)
    }

    /// Pages that may still be put in.
    pub(crate) fn slots(&self) -> usize {
        self.room() / PAGE
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if let Some(Segment::Bytes(last)) = self.segments.back_mut() {
            last.extend(bytes);
        } else {
            self.segments.push_back(Segment::Bytes(bytes.iter().copied().collect()));
        }
    }

    /// Takes over the caller's reference to a page.
    pub(crate) fn push_page(&mut self, page: Pfn, offset: u64, len: u64) {
        let part = |n: u64| usize::try_from(n).unwrap_or_default();
        let (offset, len) = (part(offset), part(len));
        self.segments.push_back(Segment::Page { page, offset, len });
    }

    /// The first `len` bytes, or as many as there are, still queued.
    pub(crate) fn peek(&self, len: usize, ram: &Ram) -> Vec<u8> {
        let mut bytes = Vec::new();
        for segment in &self.segments {
            let left = len.saturating_sub(bytes.len());
            match segment {
                Segment::Bytes(queued) => bytes.extend(queued.iter().take(left)),
                Segment::Page { page, offset, len } => {
                    let at = page.addr().wrapping_add(*offset as u64);
                    bytes.extend(ram.slice(at, left.min(*len)));
                }
            }
        }
        bytes
    }

    /// Drops the first `len` bytes; returns the pages that are not needed any more.
    #[must_use = "the pages hold references"]
    pub(crate) fn consume(&mut self, len: usize) -> Vec<Pfn> {
        let mut pages = Vec::new();
        let mut left = len;
        while let Some(segment) = self.segments.front_mut() {
            let part = left.min(segment.len());
            left = left.saturating_sub(part);
            match segment {
                Segment::Bytes(queued) => drop(queued.drain(..part)),
                Segment::Page { offset, len, .. } => {
                    *offset = offset.saturating_add(part);
                    *len = len.saturating_sub(part);
                }
            }
            if segment.len() > 0 {
                break;
            }
            if let Some(Segment::Page { page, .. }) = self.segments.pop_front() {
                pages.push(page);
            }
        }
        pages
    }
}

/// All pipes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pipes {
    pipes: BTreeMap<PipeId, Pipe>,
    next: u32,
}

impl Pipes {
    /// A pipe with one reader and one writer.
    pub(crate) fn create(&mut self) -> PipeId {
        let id = PipeId(self.next);
        self.next = self.next.wrapping_add(1);
        self.pipes.insert(id, Pipe { readers: 1, writers: 1, ..Pipe::default() });
        id
    }
    pub(crate) fn get(&mut self, id: PipeId) -> &mut Pipe {
        self.pipes.entry(id).or_default()
    }
    /// Forgets a pipe that no end is open of; returns the pages that it held.
    #[must_use = "the pages hold references"]
    pub(crate) fn collect(&mut self, id: PipeId) -> Vec<Pfn> {
        if self.pipes.get(&id).is_none_or(|p| p.readers > 0 || p.writers > 0) {
            return Vec::new();
        }
        self.pipes.remove(&id).map_or_else(Vec::new, |mut pipe| pipe.consume(usize::MAX))
    }
}
