//! The one table of differences that belong to how the ground truth was measured, and not to
//! Linux. Each entry recognises exactly the differences that its reason causes.

use crate::compare::{Difference, is_restart};
use crate::direct::is_of_first_batch;
use crate::groundtruth::{ArchName, KSM_MERGE, Kernel, Run};

/// Which machinery ran the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunnerKind {
    /// Calls of `mm` ([`crate::direct::Direct`]).
    Direct,
    /// The program of `guest-programs/probe` on emulated CPUs.
    Guest,
    /// The program that was measured, built from its source, on emulated CPUs.
    Original,
}

/// What an excuse looks at.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// Who ran.
    pub runner: RunnerKind,
    /// What was run.
    pub run: &'a Run,
    /// The phase.
    pub phase: &'a str,
}

/// A property of the measuring set-up that shows in counts.
#[derive(Debug)]
pub struct Excuse {
    /// A short name.
    pub id: &'static str,
    /// Why counts differ.
    pub reason: &'static str,
    /// Returns the differences that the reason does not explain.
    remaining: fn(&Context<'_>, &[Difference]) -> Vec<Difference>,
}

/// The table.
pub const EXCUSES: &[Excuse] = &[
    Excuse {
        id: "khugepaged-collapse",
        reason: "khugepaged collapsed k PMDs between refault and munmap, in one repeat of a 2M \
                 run (README, \"Not done / limits\"): k leaves are zapped for 512·k PTEs",
        remaining: khugepaged_collapse,
    },
    Excuse {
        id: "khugepaged-retreat",
        reason: "7.3's khugepaged, awake in the arm64 pageout runs, cleared a PMD for a moment \
                 and restored it: the program took a spurious write fault there (README, \
                 \"Configuration differences\")",
        remaining: khugepaged_retreat,
    },
    Excuse {
        id: "fold-attempt",
        reason: "whether __contpte_try_fold() is attempted for order-0 folios depends on the \
                 physical addresses that the page allocator happened to have (README, \
                 \"Determinism\")",
        remaining: fold_attempt,
    },
    Excuse {
        id: "resched-functions",
        reason: "a restart of a scan loop also enters the functions at the loop's head once \
                 more (README, \"Determinism\")",
        remaining: resched_functions,
    },
    Excuse {
        id: "variant-functions",
        reason: "the measured batched unmap is code of its own, which reaches the swap map and \
                 the TLB batch without the functions that the posted series extends",
        remaining: variant_functions,
    },
    Excuse {
        id: "first-batch",
        reason: "the first measurements (6.12, Cortex-A72, 64 MiB) ran in a child forked \
                 without exec from a process with batched unmaps pending (one more flush_tlb_mm, \
                 one copied page), with an earlier program that wrote everything in \
                 write_after_refault",
        remaining: first_batch,
    },
    Excuse {
        id: "image",
        reason: "exit_child includes the process's own image: code, libc, stack, vdso and vvar \
                 pages, which depend on the binary, its environment and how the child got there \
                 (guest-programs/probe, \"exit_child\")",
        remaining: image,
    },
    Excuse {
        id: "forked-image",
        reason: "a fork copies the program's own image too, two buffers of 1 MiB in it (probe/ev.c), \
                 and parent, child and siblings race for the pages that all write first (README, \
                 \"Determinism\")",
        remaining: forked_image,
    },
    Excuse {
        id: "sibling-off",
        reason: "a sibling that the host or the scheduler had just taken off its CPU gets no interrupt \
                 (README, \"Determinism\": \"2000 instead of 2050 once\")",
        remaining: sibling_off,
    },
    Excuse {
        id: "ksm-other-cpu",
        reason: "while ksmd merges, the program that waits for it is not always on a CPU, or is on \
                 ksmd's own: on x86-64 no interrupt is due then, and a page of a folio that is \
                 split may be flushed at once",
        remaining: ksm_other_cpu,
    },
    Excuse {
        id: "ksm-last-page",
        reason: "the page that met its own folio in the unstable tree is merged in the third scan; \
                 on x86-64 6.12 the measurement ended just there",
        remaining: ksm_last_page,
    },
    Excuse {
        id: "slot-cache",
        reason: "6.12 refills the CPU's cache of 64 swap slots when earlier programs have used \
                 it up",
        remaining: slot_cache,
    },
    Excuse {
        id: "globals-page",
        reason: "in the x86-64 binary that was measured, the sum of touchr() was the first store \
                 to its page; the linker of a later build puts it beside others",
        remaining: globals_page,
    },
];

/// What the last process of a run leaves behind beside the region: reads of entries and the rest.
const IMAGE_READS: i64 = 1200;
const IMAGE_PAGES: i64 = 128;

/// `exit_child` tears down the image; what is left of the region is compared by
/// `exit_differs_by_the_image_alone`.
fn image(context: &Context<'_>, found: &[Difference]) -> Vec<Difference> {
    if context.phase != "exit_child" {
        return found.to_vec();
    }
    without(found, |d| {
        let limit = match d.event.as_str() {
            "pte_read" | "ptep_get" => IMAGE_READS,
            _ => IMAGE_PAGES,
        };
        let scope = matches!(d.scope.as_str(), "zap" | "exit_mmap" | "fault" | "none");
        scope && delta(d).abs() <= limit
    })
}

/// Pages of the measured program's image that a fork copies: 512 of the buffers and a few more;
/// reads of their entries, of empty ones between them, and of what setters look at.
const FORKED_PAGES: i64 = 540;
const FORKED_READS: i64 = 3 * FORKED_PAGES + 100;
/// The top of a sibling's stack lies in a page table of its own, each entry of which is looked at.
const STACK_READS: i64 = 512;
/// Faults in the window: of the parent on its stack; with siblings also of each on its own and on
/// the page where all count.
const FAULTS: u64 = 1;
const FAULTS_WITH_SIBLINGS: u64 = 8;

/// What of a fork belongs to the region is compared by `forks_differ_by_the_image_alone`.
fn forked_image(context: &Context<'_>, found: &[Difference]) -> Vec<Difference> {
    if !matches!(context.phase, "fork" | "fork_on_swap_ptes") {
        return found.to_vec();
    }
    let siblings = context.run.spinners;
    // Our guest's page, and those of siblings, lie in folded blocks where 64K folios are enabled:
    // they are unfolded first.
    let folded =
        context.run.folio_kib == 64 && (context.runner == RunnerKind::Guest || siblings > 0);
    let one_fault = if folded { 4 + 2 * 17 } else { 4 };
    let faults = if siblings > 0 { FAULTS_WITH_SIBLINGS } else { FAULTS };
    let reads = FORKED_READS + STACK_READS * siblings.cast_signed();
    without(found, |d| match d.scope.as_str() {
        "fork_copy" if matches!(d.event.as_str(), "pte_read" | "ptep_get") => {
            (0..=reads).contains(&delta(d))
        }
        "fork_copy" => (0..=FORKED_PAGES).contains(&delta(d)),
        // One fault on a page that is copied or, once the child has its own, reused.
        "fault" | "wp_fault" => d.ours.max(d.linux) <= faults * one_fault,
        "anon_fault" => siblings > 0 && d.ours.max(d.linux) <= siblings,
        "none" => {
            let entry = matches!(
                d.event.as_str(),
                "fn_do_page_fault" | "fn_do_user_addr_fault" | "fn_handle_mm_fault"
            );
            entry && delta(d).unsigned_abs() <= faults
        }
        _ => false,
    })
}

fn sibling_off(context: &Context<'_>, found: &[Difference]) -> Vec<Difference> {
    let siblings = context.run.spinners > 0;
    without(found, |d| {
        let call = matches!(d.event.as_str(), "csd_queued_cpu" | "ipi_call_cpu");
        siblings && call && d.linux < d.ours
    })
}

fn slot_cache(context: &Context<'_>, found: &[Difference]) -> Vec<Difference> {
    let refills = context.run.kernel == Kernel::V6_12;
    without(found, |d| refills && d.event == "fn_get_swap_pages" && delta(d).abs() == 1)
}

/// One write to the zero page, on x86-64.
fn globals_page(context: &Context<'_>, found: &[Difference]) -> Vec<Difference> {
    let phase = matches!(context.phase, "touch_read_after_cold" | "refault_read" | "read_ro");
    let here = context.run.arch == ArchName::X86 && context.runner == RunnerKind::Original;
    if !(phase && here) {
        return found.to_vec();
    }
    multiples(found, 1, |d| {
        Some(match (d.scope.as_str(), d.event.as_str()) {
            ("fault" | "wp_fault", "pte_read" | "ptep_get") => 2,
            ("fault", "ptep_get_lockless" | "fn_handle_pte_fault")
            | ("none", "fn_do_user_addr_fault" | "fn_handle_mm_fault")
            | (
                "wp_fault",
                "flush_tlb_func_partial"
                | "invlpg"
                | "pte_write"
                | "pte_xchg"
                | "ptep_get_and_clear"
                | "set_ptes"
                | "set_ptes_nr1"
                | "set_ptes_pages"
                | "fn_do_wp_page"
                | "fn_flush_tlb_func"
                | "fn_flush_tlb_mm_range"
                | "fn_folio_add_new_anon_rmap"
                | "fn_native_flush_tlb_one_user"
                | "fn_ptep_clear_flush"
                | "fn_wp_page_copy",
            ) => 1,
            _ => return None,
        })
    })
}

/// The differences that no excuse explains, and the ids of those that explained some.
pub fn unexplained(
    context: &Context<'_>,
    found: Vec<Difference>,
) -> (Vec<Difference>, Vec<&'static str>) {
    let mut left = found;
    let mut used = Vec::new();
    for excuse in EXCUSES {
        let rest = (excuse.remaining)(context, &left);
        if rest.len() < left.len() {
            used.push(excuse.id);
        }
        left = rest;
    }
    if is_restart(&left) {
        left.clear();
    }
    (left, used)
}

fn delta(d: &Difference) -> i64 {
    d.linux.cast_signed() - d.ours.cast_signed()
}

fn find<'a>(found: &'a [Difference], scope: &str, event: &str) -> Option<&'a Difference> {
    found.iter().find(|d| d.scope == scope && d.event == event)
}

