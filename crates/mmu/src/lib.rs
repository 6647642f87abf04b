//! The hardware side of address translation: page-table walks over guest RAM, exact TLB and
//! walk-cache models, and the machines that are modelled.
//!
//! [`walk()`] and [`explain_walk`] read the tables ([`HwWalk`] is their encoding, both formats side
//! by side); [`Mmu`] holds the TLBs of all vCPUs and answers the CPUs' translations and the
//! kernel's flushes ([`arch::TlbPort`]); [`Machine`] names geometries, hardware facts and clocks,
//! each number with its source. What is not here: who changes tables (`arch`, `mm`), and what
//! anything costs (`cost`).

mod arm64;
mod assoc;
mod explain;
mod fault;
mod geometry;
pub mod hit;
mod level;
mod machines;
mod mmu;
mod presets;
mod spaces;
mod stats;
mod tlb;
mod walk;
mod x86_64;

pub use explain::{Field, LevelExplanation, Step, WalkExplanation, explain_walk};
pub use fault::{Access, Fault, FaultKind};
pub use geometry::{
    ArrayGeometry, Arrays, Covers, Geometry, GeometryError, L1_WAYS_MAX, OnDenial, Policy,
    format_arrays, parse_arrays,
};
pub use hit::{HitPath, HitTables};
pub use machines::{Clock, Confidence, Figure, Machine, MachineError, SETTINGS, Setting};
pub use mmu::{Mmu, StaleUseOracle};
pub use stats::{FlushKind, FlushStats, TlbStats};
pub use tlb::{CachedTranslation, CpuTlb, Exact, Model, StaleUse, Untracked};
pub use walk::{
    AccessDirty, Contiguous, Controls, DirtyState, Entry, EntryUse, HwWalk, LEVELS, Leaf,
    LeafEntry, Rights, Scope, Start, Trail, WalkStats, walk,
};
