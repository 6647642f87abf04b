//! System calls that take a path.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::file::{as_value, file_of, install};
use super::{Call, SysResult};
use crate::abi::{
    AT_EMPTY_PATH, AT_FDCWD, AT_REMOVEDIR, O_APPEND, O_CLOEXEC, O_CREAT, O_EXCL, O_NONBLOCK,
    O_TMPFILE_BIT, O_TRUNC, O_WRONLY, o_directory, o_nofollow,
};
use crate::counts::CountsByScope;
use crate::errno::{
    EACCES, EBUSY, EEXIST, EINVAL, EISDIR, ELOOP, ENOENT, ENOTDIR, ENOTEMPTY, EOPNOTSUPP, EPERM,
    ERANGE,
};
use crate::fd::{Open, OpenFile};
use crate::kernel::Kernel;
use crate::task::TaskId;
use crate::vfs::{Follow, InodeId, Kind, Node, absolute};
use arch::{Arch, Platform};
use mm::Errno;
use std::collections::BTreeMap;
use units::VirtAddr;

/// The path at `at`, made absolute against `dirfd`; it may be empty.
// FIDELITY: utf8-names — file names are UTF-8: others do not exist and cannot be made.
pub(super) fn path_at<P: Platform>(
    k: &mut Kernel<P>,
    task: TaskId,
    dirfd: i32,
    at: VirtAddr,
) -> Result<Option<String>, Errno>
where
    P::Sink: CountsByScope,
{
    let raw = k.read_string(task, at)?;
    let path = String::from_utf8(raw).map_err(|_| ENOENT)?;
    if path.is_empty() {
        return Ok(None);
    }
    if path.starts_with('/') {
        return Ok(Some(path));
    }
    let base = match dirfd {
        AT_FDCWD => k.process_of(task).cwd.clone(),
        fd => {
            let file = file_of(k, task, fd)?;
            let it = k.files.get(file)?;
            let is_dir = match it.open {
                Open::Inode(inode) => k.vfs.is_dir(Node::Inode(inode)),
                Open::ProcDir(_) => true,
                _ => false,
            };
            if !is_dir {
                return Err(ENOTDIR);
            }
            it.path.clone()
        }
    };
    Ok(Some(format!("{base}/{path}")))
}

/// Where a path leads for `task`.
pub(super) fn find<P: Platform>(
    k: &Kernel<P>,
    task: TaskId,
    path: &str,
    follow: Follow,
) -> Result<Node, Errno>
where
    P::Sink: CountsByScope,
{
    k.vfs.resolve(path, follow, k.task(task).process, &k.processes)
}

/// The directory that a path's last name is in, and that name.
fn parent<'a, P: Platform>(
    k: &Kernel<P>,
    task: TaskId,
    path: &'a str,
) -> Result<(InodeId, &'a str), Errno>
where
    P::Sink: CountsByScope,
{
    let trimmed = path.trim_end_matches('/');
    let (dir, name) = trimmed.rsplit_once('/').ok_or(EBUSY)?;
    if name == "." || name == ".." {
        return Err(EINVAL);
    }
    match find(k, task, &format!("{dir}/"), Follow::Yes)? {
        Node::Inode(id) => Ok((id, name)),
        _ => Err(EPERM),
    }
}

pub(super) fn open<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    open_path(k, c.task, AT_FDCWD, c.addr::<0>(), c.uint::<1>(), c.uint::<2>())
}

pub(super) fn creat<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let flags = O_WRONLY | O_CREAT | O_TRUNC;
    open_path(k, c.task, AT_FDCWD, c.addr::<0>(), flags, c.uint::<1>())
}

pub(super) fn openat<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    open_path(k, c.task, c.int::<0>(), c.addr::<1>(), c.uint::<2>(), c.uint::<3>())
}

fn open_path<P: Platform>(
    k: &mut Kernel<P>,
    task: TaskId,
    dirfd: i32,
    at: VirtAddr,
    flags: u32,
    mode: u32,
) -> SysResult
where
    P::Sink: CountsByScope,
{
    let path = path_at(k, task, dirfd, at)?.ok_or(ENOENT)?;
    let directory = flags & o_directory(P::Arch::ID) != 0;
    if flags & O_TMPFILE_BIT != 0 && directory {
        return Err(EOPNOTSUPP.into());
    }
    let follow = match flags & o_nofollow(P::Arch::ID) {
        0 if flags & O_EXCL == 0 || flags & O_CREAT == 0 => Follow::Yes,
        _ => Follow::No,
    };
    let node = match find(k, task, &path, follow) {
        Ok(_) if flags & O_CREAT != 0 && flags & O_EXCL != 0 => return Err(EEXIST.into()),
        Ok(node) => node,
        Err(ENOENT) if flags & O_CREAT != 0 => create(k, task, &path, mode)?,
        Err(error) => return Err(error.into()),
    };
    let writes = flags & 3 != 0;
    let open = open_node(k, task, node, writes)?;
    let is_dir = k.vfs.is_dir(node);
    if directory && !is_dir {
        return Err(ENOTDIR.into());
    }
    if is_dir && (writes || flags & O_CREAT != 0) {
        return Err(EISDIR.into());
    }
    if let Open::Inode(inode) = open
        && flags & O_TRUNC != 0
        && writes
        && let Kind::File(data) = k.vfs.inode(inode)?.kind
    {
        k.mm.file_truncate(data, 0)?;
    }
    let status = flags & (3 | O_APPEND | O_NONBLOCK);
    let file = OpenFile::new(open, status, absolute("/", &path));
    Ok(as_value(install(k, task, file, flags & O_CLOEXEC != 0)?))
}

