//! stat and its relatives.
//!
//! Source: Linux arch/x86/include/uapi/asm/stat.h, include/uapi/asm-generic/stat.h (arm64),
//! include/uapi/linux/stat.h.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::file::file_of;
use super::path::{find, path_at};
use super::{Call, SysResult};
use crate::abi::{
    AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW, BOOT_TIME_S, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK,
    S_IFREG, S_IFSOCK,
};
use crate::counts::CountsByScope;
use crate::errno::ENOENT;
use crate::fd::Open;
use crate::kernel::Kernel;
use crate::task::TaskId;
use crate::vfs::{Device, Follow, Kind, Node};
use arch::{Arch, Platform};
use mm::Errno;
use units::{ArchId, VirtAddr};

/// What `stat()` says of a file.
#[derive(Clone, Copy, Debug)]
struct Stat {
    inode: u64,
    mode: u32,
    size: u64,
    rdev_minor: u32,
}

const DEV: u64 = 0x17;
const BLOCK: u64 = 4096;
/// Major number of /dev/null and its relatives.
const MEM_MAJOR: u32 = 1;

impl Stat {
    fn links(&self) -> u32 {
        if self.mode & 0o170_000 == S_IFDIR { 2 } else { 1 }
    }
    fn rdev(&self) -> u64 {
        match self.rdev_minor {
            0 => 0,
            minor => u64::from(MEM_MAJOR) << 8 | u64::from(minor),
        }
    }

    fn to_bytes(self, arch: ArchId) -> Vec<u8> {
        let mut b: Vec<u8> = Vec::with_capacity(144);
        let (links, mode) = (self.links(), self.mode);
        b.extend(DEV.to_le_bytes());
        b.extend(self.inode.to_le_bytes());
        match arch {
            ArchId::X86_64 => {
                b.extend(u64::from(links).to_le_bytes());
                b.extend(mode.to_le_bytes());
                b.extend([0; 12]);
            }
            ArchId::Arm64 => {
                b.extend(mode.to_le_bytes());
                b.extend(links.to_le_bytes());
                b.extend([0; 8]);
            }
        }
        b.extend(self.rdev().to_le_bytes());
        if arch == ArchId::Arm64 {
            b.extend([0; 8]);
        }
        b.extend(self.size.to_le_bytes());
        b.extend(BLOCK.to_le_bytes());
        b.extend(self.size.div_ceil(512).to_le_bytes());
        for _ in 0..3 {
            b.extend(BOOT_TIME_S.to_le_bytes());
            b.extend([0; 8]);
        }
        let len = if arch == ArchId::X86_64 { 144 } else { 128 };
        b.resize(len, 0);
        b
    }

    fn to_statx(self) -> Vec<u8> {
        const BASIC: u32 = 0x7ff;
        let mut b: Vec<u8> = Vec::with_capacity(256);
        b.extend(BASIC.to_le_bytes());
        b.extend(4096u32.to_le_bytes());
        b.extend([0; 8]);
        b.extend(self.links().to_le_bytes());
        b.extend([0; 8]);
        b.extend(self.mode.to_le_bytes());
        b.extend(self.inode.to_le_bytes());
        b.extend(self.size.to_le_bytes());
        b.extend(self.size.div_ceil(512).to_le_bytes());
        b.extend([0; 8]);
        for _ in 0..4 {
            b.extend(BOOT_TIME_S.to_le_bytes());
            b.extend([0; 8]);
        }
        let major = if self.rdev_minor == 0 { 0 } else { MEM_MAJOR };
        b.extend(major.to_le_bytes());
        b.extend(self.rdev_minor.to_le_bytes());
        b.resize(256, 0);
        b
    }
}

