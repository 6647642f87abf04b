//! What each micro-op does: one small function per [`Code`], and the two interpreters made from
//! them, a match loop (the oracle, and the engine of debug builds) and direct threading.
//!
//! Threading: each op carries the address of its handler, a plain function that does the work and
//! calls the next op's handler in tail position. Optimised builds turn that into a jump. The language does
//! not promise so, and nothing depends on it: the depth of the calls is bounded by the length of a block.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "narrowing is what the ops of an instruction set do"
)]

use crate::bus::{Bus, Scalar};
use crate::flags;
use crate::ir::{CcKind, Code, Cond, Op, RmwOp, for_each_code};
use crate::state::CpuState;
use units::VirtAddr;

/// How control leaves a micro-op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Flow {
    /// To the next op.
    Next,
    /// To target 0 of the block.
    Link0,
    /// To target 1 of the block.
    Link1,
    /// To the address in the state's `pc`.
    Indirect,
    /// A memory access failed; the fault is in [`Core::fault`].
    Fault,
    /// System call; `pc` is already the next instruction.
    Syscall,
    /// Undefined instruction.
    Undefined,
    /// Instruction that is not implemented.
    Unsupported,
    /// Breakpoint instruction; `pc` is already set.
    Breakpoint,
    /// x86 #DE.
    DivideError,
    /// x86 #GP: a misaligned operand, or a privileged instruction.
    Misaligned,
    /// Code at address [`Core::icache`] was invalidated; go on at target 0.
    ICache,
}

/// A CPU's state together with what a micro-op leaves for the engine.
#[derive(Debug)]
#[repr(C)]
pub struct Core<F> {
    /// Architectural state.
    pub s: CpuState,
    /// The fault of a [`Flow::Fault`].
    pub fault: Option<F>,
    /// Ops that were left in the block when control left it.
    pub left_nr: usize,
    /// Instructions retired since `run` was entered, the current block included.
    pub retired_nr: u64,
    /// Address given to an instruction-cache invalidation.
    pub icache: u64,
}

impl<F> Core<F> {
    /// Wraps a state.
    pub fn new(s: CpuState) -> Self {
        Core { s, fault: None, left_nr: 0, retired_nr: 0, icache: 0 }
    }

    /// Leaves the block with `fault`. Out of line, so that handlers stay small.
    #[cold]
    #[inline(never)]
    pub fn faulted(&mut self, fault: F) -> Flow {
        self.fault = Some(fault);
        Flow::Fault
    }
}

/// Unwraps the result of a bus access in a function that returns [`Flow`].
macro_rules! access {
    ($core:expr, $access:expr) => {
        match $access {
            Ok(value) => value,
            Err(fault) => return $core.faulted(fault),
        }
    };
}
pub(crate) use access;

/// A handler of the threaded engine.
///
/// It runs the first of the ops, and the rest through their handlers.
pub type Handler<B> = fn(&mut Core<<B as Bus>::Fault>, &mut B, &[Threaded<B>]) -> Flow;

/// A micro-op, and where to go after it.
pub struct Threaded<B: Bus> {
    /// The handler of the next op in the block.
    pub next: Handler<B>,
    /// The op.
    pub op: Op,
}

/// Binds ops to handlers. Returns the handler of the first op, too.
pub fn bind<B: Bus>(ops: &[Op]) -> (Handler<B>, Box<[Threaded<B>]>) {
    let handler_at = |i: usize| match (ops.get(i), ops.get(i + 1)) {
        (Some(op), Some(second)) => hot_pair::handler(op, second).unwrap_or_else(|| handler(op)),
        (Some(op), None) => handler(op),
        (None, _) => handler::<B>(&Op::new(Code::Jump)),
    };
    let bound = (1..).zip(ops).map(|(next, &op)| Threaded { next: handler_at(next), op }).collect();
    (handler_at(0), bound)
}

impl<B: Bus> Clone for Threaded<B> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<B: Bus> Copy for Threaded<B> {}
impl<B: Bus> std::fmt::Debug for Threaded<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.op.fmt(f)
    }
}

macro_rules! define_dispatch {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Handlers of the threaded engine.
        #[allow(non_snake_case, clippy::allow_attributes, reason = "named as their op codes")]
        mod threaded {
            use super::*;
            $(
                pub(super) fn $name<B: Bus>(
                    core: &mut Core<B::Fault>,
                    bus: &mut B,
                    ops: &[Threaded<B>],
                ) -> Flow {
                    let Some((this, rest)) = ops.split_first() else { return Flow::Link0 };
                    let flow = ops::$name(core, bus, &this.op);
                    if flow != Flow::Next {
                        core.left_nr = rest.len();
                        return flow;
                    }
                    (this.next)(core, bus, rest)
                }
            )*
        }

        /// The handler for an op.
        pub fn handler<B: Bus>(op: &Op) -> Handler<B> {
            if let Some(hot) = hot_vector::handler::<B>(op) {
                return hot;
            }
            if B::HAS_FAST && let Some(hot) = hot_memory::handler::<B>(op.code) {
                return hot;
            }
            match op.code { $(Code::$name => threaded::$name::<B>),* }
        }

        /// Runs one op.
        pub fn run_one<B: Bus>(core: &mut Core<B::Fault>, bus: &mut B, op: &Op) -> Flow {
            match op.code { $(Code::$name => ops::$name(core, bus, op)),* }
        }

        /// Runs ops in a match loop.
        pub fn run_match<B: Bus>(
            core: &mut Core<B::Fault>,
            bus: &mut B,
            ops: &[Threaded<B>],
        ) -> Flow {
            for (i, t) in ops.iter().enumerate() {
                let flow = match t.op.code { $(Code::$name => ops::$name(core, bus, &t.op)),* };
                if flow != Flow::Next {
                    core.left_nr = ops.len() - 1 - i;
                    return flow;
                }
            }
            Flow::Link0
        }
    };
}
for_each_code!(define_dispatch);

/// Loads and stores through the bus's fast path alone: what misses it starts again in the general
/// handler, so the usual case needs no stack frame.
mod hot_memory {
    #![allow(
        non_snake_case,
        clippy::allow_attributes,
        clippy::unnecessary_cast,
        clippy::cast_lossless,
        reason = "named as their op codes; one macro for several widths"
    )]
    use super::*;

    #[cold]
    #[inline(never)]
    fn slow<B: Bus>(
        core: &mut Core<B::Fault>,
        bus: &mut B,
        ops: &[Threaded<B>],
        general: Handler<B>,
    ) -> Flow {
        general(core, bus, ops)
    }

    macro_rules! hot {
        ({ $($load:ident $lt:ty, $lat:ident;)* } { $($store:ident $st:ty, $sat:ident;)* }) => {
            $(fn $load<B: Bus>(
                core: &mut Core<B::Fault>,
                bus: &mut B,
                ops: &[Threaded<B>],
            ) -> Flow {
                let Some((this, rest)) = ops.split_first() else { return Flow::Link0 };
                let Some(value) = bus.load_fast::<$lt>($lat(&core.s, &this.op)) else {
                    return slow(core, bus, ops, threaded::$load::<B>);
                };
                *rd(&mut core.s, &this.op) = value as u64;
                (this.next)(core, bus, rest)
            })*
            $(fn $store<B: Bus>(
                core: &mut Core<B::Fault>,
                bus: &mut B,
                ops: &[Threaded<B>],
            ) -> Flow {
                let Some((this, rest)) = ops.split_first() else { return Flow::Link0 };
                let value = rc(&core.s, &this.op) as $st;
                if !bus.store_fast::<$st>($sat(&core.s, &this.op), value) {
                    return slow(core, bus, ops, threaded::$store::<B>);
                }
                (this.next)(core, bus, rest)
            })*

            pub(super) fn handler<B: Bus>(code: Code) -> Option<Handler<B>> {
                match code {
                    $(Code::$load => Some($load::<B>),)*
                    $(Code::$store => Some($store::<B>),)*
                    _ => None,
                }
            }
        };
    }
    hot! {
        {
            LdU8 u8, at; LdU16 u16, at; LdU32 u32, at; Ld64 u64, at;
            LdU8X u8, at_x; LdU16X u16, at_x; LdU32X u32, at_x; Ld64X u64, at_x;
        }
        {
            St8 u8, at; St16 u16, at; St32 u32, at; St64 u64, at;
            St8X u8, at_x; St16X u16, at_x; St32X u32, at_x; St64X u64, at_x;
        }
    }
}

