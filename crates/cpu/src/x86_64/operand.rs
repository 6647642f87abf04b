//! Operands: from iced's registers and memory forms to slots and address ops.

use crate::block::Builder;
use crate::ir::{self, Code, Op, Reg, Vreg, Width, ZERO};
use iced_x86::{Instruction, MemorySize, OpKind, Register};

/// RAX.
pub(super) const RAX: Reg = Reg(0);
/// RCX.
pub(super) const RCX: Reg = Reg(1);
/// RDX.
pub(super) const RDX: Reg = Reg(2);
/// RBX.
pub(super) const RBX: Reg = Reg(3);
/// RSP.
pub(super) const RSP: Reg = Reg(4);
/// RBP.
pub(super) const RBP: Reg = Reg(5);
/// RSI.
pub(super) const RSI: Reg = Reg(6);
/// RDI.
pub(super) const RDI: Reg = Reg(7);
/// R11.
pub(super) const R11: Reg = Reg(11);

/// Temporaries with fixed roles: 0–7 for lowerings, the rest for operands.
const T_ADDR: Reg = Reg::tmp(8);
const T_HIGH: Reg = Reg::tmp(9);
const T_LOAD: Reg = Reg::tmp(11);

/// A general register as an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gpr {
    /// Its slot.
    pub(super) slot: Reg,
    /// Its width.
    pub(super) width: Width,
    /// AH, CH, DH, BH.
    pub(super) high: bool,
}

/// The general register behind `r`, if it is one.
pub(super) fn gpr(r: Register) -> Option<Gpr> {
    if !r.is_gpr() {
        return None;
    }
    let number = u8::try_from(r.full_register().number()).ok()?;
    let width = Width::of_bytes(r.size());
    let high = matches!(r, Register::AH | Register::CH | Register::DH | Register::BH);
    Some(Gpr { slot: Reg(number), width, high })
}

/// The XMM register behind `r`, if it is one.
pub(super) fn xmm(r: Register) -> Option<Vreg> {
    if !r.is_xmm() {
        return None;
    }
    u8::try_from(r.number()).ok().map(Vreg)
}

/// A memory address, ready for a load or store op.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Addr {
    /// Base slot.
    pub(super) base: Reg,
    /// Index slot and shift.
    pub(super) index: Option<(Reg, u16)>,
    /// Displacement.
    pub(super) disp: i64,
}

/// What an integer source operand is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Src {
    /// In a slot; bits above the operand's width are arbitrary.
    Reg(Reg),
    /// An immediate, sign-extended.
    Imm(i64),
}

/// One instruction being lowered.
pub(super) struct Lower<'a> {
    /// The block.
    pub(super) b: &'a mut Builder,
    /// The instruction.
    pub(super) i: &'a Instruction,
}

