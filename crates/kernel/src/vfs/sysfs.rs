//! Pseudo-files under `/sys`, and knobs that only remember.
//!
//! Source: Linux Documentation/admin-guide/mm/transhuge.rst, mm/huge_memory.c.

#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use super::gup_test::GupTestFile;
use super::khugepaged;
use super::{PseudoFile, bracketed, chosen_word, mm_events::MmEventsFile, number};
use crate::counts::CountsByScope;
use crate::errno::EINVAL;
use crate::kernel::Kernel;
use crate::task::ProcessId;
use arch::Platform;
use mm::{Errno, Thp, ThpDefrag, ThpGlobal, ThpSize};
use std::sync::Arc;
use units::{Order, PAGE_SIZE, PMD_SIZE};

pub(super) type Table<P> = Vec<(String, Arc<dyn PseudoFile<P>>)>;

/// Of NUMA nodes there is one.
const NODES: &str = "/sys/devices/system/node";
const THP: &str = "/sys/kernel/mm/transparent_hugepage";

/// Paths and files.
pub(super) fn table<P: Platform>() -> Table<P>
where
    P::Sink: CountsByScope,
{
    let mut table: Table<P> = vec![
        ("/sys/kernel/debug/mm_events".to_owned(), Arc::new(MmEventsFile)),
        ("/sys/kernel/debug/gup_test".to_owned(), Arc::new(GupTestFile)),
        ("/sys/kernel/debug/fault_around_bytes".to_owned(), Arc::new(FaultAround)),
        ("/dev/kmsg".to_owned(), Arc::new(Text(|k: &Kernel<P>| k.log.kmsg()))),
        (format!("{THP}/enabled"), Arc::new(Enabled)),
        (format!("{THP}/defrag"), Arc::new(Defrag)),
        (format!("{THP}/use_zero_page"), Arc::new(UseZeroPage)),
        (format!("{THP}/hpage_pmd_size"), Arc::new(Text(pmd_size))),
    ];
    for name in ["online", "possible", "has_memory", "has_cpu", "has_normal_memory"] {
        table.push((format!("{NODES}/{name}"), Arc::new(Text(|_| "0\n".to_owned()))));
    }
    table.push((format!("{NODES}/node0/meminfo"), Arc::new(Text(node_meminfo))));
    table.push((format!("{NODES}/node0/cpulist"), Arc::new(Text(cpu_list::<P>))));
    table.push((format!("{NODES}/node0/cpumap"), Arc::new(Text(cpu_map::<P>))));
    table.push((format!("{NODES}/node0/distance"), Arc::new(Text(|_| "10\n".to_owned()))));
    for name in ["online", "possible", "present"] {
        table.push((format!("/sys/devices/system/cpu/{name}"), Arc::new(Text(cpu_list::<P>))));
    }
    let shmem = &["always", "within_size", "advise", "never", "deny", "force"];
    table.push(knob(format!("{THP}/shmem_enabled"), Values::Words(shmem), "never"));
    table
        .extend(khugepaged::table().map(|(name, file)| (format!("{THP}/khugepaged/{name}"), file)));
    for order in Thp::orders() {
        size_files(order, &mut table);
    }
    table
}

fn size_files<P: Platform>(order: Order, table: &mut Table<P>)
where
    P::Sink: CountsByScope,
{
    let dir = format!("{THP}/hugepages-{}kB", order.kib());
    table.push((format!("{dir}/enabled"), Arc::new(SizeEnabled(order))));
    let shmem = &["always", "inherit", "within_size", "advise", "never"];
    table.push(knob(format!("{dir}/shmem_enabled"), Values::Words(shmem), "never"));
    let stats = Thp::boot().size(order).stats;
    for (name, _) in stats.iter() {
        table.push((format!("{dir}/stats/{name}"), Arc::new(SizeStat(order, name))));
    }
}

/// CPUs as a list: `0-3`, or `0`.
fn cpu_list<P: Platform>(kernel: &Kernel<P>) -> String {
    match kernel.mm.pt.hw.cpus.max(1) {
        1 => "0\n".to_owned(),
        nr => format!("0-{}\n", nr - 1),
    }
}

