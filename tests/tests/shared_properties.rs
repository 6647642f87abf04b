//! Any sequence of operations on memory that is shared or made of huge pages, against a model
//! that knows bytes only; `validate()` after each step, and nothing left at the end.

use arch::{Arch, Arm64, HugeSize, Hw, KernelConfig, MmId, X86_64};
use mm::{Backing, FileId, Foll, MapFlags, Thp, VmProt, advice};
use ptescope_tests::guest::{Guest, Oracle};
use units::{ArchId, PAGE_SIZE, Pfn, VirtAddr};

const MIB: u64 = 1 << 20;
const RW: VmProt = VmProt::READ.union(VmProt::WRITE);
/// Pages of each mapping.
const PAGES: u64 = SLOTS as u64;
const SLOTS: usize = 4;

/// A small generator, so that a failure can be repeated from its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
    fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).expect("less than a usize")
    }
}

/// What a mapping shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    PrivateHuge(HugeSize),
    SharedHuge(HugeSize),
    SharedAnonymous,
    PrivateFile,
}

impl Kind {
    fn unit(self) -> u64 {
        match self {
            Kind::PrivateHuge(size) | Kind::SharedHuge(size) => size.bytes(),
            Kind::SharedAnonymous | Kind::PrivateFile => PAGE_SIZE,
        }
    }
    fn is_shared(self) -> bool {
        matches!(self, Kind::SharedHuge(_) | Kind::SharedAnonymous)
    }
}

/// What a page holds, as far as the model knows: `None` if its owner may have taken it away.
type Page = Option<u8>;

/// A process as the model sees it: the pages of each private mapping.
#[derive(Clone, Debug)]
struct Process {
    id: MmId,
    private: Vec<[Page; SLOTS]>,
}

struct World<A: Arch> {
    guest: Guest<A>,
    kinds: Vec<Kind>,
    at: Vec<VirtAddr>,
    file: FileId,
    shared: Vec<[Page; SLOTS]>,
    parent: Process,
    child: Option<Process>,
    in_child: bool,
    pins: Vec<Vec<Pfn>>,
}

impl<A: Arch> World<A> {
    fn new(kernel: &str, slack: u64) -> World<A> {
        let kernel = KernelConfig::parse(kernel).expect("a known kernel");
        let hw = match A::ID {
            ArchId::Arm64 => Hw::arm64(),
            ArchId::X86_64 => Hw::x86_64(),
        };
        let mut guest = Guest::<A>::new(kernel, Hw { cpus: 2, ..hw }, Thp::only([]), 192 * MIB, 0);
        guest.mm.pt.tlb.oracle = Oracle::On;
        let file = guest.mm.shmem_file_create("file", vec![1; SLOTS * 4096]);
        let mut kinds = vec![Kind::SharedAnonymous, Kind::PrivateFile];
        for &size in A::HUGE_SIZES.iter().filter(|size| size.bytes() <= 2 * MIB) {
            // Enough for what is reserved, and a little for children.
            guest.mm.set_nr_hugepages(size, 2 * PAGES + slack);
            kinds.extend([Kind::PrivateHuge(size), Kind::SharedHuge(size)]);
        }
        let at: Vec<VirtAddr> = (1..=kinds.len() as u64).map(|i| VirtAddr::new(i << 32)).collect();
        let start = |kind: &Kind| [Some(u8::from(*kind == Kind::PrivateFile)); SLOTS];
        let pages: Vec<_> = kinds.iter().map(start).collect();
        let parent = Process { id: guest.id, private: pages.clone() };
        let mut world = World {
            guest,
            kinds,
            at,
            file,
            shared: pages,
            parent,
            child: None,
            in_child: false,
            pins: Vec::new(),
        };
        for slot in 0..world.kinds.len() {
            world.map(slot);
        }
        world
    }

