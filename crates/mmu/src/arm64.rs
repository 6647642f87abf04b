//! VMSAv8-64 stage 1 descriptors (4 KiB granule, 48 bits) as the hardware walker reads them.
//!
//! Source: Arm DDI 0487, "VMSAv8-64 translation table format descriptors", "Data access
//! permissions", "Hardware management of the Access flag and dirty state". Only EL0 accesses
//! through TTBR0 are translated; TCR.TBI0 is set, as Linux runs.

use crate::walk::{
    AccessDirty, Controls, DirtyState, Entry, EntryUse, HwWalk, LeafEntry, Rights, Scope,
};
use crate::{Access, FaultKind, Field};
use arch::arm64::bits::{
    ADDR_MASK as ADDRESS, AF, CONT, NG, RDONLY as AP_RDONLY, TABLE, TABLE_NO_USER, TABLE_RDONLY,
    TABLE_UXN, USER as AP_USER, UXN, VALID, WRITE as DBM,
};
use arch::{Arm64, TableLevel};
use units::{ArchId, PAGE_SIZE, PhysAddr, VirtAddr};

/// Address bits that TBI does not ignore.
const TBI_MASK: u64 = (1 << Arm64::VA_BITS) - 1;

enum Kind {
    Invalid,
    Table,
    Leaf,
}

const fn kind(raw: u64, level: TableLevel) -> Kind {
    match (raw & VALID != 0, raw & TABLE != 0, level) {
        (false, _, _) => Kind::Invalid,
        (true, true, TableLevel::Pte) => Kind::Leaf,
        (true, true, _) => Kind::Table,
        (true, false, TableLevel::Pud | TableLevel::Pmd) => Kind::Leaf,
        (true, false, TableLevel::Pgd | TableLevel::Pte) => Kind::Invalid,
    }
}

const fn table_limit(raw: u64) -> Rights {
    let mut limit = Rights::ALL;
    if raw & TABLE_NO_USER != 0 {
        limit = limit.without(Rights::READ).without(Rights::WRITE);
    }
    if raw & TABLE_RDONLY != 0 {
        limit = limit.without(Rights::WRITE);
    }
    if raw & TABLE_UXN != 0 {
        limit = limit.without(Rights::EXEC);
    }
    limit
}

/// EL0's rights. Without AP[1] a page may still be executed (execute-only). A read-only descriptor with DBM
/// is writable where hardware manages the dirty state.
const fn rights(raw: u64, access_dirty: AccessDirty) -> Rights {
    let mut rights = Rights::ALL;
    let hardware_writable = raw & DBM != 0 && matches!(access_dirty, AccessDirty::Hardware);
    if raw & AP_USER == 0 {
        rights = rights.without(Rights::READ).without(Rights::WRITE);
    }
    if raw & AP_RDONLY != 0 && !hardware_writable {
        rights = rights.without(Rights::WRITE);
    }
    if raw & UXN != 0 {
        rights = rights.without(Rights::EXEC);
    }
    rights
}

impl HwWalk for Arm64 {
    const ID: ArchId = ArchId::Arm64;
    const FAULT_DROPS_ENTRIES: bool = false;
    const VA_BITS: u32 = 56;

    #[inline(always)]
    fn page_tag(va: VirtAddr) -> u64 {
        (va.get() & TBI_MASK) >> units::PAGE_SHIFT
    }

    fn input_address(va: VirtAddr) -> Result<VirtAddr, FaultKind> {
        let va = va.get() & TBI_MASK;
        if va >> 48 == 0 {
            Ok(VirtAddr::new(va))
        } else {
            Err(FaultKind::Translation(TableLevel::Pgd))
        }
    }

    fn decode(raw: u64, level: TableLevel, controls: &Controls) -> Entry {
        let span = 1 << level.shift();
        match kind(raw, level) {
            Kind::Invalid => Entry::Invalid,
            Kind::Table => {
                let next = PhysAddr::new(raw & ADDRESS);
                if !controls.is_ram(next, PAGE_SIZE) {
                    return Entry::Malformed;
                }
                Entry::Table { next, limit: table_limit(raw) }
            }
            Kind::Leaf => {
                let base = PhysAddr::new(raw & ADDRESS).align_down(span);
                if !controls.is_ram(base, span) {
                    return Entry::Malformed;
                }
                Entry::Leaf(LeafEntry {
                    base,
                    rights: rights(raw, controls.access_dirty),
                    accessed: raw & AF != 0,
                    dirty: match raw & AP_RDONLY {
                        0 => DirtyState::Dirty,
                        _ => DirtyState::Clean,
                    },
                    scope: if raw & NG != 0 { Scope::AddressSpace } else { Scope::Global },
                    key: 0,
                    contiguous: raw & CONT != 0,
                })
            }
        }
    }