/// Extra looks at an entry that a restart may cause.
fn slack(event: &str) -> i64 {
    match event {
        "ptep_get" | "fn_flush_tlb_batched_pending" | "fn_contpte_ptep_get" => 4,
        "pte_read" => 72,
        _ => 0,
    }
}

/// All or nothing: `found` must consist of `unit` times what `per_unit` says for each event.
fn multiples(
    found: &[Difference],
    units: i64,
    per_unit: impl Fn(&Difference) -> Option<i64>,
) -> Vec<Difference> {
    let fits = |d: &Difference| {
        per_unit(d).is_some_and(|per| (0..=slack(&d.event)).contains(&(delta(d) - units * per)))
    };
    if units > 0 && found.iter().all(fits) { Vec::new() } else { found.to_vec() }
}

fn khugepaged_collapse(context: &Context<'_>, found: &[Difference]) -> Vec<Difference> {
    let leaves = find(found, "zap", "pmd_xchg").or_else(|| find(found, "zap", "fn_zap_huge_pmd"));
    let (Some(leaves), 2048, "munmap_after") = (leaves, context.run.folio_kib, context.phase)
    else {
        return found.to_vec();
    };
    // x86-64 reads an entry once; arm64's setters look at it again.
    let reads = if context.run.arch == ArchName::X86 { 512 } else { 1024 };
    multiples(found, delta(leaves), |d| {
        Some(match (d.scope.as_str(), d.event.as_str()) {
            ("zap", "pmd_xchg" | "fn_zap_huge_pmd" | "fn_folio_remove_rmap_pmd") => 1,
            ("zap", "pte_read") => -reads,
            (
                "zap",
                "clear_full_ptes"
                | "clear_full_ptes_pages"
                | "pte_xchg"
                | "ptep_get"
                | "ptep_get_and_clear"
                | "fn_folio_remove_rmap_ptes"
                | "fn_folio_remove_rmap_ptes_pages"
                | "fn_zap_present_ptes"
                | "fn_zap_present_folio_ptes",
            ) => -512,
            ("zap", "fn_flush_tlb_batched_pending") => -1,
            // The tables of collapsed PMDs are not there to be freed.
            ("none", "pmd_write" | "tlbi_vae1is") => -1,
            ("none", "flush_range_pages") => -512,
            _ => return None,
        })
    })
}

