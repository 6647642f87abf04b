//! `/sys/kernel/debug/gup_test` as programs see it.

use super::*;

on_both! {
    every_function_covers_the_range_and_lets_go_again
    requests_that_make_no_sense_are_refused
    long_term_pins_stay_until_they_are_stopped_or_the_file_is_closed
}

const FILE: &str = "/sys/kernel/debug/gup_test";
const COMMANDS: u64 = 0xC050_6700;
const START: u64 = 0x4018_6707;
const STOP: u64 = 0x6708;
const READ: u64 = 0x4008_6709;
const PAGES: u64 = 64;
const ENOMEM: i64 = -12;

mod check {
    use super::*;

    /// `struct gup_test` without what the kernel fills in.
    fn request(addr: u64, size: u64, per_call: u32, flags: u32, which: [u32; 8]) -> Vec<u8> {
        let mut bytes: Vec<u8> = [u64::MAX, u64::MAX, addr, size].map(u64::to_le_bytes).concat();
        for word in [per_call, flags, 0].into_iter().chain(which).chain([0]) {
            bytes.extend(word.to_le_bytes());
        }
        bytes
    }

    fn long(bytes: &[u8], at: usize) -> u64 {
        u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
    }

    fn region<A: Arch>(g: &mut Guest<A>) -> u64 {
        let at = g.map(PAGES * 4096);
        for page in 0..PAGES {
            g.poke(at + page * 4096, &[page.to_le_bytes()[0]]);
        }
        at
    }

    fn references<A: Arch>(g: &Guest<A>) -> (u64, u64) {
        let pages = &g.kernel.mm.pt.pages;
        let sum = |of: fn(&phys::Page) -> u32| {
            let frames = 0..pages.frames();
            frames.map(|i| u64::from(of(pages.page(units::Pfn::new(i))))).sum()
        };
        (sum(|page| page.refcount), sum(|page| page.pincount))
    }

    pub(super) fn every_function_covers_the_range_and_lets_go_again<A: Arch>() {
        let mut g = Guest::<A>::new();
        let at = region(&mut g);
        let fd = g.open(FILE, 2).cast_unsigned();
        let before = references(&g);
        for command in 1..=6 {
            for per_call in [1, 7, 64, 1000] {
                g.poke(DATA, &request(at, PAGES * 4096, per_call, 1, [1, 64, 65, 0, 0, 0, 0, 9]));
                assert_eq!(g.call("ioctl", &[fd, COMMANDS + command, DATA]), 0);
                let bytes = g.peek(DATA, 80);
                assert_eq!(long(&bytes, 24), PAGES * 4096, "{command} by {per_call}");
                assert_eq!((long(&bytes, 0), long(&bytes, 8)), (0, 0), "the clock stands still");
                let third = if command == 6 { 0 } else { 65 };
                assert_eq!(u32::from_le_bytes([bytes[52], bytes[53], bytes[54], bytes[55]]), third);
            }
        }
        assert_eq!(references(&g), before);
    }

    pub(super) fn requests_that_make_no_sense_are_refused<A: Arch>() {
        let mut g = Guest::<A>::new();
        let at = region(&mut g);
        let fd = g.open(FILE, 2).cast_unsigned();
        let size = PAGES * 4096;
        let mut covered = |addr: u64, size: u64, per_call: u32, flags: u32| {
            g.poke(DATA, &request(addr, size, per_call, flags, [0; 8]));
            let result = g.call("ioctl", &[fd, COMMANDS + 1, DATA]);
            (result, long(&g.peek(DATA, 80), 24))
        };
        // A call that fails ends the loop, and nothing more.
        assert_eq!(covered(0x10_0000, size, 8, 1), (0, 0), "nothing is mapped there");
        assert_eq!(covered(0xffff_8000_0000_0000, size, 8, 1), (0, 0), "the kernel's");
        assert_eq!(covered(0x8000_0000_0000_0000, size, 8, 1), (0, 0), "not canonical");
        assert_eq!(covered(at, u64::MAX - at, 1 << 30, 1).0, ENOMEM, "no room for the array");
        assert_eq!(covered(u64::MAX - 4095, 2 * 4096, 8, 1), (0, 0), "wraps");
        assert_eq!(covered(at, size, 8, 0x8_0000), (0, 0), "an internal flag");
        assert_eq!(covered(at, size, 0, 1), (0, 0));
        assert_eq!(covered(at, 0, 1, 1), (0, 0));
        assert_eq!(covered(at, 100, 1, 1), (0, 0), "less than a page");
        let past = covered(at, size + 64 * 4096, 48, 1);
        assert_eq!(past, (0, 2 * 48 * 4096), "the call that fell short counts in whole");
        for number in [0, COMMANDS, COMMANDS + 7, 0x5401] {
            assert_eq!(g.call("ioctl", &[fd, number, DATA]), EINVAL);
        }
        assert_eq!(g.call("ioctl", &[fd, COMMANDS + 1, 8]), EFAULT);
        assert_eq!(g.call("read", &[fd, DATA, 8]), EINVAL);
    }

    fn start<A: Arch>(g: &mut Guest<A>, fd: u64, at: u64, size: u64, flags: u32) -> i64 {
        let mut bytes = [at, size].map(u64::to_le_bytes).concat();
        bytes.extend([flags, 0].map(u32::to_le_bytes).concat());
        g.poke(DATA, &bytes);
        g.call("ioctl", &[fd, START, DATA])
    }

    pub(super) fn long_term_pins_stay_until_they_are_stopped_or_the_file_is_closed<A: Arch>() {
        let mut g = Guest::<A>::new();
        let at = region(&mut g);
        let size = PAGES * 4096;
        let fd = g.open(FILE, 2).cast_unsigned();
        let to = g.map(size);
        g.poke(to, &vec![0; 4096 * 64]);
        let before = references(&g).0;
        g.poke(DATA, &to.to_le_bytes());
        assert_eq!(g.call("ioctl", &[fd, READ, DATA]), EINVAL, "nothing is pinned yet");
        assert_eq!(g.call("ioctl", &[fd, STOP, 0]), 0);
        for (at, size, flags) in
            [(at, size, 4), (at + 1, size, 1), (at, size + 1, 1), (at, 0, 1), (at, 1 << 63, 1)]
        {
            assert_eq!(start(&mut g, fd, at, size, flags), EINVAL, "{at:#x} {size:#x} {flags}");
        }
        assert_eq!(start(&mut g, fd, 0x10_0000, size, 1), EFAULT);
        assert_eq!(start(&mut g, fd, at, 1 << 50, 1), ENOMEM);
        assert_eq!(references(&g).0, before);
        for flags in 0..4 {
            assert_eq!(start(&mut g, fd, at, size, flags), 0);
            assert_eq!(references(&g).0, before + PAGES * 1024);
            assert_eq!(start(&mut g, fd, at, size, flags), EINVAL, "one at a time");
            g.poke(DATA, &to.to_le_bytes());
            assert_eq!(g.call("ioctl", &[fd, READ, DATA]), 0);
            assert_eq!(g.peek(to + 9 * 4096, 1), [9]);
            assert_eq!(g.call("ioctl", &[fd, STOP, 0]), 0);
        }
        let mapped = references(&g).0;
        assert_eq!(start(&mut g, fd, at, size, 1), 0);
        assert_eq!(references(&g).0, mapped + PAGES * 1024);
        g.call("close", &[fd]);
        assert_eq!(references(&g).0, mapped);
    }
}
