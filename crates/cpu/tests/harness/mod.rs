//! A minimal user-mode harness over flat memory: loads a static ELF, serves the few system calls that
//! a C start-up needs, and runs it. It exists to test the CPU before and apart from the real kernel layer.

use cpu::testbus::{FlatBus, FlatFault};
use cpu::{Cpu, Exit};
use std::collections::BTreeMap;
use units::{ArchId, VirtAddr};

const BASE: u64 = 0x1_0000;
const SIZE: usize = 1 << 30;
const STACK_TOP: u64 = BASE + SIZE as u64 - 0x1_0000;
const ENOSYS: i64 = -38;

/// How a guest ended.
#[derive(Debug, PartialEq)]
pub enum End {
    /// Exit status.
    Status(i32),
    /// Anything else the CPU reported.
    Stopped(Exit<FlatFault>),
}

/// A guest program, loaded.
pub struct Guest {
    pub cpu: Cpu<FlatBus>,
    pub bus: FlatBus,
    pub out: Vec<u8>,
    pub retired: u64,
    arch: ArchId,
    brk: u64,
    mmap_top: u64,
    threads: Vec<Thread>,
    current: usize,
    /// System calls that were answered with ENOSYS.
    pub unknown: BTreeMap<u64, u64>,
}

struct Thread {
    state: cpu::CpuState,
    tid: u64,
    clear_tid: u64,
    /// Address and value of a futex being waited for.
    waits: Option<u64>,
    dead: bool,
}

fn u16_at(b: &[u8], at: usize) -> u64 {
    b.get(at..).and_then(|s| s.first_chunk()).map_or(0, |c| u64::from(u16::from_le_bytes(*c)))
}
fn u64_at(b: &[u8], at: usize) -> u64 {
    b.get(at..).and_then(|s| s.first_chunk()).map_or(0, |c| u64::from_le_bytes(*c))
}

impl Guest {
    /// Loads an ELF image with arguments.
    pub fn new(elf: &[u8], args: &[&str]) -> Guest {
        let arch = if u16_at(elf, 18) == 62 { ArchId::X86_64 } else { ArchId::Arm64 };
        let bias = if u16_at(elf, 16) == 3 { 0x40_0000 } else { 0 };
        let mut bus = FlatBus::new(VirtAddr::new(BASE), SIZE);
        let (phoff, phnum) = (u64_at(elf, 32) as usize, u16_at(elf, 56) as usize);
        let (mut end, mut phdr_va) = (0, 0);
        for i in 0..phnum {
            let p = &elf[phoff + i * 56..];
            if u16_at(p, 0) != 1 {
                continue;
            }
            let (off, va) = (u64_at(p, 8) as usize, u64_at(p, 16) + bias);
            let (filesz, memsz) = (u64_at(p, 32) as usize, u64_at(p, 40));
            let to = bus.slice_mut(VirtAddr::new(va), filesz).expect("segment in memory");
            to.copy_from_slice(&elf[off..off + filesz]);
            end = end.max(va + memsz);
            if off <= phoff && phoff < off + filesz {
                phdr_va = va + (phoff - off) as u64;
            }
        }
        let entry = u64_at(elf, 24) + bias;
        let mut cpu = Cpu::new(arch);
        cpu.state_mut().set_pc(VirtAddr::new(entry));
        let mut g = Guest {
            cpu,
            bus,
            out: Vec::new(),
            retired: 0,
            arch,
            brk: (end + 0xfff) & !0xfff,
            mmap_top: STACK_TOP - (16 << 20),
            threads: vec![],
            current: 0,
            unknown: BTreeMap::new(),
        };
        let sp = g.build_stack(args, &[(3, phdr_va), (4, 56), (5, phnum as u64), (9, entry)]);
        g.cpu.state_mut().set_sp(arch, VirtAddr::new(sp));
        let state = g.cpu.state().clone();
        g.threads.push(Thread { state, tid: 1000, clear_tid: 0, waits: None, dead: false });
        g
    }

    fn put(&mut self, va: u64, bytes: &[u8]) {
        if let Some(to) = self.bus.slice_mut(VirtAddr::new(va), bytes.len()) {
            to.copy_from_slice(bytes);
        }
    }
    fn word(&self, va: u64) -> u32 {
        let b = self.bus.slice(VirtAddr::new(va), 4).and_then(|b| b.first_chunk());
        b.map_or(0, |b| u32::from_le_bytes(*b))
    }

