//! What a system call returns when it refuses.

/// A Linux error number, positive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Errno(pub i32);

macro_rules! errnos {
    ($($name:ident $value:literal $meaning:literal;)*) => {
        impl Errno {
            $(#[doc = $meaning] pub const $name: Errno = Errno($value);)*

            /// The symbolic name.
            pub const fn name(self) -> &'static str {
                match self.0 { $($value => stringify!($name),)* _ => "E?" }
            }
        }
    };
}

errnos! {
    EPERM 1 "Operation not permitted.";
    ENOENT 2 "No such file or directory.";
    ESRCH 3 "No such process.";
    EINTR 4 "Interrupted.";
    EIO 5 "Input/output error.";
    ENXIO 6 "No such device or address.";
    E2BIG 7 "Argument list too long.";
    ENOEXEC 8 "Not an executable.";
    EBADF 9 "Bad file descriptor.";
    ECHILD 10 "No child process.";
    EAGAIN 11 "Try again.";
    ENOMEM 12 "Out of memory, or a hole in the address range.";
    EACCES 13 "Permission denied.";
    EFAULT 14 "Bad address.";
    EBUSY 16 "Busy.";
    EEXIST 17 "Exists already.";
    ENODEV 19 "No such device.";
    ENOTDIR 20 "Not a directory.";
    EISDIR 21 "Is a directory.";
    EINVAL 22 "Invalid argument.";
    ENFILE 23 "Too many open files in the system.";
    EMFILE 24 "Too many open files.";
    ENOTTY 25 "Not a terminal.";
    EFBIG 27 "File too large.";
    ENOSPC 28 "No space left.";
    ESPIPE 29 "Illegal seek.";
    EROFS 30 "Read-only file system.";
    EPIPE 32 "Broken pipe.";
    EDOM 33 "Argument out of domain.";
    ERANGE 34 "Result too large.";
    EDEADLK 35 "Deadlock.";
    ENAMETOOLONG 36 "Name too long.";
    ENOSYS 38 "Not implemented.";
    ENOTEMPTY 39 "Directory not empty.";
    ELOOP 40 "Too many symbolic links.";
    EOVERFLOW 75 "Value too large.";
    EOPNOTSUPP 95 "Not supported.";
    ETIMEDOUT 110 "Timed out.";
    EREMOTEIO 121 "Remote I/O error.";
    EHWPOISON 133 "Memory has a hardware error.";
}

impl std::fmt::Debug for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}

impl std::fmt::Display for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::error::Error for Errno {}
