//! Lowering of SSE, SSE2, SSE3, SSSE3 and the simple parts of SSE4.1.
//!
//! Memory operands of 128 bits must be aligned (else #GP) except for the unaligned moves.

use super::helper::X86Fn;
use super::operand::{Lower, gpr, xmm};
use crate::block::Step;
use crate::ir::{Code, Op, Reg, Vreg, Width};
use crate::vector::VecOp;
use iced_x86::{Mnemonic, OpKind, Register};

const V0: Vreg = Vreg::tmp(0);
const V1: Vreg = Vreg::tmp(1);
const T0: Reg = Reg::tmp(0);

/// How an instruction's operands map to a vector op.
#[derive(Clone, Copy)]
enum Form {
    /// d = op(d, src) with a constant imm.
    Two(VecOp, i64),
    /// d = op(d, src), imm from the instruction.
    TwoImm(VecOp),
    /// d = op(src), imm from the instruction.
    OneImm(VecOp),
    /// d = op(d) by immediate, or op'(d, src) by register.
    Shift(VecOp, VecOp),
    /// Scalar arithmetic with its own op code.
    Scalar(Code),
}

const SCALAR: i64 = 1;

fn form(m: Mnemonic) -> Option<Form> {
    use Form::{OneImm, Scalar, Shift, Two, TwoImm};
    use Mnemonic as M;
    use VecOp as O;
    Some(match m {
        M::Addsd => Scalar(Code::FAdd64),
        M::Subsd => Scalar(Code::FSub64),
        M::Mulsd => Scalar(Code::FMul64),
        M::Divsd => Scalar(Code::FDiv64),
        M::Addss => Scalar(Code::FAdd32),
        M::Subss => Scalar(Code::FSub32),
        M::Mulss => Scalar(Code::FMul32),
        M::Divss => Scalar(Code::FDiv32),
        M::Pand | M::Andps | M::Andpd => Two(O::And, 0),
        M::Por | M::Orps | M::Orpd => Two(O::Or, 0),
        M::Pxor | M::Xorps | M::Xorpd => Two(O::Xor, 0),
        M::Pandn | M::Andnps | M::Andnpd => Two(O::AndNot, 0),
        M::Paddb => Two(O::Add8, 0),
        M::Paddw => Two(O::Add16, 0),
        M::Paddd => Two(O::Add32, 0),
        M::Paddq => Two(O::Add64, 0),
        M::Psubb => Two(O::Sub8, 0),
        M::Psubw => Two(O::Sub16, 0),
        M::Psubd => Two(O::Sub32, 0),
        M::Psubq => Two(O::Sub64, 0),
        M::Pmullw => Two(O::Mul16, 0),
        M::Pmulld => Two(O::Mul32, 0),
        M::Pmulhw => Two(O::MulHiS16, 0),
        M::Pmulhuw => Two(O::MulHiU16, 0),
        M::Pmulhrsw => Two(O::MulHiRound16, 0),
        M::Pmuludq => Two(O::MulEvenU32, 0),
        M::Pmuldq => Two(O::MulEvenS32, 0),
        M::Pmaddwd => Two(O::MulAdd16, 0),
        M::Pmaddubsw => Two(O::MulAddU8S8, 0),
        M::Psadbw => Two(O::SadU8, 0),
        M::Pavgb => Two(O::AvgU8, 0),
        M::Pavgw => Two(O::AvgU16, 0),
        M::Paddsb => Two(O::AddSatS8, 0),
        M::Paddsw => Two(O::AddSatS16, 0),
        M::Paddusb => Two(O::AddSatU8, 0),
        M::Paddusw => Two(O::AddSatU16, 0),
        M::Psubsb => Two(O::SubSatS8, 0),
        M::Psubsw => Two(O::SubSatS16, 0),
        M::Psubusb => Two(O::SubSatU8, 0),
        M::Psubusw => Two(O::SubSatU16, 0),
        M::Pcmpeqb => Two(O::CmpEq8, 0),
        M::Pcmpeqw => Two(O::CmpEq16, 0),
        M::Pcmpeqd => Two(O::CmpEq32, 0),
        M::Pcmpeqq => Two(O::CmpEq64, 0),
        M::Pcmpgtb => Two(O::CmpGtS8, 0),
        M::Pcmpgtw => Two(O::CmpGtS16, 0),
        M::Pcmpgtd => Two(O::CmpGtS32, 0),
        M::Pcmpgtq => Two(O::CmpGtS64, 0),
        M::Pminsb => Two(O::MinS8, 0),
        M::Pminsw => Two(O::MinS16, 0),
        M::Pminsd => Two(O::MinS32, 0),
        M::Pmaxsb => Two(O::MaxS8, 0),
        M::Pmaxsw => Two(O::MaxS16, 0),
        M::Pmaxsd => Two(O::MaxS32, 0),
        M::Pminub => Two(O::MinU8, 0),
        M::Pminuw => Two(O::MinU16, 0),
        M::Pminud => Two(O::MinU32, 0),
        M::Pmaxub => Two(O::MaxU8, 0),
        M::Pmaxuw => Two(O::MaxU16, 0),
        M::Pmaxud => Two(O::MaxU32, 0),
        M::Pabsb => Two(O::Abs8, 0),
        M::Pabsw => Two(O::Abs16, 0),
        M::Pabsd => Two(O::Abs32, 0),
        M::Psignb => Two(O::Sign8, 0),
        M::Psignw => Two(O::Sign16, 0),
        M::Psignd => Two(O::Sign32, 0),
        M::Phaddw => Two(O::HAdd16, 0),
        M::Phaddd => Two(O::HAdd32, 0),
        M::Phaddsw => Two(O::HAddSat16, 0),
        M::Phsubw => Two(O::HSub16, 0),
        M::Phsubd => Two(O::HSub32, 0),
        M::Phsubsw => Two(O::HSubSat16, 0),
        M::Psllw => Shift(O::ShlI16, O::Shl16),
        M::Pslld => Shift(O::ShlI32, O::Shl32),
        M::Psllq => Shift(O::ShlI64, O::Shl64),
        M::Psrlw => Shift(O::ShrI16, O::Shr16),
        M::Psrld => Shift(O::ShrI32, O::Shr32),
        M::Psrlq => Shift(O::ShrI64, O::Shr64),
        M::Psraw => Shift(O::SarI16, O::Sar16),
        M::Psrad => Shift(O::SarI32, O::Sar32),
        M::Pslldq => Shift(O::ShlBytes, O::ShlBytes),
        M::Psrldq => Shift(O::ShrBytes, O::ShrBytes),
        M::Palignr => TwoImm(O::Align),
        M::Punpcklbw => Two(O::UnpackLo8, 0),
        M::Punpcklwd => Two(O::UnpackLo16, 0),
        M::Punpckldq | M::Unpcklps => Two(O::UnpackLo32, 0),
        M::Punpcklqdq | M::Unpcklpd => Two(O::UnpackLo64, 0),
        M::Punpckhbw => Two(O::UnpackHi8, 0),
        M::Punpckhwd => Two(O::UnpackHi16, 0),
        M::Punpckhdq | M::Unpckhps => Two(O::UnpackHi32, 0),
        M::Punpckhqdq | M::Unpckhpd => Two(O::UnpackHi64, 0),
        M::Packsswb => Two(O::PackS16, 0),
        M::Packssdw => Two(O::PackS32, 0),
        M::Packuswb => Two(O::PackU16, 0),
        M::Packusdw => Two(O::PackU32, 0),
        M::Pshufd => OneImm(O::Shuf32),
        M::Pshuflw => OneImm(O::ShufLo16),
        M::Pshufhw => OneImm(O::ShufHi16),
        M::Shufps => TwoImm(O::ShufPs),
        M::Shufpd => TwoImm(O::ShufPd),
        M::Pshufb => Two(O::ShufBytes, 0),
        M::Movhlps => Two(O::HiToLo64, 0),
        M::Movlhps => Two(O::LoToHi64, 0),
        M::Movsldup => Two(O::DupEven32, 0),
        M::Movshdup => Two(O::DupOdd32, 0),
        M::Movddup => Two(O::DupLo64, 0),
        M::Pblendw => TwoImm(O::BlendI16),
        M::Blendps => TwoImm(O::BlendI32),
        M::Blendpd => TwoImm(O::BlendI64),
        M::Pblendvb => Two(O::BlendV, 8),
        M::Blendvps => Two(O::BlendV, 32),
        M::Blendvpd => Two(O::BlendV, 64),
        M::Pmovzxbw => Two(O::Extend, 8 | 16 << 8),
        M::Pmovzxbd => Two(O::Extend, 8 | 32 << 8),
        M::Pmovzxbq => Two(O::Extend, 8 | 64 << 8),
        M::Pmovzxwd => Two(O::Extend, 16 | 32 << 8),
        M::Pmovzxwq => Two(O::Extend, 16 | 64 << 8),
        M::Pmovzxdq => Two(O::Extend, 32 | 64 << 8),
        M::Pmovsxbw => Two(O::Extend, 8 | 16 << 8 | 1 << 16),
        M::Pmovsxbd => Two(O::Extend, 8 | 32 << 8 | 1 << 16),
        M::Pmovsxbq => Two(O::Extend, 8 | 64 << 8 | 1 << 16),
        M::Pmovsxwd => Two(O::Extend, 16 | 32 << 8 | 1 << 16),
        M::Pmovsxwq => Two(O::Extend, 16 | 64 << 8 | 1 << 16),
        M::Pmovsxdq => Two(O::Extend, 32 | 64 << 8 | 1 << 16),
        _ => return float_form(m),
    })
}

