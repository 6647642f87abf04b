//! File descriptors: closing, duplicating, seeking, listing; pipes.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::{Call, SysResult};
use crate::abi::{O_APPEND, O_CLOEXEC, O_NONBLOCK};
use crate::counts::CountsByScope;
use crate::errno::{
    EAFNOSUPPORT, EBADF, EINVAL, ENOTDIR, ENOTTY, EOPNOTSUPP, EPROTONOSUPPORT, ESPIPE,
};
use crate::fd::{Fd, FileRef, Open, OpenFile};
use crate::kernel::Kernel;
use crate::pipe::CAPACITY;
use crate::task::{Rlimits, TaskId};
use crate::vfs::{Kind, Node};
use arch::Platform;
use mm::Errno;
use units::VirtAddr;

/// Highest number of a descriptor, plus one.
pub(super) fn fd_limit<P: Platform>(k: &Kernel<P>, task: TaskId) -> i32
where
    P::Sink: CountsByScope,
{
    let limits = &k.process_of(task).rlimits.0;
    let soft = limits.get(Rlimits::NOFILE).map_or(0, |limit| limit.0);
    i32::try_from(soft).unwrap_or(i32::MAX)
}

/// A new description under the lowest free number.
pub(super) fn install<P: Platform>(
    k: &mut Kernel<P>,
    task: TaskId,
    file: OpenFile,
    cloexec: bool,
) -> Result<i32, Errno>
where
    P::Sink: CountsByScope,
{
    let limit = fd_limit(k, task);
    let file = k.files.insert(file);
    let result = k.process_of_mut(task).fds.insert(Fd { file, cloexec }, 0, limit);
    if result.is_err() {
        k.close_file(file);
    }
    result
}

pub(super) fn file_of<P: Platform>(k: &Kernel<P>, task: TaskId, fd: i32) -> Result<FileRef, Errno>
where
    P::Sink: CountsByScope,
{
    Ok(k.process_of(task).fds.get(fd)?.file)
}

pub(super) fn as_value(n: i32) -> u64 {
    i64::from(n).cast_unsigned()
}

pub(super) fn close<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let fd = k.process_of_mut(c.task).fds.remove(c.int::<0>())?;
    k.close_file(fd.file);
    Ok(0)
}

pub(super) fn close_range<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    const UNSHARE: u32 = 2;
    const CLOEXEC: u32 = 4;
    let (first, last, flags) = (c.uint::<0>(), c.uint::<1>(), c.uint::<2>());
    if first > last || flags & !(UNSHARE | CLOEXEC) != 0 {
        return Err(EINVAL.into());
    }
    let inside = |fd: &i32| u32::try_from(*fd).is_ok_and(|fd| (first..=last).contains(&fd));
    let fds: Vec<i32> = k.process_of(c.task).fds.iter().map(|e| e.0).filter(inside).collect();
    for fd in fds {
        if flags & CLOEXEC != 0 {
            k.process_of_mut(c.task).fds.get_mut(fd)?.cloexec = true;
        } else {
            let fd = k.process_of_mut(c.task).fds.remove(fd)?;
            k.close_file(fd.file);
        }
    }
    Ok(0)
}

pub(super) fn lseek<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    const SET: u32 = 0;
    const CUR: u32 = 1;
    const END: u32 = 2;
    let file = file_of(k, c.task, c.int::<0>())?;
    let it = k.files.get(file)?;
    let size = match it.open {
        Open::Stdin
        | Open::Console(_)
        | Open::PipeRead(_)
        | Open::PipeWrite(_)
        | Open::Socket(..)
        | Open::IoUring(_)
        | Open::Pidfd(_) => {
            return Err(ESPIPE.into());
        }
        Open::Inode(inode) => match k.vfs.inode(inode)?.kind {
            Kind::File(data) => k.mm.file_len(data),
            _ => 0,
        },
        Open::ProcDir(_) | Open::Device(_) | Open::Pseudo(..) => 0,
    };
    let base = match c.uint::<2>() {
        SET => 0,
        CUR => it.offset,
        END => size,
        _ => return Err(EINVAL.into()),
    };
    let to = base.checked_add_signed(c.long::<1>().cast_signed()).ok_or(EINVAL)?;
    if to.cast_signed() < 0 {
        return Err(EINVAL.into());
    }
    k.files.get_mut(file)?.offset = to;
    Ok(to)
}

