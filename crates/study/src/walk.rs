//! `ptescope walk`: what to walk for.

use crate::resolve::{kernel, machine};
use crate::{Override, status};
use machine::walk::{Access, Touch, WalkExplanation, WalkSetup, explain};
use report::Failure;
use units::{ArchId, Order, VirtAddr};

/// A walk, in the words of the command line.
#[derive(Clone, Debug)]
pub struct WalkRequest {
    /// The architecture; else that of the machine, else both.
    pub arch: Option<ArchId>,
    /// The machine; else the default of each architecture.
    pub machine: Option<String>,
    /// `PRESET[(+|-)PATCH]…`.
    pub kernel: String,
    /// Fields of the kernel and of the machine that differ from the preset.
    pub set: Vec<Override>,
    /// Folios that faults get, in bytes: 4 KiB to 2 MiB.
    pub folio_bytes: u64,
    /// What happened at the address before.
    pub touch: Touch,
    /// The address.
    pub va: VirtAddr,
    /// What the walk is for.
    pub access: Access,
}

/// The set-ups that a request means: one, or one of each architecture.
///
/// # Errors
/// 2 for unknown names and folio sizes that do not exist.
pub fn walk_setups(request: &WalkRequest) -> Result<Vec<WalkSetup>, Failure> {
    let archs = match (request.arch, &request.machine) {
        (Some(arch), _) => vec![Some(arch)],
        (None, Some(_)) => vec![None],
        (None, None) => ArchId::ALL.map(Some).to_vec(),
    };
    let orders = (0..=Order::PMD.get()).filter(|order| *order != 1).filter_map(Order::new);
    let folio = orders.into_iter().find(|order| order.bytes() == request.folio_bytes);
    let folio = folio.ok_or_else(|| Failure {
        message: format!(
            "there are no folios of {} bytes; give 4K, or a power of two from 16K to 2M",
            request.folio_bytes
        ),
        status: status::USAGE,
    })?;
    let setup = |arch: Option<ArchId>| {
        Ok(WalkSetup {
            kernel: kernel(&request.kernel, &request.set)?,
            machine: machine(request.machine.as_deref(), arch, &request.set)?,
            folio,
            touch: request.touch,
            va: request.va,
            access: request.access,
        })
    };
    archs.into_iter().map(setup).collect()
}

/// Maps, touches, walks.
///
/// # Errors
/// 70 if the host refuses memory.
pub fn explain_walk(setup: &WalkSetup) -> Result<WalkExplanation, Failure> {
    explain(setup).map_err(|error| Failure { message: error.message, status: status::INTERNAL })
}