    fn build_stack(&mut self, args: &[&str], aux: &[(u64, u64)]) -> u64 {
        let mut at = STACK_TOP;
        let mut pointers = Vec::new();
        for arg in args {
            at -= arg.len() as u64 + 1;
            self.put(at, arg.as_bytes());
            pointers.push(at);
        }
        at = (at - 64) & !15;
        let random = at;
        self.put(random, b"0123456789abcdef");
        at -= 16;
        let platform = at;
        self.put(platform, b"x86_64\0");
        let mut words = vec![args.len() as u64];
        words.extend(&pointers);
        words.extend([0, 0]);
        for &(k, v) in aux {
            words.extend([k, v]);
        }
        let hwcap = match self.arch {
            ArchId::X86_64 => 0,
            ArchId::Arm64 => cpu::arm64::HWCAP,
        };
        for (k, v) in [
            (6, 4096),
            (11, 0),
            (12, 0),
            (13, 0),
            (14, 0),
            (15, platform),
            (16, hwcap),
            (17, 100),
            (23, 0),
            (25, random),
            (0, 0),
        ] {
            words.extend([k, v]);
        }
        at = (at - words.len() as u64 * 8) & !15;
        for (i, w) in words.iter().enumerate() {
            self.put(at + i as u64 * 8, &w.to_le_bytes());
        }
        at
    }

    /// Runs to the end, at most `limit` instructions.
    pub fn run(&mut self, limit: u64) -> End {
        while self.retired < limit {
            let quantum = if self.threads.len() > 1 { 10_000 } else { limit - self.retired };
            let exit = self.cpu.run(&mut self.bus, quantum.min(limit - self.retired));
            self.retired += self.cpu.retired_nr();
            match exit {
                Exit::Syscall => {
                    if let Some(status) = self.syscall() {
                        return End::Status(status);
                    }
                }
                Exit::Limit => self.switch(),
                other => return End::Stopped(other),
            }
        }
        End::Stopped(Exit::Limit)
    }

    /// To the next runnable thread.
    fn switch(&mut self) {
        let n = self.threads.len();
        self.threads[self.current].state = self.cpu.state().clone();
        for i in 1..=n {
            let t = (self.current + i) % n;
            if self.threads[t].waits.is_none() && !self.threads[t].dead {
                self.current = t;
                *self.cpu.state_mut() = self.threads[t].state.clone();
                return;
            }
        }
        panic!("deadlock among guest threads");
    }

    fn syscall(&mut self) -> Option<i32> {
        let s = self.cpu.state();
        let a: [u64; 6] = std::array::from_fn(|n| s.syscall_arg(self.arch, n));
        let nr = s.syscall_nr(self.arch);
        let name = match self.arch {
            ArchId::X86_64 => x86_name(nr),
            ArchId::Arm64 => arm64_name(nr),
        };
        let result: i64 = match name {
            "exit_group" => return Some(a[0] as i32),
            "exit" => {
                let clear = self.threads[self.current].clear_tid;
                if clear != 0 {
                    self.put(clear, &0u32.to_le_bytes());
                    self.wake(clear, 1);
                }
                if self.threads.iter().filter(|t| !t.dead).count() == 1 {
                    return Some(a[0] as i32);
                }
                self.threads[self.current].dead = true;
                self.switch();
                return None;
            }
            "write" => {
                let bytes = self.bus.slice(VirtAddr::new(a[1]), a[2] as usize);
                self.out.extend(bytes.unwrap_or(b"<bad write>"));
                a[2] as i64
            }
            "writev" => self.writev(a[1], a[2]),
            "brk" => {
                if a[0] >= self.brk && a[0] < self.mmap_top {
                    self.brk = a[0];
                }
                self.brk as i64
            }
            "mmap" => self.mmap(&a),
            "arch_prctl" => {
                if a[0] == 0x1002 {
                    self.cpu.state_mut().set_tls(self.arch, VirtAddr::new(a[1]));
                    0
                } else {
                    -22
                }
            }
            "set_tid_address" => {
                self.threads[self.current].clear_tid = a[0];
                self.threads[self.current].tid as i64
            }
            "gettid" => self.threads[self.current].tid as i64,
            "getpid" => 1000,
            "munmap" | "mprotect" | "madvise" | "set_robust_list" | "rt_sigaction"
            | "rt_sigprocmask" | "sched_setaffinity" | "close" => 0,
            "sched_yield" => {
                self.cpu.state_mut().set_syscall_return(self.arch, 0);
                self.switch();
                return None;
            }
            "prlimit64" => {
                if a[3] != 0 {
                    self.put(a[3], &(8u64 << 20).to_le_bytes());
                    self.put(a[3] + 8, &u64::MAX.to_le_bytes());
                }
                0
            }
            "getrandom" => {
                self.put(a[0], &vec![0x5a; a[1] as usize]);
                a[1] as i64
            }
            "clock_gettime" => {
                let t = self.retired;
                self.put(a[1], &(t / 1_000_000_000).to_le_bytes());
                self.put(a[1] + 8, &(t % 1_000_000_000).to_le_bytes());
                0
            }
            "fstat" | "newfstatat" => {
                // A character device, so stdout is line buffered and untouched otherwise.
                let at = if name == "fstat" { a[1] } else { a[2] };
                self.put(at, &[0; 128]);
                let mode_at = if self.arch == ArchId::X86_64 { 24 } else { 16 };
                self.put(at + mode_at, &0o020620u32.to_le_bytes());
                0
            }
            "ioctl" => -25,
            "open" | "openat" | "readlink" | "readlinkat" => -2,
            "futex" => return self.futex(&a),
            "clone" => self.clone_thread(&a),
            _ => {
                *self.unknown.entry(nr).or_default() += 1;
                ENOSYS
            }
        };
        self.cpu.state_mut().set_syscall_return(self.arch, result as u64);
        None
    }

