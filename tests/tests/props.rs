//! Any sequence of operations, against a model that knows nothing of page tables; and laws that
//! need no model: batched or not, folded or not, on either architecture, a program sees the same.

use arch::{Arch, Arm64, Hw, KernelConfig, MmId, Pte, X86_64};
use mm::{Access, Errno, FaultSignal, KsmRun, MapFlags, Switch, Thp, ThpSize, VmProt, advice};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use ptescope_tests::guest::{Guest, Oracle};
use ptescope_tests::ksm;
use std::collections::BTreeMap;
use units::{PAGE_SIZE, VirtAddr};

/// Where processes map things: four page tables and a bit.
const BASE: VirtAddr = VirtAddr::new(0x4000_0000);
const PAGES: u64 = 4 * 512 + 64;
/// Offsets in a page that are read and written.
const PROBES: [u64; 4] = [0, 8, 2056, 4095];
const PROCESSES: usize = 3;

#[derive(Clone, Copy, Debug)]
enum Op {
    Mmap {
        at: u64,
        len: u64,
        prot: u8,
    },
    Munmap {
        at: u64,
        len: u64,
    },
    Mprotect {
        at: u64,
        len: u64,
        prot: u8,
    },
    Madvise {
        at: u64,
        len: u64,
        advice: i32,
    },
    Store {
        at: u64,
        probe: u8,
        byte: u8,
    },
    Load {
        at: u64,
        probe: u8,
    },
    /// A store to each page of a range.
    Fill {
        at: u64,
        len: u64,
        byte: u8,
    },
    Scan {
        at: u64,
        len: u64,
    },
    Fork,
    /// Another process runs.
    Switch {
        to: u8,
    },
    Exit,
    /// Everything mergeable is scanned as often as said.
    Ksmd {
        scans: u8,
    },
    /// `/sys/kernel/mm/ksm/run`.
    KsmRun {
        run: u8,
    },
}

fn prot(code: u8) -> VmProt {
    match code {
        0 => VmProt::empty(),
        1 => VmProt::READ,
        _ => VmProt::READ | VmProt::WRITE,
    }
}

const ADVICES: [i32; 16] = [
    advice::MERGEABLE,
    advice::MERGEABLE,
    advice::UNMERGEABLE,
    advice::PAGEOUT,
    advice::PAGEOUT,
    advice::COLD,
    advice::FREE,
    advice::DONTNEED,
    advice::HUGEPAGE,
    advice::NOHUGEPAGE,
    advice::POPULATE_READ,
    advice::POPULATE_WRITE,
    advice::DONTFORK,
    advice::DOFORK,
    advice::WIPEONFORK,
    advice::KEEPONFORK,
];

fn range() -> impl Strategy<Value = (u64, u64)> {
    let start = prop_oneof![
        2 => (0..PAGES / 512 + 1).prop_map(|i| i * 512),
        2 => (0..PAGES / 16).prop_map(|i| i * 16),
        1 => 0..PAGES,
    ];
    let len = prop_oneof![Just(1u64), 1..40u64, Just(16), Just(64), Just(512), 500..PAGES];
    (start, len).prop_map(|(at, len)| {
        let at = at.min(PAGES - 1);
        (at, len.min(PAGES - at))
    })
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        2 => (range(), 0..8u8).prop_map(|((at, len), prot)| Op::Mmap { at, len, prot }),
        1 => range().prop_map(|(at, len)| Op::Munmap { at, len }),
        2 => (range(), 0..8u8).prop_map(|((at, len), prot)| Op::Mprotect { at, len, prot }),
        6 => (range(), 0..ADVICES.len()).prop_map(|((at, len), i)| {
            Op::Madvise { at, len, advice: ADVICES[i] }
        }),
        4 => (0..PAGES, 0..4u8, 1..=255u8)
            .prop_map(|(at, probe, byte)| Op::Store { at, probe, byte }),
        2 => (0..PAGES, 0..4u8).prop_map(|(at, probe)| Op::Load { at, probe }),
        8 => (range(), 1..=255u8).prop_map(|((at, len), byte)| Op::Fill { at, len, byte }),
        4 => range().prop_map(|(at, len)| Op::Scan { at, len }),
        2 => Just(Op::Fork),
        2 => (0..8u8).prop_map(|to| Op::Switch { to }),
        1 => Just(Op::Exit),
        3 => (1..4u8).prop_map(|scans| Op::Ksmd { scans }),
        1 => (0..3u8).prop_map(|run| Op::KsmRun { run }),
    ]
}