/// Two pure integer ops with one dispatch, for the pairs that hot loops consist of. The second op keeps
/// its place and its successor, so nothing but the handler of the first changes.
mod hot_pair {
    use super::*;

    /// A pure op as a type.
    trait Pure {
        /// Its result, given the value of its first source.
        fn value(s: &CpuState, op: &Op, a: u64) -> u64;
    }

    /// `FORWARD`: the second op's first source is the first op's result, which then does not go
    /// through memory.
    fn pair<B: Bus, P: Pure, Q: Pure, const FORWARD: bool>(
        core: &mut Core<B::Fault>,
        bus: &mut B,
        ops: &[Threaded<B>],
    ) -> Flow {
        let [first, second, rest @ ..] = ops else { return Flow::Link0 };
        let s = &mut core.s;
        let value = P::value(s, &first.op, ra(s, &first.op));
        *rd(s, &first.op) = value;
        let a = if FORWARD { value } else { ra(s, &second.op) };
        *rd(s, &second.op) = Q::value(s, &second.op, a);
        (second.next)(core, bus, rest)
    }

    macro_rules! pairs {
        ($($name:ident = |$s:ident, $op:ident, $a:ident| $value:expr;)*) => {
            $(struct $name;
            impl Pure for $name {
                #[inline(always)]
                fn value($s: &CpuState, $op: &Op, $a: u64) -> u64 {
                    $value
                }
            })*

            fn with_first<B: Bus, P: Pure>(first: &Op, second: &Op) -> Option<Handler<B>> {
                let forward = second.a == first.d;
                match (second.code, forward) {
                    $((Code::$name, false) => Some(pair::<B, P, $name, false>),
                    (Code::$name, true) => Some(pair::<B, P, $name, true>),)*
                    _ => None,
                }
            }

            pub(super) fn handler<B: Bus>(first: &Op, second: &Op) -> Option<Handler<B>> {
                match first.code {
                    $(Code::$name => with_first::<B, $name>(first, second),)*
                    _ => None,
                }
            }
        };
    }
    pairs! {
        Add64 = |s, op, a| a.wrapping_add(rb(s, op));
        Add32 = |s, op, a| u64::from((a as u32).wrapping_add(rb(s, op) as u32));
        AddI64 = |_s, op, a| a.wrapping_add(op.imm as u64);
        Xor64 = |s, op, a| a ^ rb(s, op);
        Xor32 = |s, op, a| u64::from((a ^ rb(s, op)) as u32);
        And32 = |s, op, a| u64::from((a & rb(s, op)) as u32);
        AndI32 = |_s, op, a| u64::from((a & op.imm as u64) as u32);
        AndI64 = |_s, op, a| a & op.imm as u64;
        XorShr64 = |s, op, a| a ^ rb(s, op).wrapping_shr(u32::from(op.x));
        ShrI64 = |_s, op, a| a.wrapping_shr(op.imm as u32);
        RorI32 = |_s, op, a| u64::from((a as u32).rotate_right(op.imm as u32 & 31));
        Mul64 = |s, op, a| a.wrapping_mul(rb(s, op));
        Mov = |_s, _op, a| a;
        Zext32 = |_s, _op, a| u64::from(a as u32);
        MAdd64 = |s, op, a| rc(s, op).wrapping_add(a.wrapping_mul(rb(s, op)));
        SelZ64 = |s, op, a| select(rc(s, op) == 0, a, rb(s, op));
    }
}

/// Handlers of their own for the vector operations that string functions and numeric loops live on.
mod hot_vector {
    #![allow(non_snake_case, clippy::allow_attributes, reason = "named as their operations")]
    use super::*;
    use crate::vector::{ARM, VecOp, vec_as};

    macro_rules! hot {
        ($($name:ident),* $(,)?) => {
            $(fn $name<B: Bus>(
                core: &mut Core<B::Fault>,
                bus: &mut B,
                ops: &[Threaded<B>],
            ) -> Flow {
                let Some((this, rest)) = ops.split_first() else { return Flow::Link0 };
                let (a, b) = (va(&core.s, &this.op), vb(&core.s, &this.op));
                let value = vec_as(VecOp::$name, &mut core.s, &this.op, a, b);
                *vd(&mut core.s, &this.op) = value;
                (this.next)(core, bus, rest)
            })*

            pub(super) fn handler<B: Bus>(op: &Op) -> Option<Handler<B>> {
                if op.code != Code::Vec || op.x & ARM != 0 {
                    return None;
                }
                match VecOp::from_raw(op.x) {
                    $(VecOp::$name => Some($name::<B>),)*
                    _ => None,
                }
            }
        };
    }
    hot! {
        And, Or, Xor, AndNot, Bic, Add8, Add16, Add32, Add64, Sub8, Sub16, Sub32, Sub64, Mul16,
        Mul32, MulEvenU32, CmpEq8, CmpEq16, CmpEq32, CmpGtS8, CmpGtS16, CmpGtS32, MinU8, MaxU8,
        MinS16, MaxS16, ShlI32, ShlI64, ShrI32, ShrI64, ShlI16, ShrI16, SarI32, ShlBytes, ShrBytes,
        UnpackLo8, UnpackLo16, UnpackLo32, UnpackLo64, UnpackHi8, UnpackHi16, UnpackHi32,
        UnpackHi64, PackU16, PackS32, Shuf32, ShufPd, ShufPs, CopyLo32, CopyLo64, FAdd32, FAdd64,
        FSub32, FSub64, FMul32, FMul64, FDiv32, FDiv64, FMin64, FMax64, FSqrt64, FCmp64,
    }
}

#[inline(always)]
fn ra(s: &CpuState, op: &Op) -> u64 {
    s.r[op.a as usize]
}
#[inline(always)]
fn rb(s: &CpuState, op: &Op) -> u64 {
    s.r[op.b as usize]
}
#[inline(always)]
fn rc(s: &CpuState, op: &Op) -> u64 {
    s.r[op.c as usize]
}
#[inline(always)]
fn va(s: &CpuState, op: &Op) -> u128 {
    s.v[(op.a & 127) as usize]
}
#[inline(always)]
fn vb(s: &CpuState, op: &Op) -> u128 {
    s.v[(op.b & 127) as usize]
}
#[inline(always)]
fn vc(s: &CpuState, op: &Op) -> u128 {
    s.v[(op.c & 127) as usize]
}
#[inline(always)]
fn vd<'a>(s: &'a mut CpuState, op: &Op) -> &'a mut u128 {
    &mut s.v[(op.d & 127) as usize]
}
#[inline(always)]
fn rd<'a>(s: &'a mut CpuState, op: &Op) -> &'a mut u64 {
    &mut s.r[op.d as usize]
}
/// Address a + imm.
#[inline(always)]
fn at(s: &CpuState, op: &Op) -> VirtAddr {
    VirtAddr::new(ra(s, op).wrapping_add(op.imm as u64))
}
/// Address a + (b << x) + imm.
#[inline(always)]
fn at_x(s: &CpuState, op: &Op) -> VirtAddr {
    let index = rb(s, op) << (op.x & 63);
    VirtAddr::new(ra(s, op).wrapping_add(index).wrapping_add(op.imm as u64))
}

/// `a` or `b` without a branch: guests use conditional selects where branches would be mispredicted.
#[inline(always)]
fn select(first: bool, a: u64, b: u64) -> u64 {
    let mask = u64::from(first).wrapping_neg();
    b ^ ((a ^ b) & mask)
}

fn rmw_value(op: RmwOp, old: u64, b: u64, bits: u32) -> u64 {
    let (so, sb) = (flags::sext(old, bits) as i64, flags::sext(b, bits) as i64);
    let m = u64::MAX >> (64 - bits);
    match op {
        RmwOp::Add => old.wrapping_add(b),
        RmwOp::And => old & b,
        RmwOp::Bic => old & !b,
        RmwOp::Or => old | b,
        RmwOp::Xor => old ^ b,
        RmwOp::Swap => b,
        RmwOp::MaxS => so.max(sb) as u64,
        RmwOp::MinS => so.min(sb) as u64,
        RmwOp::MaxU => (old & m).max(b & m),
        RmwOp::MinU => (old & m).min(b & m),
        RmwOp::Sub => old.wrapping_sub(b),
    }
}

