//! What CPUID says: exactly what is implemented, so that feature tests choose code that runs.

/// EAX, EBX, ECX, EDX for a leaf and subleaf.
pub(super) fn leaf(leaf: u32, subleaf: u32) -> [u32; 4] {
    match leaf {
        0 => {
            let [b, d, c] = VENDOR;
            [7, b, c, d]
        }
        // Family 6, model 0x55 (Skylake server), stepping 4; 64-byte CLFLUSH lines, one logical CPU.
        1 => [0x0005_0654, 0x0001_0800, FEATURES_ECX, FEATURES_EDX],
        // "See leaf 4".
        2 => [0x00fe_ff01, 0, 0, 0],
        4 => cache(subleaf),
        7 if subleaf == 0 => [0, FSGSBASE | ERMS, 0, 0],
        0x8000_0000 => [0x8000_0008, 0, 0, 0],
        // LAHF in long mode; SYSCALL, NX, RDTSCP, long mode.
        0x8000_0001 => [0, 0, 1, 1 << 11 | 1 << 20 | 1 << 27 | 1 << 29],
        0x8000_0002..=0x8000_0004 => brand(leaf - 0x8000_0002),
        // 46 physical, 48 virtual address bits.
        0x8000_0008 => [48 << 8 | 46, 0, 0, 0],
        _ => [0; 4],
    }
}

/// "GenuineIntel" in EBX, EDX, ECX: glibc reads cache sizes from leaf 4 only from vendors that it knows.
const VENDOR: [u32; 3] =
    [u32::from_le_bytes(*b"Genu"), u32::from_le_bytes(*b"ineI"), u32::from_le_bytes(*b"ntel")];

const FSGSBASE: u32 = 1 << 0;
const ERMS: u32 = 1 << 9;

/// CMPXCHG16B, MOVBE, POPCNT.
const FEATURES_ECX: u32 = 1 << 13 | 1 << 22 | 1 << 23;
/// FPU, TSC, MSR, CX8, CMOV, CLFSH, FXSR, SSE, SSE2. (No MMX: not implemented.)
const FEATURES_EDX: u32 =
    1 << 0 | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 15 | 1 << 19 | 1 << 24 | 1 << 25 | 1 << 26;

/// Deterministic cache parameters: type, level, ways, sets.
fn cache(subleaf: u32) -> [u32; 4] {
    let (kind, level, ways, sets) = match subleaf {
        0 => (1, 1, 8, 64),
        1 => (2, 1, 8, 64),
        2 => (3, 2, 16, 1024),
        3 => (3, 3, 16, 16384),
        _ => return [0; 4],
    };
    [kind | level << 5 | 1 << 8, 63 | (ways - 1) << 22, sets - 1, 0]
}

fn brand(part: u32) -> [u32; 4] {
    let text = b"ptescope x86-64 virtual CPU\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let at = part as usize * 16;
    std::array::from_fn(|i| {
        let word = text.get(at + i * 4..).and_then(|t| t.first_chunk()).copied();
        u32::from_le_bytes(word.unwrap_or([0; 4]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vendor_reads_as_text() {
        let [_, b, c, d] = leaf(0, 0);
        let text: Vec<u8> = [b, d, c].iter().flat_map(|w| w.to_le_bytes()).collect();
        assert_eq!(text, b"GenuineIntel");
    }

    #[test]
    fn nothing_beyond_the_baseline_is_announced() {
        let [_, _, ecx, edx] = leaf(1, 0);
        assert_eq!(ecx & (1 << 28 | 1 << 27), 0, "no AVX, no OSXSAVE");
        assert_ne!(edx & (1 << 26), 0, "SSE2 is the baseline");
    }
}
