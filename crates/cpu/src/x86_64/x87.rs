//! x87: lowering to one helper op per instruction, the helper, and the FXSAVE image.
//!
//! FIDELITY: x87-exceptions stack faults and exceptions are not raised (all are masked in practice); instruction and
//! data pointers read as zero; transcendental instructions are unsupported.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "narrowing is what these instructions do"
)]

use super::f80::{F80, Mode, Rounding};
use super::helper::X86Fn;
use super::int;
use super::operand::{Lower, RAX};
use crate::block::Step;
use crate::bus::Bus;
use crate::exec::{Core, Flow, access};
use crate::flags::{self, eflags};
use crate::ir::{CcKind, Code, Cond, Op, Reg};
use crate::state::{CpuState, X87};
use iced_x86::{Instruction, MemorySize, Mnemonic, OpKind, Register};
use units::VirtAddr;

/// Operation, in bits 7–0 of `imm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum F {
    Load,
    Store,
    Add,
    Sub,
    Mul,
    Div,
    Compare,
    CompareFlags,
    Negate,
    Abs,
    Sqrt,
    Round,
    Scale,
    Exchange,
    TestZero,
    Examine,
    Constant,
    LoadControl,
    StoreControl,
    StoreStatus,
    StoreStatusAx,
    ClearExceptions,
    Init,
    Free,
    IncTop,
    DecTop,
    Move,
    StoreEnv,
    LoadEnv,
    Remainder,
    RemainderNearest,
    Extract,
}

const ALL: [F; 32] = [
    F::Load,
    F::Store,
    F::Add,
    F::Sub,
    F::Mul,
    F::Div,
    F::Compare,
    F::CompareFlags,
    F::Negate,
    F::Abs,
    F::Sqrt,
    F::Round,
    F::Scale,
    F::Exchange,
    F::TestZero,
    F::Examine,
    F::Constant,
    F::LoadControl,
    F::StoreControl,
    F::StoreStatus,
    F::StoreStatusAx,
    F::ClearExceptions,
    F::Init,
    F::Free,
    F::IncTop,
    F::DecTop,
    F::Move,
    F::StoreEnv,
    F::LoadEnv,
    F::Remainder,
    F::RemainderNearest,
    F::Extract,
];

/// Memory operand kinds, in bits 15–8 of `imm`.
const M_NONE: i64 = 0;
const M_F32: i64 = 1;
const M_F64: i64 = 2;
const M_F80: i64 = 3;
const M_I16: i64 = 4;
const M_I32: i64 = 5;
const M_I64: i64 = 6;

/// An instruction, unpacked from `imm`.
#[derive(Clone, Copy)]
struct Insn {
    f: F,
    mem: i64,
    /// Stack register: destination or source, or a constant's or condition's number.
    i: u8,
    pops: u8,
    /// The destination is ST(i), the source ST(0).
    to_i: bool,
    /// Operands exchanged (FSUBR, FDIVR), or truncation (FISTTP).
    reverse: bool,
}

impl Insn {
    const fn new(f: F) -> Insn {
        Insn { f, mem: M_NONE, i: 0, pops: 0, to_i: false, reverse: false }
    }
    const fn pack(self) -> i64 {
        self.f as i64
            | self.mem << 8
            | (self.i as i64) << 16
            | (self.pops as i64) << 24
            | (self.to_i as i64) << 28
            | (self.reverse as i64) << 29
    }
    fn unpack(imm: i64) -> Option<Insn> {
        let f = *ALL.get(usize::try_from(imm & 0xff).ok()?)?;
        Some(Insn {
            f,
            mem: imm >> 8 & 0xff,
            i: (imm >> 16 & 0xff) as u8,
            pops: (imm >> 24 & 3) as u8,
            to_i: imm >> 28 & 1 != 0,
            reverse: imm >> 29 & 1 != 0,
        })
    }
}

fn memory_kind(size: MemorySize) -> i64 {
    match size {
        MemorySize::Float32 => M_F32,
        MemorySize::Float64 => M_F64,
        MemorySize::Float80 => M_F80,
        MemorySize::Int16 => M_I16,
        MemorySize::Int32 => M_I32,
        MemorySize::Int64 => M_I64,
        _ => M_NONE,
    }
}

