//! The intermediate representation: compact micro-ops over register slots, for both instruction
//! sets.
//!
//! # Slots
//! Integer slots ([`Reg`]) hold 64 bits. x86-64: 0–15 are RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI,
//! R8–R15, [`FS`] and [`GS`] the segment bases. arm64: 0–30 are X0–X30, 31 is SP, [`TPIDR`] is
//! TPIDR_EL0. [`Reg::tmp`] gives temporaries; they live for one guest instruction. [`ZERO`] reads as
//! zero and is never written, [`SINK`] takes unwanted results (so arm64's XZR is `ZERO` as a source
//! and `SINK` as a destination). Vector slots ([`Vreg`]): 0–31 architectural, [`Vreg::tmp`] temporaries.
//!
//! # Widths
//! A `…32` op works on the low 32 bits and zero-extends its result, a `…64` op on all; there is no
//! 8- or 16-bit arithmetic: narrow x86 forms are extend, operate, insert.
//!
//! # Flags
//! Arithmetic ops never touch flags. [`Code::Cc`] and friends record (kind, a, b, c); dead records are
//! removed when the block is finished.
//!
//! FIDELITY: fault-flags a record that the same block overwrites unread is
//! dropped although a memory access between the two may fault, so a signal handler may see older
//! status flags than hardware would show; the interrupted program cannot tell.
//!
//! # Faults and restart
//! Any memory op may leave the block. A lowering must emit an instruction's faulting ops before any
//! op that changes an architectural slot or the flags (loads into temporaries first), so that the
//! instruction can be restarted. x86 string instructions keep their progress in RCX, RSI and RDI instead.
//!
//! # Blocks
//! A block is straight-line code on one page that ends at a branch, a page end or a length limit. Its numbers
//! of instructions and of data accesses are static. Direct branch targets are in the block, not in the op.

use std::fmt;

/// An integer slot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Reg(pub u8);

/// A vector slot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Vreg(pub u8);

impl Reg {
    /// Temporary `n`, 0–31.
    pub const fn tmp(n: u8) -> Reg {
        Reg(64 + (n & 31))
    }
}
impl Vreg {
    /// Temporary `n`, 0–31.
    pub const fn tmp(n: u8) -> Vreg {
        Vreg(32 + (n & 31))
    }
}
impl fmt::Debug for Reg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}", self.0)
    }
}
impl fmt::Debug for Vreg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

/// arm64 stack pointer.
pub const SP: Reg = Reg(31);
/// x86 FS base.
pub const FS: Reg = Reg(32);
/// x86 GS base.
pub const GS: Reg = Reg(33);
/// arm64 TPIDR_EL0.
pub const TPIDR: Reg = Reg(34);
/// Reads as zero; never written.
pub const ZERO: Reg = Reg(254);
/// Written, never read.
pub const SINK: Reg = Reg(255);

/// Operand width.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Width {
    /// 8 bits.
    W8,
    /// 16 bits.
    W16,
    /// 32 bits.
    W32,
    /// 64 bits.
    W64,
}

impl Width {
    /// Bits.
    pub const fn bits(self) -> u32 {
        8 << self as u32
    }
    /// Bytes.
    pub const fn bytes(self) -> u32 {
        1 << self as u32
    }
    /// The width of so many bytes: 1, 2, 4, anything else is 8.
    pub const fn of_bytes(bytes: usize) -> Width {
        match bytes {
            1 => Width::W8,
            2 => Width::W16,
            4 => Width::W32,
            _ => Width::W64,
        }
    }
}

/// What operation the lazy flags come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CcOp {
    /// The x86 flags themselves, EFLAGS bits in `a`.
    Flags,
    /// The arm64 flags themselves, in bits 31–28 of `a`.
    Nzcv,
    /// `a + b` (both instruction sets).
    Add,
    /// x86 `a - b`; carry is borrow.
    Sub,
    /// arm64 `a - b`; carry is not-borrow.
    Subs,
    /// `a + b + c`. An arm64 `SBCS` is this with `b` inverted.
    Adc,
    /// x86 `a - b - c`.
    Sbb,
    /// A logical result `a`; carry and overflow are clear.
    Logic,
    /// x86 `a + 1` with the old carry in `c`.
    Inc,
    /// x86 `a - 1` with the old carry in `c`.
    Dec,
    /// x86 `a << b`, `b` not zero.
    Shl,
    /// x86 `a >> b` logical, `b` not zero.
    Shr,
    /// x86 `a >> b` arithmetic, `b` not zero.
    Sar,
}

/// A flag operation with its width, as stored beside its operands.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct CcKind(u16);

#[expect(non_upper_case_globals, reason = "they read as the variants they stand for")]
impl CcKind {
    /// x86 flags held as bits.
    pub const Flags: CcKind = CcKind::new(CcOp::Flags, Width::W32);
    /// arm64 flags held as bits.
    pub const Nzcv: CcKind = CcKind::new(CcOp::Nzcv, Width::W32);
    /// arm64 32-bit subtraction.
    pub const Subs32: CcKind = CcKind::new(CcOp::Subs, Width::W32);
    /// arm64 64-bit subtraction.
    pub const Subs64: CcKind = CcKind::new(CcOp::Subs, Width::W64);

    /// An operation of a width.
    pub const fn new(op: CcOp, width: Width) -> CcKind {
        CcKind((op as u16) << 8 | width as u16)
    }
    /// From the `x` field of an op.
    #[inline(always)]
    pub const fn from_raw(x: u16) -> CcKind {
        CcKind(x)
    }
    /// As the `x` field of an op.
    pub const fn raw(self) -> u16 {
        self.0
    }
    /// The operation.
    #[inline(always)]
    pub const fn op(self) -> CcOp {
        match self.0 >> 8 {
            0 => CcOp::Flags,
            1 => CcOp::Nzcv,
            2 => CcOp::Add,
            3 => CcOp::Sub,
            4 => CcOp::Subs,
            5 => CcOp::Adc,
            6 => CcOp::Sbb,
            7 => CcOp::Logic,
            8 => CcOp::Inc,
            9 => CcOp::Dec,
            10 => CcOp::Shl,
            11 => CcOp::Shr,
            _ => CcOp::Sar,
        }
    }
    /// Operand bits.
    #[inline(always)]
    pub const fn bits(self) -> u32 {
        8 << (self.0 & 3)
    }
}
impl fmt::Debug for CcKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}{}", self.op(), self.bits())
    }
}

