//! `/proc/<pid>/{maps,smaps,status,statm,pagemap}`: what an address space looks like.
//!
//! Source: Linux fs/proc/task_mmu.c, fs/proc/array.c.

#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use super::PseudoFile;
use crate::errno::{EINVAL, ESRCH};
use crate::kernel::Kernel;
use crate::residence::{Mapped, Resident};
use crate::task::{Process, ProcessId};
use arch::{Arch, MmId, Platform, Softleaf};
use mm::{Errno, VmFlags, Vma};
use units::{PAGE_SIZE, VirtAddr};

/// Sizes of an address space in pages.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sizes {
    pub(super) total_vm: u64,
    pub(super) rss: u64,
    anon: u64,
    file: u64,
    swap: u64,
    peak_rss: u64,
    page_tables: u64,
    shmem: u64,
    hugetlb: u64,
}

pub(super) fn sizes<P: Platform>(kernel: &Kernel<P>, process: &Process) -> Sizes {
    let Some(mm) = process.mm else { return Sizes::default() };
    let it = kernel.mm.mm_struct(mm);
    let rss = it.resident();
    Sizes {
        total_vm: it.total_vm,
        rss,
        anon: it.rss.anon,
        file: it.rss.file,
        swap: it.rss.swapents,
        peak_rss: it.hiwater_rss.max(rss),
        page_tables: it.pgtables,
        shmem: it.rss.shmem,
        hugetlb: it.hugetlb_usage,
    }
}

/// One line of `maps`, without its newline.
fn line<P: Platform>(kernel: &Kernel<P>, vma: &Vma) -> String {
    let flag = |flag, yes, no| if vma.flags.contains(flag) { yes } else { no };
    let path = vma.file.is_some_and(|file| kernel.mm.file_name(file).starts_with('/'));
    let mut line = format!(
        "{:08x}-{:08x} {}{}{}{} {:08x} 00:00 {} ",
        vma.start.get(),
        vma.end.get(),
        flag(VmFlags::READ, 'r', '-'),
        flag(VmFlags::WRITE, 'w', '-'),
        flag(VmFlags::EXEC, 'x', '-'),
        flag(VmFlags::MAYSHARE, 's', 'p'),
        if path { vma.pgoff.saturating_mul(4096) } else { 0 },
        u8::from(path),
    );
    let name = match vma.file {
        Some(file) => kernel.mm.file_name(file),
        None if vma.flags.contains(VmFlags::STACK) => "[stack]",
        None if vma.flags.contains(VmFlags::HEAP) => "[heap]",
        None => "",
    };
    if !name.is_empty() {
        line = format!("{line:<73}{name}");
    }
    line
}

pub(super) fn maps<P: Platform>(kernel: &Kernel<P>, process: &Process) -> String {
    let Some(mm) = process.mm else { return String::new() };
    let vmas = kernel.mm.vmas(mm);
    vmas.map(|vma| line(kernel, vma) + "\n").collect()
}

/// Sums over the pages of a mapping, in pages; `pss` in 1/4096 pages.
#[derive(Clone, Copy, Debug, Default)]
struct Smap {
    rss: u64,
    pss: u64,
    pss_dirty: u64,
    shared_clean: u64,
    shared_dirty: u64,
    private_clean: u64,
    private_dirty: u64,
    referenced: u64,
    anonymous: u64,
    lazyfree: u64,
    anon_huge: u64,
    swap: u64,
    ksm: u64,
    shared_hugetlb: u64,
    private_hugetlb: u64,
}

const PSS_UNIT: u64 = 4096;