/// The same as a mask.
fn cpu_map<P: Platform>(kernel: &Kernel<P>) -> String {
    let cpus = u32::from(kernel.mm.pt.hw.cpus.clamp(1, 64));
    let mask = u64::MAX >> (64 - cpus);
    match mask >> 32 {
        0 => format!("{mask:x}\n"),
        high => format!("{high:x},{:08x}\n", mask & 0xffff_ffff),
    }
}

fn node_meminfo<P: Platform>(kernel: &Kernel<P>) -> String {
    let info = kernel.mm.meminfo();
    let mut text = String::new();
    for (name, pages) in [
        ("MemTotal:", info.total),
        ("MemFree:", info.free),
        ("MemUsed:", info.total.saturating_sub(info.free)),
        ("AnonPages:", info.anon),
        ("PageTables:", info.page_tables),
    ] {
        text += &format!("Node 0 {name:<15} {:>8} kB\n", pages.saturating_mul(4));
    }
    text
}

fn pmd_size<P: Platform>(_: &Kernel<P>) -> String {
    format!("{PMD_SIZE}\n")
}

/// A file that cannot be written and is a function of the kernel's state.
pub(super) struct Text<P: Platform>(pub(super) fn(&Kernel<P>) -> String);

impl<P: Platform> std::fmt::Debug for Text<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Text")
    }
}

impl<P: Platform> PseudoFile<P> for Text<P> {
    fn read(&self, kernel: &mut Kernel<P>, _: ProcessId) -> Result<Vec<u8>, Errno> {
        Ok((self.0)(kernel).into_bytes())
    }
}

/// What a knob takes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Values {
    /// One of these.
    Words(&'static [&'static str]),
    /// Any number.
    Number,
}

/// A file that remembers what was written, and does nothing with it.
#[derive(Debug)]
struct Knob {
    path: String,
    values: Values,
    boot: &'static str,
}

pub(super) fn knob<P: Platform>(
    path: String,
    values: Values,
    boot: &'static str,
) -> (String, Arc<dyn PseudoFile<P>>) {
    (path.clone(), Arc::new(Knob { path, values, boot }))
}

impl<P: Platform> PseudoFile<P> for Knob {
    fn mode(&self) -> u32 {
        0o644
    }
    fn read(&self, kernel: &mut Kernel<P>, _: ProcessId) -> Result<Vec<u8>, Errno> {
        let value = kernel.vfs.knob(&self.path, self.boot);
        Ok(match self.values {
            Values::Number => format!("{value}\n").into_bytes(),
            Values::Words(words) => {
                let active = words.iter().position(|w| *w == value).unwrap_or_default();
                bracketed(words, active)
            }
        })
    }
    fn write(&self, kernel: &mut Kernel<P>, _: ProcessId, data: &[u8]) -> Result<(), Errno> {
        let value = match self.values {
            Values::Number => number(data).map(|n| n.to_string()),
            Values::Words(words) => {
                chosen_word(words, data).and_then(|at| words.get(at)).map(|w| (*w).to_owned())
            }
        };
        kernel.vfs.set_knob(&self.path, value.ok_or(EINVAL)?);
        Ok(())
    }
}

