//! The machine presets.

use crate::status;
use report::Failure;
use units::ArchId;

/// A machine preset.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Its name.
    pub name: &'static str,
    /// Its architecture.
    pub arch: ArchId,
    /// A line on it.
    pub summary: String,
}

/// Every machine preset, in the order of the names.
pub fn machines() -> Vec<Machine> {
    Vec::new()
}

/// The architecture of a machine.
///
/// # Errors
/// 2 for a machine that does not exist.
pub fn machine_arch(name: &str) -> Result<ArchId, Failure> {
    let machines = machines();
    machines.iter().find(|m| m.name == name).map(|m| m.arch).ok_or_else(|| {
        let known: Vec<&str> = machines.iter().map(|m| m.name).collect();
        let message = format!("unknown machine `{name}`; known: {}", known.join(", "));
        Failure { message, status: status::USAGE }
    })
}
