//! Files by name: a tmpfs root, devices, and pseudo-files.
//!
//! Nothing of the host shows through. Source for behaviour: path_resolution(7), Linux fs/namei.c.

#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

mod gup_test;
mod hugepages;
mod khugepaged;
mod ksm;
mod mm_events;
mod proc;
mod proc_maps;
mod proc_mem;
mod sysfs;

pub(crate) use hugepages::DEFAULT_SIZE as DEFAULT_HUGE_SIZE;
pub(crate) use mm_events::MmEvents;
pub(crate) use proc::uname;

use crate::counts::CountsByScope;
use crate::errno::{EACCES, EEXIST, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR, ENOTTY};
use crate::host::Clock;
use crate::kernel::Kernel;
use crate::task::{Process, ProcessId, TaskId};
use arch::Platform;
use mm::{Errno, FileId};
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;
use std::sync::Arc;
use units::VirtAddr;

/// An inode of the tmpfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct InodeId(u32);

impl InodeId {
    pub(crate) const ROOT: InodeId = InodeId(1);
    pub(crate) const fn get(self) -> u32 {
        self.0
    }
}

/// A pseudo-file, by its place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PseudoId(u16);

impl PseudoId {
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A character device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Device {
    /// `/dev/null`
    Null,
    /// `/dev/zero`
    Zero,
    /// `/dev/full`
    Full,
    /// `/dev/random`, `/dev/urandom`
    Random,
}

/// A file whose contents the kernel makes up, and whose writes it takes as orders.
///
/// `process` is the one that the file is about under `/proc/<pid>`, and the caller elsewhere.
pub trait PseudoFile<P: Platform>: Debug + Send + Sync {
    /// Permission bits.
    fn mode(&self) -> u32 {
        0o444
    }
    /// The whole contents, now.
    ///
    /// # Errors
    /// What `read()` returns.
    fn read(&self, kernel: &mut Kernel<P>, process: ProcessId) -> Result<Vec<u8>, Errno>;
    /// Bytes at an offset, for a file too large to be made whole; `None` for any other.
    fn read_at(
        &self,
        _kernel: &mut Kernel<P>,
        _process: ProcessId,
        _offset: u64,
        _len: usize,
    ) -> Option<Result<Vec<u8>, Errno>> {
        None
    }
    /// Takes what was written.
    ///
    /// # Errors
    /// What `write()` returns; EINVAL for a word that the file does not know.
    fn write(
        &self,
        _kernel: &mut Kernel<P>,
        _process: ProcessId,
        _data: &[u8],
    ) -> Result<(), Errno> {
        Err(EACCES)
    }
    /// Takes what was written at an offset, of a file where the offset matters; `None` for any other.
    fn write_at(
        &self,
        _kernel: &mut Kernel<P>,
        _process: ProcessId,
        _offset: u64,
        _data: &[u8],
    ) -> Option<Result<usize, Errno>> {
        None
    }
    /// Takes a request made by `ioctl()`.
    ///
    /// # Errors
    /// What `ioctl()` returns; ENOTTY for a file that takes none.
    fn ioctl(
        &self,
        _kernel: &mut Kernel<P>,
        _clock: &mut dyn Clock<P::Sink>,
        _task: TaskId,
        _number: u32,
        _arg: VirtAddr,
    ) -> Result<u64, Errno> {
        Err(ENOTTY)
    }
    /// The last descriptor of an opening is closed.
    fn release(&self, _kernel: &mut Kernel<P>) {}
}

/// What an inode is.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Dir(BTreeMap<String, InodeId>),
    /// A regular file: its contents are `mm`'s page cache.
    File(FileId),
    Symlink(String),
    Device(Device),
    Pseudo(PseudoId),
}

#[derive(Clone, Debug)]
pub(crate) struct Inode {
    pub(crate) kind: Kind,
    /// Permission bits.
    pub(crate) mode: u32,
}

/// Where a path leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    Inode(InodeId),
    /// `/proc/<pid>`
    ProcDir(ProcessId),
    /// A file in it.
    ProcFile(PseudoId, ProcessId),
    /// `/proc/self` and `/proc/thread-self`.
    ProcSelf,
    /// `/proc/<pid>/exe`
    ProcExe(ProcessId),
    /// `/proc/<pid>/cwd`
    ProcCwd(ProcessId),
}

