//! `/sys/kernel/debug/gup_test`: tries and times GUP on the caller's memory.
//!
//! The times are those of the virtual clock. Source: Linux mm/gup_test.c, mm/gup_test.h.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::PseudoFile;
use crate::counts::CountsByScope;
use crate::errno::{EFAULT, EINVAL, ENOMEM};
use crate::host::Clock;
use crate::kernel::Kernel;
use crate::log::Level;
use crate::task::{ProcessId, TaskId};
use arch::Platform;
use mm::{Errno, Foll, GupTest, GupTestCommand};
use units::{PAGE_SIZE, Pfn, VirtAddr};

const GUP_FAST_BENCHMARK: u32 = 0xC050_6701;
const PIN_FAST_BENCHMARK: u32 = 0xC050_6702;
const PIN_LONGTERM_BENCHMARK: u32 = 0xC050_6703;
const GUP_BASIC_TEST: u32 = 0xC050_6704;
const PIN_BASIC_TEST: u32 = 0xC050_6705;
const DUMP_USER_PAGES_TEST: u32 = 0xC050_6706;
const PIN_LONGTERM_TEST_START: u32 = 0x4018_6707;
const PIN_LONGTERM_TEST_STOP: u32 = 0x6708;
const PIN_LONGTERM_TEST_READ: u32 = 0x4008_6709;

/// `GUP_TEST_FLAG_DUMP_PAGES_USE_PIN`
const DUMP_USES_PIN: u32 = 1;
/// `PIN_LONGTERM_TEST_FLAG_USE_WRITE`
const TEST_WRITES: u32 = 1;
/// `PIN_LONGTERM_TEST_FLAG_USE_FAST`
const TEST_IS_FAST: u32 = 2;
/// Pages that one request can have described.
const DUMPED: usize = 8;
/// Bytes of `struct gup_test`, its padding included.
const REQUEST_LEN: usize = 80;
/// Largest array of pages, in bytes.
const ARRAY_MAX: u64 = i32::MAX as u64;

/// The file.
#[derive(Debug)]
pub(super) struct GupTestFile;

/// `struct gup_test`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Request {
    get_delta_usec: u64,
    put_delta_usec: u64,
    addr: u64,
    size: u64,
    nr_pages_per_call: u32,
    gup_flags: u32,
    test_flags: u32,
    /// Counted from 1; 0 for none.
    which_pages: [u32; DUMPED],
    padding: u32,
}

