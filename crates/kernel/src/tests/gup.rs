//! `/sys/kernel/debug/gup_test` as programs see it.

use super::*;

on_both! {
    every_function_covers_the_range_and_lets_go_again
    requests_that_make_no_sense_are_refused
    long_term_requests_that_make_no_sense_are_refused
    named_pages_are_described_in_the_log
    long_term_pins_stay_until_they_are_stopped_or_the_file_is_closed
}

const FILE: &str = "/sys/kernel/debug/gup_test";
const COMMANDS: u64 = 0xC050_6700;
const START: u64 = 0x4018_6707;
const STOP: u64 = 0x6708;
const READ: u64 = 0x4008_6709;
const PAGES: u64 = 64;
const ENOMEM: i64 = -12;
const EOVERFLOW: i64 = -75;

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

    /// Ranges of 64 pages in which no page can be had.
    const NOWHERE: [(u64, &str); 4] = [
        (0x10_0000, "nothing is mapped there"),
        (0xffff_8000_0000_0000, "the kernel's"),
        (0x8000_0000_0000_0000, "not canonical"),
        (u64::MAX - 63 * 4096 + 1, "up to the last byte"),
    ];

    pub(super) fn requests_that_make_no_sense_are_refused<A: Arch>() {
        let mut g = Guest::<A>::new();
        let at = region(&mut g);
        let fd = g.open(FILE, 2).cast_unsigned();
        let size = PAGES * 4096;
        let before = references(&g);
        for command in 1..=6 {
            let mut covered = |addr: u64, size: u64, per_call: u32, flags: u32| {
                g.poke(DATA, &request(addr, size, per_call, flags, [0; 8]));
                let result = g.call("ioctl", &[fd, COMMANDS + command, DATA]);
                (result, long(&g.peek(DATA, 80), 24))
            };
            // A call that fails ends the loop, and nothing more.
            for (addr, why) in NOWHERE {
                assert_eq!(covered(addr, size, 8, 1), (0, 0), "{command}: {why}");
            }
            assert_eq!(covered(at, u64::MAX - at, 1 << 30, 1).0, ENOMEM, "no room for the array");
            assert_eq!(covered(u64::MAX - 4095, 2 * 4096, 8, 1), (0, 0), "wraps");
            for flag in [0x1_0000, 0x2_0000, 0x4_0000, 0x8_0000, 0x10_0000, 0x20_0000, 0x40_0000] {
                assert_eq!(covered(at, size, 8, flag), (0, 0), "{flag:#x} is internal");
            }
            assert_eq!(covered(at, size, 0, 1), (0, 0));
            assert_eq!(covered(at, 0, 1, 1), (0, 0));
            assert_eq!(covered(at, 100, 1, 1), (0, 0), "less than a page");
            let past = covered(at, size + 64 * 4096, 48, 1);
            assert_eq!(past, (0, 2 * 48 * 4096), "the call that fell short counts in whole");
            for nowhere in [0, 8, 0x10_0000, 0xffff_8000_0000_0000, u64::MAX - 8] {
                assert_eq!(g.call("ioctl", &[fd, COMMANDS + command, nowhere]), EFAULT);
            }
        }
        assert_eq!(references(&g), before);
        for number in [0, COMMANDS, COMMANDS + 7, COMMANDS + 10, 0x5401, START - 1, READ + 1] {
            assert_eq!(g.call("ioctl", &[fd, number, DATA]), EINVAL);
        }
        assert_eq!(g.call("read", &[fd, DATA, 8]), EINVAL);
    }

    pub(super) fn long_term_requests_that_make_no_sense_are_refused<A: Arch>() {
        let mut g = Guest::<A>::new();
        let at = region(&mut g);
        let size = PAGES * 4096;
        let fd = g.open(FILE, 2).cast_unsigned();
        // This reads in what happens to lie beyond the region.
        assert_eq!(start(&mut g, fd, at, 2 * size, 0), EFAULT);
        let before = references(&g);
        for flags in 0..4 {
            for (addr, why) in NOWHERE {
                let expected = match addr.checked_add(size) {
                    None if flags & 2 != 0 => EOVERFLOW,
                    _ => EFAULT,
                };
                assert_eq!(start(&mut g, fd, addr, size, flags), expected, "{flags}: {why}");
            }
            for (at, size) in [(at + 1, size), (at, size + 1), (at, 0), (at, 1 << 63)] {
                assert_eq!(start(&mut g, fd, at, size, flags), EINVAL, "{at:#x} {size:#x}");
            }
            assert_eq!(start(&mut g, fd, at, 1 << 50, flags), ENOMEM);
            // What was pinned before the hole is let go.
            assert_eq!(start(&mut g, fd, at, 2 * size, flags), EFAULT);
        }
        for flags in [4, 8, u32::MAX] {
            assert_eq!(start(&mut g, fd, at, size, flags), EINVAL);
        }
        for (number, nowhere) in [(START, 8), (START, 0xffff_8000_0000_0000)] {
            assert_eq!(g.call("ioctl", &[fd, number, nowhere]), EFAULT);
        }
        g.poke(DATA, &at.to_le_bytes());
        assert_eq!(g.call("ioctl", &[fd, READ, DATA]), EINVAL, "nothing is pinned");
        assert_eq!(references(&g), before);
        assert_eq!(start(&mut g, fd, at, size, 1), 0);
        assert_eq!(g.call("ioctl", &[fd, READ, 8]), EFAULT);
        for nowhere in [0x10_0000u64, 0xffff_8000_0000_0000, u64::MAX - 4095] {
            g.poke(DATA, &nowhere.to_le_bytes());
            assert_eq!(g.call("ioctl", &[fd, READ, DATA]), EFAULT);
        }
        assert_eq!(g.call("ioctl", &[fd, STOP, 0]), 0);
        assert_eq!(references(&g), before);
    }

    pub(super) fn named_pages_are_described_in_the_log<A: Arch>() {
        let mut g = Guest::<A>::new();
        let at = region(&mut g);
        let fd = g.open(FILE, 2).cast_unsigned();
        let mut bytes = request(at, PAGES * 4096, 64, 1, [1, 0, 65, 0, 0, 0, 0, 3]);
        g.poke(DATA, &bytes);
        assert_eq!(g.call("ioctl", &[fd, COMMANDS + 6, DATA]), 0);
        let log = g.kernel.dmesg();
        let text: Vec<&str> = log.iter().filter_map(|line| line.get(15..)).collect();
        assert_eq!(text[0], "ZEROING due to out of range: .which_pages[2]: 65");
        assert_eq!(text[1], format!("---- page #0, starting from user virt addr: {at:#x}"));
        assert!(text[2].starts_with("page: refcount:2 mapcount:1 index:"), "{text:?}");
        assert!(text[3].starts_with("anon flags: (") && text[3].contains("swapbacked"), "{text:?}");
        assert_eq!(text[4], "page dumped because: gup_test: dump_pages() test");
        assert_eq!(text[5], format!("---- page #2, starting from user virt addr: {at:#x}"));
        assert_eq!(text.len(), 9);
        // GUP_TEST_FLAG_DUMP_PAGES_USE_PIN
        bytes[40] = 1;
        g.poke(DATA, &bytes);
        assert_eq!(g.call("ioctl", &[fd, COMMANDS + 6, DATA]), 0);
        assert!(g.kernel.dmesg()[11].contains("page: refcount:1025 mapcount:1 index:"));
        let kmsg = g.slurp("/dev/kmsg");
        assert!(kmsg.starts_with("4,0,0,-;ZEROING") && kmsg.contains("\n6,1,0,-;---- page"));
        let len = g.call("syslog", &[9, 0, 0]).cast_unsigned();
        let to = g.map(len);
        assert_eq!(g.call("syslog", &[3, to, len]).cast_unsigned(), len);
        assert_eq!(g.peek(to, 8), b"<4>[    ");
        assert_eq!(g.call("syslog", &[4, to, 100]), 67, "the last whole lines that fit");
        assert_eq!(g.call("syslog", &[3, to, len]), 0, "cleared");
        assert_eq!(g.call("syslog", &[3, 8, len]), 0);
        assert_eq!(g.call("syslog", &[3, 0, len]), EINVAL);
        assert_eq!(g.call("syslog", &[77, to, len]), EINVAL);
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
