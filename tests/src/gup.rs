//! The phases of gup_test as calls of `mm`: maps a region, touches it, and tries GUP on it.
//!
//! Source: `guest-programs/gup_test`, Linux tools/testing/selftests/mm/gup_test.c.

use crate::direct::{Phase, hw, kernel_config, thp};
use crate::groundtruth::{ArchName, Counts, Run};
use crate::guest::{Guest, pages};
use arch::{Arch, Arm64, X86_64};
use events::{Counters, Scope};
use mm::{Foll, GupTest, GupTestCommand, MapFlags, VmProt, advice};
use std::collections::BTreeMap;
use units::{PMD_SIZE, VirtAddr};

const MIB: u64 = 1 << 20;
/// Where the region goes, up to the offset in 2 MiB that the record gives.
const BASE: VirtAddr = VirtAddr::new(0x7f00_0000_0000);

/// Counts by scope.
pub type ByScope = BTreeMap<Scope, Counters>;

/// What the command line of gup_test asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The function to try.
    pub command: GupTestCommand,
    /// Size of the region.
    pub mib: u64,
    /// Pages per call.
    pub per_call: u64,
    /// How often.
    pub repeats: u64,
    /// Whether for writing.
    pub write: bool,
    /// Advice on huge pages, if any.
    pub advice: Option<i32>,
}

impl Options {
    /// Reads a command line; `None` for an option that is not known here.
    pub fn parse(args: &[String]) -> Option<Options> {
        let mut options = Options {
            command: GupTestCommand::GupFast,
            mib: 128,
            per_call: 1,
            repeats: 1,
            write: true,
            advice: None,
        };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "-L" => options.command = GupTestCommand::PinLongterm,
                "-u" => options.command = GupTestCommand::GupFast,
                "-U" => options.command = GupTestCommand::Gup,
                "-a" => options.command = GupTestCommand::PinFast,
                "-b" => options.command = GupTestCommand::Pin,
                "-w" => options.write = true,
                "-W" => options.write = false,
                "-t" => options.advice = Some(advice::HUGEPAGE),
                "-T" => options.advice = Some(advice::NOHUGEPAGE),
                "-m" => options.mib = args.next()?.parse().ok()?,
                "-n" => options.per_call = args.next()?.parse().ok()?,
                "-r" => options.repeats = args.next()?.parse().ok()?,
                _ => return None,
            }
        }
        Some(options)
    }

    /// The request for a region at `addr`.
    pub fn request(&self, addr: VirtAddr) -> GupTest {
        GupTest {
            command: self.command,
            addr,
            size: self.mib * MIB,
            nr_pages_per_call: self.per_call,
            flags: if self.write { Foll::WRITE } else { Foll::empty() },
        }
    }
}

/// Maps the region at `offset` into a 2 MiB block and writes to each of its pages.
///
/// # Panics
/// If there is no room.
pub fn region<A: Arch>(guest: &mut Guest<A>, options: &Options, offset: u64) -> VirtAddr {
    assert!(offset < PMD_SIZE);
    let (at, len) = (BASE.wrapping_add(offset), options.mib * MIB);
    let prot = VmProt::READ | VmProt::WRITE;
    guest.mmap(at, len, prot, MapFlags::FIXED).expect("address space");
    if let Some(advice) = options.advice {
        guest.mm.madvise(guest.id, at, len, advice).expect("advice is taken");
    }
    for va in pages(at, len) {
        guest.store(va, 1).expect("the region is writable");
    }
    at
}

/// What getting and putting back counted.
///
/// # Panics
/// If not every page could be had.
pub fn iteration<A: Arch>(
    guest: &mut Guest<A>,
    options: &Options,
    at: VirtAddr,
) -> (ByScope, ByScope) {
    let start = guest.counts();
    let held = guest.mm.gup_test_get(guest.id, &options.request(at)).expect("a good request");
    assert_eq!(held.size, options.mib * MIB, "every page is there");
    let middle = guest.counts();
    guest.mm.gup_test_put(held);
    let end = guest.counts();
    guest.assert_valid("gup_test");
    (since(&middle, &start), since(&end, &middle))
}

fn since(now: &ByScope, before: &ByScope) -> ByScope {
    now.iter()
        .map(|(&scope, now)| match before.get(&scope) {
            Some(before) => (scope, now.since(before)),
            None => (scope, now.clone()),
        })
        .collect()
}

fn phases<A: Arch>(run: &Run, options: &Options, offset: u64) -> Vec<Phase> {
    let ram = (2 * options.mib + 64) * MIB;
    let mut guest = Guest::<A>::new(kernel_config(run), hw(run), thp(run), ram, 0);
    let at = region(&mut guest, options, offset);
    (0..options.repeats)
        .map(|i| {
            let (get, put) = iteration(&mut guest, options, at);
            let mut counts = Counts::new();
            for (scope, counters) in get.iter().chain(&put) {
                for (event, n) in counters.nonzero() {
                    let key = (scope.name().to_owned(), event.name().to_owned());
                    *counts.entry(key).or_default() += n;
                }
            }
            Phase { name: format!("gup_iter{i}"), counts }
        })
        .collect()
}

/// Runs the phases of a record; `None` for options that are not known here.
pub fn run(run: &Run) -> Option<Vec<Phase>> {
    let options = Options::parse(&run.args)?;
    let offset = run.addr_mod_2m;
    Some(match run.arch {
        ArchName::Arm64 => phases::<Arm64>(run, &options, offset),
        ArchName::X86 => phases::<X86_64>(run, &options, offset),
    })
}
