//! The measured program without its machine code: the same phases, as calls of `mm`.
//!
//! Source: `guest-programs/probe`, which this follows sub-program by sub-program.

use crate::groundtruth::{ArchName, Counts, Kernel, Run};
use crate::guest::{CPU, Guest, pages};
use arch::{Arch, Arm64, Hw, KernelConfig, MmId, X86_64};
use mm::{MapFlags, MremapFlags, Thp, ThpSize, VmProt, advice};
use std::collections::BTreeMap;
use units::{CpuId, PMD_SIZE, VirtAddr};

const MIB: u64 = 1 << 20;
/// RAM and swap of the measured machines.
const RAM: u64 = 3 << 30;
const SWAP: u64 = 1536 * MIB;

/// A phase and what was counted in it.
#[derive(Clone, Debug)]
pub struct Phase {
    /// Its name.
    pub name: String,
    /// Counts by scope and event.
    pub counts: Counts,
}

/// Something that can run the probe.
pub trait Runner {
    /// Runs it and returns its phases, or nothing if it cannot run this one.
    fn run(&self, run: &Run) -> Option<Vec<Phase>>;
}

/// Runs the phases by calling `mm`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Direct;

impl Runner for Direct {
    fn run(&self, run: &Run) -> Option<Vec<Phase>> {
        if run.program == "gup_test" {
            return crate::gup::run(run);
        }
        if run.program == "ksm_tests" {
            return crate::ksm::run(run);
        }
        match run.arch {
            ArchName::Arm64 => Probe::<Arm64>::new(run).program(run),
            ArchName::X86 => Probe::<X86_64>::new(run).program(run),
        }
    }
}

/// The kernel that a record's variant stands for.
///
/// # Panics
/// For a variant that is not modelled.
pub fn kernel_config(run: &Run) -> KernelConfig {
    let preset = run.kernel.preset();
    let spec = match run.variant.as_str() {
        "vanilla" => preset.to_owned(),
        "A_batched_gup" => format!("{preset}+gup-pte-batch"),
        "B_batched_unmap" | "B_batched_unmap_noread" => format!("{preset}+anon-unmap-batch"),
        other => panic!("no such variant: {other}"),
    };
    let mut config = KernelConfig::parse(&spec).expect("the preset exists");
    match (run.kernel, run.variant.as_str()) {
        // The variant measured on 6.12 is code of its own: it stores the entries without
        // looking, and skips the marker helper for a batch.
        (Kernel::V6_12, "B_batched_unmap") => {
            config.softleaf_raw_check = false;
            config.anon_unmap_marker_check = false;
        }
        // The variant of slow GUP measured on 6.12 finds runs in a loop of its own, and takes a
        // run's references at once.
        (Kernel::V6_12, "A_batched_gup") => {
            config.gup_batch_own_scan = true;
            config.gup_merge_grab = true;
        }
        (_, "B_batched_unmap_noread") => config.softleaf_raw_check = false,
        _ => {}
    }
    config
}

/// The machine that a record was measured on.
///
/// # Panics
/// For a CPU model that is not modelled.
pub fn hw(run: &Run) -> Hw {
    let base = match (run.arch, run.cpu.as_str()) {
        (ArchName::Arm64, "max") => Hw::arm64(),
        (ArchName::Arm64, "cortex-a72") => {
            Hw { tlbi_range: false, hw_access_dirty: false, ..Hw::arm64() }
        }
        (ArchName::X86, "max") => Hw::x86_64(),
        (arch, cpu) => panic!("no such machine: {arch:?} {cpu}"),
    };
    Hw { cpus: 4, ..base }
}

/// The large folios that a record was measured with.
pub fn thp(run: &Run) -> Thp {
    Thp::only(Thp::order_of_kib(run.folio_kib).map(|order| (order, ThpSize::Always)))
}

/// What the page of the probe's global variables is when `touchr()` first stores its sum there:
/// a matter of how the linker laid the measured binary out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GlobalsPage {
    /// Written before.
    Written,
    /// Only read before: the zero page.
    ZeroPage,
}

impl GlobalsPage {
    fn of(run: &Run) -> Self {
        match run.arch {
            ArchName::X86 if run.spinners == 0 => GlobalsPage::ZeroPage,
            // Siblings count in it.
            ArchName::X86 | ArchName::Arm64 => GlobalsPage::Written,
        }
    }
}

/// Whether the record is of the first batch of measurements (6.12 on the Cortex-A72): runs were
/// forked without exec from a process that had batched unmaps pending, and an earlier version of
/// the program wrote the whole region in `write_after_refault`.
pub fn is_of_first_batch(run: &Run) -> bool {
    let small = run.program != "pageout" || run.args.first().is_some_and(|mib| mib == "64");
    run.kernel == Kernel::V6_12 && run.cpu == "cortex-a72" && small && run.spinners == 0
}