/// The file tree.
#[derive(Clone, Debug)]
pub(crate) struct Vfs {
    inodes: BTreeMap<InodeId, Inode>,
    next: u32,
    /// Files of every `/proc/<pid>`.
    pub(crate) proc_files: BTreeMap<&'static str, PseudoId>,
    proc: InodeId,
    /// Values of files that only remember.
    knobs: BTreeMap<String, String>,
}

const LINKS_MAX: u32 = 40;
const NAME_MAX: usize = 255;

/// The tree as it is at boot, and the pseudo-files in it.
pub(crate) fn build<P: Platform>() -> (Vfs, Vec<Arc<dyn PseudoFile<P>>>)
where
    P::Sink: CountsByScope,
{
    let root = Inode { kind: Kind::Dir(BTreeMap::new()), mode: 0o755 };
    let mut vfs = Vfs {
        inodes: BTreeMap::from([(InodeId::ROOT, root)]),
        next: InodeId::ROOT.0 + 1,
        proc_files: BTreeMap::new(),
        proc: InodeId::ROOT,
        knobs: BTreeMap::new(),
    };
    for path in ["/tmp", "/dev/shm", "/etc", "/root", "/proc", "/sys"] {
        vfs.make_dirs(path);
    }
    vfs.proc = vfs.make_dirs("/proc");
    for (name, device) in [
        ("null", Device::Null),
        ("zero", Device::Zero),
        ("full", Device::Full),
        ("random", Device::Random),
        ("urandom", Device::Random),
    ] {
        vfs.place(&format!("/dev/{name}"), Kind::Device(device), 0o666);
    }
    let mut pseudo: Vec<Arc<dyn PseudoFile<P>>> = Vec::new();
    let mut add = |file: Arc<dyn PseudoFile<P>>| {
        pseudo.push(file);
        PseudoId(u16::try_from(pseudo.len() - 1).expect("pseudo-files are few"))
    };
    let tables = [sysfs::table(), ksm::table(), proc::table(), hugepages::table()];
    for (path, file) in tables.into_iter().flatten() {
        let mode = file.mode();
        let id = add(file);
        vfs.place(&path, Kind::Pseudo(id), mode);
    }
    for (name, file) in proc::process_table() {
        let id = add(file);
        vfs.proc_files.insert(name, id);
    }
    (vfs, pseudo)
}

impl Vfs {
    pub(crate) fn inode(&self, id: InodeId) -> Result<&Inode, Errno> {
        self.inodes.get(&id).ok_or(ENOENT)
    }
    pub(crate) fn inode_mut(&mut self, id: InodeId) -> Result<&mut Inode, Errno> {
        self.inodes.get_mut(&id).ok_or(ENOENT)
    }

    pub(crate) fn knob<'a>(&'a self, path: &str, otherwise: &'a str) -> &'a str {
        self.knobs.get(path).map_or(otherwise, String::as_str)
    }
    pub(crate) fn set_knob(&mut self, path: &str, value: String) {
        self.knobs.insert(path.to_owned(), value);
    }

    fn dir(&self, id: InodeId) -> Result<&BTreeMap<String, InodeId>, Errno> {
        match &self.inode(id)?.kind {
            Kind::Dir(entries) => Ok(entries),
            _ => Err(ENOTDIR),
        }
    }
    fn dir_mut(&mut self, id: InodeId) -> Result<&mut BTreeMap<String, InodeId>, Errno> {
        match &mut self.inode_mut(id)?.kind {
            Kind::Dir(entries) => Ok(entries),
            _ => Err(ENOTDIR),
        }
    }

    /// Puts a new inode into a directory.
    pub(crate) fn create(
        &mut self,
        dir: InodeId,
        name: &str,
        kind: Kind,
        mode: u32,
    ) -> Result<InodeId, Errno> {
        if self.dir(dir)?.contains_key(name) {
            return Err(EEXIST);
        }
        let id = self.create_nameless(kind, mode);
        self.dir_mut(dir)?.insert(name.to_owned(), id);
        Ok(id)
    }

    /// A new inode that no directory knows.
    pub(crate) fn create_nameless(&mut self, kind: Kind, mode: u32) -> InodeId {
        let id = InodeId(self.next);
        self.next = self.next.wrapping_add(1);
        self.inodes.insert(id, Inode { kind, mode: mode & 0o7777 });
        id
    }

