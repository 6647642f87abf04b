//! Numbers of the Linux user ABI that several modules need, and the few that differ between the
//! architectures.
//!
//! Source: Linux include/uapi/asm-generic/fcntl.h, arch/{x86,arm64}/include/uapi/asm/.

use units::ArchId;

/// Open flags, by their x86-64 (asm-generic) values.
pub(crate) const O_WRONLY: u32 = 1;
pub(crate) const O_CREAT: u32 = 0o100;
pub(crate) const O_EXCL: u32 = 0o200;
pub(crate) const O_TRUNC: u32 = 0o1000;
pub(crate) const O_APPEND: u32 = 0o2000;
pub(crate) const O_NONBLOCK: u32 = 0o4000;
pub(crate) const O_CLOEXEC: u32 = 0o2_000_000;
pub(crate) const O_TMPFILE_BIT: u32 = 0o20_000_000;

/// `O_DIRECTORY`, whose value depends on the architecture.
pub(crate) const fn o_directory(arch: ArchId) -> u32 {
    match arch {
        ArchId::X86_64 => 0o200_000,
        ArchId::Arm64 => 0o40_000,
    }
}

/// `O_NOFOLLOW`, likewise.
pub(crate) const fn o_nofollow(arch: ArchId) -> u32 {
    match arch {
        ArchId::X86_64 => 0o400_000,
        ArchId::Arm64 => 0o100_000,
    }
}

pub(crate) const AT_FDCWD: i32 = -100;
pub(crate) const AT_SYMLINK_NOFOLLOW: u32 = 0x100;
pub(crate) const AT_REMOVEDIR: u32 = 0x200;
pub(crate) const AT_EMPTY_PATH: u32 = 0x1000;

pub(crate) const S_IFIFO: u32 = 0o010_000;
pub(crate) const S_IFCHR: u32 = 0o020_000;
pub(crate) const S_IFDIR: u32 = 0o040_000;
pub(crate) const S_IFREG: u32 = 0o100_000;
pub(crate) const S_IFSOCK: u32 = 0o140_000;
pub(crate) const S_IFLNK: u32 = 0o120_000;

/// `uname -m`, and `AT_PLATFORM`.
pub(crate) const fn machine_name(arch: ArchId) -> &'static str {
    match arch {
        ArchId::X86_64 => "x86_64",
        ArchId::Arm64 => "aarch64",
    }
}

/// Seconds since 1970 at boot: 2026-01-01 00:00:00 UTC. Runs repeat, so time starts here always.
pub(crate) const BOOT_TIME_S: u64 = 1_767_225_600;
/// User-visible clock ticks per second (`AT_CLKTCK`).
pub(crate) const USER_HZ: u64 = 100;
