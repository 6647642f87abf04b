//! arm64.
pub mod decode;
