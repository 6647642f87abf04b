//! Faults of address translation, as values, and their architectural codes.
//!
//! A walk or a lookup that cannot deliver a translation returns a [`Fault`]; the machine turns it
//! into what the guest's kernel would see ([`Fault::error_code`] and CR2 on x86-64, [`Fault::esr`]
//! and FAR_EL1 on arm64) and hands it to `mm`.

use arch::TableLevel;
use units::VirtAddr;

/// What a translation is wanted for. All accesses modelled here are a user program's own: the
/// kernel layer reads and writes guest memory through `mm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Access {
    /// A data read.
    Read = 0,
    /// A data write.
    Write = 1,
    /// An instruction fetch.
    Exec = 2,
}

impl Access {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Access; 3] = [Access::Read, Access::Write, Access::Exec];
}

/// Why a translation failed. The level is that of the entry that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// x86-64: bits 63:47 of the address differ; a #GP(0), not a page fault.
    NonCanonical,
    /// The entry is not valid (P=0), or on arm64 the address is outside TTBR0's range.
    Translation(TableLevel),
    /// arm64: the entry's output address lies beyond the physical address size or RAM.
    AddressSize(TableLevel),
    /// arm64 without hardware access flag: AF=0.
    AccessFlag(TableLevel),
    /// The rights, combined over the levels, do not allow the access.
    Permission(TableLevel),
    /// x86-64: a reserved bit is set, or the address lies beyond RAM.
    Reserved(TableLevel),
    /// x86-64: PKRU denies the access.
    ProtectionKey(TableLevel),
}

/// A failed translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The address, as the program gave it (CR2, FAR_EL1).
    pub va: VirtAddr,
    /// What it was wanted for.
    pub access: Access,
    /// Why it failed.
    pub kind: FaultKind,
}

/// #GP.
const VECTOR_GENERAL_PROTECTION: u8 = 13;
/// #PF.
const VECTOR_PAGE_FAULT: u8 = 14;

impl Fault {
    /// x86-64 exception vector: #PF, or #GP for a non-canonical address.
    pub const fn vector(self) -> u8 {
        match self.kind {
            FaultKind::NonCanonical => VECTOR_GENERAL_PROTECTION,
            _ => VECTOR_PAGE_FAULT,
        }
    }

    /// x86-64 error code: P 0, W 1, U 2, RSVD 3, I 4, PK 5; 0 for a #GP.
    ///
    /// Source: Intel SDM 3A, "Page-Fault Exceptions".
    pub const fn error_code(self) -> u32 {
        let cause = match self.kind {
            FaultKind::NonCanonical => return 0,
            FaultKind::Translation(_) => 0,
            FaultKind::Permission(_) | FaultKind::AccessFlag(_) => 1,
            FaultKind::Reserved(_) | FaultKind::AddressSize(_) => 1 | 1 << 3,
            FaultKind::ProtectionKey(_) => 1 | 1 << 5,
        };
        let access = match self.access {
            Access::Read => 0,
            Access::Write => 1 << 1,
            Access::Exec => 1 << 4,
        };
        cause | access | 1 << 2
    }

    /// arm64 syndrome of an abort from EL0: EC, IL, WnR and the fault status code.
    ///
    /// Source: Arm DDI 0487, "ISS encoding for an exception from a Data Abort".
    pub const fn esr(self) -> u64 {
        const IL: u64 = 1 << 25;
        let class_and_wnr = match self.access {
            Access::Exec => 0x20 << 26,
            Access::Read => 0x24 << 26,
            Access::Write => 0x24 << 26 | 1 << 6,
        };
        class_and_wnr | IL | self.status_code()
    }

    /// arm64 fault status code (`FSC`, bits 5:0 of the syndrome).
    pub const fn status_code(self) -> u64 {
        let (base, level) = match self.kind {
            FaultKind::NonCanonical => (0x04, TableLevel::Pgd),
            FaultKind::AddressSize(level) | FaultKind::Reserved(level) => (0x00, level),
            FaultKind::Translation(level) => (0x04, level),
            FaultKind::AccessFlag(level) => (0x08, level),
            FaultKind::Permission(level) | FaultKind::ProtectionKey(level) => (0x0c, level),
        };
        base + level as u64
    }

    /// Whether the kernel's page-fault handler may repair it; the others kill the program.
    pub const fn is_repairable(self) -> bool {
        matches!(
            self.kind,
            FaultKind::Translation(_) | FaultKind::AccessFlag(_) | FaultKind::Permission(_)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(access: Access, kind: FaultKind) -> Fault {
        Fault { va: VirtAddr::new(0x1000), access, kind }
    }

    #[test]
    fn x86_error_codes_are_those_of_the_manual() {
        let level = TableLevel::Pte;
        let cases = [
            (Access::Read, FaultKind::Translation(level), 0b00_0100),
            (Access::Write, FaultKind::Translation(level), 0b00_0110),
            (Access::Exec, FaultKind::Translation(level), 0b01_0100),
            (Access::Write, FaultKind::Permission(level), 0b00_0111),
            (Access::Exec, FaultKind::Permission(level), 0b01_0101),
            (Access::Read, FaultKind::Reserved(level), 0b00_1101),
            (Access::Write, FaultKind::ProtectionKey(level), 0b10_0111),
        ];
        for (access, kind, code) in cases {
            assert_eq!(fault(access, kind).error_code(), code, "{access:?} {kind:?}");
            assert_eq!(fault(access, kind).vector(), 14);
        }
        let general = fault(Access::Read, FaultKind::NonCanonical);
        assert_eq!((general.vector(), general.error_code()), (13, 0));
    }

    #[test]
    fn arm_syndromes_are_those_of_the_manual() {
        let cases = [
            (Access::Read, FaultKind::Translation(TableLevel::Pgd), 0x9200_0004),
            (Access::Write, FaultKind::Translation(TableLevel::Pte), 0x9200_0047),
            (Access::Exec, FaultKind::Translation(TableLevel::Pmd), 0x8200_0006),
            (Access::Write, FaultKind::Permission(TableLevel::Pte), 0x9200_004f),
            (Access::Read, FaultKind::AccessFlag(TableLevel::Pte), 0x9200_000b),
            (Access::Read, FaultKind::AddressSize(TableLevel::Pmd), 0x9200_0002),
        ];
        for (access, kind, esr) in cases {
            assert_eq!(fault(access, kind).esr(), esr, "{access:?} {kind:?}");
        }
    }
}
