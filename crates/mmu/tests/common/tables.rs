//! Page tables written word by word, as a test states them.

use arch::{Arm64, TableLevel, X86_64};
use mmu::{HwWalk, LEVELS};
use phys::Ram;
use units::{PAGE_SIZE, PhysAddr, VirtAddr};

/// What tests need to write entries of an architecture.
pub trait Words: HwWalk {
    /// An entry that points to a table and limits nothing.
    fn table(next: u64) -> u64;
    /// A leaf that allows user reads and writes, accessed and dirty, not global.
    fn leaf(base: u64, level: TableLevel) -> u64;
    /// Changes to a leaf that tests ask for.
    fn read_only(leaf: u64) -> u64;
    fn executable(leaf: u64) -> u64;
    fn old(leaf: u64) -> u64;
    fn clean(leaf: u64) -> u64;
    fn global(leaf: u64) -> u64;
    fn contiguous(leaf: u64) -> u64;
}

impl Words for X86_64 {
    fn table(next: u64) -> u64 {
        next | 0x7
    }
    fn leaf(base: u64, level: TableLevel) -> u64 {
        let size = if level == TableLevel::Pte { 0 } else { 0x80 };
        base | 0x67 | size | 1 << 63
    }
    fn read_only(leaf: u64) -> u64 {
        leaf & !0x2
    }
    fn executable(leaf: u64) -> u64 {
        leaf & !(1 << 63)
    }
    fn old(leaf: u64) -> u64 {
        leaf & !0x20
    }
    fn clean(leaf: u64) -> u64 {
        leaf & !0x40
    }
    fn global(leaf: u64) -> u64 {
        leaf | 0x100
    }
    fn contiguous(leaf: u64) -> u64 {
        leaf
    }
}

impl Words for Arm64 {
    fn table(next: u64) -> u64 {
        next | 0x3
    }
    fn leaf(base: u64, level: TableLevel) -> u64 {
        let kind = if level == TableLevel::Pte { 0x3 } else { 0x1 };
        // UXN, PXN, DBM, nG, AF, inner shareable, EL0.
        base | kind | 0x0068_0000_0000_0f40
    }
    fn read_only(leaf: u64) -> u64 {
        (leaf | 0x80) & !(1 << 51)
    }
    fn executable(leaf: u64) -> u64 {
        leaf & !(1 << 54)
    }
    fn old(leaf: u64) -> u64 {
        leaf & !0x400
    }
    fn clean(leaf: u64) -> u64 {
        leaf | 0x80
    }
    fn global(leaf: u64) -> u64 {
        leaf & !0x800
    }
    fn contiguous(leaf: u64) -> u64 {
        leaf | 1 << 52
    }
}

/// RAM in which tables are laid out from its first page up.
pub struct Tables {
    pub ram: Ram,
    next: u64,
}

impl Tables {
    pub fn new(ram_bytes: u64) -> Tables {
        // Page 0 stays empty, so that a forgotten root walks into nothing.
        Tables { ram: Ram::new(ram_bytes).expect("test RAM"), next: PAGE_SIZE }
    }

    pub fn table(&mut self) -> PhysAddr {
        let table = self.next;
        self.next += PAGE_SIZE;
        PhysAddr::new(table)
    }

    /// The slot of `level` for `va`, tables above it made as needed.
    pub fn slot<A: Words>(&mut self, root: PhysAddr, va: u64, level: TableLevel) -> PhysAddr {
        let va = VirtAddr::new(va);
        let mut table = root;
        for above in LEVELS.into_iter().take_while(|&above| above < level) {
            let slot = above.slot(table, va);
            let raw = self.ram.load_u64(slot);
            table = PhysAddr::new(raw & 0xffff_ffff_f000);
            if raw == 0 {
                table = self.table();
                self.ram.store_u64(slot, A::table(table.get()));
            }
        }
        level.slot(table, va)
    }

    /// Writes one leaf.
    pub fn map<A: Words>(&mut self, root: PhysAddr, va: u64, level: TableLevel, raw: u64) {
        let slot = self.slot::<A>(root, va, level);
        self.ram.store_u64(slot, raw);
    }
}
