//! What the tests of this crate share: tables written by hand, and the slow TLB model.

#![expect(
    clippy::allow_attributes,
    reason = "each test binary uses another part, so `expect` would not hold in all of them"
)]
#![allow(dead_code, unreachable_pub, missing_docs, reason = "shared by test binaries")]

pub mod reference;
pub mod tables;
