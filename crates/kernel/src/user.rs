//! Reading and writing the memory of the calling process.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use crate::counts::CountsByScope;
use crate::errno::{EFAULT, ENAMETOOLONG};
use crate::kernel::Kernel;
use crate::task::TaskId;
use arch::{Arch, MmId, Platform};
use mm::Errno;
use units::{PAGE_SIZE, VirtAddr};

/// Longest path, with its NUL (`PATH_MAX`).
pub(crate) const PATH_MAX: usize = 4096;
/// How much one transfer between a file and a user buffer moves at a time.
pub(crate) const CHUNK: u64 = 64 << 10;

impl<P: Platform> Kernel<P>
where
    P::Sink: CountsByScope,
{
    pub(crate) fn mm_of(&self, task: TaskId) -> Result<MmId, Errno> {
        self.process_of(task).mm.ok_or(EFAULT)
    }

    /// `copy_from_user()`.
    pub(crate) fn read_user(
        &mut self,
        task: TaskId,
        at: VirtAddr,
        into: &mut [u8],
    ) -> Result<(), Errno> {
        access_ok::<P>(at, into.len() as u64)?;
        let mm = self.mm_of(task)?;
        self.mm.copy_from_user(mm, at, into)
    }

    /// `copy_to_user()`.
    pub(crate) fn write_user(
        &mut self,
        task: TaskId,
        at: VirtAddr,
        bytes: &[u8],
    ) -> Result<(), Errno> {
        access_ok::<P>(at, bytes.len() as u64)?;
        let mm = self.mm_of(task)?;
        self.mm.copy_to_user(mm, at, bytes)
    }

    pub(crate) fn read_bytes<const N: usize>(
        &mut self,
        task: TaskId,
        at: VirtAddr,
    ) -> Result<[u8; N], Errno> {
        let mut bytes = [0; N];
        self.read_user(task, at, &mut bytes)?;
        Ok(bytes)
    }

    pub(crate) fn read_u32(&mut self, task: TaskId, at: VirtAddr) -> Result<u32, Errno> {
        Ok(u32::from_le_bytes(self.read_bytes(task, at)?))
    }

    pub(crate) fn read_u64(&mut self, task: TaskId, at: VirtAddr) -> Result<u64, Errno> {
        Ok(u64::from_le_bytes(self.read_bytes(task, at)?))
    }

    pub(crate) fn write_u32(&mut self, task: TaskId, at: VirtAddr, v: u32) -> Result<(), Errno> {
        self.write_user(task, at, &v.to_le_bytes())
    }

    pub(crate) fn write_u64(&mut self, task: TaskId, at: VirtAddr, v: u64) -> Result<(), Errno> {
        self.write_user(task, at, &v.to_le_bytes())
    }

    /// A `struct timespec` or `timeval` as its two fields.
    pub(crate) fn read_pair(&mut self, task: TaskId, at: VirtAddr) -> Result<(i64, i64), Errno> {
        let first = self.read_u64(task, at)?;
        let second = self.read_u64(task, at.wrapping_add(8))?;
        Ok((first.cast_signed(), second.cast_signed()))
    }

    /// A string, without its NUL: page by page, as it may end just before a hole.
    pub(crate) fn read_string(&mut self, task: TaskId, at: VirtAddr) -> Result<Vec<u8>, Errno> {
        let mut string = Vec::new();
        let mut from = at;
        while string.len() < PATH_MAX {
            let in_page = PAGE_SIZE.saturating_sub(from.page_offset());
            let mut part = vec![0; usize::try_from(in_page).map_err(|_| EFAULT)?];
            self.read_user(task, from, &mut part)?;
            if let Some(end) = part.iter().position(|&b| b == 0) {
                part.truncate(end);
                string.extend(part);
                return if string.len() < PATH_MAX { Ok(string) } else { Err(ENAMETOOLONG) };
            }
            string.extend(part);
            from = from.wrapping_add(in_page);
        }
        Err(ENAMETOOLONG)
    }
}

/// Whether `[at, at + len)` is user space.
fn access_ok<P: Platform>(at: VirtAddr, len: u64) -> Result<(), Errno> {
    match at.checked_add(len) {
        Some(end) if end <= P::Arch::TASK_SIZE => Ok(()),
        _ => Err(EFAULT),
    }
}
