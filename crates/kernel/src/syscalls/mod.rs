//! System calls: the table, and how one is made.
//!
//! [`SYSCALLS`] is data: what exists, and how faithful it is. Numbers are per architecture and come from the
//! `syscalls` crate by name; a call that one architecture does not have is simply not in its
//! index.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

mod creds;
mod file;
mod futex;
mod io;
mod itimer;
mod lock;
mod memory;
mod misc;
mod numa;
mod path;
mod pgrp;
mod pidfd;
mod poll;
mod process;
mod sched;
mod signal;
mod splice;
mod stat;
mod statfs;
mod syslog;
mod time;
mod uring;

use crate::counts::CountsByScope;
use crate::errno::EINVAL;
use crate::host::Host;
use crate::kernel::{Kernel, Spawn};
use crate::regs::UserRegs;
use crate::task::{TaskId, Wait};
use arch::Platform;
use mm::Errno;
use units::{ArchId, VirtAddr};

/// How faithful a system call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fidelity {
    /// All that a program can see of it.
    Full,
    /// Some of it; the rest is said.
    Partial(&'static str),
    /// It succeeds and does nothing; why that is enough is said.
    Stub(&'static str),
}

/// A system call that exists here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyscallInfo {
    /// Its name; both architectures use the same.
    pub name: &'static str,
    /// How faithful it is.
    pub fidelity: Fidelity,
}

impl SyscallInfo {
    /// Its number on `arch`, if it exists there.
    pub fn nr(&self, arch: ArchId) -> Option<u32> {
        let nr = match arch {
            ArchId::X86_64 => self.name.parse().ok().map(|s: syscalls::x86_64::Sysno| s.id()),
            ArchId::Arm64 => {
                arm64_name(self.name).parse().ok().map(|s: syscalls::aarch64::Sysno| s.id())
            }
        };
        nr.and_then(|nr| u32::try_from(nr).ok())
    }
}

/// The `syscalls` crate takes arm64's names from a header that calls one of them otherwise.
fn arm64_name(name: &str) -> &str {
    if name == "newfstatat" { "fstatat" } else { name }
}

/// Linux's name of system call `nr`.
pub(crate) fn name(arch: ArchId, nr: u64) -> Option<&'static str> {
    let nr = usize::try_from(nr).ok()?;
    match arch {
        ArchId::X86_64 => syscalls::x86_64::Sysno::new(nr).map(|s| s.name()),
        ArchId::Arm64 => syscalls::aarch64::Sysno::new(nr).map(|s| s.name()),
    }
}

/// By number, the index into the table.
pub(crate) fn index(arch: ArchId) -> Vec<Option<u16>> {
    let mut by_nr = Vec::new();
    for (index, info) in (0u16..).zip(SYSCALLS) {
        let Some(nr) = info.nr(arch).and_then(|nr| usize::try_from(nr).ok()) else { continue };
        if by_nr.len() <= nr {
            by_nr.resize(nr.saturating_add(1), None);
        }
        if let Some(slot) = by_nr.get_mut(nr) {
            *slot = Some(index);
        }
    }
    by_nr
}

/// What events of the call at `index` are attributed to: its name, with the sub-command where a
/// report needs it.
pub(crate) fn context(index: u16, args: &[u64; 6]) -> &'static str {
    match SYSCALLS.get(usize::from(index)).map_or("", |info| info.name) {
        "madvise" => memory::madvise_name(args[2]),
        name => name,
    }
}