/// The CPU of the sibling thread number `i`.
fn sibling(i: u64) -> CpuId {
    CpuId::new(u16::try_from((2 + i) % 4).expect("small"))
}

/// A run under way.
struct Probe<A: Arch> {
    guest: Guest<A>,
    globals: VirtAddr,
    first_batch: bool,
    spinners: u64,
    before: Counts,
    phases: Vec<Phase>,
}

impl<A: Arch> Probe<A> {
    fn new(run: &Run) -> Self {
        let mut guest = Guest::new(kernel_config(run), hw(run), thp(run), RAM, SWAP);
        let globals = VirtAddr::new(0x4a_0000);
        let prot = VmProt::READ | VmProt::WRITE;
        guest.mmap(globals, 4096, prot, MapFlags::FIXED).expect("address space");
        guest.load(globals).expect("readable");
        if GlobalsPage::of(run) == GlobalsPage::Written {
            guest.store(globals, 0).expect("writable");
        }
        if is_of_first_batch(run) {
            // What was reclaimed in the parent is of no consequence, only that something was.
            let scratch = globals.wrapping_add(MIB);
            guest.mmap(scratch, 4096, prot, MapFlags::FIXED).expect("address space");
            guest.store(scratch, 1).expect("writable");
            guest.mm.madvise(guest.id, scratch, 4096, advice::PAGEOUT).expect("advice is taken");
            guest.mm.madvise(guest.id, scratch, 4096, advice::DONTFORK).expect("advice is taken");
            let child = guest.mm.dup_mmap(guest.id).expect("memory for a fork");
            guest.switch_to(child);
        }
        // Siblings do nothing but run, each on a CPU of its own.
        for i in 0..run.spinners {
            guest.mm.pt.switch_mm(sibling(i), guest.id);
        }
        let first_batch = is_of_first_batch(run);
        let (before, phases, spinners) = (Counts::new(), Vec::new(), run.spinners);
        Probe { guest, globals, first_batch, spinners, before, phases }
    }

    fn counts(&self) -> Counts {
        let mut counts = BTreeMap::new();
        for (scope, counters) in self.guest.counts() {
            for (event, n) in counters.nonzero() {
                counts.insert((scope.name().to_owned(), event.name().to_owned()), n);
            }
        }
        counts
    }

    fn start(&mut self) {
        self.before = self.counts();
    }

    fn stop(&mut self, name: &str) {
        let mut counts = self.counts();
        for (key, n) in &self.before {
            if let Some(have) = counts.get_mut(key) {
                *have -= n;
            }
        }
        counts.retain(|_, n| *n > 0);
        self.guest.assert_valid(name);
        self.phases.push(Phase { name: name.to_owned(), counts });
    }

    fn region(&mut self, len: u64) -> VirtAddr {
        let reserve = self
            .guest
            .mmap(VirtAddr::ZERO, len + 4 * MIB, VmProt::empty(), MapFlags::NORESERVE)
            .expect("address space");
        let mut at = reserve.checked_align_up(PMD_SIZE).expect("no wrap");
        if at == reserve {
            at = at.wrapping_add(PMD_SIZE);
        }
        let prot = VmProt::READ | VmProt::WRITE;
        self.guest.mmap(at, len, prot, MapFlags::FIXED).expect("address space")
    }

    fn touch_write(&mut self, start: VirtAddr, len: u64) {
        for va in pages(start, len) {
            self.guest.store(va, 1).expect("the region is writable");
        }
    }

    fn touch_read(&mut self, start: VirtAddr, len: u64) {
        for va in pages(start, len) {
            self.guest.load(va).expect("the region is readable");
        }
        self.guest.store(self.globals, 1).expect("writable");
    }

    fn madvise(&mut self, start: VirtAddr, len: u64, advice: i32) {
        self.guest.mm.madvise(self.guest.id, start, len, advice).expect("advice is taken");
    }

    fn munmap(&mut self, start: VirtAddr, len: u64) {
        self.guest.mm.munmap(self.guest.id, start, len).expect("a good range");
    }

    fn program(mut self, run: &Run) -> Option<Vec<Phase>> {
        let arg = |i: usize| run.args.get(i).and_then(|a| a.parse::<u64>().ok()).unwrap_or(0);
        let len = arg(0) * MIB;
        let fill = u8::try_from(arg(1)).unwrap_or(0);
        match run.program.as_str() {
            "pageout" => self.pageout(len, fill, arg(2)),
            "fault" => self.fault(len),
            "munmap" => self.munmap_program(len, fill),
            "dontneed" => self.dontneed(len),
            "madvfree" => self.madvfree(len),
            "exit" => self.exit(len),
            "mprotect" => self.mprotect_program(len),
            "mremap" => self.mremap_program(len),
            "partial" => self.partial(len),
            "forkreuse" => self.forkreuse(len),
            "swapped" => self.swapped(len),
            "fork" => self.fork_program(len),
            _ => return None,
        }
        Some(self.phases)
    }