fn khugepaged_retreat(context: &Context<'_>, found: &[Difference]) -> Vec<Difference> {
    let run = context.run;
    let awake = (run.kernel, run.arch) == (Kernel::V7_3, ArchName::Arm64) && run.folio_kib > 4;
    let phase = matches!(
        context.phase,
        "refault_write"
            | "write_after_refault"
            | "read_after_child_exit"
            | "write_after_child_exit"
            | "write_again"
    );
    let faults = find(found, "fault", "ptep_set_access_flags")
        .or_else(|| find(found, "fault", "fn_handle_pte_fault"));
    let (Some(faults), true, true) = (faults, awake, phase) else { return found.to_vec() };
    let n = delta(faults);
    if n > 4 {
        return found.to_vec();
    }
    // Folded: lockless look 4, look under the lock 3, wrapper 1, comparison 16. Else one each,
    // and one of the entry itself.
    let reads = match find(found, "fault", "pte_read") {
        Some(d) if delta(d) == 4 * n => 4,
        _ => 24,
    };
    multiples(found, n, |d| {
        Some(match (d.scope.as_str(), d.event.as_str()) {
            ("fault", "pte_read") => reads,
            (
                "fault",
                "ptep_get"
                | "ptep_get_lockless"
                | "ptep_set_access_flags"
                | "dsb_nsh"
                | "dsb_nshst"
                | "flush_range_local"
                | "flush_range_pages"
                | "tlbi_vale1"
                | "fn_handle_pte_fault"
                | "fn___do_flush_tlb_range"
                | "fn___flush_tlb_page"
                | "fn___ptep_set_access_flags_anysz"
                | "fn_contpte_all_subptes_match_access_flags"
                | "fn_contpte_ptep_get"
                | "fn_contpte_ptep_get_lockless"
                | "fn_contpte_ptep_set_access_flags",
            )
            | ("none", "fn_do_page_fault" | "fn_handle_mm_fault") => 1,
            _ => return None,
        })
    })
}

