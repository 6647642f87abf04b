//! `/sys/kernel/mm/transparent_hugepage/khugepaged/`.
//!
//! Source: Linux mm/khugepaged.c, Documentation/admin-guide/mm/transhuge.rst.

#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use super::{PseudoFile, number};
use crate::counts::CountsByScope;
use crate::errno::{EACCES, EINVAL};
use crate::kernel::Kernel;
use crate::task::ProcessId;
use arch::Platform;
use mm::{Errno, Khugepaged};
use std::sync::Arc;

/// A number, and the largest that may be written; `None` for one that only is read.
#[derive(Clone, Copy, Debug)]
struct Knob {
    place: fn(&mut Khugepaged) -> &mut u64,
    max: Option<u64>,
}

/// Names and files.
pub(super) fn table<P: Platform>() -> impl Iterator<Item = (&'static str, Arc<dyn PseudoFile<P>>)>
where
    P::Sink: CountsByScope,
{
    const PTES: Option<u64> = Some(511);
    const UINT: Option<u64> = Some(u32::MAX as u64);
    let knobs: [(&'static str, Knob); 9] = [
        ("defrag", Knob { place: |k| &mut k.defrag, max: Some(1) }),
        ("pages_to_scan", Knob { place: |k| &mut k.pages_to_scan, max: UINT }),
        ("scan_sleep_millisecs", Knob { place: |k| &mut k.scan_sleep_millisecs, max: UINT }),
        ("alloc_sleep_millisecs", Knob { place: |k| &mut k.alloc_sleep_millisecs, max: UINT }),
        ("max_ptes_none", Knob { place: |k| &mut k.max_ptes_none, max: PTES }),
        ("max_ptes_swap", Knob { place: |k| &mut k.max_ptes_swap, max: PTES }),
        ("max_ptes_shared", Knob { place: |k| &mut k.max_ptes_shared, max: PTES }),
        ("pages_collapsed", Knob { place: |k| &mut k.pages_collapsed, max: None }),
        ("full_scans", Knob { place: |k| &mut k.full_scans, max: None }),
    ];
    knobs.into_iter().map(|(name, knob)| (name, Arc::new(knob) as Arc<dyn PseudoFile<P>>))
}

impl<P: Platform> PseudoFile<P> for Knob
where
    P::Sink: CountsByScope,
{
    fn mode(&self) -> u32 {
        if self.max.is_some() { 0o644 } else { 0o444 }
    }
    fn read(&self, kernel: &mut Kernel<P>, _: ProcessId) -> Result<Vec<u8>, Errno> {
        Ok(format!("{}\n", (self.place)(&mut kernel.mm.khugepaged)).into_bytes())
    }
    fn write(&self, kernel: &mut Kernel<P>, _: ProcessId, data: &[u8]) -> Result<(), Errno> {
        let max = self.max.ok_or(EACCES)?;
        let value = number(data).filter(|&value| value <= max).ok_or(EINVAL)?;
        *(self.place)(&mut kernel.mm.khugepaged) = value;
        kernel.wake_khugepaged();
        Ok(())
    }
}