/// One function per op code, named as the code.
#[allow(non_snake_case, clippy::allow_attributes, reason = "named as their op codes")]
#[allow(clippy::unnecessary_cast, clippy::cast_lossless, reason = "one macro for several widths")]
mod ops {
    use super::*;
    use crate::arm64::{float, lanes};
    use crate::vector;

    /// An op that computes `d` from the state and never leaves the block.
    macro_rules! value {
        ($($name:ident = |$s:ident, $op:ident| $e:expr;)*) => {$(
            #[inline(always)]
            pub(super) fn $name<B: Bus>(core: &mut Core<B::Fault>, _: &mut B, op: &Op) -> Flow {
                let value: u64 = {
                    let ($s, $op) = (&core.s, op);
                    $e
                };
                *rd(&mut core.s, op) = value;
                Flow::Next
            }
        )*};
    }
    /// An op with side effects on the state only.
    macro_rules! effect {
        ($($name:ident = |$s:ident, $op:ident| $e:expr;)*) => {$(
            #[inline(always)]
            pub(super) fn $name<B: Bus>(core: &mut Core<B::Fault>, _: &mut B, op: &Op) -> Flow {
                let ($s, $op) = (&mut core.s, op);
                $e;
                Flow::Next
            }
        )*};
    }
    /// Binary op in 32 and 64 bits.
    macro_rules! binary {
        ($($n32:ident $n64:ident = |$a:ident, $b:ident, $op:ident| $e:expr;)*) => {$(
            value! {
                $n32 = |s, $op| { let ($a, $b) = (ra(s, $op) as u32, rb(s, $op) as u32); u64::from(($e) as u32) };
                $n64 = |s, $op| { let ($a, $b) = (ra(s, $op), rb(s, $op)); ($e) as u64 };
            }
        )*};
    }
    /// Op on a and an immediate in 32 and 64 bits.
    macro_rules! immediate {
        ($($n32:ident $n64:ident = |$a:ident, $b:ident| $e:expr;)*) => {$(
            value! {
                $n32 = |s, op| { let ($a, $b) = (ra(s, op) as u32, op.imm as u32); u64::from(($e) as u32) };
                $n64 = |s, op| { let ($a, $b) = (ra(s, op), op.imm as u64); ($e) as u64 };
            }
        )*};
    }