fn without(found: &[Difference], drop: impl Fn(&Difference) -> bool) -> Vec<Difference> {
    found.iter().filter(|d| !drop(d)).cloned().collect()
}

fn ksm_other_cpu(context: &Context<'_>, found: &[Difference]) -> Vec<Difference> {
    if context.phase != KSM_MERGE || context.run.arch != ArchName::X86 {
        return found.to_vec();
    }
    without(found, |d| match d.event.as_str() {
        _ if d.scope == "migrate" => delta(d).abs() <= 2 && !d.event.starts_with("pte"),
        "csd_queued_cpu" | "ipi_call_cpu" => delta(d) < 0,
        "fn_native_flush_tlb_multi" | "fn_smp_call_function_many_cond" => delta(d) < 0,
        _ => false,
    })
}

fn ksm_last_page(context: &Context<'_>, found: &[Difference]) -> Vec<Difference> {
    let run = context.run;
    let there = (run.kernel, run.arch, run.folio_kib) == (Kernel::V6_12, ArchName::X86, 64);
    if context.phase != KSM_MERGE || !there {
        return found.to_vec();
    }
    without(found, |d| {
        let merging = matches!(d.scope.as_str(), "ksm_wrprot" | "ksm_replace");
        merging && (-2..0).contains(&delta(d))
    })
}

