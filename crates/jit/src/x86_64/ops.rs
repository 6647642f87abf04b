//! Integer ops, flags, branches and vector ops. What is not here is interpreted.

use super::asm::{Alu, Cc, Gpr, Mem, RAX, RCX, RDX, Shift, Unary};
use super::emit::{Emitter, Native, Value, alu_imm, is_i32, low32, operands, value_of};
use super::regs::vector_home;
use cpu::ir::{CcKind, Code, Op, Width};
use std::ops::RangeInclusive;

use Width::{W8, W16, W32, W64};

/// The conditions of the compare ops, in the order of their codes.
const TESTS: [Cc; 10] = [Cc::E, Cc::Ne, Cc::B, Cc::Ae, Cc::Be, Cc::A, Cc::L, Cc::Ge, Cc::Le, Cc::G];

/// Which of a run of ten codes, one for each of [`TESTS`], `code` is in.
fn test_in(code: Code, first: Code) -> Option<Cc> {
    let n = (code as u16).checked_sub(first as u16)?;
    TESTS.get(usize::from(n)).copied()
}

/// `code` is in `range`.
fn within(code: Code, range: RangeInclusive<Code>) -> bool {
    range.contains(&code)
}

/// A compare op taken apart: the condition, where the second operand is from, and the width.
type Form = (Cc, Second, Width);

/// The second operand of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Second {
    Reg,
    Imm,
}

fn set_form(code: Code) -> Option<Form> {
    let forms = [
        (Code::SetEq32, Second::Reg, W32),
        (Code::SetIEq32, Second::Imm, W32),
        (Code::SetEq64, Second::Reg, W64),
        (Code::SetIEq64, Second::Imm, W64),
    ];
    form_of(code, &forms)
}

fn branch_form(code: Code) -> Option<Form> {
    let forms = [
        (Code::CmpBrEq32, Second::Reg, W32),
        (Code::CmpBrEq64, Second::Reg, W64),
        (Code::CmpIBrEq32, Second::Imm, W32),
        (Code::CmpIBrEq64, Second::Imm, W64),
    ];
    form_of(code, &forms)
}

fn step_form(code: Code) -> Option<Form> {
    let forms = [
        (Code::StepCmpBrEq32, Second::Reg, W32),
        (Code::StepCmpIBrEq32, Second::Imm, W32),
        (Code::StepCmpBrEq64, Second::Reg, W64),
        (Code::StepCmpIBrEq64, Second::Imm, W64),
    ];
    form_of(code, &forms)
}

fn form_of(code: Code, forms: &[(Code, Second, Width)]) -> Option<Form> {
    forms.iter().find_map(|&(first, second, w)| test_in(code, first).map(|cc| (cc, second, w)))
}

