//! Which cache lines of a structure are fetched.
// FIDELITY: kernel-cache one direct-mapped cache for page tables and `struct page`, shared with
// nothing else.

use std::cell::Cell;

/// Bytes of a cache line, as Linux assumes on both architectures.
pub const LINE_SIZE: u64 = 64;
/// Lines that are remembered: 256 KiB, a second-level cache of the smaller kind.
const LINES: usize = 4096;

/// Counts the lines that are fetched into a direct-mapped cache of 256 KiB: what an operation comes back to soon
/// costs it nothing again.
///
/// A read fetches as much as a write, so this works behind a shared reference.
#[derive(Debug)]
pub struct Lines {
    /// Line plus one, by its low bits; 0 is none.
    tags: Box<[Cell<u64>]>,
    fetched: Cell<u64>,
}

impl Default for Lines {
    fn default() -> Lines {
        Lines { tags: vec![Cell::new(0); LINES].into_boxed_slice(), fetched: Cell::new(0) }
    }
}

impl Lines {
    /// `line` is touched; whether it had to be fetched.
    #[inline(always)]
    pub fn touch(&self, line: u64) -> bool {
        let tag = line.wrapping_add(1);
        let slot = &self.tags[line as usize & (LINES - 1)];
        if slot.get() == tag {
            return false;
        }
        slot.set(tag);
        self.fetched.set(self.fetched.get() + 1);
        true
    }

    /// How many were fetched since the last call.
    #[inline(always)]
    pub fn take(&self) -> u64 {
        self.fetched.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_fetched_once_until_another_takes_its_place() {
        let lines = Lines::default();
        let fetched = [0, 0, 7, 0, 7].map(|line| lines.touch(line));
        assert_eq!(fetched, [true, false, true, false, false]);
        assert_eq!(lines.take(), 2);
        let far = LINES as u64;
        assert_eq!([far, 0, 7].map(|line| lines.touch(line)), [true, true, false]);
        assert_eq!((lines.take(), lines.take()), (2, 0));
    }
}
