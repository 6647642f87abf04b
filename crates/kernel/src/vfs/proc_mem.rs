//! `/proc/<pid>/mem`: the memory of a process, by address.
//!
//! Source: Linux fs/proc/base.c `mem_rw()`.

#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use super::PseudoFile;
use crate::errno::{EINVAL, EIO, ESRCH};
use crate::kernel::Kernel;
use crate::task::ProcessId;
use arch::{MmId, Platform};
use mm::Errno;
use units::VirtAddr;

/// The file.
#[derive(Debug)]
pub(super) struct Mem;

fn mm_of<P: Platform>(kernel: &Kernel<P>, process: ProcessId) -> Result<Option<MmId>, Errno> {
    Ok(kernel.processes.get(&process).ok_or(ESRCH)?.mm)
}

impl<P: Platform> PseudoFile<P> for Mem {
    fn mode(&self) -> u32 {
        0o600
    }
    fn read(&self, _: &mut Kernel<P>, _: ProcessId) -> Result<Vec<u8>, Errno> {
        Err(EINVAL)
    }
    fn read_at(
        &self,
        kernel: &mut Kernel<P>,
        process: ProcessId,
        offset: u64,
        len: usize,
    ) -> Option<Result<Vec<u8>, Errno>> {
        let mm = match mm_of(kernel, process) {
            Ok(Some(mm)) => mm,
            Ok(None) => return Some(Ok(Vec::new())),
            Err(error) => return Some(Err(error)),
        };
        let mut bytes = vec![0; len];
        let got = kernel.mm.read_remote_vm(mm, VirtAddr::new(offset), &mut bytes);
        bytes.truncate(got);
        Some(if got == 0 && len > 0 { Err(EIO) } else { Ok(bytes) })
    }
    fn write_at(
        &self,
        kernel: &mut Kernel<P>,
        process: ProcessId,
        offset: u64,
        data: &[u8],
    ) -> Option<Result<usize, Errno>> {
        let mm = match mm_of(kernel, process) {
            Ok(Some(mm)) => mm,
            Ok(None) => return Some(Ok(0)),
            Err(error) => return Some(Err(error)),
        };
        let put = kernel.mm.write_remote_vm(mm, VirtAddr::new(offset), data);
        Some(if put == 0 && !data.is_empty() { Err(EIO) } else { Ok(put) })
    }
}