impl Emitter<'_> {
    /// Emits one op, if that is done natively.
    pub(super) fn op(&mut self, op: &Op) -> Native {
        if self.moves(op) || self.arithmetic(op) || self.bits(op) || self.flags(op) {
            return Native::Yes;
        }
        if self.memory_op(op) || self.vector(op) || self.end(op) {
            return Native::Yes;
        }
        Native::No
    }

    fn moves(&mut self, op: &Op) -> bool {
        match op.code {
            Code::Nop | Code::InsnStart | Code::Fence => {}
            Code::MovI => {
                let d = self.target(op.d);
                self.asm.movi(d, op.imm.cast_unsigned());
                self.cache.wrote(op.d);
            }
            Code::Mov => self.unary(op, |e, d, a| e.asm.mov(W64, d, a)),
            Code::Zext8 => self.unary(op, |e, d, a| e.asm.load(W8, d, a)),
            Code::Zext16 => self.unary(op, |e, d, a| e.asm.load(W16, d, a)),
            Code::Zext32 => self.unary(op, |e, d, a| e.asm.mov(W32, d, a)),
            Code::Sext8to32 => self.unary(op, |e, d, a| e.asm.load_signed(W8, W32, d, a)),
            Code::Sext8to64 => self.unary(op, |e, d, a| e.asm.load_signed(W8, W64, d, a)),
            Code::Sext16to32 => self.unary(op, |e, d, a| e.asm.load_signed(W16, W32, d, a)),
            Code::Sext16to64 => self.unary(op, |e, d, a| e.asm.load_signed(W16, W64, d, a)),
            Code::Sext32to64 => self.unary(op, |e, d, a| e.asm.load_signed(W32, W64, d, a)),
            Code::Ext8h => self.unary(op, |e, d, a| {
                e.asm.mov(W32, d, a);
                e.asm.shifti(Shift::Shr, W32, d, 8);
                e.asm.load(W8, d, d);
            }),
            Code::Ins8 => self.insert(op, 0xff, 0),
            Code::Ins8h => self.insert(op, 0xff, 8),
            Code::Ins16 => self.insert(op, 0xffff, 0),
            _ => return false,
        }
        true
    }

    /// d = f(a)
    fn unary(&mut self, op: &Op, f: impl FnOnce(&mut Self, Gpr, Gpr)) {
        let a = self.source(op.a);
        let d = self.target(op.d);
        f(self, d, a);
        self.cache.wrote(op.d);
    }

    /// d with the bits `mask << shift` replaced by those of a.
    fn insert(&mut self, op: &Op, mask: i64, shift: u8) {
        let (a, d) = (self.source(op.a), self.source(op.d));
        self.asm.mov(W32, RAX, a);
        self.asm.alui(Alu::And, W32, RAX, low32(mask));
        if shift != 0 {
            self.asm.shifti(Shift::Shl, W32, RAX, shift);
        }
        self.asm.mov(W64, RCX, d);
        self.asm.alui(Alu::And, W64, RCX, low32(!(mask << shift)));
        self.asm.alu(Alu::Or, W64, RAX, RCX);
        self.put(op.d, RAX);
    }

    fn arithmetic(&mut self, op: &Op) -> bool {
        let code = op.code;
        // Codes of 32 and 64 bits alternate.
        let w =
            |first: Code| if (code as u16 - first as u16).is_multiple_of(2) { W32 } else { W64 };
        match code {
            Code::Add32 | Code::Add64 => self.binary(op, Alu::Add, w(Code::Add32)),
            Code::Sub32 | Code::Sub64 => self.binary(op, Alu::Sub, w(Code::Sub32)),
            Code::And32 | Code::And64 => self.binary(op, Alu::And, w(Code::And32)),
            Code::Or32 | Code::Or64 => self.binary(op, Alu::Or, w(Code::Or32)),
            Code::Xor32 | Code::Xor64 => self.binary(op, Alu::Xor, w(Code::Xor32)),
            Code::Bic32 | Code::Bic64 => self.binary_not(op, Alu::And, w(Code::Bic32)),
            Code::Orn32 | Code::Orn64 => self.binary_not(op, Alu::Or, w(Code::Orn32)),
            Code::Eon32 | Code::Eon64 => self.binary_not(op, Alu::Xor, w(Code::Eon32)),
            Code::Mul32 | Code::Mul64 => self.multiply(op, w(Code::Mul32)),
            Code::Shl32 | Code::Shl64 => self.shift(op, Shift::Shl, w(Code::Shl32)),
            Code::Shr32 | Code::Shr64 => self.shift(op, Shift::Shr, w(Code::Shr32)),
            Code::Sar32 | Code::Sar64 => self.shift(op, Shift::Sar, w(Code::Sar32)),
            Code::Ror32 | Code::Ror64 => self.shift(op, Shift::Ror, w(Code::Ror32)),
            Code::Neg32 | Code::Neg64 => self.negate(op, Unary::Neg, w(Code::Neg32)),
            Code::Not32 | Code::Not64 => self.negate(op, Unary::Not, w(Code::Not32)),
            Code::AddI32 | Code::AddI64 => self.immediate(op, Alu::Add, w(Code::AddI32)),
            Code::AndI32 | Code::AndI64 => self.immediate(op, Alu::And, w(Code::AndI32)),
            Code::OrI32 | Code::OrI64 => self.immediate(op, Alu::Or, w(Code::OrI32)),
            Code::XorI32 | Code::XorI64 => self.immediate(op, Alu::Xor, w(Code::XorI32)),
            Code::MulI32 | Code::MulI64 => self.multiply_imm(op, w(Code::MulI32)),
            Code::ShlI32 | Code::ShlI64 => self.shift_imm(op, Shift::Shl, w(Code::ShlI32)),
            Code::ShrI32 | Code::ShrI64 => self.shift_imm(op, Shift::Shr, w(Code::ShrI32)),
            Code::SarI32 | Code::SarI64 => self.shift_imm(op, Shift::Sar, w(Code::SarI32)),
            Code::RorI32 | Code::RorI64 => self.shift_imm(op, Shift::Ror, w(Code::RorI32)),
            Code::AddShl32 | Code::AddShl64 => self.add_shifted(op, w(Code::AddShl32)),
            Code::MAdd32 | Code::MAdd64 => self.multiply_add(op, Alu::Add, w(Code::MAdd32)),
            Code::MSub32 | Code::MSub64 => self.multiply_add(op, Alu::Sub, w(Code::MSub32)),
            Code::UDiv32 | Code::UDiv64 => self.divide(op, Unary::Div, w(Code::UDiv32)),
            Code::SDiv32 | Code::SDiv64 => self.divide(op, Unary::Idiv, w(Code::SDiv32)),
            Code::MulHiU64 => self.multiply_high(op, Unary::Mul),
            Code::MulHiS64 => self.multiply_high(op, Unary::Imul),
            _ => return self.shifted_operand(op),
        }
        true
    }

    fn binary(&mut self, op: &Op, alu: Alu, w: Width) {
        let (a, b) = (self.source(op.a), self.source(op.b));
        let d = self.target(op.d);
        let (first, second) = if d == b && alu != Alu::Sub { (b, a) } else { (a, b) };
        if d == second && d != first {
            self.asm.mov(W64, RAX, second);
            self.asm.mov(w, d, first);
            self.asm.alu(alu, w, d, RAX);
        } else if alu == Alu::Add && d != first {
            self.asm.lea(w, d, Mem::indexed(first, second, 0, 0));
        } else {
            if d != first {
                self.asm.mov(w, d, first);
            }
            self.asm.alu(alu, w, d, second);
        }
        self.cache.wrote(op.d);
    }

    /// d = a (op) !b
    fn binary_not(&mut self, op: &Op, alu: Alu, w: Width) {
        let (a, b) = (self.source(op.a), self.source(op.b));
        self.asm.mov(w, RAX, b);
        self.asm.unary(Unary::Not, w, RAX);
        self.asm.alu(alu, w, RAX, a);
        self.put(op.d, RAX);
    }

    fn immediate(&mut self, op: &Op, alu: Alu, w: Width) {
        let a = self.source(op.a);
        let d = self.target(op.d);
        if alu == Alu::Add && d != a && is_i32(op.imm) {
            self.asm.lea(w, d, Mem::at(a, low32(op.imm)));
        } else {
            if d != a {
                self.asm.mov(w, d, a);
            }
            alu_imm(&mut self.asm, alu, w, d, op.imm, RAX);
        }
        self.cache.wrote(op.d);
    }

    fn multiply(&mut self, op: &Op, w: Width) {
        let (a, b) = (self.source(op.a), self.source(op.b));
        let d = self.target(op.d);
        let (first, second) = if d == b { (b, a) } else { (a, b) };
        if d != first {
            self.asm.mov(w, d, first);
        }
        self.asm.imul(w, d, second);
        self.cache.wrote(op.d);
    }

    fn multiply_imm(&mut self, op: &Op, w: Width) {
        let a = self.source(op.a);
        let d = self.target(op.d);
        if w == W32 || is_i32(op.imm) {
            self.asm.imuli(w, d, a, low32(op.imm));
        } else {
            self.asm.movi(RAX, op.imm.cast_unsigned());
            self.asm.imul(w, RAX, a);
            self.asm.mov(w, d, RAX);
        }
        self.cache.wrote(op.d);
    }

    /// d = c ± a * b
    fn multiply_add(&mut self, op: &Op, alu: Alu, w: Width) {
        let (a, b, c) = (self.source(op.a), self.source(op.b), self.source(op.c));
        self.asm.mov(w, RAX, a);
        self.asm.imul(w, RAX, b);
        self.asm.mov(w, RCX, c);
        self.asm.alu(alu, w, RCX, RAX);
        self.put(op.d, RCX);
    }

    fn multiply_high(&mut self, op: &Op, how: Unary) {
        let (a, b) = (self.source(op.a), self.source(op.b));
        self.asm.mov(W64, RAX, a);
        self.asm.unary(how, W64, b);
        self.put(op.d, RDX);
    }

    /// Division as arm64 defines it: by zero it is zero, and the one overflow wraps.
    fn divide(&mut self, op: &Op, how: Unary, w: Width) {
        let (a, b) = (self.source(op.a), self.source(op.b));
        let (zero, minus, done) = (self.asm.label(), self.asm.label(), self.asm.label());
        self.asm.mov(w, RAX, a);
        self.asm.test(w, b, b);
        self.asm.jcc(Cc::E, zero);
        if how == Unary::Idiv {
            self.asm.alui(Alu::Cmp, w, b, -1);
            self.asm.jcc(Cc::E, minus);
            self.asm.sign_to_rdx(w);
        } else {
            self.asm.movi(RDX, 0);
        }
        self.asm.unary(how, w, b);
        self.asm.jmp(done);
        self.asm.bind(zero);
        self.asm.movi(RAX, 0);
        self.asm.jmp(done);
        self.asm.bind(minus);
        self.asm.unary(Unary::Neg, w, RAX);
        self.asm.bind(done);
        self.put(op.d, RAX);
    }

    fn shift(&mut self, op: &Op, shift: Shift, w: Width) {
        let (a, b) = (self.source(op.a), self.source(op.b));
        self.asm.mov(W32, RCX, b);
        self.asm.mov(w, RAX, a);
        self.asm.shift_cl(shift, w, RAX);
        self.put(op.d, RAX);
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "masked")]
    fn shift_imm(&mut self, op: &Op, shift: Shift, w: Width) {
        let count = op.imm as u8 & (w.bits() as u8 - 1);
        self.unary(op, |e, d, a| {
            e.asm.mov(w, d, a);
            if count != 0 {
                e.asm.shifti(shift, w, d, count);
            }
        });
    }

    fn negate(&mut self, op: &Op, how: Unary, w: Width) {
        self.unary(op, |e, d, a| {
            e.asm.mov(w, d, a);
            e.asm.unary(how, w, d);
        });
    }

    /// d = a + (b << x) + imm
    fn add_shifted(&mut self, op: &Op, w: Width) {
        let (a, b) = (self.source(op.a), self.source(op.b));
        let count = shift_count(op, w);
        if count <= 3 && is_i32(op.imm) {
            let d = self.target(op.d);
            self.asm.lea(w, d, Mem::indexed(a, b, count, low32(op.imm)));
            self.cache.wrote(op.d);
            return;
        }
        self.asm.mov(w, RAX, b);
        if count != 0 {
            self.asm.shifti(Shift::Shl, w, RAX, count);
        }
        self.asm.alu(Alu::Add, w, RAX, a);
        if op.imm != 0 {
            alu_imm(&mut self.asm, Alu::Add, w, RAX, op.imm, RCX);
        }
        self.put(op.d, RAX);
    }

    /// d = a (op) (b shifted by x)
    fn shifted_operand(&mut self, op: &Op) -> bool {
        let (alu, shift, w) = match op.code {
            Code::XorShl32 => (Alu::Xor, Shift::Shl, W32),
            Code::XorShl64 => (Alu::Xor, Shift::Shl, W64),
            Code::XorShr32 => (Alu::Xor, Shift::Shr, W32),
            Code::XorShr64 => (Alu::Xor, Shift::Shr, W64),
            Code::XorRor32 => (Alu::Xor, Shift::Ror, W32),
            Code::XorRor64 => (Alu::Xor, Shift::Ror, W64),
            Code::OrShl32 => (Alu::Or, Shift::Shl, W32),
            Code::OrShl64 => (Alu::Or, Shift::Shl, W64),
            Code::OrShr32 => (Alu::Or, Shift::Shr, W32),
            Code::OrShr64 => (Alu::Or, Shift::Shr, W64),
            Code::AddShr32 => (Alu::Add, Shift::Shr, W32),
            Code::AddShr64 => (Alu::Add, Shift::Shr, W64),
            Code::AddSar32 => (Alu::Add, Shift::Sar, W32),
            Code::AddSar64 => (Alu::Add, Shift::Sar, W64),
            Code::SubShl32 => (Alu::Sub, Shift::Shl, W32),
            Code::SubShl64 => (Alu::Sub, Shift::Shl, W64),
            Code::SubSar32 => (Alu::Sub, Shift::Sar, W32),
            Code::SubSar64 => (Alu::Sub, Shift::Sar, W64),
            Code::AddZext64 | Code::AddSext64 => {
                self.add_extended(op);
                return true;
            }
            _ => return false,
        };
        let (a, b) = (self.source(op.a), self.source(op.b));
        self.asm.mov(w, RCX, b);
        let count = shift_count(op, w);
        if count != 0 {
            self.asm.shifti(shift, w, RCX, count);
        }
        self.asm.mov(w, RAX, a);
        self.asm.alu(alu, w, RAX, RCX);
        self.put(op.d, RAX);
        true
    }

    /// d = a + (low 32 bits of b, extended, << x)
    fn add_extended(&mut self, op: &Op) {
        let (a, b) = (self.source(op.a), self.source(op.b));
        match op.code {
            Code::AddZext64 => self.asm.mov(W32, RAX, b),
            _ => self.asm.load_signed(W32, W64, RAX, b),
        }
        let count = shift_count(op, W64);
        if count != 0 {
            self.asm.shifti(Shift::Shl, W64, RAX, count);
        }
        self.asm.alu(Alu::Add, W64, RAX, a);
        self.put(op.d, RAX);
    }

    fn bits(&mut self, op: &Op) -> bool {
        let features = self.around.features;
        match op.code {
            Code::MulLU => self.multiply_long(op, |e, to, from| e.asm.mov(W32, to, from)),
            Code::MulLS => {
                self.multiply_long(op, |e, to, from| e.asm.load_signed(W32, W64, to, from));
            }
            Code::Clz32 if features.lzcnt => self.unary(op, |e, d, a| e.asm.count(0xbd, W32, d, a)),
            Code::Clz64 if features.lzcnt => self.unary(op, |e, d, a| e.asm.count(0xbd, W64, d, a)),
            Code::Ctz32 if features.bmi1 => self.unary(op, |e, d, a| e.asm.count(0xbc, W32, d, a)),
            Code::Ctz64 if features.bmi1 => self.unary(op, |e, d, a| e.asm.count(0xbc, W64, d, a)),
            Code::Popcnt64 if features.popcnt => {
                self.unary(op, |e, d, a| e.asm.count(0xb8, W64, d, a));
            }
            Code::Bswap32 => self.byte_swap(op, W32),
            Code::Bswap64 => self.byte_swap(op, W64),
            Code::RotMask32 => self.rotate_and_mask(op, W32),
            Code::RotMask64 => self.rotate_and_mask(op, W64),
            Code::BfIns32 => self.bit_field_insert(op, W32),
            Code::BfIns64 => self.bit_field_insert(op, W64),
            Code::Sbf32 => self.signed_bit_field(op, W32),
            Code::Sbf64 => self.signed_bit_field(op, W64),
            Code::Extr32 => self.extract(op, W32),
            Code::Extr64 => self.extract(op, W64),
            Code::SelZ32 => self.select_zero(op, W32),
            Code::SelZ64 => self.select_zero(op, W64),
            _ => match set_form(op.code) {
                Some(form) => self.compare_set(op, form),
                None => return false,
            },
        }
        true
    }

    fn multiply_long(&mut self, op: &Op, extend: impl Fn(&mut Self, Gpr, Gpr)) {
        let (a, b) = (self.source(op.a), self.source(op.b));
        extend(self, RAX, a);
        extend(self, RCX, b);
        self.asm.imul(W64, RAX, RCX);
        self.put(op.d, RAX);
    }

    fn byte_swap(&mut self, op: &Op, w: Width) {
        self.unary(op, |e, d, a| {
            e.asm.mov(w, d, a);
            e.asm.bswap(w, d);
        });
    }

    /// RAX = a rotated right by x, and with imm
    fn rotated(&mut self, op: &Op, w: Width) {
        let a = self.source(op.a);
        self.asm.mov(w, RAX, a);
        let count = shift_count(op, w);
        if count != 0 {
            self.asm.shifti(Shift::Ror, w, RAX, count);
        }
        alu_imm(&mut self.asm, Alu::And, w, RAX, op.imm, RCX);
    }

    fn rotate_and_mask(&mut self, op: &Op, w: Width) {
        self.rotated(op, w);
        self.put(op.d, RAX);
    }

    fn bit_field_insert(&mut self, op: &Op, w: Width) {
        let c = self.source(op.c);
        self.rotated(op, w);
        self.asm.mov(w, RDX, c);
        alu_imm(&mut self.asm, Alu::And, w, RDX, !op.imm, RCX);
        self.asm.alu(Alu::Or, w, RAX, RDX);
        self.put(op.d, RAX);
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "masked")]
    fn signed_bit_field(&mut self, op: &Op, w: Width) {
        let left = op.imm as u8 & (w.bits() as u8 - 1);
        let right = shift_count(op, w);
        self.unary(op, |e, d, a| {
            e.asm.mov(w, d, a);
            for (shift, count) in [(Shift::Shl, left), (Shift::Sar, right)] {
                if count != 0 {
                    e.asm.shifti(shift, w, d, count);
                }
            }
        });
    }

    fn extract(&mut self, op: &Op, w: Width) {
        let (a, b) = (self.source(op.a), self.source(op.b));
        self.asm.mov(w, RAX, b);
        let count = shift_count(op, w);
        if count != 0 {
            self.asm.shrd(w, RAX, a, count);
        }
        self.put(op.d, RAX);
    }

    fn select_zero(&mut self, op: &Op, w: Width) {
        let (a, b, c) = (self.source(op.a), self.source(op.b), self.source(op.c));
        self.asm.mov(w, RAX, b);
        self.asm.test(w, c, c);
        self.asm.cmov(Cc::E, w, RAX, a);
        self.put(op.d, RAX);
    }

    /// d = (a cc b) ? 1 : 0; 32-bit operands are shifted left by x first.
    #[expect(clippy::cast_possible_truncation, reason = "masked")]
    fn compare_set(&mut self, op: &Op, (cc, second, w): Form) {
        let a = self.source(op.a);
        let b = (second == Second::Reg).then(|| self.source(op.b));
        let shift = if w == W32 { op.x as u8 & 31 } else { 0 };
        let left = if shift == 0 {
            a
        } else {
            self.asm.mov(W32, RAX, a);
            self.asm.shifti(Shift::Shl, W32, RAX, shift);
            RAX
        };
        match b {
            Some(b) if shift == 0 => self.asm.alu(Alu::Cmp, w, left, b),
            Some(b) => {
                self.asm.mov(W32, RCX, b);
                self.asm.shifti(Shift::Shl, W32, RCX, shift);
                self.asm.alu(Alu::Cmp, w, left, RCX);
            }
            None if w == W32 => {
                let imm = low32(op.imm).wrapping_shl(u32::from(shift));
                self.asm.alui(Alu::Cmp, w, left, imm);
            }
            None => alu_imm(&mut self.asm, Alu::Cmp, w, left, op.imm, RCX),
        }
        self.asm.setcc(cc, RAX);
        self.asm.load(W8, RAX, RAX);
        self.put(op.d, RAX);
    }

    fn flags(&mut self, op: &Op) -> bool {
        let kind = CcKind::from_raw(op.x);
        match op.code {
            Code::Cc => {
                let a = self.source(op.a);
                let (uses_b, uses_c) = operands(kind);
                let mut operand = |used, slot| match used {
                    true => Value::Reg(self.source(slot)),
                    false => Value::Imm(0),
                };
                let (b, c) = (operand(uses_b, op.b), operand(uses_c, op.c));
                self.record(kind, a, b, c);
            }
            Code::CcI => {
                let a = self.source(op.a);
                self.record(kind, a, Value::Imm(op.imm), Value::Imm(0));
            }
            _ => return false,
        }
        true
    }

    fn end(&mut self, op: &Op) -> bool {
        match op.code {
            Code::Jump => self.go(0),
            Code::JumpInd => self.go_to(op.a),
            Code::BrZ32 => self.branch_zero(op, Cc::E, W32),
            Code::BrZ64 => self.branch_zero(op, Cc::E, W64),
            Code::BrNz32 => self.branch_zero(op, Cc::Ne, W32),
            Code::BrNz64 => self.branch_zero(op, Cc::Ne, W64),
            // `bt` leaves the bit in the carry.
            Code::BrBit0 => self.branch_bit(op, Cc::Ae),
            Code::BrBit1 => self.branch_bit(op, Cc::B),
            code => {
                if let Some(form) = branch_form(code) {
                    self.compare_branch(op, form);
                } else if let Some(form) = step_form(code) {
                    self.step(op);
                    self.compare_branch(op, form);
                } else {
                    return false;
                }
            }
        }
        true
    }

    fn branch_zero(&mut self, op: &Op, cc: Cc, w: Width) {
        let a = self.source(op.a);
        self.go_if(cc, |asm| asm.test(w, a, a));
    }

    fn branch_bit(&mut self, op: &Op, cc: Cc) {
        let a = self.source(op.a);
        let bit = shift_count(op, W64);
        self.go_if(cc, |asm| asm.bt_imm(W64, a, bit));
    }

    /// d += sign-extended c
    fn step(&mut self, op: &Op) {
        let d = self.source(op.d);
        let by = i32::from(op.c.cast_signed());
        self.uses.write(op.d);
        self.asm.alui(Alu::Add, W64, d, by);
        self.cache.wrote(op.d);
    }

    fn compare_branch(&mut self, op: &Op, (cc, second, w): Form) {
        let a = self.source(op.a);
        let b = (second == Second::Reg).then(|| self.source(op.b));
        self.record(CcKind::from_raw(op.x), a, value_of(b, op), Value::Imm(0));
        let imm = op.imm;
        self.go_if(cc, |asm| match b {
            Some(b) => asm.alu(Alu::Cmp, w, a, b),
            None => alu_imm(asm, Alu::Cmp, w, a, imm, RAX),
        });
    }

    fn vector(&mut self, op: &Op) -> bool {
        match op.code {
            Code::VMov => {
                self.load_vector(op.a);
                self.store_vector(op.d);
            }
            Code::VMovI | Code::VDupI => self.vector_constant(op),
            Code::VFromR64 | Code::VFromR32 => {
                let a = self.source(op.a);
                self.asm.mov(if op.code == Code::VFromR64 { W64 } else { W32 }, RAX, a);
                self.asm.store(W64, vector_home(op.d), RAX);
                self.asm.store_imm64(lane(op.d, 1, W64), 0);
            }
            Code::VLow64 | Code::VLow32 => {
                let w = if op.code == Code::VLow64 { W64 } else { W32 };
                self.asm.load(w, RAX, vector_home(op.a));
                self.asm.store(W64, vector_home(op.d), RAX);
                self.asm.store_imm64(lane(op.d, 1, W64), 0);
            }
            code if within(code, Code::VGet64..=Code::VGet8) => {
                let w = [W64, W32, W16, W8][usize::from(code as u16 - Code::VGet64 as u16)];
                let d = self.target(op.d);
                self.asm.load(w, d, lane(op.a, op.x, w));
                self.cache.wrote(op.d);
            }
            code if within(code, Code::VSet64..=Code::VSet8) => {
                let w = [W64, W32, W16, W8][usize::from(code as u16 - Code::VSet64 as u16)];
                let a = self.source(op.a);
                self.asm.store(w, lane(op.d, op.x, w), a);
            }
            code => match packed_opcode(code) {
                Some(opcode) => self.packed(op, opcode),
                None => return self.scalar_float(op),
            },
        }
        true
    }

    /// XMM0 = va
    fn load_vector(&mut self, slot: u8) {
        self.asm.sse(0x66, 0x6f, 0, vector_home(slot));
    }
    /// vd = XMM0
    fn store_vector(&mut self, slot: u8) {
        self.asm.sse(0x66, 0x7f, 0, vector_home(slot));
    }

    fn vector_constant(&mut self, op: &Op) {
        self.asm.movi(RAX, op.imm.cast_unsigned());
        self.asm.store(W64, vector_home(op.d), RAX);
        if op.code == Code::VDupI {
            self.asm.store(W64, lane(op.d, 1, W64), RAX);
        } else {
            self.asm.store_imm64(lane(op.d, 1, W64), 0);
        }
    }

    /// vd = va (op) vb by one SSE2 instruction; c = 1: the low half only
    fn packed(&mut self, op: &Op, opcode: u8) {
        // `pandn` complements its first operand.
        let (first, second) = if op.code == Code::VBic { (op.b, op.a) } else { (op.a, op.b) };
        self.load_vector(first);
        self.asm.sse(0x66, opcode, 0, vector_home(second));
        if op.c != 0 {
            self.asm.sse(0xf3, 0x7e, 0, Gpr(0));
        }
        self.store_vector(op.d);
    }

    /// Scalar arithmetic by the host's; a NaN is the interpreter's, which knows whose.
    fn scalar_float(&mut self, op: &Op) -> bool {
        let (prefix, opcode) = match op.code {
            Code::FAdd64 => (0xf2, 0x58),
            Code::FSub64 => (0xf2, 0x5c),
            Code::FMul64 => (0xf2, 0x59),
            Code::FDiv64 => (0xf2, 0x5e),
            Code::FAdd32 => (0xf3, 0x58),
            Code::FSub32 => (0xf3, 0x5c),
            Code::FMul32 => (0xf3, 0x59),
            Code::FDiv32 => (0xf3, 0x5e),
            _ => return false,
        };
        let before = self.cache;
        self.or_interpret(before, |e, nan| {
            e.load_vector(op.a);
            e.asm.sse(prefix, opcode, 0, vector_home(op.b));
            // Unordered with itself: `ucomisd`, `ucomiss`.
            match prefix {
                0xf2 => e.asm.sse(0x66, 0x2e, 0, Gpr(0)),
                _ => e.asm.ucomiss(0, 0),
            }
            e.asm.jcc(Cc::P, nan);
            match (op.c, prefix) {
                (0, _) => {}
                (_, 0xf2) => e.asm.sse(0xf3, 0x7e, 0, Gpr(0)),
                _ => {
                    e.asm.sse(0x66, 0x7e, 0, RAX);
                    e.asm.sse(0x66, 0x6e, 0, RAX);
                }
            }
            e.store_vector(op.d);
        });
        true
    }
}

