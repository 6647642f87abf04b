//! Names to things: kernels, machines, architectures.

use crate::overrides::set_kernel;
use crate::{Override, status};
use machine::{KernelConfig, Machine};
use report::Failure;
use units::ArchId;

fn usage(message: String) -> Failure {
    Failure { message, status: status::USAGE }
}

/// The kernel that `spec` names, with what `set` says of it.
pub(crate) fn kernel(spec: &str, set: &[Override]) -> Result<KernelConfig, Failure> {
    let mut kernel = KernelConfig::parse(spec).map_err(|error| usage(error.to_string()))?;
    for Override { key, value } in set {
        if let Some(field) = key.strip_prefix("kernel.") {
            set_kernel(&mut kernel, field, value).map_err(|error| usage(error.to_string()))?;
        }
    }
    Ok(kernel)
}

/// The machine of that name, or the default of `arch`, with what `set` says of it.
pub(crate) fn machine(
    name: Option<&str>,
    arch: Option<ArchId>,
    set: &[Override],
) -> Result<Machine, Failure> {
    let mut machine = match name {
        Some(name) => Machine::by_name(name).map_err(|error| usage(error.to_string()))?,
        None => Machine::default_for(arch.unwrap_or(ArchId::Arm64)),
    };
    if let Some(arch) = arch.filter(|&arch| arch != machine.arch) {
        let (name, of) = (machine.name, machine.arch);
        let message = format!(
            "the machine {name} is {of}, not {arch}; name another --machine or leave it away"
        );
        return Err(usage(message));
    }
    for Override { key, value } in set {
        if let Some(key) = key.strip_prefix("machine.") {
            machine.set(key, value).map_err(|error| usage(error.to_string()))?;
        }
    }
    Ok(machine)
}

/// The architecture of a machine preset.
///
/// # Errors
/// 2 for a machine that does not exist.
pub fn machine_arch(name: &str) -> Result<ArchId, Failure> {
    machine(Some(name), None, &[]).map(|machine| machine.arch)
}

/// The architecture that an ELF header names, if it is one of ours.
pub(crate) fn elf_arch(bytes: &[u8]) -> Option<ArchId> {
    const EM_X86_64: [u8; 2] = [62, 0];
    const EM_AARCH64: [u8; 2] = [183, 0];
    if !bytes.starts_with(b"\x7fELF") {
        return None;
    }
    match bytes.get(18..20)? {
        m if m == EM_X86_64 => Some(ArchId::X86_64),
        m if m == EM_AARCH64 => Some(ArchId::Arm64),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Guest, parse_set};

    fn check<T: std::fmt::Debug>(result: Result<T, Failure>, part: &str) {
        let failure = result.expect_err("wrong");
        assert_eq!(failure.status, status::USAGE);
        assert!(failure.message.contains(part), "{failure}");
    }

    #[test]
    fn unknown_names_list_the_known_ones() {
        check(kernel("v5.0", &[]), "v6.12");
        check(kernel("v7.3+magic", &[]), "anon-unmap-batch");
        check(machine(Some("zen9"), None, &[]), "zen2");
        check(machine(Some("zen2"), Some(ArchId::Arm64), &[]), "is x86_64, not arm64");
        let set = [parse_set("machine.tlbrange=off").expect("a setting")];
        check(machine(Some("neoverse-n1"), None, &set), "tlbirange");
    }

    #[test]
    fn overrides_reach_their_subject() {
        let set = ["machine.tlbirange=off", "kernel.softleaf_raw_check=off"];
        let set = set.map(|text| parse_set(text).expect("a setting"));
        assert!(!machine(Some("apple-m3-vm"), None, &set).expect("known").hw.tlbi_range);
        assert!(!kernel("v7.3", &set).expect("known").softleaf_raw_check);
    }

    #[test]
    fn headers_name_their_architecture() {
        let guest = Guest::find("pageout").expect("built in");
        for arch in ArchId::ALL {
            assert_eq!(elf_arch(guest.elf(arch).expect("built")), Some(arch));
            assert_eq!(machine(None, Some(arch), &[]).expect("a default").arch, arch);
        }
        assert_eq!(elf_arch(b""), None);
        assert_eq!(elf_arch(b"\x7fELF"), None);
        assert_eq!(elf_arch(&[0; 64]), None);
    }
}