fn create<P: Platform>(
    k: &mut Kernel<P>,
    task: TaskId,
    path: &str,
    mode: u32,
) -> Result<Node, Errno>
where
    P::Sink: CountsByScope,
{
    if path.ends_with('/') {
        return Err(EISDIR);
    }
    let (dir, name) = parent(k, task, path)?;
    let mode = mode & !k.process_of(task).umask;
    let file = k.mm.shmem_file_create(&absolute("/", path), Vec::new());
    match k.vfs.create(dir, name, Kind::File(file), mode) {
        Ok(inode) => Ok(Node::Inode(inode)),
        Err(error) => {
            k.mm.file_put(file);
            Err(error)
        }
    }
}

fn open_node<P: Platform>(
    k: &Kernel<P>,
    task: TaskId,
    node: Node,
    writes: bool,
) -> Result<Open, Errno>
where
    P::Sink: CountsByScope,
{
    match node {
        Node::ProcDir(pid) => Ok(Open::ProcDir(pid)),
        Node::ProcFile(id, pid) => pseudo(k, id.index(), writes, Open::Pseudo(id, pid)),
        Node::ProcSelf | Node::ProcExe(_) | Node::ProcCwd(_) => Err(ELOOP),
        Node::Inode(inode) => match k.vfs.inode(inode)?.kind {
            Kind::Dir(_) | Kind::File(_) => Ok(Open::Inode(inode)),
            Kind::Device(device) => Ok(Open::Device(device)),
            Kind::Symlink(_) => Err(ELOOP),
            Kind::Pseudo(id) => {
                let caller = k.task(task).process;
                pseudo(k, id.index(), writes, Open::Pseudo(id, caller))
            }
        },
    }
}

/// Even root cannot write a pseudo-file that takes no writes.
fn pseudo<P: Platform>(
    k: &Kernel<P>,
    index: usize,
    writes: bool,
    open: Open,
) -> Result<Open, Errno> {
    let mode = k.pseudo.get(index).map_or(0, |file| file.mode());
    if writes && mode & 0o222 == 0 { Err(EACCES) } else { Ok(open) }
}

pub(super) fn readlink<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    read_link(k, c.task, AT_FDCWD, c.addr::<0>(), c.addr::<1>(), c.int::<2>())
}

pub(super) fn readlinkat<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    read_link(k, c.task, c.int::<0>(), c.addr::<1>(), c.addr::<2>(), c.int::<3>())
}

fn read_link<P: Platform>(
    k: &mut Kernel<P>,
    task: TaskId,
    dirfd: i32,
    at: VirtAddr,
    to: VirtAddr,
    len: i32,
) -> SysResult
where
    P::Sink: CountsByScope,
{
    let len = usize::try_from(len).ok().filter(|&len| len > 0).ok_or(EINVAL)?;
    let path = path_at(k, task, dirfd, at)?.ok_or(ENOENT)?;
    let node = find(k, task, &path, Follow::No)?;
    let target = k.vfs.link_target(node, k.task(task).process, &k.processes).ok_or(EINVAL)?;
    let bytes = target.as_bytes().get(..len.min(target.len())).unwrap_or_default();
    k.write_user(task, to, bytes)?;
    Ok(bytes.len() as u64)
}

pub(super) fn access<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    check_access(k, c.task, AT_FDCWD, c.addr::<0>(), c.uint::<1>(), 0)
}

pub(super) fn faccessat<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    check_access(k, c.task, c.int::<0>(), c.addr::<1>(), c.uint::<2>(), 0)
}

pub(super) fn faccessat2<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    check_access(k, c.task, c.int::<0>(), c.addr::<1>(), c.uint::<2>(), c.uint::<3>())
}

fn check_access<P: Platform>(
    k: &mut Kernel<P>,
    task: TaskId,
    dirfd: i32,
    at: VirtAddr,
    mode: u32,
    flags: u32,
) -> SysResult
where
    P::Sink: CountsByScope,
{
    if mode & !7 != 0 {
        return Err(EINVAL.into());
    }
    let Some(path) = path_at(k, task, dirfd, at)? else {
        if flags & AT_EMPTY_PATH == 0 {
            return Err(ENOENT.into());
        }
        file_of(k, task, dirfd)?;
        return Ok(0);
    };
    find(k, task, &path, Follow::Yes)?;
    Ok(0)
}

