use super::{check_cont_block, is_bbm_violation};
use crate::arm64::bits::*;
use crate::testing::{FRAME, rw};
use crate::{Arm64, BbmLevel, Hw, KernelConfig};
use units::Reach;

const NEW: &str = "v7.3";

fn violates(old: u64, new: u64, bbm: BbmLevel, kernel: &str) -> bool {
    let kernel = KernelConfig::parse(kernel).expect("known");
    is_bbm_violation(old, new, &Hw { bbm, ..Hw::arm64() }, &kernel)
}

fn page() -> u64 {
    rw::<Arm64>(FRAME).raw()
}

#[test]
fn permissions_and_software_bits_change_in_place() {
    let level = BbmLevel::Level0;
    for bits in [RDONLY, WRITE, PXN, DIRTY, SPECIAL, UFFD_WP, AF] {
        assert!(!violates(page(), page() ^ bits, level, NEW), "{bits:#x}");
    }
    assert!(!violates(page() & !NG, page(), level, NEW), "global to non-global");
    assert!(!violates(page(), page() | 1 << ATTR_SHIFT, level, NEW), "Normal to Normal-Tagged");
}

#[test]
fn the_rest_needs_an_invalid_entry_in_between() {
    let level = BbmLevel::Level3;
    let moved = page() + (1 << units::PAGE_SHIFT);
    for new in [moved, page() & !NG, page() & !SHARED, page() | 2 << ATTR_SHIFT] {
        assert!(violates(page(), new, level, NEW), "{new:#x}");
        assert!(!violates(page(), 0, level, NEW));
        assert!(!violates(0, new, level, NEW));
        assert!(!violates(page() & !VALID, new, level, NEW));
    }
}

#[test]
fn size_and_contiguity_depend_on_core_and_kernel() {
    for new in [page() ^ CONT, page() ^ TABLE] {
        assert!(violates(page(), new, BbmLevel::Level0, NEW));
        assert!(!violates(page(), new, BbmLevel::Level2NoAbort, NEW));
        assert!(!violates(page(), new, BbmLevel::Level3, NEW));
        assert!(violates(page(), new, BbmLevel::Level3, "v6.12"));
    }
    let mut v7_2 = KernelConfig::parse(NEW).expect("known");
    v7_2.bbml3 = false;
    let on = |bbm| is_bbm_violation(page(), page() | CONT, &Hw { bbm, ..Hw::arm64() }, &v7_2);
    assert!(!on(BbmLevel::Level2NoAbort) && on(BbmLevel::Level3), "7.2 ignores the ID register");
}

fn folded() -> [u64; 16] {
    std::array::from_fn(|i| rw::<Arm64>(FRAME.add(i as u64)).raw() | CONT)
}

#[test]
fn a_uniform_block_passes_whatever_its_access_state() {
    let mut block = folded();
    block[3] &= !AF;
    block[7] = block[7] & !DIRTY | RDONLY;
    assert_eq!(check_cont_block(&block, Reach::K4), Ok(()));
    let plain = block.map(|raw| raw & !CONT);
    assert_eq!(check_cont_block(&plain, Reach::K4), Ok(()));
    assert_eq!(check_cont_block(&[0; 16], Reach::K4), Ok(()));
}

#[test]
fn a_block_with_one_odd_entry_is_found() {
    let broken: [fn(u64) -> u64; 5] = [
        |raw| raw & !CONT,
        |_| 0,
        |raw| raw + (1 << units::PAGE_SHIFT),
        |raw| raw ^ UXN,
        |raw| raw & !WRITE,
    ];
    for (n, breaks) in broken.iter().enumerate() {
        for i in 0..16 {
            let mut block = folded();
            block[i] = breaks(block[i]);
            assert!(check_cont_block(&block, Reach::K4).is_err(), "kind {n}, entry {i}");
        }
    }
    let shifted = folded().map(|raw| raw + (1 << units::PAGE_SHIFT));
    assert!(check_cont_block(&shifted, Reach::K4).is_err(), "the frame is not aligned");
}