    fn writev(&mut self, iov: u64, n: u64) -> i64 {
        let mut total = 0;
        for i in 0..n {
            let v = self.bus.slice(VirtAddr::new(iov + i * 16), 16).unwrap_or(&[0; 16]);
            let (base, len) = (u64_at(v, 0), u64_at(v, 8));
            let bytes = self.bus.slice(VirtAddr::new(base), len as usize).unwrap_or(&[]).to_vec();
            self.out.extend(bytes);
            total += len as i64;
        }
        total
    }

    fn mmap(&mut self, a: &[u64; 6]) -> i64 {
        let len = (a[1] + 0xfff) & !0xfff;
        let fixed = a[3] & 0x10 != 0;
        let at = if fixed { a[0] } else { self.mmap_top.saturating_sub(len) };
        if !fixed && at <= self.brk + (1 << 20) {
            return -12;
        }
        if !fixed {
            self.mmap_top = at;
        } else if let Some(to) = self.bus.slice_mut(VirtAddr::new(at), len as usize) {
            to.fill(0);
        }
        at as i64
    }

    fn wake(&mut self, at: u64, mut n: u64) -> i64 {
        let mut woken = 0;
        for t in &mut self.threads {
            if n > 0 && t.waits == Some(at) {
                t.waits = None;
                n -= 1;
                woken += 1;
            }
        }
        woken
    }

    fn futex(&mut self, a: &[u64; 6]) -> Option<i32> {
        let result = match a[1] & 0x7f {
            0 | 9 if self.word(a[0]) == a[2] as u32 => {
                self.cpu.state_mut().set_syscall_return(self.arch, 0);
                self.threads[self.current].waits = Some(a[0]);
                self.switch();
                return None;
            }
            0 | 9 => -11,
            1 | 10 => self.wake(a[0], a[2]),
            _ => ENOSYS,
        };
        self.cpu.state_mut().set_syscall_return(self.arch, result as u64);
        None
    }

    fn clone_thread(&mut self, a: &[u64; 6]) -> i64 {
        let tid = 1000 + self.threads.len() as u64;
        let mut state = self.cpu.state().clone();
        let (ctid, tls) = match self.arch {
            ArchId::X86_64 => (a[3], a[4]),
            ArchId::Arm64 => (a[4], a[3]),
        };
        state.set_syscall_return(self.arch, 0);
        state.set_sp(self.arch, VirtAddr::new(a[1]));
        if a[0] & 0x8_0000 != 0 {
            state.set_tls(self.arch, VirtAddr::new(tls));
        }
        if a[0] & 0x10_0000 != 0 {
            self.put(a[2], &(tid as u32).to_le_bytes());
        }
        let clear_tid = if a[0] & 0x20_0000 != 0 { ctid } else { 0 };
        self.threads.push(Thread { state, tid, clear_tid, waits: None, dead: false });
        tid as i64
    }
}

fn x86_name(nr: u64) -> &'static str {
    match nr {
        0 => "read",
        1 => "write",
        2 => "open",
        3 => "close",
        5 => "fstat",
        9 => "mmap",
        10 => "mprotect",
        11 => "munmap",
        12 => "brk",
        13 => "rt_sigaction",
        14 => "rt_sigprocmask",
        16 => "ioctl",
        20 => "writev",
        24 => "sched_yield",
        28 => "madvise",
        39 => "getpid",
        56 => "clone",
        60 => "exit",
        89 => "readlink",
        158 => "arch_prctl",
        186 => "gettid",
        202 => "futex",
        203 => "sched_setaffinity",
        218 => "set_tid_address",
        228 => "clock_gettime",
        231 => "exit_group",
        257 => "openat",
        262 => "newfstatat",
        267 => "readlinkat",
        273 => "set_robust_list",
        302 => "prlimit64",
        318 => "getrandom",
        _ => "",
    }
}

fn arm64_name(nr: u64) -> &'static str {
    match nr {
        29 => "ioctl",
        56 => "openat",
        57 => "close",
        64 => "write",
        66 => "writev",
        78 => "readlinkat",
        79 => "newfstatat",
        80 => "fstat",
        93 => "exit",
        94 => "exit_group",
        96 => "set_tid_address",
        98 => "futex",
        99 => "set_robust_list",
        113 => "clock_gettime",
        122 => "sched_setaffinity",
        124 => "sched_yield",
        134 => "rt_sigaction",
        135 => "rt_sigprocmask",
        172 => "getpid",
        178 => "gettid",
        214 => "brk",
        215 => "munmap",
        220 => "clone",
        222 => "mmap",
        226 => "mprotect",
        233 => "madvise",
        261 => "prlimit64",
        278 => "getrandom",
        _ => "",
    }
}