    value! {
        MovI = |_s, op| op.imm as u64;
        Mov = |s, op| ra(s, op);
        Zext8 = |s, op| u64::from(ra(s, op) as u8);
        Zext16 = |s, op| u64::from(ra(s, op) as u16);
        Zext32 = |s, op| u64::from(ra(s, op) as u32);
        Sext8to32 = |s, op| u64::from(ra(s, op) as i8 as u32);
        Sext8to64 = |s, op| ra(s, op) as i8 as u64;
        Sext16to32 = |s, op| u64::from(ra(s, op) as i16 as u32);
        Sext16to64 = |s, op| ra(s, op) as i16 as u64;
        Sext32to64 = |s, op| ra(s, op) as i32 as u64;
        Ext8h = |s, op| (ra(s, op) >> 8) & 0xff;
        Ins8 = |s, op| (s.r[op.d as usize] & !0xff) | (ra(s, op) & 0xff);
        Ins8h = |s, op| (s.r[op.d as usize] & !0xff00) | ((ra(s, op) & 0xff) << 8);
        Ins16 = |s, op| (s.r[op.d as usize] & !0xffff) | (ra(s, op) & 0xffff);
    }
    binary! {
        Add32 Add64 = |a, b, _op| a.wrapping_add(b);
        Sub32 Sub64 = |a, b, _op| a.wrapping_sub(b);
        And32 And64 = |a, b, _op| a & b;
        Or32 Or64 = |a, b, _op| a | b;
        Xor32 Xor64 = |a, b, _op| a ^ b;
        Bic32 Bic64 = |a, b, _op| a & !b;
        Orn32 Orn64 = |a, b, _op| a | !b;
        Eon32 Eon64 = |a, b, _op| a ^ !b;
        Mul32 Mul64 = |a, b, _op| a.wrapping_mul(b);
        Shl32 Shl64 = |a, b, _op| a.wrapping_shl(b as u32);
        Shr32 Shr64 = |a, b, _op| a.wrapping_shr(b as u32);
        Sar32 Sar64 = |a, b, _op| a.cast_signed().wrapping_shr(b as u32);
        Ror32 Ror64 = |a, b, _op| a.rotate_right(b as u32);
        UDiv32 UDiv64 = |a, b, _op| a.checked_div(b).unwrap_or(0);
        SDiv32 SDiv64 = |a, b, _op| if b == 0 { 0 } else { a.cast_signed().wrapping_div(b.cast_signed()) };
        AddShl32 AddShl64 = |a, b, op| a.wrapping_add(b.wrapping_shl(u32::from(op.x))).wrapping_add(op.imm as _);
    }
    binary! {
        XorShl32 XorShl64 = |a, b, op| a ^ b.wrapping_shl(u32::from(op.x));
        XorShr32 XorShr64 = |a, b, op| a ^ b.wrapping_shr(u32::from(op.x));
        XorRor32 XorRor64 = |a, b, op| a ^ b.rotate_right(u32::from(op.x & 63));
        OrShl32 OrShl64 = |a, b, op| a | b.wrapping_shl(u32::from(op.x));
        OrShr32 OrShr64 = |a, b, op| a | b.wrapping_shr(u32::from(op.x));
        AddShr32 AddShr64 = |a, b, op| a.wrapping_add(b.wrapping_shr(u32::from(op.x)));
        AddSar32 AddSar64 = |a, b, op| a.wrapping_add(b.cast_signed().wrapping_shr(u32::from(op.x)).cast_unsigned());
        SubShl32 SubShl64 = |a, b, op| a.wrapping_sub(b.wrapping_shl(u32::from(op.x)));
        SubSar32 SubSar64 = |a, b, op| a.wrapping_sub(b.cast_signed().wrapping_shr(u32::from(op.x)).cast_unsigned());
    }
    value! {
        AddZext64 = |s, op| ra(s, op).wrapping_add(u64::from(rb(s, op) as u32) << (op.x & 63));
        AddSext64 = |s, op| ra(s, op).wrapping_add((rb(s, op) as i32 as u64) << (op.x & 63));
    }
    immediate! {
        AddI32 AddI64 = |a, b| a.wrapping_add(b);
        AndI32 AndI64 = |a, b| a & b;
        OrI32 OrI64 = |a, b| a | b;
        XorI32 XorI64 = |a, b| a ^ b;
        MulI32 MulI64 = |a, b| a.wrapping_mul(b);
        ShlI32 ShlI64 = |a, b| a.wrapping_shl(b as u32);
        ShrI32 ShrI64 = |a, b| a.wrapping_shr(b as u32);
        SarI32 SarI64 = |a, b| a.cast_signed().wrapping_shr(b as u32);
        RorI32 RorI64 = |a, b| a.rotate_right(b as u32 & 63);
        Neg32 Neg64 = |a, _b| a.wrapping_neg();
        Not32 Not64 = |a, _b| !a;
        Clz32 Clz64 = |a, _b| a.leading_zeros();
        Ctz32 Ctz64 = |a, _b| a.trailing_zeros();
        Rbit32 Rbit64 = |a, _b| a.reverse_bits();
        Bswap32 Bswap64 = |a, _b| a.swap_bytes();
        Cls32 Cls64 = |a, _b| (a ^ (a.cast_signed() >> 1).cast_unsigned()).leading_zeros() - 1;
    }
    value! {
        MulHiU64 = |s, op| ((u128::from(ra(s, op)) * u128::from(rb(s, op))) >> 64) as u64;
        MulHiS64 = |s, op| ((i128::from(ra(s, op) as i64) * i128::from(rb(s, op) as i64)) >> 64) as u64;
        MulLU = |s, op| u64::from(ra(s, op) as u32) * u64::from(rb(s, op) as u32);
        MulLS = |s, op| (i64::from(ra(s, op) as i32) * i64::from(rb(s, op) as i32)) as u64;
        MAdd32 = |s, op| u64::from((rc(s, op) as u32).wrapping_add((ra(s, op) as u32).wrapping_mul(rb(s, op) as u32)));
        MAdd64 = |s, op| rc(s, op).wrapping_add(ra(s, op).wrapping_mul(rb(s, op)));
        MSub32 = |s, op| u64::from((rc(s, op) as u32).wrapping_sub((ra(s, op) as u32).wrapping_mul(rb(s, op) as u32)));
        MSub64 = |s, op| rc(s, op).wrapping_sub(ra(s, op).wrapping_mul(rb(s, op)));
        Popcnt64 = |s, op| u64::from(ra(s, op).count_ones());
        Rev16x32 = |s, op| { let a = ra(s, op) as u32; u64::from((a & 0x00ff_00ff) << 8 | (a >> 8) & 0x00ff_00ff) };
        Rev16x64 = |s, op| { let a = ra(s, op); (a & 0x00ff_00ff_00ff_00ff) << 8 | (a >> 8) & 0x00ff_00ff_00ff_00ff };
        Rev32x64 = |s, op| ra(s, op).swap_bytes().rotate_left(32);
        RotMask32 = |s, op| u64::from((ra(s, op) as u32).rotate_right(u32::from(op.x)) & op.imm as u32);
        RotMask64 = |s, op| ra(s, op).rotate_right(u32::from(op.x)) & op.imm as u64;
        BfIns32 = |s, op| u64::from((rc(s, op) as u32 & !(op.imm as u32)) | ((ra(s, op) as u32).rotate_right(u32::from(op.x)) & op.imm as u32));
        BfIns64 = |s, op| (rc(s, op) & !(op.imm as u64)) | (ra(s, op).rotate_right(u32::from(op.x)) & op.imm as u64);
        Sbf32 = |s, op| u64::from((((ra(s, op) as u32) << (op.imm & 31)) as i32 >> (op.x & 31)) as u32);
        Sbf64 = |s, op| ((ra(s, op) << (op.imm & 63)) as i64 >> (op.x & 63)) as u64;
        Extr32 = |s, op| u64::from(((ra(s, op) << 32 | rb(s, op) & 0xffff_ffff) >> (op.x & 31)) as u32);
        Extr64 = |s, op| ((u128::from(ra(s, op)) << 64 | u128::from(rb(s, op))) >> (op.x & 63)) as u64;
        Carry = |s, _op| u64::from(flags::carry(s));
        GetStatus = |s, _op| flags::status(s);
        GetEflags = |s, _op| flags::eflags(s);
        GetNzcv = |s, _op| flags::nzcv(s);
        SetCond = |s, op| u64::from(flags::holds(s, Cond::from_raw(op.c)));
        Csel32 = |s, op| u64::from(select(flags::holds(s, Cond::from_raw(op.c)), ra(s, op), rb(s, op)) as u32);
        Csel64 = |s, op| select(flags::holds(s, Cond::from_raw(op.c)), ra(s, op), rb(s, op));
        SelZ32 = |s, op| u64::from(select(rc(s, op) as u32 == 0, ra(s, op), rb(s, op)) as u32);
        SelZ64 = |s, op| select(rc(s, op) == 0, ra(s, op), rb(s, op));
    }
    effect! {
        Cc = |s, op| s.set_cc(CcKind::from_raw(op.x), ra(s, op), rb(s, op), rc(s, op));
        CcI = |s, op| s.set_cc(CcKind::from_raw(op.x), ra(s, op), op.imm as u64, 0);
        CcIncDec = |s, op| { let c = u64::from(flags::carry(s)); s.set_cc(CcKind::from_raw(op.x), ra(s, op), 0, c) };
        CcShift = |s, op| if rb(s, op) != 0 { s.set_cc(CcKind::from_raw(op.x), ra(s, op), rb(s, op), 0) };
        CcIf = |s, op| if flags::holds(s, Cond::from_raw(op.c)) {
            s.set_cc(CcKind::from_raw(op.x), ra(s, op), rb(s, op), 0);
        } else {
            flags::set_nzcv(s, op.imm as u64);
        };
        CcRol = |s, op| if rb(s, op) | op.imm as u64 != 0 { flags::after_rotate(s, ra(s, op), op.x, flags::Rotate::Left) };
        CcRor = |s, op| if rb(s, op) | op.imm as u64 != 0 { flags::after_rotate(s, ra(s, op), op.x, flags::Rotate::Right) };
        CcBit = |s, op| flags::set_carry(s, (ra(s, op) >> (rb(s, op).wrapping_add(op.imm as u64) & (u64::from(op.x) - 1))) & 1 != 0);
        CcMulS = |s, op| flags::after_mul_signed(s, ra(s, op), rb(s, op).wrapping_add(op.imm as u64), op.x);
        CcMulU = |s, op| flags::after_mul_unsigned(s, ra(s, op), rb(s, op), op.x);
        CcZero = |s, op| {
            let zero = if ra(s, op) == 0 { flags::eflags::ZF } else { 0 };
            let carry = if op.x != 0 && rb(s, op) == 0 { flags::eflags::CF } else { 0 };
            s.set_cc(CcKind::Flags, zero | carry, 0, 0);
        };
        SetEflags = |s, op| flags::set_eflags(s, ra(s, op));
        Clrex = |s, _op| s.monitor.armed = false;
    }

