//! The instructions by which the kernel layer reaches the TLBs.

use events::{Flush, Span};
use std::fmt::Debug;
use units::{Asid, CpuId, NrPages, PAGE_SIZE, PhysAddr, Reach, VirtAddr};

/// Whether an invalidation reaches every CPU or only the one that executes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broadcast {
    /// Inner shareable: every CPU.
    Yes,
    /// This CPU.
    No,
}

/// Whether walk-cache entries go too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeafOnly {
    /// Last-level entries only: walk caches stay.
    Yes,
    /// All levels.
    No,
}

/// One TLB maintenance instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlbOp {
    /// x86-64 INVLPG: entries for `va` of the current PCID, global ones of any, and the whole
    /// paging-structure cache of the current PCID.
    Invlpg {
        /// An address in the page.
        va: VirtAddr,
    },
    /// x86-64 MOV to CR3 of the current root with bit 63 clear: non-global entries of the
    /// current PCID.
    Cr3Reload,
    /// x86-64 INVPCID type 0: non-global entries of `pcid` for `va`.
    InvpcidAddr {
        /// The tag.
        pcid: Asid,
        /// An address in the page.
        va: VirtAddr,
    },
    /// x86-64 INVPCID type 1: non-global entries of `pcid`.
    InvpcidSingle {
        /// The tag.
        pcid: Asid,
    },
    /// x86-64 INVPCID type 2 (or a toggle of CR4.PGE): everything.
    InvpcidAll,
    /// arm64 TLBI VAE1, VALE1 and their IS forms.
    TlbiVa {
        /// The tag; global entries match any.
        asid: Asid,
        /// An address in the page.
        va: VirtAddr,
        /// VALE1 or VAE1.
        leaf_only: LeafOnly,
        /// IS or not.
        broadcast: Broadcast,
    },
    /// arm64 TLBI RVAE1, RVALE1 and their IS forms.
    TlbiRange {
        /// The tag; global entries match any.
        asid: Asid,
        /// First page.
        va: VirtAddr,
        /// How many pages, always even: (NUM+1)·2^(5·SCALE+1).
        pages: NrPages,
        /// RVALE1 or RVAE1.
        leaf_only: LeafOnly,
        /// IS or not.
        broadcast: Broadcast,
    },
    /// arm64 TLBI ASIDE1(IS): non-global entries of the ASID.
    TlbiAsid {
        /// The tag.
        asid: Asid,
        /// IS or not.
        broadcast: Broadcast,
    },
    /// arm64 TLBI VMALLE1(IS): everything.
    TlbiAll {
        /// IS or not.
        broadcast: Broadcast,
    },
}

impl TlbOp {
    /// The instruction as a trace shows it.
    pub(crate) fn traced(&self, cpu: CpuId) -> Flush {
        let page = |va: VirtAddr, pages: u64| {
            let start = VirtAddr::new(va.get() & !(PAGE_SIZE - 1));
            Some(Span { start, bytes: pages.saturating_mul(PAGE_SIZE) })
        };
        let (name, span, broadcast) = match *self {
            TlbOp::Invlpg { va } => ("INVLPG", page(va, 1), Broadcast::No),
            TlbOp::Cr3Reload => ("MOV to CR3", None, Broadcast::No),
            TlbOp::InvpcidAddr { va, .. } => ("INVPCID address", page(va, 1), Broadcast::No),
            TlbOp::InvpcidSingle { .. } => ("INVPCID context", None, Broadcast::No),
            TlbOp::InvpcidAll => ("INVPCID all", None, Broadcast::No),
            TlbOp::TlbiVa { va, broadcast, .. } => ("TLBI page", page(va, 1), broadcast),
            TlbOp::TlbiRange { va, pages, broadcast, .. } => {
                ("TLBI range", page(va, pages.get()), broadcast)
            }
            TlbOp::TlbiAsid { broadcast, .. } => ("TLBI ASID", None, broadcast),
            TlbOp::TlbiAll { broadcast } => ("TLBI all", None, broadcast),
        };
        let everywhere = broadcast == Broadcast::Yes;
        Flush { cpu, everywhere, name, span }
    }
}

/// What loading a translation root does to the entries that carry its tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchKind {
    /// They stay (arm64 always; x86-64 with PCID and bit 63 of CR3).
    Keep,
    /// Non-global entries of the new tag go (x86-64, MOV to CR3 with bit 63 clear).
    Flush,
}

/// A live entry became something that a cached copy must not be used for any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PteChange {
    /// Root table of the address space.
    pub root: PhysAddr,
    /// First address that the entry translated.
    pub va: VirtAddr,
    /// How much it translated.
    pub reach: Reach,
    /// The op that changed it, and owes a flush.
    pub owed_by: events::Op,
}

/// The TLBs as the kernel layer sees them. `mmu` implements it; `mm` never learns more.
pub trait TlbPort: Debug {
    /// `cpu` executes `op`.
    fn flush(&mut self, cpu: CpuId, op: TlbOp);
    /// `cpu` loads `root` tagged `asid` (CR3, TTBR0_EL1).
    fn switch(&mut self, cpu: CpuId, root: PhysAddr, asid: Asid, kind: SwitchKind);
    /// Whether [`TlbPort::pte_changed`] wants to be told: the stale-use oracle is on.
    fn watches_ptes(&self) -> bool;
    /// Cached copies of the entry are stale from now on, until a flush removes them.
    fn pte_changed(&mut self, change: PteChange);
}

impl TlbPort for () {
    fn flush(&mut self, _: CpuId, _: TlbOp) {}
    fn switch(&mut self, _: CpuId, _: PhysAddr, _: Asid, _: SwitchKind) {}
    fn watches_ptes(&self) -> bool {
        false
    }
    fn pte_changed(&mut self, _: PteChange) {}
}