    fn map(&mut self, slot: usize) {
        let kind = self.kinds[slot];
        let sharing = if kind.is_shared() { MapFlags::SHARED } else { MapFlags::PRIVATE };
        let backing = match kind {
            Kind::PrivateHuge(size) | Kind::SharedHuge(size) => Backing::HugePages(size),
            Kind::SharedAnonymous => Backing::Anonymous,
            Kind::PrivateFile => Backing::File { file: self.file, offset: 0 },
        };
        let len = PAGES * kind.unit();
        let (id, at) = (self.guest.id, self.at[slot]);
        let mapped = self.guest.mm.mmap(id, at, len, RW, sharing | MapFlags::FIXED, backing);
        assert_eq!(mapped, Ok(at), "{kind:?}");
    }

    fn va(&self, slot: usize, page: u64) -> VirtAddr {
        // Not the first byte, so that tails of huge pages are used too.
        self.at[slot].wrapping_add(page * self.kinds[slot].unit() + self.kinds[slot].unit() / 2)
    }

    fn page(&mut self, slot: usize, page: u64) -> &mut Page {
        let page = usize::try_from(page).expect("small");
        if self.kinds[slot].is_shared() {
            return &mut self.shared[slot][page];
        }
        match (self.in_child, &mut self.child) {
            (true, Some(child)) => &mut child.private[slot][page],
            _ => &mut self.parent.private[slot][page],
        }
    }

    /// Whether running out of huge pages is no fault of the kernel's: nobody promised any.
    fn may_fail(&self, slot: usize) -> bool {
        self.in_child && matches!(self.kinds[slot], Kind::PrivateHuge(_))
    }

    fn load(&mut self, slot: usize, page: u64) {
        let got = self.guest.load(self.va(slot, page));
        let may_fail = self.may_fail(slot);
        let kind = self.kinds[slot];
        match (got, *self.page(slot, page)) {
            (Ok(byte), Some(known)) => assert_eq!(byte, known, "{kind:?} page {page}"),
            (Err(_), _) if may_fail => *self.page(slot, page) = None,
            (got, None) => assert!(may_fail, "{kind:?} page {page}: {got:?}"),
            (got, known) => panic!("{kind:?} page {page}: {got:?}, expected {known:?}"),
        }
    }

    fn store(&mut self, slot: usize, page: u64, byte: u8) {
        let stored = self.guest.store(self.va(slot, page), byte);
        let may_fail = self.may_fail(slot);
        match stored {
            Ok(()) => *self.page(slot, page) = Some(byte),
            Err(error) => assert!(may_fail, "{:?}: {error:?}", self.kinds[slot]),
        }
        self.owner_may_have_taken(slot);
    }

    /// For want of pages an owner that writes, or pins, takes those that its child shares.
    fn owner_may_have_taken(&mut self, slot: usize) {
        if !self.in_child
            && matches!(self.kinds[slot], Kind::PrivateHuge(_))
            && let Some(child) = &mut self.child
        {
            child.private[slot] = [None; SLOTS];
        }
    }

    fn dontneed(&mut self, slot: usize, page: u64) {
        let unit = self.kinds[slot].unit();
        let at = self.at[slot].wrapping_add(page * unit);
        let id = self.guest.id;
        self.guest.mm.madvise(id, at, unit, advice::DONTNEED).expect("allowed");
        match self.kinds[slot] {
            Kind::PrivateHuge(_) => *self.page(slot, page) = Some(0),
            Kind::PrivateFile => *self.page(slot, page) = Some(1),
            Kind::SharedHuge(_) | Kind::SharedAnonymous => {}
        }
        // Before 6.9 the promise was gone with the page.
        if !self.guest.mm.pt.kernel.hugetlb_restore_reserve {
            self.store_if_possible(slot, page);
        }
    }

    /// Touches a page of the owner whose promise may be gone, and makes a new mapping if it is.
    fn store_if_possible(&mut self, slot: usize, page: u64) {
        if !matches!(self.kinds[slot], Kind::PrivateHuge(_)) || self.in_child {
            return;
        }
        match self.guest.store(self.va(slot, page), 3) {
            Ok(()) => *self.page(slot, page) = Some(3),
            Err(_) => self.remap(slot),
        }
    }