    fn malformed(level: TableLevel) -> FaultKind {
        FaultKind::AddressSize(level)
    }

    fn used(raw: u64, usage: EntryUse) -> u64 {
        match usage {
            EntryUse::Table => raw,
            EntryUse::Leaf(Access::Write) => (raw | AF) & !AP_RDONLY,
            EntryUse::Leaf(_) => raw | AF,
        }
    }

    fn fields(raw: u64, level: TableLevel) -> Vec<Field> {
        let yes_no = |bit: u64, yes, no| if raw & bit != 0 { yes } else { no };
        let mut fields = Field::list(raw);
        match kind(raw, level) {
            Kind::Invalid => {
                fields.add(63, 1, "ignored", "invalid: software's own (a swap entry, or nothing)");
                fields.add(0, 0, "VALID", yes_no(VALID, "reserved descriptor type", "invalid"));
            }
            Kind::Table => {
                fields.add(63, 63, "NSTable", "ignored in non-secure state");
                let writes = yes_no(TABLE_RDONLY, "no writes below", "writes not limited");
                fields.add(62, 62, "APTable[1]", writes);
                let user = yes_no(TABLE_NO_USER, "no EL0 data access below", "EL0 not limited");
                fields.add(61, 61, "APTable[0]", user);
                let exec = yes_no(TABLE_UXN, "EL0 fetches nothing below", "EL0 fetch not limited");
                fields.add(60, 60, "UXNTable", exec);
                fields.add(59, 59, "PXNTable", "limits EL1 fetches");
                fields.add(58, 51, "ignored", "software bits");
                fields.add(50, 48, "reserved", "zero");
                fields.add(47, 12, "address", "physical address of the next table");
                fields.add(11, 2, "ignored", "");
                fields.add(1, 0, "type", "3: a table follows");
            }
            Kind::Leaf => {
                let shift = level.shift();
                fields.add(63, 63, "ignored", "software bit");
                fields.add(62, 60, "PO index", "permission overlay, off");
                fields.add(59, 59, "PBHA", "implementation defined");
                fields.add(58, 58, "software", "userfaultfd");
                fields.add(57, 57, "software", "");
                fields.add(56, 56, "software", "special");
                fields.add(55, 55, "software", "dirty");
                fields.add(54, 54, "UXN", yes_no(UXN, "EL0 may not fetch", "EL0 may fetch"));
                fields.add(53, 53, "PXN", "limits EL1 fetches");
                let cont = yes_no(CONT, "one of 16 entries that share a TLB entry", "on its own");
                fields.add(52, 52, "CONT", cont);
                let dbm = yes_no(DBM, "hardware clears AP[2] on a write", "AP[2] stays");
                fields.add(51, 51, "DBM", dbm);
                fields.add(50, 50, "GP", "branch target checks");
                fields.add(49, 48, "reserved", "zero");
                fields.add(47, shift, "address", "physical address of the page or block");
                if shift > 12 {
                    fields.add(shift - 1, 12, "reserved", "zero (bit 16: nT)");
                }
                fields.add(11, 11, "nG", yes_no(NG, "this ASID only", "global: any ASID"));
                fields.add(10, 10, "AF", yes_no(AF, "used since last cleared", "not used"));
                fields.add(9, 8, "SH", "shareability (3: inner)");
                let write = yes_no(AP_RDONLY, "read-only (with DBM: clean)", "writable");
                fields.add(7, 7, "AP[2]", write);
                fields.add(6, 6, "AP[1]", yes_no(AP_USER, "EL0 may use it", "EL1 only"));
                fields.add(5, 5, "NS", "ignored in non-secure state");
                fields.add(4, 2, "AttrIndx", "memory type, index into MAIR_EL1");
                let kind = if level == TableLevel::Pte { "3: a page" } else { "1: a block" };
                fields.add(1, 0, "type", kind);
            }
        }
        fields.done()
    }
}