pub(super) fn unlink<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    remove(k, c.task, AT_FDCWD, c.addr::<0>(), 0)
}

pub(super) fn rmdir<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    remove(k, c.task, AT_FDCWD, c.addr::<0>(), AT_REMOVEDIR)
}

pub(super) fn unlinkat<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    remove(k, c.task, c.int::<0>(), c.addr::<1>(), c.uint::<2>())
}

fn remove<P: Platform>(
    k: &mut Kernel<P>,
    task: TaskId,
    dirfd: i32,
    at: VirtAddr,
    flags: u32,
) -> SysResult
where
    P::Sink: CountsByScope,
{
    if flags & !AT_REMOVEDIR != 0 {
        return Err(EINVAL.into());
    }
    let path = path_at(k, task, dirfd, at)?.ok_or(ENOENT)?;
    let node = find(k, task, path.trim_end_matches('/'), Follow::No)?;
    let Node::Inode(inode) = node else { return Err(EPERM.into()) };
    match (&k.vfs.inode(inode)?.kind, flags & AT_REMOVEDIR != 0) {
        (Kind::Pseudo(_), _) => return Err(EPERM.into()),
        (Kind::Dir(_), false) => return Err(EISDIR.into()),
        (Kind::Dir(entries), true) if !entries.is_empty() => return Err(ENOTEMPTY.into()),
        (Kind::Dir(_), true) | (_, false) => {}
        (_, true) => return Err(ENOTDIR.into()),
    }
    let (dir, name) = parent(k, task, &path)?;
    k.vfs.remove(dir, name)?;
    if let Kind::File(file) = k.vfs.inode(inode)?.kind {
        let name = format!("{} (deleted)", k.mm.file_name(file));
        k.mm.file_rename(file, &name);
    }
    k.collect_inode(inode);
    Ok(0)
}

pub(super) fn mkdir<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    make_dir(k, c.task, AT_FDCWD, c.addr::<0>(), c.uint::<1>())
}

pub(super) fn mkdirat<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    make_dir(k, c.task, c.int::<0>(), c.addr::<1>(), c.uint::<2>())
}

fn make_dir<P: Platform>(
    k: &mut Kernel<P>,
    task: TaskId,
    dirfd: i32,
    at: VirtAddr,
    mode: u32,
) -> SysResult
where
    P::Sink: CountsByScope,
{
    let path = path_at(k, task, dirfd, at)?.ok_or(ENOENT)?;
    if find(k, task, &path, Follow::No).is_ok() {
        return Err(EEXIST.into());
    }
    let (dir, name) = parent(k, task, &path)?;
    let mode = mode & !k.process_of(task).umask;
    k.vfs.create(dir, name, Kind::Dir(BTreeMap::new()), mode)?;
    Ok(0)
}

pub(super) fn getcwd<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let mut bytes = k.process_of(c.task).cwd.clone().into_bytes();
    bytes.push(0);
    if bytes.len() as u64 > c.long::<1>() {
        return Err(ERANGE.into());
    }
    k.write_user(c.task, c.addr::<0>(), &bytes)?;
    Ok(bytes.len() as u64)
}

pub(super) fn chdir<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let path = path_at(k, c.task, AT_FDCWD, c.addr::<0>())?.ok_or(ENOENT)?;
    let node = find(k, c.task, &path, Follow::Yes)?;
    if !k.vfs.is_dir(node) {
        return Err(ENOTDIR.into());
    }
    k.process_of_mut(c.task).cwd = absolute("/", &path);
    Ok(0)
}

pub(super) fn symlink<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    make_link(k, c.task, c.addr::<0>(), AT_FDCWD, c.addr::<1>())
}

pub(super) fn symlinkat<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    make_link(k, c.task, c.addr::<0>(), c.int::<1>(), c.addr::<2>())
}

fn make_link<P: Platform>(
    k: &mut Kernel<P>,
    task: TaskId,
    target: VirtAddr,
    dirfd: i32,
    at: VirtAddr,
) -> SysResult
where
    P::Sink: CountsByScope,
{
    let target = String::from_utf8(k.read_string(task, target)?).map_err(|_| EINVAL)?;
    let path = path_at(k, task, dirfd, at)?.ok_or(ENOENT)?;
    if target.is_empty() {
        return Err(ENOENT.into());
    }
    if find(k, task, &path, Follow::No).is_ok() {
        return Err(EEXIST.into());
    }
    let (dir, name) = parent(k, task, &path)?;
    k.vfs.create(dir, name, Kind::Symlink(target), 0o777)?;
    Ok(0)
}
