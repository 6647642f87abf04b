//! AES, SHA-1, SHA-256, 64-bit polynomial products and CRC-32.
//!
//! Source: Arm DDI 0487, "Shared pseudocode", `shared/functions/crypto`; FIPS 180-4 and 197.

use super::A64Op;
use super::lanes::{build, get};

/// Product in AES's field.
const fn field_product(mut a: u8, mut b: u8) -> u8 {
    let mut r = 0;
    while b != 0 {
        if b & 1 != 0 {
            r ^= a;
        }
        a = if a & 0x80 != 0 { a << 1 ^ 0x1b } else { a << 1 };
        b >>= 1;
    }
    r
}

/// The substitution box, from its definition: inverse in the field, then an affine map.
const fn substitution() -> [u8; 256] {
    let mut table = [0; 256];
    let mut x = 0;
    while x < 256 {
        // The inverse is the 254th power.
        let (mut inverse, mut power, mut n) = (1, x as u8, 254u32);
        while n > 0 {
            if n & 1 != 0 {
                inverse = field_product(inverse, power);
            }
            power = field_product(power, power);
            n >>= 1;
        }
        let i = inverse;
        table[x] =
            i ^ i.rotate_left(1) ^ i.rotate_left(2) ^ i.rotate_left(3) ^ i.rotate_left(4) ^ 0x63;
        x += 1;
    }
    table
}

const fn inverted(table: [u8; 256]) -> [u8; 256] {
    let mut inverse = [0; 256];
    let mut x = 0;
    while x < 256 {
        inverse[table[x] as usize] = x as u8;
        x += 1;
    }
    inverse
}

const BOX: [u8; 256] = substitution();
const INVERSE_BOX: [u8; 256] = inverted(BOX);

/// Substitutes bytes and shifts rows; `direction` is 1 forwards and 3 backwards.
fn substitute(state: u128, table: &[u8; 256], direction: usize) -> u128 {
    build::<u8>(|i| {
        let (row, column) = (i % 4, i / 4);
        let from = row + 4 * ((column + direction * row) % 4);
        table[usize::from(get::<u8>(state, from))]
    })
}

/// Multiplies columns by the circulant matrix with this first row.
fn mix(state: u128, matrix: [u8; 4]) -> u128 {
    build::<u8>(|i| {
        let (row, column) = (i % 4, i / 4);
        (0..4).fold(0, |sum, k| {
            let byte = get::<u8>(state, 4 * column + k);
            sum ^ field_product(byte, matrix[(k + 4 - row) % 4])
        })
    })
}

fn choose(x: u32, y: u32, z: u32) -> u32 {
    ((y ^ z) & x) ^ z
}

fn majority(x: u32, y: u32, z: u32) -> u32 {
    (x & y) | ((x | y) & z)
}

fn words(v: u128) -> [u32; 4] {
    std::array::from_fn(|i| get::<u32>(v, i))
}

fn joined(w: [u32; 4]) -> u128 {
    build::<u32>(|i| w[i])
}

/// Four rounds of SHA-1.
fn sha1(state: u128, e: u32, schedule: u128, f: fn(u32, u32, u32) -> u32) -> u128 {
    let (mut x, mut y) = (words(state), e);
    for w in words(schedule) {
        let t = f(x[1], x[2], x[3]);
        let first = y.wrapping_add(x[0].rotate_left(5)).wrapping_add(t).wrapping_add(w);
        y = x[3];
        x = [first, x[0], x[1].rotate_left(30), x[2]];
    }
    joined(x)
}

/// Four rounds of SHA-256; both halves of the state.
fn sha256(abcd: u128, efgh: u128, schedule: u128) -> (u128, u128) {
    let (mut x, mut y) = (words(abcd), words(efgh));
    for w in words(schedule) {
        let upper = y[0].rotate_right(6) ^ y[0].rotate_right(11) ^ y[0].rotate_right(25);
        let lower = x[0].rotate_right(2) ^ x[0].rotate_right(13) ^ x[0].rotate_right(22);
        let t = y[3].wrapping_add(upper).wrapping_add(choose(y[0], y[1], y[2])).wrapping_add(w);
        let first = t.wrapping_add(lower).wrapping_add(majority(x[0], x[1], x[2]));
        y = [x[3].wrapping_add(t), y[0], y[1], y[2]];
        x = [first, x[0], x[1], x[2]];
    }
    (joined(x), joined(y))
}

