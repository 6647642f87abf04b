//! File descriptors and open file descriptions.

use crate::errno::{EBADF, EMFILE};
use crate::pipe::PipeId;
use crate::task::ProcessId;
use crate::uring::RingId;
use crate::vfs::{Device, InodeId, PseudoId};
use mm::Errno;
use std::collections::BTreeMap;

/// An open file description, shared by the descriptors that `dup()` and `fork()` made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileRef(u32);

/// What a description refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Open {
    /// Standard input.
    Stdin,
    /// Standard output or error.
    Console(crate::host::Stream),
    /// A regular file or a directory of the tmpfs.
    Inode(InodeId),
    /// `/proc/<pid>`.
    ProcDir(ProcessId),
    /// `/dev/null` and its like.
    Device(Device),
    /// A pseudo-file, of a process where it is under `/proc/<pid>`.
    Pseudo(PseudoId, ProcessId),
    /// The reading end of a pipe.
    PipeRead(PipeId),
    /// The writing end of a pipe.
    PipeWrite(PipeId),
    /// One of a pair of connected sockets: what it reads from, and writes to.
    Socket(PipeId, PipeId),
    /// An io_uring instance.
    IoUring(RingId),
    /// A process.
    Pidfd(ProcessId),
}

#[derive(Clone, Debug)]
pub(crate) struct OpenFile {
    pub(crate) open: Open,
    /// `O_ACCMODE` and status flags, in x86-64's values (those used here are the same on both).
    pub(crate) flags: u32,
    pub(crate) offset: u64,
    /// Absolute path it was opened by; empty for pipes and the console.
    pub(crate) path: String,
    /// What a pseudo-file said at the last read from its start.
    pub(crate) text: Option<Vec<u8>>,
    refs: u32,
}

impl OpenFile {
    pub(crate) fn new(open: Open, flags: u32, path: String) -> OpenFile {
        OpenFile { open, flags, offset: 0, path, text: None, refs: 1 }
    }
    pub(crate) fn readable(&self) -> bool {
        self.flags & 3 != 1
    }
    pub(crate) fn writable(&self) -> bool {
        self.flags & 3 != 0
    }
}

/// All open file descriptions.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpenFiles {
    files: BTreeMap<FileRef, OpenFile>,
    next: u32,
}

impl OpenFiles {
    pub(crate) fn insert(&mut self, file: OpenFile) -> FileRef {
        let at = FileRef(self.next);
        self.next = self.next.wrapping_add(1);
        self.files.insert(at, file);
        at
    }
    pub(crate) fn get(&self, at: FileRef) -> Result<&OpenFile, Errno> {
        self.files.get(&at).ok_or(EBADF)
    }
    pub(crate) fn get_mut(&mut self, at: FileRef) -> Result<&mut OpenFile, Errno> {
        self.files.get_mut(&at).ok_or(EBADF)
    }
    pub(crate) fn acquire(&mut self, at: FileRef) {
        if let Some(file) = self.files.get_mut(&at) {
            file.refs = file.refs.saturating_add(1);
        }
    }
    /// Whether a description refers to `open`.
    pub(crate) fn refers_to(&self, open: Open) -> bool {
        self.files.values().any(|file| file.open == open)
    }
    /// Drops one reference; what it was, if it was the last.
    pub(crate) fn release(&mut self, at: FileRef) -> Option<Open> {
        let file = self.files.get_mut(&at)?;
        file.refs = file.refs.saturating_sub(1);
        if file.refs > 0 {
            return None;
        }
        self.files.remove(&at).map(|file| file.open)
    }
}

/// A descriptor of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fd {
    pub(crate) file: FileRef,
    pub(crate) cloexec: bool,
}

/// The descriptors of a process.
#[derive(Clone, Debug, Default)]
pub(crate) struct FdTable {
    fds: BTreeMap<i32, Fd>,
}

impl FdTable {
    pub(crate) fn get(&self, fd: i32) -> Result<Fd, Errno> {
        self.fds.get(&fd).copied().ok_or(EBADF)
    }
    pub(crate) fn get_mut(&mut self, fd: i32) -> Result<&mut Fd, Errno> {
        self.fds.get_mut(&fd).ok_or(EBADF)
    }
    /// Puts `entry` at the lowest free number from `min` on, below `limit`.
    pub(crate) fn insert(&mut self, entry: Fd, min: i32, limit: i32) -> Result<i32, Errno> {
        let fd = (min..limit).find(|fd| !self.fds.contains_key(fd)).ok_or(EMFILE)?;
        self.fds.insert(fd, entry);
        Ok(fd)
    }
    pub(crate) fn replace(&mut self, fd: i32, entry: Fd) -> Option<Fd> {
        self.fds.insert(fd, entry)
    }
    pub(crate) fn remove(&mut self, fd: i32) -> Result<Fd, Errno> {
        self.fds.remove(&fd).ok_or(EBADF)
    }
    pub(crate) fn iter(&self) -> impl Iterator<Item = (i32, Fd)> + '_ {
        self.fds.iter().map(|(&fd, &entry)| (fd, entry))
    }
}