/// One system call being made.
pub(crate) struct Call<'a, S> {
    pub(crate) task: TaskId,
    pub(crate) args: [u64; 6],
    pub(crate) regs: &'a mut dyn UserRegs,
    pub(crate) host: &'a mut dyn Host<S>,
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the ABI passes 32-bit arguments in the low halves of registers"
)]
impl<S> Call<'_, S> {
    /// Argument as an address.
    fn addr<const I: usize>(&self) -> VirtAddr {
        VirtAddr::new(self.long::<I>())
    }
    /// Argument, all 64 bits.
    fn long<const I: usize>(&self) -> u64 {
        const { assert!(I < 6) };
        self.args.get(I).copied().unwrap_or_default()
    }
    /// Argument as an `unsigned int`.
    fn uint<const I: usize>(&self) -> u32 {
        self.long::<I>() as u32
    }
    /// Argument as an `int`.
    fn int<const I: usize>(&self) -> i32 {
        self.uint::<I>().cast_signed()
    }
}

/// Why a system call returns no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It failed.
    Errno(Errno),
    /// The task waits.
    Block(Wait),
    /// Another task may go first; returns 0.
    Yield,
    /// The task has ended.
    Exited,
    /// The registers are those of an interrupted place: nothing is returned.
    Sigreturn,
    /// A new task exists.
    Spawned(Spawn),
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Stop {
        Stop::Errno(errno)
    }
}

/// What a system call returns.
pub(crate) type SysResult = Result<u64, Stop>;

macro_rules! syscalls {
    ($($name:ident $fidelity:expr, $handler:path;)*) => {
        /// Every system call that exists here.
        pub const SYSCALLS: &[SyscallInfo] =
            &[$(SyscallInfo { name: stringify!($name), fidelity: $fidelity },)*];

        /// Makes the call at `index` of the table.
        #[expect(
            non_camel_case_types,
            non_upper_case_globals,
            reason = "system calls have lower-case names"
        )]
        pub(crate) fn run<P: Platform>(
            kernel: &mut Kernel<P>,
            index: u16,
            call: &mut Call<'_, P::Sink>,
        ) -> SysResult
        where
            P::Sink: CountsByScope,
        {
            #[repr(u16)]
            enum Nr { $($name,)* }
            $(const $name: u16 = Nr::$name as u16;)*
            match index {
                $($name => $handler(kernel, call),)*
                _ => Err(EINVAL.into()),
            }
        }
    };
}

use Fidelity::{Full, Partial, Stub};