fn sha256_schedule0(d: u128, n: u128) -> u128 {
    let shifted = words(d >> 32 | n << 96);
    let old = words(d);
    joined(std::array::from_fn(|i| {
        let w = shifted[i];
        (w.rotate_right(7) ^ w.rotate_right(18) ^ w >> 3).wrapping_add(old[i])
    }))
}

fn sha256_schedule1(d: u128, n: u128, m: u128) -> u128 {
    let (old, shifted, last) = (words(d), words(n >> 32 | m << 96), words(m));
    let sigma = |w: u32| w.rotate_right(17) ^ w.rotate_right(19) ^ w >> 10;
    let mut r = [0u32; 4];
    for i in 0..4 {
        let from = if i < 2 { last[i + 2] } else { r[i - 2] };
        r[i] = sigma(from).wrapping_add(old[i]).wrapping_add(shifted[i]);
    }
    joined(r)
}

fn sha1_schedule1(d: u128, n: u128) -> u128 {
    let t = words(d ^ n >> 32);
    let mut r = t.map(|w| w.rotate_left(1));
    r[3] ^= t[0].rotate_left(2);
    joined(r)
}

/// Carry-less product of two 64-bit values.
pub(super) fn product64(a: u64, b: u64) -> u128 {
    (0..64).filter(|i| b >> i & 1 != 0).fold(0, |r, i| r ^ u128::from(a) << i)
}

/// CRC-32 of `bytes` low bytes of `value` onto `crc`, by a reflected polynomial.
pub(super) fn crc32(crc: u32, value: u64, bytes: u32, polynomial: u32) -> u32 {
    let mut crc = u64::from(crc);
    let mask = u64::MAX >> (64 - 8 * bytes.clamp(1, 8));
    let mut rest = value & mask;
    for _ in 0..8 * bytes {
        let bit = (crc ^ rest) & 1;
        crc >>= 1;
        rest >>= 1;
        if bit != 0 {
            crc ^= u64::from(polynomial);
        }
    }
    crc as u32
}

/// The result of a cryptographic op, or `None` for others.
pub(super) fn exec(id: A64Op, d: u128, a: u128, b: u128) -> Option<u128> {
    use A64Op as O;
    Some(match id {
        O::Aese => substitute(d ^ a, &BOX, 1),
        O::Aesd => substitute(d ^ a, &INVERSE_BOX, 3),
        O::Aesmc => mix(a, [2, 3, 1, 1]),
        O::Aesimc => mix(a, [14, 11, 13, 9]),
        O::Sha1c => sha1(d, a as u32, b, choose),
        O::Sha1p => sha1(d, a as u32, b, |x, y, z| x ^ y ^ z),
        O::Sha1m => sha1(d, a as u32, b, majority),
        O::Sha1h => u128::from((a as u32).rotate_left(30)),
        O::Sha1su0 => (d >> 64 | a << 64) ^ d ^ b,
        O::Sha1su1 => sha1_schedule1(d, a),
        O::Sha256h => sha256(d, a, b).0,
        O::Sha256h2 => sha256(a, d, b).1,
        O::Sha256su0 => sha256_schedule0(d, a),
        O::Sha256su1 => sha256_schedule1(d, a, b),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_substitution_box_is_the_published_one() {
        assert_eq!(BOX[..4], [0x63, 0x7c, 0x77, 0x7b]);
        assert_eq!((BOX[0x53], BOX[0xff], INVERSE_BOX[0x63]), (0xed, 0x16, 0));
    }

    #[test]
    fn crc32_of_the_check_string() {
        let check = |polynomial| {
            !b"123456789".iter().fold(!0, |crc, &b| crc32(crc, u64::from(b), 1, polynomial))
        };
        assert_eq!(check(0xedb8_8320), 0xcbf4_3926);
        assert_eq!(check(0x82f6_3b78), 0xe306_9283);
        let eight = u64::from_le_bytes(*b"12345678");
        assert_eq!(!crc32(crc32(!0, eight, 8, 0xedb8_8320), 0x39, 1, 0xedb8_8320), 0xcbf4_3926);
    }
}
