//! Lanes of a 128-bit value: taking apart, putting together, and mapping.

/// An unsigned lane type.
pub(crate) trait Lane: Copy + Ord {
    /// The signed type of the same width.
    type Signed: Copy + Ord;
    /// Width.
    const BITS: u32;
    /// Lanes in 128 bits.
    const N: usize;
    /// All bits set.
    const ONES: Self;
    /// No bit set.
    const ZERO: Self;
    fn get(bytes: &[u8; 16], i: usize) -> Self;
    fn put(self, bytes: &mut [u8; 16], i: usize);
    fn signed(self) -> Self::Signed;
    fn wrapping_add(self, b: Self) -> Self;
    fn wrapping_sub(self, b: Self) -> Self;
    fn wrapping_mul(self, b: Self) -> Self;
    fn and(self, b: Self) -> Self;
    fn or(self, b: Self) -> Self;
    fn inverted(self) -> Self;
    /// Shifted left; zero if `n` is the width.
    fn shl(self, n: u32) -> Self;
    /// Shifted right; zero if `n` is the width.
    fn shr(self, n: u32) -> Self;
    /// Shifted right arithmetically; `n` may be the width.
    fn shr_signed(self, n: u32) -> Self;
    /// The low bit alone.
    fn low_bit(self) -> Self;
    fn leading_zeros(self) -> u32;
    fn leading_signs(self) -> u32;
    /// Sign-extended.
    fn wide_s(self) -> i128;
    /// Zero-extended.
    fn wide_u(self) -> i128;
    /// The low bits.
    fn wrap(value: i128) -> Self;
}

macro_rules! lane {
    ($($t:ty, $s:ty;)*) => {$(
        impl Lane for $t {
            type Signed = $s;
            const BITS: u32 = <$t>::BITS;
            const N: usize = 128 / <$t>::BITS as usize;
            const ONES: Self = <$t>::MAX;
            const ZERO: Self = 0;
            #[inline(always)]
            fn get(bytes: &[u8; 16], i: usize) -> Self {
                const BYTES: usize = size_of::<$t>();
                let at = i * BYTES;
                match bytes.get(at..at + BYTES).and_then(|b| b.first_chunk()) {
                    Some(chunk) => <$t>::from_le_bytes(*chunk),
                    None => 0,
                }
            }
            #[inline(always)]
            fn put(self, bytes: &mut [u8; 16], i: usize) {
                const BYTES: usize = size_of::<$t>();
                let at = i * BYTES;
                if let Some(b) = bytes.get_mut(at..at + BYTES) {
                    b.copy_from_slice(&self.to_le_bytes());
                }
            }
            #[inline(always)]
            fn signed(self) -> $s {
                self.cast_signed()
            }
            #[inline(always)]
            fn wrapping_add(self, b: Self) -> Self {
                self.wrapping_add(b)
            }
            #[inline(always)]
            fn wrapping_sub(self, b: Self) -> Self {
                self.wrapping_sub(b)
            }
            #[inline(always)]
            fn wrapping_mul(self, b: Self) -> Self {
                self.wrapping_mul(b)
            }
            #[inline(always)]
            fn and(self, b: Self) -> Self {
                self & b
            }
            #[inline(always)]
            fn or(self, b: Self) -> Self {
                self | b
            }
            #[inline(always)]
            fn inverted(self) -> Self {
                !self
            }
            #[inline(always)]
            fn shl(self, n: u32) -> Self {
                self.checked_shl(n).unwrap_or(0)
            }
            #[inline(always)]
            fn shr(self, n: u32) -> Self {
                self.checked_shr(n).unwrap_or(0)
            }
            #[inline(always)]
            fn shr_signed(self, n: u32) -> Self {
                (self.cast_signed() >> n.min(<$t>::BITS - 1)).cast_unsigned()
            }
            #[inline(always)]
            fn low_bit(self) -> Self {
                self & 1
            }
            fn leading_zeros(self) -> u32 {
                self.leading_zeros()
            }
            fn leading_signs(self) -> u32 {
                let s = self.cast_signed();
                (s ^ (s >> (<$t>::BITS - 1))).leading_zeros() - 1
            }
            #[inline(always)]
            fn wide_s(self) -> i128 {
                i128::from(self.cast_signed())
            }
            #[inline(always)]
            fn wide_u(self) -> i128 {
                i128::from(self)
            }
            #[inline(always)]
            fn wrap(value: i128) -> Self {
                value as $t
            }
        }
    )*};
}
lane! { u8, i8; u16, i16; u32, i32; u64, i64; }