    /// An op that ends the block one way or the other.
    macro_rules! branch {
        ($($name:ident = |$s:ident, $op:ident| $e:expr;)*) => {$(
            #[inline(always)]
            pub(super) fn $name<B: Bus>(core: &mut Core<B::Fault>, _: &mut B, op: &Op) -> Flow {
                let ($s, $op) = (&mut core.s, op);
                if $e { Flow::Link0 } else { Flow::Link1 }
            }
        )*};
    }
    branch! {
        Br = |s, op| flags::holds(s, Cond::from_raw(op.c));
        BrZ32 = |s, op| ra(s, op) as u32 == 0;
        BrZ64 = |s, op| ra(s, op) == 0;
        BrNz32 = |s, op| ra(s, op) as u32 != 0;
        BrNz64 = |s, op| ra(s, op) != 0;
        BrBit0 = |s, op| (ra(s, op) >> (op.x & 63)) & 1 == 0;
        BrBit1 = |s, op| (ra(s, op) >> (op.x & 63)) & 1 != 0;
    }
    macro_rules! compare_branch {
        ($($r32:ident $r64:ident $i32:ident $i64:ident = |$a:ident, $b:ident| $e:expr;)*) => {$(
            branch! {
                $r32 = |s, op| {
                    let (a, b) = (ra(s, op), rb(s, op));
                    s.set_cc(CcKind::from_raw(op.x), a, b, 0);
                    let ($a, $b) = (a as u32, b as u32);
                    $e
                };
                $r64 = |s, op| {
                    let ($a, $b) = (ra(s, op), rb(s, op));
                    s.set_cc(CcKind::from_raw(op.x), $a, $b, 0);
                    $e
                };
                $i32 = |s, op| {
                    let (a, b) = (ra(s, op), op.imm as u64);
                    s.set_cc(CcKind::from_raw(op.x), a, b, 0);
                    let ($a, $b) = (a as u32, b as u32);
                    $e
                };
                $i64 = |s, op| {
                    let ($a, $b) = (ra(s, op), op.imm as u64);
                    s.set_cc(CcKind::from_raw(op.x), $a, $b, 0);
                    $e
                };
            }
        )*};
    }
    macro_rules! compare_set {
        ($($r32:ident $r64:ident $i32:ident $i64:ident = |$a:ident, $b:ident| $e:expr;)*) => {
            value! { $(
                $r32 = |s, op| {
                    let ($a, $b) = ((ra(s, op) as u32) << (op.x & 31), (rb(s, op) as u32) << (op.x & 31));
                    u64::from($e)
                };
                $r64 = |s, op| { let ($a, $b) = (ra(s, op), rb(s, op)); u64::from($e) };
                $i32 = |s, op| {
                    let ($a, $b) = ((ra(s, op) as u32) << (op.x & 31), (op.imm as u32) << (op.x & 31));
                    u64::from($e)
                };
                $i64 = |s, op| { let ($a, $b) = (ra(s, op), op.imm as u64); u64::from($e) };
            )* }
        };
    }
    compare_set! {
        SetEq32 SetEq64 SetIEq32 SetIEq64 = |a, b| a == b;
        SetNe32 SetNe64 SetINe32 SetINe64 = |a, b| a != b;
        SetUlt32 SetUlt64 SetIUlt32 SetIUlt64 = |a, b| a < b;
        SetUge32 SetUge64 SetIUge32 SetIUge64 = |a, b| a >= b;
        SetUle32 SetUle64 SetIUle32 SetIUle64 = |a, b| a <= b;
        SetUgt32 SetUgt64 SetIUgt32 SetIUgt64 = |a, b| a > b;
        SetSlt32 SetSlt64 SetISlt32 SetISlt64 = |a, b| a.cast_signed() < b.cast_signed();
        SetSge32 SetSge64 SetISge32 SetISge64 = |a, b| a.cast_signed() >= b.cast_signed();
        SetSle32 SetSle64 SetISle32 SetISle64 = |a, b| a.cast_signed() <= b.cast_signed();
        SetSgt32 SetSgt64 SetISgt32 SetISgt64 = |a, b| a.cast_signed() > b.cast_signed();
    }
    /// The step of a fused loop end.
    #[inline(always)]
    fn step(s: &mut CpuState, op: &Op) {
        let d = rd(s, op);
        *d = d.wrapping_add(op.c as i8 as u64);
    }
    macro_rules! step_compare_branch {
        ($($step:ident $plain:ident;)*) => {$(
            #[inline(always)]
            pub(super) fn $step<B: Bus>(core: &mut Core<B::Fault>, bus: &mut B, op: &Op) -> Flow {
                step(&mut core.s, op);
                $plain(core, bus, op)
            }
        )*};
    }
    step_compare_branch! {
        StepCmpBrEq32 CmpBrEq32;
        StepCmpBrEq64 CmpBrEq64;
        StepCmpIBrEq32 CmpIBrEq32;
        StepCmpIBrEq64 CmpIBrEq64;
        StepCmpBrNe32 CmpBrNe32;
        StepCmpBrNe64 CmpBrNe64;
        StepCmpIBrNe32 CmpIBrNe32;
        StepCmpIBrNe64 CmpIBrNe64;
        StepCmpBrUlt32 CmpBrUlt32;
        StepCmpBrUlt64 CmpBrUlt64;
        StepCmpIBrUlt32 CmpIBrUlt32;
        StepCmpIBrUlt64 CmpIBrUlt64;
        StepCmpBrUge32 CmpBrUge32;
        StepCmpBrUge64 CmpBrUge64;
        StepCmpIBrUge32 CmpIBrUge32;
        StepCmpIBrUge64 CmpIBrUge64;
        StepCmpBrUle32 CmpBrUle32;
        StepCmpBrUle64 CmpBrUle64;
        StepCmpIBrUle32 CmpIBrUle32;
        StepCmpIBrUle64 CmpIBrUle64;
        StepCmpBrUgt32 CmpBrUgt32;
        StepCmpBrUgt64 CmpBrUgt64;
        StepCmpIBrUgt32 CmpIBrUgt32;
        StepCmpIBrUgt64 CmpIBrUgt64;
        StepCmpBrSlt32 CmpBrSlt32;
        StepCmpBrSlt64 CmpBrSlt64;
        StepCmpIBrSlt32 CmpIBrSlt32;
        StepCmpIBrSlt64 CmpIBrSlt64;
        StepCmpBrSge32 CmpBrSge32;
        StepCmpBrSge64 CmpBrSge64;
        StepCmpIBrSge32 CmpIBrSge32;
        StepCmpIBrSge64 CmpIBrSge64;
        StepCmpBrSle32 CmpBrSle32;
        StepCmpBrSle64 CmpBrSle64;
        StepCmpIBrSle32 CmpIBrSle32;
        StepCmpIBrSle64 CmpIBrSle64;
        StepCmpBrSgt32 CmpBrSgt32;
        StepCmpBrSgt64 CmpBrSgt64;
        StepCmpIBrSgt32 CmpIBrSgt32;
        StepCmpIBrSgt64 CmpIBrSgt64;
    }
    compare_branch! {
        CmpBrEq32 CmpBrEq64 CmpIBrEq32 CmpIBrEq64 = |a, b| a == b;
        CmpBrNe32 CmpBrNe64 CmpIBrNe32 CmpIBrNe64 = |a, b| a != b;
        CmpBrUlt32 CmpBrUlt64 CmpIBrUlt32 CmpIBrUlt64 = |a, b| a < b;
        CmpBrUge32 CmpBrUge64 CmpIBrUge32 CmpIBrUge64 = |a, b| a >= b;
        CmpBrUle32 CmpBrUle64 CmpIBrUle32 CmpIBrUle64 = |a, b| a <= b;
        CmpBrUgt32 CmpBrUgt64 CmpIBrUgt32 CmpIBrUgt64 = |a, b| a > b;
        CmpBrSlt32 CmpBrSlt64 CmpIBrSlt32 CmpIBrSlt64 = |a, b| a.cast_signed() < b.cast_signed();
        CmpBrSge32 CmpBrSge64 CmpIBrSge32 CmpIBrSge64 = |a, b| a.cast_signed() >= b.cast_signed();
        CmpBrSle32 CmpBrSle64 CmpIBrSle32 CmpIBrSle64 = |a, b| a.cast_signed() <= b.cast_signed();
        CmpBrSgt32 CmpBrSgt64 CmpIBrSgt32 CmpIBrSgt64 = |a, b| a.cast_signed() > b.cast_signed();
    }

    macro_rules! leave {
        ($($name:ident = |$core:ident, $op:ident| $e:expr;)*) => {$(
            #[inline(always)]
            pub(super) fn $name<B: Bus>($core: &mut Core<B::Fault>, _: &mut B, $op: &Op) -> Flow {
                $e
            }
        )*};
    }
    leave! {
        Nop = |_core, _op| Flow::Next;
        InsnStart = |_core, _op| Flow::Next;
        Fence = |_core, _op| Flow::Next;
        Jump = |_core, _op| Flow::Link0;
        JumpInd = |core, op| { core.s.pc = ra(&core.s, op); Flow::Indirect };
        Syscall = |core, op| { core.s.pc = op.imm as u64; Flow::Syscall };
        Undefined = |_core, _op| Flow::Undefined;
        Unsupported = |_core, _op| Flow::Unsupported;
        Breakpoint = |core, op| { core.s.pc = op.imm as u64; Flow::Breakpoint };
        CheckAlign = |core, op| if at(&core.s, op).get() & (u64::from(op.x) - 1) == 0 { Flow::Next } else { Flow::Misaligned };
        ICacheInv = |core, op| { core.icache = ra(&core.s, op); Flow::ICache };
    }