/// Mostly one large mapping at the start, so that there is something to work on.
fn script() -> impl Strategy<Value = Vec<Op>> {
    (prop::collection::vec(op(), 1..60), range()).prop_map(|(mut ops, (at, len))| {
        ops.insert(0, Op::Mmap { at: 0, len: PAGES, prot: 3 });
        ops.insert(1, Op::Fill { at, len, byte: 1 });
        ops
    })
}

/// What the model knows of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Page {
    prot: VmProt,
    bytes: [u8; 4],
    /// Advised MADV_FREE and not written since: may turn into zeroes at any time.
    free: bool,
    dontfork: bool,
    wipeonfork: bool,
}

type Memory = BTreeMap<u64, Page>;

/// What the program sees of one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Nothing,
    Error(Errno),
    Signal(FaultSignal),
    Byte(u8),
    Bytes(Vec<u8>),
}

/// Where each page of each process is, without young and dirty: folding spreads those.
type State = Vec<BTreeMap<u64, (bool, bool, bool)>>;

/// A machine and the model of what its processes may see.
struct Pair<A: Arch> {
    guest: Guest<A>,
    ids: Vec<MmId>,
    memories: Vec<Memory>,
    current: usize,
    free_at_start: u64,
}

fn va(page: u64) -> VirtAddr {
    BASE.wrapping_add(page * PAGE_SIZE)
}

fn probe_of(code: u8) -> usize {
    usize::from(code) % PROBES.len()
}

impl<A: Arch> Pair<A> {
    fn new(setting: &Setting) -> Self {
        let mut kernel = KernelConfig::parse(setting.kernel).expect("a known kernel");
        kernel.contpte = setting.contpte;
        let hw = match A::ID {
            units::ArchId::Arm64 => Hw { hw_access_dirty: setting.hw_dirty, ..Hw::arm64() },
            units::ArchId::X86_64 => Hw::x86_64(),
        };
        let sizes = setting.folios.iter().filter_map(|&kib| Thp::order_of_kib(kib));
        let thp = Thp::only(sizes.map(|order| (order, ThpSize::Always)));
        let mut guest = Guest::new(kernel, Hw { cpus: 2, ..hw }, thp, setting.ram, setting.swap);
        guest.mm.pt.tlb.oracle = Oracle::On;
        // Few sharers, so that there are chains; and zero pages too.
        guest.mm.ksm.set_max_page_sharing(6).expect("nothing is shared yet");
        guest.mm.ksm.knobs.use_zero_pages = Switch::On;
        guest.mm.ksm.knobs.stable_node_chains_prune_millisecs = 0;
        let free_at_start = guest.mm.meminfo().free;
        let ids = vec![guest.id];
        Pair { guest, ids, memories: vec![Memory::new()], current: 0, free_at_start }
    }

    fn memory(&mut self) -> &mut Memory {
        &mut self.memories[self.current]
    }

    /// The four bytes of a page, if it can be read without a fault.
    fn peek(&mut self, page: u64) -> Option<[u8; 4]> {
        let mut bytes = [0; 4];
        for (byte, offset) in bytes.iter_mut().zip(PROBES) {
            let pa = self.guest.translate(va(page).wrapping_add(offset), Access::Read)?;
            *byte = self.guest.mm.pt.ram.slice(pa, 1)[0];
        }
        Some(bytes)
    }

    fn expect_access(&self, page: u64, access: Access) -> Result<(), FaultSignal> {
        match self.memories[self.current].get(&page) {
            None => Err(FaultSignal::SegvMapErr),
            Some(p) => match access {
                Access::Write if !p.prot.contains(VmProt::WRITE) => Err(FaultSignal::SegvAccErr),
                _ if p.prot.is_empty() => Err(FaultSignal::SegvAccErr),
                _ => Ok(()),
            },
        }
    }