impl Smap {
    fn add<P: Platform>(&mut self, kernel: &Kernel<P>, page: Mapped) {
        if page.special {
            return;
        }
        let sharers = kernel.mapcount(page.pfn).max(1);
        // Huge pages count by themselves (smaps_hugetlb_range()).
        if kernel.is_hugetlb(page.pfn) {
            match sharers > 1 {
                true => self.shared_hugetlb += 1,
                false => self.private_hugetlb += 1,
            }
            return;
        }
        let dirty = page.dirty;
        let anon = kernel.is_anon(page.pfn);
        self.rss += 1;
        self.pss += PSS_UNIT / sharers;
        self.pss_dirty += if dirty { PSS_UNIT / sharers } else { 0 };
        let kind = match (sharers > 1, dirty) {
            (true, true) => &mut self.shared_dirty,
            (true, false) => &mut self.shared_clean,
            (false, true) => &mut self.private_dirty,
            (false, false) => &mut self.private_clean,
        };
        *kind += 1;
        self.referenced += u64::from(page.young);
        self.anonymous += u64::from(anon);
        self.lazyfree += u64::from(!dirty && kernel.is_lazyfree(page.pfn));
        self.ksm += u64::from(kernel.is_ksm(page.pfn));
        self.anon_huge += u64::from(page.huge && anon);
    }
}

fn smap<P: Platform>(kernel: &Kernel<P>, vma: &Vma) -> Smap {
    let mut sum = Smap::default();
    let mut va = vma.start;
    while va < vma.end {
        if let Some(next) = kernel.skip_hole(vma.mm, va) {
            va = next;
            continue;
        }
        match kernel.resident(vma.mm, va) {
            Resident::Page(page) => sum.add(kernel, page),
            Resident::Swap { .. } => sum.swap += 1,
            Resident::No | Resident::Marker(_) => {}
        }
        va = va.wrapping_add(PAGE_SIZE);
    }
    sum
}

// FIDELITY: smaps-fields — THPeligible is missing; a swapped page
// counts whole in SwapPss.
pub(super) fn smaps<P: Platform>(kernel: &Kernel<P>, process: &Process) -> String {
    let Some(mm) = process.mm else { return String::new() };
    let mut text = String::new();
    for vma in kernel.mm.vmas(mm) {
        let s = smap(kernel, vma);
        let page_kib = vma.huge.map_or(4, |size| size.bytes() >> 10);
        text += &line(kernel, vma);
        text.push('\n');
        for (name, kib) in [
            ("Size:", vma.pages().get() * 4),
            ("KernelPageSize:", page_kib),
            ("MMUPageSize:", page_kib),
            ("Rss:", s.rss * 4),
            ("Pss:", s.pss / (PSS_UNIT / 4)),
            ("Pss_Dirty:", s.pss_dirty / (PSS_UNIT / 4)),
            ("Shared_Clean:", s.shared_clean * 4),
            ("Shared_Dirty:", s.shared_dirty * 4),
            ("Private_Clean:", s.private_clean * 4),
            ("Private_Dirty:", s.private_dirty * 4),
            ("Referenced:", s.referenced * 4),
            ("Anonymous:", s.anonymous * 4),
            ("KSM:", s.ksm * 4),
            ("LazyFree:", s.lazyfree * 4),
            ("AnonHugePages:", s.anon_huge * 4),
            ("ShmemPmdMapped:", 0),
            ("FilePmdMapped:", 0),
            ("Shared_Hugetlb:", s.shared_hugetlb * 4),
            ("Private_Hugetlb:", s.private_hugetlb * 4),
            ("Swap:", s.swap * 4),
            ("SwapPss:", s.swap * 4),
            (
                "Locked:",
                if vma.flags.contains(VmFlags::LOCKED) { s.pss / (PSS_UNIT / 4) } else { 0 },
            ),
        ] {
            text += &format!("{name:<16}{kib:>8} kB\n");
        }
        text += &format!("VmFlags: {}\n", vm_flags(vma.flags));
    }
    text
}