syscalls! {
    // Files.
    read Full, io::read;
    write Full, io::write;
    readv Full, io::readv;
    writev Full, io::writev;
    pread64 Full, io::pread;
    pwrite64 Full, io::pwrite;
    open Partial("no O_TMPFILE, no permission checks: everybody is root"), path::open;
    creat Partial("as open"), path::creat;
    openat Partial("as open"), path::openat;
    close Full, file::close;
    close_range Partial("CLOSE_RANGE_UNSHARE does nothing: the table is not shared between processes"), file::close_range;
    lseek Partial("no SEEK_DATA, SEEK_HOLE"), file::lseek;
    fstat Partial("times are those of boot, no owners"), stat::fstat;
    stat Partial("as fstat"), stat::stat;
    lstat Partial("as fstat"), stat::lstat;
    newfstatat Partial("as fstat"), stat::newfstatat;
    statx Partial("basic statistics only"), stat::statx;
    ioctl Partial("no terminals: ENOTTY; FIONREAD of pipes; gup_test"), file::ioctl;
    fcntl Partial("descriptors and status flags; no locks, leases, signals"), file::fcntl;
    dup Full, file::dup;
    dup2 Full, file::dup2;
    dup3 Full, file::dup3;
    pipe Full, file::pipe;
    pipe2 Partial("no O_DIRECT packets"), file::pipe2;
    socketpair Partial("AF_UNIX streams; no messages, no addresses"), file::socketpair;
    io_uring_setup Partial("no flags but CLAMP; requests are served when they are submitted"), uring::io_uring_setup;
    io_uring_enter Partial("NOP, WRITE, WRITE_FIXED"), uring::io_uring_enter;
    io_uring_register Partial("buffers"), uring::io_uring_register;
    poll Full, poll::poll;
    ppoll Full, poll::ppoll;
    vmsplice Full, splice::vmsplice;
    statfs Partial("sizes are those of memory"), statfs::statfs;
    fstatfs Partial("as statfs"), statfs::fstatfs;
    readlink Full, path::readlink;
    readlinkat Full, path::readlinkat;
    getdents64 Full, file::getdents64;
    access Partial("existence only: everybody is root"), path::access;
    faccessat Partial("as access"), path::faccessat;
    faccessat2 Partial("as access"), path::faccessat2;
    symlink Full, path::symlink;
    symlinkat Full, path::symlinkat;
    unlink Full, path::unlink;
    unlinkat Full, path::unlinkat;
    rmdir Full, path::rmdir;
    mkdir Full, path::mkdir;
    mkdirat Full, path::mkdirat;
    ftruncate Full, file::ftruncate;
    fsync Stub("files are memory"), file::fsync;
    fdatasync Stub("files are memory"), file::fsync;
    umask Full, misc::umask;
    getcwd Full, path::getcwd;
    chdir Full, path::chdir;
    // Memory.
    brk Full, memory::brk;
    mmap Partial("files of the tmpfs and memfd, /dev/zero, huge pages; nothing is locked"), memory::mmap;
    memfd_create Partial("seals are not enforced"), memory::memfd_create;
    munmap Full, memory::munmap;
    mprotect Full, memory::mprotect;
    mremap Full, memory::mremap;
    madvise Partial("the advices that mm has; EINVAL for others"), memory::madvise;
    mlock Full, lock::mlock;
    mlock2 Full, lock::mlock2;
    munlock Full, lock::munlock;
    mlockall Full, lock::mlockall;
    munlockall Full, lock::munlockall;
    mseal Full, lock::mseal;
    msync Partial("files are memory: nothing is written back"), lock::msync;
    get_mempolicy Partial("one node; the policy is always the default"), numa::get_mempolicy;
    set_mempolicy Partial("checked; with one node nothing depends on it"), numa::set_mempolicy;
    mbind Partial("as set_mempolicy"), numa::mbind;
    move_pages Partial("one node: nothing moves"), numa::move_pages;
    mincore Partial("pages in the page cache or swap cache but in no page table count as absent"), memory::mincore;
    membarrier Stub("kernel operations are atomic and vCPUs take turns, so every barrier holds"), misc::membarrier;
    // Processes and threads.
    exit Full, process::exit;
    exit_group Full, process::exit_group;
    clone Partial("no namespaces, pidfds or ptrace; CLONE_FILES and CLONE_FS share only between threads"), process::clone;
    clone3 Partial("as clone; no cgroups, no chosen pids"), process::clone3;
    fork Full, process::fork;
    vfork Full, process::vfork;
    wait4 Partial("no stopped children; rusage is zero"), process::wait4;
    waitid Partial("as wait4"), process::waitid;
    getpid Full, process::getpid;
    gettid Full, process::gettid;
    getppid Full, process::getppid;
    getpgrp Full, pgrp::getpgrp;
    getpgid Full, pgrp::getpgid;
    setpgid Partial("also after execve"), pgrp::setpgid;
    getsid Full, pgrp::getsid;
    setsid Full, pgrp::setsid;
    pidfd_open Partial("no threads"), pidfd::pidfd_open;
    pidfd_send_signal Partial("no siginfo of the caller's"), pidfd::pidfd_send_signal;
    process_mrelease Full, pidfd::process_mrelease;
    getuid Full, creds::getuid;
    geteuid Full, creds::geteuid;
    getgid Full, creds::getgid;
    getegid Full, creds::getegid;
    getresuid Full, creds::getresuid;
    getresgid Full, creds::getresgid;
    setuid Full, creds::setuid;
    setgid Full, creds::setgid;
    setresuid Full, creds::setresuid;
    setresgid Full, creds::setresgid;
    capget Full, creds::capget;
    capset Partial("the bounding and ambient sets cannot change"), creds::capset;
    set_tid_address Full, process::set_tid_address;
    set_robust_list Partial("remembered; a dead owner's futexes are not released"), process::set_robust_list;
    get_robust_list Full, process::get_robust_list;
    rseq Partial("cpu_id and aborts; node_id and mm_cid are 0"), process::rseq;
    futex Partial("WAIT, WAKE, their BITSET forms, REQUEUE, CMP_REQUEUE, WAKE_OP; no priority inheritance; private keys"), futex::futex;
    sched_yield Full, sched::sched_yield;
    sched_setaffinity Full, sched::sched_setaffinity;
    sched_getaffinity Full, sched::sched_getaffinity;
    sched_getparam Partial("priority 0"), sched::sched_getparam;
    sched_getscheduler Partial("SCHED_OTHER always"), misc::zero;
    sched_setscheduler Partial("SCHED_OTHER only"), sched::sched_setscheduler;
    sched_get_priority_max Full, sched::priority_max;
    sched_get_priority_min Full, sched::priority_min;
    getcpu Full, sched::getcpu;
    prlimit64 Partial("own process; STACK and NOFILE have effect at their next use"), misc::prlimit64;
    getrlimit Full, misc::getrlimit;
    setrlimit Partial("as prlimit64"), misc::setrlimit;
    arch_prctl Partial("FS and GS base"), misc::arch_prctl;
    prctl Partial("names and dumpable; THP_DISABLE only as off"), misc::prctl;
    getrusage Partial("times only, all as user time"), time::getrusage;
    times Partial("user time only"), time::times;
    // Signals.
    rt_sigaction Full, signal::rt_sigaction;
    rt_sigprocmask Full, signal::rt_sigprocmask;
    rt_sigreturn Full, signal::rt_sigreturn;
    rt_sigpending Full, signal::rt_sigpending;
    rt_sigsuspend Full, signal::rt_sigsuspend;
    rt_sigtimedwait Full, signal::rt_sigtimedwait;
    sigaltstack Full, signal::sigaltstack;
    kill Full, signal::kill;
    tkill Full, signal::tkill;
    tgkill Full, signal::tgkill;
    pause Full, signal::pause;
    // Time.
    clock_gettime Partial("CPU clocks show elapsed time"), time::clock_gettime;
    alarm Full, itimer::alarm;
    setitimer Partial("ITIMER_REAL"), itimer::setitimer;
    getitimer Partial("ITIMER_REAL"), itimer::getitimer;
    clock_getres Full, time::clock_getres;
    gettimeofday Full, time::gettimeofday;
    time Full, time::time;
    clock_nanosleep Full, time::clock_nanosleep;
    nanosleep Full, time::nanosleep;
    // The rest.
    getrandom Full, misc::getrandom;
    uname Full, misc::uname;
    sysinfo Full, misc::sysinfo;
    syslog Partial("all of the log or its size; no waiting for messages; the console has no level"), syslog::syslog;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_a_system_call_of_linux_and_listed_once() {
        let mut seen = std::collections::BTreeSet::new();
        for info in SYSCALLS {
            let known = ArchId::ALL.iter().any(|&arch| info.nr(arch).is_some());
            assert!(known && seen.insert(info.name), "{}", info.name);
        }
    }

    #[test]
    fn numbers_are_those_of_each_architecture() {
        let nr =
            |name: &str, arch| SYSCALLS.iter().find(|s| s.name == name).and_then(|s| s.nr(arch));
        assert_eq!((nr("mmap", ArchId::X86_64), nr("mmap", ArchId::Arm64)), (Some(9), Some(222)));
        assert_eq!(nr("newfstatat", ArchId::X86_64), Some(262));
        assert_eq!(nr("newfstatat", ArchId::Arm64), Some(79));
        assert_eq!((nr("open", ArchId::X86_64), nr("open", ArchId::Arm64)), (Some(2), None));
        assert_eq!(name(ArchId::Arm64, 440), Some("process_madvise"));
        assert_eq!(name(ArchId::X86_64, 99_999), None);
    }
}