    fn load(&mut self, page: u64, probe: usize) -> Result<u8, FaultSignal> {
        let expected = self.expect_access(page, Access::Read);
        let got = self.guest.load(va(page).wrapping_add(PROBES[probe]));
        if got == Err(FaultSignal::OutOfMemory) {
            return got;
        }
        assert_eq!(got.map(|_| ()), expected, "load of page {page}");
        let byte = got?;
        let model = self.memories[self.current].get_mut(&page).expect("mapped");
        if model.free && byte == 0 && model.bytes[probe] != 0 {
            // Discarded: all of it.
            (model.bytes, model.free) = ([0; 4], false);
        }
        assert_eq!(byte, model.bytes[probe], "byte {probe} of page {page}");
        Ok(byte)
    }

    fn store(&mut self, page: u64, probe: usize, byte: u8) -> Result<(), FaultSignal> {
        let expected = self.expect_access(page, Access::Write);
        let got = self.guest.store(va(page).wrapping_add(PROBES[probe]), byte);
        if got == Err(FaultSignal::OutOfMemory) {
            return got;
        }
        assert_eq!(got, expected, "store to page {page}");
        got?;
        let now = self.peek(page).expect("just written");
        let model = self.memories[self.current].get_mut(&page).expect("mapped");
        let (mut kept, mut zeroed) = (model.bytes, [0; 4]);
        (kept[probe], zeroed[probe]) = (byte, byte);
        if model.free && now == zeroed {
            model.bytes = zeroed;
        } else {
            assert_eq!(now, kept, "page {page} after a store");
            model.bytes = kept;
        }
        model.free = false;
        Ok(())
    }

    fn step(&mut self, op: Op) -> Seen {
        match op {
            Op::Mmap { at, len, prot: p } => self.mmap(at, len, prot(p)),
            Op::Munmap { at, len } => {
                let id = self.guest.id;
                self.guest.mm.munmap(id, va(at), len * PAGE_SIZE).expect("a good range");
                self.memory().retain(|&page, _| page < at || page >= at + len);
                Seen::Nothing
            }
            Op::Mprotect { at, len, prot: p } => self.mprotect(at, len, prot(p)),
            Op::Madvise { at, len, advice } => self.madvise(at, len, advice),
            Op::Store { at, probe, byte } => match self.store(at, probe_of(probe), byte) {
                Ok(()) => Seen::Nothing,
                Err(signal) => Seen::Signal(signal),
            },
            Op::Load { at, probe } => match self.load(at, probe_of(probe)) {
                Ok(byte) => Seen::Byte(byte),
                Err(signal) => Seen::Signal(signal),
            },
            Op::Fill { at, len, byte } => {
                for page in at..at + len {
                    if let Err(signal) = self.store(page, 0, byte) {
                        return Seen::Signal(signal);
                    }
                }
                Seen::Nothing
            }
            Op::Scan { at, len } => {
                let mut bytes = Vec::new();
                for page in at..at + len {
                    match self.load(page, 0) {
                        Ok(byte) => bytes.push(byte),
                        Err(signal) => return Seen::Signal(signal),
                    }
                }
                Seen::Bytes(bytes)
            }
            Op::Fork => self.fork(),
            Op::Switch { to } => {
                self.current = usize::from(to) % self.ids.len();
                self.guest.switch_to(self.ids[self.current]);
                Seen::Nothing
            }
            Op::Exit => {
                if self.ids.len() > 1 {
                    self.exit();
                }
                Seen::Nothing
            }
            Op::Ksmd { scans } => {
                let run = self.guest.mm.ksm.run();
                if run != KsmRun::Unmerge {
                    ksm::scan(&mut self.guest, u64::from(scans));
                }
                Seen::Nothing
            }
            Op::KsmRun { run } => {
                let run = KsmRun::new(u64::from(run)).expect("a value that there is");
                seen(self.guest.mm.ksm_set_run(run))
            }
        }
    }

