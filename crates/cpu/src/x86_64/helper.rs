//! Instructions that are a function of the state rather than a few micro-ops: division, double shifts,
//! string instructions, CPUID and the like.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "narrowing is what these instructions do"
)]

use super::operand::{RAX, RBX, RCX, RDI, RDX, RSI};
use super::{cpuid, x87};
use crate::bus::{Bus, Scalar};
use crate::exec::{Core, Flow, access};
use crate::flags::{self, eflags};
use crate::ir::{CcKind, CcOp, Op, Width};
use crate::state::CpuState;
use units::VirtAddr;

/// Helper number, in the `x` field of [`Code::X86`](crate::ir::Code::X86).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum X86Fn {
    /// RDX:RAX / a at imm bits, unsigned.
    Div,
    /// RDX:RAX / a at imm bits, signed.
    Idiv,
    /// d = a rotated left through carry by c at imm bits, with flags.
    Rcl,
    /// d = a rotated right through carry by c at imm bits, with flags.
    Rcr,
    /// d = a:b << c at imm bits, with flags.
    Shld,
    /// d = b:a >> c at imm bits, with flags.
    Shrd,
    /// CF = imm (0, 1), or its complement (2).
    CarryFlag,
    /// DF = imm.
    DirectionFlag,
    /// ZF = (a is 0), other flags stay.
    ZeroFlag,
    /// SF, ZF, AF, PF, CF = AH.
    Sahf,
    /// EAX, EBX, ECX, EDX = CPUID(EAX, ECX).
    Cpuid,
    /// EDX:EAX = XCR0.
    Xgetbv,
    /// String instructions: element bits in imm 7–0, repeat (0 no, 1 rep/repe, 2 repne) in imm 15–8.
    Movs,
    /// As above.
    Stos,
    /// As above.
    Lods,
    /// As above.
    Scas,
    /// As above.
    Cmps,
    /// Store MXCSR at address a + imm.
    Stmxcsr,
    /// Load MXCSR from address a + imm.
    Ldmxcsr,
    /// Save x87 and SSE state at address a + imm (512 bytes).
    Fxsave,
    /// Restore it.
    Fxrstor,
    /// x87: operation in imm, address in a.
    X87,
    /// Privileged in user mode: #GP.
    Privileged,
}

impl X86Fn {
    const ALL: [X86Fn; 23] = [
        X86Fn::Div,
        X86Fn::Idiv,
        X86Fn::Rcl,
        X86Fn::Rcr,
        X86Fn::Shld,
        X86Fn::Shrd,
        X86Fn::CarryFlag,
        X86Fn::DirectionFlag,
        X86Fn::ZeroFlag,
        X86Fn::Sahf,
        X86Fn::Cpuid,
        X86Fn::Xgetbv,
        X86Fn::Movs,
        X86Fn::Stos,
        X86Fn::Lods,
        X86Fn::Scas,
        X86Fn::Cmps,
        X86Fn::Stmxcsr,
        X86Fn::Ldmxcsr,
        X86Fn::Fxsave,
        X86Fn::Fxrstor,
        X86Fn::X87,
        X86Fn::Privileged,
    ];
}

