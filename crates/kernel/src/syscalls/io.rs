//! read, write and their relatives: moving bytes between files and user memory.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::{Call, Stop, SysResult};
use crate::abi::{O_APPEND, O_NONBLOCK};
use crate::counts::CountsByScope;
use crate::errno::{EAGAIN, EBADF, EFAULT, EFBIG, EINVAL, EISDIR, ENOSPC, EPIPE, ESPIPE};
use crate::fd::{FileRef, Open};
use crate::kernel::Kernel;
use crate::pipe::{PIPE_BUF, PipeId};
use crate::signal::{About, SI_USER, SigInfo, Signal};
use crate::task::{TaskId, Wait};
use crate::user::CHUNK;
use crate::vfs::{Device, InodeId, Kind};
use arch::Platform;
use mm::Errno;
use std::sync::Arc;
use units::VirtAddr;

/// Most that one call moves (`MAX_RW_COUNT`).
const MAX_RW: u64 = 0x7fff_f000;
const IOV_MAX: u64 = 1024;
/// Largest regular file: files are host memory.
const FILE_MAX: u64 = i64::MAX.cast_unsigned();

/// Where in a file to work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    /// At its offset, which moves.
    Offset,
    /// Elsewhere; the offset stays.
    Position(u64),
}

/// A user buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buffer {
    pub(super) at: VirtAddr,
    pub(super) len: u64,
}

pub(super) fn read<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let buffer = Buffer { at: c.addr::<1>(), len: c.long::<2>() };
    read_all(k, c, &[buffer], At::Offset)
}

pub(super) fn write<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let buffer = Buffer { at: c.addr::<1>(), len: c.long::<2>() };
    write_all(k, c, &[buffer], At::Offset)
}

pub(super) fn readv<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let buffers = iovec(k, c.task, c.addr::<1>(), c.long::<2>())?;
    read_all(k, c, &buffers, At::Offset)
}

pub(super) fn writev<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let buffers = iovec(k, c.task, c.addr::<1>(), c.long::<2>())?;
    write_all(k, c, &buffers, At::Offset)
}

pub(super) fn pread<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let buffer = Buffer { at: c.addr::<1>(), len: c.long::<2>() };
    let at = position(c.long::<3>())?;
    read_all(k, c, &[buffer], at)
}

pub(super) fn pwrite<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let buffer = Buffer { at: c.addr::<1>(), len: c.long::<2>() };
    let at = position(c.long::<3>())?;
    write_all(k, c, &[buffer], at)
}

fn position(raw: u64) -> Result<At, Errno> {
    if raw.cast_signed() < 0 { Err(EINVAL) } else { Ok(At::Position(raw)) }
}

pub(super) fn iovec<P: Platform>(
    k: &mut Kernel<P>,
    task: TaskId,
    at: VirtAddr,
    nr: u64,
) -> Result<Vec<Buffer>, Errno>
where
    P::Sink: CountsByScope,
{
    if nr > IOV_MAX {
        return Err(EINVAL);
    }
    let mut buffers = Vec::new();
    let mut from = at;
    for _ in 0..nr {
        let base = k.read_u64(task, from)?;
        let len = k.read_u64(task, from.wrapping_add(8))?;
        if len.cast_signed() < 0 {
            return Err(EINVAL);
        }
        buffers.push(Buffer { at: VirtAddr::new(base), len });
        from = from.wrapping_add(16);
    }
    Ok(buffers)
}

/// What a transfer comes to: what was moved, unless nothing was and there was an error.
fn moved(total: u64, stop: Option<Stop>) -> SysResult {
    match stop {
        Some(stop) if total == 0 => Err(stop),
        _ => Ok(total),
    }
}

fn read_all<P: Platform>(
    k: &mut Kernel<P>,
    c: &mut Call<'_, P::Sink>,
    buffers: &[Buffer],
    at: At,
) -> SysResult
where
    P::Sink: CountsByScope,
{
    let file = k.process_of(c.task).fds.get(c.int::<0>())?.file;
    if !k.files.get(file)?.readable() {
        return Err(EBADF.into());
    }
    check_position(k, file, at)?;
    let mut total = 0u64;
    for buffer in buffers {
        let mut done = 0u64;
        while done < buffer.len.min(MAX_RW.saturating_sub(total)) {
            let want = buffer.len.saturating_sub(done).min(CHUNK);
            let to = buffer.at.wrapping_add(done);
            let from = match at {
                At::Offset => At::Offset,
                At::Position(start) => At::Position(start.saturating_add(total)),
            };
            let got = match read_chunk(k, c, file, to, want, from) {
                Ok(got) => got,
                Err(stop) => return moved(total, Some(stop)),
            };
            done = done.saturating_add(got);
            total = total.saturating_add(got);
            if got < want {
                return Ok(total);
            }
        }
    }
    Ok(total)
}

