//! The phases of ksm_tests as calls of `mm`: fill a mapping, have it merged, unmerge it.
//!
//! Source: Linux tools/testing/selftests/mm/ksm_tests.c `ksm_unmerge_time()`.

use crate::direct::{Phase, hw, kernel_config, thp};
use crate::groundtruth::{ArchName, Counts, KSM_MERGE, Run, is_merging};
use crate::guest::{CPU, Guest};
use arch::{Arch, Arm64, X86_64};
use events::{Counters, Scope, Sink};
use mm::{KsmRun, MapFlags, VmProt, advice};
use std::collections::BTreeMap;
use units::{CpuId, VirtAddr};

const MIB: u64 = 1 << 20;
/// Where the region goes: aligned to its page tables.
const BASE: VirtAddr = VirtAddr::new(0x7f00_0000_0000);
/// Where `ksmd` runs: not where the program does.
const KSMD: CpuId = CpuId::new(0);

/// Counts by scope.
pub type ByScope = BTreeMap<Scope, Counters>;

/// Maps a region of `mib` MiB, filled with asterisks, and lets it be merged.
///
/// # Panics
/// If there is no room.
pub fn region<A: Arch>(guest: &mut Guest<A>, mib: u64) -> VirtAddr {
    let prot = VmProt::READ | VmProt::WRITE;
    guest.mmap(BASE, mib * MIB, prot, MapFlags::FIXED).expect("address space");
    guest.memset(BASE, mib * MIB, b'*');
    guest.mm.madvise(guest.id, BASE, mib * MIB, advice::MERGEABLE).expect("advice is taken");
    BASE
}

/// `ksmd` scans everything `scans` times. Returns what that counted.
///
/// # Panics
/// If it cannot run.
pub fn scan<A: Arch>(guest: &mut Guest<A>, scans: u64) -> ByScope {
    let before = guest.counts();
    guest.mm.ksm_set_run(KsmRun::Merge).expect("ksmd starts");
    let until = guest.mm.ksm.stats().full_scans + scans;
    guest.mm.pt.cpu = KSMD;
    guest.mm.pt.sink.begin("ksmd");
    while guest.mm.ksm.stats().full_scans < until && guest.mm.ksm.should_run() {
        guest.mm.ksm_do_scan(100, 0);
    }
    guest.mm.pt.sink.end();
    guest.mm.pt.cpu = CPU;
    guest.assert_valid("after a scan");
    since(&guest.counts(), &before)
}

/// Unmerges `mib` MiB. Returns what that counted.
///
/// # Panics
/// If there is no room for copies.
pub fn unmerge<A: Arch>(guest: &mut Guest<A>, at: VirtAddr, mib: u64) -> ByScope {
    let before = guest.counts();
    guest.mm.madvise(guest.id, at, mib * MIB, advice::UNMERGEABLE).expect("room for copies");
    guest.assert_valid("after unmerging");
    since(&guest.counts(), &before)
}

/// The counts of `now` that `before` does not have.
pub fn since(now: &ByScope, before: &ByScope) -> ByScope {
    now.iter()
        .map(|(&scope, now)| match before.get(&scope) {
            Some(before) => (scope, now.since(before)),
            None => (scope, now.clone()),
        })
        .collect()
}

fn phase(name: &str, by_scope: &ByScope) -> Phase {
    let mut counts = Counts::new();
    for (scope, counters) in by_scope {
        for (event, n) in counters.nonzero() {
            counts.insert((scope.name().to_owned(), event.name().to_owned()), n);
        }
    }
    Phase { name: name.to_owned(), counts }
}

fn phases<A: Arch>(run: &Run, mib: u64) -> Vec<Phase> {
    let ram = (2 * mib + 64) * MIB;
    let mut guest = Guest::<A>::new(kernel_config(run), hw(run), thp(run), ram, 0);
    let at = region(&mut guest, mib);
    // Large folios: the page that met its own folio in the unstable tree waits for the third.
    let merged = scan(&mut guest, 3);
    let unmerged = unmerge(&mut guest, at, mib);
    let mut merge = phase(KSM_MERGE, &merged);
    merge.counts.retain(|(scope, event), _| is_merging(scope, event));
    vec![merge, phase("ksm_unmerge", &unmerged)]
}

/// Runs the phases of a record; `None` for options that are not known here.
pub fn run(run: &Run) -> Option<Vec<Phase>> {
    let size = run.args.iter().position(|arg| arg == "-s")?;
    let mib = run.args.get(size + 1)?.parse().ok()?;
    Some(match run.arch {
        ArchName::Arm64 => phases::<Arm64>(run, mib),
        ArchName::X86 => phases::<X86_64>(run, mib),
    })
}