/// What [`Code::X86`](crate::ir::Code::X86) does.
pub fn helper<B: Bus>(core: &mut Core<B::Fault>, bus: &mut B, op: &Op) -> Flow {
    let Some(&f) = X86Fn::ALL.get(usize::from(op.x)) else { return Flow::Undefined };
    let s = &mut core.s;
    match f {
        X86Fn::Div => return div_unsigned(s, op),
        X86Fn::Idiv => return div_signed(s, op),
        X86Fn::Rcl | X86Fn::Rcr => rotate_carry(s, op, f == X86Fn::Rcl),
        X86Fn::Shld | X86Fn::Shrd => shift_double(s, op, f == X86Fn::Shld),
        X86Fn::CarryFlag => {
            let carry = if op.imm == 2 { !flags::carry(s) } else { op.imm == 1 };
            flags::set_carry(s, carry);
        }
        X86Fn::DirectionFlag => s.df = op.imm != 0,
        X86Fn::ZeroFlag => {
            let rest = flags::status(s) & !eflags::ZF;
            let zf = if s.r[op.a as usize] == 0 { eflags::ZF } else { 0 };
            s.set_cc(CcKind::Flags, rest | zf, 0, 0);
        }
        X86Fn::Sahf => {
            let of = flags::status(s) & eflags::OF;
            let ah = (s.reg(RAX) >> 8) & (eflags::STATUS & 0xff);
            s.set_cc(CcKind::Flags, of | ah, 0, 0);
        }
        X86Fn::Cpuid => {
            let [a, b, c, d] = cpuid::leaf(s.reg(RAX) as u32, s.reg(RCX) as u32);
            s.set_reg(RAX, u64::from(a));
            s.set_reg(RBX, u64::from(b));
            s.set_reg(RCX, u64::from(c));
            s.set_reg(RDX, u64::from(d));
        }
        // OSXSAVE is not announced.
        X86Fn::Xgetbv => return Flow::Undefined,
        X86Fn::Movs => {
            return by_width(
                core,
                bus,
                op,
                movs::<B, u8>,
                movs::<B, u16>,
                movs::<B, u32>,
                movs::<B, u64>,
            );
        }
        X86Fn::Stos => {
            return by_width(
                core,
                bus,
                op,
                stos::<B, u8>,
                stos::<B, u16>,
                stos::<B, u32>,
                stos::<B, u64>,
            );
        }
        X86Fn::Lods => {
            return by_width(
                core,
                bus,
                op,
                lods::<B, u8>,
                lods::<B, u16>,
                lods::<B, u32>,
                lods::<B, u64>,
            );
        }
        X86Fn::Scas => {
            return by_width(
                core,
                bus,
                op,
                scas::<B, u8>,
                scas::<B, u16>,
                scas::<B, u32>,
                scas::<B, u64>,
            );
        }
        X86Fn::Cmps => {
            return by_width(
                core,
                bus,
                op,
                cmps::<B, u8>,
                cmps::<B, u16>,
                cmps::<B, u32>,
                cmps::<B, u64>,
            );
        }
        X86Fn::Stmxcsr => {
            let at = address(s, op);
            let value = s.mxcsr;
            bus.count_accesses(1);
            access!(core, bus.store(at, value));
        }
        X86Fn::Ldmxcsr => {
            let at = address(s, op);
            bus.count_accesses(1);
            let value = access!(core, bus.load::<u32>(at));
            return load_mxcsr(core, value);
        }
        X86Fn::Fxsave => return x87::fxsave(core, bus, op),
        X86Fn::Fxrstor => return x87::fxrstor(core, bus, op),
        X86Fn::X87 => return x87::execute(core, bus, op),
        X86Fn::Privileged => return Flow::Misaligned,
    }
    Flow::Next
}

fn address(s: &CpuState, op: &Op) -> VirtAddr {
    VirtAddr::new(s.r[op.a as usize].wrapping_add(op.imm.cast_unsigned()))
}

/// FIDELITY: mxcsr-modes rounding other than to nearest, unmasked exceptions, FTZ and DAZ are not modelled; they
/// end the run as unsupported rather than give wrong results.
fn load_mxcsr<F>(core: &mut Core<F>, value: u32) -> Flow {
    let rounding = value & 0x6000;
    let masked = value & 0x1f80 == 0x1f80;
    let flush = value & 0x8040;
    if rounding != 0 || !masked || flush != 0 {
        return Flow::Unsupported;
    }
    core.s.mxcsr = value;
    Flow::Next
}

