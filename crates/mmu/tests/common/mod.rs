//! What the tests of this crate share: tables written by hand, and the slow TLB model.

#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test binary uses another part")]

pub mod reference;
pub mod tables;
