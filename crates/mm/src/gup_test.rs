//! The work of `/sys/kernel/debug/gup_test`: takes references or pins of a range in calls of
//! so many pages, and gives them back. Times, and copying the requests, are the caller's.
//!
//! Source: Linux mm/gup_test.c.

use crate::errno::Errno;
use crate::{Foll, Mm};
use arch::{MmId, Platform};
use units::{PAGE_SIZE, Pfn, VirtAddr};

/// Which GUP function is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GupTestCommand {
    /// `get_user_pages_fast()`
    GupFast,
    /// `pin_user_pages_fast()`
    PinFast,
    /// `pin_user_pages()` with FOLL_LONGTERM
    PinLongterm,
    /// `get_user_pages()`
    Gup,
    /// `pin_user_pages()`
    Pin,
    /// `get_user_pages()`, and some of the pages are described.
    DumpByGup,
    /// `pin_user_pages()`, and some of the pages are described.
    DumpByPin,
}

impl GupTestCommand {
    /// Whether the pages are pinned, rather than referenced.
    pub fn pins(self) -> bool {
        use GupTestCommand as C;
        matches!(self, C::PinFast | C::PinLongterm | C::Pin | C::DumpByPin)
    }
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GupTest {
    /// The function.
    pub command: GupTestCommand,
    /// Where to start.
    pub addr: VirtAddr,
    /// Bytes.
    pub size: u64,
    /// Pages asked for at a time.
    pub nr_pages_per_call: u64,
    /// What is passed to the function.
    pub flags: Foll,
}

/// The pages that a request holds.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the pages stay referenced until they are put back"]
pub struct GupTestPages {
    /// The function that took them.
    pub command: GupTestCommand,
    /// In order of address.
    pub pages: Vec<Pfn>,
    /// Bytes that the calls were made for, the last one included even if it fell short.
    pub size: u64,
}

/// Largest array that `kvcalloc()` makes.
const ARRAY_MAX: u64 = i32::MAX as u64;

impl<P: Platform> Mm<P> {
    /// The first half of `__gup_test_ioctl()`: calls until the range is covered, or one returns
    /// fewer pages than asked for.
    ///
    /// # Errors
    /// ENOMEM if the array of pages would be too large. What a call returns ends the loop only.
    pub fn gup_test_get(&mut self, mm: MmId, test: &GupTest) -> Result<GupTestPages, Errno> {
        if (test.size / PAGE_SIZE).saturating_mul(8) > ARRAY_MAX {
            return Err(Errno::ENOMEM);
        }
        let mut pages = Vec::new();
        let end = test.addr.wrapping_add(test.size);
        let mut addr = test.addr;
        let mut last = test.nr_pages_per_call;
        while addr < end && last == test.nr_pages_per_call {
            let room = end.bytes_since(addr);
            let whole = last.saturating_mul(PAGE_SIZE);
            let (step, nr) = if whole > room { (room, room / PAGE_SIZE) } else { (whole, last) };
            match self.gup_test_call(mm, test, addr, nr, &mut pages) {
                Ok(got) if got > 0 => last = got,
                _ => break,
            }
            addr = addr.wrapping_add(step);
        }
        Ok(GupTestPages { command: test.command, pages, size: addr.bytes_since(test.addr) })
    }

    fn gup_test_call(
        &mut self,
        mm: MmId,
        test: &GupTest,
        addr: VirtAddr,
        nr: u64,
        pages: &mut Vec<Pfn>,
    ) -> Result<u64, Errno> {
        use GupTestCommand as C;
        let flags = test.flags;
        match test.command {
            C::GupFast => self.get_user_pages_fast(mm, addr, nr, flags, pages),
            C::PinFast => self.pin_user_pages_fast(mm, addr, nr, flags, pages),
            C::PinLongterm => self.pin_user_pages(mm, addr, nr, flags | Foll::LONGTERM, pages),
            C::Gup | C::DumpByGup => self.get_user_pages(mm, addr, nr, flags, Some(pages)),
            C::Pin | C::DumpByPin => self.pin_user_pages(mm, addr, nr, flags, pages),
        }
    }

    /// `put_back_pages()`: references one by one, pins in one call.
    pub fn gup_test_put(&mut self, held: GupTestPages) {
        if held.command.pins() {
            self.unpin_user_pages(&held.pages);
            return;
        }
        for page in held.pages {
            self.put_page(page);
        }
    }
}
