//! Floating-point lanes and scalars.

use super::{A64Op, Q, SCALAR, active};
use super::{CcKind, Cond, CpuState, Float, Flow, Op, Round, Sign, flags, float};

/// Lanes of `v` as floats, at most four.
fn lane<F: Float>(v: u128, i: usize) -> F {
    F::of((v >> (i as u32 * F::BITS)) as u64)
}

/// The value whose first `n` lanes are `f(i)`, the rest zero.
#[inline(always)]
fn build<F: Float>(n: usize, f: impl Fn(usize) -> F) -> u128 {
    (0..n).fold(0, |r, i| r | u128::from(f(i).lane()) << (i as u32 * F::BITS))
}

fn mask<F: Float>(on: bool) -> F {
    F::of(if on { u64::MAX } else { 0 })
}

/// Rounding and signedness of the conversions to integers.
fn conversion(id: A64Op) -> Option<(Round, Sign)> {
    use A64Op as O;
    Some(match id {
        O::FcvtnsV | O::FcvtnsR => (Round::Nearest, Sign::Signed),
        O::FcvtnuV | O::FcvtnuR => (Round::Nearest, Sign::Unsigned),
        O::FcvtpsV | O::FcvtpsR => (Round::Up, Sign::Signed),
        O::FcvtpuV | O::FcvtpuR => (Round::Up, Sign::Unsigned),
        O::FcvtmsV | O::FcvtmsR => (Round::Down, Sign::Signed),
        O::FcvtmuV | O::FcvtmuR => (Round::Down, Sign::Unsigned),
        O::FcvtzsV | O::FcvtzsR => (Round::Zero, Sign::Signed),
        O::FcvtzuV | O::FcvtzuR => (Round::Zero, Sign::Unsigned),
        O::FcvtasV | O::FcvtasR => (Round::Away, Sign::Signed),
        O::FcvtauV | O::FcvtauR => (Round::Away, Sign::Unsigned),
        _ => return None,
    })
}