fn float_form(m: Mnemonic) -> Option<Form> {
    use Form::Two;
    use Mnemonic as M;
    use VecOp as O;
    Some(match m {
        M::Addps => Two(O::FAdd32, 0),
        M::Addpd => Two(O::FAdd64, 0),
        M::Subps => Two(O::FSub32, 0),
        M::Subpd => Two(O::FSub64, 0),
        M::Mulps => Two(O::FMul32, 0),
        M::Mulpd => Two(O::FMul64, 0),
        M::Divps => Two(O::FDiv32, 0),
        M::Divpd => Two(O::FDiv64, 0),
        M::Minps => Two(O::FMin32, 0),
        M::Minpd => Two(O::FMin64, 0),
        M::Minss => Two(O::FMin32, SCALAR),
        M::Minsd => Two(O::FMin64, SCALAR),
        M::Maxps => Two(O::FMax32, 0),
        M::Maxpd => Two(O::FMax64, 0),
        M::Maxss => Two(O::FMax32, SCALAR),
        M::Maxsd => Two(O::FMax64, SCALAR),
        M::Sqrtps => Two(O::FSqrt32, 0),
        M::Sqrtpd => Two(O::FSqrt64, 0),
        M::Sqrtss => Two(O::FSqrt32, SCALAR),
        M::Sqrtsd => Two(O::FSqrt64, SCALAR),
        M::Haddps => Two(O::FHAdd32, 0),
        M::Haddpd => Two(O::FHAdd64, 0),
        M::Hsubps => Two(O::FHSub32, 0),
        M::Hsubpd => Two(O::FHSub64, 0),
        M::Addsubps => Two(O::FAddSub32, 0),
        M::Addsubpd => Two(O::FAddSub64, 0),
        M::Cvtps2pd => Two(O::Cvt32To64, 0),
        M::Cvtpd2ps => Two(O::Cvt64To32, 0),
        M::Cvtss2sd => Two(O::Cvt32To64, SCALAR),
        M::Cvtsd2ss => Two(O::Cvt64To32, SCALAR),
        M::Cvtdq2ps => Two(O::CvtI32ToF32, 0),
        M::Cvtdq2pd => Two(O::CvtI32ToF64, 0),
        M::Cvtps2dq => Two(O::CvtF32ToI32, 0),
        M::Cvttps2dq => Two(O::CvtF32ToI32Trunc, 0),
        M::Cvtpd2dq => Two(O::CvtF64ToI32, 0),
        M::Cvttpd2dq => Two(O::CvtF64ToI32Trunc, 0),
        _ => return None,
    })
}

