//! Memory: mmap and its relatives. The work is `mm`'s.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::file::file_of;
use super::{Call, SysResult};
use crate::counts::CountsByScope;
use crate::errno::{EACCES, EINVAL, ENODEV, EOVERFLOW};
use crate::fd::Open;
use crate::kernel::Kernel;
use crate::vfs::{Device, Kind};
use arch::Platform;
use mm::{Backing, Errno, MapFlags, VmProt};
use units::PAGE_SIZE;

/// The attribution of a `madvise()`: with its advice.
pub(super) fn madvise_name(advice: u64) -> &'static str {
    match advice {
        0 => "madvise(MADV_NORMAL)",
        1 => "madvise(MADV_RANDOM)",
        2 => "madvise(MADV_SEQUENTIAL)",
        3 => "madvise(MADV_WILLNEED)",
        4 => "madvise(MADV_DONTNEED)",
        8 => "madvise(MADV_FREE)",
        9 => "madvise(MADV_REMOVE)",
        10 => "madvise(MADV_DONTFORK)",
        11 => "madvise(MADV_DOFORK)",
        12 => "madvise(MADV_MERGEABLE)",
        13 => "madvise(MADV_UNMERGEABLE)",
        14 => "madvise(MADV_HUGEPAGE)",
        15 => "madvise(MADV_NOHUGEPAGE)",
        16 => "madvise(MADV_DONTDUMP)",
        17 => "madvise(MADV_DODUMP)",
        18 => "madvise(MADV_WIPEONFORK)",
        19 => "madvise(MADV_KEEPONFORK)",
        20 => "madvise(MADV_COLD)",
        21 => "madvise(MADV_PAGEOUT)",
        22 => "madvise(MADV_POPULATE_READ)",
        23 => "madvise(MADV_POPULATE_WRITE)",
        24 => "madvise(MADV_DONTNEED_LOCKED)",
        25 => "madvise(MADV_COLLAPSE)",
        102 => "madvise(MADV_GUARD_INSTALL)",
        103 => "madvise(MADV_GUARD_REMOVE)",
        _ => "madvise",
    }
}

pub(super) fn brk<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let mm = k.mm_of(c.task)?;
    Ok(k.mm.brk(mm, c.addr::<0>()).get())
}

pub(super) fn mmap<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    const TYPE: u64 = 0xf;
    const SHARED_VALIDATE: u64 = 3;
    let (raw, offset) = (c.long::<3>(), c.long::<5>());
    if !offset.is_multiple_of(PAGE_SIZE) {
        return Err(EINVAL.into());
    }
    let kind = match raw & TYPE {
        1 | SHARED_VALIDATE => MapFlags::SHARED,
        2 => MapFlags::PRIVATE,
        8 => MapFlags::DROPPABLE,
        _ => return Err(EINVAL.into()),
    };
    let flags = MapFlags::from_bits_truncate(raw & !TYPE) | kind;
    let prot = VmProt::from_bits_truncate(c.uint::<2>());
    if offset.checked_add(c.long::<1>()).is_none() {
        return Err(EOVERFLOW.into());
    }
    let backing = match flags.contains(MapFlags::ANONYMOUS) {
        true => Backing::Anonymous,
        false => backing(k, c, prot, kind, offset)?,
    };
    let mm = k.mm_of(c.task)?;
    Ok(k.mm.mmap(mm, c.addr::<0>(), c.long::<1>(), prot, flags, backing)?.get())
}

/// What a file that is mapped shows. A file of the tmpfs is mapped as it is now: writes to it
/// later make a new mapped file.
// FIDELITY: mmap-coherence — a mapping of a tmpfs file and the file itself do not see each
// other's later changes.
fn backing<P: Platform>(
    k: &mut Kernel<P>,
    c: &Call<'_, P::Sink>,
    prot: VmProt,
    kind: MapFlags,
    offset: u64,
) -> Result<Backing, Errno>
where
    P::Sink: CountsByScope,
{
    let file = file_of(k, c.task, c.int::<4>())?;
    let it = k.files.get(file)?;
    let shared_write = kind.contains(MapFlags::SHARED) && prot.contains(VmProt::WRITE);
    if !it.readable() || shared_write && !it.writable() {
        return Err(EACCES);
    }
    let (open, path) = (it.open, it.path.clone());
    match open {
        Open::Device(Device::Zero) => Ok(Backing::Anonymous),
        Open::Inode(inode) => {
            let node = k.vfs.inode_mut(inode)?;
            let Kind::File(data) = &node.kind else { return Err(ENODEV) };
            let file = match node.mapped {
                Some(file) => file,
                None => k.mm.file_create(&path, data.clone()),
            };
            node.mapped = Some(file);
            Ok(Backing::File { file, offset })
        }
        _ => Err(ENODEV),
    }
}

pub(super) fn munmap<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let mm = k.mm_of(c.task)?;
    k.mm.munmap(mm, c.addr::<0>(), c.long::<1>())?;
    Ok(0)
}

pub(super) fn mprotect<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let prot = VmProt::from_bits(c.uint::<2>()).ok_or(EINVAL)?;
    let mm = k.mm_of(c.task)?;
    k.mm.mprotect(mm, c.addr::<0>(), c.long::<1>(), prot)?;
    Ok(0)
}

pub(super) fn madvise<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let mm = k.mm_of(c.task)?;
    k.mm.madvise(mm, c.addr::<0>(), c.long::<1>(), c.int::<2>())?;
    Ok(0)
}
