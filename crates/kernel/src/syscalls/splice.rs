//! vmsplice: user pages in a pipe.
//!
//! Source: Linux fs/splice.c `vmsplice_to_pipe()`, `iter_to_pipe()`.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::file::file_of;
use super::io::iovec;
use super::{Call, Stop, SysResult};
use crate::abi::O_NONBLOCK;
use crate::counts::CountsByScope;
use crate::errno::{EAGAIN, EBADF, EINVAL};
use crate::fd::Open;
use crate::kernel::Kernel;
use crate::task::Wait;
use arch::Platform;
use mm::Foll;
use units::PAGE_SIZE;

/// Puts references to the caller's pages into a pipe, as many as fit.
pub(super) fn vmsplice<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    // SPLICE_F_MOVE, NONBLOCK, MORE, GIFT
    const KNOWN: u32 = 15;
    const NONBLOCK: u32 = 2;
    let flags = c.uint::<3>();
    if flags & !KNOWN != 0 {
        return Err(EINVAL.into());
    }
    let file = file_of(k, c.task, c.int::<0>())?;
    let it = k.files.get(file)?;
    let nonblock = (flags & NONBLOCK | it.flags & O_NONBLOCK) != 0;
    let pipe = match it.open {
        Open::PipeWrite(pipe) => pipe,
        // Reading from a pipe into user memory is a copy.
        Open::PipeRead(_) => return super::io::readv(k, c),
        _ => return Err(EBADF.into()),
    };
    if k.pipes.get(pipe).readers == 0 {
        return Err(k.broken_pipe(c.task).into());
    }
    let buffers = iovec(k, c.task, c.addr::<1>(), c.long::<2>())?;
    let mm = k.mm_of(c.task)?;
    let mut total = 0u64;
    for buffer in buffers {
        let mut done = 0u64;
        while done < buffer.len {
            if k.pipes.get(pipe).slots() == 0 {
                break;
            }
            let at = buffer.at.wrapping_add(done);
            let room = PAGE_SIZE.saturating_sub(at.page_offset());
            let len = room.min(buffer.len.saturating_sub(done));
            let mut pages = Vec::new();
            let got = k.mm.get_user_pages_fast(mm, at, 1, Foll::empty(), &mut pages);
            let (Ok(_), Some(&page)) = (got, pages.first()) else {
                let error = got.err().unwrap_or(crate::errno::EFAULT);
                return if total > 0 { Ok(total) } else { Err(error.into()) };
            };
            k.pipes.get(pipe).push_page(page, at.page_offset(), len);
            done = done.saturating_add(len);
            total = total.saturating_add(len);
        }
    }
    if total > 0 {
        k.wake_all(|_, wait| wait == Wait::Pipe(pipe) || wait == Wait::Poll);
        return Ok(total);
    }
    match nonblock {
        true => Err(EAGAIN.into()),
        false => Err(Stop::Block(Wait::Pipe(pipe))),
    }
}