    macro_rules! load {
        ($($name:ident $indexed:ident: $t:ty => $($as:ty),+;)*) => {$(
            #[inline(always)]
            pub(super) fn $name<B: Bus>(core: &mut Core<B::Fault>, bus: &mut B, op: &Op) -> Flow {
                let value = access!(core, bus.load::<$t>(at(&core.s, op)));
                *rd(&mut core.s, op) = value $(as $as)+;
                Flow::Next
            }
            #[inline(always)]
            pub(super) fn $indexed<B: Bus>(core: &mut Core<B::Fault>, bus: &mut B, op: &Op) -> Flow {
                let value = access!(core, bus.load::<$t>(at_x(&core.s, op)));
                *rd(&mut core.s, op) = value $(as $as)+;
                Flow::Next
            }
        )*};
    }
    load! {
        LdU8 LdU8X: u8 => u64;
        LdU16 LdU16X: u16 => u64;
        LdU32 LdU32X: u32 => u64;
        Ld64 Ld64X: u64 => u64;
        LdS8to32 LdS8to32X: u8 => i8, u32, u64;
        LdS8to64 LdS8to64X: u8 => i8, u64;
        LdS16to32 LdS16to32X: u16 => i16, u32, u64;
        LdS16to64 LdS16to64X: u16 => i16, u64;
        LdS32to64 LdS32to64X: u32 => i32, u64;
    }
    macro_rules! post_indexed {
        ($($load:ident $store:ident: $t:ty;)*) => {$(
            #[inline(always)]
            pub(super) fn $load<B: Bus>(core: &mut Core<B::Fault>, bus: &mut B, op: &Op) -> Flow {
                let base = ra(&core.s, op);
                let value = access!(core, bus.load::<$t>(VirtAddr::new(base)));
                core.s.r[op.a as usize] = base.wrapping_add(op.imm as u64);
                *rd(&mut core.s, op) = value as u64;
                Flow::Next
            }
            #[inline(always)]
            pub(super) fn $store<B: Bus>(core: &mut Core<B::Fault>, bus: &mut B, op: &Op) -> Flow {
                let base = ra(&core.s, op);
                access!(core, bus.store::<$t>(VirtAddr::new(base), rc(&core.s, op) as $t));
                core.s.r[op.a as usize] = base.wrapping_add(op.imm as u64);
                Flow::Next
            }
        )*};
    }
    post_indexed! { LdU8P St8P: u8; LdU32P St32P: u32; Ld64P St64P: u64; }
    #[inline(always)]
    pub(super) fn VLd128P<B: Bus>(core: &mut Core<B::Fault>, bus: &mut B, op: &Op) -> Flow {
        let base = ra(&core.s, op);
        *vd(&mut core.s, op) = access!(core, bus.load::<u128>(VirtAddr::new(base)));
        core.s.r[op.a as usize] = base.wrapping_add(op.imm as u64);
        Flow::Next
    }
    #[inline(always)]
    pub(super) fn VSt128P<B: Bus>(core: &mut Core<B::Fault>, bus: &mut B, op: &Op) -> Flow {
        let base = ra(&core.s, op);
        access!(core, bus.store::<u128>(VirtAddr::new(base), vc(&core.s, op)));
        core.s.r[op.a as usize] = base.wrapping_add(op.imm as u64);
        Flow::Next
    }
    macro_rules! load_for_write {
        ($($name:ident: $t:ty;)*) => {$(
            #[inline(always)]
            pub(super) fn $name<B: Bus>(core: &mut Core<B::Fault>, bus: &mut B, op: &Op) -> Flow {
                let value = access!(core, bus.load_for_write::<$t>(at(&core.s, op)));
                *rd(&mut core.s, op) = value as u64;
                Flow::Next
            }
        )*};
    }
    load_for_write! { LdW8: u8; LdW16: u16; LdW32: u32; LdW64: u64; }
    macro_rules! store {
        ($($name:ident $indexed:ident: $t:ty;)*) => {$(
            #[inline(always)]
            pub(super) fn $name<B: Bus>(core: &mut Core<B::Fault>, bus: &mut B, op: &Op) -> Flow {
                access!(core, bus.store::<$t>(at(&core.s, op), rc(&core.s, op) as $t));
                Flow::Next
            }
            #[inline(always)]
            pub(super) fn $indexed<B: Bus>(core: &mut Core<B::Fault>, bus: &mut B, op: &Op) -> Flow {
                access!(core, bus.store::<$t>(at_x(&core.s, op), rc(&core.s, op) as $t));
                Flow::Next
            }
        )*};
    }
    store! { St8 St8X: u8; St16 St16X: u16; St32 St32X: u32; St64 St64X: u64; }

    macro_rules! atomic {
        ($($rmw:ident $cas:ident $ldex:ident $stex:ident: $t:ty;)*) => {$(
            pub(super) fn $rmw<B: Bus>(core: &mut Core<B::Fault>, bus: &mut B, op: &Op) -> Flow {
                let at = at(&core.s, op);
                let old = access!(core, bus.load_for_write::<$t>(at));
                let new = rmw_value(RmwOp::from_raw(op.x), old as u64, rb(&core.s, op), <$t>::BITS);
                access!(core, bus.store::<$t>(at, new as $t));
                *rd(&mut core.s, op) = old as u64;
                Flow::Next
            }
            pub(super) fn $cas<B: Bus>(core: &mut Core<B::Fault>, bus: &mut B, op: &Op) -> Flow {
                let at = at(&core.s, op);
                let old = access!(core, bus.load_for_write::<$t>(at));
                let new = if old == rc(&core.s, op) as $t { rb(&core.s, op) as $t } else { old };
                access!(core, bus.store::<$t>(at, new));
                *rd(&mut core.s, op) = old as u64;
                Flow::Next
            }
            pub(super) fn $ldex<B: Bus>(core: &mut Core<B::Fault>, bus: &mut B, op: &Op) -> Flow {
                let value = access!(core, load_exclusive::<B, $t>(core, bus, op));
                *rd(&mut core.s, op) = value as u64;
                Flow::Next
            }
            pub(super) fn $stex<B: Bus>(core: &mut Core<B::Fault>, bus: &mut B, op: &Op) -> Flow {
                let value = rb(&core.s, op) as $t;
                let status = access!(core, store_exclusive(core, bus, op, value));
                *rd(&mut core.s, op) = status;
                Flow::Next
            }
        )*};
    }
    atomic! {
        Rmw8 Cas8 LdEx8 StEx8: u8;
        Rmw16 Cas16 LdEx16 StEx16: u16;
        Rmw32 Cas32 LdEx32 StEx32: u32;
        Rmw64 Cas64 LdEx64 StEx64: u64;
    }

    fn load_exclusive<B: Bus, T: Scalar>(
        core: &mut Core<B::Fault>,
        bus: &mut B,
        op: &Op,
    ) -> Result<T, B::Fault> {
        let addr = at(&core.s, op);
        let value = bus.load::<T>(addr)?;
        let m = &mut core.s.monitor;
        (m.armed, m.bytes, m.addr, m.value) = (true, T::BYTES as u8, addr.get(), value.to_u128());
        Ok(value)
    }

    /// Stores if the reservation is held and memory still has the value that was loaded.
    fn store_exclusive<B: Bus, T: Scalar>(
        core: &mut Core<B::Fault>,
        bus: &mut B,
        op: &Op,
        value: T,
    ) -> Result<u64, B::Fault> {
        let addr = at(&core.s, op);
        let m = core.s.monitor;
        if !m.armed || m.addr != addr.get() || u32::from(m.bytes) != T::BYTES {
            core.s.monitor.armed = false;
            return Ok(1);
        }
        let now = bus.load_for_write::<T>(addr)?;
        if now.to_u128() == m.value {
            bus.store(addr, value)?;
        }
        core.s.monitor.armed = false;
        Ok(u64::from(now.to_u128() != m.value))
    }

