//! KSM as programs see it: its files, prctl, and `ksmd` between their turns.

use super::*;

on_both! {
    equal_pages_merge_in_time_and_the_files_say_so
    knobs_take_what_linux_takes
    a_process_can_ask_for_everything_to_be_merged
    ksmd_sleeps_between_batches
}

const DIR: &str = "/sys/kernel/mm/ksm";
const MERGEABLE: u64 = 12;
const UNMERGEABLE: u64 = 13;
const PAGES: u64 = 8;
const MS: u64 = 1_000_000;

mod check {
    use super::*;

    /// Pages of the same contents.
    fn region<A: Arch>(g: &mut Guest<A>) -> u64 {
        let at = g.map(PAGES * 4096);
        for page in 0..PAGES {
            g.poke(at + page * 4096, b"same");
        }
        at
    }

    fn value<A: Arch>(g: &mut Guest<A>, name: &str) -> u64 {
        g.slurp(&format!("{DIR}/{name}")).trim().parse().expect("a number")
    }

    fn set<A: Arch>(g: &mut Guest<A>, name: &str, value: &str) -> i64 {
        g.spew(&format!("{DIR}/{name}"), value)
    }

    fn ksmd<A: Arch>(g: &mut Guest<A>) -> u64 {
        g.kernel.run_ksmd(&mut g.outside)
    }

    pub(super) fn equal_pages_merge_in_time_and_the_files_say_so<A: Arch>() {
        let mut g = Guest::<A>::new();
        let at = region(&mut g);
        assert_eq!(g.call("madvise", &[at, PAGES * 4096, MERGEABLE]), 0);
        assert_eq!(ksmd(&mut g), 0, "it was not started");
        assert!(set(&mut g, "run", "1") > 0);
        for _ in 0..4 {
            ksmd(&mut g);
            g.outside.now_ns += 20 * MS;
        }
        assert!(value(&mut g, "full_scans") >= 2);
        assert_eq!((value(&mut g, "pages_shared"), value(&mut g, "pages_sharing")), (1, PAGES - 1));
        assert_eq!(g.slurp("/proc/self/ksm_merging_pages"), format!("{PAGES}\n"));
        let profit = PAGES * 4096 - PAGES * 64;
        let stat = format!(
            "ksm_rmap_items {PAGES}\nksm_zero_pages 0\nksm_merging_pages {PAGES}\n\
             ksm_process_profit {profit}\nksm_merge_any: no\nksm_mergeable: yes\n"
        );
        assert_eq!(g.slurp("/proc/self/ksm_stat"), stat);
        assert!(g.slurp("/proc/self/smaps").contains("KSM:                  32 kB"));
        assert_eq!(g.call("madvise", &[at, PAGES * 4096, UNMERGEABLE]), 0);
        assert_eq!(g.slurp("/proc/self/ksm_stat").matches(": no").count(), 2);
        assert_eq!(g.peek(at + 4096, 4), b"same");
        assert!(g.slurp("/proc/vmstat").contains(&format!("cow_ksm {PAGES}\n")));
    }

    pub(super) fn knobs_take_what_linux_takes<A: Arch>() {
        let mut g = Guest::<A>::new();
        for (name, boot, bad) in [
            ("run", 0, "3"),
            ("pages_to_scan", 100, "many"),
            ("sleep_millisecs", 20, "-1"),
            ("merge_across_nodes", 1, "2"),
            ("use_zero_pages", 0, "2"),
            ("max_page_sharing", 256, "1"),
            ("stable_node_chains_prune_millisecs", 2000, "soon"),
            ("smart_scan", 1, "5"),
        ] {
            assert_eq!(value(&mut g, name), boot, "{name}");
            assert_eq!(set(&mut g, name, bad), EINVAL, "{name}");
            assert_eq!(value(&mut g, name), boot, "{name}");
        }
        assert!(set(&mut g, "pages_to_scan", "7\n") > 0);
        assert_eq!(value(&mut g, "pages_to_scan"), 7);
        assert!(g.slurp(&format!("{DIR}/advisor_mode")).contains("[none]"));
        assert_eq!(g.slurp(&format!("{DIR}/general_profit")), "0\n");
    }

    pub(super) fn a_process_can_ask_for_everything_to_be_merged<A: Arch>() {
        let mut g = Guest::<A>::new();
        assert_eq!(g.call("prctl", &[68, 0, 0, 0, 0]), 0);
        assert_eq!(g.call("prctl", &[67, 1, 1, 0, 0]), EINVAL);
        assert_eq!(g.call("prctl", &[67, 1, 0, 0, 0]), 0);
        assert_eq!(g.call("prctl", &[68, 0, 0, 0, 0]), 1);
        region(&mut g);
        assert!(g.slurp("/proc/self/ksm_stat").contains("ksm_merge_any: yes\n"));
        set(&mut g, "run", "1");
        for _ in 0..4 {
            g.outside.now_ns += 20 * MS;
            ksmd(&mut g);
        }
        assert!(value(&mut g, "pages_sharing") >= PAGES - 1, "{:?}", g.kernel.mm.ksm.stats());
        assert_eq!(g.call("prctl", &[67, 0, 0, 0, 0]), 0);
        // Every page has its copy; ksmd finds out when it comes by.
        assert!(g.slurp("/proc/vmstat").contains(&format!("cow_ksm {PAGES}\n")));
        g.outside.now_ns += 20 * MS;
        ksmd(&mut g);
        assert_eq!(g.slurp("/proc/self/ksm_merging_pages"), "0\n");
    }

    pub(super) fn ksmd_sleeps_between_batches<A: Arch>() {
        let mut g = Guest::<A>::new();
        let at = region(&mut g);
        g.call("madvise", &[at, PAGES * 4096, MERGEABLE]);
        set(&mut g, "pages_to_scan", "3");
        set(&mut g, "run", "1");
        assert_eq!(ksmd(&mut g), 3);
        assert_eq!(ksmd(&mut g), 0, "it sleeps");
        assert_eq!(g.kernel.ksmd_wakes_ns(), Some(20 * MS));
        g.outside.now_ns = 20 * MS;
        assert_eq!(ksmd(&mut g), 3);
        // A new interval ends the sleep; without one, ksmd goes on for a turn.
        set(&mut g, "sleep_millisecs", "0");
        assert!(ksmd(&mut g) >= 2048);
        set(&mut g, "run", "0");
        assert_eq!((ksmd(&mut g), g.kernel.ksmd_wakes_ns()), (0, None));
    }
}