fn check_position<P: Platform>(k: &Kernel<P>, file: FileRef, at: At) -> Result<(), Errno> {
    let stream = matches!(
        k.files.get(file)?.open,
        Open::PipeRead(_) | Open::PipeWrite(_) | Open::Socket(..) | Open::Stdin | Open::Console(_)
    );
    if stream && at != At::Offset { Err(ESPIPE) } else { Ok(()) }
}

/// Reads up to `len` bytes (at most [`CHUNK`]) to user memory.
fn read_chunk<P: Platform>(
    k: &mut Kernel<P>,
    c: &mut Call<'_, P::Sink>,
    file: FileRef,
    to: VirtAddr,
    len: u64,
    at: At,
) -> SysResult
where
    P::Sink: CountsByScope,
{
    let len = usize::try_from(len).map_err(|_| EINVAL)?;
    let it = k.files.get(file)?;
    let offset = match at {
        At::Offset => it.offset,
        At::Position(position) => position,
    };
    let bytes = match it.open {
        Open::Stdin => {
            let mut bytes = vec![0; len];
            let got = c.host.read(&mut bytes).min(len);
            bytes.truncate(got);
            bytes
        }
        Open::Console(_) | Open::PipeWrite(_) => return Err(EBADF.into()),
        Open::Pidfd(_) | Open::IoUring(_) => return Err(EINVAL.into()),
        Open::ProcDir(_) => return Err(EISDIR.into()),
        Open::Device(Device::Null) => Vec::new(),
        Open::Device(Device::Zero | Device::Full) => vec![0; len],
        Open::Device(Device::Random) => {
            let mut bytes = vec![0; len];
            k.rng.fill(&mut bytes);
            bytes
        }
        Open::Inode(inode) => match k.vfs.inode(inode)?.kind {
            Kind::File(data) => k.mm.file_read(data, offset, len),
            _ => return Err(EISDIR.into()),
        },
        Open::Pseudo(..) => read_pseudo(k, file, offset, len)?,
        Open::PipeRead(pipe) | Open::Socket(pipe, _) => {
            return read_pipe(k, c.task, file, pipe, to, len);
        }
    };
    k.write_user(c.task, to, &bytes)?;
    let got = bytes.len() as u64;
    if at == At::Offset {
        let it = k.files.get_mut(file)?;
        it.offset = it.offset.saturating_add(got);
    }
    Ok(got)
}

fn part(data: &[u8], offset: u64, len: usize) -> Vec<u8> {
    let from = usize::try_from(offset).unwrap_or(usize::MAX);
    data.get(from..).unwrap_or_default().iter().take(len).copied().collect()
}

/// A pseudo-file's contents are made when it is read from its start, and then stay.
fn read_pseudo<P: Platform>(
    k: &mut Kernel<P>,
    file: FileRef,
    offset: u64,
    len: usize,
) -> Result<Vec<u8>, Errno>
where
    P::Sink: CountsByScope,
{
    let it = k.files.get(file)?;
    let Open::Pseudo(id, process) = it.open else { return Err(EINVAL) };
    let fresh = offset != 0 && it.text.is_some();
    let pseudo = Arc::clone(k.pseudo.get(id.index()).ok_or(EINVAL)?);
    if let Some(bytes) = pseudo.read_at(k, process, offset, len) {
        return bytes;
    }
    if !fresh {
        let text = pseudo.read(k, process)?;
        k.files.get_mut(file)?.text = Some(text);
    }
    let text = k.files.get(file)?.text.as_deref().unwrap_or_default();
    Ok(part(text, offset, len))
}

fn read_pipe<P: Platform>(
    k: &mut Kernel<P>,
    task: TaskId,
    file: FileRef,
    pipe: PipeId,
    to: VirtAddr,
    len: usize,
) -> SysResult
where
    P::Sink: CountsByScope,
{
    let it = k.pipes.get(pipe);
    if it.len() == 0 {
        if it.writers == 0 {
            return Ok(0);
        }
        if k.files.get(file)?.flags & O_NONBLOCK != 0 {
            return Err(EAGAIN.into());
        }
        return Err(Stop::Block(Wait::Pipe(pipe)));
    }
    let bytes = it.peek(len, &k.mm.pt.ram);
    k.write_user(task, to, &bytes)?;
    let pages = k.pipes.get(pipe).consume(bytes.len());
    k.put_pages(&pages);
    k.wake_all(|_, wait| wait == Wait::Pipe(pipe) || wait == Wait::Poll);
    Ok(bytes.len() as u64)
}

