//! Error numbers that system calls return; `mm` names those that it needs itself.
//!
//! Source: Linux include/uapi/asm-generic/errno-base.h and errno.h; both architectures use them.

use mm::Errno;

macro_rules! errnos {
    ($($name:ident $value:literal;)*) => {
        $(pub(crate) const $name: Errno = Errno($value);)*
    };
}

errnos! {
    EPERM 1;
    ENOENT 2;
    ESRCH 3;
    EINTR 4;
    EIO 5;
    ENXIO 6;
    E2BIG 7;
    EBADF 9;
    ECHILD 10;
    EAGAIN 11;
    ENOMEM 12;
    EACCES 13;
    EFAULT 14;
    EBUSY 16;
    EEXIST 17;
    ENODEV 19;
    ENOTDIR 20;
    EISDIR 21;
    EINVAL 22;
    EMFILE 24;
    ENOTTY 25;
    EFBIG 27;
    ENOSPC 28;
    ESPIPE 29;
    EPIPE 32;
    ERANGE 34;
    ENAMETOOLONG 36;
    ENOSYS 38;
    ENOTEMPTY 39;
    ELOOP 40;
    EOVERFLOW 75;
    EPROTONOSUPPORT 93;
    EOPNOTSUPP 95;
    EAFNOSUPPORT 97;
    ETIMEDOUT 110;
}

/// What a system call that failed leaves in the return register.
pub(crate) fn as_return(errno: Errno) -> u64 {
    u64::from(errno.0.unsigned_abs()).wrapping_neg()
}