macro_rules! word_file {
    ($(#[$doc:meta])* $name:ident, [$($word:literal $value:path),*], |$mm:ident| $place:expr) => {
        $(#[$doc])*
        #[derive(Debug)]
        struct $name;

        impl<P: Platform> PseudoFile<P> for $name {
            fn mode(&self) -> u32 {
                0o644
            }
            fn read(&self, kernel: &mut Kernel<P>, _: ProcessId) -> Result<Vec<u8>, Errno> {
                let $mm = &mut kernel.mm;
                let now = $place;
                let active = [$($value),*].iter().position(|value| *value == now);
                Ok(bracketed(&[$($word),*], active.unwrap_or_default()))
            }
            fn write(
                &self,
                kernel: &mut Kernel<P>,
                _: ProcessId,
                data: &[u8],
            ) -> Result<(), Errno> {
                let at = chosen_word(&[$($word),*], data).ok_or(EINVAL)?;
                let $mm = &mut kernel.mm;
                $place = *[$($value),*].get(at).ok_or(EINVAL)?;
                Ok(())
            }
        }
    };
}

word_file! {
    /// `enabled`
    Enabled,
    ["always" ThpGlobal::Always, "madvise" ThpGlobal::Madvise, "never" ThpGlobal::Never],
    |mm| mm.thp.enabled
}
word_file! {
    /// `defrag`
    Defrag,
    [
        "always" ThpDefrag::Always,
        "defer" ThpDefrag::Defer,
        "defer+madvise" ThpDefrag::DeferMadvise,
        "madvise" ThpDefrag::Madvise,
        "never" ThpDefrag::Never
    ],
    |mm| mm.thp.defrag
}

/// `use_zero_page`
#[derive(Debug)]
struct UseZeroPage;

impl<P: Platform> PseudoFile<P> for UseZeroPage {
    fn mode(&self) -> u32 {
        0o644
    }
    fn read(&self, kernel: &mut Kernel<P>, _: ProcessId) -> Result<Vec<u8>, Errno> {
        Ok(format!("{}\n", u8::from(kernel.mm.thp.use_zero_page)).into_bytes())
    }
    fn write(&self, kernel: &mut Kernel<P>, _: ProcessId, data: &[u8]) -> Result<(), Errno> {
        kernel.mm.thp.use_zero_page = match number(data) {
            Some(0) => false,
            Some(1) => true,
            _ => return Err(EINVAL),
        };
        Ok(())
    }
}

/// `fault_around_bytes`. Source: Linux mm/memory.c `fault_around_bytes_set()`.
#[derive(Debug)]
struct FaultAround;

impl<P: Platform> PseudoFile<P> for FaultAround {
    fn mode(&self) -> u32 {
        0o644
    }
    fn read(&self, kernel: &mut Kernel<P>, _: ProcessId) -> Result<Vec<u8>, Errno> {
        Ok(format!("{}\n", kernel.mm.fault_around_bytes).into_bytes())
    }
    fn write(&self, kernel: &mut Kernel<P>, _: ProcessId, data: &[u8]) -> Result<(), Errno> {
        let bytes = number(data).filter(|&bytes| bytes <= PMD_SIZE).ok_or(EINVAL)?;
        let power = bytes.checked_ilog2().map_or(0, |log| 1 << log);
        kernel.mm.fault_around_bytes = PAGE_SIZE.max(power);
        Ok(())
    }
}

/// `hugepages-<kB>kB/enabled`
#[derive(Debug)]
struct SizeEnabled(Order);

impl SizeEnabled {
    const WORDS: [&'static str; 4] = ["always", "inherit", "madvise", "never"];
    const VALUES: [ThpSize; 4] =
        [ThpSize::Always, ThpSize::Inherit, ThpSize::Madvise, ThpSize::Never];
}

impl<P: Platform> PseudoFile<P> for SizeEnabled {
    fn mode(&self) -> u32 {
        0o644
    }
    fn read(&self, kernel: &mut Kernel<P>, _: ProcessId) -> Result<Vec<u8>, Errno> {
        let now = kernel.mm.thp.size(self.0).enabled;
        let active = SizeEnabled::VALUES.iter().position(|v| *v == now);
        Ok(bracketed(&SizeEnabled::WORDS, active.unwrap_or_default()))
    }
    fn write(&self, kernel: &mut Kernel<P>, _: ProcessId, data: &[u8]) -> Result<(), Errno> {
        let at = chosen_word(&SizeEnabled::WORDS, data).ok_or(EINVAL)?;
        let value = SizeEnabled::VALUES.get(at).ok_or(EINVAL)?;
        kernel.mm.thp.size_mut(self.0).enabled = *value;
        Ok(())
    }
}

/// `hugepages-<kB>kB/stats/*`
#[derive(Debug)]
struct SizeStat(Order, &'static str);

impl<P: Platform> PseudoFile<P> for SizeStat {
    fn read(&self, kernel: &mut Kernel<P>, _: ProcessId) -> Result<Vec<u8>, Errno> {
        let stats = kernel.mm.thp.size(self.0).stats;
        let value = stats.iter().find(|(name, _)| *name == self.1).map_or(0, |(_, n)| n);
        Ok(format!("{value}\n").into_bytes())
    }
}