/// Binds `$t` to the lane type of a size (0 to 3) in `$e`.
macro_rules! by_size {
    ($size:expr, $t:ident => $e:expr) => {
        match $size & 3 {
            0 => {
                type $t = u8;
                $e
            }
            1 => {
                type $t = u16;
                $e
            }
            2 => {
                type $t = u32;
                $e
            }
            _ => {
                type $t = u64;
                $e
            }
        }
    };
}
pub(super) use by_size;

/// Lane `i` of `v`.
#[inline(always)]
pub(crate) fn get<T: Lane>(v: u128, i: usize) -> T {
    T::get(&v.to_le_bytes(), i)
}

/// The value whose lane `i` is `f(i)`.
#[inline(always)]
pub(crate) fn build<T: Lane>(mut f: impl FnMut(usize) -> T) -> u128 {
    let mut r = [0u8; 16];
    for i in 0..T::N {
        f(i).put(&mut r, i);
    }
    u128::from_le_bytes(r)
}

/// Each lane of `a` mapped.
#[inline(always)]
pub(crate) fn map1<T: Lane>(a: u128, mut f: impl FnMut(T) -> T) -> u128 {
    let a = a.to_le_bytes();
    build(|i| f(T::get(&a, i)))
}

/// Lanes of `a` and `b` combined.
#[inline(always)]
pub(crate) fn map2<T: Lane>(a: u128, b: u128, mut f: impl FnMut(T, T) -> T) -> u128 {
    let (a, b) = (a.to_le_bytes(), b.to_le_bytes());
    build(|i| f(T::get(&a, i), T::get(&b, i)))
}

/// Lanes of `c`, `a` and `b` combined.
#[inline(always)]
pub(crate) fn map3<T: Lane>(c: u128, a: u128, b: u128, mut f: impl FnMut(T, T, T) -> T) -> u128 {
    let (a, b, c) = (a.to_le_bytes(), b.to_le_bytes(), c.to_le_bytes());
    build(|i| f(T::get(&c, i), T::get(&a, i), T::get(&b, i)))
}

/// A lane as all ones or all zeros.
#[inline(always)]
pub(crate) fn mask<T: Lane>(on: bool) -> T {
    if on { T::ONES } else { T::ZERO }
}

/// Adjacent bytes of `a`, then of `b`, combined.
#[inline(always)]
pub(crate) fn neighbours(a: u128, b: u128, f: impl Fn(u8, u8) -> u8) -> u128 {
    let (a, b) = (a.to_le_bytes(), b.to_le_bytes());
    let mut r = [0u8; 16];
    for i in 0..8 {
        r[i] = f(a[2 * i], a[2 * i + 1]);
        r[8 + i] = f(b[2 * i], b[2 * i + 1]);
    }
    u128::from_le_bytes(r)
}

/// The low bytes of 16-bit lanes shifted right by `n`, in the low half.
#[inline(always)]
pub(crate) fn narrow_bytes(a: u128, n: u32) -> u128 {
    build::<u8>(|i| if i < 8 { (get::<u16>(a, i) >> (n & 15)) as u8 } else { 0 })
}

/// Every lane the low bits of `value`.
#[inline(always)]
pub(crate) fn splat(size: u8, value: u64) -> u128 {
    let half = match size & 3 {
        0 => (value & 0xff) * 0x0101_0101_0101_0101,
        1 => (value & 0xffff) * 0x0001_0001_0001_0001,
        2 => (value & 0xffff_ffff) * 0x0000_0001_0000_0001,
        _ => value,
    };
    u128::from(half) | u128::from(half) << 64
}

/// Whether lanes are read as signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// Sign-extended.
    Signed,
    /// Zero-extended.
    Unsigned,
}

impl Read {
    /// The value of a lane.
    #[inline(always)]
    pub(crate) fn lane<T: Lane>(self, v: T) -> i128 {
        match self {
            Read::Signed => v.wide_s(),
            Read::Unsigned => v.wide_u(),
        }
    }
    /// Lane `i` of `v`, of a size given at run time.
    #[inline(always)]
    pub(crate) fn at(self, v: u128, size: u8, i: usize) -> i128 {
        by_size!(size, T => self.lane::<T>(get(v, i)))
    }
}

/// Clamps to the range of a lane; tells `saturated` when that changed the value.
pub(crate) fn saturate<T: Lane>(value: i128, range: Read, saturated: &mut bool) -> T {
    let (low, high) = match range {
        Read::Signed => (-(1i128 << (T::BITS - 1)), (1i128 << (T::BITS - 1)) - 1),
        Read::Unsigned => (0, (1i128 << T::BITS) - 1),
    };
    let clamped = value.clamp(low, high);
    *saturated |= clamped != value;
    T::wrap(clamped)
}
