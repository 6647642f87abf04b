//! Pseudo-files under `/proc`.
//!
//! Source: proc(5), Linux fs/proc/.

#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use super::PseudoFile;
use super::proc_mem::Mem;
use super::sysfs::{Table, Text, Values, knob};
use super::{hugepages, ksm, number, proc_maps};
use crate::abi::machine_name;
use crate::counts::CountsByScope;
use crate::errno::{EINVAL, ENOENT, ESRCH};
use crate::kernel::Kernel;
use crate::task::{Process, ProcessId};
use arch::{Arch, Platform};
use mm::{ClearRefs, Errno};
use std::sync::Arc;
use units::{ArchId, PAGE_SIZE};

/// Paths and files.
pub(super) fn table<P: Platform>() -> Table<P>
where
    P::Sink: CountsByScope,
{
    let texts: [(&str, KernelText<P>); 9] = [
        ("/proc/meminfo", meminfo),
        ("/proc/vmstat", vmstat),
        ("/proc/cpuinfo", cpuinfo),
        ("/proc/swaps", swaps),
        ("/proc/filesystems", |_| {
            "nodev\tsysfs\nnodev\ttmpfs\nnodev\thugetlbfs\nnodev\tproc\n".to_owned()
        }),
        ("/proc/version", |k| format!("Linux version {} (ptescope)\n", k.release())),
        ("/proc/sys/kernel/osrelease", |k| format!("{}\n", k.release())),
        ("/proc/sys/kernel/ostype", |_| "Linux\n".to_owned()),
        ("/proc/sys/vm/max_map_count", |_| "65530\n".to_owned()),
    ];
    let mut table: Table<P> = Vec::new();
    for (path, text) in texts {
        table.push((path.to_owned(), Arc::new(Text(text))));
    }
    // FIDELITY: vm-knobs — these are remembered and change nothing.
    for (path, boot) in [
        ("/proc/sys/vm/overcommit_memory", "0"),
        ("/proc/sys/vm/overcommit_ratio", "50"),
        ("/proc/sys/vm/mmap_min_addr", "65536"),
        ("/proc/sys/vm/compact_unevictable_allowed", "1"),
        ("/proc/sys/kernel/shmmax", "18446744073692774399"),
        ("/proc/sys/vm/swappiness", "60"),
        ("/proc/sys/vm/page-cluster", "3"),
        ("/proc/sys/vm/drop_caches", "0"),
        ("/proc/sys/vm/compact_memory", "0"),
        ("/proc/sys/kernel/randomize_va_space", "0"),
        ("/proc/sys/kernel/pid_max", "4194304"),
    ] {
        table.push(knob(path.to_owned(), Values::Number, boot));
    }
    table
}

