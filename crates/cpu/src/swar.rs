//! 8- and 16-bit vector lanes inside 64-bit words: the host compiler does not vectorise our 128-bit
//! values, and these operations are what string functions consist of.

/// The top bits of 8-bit lanes.
pub(crate) const H8: u64 = 0x8080_8080_8080_8080;
/// The top bits of 16-bit lanes.
pub(crate) const H16: u64 = 0x8000_8000_8000_8000;

/// Both halves through `f`.
#[inline(always)]
pub(crate) fn halves(a: u128, b: u128, f: impl Fn(u64, u64) -> u64) -> u128 {
    let (a0, a1) = split(a);
    let (b0, b1) = split(b);
    join(f(a0, b0), f(a1, b1))
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "takes the halves apart")]
pub(crate) const fn split(v: u128) -> (u64, u64) {
    (v as u64, (v >> 64) as u64)
}

#[inline(always)]
pub(crate) const fn join(low: u64, high: u64) -> u128 {
    low as u128 | (high as u128) << 64
}

/// Lanes of all ones where the lane's top bit is set in `tops`; `h` gives the lane width.
#[inline(always)]
const fn spread(tops: u64, h: u64) -> u64 {
    // Lowest bits of the lanes times a lane of ones.
    let lane = h.trailing_zeros() + 1;
    ((tops & h) >> (lane - 1)).wrapping_mul(u64::MAX >> (64 - lane))
}

/// Lane-wise sum.
#[inline(always)]
pub(crate) const fn add(a: u64, b: u64, h: u64) -> u64 {
    (a & !h).wrapping_add(b & !h) ^ ((a ^ b) & h)
}

/// Lane-wise difference.
#[inline(always)]
pub(crate) const fn sub(a: u64, b: u64, h: u64) -> u64 {
    (a | h).wrapping_sub(b & !h) ^ ((a ^ !b) & h)
}

/// Ones where the lanes are equal.
#[inline(always)]
pub(crate) const fn eq(a: u64, b: u64, h: u64) -> u64 {
    let x = a ^ b;
    spread(!(((x & !h).wrapping_add(!h)) | x), h)
}

/// Ones where a < b, unsigned.
#[inline(always)]
pub(crate) const fn lt_unsigned(a: u64, b: u64, h: u64) -> u64 {
    let x = (a | h).wrapping_sub(b & !h);
    spread((!a & b) | (!(a ^ b) & !x), h)
}

/// Ones where a < b, signed.
#[inline(always)]
pub(crate) const fn lt_signed(a: u64, b: u64, h: u64) -> u64 {
    lt_unsigned(a ^ h, b ^ h, h)
}

/// a where the mask is set, else b.
#[inline(always)]
pub(crate) const fn pick(mask: u64, a: u64, b: u64) -> u64 {
    b ^ ((a ^ b) & mask)
}

/// The top bits of 8 bytes as an integer.
#[inline(always)]
pub(crate) const fn mask8(a: u64) -> u64 {
    ((a & H8) >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

/// Four bytes moved to the even bytes of a word.
#[inline(always)]
const fn even_bytes(x: u64) -> u64 {
    let x = x & 0xffff_ffff;
    let x = (x | x << 16) & 0x0000_ffff_0000_ffff;
    (x | x << 8) & 0x00ff_00ff_00ff_00ff
}

/// Bytes of two words alternating.
#[inline(always)]
pub(crate) const fn interleave8(a: u64, b: u64) -> u128 {
    let low = even_bytes(a) | even_bytes(b) << 8;
    let high = even_bytes(a >> 32) | even_bytes(b >> 32) << 8;
    join(low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every pair of bytes, in different lanes.
    #[test]
    fn lanes_agree_with_plain_arithmetic() {
        for x in 0..=255u8 {
            for y in 0..=255u8 {
                let (a, b) = ([x, y, 0, 255, x, 1, y, x], [y, x, 255, 0, x, 0, y, 7]);
                let (wa, wb) = (u64::from_le_bytes(a), u64::from_le_bytes(b));
                let each = |f: fn(u8, u8) -> u8| {
                    u64::from_le_bytes(std::array::from_fn(|i| f(a[i], b[i])))
                };
                let ones = |c: bool| if c { 255 } else { 0 };
                assert_eq!(add(wa, wb, H8), each(u8::wrapping_add));
                assert_eq!(sub(wa, wb, H8), each(u8::wrapping_sub));
                let equal = u64::from_le_bytes(std::array::from_fn(|i| ones(a[i] == b[i])));
                assert_eq!(eq(wa, wb, H8), equal);
                let less = u64::from_le_bytes(std::array::from_fn(|i| ones(a[i] < b[i])));
                assert_eq!(lt_unsigned(wa, wb, H8), less);
                let signed = |i: usize| ones(a[i].cast_signed() < b[i].cast_signed());
                assert_eq!(lt_signed(wa, wb, H8), u64::from_le_bytes(std::array::from_fn(signed)));
                let bits = (0..8).map(|i| u64::from(a[i] >> 7) << i).sum::<u64>();
                assert_eq!(mask8(wa), bits);
            }
        }
    }
}