    fn protect(&mut self, slot: usize, page: u64) {
        let unit = self.kinds[slot].unit();
        let at = self.at[slot].wrapping_add(page * unit);
        let id = self.guest.id;
        for prot in [VmProt::READ, VmProt::empty(), RW] {
            self.guest.mm.mprotect(id, at, unit, prot).expect("whole pages");
        }
    }

    fn remap(&mut self, slot: usize) {
        if self.child.is_some() || !self.pins.is_empty() {
            // What others hold of the old mapping is not free for the new one.
            return;
        }
        self.map(slot);
        let fresh = Some(u8::from(self.kinds[slot] == Kind::PrivateFile));
        self.parent.private[slot] = [fresh; SLOTS];
        self.shared[slot] = [fresh; SLOTS];
    }

    fn fork(&mut self) {
        if self.child.is_some() || !self.pins.is_empty() {
            return;
        }
        let id = self.guest.mm.dup_mmap(self.guest.id).expect("memory");
        self.child = Some(Process { id, private: self.parent.private.clone() });
    }

    fn switch(&mut self) {
        let Some(child) = &self.child else { return };
        self.in_child = !self.in_child;
        let id = if self.in_child { child.id } else { self.parent.id };
        self.guest.switch_to(id);
    }

    fn exit_child(&mut self) {
        if let Some(child) = self.child.take() {
            self.in_child = false;
            self.guest.switch_to(self.parent.id);
            self.guest.mm.mmput(child.id);
        }
    }

    fn pin(&mut self, slot: usize, page: u64, write: bool) {
        let flags = if write { Foll::WRITE } else { Foll::empty() };
        let (id, va, may_fail) = (self.guest.id, self.va(slot, page), self.may_fail(slot));
        let mut pages = Vec::new();
        let got = match self.pins.len() % 2 {
            0 => self.guest.mm.pin_user_pages(id, va, 3, flags, &mut pages),
            _ => self.guest.mm.pin_user_pages_fast(id, va, 3, flags, &mut pages),
        };
        assert!(may_fail || got.is_ok(), "{:?} page {page}: {got:?}", self.kinds[slot]);
        self.owner_may_have_taken(slot);
        self.pins.push(pages);
    }

    fn unpin(&mut self) {
        for pages in std::mem::take(&mut self.pins) {
            self.guest.mm.unpin_user_pages(&pages);
        }
    }

    fn step(&mut self, random: &mut Random) {
        let slot = random.index(self.kinds.len());
        let page = random.below(PAGES);
        match random.below(16) {
            0..=3 => self.load(slot, page),
            4..=7 => {
                let byte = u8::try_from(1 + random.below(255)).expect("a byte");
                self.store(slot, page, byte);
            }
            8 => self.dontneed(slot, page),
            9 => self.protect(slot, page),
            10 => self.fork(),
            11 => self.switch(),
            12 => self.exit_child(),
            13 => self.pin(slot, page, random.below(2) == 0),
            14 => self.unpin(),
            _ => self.remap(slot),
        }
        self.guest.assert_valid("a step");
    }

    /// Everything goes; every page must be back where it came from.
    fn end(mut self) {
        self.exit_child();
        self.unpin();
        self.guest.mm.mmput(self.parent.id);
        self.guest.mm.file_put(self.file);
        self.guest.assert_valid("the end");
        for pool in self.guest.mm.huge_pools() {
            assert_eq!((pool.free, pool.reserved, pool.surplus), (pool.total, 0, 0), "{pool:?}");
        }
        assert_eq!(self.guest.mm.meminfo().shmem, 0);
    }
}

fn sequences<A: Arch>(kernel: &str) {
    for seed in 1..=24u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut world = World::<A>::new(kernel, seed % 3);
        for _ in 0..60 {
            world.step(&mut random);
        }
        world.end();
    }
}

#[test]
fn sequences_on_x86_64() {
    ["v6.1", "v6.5", "v6.12", "v7.3"].into_iter().for_each(sequences::<X86_64>);
}

#[test]
fn sequences_on_arm64() {
    ["v6.1", "v6.5", "v6.12", "v7.3"].into_iter().for_each(sequences::<Arm64>);
}