    pub(super) fn LdExPair32<B: Bus>(core: &mut Core<B::Fault>, bus: &mut B, op: &Op) -> Flow {
        let value = access!(core, load_exclusive::<B, u64>(core, bus, op));
        *rd(&mut core.s, op) = u64::from(value as u32);
        core.s.r[op.b as usize] = value >> 32;
        Flow::Next
    }
    pub(super) fn LdExPair64<B: Bus>(core: &mut Core<B::Fault>, bus: &mut B, op: &Op) -> Flow {
        let value = access!(core, load_exclusive::<B, u128>(core, bus, op));
        *rd(&mut core.s, op) = value as u64;
        core.s.r[op.b as usize] = (value >> 64) as u64;
        Flow::Next
    }
    pub(super) fn StExPair32<B: Bus>(core: &mut Core<B::Fault>, bus: &mut B, op: &Op) -> Flow {
        let value = rb(&core.s, op) & 0xffff_ffff | rc(&core.s, op) << 32;
        let status = access!(core, store_exclusive::<B, u64>(core, bus, op, value));
        *rd(&mut core.s, op) = status;
        Flow::Next
    }
    pub(super) fn StExPair64<B: Bus>(core: &mut Core<B::Fault>, bus: &mut B, op: &Op) -> Flow {
        let value = u128::from(rb(&core.s, op)) | u128::from(rc(&core.s, op)) << 64;
        let status = access!(core, store_exclusive::<B, u128>(core, bus, op, value));
        *rd(&mut core.s, op) = status;
        Flow::Next
    }
    fn pair(s: &CpuState, first: u8) -> u128 {
        let second = s.r[first.wrapping_add(1) as usize];
        u128::from(s.r[first as usize]) | u128::from(second) << 64
    }
    pub(super) fn Cas128<B: Bus>(core: &mut Core<B::Fault>, bus: &mut B, op: &Op) -> Flow {
        let at = at(&core.s, op);
        let old = access!(core, bus.load_for_write::<u128>(at));
        let new = if old == pair(&core.s, op.c) { pair(&core.s, op.b) } else { old };
        access!(core, bus.store(at, new));
        core.s.r[op.d as usize] = old as u64;
        core.s.r[op.d.wrapping_add(1) as usize] = (old >> 64) as u64;
        Flow::Next
    }
    pub(super) fn CasPair32<B: Bus>(core: &mut Core<B::Fault>, bus: &mut B, op: &Op) -> Flow {
        let at = at(&core.s, op);
        let old = access!(core, bus.load_for_write::<u64>(at));
        let words = |s: &CpuState, first: u8| {
            let p = pair(s, first);
            (p as u64 & 0xffff_ffff) | ((p >> 64) as u64) << 32
        };
        let new = if old == words(&core.s, op.c) { words(&core.s, op.b) } else { old };
        access!(core, bus.store(at, new));
        core.s.r[op.d as usize] = u64::from(old as u32);
        core.s.r[op.d.wrapping_add(1) as usize] = old >> 32;
        Flow::Next
    }
    pub(super) fn ZeroQuads<B: Bus>(core: &mut Core<B::Fault>, bus: &mut B, op: &Op) -> Flow {
        let count = u64::from(op.x);
        let (done, result) = bus.fill::<u64>(at(&core.s, op), 0, count);
        bus.count_accesses(done as i64);
        access!(core, result);
        Flow::Next
    }
    pub(super) fn Counter<B: Bus>(core: &mut Core<B::Fault>, bus: &mut B, op: &Op) -> Flow {
        *rd(&mut core.s, op) = bus.counter(core.retired_nr);
        Flow::Next
    }
    pub(super) fn CounterHz<B: Bus>(core: &mut Core<B::Fault>, bus: &mut B, op: &Op) -> Flow {
        *rd(&mut core.s, op) = bus.counter_hz();
        Flow::Next
    }

    effect! {
        VMov = |s, op| *vd(s, op) = va(s, op);
        VMovI = |s, op| *vd(s, op) = u128::from(op.imm as u64);
        VDupI = |s, op| *vd(s, op) = u128::from(op.imm as u64) | u128::from(op.imm as u64) << 64;
        VFromR64 = |s, op| *vd(s, op) = u128::from(ra(s, op));
        VFromR32 = |s, op| *vd(s, op) = u128::from(ra(s, op) as u32);
    }
    macro_rules! vector_load {
        ($($name:ident: $t:ty, $at:ident;)*) => {$(
            #[inline(always)]
            pub(super) fn $name<B: Bus>(core: &mut Core<B::Fault>, bus: &mut B, op: &Op) -> Flow {
                *vd(&mut core.s, op) = access!(core, bus.load::<$t>($at(&core.s, op))) as u128;
                Flow::Next
            }
        )*};
    }
    macro_rules! vector_store {
        ($($name:ident: $t:ty, $at:ident;)*) => {$(
            #[inline(always)]
            pub(super) fn $name<B: Bus>(core: &mut Core<B::Fault>, bus: &mut B, op: &Op) -> Flow {
                access!(core, bus.store::<$t>($at(&core.s, op), vc(&core.s, op) as $t));
                Flow::Next
            }
        )*};
    }
    vector_load! {
        VLd128: u128, at; VLd64: u64, at; VLd32: u32, at; VLd16: u16, at; VLd8: u8, at;
        VLd128X: u128, at_x; VLd64X: u64, at_x; VLd32X: u32, at_x;
    }
    vector_store! {
        VSt128: u128, at; VSt64: u64, at; VSt32: u32, at; VSt16: u16, at; VSt8: u8, at;
        VSt128X: u128, at_x; VSt64X: u64, at_x; VSt32X: u32, at_x;
    }
    macro_rules! vector_aligned {
        ($($load:ident $store:ident: $at:ident;)*) => {$(
            #[inline(always)]
            pub(super) fn $load<B: Bus>(core: &mut Core<B::Fault>, bus: &mut B, op: &Op) -> Flow {
                let at = $at(&core.s, op);
                if at.get() & 15 != 0 {
                    return Flow::Misaligned;
                }
                *vd(&mut core.s, op) = access!(core, bus.load::<u128>(at));
                Flow::Next
            }
            #[inline(always)]
            pub(super) fn $store<B: Bus>(core: &mut Core<B::Fault>, bus: &mut B, op: &Op) -> Flow {
                let at = $at(&core.s, op);
                if at.get() & 15 != 0 {
                    return Flow::Misaligned;
                }
                access!(core, bus.store::<u128>(at, vc(&core.s, op)));
                Flow::Next
            }
        )*};
    }
    vector_aligned! { VLd128A VSt128A: at; VLd128AX VSt128AX: at_x; }
    macro_rules! lane {
        ($($get:ident $set:ident: $t:ty, $last:expr;)*) => {
            value! { $($get = |s, op| u64::from((va(s, op) >> (u32::from(op.x & $last) * <$t>::BITS)) as $t);)* }
            effect! { $($set = |s, op| {
                let shift = u32::from(op.x & $last) * <$t>::BITS;
                let value = u128::from(ra(s, op) as $t) << shift;
                let d = vd(s, op);
                *d = (*d & !(u128::from(<$t>::MAX) << shift)) | value;
            };)* }
        };
    }
    lane! { VGet64 VSet64: u64, 1; VGet32 VSet32: u32, 3; VGet16 VSet16: u16, 7; VGet8 VSet8: u8, 15; }

    effect! {
        Vec = |s, op| { let value = vector::vec(s, op, va(s, op), vb(s, op), 0); *vd(s, op) = value };
        VecAcc = |s, op| { let old = *vd(s, op); let value = vector::vec(s, op, va(s, op), vb(s, op), old); *vd(s, op) = value };
        VecToR = |s, op| { let value = vector::vec_to_r(s, op, va(s, op), vb(s, op)); *rd(s, op) = value };
        VecFromR = |s, op| { let value = vector::vec_from_r(s, op, va(s, op), rb(s, op)); *vd(s, op) = value };
        VecCc = |s, op| vector::vec_cc(s, op, va(s, op), vb(s, op));
    }
    macro_rules! scalar_fp {
        ($($name:ident: $bits:ty, $f:path;)*) => {
            effect! { $($name = |s, op| {
                let (a, b) = (va(s, op), vb(s, op));
                let r = $f(a as $bits, b as $bits, vector::nan_rule(op.x));
                let keep = if op.c == 0 { a & !u128::from(<$bits>::MAX) } else { 0 };
                *vd(s, op) = keep | u128::from(r);
            };)* }
        };
    }
    scalar_fp! {
        FAdd64: u64, crate::fp::add64; FSub64: u64, crate::fp::sub64;
        FMul64: u64, crate::fp::mul64; FDiv64: u64, crate::fp::div64;
        FAdd32: u32, crate::fp::add32; FSub32: u32, crate::fp::sub32;
        FMul32: u32, crate::fp::mul32; FDiv32: u32, crate::fp::div32;
    }