/// Lane `n` of a vector slot.
fn lane(slot: u8, n: u16, w: Width) -> Mem {
    let mut at = vector_home(slot);
    let lanes = 16 / w.bytes();
    at.disp += i32::try_from((u32::from(n) & (lanes - 1)) * w.bytes()).expect("a lane");
    at
}

/// The `x` of an op as a shift count at width `w`.
#[expect(clippy::cast_possible_truncation, reason = "masked")]
fn shift_count(op: &Op, w: Width) -> u8 {
    op.x as u8 & (w.bits() as u8 - 1)
}

/// The `66 0F` opcode that does a vector op.
fn packed_opcode(code: Code) -> Option<u8> {
    Some(match code {
        Code::VAnd => 0xdb,
        Code::VOr => 0xeb,
        Code::VXor => 0xef,
        Code::VBic => 0xdf,
        Code::VAdd8 => 0xfc,
        Code::VAdd16 => 0xfd,
        Code::VAdd32 => 0xfe,
        Code::VAdd64 => 0xd4,
        Code::VSub8 => 0xf8,
        Code::VSub16 => 0xf9,
        Code::VSub32 => 0xfa,
        Code::VSub64 => 0xfb,
        Code::VMul16 => 0xd5,
        Code::VCmeq8 => 0x74,
        Code::VCmeq16 => 0x75,
        Code::VCmeq32 => 0x76,
        Code::VUmax8 => 0xde,
        Code::VUmin8 => 0xda,
        _ => return None,
    })
}