impl Lower<'_> {
    /// Width of operand `n`.
    pub(super) fn width(&self, n: u32) -> Width {
        match self.i.op_kind(n) {
            OpKind::Register => Width::of_bytes(self.i.op_register(n).size()),
            OpKind::Memory => Width::of_bytes(self.i.memory_size().size()),
            _ => Width::W64,
        }
    }

    /// Whether operand `n` is memory.
    pub(super) fn is_mem(&self, n: u32) -> bool {
        self.i.op_kind(n) == OpKind::Memory
    }

    /// The address of the memory operand. May emit ops into operand temporaries.
    pub(super) fn addr(&mut self) -> Addr {
        let i = self.i;
        let base = i.memory_base();
        let disp = i.memory_displacement64().cast_signed();
        let index = gpr(i.memory_index()).map(|g| (g.slot, shift_of(i.memory_index_scale())));
        let seg = match i.segment_prefix() {
            Register::FS => Some(ir::FS),
            Register::GS => Some(ir::GS),
            _ => None,
        };
        // iced has already made RIP-relative displacements absolute.
        let slot = match base {
            Register::None | Register::RIP | Register::EIP => ZERO,
            r => gpr(r).map_or(ZERO, |g| g.slot),
        };
        let narrow = base.size() == 4 || i.memory_index().size() == 4;
        if narrow {
            let (x, shift) = index.unwrap_or((ZERO, 0));
            self.b.emit(Op::new(Code::AddShl32).d(T_ADDR).a(slot).b(x).x(shift).imm(disp));
            return Addr { base: T_ADDR, index: seg.map(|s| (s, 0)), disp: 0 };
        }
        let Some(seg) = seg else { return Addr { base: slot, index, disp } };
        if base == Register::None && index.is_none() {
            return Addr { base: seg, index: None, disp };
        }
        match index {
            None => Addr { base: slot, index: Some((seg, 0)), disp },
            Some((x, shift)) => {
                self.b.emit(Op::new(Code::AddShl64).d(T_ADDR).a(slot).b(x).x(shift).imm(disp));
                Addr { base: T_ADDR, index: Some((seg, 0)), disp: 0 }
            }
        }
    }

    /// The address as base + displacement only, for ops without an indexed form.
    pub(super) fn simple_addr(&mut self) -> Addr {
        let at = self.addr();
        let Some((x, shift)) = at.index else { return at };
        self.b.emit(Op::new(Code::AddShl64).d(T_ADDR).a(at.base).b(x).x(shift).imm(at.disp));
        Addr { base: T_ADDR, index: None, disp: 0 }
    }

    /// Emits a load or store with the address; `plain` and `indexed` are its two forms.
    pub(super) fn access(&mut self, op: Op, indexed: Code, at: Addr) {
        let op = op.a(at.base).imm(at.disp);
        match at.index {
            None => self.b.emit(op),
            Some((x, shift)) => self.b.emit(Op { code: indexed, ..op.b(x).x(shift) }),
        }
    }

    /// d = zero-extended memory.
    pub(super) fn load(&mut self, width: Width, d: Reg, at: Addr) {
        let (plain, indexed) = match width {
            Width::W8 => (Code::LdU8, Code::LdU8X),
            Width::W16 => (Code::LdU16, Code::LdU16X),
            Width::W32 => (Code::LdU32, Code::LdU32X),
            Width::W64 => (Code::Ld64, Code::Ld64X),
        };
        self.access(Op::new(plain).d(d), indexed, at);
    }

    /// memory = value.
    pub(super) fn store(&mut self, width: Width, value: Reg, at: Addr) {
        let (plain, indexed) = match width {
            Width::W8 => (Code::St8, Code::St8X),
            Width::W16 => (Code::St16, Code::St16X),
            Width::W32 => (Code::St32, Code::St32X),
            Width::W64 => (Code::St64, Code::St64X),
        };
        self.access(Op::new(plain).c(value), indexed, at);
    }

    /// d = memory, with write intent; `at` must be simple.
    pub(super) fn load_for_write(&mut self, width: Width, d: Reg, at: Addr) {
        let code = match width {
            Width::W8 => Code::LdW8,
            Width::W16 => Code::LdW16,
            Width::W32 => Code::LdW32,
            Width::W64 => Code::LdW64,
        };
        self.b.emit(Op::new(code).d(d).a(at.base).imm(at.disp));
    }

    /// The register operand `g` as a source.
    pub(super) fn read_gpr(&mut self, g: Gpr) -> Reg {
        if !g.high {
            return g.slot;
        }
        // Two high-byte operands may meet (`add ah, bh`), so each has its own temporary.
        let d = Reg(T_HIGH.0 + 8 + (g.slot.0 & 3));
        self.b.emit(Op::new(Code::Ext8h).d(d).a(g.slot));
        d
    }

    /// Operand `n` as a source; memory is loaded into a temporary.
    pub(super) fn src(&mut self, n: u32) -> Src {
        match self.i.op_kind(n) {
            OpKind::Register => match gpr(self.i.op_register(n)) {
                Some(g) => Src::Reg(self.read_gpr(g)),
                None => Src::Imm(0),
            },
            OpKind::Memory => {
                let at = self.addr();
                let width = self.width(n);
                self.load(width, T_LOAD, at);
                Src::Reg(T_LOAD)
            }
            _ => Src::Imm(self.i.immediate(n).cast_signed()),
        }
    }

    /// Operand `n` as a source in a slot.
    pub(super) fn src_reg(&mut self, n: u32) -> Reg {
        match self.src(n) {
            Src::Reg(r) => r,
            Src::Imm(v) => {
                let d = Reg::tmp(10);
                self.b.emit(Op::new(Code::MovI).d(d).imm(v));
                d
            }
        }
    }

    /// Writes the low bits of `value` to register `g` by x86's rules: 8 and 16 bits keep the rest, 32 bits
    /// clear it.
    pub(super) fn write_gpr(&mut self, g: Gpr, value: Reg) {
        let code = match g.width {
            Width::W8 if g.high => Code::Ins8h,
            Width::W8 => Code::Ins8,
            Width::W16 => Code::Ins16,
            Width::W32 => Code::Zext32,
            Width::W64 => Code::Mov,
        };
        self.b.emit(Op::new(code).d(g.slot).a(value));
    }

    /// Writes `value` to operand `n`, register or memory.
    pub(super) fn write(&mut self, n: u32, value: Reg) {
        if self.is_mem(n) {
            let at = self.addr();
            let width = self.width(n);
            self.store(width, value, at);
        } else if let Some(g) = gpr(self.i.op_register(n)) {
            self.write_gpr(g, value);
        }
    }

    /// Size of the memory operand in bytes.
    pub(super) fn mem_bytes(&self) -> usize {
        match self.i.memory_size() {
            MemorySize::Unknown => 0,
            size => size.size(),
        }
    }
}

/// log2 of an index scale.
fn shift_of(scale: u32) -> u16 {
    match scale {
        2 => 1,
        4 => 2,
        8 => 3,
        _ => 0,
    }
}