fn st(r: Register) -> Option<u8> {
    if r.is_st() { u8::try_from(r.number()).ok() } else { None }
}

/// The instruction in our terms.
fn decode(i: &Instruction) -> Option<Insn> {
    use Mnemonic as M;
    let n = Insn::new;
    let pops = |f: F, pops: u8| Insn { pops, ..Insn::new(f) };
    let reverse = |f: F| Insn { reverse: true, ..Insn::new(f) };
    let constant = |i: u8| Insn { i, ..Insn::new(F::Constant) };
    let mut insn = match i.mnemonic() {
        M::Fld | M::Fild => n(F::Load),
        M::Fst | M::Fist => n(F::Store),
        M::Fstp | M::Fistp => pops(F::Store, 1),
        M::Fisttp => Insn { pops: 1, ..reverse(F::Store) },
        M::Fadd | M::Fiadd => n(F::Add),
        M::Faddp => pops(F::Add, 1),
        M::Fsub | M::Fisub => n(F::Sub),
        M::Fsubp => pops(F::Sub, 1),
        M::Fsubr | M::Fisubr => reverse(F::Sub),
        M::Fsubrp => Insn { pops: 1, ..reverse(F::Sub) },
        M::Fmul | M::Fimul => n(F::Mul),
        M::Fmulp => pops(F::Mul, 1),
        M::Fdiv | M::Fidiv => n(F::Div),
        M::Fdivp => pops(F::Div, 1),
        M::Fdivr | M::Fidivr => reverse(F::Div),
        M::Fdivrp => Insn { pops: 1, ..reverse(F::Div) },
        M::Fcom | M::Fucom | M::Ficom => n(F::Compare),
        M::Fcomp | M::Fucomp | M::Ficomp => pops(F::Compare, 1),
        M::Fcompp | M::Fucompp => Insn { i: 1, ..pops(F::Compare, 2) },
        M::Fcomi | M::Fucomi => n(F::CompareFlags),
        M::Fcomip | M::Fucomip => pops(F::CompareFlags, 1),
        M::Fchs => n(F::Negate),
        M::Fabs => n(F::Abs),
        M::Fsqrt => n(F::Sqrt),
        M::Frndint => n(F::Round),
        M::Fscale => n(F::Scale),
        M::Fxch => n(F::Exchange),
        M::Ftst => n(F::TestZero),
        M::Fxam => n(F::Examine),
        M::Fld1 => constant(0),
        M::Fldl2t => constant(1),
        M::Fldl2e => constant(2),
        M::Fldpi => constant(3),
        M::Fldlg2 => constant(4),
        M::Fldln2 => constant(5),
        M::Fldz => constant(6),
        M::Fldcw => n(F::LoadControl),
        M::Fnstcw | M::Fstcw => n(F::StoreControl),
        M::Fnstsw | M::Fstsw if i.op0_kind() == OpKind::Memory => n(F::StoreStatus),
        M::Fnstsw | M::Fstsw => n(F::StoreStatusAx),
        M::Fnclex | M::Fclex => n(F::ClearExceptions),
        M::Fninit | M::Finit => n(F::Init),
        M::Ffree => n(F::Free),
        M::Fincstp => n(F::IncTop),
        M::Fdecstp => n(F::DecTop),
        M::Fnstenv | M::Fstenv => n(F::StoreEnv),
        M::Fldenv => n(F::LoadEnv),
        M::Fprem => n(F::Remainder),
        M::Fprem1 => n(F::RemainderNearest),
        M::Fxtract => n(F::Extract),
        M::Fcmovb
        | M::Fcmove
        | M::Fcmovbe
        | M::Fcmovu
        | M::Fcmovnb
        | M::Fcmovne
        | M::Fcmovnbe
        | M::Fcmovnu => n(F::Move),
        _ => return None,
    };
    let arithmetic = matches!(insn.f, F::Add | F::Sub | F::Mul | F::Div);
    if i.op_count() > 0 && i.op0_kind() == OpKind::Memory {
        insn.mem = memory_kind(i.memory_size());
    } else if insn.pops < 2 && i.op_count() > 0 {
        let (a, b) = (st(i.op0_register()), st(i.op1_register()));
        match (a, b) {
            (Some(a), Some(0)) if arithmetic && a != 0 => (insn.i, insn.to_i) = (a, true),
            // `faddp st(0), st(0)` and the like write ST(0), which is then popped.
            (Some(0), Some(0)) if arithmetic && insn.pops > 0 => insn.to_i = true,
            (Some(0), Some(b)) => insn.i = b,
            (Some(a), _) => insn.i = a,
            _ => {}
        }
    }
    Some(insn)
}