fn of_node<P: Platform>(k: &Kernel<P>, node: Node) -> Result<Stat, Errno> {
    let plain = |inode, mode, size| Stat { inode, mode, size, rdev_minor: 0 };
    let inode = match node {
        Node::Inode(inode) => inode,
        Node::ProcDir(pid) => return Ok(plain(u64::from(pid.get()), S_IFDIR | 0o555, 0)),
        Node::ProcFile(id, _) => {
            let mode = k.pseudo.get(id.index()).map_or(0, |f| f.mode());
            return Ok(plain(id.index() as u64, S_IFREG | mode, 0));
        }
        Node::ProcSelf | Node::ProcExe(_) | Node::ProcCwd(_) => {
            return Ok(plain(1, S_IFLNK | 0o777, 0));
        }
    };
    let it = k.vfs.inode(inode)?;
    let (kind, size, rdev_minor) = match &it.kind {
        Kind::Dir(_) => (S_IFDIR, 0, 0),
        Kind::File(data) => (S_IFREG, k.mm.file_len(*data), 0),
        Kind::Symlink(target) => (S_IFLNK, target.len() as u64, 0),
        Kind::Pseudo(_) => (S_IFREG, 4096, 0),
        Kind::Device(device) => (S_IFCHR, 0, minor(*device)),
    };
    Ok(Stat { inode: u64::from(inode.get()), mode: kind | it.mode, size, rdev_minor })
}

fn minor(device: Device) -> u32 {
    match device {
        Device::Null => 3,
        Device::Zero => 5,
        Device::Full => 7,
        Device::Random => 8,
    }
}

fn of_open<P: Platform>(k: &Kernel<P>, task: TaskId, fd: i32) -> Result<Stat, Errno>
where
    P::Sink: CountsByScope,
{
    let file = file_of(k, task, fd)?;
    let pipe = Stat { inode: 1, mode: S_IFIFO | 0o600, size: 0, rdev_minor: 0 };
    match k.files.get(file)?.open {
        // The console is what a pipe is to a program: no terminal, no offset.
        Open::Stdin | Open::Console(_) | Open::PipeRead(_) | Open::PipeWrite(_) => Ok(pipe),
        Open::Socket(..) => Ok(Stat { mode: S_IFSOCK | 0o777, ..pipe }),
        Open::IoUring(_) => Ok(Stat { mode: 0o600, ..pipe }),
        Open::Pidfd(pid) => Ok(Stat { inode: u64::from(pid.get()), mode: 0o600, ..pipe }),
        Open::Inode(inode) => of_node(k, Node::Inode(inode)),
        Open::ProcDir(pid) => of_node(k, Node::ProcDir(pid)),
        Open::Pseudo(id, pid) => of_node(k, Node::ProcFile(id, pid)),
        Open::Device(device) => {
            Ok(Stat { mode: S_IFCHR | 0o666, rdev_minor: minor(device), ..pipe })
        }
    }
}

fn of_path<P: Platform>(
    k: &mut Kernel<P>,
    task: TaskId,
    dirfd: i32,
    path: VirtAddr,
    flags: u32,
) -> Result<Stat, Errno>
where
    P::Sink: CountsByScope,
{
    let Some(path) = path_at(k, task, dirfd, path)? else {
        return if flags & AT_EMPTY_PATH != 0 { of_open(k, task, dirfd) } else { Err(ENOENT) };
    };
    let follow = if flags & AT_SYMLINK_NOFOLLOW != 0 { Follow::No } else { Follow::Yes };
    let node = find(k, task, &path, follow)?;
    of_node(k, node)
}

fn put<P: Platform>(k: &mut Kernel<P>, task: TaskId, to: VirtAddr, stat: Stat) -> SysResult
where
    P::Sink: CountsByScope,
{
    k.write_user(task, to, &stat.to_bytes(P::Arch::ID))?;
    Ok(0)
}

pub(super) fn fstat<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let stat = of_open(k, c.task, c.int::<0>())?;
    put(k, c.task, c.addr::<1>(), stat)
}

pub(super) fn stat<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let stat = of_path(k, c.task, AT_FDCWD, c.addr::<0>(), 0)?;
    put(k, c.task, c.addr::<1>(), stat)
}

pub(super) fn lstat<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let stat = of_path(k, c.task, AT_FDCWD, c.addr::<0>(), AT_SYMLINK_NOFOLLOW)?;
    put(k, c.task, c.addr::<1>(), stat)
}

pub(super) fn newfstatat<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let stat = of_path(k, c.task, c.int::<0>(), c.addr::<1>(), c.uint::<3>())?;
    put(k, c.task, c.addr::<2>(), stat)
}

pub(super) fn statx<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let stat = of_path(k, c.task, c.int::<0>(), c.addr::<1>(), c.uint::<2>())?;
    k.write_user(c.task, c.addr::<4>(), &stat.to_statx())?;
    Ok(0)
}