    fn mmap(&mut self, at: u64, len: u64, prot: VmProt) -> Seen {
        let fixed = MapFlags::FIXED;
        self.guest.mmap(va(at), len * PAGE_SIZE, prot, fixed).expect("address space");
        let fresh = Page { prot, bytes: [0; 4], free: false, dontfork: false, wipeonfork: false };
        for page in at..at + len {
            self.memory().insert(page, fresh);
        }
        Seen::Nothing
    }

    fn mprotect(&mut self, at: u64, len: u64, prot: VmProt) -> Seen {
        let id = self.guest.id;
        let got = self.guest.mm.mprotect(id, va(at), len * PAGE_SIZE, prot);
        let mut expected = Ok(());
        for page in at..at + len {
            match self.memory().get_mut(&page) {
                Some(p) => p.prot = prot,
                None => {
                    expected = Err(Errno::ENOMEM);
                    break;
                }
            }
        }
        assert_eq!(got, expected, "mprotect");
        seen(got)
    }

    fn madvise(&mut self, at: u64, len: u64, advice: i32) -> Seen {
        let id = self.guest.id;
        let got = self.guest.mm.madvise(id, va(at), len * PAGE_SIZE, advice);
        let pages = at..at + len;
        let holes = pages.clone().any(|page| !self.memories[self.current].contains_key(&page));
        let expected = match advice {
            advice::POPULATE_READ | advice::POPULATE_WRITE => {
                let needed =
                    if advice == advice::POPULATE_READ { VmProt::READ } else { VmProt::WRITE };
                pages.clone().try_for_each(|page| match self.memories[self.current].get(&page) {
                    None => Err(Errno::ENOMEM),
                    Some(p) if !p.prot.contains(needed) => Err(Errno::EFAULT),
                    Some(_) => Ok(()),
                })
            }
            _ if holes => Err(Errno::ENOMEM),
            _ => Ok(()),
        };
        let populate = matches!(advice, advice::POPULATE_READ | advice::POPULATE_WRITE);
        // Copies of merged pages need room.
        let copies = advice == advice::UNMERGEABLE;
        if !((populate || copies) && got == Err(Errno::ENOMEM)) {
            assert_eq!(got, expected, "madvise({advice})");
        }
        for page in pages {
            let Some(p) = self.memory().get_mut(&page) else { continue };
            match advice {
                advice::DONTNEED => (p.bytes, p.free) = ([0; 4], false),
                advice::FREE => p.free = true,
                advice::DONTFORK => p.dontfork = true,
                advice::DOFORK => p.dontfork = false,
                advice::WIPEONFORK => p.wipeonfork = true,
                advice::KEEPONFORK => p.wipeonfork = false,
                _ => {}
            }
            if advice == advice::POPULATE_WRITE && p.prot.contains(VmProt::WRITE) && p.free {
                // Written to, as far as the kernel is concerned, or not: it may stay either way.
                p.free = true;
            }
        }
        seen(got)
    }

    fn fork(&mut self) -> Seen {
        if self.ids.len() == PROCESSES {
            return Seen::Nothing;
        }
        let child = match self.guest.mm.dup_mmap(self.guest.id) {
            Ok(child) => child,
            Err(error) => return Seen::Error(error),
        };
        self.ids.push(child);
        let copy = self
            .memory()
            .iter()
            .filter(|(_, p)| !p.dontfork)
            .map(|(&page, p)| {
                let mut p = *p;
                if p.wipeonfork {
                    (p.bytes, p.free) = ([0; 4], false);
                }
                (page, p)
            })
            .collect();
        self.memories.push(copy);
        Seen::Nothing
    }

    /// The running process ends, and the first one goes on.
    fn exit(&mut self) {
        let id = self.ids.remove(self.current);
        self.memories.remove(self.current);
        self.current = 0;
        self.guest.mm.pt.enter_lazy_tlb(ptescope_tests::guest::CPU);
        self.guest.mm.mmput(id);
        if let Some(&first) = self.ids.first() {
            self.guest.switch_to(first);
        }
    }