/// A condition on the flags. The first sixteen are x86's, in encoding order. arm64: EQ=Z, NE=Nz, CS=C,
/// CC=Nc, MI=S, PL=Ns, VS=O, VC=No, HI, LS, GE=Ge, LT=L, GT=G, LE=Le.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names of the manuals")]
pub enum Cond {
    O,
    No,
    /// Carry set (x86 B).
    C,
    /// Carry clear (x86 AE).
    Nc,
    Z,
    Nz,
    Be,
    A,
    S,
    Ns,
    P,
    Np,
    L,
    Ge,
    Le,
    G,
    /// arm64: carry set and not zero.
    Hi,
    /// arm64: not HI.
    Ls,
    /// Always.
    Al,
}

impl Cond {
    /// From the `c` field of an op; unknown values are [`Cond::Al`].
    #[inline(always)]
    pub const fn from_raw(c: u8) -> Cond {
        match c {
            0 => Cond::O,
            1 => Cond::No,
            2 => Cond::C,
            3 => Cond::Nc,
            4 => Cond::Z,
            5 => Cond::Nz,
            6 => Cond::Be,
            7 => Cond::A,
            8 => Cond::S,
            9 => Cond::Ns,
            10 => Cond::P,
            11 => Cond::Np,
            12 => Cond::L,
            13 => Cond::Ge,
            14 => Cond::Le,
            15 => Cond::G,
            16 => Cond::Hi,
            17 => Cond::Ls,
            _ => Cond::Al,
        }
    }
}

/// What an atomic read-modify-write computes, in the `x` field of [`Code::Rmw8`] and friends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum RmwOp {
    /// old + b
    Add,
    /// old & b
    And,
    /// old & !b
    Bic,
    /// old | b
    Or,
    /// old ^ b
    Xor,
    /// b
    Swap,
    /// signed maximum
    MaxS,
    /// signed minimum
    MinS,
    /// unsigned maximum
    MaxU,
    /// unsigned minimum
    MinU,
    /// old - b
    Sub,
}

impl RmwOp {
    /// From the `x` field of an op.
    pub const fn from_raw(x: u16) -> RmwOp {
        match x {
            0 => RmwOp::Add,
            1 => RmwOp::And,
            2 => RmwOp::Bic,
            3 => RmwOp::Or,
            4 => RmwOp::Xor,
            5 => RmwOp::Swap,
            6 => RmwOp::MaxS,
            7 => RmwOp::MinS,
            8 => RmwOp::MaxU,
            9 => RmwOp::MinU,
            _ => RmwOp::Sub,
        }
    }
}

/// One micro-op: 16 bytes. What the fields mean is said at each [`Code`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct Op {
    /// What to do.
    pub code: Code,
    /// Small extra datum: shift, flag kind, sub-operation.
    pub x: u16,
    /// Destination slot.
    pub d: u8,
    /// First source slot.
    pub a: u8,
    /// Second source slot.
    pub b: u8,
    /// Third source slot, or a condition.
    pub c: u8,
    /// Immediate.
    pub imm: i64,
}