    fn pageout(&mut self, len: u64, fill: u8, refault: u64) {
        let p = self.region(len);
        self.guest.memset(p, len, fill);
        self.start();
        self.madvise(p, len, advice::PAGEOUT);
        self.stop("pageout");
        if refault != 0 {
            self.start();
            if refault == 1 {
                self.touch_read(p, len);
            } else {
                self.touch_write(p, len);
            }
            self.stop(if refault == 1 { "refault_read" } else { "refault_write" });
            self.start();
            let all = refault == 2 || self.first_batch;
            self.touch_write(p, if all { len } else { 0 });
            self.stop("write_after_refault");
        }
        if refault == 1 {
            let mut page = vec![fill; 4096];
            page[0] = if self.first_batch { 1 } else { fill };
            for va in pages(p, len) {
                let pa = self.guest.access(va, mm::Access::Read).expect("readable");
                assert!(self.guest.mm.pt.ram.slice(pa, 4096) == page, "data survives at {va}");
            }
        }
        self.start();
        self.munmap(p, len);
        self.stop("munmap_after");
    }

    fn exit(&mut self, len: u64) {
        let parent = self.guest.id;
        let child = self.guest.mm.dup_mmap(parent).expect("memory for a fork");
        self.guest.switch_to(child);
        let p = self.region(len);
        self.guest.memset(p, len, 1);
        self.start();
        self.guest.mm.pt.enter_lazy_tlb(CPU);
        self.guest.mm.mmput(child);
        self.guest.switch_to(parent);
        self.stop("exit_child");
    }

    fn fault(&mut self, len: u64) {
        let p = self.region(len);
        self.start();
        self.touch_write(p, len);
        self.stop("first_touch_write");
        for name in ["madv_cold", "madv_cold_again"] {
            self.start();
            self.madvise(p, len, advice::COLD);
            self.stop(name);
        }
        self.start();
        self.touch_read(p, len);
        self.stop("touch_read_after_cold");
    }

    fn munmap_program(&mut self, len: u64, fill: u8) {
        let p = self.region(len);
        self.guest.memset(p, len, fill);
        self.start();
        self.munmap(p, len);
        self.stop("munmap");
    }

    fn dontneed(&mut self, len: u64) {
        let p = self.region(len);
        self.guest.memset(p, len, 1);
        self.start();
        self.madvise(p, len, advice::DONTNEED);
        self.stop("dontneed");
    }

    fn madvfree(&mut self, len: u64) {
        let p = self.region(len);
        let (half, middle) = (len / 2, p.wrapping_add(len / 2));
        self.guest.memset(p, len, 1);
        for name in ["madv_free", "madv_free_again"] {
            self.start();
            self.madvise(p, len, advice::FREE);
            self.stop(name);
        }
        self.start();
        self.madvise(p, half, advice::PAGEOUT);
        self.stop("pageout_lazyfree_half");
        self.start();
        self.touch_write(middle, half);
        self.stop("redirty_half");
        self.start();
        self.madvise(middle, half, advice::PAGEOUT);
        self.stop("pageout_redirtied_half");
    }

    fn mprotect(&mut self, start: VirtAddr, len: u64, prot: VmProt) {
        self.guest.mm.mprotect(self.guest.id, start, len, prot).expect("a mapped range");
    }

    fn mprotect_program(&mut self, len: u64) {
        let (ro, rw) = (VmProt::READ, VmProt::READ | VmProt::WRITE);
        let p = self.region(len);
        self.guest.memset(p, len, 1);
        self.phase("mprotect_ro", |it| it.mprotect(p, len, ro));
        self.phase("read_ro", |it| it.touch_read(p, len));
        self.phase("mprotect_rw", |it| it.mprotect(p, len, rw));
        self.phase("write_rw", |it| it.touch_write(p, len));
        self.phase("mprotect_none", |it| it.mprotect(p, len, VmProt::empty()));
        self.phase("mprotect_none_to_rw", |it| it.mprotect(p, len, rw));
    }

    fn mremap(&mut self, from: VirtAddr, len: u64, to: VirtAddr) -> VirtAddr {
        let flags = MremapFlags::MAYMOVE | MremapFlags::FIXED;
        let moved = self.guest.mm.mremap(self.guest.id, from, len, len, flags, to);
        moved.expect("there is room")
    }

