//! Virtual and physical addresses.

use crate::{PAGE_SHIFT, PAGE_SIZE, Pfn, Vpn};
use std::fmt;

macro_rules! address {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[repr(transparent)]
        pub struct $name(u64);

        impl $name {
            /// Address zero.
            pub const ZERO: $name = $name(0);

            /// Wraps a raw address; every `u64` is representable.
            #[inline]
            pub const fn new(raw: u64) -> Self {
                $name(raw)
            }

            /// The raw address.
            #[inline]
            pub const fn get(self) -> u64 {
                self.0
            }

            /// `self + bytes`, or `None` past the end of the 64-bit space.
            #[inline]
            pub const fn checked_add(self, bytes: u64) -> Option<Self> {
                match self.0.checked_add(bytes) {
                    Some(raw) => Some($name(raw)),
                    None => None,
                }
            }

            /// `self + bytes`, wrapping as address generation does in hardware.
            #[inline]
            pub const fn wrapping_add(self, bytes: u64) -> Self {
                $name(self.0.wrapping_add(bytes))
            }

            /// Bytes from `start` to `self`.
            ///
            /// # Panics
            /// If `start` lies after `self`.
            #[inline]
            pub const fn bytes_since(self, start: Self) -> u64 {
                assert!(self.0 >= start.0);
                self.0 - start.0
            }

            /// Rounds down to a multiple of `align`, a power of two.
            #[inline]
            pub const fn align_down(self, align: u64) -> Self {
                debug_assert!(align.is_power_of_two());
                $name(self.0 & !(align - 1))
            }

            /// Rounds up to a multiple of `align`, a power of two; `None` past the end.
            #[inline]
            pub const fn checked_align_up(self, align: u64) -> Option<Self> {
                debug_assert!(align.is_power_of_two());
                match self.0.checked_add(align - 1) {
                    Some(raw) => Some($name(raw & !(align - 1))),
                    None => None,
                }
            }

            /// Whether the address is a multiple of `align`, a power of two.
            #[inline]
            pub const fn is_aligned(self, align: u64) -> bool {
                debug_assert!(align.is_power_of_two());
                self.0 & (align - 1) == 0
            }

            /// Offset inside its base page.
            #[inline]
            pub const fn page_offset(self) -> u64 {
                self.0 & (PAGE_SIZE - 1)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        }

        impl fmt::LowerHex for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::LowerHex::fmt(&self.0, f)
            }
        }
    };
}

address! {
    /// A guest virtual address. Whether it is canonical is the architecture's question.
    VirtAddr
}
address! {
    /// A guest physical address: an offset into emulated RAM.
    PhysAddr
}

impl VirtAddr {
    /// The base page that contains the address.
    #[inline]
    pub const fn vpn(self) -> Vpn {
        Vpn::new(self.0 >> PAGE_SHIFT)
    }
}

impl PhysAddr {
    /// The frame that contains the address.
    #[inline]
    pub const fn pfn(self) -> Pfn {
        Pfn::new(self.0 >> PAGE_SHIFT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn align_up_refuses_to_wrap() {
        assert_eq!(VirtAddr::new(u64::MAX).checked_align_up(4096), None);
        assert_eq!(VirtAddr::new(1).checked_align_up(4096), Some(VirtAddr::new(4096)));
        assert_eq!(VirtAddr::new(4096).checked_align_up(4096), Some(VirtAddr::new(4096)));
    }

    #[test]
    fn page_and_offset_recompose() {
        let va = VirtAddr::new(0x7fff_1234_5678);
        assert_eq!(va.vpn().addr().wrapping_add(va.page_offset()), va);
    }
}