impl Lower<'_> {
    /// Lowers an x87 instruction; `None` if it is not one that is implemented.
    pub(super) fn x87(&mut self) -> Option<Step> {
        if self.i.mnemonic() == Mnemonic::Fnop {
            return Some(self.next());
        }
        let insn = decode(self.i)?;
        let op = Op::new(Code::X86).x(X86Fn::X87 as u16).imm(insn.pack());
        let has_memory = (0..self.i.op_count()).any(|n| self.is_mem(n));
        let address = Reg::tmp(0);
        if has_memory {
            let at = self.simple_addr();
            self.b.alui(Code::AddI64, address, at.base, at.disp);
        }
        let mut op = op.a(address);
        if insn.f == F::Move {
            op = op.cond(int::cond(self.i.condition_code()));
        }
        self.b.emit(op);
        Some(self.next())
    }
}

fn slot(x: &X87, i: u8) -> usize {
    usize::from((x.top + i) & 7)
}
fn get(x: &X87, i: u8) -> F80 {
    let at = slot(x, i);
    F80 { se: x.exp[at], mant: x.mant[at] }
}
fn set(x: &mut X87, i: u8, v: F80) {
    let at = slot(x, i);
    (x.exp[at], x.mant[at]) = (v.se, v.mant);
    x.used |= 1 << at;
}
fn push(x: &mut X87, v: F80) {
    x.top = (x.top + 7) & 7;
    set(x, 0, v);
}
fn pop(x: &mut X87) {
    x.used &= !(1 << slot(x, 0));
    x.top = (x.top + 1) & 7;
}

fn status(x: &X87) -> u16 {
    x.sw & !0x3800 | u16::from(x.top) << 11
}

const C0: u16 = 1 << 8;
const C1: u16 = 1 << 9;
const C2: u16 = 1 << 10;
const C3: u16 = 1 << 14;

fn set_codes(x: &mut X87, codes: u16) {
    x.sw = x.sw & !(C0 | C1 | C2 | C3) | codes;
}

fn order_codes(order: Option<std::cmp::Ordering>) -> u16 {
    match order {
        None => C0 | C2 | C3,
        Some(std::cmp::Ordering::Less) => C0,
        Some(std::cmp::Ordering::Equal) => C3,
        Some(std::cmp::Ordering::Greater) => 0,
    }
}

