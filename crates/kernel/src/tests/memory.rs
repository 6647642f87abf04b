//! Memory as programs see it, and the counters of `mm_events`.

use super::*;

on_both! {
    counters_are_those_of_the_process_that_started_them
    brk_and_mmap_give_memory_that_reads_as_zero
    growth_of_the_stack_is_served_and_wild_accesses_are_not
}

const EVENTS: &str = "/sys/kernel/debug/mm_events";

mod check {
    use super::*;

    fn value(text: &str, key: &str) -> u64 {
        let line = text.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(' '));
        line.map_or(0, |n| n.parse().expect("a number"))
    }

    pub(super) fn counters_are_those_of_the_process_that_started_them<A: Arch>() {
        let mut g = Guest::<A>::new();
        let at = g.map(1 << 20);
        for page in 0..256 {
            g.poke(at + page * 4096, &[1]);
        }
        let fd = g.open(EVENTS, 2).cast_unsigned();
        g.poke(DATA, b"10");
        assert_eq!(g.call("write", &[fd, DATA, 1]), 1);
        assert_eq!(g.call("madvise", &[at, 1 << 20, 21]), 0);
        assert_eq!(g.call("write", &[fd, DATA + 1, 1]), 1);
        assert_eq!(g.call("madvise", &[at, 1 << 20, 4]), 0);
        assert_eq!(g.call("write", &[fd, DATA, 2]), EINVAL);
        let text = g.slurp(EVENTS);
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            assert!(words.len() == 4 && words[0] == "task", "{line}");
            assert_ne!(words[3], "0", "{line}");
        }
        assert_eq!(value(&text, "task unmap fn_try_to_unmap_one"), 256, "{text}");
        assert_eq!(value(&text, "task unmap set_ptes_pages"), 256, "{text}");
        assert_eq!(value(&text, "task zap ptep_get"), 0, "{text}");
        // Another process's faults do not count; its own start does.
        g.poke(DATA, b"1");
        g.call("write", &[fd, DATA, 1]);
        let parent = g.task;
        g.call("clone", &[17, 0, 0, 0, 0]);
        let forked = g.slurp(EVENTS);
        assert!(value(&forked, "task fork_copy set_ptes_pages") > 0, "{forked}");
        g.kernel.schedule(CpuId::new(0));
        g.task = TaskId(parent.0 + 1);
        let Guest { kernel, regs, outside, .. } = &mut g;
        kernel.return_to_user(
            TaskId(parent.0 + 1),
            regs.get_mut(&TaskId(parent.0 + 1)).expect("child"),
            outside,
        );
        g.poke(at, &[2]);
        assert_eq!(g.slurp(EVENTS), forked);
    }

    pub(super) fn brk_and_mmap_give_memory_that_reads_as_zero<A: Arch>() {
        let mut g = Guest::<A>::new();
        let start = g.call("brk", &[0]);
        let end = start + 0x2345;
        assert_eq!(g.call("brk", &[end.cast_unsigned()]), end);
        assert_eq!(g.peek(start.cast_unsigned(), 0x2345), vec![0; 0x2345]);
        assert_eq!(g.call("brk", &[1]), end);
        let big = g.map(4 << 20);
        assert_eq!(big % (2 << 20), 0);
        assert_eq!(g.call("munmap", &[big, 4 << 20]), 0);
        assert_eq!(g.call("write", &[1, big, 1]), EFAULT);
    }

    pub(super) fn growth_of_the_stack_is_served_and_wild_accesses_are_not<A: Arch>() {
        let mut g = Guest::<A>::new();
        let sp = g.regs().sp;
        let task = g.task;
        let below = VirtAddr::new(sp.get() - (1 << 20));
        let regs = g.regs.get_mut(&task).expect("registers");
        let served = g.kernel.page_fault(task, below, mm::Access::Write, regs);
        assert_eq!(served, Outcome::Resume);
        let far = VirtAddr::new(sp.get() - (64 << 20));
        let wild = g.kernel.page_fault(task, far, mm::Access::Write, regs);
        assert_eq!(wild, Outcome::Exited);
        assert_eq!(g.kernel.exit_status().map(ExitStatus::code), Some(139));
    }
}
