//! `/sys/kernel/mm/ksm`, and what `/proc/<pid>` says of KSM.
//!
//! Source: Linux mm/ksm.c `*_show()`, `*_store()`, fs/proc/base.c `proc_pid_ksm_stat()`.

#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use super::sysfs::{Table, Values, knob};
use super::{PseudoFile, number};
use crate::counts::CountsByScope;
use crate::errno::{EBUSY, EINVAL};
use crate::kernel::Kernel;
use crate::task::{Process, ProcessId};
use arch::Platform;
use mm::{Errno, KsmRun, MmKsm, Switch, VmFlags};
use std::sync::Arc;

const DIR: &str = "/sys/kernel/mm/ksm";

/// Paths and files.
pub(super) fn table<P: Platform>() -> Table<P>
where
    P::Sink: CountsByScope,
{
    let mut table: Table<P> = Vec::new();
    for (name, knob) in KNOBS {
        table.push((format!("{DIR}/{name}"), Arc::new(KnobFile(knob))));
    }
    for (name, stat) in STATS {
        table.push((format!("{DIR}/{name}"), Arc::new(StatFile(stat))));
    }
    // FIDELITY: ksm-advisor — its knobs are remembered, but it sets nothing.
    table.push(knob(format!("{DIR}/advisor_mode"), Values::Words(&["none", "scan-time"]), "none"));
    for (name, boot) in [
        ("advisor_max_cpu", "70"),
        ("advisor_min_pages_to_scan", "500"),
        ("advisor_max_pages_to_scan", "30000"),
        ("advisor_target_scan_time", "200"),
    ] {
        table.push(knob(format!("{DIR}/{name}"), Values::Number, boot));
    }
    table
}

/// A file that can be written.
#[derive(Clone, Copy, Debug)]
enum Knob {
    Run,
    PagesToScan,
    SleepMillisecs,
    MergeAcrossNodes,
    UseZeroPages,
    MaxPageSharing,
    ChainsPruneMillisecs,
    SmartScan,
}

const KNOBS: [(&str, Knob); 8] = [
    ("run", Knob::Run),
    ("pages_to_scan", Knob::PagesToScan),
    ("sleep_millisecs", Knob::SleepMillisecs),
    ("merge_across_nodes", Knob::MergeAcrossNodes),
    ("use_zero_pages", Knob::UseZeroPages),
    ("max_page_sharing", Knob::MaxPageSharing),
    ("stable_node_chains_prune_millisecs", Knob::ChainsPruneMillisecs),
    ("smart_scan", Knob::SmartScan),
];

#[derive(Debug)]
struct KnobFile(Knob);

fn switch(value: u64) -> Result<Switch, Errno> {
    match value {
        0 => Ok(Switch::Off),
        1 => Ok(Switch::On),
        _ => Err(EINVAL),
    }
}

impl<P: Platform> PseudoFile<P> for KnobFile
where
    P::Sink: CountsByScope,
{
    fn mode(&self) -> u32 {
        0o644
    }

    fn read(&self, kernel: &mut Kernel<P>, _: ProcessId) -> Result<Vec<u8>, Errno> {
        let knobs = &kernel.mm.ksm.knobs;
        let value = match self.0 {
            Knob::Run => kernel.mm.ksm.run() as u64,
            Knob::PagesToScan => knobs.pages_to_scan,
            Knob::SleepMillisecs => knobs.sleep_millisecs,
            Knob::MergeAcrossNodes => knobs.merge_across_nodes as u64,
            Knob::UseZeroPages => knobs.use_zero_pages as u64,
            Knob::MaxPageSharing => knobs.max_page_sharing,
            Knob::ChainsPruneMillisecs => knobs.stable_node_chains_prune_millisecs,
            Knob::SmartScan => knobs.smart_scan as u64,
        };
        Ok(format!("{value}\n").into_bytes())
    }

    fn write(&self, kernel: &mut Kernel<P>, _: ProcessId, data: &[u8]) -> Result<(), Errno> {
        let value = number(data).filter(|&n| n <= u64::from(u32::MAX)).ok_or(EINVAL)?;
        let shared = kernel.mm.ksm.stats().pages_shared > 0;
        let knobs = &mut kernel.mm.ksm.knobs;
        match self.0 {
            Knob::Run => {
                let run = KsmRun::new(value).ok_or(EINVAL)?;
                return kernel.mm.ksm_set_run(run);
            }
            Knob::PagesToScan => knobs.pages_to_scan = value,
            Knob::SleepMillisecs => {
                knobs.sleep_millisecs = value;
                kernel.wake_ksmd();
            }
            Knob::MergeAcrossNodes => {
                let value = switch(value)?;
                if knobs.merge_across_nodes != value && shared {
                    return Err(EBUSY);
                }
                knobs.merge_across_nodes = value;
            }
            Knob::UseZeroPages => knobs.use_zero_pages = switch(value)?,
            Knob::MaxPageSharing => return kernel.mm.ksm.set_max_page_sharing(value),
            Knob::ChainsPruneMillisecs => knobs.stable_node_chains_prune_millisecs = value,
            Knob::SmartScan => knobs.smart_scan = switch(value)?,
        }
        Ok(())
    }
}