    /// Every byte of every process, and then nothing left over.
    fn finish(mut self) {
        for i in 0..self.ids.len() {
            self.current = i;
            self.guest.switch_to(self.ids[i]);
            let pages: Vec<u64> = self.memories[i].keys().copied().collect();
            for page in pages {
                for probe in 0..PROBES.len() {
                    let _ = self.load(page, probe);
                }
            }
        }
        self.guest.assert_valid("everything was read");
        while !self.ids.is_empty() {
            self.exit();
        }
        let info = self.guest.mm.meminfo();
        assert_eq!(info.swap_free, info.swap_total, "swap slots leak");
        // The first root came from the free pages; a huge zero page stays.
        let free = self.free_at_start + 1;
        assert!(info.free == free || info.free == free - 512, "{} of {free} pages", info.free);
    }

    fn state(&self) -> State {
        let of = |&id: &MmId| {
            (0..PAGES)
                .filter_map(|page| {
                    let pmdp = self.guest.mm.pt.pmd_offset(id, va(page))?;
                    let pmd = self.guest.mm.pt.pmdp_get(pmdp);
                    if pmd.is_leaf() {
                        return Some((page, (true, pmd.is_write(), true)));
                    }
                    let at = self.guest.mm.pt.pte_offset(pmdp, va(page))?;
                    let pte = Pte::<A>::from_raw(self.guest.mm.pt.ram.load_u64(at.slot));
                    if pte.is_none() {
                        return None;
                    }
                    let present = pte.is_present();
                    let write = present && pte.is_write();
                    let exclusive = match present {
                        true => pte.is_special() || self.guest.mm.page_anon_exclusive(pte.pfn()),
                        false => pte.is_swp_exclusive(),
                    };
                    Some((page, (present, write, exclusive)))
                })
                .collect()
        };
        self.ids.iter().map(of).collect()
    }
}

fn seen(result: Result<(), Errno>) -> Seen {
    match result {
        Ok(()) => Seen::Nothing,
        Err(error) => Seen::Error(error),
    }
}

/// A kernel on a machine.
#[derive(Clone, Debug)]
struct Setting {
    kernel: &'static str,
    contpte: bool,
    hw_dirty: bool,
    folios: &'static [u64],
    ram: u64,
    swap: u64,
}

const MIB: u64 = 1 << 20;

/// Memory enough that nothing is reclaimed unasked.
const AMPLE: Setting = Setting {
    kernel: "v7.3",
    contpte: true,
    hw_dirty: true,
    folios: &[64],
    ram: 64 * MIB,
    swap: 64 * MIB,
};

/// So little memory that reclaim is at work all the time.
const TIGHT: Setting = Setting { ram: 4 * MIB, ..AMPLE };

/// Runs `script`, holding each step to the model and to `validate()`.
fn play<A: Arch>(setting: &Setting, script: &[Op]) -> (Vec<Seen>, State) {
    let mut pair = Pair::<A>::new(setting);
    let mut log = Vec::new();
    for &op in script {
        log.push(pair.step(op));
        pair.guest.assert_valid(&format!("{op:?}"));
    }
    let state = pair.state();
    pair.finish();
    (log, state)
}