    fn mremap_program(&mut self, len: u64) {
        let mut at = self.region(len);
        self.guest.memset(at, len, 1);
        for (name, shift) in
            [("mremap_pmd_aligned", 0), ("mremap_64k_shift", 65536), ("mremap_4k_shift", 4096)]
        {
            let to = self.region(len + PMD_SIZE).wrapping_add(shift);
            self.start();
            at = self.mremap(at, len, to);
            self.stop(name);
        }
    }

    /// One page, the eighth of a 64 KiB block, at a time.
    fn partial(&mut self, len: u64) {
        const PAGE: u64 = 4096;
        let (ro, rw) = (VmProt::READ, VmProt::READ | VmProt::WRITE);
        let p = self.region(len);
        self.guest.memset(p, len, 1);
        let at = |mib: u64| p.wrapping_add(mib * MIB + 7 * PAGE);
        self.phase("mprotect_ro_1page", |it| it.mprotect(at(0), PAGE, ro));
        self.phase("mprotect_rw_1page", |it| it.mprotect(at(0), PAGE, rw));
        self.phase("write_1page", |it| it.touch_write(at(0), PAGE));
        self.phase("mprotect_ro_2page", |it| it.mprotect(at(4), 2 * PAGE, ro));
        self.phase("munmap_1page", |it| it.munmap(at(8), PAGE));
        self.phase("dontneed_1page", |it| it.madvise(at(12), PAGE, advice::DONTNEED));
        self.phase("refault_after_dontneed_1page", |it| it.touch_write(at(12), PAGE));
        self.phase("madvfree_1page", |it| it.madvise(at(16), PAGE, advice::FREE));
        self.phase("pageout_1page", |it| it.madvise(at(20), PAGE, advice::PAGEOUT));
        self.phase("cold_1page", |it| it.madvise(at(24), PAGE, advice::COLD));
        self.phase("dontneed_1page_per_64k_4MiB", |it| {
            for block in 0..64 {
                it.madvise(at(28).wrapping_add(block * 65536), PAGE, advice::DONTNEED);
            }
        });
        let across = p.wrapping_add(34 * MIB - 8 * PAGE);
        self.phase("munmap_16page_unaligned", |it| it.munmap(across, 16 * PAGE));
        self.phase("mremap_1page_into_hole", |it| {
            it.mremap(p.wrapping_add(36 * MIB), PAGE, at(8));
        });
    }

    /// The child of a fork, after which siblings go on counting in their page.
    fn fork(&mut self) -> MmId {
        let child = self.guest.mm.dup_mmap(self.guest.id).expect("memory for a fork");
        if self.spinners > 0 {
            self.guest.mm.pt.cpu = sibling(0);
            self.guest.store(self.globals, 1).expect("writable");
            self.guest.mm.pt.cpu = CPU;
        }
        child
    }

    fn forkreuse(&mut self, len: u64) {
        let p = self.region(len);
        self.guest.memset(p, len, 1);
        let child = self.fork();
        self.guest.mm.mmput(child);
        self.phase("read_after_child_exit", |it| it.touch_read(p, len));
        self.phase("write_after_child_exit", |it| it.touch_write(p, len));
        self.phase("write_again", |it| it.touch_write(p, len));
    }

    fn swapped(&mut self, len: u64) {
        let (half, middle) = (len / 2, |p: VirtAddr| p.wrapping_add(len / 2));
        let p = self.region(len);
        self.guest.memset(p, len, 1);
        self.madvise(p, len, advice::PAGEOUT);
        self.phase("pageout_again_on_swap_ptes", |it| it.madvise(p, len, advice::PAGEOUT));
        self.phase("mprotect_on_swap_ptes", |it| it.mprotect(p, len, VmProt::READ));
        self.mprotect(p, len, VmProt::READ | VmProt::WRITE);
        self.start();
        let child = self.fork();
        self.stop("fork_on_swap_ptes");
        self.phase("dontneed_on_shared_swap_ptes_half", |it| {
            it.madvise(p, half, advice::DONTNEED);
        });
        self.guest.mm.mmput(child);
        self.phase("munmap_on_swap_ptes_half", |it| it.munmap(middle(p), half));
    }

    fn fork_program(&mut self, len: u64) {
        let p = self.region(len);
        self.guest.memset(p, len, 1);
        self.start();
        let child = self.fork();
        self.stop("fork");
        self.phase("parent_read_after_fork", |it| it.touch_read(p, len));
        self.phase("parent_cow_write", |it| it.touch_write(p, len));
        self.guest.mm.mmput(child);
        let child = self.fork();
        self.guest.mm.mmput(child);
        self.phase("parent_write_after_child_exit_reuse", |it| it.touch_write(p, len));
    }

    fn phase(&mut self, name: &str, body: impl FnOnce(&mut Self)) {
        self.start();
        body(self);
        self.stop(name);
    }
}
