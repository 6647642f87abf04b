//! Hardware facts that change what the kernel does.
//!
//! They belong to a machine preset (`mmu::machines`), not to a kernel version, and can be
//! overridden one by one (`--set machine.tlbirange=off`).

/// How far an arm64 core lets a live entry change size or CONT bit without break-before-make,
/// as Linux trusts it.
///
/// Source: Linux 7.2 and 7.3 arch/arm64/kernel/cpufeature.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BbmLevel {
    /// Full break-before-make.
    Level0,
    /// "BBML2 without conflict aborts", which 7.2 trusts by a list of cores.
    Level2NoAbort,
    /// ID register says 3, or on the longer list of 7.3.
    Level3,
}

/// Features of the modelled machine that Linux looks at. Those of the other architecture are
/// simply not asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hw {
    /// arm64 FEAT_TLBIRANGE.
    pub tlbi_range: bool,
    /// Walker sets AF and the dirty state itself (arm64 FEAT_HAFDBS; x86-64 always).
    pub hw_access_dirty: bool,
    /// arm64 break-before-make level.
    pub bbm: BbmLevel,
    /// Page-table isolation is active (arm64 KPTI, x86-64 PTI).
    pub kpti: bool,
    /// arm64 ASID bits: 8 or 16.
    pub asid_bits: u8,
    /// x86-64 PCID.
    pub pcid: bool,
    /// x86-64 INVPCID.
    pub invpcid: bool,
    /// Pages above which x86-64 Linux flushes everything (`tlb_single_page_flush_ceiling`).
    pub tlb_single_page_flush_ceiling: u64,
    /// How many CPUs the machine has.
    pub cpus: u16,
}

impl Hw {
    /// An arm64 machine with TLBI ranges and hardware access flags, and nothing newer.
    pub const fn arm64() -> Hw {
        Hw {
            tlbi_range: true,
            hw_access_dirty: true,
            bbm: BbmLevel::Level0,
            kpti: false,
            asid_bits: 16,
            pcid: false,
            invpcid: false,
            tlb_single_page_flush_ceiling: 33,
            cpus: 1,
        }
    }

    /// An x86-64 machine with neither PCID nor PTI.
    pub const fn x86_64() -> Hw {
        Hw { tlbi_range: false, ..Hw::arm64() }
    }
}
