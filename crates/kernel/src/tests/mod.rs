//! The kernel as a program sees it, over the real `mm`, with registers that are just numbers.

mod files;
mod gup;
mod hostile;
mod ksm;
mod load;
mod memory;
mod mm_calls;
mod processes;
mod shared;
mod signals;

use crate::elf::tests::elf;
use crate::*;
use arch::{Arch, Arm64, Hw, KernelConfig, Platform, X86_64};
use events::ByOp;
use mm::{Mm, MmConfig, Thp};
use std::collections::BTreeMap;
use std::marker::PhantomData;
use units::{ArchId, CpuId, VirtAddr};

#[derive(Debug)]
struct Bare<A>(PhantomData<A>);

impl<A: Arch> Platform for Bare<A> {
    type Arch = A;
    type Sink = ByOp;
    type Tlb = ();
}

/// Registers without a CPU.
#[derive(Clone, Debug, PartialEq)]
struct Regs {
    arch: ArchId,
    gpr: [u64; 32],
    pc: VirtAddr,
    sp: VirtAddr,
    tls: u64,
    flags: u64,
    fp: Vec<u8>,
}

impl Regs {
    fn new(arch: ArchId) -> Regs {
        let fp = match arch {
            ArchId::X86_64 => 512,
            ArchId::Arm64 => 520,
        };
        Regs {
            arch,
            gpr: [0; 32],
            pc: VirtAddr::ZERO,
            sp: VirtAddr::ZERO,
            tls: 0,
            flags: 0,
            fp: vec![0; fp],
        }
    }
    fn ret(&self) -> i64 {
        self.gpr[0].cast_signed()
    }
    fn set_call(&mut self, nr: u32, args: [u64; 6]) {
        let (nr_at, at) = match self.arch {
            ArchId::X86_64 => (0, [7, 6, 2, 10, 8, 9]),
            ArchId::Arm64 => (8, [0, 1, 2, 3, 4, 5]),
        };
        self.gpr[nr_at] = u64::from(nr);
        for (i, arg) in at.into_iter().zip(args) {
            self.gpr[i] = arg;
        }
    }
}

impl UserRegs for Regs {
    fn arch(&self) -> ArchId {
        self.arch
    }
    fn gpr(&self, n: u8) -> u64 {
        if self.arch == ArchId::X86_64 && n == 4 { self.sp.get() } else { self.gpr[usize::from(n)] }
    }
    fn set_gpr(&mut self, n: u8, value: u64) {
        if self.arch == ArchId::X86_64 && n == 4 {
            self.sp = VirtAddr::new(value);
        }
        self.gpr[usize::from(n)] = value;
    }
    fn pc(&self) -> VirtAddr {
        self.pc
    }
    fn set_pc(&mut self, pc: VirtAddr) {
        self.pc = pc;
    }
    fn sp(&self) -> VirtAddr {
        self.sp
    }
    fn set_sp(&mut self, sp: VirtAddr) {
        self.sp = sp;
    }
    fn tls(&self) -> u64 {
        self.tls
    }
    fn set_tls(&mut self, tls: u64) {
        self.tls = tls;
    }
    fn flags(&self) -> u64 {
        self.flags
    }
    fn set_flags(&mut self, flags: u64) {
        self.flags = flags;
    }
    fn fp_image(&self) -> Vec<u8> {
        self.fp.clone()
    }
    fn set_fp_image(&mut self, image: &[u8]) {
        self.fp = image.to_vec();
    }
}

/// A clock that is set by hand, and a console that remembers.
#[derive(Default)]
struct Outside {
    now_ns: u64,
    out: Vec<u8>,
    input: Vec<u8>,
}

impl<S> Clock<S> for Outside {
    fn now_ns(&mut self, _: &S) -> u64 {
        self.now_ns
    }
}

impl Console for Outside {
    fn write(&mut self, _: Stream, bytes: &[u8]) {
        self.out.extend(bytes);
    }
    fn read(&mut self, into: &mut [u8]) -> usize {
        let n = into.len().min(self.input.len());
        into[..n].copy_from_slice(&self.input[..n]);
        self.input.drain(..n);
        n
    }
}

/// A kernel with a program of one page of code and a page of data, whose tasks do what a test
/// says.
struct Guest<A: Arch> {
    kernel: Kernel<Bare<A>>,
    regs: BTreeMap<TaskId, Regs>,
    outside: Outside,
    /// The task that makes the next call.
    task: TaskId,
    last: Outcome,
}

const CODE: u64 = 0x40_0000;
const DATA: u64 = 0x40_2000;

/// Two segments; the second has zeroes after its bytes.
fn program<A: Arch>(e_type: u16) -> Vec<u8> {
    let machine = if A::ID == ArchId::X86_64 { 62 } else { 183 };
    let base = if e_type == 2 { CODE } else { 0 };
    elf(
        machine,
        e_type,
        &[
            (1, 5, 0, base, 0x1800, 0x1800),
            (1, 6, 0x2000, base + 0x2000, 0x800, 0x3800),
            (0x6474_e551, 6, 0, 0, 0, 0),
        ],
    )
}

fn kernel<A: Arch>(cpus: u16) -> Kernel<Bare<A>> {
    let hw = if A::ID == ArchId::X86_64 { Hw::x86_64() } else { Hw::arm64() };
    let config = MmConfig {
        ram_bytes: 64 << 20,
        swap_bytes: 16 << 20,
        kernel: KernelConfig::parse("v6.12").expect("a preset"),
        hw: Hw { cpus, ..hw },
        thp: Thp::boot(),
    };
    let options = KernelOptions {
        seed: 1,
        hwcap: 0,
        hwcap2: 0,
        min_sigstack: 2048,
        cpu_model: "test".to_owned(),
        first_cpu: None,
        uid: 0,
    };
    Kernel::new(Mm::new(config, ByOp::new(), ()).expect("guest RAM"), options)
}