impl Request {
    fn parse(bytes: &[u8; REQUEST_LEN]) -> Request {
        let (longs, rest) = bytes.split_at(32);
        let mut longs = longs.as_chunks().0.iter().copied().map(u64::from_le_bytes);
        let mut words = rest.as_chunks().0.iter().copied().map(u32::from_le_bytes);
        let mut long = || longs.next().unwrap_or_default();
        let mut word = || words.next().unwrap_or_default();
        Request {
            get_delta_usec: long(),
            put_delta_usec: long(),
            addr: long(),
            size: long(),
            nr_pages_per_call: word(),
            gup_flags: word(),
            test_flags: word(),
            which_pages: std::array::from_fn(|_| word()),
            padding: word(),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let longs = [self.get_delta_usec, self.put_delta_usec, self.addr, self.size];
        let words = [self.nr_pages_per_call, self.gup_flags, self.test_flags];
        let longs = longs.into_iter().flat_map(u64::to_le_bytes);
        let words = words.into_iter().chain(self.which_pages).chain([self.padding]);
        longs.chain(words.flat_map(u32::to_le_bytes)).collect()
    }
}

fn command_of(number: u32, test_flags: u32) -> Option<GupTestCommand> {
    Some(match number {
        GUP_FAST_BENCHMARK => GupTestCommand::GupFast,
        PIN_FAST_BENCHMARK => GupTestCommand::PinFast,
        PIN_LONGTERM_BENCHMARK => GupTestCommand::PinLongterm,
        GUP_BASIC_TEST => GupTestCommand::Gup,
        PIN_BASIC_TEST => GupTestCommand::Pin,
        DUMP_USER_PAGES_TEST if test_flags & DUMP_USES_PIN != 0 => GupTestCommand::DumpByPin,
        DUMP_USER_PAGES_TEST => GupTestCommand::DumpByGup,
        _ => return None,
    })
}

fn is_request(number: u32) -> bool {
    (GUP_FAST_BENCHMARK..=DUMP_USER_PAGES_TEST).contains(&number)
}

impl<P: Platform> PseudoFile<P> for GupTestFile
where
    P::Sink: CountsByScope,
{
    fn mode(&self) -> u32 {
        0o600
    }
    fn read(&self, _: &mut Kernel<P>, _: ProcessId) -> Result<Vec<u8>, Errno> {
        Err(EINVAL)
    }
    fn ioctl(
        &self,
        kernel: &mut Kernel<P>,
        clock: &mut dyn Clock<P::Sink>,
        task: TaskId,
        number: u32,
        arg: VirtAddr,
    ) -> Result<u64, Errno> {
        match number {
            PIN_LONGTERM_TEST_START => pin_longterm_test_start(kernel, task, arg)?,
            PIN_LONGTERM_TEST_STOP => pin_longterm_test_stop(kernel),
            PIN_LONGTERM_TEST_READ => pin_longterm_test_read(kernel, task, arg)?,
            _ if is_request(number) => gup_test(kernel, clock, task, number, arg)?,
            _ => return Err(EINVAL),
        }
        Ok(0)
    }
    fn release(&self, kernel: &mut Kernel<P>) {
        pin_longterm_test_stop(kernel);
    }
}

/// Source: Linux mm/gup_test.c `gup_test_ioctl()`, `__gup_test_ioctl()`.
fn gup_test<P: Platform>(
    kernel: &mut Kernel<P>,
    clock: &mut dyn Clock<P::Sink>,
    task: TaskId,
    number: u32,
    arg: VirtAddr,
) -> Result<(), Errno>
where
    P::Sink: CountsByScope,
{
    let mut request = Request::parse(&kernel.read_bytes(task, arg)?);
    let command = command_of(number, request.test_flags).ok_or(EINVAL)?;
    let mm = kernel.mm_of(task)?;
    let test = GupTest {
        command,
        addr: VirtAddr::new(request.addr),
        size: request.size,
        nr_pages_per_call: u64::from(request.nr_pages_per_call),
        flags: Foll::from_bits_retain(request.gup_flags),
    };
    let start = now_ns(kernel, clock);
    let held = kernel.mm.gup_test_get(mm, &test)?;
    request.get_delta_usec = now_ns(kernel, clock).saturating_sub(start) / 1000;
    request.size = held.size;
    if number == DUMP_USER_PAGES_TEST {
        let now_ns = now_ns(kernel, clock);
        dump_pages_test(kernel, now_ns, &mut request, &held.pages);
    }
    let start = now_ns(kernel, clock);
    kernel.mm.gup_test_put(held);
    request.put_delta_usec = now_ns(kernel, clock).saturating_sub(start) / 1000;
    kernel.write_user(task, arg, &request.bytes())
}

/// The time, with all that was done so far counted.
fn now_ns<P: Platform>(kernel: &mut Kernel<P>, clock: &mut dyn Clock<P::Sink>) -> u64 {
    kernel.mm.pt.count_lines();
    clock.now_ns(&kernel.mm.pt.sink)
}

/// Describes the pages that the request names, counted from 1; a number beyond `pages` becomes 0.
/// Source: Linux mm/gup_test.c `dump_pages_test()`.
fn dump_pages_test<P: Platform>(
    kernel: &mut Kernel<P>,
    now_ns: u64,
    request: &mut Request,
    pages: &[Pfn],
) {
    for (i, which) in request.which_pages.iter_mut().enumerate() {
        if u64::from(*which) > pages.len() as u64 {
            let text = format!("ZEROING due to out of range: .which_pages[{i}]: {which}");
            kernel.log.printk(Level::Warning, now_ns, text);
            *which = 0;
        }
    }
    for which in request.which_pages {
        let Some(index) = which.checked_sub(1) else { continue };
        let Some(&page) = usize::try_from(index).ok().and_then(|i| pages.get(i)) else { continue };
        let addr = request.addr;
        let text = format!("---- page #{index}, starting from user virt addr: {addr:#x}");
        kernel.log.printk(Level::Info, now_ns, text);
        for line in kernel.mm.dump_page(page, "gup_test: dump_pages() test") {
            kernel.log.printk(Level::Warning, now_ns, line);
        }
    }
}

/// Pins a range until [`pin_longterm_test_stop`].
fn pin_longterm_test_start<P: Platform>(
    kernel: &mut Kernel<P>,
    task: TaskId,
    arg: VirtAddr,
) -> Result<(), Errno>
where
    P::Sink: CountsByScope,
{
    if kernel.pin_longterm_test.is_some() {
        return Err(EINVAL);
    }
    let addr = kernel.read_u64(task, arg)?;
    let size = kernel.read_u64(task, arg.wrapping_add(8))?;
    let flags = kernel.read_u32(task, arg.wrapping_add(16))?;
    let unknown = flags & !(TEST_WRITES | TEST_IS_FAST) != 0;
    let unaligned = !(addr | size).is_multiple_of(PAGE_SIZE);
    if unknown || unaligned || size.cast_signed() <= 0 {
        return Err(EINVAL);
    }
    let nr = size / PAGE_SIZE;
    if nr.saturating_mul(8) > ARRAY_MAX {
        return Err(ENOMEM);
    }
    let write = if flags & TEST_WRITES != 0 { Foll::WRITE } else { Foll::empty() };
    let fast = flags & TEST_IS_FAST != 0;
    let mut pages: Vec<Pfn> = Vec::new();
    let pinned =
        pin_all(kernel, task, VirtAddr::new(addr), nr, Foll::LONGTERM | write, fast, &mut pages);
    kernel.pin_longterm_test = Some(pages);
    if pinned.is_err() {
        pin_longterm_test_stop(kernel);
    }
    pinned
}

/// Calls until all `nr` pages are pinned or one call fails.
fn pin_all<P: Platform>(
    kernel: &mut Kernel<P>,
    task: TaskId,
    addr: VirtAddr,
    nr: u64,
    flags: Foll,
    fast: bool,
    pages: &mut Vec<Pfn>,
) -> Result<(), Errno>
where
    P::Sink: CountsByScope,
{
    let mm = kernel.mm_of(task)?;
    let mut done = 0u64;
    while done < nr {
        let at = addr.wrapping_add(done.saturating_mul(PAGE_SIZE));
        let left = nr.saturating_sub(done);
        let got = match fast {
            true => kernel.mm.pin_user_pages_fast(mm, at, left, flags, pages)?,
            false => kernel.mm.pin_user_pages(mm, at, left, flags, pages)?,
        };
        if got == 0 {
            return Err(EFAULT);
        }
        done = done.saturating_add(got);
    }
    Ok(())
}

/// Unpins what [`pin_longterm_test_start`] pinned, if anything.
fn pin_longterm_test_stop<P: Platform>(kernel: &mut Kernel<P>) {
    if let Some(pages) = kernel.pin_longterm_test.take() {
        kernel.mm.unpin_user_pages(&pages);
    }
}

/// Copies the pinned pages to where the caller's variable points.
fn pin_longterm_test_read<P: Platform>(
    kernel: &mut Kernel<P>,
    task: TaskId,
    arg: VirtAddr,
) -> Result<(), Errno>
where
    P::Sink: CountsByScope,
{
    let pages = kernel.pin_longterm_test.clone().ok_or(EINVAL)?;
    let mut to = VirtAddr::new(kernel.read_u64(task, arg)?);
    for page in pages {
        let contents = kernel.mm.pt.ram.frame(page).to_vec();
        kernel.write_user(task, to, &contents)?;
        to = to.wrapping_add(PAGE_SIZE);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_80_bytes_and_survives() {
        let mut bytes = [0; REQUEST_LEN];
        for (i, byte) in (0u8..).zip(&mut bytes) {
            *byte = i;
        }
        let request = Request::parse(&bytes);
        assert_eq!(request.addr, u64::from_le_bytes([16, 17, 18, 19, 20, 21, 22, 23]));
        assert_eq!(request.test_flags, u32::from_le_bytes([40, 41, 42, 43]));
        assert_eq!(request.which_pages[7], u32::from_le_bytes([72, 73, 74, 75]));
        assert_eq!(request.bytes(), bytes);
    }
}