/// Runs one x87 instruction.
pub(super) fn execute<B: Bus>(core: &mut Core<B::Fault>, bus: &mut B, op: &Op) -> Flow {
    let Some(n) = Insn::unpack(op.imm) else { return Flow::Undefined };
    let at = VirtAddr::new(core.s.r[op.a as usize]);
    let source = match n.f {
        F::Store | F::LoadControl | F::StoreControl | F::StoreStatus | F::LoadEnv | F::StoreEnv => {
            F80::default()
        }
        _ if n.mem != M_NONE => access!(core, load(bus, at, n.mem)),
        _ => get(&core.s.x87, n.i),
    };
    let mode = Mode::of_control(core.s.x87.cw);
    let x = &mut core.s.x87;
    match n.f {
        F::Load => push(x, source),
        F::Store if n.mem != M_NONE => {
            let value = get(x, 0);
            let r = if n.reverse { Rounding::Zero } else { mode.rounding };
            access!(core, store(bus, at, n.mem, value, r));
        }
        F::Store => {
            let value = get(x, 0);
            set(x, n.i, value);
        }
        F::Add | F::Sub | F::Mul | F::Div => arithmetic(x, n, source, mode),
        F::Compare => {
            let codes = order_codes(F80::compare(get(x, 0), source));
            set_codes(x, codes);
        }
        F::CompareFlags => {
            let order = F80::compare(get(x, 0), source);
            let flags = match order {
                None => eflags::ZF | eflags::PF | eflags::CF,
                Some(std::cmp::Ordering::Less) => eflags::CF,
                Some(std::cmp::Ordering::Equal) => eflags::ZF,
                Some(std::cmp::Ordering::Greater) => 0,
            };
            core.s.set_cc(CcKind::Flags, flags, 0, 0);
        }
        F::LoadControl => {
            bus.count_accesses(1);
            core.s.x87.cw = access!(core, bus.load::<u16>(at)) | 0x40;
        }
        F::StoreControl => {
            let cw = x.cw;
            bus.count_accesses(1);
            access!(core, bus.store(at, cw));
        }
        F::StoreStatus => {
            let sw = status(x);
            bus.count_accesses(1);
            access!(core, bus.store(at, sw));
        }
        F::StoreStatusAx => {
            let sw = u64::from(status(x));
            core.s.set_reg(RAX, core.s.reg(RAX) & !0xffff | sw);
        }
        F::StoreEnv => access!(core, store_env(bus, at, x)),
        F::LoadEnv => access!(core, load_env(bus, at, x)),
        F::Move => {
            if flags::holds(&core.s, Cond::from_raw(op.c)) {
                set(&mut core.s.x87, 0, source);
            }
        }
        _ => stack_only(x, n, source, mode),
    }
    for _ in 0..n.pops {
        pop(&mut core.s.x87);
    }
    Flow::Next
}

fn arithmetic(x: &mut X87, n: Insn, source: F80, mode: Mode) {
    let (a, b) = if n.to_i { (get(x, n.i), get(x, 0)) } else { (get(x, 0), source) };
    let (a, b) = if n.reverse { (b, a) } else { (a, b) };
    let r = match n.f {
        F::Add => F80::add(a, b, mode),
        F::Sub => F80::sub(a, b, mode),
        F::Mul => F80::mul(a, b, mode),
        _ => F80::div(a, b, mode),
    };
    set(x, if n.to_i { n.i } else { 0 }, r);
}

/// Instructions that touch neither memory nor the integer state.
fn stack_only(x: &mut X87, n: Insn, source: F80, mode: Mode) {
    let top = get(x, 0);
    match n.f {
        F::Negate => set(x, 0, top.negated()),
        F::Abs => set(x, 0, top.magnitude()),
        F::Sqrt => set(x, 0, top.sqrt(mode)),
        F::Round => set(x, 0, top.round_to_integral(mode.rounding)),
        F::Scale => {
            let by = get(x, 1);
            set(x, 0, F80::scale(top, by, mode));
        }
        F::Exchange => {
            set(x, 0, source);
            set(x, n.i, top);
        }
        F::TestZero => set_codes(x, order_codes(F80::compare(top, F80::zero(false)))),
        F::Examine => {
            let class = if x.used >> slot(x, 0) & 1 == 0 {
                C3 | C0
            } else if top.is_nan() {
                C0
            } else if top.is_inf() {
                C2 | C0
            } else if top.is_zero() {
                C3
            } else if top.is_denormal() {
                C3 | C2
            } else {
                C2
            };
            set_codes(x, class | if top.sign() { C1 } else { 0 });
        }
        F::Constant => push(x, constant(n.i)),
        F::ClearExceptions => x.sw &= 0x7f00,
        F::Init => *x = X87 { cw: 0x37f, sw: 0, top: 0, used: 0, ..x.clone() },
        F::Free => x.used &= !(1 << slot(x, n.i)),
        F::IncTop => x.top = (x.top + 1) & 7,
        F::DecTop => x.top = (x.top + 7) & 7,
        F::Remainder | F::RemainderNearest => {
            let (r, q, complete) = F80::remainder(top, get(x, 1), n.f == F::RemainderNearest);
            set(x, 0, r);
            let bit = |on: bool, code: u16| if on { code } else { 0 };
            let codes = if complete {
                bit(q & 4 != 0, C0) | bit(q & 2 != 0, C3) | bit(q & 1 != 0, C1)
            } else {
                C2
            };
            set_codes(x, codes);
        }
        F::Extract => {
            let (e, m) = top.extract();
            set(x, 0, e);
            push(x, m);
        }
        _ => {}
    }
}

