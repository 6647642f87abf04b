//! io_uring: requests by a ring in memory. Each is served at once, when it is submitted.
//!
//! Source: Linux io_uring/{io_uring,register,rsrc,rw}.c.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::file::{as_value, file_of, install};
use super::io::{At, write_chunk};
use super::{Call, Stop, SysResult};
use crate::abi::O_CLOEXEC;
use crate::counts::CountsByScope;
use crate::errno::{EBADF, EBUSY, EFAULT, EINVAL, ENXIO, EOPNOTSUPP, EOVERFLOW};
use crate::fd::{Open, OpenFile};
use crate::kernel::Kernel;
use crate::task::TaskId;
use crate::uring::{CQE, FixedBuffer, IoUring, RingId, SQE, offset};
use crate::user::CHUNK;
use arch::{MmId, Platform};
use mm::{Backing, Errno, Foll, MapFlags, VmProt};
use units::{PAGE_SIZE, VirtAddr};

const ENTRIES_MAX: u32 = 32768;
/// IORING_SETUP_CLAMP
const CLAMP: u32 = 16;
/// IORING_FEAT_SINGLE_MMAP, SUBMIT_STABLE, RW_CUR_POS
const FEATURES: u32 = 1 | 4 | 8;
const PARAMS: usize = 120;

pub(super) fn io_uring_setup<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let at = c.addr::<1>();
    let params: [u8; PARAMS] = k.read_bytes(c.task, at)?;
    let flags = k.read_u32(c.task, at.wrapping_add(8))?;
    let asked = c.uint::<0>();
    let reserved = params.get(28..40).is_none_or(|bytes| bytes.iter().any(|&b| b != 0));
    if flags & !CLAMP != 0 || reserved || asked == 0 {
        return Err(EINVAL.into());
    }
    if asked > ENTRIES_MAX && flags & CLAMP == 0 {
        return Err(EINVAL.into());
    }
    let sq_entries = asked.min(ENTRIES_MAX).next_power_of_two();
    let ring =
        IoUring { sq_entries, cq_entries: sq_entries.saturating_mul(2), ..IoUring::default() };
    let sq = [
        offset::SQ_HEAD,
        offset::SQ_TAIL,
        offset::SQ_MASK,
        offset::SQ_ENTRIES,
        offset::SQ_FLAGS,
        offset::SQ_DROPPED,
        ring.array(),
        0,
        0,
        0,
    ];
    let cq = [
        offset::CQ_HEAD,
        offset::CQ_TAIL,
        offset::CQ_MASK,
        offset::CQ_ENTRIES,
        offset::CQ_OVERFLOW,
        offset::CQES,
        offset::CQ_FLAGS,
        0,
        0,
        0,
    ];
    for (i, word) in (0u64..).zip([sq_entries, ring.cq_entries]) {
        k.write_u32(c.task, at.wrapping_add(i.saturating_mul(4)), word)?;
    }
    k.write_u32(c.task, at.wrapping_add(20), FEATURES)?;
    for (i, word) in (0u64..).zip(sq.into_iter().chain(cq)) {
        let word = u32::try_from(word).map_err(|_| EINVAL)?;
        k.write_u32(c.task, at.wrapping_add(40).wrapping_add(i.saturating_mul(4)), word)?;
    }
    let id = k.urings.insert(ring);
    let file = OpenFile::new(Open::IoUring(id), 2 | O_CLOEXEC, String::new());
    Ok(as_value(install(k, c.task, file, true)?))
}

fn ring_of<P: Platform>(k: &Kernel<P>, task: TaskId, fd: i32) -> Result<RingId, Errno>
where
    P::Sink: CountsByScope,
{
    match k.files.get(file_of(k, task, fd)?)?.open {
        Open::IoUring(id) => Ok(id),
        _ => Err(EOPNOTSUPP),
    }
}