/// The two-letter names of Linux `show_smap_vma_flags()`.
fn vm_flags(flags: VmFlags) -> String {
    let mut text = String::new();
    for (flag, name) in [
        (VmFlags::READ, "rd "),
        (VmFlags::WRITE, "wr "),
        (VmFlags::EXEC, "ex "),
        (VmFlags::SHARED, "sh "),
        (VmFlags::MAYREAD, "mr "),
        (VmFlags::MAYWRITE, "mw "),
        (VmFlags::MAYEXEC, "me "),
        (VmFlags::MAYSHARE, "ms "),
        (VmFlags::GROWSDOWN, "gd "),
        (VmFlags::LOCKED, "lo "),
        (VmFlags::SEALED, "sl "),
        (VmFlags::LOCKONFAULT, "lf "),
        (VmFlags::DONTFORK, "dc "),
        (VmFlags::DONTEXPAND, "de "),
        (VmFlags::NORESERVE, "nr "),
        (VmFlags::HUGETLB, "ht "),
        (VmFlags::WIPEONFORK, "wf "),
        (VmFlags::DONTDUMP, "dd "),
        (VmFlags::SOFTDIRTY, "sd "),
        (VmFlags::HUGEPAGE, "hg "),
        (VmFlags::NOHUGEPAGE, "nh "),
        (VmFlags::MERGEABLE, "mg "),
    ] {
        if flags.contains(flag) {
            text += name;
        }
    }
    text
}

/// Real, effective, saved and file-system id.
fn ids([real, effective, saved]: [u32; 3]) -> String {
    format!("{real}\t{effective}\t{saved}\t{effective}")
}

fn capabilities_and_masks<P: Platform>(kernel: &Kernel<P>, process: &Process) -> String {
    let mut text = String::new();
    let caps = process.creds.caps;
    for (name, set) in [
        ("CapInh", caps.inheritable),
        ("CapPrm", caps.permitted),
        ("CapEff", caps.effective),
        ("CapBnd", crate::creds::ALL),
        ("CapAmb", 0),
    ] {
        text += &format!("{name}:\t{set:016x}\n");
    }
    let cpus = kernel.mm.pt.hw.cpus.max(1);
    let mask = u64::MAX.checked_shr(64 - u32::from(cpus.min(64))).unwrap_or(0);
    text += &format!("Cpus_allowed:\t{mask:x}\nCpus_allowed_list:\t0-{}\n", cpus - 1);
    text + "Mems_allowed:\t1\nMems_allowed_list:\t0\n"
}

pub(super) fn status<P: Platform>(kernel: &Kernel<P>, process: &Process) -> String {
    let s = sizes(kernel, process);
    let state = if process.exit.is_some() { "Z (zombie)" } else { "R (running)" };
    let mut text = format!(
        "Name:\t{}\nUmask:\t{:04o}\nState:\t{state}\nTgid:\t{pid}\nNgid:\t0\nPid:\t{pid}\nPPid:\t{}\n\
         TracerPid:\t0\nUid:\t{}\nGid:\t{}\nFDSize:\t64\nGroups:\t{}\n",
        kernel.comm_of(process),
        process.umask,
        process.parent.get(),
        ids(process.creds.uid),
        ids(process.creds.gid),
        process.creds.gid[0],
        pid = process.id.get(),
    );
    for (name, pages) in [
        ("VmPeak", s.total_vm),
        ("VmSize", s.total_vm),
        ("VmLck", process.mm.map_or(0, |mm| kernel.mm.locked_vm(mm))),
        ("VmPin", 0),
        ("VmHWM", s.peak_rss),
        ("VmRSS", s.rss),
        ("RssAnon", s.anon),
        ("RssFile", s.file),
        ("RssShmem", s.shmem),
        ("VmPTE", s.page_tables),
        ("VmSwap", s.swap),
        ("HugetlbPages", s.hugetlb),
    ] {
        text += &format!("{name}:\t{:>8} kB\n", pages.saturating_mul(4));
    }
    text += &format!("Threads:\t{}\n", process.threads.len());
    text + &capabilities_and_masks(kernel, process)
}