/// Names and files of each `/proc/<pid>`.
pub(super) fn process_table<P: Platform>() -> Vec<(&'static str, Arc<dyn PseudoFile<P>>)>
where
    P::Sink: CountsByScope,
{
    let texts: [(&'static str, ProcessText<P>); 10] = [
        ("maps", proc_maps::maps),
        ("smaps", proc_maps::smaps),
        ("status", proc_maps::status),
        ("statm", proc_maps::statm),
        ("stat", stat),
        ("cmdline", |_, p| String::from_utf8_lossy(&p.cmdline).into_owned()),
        ("comm", |k, p| format!("{}\n", k.comm_of(p))),
        ("oom_score", |_, _| "0\n".to_owned()),
        ("ksm_merging_pages", ksm::merging_pages),
        ("ksm_stat", ksm::stat),
    ];
    let mut table: Vec<(&'static str, Arc<dyn PseudoFile<P>>)> = Vec::new();
    for (name, text) in texts {
        table.push((name, Arc::new(OfProcess(text))));
    }
    table.push(("pagemap", Arc::new(proc_maps::Pagemap)));
    table.push(("mem", Arc::new(Mem)));
    table.push(("clear_refs", Arc::new(ClearRefsFile)));
    table
}

/// `clear_refs`
#[derive(Debug)]
struct ClearRefsFile;

impl<P: Platform> PseudoFile<P> for ClearRefsFile {
    fn mode(&self) -> u32 {
        0o200
    }
    fn read(&self, _: &mut Kernel<P>, _: ProcessId) -> Result<Vec<u8>, Errno> {
        Err(EINVAL)
    }
    fn write(&self, kernel: &mut Kernel<P>, process: ProcessId, data: &[u8]) -> Result<(), Errno> {
        let what = number(data).and_then(ClearRefs::from_number).ok_or(EINVAL)?;
        let mm = kernel.processes.get(&process).ok_or(ESRCH)?.mm.ok_or(ESRCH)?;
        kernel.mm.clear_refs(mm, what);
        Ok(())
    }
}

type KernelText<P> = fn(&Kernel<P>) -> String;
type ProcessText<P> = fn(&Kernel<P>, &Process) -> String;

/// A file about a process that cannot be written.
struct OfProcess<P: Platform>(ProcessText<P>);

impl<P: Platform> std::fmt::Debug for OfProcess<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OfProcess")
    }
}

impl<P: Platform> PseudoFile<P> for OfProcess<P> {
    fn read(&self, kernel: &mut Kernel<P>, process: ProcessId) -> Result<Vec<u8>, Errno> {
        let process = kernel.processes.get(&process).ok_or(ESRCH)?;
        if process.mm.is_none() && process.exit.is_none() {
            return Err(ENOENT);
        }
        Ok((self.0)(kernel, process).into_bytes())
    }
}

impl<P: Platform> Kernel<P> {
    /// `uname -r`: the version that the preset stands for.
    pub(crate) fn release(&self) -> String {
        let name = self.mm.pt.kernel.name.trim_start_matches('v');
        let version = name.split(['+', '-']).next().unwrap_or(name);
        format!("{version}.0-ptescope")
    }

    /// The name of a process's first thread.
    pub(crate) fn comm_of(&self, process: &Process) -> String {
        let comm = match process.threads.first().and_then(|t| self.tasks.get(t)) {
            Some(task) => task.comm,
            None => crate::kernel::comm(&process.exe),
        };
        String::from_utf8_lossy(comm.split(|&b| b == 0).next().unwrap_or_default()).into_owned()
    }
}

fn meminfo<P: Platform>(kernel: &Kernel<P>) -> String {
    let info = kernel.mm.meminfo();
    let mut text = String::new();
    for (name, pages) in [
        ("MemTotal:", info.total),
        ("MemFree:", info.free),
        ("MemAvailable:", info.free),
        ("Buffers:", 0),
        ("Cached:", info.shmem),
        ("SwapCached:", 0),
        ("AnonPages:", info.anon),
        ("Shmem:", info.shmem),
        ("PageTables:", info.page_tables),
        ("SwapTotal:", info.swap_total),
        ("SwapFree:", info.swap_free),
    ] {
        text += &format!("{name:<15} {:>8} kB\n", pages.saturating_mul(4));
    }
    text + &hugepages::meminfo(kernel.mm.huge_pools())
}

fn vmstat<P: Platform>(kernel: &Kernel<P>) -> String {
    let info = kernel.mm.meminfo();
    let mut text = format!(
        "nr_free_pages {}\nnr_anon_pages {}\nnr_page_table_pages {}\n",
        info.free, info.anon, info.page_tables
    );
    for (name, value) in kernel.mm.vmstat.iter() {
        text += &format!("{name} {value}\n");
    }
    text
}

fn cpuinfo<P: Platform>(kernel: &Kernel<P>) -> String {
    let model = &kernel.options.cpu_model;
    let mut text = String::new();
    for cpu in 0..kernel.mm.pt.hw.cpus.max(1) {
        text += &format!("processor\t: {cpu}\n");
        text += &match P::Arch::ID {
            ArchId::X86_64 => format!("model name\t: {model}\n"),
            ArchId::Arm64 => "CPU architecture: 8\n".to_owned(),
        };
        text.push('\n');
    }
    if P::Arch::ID == ArchId::Arm64 {
        text += &format!("Hardware\t: {model}\n");
    }
    text
}

fn swaps<P: Platform>(kernel: &Kernel<P>) -> String {
    let info = kernel.mm.meminfo();
    let mut text = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n".to_owned();
    if info.swap_total > 0 {
        let used = info.swap_total.saturating_sub(info.swap_free).saturating_mul(4);
        let size = info.swap_total.saturating_mul(4);
        text +=
            &format!("/dev/zram0                              partition\t{size}\t\t{used}\t\t-2\n");
    }
    text
}

/// The 52 fields of `/proc/<pid>/stat`; those that do not exist here are 0.
fn stat<P: Platform>(kernel: &Kernel<P>, process: &Process) -> String {
    let memory = proc_maps::sizes(kernel, process);
    let pid = u64::from(process.id.get());
    let mut fields = [0u64; 53];
    for (number, value) in [
        (4, u64::from(process.parent.get())),
        (5, pid),
        (6, pid),
        (18, 20), // priority
        (20, process.threads.len() as u64),
        (23, memory.total_vm.saturating_mul(PAGE_SIZE)),
        (24, memory.rss),
        (25, u64::MAX), // rsslim
        (28, process.layout.stack_top.get()),
        (38, u64::from(process.exit_signal)),
        (47, process.layout.brk_start.get()),
        (48, process.layout.arg_start.get()),
    ] {
        if let Some(field) = fields.get_mut(number) {
            *field = value;
        }
    }
    let state = if process.exit.is_some() { 'Z' } else { 'R' };
    let mut text = format!("{pid} ({}) {state}", kernel.comm_of(process));
    for value in fields.iter().skip(4) {
        text += &format!(" {value}");
    }
    text.push('\n');
    text
}

/// `uname()`'s six fields.
pub(crate) fn uname<P: Platform>(kernel: &Kernel<P>) -> [String; 6] {
    [
        "Linux".to_owned(),
        "ptescope".to_owned(),
        kernel.release(),
        "#1 SMP".to_owned(),
        machine_name(P::Arch::ID).to_owned(),
        "(none)".to_owned(),
    ]
}