/// A file that shows a number of the state.
#[derive(Clone, Copy, Debug)]
enum Stat {
    PagesShared,
    PagesSharing,
    PagesUnshared,
    PagesVolatile,
    PagesSkipped,
    PagesScanned,
    FullScans,
    ZeroPages,
    StableNodeChains,
    StableNodeDups,
    GeneralProfit,
}

const STATS: [(&str, Stat); 11] = [
    ("pages_shared", Stat::PagesShared),
    ("pages_sharing", Stat::PagesSharing),
    ("pages_unshared", Stat::PagesUnshared),
    ("pages_volatile", Stat::PagesVolatile),
    ("pages_skipped", Stat::PagesSkipped),
    ("pages_scanned", Stat::PagesScanned),
    ("full_scans", Stat::FullScans),
    ("ksm_zero_pages", Stat::ZeroPages),
    ("stable_node_chains", Stat::StableNodeChains),
    ("stable_node_dups", Stat::StableNodeDups),
    ("general_profit", Stat::GeneralProfit),
];

#[derive(Debug)]
struct StatFile(Stat);

impl<P: Platform> PseudoFile<P> for StatFile {
    fn read(&self, kernel: &mut Kernel<P>, _: ProcessId) -> Result<Vec<u8>, Errno> {
        let stats = kernel.mm.ksm.stats();
        let value = match self.0 {
            Stat::PagesShared => stats.pages_shared,
            Stat::PagesSharing => stats.pages_sharing,
            Stat::PagesUnshared => stats.pages_unshared,
            Stat::PagesVolatile => stats.pages_volatile(),
            Stat::PagesSkipped => stats.pages_skipped,
            Stat::PagesScanned => stats.pages_scanned,
            Stat::FullScans => stats.full_scans,
            Stat::ZeroPages => stats.zero_pages,
            Stat::StableNodeChains => stats.stable_node_chains,
            Stat::StableNodeDups => stats.stable_node_dups,
            Stat::GeneralProfit => {
                return Ok(format!("{}\n", stats.general_profit()).into_bytes());
            }
        };
        Ok(format!("{value}\n").into_bytes())
    }
}

fn state<P: Platform>(kernel: &Kernel<P>, process: &Process) -> MmKsm {
    process.mm.map_or_else(MmKsm::default, |mm| kernel.mm.mm_struct(mm).ksm)
}

/// `/proc/<pid>/ksm_merging_pages`
pub(super) fn merging_pages<P: Platform>(kernel: &Kernel<P>, process: &Process) -> String {
    format!("{}\n", state(kernel, process).merging_pages)
}

/// `/proc/<pid>/ksm_stat`
pub(super) fn stat<P: Platform>(kernel: &Kernel<P>, process: &Process) -> String {
    let ksm = state(kernel, process);
    let yes_or_no = |yes| if yes { "yes" } else { "no" };
    let mergeable = process
        .mm
        .is_some_and(|mm| kernel.mm.vmas(mm).any(|vma| vma.flags.contains(VmFlags::MERGEABLE)));
    format!(
        "ksm_rmap_items {}\nksm_zero_pages {}\nksm_merging_pages {}\nksm_process_profit {}\n\
         ksm_merge_any: {}\nksm_mergeable: {}\n",
        ksm.rmap_items,
        ksm.zero_pages,
        ksm.merging_pages,
        ksm.profit(),
        yes_or_no(ksm.merge_any),
        yes_or_no(mergeable),
    )
}