    /// Takes a name out of a directory. The inode stays: open files may refer to it.
    pub(crate) fn remove(&mut self, dir: InodeId, name: &str) -> Result<InodeId, Errno> {
        self.dir_mut(dir)?.remove(name).ok_or(ENOENT)
    }

    /// Whether some directory knows the inode.
    pub(crate) fn is_linked(&self, inode: InodeId) -> bool {
        self.inodes.values().any(|it| match &it.kind {
            Kind::Dir(entries) => entries.values().any(|&entry| entry == inode),
            _ => false,
        })
    }

    /// Forgets an inode that nobody can reach any more.
    pub(crate) fn forget(&mut self, inode: InodeId) -> Option<Inode> {
        self.inodes.remove(&inode)
    }

    fn make_dirs(&mut self, path: &str) -> InodeId {
        let mut at = InodeId::ROOT;
        for name in path.split('/').filter(|c| !c.is_empty()) {
            let existing = self.dir(at).ok().and_then(|entries| entries.get(name).copied());
            at = match existing {
                Some(id) => id,
                None => self
                    .create(at, name, Kind::Dir(BTreeMap::new()), 0o755)
                    .expect("the boot tree has directories only where it says so"),
            };
        }
        at
    }

    fn place(&mut self, path: &str, kind: Kind, mode: u32) {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        let dir = self.make_dirs(dir);
        self.create(dir, name, kind, mode).expect("each boot file has its own path");
    }

    /// Follows an absolute path.
    pub(crate) fn resolve(
        &self,
        path: &str,
        follow: Follow,
        caller: ProcessId,
        processes: &BTreeMap<ProcessId, Process>,
    ) -> Result<Node, Errno> {
        let mut todo: VecDeque<String> = path.split('/').map(str::to_owned).collect();
        let must_be_dir = path.ends_with('/');
        let mut stack = vec![Node::Inode(InodeId::ROOT)];
        let mut links = 0u32;
        while let Some(name) = todo.pop_front() {
            let at = stack.last().copied().ok_or(ENOENT)?;
            match name.as_str() {
                "" | "." => continue,
                ".." => {
                    if stack.len() > 1 {
                        stack.pop();
                    }
                    continue;
                }
                _ if name.len() > NAME_MAX => return Err(ENAMETOOLONG),
                _ => {}
            }
            let child = self.child(at, &name, processes)?;
            let last = todo.iter().all(String::is_empty) && !must_be_dir;
            let Some(target) = self.link_target(child, caller, processes) else {
                stack.push(child);
                continue;
            };
            if last && follow == Follow::No {
                return Ok(child);
            }
            links += 1;
            if links > LINKS_MAX {
                return Err(ELOOP);
            }
            if target.starts_with('/') {
                stack.truncate(1);
            }
            for part in target.split('/').rev() {
                todo.push_front(part.to_owned());
            }
        }
        let found = stack.last().copied().ok_or(ENOENT)?;
        if must_be_dir && !self.is_dir(found) {
            return Err(ENOTDIR);
        }
        Ok(found)
    }

    fn child(
        &self,
        at: Node,
        name: &str,
        processes: &BTreeMap<ProcessId, Process>,
    ) -> Result<Node, Errno> {
        match at {
            Node::Inode(dir) if dir == self.proc => match name {
                "self" | "thread-self" => Ok(Node::ProcSelf),
                _ => match name.parse().map(ProcessId) {
                    Ok(pid) if processes.contains_key(&pid) => Ok(Node::ProcDir(pid)),
                    _ => Ok(Node::Inode(*self.dir(dir)?.get(name).ok_or(ENOENT)?)),
                },
            },
            Node::Inode(dir) => Ok(Node::Inode(*self.dir(dir)?.get(name).ok_or(ENOENT)?)),
            Node::ProcDir(pid) => match name {
                "exe" => Ok(Node::ProcExe(pid)),
                "cwd" => Ok(Node::ProcCwd(pid)),
                _ => self.proc_files.get(name).map(|&id| Node::ProcFile(id, pid)).ok_or(ENOENT),
            },
            _ => Err(ENOTDIR),
        }
    }