/// Runs `check` over random scripts, the same ones each time; or, with `PTESCOPE_SOAK`, over as
/// many times more, of that seed.
fn over_scripts(cases: u32, check: impl Fn(&[Op])) {
    let soak = std::env::var("PTESCOPE_SOAK").ok().and_then(|n| n.parse::<u32>().ok());
    let cases = cases * soak.unwrap_or(1);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let mut seed = [7; 32];
    seed[..4].copy_from_slice(&soak.unwrap_or(0).to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let result = runner.run(&script(), |script| {
        check(&script);
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

const KERNELS: [&str; 4] = ["v6.12", "v6.12+anon-unmap-batch", "v7.3", "v7.3+anon-unmap-batch"];
const FOLIOS: [&[u64]; 5] = [&[], &[16], &[64], &[2048], &[16, 64, 512, 2048]];

#[test]
fn programs_see_what_the_model_says() {
    over_scripts(8, |script| {
        for kernel in KERNELS {
            for folios in FOLIOS {
                let setting = Setting { kernel, folios, ..AMPLE };
                play::<Arm64>(&setting, script);
                play::<X86_64>(&setting, script);
            }
        }
    });
}

#[test]
fn programs_see_the_same_while_memory_runs_out() {
    over_scripts(16, |script| {
        for kernel in KERNELS {
            for folios in FOLIOS {
                let setting = Setting { kernel, folios, ..TIGHT };
                play::<Arm64>(&setting, script);
                play::<X86_64>(&setting, script);
            }
        }
    });
}

#[test]
fn a_batched_unmap_ends_where_the_one_by_page_does() {
    over_scripts(16, |script| {
        for (plain, batched) in [(KERNELS[0], KERNELS[1]), (KERNELS[2], KERNELS[3])] {
            for folios in FOLIOS {
                let of = |kernel| Setting { kernel, folios, ..AMPLE };
                assert_eq!(play::<Arm64>(&of(plain), script), play::<Arm64>(&of(batched), script));
                assert_eq!(
                    play::<X86_64>(&of(plain), script),
                    play::<X86_64>(&of(batched), script)
                );
            }
        }
    });
}

#[test]
fn folding_changes_nothing_but_counts() {
    over_scripts(16, |script| {
        for folios in [FOLIOS[2], FOLIOS[4]] {
            for kernel in KERNELS {
                let folded = Setting { kernel, folios, ..AMPLE };
                let plain = Setting { contpte: false, ..folded.clone() };
                assert_eq!(play::<Arm64>(&folded, script), play::<Arm64>(&plain, script));
            }
        }
    });
}

#[test]
fn however_merged_pages_are_found_they_come_apart_alike() {
    const FORMS: [&str; 3] = ["v7.3-ksm-walk-vma", "v7.3+ksm-walk-vma", "v7.3+ksm-walk-vma-pud"];
    over_scripts(16, |script| {
        for folios in [FOLIOS[0], FOLIOS[4]] {
            let of = |kernel| Setting { kernel, folios, ..AMPLE };
            let range_walk = play::<Arm64>(&of("v7.3"), script);
            for form in FORMS {
                assert_eq!(play::<Arm64>(&of(form), script), range_walk, "{form}");
            }
        }
    });
}

#[test]
fn both_architectures_show_the_same() {
    over_scripts(16, |script| {
        for folios in FOLIOS {
            let setting = Setting { folios, ..AMPLE };
            let by_software = Setting { hw_dirty: false, ..setting.clone() };
            let arm64 = play::<Arm64>(&setting, script);
            assert_eq!(arm64, play::<X86_64>(&setting, script));
            assert_eq!(arm64.0, play::<Arm64>(&by_software, script).0);
        }
    });
}

/// Plays one script everywhere.
fn everywhere(base: &Setting, script: &[Op]) {
    for kernel in KERNELS {
        for folios in FOLIOS {
            let setting = Setting { kernel, folios, ..base.clone() };
            play::<Arm64>(&setting, script);
            play::<X86_64>(&setting, script);
        }
    }
}

#[test]
fn a_folio_that_was_split_after_a_fork_is_reclaimed_page_by_page() {
    let script = [
        Op::Mmap { at: 0, len: PAGES, prot: 3 },
        Op::Fill { at: 512, len: 16, byte: 1 },
        Op::Madvise { at: 512, len: 1, advice: advice::PAGEOUT },
        Op::Fork,
        Op::Exit,
        Op::Mprotect { at: 1024, len: 1, prot: 0 },
        Op::Store { at: 0, probe: 0, byte: 1 },
        Op::Fill { at: 0, len: 523, byte: 4 },
    ];
    everywhere(&TIGHT, &script);
}

#[test]
fn pages_that_two_processes_share_are_reclaimed_while_both_write() {
    let script = [
        Op::Mmap { at: 0, len: PAGES, prot: 3 },
        Op::Fill { at: 0, len: 1, byte: 1 },
        Op::Fill { at: 1024, len: 513, byte: 1 },
        Op::Fork,
        Op::Fill { at: 0, len: 512, byte: 1 },
        Op::Switch { to: 1 },
        Op::Scan { at: 612, len: 925 },
        Op::Switch { to: 2 },
        Op::Store { at: 1536, probe: 0, byte: 1 },
        Op::Switch { to: 1 },
        Op::Fill { at: 1040, len: 512, byte: 1 },
    ];
    everywhere(&TIGHT, &script);
}