pub(super) fn ioctl<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    const FIONREAD: u32 = 0x541b;
    const FIOCLEX: u32 = 0x5451;
    const FIONCLEX: u32 = 0x5450;
    const FIONBIO: u32 = 0x5421;
    let file = file_of(k, c.task, c.int::<0>())?;
    match (c.uint::<1>(), k.files.get(file)?.open) {
        (FIOCLEX, _) => k.process_of_mut(c.task).fds.get_mut(c.int::<0>())?.cloexec = true,
        (FIONCLEX, _) => k.process_of_mut(c.task).fds.get_mut(c.int::<0>())?.cloexec = false,
        (FIONBIO, _) => {
            let on = k.read_u32(c.task, c.addr::<2>())? != 0;
            let it = k.files.get_mut(file)?;
            it.flags = it.flags & !O_NONBLOCK | if on { O_NONBLOCK } else { 0 };
        }
        (number, Open::Pseudo(id, _)) => {
            let it = k.pseudo.get(id.index()).cloned().ok_or(ENOTTY)?;
            let arg = c.addr::<2>();
            return Ok(it.ioctl(k, c.host, c.task, number, arg)?);
        }
        (FIONREAD, Open::PipeRead(pipe) | Open::Socket(pipe, _)) => {
            let len = u32::try_from(k.pipes.get(pipe).len()).unwrap_or(u32::MAX);
            k.write_u32(c.task, c.addr::<2>(), len)?;
        }
        _ => return Err(ENOTTY.into()),
    }
    Ok(0)
}

pub(super) fn fcntl<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let (fd, command, arg) = (c.int::<0>(), c.uint::<1>(), c.long::<2>());
    let entry = k.process_of(c.task).fds.get(fd)?;
    match command {
        // F_DUPFD, F_DUPFD_CLOEXEC
        0 | 1030 => duplicate(k, c.task, entry.file, arg, command == 1030),
        // F_GETFD, F_SETFD
        1 => Ok(u64::from(entry.cloexec)),
        2 => {
            k.process_of_mut(c.task).fds.get_mut(fd)?.cloexec = arg & 1 != 0;
            Ok(0)
        }
        // F_GETFL, F_SETFL
        3 => Ok(u64::from(k.files.get(entry.file)?.flags)),
        4 => {
            let settable = O_APPEND | O_NONBLOCK;
            let it = k.files.get_mut(entry.file)?;
            it.flags = it.flags & !settable | c.uint::<2>() & settable;
            Ok(0)
        }
        // F_GETPIPE_SZ
        1032 if matches!(k.files.get(entry.file)?.open, Open::PipeRead(_) | Open::PipeWrite(_)) => {
            Ok(CAPACITY as u64)
        }
        _ => Err(EINVAL.into()),
    }
}

fn duplicate<P: Platform>(
    k: &mut Kernel<P>,
    task: TaskId,
    file: FileRef,
    min: u64,
    cloexec: bool,
) -> SysResult
where
    P::Sink: CountsByScope,
{
    let limit = fd_limit(k, task);
    let min = i32::try_from(min).ok().filter(|&min| min < limit).ok_or(EINVAL)?;
    let fd = k.process_of_mut(task).fds.insert(Fd { file, cloexec }, min, limit)?;
    k.files.acquire(file);
    Ok(as_value(fd))
}

pub(super) fn dup<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let file = file_of(k, c.task, c.int::<0>())?;
    duplicate(k, c.task, file, 0, false)
}

pub(super) fn dup2<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    if c.int::<0>() == c.int::<1>() {
        file_of(k, c.task, c.int::<0>())?;
        return Ok(as_value(c.int::<1>()));
    }
    dup_onto(k, c, false)
}

pub(super) fn dup3<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let flags = c.uint::<2>();
    if c.int::<0>() == c.int::<1>() || flags & !O_CLOEXEC != 0 {
        return Err(EINVAL.into());
    }
    dup_onto(k, c, flags & O_CLOEXEC != 0)
}

fn dup_onto<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>, cloexec: bool) -> SysResult
where
    P::Sink: CountsByScope,
{
    let file = file_of(k, c.task, c.int::<0>())?;
    let to = c.int::<1>();
    if !(0..fd_limit(k, c.task)).contains(&to) {
        return Err(EBADF.into());
    }
    k.files.acquire(file);
    if let Some(old) = k.process_of_mut(c.task).fds.replace(to, Fd { file, cloexec }) {
        k.close_file(old.file);
    }
    Ok(as_value(to))
}

pub(super) fn pipe<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    make_pipe(k, c.task, c.addr::<0>(), 0)
}

pub(super) fn pipe2<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    make_pipe(k, c.task, c.addr::<0>(), c.uint::<1>())
}

fn make_pipe<P: Platform>(k: &mut Kernel<P>, task: TaskId, at: VirtAddr, flags: u32) -> SysResult
where
    P::Sink: CountsByScope,
{
    if flags & !(O_CLOEXEC | O_NONBLOCK) != 0 {
        return Err(EINVAL.into());
    }
    let pipe = k.pipes.create();
    let cloexec = flags & O_CLOEXEC != 0;
    let status = flags & O_NONBLOCK;
    let reader = OpenFile::new(Open::PipeRead(pipe), status, String::new());
    let writer = OpenFile::new(Open::PipeWrite(pipe), status | 1, String::new());
    install_pair(k, task, at, [reader, writer], cloexec)
}