    /// The result of a vector op, without its high half if `c` says so.
    #[inline(always)]
    fn halved(op: &Op, value: u128) -> u128 {
        if op.c == 0 { value } else { value & u128::from(u64::MAX) }
    }
    effect! {
        VAnd = |s, op| *vd(s, op) = halved(op, va(s, op) & vb(s, op));
        VOr = |s, op| *vd(s, op) = halved(op, va(s, op) | vb(s, op));
        VXor = |s, op| *vd(s, op) = halved(op, va(s, op) ^ vb(s, op));
        VBic = |s, op| *vd(s, op) = halved(op, va(s, op) & !vb(s, op));
        VBsl = |s, op| { let (a, b) = (va(s, op), vb(s, op)); let d = vd(s, op); *d = halved(op, (*d & a) | (!*d & b)) };
        VBit = |s, op| { let (a, b) = (va(s, op), vb(s, op)); let d = vd(s, op); *d = halved(op, (*d & !b) | (a & b)) };
        VBif = |s, op| { let (a, b) = (va(s, op), vb(s, op)); let d = vd(s, op); *d = halved(op, (*d & b) | (a & !b)) };
        VUmaxp8 = |s, op| *vd(s, op) = lanes::neighbours(va(s, op), vb(s, op), u8::max);
        VAddp8 = |s, op| *vd(s, op) = lanes::neighbours(va(s, op), vb(s, op), u8::wrapping_add);
        VShrn8 = |s, op| *vd(s, op) = lanes::narrow_bytes(va(s, op), op.imm as u32);
        VDup8 = |s, op| *vd(s, op) = halved(op, lanes::splat(0, ra(s, op)));
        VDup32 = |s, op| *vd(s, op) = halved(op, lanes::splat(2, ra(s, op)));
        VDup64 = |s, op| *vd(s, op) = halved(op, lanes::splat(3, ra(s, op)));
        VLow32 = |s, op| *vd(s, op) = va(s, op) & u128::from(u32::MAX);
        VLow64 = |s, op| *vd(s, op) = va(s, op) & u128::from(u64::MAX);
    }
    macro_rules! lanes2 {
        ($($name:ident: $t:ty, |$x:ident, $y:ident| $e:expr;)*) => {
            effect! { $($name = |s, op| {
                let value = lanes::map2::<$t>(va(s, op), vb(s, op), |$x, $y| $e);
                *vd(s, op) = halved(op, value);
            };)* }
        };
    }
    lanes2! {
        VAdd8: u8, |x, y| x.wrapping_add(y);
        VAdd16: u16, |x, y| x.wrapping_add(y);
        VAdd32: u32, |x, y| x.wrapping_add(y);
        VAdd64: u64, |x, y| x.wrapping_add(y);
        VSub8: u8, |x, y| x.wrapping_sub(y);
        VSub16: u16, |x, y| x.wrapping_sub(y);
        VSub32: u32, |x, y| x.wrapping_sub(y);
        VSub64: u64, |x, y| x.wrapping_sub(y);
        VMul16: u16, |x, y| x.wrapping_mul(y);
        VMul32: u32, |x, y| x.wrapping_mul(y);
        VCmeq8: u8, |x, y| if x == y { !0 } else { 0 };
        VCmeq16: u16, |x, y| if x == y { !0 } else { 0 };
        VCmeq32: u32, |x, y| if x == y { !0 } else { 0 };
        VCmhi8: u8, |x, y| if x > y { !0 } else { 0 };
        VCmhs8: u8, |x, y| if x >= y { !0 } else { 0 };
        VUmax8: u8, |x, y| x.max(y);
        VUmin8: u8, |x, y| x.min(y);
    }
    macro_rules! lanes1 {
        ($($name:ident: $t:ty, |$x:ident, $n:ident| $e:expr;)*) => {
            effect! { $($name = |s, op| {
                let $n = op.imm as u32;
                let value = lanes::map1::<$t>(va(s, op), |$x| $e);
                *vd(s, op) = halved(op, value);
            };)* }
        };
    }
    lanes1! {
        VCmeqZ8: u8, |x, _n| if x == 0 { !0 } else { 0 };
        VShlI16: u16, |x, n| x.wrapping_shl(n);
        VShlI32: u32, |x, n| x.wrapping_shl(n);
        VShlI64: u64, |x, n| x.wrapping_shl(n);
        VShrI8: u8, |x, n| x.checked_shr(n).unwrap_or(0);
        VShrI16: u16, |x, n| x.checked_shr(n).unwrap_or(0);
        VShrI32: u32, |x, n| x.checked_shr(n).unwrap_or(0);
        VShrI64: u64, |x, n| x.checked_shr(n).unwrap_or(0);
        VSarI16: u16, |x, n| (x.cast_signed() >> n.min(15)).cast_unsigned();
        VSarI32: u32, |x, n| (x.cast_signed() >> n.min(31)).cast_unsigned();
    }
    macro_rules! lengthen {
        ($($name:ident: $narrow:ty => $wide:ty, $($as:ty),*;)*) => {
            effect! { $($name = |s, op| {
                let (a, n) = (va(s, op) >> (64 * u32::from(op.x & 1)), op.imm as u32);
                *vd(s, op) = lanes::build::<$wide>(|i| {
                    (lanes::get::<$narrow>(a, i) $(as $as)*).wrapping_shl(n)
                });
            };)* }
        };
    }
    lengthen! {
        VUshll8: u8 => u16, u16; VUshll16: u16 => u32, u32; VUshll32: u32 => u64, u64;
        VSshll8: u8 => u16, i8, i16, u16; VSshll16: u16 => u32, i16, i32, u32;
        VSshll32: u32 => u64, i32, i64, u64;
    }
    macro_rules! fp_lanes {
        ($($name:ident: $t:ty, |$d:ident, $x:ident, $y:ident| $e:expr;)*) => {
            effect! { $($name = |s, op| {
                let (a, b, d) = (va(s, op), vb(s, op), *vd(s, op));
                let lanes = (if op.c == 0 { 128 } else { 64 }) / <$t>::BITS;
                let mut value = 0;
                for i in 0..lanes {
                    let at = i * <$t>::BITS;
                    let ($d, $x, $y) = ((d >> at) as $t, (a >> at) as $t, (b >> at) as $t);
                    value |= u128::from($e) << at;
                }
                *vd(s, op) = value;
            };)* }
        };
    }
    fp_lanes! {
        VFAdd32: u32, |_d, x, y| crate::fp::add32(x, y, crate::fp::NanRule::Arm);
        VFAdd64: u64, |_d, x, y| crate::fp::add64(x, y, crate::fp::NanRule::Arm);
        VFSub32: u32, |_d, x, y| crate::fp::sub32(x, y, crate::fp::NanRule::Arm);
        VFSub64: u64, |_d, x, y| crate::fp::sub64(x, y, crate::fp::NanRule::Arm);
        VFMul32: u32, |_d, x, y| crate::fp::mul32(x, y, crate::fp::NanRule::Arm);
        VFMul64: u64, |_d, x, y| crate::fp::mul64(x, y, crate::fp::NanRule::Arm);
        VFMla32: u32, |d, x, y| float::fma(d, x, y);
        VFMla64: u64, |d, x, y| float::fma(d, x, y);
    }
    effect! {
        FMAdd32 = |s, op| *vd(s, op) = u128::from(float::fma(vc(s, op) as u32, va(s, op) as u32, vb(s, op) as u32));
        FMSub32 = |s, op| *vd(s, op) = u128::from(float::fma(vc(s, op) as u32, va(s, op) as u32 ^ 1 << 31, vb(s, op) as u32));
        FCmpArm32 = |s, op| s.set_cc(CcKind::Nzcv, float::compare_flags(va(s, op) as u32, vb(s, op) as u32), 0, 0);
        FMAdd64 = |s, op| *vd(s, op) = u128::from(float::fma(vc(s, op) as u64, va(s, op) as u64, vb(s, op) as u64));
        FMSub64 = |s, op| *vd(s, op) = u128::from(float::fma(vc(s, op) as u64, va(s, op) as u64 ^ 1 << 63, vb(s, op) as u64));
        FCmpArm64 = |s, op| s.set_cc(CcKind::Nzcv, float::compare_flags(va(s, op) as u64, vb(s, op) as u64), 0, 0);
    }

    pub(super) fn X86<B: Bus>(core: &mut Core<B::Fault>, bus: &mut B, op: &Op) -> Flow {
        crate::x86_64::helper(core, bus, op)
    }
    pub(super) fn A64<B: Bus>(core: &mut Core<B::Fault>, bus: &mut B, op: &Op) -> Flow {
        crate::arm64::helper(core, bus, op)
    }
}