fn div_unsigned(s: &mut CpuState, op: &Op) -> Flow {
    let d = s.r[op.a as usize];
    let (rax, rdx) = (s.reg(RAX), s.reg(RDX));
    match op.imm {
        64 => {
            if d == 0 || rdx >= d {
                return Flow::DivideError;
            }
            if rdx == 0 {
                s.set_reg(RAX, rax / d);
                s.set_reg(RDX, rax % d);
                return Flow::Next;
            }
            let n = u128::from(rdx) << 64 | u128::from(rax);
            s.set_reg(RAX, (n / u128::from(d)) as u64);
            s.set_reg(RDX, (n % u128::from(d)) as u64);
        }
        32 => {
            let (n, d) = (rdx << 32 | rax & 0xffff_ffff, d & 0xffff_ffff);
            let Some(q) = n.checked_div(d).filter(|&q| q >> 32 == 0) else {
                return Flow::DivideError;
            };
            s.set_reg(RAX, q);
            s.set_reg(RDX, n % d);
        }
        16 => {
            let (n, d) = ((rdx & 0xffff) << 16 | rax & 0xffff, d & 0xffff);
            let Some(q) = n.checked_div(d).filter(|&q| q >> 16 == 0) else {
                return Flow::DivideError;
            };
            s.set_reg(RAX, rax & !0xffff | q);
            s.set_reg(RDX, rdx & !0xffff | (n % d));
        }
        _ => {
            let (n, d) = (rax & 0xffff, d & 0xff);
            let Some(q) = n.checked_div(d).filter(|&q| q >> 8 == 0) else {
                return Flow::DivideError;
            };
            s.set_reg(RAX, rax & !0xffff | (n % d) << 8 | q);
        }
    }
    Flow::Next
}

fn div_signed(s: &mut CpuState, op: &Op) -> Flow {
    let bits = u32::try_from(op.imm).unwrap_or(64);
    let (rax, rdx) = (s.reg(RAX), s.reg(RDX));
    let d = i128::from(flags::sext(s.r[op.a as usize], bits).cast_signed());
    let n = match bits {
        64 => (u128::from(rdx) << 64 | u128::from(rax)).cast_signed(),
        32 => i128::from((rdx << 32 | rax & 0xffff_ffff).cast_signed()),
        16 => i128::from(flags::sext((rdx & 0xffff) << 16 | rax & 0xffff, 32).cast_signed()),
        _ => i128::from(flags::sext(rax, 16).cast_signed()),
    };
    if d == 0 {
        return Flow::DivideError;
    }
    let (q, r) = match (i64::try_from(n), i64::try_from(d)) {
        (Ok(n), Ok(d)) if d != -1 => (i128::from(n / d), i128::from(n % d)),
        _ => (n.wrapping_div(d), n.wrapping_rem(d)),
    };
    let limit = 1i128 << (bits - 1);
    if q >= limit || q < -limit {
        return Flow::DivideError;
    }
    let (q, r) = (q as u64, r as u64);
    match bits {
        64 => {
            s.set_reg(RAX, q);
            s.set_reg(RDX, r);
        }
        32 => {
            s.set_reg(RAX, q & 0xffff_ffff);
            s.set_reg(RDX, r & 0xffff_ffff);
        }
        16 => {
            s.set_reg(RAX, rax & !0xffff | q & 0xffff);
            s.set_reg(RDX, rdx & !0xffff | r & 0xffff);
        }
        _ => s.set_reg(RAX, rax & !0xffff | (r & 0xff) << 8 | q & 0xff),
    }
    Flow::Next
}

