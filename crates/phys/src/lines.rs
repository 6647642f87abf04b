//! Which cache lines of a structure were touched.

use std::cell::Cell;

/// Bytes of a cache line, as Linux assumes on both architectures.
pub const LINE_SIZE: u64 = 64;

/// Counts moves from one cache line to another. Going to and fro between two lines counts each
/// once: an operation that copies from one table to another, or looks from a page to its folio
/// and back, has both at hand.
///
/// A read touches as much as a write, so this works behind a shared reference.
#[derive(Debug, Default)]
pub struct Lines {
    /// The last two, as line plus one; 0 is none.
    recent: Cell<[u64; 2]>,
    moves: Cell<u64>,
}

impl Lines {
    /// `line` is touched.
    #[inline(always)]
    pub fn touch(&self, line: u64) {
        let [last, before] = self.recent.get();
        let line = line.wrapping_add(1);
        if line == last {
            return;
        }
        self.recent.set([line, last]);
        if line != before {
            self.moves.set(self.moves.get() + 1);
        }
    }

    /// How many moves there were since the last call.
    #[inline(always)]
    pub fn take(&self) -> u64 {
        self.moves.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_counts_once_until_two_others_were_touched() {
        let lines = Lines::default();
        for line in [0, 0, 0, 7, 0, 7, 7] {
            lines.touch(line);
        }
        assert_eq!(lines.take(), 2);
        [8, 0].map(|line| lines.touch(line));
        assert_eq!(lines.take(), 2);
        assert_eq!(lines.take(), 0);
    }
}
