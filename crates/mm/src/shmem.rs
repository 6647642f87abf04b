//! Memory with a file behind it and no disk: shared anonymous mappings.
//!
//! The pages are those of the file's page cache (`filemap.rs`); tmpfs and memfd are the same
//! files with names. Source: Linux mm/shmem.c.
//
// FIDELITY: shmem-order0 — folios of shmem are order 0 and never swapped out: they are on no LRU
// list. A tmpfs has no limit but RAM.

use crate::Mm;
use crate::filemap::FileId;
use crate::mmap::{Backing, MapFlags};
use arch::Platform;

impl<P: Platform> Mm<P> {
    /// The file behind a mapping that is shared and has none: of as many bytes, all zero.
    /// Source: Linux mm/shmem.c `shmem_zero_setup()`.
    pub(crate) fn shmem_zero_setup(
        &mut self,
        backing: Backing,
        flags: MapFlags,
        len: u64,
    ) -> Option<FileId> {
        let zeroes = matches!(backing, Backing::Anonymous | Backing::ZeroDevice);
        if !zeroes || !flags.contains(MapFlags::SHARED) {
            return None;
        }
        let file = self.shmem_file_create("/dev/zero (deleted)", Vec::new());
        // A fresh file grows without fail.
        let grown = self.file_truncate(file, len);
        debug_assert_eq!(grown, Ok(()));
        Some(file)
    }
}