impl<A: Arch> Guest<A> {
    fn new() -> Self {
        Guest::with_cpus(1)
    }

    fn with_cpus(cpus: u16) -> Self {
        let mut kernel = kernel::<A>(cpus);
        let elf = program::<A>(2);
        let argv = [b"prog".to_vec()];
        let program = Program { path: "/bin/prog", elf: &elf, argv: &argv, envp: &[] };
        let loaded = kernel.load(&program).expect("a good program");
        let mut regs = Regs::new(A::ID);
        (regs.pc, regs.sp) = (loaded.pc, loaded.sp);
        let mut guest = Guest {
            kernel,
            regs: BTreeMap::from([(loaded.task, regs)]),
            outside: Outside::default(),
            task: loaded.task,
            last: Outcome::Resume,
        };
        // The first program starts on the second CPU, if there is one.
        guest.turn(CpuId::new((cpus - 1).min(1)));
        guest
    }

    /// The next task of `cpu` goes back to user mode; what came of it.
    fn turn(&mut self, cpu: CpuId) -> Option<Outcome> {
        self.task = self.kernel.schedule(cpu)?;
        let regs = self.regs.get_mut(&self.task).expect("registers of every task");
        self.last = self.kernel.return_to_user(self.task, regs, &mut self.outside);
        Some(self.last)
    }

    fn regs(&mut self) -> &mut Regs {
        self.regs.get_mut(&self.task).expect("registers of every task")
    }

    /// The current task makes a system call; what it returned, if it did.
    fn call(&mut self, name: &str, args: &[u64]) -> i64 {
        let info = SYSCALLS.iter().find(|s| s.name == name).expect("a known system call");
        let nr = info.nr(A::ID).expect("a system call of this architecture");
        let mut six = [0; 6];
        six[..args.len()].copy_from_slice(args);
        self.call_nr(nr, six)
    }

    fn call_nr(&mut self, nr: u32, args: [u64; 6]) -> i64 {
        let regs = self.regs.get_mut(&self.task).expect("registers of every task");
        regs.set_call(nr, args);
        self.last = self.kernel.syscall(self.task, regs, &mut self.outside);
        if let Outcome::Spawned(spawn) = self.last {
            let mut child = self.regs().clone();
            child.set_ret(0);
            child.sp = spawn.sp.unwrap_or(child.sp);
            child.tls = spawn.tls.unwrap_or(child.tls);
            self.regs.insert(spawn.child, child);
        }
        self.regs().ret()
    }

    fn poke(&mut self, at: u64, bytes: &[u8]) {
        self.kernel.write_user(self.task, VirtAddr::new(at), bytes).expect("mapped memory");
    }

    fn peek(&mut self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.kernel.read_user(self.task, VirtAddr::new(at), &mut bytes).expect("mapped memory");
        bytes
    }

    fn peek_u64(&mut self, at: u64) -> u64 {
        u64::from_le_bytes(self.peek(at, 8).try_into().expect("8 bytes"))
    }

    fn peek_u32(&mut self, at: u64) -> u32 {
        u32::from_le_bytes(self.peek(at, 4).try_into().expect("4 bytes"))
    }

    /// Opens a path.
    fn open(&mut self, path: &str, flags: u64) -> i64 {
        self.poke(DATA, path.as_bytes());
        self.poke(DATA + path.len() as u64, &[0]);
        self.call("openat", &[(-100i64).cast_unsigned(), DATA, flags, 0o644])
    }

    /// All of a file.
    fn slurp(&mut self, path: &str) -> String {
        let fd = self.open(path, 0);
        assert!(fd >= 0, "open {path}: {fd}");
        let mut all = Vec::new();
        loop {
            let n = self.call("read", &[fd.cast_unsigned(), DATA, 0x1000]);
            assert!(n >= 0, "read {path}: {n}");
            if n == 0 {
                break;
            }
            all.extend(self.peek(DATA, usize::try_from(n).expect("positive")));
        }
        self.call("close", &[fd.cast_unsigned()]);
        String::from_utf8(all).expect("text")
    }

    /// Writes to a file; what write returned.
    fn spew(&mut self, path: &str, data: &str) -> i64 {
        let fd = self.open(path, 1);
        assert!(fd >= 0, "open {path}: {fd}");
        self.poke(DATA, data.as_bytes());
        let n = self.call("write", &[fd.cast_unsigned(), DATA, data.len() as u64]);
        self.call("close", &[fd.cast_unsigned()]);
        n
    }

    /// Anonymous private memory.
    fn map(&mut self, len: u64) -> u64 {
        let at = self.call("mmap", &[0, len, 3, 0x22, u64::MAX, 0]);
        assert!(at > 0, "mmap: {at}");
        at.cast_unsigned()
    }
}

const EPERM: i64 = -1;
const ENOENT: i64 = -2;
const EINTR: i64 = -4;
const EBADF: i64 = -9;
const ECHILD: i64 = -10;
const EAGAIN: i64 = -11;
const EACCES: i64 = -13;
const EFAULT: i64 = -14;
const EEXIST: i64 = -17;
const ENOTDIR: i64 = -20;
const EISDIR: i64 = -21;
const EINVAL: i64 = -22;
const ENOTTY: i64 = -25;
const ESPIPE: i64 = -29;
const EPIPE: i64 = -32;
const ENOSYS: i64 = -38;
const ETIMEDOUT: i64 = -110;

/// Runs a test on both architectures.
macro_rules! on_both {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            check::$name::<X86_64>();
            check::$name::<Arm64>();
        }
    )*};
}
use on_both;