/// FLD1, FLDL2T, FLDL2E, FLDPI, FLDLG2, FLDLN2, FLDZ.
fn constant(i: u8) -> F80 {
    let (se, mant) = match i {
        0 => (0x3fff, 0x8000_0000_0000_0000),
        1 => (0x4000, 0xd49a_784b_cd1b_8afe),
        2 => (0x3fff, 0xb8aa_3b29_5c17_f0bc),
        3 => (0x4000, 0xc90f_daa2_2168_c235),
        4 => (0x3ffd, 0x9a20_9a84_fbcf_f799),
        5 => (0x3ffe, 0xb172_17f7_d1cf_79ac),
        _ => (0, 0),
    };
    F80 { se, mant }
}

fn load<B: Bus>(bus: &mut B, at: VirtAddr, kind: i64) -> Result<F80, B::Fault> {
    bus.count_accesses(1);
    Ok(match kind {
        M_F32 => F80::from_f32(bus.load::<u32>(at)?),
        M_F64 => F80::from_f64(bus.load::<u64>(at)?),
        M_F80 => {
            bus.count_accesses(1);
            let mant = bus.load::<u64>(at)?;
            F80 { mant, se: bus.load::<u16>(at.wrapping_add(8))? }
        }
        M_I16 => F80::from_int(i64::from(bus.load::<u16>(at)?.cast_signed())),
        M_I32 => F80::from_int(i64::from(bus.load::<u32>(at)?.cast_signed())),
        _ => F80::from_int(bus.load::<u64>(at)?.cast_signed()),
    })
}

fn store<B: Bus>(
    bus: &mut B,
    at: VirtAddr,
    kind: i64,
    value: F80,
    r: Rounding,
) -> Result<(), B::Fault> {
    bus.count_accesses(1);
    match kind {
        M_F32 => bus.store(at, value.to_f32(r)),
        M_F64 => bus.store(at, value.to_f64(r)),
        M_F80 => {
            bus.count_accesses(1);
            // Both parts must be writable before either is written.
            bus.load_for_write::<u16>(at.wrapping_add(8))?;
            bus.store(at, value.mant)?;
            bus.store(at.wrapping_add(8), value.se)
        }
        M_I16 => bus.store(at, value.to_int(16, r) as u16),
        M_I32 => bus.store(at, value.to_int(32, r) as u32),
        _ => bus.store(at, value.to_int(64, r)),
    }
}

/// Full tag word: 0 valid, 1 zero, 2 special, 3 empty.
fn tags(x: &X87) -> u16 {
    (0..8).fold(0, |word, at| {
        let v = F80 { se: x.exp[at], mant: x.mant[at] };
        let tag = if x.used >> at & 1 == 0 {
            3
        } else if v.is_zero() {
            1
        } else if v.is_nan() || v.is_inf() || v.is_denormal() {
            2
        } else {
            0
        };
        word | tag << (2 * at)
    })
}

/// The 28-byte environment.
fn store_env<B: Bus>(bus: &mut B, at: VirtAddr, x: &mut X87) -> Result<(), B::Fault> {
    let words = [
        u32::from(x.cw) | 0xffff_0000,
        u32::from(status(x)) | 0xffff_0000,
        u32::from(tags(x)) | 0xffff_0000,
        0,
        0,
        0,
        0xffff_0000,
    ];
    bus.count_accesses(7);
    bus.load_for_write::<u32>(at.wrapping_add(24))?;
    for (i, word) in (0u64..).zip(words) {
        bus.store(at.wrapping_add(i * 4), word)?;
    }
    // FNSTENV masks all exceptions afterwards.
    x.cw |= 0x3f;
    Ok(())
}

fn load_env<B: Bus>(bus: &mut B, at: VirtAddr, x: &mut X87) -> Result<(), B::Fault> {
    bus.count_accesses(3);
    let cw = bus.load::<u16>(at)?;
    let sw = bus.load::<u16>(at.wrapping_add(4))?;
    let tw = bus.load::<u16>(at.wrapping_add(8))?;
    x.cw = cw | 0x40;
    x.sw = sw & !0x3800;
    x.top = (sw >> 11 & 7) as u8;
    x.used = (0..8).fold(0, |used, i| used | u8::from(tw >> (2 * i) & 3 != 3) << i);
    Ok(())
}

