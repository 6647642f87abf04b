//! Setting E