fn rotate_carry(s: &mut CpuState, op: &Op, left: bool) {
    let bits = u32::try_from(op.imm).unwrap_or(64);
    let a = s.r[op.a as usize] & (u64::MAX >> (64 - bits));
    let n = (s.r[op.c as usize] as u32) % (bits + 1);
    let carry = flags::carry(s);
    let wide = u128::from(a) | u128::from(carry) << bits;
    let n = if left { n } else { (bits + 1 - n) % (bits + 1) };
    let turned = (wide << n | wide >> (bits + 1 - n)) & (u128::MAX >> (127 - bits));
    let r = turned as u64 & (u64::MAX >> (64 - bits));
    s.r[op.d as usize] = r;
    if s.r[op.c as usize] == 0 {
        return;
    }
    let cf = (turned >> bits) as u64 & 1;
    let top = r >> (bits - 1);
    // OF: left, carry against the new top bit; right, the two top bits.
    let of = if left { top ^ cf } else { top ^ (r >> (bits - 2)) & 1 };
    let rest = flags::status(s) & !(eflags::CF | eflags::OF);
    s.set_cc(CcKind::Flags, rest | cf | (of & 1) << 11, 0, 0);
}

fn shift_double(s: &mut CpuState, op: &Op, left: bool) {
    let bits = u32::try_from(op.imm).unwrap_or(64);
    let m = u64::MAX >> (64 - bits);
    let (a, b, n) = (s.r[op.a as usize] & m, s.r[op.b as usize] & m, s.r[op.c as usize] as u32);
    if n == 0 {
        s.r[op.d as usize] = a;
        return;
    }
    // Counts beyond 16 bits are undefined for 16-bit operands; the pair is shifted as if repeated.
    let (wide, r, cf) = if left {
        let wide = u128::from(a) << bits | u128::from(b);
        let r = (wide << n >> bits) as u64 & m;
        (wide, r, if n <= bits { (a >> (bits - n)) & 1 } else { 0 })
    } else {
        let wide = u128::from(b) << bits | u128::from(a);
        (wide, (wide >> n) as u64 & m, (wide >> (n - 1)) as u64 & 1)
    };
    let _ = wide;
    s.r[op.d as usize] = r;
    let of = ((r ^ a) >> (bits - 1)) & 1;
    s.set_cc(CcKind::Flags, flags::szp(r, bits) | cf | of << 11, 0, 0);
}

type Run<B> = fn(&mut Core<<B as Bus>::Fault>, &mut B, &Op) -> Flow;

fn by_width<B: Bus>(
    core: &mut Core<B::Fault>,
    bus: &mut B,
    op: &Op,
    w8: Run<B>,
    w16: Run<B>,
    w32: Run<B>,
    w64: Run<B>,
) -> Flow {
    match op.imm & 0xff {
        8 => w8(core, bus, op),
        16 => w16(core, bus, op),
        32 => w32(core, bus, op),
        _ => w64(core, bus, op),
    }
}

/// How often a string instruction goes round.
fn count(s: &CpuState, op: &Op) -> u64 {
    if op.imm >> 8 == 0 { 1 } else { s.reg(RCX) }
}

/// Distance to the next element.
fn stride<T: Scalar>(s: &CpuState) -> u64 {
    if s.df { u64::from(T::BYTES).wrapping_neg() } else { u64::from(T::BYTES) }
}

fn source(s: &CpuState, op: &Op) -> VirtAddr {
    VirtAddr::new(s.reg(RSI).wrapping_add(s.r[op.b as usize]))
}

fn dest(s: &CpuState) -> VirtAddr {
    VirtAddr::new(s.reg(RDI))
}

/// Moves RCX (if repeated) and the pointers past `n` elements.
fn advance<T: Scalar>(s: &mut CpuState, op: &Op, n: u64, si: bool, di: bool) {
    let by = stride::<T>(s).wrapping_mul(n);
    if op.imm >> 8 != 0 {
        s.set_reg(RCX, s.reg(RCX).wrapping_sub(n));
    }
    if si {
        s.set_reg(RSI, s.reg(RSI).wrapping_add(by));
    }
    if di {
        s.set_reg(RDI, s.reg(RDI).wrapping_add(by));
    }
}

