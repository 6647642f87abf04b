//! `/proc/<pid>/{maps,smaps,status,statm,pagemap}`: what an address space looks like.
//!
//! Source: Linux fs/proc/task_mmu.c, fs/proc/array.c.

#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use super::PseudoFile;
use crate::errno::ESRCH;
use crate::kernel::Kernel;
use crate::task::{Process, ProcessId};
use arch::Platform;
use mm::{Errno, VmFlags, Vma};

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
    }
}

/// One line of `maps`, without its newline.
fn line<P: Platform>(kernel: &Kernel<P>, process: &Process, vma: &Vma) -> String {
    let flag = |flag, yes, no| if vma.flags.contains(flag) { yes } else { no };
    let mut line = format!(
        "{:08x}-{:08x} {}{}{}{} {:08x} 00:00 {} ",
        vma.start.get(),
        vma.end.get(),
        flag(VmFlags::READ, 'r', '-'),
        flag(VmFlags::WRITE, 'w', '-'),
        flag(VmFlags::EXEC, 'x', '-'),
        flag(VmFlags::SHARED, 's', 'p'),
        vma.file.map_or(0, |_| vma.pgoff.saturating_mul(4096)),
        u8::from(vma.file.is_some()),
    );
    let name = match vma.file {
        Some(file) => kernel.mm.file_name(file),
        None if vma.flags.contains(VmFlags::STACK) => "[stack]",
        None if vma.flags.contains(VmFlags::HEAP) => "[heap]",
        None => "",
    };
    if !name.is_empty() {
        let relative = !name.starts_with(['/', '[']);
        let slash = if relative { "/" } else { "" };
        line = format!("{line:<73}{slash}{name}");
    }
    let _ = process;
    line
}

pub(super) fn maps<P: Platform>(kernel: &Kernel<P>, process: &Process) -> String {
    let Some(mm) = process.mm else { return String::new() };
    let vmas = kernel.mm.vmas(mm);
    vmas.map(|vma| line(kernel, process, vma) + "\n").collect()
}

pub(super) fn smaps<P: Platform>(kernel: &Kernel<P>, process: &Process) -> String {
    let Some(mm) = process.mm else { return String::new() };
    let mut text = String::new();
    for vma in kernel.mm.vmas(mm) {
        text += &line(kernel, process, vma);
        text += &format!("\nSize:           {:>8} kB\n", vma.pages().get().saturating_mul(4));
        text += "KernelPageSize:        4 kB\nMMUPageSize:           4 kB\n";
    }
    text
}

pub(super) fn status<P: Platform>(kernel: &Kernel<P>, process: &Process) -> String {
    let s = sizes(kernel, process);
    let state = if process.exit.is_some() { "Z (zombie)" } else { "R (running)" };
    let mut text = format!(
        "Name:\t{}\nUmask:\t{:04o}\nState:\t{state}\nTgid:\t{pid}\nNgid:\t0\nPid:\t{pid}\nPPid:\t{}\n\
         TracerPid:\t0\nUid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nFDSize:\t64\nGroups:\t0\n",
        kernel.comm_of(process),
        process.umask,
        process.parent.get(),
        pid = process.id.get(),
    );
    for (name, pages) in [
        ("VmPeak", s.total_vm),
        ("VmSize", s.total_vm),
        ("VmLck", 0),
        ("VmPin", 0),
        ("VmHWM", s.peak_rss),
        ("VmRSS", s.rss),
        ("RssAnon", s.anon),
        ("RssFile", s.file),
        ("RssShmem", 0),
        ("VmPTE", s.page_tables),
        ("VmSwap", s.swap),
    ] {
        text += &format!("{name}:\t{:>8} kB\n", pages.saturating_mul(4));
    }
    text += &format!("Threads:\t{}\n", process.threads.len());
    text
}

pub(super) fn statm<P: Platform>(kernel: &Kernel<P>, process: &Process) -> String {
    let s = sizes(kernel, process);
    format!("{} {} {} 0 0 {} 0\n", s.total_vm, s.rss, s.file, s.anon)
}

/// `pagemap`: 8 bytes for each page of the address space.
#[derive(Debug)]
pub(super) struct Pagemap;

impl<P: Platform> PseudoFile<P> for Pagemap {
    fn mode(&self) -> u32 {
        0o400
    }
    fn read(&self, _: &mut Kernel<P>, _: ProcessId) -> Result<Vec<u8>, Errno> {
        Err(ESRCH)
    }
}
