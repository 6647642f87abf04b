//! Where code is kept: anonymous mappings that are either writable or executable.

use memmap2::{Mmap, MmapMut};

const CHUNK_BYTES: usize = 256 << 10;
const CHUNKS_MAX: usize = 256;

/// Why code could not be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoRoom {
    /// The limit is reached; all may be dropped and made anew.
    Full,
    /// The host refuses; what was there is lost, too.
    Refused,
}

/// A mapping of code, executable whenever it is not being written.
#[derive(Debug)]
struct Chunk {
    map: Mmap,
    used: usize,
}

impl Chunk {
    fn new() -> Result<Chunk, NoRoom> {
        let map = MmapMut::map_anon(CHUNK_BYTES).and_then(MmapMut::make_exec);
        Ok(Chunk { map: map.map_err(|_| NoRoom::Refused)?, used: 0 })
    }

    /// Puts `code` at the end, and yields the chunk and the address.
    fn append(self, code: &[u8]) -> Result<(Chunk, usize), NoRoom> {
        let at = self.used;
        let mut map = self.map.make_mut().map_err(|_| NoRoom::Refused)?;
        map[at..at + code.len()].copy_from_slice(code);
        let map = map.make_exec().map_err(|_| NoRoom::Refused)?;
        let address = map.as_ptr().expose_provenance() + at;
        let used = (at + code.len()).next_multiple_of(16);
        Ok((Chunk { map, used }, address))
    }
}

/// All code of one CPU. Nothing moves until it is cleared.
#[derive(Debug, Default)]
pub(super) struct CodeMemory {
    chunks: Vec<Chunk>,
}

impl CodeMemory {
    /// Keeps a piece of code; yields its address.
    pub(super) fn add(&mut self, code: &[u8]) -> Result<usize, NoRoom> {
        let fits = |chunk: &Chunk| chunk.used + code.len() <= CHUNK_BYTES;
        let chunk = match self.chunks.pop_if(|chunk| fits(chunk)) {
            Some(chunk) => chunk,
            None if self.chunks.len() == CHUNKS_MAX || code.len() > CHUNK_BYTES => {
                return Err(NoRoom::Full);
            }
            None => Chunk::new()?,
        };
        let (chunk, address) = chunk.append(code)?;
        self.chunks.push(chunk);
        Ok(address)
    }

    /// Drops everything.
    pub(super) fn clear(&mut self) {
        self.chunks.clear();
    }
}