pub(super) fn statm<P: Platform>(kernel: &Kernel<P>, process: &Process) -> String {
    let s = sizes(kernel, process);
    let shared = s.file.saturating_add(s.shmem);
    format!("{} {} {shared} 0 0 {} 0\n", s.total_vm, s.rss, s.anon)
}

/// `pagemap`: 8 bytes for each page of the address space.
#[derive(Debug)]
pub(super) struct Pagemap;

/// Pages answered by one read.
const PAGEMAP_READ_PAGES: u64 = 8192;

impl<P: Platform> PseudoFile<P> for Pagemap {
    fn mode(&self) -> u32 {
        0o400
    }
    fn read(&self, _: &mut Kernel<P>, _: ProcessId) -> Result<Vec<u8>, Errno> {
        Err(EINVAL)
    }
    fn read_at(
        &self,
        kernel: &mut Kernel<P>,
        process: ProcessId,
        offset: u64,
        len: usize,
    ) -> Option<Result<Vec<u8>, Errno>> {
        Some(pagemap(kernel, process, offset, len))
    }
}

fn pagemap<P: Platform>(
    kernel: &Kernel<P>,
    process: ProcessId,
    offset: u64,
    len: usize,
) -> Result<Vec<u8>, Errno> {
    let process = kernel.processes.get(&process).ok_or(ESRCH)?;
    let Some(mm) = process.mm else { return Ok(Vec::new()) };
    if !offset.is_multiple_of(8) || !len.is_multiple_of(8) {
        return Err(EINVAL);
    }
    let first = offset / 8;
    let end = P::Arch::TASK_SIZE.get() / PAGE_SIZE;
    let pages = (len as u64 / 8).min(PAGEMAP_READ_PAGES).min(end.saturating_sub(first));
    let mut bytes = Vec::new();
    for page in first..first + pages {
        let va = VirtAddr::new(page * PAGE_SIZE);
        bytes.extend(pagemap_entry(kernel, mm, va).to_le_bytes());
    }
    Ok(bytes)
}

/// Source: Linux fs/proc/task_mmu.c `pte_to_pagemap_entry()`.
fn pagemap_entry<P: Platform>(kernel: &Kernel<P>, mm: MmId, va: VirtAddr) -> u64 {
    const SOFT_DIRTY: u64 = 1 << 55;
    const EXCLUSIVE: u64 = 1 << 56;
    const UFFD_WP: u64 = 1 << 57;
    const GUARD: u64 = 1 << 58;
    const FILE: u64 = 1 << 61;
    const SWAPPED: u64 = 1 << 62;
    const PRESENT: u64 = 1 << 63;
    let flag = |on: bool, bit: u64| if on { bit } else { 0 };
    let vma = kernel.mm.vma_at(mm, va);
    let new = flag(vma.is_some_and(|vma| vma.flags.contains(VmFlags::SOFTDIRTY)), SOFT_DIRTY);
    new | match kernel.resident(mm, va) {
        Resident::No => 0,
        Resident::Marker(leaf) => {
            SWAPPED
                | u64::from(leaf.ty)
                | leaf.offset << 5
                | flag(leaf.offset & Softleaf::MARKER_UFFD_WP != 0, UFFD_WP)
                | flag(leaf.offset & Softleaf::MARKER_GUARD != 0, GUARD)
        }
        Resident::Swap { device, slot, soft_dirty, uffd_wp } => {
            SWAPPED
                | u64::from(device)
                | slot << 5
                | flag(soft_dirty, SOFT_DIRTY)
                | flag(uffd_wp, UFFD_WP)
        }
        Resident::Page(page) => {
            let file = !page.special && !kernel.is_anon(page.pfn);
            // Mapped once, in whatever address space; the zero page is nobody's.
            let once = !page.special && kernel.mapcount(page.pfn) == 1;
            PRESENT
                | page.pfn.get()
                | flag(page.soft_dirty, SOFT_DIRTY)
                | flag(page.uffd_wp, UFFD_WP)
                | flag(once, EXCLUSIVE)
                | flag(file, FILE)
        }
    }
}
