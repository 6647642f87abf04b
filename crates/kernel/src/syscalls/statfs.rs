//! What file system a file is on.
//!
//! Source: Linux fs/statfs.c, include/uapi/linux/magic.h.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::file::file_of;
use super::path::{find, path_at};
use super::{Call, SysResult};
use crate::abi::AT_FDCWD;
use crate::counts::CountsByScope;
use crate::errno::ENOENT;
use crate::fd::Open;
use crate::kernel::Kernel;
use crate::task::TaskId;
use crate::vfs::{Follow, Kind, Node};
use arch::Platform;
use units::{PAGE_SIZE, VirtAddr};

const TMPFS_MAGIC: u64 = 0x0102_1994;
const PROC_SUPER_MAGIC: u64 = 0x9fa0;
const SYSFS_MAGIC: u64 = 0x6265_6572;
const PIPEFS_MAGIC: u64 = 0x5049_5045;

/// The file system of what lies at `path`.
fn magic(path: &str, made_up: bool) -> u64 {
    match () {
        () if path.starts_with("/proc") => PROC_SUPER_MAGIC,
        () if path.starts_with("/sys") && made_up => SYSFS_MAGIC,
        () => TMPFS_MAGIC,
    }
}

pub(super) fn statfs<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let path = path_at(k, c.task, AT_FDCWD, c.addr::<0>())?.ok_or(ENOENT)?;
    let made_up = match find(k, c.task, &path, Follow::Yes)? {
        Node::Inode(inode) => matches!(k.vfs.inode(inode)?.kind, Kind::Pseudo(_) | Kind::Dir(_)),
        _ => true,
    };
    put(k, c.task, c.addr::<1>(), magic(&path, made_up))
}

pub(super) fn fstatfs<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let it = k.files.get(file_of(k, c.task, c.int::<0>())?)?;
    let magic = match it.open {
        Open::PipeRead(_) | Open::PipeWrite(_) => PIPEFS_MAGIC,
        Open::Pseudo(..) => magic(&it.path, true),
        _ => magic(&it.path, false),
    };
    put(k, c.task, c.addr::<1>(), magic)
}

fn put<P: Platform>(k: &mut Kernel<P>, task: TaskId, at: VirtAddr, magic: u64) -> SysResult
where
    P::Sink: CountsByScope,
{
    const NAME_MAX: u64 = 255;
    let info = k.mm.meminfo();
    let (blocks, free) = (info.total / 2, info.free.min(info.total / 2));
    // type, block size, blocks, free, available, files, free files, id, longest name, fragment size, flags, spare
    let words =
        [magic, PAGE_SIZE, blocks, free, free, blocks, free, 0, NAME_MAX, PAGE_SIZE, 0, 0, 0, 0, 0];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    k.write_user(task, at, &bytes)?;
    Ok(0)
}
