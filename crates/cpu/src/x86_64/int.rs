//! Lowering of the integer instructions.

use super::helper::X86Fn;
use super::operand::{Addr, Gpr, Lower, R11, RAX, RBP, RBX, RCX, RDI, RDX, RSI, RSP, Src, gpr};
use crate::block::Step;
use crate::ir::{self, CcKind, CcOp, Code, Cond, Op, Reg, RmwOp, Width, ZERO};
use iced_x86::{Code as IcedCode, ConditionCode, Mnemonic, OpKind, Register};

const T0: Reg = Reg::tmp(0);
const T1: Reg = Reg::tmp(1);
const T2: Reg = Reg::tmp(2);
const T3: Reg = Reg::tmp(3);

/// A two-operand arithmetic or logical instruction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Alu {
    Add,
    Sub,
    And,
    Or,
    Xor,
}

impl Alu {
    fn code(self, wide: bool, imm: bool) -> Code {
        match (self, wide, imm) {
            (Alu::Add, false, false) => Code::Add32,
            (Alu::Add, true, false) => Code::Add64,
            (Alu::Sub, false, false) => Code::Sub32,
            (Alu::Sub, true, false) => Code::Sub64,
            (Alu::And, false, false) => Code::And32,
            (Alu::And, true, false) => Code::And64,
            (Alu::Or, false, false) => Code::Or32,
            (Alu::Or, true, false) => Code::Or64,
            (Alu::Xor, false, false) => Code::Xor32,
            (Alu::Xor, true, false) => Code::Xor64,
            (Alu::Add | Alu::Sub, false, true) => Code::AddI32,
            (Alu::Add | Alu::Sub, true, true) => Code::AddI64,
            (Alu::And, false, true) => Code::AndI32,
            (Alu::And, true, true) => Code::AndI64,
            (Alu::Or, false, true) => Code::OrI32,
            (Alu::Or, true, true) => Code::OrI64,
            (Alu::Xor, false, true) => Code::XorI32,
            (Alu::Xor, true, true) => Code::XorI64,
        }
    }
}

/// The condition of a `jcc`, `setcc` or `cmovcc`.
pub(super) fn cond(code: ConditionCode) -> Cond {
    match code {
        ConditionCode::o => Cond::O,
        ConditionCode::no => Cond::No,
        ConditionCode::b => Cond::C,
        ConditionCode::ae => Cond::Nc,
        ConditionCode::e => Cond::Z,
        ConditionCode::ne => Cond::Nz,
        ConditionCode::be => Cond::Be,
        ConditionCode::a => Cond::A,
        ConditionCode::s => Cond::S,
        ConditionCode::ns => Cond::Ns,
        ConditionCode::p => Cond::P,
        ConditionCode::np => Cond::Np,
        ConditionCode::l => Cond::L,
        ConditionCode::ge => Cond::Ge,
        ConditionCode::le => Cond::Le,
        ConditionCode::g => Cond::G,
        ConditionCode::None => Cond::Al,
    }
}

fn bits16(w: Width) -> u16 {
    8 << w as u16
}

