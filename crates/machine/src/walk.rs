//! One page mapped, touched and looked at, without a program (`ptescope walk`).

use crate::{RunError, RunErrorKind};
use arch::{Arch, Arm64, KernelConfig, Platform, X86_64};
use mm::{Backing, MapFlags, Mm, MmConfig, MmId, Thp, ThpSize, VmProt};
use mmu::{HwWalk, Machine, explain_walk};
use std::marker::PhantomData;
use units::{ArchId, CpuId, Order, PMD_SIZE, VirtAddr};

pub use arch::TableLevel;
pub use mmu::{Access, Fault, FaultKind, Field, Leaf, LevelExplanation, Step, WalkExplanation};

/// What the program did at the address before the walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// Nothing: it is mapped, and that is all.
    Nothing,
    /// It read there.
    Read,
    /// It wrote there.
    Write,
}

/// An address in a private anonymous mapping, and what is wanted there.
#[derive(Clone, Debug)]
pub struct WalkSetup {
    /// The kernel that maps it.
    pub kernel: KernelConfig,
    /// The machine that walks.
    pub machine: Machine,
    /// The folios that faults there get.
    pub folio: Order,
    /// What happened there before.
    pub touch: Touch,
    /// The address; the mapping is the 2 MiB around it.
    pub va: VirtAddr,
    /// What the walk is for.
    pub access: Access,
}

/// A platform that neither counts nor caches.
#[derive(Debug)]
struct Still<A>(PhantomData<A>);

impl<A: Arch> Platform for Still<A> {
    type Arch = A;
    type Sink = ();
    type Tlb = ();
}

const RAM_BYTES: u64 = 32 << 20;

/// Maps the page as the kernel would, and describes the walk for it. An address that cannot be
/// mapped is walked all the same: the fault is the answer.
///
/// # Errors
/// If the host refuses the little RAM that this needs.
pub fn explain(setup: &WalkSetup) -> Result<WalkExplanation, RunError> {
    match setup.machine.arch {
        ArchId::Arm64 => explain_on::<Arm64>(setup),
        ArchId::X86_64 => explain_on::<X86_64>(setup),
    }
}

fn explain_on<A: Arch + HwWalk>(setup: &WalkSetup) -> Result<WalkExplanation, RunError> {
    let internal = |what: String| RunError::new(RunErrorKind::Internal, what);
    let sizes = (setup.folio > Order::ZERO).then_some((setup.folio, ThpSize::Always));
    let config = MmConfig {
        ram_bytes: RAM_BYTES,
        swap_bytes: 0,
        kernel: setup.kernel.clone(),
        hw: setup.machine.hw.clone(),
        thp: Thp::only(sizes),
    };
    let mm = Mm::<Still<A>>::new(config, (), ());
    let mut mm = mm.map_err(|error| internal(format!("the host gives no memory: {error}")))?;
    let id = mm.mm_alloc().map_err(|errno| internal(format!("no root table: {errno:?}")))?;
    mm.pt.switch_mm(CpuId::default(), id);
    map(&mut mm, id, setup);
    let controls = setup.machine.controls(mm.pt.ram.len());
    Ok(explain_walk::<A>(&mm.pt.ram, &controls, mm.pt.root(id), setup.va, setup.access))
}

fn map<A: Arch>(mm: &mut Mm<Still<A>>, id: MmId, setup: &WalkSetup) {
    let start = setup.va.align_down(PMD_SIZE);
    let prot = VmProt::READ | VmProt::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::FIXED;
    let access = match setup.touch {
        Touch::Nothing => None,
        Touch::Read => Some(mm::Access::Read),
        Touch::Write => Some(mm::Access::Write),
    };
    // Where nothing can be mapped the walk shows why.
    if mm.mmap(id, start, PMD_SIZE, prot, flags, Backing::Anonymous).is_ok()
        && let Some(access) = access
    {
        let _ = mm.handle_user_fault(id, setup.va, access);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Reach;

    fn explain_for(machine: &str, order: u8, touch: Touch, va: u64) -> WalkExplanation {
        let setup = WalkSetup {
            kernel: KernelConfig::parse(KernelConfig::DEFAULT).expect("known"),
            machine: Machine::by_name(machine).expect("known"),
            folio: Order::new(order).expect("an order"),
            touch,
            va: VirtAddr::new(va),
            access: Access::Read,
        };
        explain(&setup).expect("walks")
    }

    fn reach(machine: &str, order: u8) -> Reach {
        let walk = explain_for(machine, order, Touch::Write, 0x7f00_1234_5678);
        walk.outcome.expect("mapped").1.reach
    }

    #[test]
    fn only_arm64_makes_one_translation_of_a_64_kib_folio() {
        assert_eq!(reach("apple-m3-vm", 4), Reach::K64);
        assert_eq!(reach("x86-bare-metal", 4), Reach::K4);
        for machine in ["apple-m3-vm", "x86-bare-metal"] {
            assert_eq!(reach(machine, 0), Reach::K4);
            assert_eq!(reach(machine, 9), Reach::M2);
        }
    }

    #[test]
    fn untouched_and_impossible_addresses_fault() {
        for machine in ["apple-m3-vm", "x86-bare-metal"] {
            for va in [0x7f00_1234_5678, 0, 0x0123_4567_89ab_cdef] {
                let walk = explain_for(machine, 4, Touch::Nothing, va);
                assert!(walk.outcome.is_err(), "{machine} {va:#x}");
            }
        }
    }
}
