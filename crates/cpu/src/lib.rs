//! placeholder
pub mod arm64;