impl Lower<'_> {
    /// Lowers a vector instruction; `None` if it is not one of these.
    pub(super) fn vector(&mut self) -> Option<Step> {
        let i = self.i;
        let mmx =
            (0..i.op_count()).any(|n| i.op_kind(n) == OpKind::Register && i.op_register(n).is_mm());
        let wide = (0..i.op_count())
            .any(|n| i.op_kind(n) == OpKind::Register && i.op_register(n).is_ymm());
        if mmx || wide || i.encoding() != iced_x86::EncodingKind::Legacy {
            return None;
        }
        if let Some(form) = form(i.mnemonic()) {
            self.vector_op(form)?;
            return Some(self.next());
        }
        self.vector_other()?;
        Some(self.next())
    }

    /// Operand `n` as a vector source; memory is loaded into `into`.
    fn vsrc(&mut self, n: u32, into: Vreg) -> Option<Vreg> {
        if !self.is_mem(n) {
            return xmm(self.i.op_register(n));
        }
        let (plain, indexed) = match self.mem_bytes() {
            16 => (Code::VLd128A, Code::VLd128AX),
            8 => (Code::VLd64, Code::VLd64X),
            4 => (Code::VLd32, Code::VLd32X),
            2 => {
                let at = self.simple_addr();
                self.b.emit(Op::new(Code::VLd16).vd(into).a(at.base).imm(at.disp));
                return Some(into);
            }
            _ => return None,
        };
        let at = self.addr();
        self.access(Op::new(plain).vd(into), indexed, at);
        Some(into)
    }

    fn vector_op(&mut self, form: Form) -> Option<()> {
        let i = self.i;
        let d = xmm(i.op0_register())?;
        match form {
            Form::Scalar(code) => {
                let b = self.vsrc(1, V0)?;
                self.b.emit(Op::new(code).vd(d).va(d).vb(b));
            }
            Form::Two(VecOp::Xor, _) if !self.is_mem(1) && i.op1_register() == i.op0_register() => {
                self.b.emit(Op::new(Code::VMovI).vd(d));
            }
            Form::Two(op, imm) => {
                let b = self.vsrc(1, V0)?;
                self.b.emit(Op::new(Code::Vec).x(op as u16).vd(d).va(d).vb(b).imm(imm));
            }
            Form::TwoImm(op) => {
                let b = self.vsrc(1, V0)?;
                let imm = i64::from(i.immediate8());
                self.b.emit(Op::new(Code::Vec).x(op as u16).vd(d).va(d).vb(b).imm(imm));
            }
            Form::OneImm(op) => {
                let a = self.vsrc(1, V0)?;
                let imm = i64::from(i.immediate8());
                self.b.emit(Op::new(Code::Vec).x(op as u16).vd(d).va(a).imm(imm));
            }
            Form::Shift(by_imm, by_reg) => {
                if matches!(i.op_kind(1), OpKind::Register | OpKind::Memory) {
                    let b = self.vsrc(1, V0)?;
                    self.b.emit(Op::new(Code::Vec).x(by_reg as u16).vd(d).va(d).vb(b));
                } else {
                    let imm = i64::from(i.immediate8());
                    self.b.emit(Op::new(Code::Vec).x(by_imm as u16).vd(d).va(d).imm(imm));
                }
            }
        }
        Some(())
    }

    fn vector_other(&mut self) -> Option<()> {
        use Mnemonic as M;
        match self.i.mnemonic() {
            M::Movaps
            | M::Movapd
            | M::Movdqa
            | M::Movntdq
            | M::Movntps
            | M::Movntpd
            | M::Movntdqa => {
                self.move128([Code::VLd128A, Code::VLd128AX, Code::VSt128A, Code::VSt128AX])
            }
            M::Movups | M::Movupd | M::Movdqu | M::Lddqu => {
                self.move128([Code::VLd128, Code::VLd128X, Code::VSt128, Code::VSt128X])
            }
            M::Movss => self.move_scalar(Width::W32),
            M::Movsd => self.move_scalar(Width::W64),
            M::Movd => self.movd(),
            M::Movq => self.movd(),
            M::Movlps | M::Movlpd => self.move_half(VecOp::CopyLo64),
            M::Movhps | M::Movhpd => self.move_half(VecOp::LoToHi64),
            M::Pmovmskb => self.move_mask(VecOp::Mask8),
            M::Movmskps => self.move_mask(VecOp::Mask32),
            M::Movmskpd => self.move_mask(VecOp::Mask64),
            M::Cvtss2si => self.convert_to_gpr(VecOp::F32ToI32, VecOp::F32ToI64),
            M::Cvttss2si => self.convert_to_gpr(VecOp::F32ToI32Trunc, VecOp::F32ToI64Trunc),
            M::Cvtsd2si => self.convert_to_gpr(VecOp::F64ToI32, VecOp::F64ToI64),
            M::Cvttsd2si => self.convert_to_gpr(VecOp::F64ToI32Trunc, VecOp::F64ToI64Trunc),
            M::Cvtsi2ss => self.convert_from_gpr(VecOp::I32ToF32, VecOp::I64ToF32),
            M::Cvtsi2sd => self.convert_from_gpr(VecOp::I32ToF64, VecOp::I64ToF64),
            M::Ucomiss | M::Comiss => self.compare_flags(VecOp::Comi32),
            M::Ucomisd | M::Comisd => self.compare_flags(VecOp::Comi64),
            M::Ptest => self.compare_flags(VecOp::Test),
            M::Cmpps => self.compare(VecOp::FCmp32, 0),
            M::Cmppd => self.compare(VecOp::FCmp64, 0),
            M::Cmpss => self.compare(VecOp::FCmp32, SCALAR),
            M::Cmpsd => self.compare(VecOp::FCmp64, SCALAR),
            M::Roundps => self.compare(VecOp::FRound32, 0),
            M::Roundpd => self.compare(VecOp::FRound64, 0),
            M::Roundss => self.compare(VecOp::FRound32, SCALAR),
            M::Roundsd => self.compare(VecOp::FRound64, SCALAR),
            M::Pinsrb => self.insert(Width::W8),
            M::Pinsrw => self.insert(Width::W16),
            M::Pinsrd => self.insert(Width::W32),
            M::Pinsrq => self.insert(Width::W64),
            M::Pextrb => self.extract(Width::W8),
            M::Pextrw => self.extract(Width::W16),
            M::Pextrd | M::Extractps => self.extract(Width::W32),
            M::Pextrq => self.extract(Width::W64),
            M::Stmxcsr => self.state_op(X86Fn::Stmxcsr),
            M::Ldmxcsr => self.state_op(X86Fn::Ldmxcsr),
            M::Fxsave | M::Fxsave64 => self.state_op(X86Fn::Fxsave),
            M::Fxrstor | M::Fxrstor64 => self.state_op(X86Fn::Fxrstor),
            _ => None,
        }
    }

    /// Moves of whole registers; `codes`: load, indexed load, store, indexed store.
    fn move128(&mut self, codes: [Code; 4]) -> Option<()> {
        let [load, load_x, store, store_x] = codes;
        let i = self.i;
        if self.is_mem(1) {
            let d = xmm(i.op0_register())?;
            let at = self.addr();
            self.access(Op::new(load).vd(d), load_x, at);
            return Some(());
        }
        let a = xmm(i.op1_register())?;
        if self.is_mem(0) {
            let at = self.addr();
            self.access(Op::new(store).vc(a), store_x, at);
            return Some(());
        }
        let d = xmm(i.op0_register())?;
        self.b.emit(Op::new(Code::VMov).vd(d).va(a));
        Some(())
    }

    /// MOVSS and MOVSD: a load clears the rest, a register move keeps it.
    fn move_scalar(&mut self, width: Width) -> Option<()> {
        let i = self.i;
        let wide = width == Width::W64;
        if self.is_mem(1) {
            let d = xmm(i.op0_register())?;
            let at = self.addr();
            let (plain, indexed) =
                if wide { (Code::VLd64, Code::VLd64X) } else { (Code::VLd32, Code::VLd32X) };
            self.access(Op::new(plain).vd(d), indexed, at);
            return Some(());
        }
        let a = xmm(i.op1_register())?;
        if self.is_mem(0) {
            self.store_low(width, a);
            return Some(());
        }
        let d = xmm(i.op0_register())?;
        let op = if wide { VecOp::CopyLo64 } else { VecOp::CopyLo32 };
        self.b.emit(Op::new(Code::Vec).x(op as u16).vd(d).va(d).vb(a));
        Some(())
    }

    fn store_low(&mut self, width: Width, a: Vreg) {
        let at = self.addr();
        let (plain, indexed) = match width {
            Width::W64 => (Code::VSt64, Code::VSt64X),
            _ => (Code::VSt32, Code::VSt32X),
        };
        self.access(Op::new(plain).vc(a), indexed, at);
    }

    /// MOVD and MOVQ.
    fn movd(&mut self) -> Option<()> {
        let i = self.i;
        let to_xmm = !self.is_mem(0) && i.op0_register().is_xmm();
        if to_xmm {
            let d = xmm(i.op0_register())?;
            if self.is_mem(1) {
                let v = self.vsrc(1, d)?;
                debug_assert_eq!(v, d);
                return Some(());
            }
            if let Some(a) = xmm(i.op1_register()) {
                self.b.emit(Op::new(Code::VGet64).d(T0).va(a));
                self.b.emit(Op::new(Code::VFromR64).vd(d).a(T0));
                return Some(());
            }
            let g = gpr(i.op1_register())?;
            let code = if g.width == Width::W64 { Code::VFromR64 } else { Code::VFromR32 };
            self.b.emit(Op::new(code).vd(d).a(g.slot));
            return Some(());
        }
        let a = xmm(i.op1_register())?;
        if self.is_mem(0) {
            self.store_low(Width::of_bytes(self.mem_bytes()), a);
            return Some(());
        }
        let g = gpr(i.op0_register())?;
        let code = if g.width == Width::W64 { Code::VGet64 } else { Code::VGet32 };
        self.b.emit(Op::new(code).d(g.slot).va(a));
        Some(())
    }

    /// MOVLPS and MOVHPS: 64 bits of memory to or from one half.
    fn move_half(&mut self, op: VecOp) -> Option<()> {
        let i = self.i;
        if self.is_mem(1) {
            let d = xmm(i.op0_register())?;
            let b = self.vsrc(1, V0)?;
            self.b.emit(Op::new(Code::Vec).x(op as u16).vd(d).va(d).vb(b));
            return Some(());
        }
        let a = xmm(i.op1_register())?;
        if op == VecOp::CopyLo64 {
            self.store_low(Width::W64, a);
        } else {
            self.b.emit(Op::new(Code::Vec).x(VecOp::ShrBytes as u16).vd(V1).va(a).imm(8));
            self.store_low(Width::W64, V1);
        }
        Some(())
    }

    fn move_mask(&mut self, op: VecOp) -> Option<()> {
        let g = gpr(self.i.op0_register())?;
        let a = xmm(self.i.op1_register())?;
        self.b.emit(Op::new(Code::VecToR).x(op as u16).d(g.slot).va(a));
        Some(())
    }

    fn convert_to_gpr(&mut self, narrow: VecOp, wide: VecOp) -> Option<()> {
        let g = gpr(self.i.op0_register())?;
        let a = self.vsrc(1, V0)?;
        let op = if g.width == Width::W64 { wide } else { narrow };
        self.b.emit(Op::new(Code::VecToR).x(op as u16).d(g.slot).va(a));
        Some(())
    }

    fn convert_from_gpr(&mut self, narrow: VecOp, wide: VecOp) -> Option<()> {
        let d = xmm(self.i.op0_register())?;
        let width = self.width(1);
        let b = self.src_reg(1);
        let op = if width == Width::W64 { wide } else { narrow };
        self.b.emit(Op::new(Code::VecFromR).x(op as u16).vd(d).va(d).b(b));
        Some(())
    }

    fn compare_flags(&mut self, op: VecOp) -> Option<()> {
        let a = xmm(self.i.op0_register())?;
        let b = self.vsrc(1, V0)?;
        self.b.emit(Op::new(Code::VecCc).x(op as u16).va(a).vb(b));
        Some(())
    }

    /// Instructions whose immediate is a predicate or a rounding mode.
    fn compare(&mut self, op: VecOp, scalar: i64) -> Option<()> {
        let d = xmm(self.i.op0_register())?;
        let b = self.vsrc(1, V0)?;
        let imm = scalar | i64::from(self.i.immediate8() & 7) << 8;
        self.b.emit(Op::new(Code::Vec).x(op as u16).vd(d).va(d).vb(b).imm(imm));
        Some(())
    }

    fn insert(&mut self, width: Width) -> Option<()> {
        let d = xmm(self.i.op0_register())?;
        let a = if self.is_mem(1) {
            let at = self.addr();
            self.load(width, T0, at);
            T0
        } else {
            gpr(self.i.op1_register())?.slot
        };
        let code = match width {
            Width::W8 => Code::VSet8,
            Width::W16 => Code::VSet16,
            Width::W32 => Code::VSet32,
            Width::W64 => Code::VSet64,
        };
        self.b.emit(Op::new(code).vd(d).a(a).x(u16::from(self.i.immediate8())));
        Some(())
    }

    fn extract(&mut self, width: Width) -> Option<()> {
        let a = xmm(self.i.op1_register())?;
        let code = match width {
            Width::W8 => Code::VGet8,
            Width::W16 => Code::VGet16,
            Width::W32 => Code::VGet32,
            Width::W64 => Code::VGet64,
        };
        let op = Op::new(code).va(a).x(u16::from(self.i.immediate8()));
        if self.is_mem(0) {
            self.b.emit(op.d(T0));
            let at = self.addr();
            self.store(width, T0, at);
        } else {
            self.b.emit(op.d(gpr(self.i.op0_register())?.slot));
        }
        Some(())
    }

    fn state_op(&mut self, f: X86Fn) -> Option<()> {
        if self.i.memory_base() == Register::None && self.i.op_count() == 0 {
            return None;
        }
        let at = self.simple_addr();
        self.b.emit(Op::new(Code::X86).x(f as u16).a(at.base).imm(at.disp));
        Some(())
    }
}