/// Calls `$m!` with the documented list of all op codes; [`Code`] and the dispatch of both interpreters come from it.
macro_rules! for_each_code {
    ($m:ident) => {
        $m! {
            /// Nothing.
            Nop,
            /// Marks the start of a guest instruction; removed when the block is finished.
            InsnStart,
            /// d = imm
            MovI,
            /// d = a
            Mov,
            /// d = a, 8 bits zero-extended
            Zext8,
            /// d = a, 16 bits zero-extended
            Zext16,
            /// d = a, 32 bits zero-extended
            Zext32,
            /// d = a, 8 bits sign-extended to 32
            Sext8to32,
            /// d = a, 8 bits sign-extended to 64
            Sext8to64,
            /// d = a, 16 bits sign-extended to 32
            Sext16to32,
            /// d = a, 16 bits sign-extended to 64
            Sext16to64,
            /// d = a, 32 bits sign-extended to 64
            Sext32to64,
            /// d = bits 15–8 of a
            Ext8h,
            /// d bits 7–0 = a
            Ins8,
            /// d bits 15–8 = a
            Ins8h,
            /// d bits 15–0 = a
            Ins16,
            /// d = a + b
            Add32,
            /// d = a + b
            Add64,
            /// d = a - b
            Sub32,
            /// d = a - b
            Sub64,
            /// d = a & b
            And32,
            /// d = a & b
            And64,
            /// d = a | b
            Or32,
            /// d = a | b
            Or64,
            /// d = a ^ b
            Xor32,
            /// d = a ^ b
            Xor64,
            /// d = a & !b
            Bic32,
            /// d = a & !b
            Bic64,
            /// d = a | !b
            Orn32,
            /// d = a | !b
            Orn64,
            /// d = a ^ !b
            Eon32,
            /// d = a ^ !b
            Eon64,
            /// d = a * b
            Mul32,
            /// d = a * b
            Mul64,
            /// d = a << (b mod 32)
            Shl32,
            /// d = a << (b mod 64)
            Shl64,
            /// d = a >> (b mod 32), logical
            Shr32,
            /// d = a >> (b mod 64), logical
            Shr64,
            /// d = a >> (b mod 32), arithmetic
            Sar32,
            /// d = a >> (b mod 64), arithmetic
            Sar64,
            /// d = a rotated right by b mod 32
            Ror32,
            /// d = a rotated right by b mod 64
            Ror64,
            /// d = -a
            Neg32,
            /// d = -a
            Neg64,
            /// d = !a
            Not32,
            /// d = !a
            Not64,
            /// d = a + imm
            AddI32,
            /// d = a + imm
            AddI64,
            /// d = a & imm
            AndI32,
            /// d = a & imm
            AndI64,
            /// d = a | imm
            OrI32,
            /// d = a | imm
            OrI64,
            /// d = a ^ imm
            XorI32,
            /// d = a ^ imm
            XorI64,
            /// d = a * imm
            MulI32,
            /// d = a * imm
            MulI64,
            /// d = a << imm (0–31)
            ShlI32,
            /// d = a << imm (0–63)
            ShlI64,
            /// d = a >> imm, logical
            ShrI32,
            /// d = a >> imm, logical
            ShrI64,
            /// d = a >> imm, arithmetic
            SarI32,
            /// d = a >> imm, arithmetic
            SarI64,
            /// d = a rotated right by imm
            RorI32,
            /// d = a rotated right by imm
            RorI64,
            /// d = a + (b << x) + imm (x86 `lea`, arm64 shifted operand)
            AddShl32,
            /// d = a + (b << x) + imm
            AddShl64,
            /// d = a ^ (b << x)
            XorShl32,
            /// d = a ^ (b << x)
            XorShl64,
            /// d = a ^ (b >> logical x)
            XorShr32,
            /// d = a ^ (b >> logical x)
            XorShr64,
            /// d = a ^ (b rotated right by x)
            XorRor32,
            /// d = a ^ (b rotated right by x)
            XorRor64,
            /// d = a | (b << x)
            OrShl32,
            /// d = a | (b << x)
            OrShl64,
            /// d = a | (b >> logical x)
            OrShr32,
            /// d = a | (b >> logical x)
            OrShr64,
            /// d = a + (b >> logical x)
            AddShr32,
            /// d = a + (b >> logical x)
            AddShr64,
            /// d = a + (b >> arithmetic x)
            AddSar32,
            /// d = a + (b >> arithmetic x)
            AddSar64,
            /// d = a - (b << x)
            SubShl32,
            /// d = a - (b << x)
            SubShl64,
            /// d = a - (b >> arithmetic x)
            SubSar32,
            /// d = a - (b >> arithmetic x)
            SubSar64,
            /// d = a + (low 32 bits of b, zero-extended, << x)
            AddZext64,
            /// d = a + (low 32 bits of b, sign-extended, << x)
            AddSext64,
            /// d = high 64 bits of unsigned a * b
            MulHiU64,
            /// d = high 64 bits of signed a * b
            MulHiS64,
            /// d = 64-bit product of unsigned 32-bit a, b
            MulLU,
            /// d = 64-bit product of signed 32-bit a, b
            MulLS,
            /// d = c + a * b
            MAdd32,
            /// d = c + a * b
            MAdd64,
            /// d = c - a * b
            MSub32,
            /// d = c - a * b
            MSub64,
            /// d = a / b unsigned, 0 when b is 0 (arm64)
            UDiv32,
            /// d = a / b unsigned, 0 when b is 0 (arm64)
            UDiv64,
            /// d = a / b signed, 0 when b is 0, wrapping (arm64)
            SDiv32,
            /// d = a / b signed, 0 when b is 0, wrapping (arm64)
            SDiv64,
            /// d = leading zeros of a (32 for 0)
            Clz32,
            /// d = leading zeros of a (64 for 0)
            Clz64,
            /// d = leading sign bits of a, not counting the sign
            Cls32,
            /// d = leading sign bits of a, not counting the sign
            Cls64,
            /// d = trailing zeros of a (32 for 0)
            Ctz32,
            /// d = trailing zeros of a (64 for 0)
            Ctz64,
            /// d = ones in a
            Popcnt64,
            /// d = a with bits reversed
            Rbit32,
            /// d = a with bits reversed
            Rbit64,
            /// d = a with bytes reversed
            Bswap32,
            /// d = a with bytes reversed
            Bswap64,
            /// d = a with bytes reversed in each 16 bits, result 32 bits
            Rev16x32,
            /// d = a with bytes reversed in each 16 bits
            Rev16x64,
            /// d = a with bytes reversed in each 32 bits
            Rev32x64,
            /// d = ror32(a, x) & imm
            RotMask32,
            /// d = ror64(a, x) & imm (arm64 UBFM)
            RotMask64,
            /// d = (c & !imm) | (ror32(a, x) & imm) (arm64 BFM)
            BfIns32,
            /// d = (c & !imm) | (ror64(a, x) & imm) (arm64 BFM)
            BfIns64,
            /// d = (a << imm) >> x, arithmetic, on 32 bits (arm64 SBFM)
            Sbf32,
            /// d = (a << imm) >> x, arithmetic (arm64 SBFM)
            Sbf64,
            /// d = low 32 bits of (a:b) >> x, x in 0–31
            Extr32,
            /// d = low 64 bits of (a:b) >> x, x in 0–63
            Extr64,

            /// Flags: record kind x of a, b, c
            Cc,
            /// Flags: record kind x of a, imm
            CcI,
            /// Flags: record kind x (Inc or Dec) of a, keeping the carry
            CcIncDec,
            /// Flags: record shift kind x of a, b unless b is 0
            CcShift,
            /// Flags: x86 CF and OF after ROL to a (width x), count b | imm; nothing if the count is 0
            CcRol,
            /// Flags: x86 CF and OF after ROR to a (width x), count b | imm; nothing if the count is 0
            CcRor,
            /// Flags: x86 CF = bit (b + imm) of a (width x)
            CcBit,
            /// Flags: x86 after signed a * (b + imm) at width x
            CcMulS,
            /// Flags: x86 after unsigned a * b at width x
            CcMulU,
            /// Flags: x86 ZF = (a is 0), the others clear; x = 1: CF = (b is 0) besides
            CcZero,
            /// Flags (arm64 CCMP): if condition c, record kind x of a, b; else NZCV = imm
            CcIf,
            /// d = carry flag
            Carry,
            /// d = the six x86 status flags
            GetStatus,
            /// d = EFLAGS
            GetEflags,
            /// EFLAGS = a
            SetEflags,
            /// d = NZCV in bits 31–28
            GetNzcv,
            /// d = condition c ? 1 : 0
            SetCond,
            /// d = (a = b) ? 1 : 0, 32 bits; a and b shifted left by x first
            SetEq32,
            /// d = (a != b) ? 1 : 0, 32 bits; a and b shifted left by x first
            SetNe32,
            /// d = (unsigned a < b) ? 1 : 0, 32 bits; a and b shifted left by x first
            SetUlt32,
            /// d = (unsigned a >= b) ? 1 : 0, 32 bits; a and b shifted left by x first
            SetUge32,
            /// d = (unsigned a <= b) ? 1 : 0, 32 bits; a and b shifted left by x first
            SetUle32,
            /// d = (unsigned a > b) ? 1 : 0, 32 bits; a and b shifted left by x first
            SetUgt32,
            /// d = (signed a < b) ? 1 : 0, 32 bits; a and b shifted left by x first
            SetSlt32,
            /// d = (signed a >= b) ? 1 : 0, 32 bits; a and b shifted left by x first
            SetSge32,
            /// d = (signed a <= b) ? 1 : 0, 32 bits; a and b shifted left by x first
            SetSle32,
            /// d = (signed a > b) ? 1 : 0, 32 bits; a and b shifted left by x first
            SetSgt32,
            /// d = (a = imm) ? 1 : 0, 32 bits; a and b shifted left by x first
            SetIEq32,
            /// d = (a != imm) ? 1 : 0, 32 bits; a and b shifted left by x first
            SetINe32,
            /// d = (unsigned a < imm) ? 1 : 0, 32 bits; a and b shifted left by x first
            SetIUlt32,
            /// d = (unsigned a >= imm) ? 1 : 0, 32 bits; a and b shifted left by x first
            SetIUge32,
            /// d = (unsigned a <= imm) ? 1 : 0, 32 bits; a and b shifted left by x first
            SetIUle32,
            /// d = (unsigned a > imm) ? 1 : 0, 32 bits; a and b shifted left by x first
            SetIUgt32,
            /// d = (signed a < imm) ? 1 : 0, 32 bits; a and b shifted left by x first
            SetISlt32,
            /// d = (signed a >= imm) ? 1 : 0, 32 bits; a and b shifted left by x first
            SetISge32,
            /// d = (signed a <= imm) ? 1 : 0, 32 bits; a and b shifted left by x first
            SetISle32,
            /// d = (signed a > imm) ? 1 : 0, 32 bits; a and b shifted left by x first
            SetISgt32,
            /// d = (a = b) ? 1 : 0, 64 bits
            SetEq64,
            /// d = (a != b) ? 1 : 0, 64 bits
            SetNe64,
            /// d = (unsigned a < b) ? 1 : 0, 64 bits
            SetUlt64,
            /// d = (unsigned a >= b) ? 1 : 0, 64 bits
            SetUge64,
            /// d = (unsigned a <= b) ? 1 : 0, 64 bits
            SetUle64,
            /// d = (unsigned a > b) ? 1 : 0, 64 bits
            SetUgt64,
            /// d = (signed a < b) ? 1 : 0, 64 bits
            SetSlt64,
            /// d = (signed a >= b) ? 1 : 0, 64 bits
            SetSge64,
            /// d = (signed a <= b) ? 1 : 0, 64 bits
            SetSle64,
            /// d = (signed a > b) ? 1 : 0, 64 bits
            SetSgt64,
            /// d = (a = imm) ? 1 : 0, 64 bits
            SetIEq64,
            /// d = (a != imm) ? 1 : 0, 64 bits
            SetINe64,
            /// d = (unsigned a < imm) ? 1 : 0, 64 bits
            SetIUlt64,
            /// d = (unsigned a >= imm) ? 1 : 0, 64 bits
            SetIUge64,
            /// d = (unsigned a <= imm) ? 1 : 0, 64 bits
            SetIUle64,
            /// d = (unsigned a > imm) ? 1 : 0, 64 bits
            SetIUgt64,
            /// d = (signed a < imm) ? 1 : 0, 64 bits
            SetISlt64,
            /// d = (signed a >= imm) ? 1 : 0, 64 bits
            SetISge64,
            /// d = (signed a <= imm) ? 1 : 0, 64 bits
            SetISle64,
            /// d = (signed a > imm) ? 1 : 0, 64 bits
            SetISgt64,
            /// d = condition c ? a : b, zero-extended from 32 bits
            Csel32,
            /// d = condition c ? a : b
            Csel64,
            /// d = c (32 bits) is zero ? a : b, zero-extended from 32 bits
            SelZ32,
            /// d = c (64 bits) is zero ? a : b
            SelZ64,

            /// End: go to target 0
            Jump,
            /// End: go to target 0 if condition c holds, else to target 1
            Br,
            /// End: to target 0 if a (32 bits) is zero
            BrZ32,
            /// End: to target 0 if a is zero
            BrZ64,
            /// End: to target 0 if a (32 bits) is not zero
            BrNz32,
            /// End: to target 0 if a is not zero
            BrNz64,
            /// End: to target 0 if bit x of a is clear
            BrBit0,
            /// End: to target 0 if bit x of a is set
            BrBit1,
            /// End: go to the address in a
            JumpInd,

            /// End: record kind x of a, b; to target 0 if equal
            CmpBrEq32,
            /// as above, not equal
            CmpBrNe32,
            /// as above, unsigned a < b
            CmpBrUlt32,
            /// as above, unsigned a >= b
            CmpBrUge32,
            /// as above, unsigned a <= b
            CmpBrUle32,
            /// as above, unsigned a > b
            CmpBrUgt32,
            /// as above, signed a < b
            CmpBrSlt32,
            /// as above, signed a >= b
            CmpBrSge32,
            /// as above, signed a <= b
            CmpBrSle32,
            /// as above, signed a > b
            CmpBrSgt32,
            /// End: record kind x of a, b; to target 0 if equal
            CmpBrEq64,
            /// as above, not equal
            CmpBrNe64,
            /// as above, unsigned a < b
            CmpBrUlt64,
            /// as above, unsigned a >= b
            CmpBrUge64,
            /// as above, unsigned a <= b
            CmpBrUle64,
            /// as above, unsigned a > b
            CmpBrUgt64,
            /// as above, signed a < b
            CmpBrSlt64,
            /// as above, signed a >= b
            CmpBrSge64,
            /// as above, signed a <= b
            CmpBrSle64,
            /// as above, signed a > b
            CmpBrSgt64,
            /// End: record kind x of a, imm; to target 0 if equal
            CmpIBrEq32,
            /// as above, not equal
            CmpIBrNe32,
            /// as above, unsigned a < imm
            CmpIBrUlt32,
            /// as above, unsigned a >= imm
            CmpIBrUge32,
            /// as above, unsigned a <= imm
            CmpIBrUle32,
            /// as above, unsigned a > imm
            CmpIBrUgt32,
            /// as above, signed a < imm
            CmpIBrSlt32,
            /// as above, signed a >= imm
            CmpIBrSge32,
            /// as above, signed a <= imm
            CmpIBrSle32,
            /// as above, signed a > imm
            CmpIBrSgt32,
            /// End: record kind x of a, imm; to target 0 if equal
            CmpIBrEq64,
            /// as above, not equal
            CmpIBrNe64,
            /// as above, unsigned a < imm
            CmpIBrUlt64,
            /// as above, unsigned a >= imm
            CmpIBrUge64,
            /// as above, unsigned a <= imm
            CmpIBrUle64,
            /// as above, unsigned a > imm
            CmpIBrUgt64,
            /// as above, signed a < imm
            CmpIBrSlt64,
            /// as above, signed a >= imm
            CmpIBrSge64,
            /// as above, signed a <= imm
            CmpIBrSle64,
            /// as above, signed a > imm
            CmpIBrSgt64,

            /// End: d += sign-extended c; then as CmpBrEq32
            StepCmpBrEq32,
            /// End: d += sign-extended c; then as CmpBrNe32
            StepCmpBrNe32,
            /// End: d += sign-extended c; then as CmpBrUlt32
            StepCmpBrUlt32,
            /// End: d += sign-extended c; then as CmpBrUge32
            StepCmpBrUge32,
            /// End: d += sign-extended c; then as CmpBrUle32
            StepCmpBrUle32,
            /// End: d += sign-extended c; then as CmpBrUgt32
            StepCmpBrUgt32,
            /// End: d += sign-extended c; then as CmpBrSlt32
            StepCmpBrSlt32,
            /// End: d += sign-extended c; then as CmpBrSge32
            StepCmpBrSge32,
            /// End: d += sign-extended c; then as CmpBrSle32
            StepCmpBrSle32,
            /// End: d += sign-extended c; then as CmpBrSgt32
            StepCmpBrSgt32,
            /// End: d += sign-extended c; then as CmpIBrEq32
            StepCmpIBrEq32,
            /// End: d += sign-extended c; then as CmpIBrNe32
            StepCmpIBrNe32,
            /// End: d += sign-extended c; then as CmpIBrUlt32
            StepCmpIBrUlt32,
            /// End: d += sign-extended c; then as CmpIBrUge32
            StepCmpIBrUge32,
            /// End: d += sign-extended c; then as CmpIBrUle32
            StepCmpIBrUle32,
            /// End: d += sign-extended c; then as CmpIBrUgt32
            StepCmpIBrUgt32,
            /// End: d += sign-extended c; then as CmpIBrSlt32
            StepCmpIBrSlt32,
            /// End: d += sign-extended c; then as CmpIBrSge32
            StepCmpIBrSge32,
            /// End: d += sign-extended c; then as CmpIBrSle32
            StepCmpIBrSle32,
            /// End: d += sign-extended c; then as CmpIBrSgt32
            StepCmpIBrSgt32,
            /// End: d += sign-extended c; then as CmpBrEq64
            StepCmpBrEq64,
            /// End: d += sign-extended c; then as CmpBrNe64
            StepCmpBrNe64,
            /// End: d += sign-extended c; then as CmpBrUlt64
            StepCmpBrUlt64,
            /// End: d += sign-extended c; then as CmpBrUge64
            StepCmpBrUge64,
            /// End: d += sign-extended c; then as CmpBrUle64
            StepCmpBrUle64,
            /// End: d += sign-extended c; then as CmpBrUgt64
            StepCmpBrUgt64,
            /// End: d += sign-extended c; then as CmpBrSlt64
            StepCmpBrSlt64,
            /// End: d += sign-extended c; then as CmpBrSge64
            StepCmpBrSge64,
            /// End: d += sign-extended c; then as CmpBrSle64
            StepCmpBrSle64,
            /// End: d += sign-extended c; then as CmpBrSgt64
            StepCmpBrSgt64,
            /// End: d += sign-extended c; then as CmpIBrEq64
            StepCmpIBrEq64,
            /// End: d += sign-extended c; then as CmpIBrNe64
            StepCmpIBrNe64,
            /// End: d += sign-extended c; then as CmpIBrUlt64
            StepCmpIBrUlt64,
            /// End: d += sign-extended c; then as CmpIBrUge64
            StepCmpIBrUge64,
            /// End: d += sign-extended c; then as CmpIBrUle64
            StepCmpIBrUle64,
            /// End: d += sign-extended c; then as CmpIBrUgt64
            StepCmpIBrUgt64,
            /// End: d += sign-extended c; then as CmpIBrSlt64
            StepCmpIBrSlt64,
            /// End: d += sign-extended c; then as CmpIBrSge64
            StepCmpIBrSge64,
            /// End: d += sign-extended c; then as CmpIBrSle64
            StepCmpIBrSle64,
            /// End: d += sign-extended c; then as CmpIBrSgt64
            StepCmpIBrSgt64,

            /// End: system call; the state's PC becomes imm (the next instruction)
            Syscall,
            /// End: undefined instruction
            Undefined,
            /// End: valid instruction that is not implemented
            Unsupported,
            /// End: breakpoint; the state's PC becomes imm
            Breakpoint,
            /// x86: leaves with a general-protection fault if address a + imm is not a multiple of x
            CheckAlign,

            /// d = zero-extended byte at a + imm
            LdU8,
            /// d = zero-extended 16 bits at a + imm
            LdU16,
            /// d = zero-extended 32 bits at a + imm
            LdU32,
            /// d = 64 bits at a + imm
            Ld64,
            /// d = byte at a + imm sign-extended to 32
            LdS8to32,
            /// d = byte at a + imm sign-extended to 64
            LdS8to64,
            /// d = 16 bits at a + imm sign-extended to 32
            LdS16to32,
            /// d = 16 bits at a + imm sign-extended to 64
            LdS16to64,
            /// d = 32 bits at a + imm sign-extended to 64
            LdS32to64,
            /// d = zero-extended byte at a + (b << x) + imm
            LdU8X,
            /// d = zero-extended 16 bits at a + (b << x) + imm
            LdU16X,
            /// d = zero-extended 32 bits at a + (b << x) + imm
            LdU32X,
            /// d = 64 bits at a + (b << x) + imm
            Ld64X,
            /// d = byte at a + (b << x) + imm sign-extended to 32
            LdS8to32X,
            /// d = byte at a + (b << x) + imm sign-extended to 64
            LdS8to64X,
            /// d = 16 bits at a + (b << x) + imm sign-extended to 32
            LdS16to32X,
            /// d = 16 bits at a + (b << x) + imm sign-extended to 64
            LdS16to64X,
            /// d = 32 bits at a + (b << x) + imm sign-extended to 64
            LdS32to64X,
            /// d = byte, zero-extended at a, then a = a + imm (d and a are different slots)
            LdU8P,
            /// d = 32 bits, zero-extended at a, then a = a + imm (d and a are different slots)
            LdU32P,
            /// d = 64 bits at a, then a = a + imm (d and a are different slots)
            Ld64P,
            /// as LdU8, with write intent: the store to the same place that follows cannot fault
            LdW8,
            /// as LdU16, with write intent
            LdW16,
            /// as LdU32, with write intent
            LdW32,
            /// as Ld64, with write intent
            LdW64,
            /// byte at a + imm = c
            St8,
            /// 16 bits at a + imm = c
            St16,
            /// 32 bits at a + imm = c
            St32,
            /// 64 bits at a + imm = c
            St64,
            /// byte at a + (b << x) + imm = c
            St8X,
            /// 16 bits at a + (b << x) + imm = c
            St16X,
            /// 32 bits at a + (b << x) + imm = c
            St32X,
            /// byte at a = c, then a = a + imm
            St8P,
            /// 32 bits at a = c, then a = a + imm
            St32P,
            /// 64 bits at a = c, then a = a + imm
            St64P,
            /// 64 bits at a + (b << x) + imm = c
            St64X,

            /// d = old byte at a + imm; byte there = old (op x) b
            Rmw8,
            /// as Rmw8, 16 bits
            Rmw16,
            /// as Rmw8, 32 bits
            Rmw32,
            /// as Rmw8, 64 bits
            Rmw64,
            /// d = old byte at a + imm; if it equals c, byte there = b (always faults as a write)
            Cas8,
            /// as Cas8, 16 bits
            Cas16,
            /// as Cas8, 32 bits
            Cas32,
            /// as Cas8, 64 bits
            Cas64,
            /// 128 bits at a: pair (d, d+1) = old; if it equals pair (c, c+1), memory = pair (b, b+1)
            Cas128,
            /// as Cas128 for a pair of 32-bit words (arm64 CASP Ws)
            CasPair32,
            /// Exclusive load: d = byte at a, reservation taken
            LdEx8,
            /// as LdEx8, 16 bits
            LdEx16,
            /// as LdEx8, 32 bits
            LdEx32,
            /// as LdEx8, 64 bits
            LdEx64,
            /// Exclusive load of a pair of words: (d, b) = 32 + 32 bits at a
            LdExPair32,
            /// Exclusive load of a pair: (d, b) = 64 + 64 bits at a
            LdExPair64,
            /// Exclusive store: d = 0 if byte at a could be set to b, else 1
            StEx8,
            /// as StEx8, 16 bits
            StEx16,
            /// as StEx8, 32 bits
            StEx32,
            /// as StEx8, 64 bits
            StEx64,
            /// Exclusive store of the pair of words (b, c)
            StExPair32,
            /// Exclusive store of the pair (b, c)
            StExPair64,
            /// Drops the reservation
            Clrex,
            /// Memory barrier of any kind (nothing to do: vCPUs interleave between blocks)
            Fence,
            /// Drops decoded code at the address in a (arm64 `IC IVAU`); ends the block
            ICacheInv,
            /// Stores x (1–16) zero quadwords at a, counted as x accesses (arm64 `DC ZVA` is x = 8)
            ZeroQuads,
            /// d = virtual time; must be the last instruction of its block
            Counter,
            /// d = frequency of the counter
            CounterHz,

            /// vd = va
            VMov,
            /// vd = imm (high half zero)
            VMovI,
            /// vd = imm in both halves
            VDupI,
            /// vd = 128 bits at a + imm
            VLd128,
            /// vd = 128 bits at a + imm, which must be aligned (else #GP)
            VLd128A,
            /// 128 bits at a + imm, which must be aligned (else #GP) = vc
            VSt128A,
            /// vd = 128 bits at a + (b << x) + imm, which must be aligned (else #GP)
            VLd128AX,
            /// 128 bits at a + (b << x) + imm, which must be aligned (else #GP) = vc
            VSt128AX,
            /// vd = 64 bits at a + imm, rest zero
            VLd64,
            /// vd = 32 bits at a + imm, rest zero
            VLd32,
            /// vd = 16 bits at a + imm, rest zero
            VLd16,
            /// vd = 8 bits at a + imm, rest zero
            VLd8,
            /// vd = 128 bits at a, then a = a + imm
            VLd128P,
            /// 128 bits at a = vc, then a = a + imm
            VSt128P,
            /// 128 bits at a + imm = vc
            VSt128,
            /// 64 bits at a + imm = vc
            VSt64,
            /// 32 bits at a + imm = vc
            VSt32,
            /// 16 bits at a + imm = vc
            VSt16,
            /// 8 bits at a + imm = vc
            VSt8,
            /// vd = 128 bits at a + (b << x) + imm
            VLd128X,
            /// vd = 64 bits at a + (b << x) + imm, rest zero
            VLd64X,
            /// vd = 32 bits at a + (b << x) + imm, rest zero
            VLd32X,
            /// 128 bits at a + (b << x) + imm = vc
            VSt128X,
            /// 64 bits at a + (b << x) + imm = vc
            VSt64X,
            /// 32 bits at a + (b << x) + imm = vc
            VSt32X,
            /// d = lane x (64 bits) of va
            VGet64,
            /// d = lane x (32 bits) of va
            VGet32,
            /// d = lane x (16 bits) of va
            VGet16,
            /// d = lane x (8 bits) of va
            VGet8,
            /// lane x (64 bits) of vd = a
            VSet64,
            /// lane x (32 bits) of vd = a
            VSet32,
            /// lane x (16 bits) of vd = a
            VSet16,
            /// lane x (8 bits) of vd = a
            VSet8,
            /// vd = a, high half zero
            VFromR64,
            /// vd = low 32 bits of a, rest zero
            VFromR32,
            /// vd = VecOp x of va, vb, imm
            Vec,
            /// vd = VecOp x of va, vb, vd, imm: the old destination is a source too
            VecAcc,
            /// d (integer) = VecOp x of va, vb, imm
            VecToR,
            /// vd = VecOp x of va and integer b, imm
            VecFromR,
            /// Flags = FP comparison x of va, vb
            VecCc,
            /// vd = va + vb in the low double; c = 0 keeps the rest of va, c = 1 zeroes it
            FAdd64,
            /// as FAdd64: va - vb
            FSub64,
            /// as FAdd64: va * vb
            FMul64,
            /// as FAdd64: va / vb
            FDiv64,
            /// vd = va + vb in the low single; c = 0 keeps the rest of va, c = 1 zeroes it
            FAdd32,
            /// as FAdd32: va - vb
            FSub32,
            /// as FAdd32: va * vb
            FMul32,
            /// as FAdd32: va / vb
            FDiv32,
            /// vd = va & vb; c = 1: of the low half only, the rest of vd is zeroed
            VAnd,
            /// vd = va | vb; c = 1: of the low half only, the rest of vd is zeroed
            VOr,
            /// vd = va ^ vb; c = 1: of the low half only, the rest of vd is zeroed
            VXor,
            /// vd = va & !vb; c = 1: of the low half only, the rest of vd is zeroed
            VBic,
            /// vd = bits of vd choose between va and vb (arm64); c = 1: of the low half only, the rest of vd is zeroed
            VBsl,
            /// vd = vb chooses between va and vd (arm64); c = 1: of the low half only, the rest of vd is zeroed
            VBit,
            /// vd = vb chooses between vd and va (arm64); c = 1: of the low half only, the rest of vd is zeroed
            VBif,
            /// vd = va + vb in lanes of 8 bits; c = 1: of the low half only, the rest of vd is zeroed
            VAdd8,
            /// vd = va + vb in lanes of 16 bits; c = 1: of the low half only, the rest of vd is zeroed
            VAdd16,
            /// vd = va + vb in lanes of 32 bits; c = 1: of the low half only, the rest of vd is zeroed
            VAdd32,
            /// vd = va + vb in lanes of 64 bits; c = 1: of the low half only, the rest of vd is zeroed
            VAdd64,
            /// vd = va - vb in lanes of 8 bits; c = 1: of the low half only, the rest of vd is zeroed
            VSub8,
            /// vd = va - vb in lanes of 16 bits; c = 1: of the low half only, the rest of vd is zeroed
            VSub16,
            /// vd = va - vb in lanes of 32 bits; c = 1: of the low half only, the rest of vd is zeroed
            VSub32,
            /// vd = va - vb in lanes of 64 bits; c = 1: of the low half only, the rest of vd is zeroed
            VSub64,
            /// vd = va * vb in lanes of 16 bits; c = 1: of the low half only, the rest of vd is zeroed
            VMul16,
            /// vd = va * vb in lanes of 32 bits; c = 1: of the low half only, the rest of vd is zeroed
            VMul32,
            /// vd = all ones where va == vb in lanes of 8 bits; c = 1: of the low half only, the rest of vd is zeroed
            VCmeq8,
            /// vd = all ones where va == vb in lanes of 16 bits; c = 1: of the low half only, the rest of vd is zeroed
            VCmeq16,
            /// vd = all ones where va == vb in lanes of 32 bits; c = 1: of the low half only, the rest of vd is zeroed
            VCmeq32,
            /// vd = all ones where va == 0 in lanes of 8 bits; c = 1: of the low half only, the rest of vd is zeroed
            VCmeqZ8,
            /// vd = all ones where va > vb, unsigned, in lanes of 8 bits; c = 1: of the low half only, the rest of vd is zeroed
            VCmhi8,
            /// vd = all ones where va >= vb, unsigned, in lanes of 8 bits; c = 1: of the low half only, the rest of vd is zeroed
            VCmhs8,
            /// vd = unsigned maximum in lanes of 8 bits; c = 1: of the low half only, the rest of vd is zeroed
            VUmax8,
            /// vd = unsigned minimum in lanes of 8 bits; c = 1: of the low half only, the rest of vd is zeroed
            VUmin8,
            /// vd = unsigned maximum of the neighbours in va, then in vb, 8 bits, 128 bits only
            VUmaxp8,
            /// vd = sum of the neighbours in va, then in vb, 8 bits, 128 bits only
            VAddp8,
            /// vd = va << imm in lanes of 16 bits; c = 1: of the low half only, the rest of vd is zeroed
            VShlI16,
            /// vd = va << imm in lanes of 32 bits; c = 1: of the low half only, the rest of vd is zeroed
            VShlI32,
            /// vd = va << imm in lanes of 64 bits; c = 1: of the low half only, the rest of vd is zeroed
            VShlI64,
            /// vd = va >> imm, logical, in lanes of 8 bits; c = 1: of the low half only, the rest of vd is zeroed
            VShrI8,
            /// vd = va >> imm, logical, in lanes of 16 bits; c = 1: of the low half only, the rest of vd is zeroed
            VShrI16,
            /// vd = va >> imm, logical, in lanes of 32 bits; c = 1: of the low half only, the rest of vd is zeroed
            VShrI32,
            /// vd = va >> imm, logical, in lanes of 64 bits; c = 1: of the low half only, the rest of vd is zeroed
            VShrI64,
            /// vd = va >> imm, arithmetic, in lanes of 16 bits; c = 1: of the low half only, the rest of vd is zeroed
            VSarI16,
            /// vd = va >> imm, arithmetic, in lanes of 32 bits; c = 1: of the low half only, the rest of vd is zeroed
            VSarI32,
            /// vd = low bytes of va >> imm in lanes of 16 bits, rest zero
            VShrn8,
            /// vd = lanes of 8 bits of half x of va, zero-extended to twice that, << imm
            VUshll8,
            /// vd = lanes of 16 bits of half x of va, zero-extended to twice that, << imm
            VUshll16,
            /// vd = lanes of 32 bits of half x of va, zero-extended to twice that, << imm
            VUshll32,
            /// vd = lanes of 8 bits of half x of va, sign-extended to twice that, << imm
            VSshll8,
            /// vd = lanes of 16 bits of half x of va, sign-extended to twice that, << imm
            VSshll16,
            /// vd = lanes of 32 bits of half x of va, sign-extended to twice that, << imm
            VSshll32,
            /// vd = the low 8 bits of integer a in every lane; c = 1: of the low half only, the rest of vd is zeroed
            VDup8,
            /// vd = the low 32 bits of integer a in every lane; c = 1: of the low half only, the rest of vd is zeroed
            VDup32,
            /// vd = the low 64 bits of integer a in every lane; c = 1: of the low half only, the rest of vd is zeroed
            VDup64,
            /// vd = va + vb in FP lanes of 32 bits, arm64's NaNs; c = 1: of the low half only, the rest of vd is zeroed
            VFAdd32,
            /// vd = va + vb in FP lanes of 64 bits, arm64's NaNs; c = 1: of the low half only, the rest of vd is zeroed
            VFAdd64,
            /// vd = va - vb in FP lanes of 32 bits, arm64's NaNs; c = 1: of the low half only, the rest of vd is zeroed
            VFSub32,
            /// vd = va - vb in FP lanes of 64 bits, arm64's NaNs; c = 1: of the low half only, the rest of vd is zeroed
            VFSub64,
            /// vd = va * vb in FP lanes of 32 bits, arm64's NaNs; c = 1: of the low half only, the rest of vd is zeroed
            VFMul32,
            /// vd = va * vb in FP lanes of 64 bits, arm64's NaNs; c = 1: of the low half only, the rest of vd is zeroed
            VFMul64,
            /// vd = vd + va * vb, fused, in FP lanes of 32 bits, arm64's NaNs; c = 1: of the low half only, the rest of vd is zeroed
            VFMla32,
            /// vd = vd + va * vb, fused, in FP lanes of 64 bits, arm64's NaNs; c = 1: of the low half only, the rest of vd is zeroed
            VFMla64,
            /// vd = vc + va * vb, fused, in the low 32 bits, arm64's NaNs; rest zero
            FMAdd32,
            /// vd = vc + va * vb, fused, in the low 64 bits, arm64's NaNs; rest zero
            FMAdd64,
            /// vd = vc - va * vb, fused, in the low 32 bits, arm64's NaNs; rest zero
            FMSub32,
            /// vd = vc - va * vb, fused, in the low 64 bits, arm64's NaNs; rest zero
            FMSub64,
            /// NZCV = comparison of the low 32 bits of va and vb
            FCmpArm32,
            /// NZCV = comparison of the low 64 bits of va and vb
            FCmpArm64,
            /// vd = low 32 bits of va, rest zero
            VLow32,
            /// vd = low 64 bits of va, rest zero
            VLow64,

            /// x86 helper x
            X86,
            /// arm64 helper x
            A64,
        }
    };
}
pub(crate) use for_each_code;