fn movs<B: Bus, T: Scalar>(core: &mut Core<B::Fault>, bus: &mut B, op: &Op) -> Flow {
    let n = count(&core.s, op);
    if !core.s.df {
        let (done, result) = bus.copy::<T>(dest(&core.s), source(&core.s, op), n);
        bus.count_accesses((2 * done).cast_signed() + i64::from(result.is_err()));
        advance::<T>(&mut core.s, op, done, true, true);
        access!(core, result);
        return Flow::Next;
    }
    for _ in 0..n {
        bus.count_accesses(2);
        let value = access!(core, bus.load::<T>(source(&core.s, op)));
        access!(core, bus.store(dest(&core.s), value));
        advance::<T>(&mut core.s, op, 1, true, true);
    }
    Flow::Next
}

fn stos<B: Bus, T: Scalar>(core: &mut Core<B::Fault>, bus: &mut B, op: &Op) -> Flow {
    let n = count(&core.s, op);
    let value = T::from_u128(u128::from(core.s.reg(RAX)));
    if !core.s.df {
        let (done, result) = bus.fill(dest(&core.s), value, n);
        bus.count_accesses(done.cast_signed() + i64::from(result.is_err()));
        advance::<T>(&mut core.s, op, done, false, true);
        access!(core, result);
        return Flow::Next;
    }
    for _ in 0..n {
        bus.count_accesses(1);
        access!(core, bus.store(dest(&core.s), value));
        advance::<T>(&mut core.s, op, 1, false, true);
    }
    Flow::Next
}

fn lods<B: Bus, T: Scalar>(core: &mut Core<B::Fault>, bus: &mut B, op: &Op) -> Flow {
    for _ in 0..count(&core.s, op) {
        bus.count_accesses(1);
        let value = access!(core, bus.load::<T>(source(&core.s, op)));
        let s = &mut core.s;
        let value = value.to_u128() as u64;
        let keep = match T::BYTES {
            1 => !0xff,
            2 => !0xffff,
            _ => 0,
        };
        s.set_reg(RAX, s.reg(RAX) & keep | value);
        advance::<T>(s, op, 1, true, false);
    }
    Flow::Next
}

/// Whether a repeated comparison stops: `repe` (1) on difference, `repne` (2) on equality.
fn stops(op: &Op, equal: bool) -> bool {
    match op.imm >> 8 {
        1 => !equal,
        2 => equal,
        _ => false,
    }
}

fn scas<B: Bus, T: Scalar>(core: &mut Core<B::Fault>, bus: &mut B, op: &Op) -> Flow {
    let kind = CcKind::new(CcOp::Sub, Width::of_bytes(T::BYTES as usize));
    let a = T::from_u128(u128::from(core.s.reg(RAX)));
    for _ in 0..count(&core.s, op) {
        bus.count_accesses(1);
        let b = access!(core, bus.load::<T>(dest(&core.s)));
        core.s.set_cc(kind, a.to_u128() as u64, b.to_u128() as u64, 0);
        advance::<T>(&mut core.s, op, 1, false, true);
        if stops(op, a == b) {
            break;
        }
    }
    Flow::Next
}

fn cmps<B: Bus, T: Scalar>(core: &mut Core<B::Fault>, bus: &mut B, op: &Op) -> Flow {
    let kind = CcKind::new(CcOp::Sub, Width::of_bytes(T::BYTES as usize));
    for _ in 0..count(&core.s, op) {
        bus.count_accesses(2);
        let a = access!(core, bus.load::<T>(source(&core.s, op)));
        let b = access!(core, bus.load::<T>(dest(&core.s)));
        core.s.set_cc(kind, a.to_u128() as u64, b.to_u128() as u64, 0);
        advance::<T>(&mut core.s, op, 1, true, true);
        if stops(op, a == b) {
            break;
        }
    }
    Flow::Next
}

// RSI and RDI are used through the functions above.
const _: () = assert!(RSI.0 == 6 && RDI.0 == 7);