fn write_all<P: Platform>(
    k: &mut Kernel<P>,
    c: &mut Call<'_, P::Sink>,
    buffers: &[Buffer],
    at: At,
) -> SysResult
where
    P::Sink: CountsByScope,
{
    let file = k.process_of(c.task).fds.get(c.int::<0>())?.file;
    if !k.files.get(file)?.writable() {
        return Err(EBADF.into());
    }
    check_position(k, file, at)?;
    let mut total = 0u64;
    for buffer in buffers {
        let mut done = 0u64;
        while done < buffer.len.min(MAX_RW.saturating_sub(total)) {
            let want = buffer.len.saturating_sub(done).min(CHUNK);
            let to = match at {
                At::Offset => At::Offset,
                At::Position(start) => At::Position(start.saturating_add(total)),
            };
            let mut bytes = vec![0; usize::try_from(want).map_err(|_| EINVAL)?];
            let from = buffer.at.wrapping_add(done);
            let put = match k.read_user(c.task, from, &mut bytes) {
                Ok(()) => write_chunk(k, c, file, &bytes, to),
                Err(_) => Err(EFAULT.into()),
            };
            let put = match put {
                Ok(put) => put,
                Err(stop) => return moved(total, Some(stop)),
            };
            done = done.saturating_add(put);
            total = total.saturating_add(put);
            if put < want {
                return Ok(total);
            }
        }
    }
    Ok(total)
}

pub(super) fn write_chunk<P: Platform>(
    k: &mut Kernel<P>,
    c: &mut Call<'_, P::Sink>,
    file: FileRef,
    bytes: &[u8],
    at: At,
) -> SysResult
where
    P::Sink: CountsByScope,
{
    let len = bytes.len() as u64;
    match k.files.get(file)?.open {
        Open::Console(stream) => c.host.write(stream, bytes),
        Open::Device(Device::Full) => return Err(ENOSPC.into()),
        Open::Device(_) => {}
        Open::Inode(inode) => write_inode(k, file, inode, bytes, at)?,
        Open::Pseudo(id, process) => {
            let pseudo = Arc::clone(k.pseudo.get(id.index()).ok_or(EINVAL)?);
            let offset = match at {
                At::Offset => k.files.get(file)?.offset,
                At::Position(position) => position,
            };
            let put = match pseudo.write_at(k, process, offset, bytes) {
                Some(put) => put? as u64,
                None => {
                    pseudo.write(k, process, bytes)?;
                    len
                }
            };
            let it = k.files.get_mut(file)?;
            it.text = None;
            if at == At::Offset {
                it.offset = it.offset.saturating_add(put);
            }
            return Ok(put);
        }
        Open::PipeWrite(pipe) | Open::Socket(_, pipe) => {
            return write_pipe(k, c.task, file, pipe, bytes);
        }
        Open::PipeRead(_) | Open::Stdin | Open::ProcDir(_) => return Err(EBADF.into()),
        Open::Pidfd(_) | Open::IoUring(_) => return Err(EINVAL.into()),
    }
    Ok(len)
}

fn write_inode<P: Platform>(
    k: &mut Kernel<P>,
    file: FileRef,
    inode: InodeId,
    bytes: &[u8],
    at: At,
) -> Result<(), Errno> {
    let it = k.files.get_mut(file)?;
    let Kind::File(data) = k.vfs.inode(inode)?.kind else { return Err(EISDIR) };
    let start = match at {
        At::Position(position) => position,
        At::Offset if it.flags & O_APPEND != 0 => k.mm.file_len(data),
        At::Offset => it.offset,
    };
    let end = start.saturating_add(bytes.len() as u64);
    if end > FILE_MAX {
        return Err(EFBIG);
    }
    k.mm.file_write(data, start, bytes)?;
    if at == At::Offset {
        it.offset = end;
    }
    Ok(())
}

// FIDELITY: pipe-partial-write — a blocking write of more than fits into a pipe returns what fitted
// instead of waiting until all is written.
fn write_pipe<P: Platform>(
    k: &mut Kernel<P>,
    task: TaskId,
    file: FileRef,
    pipe: PipeId,
    bytes: &[u8],
) -> SysResult
where
    P::Sink: CountsByScope,
{
    let it = k.pipes.get(pipe);
    if it.readers == 0 {
        return Err(k.broken_pipe(task).into());
    }
    let room = it.room();
    if room == 0 || bytes.len() <= PIPE_BUF && room < bytes.len() {
        if k.files.get(file)?.flags & O_NONBLOCK != 0 {
            return Err(EAGAIN.into());
        }
        return Err(Stop::Block(Wait::Pipe(pipe)));
    }
    let part = bytes.get(..room.min(bytes.len())).unwrap_or(bytes);
    k.pipes.get(pipe).push(part);
    k.wake_all(|_, wait| wait == Wait::Pipe(pipe) || wait == Wait::Poll);
    Ok(part.len() as u64)
}

impl<P: Platform> Kernel<P>
where
    P::Sink: CountsByScope,
{
    /// What a writer to a pipe without readers gets: SIGPIPE, and EPIPE.
    pub(super) fn broken_pipe(&mut self, task: TaskId) -> Errno {
        let about = About::Sender(self.task(task).process);
        self.signal_task(task, SigInfo { signal: Signal::SIGPIPE, code: SI_USER, about });
        EPIPE
    }
}