    /// What a symbolic link says.
    pub(crate) fn link_target(
        &self,
        node: Node,
        caller: ProcessId,
        processes: &BTreeMap<ProcessId, Process>,
    ) -> Option<String> {
        match node {
            Node::Inode(id) => match &self.inodes.get(&id)?.kind {
                Kind::Symlink(target) => Some(target.clone()),
                _ => None,
            },
            Node::ProcSelf => Some(caller.get().to_string()),
            Node::ProcExe(pid) => processes.get(&pid).map(|p| p.exe.clone()),
            Node::ProcCwd(pid) => processes.get(&pid).map(|p| p.cwd.clone()),
            Node::ProcDir(_) | Node::ProcFile(..) => None,
        }
    }

    pub(crate) fn is_dir(&self, node: Node) -> bool {
        match node {
            Node::Inode(id) => self.dir(id).is_ok(),
            Node::ProcDir(_) => true,
            _ => false,
        }
    }

    /// Names in a directory, with what they are (`DT_*`) and an inode number.
    pub(crate) fn list(
        &self,
        node: Node,
        processes: &BTreeMap<ProcessId, Process>,
    ) -> Result<Vec<(String, u8, u64)>, Errno> {
        const DT_DIR: u8 = 4;
        const DT_REG: u8 = 8;
        const DT_LNK: u8 = 10;
        let mut list = vec![(".".to_owned(), DT_DIR, 1), ("..".to_owned(), DT_DIR, 1)];
        match node {
            Node::Inode(id) => {
                for (name, &child) in self.dir(id)? {
                    let ty = match self.inode(child)?.kind {
                        Kind::Dir(_) => DT_DIR,
                        Kind::File(_) | Kind::Pseudo(_) => DT_REG,
                        Kind::Symlink(_) => DT_LNK,
                        Kind::Device(_) => 2,
                    };
                    list.push((name.clone(), ty, u64::from(child.0)));
                }
                if id == self.proc {
                    list.push(("self".to_owned(), DT_LNK, 2));
                    for pid in processes.keys() {
                        list.push((pid.get().to_string(), DT_DIR, 3));
                    }
                }
            }
            Node::ProcDir(_) => {
                for name in self.proc_files.keys() {
                    list.push(((*name).to_owned(), DT_REG, 4));
                }
                list.push(("exe".to_owned(), DT_LNK, 4));
                list.push(("cwd".to_owned(), DT_LNK, 4));
            }
            _ => return Err(ENOTDIR),
        }
        Ok(list)
    }
}

/// Whether the last component is followed if it is a symbolic link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Follow {
    Yes,
    No,
}

/// `path` from `base`, without `.`, `..` and repeated slashes; absolute.
pub(crate) fn absolute(base: &str, path: &str) -> String {
    let joined = if path.starts_with('/') { path.to_owned() } else { format!("{base}/{path}") };
    let mut parts: Vec<&str> = Vec::new();
    for part in joined.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// The one of `words` that was written, a newline at its end allowed (`sysfs_streq()`).
pub(crate) fn chosen_word(words: &[&str], data: &[u8]) -> Option<usize> {
    let text = data.strip_suffix(b"\n").unwrap_or(data);
    words.iter().position(|word| word.as_bytes() == text)
}

/// All words, the active one in brackets.
pub(crate) fn bracketed(words: &[&str], active: usize) -> Vec<u8> {
    let mut line = String::new();
    for (i, word) in words.iter().enumerate() {
        let sep = if i == 0 { "" } else { " " };
        line += sep;
        line += &if i == active { format!("[{word}]") } else { (*word).to_owned() };
    }
    line.push('\n');
    line.into_bytes()
}

/// A decimal number as sysfs takes one: white space around it allowed.
pub(crate) fn number(data: &[u8]) -> Option<u64> {
    std::str::from_utf8(data).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_bracketed_and_taken_back() {
        let words = ["always", "madvise", "never"];
        assert_eq!(bracketed(&words, 1), b"always [madvise] never\n");
        assert_eq!(chosen_word(&words, b"never\n"), Some(2));
        assert_eq!(chosen_word(&words, b"never"), Some(2));
        for wrong in [&b"nev"[..], b"never\n\n", b"", b" never"] {
            assert_eq!(chosen_word(&words, wrong), None);
        }
    }

    #[test]
    fn relative_paths_start_at_the_working_directory() {
        assert_eq!(absolute("/tmp", "a//./b/../c"), "/tmp/a/c");
        assert_eq!(absolute("/tmp", "/../x"), "/x");
        assert_eq!(absolute("/", "."), "/");
    }
}