/// Maps the rings (offset 0 and 128 MiB) or the requests (256 MiB).
pub(super) fn map_ring<P: Platform>(
    k: &mut Kernel<P>,
    mm: MmId,
    id: RingId,
    addr: VirtAddr,
    len: u64,
    offset: u64,
) -> SysResult
where
    P::Sink: CountsByScope,
{
    const CQ_RING: u64 = 0x800_0000;
    const SQES: u64 = 0x1000_0000;
    let ring = k.urings.get_mut(id).ok_or(EBADF)?.clone();
    let size = match offset {
        0 | CQ_RING => ring.rings_len(),
        SQES => u64::from(ring.sq_entries).saturating_mul(SQE),
        _ => return Err(EINVAL.into()),
    };
    if len > size.next_multiple_of(PAGE_SIZE) {
        return Err(EINVAL.into());
    }
    let flags = MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::POPULATE;
    let prot = VmProt::READ | VmProt::WRITE;
    let at = k.mm.mmap(mm, addr, len, prot, flags, Backing::Anonymous)?;
    if offset == SQES {
        k.urings.get_mut(id).ok_or(EBADF)?.sqes = Some((mm, at));
        return Ok(at.get());
    }
    for (field, value) in [
        (offset::SQ_MASK, ring.sq_entries.saturating_sub(1)),
        (offset::CQ_MASK, ring.cq_entries.saturating_sub(1)),
        (offset::SQ_ENTRIES, ring.sq_entries),
        (offset::CQ_ENTRIES, ring.cq_entries),
    ] {
        k.mm.copy_to_user(mm, at.wrapping_add(field), &value.to_le_bytes())?;
    }
    k.urings.get_mut(id).ok_or(EBADF)?.rings = Some((mm, at));
    Ok(at.get())
}

pub(super) fn io_uring_register<P: Platform>(
    k: &mut Kernel<P>,
    c: &mut Call<'_, P::Sink>,
) -> SysResult
where
    P::Sink: CountsByScope,
{
    const REGISTER_BUFFERS: u32 = 0;
    const UNREGISTER_BUFFERS: u32 = 1;
    let id = ring_of(k, c.task, c.int::<0>())?;
    let registered = !k.urings.get_mut(id).ok_or(EBADF)?.buffers.is_empty();
    match c.uint::<1>() {
        REGISTER_BUFFERS if registered => Err(EBUSY.into()),
        REGISTER_BUFFERS => register_buffers(k, c, id),
        UNREGISTER_BUFFERS if registered => {
            let buffers = std::mem::take(&mut k.urings.get_mut(id).ok_or(EBADF)?.buffers);
            k.unpin_buffers(&buffers);
            Ok(0)
        }
        UNREGISTER_BUFFERS => Err(ENXIO.into()),
        _ => Err(EINVAL.into()),
    }
}

/// Source: Linux io_uring/rsrc.c `io_sqe_buffers_register()`, mm/gup.c `pin_user_pages_fast()`.
fn register_buffers<P: Platform>(
    k: &mut Kernel<P>,
    c: &mut Call<'_, P::Sink>,
    id: RingId,
) -> SysResult
where
    P::Sink: CountsByScope,
{
    const BUFFERS_MAX: u64 = 1 << 14;
    const BUFFER_MAX: u64 = 1 << 30;
    let nr = u64::from(c.uint::<3>());
    if nr == 0 || nr > BUFFERS_MAX {
        return Err(EINVAL.into());
    }
    let mm = k.mm_of(c.task)?;
    let mut buffers: Vec<FixedBuffer> = Vec::new();
    for iov in super::io::iovec(k, c.task, c.addr::<2>(), nr.min(1024))? {
        let pages = iov.len.saturating_add(iov.at.page_offset()).div_ceil(PAGE_SIZE);
        let mut pinned = Vec::new();
        let result = match iov.len {
            0 => Err(EFAULT),
            len if len > BUFFER_MAX => Err(EFAULT),
            _ => {
                let flags = Foll::WRITE | Foll::LONGTERM;
                let start = iov.at.align_down(PAGE_SIZE);
                k.mm.pin_user_pages_fast(mm, start, pages, flags, &mut pinned)
            }
        };
        let whole = result == Ok(pages);
        buffers.push(FixedBuffer { start: iov.at, len: iov.len, pages: pinned });
        if !whole {
            k.unpin_buffers(&buffers);
            return Err(result.err().unwrap_or(EFAULT).into());
        }
    }
    k.urings.get_mut(id).ok_or(EBADF)?.buffers = buffers;
    Ok(0)
}