macro_rules! define_code {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Op code of a micro-op. In the descriptions `d`, `a`, `b`, `c` are the integer slots that the fields
        /// name, `vd`, `va`, `vb`, `vc` vector slots, `x` and `imm` the fields themselves.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u16)]
        pub enum Code { $($(#[$doc])* $name),* }

        impl Code {
            /// All of them.
            pub const ALL: &[Code] = &[$(Code::$name),*];
        }
    };
}
for_each_code!(define_code);

/// Which integer slots an op writes, for the optimiser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defines {
    /// None.
    Nothing,
    /// The one in the `d` field.
    D,
    /// Several, or not known.
    Many,
}

impl Code {
    /// Data accesses that the op makes, as counted for the TLB statistics.
    pub const fn accesses(self) -> u32 {
        let n = self as u16;
        if n >= Code::LdU8 as u16 && n <= Code::St64X as u16 {
            return 1;
        }
        if n >= Code::VLd128 as u16 && n <= Code::VSt32X as u16 {
            return 1;
        }
        if n >= Code::LdEx8 as u16 && n <= Code::LdExPair64 as u16 {
            return 1;
        }
        if n >= Code::Rmw8 as u16 && n <= Code::CasPair32 as u16 {
            return 2;
        }
        if n >= Code::StEx8 as u16 && n <= Code::StExPair64 as u16 {
            return 1;
        }
        0
    }

    /// Whether the op leaves the block whatever its operands are.
    pub const fn ends_block(self) -> bool {
        let n = self as u16;
        (n >= Code::Jump as u16 && n <= Code::Breakpoint as u16) || matches!(self, Code::ICacheInv)
    }

    /// Which integer slots the op writes.
    pub(crate) const fn defines(self) -> Defines {
        let n = self as u16;
        if n >= Code::MovI as u16 && n <= Code::Extr64 as u16 {
            return Defines::D;
        }
        if n >= Code::LdU8 as u16 && n <= Code::LdS32to64X as u16 {
            return Defines::D;
        }
        if n >= Code::SetEq32 as u16 && n <= Code::SelZ64 as u16 {
            return Defines::D;
        }
        if n >= Code::LdW8 as u16 && n <= Code::LdW64 as u16 {
            return Defines::D;
        }
        if n >= Code::VGet64 as u16 && n <= Code::VGet8 as u16 {
            return Defines::D;
        }
        if n >= Code::Rmw8 as u16 && n <= Code::Cas64 as u16 {
            return Defines::D;
        }
        match self {
            Code::Carry
            | Code::GetStatus
            | Code::GetEflags
            | Code::GetNzcv
            | Code::SetCond
            | Code::VecToR => Defines::D,
            Code::St8P | Code::St32P | Code::St64P | Code::VLd128P | Code::VSt128P => Defines::Many,
            Code::Nop | Code::InsnStart | Code::CheckAlign => Defines::Nothing,
            _ if n >= Code::Cc as u16 && n <= Code::CcIf as u16 => Defines::Nothing,
            _ if n >= Code::St8 as u16 && n <= Code::St64X as u16 => Defines::Nothing,
            _ if n >= Code::VMov as u16 && n <= Code::FDiv32 as u16 => Defines::Nothing,
            _ => Defines::Many,
        }
    }

    /// Whether the op computes d from a, b, c, x and imm, and does nothing else.
    pub(crate) const fn is_pure(self) -> bool {
        let n = self as u16;
        n >= Code::MovI as u16 && n <= Code::Extr64 as u16
    }

    /// Whether the old value of d is a source of a pure op.
    pub(crate) const fn merges(self) -> bool {
        matches!(self, Code::Ins8 | Code::Ins8h | Code::Ins16)
    }

    /// Whether the op reads the flags.
    pub const fn reads_flags(self) -> bool {
        matches!(
            self,
            Code::CcIncDec
                | Code::CcShift
                | Code::CcRol
                | Code::CcRor
                | Code::CcBit
                | Code::CcIf
                | Code::Carry
                | Code::GetStatus
                | Code::GetEflags
                | Code::GetNzcv
                | Code::SetCond
                | Code::Csel32
                | Code::Csel64
                | Code::Br
                | Code::Syscall
                | Code::X86
                | Code::A64
        )
    }

    /// Whether the op only records flags, all of them, so that it is dead if nobody reads them.
    pub const fn only_records_flags(self) -> bool {
        matches!(
            self,
            Code::Cc
                | Code::CcI
                | Code::CcIncDec
                | Code::CcShift
                | Code::CcIf
                | Code::CcRol
                | Code::CcRor
                | Code::CcBit
                | Code::CcMulS
                | Code::CcMulU
                | Code::CcZero
        )
    }

    /// Whether the op replaces all flags whatever they were.
    pub const fn overwrites_flags(self) -> bool {
        matches!(
            self,
            Code::Cc
                | Code::CcI
                | Code::CcIncDec
                | Code::CcIf
                | Code::CcMulS
                | Code::CcMulU
                | Code::CcZero
                | Code::SetEflags
                | Code::VecCc
        ) || self.compares_and_branches()
    }

    /// Whether the op records a comparison and branches on it.
    pub(crate) const fn compares_and_branches(self) -> bool {
        let n = self as u16;
        n >= Code::CmpBrEq32 as u16 && n <= Code::StepCmpIBrSgt64 as u16
    }

    /// Whether the flags after the op are not those before it.
    pub(crate) const fn changes_flags(self) -> bool {
        self.only_records_flags()
            || self.overwrites_flags()
            || matches!(self, Code::X86 | Code::A64)
    }
}

impl Op {
    /// An op with all fields zero but the code.
    pub const fn new(code: Code) -> Op {
        Op { code, x: 0, d: 0, a: 0, b: 0, c: 0, imm: 0 }
    }
    /// Sets the extra datum.
    pub const fn x(mut self, x: u16) -> Op {
        self.x = x;
        self
    }
    /// Sets the immediate.
    pub const fn imm(mut self, imm: i64) -> Op {
        self.imm = imm;
        self
    }
    /// Integer destination.
    pub const fn d(mut self, r: Reg) -> Op {
        self.d = r.0;
        self
    }
    /// First integer source.
    pub const fn a(mut self, r: Reg) -> Op {
        self.a = r.0;
        self
    }
    /// Second integer source.
    pub const fn b(mut self, r: Reg) -> Op {
        self.b = r.0;
        self
    }
    /// Third integer source.
    pub const fn c(mut self, r: Reg) -> Op {
        self.c = r.0;
        self
    }
    /// Vector destination.
    pub const fn vd(mut self, v: Vreg) -> Op {
        self.d = v.0;
        self
    }
    /// First vector source.
    pub const fn va(mut self, v: Vreg) -> Op {
        self.a = v.0;
        self
    }
    /// Second vector source.
    pub const fn vb(mut self, v: Vreg) -> Op {
        self.b = v.0;
        self
    }
    /// Third vector source (data of a vector store).
    pub const fn vc(mut self, v: Vreg) -> Op {
        self.c = v.0;
        self
    }
    /// Condition, in the `c` field.
    pub const fn cond(mut self, cond: Cond) -> Op {
        self.c = cond as u8;
        self
    }
    /// Flag kind, in the `x` field.
    pub const fn kind(mut self, kind: CcKind) -> Op {
        self.x = kind.raw();
        self
    }
}

const _: () = assert!(size_of::<Op>() == 16);