fn fold_attempt(context: &Context<'_>, found: &[Difference]) -> Vec<Difference> {
    // 2M folios come back from swap as single pages.
    let single = matches!(context.run.folio_kib, 4 | 2048);
    // Copies, and the image that a fork finds, are single pages, whatever is enabled.
    let forked = matches!(context.phase, "fork" | "fork_on_swap_ptes");
    without(found, |d| {
        let image = forked && d.scope == "fork_copy" && delta(d).abs() <= 4;
        (single || image || d.scope == "wp_fault") && d.event == "fn___contpte_try_fold"
    })
}

fn resched_functions(_: &Context<'_>, found: &[Difference]) -> Vec<Difference> {
    without(found, |d| {
        matches!(d.event.as_str(), "fn_flush_tlb_batched_pending" | "fn_contpte_ptep_get")
            && (1..=slack(&d.event)).contains(&delta(d))
    })
}

fn variant_functions(context: &Context<'_>, found: &[Difference]) -> Vec<Difference> {
    let variant = context.run.variant.starts_with("B_batched_unmap");
    without(found, |d| {
        let function = match context.run.kernel {
            Kernel::V6_12 => matches!(
                d.event.as_str(),
                "fn_swap_duplicate"
                    | "fn_set_tlb_ubc_flush_pending"
                    | "fn_arch_tlbbatch_add_pending"
            ),
            Kernel::V7_3 => d.event == "fn_folio_dup_swap",
        };
        variant && function && d.scope == "unmap" && d.linux == 0
    })
}

fn first_batch(context: &Context<'_>, found: &[Difference]) -> Vec<Difference> {
    // The direct runner forks as the measurement did.
    if context.runner == RunnerKind::Direct || !is_of_first_batch(context.run) {
        return found.to_vec();
    }
    if context.phase == "write_after_refault" {
        return without(found, |d| d.ours == 0);
    }
    if matches!(context.phase, "touch_read_after_cold" | "refault_read" | "read_ro") {
        return multiples(found, 1, copied_page);
    }
    without(found, |d| {
        let flush = matches!(
            d.event.as_str(),
            "tlbi_aside1is"
                | "dsb_ish"
                | "dsb_ishst"
                | "fn_flush_tlb_mm"
                | "fn_arch_flush_tlb_batched_pending"
        );
        flush && delta(d) == 1
    })
}

/// One write to a page that is shared with a parent, on arm64.
fn copied_page(d: &Difference) -> Option<i64> {
    Some(match (d.scope.as_str(), d.event.as_str()) {
        ("fault", "pte_read") => 2,
        ("wp_fault", "pte_read") => 4,
        ("wp_fault", "ptep_get") => 2,
        ("fault", "ptep_get" | "ptep_get_lockless" | "fn_handle_pte_fault")
        | ("none", "fn_do_page_fault" | "fn_handle_mm_fault")
        | (
            "wp_fault",
            "pte_write"
            | "pte_xchg"
            | "ptep_get_and_clear"
            | "set_ptes"
            | "set_ptes_nr1"
            | "set_ptes_pages"
            | "tlbi_vale1is"
            | "dsb_ish"
            | "dsb_ishst"
            | "fn___flush_tlb_page_nosync"
            | "fn_do_wp_page"
            | "fn_flush_tlb_page"
            | "fn_folio_add_new_anon_rmap"
            | "fn_folio_remove_rmap_ptes"
            | "fn_folio_remove_rmap_ptes_pages"
            | "fn_ptep_clear_flush"
            | "fn_wp_page_copy",
        ) => 1,
        _ => return None,
    })
}