/// A request, as far as it is looked at.
#[derive(Clone, Copy, Debug)]
struct Sqe {
    opcode: u8,
    flags: u8,
    fd: i32,
    offset: u64,
    addr: VirtAddr,
    len: u32,
    user_data: u64,
    buffer: u16,
}

/// The words of a ring.
#[derive(Clone, Copy, Debug)]
struct Rings {
    mm: MmId,
    at: VirtAddr,
}

impl Rings {
    fn load<P: Platform>(self, k: &mut Kernel<P>, field: u64) -> Result<u32, Errno> {
        let mut word = [0; 4];
        k.mm.copy_from_user(self.mm, self.at.wrapping_add(field), &mut word)?;
        Ok(u32::from_le_bytes(word))
    }
    fn store<P: Platform>(self, k: &mut Kernel<P>, field: u64, value: u32) -> Result<(), Errno> {
        k.mm.copy_to_user(self.mm, self.at.wrapping_add(field), &value.to_le_bytes())
    }
}

pub(super) fn io_uring_enter<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    // IORING_ENTER_GETEVENTS: whatever was submitted is complete.
    const FLAGS: u32 = 1;
    if c.uint::<3>() & !FLAGS != 0 {
        return Err(EINVAL.into());
    }
    let id = ring_of(k, c.task, c.int::<0>())?;
    let ring = k.urings.get_mut(id).ok_or(EBADF)?.clone();
    let (Some((mm, at)), Some((_, sqes))) = (ring.rings, ring.sqes) else {
        return Err(EFAULT.into());
    };
    let rings = Rings { mm, at };
    let tail = rings.load(k, offset::SQ_TAIL)?;
    let mut head = rings.load(k, offset::SQ_HEAD)?;
    let mut submitted = 0u32;
    while submitted < c.uint::<1>() && head != tail {
        let slot = u64::from(head & ring.sq_entries.wrapping_sub(1));
        let index = rings.load(k, ring.array().saturating_add(slot.saturating_mul(4)))?;
        head = head.wrapping_add(1);
        rings.store(k, offset::SQ_HEAD, head)?;
        if index >= ring.sq_entries {
            break;
        }
        let sqe = sqe(k, mm, sqes.wrapping_add(u64::from(index).saturating_mul(SQE)))?;
        let result = serve(k, c, &ring, &sqe);
        complete(k, rings, &ring, &sqe, result)?;
        submitted = submitted.saturating_add(1);
    }
    Ok(u64::from(submitted))
}

fn sqe<P: Platform>(k: &mut Kernel<P>, mm: MmId, at: VirtAddr) -> Result<Sqe, Errno> {
    let mut bytes = [0u8; 64];
    k.mm.copy_from_user(mm, at, &mut bytes)?;
    let word = |from: usize| {
        let part = bytes.get(from..).and_then(|rest| rest.first_chunk::<8>());
        u64::from_le_bytes(part.copied().unwrap_or_default())
    };
    let [fd0, fd1, fd2, fd3, ..] = word(4).to_le_bytes();
    let [len0, len1, len2, len3, ..] = word(24).to_le_bytes();
    let [buffer0, buffer1, ..] = word(40).to_le_bytes();
    let [opcode, flags, ..] = bytes;
    Ok(Sqe {
        opcode,
        flags,
        fd: i32::from_le_bytes([fd0, fd1, fd2, fd3]),
        offset: word(8),
        addr: VirtAddr::new(word(16)),
        len: u32::from_le_bytes([len0, len1, len2, len3]),
        user_data: word(32),
        buffer: u16::from_le_bytes([buffer0, buffer1]),
    })
}

