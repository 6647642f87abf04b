//! Memory: mmap and its relatives. The work is `mm`'s.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::file::{as_value, file_of, install};
use super::lock::limited_mm;
use super::uring::map_ring;
use super::{Call, SysResult};
use crate::counts::CountsByScope;
use crate::errno::{EACCES, EINVAL, ENODEV, ENOMEM, EOVERFLOW, EPERM};
use crate::fd::{Open, OpenFile};
use crate::kernel::Kernel;
use crate::residence::Resident;
use crate::uring::RingId;
use crate::vfs::{DEFAULT_HUGE_SIZE, Device, Kind};
use arch::{Arch, MmId, Platform};
use mm::{Backing, Errno, HugeSize, MapFlags, MremapFlags, VmProt};
use units::{NrPages, PAGE_SIZE, VirtAddr};

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
    let mm = limited_mm(k, c.task)?;
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
    let flags = flags.difference(MapFlags::READONLY_FILE);
    let prot = VmProt::from_bits_truncate(c.uint::<2>());
    if offset.checked_add(c.long::<1>()).is_none() {
        return Err(EOVERFLOW.into());
    }
    if let Some(ring) = ring(k, c)? {
        let mm = k.mm_of(c.task)?;
        return map_ring(k, mm, ring, c.addr::<0>(), c.long::<1>(), offset);
    }
    let huge = flags.contains(MapFlags::HUGETLB);
    let nothing = MapFlags::empty();
    let (backing, more) = match flags.contains(MapFlags::ANONYMOUS) {
        true if huge => (Backing::HugePages(huge_size::<P::Arch>(raw).ok_or(EINVAL)?), nothing),
        true => (Backing::Anonymous, nothing),
        false => backing(k, c, prot, kind, offset)?,
    };
    if let (true, Backing::File { file, .. }) = (huge, backing)
        && k.mm.file_huge_size(file).is_none()
    {
        return Err(EINVAL.into());
    }
    let mm = limited_mm(k, c.task)?;
    if flags.contains(MapFlags::LOCKED) && !k.mm.may_lock(mm) {
        return Err(EPERM.into());
    }
    Ok(k.mm.mmap(mm, c.addr::<0>(), c.long::<1>(), prot, flags | more, backing)?.get())
}