/// Executes an op on lanes of `F`.
pub(super) fn exec<F: Float>(s: &mut CpuState, op: &Op, id: A64Op) -> Flow {
    use A64Op as O;
    let (a, b) = (s.v[usize::from(op.a & 127)], s.v[usize::from(op.b & 127)]);
    let d = s.v[usize::from(op.d & 127)];
    let bytes = F::BITS / 8;
    let n =
        if op.x & SCALAR != 0 { 1 } else { (if op.x & Q != 0 { 16 } else { 8 }) / bytes as usize };
    let one = |f: &dyn Fn(F) -> F| build(n, |i| f(lane(a, i)));
    let two = |f: &dyn Fn(F, F) -> F| build(n, |i| f(lane(a, i), lane(b, i)));
    let compare = |f: &dyn Fn(F, F) -> bool| build(n, |i| mask::<F>(f(lane(a, i), lane(b, i))));
    let zero = F::of(0);
    let compare0 = |f: &dyn Fn(F, F) -> bool| build(n, |i| mask::<F>(f(lane(a, i), zero)));
    let value = match id {
        O::Fadd => build(n, |i| lane::<F>(a, i).add(lane(b, i))),
        O::Fsub => build(n, |i| lane::<F>(a, i).sub(lane(b, i))),
        O::Fmul => build(n, |i| lane::<F>(a, i).mul(lane(b, i))),
        O::Fdiv => build(n, |i| lane::<F>(a, i).div(lane(b, i))),
        O::Fmla => build(n, |i| float::fma::<F>(lane(d, i), lane(a, i), lane(b, i))),
        O::Fmls => build(n, |i| float::fma::<F>(lane(d, i), lane::<F>(a, i).negated(), lane(b, i))),
        O::Fnmadd | O::Fnmsub => multiply_add::<F>(s, op, id),
        O::Fmax => two(&float::max),
        O::Fmin => two(&float::min),
        O::Fmaxnm => two(&float::maxnm),
        O::Fminnm => two(&float::minnm),
        O::Fmulx => two(&float::mulx),
        O::Fnmul => two(&|x, y| x.mul(y).negated()),
        O::Fabd => two(&|x, y| x.sub(y).absolute()),
        O::Frecps => two(&float::recps),
        O::Frsqrts => two(&float::rsqrts),
        O::Fcmeq => compare(&|x, y| x.compare(y).is_some_and(|o| o.is_eq())),
        O::Fcmge => compare(&|x, y| x.compare(y).is_some_and(|o| o.is_ge())),
        O::Fcmgt => compare(&|x, y| x.compare(y).is_some_and(|o| o.is_gt())),
        O::Facge => compare(&|x, y| x.absolute().compare(y.absolute()).is_some_and(|o| o.is_ge())),
        O::Facgt => compare(&|x, y| x.absolute().compare(y.absolute()).is_some_and(|o| o.is_gt())),
        O::Fcmeq0 => compare0(&|x, y| x.compare(y).is_some_and(|o| o.is_eq())),
        O::Fcmge0 => compare0(&|x, y| x.compare(y).is_some_and(|o| o.is_ge())),
        O::Fcmgt0 => compare0(&|x, y| x.compare(y).is_some_and(|o| o.is_gt())),
        O::Fcmle0 => compare0(&|x, y| x.compare(y).is_some_and(|o| o.is_le())),
        O::Fcmlt0 => compare0(&|x, y| x.compare(y).is_some_and(|o| o.is_lt())),
        O::Fabs => one(&|x| x.absolute()),
        O::Fneg => one(&|x| x.negated()),
        O::Fsqrt => one(&|x| x.sqrt()),
        O::Frintn => one(&|x| x.round(Round::Nearest)),
        O::Frintp => one(&|x| x.round(Round::Up)),
        O::Frintm => one(&|x| x.round(Round::Down)),
        O::Frintz => one(&|x| x.round(Round::Zero)),
        O::Frinta => one(&|x| x.round(Round::Away)),
        O::Frecpe => one(&float::recip),
        O::Frsqrte => one(&float::rsqrt),
        O::Frecpx => one(&float::recpx),
        O::Urecpe => build(n, |i| F::of(u64::from(float::unsigned_recip(lane::<u32>(a, i))))),
        O::Ursqrte => build(n, |i| F::of(u64::from(float::unsigned_rsqrt(lane::<u32>(a, i))))),
        O::Faddp | O::Fmaxp | O::Fminp | O::Fmaxnmp | O::Fminnmp => pairwise::<F>(op, id, a, b, n),
        O::Fmaxv | O::Fminv | O::Fmaxnmv | O::Fminnmv => across::<F>(id, a),
        O::ScvtfV | O::UcvtfV => {
            let sign = if id == O::ScvtfV { Sign::Signed } else { Sign::Unsigned };
            let fraction = op.imm as u32;
            build(n, |i| {
                float::from_int::<F>(lane::<F>(a, i).lane(), sign, F::BITS == 64, fraction)
            })
        }
        O::ScvtfR | O::UcvtfR => {
            let sign = if id == O::ScvtfR { Sign::Signed } else { Sign::Unsigned };
            let from = s.r[usize::from(op.a)];
            let value: F = float::from_int(from, sign, op.x & Q != 0, op.imm as u32);
            u128::from(value.lane())
        }
        O::FcvtnsR
        | O::FcvtnuR
        | O::FcvtpsR
        | O::FcvtpuR
        | O::FcvtmsR
        | O::FcvtmuR
        | O::FcvtzsR
        | O::FcvtzuR
        | O::FcvtasR
        | O::FcvtauR => {
            let Some((mode, sign)) = conversion(id) else { return Flow::Unsupported };
            let value = float::to_int::<F>(lane(a, 0), mode, sign, op.x & Q != 0, op.imm as u32);
            s.r[usize::from(op.d)] = value;
            return Flow::Next;
        }
        O::Fcmp => {
            s.set_cc(CcKind::Nzcv, float::compare_flags::<F>(lane(a, 0), zero), 0, 0);
            return Flow::Next;
        }
        O::Fccmp => {
            let flags = if flags::holds(s, Cond::from_raw(op.c)) {
                float::compare_flags::<F>(lane(a, 0), lane(b, 0))
            } else {
                op.imm as u64
            };
            s.set_cc(CcKind::Nzcv, flags, 0, 0);
            return Flow::Next;
        }
        O::Fcsel => {
            let chosen = if flags::holds(s, Cond::from_raw(op.c)) { a } else { b };
            u128::from(lane::<F>(chosen, 0).lane())
        }
        _ => {
            let Some((mode, sign)) = conversion(id) else { return Flow::Unsupported };
            let fraction = op.imm as u32;
            build(n, |i| F::of(float::to_int::<F>(lane(a, i), mode, sign, F::BITS == 64, fraction)))
        }
    };
    s.v[usize::from(op.d & 127)] = value;
    Flow::Next
}

/// `FNMADD` and `FNMSUB`; c is the addend.
fn multiply_add<F: Float>(s: &CpuState, op: &Op, id: A64Op) -> u128 {
    use A64Op as O;
    let at = |slot: u8| lane::<F>(s.v[usize::from(slot & 127)], 0);
    let (mut a, b, mut c) = (at(op.a), at(op.b), at(op.c));
    if id == O::Fnmadd {
        a = a.negated();
    }
    c = c.negated();
    u128::from(float::fma(c, a, b).lane())
}

/// Adjacent lanes combined; the scalar form combines the two lanes of `a`.
fn pairwise<F: Float>(op: &Op, id: A64Op, a: u128, b: u128, n: usize) -> u128 {
    use A64Op as O;
    let f = match id {
        O::Faddp => F::add,
        O::Fmaxp => float::max,
        O::Fminp => float::min,
        O::Fmaxnmp => float::maxnm,
        _ => float::minnm,
    };
    if op.x & SCALAR != 0 {
        return u128::from(f(lane(a, 0), lane(a, 1)).lane());
    }
    build(n, |i| {
        let (from, at) = if i < n / 2 { (a, 2 * i) } else { (b, 2 * i - n) };
        f(lane(from, at), lane(from, at + 1))
    })
}

/// The four singles of `a` reduced to one, as a tree.
fn across<F: Float>(id: A64Op, a: u128) -> u128 {
    use A64Op as O;
    let f = match id {
        O::Fmaxv => float::max,
        O::Fminv => float::min,
        O::Fmaxnmv => float::maxnm,
        _ => float::minnm::<F>,
    };
    let low = f(lane(a, 0), lane(a, 1));
    let high = f(lane(a, 2), lane(a, 3));
    u128::from(f(low, high).lane())
}

const _: () = assert!(active(2, SCALAR) == 0xffff_ffff && active(3, 0) == u64::MAX as u128);
