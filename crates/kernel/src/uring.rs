//! io_uring instances: two rings in memory, and buffers that stay pinned.
//!
//! Source: Linux include/uapi/linux/io_uring.h, io_uring/io_uring.c.

use arch::MmId;
use std::collections::BTreeMap;
use units::{PAGE_SIZE, Pfn, VirtAddr};

/// An instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RingId(u32);

/// Where a field of the rings is (`struct io_rings`).
pub(crate) mod offset {
    pub(crate) const SQ_HEAD: u64 = 0;
    pub(crate) const SQ_TAIL: u64 = 64;
    pub(crate) const CQ_HEAD: u64 = 128;
    pub(crate) const CQ_TAIL: u64 = 192;
    pub(crate) const SQ_MASK: u64 = 256;
    pub(crate) const CQ_MASK: u64 = 260;
    pub(crate) const SQ_ENTRIES: u64 = 264;
    pub(crate) const CQ_ENTRIES: u64 = 268;
    pub(crate) const SQ_DROPPED: u64 = 272;
    pub(crate) const SQ_FLAGS: u64 = 276;
    pub(crate) const CQ_FLAGS: u64 = 280;
    pub(crate) const CQ_OVERFLOW: u64 = 284;
    pub(crate) const CQES: u64 = 320;
}

/// Bytes of a completion.
pub(crate) const CQE: u64 = 16;
/// Bytes of a request.
pub(crate) const SQE: u64 = 64;

/// A buffer that was registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FixedBuffer {
    pub(crate) start: VirtAddr,
    pub(crate) len: u64,
    pub(crate) pages: Vec<Pfn>,
}

impl FixedBuffer {
    /// Which byte of which page is at `va`, and how many bytes of the buffer follow in that page.
    pub(crate) fn at(&self, va: VirtAddr) -> Option<(Pfn, u64, u64)> {
        let into = va.get().checked_sub(self.start.get()).filter(|&into| into < self.len)?;
        let first = self.start.page_offset().checked_add(into)?;
        let page = usize::try_from(first / PAGE_SIZE).ok()?;
        let offset = first % PAGE_SIZE;
        let left = self.len.saturating_sub(into).min(PAGE_SIZE.saturating_sub(offset));
        Some((*self.pages.get(page)?, offset, left))
    }
}

/// One instance.
// FIDELITY: io_uring-rings — the rings are private memory of the process that mapped them: a child
// sees a copy.
#[derive(Clone, Debug, Default)]
pub(crate) struct IoUring {
    pub(crate) sq_entries: u32,
    pub(crate) cq_entries: u32,
    /// Where the rings and the requests are mapped.
    pub(crate) rings: Option<(MmId, VirtAddr)>,
    pub(crate) sqes: Option<(MmId, VirtAddr)>,
    pub(crate) buffers: Vec<FixedBuffer>,
}

impl IoUring {
    /// Where the indices of requests are.
    pub(crate) fn array(&self) -> u64 {
        offset::CQES.saturating_add(u64::from(self.cq_entries).saturating_mul(CQE))
    }

    /// Bytes of the rings.
    pub(crate) fn rings_len(&self) -> u64 {
        self.array().saturating_add(u64::from(self.sq_entries).saturating_mul(4))
    }
}

/// All instances.
#[derive(Clone, Debug, Default)]
pub(crate) struct Urings {
    rings: BTreeMap<RingId, IoUring>,
    next: u32,
}

impl Urings {
    pub(crate) fn insert(&mut self, ring: IoUring) -> RingId {
        let id = RingId(self.next);
        self.next = self.next.wrapping_add(1);
        self.rings.insert(id, ring);
        id
    }
    pub(crate) fn get_mut(&mut self, id: RingId) -> Option<&mut IoUring> {
        self.rings.get_mut(&id)
    }
    pub(crate) fn remove(&mut self, id: RingId) -> Option<IoUring> {
        self.rings.remove(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_knows_the_page_of_each_byte() {
        let pages = vec![Pfn::new(7), Pfn::new(3)];
        let buffer = FixedBuffer { start: VirtAddr::new(0x1ff0), len: 0x20, pages };
        assert_eq!(buffer.at(VirtAddr::new(0x1ff0)), Some((Pfn::new(7), 0xff0, 0x10)));
        assert_eq!(buffer.at(VirtAddr::new(0x2000)), Some((Pfn::new(3), 0, 0x10)));
        assert_eq!(buffer.at(VirtAddr::new(0x2010)), None);
        assert_eq!(buffer.at(VirtAddr::new(0x1fef)), None);
    }
}
