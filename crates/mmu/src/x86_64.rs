//! x86-64 four-level entries as the hardware walker reads them.
//!
//! Source: Intel SDM 3A, "4-Level Paging and 5-Level Paging" and "Access Rights". EFER.NXE, CR0.WP
//! and CR4.PKE are on, as Linux runs.

use crate::walk::{Controls, DirtyState, Entry, EntryUse, HwWalk, LeafEntry, Rights, Scope};
use crate::{Access, FaultKind, Field};
use arch::x86_64::bits::{
    ACCESSED as A, ADDR_MASK as ADDRESS, DIRTY as D, GLOBAL as G, NX, PAT_LARGE, PRESENT as P,
    PSE as PS, RW, USER as US, pkey,
};
use arch::{TableLevel, X86_64};
use units::{ArchId, PAGE_SIZE, PhysAddr, VirtAddr};

/// User mode has no right at all through a supervisor entry.
const fn rights(raw: u64) -> Rights {
    if raw & US == 0 {
        return Rights::NONE;
    }
    let without_write = if raw & RW == 0 { Rights::WRITE } else { Rights::NONE };
    let without_exec = if raw & NX == 0 { Rights::NONE } else { Rights::EXEC };
    Rights::ALL.without(without_write).without(without_exec)
}

const fn is_leaf(raw: u64, level: TableLevel) -> bool {
    match level {
        TableLevel::Pgd => false,
        TableLevel::Pud | TableLevel::Pmd => raw & PS != 0,
        TableLevel::Pte => true,
    }
}

/// Bits that must be zero: those of an address beyond MAXPHYADDR, PS in a PML4E, and the low address bits
/// of a large leaf (all but its PAT bit).
const fn reserved(raw: u64, level: TableLevel, pa_bits: u8) -> u64 {
    let beyond = ADDRESS & !((1 << pa_bits) - 1);
    let by_level = match level {
        TableLevel::Pgd => PS,
        TableLevel::Pud | TableLevel::Pmd if is_leaf(raw, level) => {
            ((1 << level.shift()) - 1) & ADDRESS & !PAT_LARGE
        }
        _ => 0,
    };
    beyond | by_level
}

impl HwWalk for X86_64 {
    const ID: ArchId = ArchId::X86_64;
    const FAULT_DROPS_ENTRIES: bool = true;
    const VA_BITS: u32 = 64;

    #[inline(always)]
    fn page_tag(va: VirtAddr) -> u64 {
        va.get() >> units::PAGE_SHIFT
    }

    fn input_address(va: VirtAddr) -> Result<VirtAddr, FaultKind> {
        let sign = va.get().cast_signed() >> 47;
        if sign == 0 || sign == -1 { Ok(va) } else { Err(FaultKind::NonCanonical) }
    }

    fn decode(raw: u64, level: TableLevel, controls: &Controls) -> Entry {
        if raw & P == 0 {
            return Entry::Invalid;
        }
        if raw & reserved(raw, level, controls.pa_bits) != 0 {
            return Entry::Malformed;
        }
        if !is_leaf(raw, level) {
            let next = PhysAddr::new(raw & ADDRESS);
            // A table where no memory is reads as all ones: reserved bits set.
            if !controls.is_ram(next, PAGE_SIZE) {
                return Entry::Malformed;
            }
            return Entry::Table { next, limit: rights(raw) };
        }
        let span = 1 << level.shift();
        let base = PhysAddr::new(raw & ADDRESS).align_down(span);
        if !controls.is_ram(base, span) {
            return Entry::Malformed;
        }
        Entry::Leaf(LeafEntry {
            base,
            rights: rights(raw),
            accessed: raw & A != 0,
            dirty: if raw & D != 0 { DirtyState::Dirty } else { DirtyState::Clean },
            scope: if raw & G != 0 { Scope::Global } else { Scope::AddressSpace },
            key: pkey(raw),
            contiguous: false,
        })
    }

    fn malformed(level: TableLevel) -> FaultKind {
        FaultKind::Reserved(level)
    }

    fn used(raw: u64, usage: EntryUse) -> u64 {
        match usage {
            EntryUse::Leaf(Access::Write) => raw | A | D,
            EntryUse::Table | EntryUse::Leaf(_) => raw | A,
        }
    }

    fn fields(raw: u64, level: TableLevel) -> Vec<Field> {
        let leaf = is_leaf(raw, level);
        let present = raw & P != 0;
        let yes_no = |bit: u64, yes, no| if raw & bit != 0 { yes } else { no };
        let mut fields = Field::list(raw);
        fields.add(63, 63, "NX", yes_no(NX, "no instruction fetches below", "fetches allowed"));
        if !present {
            fields.add(62, 1, "ignored", "not present: software's own (a swap entry, or nothing)");
            fields.add(0, 0, "P", "not present");
            return fields.done();
        }
        if leaf {
            fields.add(62, 59, "PKEY", "protection key");
        } else {
            fields.add(62, 59, "ignored", "protection keys are in leaves only");
        }
        fields.add(58, 52, "ignored", "software bits (58: saved dirty)");
        if leaf && level != TableLevel::Pte {
            let shift = level.shift();
            fields.add(51, shift, "address", "physical address of the page");
            fields.add(shift - 1, 13, "reserved", "must be zero");
            fields.add(12, 12, "PAT", "memory type, index bit 2");
        } else if leaf {
            fields.add(51, 12, "address", "physical address of the page");
        } else {
            fields.add(51, 12, "address", "physical address of the next table");
        }
        fields.add(11, 11, "ignored", "software: soft-dirty");
        fields.add(10, 10, "ignored", "software: userfaultfd");
        fields.add(9, 9, "ignored", "software: special");
        if leaf {
            fields.add(8, 8, "G", yes_no(G, "global: any PCID", "this PCID only"));
        } else {
            fields.add(8, 8, "ignored", "G is in leaves only");
        }
        match level {
            TableLevel::Pgd => fields.add(7, 7, "reserved", "must be zero"),
            TableLevel::Pte => fields.add(7, 7, "PAT", "memory type, index bit 2"),
            _ => fields.add(7, 7, "PS", yes_no(PS, "a page ends the walk here", "a table follows")),
        }
        if leaf {
            fields.add(6, 6, "D", yes_no(D, "written since last cleared", "not written"));
        } else {
            fields.add(6, 6, "ignored", "D is in leaves only");
        }
        fields.add(5, 5, "A", yes_no(A, "used since last cleared", "not used"));
        fields.add(4, 4, "PCD", "memory type, index bit 1");
        fields.add(3, 3, "PWT", "memory type, index bit 0");
        fields.add(2, 2, "U/S", yes_no(US, "user mode may use it", "supervisor only"));
        fields.add(1, 1, "R/W", yes_no(RW, "writes allowed below", "read-only below"));
        fields.add(0, 0, "P", "present");
        fields.done()
    }
}