/// Bytes of an FXSAVE area.
pub const FXSAVE_BYTES: usize = 512;

/// x87 and SSE state as FXSAVE64 writes it, also for signal frames.
pub fn fxsave_image(s: &CpuState) -> [u8; FXSAVE_BYTES] {
    let mut image = [0; FXSAVE_BYTES];
    let mut put = |at: usize, bytes: &[u8]| {
        if let Some(to) = image.get_mut(at..at + bytes.len()) {
            to.copy_from_slice(bytes);
        }
    };
    put(0, &s.x87.cw.to_le_bytes());
    put(2, &status(&s.x87).to_le_bytes());
    put(4, &[s.x87.used]);
    put(24, &s.mxcsr.to_le_bytes());
    put(28, &0xffffu32.to_le_bytes());
    for i in 0..8u8 {
        let v = get(&s.x87, i);
        put(32 + 16 * usize::from(i), &v.mant.to_le_bytes());
        put(40 + 16 * usize::from(i), &v.se.to_le_bytes());
    }
    for (i, v) in s.v.iter().take(16).enumerate() {
        put(160 + 16 * i, &v.to_le_bytes());
    }
    image
}

/// Takes x87 and SSE state from an FXSAVE image.
pub fn fxrstor_image(s: &mut CpuState, image: &[u8; FXSAVE_BYTES]) {
    let word = |at: usize| image.get(at..).and_then(|b| b.first_chunk::<8>()).copied();
    let word = |at: usize| u64::from_le_bytes(word(at).unwrap_or([0; 8]));
    s.x87.cw = word(0) as u16 | 0x40;
    let sw = word(2) as u16;
    s.x87.sw = sw & !0x3800;
    s.x87.top = (sw >> 11 & 7) as u8;
    s.x87.used = word(4) as u8;
    s.mxcsr = word(24) as u32 & 0xffff;
    for i in 0..8u8 {
        let at = 32 + 16 * usize::from(i);
        let to = slot(&s.x87, i);
        s.x87.mant[to] = word(at);
        s.x87.exp[to] = word(at + 8) as u16;
    }
    for (i, v) in s.v.iter_mut().take(16).enumerate() {
        let at = 160 + 16 * i;
        *v = u128::from(word(at)) | u128::from(word(at + 8)) << 64;
    }
}

/// FXSAVE.
pub(super) fn fxsave<B: Bus>(core: &mut Core<B::Fault>, bus: &mut B, op: &Op) -> Flow {
    let at = VirtAddr::new(core.s.r[op.a as usize].wrapping_add(op.imm.cast_unsigned()));
    if !at.is_aligned(16) {
        return Flow::Misaligned;
    }
    bus.count_accesses(26);
    // The area may span two pages: both must be writable first.
    access!(core, bus.load_for_write::<u64>(at.wrapping_add(408)));
    for (i, chunk) in (0u64..).zip(fxsave_image(&core.s).chunks_exact(16)).take(26) {
        let value = <u128 as crate::bus::Scalar>::read(chunk);
        access!(core, bus.store(at.wrapping_add(i * 16), value));
    }
    Flow::Next
}

/// FXRSTOR.
pub(super) fn fxrstor<B: Bus>(core: &mut Core<B::Fault>, bus: &mut B, op: &Op) -> Flow {
    let at = VirtAddr::new(core.s.r[op.a as usize].wrapping_add(op.imm.cast_unsigned()));
    if !at.is_aligned(16) {
        return Flow::Misaligned;
    }
    bus.count_accesses(26);
    let mut image = [0; FXSAVE_BYTES];
    for (i, chunk) in (0u64..).zip(image.chunks_exact_mut(16)).take(26) {
        let value = access!(core, bus.load::<u128>(at.wrapping_add(i * 16)));
        chunk.copy_from_slice(&value.to_le_bytes());
    }
    fxrstor_image(&mut core.s, &image);
    Flow::Next
}
