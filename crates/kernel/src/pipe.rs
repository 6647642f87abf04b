//! Pipes: a bounded queue of bytes between two ends.
//!
//! Source: Linux fs/pipe.c; pipe(7) for what is atomic.

use std::collections::{BTreeMap, VecDeque};

/// A pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PipeId(u32);

/// Bytes that a pipe holds.
pub(crate) const CAPACITY: usize = 65536;
/// Writes up to this length are atomic.
pub(crate) const PIPE_BUF: usize = 4096;

#[derive(Clone, Debug, Default)]
pub(crate) struct Pipe {
    bytes: VecDeque<u8>,
    /// Open file descriptions of each end.
    pub(crate) readers: u32,
    pub(crate) writers: u32,
}

impl Pipe {
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }
    pub(crate) fn room(&self) -> usize {
        CAPACITY.saturating_sub(self.bytes.len())
    }
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }
    /// The first `len` bytes, or as many as there are, still queued.
    pub(crate) fn peek(&self, len: usize) -> Vec<u8> {
        self.bytes.iter().take(len).copied().collect()
    }
    pub(crate) fn consume(&mut self, len: usize) {
        self.bytes.drain(..len.min(self.bytes.len()));
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
    /// Forgets a pipe that no end is open of.
    pub(crate) fn collect(&mut self, id: PipeId) {
        if self.pipes.get(&id).is_some_and(|p| p.readers == 0 && p.writers == 0) {
            self.pipes.remove(&id);
        }
    }
}