impl Lower<'_> {
    /// Lowers an integer instruction; `None` if it is not one of these.
    pub(super) fn integer(&mut self) -> Option<Step> {
        let i = self.i;
        let loops = matches!(i.mnemonic(), Mnemonic::Loope | Mnemonic::Loopne);
        if i.condition_code() != ConditionCode::None && !loops {
            return self.conditional();
        }
        match i.mnemonic() {
            Mnemonic::Mov if !self.moves_general() => return self.privileged_move(),
            Mnemonic::Mov | Mnemonic::Movnti => self.mov(),
            Mnemonic::Lea => self.lea(),
            Mnemonic::Movzx => self.movzx(),
            Mnemonic::Movsx | Mnemonic::Movsxd => self.movsx(),
            Mnemonic::Add => self.alu(Alu::Add),
            Mnemonic::Sub => self.alu(Alu::Sub),
            Mnemonic::And => self.alu(Alu::And),
            Mnemonic::Or => self.alu(Alu::Or),
            Mnemonic::Xor => self.alu(Alu::Xor),
            Mnemonic::Cmp => self.cmp(),
            Mnemonic::Test => self.test(),
            Mnemonic::Adc => self.with_carry(CcOp::Adc),
            Mnemonic::Sbb => self.with_carry(CcOp::Sbb),
            Mnemonic::Inc => self.unary(CcOp::Inc),
            Mnemonic::Dec => self.unary(CcOp::Dec),
            Mnemonic::Neg => self.unary(CcOp::Sub),
            Mnemonic::Not => self.unary(CcOp::Flags),
            Mnemonic::Shl | Mnemonic::Sal => self.shift(CcOp::Shl),
            Mnemonic::Shr => self.shift(CcOp::Shr),
            Mnemonic::Sar => self.shift(CcOp::Sar),
            Mnemonic::Rol => self.rotate(Code::CcRol),
            Mnemonic::Ror => self.rotate(Code::CcRor),
            Mnemonic::Rcl => self.through_helper(X86Fn::Rcl),
            Mnemonic::Rcr => self.through_helper(X86Fn::Rcr),
            Mnemonic::Shld => self.through_helper(X86Fn::Shld),
            Mnemonic::Shrd => self.through_helper(X86Fn::Shrd),
            Mnemonic::Imul => self.imul(),
            Mnemonic::Mul => self.mul_wide(Code::CcMulU),
            Mnemonic::Div => self.div(X86Fn::Div),
            Mnemonic::Idiv => self.div(X86Fn::Idiv),
            Mnemonic::Xchg => self.xchg(),
            Mnemonic::Xadd => self.xadd(),
            Mnemonic::Cmpxchg => self.cmpxchg(),
            Mnemonic::Cmpxchg16b => self.cmpxchg16b(),
            Mnemonic::Cmpxchg8b => self.cmpxchg8b(),
            Mnemonic::Bt => self.bit_test(None),
            Mnemonic::Bts => self.bit_test(Some(RmwOp::Or)),
            Mnemonic::Btr => self.bit_test(Some(RmwOp::Bic)),
            Mnemonic::Btc => self.bit_test(Some(RmwOp::Xor)),
            Mnemonic::Bsf | Mnemonic::Bsr => self.bit_scan(),
            Mnemonic::Tzcnt | Mnemonic::Lzcnt | Mnemonic::Popcnt => self.bit_count(),
            Mnemonic::Bswap => self.bswap(),
            Mnemonic::Movbe => self.movbe(),
            _ => return self.stack_and_flow(),
        }
        Some(self.next())
    }

    /// The block goes on after this instruction.
    pub(super) fn next(&self) -> Step {
        Step::Next(len(self.i))
    }
    /// The block ended with this instruction.
    pub(super) fn end(&self) -> Step {
        Step::End(len(self.i))
    }

    fn stack_and_flow(&mut self) -> Option<Step> {
        let i = self.i;
        let next_ip = i.next_ip();
        match i.mnemonic() {
            Mnemonic::Push => self.push(),
            Mnemonic::Pop => self.pop(),
            Mnemonic::Leave => {
                self.b.emit(Op::new(Code::Ld64).d(T0).a(RBP));
                self.b.alui(Code::AddI64, RSP, RBP, 8);
                self.b.mov(RBP, T0);
            }
            Mnemonic::Enter if i.immediate8_2nd() == 0 => {
                self.b.emit(Op::new(Code::St64).c(RBP).a(RSP).imm(-8));
                self.b.alui(Code::AddI64, RSP, RSP, -8);
                self.b.mov(RBP, RSP);
                self.b.alui(Code::AddI64, RSP, RSP, -i64::from(i.immediate16()));
            }
            Mnemonic::Pushfq => {
                self.b.emit(Op::new(Code::GetEflags).d(T0));
                self.b.emit(Op::new(Code::St64).c(T0).a(RSP).imm(-8));
                self.b.alui(Code::AddI64, RSP, RSP, -8);
            }
            Mnemonic::Popfq => {
                self.b.emit(Op::new(Code::Ld64).d(T0).a(RSP));
                self.b.emit(Op::new(Code::SetEflags).a(T0));
                self.b.alui(Code::AddI64, RSP, RSP, 8);
            }
            Mnemonic::Jmp => {
                self.jump_to_operand();
                return Some(self.end());
            }
            Mnemonic::Call => {
                self.call();
                return Some(self.end());
            }
            Mnemonic::Ret => {
                let pop = if i.op_count() == 0 { 0 } else { i64::from(i.immediate16()) };
                self.b.emit(Op::new(Code::Ld64).d(T0).a(RSP));
                self.b.alui(Code::AddI64, RSP, RSP, 8 + pop);
                self.b.emit(Op::new(Code::JumpInd).a(T0));
                return Some(self.end());
            }
            Mnemonic::Syscall => {
                self.b.emit(Op::new(Code::GetEflags).d(R11));
                self.b.movi(RCX, next_ip);
                self.b.emit(Op::new(Code::Syscall).imm(next_ip.cast_signed()));
                return Some(self.end());
            }
            Mnemonic::Int3 => {
                self.b.emit(Op::new(Code::Breakpoint).imm(next_ip.cast_signed()));
                return Some(self.end());
            }
            Mnemonic::Ud2 | Mnemonic::Ud0 | Mnemonic::Ud1 => {
                self.b.undefined();
                return Some(self.end());
            }
            Mnemonic::Loop | Mnemonic::Loope | Mnemonic::Loopne => {
                self.looping();
                return Some(self.end());
            }
            Mnemonic::Jrcxz | Mnemonic::Jecxz => {
                let narrow = i.mnemonic() == Mnemonic::Jecxz;
                let code = if narrow { Code::BrZ32 } else { Code::BrZ64 };
                self.b.branch(Op::new(code).a(RCX), i.near_branch64(), next_ip);
                return Some(self.end());
            }
            Mnemonic::Rdtsc | Mnemonic::Rdtscp => {
                self.rdtsc(next_ip);
                return Some(self.end());
            }
            _ => return self.misc(),
        }
        Some(self.next())
    }

    fn misc(&mut self) -> Option<Step> {
        if self.is_narrow_string() {
            return None;
        }
        match self.i.mnemonic() {
            Mnemonic::Nop
            | Mnemonic::Endbr64
            | Mnemonic::Endbr32
            | Mnemonic::Pause
            | Mnemonic::Prefetcht0
            | Mnemonic::Prefetcht1
            | Mnemonic::Prefetcht2
            | Mnemonic::Prefetchnta
            | Mnemonic::Prefetchw
            | Mnemonic::Reservednop
            | Mnemonic::Clflush
            | Mnemonic::Lfence
            | Mnemonic::Sfence
            | Mnemonic::Mfence
            | Mnemonic::Rdsspq
            | Mnemonic::Rdsspd
            | Mnemonic::Wait => {}
            Mnemonic::Cbw => {
                self.b.emit(Op::new(Code::Sext8to32).d(T0).a(RAX));
                self.b.emit(Op::new(Code::Ins16).d(RAX).a(T0));
            }
            Mnemonic::Cwde => self.b.emit(Op::new(Code::Sext16to32).d(RAX).a(RAX)),
            Mnemonic::Cdqe => self.b.emit(Op::new(Code::Sext32to64).d(RAX).a(RAX)),
            Mnemonic::Cwd => {
                self.b.emit(Op::new(Code::Sext16to32).d(T0).a(RAX));
                self.b.alui(Code::ShrI32, T0, T0, 16);
                self.b.emit(Op::new(Code::Ins16).d(RDX).a(T0));
            }
            Mnemonic::Cdq => self.b.alui(Code::SarI32, RDX, RAX, 31),
            Mnemonic::Cqo => self.b.alui(Code::SarI64, RDX, RAX, 63),
            Mnemonic::Clc => self.helper_op(X86Fn::CarryFlag, 0),
            Mnemonic::Stc => self.helper_op(X86Fn::CarryFlag, 1),
            Mnemonic::Cmc => self.helper_op(X86Fn::CarryFlag, 2),
            Mnemonic::Cld => self.helper_op(X86Fn::DirectionFlag, 0),
            Mnemonic::Std => self.helper_op(X86Fn::DirectionFlag, 1),
            Mnemonic::Lahf => {
                self.b.emit(Op::new(Code::GetEflags).d(T0));
                self.b.emit(Op::new(Code::Ins8h).d(RAX).a(T0));
            }
            Mnemonic::Sahf => self.helper_op(X86Fn::Sahf, 0),
            Mnemonic::Hlt
            | Mnemonic::Cli
            | Mnemonic::Sti
            | Mnemonic::In
            | Mnemonic::Out
            | Mnemonic::Rdmsr
            | Mnemonic::Wrmsr
            | Mnemonic::Wbinvd
            | Mnemonic::Invd
            | Mnemonic::Invlpg
            | Mnemonic::Swapgs => self.helper_op(X86Fn::Privileged, 0),
            Mnemonic::Cpuid => self.helper_op(X86Fn::Cpuid, 0),
            Mnemonic::Xgetbv => self.helper_op(X86Fn::Xgetbv, 0),
            Mnemonic::Xlatb => {
                self.b.emit(Op::new(Code::Zext8).d(T0).a(RAX));
                self.b.emit(Op::new(Code::LdU8X).d(T0).a(RBX).b(T0));
                self.b.emit(Op::new(Code::Ins8).d(RAX).a(T0));
            }
            Mnemonic::Rdfsbase => self.read_segment_base(ir::FS),
            Mnemonic::Rdgsbase => self.read_segment_base(ir::GS),
            Mnemonic::Wrfsbase => self.write_segment_base(ir::FS),
            Mnemonic::Wrgsbase => self.write_segment_base(ir::GS),
            Mnemonic::Movsb | Mnemonic::Movsw | Mnemonic::Movsq => self.string(X86Fn::Movs),
            // `movsd` and `cmpsd` are also SSE instructions.
            Mnemonic::Movsd if self.i.code() == IcedCode::Movsd_m32_m32 => self.string(X86Fn::Movs),
            Mnemonic::Cmpsd if self.i.code() == IcedCode::Cmpsd_m32_m32 => self.string(X86Fn::Cmps),
            Mnemonic::Stosb | Mnemonic::Stosw | Mnemonic::Stosd | Mnemonic::Stosq => {
                self.string(X86Fn::Stos);
            }
            Mnemonic::Lodsb | Mnemonic::Lodsw | Mnemonic::Lodsd | Mnemonic::Lodsq => {
                self.string(X86Fn::Lods);
            }
            Mnemonic::Scasb | Mnemonic::Scasw | Mnemonic::Scasd | Mnemonic::Scasq => {
                self.string(X86Fn::Scas);
            }
            Mnemonic::Cmpsb | Mnemonic::Cmpsw | Mnemonic::Cmpsq => self.string(X86Fn::Cmps),
            _ => return None,
        }
        Some(self.next())
    }

    /// A string instruction with 32-bit addresses (prefix 67): not supported.
    fn is_narrow_string(&self) -> bool {
        let i = self.i;
        (0..i.op_count()).any(|n| {
            matches!(
                i.op_kind(n),
                OpKind::MemorySegESI | OpKind::MemorySegEDI | OpKind::MemoryESEDI
            )
        })
    }

    fn helper_op(&mut self, f: X86Fn, imm: i64) {
        self.b.emit(Op::new(Code::X86).x(f as u16).imm(imm));
    }

    fn read_segment_base(&mut self, seg: Reg) {
        if let Some(g) = gpr(self.i.op0_register()) {
            self.write_gpr(g, seg);
        }
    }
    fn write_segment_base(&mut self, seg: Reg) {
        let Some(g) = gpr(self.i.op0_register()) else { return };
        let code = if g.width == Width::W32 { Code::Zext32 } else { Code::Mov };
        self.b.emit(Op::new(code).d(seg).a(g.slot));
    }

    /// Whether a MOV involves no control, debug or written segment register.
    fn moves_general(&self) -> bool {
        let (to, from) = (self.i.op0_register(), self.i.op1_register());
        !(to.is_segment_register() || to.is_cr() || to.is_dr() || from.is_cr() || from.is_dr())
    }

    /// Control and debug registers are privileged; loading a segment register is not supported.
    fn privileged_move(&mut self) -> Option<Step> {
        if self.i.op0_register().is_segment_register() {
            return None;
        }
        self.helper_op(X86Fn::Privileged, 0);
        Some(self.next())
    }

    fn mov(&mut self) {
        let i = self.i;
        if i.op_kind(1) == OpKind::Register && i.op1_register().is_segment_register() {
            // Selectors are not modelled: user code on Linux reads 0 (DS, ES, FS, GS) or fixed ones.
            let value = match i.op1_register() {
                Register::CS => 0x33,
                Register::SS => 0x2b,
                _ => 0,
            };
            self.b.movi(T0, value);
            self.write(0, T0);
            return;
        }
        let Some(g) = (!self.is_mem(0)).then(|| gpr(i.op0_register())).flatten() else {
            let value = self.src_reg(1);
            self.write(0, value);
            return;
        };
        // 32- and 64-bit loads and immediates go straight to the register.
        let wide = g.width >= Width::W32;
        match i.op_kind(1) {
            OpKind::Memory if wide => {
                let at = self.addr();
                self.load(g.width, g.slot, at);
            }
            OpKind::Register | OpKind::Memory => {
                let value = self.src_reg(1);
                self.write_gpr(g, value);
            }
            _ if wide => {
                let value = i.immediate(1);
                let value = if g.width == Width::W32 { value & 0xffff_ffff } else { value };
                self.b.movi(g.slot, value);
            }
            _ => {
                let value = self.src_reg(1);
                self.write_gpr(g, value);
            }
        }
    }

    fn lea(&mut self) {
        let Some(g) = gpr(self.i.op0_register()) else { return };
        // LEA ignores segments.
        let mut plain = *self.i;
        plain.set_segment_prefix(Register::None);
        let at = Lower { b: self.b, i: &plain }.addr();
        let d = if g.width == Width::W16 { T0 } else { g.slot };
        let wide = g.width == Width::W64;
        match at.index {
            None => {
                self.b.alui(if wide { Code::AddI64 } else { Code::AddI32 }, d, at.base, at.disp)
            }
            Some((x, shift)) => {
                let code = if wide { Code::AddShl64 } else { Code::AddShl32 };
                self.b.emit(Op::new(code).d(d).a(at.base).b(x).x(shift).imm(at.disp));
            }
        }
        if g.width == Width::W16 {
            self.write_gpr(g, T0);
        }
    }

    fn movzx(&mut self) {
        let Some(g) = gpr(self.i.op0_register()) else { return };
        let from = self.width(1);
        let d = if g.width == Width::W16 { T0 } else { g.slot };
        if self.is_mem(1) {
            let at = self.addr();
            self.load(from, d, at);
        } else {
            let value = self.src_reg(1);
            let code = if from == Width::W8 { Code::Zext8 } else { Code::Zext16 };
            self.b.emit(Op::new(code).d(d).a(value));
        }
        if g.width == Width::W16 {
            self.write_gpr(g, T0);
        }
    }

    fn movsx(&mut self) {
        let Some(g) = gpr(self.i.op0_register()) else { return };
        let from = self.width(1);
        let d = if g.width == Width::W16 { T0 } else { g.slot };
        let wide = g.width == Width::W64;
        if self.is_mem(1) {
            let (plain, indexed) = match (from, wide) {
                (Width::W8, false) => (Code::LdS8to32, Code::LdS8to32X),
                (Width::W8, true) => (Code::LdS8to64, Code::LdS8to64X),
                (Width::W16, false) => (Code::LdS16to32, Code::LdS16to32X),
                (Width::W16, true) => (Code::LdS16to64, Code::LdS16to64X),
                (_, false) => (Code::LdU32, Code::LdU32X),
                (_, true) => (Code::LdS32to64, Code::LdS32to64X),
            };
            let at = self.addr();
            self.access(Op::new(plain).d(d), indexed, at);
        } else {
            let value = self.src_reg(1);
            let code = match (from, wide) {
                (Width::W8, false) => Code::Sext8to32,
                (Width::W8, true) => Code::Sext8to64,
                (Width::W16, false) => Code::Sext16to32,
                (Width::W16, true) => Code::Sext16to64,
                (_, false) => Code::Zext32,
                (_, true) => Code::Sext32to64,
            };
            self.b.emit(Op::new(code).d(d).a(value));
        }
        if g.width == Width::W16 {
            self.write_gpr(g, T0);
        }
    }

    fn record(&mut self, op: CcOp, width: Width, a: Reg, src: Src) {
        match src {
            Src::Reg(b) => self.b.cc(op, width, a, b),
            Src::Imm(v) => self.b.cci(op, width, a, v),
        }
    }

    /// d = a (alu) src, at 32 bits or 64.
    fn compute(&mut self, alu: Alu, wide: bool, d: Reg, a: Reg, src: Src) {
        match src {
            Src::Reg(b) => self.b.alu(alu.code(wide, false), d, a, b),
            Src::Imm(v) => {
                let v = if alu == Alu::Sub { v.wrapping_neg() } else { v };
                self.b.alui(alu.code(wide, true), d, a, v);
            }
        }
    }

    /// Flags of an operation: before the destination changes for sums, after for logic.
    fn alu_flags_before(&mut self, alu: Alu, width: Width, a: Reg, src: Src) {
        match alu {
            Alu::Add => self.record(CcOp::Add, width, a, src),
            Alu::Sub => self.record(CcOp::Sub, width, a, src),
            _ => {}
        }
    }
    fn alu_flags_after(&mut self, alu: Alu, width: Width, r: Reg) {
        if !matches!(alu, Alu::Add | Alu::Sub) {
            self.b.cci(CcOp::Logic, width, r, 0);
        }
    }

    fn alu(&mut self, alu: Alu) {
        let width = self.width(0);
        let wide = width == Width::W64;
        if self.is_mem(0) {
            let src = self.src(1);
            let at = self.simple_addr();
            self.load_for_write(width, T0, at);
            self.compute(alu, wide, T1, T0, src);
            self.store(width, T1, at);
            self.alu_flags_before(alu, width, T0, src);
            self.alu_flags_after(alu, width, T1);
            return;
        }
        let Some(g) = gpr(self.i.op0_register()) else { return };
        if self.is_zeroing(g) {
            self.b.movi(g.slot, 0);
            self.b.cci(CcOp::Logic, width, ZERO, 0);
            return;
        }
        let src = self.src(1);
        if width >= Width::W32 {
            self.alu_flags_before(alu, width, g.slot, src);
            self.compute(alu, wide, g.slot, g.slot, src);
            self.alu_flags_after(alu, width, g.slot);
            return;
        }
        let a = self.read_gpr(g);
        self.compute(alu, false, T1, a, src);
        self.alu_flags_before(alu, width, a, src);
        self.alu_flags_after(alu, width, T1);
        self.write_gpr(g, T1);
    }

    /// `xor r, r` and `sub r, r`.
    fn is_zeroing(&self, g: Gpr) -> bool {
        let i = self.i;
        matches!(i.mnemonic(), Mnemonic::Xor | Mnemonic::Sub)
            && g.width >= Width::W32
            && i.op_kind(1) == OpKind::Register
            && i.op0_register() == i.op1_register()
    }

    fn cmp(&mut self) {
        let width = self.width(0);
        let a = self.src_reg(0);
        let src = self.second_src();
        self.record(CcOp::Sub, width, a, src);
    }

    /// Operand 1 beside an operand 0 that may sit in the load temporary.
    fn second_src(&mut self) -> Src {
        self.src(1)
    }

    fn test(&mut self) {
        let width = self.width(0);
        let a = self.src_reg(0);
        let same = !self.is_mem(0)
            && self.i.op_kind(1) == OpKind::Register
            && self.i.op0_register() == self.i.op1_register();
        if same {
            self.b.cci(CcOp::Logic, width, a, 0);
            return;
        }
        let src = self.src(1);
        self.compute(Alu::And, width == Width::W64, T0, a, src);
        // A mask without the sign bit leaves the same flags at any width; 64 bits test fastest.
        let positive = matches!(src, Src::Imm(v) if v >= 0 && v >> (width.bits() - 1) == 0);
        let width = if positive { Width::W64 } else { width };
        self.b.cci(CcOp::Logic, width, T0, 0);
    }

    fn with_carry(&mut self, op: CcOp) {
        let width = self.width(0);
        let wide = width == Width::W64;
        let (add, sub) = if wide { (Code::Add64, Code::Sub64) } else { (Code::Add32, Code::Sub32) };
        let code = if op == CcOp::Adc { add } else { sub };
        let src = self.src_reg(1);
        let at = if self.is_mem(0) { Some(self.simple_addr()) } else { None };
        let a = match at {
            Some(at) => {
                self.load_for_write(width, T0, at);
                T0
            }
            None => self.src_reg(0),
        };
        self.b.emit(Op::new(Code::Carry).d(T1));
        self.b.alu(code, T2, a, src);
        self.b.alu(code, T2, T2, T1);
        if let Some(at) = at {
            self.store(width, T2, at);
        }
        let kind = CcKind::new(op, width);
        self.b.emit(Op::new(Code::Cc).kind(kind).a(a).b(src).c(T1));
        if at.is_none() {
            self.write(0, T2);
        }
    }

    /// INC, DEC, NEG, NOT (`op` is Inc, Dec, Sub, Flags).
    fn unary(&mut self, op: CcOp) {
        let width = self.width(0);
        let wide = width == Width::W64;
        let at = if self.is_mem(0) { Some(self.simple_addr()) } else { None };
        let a = match at {
            Some(at) => {
                self.load_for_write(width, T0, at);
                T0
            }
            None => self.src_reg(0),
        };
        let direct = at.is_none() && width >= Width::W32;
        let d = if direct { a } else { T1 };
        if direct {
            self.unary_flags(op, width, a);
        }
        match (op, wide) {
            (CcOp::Inc, false) => self.b.alui(Code::AddI32, d, a, 1),
            (CcOp::Inc, true) => self.b.alui(Code::AddI64, d, a, 1),
            (CcOp::Dec, false) => self.b.alui(Code::AddI32, d, a, -1),
            (CcOp::Dec, true) => self.b.alui(Code::AddI64, d, a, -1),
            (CcOp::Sub, false) => self.b.emit(Op::new(Code::Neg32).d(d).a(a)),
            (CcOp::Sub, true) => self.b.emit(Op::new(Code::Neg64).d(d).a(a)),
            (_, false) => self.b.emit(Op::new(Code::Not32).d(d).a(a)),
            (_, true) => self.b.emit(Op::new(Code::Not64).d(d).a(a)),
        }
        if direct {
            return;
        }
        if let Some(at) = at {
            self.store(width, d, at);
        }
        self.unary_flags(op, width, a);
        if at.is_none() {
            self.write(0, d);
        }
    }

    fn unary_flags(&mut self, op: CcOp, width: Width, a: Reg) {
        match op {
            CcOp::Inc | CcOp::Dec => {
                self.b.emit(Op::new(Code::CcIncDec).kind(CcKind::new(op, width)).a(a));
            }
            CcOp::Sub => self.b.cc(CcOp::Sub, width, ZERO, a),
            _ => {}
        }
    }

    /// The shift count: an immediate already masked, or CL masked into a temporary.
    fn count(&mut self, n: u32, wide: bool) -> Src {
        let mask = if wide { 63 } else { 31 };
        if self.i.op_kind(n) == OpKind::Register {
            self.b.alui(Code::AndI32, T3, RCX, mask);
            return Src::Reg(T3);
        }
        Src::Imm(self.i.immediate(n).cast_signed() & mask)
    }

    fn shift(&mut self, op: CcOp) {
        let width = self.width(0);
        let wide = width == Width::W64;
        let count = self.count(1, wide);
        let at = if self.is_mem(0) { Some(self.simple_addr()) } else { None };
        let a = match at {
            Some(at) => {
                self.load_for_write(width, T0, at);
                T0
            }
            None => self.src_reg(0),
        };
        // Narrow right shifts work on an extended copy.
        let extended = match (op, width) {
            (CcOp::Shr, Width::W8) => Some(Code::Zext8),
            (CcOp::Shr, Width::W16) => Some(Code::Zext16),
            (CcOp::Sar, Width::W8) => Some(Code::Sext8to32),
            (CcOp::Sar, Width::W16) => Some(Code::Sext16to32),
            _ => None,
        };
        let a = match extended {
            Some(code) => {
                self.b.emit(Op::new(code).d(T2).a(a));
                T2
            }
            None => a,
        };
        let direct = at.is_none() && width >= Width::W32;
        let d = if direct { a } else { T1 };
        if direct {
            self.shift_flags(op, width, a, count);
        }
        self.shift_value(op, wide, d, a, count);
        if direct {
            return;
        }
        if let Some(at) = at {
            self.store(width, d, at);
        }
        self.shift_flags(op, width, a, count);
        if at.is_none() {
            self.write(0, d);
        }
    }

    fn shift_value(&mut self, op: CcOp, wide: bool, d: Reg, a: Reg, count: Src) {
        let (reg, imm) = match (op, wide) {
            (CcOp::Shl, false) => (Code::Shl32, Code::ShlI32),
            (CcOp::Shl, true) => (Code::Shl64, Code::ShlI64),
            (CcOp::Shr, false) => (Code::Shr32, Code::ShrI32),
            (CcOp::Shr, true) => (Code::Shr64, Code::ShrI64),
            (_, false) => (Code::Sar32, Code::SarI32),
            (_, true) => (Code::Sar64, Code::SarI64),
        };
        match count {
            Src::Reg(c) => self.b.alu(reg, d, a, c),
            Src::Imm(c) => self.b.alui(imm, d, a, c),
        }
    }

    fn shift_flags(&mut self, op: CcOp, width: Width, a: Reg, count: Src) {
        match count {
            Src::Reg(c) => {
                self.b.emit(Op::new(Code::CcShift).kind(CcKind::new(op, width)).a(a).b(c));
            }
            Src::Imm(0) => {}
            Src::Imm(c) => self.b.cci(op, width, a, c),
        }
    }

    fn rotate(&mut self, flags: Code) {
        let width = self.width(0);
        let wide = width == Width::W64;
        let count = self.count(1, wide);
        let at = if self.is_mem(0) { Some(self.simple_addr()) } else { None };
        let a = match at {
            Some(at) => {
                self.load_for_write(width, T0, at);
                T0
            }
            None => self.src_reg(0),
        };
        let bits = i64::from(width.bits());
        let left = flags == Code::CcRol;
        // A narrow value is repeated through 32 bits, so that a 32-bit rotation rotates it.
        let a = match width {
            Width::W8 => {
                self.b.emit(Op::new(Code::Zext8).d(T2).a(a));
                self.b.alui(Code::MulI32, T2, T2, 0x0101_0101);
                T2
            }
            Width::W16 => {
                self.b.emit(Op::new(Code::Zext16).d(T2).a(a));
                self.b.alui(Code::MulI32, T2, T2, 0x0001_0001);
                T2
            }
            _ => a,
        };
        let imm_code = if wide { Code::RorI64 } else { Code::RorI32 };
        let reg_code = if wide { Code::Ror64 } else { Code::Ror32 };
        match (count, left) {
            (Src::Imm(c), true) => self.b.alui(imm_code, T1, a, bits.max(32) - c),
            (Src::Imm(c), false) => self.b.alui(imm_code, T1, a, c),
            (Src::Reg(c), true) => {
                self.b.emit(Op::new(Code::Neg32).d(T1).a(c));
                self.b.alu(reg_code, T1, a, T1);
            }
            (Src::Reg(c), false) => self.b.alu(reg_code, T1, a, c),
        }
        if let Some(at) = at {
            self.store(width, T1, at);
        }
        let op = Op::new(flags).x(bits16(width)).a(T1);
        match count {
            Src::Reg(c) => self.b.emit(op.b(c)),
            Src::Imm(0) => {}
            Src::Imm(c) => self.b.emit(op.b(ZERO).imm(c)),
        }
        if at.is_none() {
            self.write(0, T1);
        }
    }

    /// Rotations through carry and double shifts: value and flags in one helper.
    fn through_helper(&mut self, f: X86Fn) {
        let width = self.width(0);
        let n = self.i.op_count() - 1;
        let other = if n == 2 { self.src_reg(1) } else { ZERO };
        let count = match self.count(n, width == Width::W64) {
            Src::Reg(c) => c,
            Src::Imm(c) => {
                self.b.movi(T3, c.cast_unsigned());
                T3
            }
        };
        let at = if self.is_mem(0) { Some(self.simple_addr()) } else { None };
        match at {
            Some(at) => self.load_for_write(width, T0, at),
            None => {
                let a = self.src_reg(0);
                self.b.mov(T0, a);
            }
        }
        let op = Op::new(Code::X86).x(f as u16).d(T1).a(T0).b(other).c(count);
        self.b.emit(op.imm(i64::from(width.bits())));
        match at {
            Some(at) => self.store(width, T1, at),
            None => self.write(0, T1),
        }
    }

    fn imul(&mut self) {
        let i = self.i;
        if i.op_count() == 1 {
            self.mul_wide(Code::CcMulS);
            return;
        }
        let Some(g) = gpr(i.op0_register()) else { return };
        let (a, src) = if i.op_count() == 2 {
            (g.slot, self.src(1))
        } else {
            (self.src_reg(1), Src::Imm(i.immediate(2).cast_signed()))
        };
        let flags = Op::new(Code::CcMulS).x(bits16(g.width)).a(a);
        match src {
            Src::Reg(b) => self.b.emit(flags.b(b)),
            Src::Imm(v) => self.b.emit(flags.b(ZERO).imm(v)),
        }
        let wide = g.width == Width::W64;
        let d = if g.width == Width::W16 { T1 } else { g.slot };
        match src {
            Src::Reg(b) => self.b.alu(if wide { Code::Mul64 } else { Code::Mul32 }, d, a, b),
            Src::Imm(v) => self.b.alui(if wide { Code::MulI64 } else { Code::MulI32 }, d, a, v),
        }
        if g.width == Width::W16 {
            self.write_gpr(g, T1);
        }
    }

    /// One-operand MUL and IMUL.
    fn mul_wide(&mut self, flags: Code) {
        let signed = flags == Code::CcMulS;
        let width = self.width(0);
        let b = self.src_reg(0);
        self.b.emit(Op::new(flags).x(bits16(width)).a(RAX).b(b));
        match width {
            Width::W64 => {
                let high = if signed { Code::MulHiS64 } else { Code::MulHiU64 };
                self.b.alu(high, T0, RAX, b);
                self.b.alu(Code::Mul64, RAX, RAX, b);
                self.b.mov(RDX, T0);
            }
            Width::W32 => {
                let product = if signed { Code::MulLS } else { Code::MulLU };
                self.b.alu(product, T0, RAX, b);
                self.b.alui(Code::ShrI64, RDX, T0, 32);
                self.b.emit(Op::new(Code::Zext32).d(RAX).a(T0));
            }
            Width::W16 | Width::W8 => {
                let code = match (width, signed) {
                    (Width::W16, true) => Code::Sext16to32,
                    (Width::W16, false) => Code::Zext16,
                    (_, true) => Code::Sext8to32,
                    (_, false) => Code::Zext8,
                };
                self.b.emit(Op::new(code).d(T0).a(RAX));
                self.b.emit(Op::new(code).d(T1).a(b));
                self.b.alu(Code::Mul32, T0, T0, T1);
                self.b.emit(Op::new(Code::Ins16).d(RAX).a(T0));
                if width == Width::W16 {
                    self.b.alui(Code::ShrI32, T0, T0, 16);
                    self.b.emit(Op::new(Code::Ins16).d(RDX).a(T0));
                }
            }
        }
    }

    fn div(&mut self, f: X86Fn) {
        let width = self.width(0);
        let b = self.src_reg(0);
        self.b.emit(Op::new(Code::X86).x(f as u16).a(b).imm(i64::from(width.bits())));
    }

    fn xchg(&mut self) {
        let width = self.width(0);
        if self.is_mem(0) || self.is_mem(1) {
            let n = u32::from(self.is_mem(0));
            let Some(g) = gpr(self.i.op_register(n)) else { return };
            let value = self.read_gpr(g);
            let at = self.simple_addr();
            self.rmw(RmwOp::Swap, width, T0, at, value);
            self.write_gpr(g, T0);
            return;
        }
        let (a, b) = (self.src_reg(0), self.src_reg(1));
        self.b.mov(T0, a);
        self.b.mov(T1, b);
        self.write(0, T1);
        self.write(1, T0);
    }

    fn rmw(&mut self, op: RmwOp, width: Width, d: Reg, at: Addr, b: Reg) {
        let code = match width {
            Width::W8 => Code::Rmw8,
            Width::W16 => Code::Rmw16,
            Width::W32 => Code::Rmw32,
            Width::W64 => Code::Rmw64,
        };
        self.b.emit(Op::new(code).x(op as u16).d(d).a(at.base).b(b).imm(at.disp));
    }

    fn xadd(&mut self) {
        let width = self.width(0);
        let Some(g) = gpr(self.i.op1_register()) else { return };
        let value = self.read_gpr(g);
        if self.is_mem(0) {
            let at = self.simple_addr();
            self.rmw(RmwOp::Add, width, T0, at, value);
            self.b.cc(CcOp::Add, width, T0, value);
            self.write_gpr(g, T0);
            return;
        }
        let a = self.src_reg(0);
        self.b.mov(T0, a);
        self.b.cc(CcOp::Add, width, T0, value);
        self.b.alu(Code::Add64, T1, T0, value);
        self.write_gpr(g, T0);
        self.write(0, T1);
    }

    fn cmpxchg(&mut self) {
        let width = self.width(0);
        let value = self.src_reg(1);
        if self.is_mem(0) {
            let at = self.simple_addr();
            let code = match width {
                Width::W8 => Code::Cas8,
                Width::W16 => Code::Cas16,
                Width::W32 => Code::Cas32,
                Width::W64 => Code::Cas64,
            };
            self.b.emit(Op::new(code).d(T0).a(at.base).imm(at.disp).b(value).c(RAX));
            self.b.cc(CcOp::Sub, width, RAX, T0);
        } else {
            let a = self.src_reg(0);
            self.b.mov(T0, a);
            self.b.cc(CcOp::Sub, width, RAX, T0);
            // On a mismatch the destination is written with itself.
            self.b.emit(Op::new(Code::Csel64).d(T1).a(value).b(T0).cond(Cond::Z));
            self.write(0, T1);
        }
        // RAX changes only on a mismatch, by the rules of its width.
        self.b.mov(T1, RAX);
        self.write_gpr(Gpr { slot: T1, width, high: false }, T0);
        self.b.emit(Op::new(Code::Csel64).d(RAX).a(RAX).b(T1).cond(Cond::Z));
    }

    fn cmpxchg16b(&mut self) {
        let at = self.simple_addr();
        // Pairs sit in consecutive slots: expected RDX:RAX, new RCX:RBX, old value.
        let (expected, new, old) = (Reg::tmp(4), Reg::tmp(6), Reg::tmp(0));
        self.b.mov(expected, RAX);
        self.b.mov(Reg::tmp(5), RDX);
        self.b.mov(new, RBX);
        self.b.mov(Reg::tmp(7), RCX);
        self.b.emit(Op::new(Code::CheckAlign).a(at.base).imm(at.disp).x(16));
        self.b.emit(Op::new(Code::Cas128).d(old).a(at.base).imm(at.disp).b(new).c(expected));
        self.b.alu(Code::Xor64, Reg::tmp(4), expected, old);
        self.b.alu(Code::Xor64, Reg::tmp(5), Reg::tmp(5), Reg::tmp(1));
        self.b.alu(Code::Or64, Reg::tmp(4), Reg::tmp(4), Reg::tmp(5));
        self.b.emit(Op::new(Code::X86).x(X86Fn::ZeroFlag as u16).a(Reg::tmp(4)));
        self.b.mov(RAX, old);
        self.b.mov(RDX, Reg::tmp(1));
    }

    fn cmpxchg8b(&mut self) {
        let at = self.simple_addr();
        let pack = |l: &mut Self, d: Reg, low: Reg, high: Reg| {
            l.b.emit(Op::new(Code::Zext32).d(d).a(low));
            l.b.emit(Op::new(Code::AddShl64).d(d).a(d).b(high).x(32));
        };
        pack(self, T1, RAX, RDX);
        pack(self, T2, RBX, RCX);
        self.b.emit(Op::new(Code::Cas64).d(T0).a(at.base).imm(at.disp).b(T2).c(T1));
        self.b.alu(Code::Xor64, T3, T0, T1);
        self.b.emit(Op::new(Code::X86).x(X86Fn::ZeroFlag as u16).a(T3));
        // Equal values write nothing new, but the upper halves would be cleared.
        self.b.emit(Op::new(Code::Zext32).d(T1).a(T0));
        self.b.alui(Code::ShrI64, T2, T0, 32);
        self.b.emit(Op::new(Code::Csel64).d(RAX).a(RAX).b(T1).cond(Cond::Z));
        self.b.emit(Op::new(Code::Csel64).d(RDX).a(RDX).b(T2).cond(Cond::Z));
    }

    fn bit_test(&mut self, op: Option<RmwOp>) {
        let width = self.width(0);
        let bits = bits16(width);
        let wide = width == Width::W64;
        let src = self.src(1);
        let at = if self.is_mem(0) { Some(self.bit_address(width, src)) } else { None };
        // The bit number within the operand.
        let (index, imm) = match src {
            Src::Reg(r) => (r, 0),
            Src::Imm(v) => (ZERO, v & i64::from(bits - 1)),
        };
        let a = match (at, op) {
            (Some(at), None) => {
                self.load(width, T0, at);
                T0
            }
            (Some(at), Some(_)) => {
                self.load_for_write(width, T0, at);
                T0
            }
            (None, _) => self.src_reg(0),
        };
        let flag = Op::new(Code::CcBit).x(bits).a(a).b(index).imm(imm);
        let Some(op) = op else {
            self.b.emit(flag);
            return;
        };
        self.b.alui(Code::AddI64, T2, index, imm);
        self.b.alui(Code::AndI64, T2, T2, i64::from(bits - 1));
        self.b.movi(T1, 1);
        self.b.alu(Code::Shl64, T1, T1, T2);
        let code = match (op, wide) {
            (RmwOp::Or, false) => Code::Or32,
            (RmwOp::Or, true) => Code::Or64,
            (RmwOp::Bic, false) => Code::Bic32,
            (RmwOp::Bic, true) => Code::Bic64,
            (_, false) => Code::Xor32,
            (_, true) => Code::Xor64,
        };
        self.b.alu(code, T1, a, T1);
        if let Some(at) = at {
            self.store(width, T1, at);
            self.b.emit(flag);
        } else {
            self.b.emit(flag);
            self.write(0, T1);
        }
    }

    /// A register bit number addresses memory beyond the operand.
    fn bit_address(&mut self, width: Width, src: Src) -> Addr {
        let at = self.simple_addr();
        let Src::Reg(r) = src else { return at };
        let (log2_bits, log2_bytes) = match width {
            Width::W16 => (4, 1),
            Width::W32 => (5, 2),
            _ => (6, 3),
        };
        let extend = match width {
            Width::W16 => Code::Sext16to64,
            Width::W32 => Code::Sext32to64,
            _ => Code::Mov,
        };
        self.b.emit(Op::new(extend).d(T2).a(r));
        self.b.alui(Code::SarI64, T2, T2, log2_bits);
        let address = Reg::tmp(12);
        let op = Op::new(Code::AddShl64).d(address).a(at.base).b(T2).x(log2_bytes);
        self.b.emit(op.imm(at.disp));
        Addr { base: address, index: None, disp: 0 }
    }

    fn bit_scan(&mut self) {
        let Some(g) = gpr(self.i.op0_register()) else { return };
        let a = self.src_reg(1);
        let value = match g.width {
            Width::W16 => {
                self.b.emit(Op::new(Code::Zext16).d(T0).a(a));
                T0
            }
            _ => a,
        };
        let wide = g.width == Width::W64;
        let forward = self.i.mnemonic() == Mnemonic::Bsf;
        let code = match (forward, wide) {
            (true, false) => Code::Ctz32,
            (true, true) => Code::Ctz64,
            (false, false) => Code::Clz32,
            (false, true) => Code::Clz64,
        };
        self.b.emit(Op::new(code).d(T1).a(value));
        if !forward {
            self.b.alui(Code::XorI32, T1, T1, if wide { 63 } else { 31 });
        }
        // A zero source leaves the destination as it was.
        self.b.cci(CcOp::Logic, g.width, value, 0);
        self.b.emit(Op::new(Code::Csel64).d(T1).a(g.slot).b(T1).cond(Cond::Z));
        if g.width == Width::W16 {
            self.write_gpr(g, T1);
        } else {
            self.b.mov(g.slot, T1);
        }
    }

    fn bit_count(&mut self) {
        let Some(g) = gpr(self.i.op0_register()) else { return };
        let a = self.src_reg(1);
        let wide = g.width == Width::W64;
        let extend = match g.width {
            Width::W16 => Code::Zext16,
            Width::W32 => Code::Zext32,
            _ => Code::Mov,
        };
        self.b.emit(Op::new(extend).d(T0).a(a));
        match self.i.mnemonic() {
            Mnemonic::Popcnt => {
                self.b.emit(Op::new(Code::Popcnt64).d(T1).a(T0));
                self.b.emit(Op::new(Code::CcZero).a(T0));
            }
            Mnemonic::Tzcnt => {
                if g.width == Width::W16 {
                    self.b.alui(Code::OrI32, T2, T0, 0x1_0000);
                    self.b.emit(Op::new(Code::Ctz32).d(T1).a(T2));
                } else {
                    let code = if wide { Code::Ctz64 } else { Code::Ctz32 };
                    self.b.emit(Op::new(code).d(T1).a(T0));
                }
                self.b.emit(Op::new(Code::CcZero).x(1).a(T1).b(T0));
            }
            _ => {
                let code = if wide { Code::Clz64 } else { Code::Clz32 };
                self.b.emit(Op::new(code).d(T1).a(T0));
                if g.width == Width::W16 {
                    self.b.alui(Code::AddI32, T1, T1, -16);
                }
                self.b.emit(Op::new(Code::CcZero).x(1).a(T1).b(T0));
            }
        }
        self.write_gpr(g, T1);
    }

    fn bswap(&mut self) {
        let Some(g) = gpr(self.i.op0_register()) else { return };
        let code = if g.width == Width::W64 { Code::Bswap64 } else { Code::Bswap32 };
        self.b.emit(Op::new(code).d(g.slot).a(g.slot));
    }

    fn movbe(&mut self) {
        let width = self.width(0);
        let a = self.src_reg(1);
        let code = match width {
            Width::W16 => Code::Rev16x32,
            Width::W32 => Code::Bswap32,
            _ => Code::Bswap64,
        };
        self.b.emit(Op::new(code).d(T0).a(a));
        self.write(0, T0);
    }

    fn push(&mut self) {
        let i = self.i;
        let width = match i.code() {
            IcedCode::Push_r16
            | IcedCode::Push_rm16
            | IcedCode::Push_imm16
            | IcedCode::Pushw_imm8 => Width::W16,
            _ => Width::W64,
        };
        let value = self.src_reg(0);
        let bytes = i64::from(width.bytes());
        self.store(width, value, Addr { base: RSP, index: None, disp: -bytes });
        self.b.alui(Code::AddI64, RSP, RSP, -bytes);
    }

    fn pop(&mut self) {
        let width = self.width(0);
        let bytes = i64::from(width.bytes());
        self.load(width, T0, Addr { base: RSP, index: None, disp: 0 });
        if !self.is_mem(0) {
            self.b.alui(Code::AddI64, RSP, RSP, bytes);
            self.write(0, T0);
            return;
        }
        // An RSP-relative destination is addressed after the increment.
        let mut at = self.addr();
        if at.base == RSP {
            at.disp += bytes;
        }
        self.store(width, T0, at);
        self.b.alui(Code::AddI64, RSP, RSP, bytes);
    }

    fn jump_to_operand(&mut self) {
        let i = self.i;
        if matches!(i.op0_kind(), OpKind::NearBranch64 | OpKind::NearBranch32) {
            self.b.jump(i.near_branch64());
            return;
        }
        let target = self.src_reg(0);
        self.b.emit(Op::new(Code::JumpInd).a(target));
    }

    fn call(&mut self) {
        let i = self.i;
        let near = matches!(i.op0_kind(), OpKind::NearBranch64 | OpKind::NearBranch32);
        let target = if near { ZERO } else { self.src_reg(0) };
        // The target may be RSP-relative or RSP itself: read before RSP changes.
        if !near {
            self.b.mov(T1, target);
        }
        self.b.movi(T0, i.next_ip());
        self.b.emit(Op::new(Code::St64).c(T0).a(RSP).imm(-8));
        self.b.alui(Code::AddI64, RSP, RSP, -8);
        if near {
            self.b.jump(i.near_branch64());
        } else {
            self.b.emit(Op::new(Code::JumpInd).a(T1));
        }
    }

    fn looping(&mut self) {
        let i = self.i;
        self.b.alui(Code::AddI64, RCX, RCX, -1);
        let (taken, next) = (i.near_branch64(), i.next_ip());
        let cond = match i.mnemonic() {
            Mnemonic::Loop => {
                self.b.branch(Op::new(Code::BrNz64).a(RCX), taken, next);
                return;
            }
            Mnemonic::Loope => Cond::Z,
            _ => Cond::Nz,
        };
        self.b.emit(Op::new(Code::SetCond).d(T0).cond(cond));
        self.b.movi(T1, 0);
        self.b.emit(Op::new(Code::Ctz64).d(T2).a(RCX));
        // T2 is 64 only for RCX = 0.
        self.b.alui(Code::ShrI64, T2, T2, 6);
        self.b.alu(Code::Bic64, T0, T0, T2);
        self.b.branch(Op::new(Code::BrNz64).a(T0), taken, next);
    }

    fn rdtsc(&mut self, next: u64) {
        self.b.emit(Op::new(Code::Counter).d(T0));
        self.b.alui(Code::ShrI64, RDX, T0, 32);
        self.b.emit(Op::new(Code::Zext32).d(RAX).a(T0));
        if self.i.mnemonic() == Mnemonic::Rdtscp {
            self.b.movi(RCX, 0);
        }
        self.b.jump(next);
    }

    fn conditional(&mut self) -> Option<Step> {
        let i = self.i;
        let cond = cond(i.condition_code());
        if i.is_jcc_short_or_near() {
            self.b.branch_if(cond, i.near_branch64(), i.next_ip());
            return Some(self.end());
        }
        if i.op_count() == 1 {
            self.b.emit(Op::new(Code::SetCond).d(T0).cond(cond));
            self.write(0, T0);
            return Some(self.next());
        }
        if !is_cmov(i.mnemonic()) {
            return None;
        }
        let g = gpr(i.op0_register())?;
        let value = self.src_reg(1);
        let code = if g.width == Width::W64 { Code::Csel64 } else { Code::Csel32 };
        let d = if g.width == Width::W16 { T0 } else { g.slot };
        self.b.emit(Op::new(code).d(d).a(value).b(g.slot).cond(cond));
        if g.width == Width::W16 {
            self.write_gpr(g, T0);
        }
        Some(self.next())
    }

    /// String instructions: element bits in `imm`, the repeat prefix above it.
    fn string(&mut self, f: X86Fn) {
        let i = self.i;
        let width = match i.mnemonic() {
            Mnemonic::Movsb
            | Mnemonic::Stosb
            | Mnemonic::Lodsb
            | Mnemonic::Scasb
            | Mnemonic::Cmpsb => 8,
            Mnemonic::Movsw
            | Mnemonic::Stosw
            | Mnemonic::Lodsw
            | Mnemonic::Scasw
            | Mnemonic::Cmpsw => 16,
            Mnemonic::Movsd
            | Mnemonic::Stosd
            | Mnemonic::Lodsd
            | Mnemonic::Scasd
            | Mnemonic::Cmpsd => 32,
            _ => 64,
        };
        let repeat = if i.has_repne_prefix() { 2 } else { i64::from(i.has_rep_prefix()) };
        let segment = match i.segment_prefix() {
            Register::FS => ir::FS,
            Register::GS => ir::GS,
            _ => ZERO,
        };
        let op = Op::new(Code::X86).x(f as u16).d(RDI).a(RSI).b(segment).c(RCX);
        self.b.emit(op.imm(width | repeat << 8));
    }
}

fn is_cmov(m: Mnemonic) -> bool {
    matches!(
        m,
        Mnemonic::Cmova
            | Mnemonic::Cmovae
            | Mnemonic::Cmovb
            | Mnemonic::Cmovbe
            | Mnemonic::Cmove
            | Mnemonic::Cmovg
            | Mnemonic::Cmovge
            | Mnemonic::Cmovl
            | Mnemonic::Cmovle
            | Mnemonic::Cmovne
            | Mnemonic::Cmovno
            | Mnemonic::Cmovnp
            | Mnemonic::Cmovns
            | Mnemonic::Cmovo
            | Mnemonic::Cmovp
            | Mnemonic::Cmovs
    )
}

/// Length of an instruction.
fn len(i: &iced_x86::Instruction) -> u32 {
    u32::try_from(i.len()).unwrap_or(0)
}