/// The io_uring instance that is mapped, if it is one.
fn ring<P: Platform>(k: &Kernel<P>, c: &Call<'_, P::Sink>) -> Result<Option<RingId>, Errno>
where
    P::Sink: CountsByScope,
{
    if c.long::<3>() & MapFlags::ANONYMOUS.bits() != 0 {
        return Ok(None);
    }
    let file = file_of(k, c.task, c.int::<4>())?;
    match k.files.get(file)?.open {
        Open::IoUring(ring) => Ok(Some(ring)),
        _ => Ok(None),
    }
}

/// The size of huge pages that flags of `mmap()` or `memfd_create()` ask for, if the
/// architecture has it. Source: Linux include/linux/hugetlb.h `hstate_sizelog()`.
pub(super) fn huge_size<A: Arch>(flags: u64) -> Option<HugeSize> {
    const HUGE_SHIFT: u32 = 26;
    const HUGE_MASK: u64 = 0x3f;
    match flags.unbounded_shr(HUGE_SHIFT) & HUGE_MASK {
        0 => Some(DEFAULT_HUGE_SIZE),
        log => A::HUGE_SIZES.iter().copied().find(|size| u64::from(size.reach().shift()) == log),
    }
}

/// What a file that is mapped shows, and what that adds to the flags.
fn backing<P: Platform>(
    k: &Kernel<P>,
    c: &Call<'_, P::Sink>,
    prot: VmProt,
    kind: MapFlags,
    offset: u64,
) -> Result<(Backing, MapFlags), Errno>
where
    P::Sink: CountsByScope,
{
    let file = file_of(k, c.task, c.int::<4>())?;
    let it = k.files.get(file)?;
    let shared_write = kind.contains(MapFlags::SHARED) && prot.contains(VmProt::WRITE);
    if !it.readable() || shared_write && !it.writable() {
        return Err(EACCES);
    }
    let more = if it.writable() { MapFlags::empty() } else { MapFlags::READONLY_FILE };
    match it.open {
        Open::Device(Device::Zero) => Ok((Backing::ZeroDevice, more)),
        Open::Inode(inode) => match k.vfs.inode(inode)?.kind {
            Kind::File(file) => Ok((Backing::File { file, offset }, more)),
            _ => Err(ENODEV),
        },
        _ => Err(ENODEV),
    }
}

/// A file that only its descriptors and mappings know. Source: Linux mm/memfd.c.
pub(super) fn memfd_create<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    const CLOEXEC: u64 = 1;
    const ALLOW_SEALING: u64 = 2;
    const HUGETLB: u64 = 4;
    const NOEXEC_SEAL: u64 = 8;
    const EXEC: u64 = 16;
    const HUGE_SIZE: u64 = 0x3f << 26;
    const NAME_MAX: usize = 249;
    const O_RDWR: u32 = 2;
    let flags = u64::from(c.uint::<1>());
    let huge = flags & HUGETLB != 0;
    let known = CLOEXEC | ALLOW_SEALING | HUGETLB | NOEXEC_SEAL | EXEC;
    let known = if huge { known | HUGE_SIZE } else { known };
    if flags & !known != 0 || flags & (NOEXEC_SEAL | EXEC) == NOEXEC_SEAL | EXEC {
        return Err(EINVAL.into());
    }
    let name = k.read_string(c.task, c.addr::<0>())?;
    if name.len() > NAME_MAX {
        return Err(EINVAL.into());
    }
    let path = format!("/memfd:{} (deleted)", String::from_utf8_lossy(&name));
    let file = match huge {
        true => {
            let size = huge_size::<P::Arch>(flags).ok_or(ENODEV)?;
            k.mm.hugetlb_file_create(&path, size, 0)
        }
        false => k.mm.shmem_file_create(&path, Vec::new()),
    };
    let inode = k.vfs.create_nameless(Kind::File(file), 0o777);
    let open = OpenFile::new(Open::Inode(inode), O_RDWR, path);
    Ok(as_value(install(k, c.task, open, flags & CLOEXEC != 0)?))
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

pub(super) fn mremap<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let flags = MremapFlags::from_bits(c.uint::<3>()).ok_or(EINVAL)?;
    let mm = limited_mm(k, c.task)?;
    let (old, new) = (c.long::<1>(), c.long::<2>());
    Ok(k.mm.mremap(mm, c.addr::<0>(), old, new, flags, c.addr::<4>())?.get())
}

pub(super) fn madvise<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let mm = k.mm_of(c.task)?;
    k.mm.madvise(mm, c.addr::<0>(), c.long::<1>(), c.int::<2>())?;
    Ok(0)
}

/// Source: Linux mm/mincore.c; for private anonymous memory what is in a page table is in core.
pub(super) fn mincore<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    const PAGES_AT_A_TIME: u64 = 4096;
    let start = c.addr::<0>();
    if !start.is_aligned(PAGE_SIZE) {
        return Err(EINVAL.into());
    }
    let pages = NrPages::covering(c.long::<1>()).get();
    let end = start.checked_add(pages.saturating_mul(PAGE_SIZE)).ok_or(ENOMEM)?;
    let mm = k.mm_of(c.task)?;
    if end > P::Arch::TASK_SIZE || !is_mapped(k, mm, start, end) {
        return Err(ENOMEM.into());
    }
    let mut done = 0u64;
    while done < pages {
        let nr = pages.saturating_sub(done).min(PAGES_AT_A_TIME);
        let mut vec = Vec::new();
        for page in done..done.saturating_add(nr) {
            let va = start.wrapping_add(page.saturating_mul(PAGE_SIZE));
            vec.push(u8::from(matches!(k.resident(mm, va), Resident::Page(_))));
        }
        k.write_user(c.task, c.addr::<2>().wrapping_add(done), &vec)?;
        done = done.saturating_add(nr);
    }
    Ok(0)
}

/// Whether VMAs cover all of a range.
pub(super) fn is_mapped<P: Platform>(
    k: &Kernel<P>,
    mm: MmId,
    start: VirtAddr,
    end: VirtAddr,
) -> bool {
    let mut covered = start;
    for vma in k.mm.vmas(mm) {
        if vma.start <= covered && covered < vma.end {
            covered = vma.end;
        }
    }
    covered >= end
}
