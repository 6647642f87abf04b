//! The architectural state of one guest CPU, for both instruction sets, as one flat struct.
//!
//! Integer registers are 64-bit slots addressed by [`Reg`], vector registers
//! 128-bit slots addressed by [`Vreg`]. The number of integer slots is 256, so a
//! slot index, a byte, never needs a bounds check. Which slot is which register is said in
//! [`crate::ir`]; the typed accessors of [`crate::regs`] are for the kernel layer.
//!
//! Flags are *lazy*: the last flag-setting operation and its operands. See [`crate::flags`].

use crate::ir::{CcKind, Reg, Vreg};

/// Number of integer slots.
pub const REGS_NR: usize = 256;
/// Number of vector slots of 128 bits. 0–31 architectural low halves, 32–63 temporaries, 64–95
/// kept for the upper halves of 256-bit registers.
pub const VREGS_NR: usize = 128;

/// x87 FPU: the eight 80-bit registers, by physical index.
#[derive(Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct X87 {
    /// Mantissas, by physical register.
    pub mant: [u64; 8],
    /// Sign and exponent words, by physical register.
    pub exp: [u16; 8],
    /// Control word.
    pub cw: u16,
    /// Status word without the TOP field.
    pub sw: u16,
    /// Top of stack, 0–7.
    pub top: u8,
    /// One bit per physical register: 1 when it holds a value.
    pub used: u8,
}

impl Default for X87 {
    fn default() -> Self {
        X87 { mant: [0; 8], exp: [0; 8], cw: 0x37f, sw: 0, top: 0, used: 0 }
    }
}

/// The exclusive monitor of arm64 (`LDXR`/`STXR`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Monitor {
    /// Whether a reservation is held.
    pub armed: bool,
    /// Bytes of the reserved access.
    pub bytes: u8,
    /// Reserved virtual address.
    pub addr: u64,
    /// Value that was loaded; `STXR` succeeds when memory still holds it.
    pub value: u128,
}

/// Everything a guest thread owns in the CPU. Cloning it is what a thread switch saves.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct CpuState {
    /// Integer slots.
    pub r: [u64; REGS_NR],
    /// First operand (or the only datum) of the last flag-setting operation.
    pub cc_a: u64,
    /// Its second operand.
    pub cc_b: u64,
    /// Its carry-in, where the kind has one.
    pub cc_c: u64,
    /// What the operation was.
    pub cc_kind: CcKind,
    /// x86 direction flag.
    pub df: bool,
    /// Other x86 flags that a user program can set: AC, ID, TF, NT (bit positions of EFLAGS).
    pub eflags_other: u32,
    /// Program counter. Valid when [`run`](crate::Cpu::run) is not executing.
    pub pc: u64,
    /// Vector slots.
    pub v: [u128; VREGS_NR],
    /// x86 MXCSR.
    pub mxcsr: u32,
    /// arm64 FPCR.
    pub fpcr: u32,
    /// arm64 FPSR.
    pub fpsr: u32,
    /// arm64 exclusive monitor.
    pub monitor: Monitor,
    /// x87.
    pub x87: X87,
}

impl Default for CpuState {
    fn default() -> Self {
        CpuState {
            r: [0; REGS_NR],
            cc_a: 0,
            cc_b: 0,
            cc_c: 0,
            cc_kind: CcKind::Flags,
            df: false,
            eflags_other: 0,
            pc: 0,
            v: [0; VREGS_NR],
            mxcsr: 0x1f80,
            fpcr: 0,
            fpsr: 0,
            monitor: Monitor::default(),
            x87: X87::default(),
        }
    }
}

impl CpuState {
    /// Reads an integer slot.
    #[inline(always)]
    pub fn reg(&self, r: Reg) -> u64 {
        self.r[r.0 as usize]
    }
    /// Writes an integer slot.
    #[inline(always)]
    pub fn set_reg(&mut self, r: Reg, value: u64) {
        self.r[r.0 as usize] = value;
    }
    /// Reads a vector slot.
    #[inline(always)]
    pub fn vreg(&self, v: Vreg) -> u128 {
        self.v[(v.0 & 127) as usize]
    }
    /// Writes a vector slot.
    #[inline(always)]
    pub fn set_vreg(&mut self, v: Vreg, value: u128) {
        self.v[(v.0 & 127) as usize] = value;
    }
    /// Records a flag-setting operation.
    #[inline(always)]
    pub fn set_cc(&mut self, kind: CcKind, a: u64, b: u64, c: u64) {
        self.cc_kind = kind;
        self.cc_a = a;
        self.cc_b = b;
        self.cc_c = c;
    }
}