fn serve<P: Platform>(
    k: &mut Kernel<P>,
    c: &mut Call<'_, P::Sink>,
    ring: &IoUring,
    sqe: &Sqe,
) -> SysResult
where
    P::Sink: CountsByScope,
{
    const NOP: u8 = 0;
    const WRITE_FIXED: u8 = 5;
    const WRITE: u8 = 23;
    if sqe.flags != 0 {
        return Err(EINVAL.into());
    }
    let bytes = match sqe.opcode {
        NOP => return Ok(0),
        WRITE_FIXED => fixed_bytes(k, ring, sqe)?,
        WRITE => {
            let len = u64::from(sqe.len).min(CHUNK);
            let mut bytes = vec![0; usize::try_from(len).map_err(|_| EINVAL)?];
            k.read_user(c.task, sqe.addr, &mut bytes)?;
            bytes
        }
        _ => return Err(EINVAL.into()),
    };
    let file = file_of(k, c.task, sqe.fd)?;
    if !k.files.get(file)?.writable() {
        return Err(EBADF.into());
    }
    let at = match sqe.offset {
        u64::MAX => At::Offset,
        offset => At::Position(offset),
    };
    write_chunk(k, c, file, &bytes, at)
}

/// What a registered buffer holds: its pages are asked, not the page tables.
fn fixed_bytes<P: Platform>(k: &Kernel<P>, ring: &IoUring, sqe: &Sqe) -> Result<Vec<u8>, Errno> {
    let buffer = ring.buffers.get(usize::from(sqe.buffer)).ok_or(EFAULT)?;
    let len = u64::from(sqe.len);
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < len {
        let done = bytes.len() as u64;
        let va = sqe.addr.wrapping_add(done);
        let (page, offset, left) = buffer.at(va).ok_or(EFAULT)?;
        let part = usize::try_from(left.min(len.saturating_sub(done))).map_err(|_| EFAULT)?;
        bytes.extend(k.mm.pt.ram.slice(page.addr().wrapping_add(offset), part));
    }
    Ok(bytes)
}

/// Posts a completion.
fn complete<P: Platform>(
    k: &mut Kernel<P>,
    rings: Rings,
    ring: &IoUring,
    sqe: &Sqe,
    result: SysResult,
) -> Result<(), Errno> {
    let res = match result {
        Ok(value) => i32::try_from(value).map_err(|_| EOVERFLOW)?,
        Err(Stop::Errno(error)) => error.0.wrapping_neg(),
        // What would wait is not supported.
        Err(_) => EINVAL.0.wrapping_neg(),
    };
    let tail = rings.load(k, offset::CQ_TAIL)?;
    if tail.wrapping_sub(rings.load(k, offset::CQ_HEAD)?) >= ring.cq_entries {
        let lost = rings.load(k, offset::CQ_OVERFLOW)?;
        return rings.store(k, offset::CQ_OVERFLOW, lost.wrapping_add(1));
    }
    let slot = u64::from(tail & ring.cq_entries.wrapping_sub(1)).saturating_mul(CQE);
    let mut cqe = sqe.user_data.to_le_bytes().to_vec();
    cqe.extend(res.to_le_bytes());
    cqe.extend([0; 4]);
    let to = rings.at.wrapping_add(offset::CQES.saturating_add(slot));
    k.mm.copy_to_user(rings.mm, to, &cqe)?;
    rings.store(k, offset::CQ_TAIL, tail.wrapping_add(1))
}

impl<P: Platform> Kernel<P> {
    /// Lets go of the pages of registered buffers.
    pub(crate) fn unpin_buffers(&mut self, buffers: &[FixedBuffer]) {
        for buffer in buffers {
            self.mm.unpin_user_pages(&buffer.pages);
        }
    }
}