/// Two descriptions under new descriptors, which are written to `at`.
fn install_pair<P: Platform>(
    k: &mut Kernel<P>,
    task: TaskId,
    at: VirtAddr,
    [reader, writer]: [OpenFile; 2],
    cloexec: bool,
) -> SysResult
where
    P::Sink: CountsByScope,
{
    let read_fd = match install(k, task, reader, cloexec) {
        Ok(fd) => fd,
        Err(error) => {
            let end = k.files.insert(writer);
            k.close_file(end);
            return Err(error.into());
        }
    };
    let result = install(k, task, writer, cloexec);
    let written = result.and_then(|write_fd| {
        let mut fds = [0; 8];
        for (to, from) in
            fds.iter_mut().zip(read_fd.to_le_bytes().into_iter().chain(write_fd.to_le_bytes()))
        {
            *to = from;
        }
        k.write_user(task, at, &fds)
    });
    if let Err(error) = written {
        for fd in [Ok(read_fd), result].into_iter().flatten() {
            let fd = k.process_of_mut(task).fds.remove(fd)?;
            k.close_file(fd.file);
        }
        return Err(error.into());
    }
    Ok(0)
}

/// Two connected sockets: a pipe each way.
pub(super) fn socketpair<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    const AF_UNIX: u32 = 1;
    const SOCK_STREAM: u32 = 1;
    if c.uint::<0>() != AF_UNIX {
        return Err(EAFNOSUPPORT.into());
    }
    if c.uint::<1>() & !(O_CLOEXEC | O_NONBLOCK) != SOCK_STREAM {
        return Err(EOPNOTSUPP.into());
    }
    if c.uint::<2>() > AF_UNIX {
        return Err(EPROTONOSUPPORT.into());
    }
    let (there, back) = (k.pipes.create(), k.pipes.create());
    let sockets = [Open::Socket(back, there), Open::Socket(there, back)];
    let status = c.uint::<1>() & O_NONBLOCK | 2;
    let ends = sockets.map(|open| OpenFile::new(open, status, String::new()));
    install_pair(k, c.task, c.addr::<3>(), ends, c.uint::<1>() & O_CLOEXEC != 0)
}

pub(super) fn getdents64<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    const HEADER: usize = 19;
    let file = file_of(k, c.task, c.int::<0>())?;
    let it = k.files.get(file)?;
    let node = match it.open {
        Open::Inode(inode) => Node::Inode(inode),
        Open::ProcDir(pid) => Node::ProcDir(pid),
        _ => return Err(ENOTDIR.into()),
    };
    let list = k.vfs.list(node, &k.processes)?;
    let limit = usize::try_from(c.uint::<2>()).map_err(|_| EINVAL)?;
    let start = usize::try_from(it.offset).unwrap_or(usize::MAX);
    let mut bytes: Vec<u8> = Vec::new();
    let mut next = it.offset;
    for (name, ty, inode) in list.into_iter().skip(start) {
        let len = HEADER.saturating_add(name.len()).saturating_add(1).next_multiple_of(8);
        let end = bytes.len().saturating_add(len);
        if end > limit {
            if bytes.is_empty() {
                return Err(EINVAL.into());
            }
            break;
        }
        next = next.saturating_add(1);
        bytes.extend(inode.to_le_bytes());
        bytes.extend(next.to_le_bytes());
        bytes.extend(u16::try_from(len).unwrap_or(u16::MAX).to_le_bytes());
        bytes.push(ty);
        bytes.extend(name.as_bytes());
        bytes.resize(end, 0);
    }
    k.write_user(c.task, c.addr::<1>(), &bytes)?;
    k.files.get_mut(file)?.offset = next;
    Ok(bytes.len() as u64)
}

pub(super) fn ftruncate<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let file = file_of(k, c.task, c.int::<0>())?;
    let len = c.long::<1>();
    if len.cast_signed() < 0 {
        return Err(EINVAL.into());
    }
    let it = k.files.get(file)?;
    let (Open::Inode(inode), true) = (it.open, it.writable()) else { return Err(EINVAL.into()) };
    let Kind::File(data) = k.vfs.inode(inode)?.kind else { return Err(EINVAL.into()) };
    k.mm.file_truncate(data, len)?;
    Ok(0)
}

pub(super) fn fsync<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let file = file_of(k, c.task, c.int::<0>())?;
    match k.files.get(file)?.open {
        Open::Inode(_) | Open::ProcDir(_) => Ok(0),
        _ => Err(EINVAL.into()),
    }
}
