//! Host speed, as ratios measured in one run: kernel operations against the native kernel, guest
//! code against QEMU user mode, counting against not counting, the TLB model against none.
//!
//! `cargo bench -p ptescope-tests --bench speed`, or one section of it: `-- guest`, `counting`, `gup`, `start-up`,
//! `kernel`. Needs an otherwise idle machine to mean anything; what a host does not have (QEMU, a compiler, large
//! folios, swap) is skipped with a line. Every figure is the smallest of several rounds.

#![expect(clippy::print_stdout, reason = "a bench reports")]
#![expect(clippy::disallowed_methods, reason = "a bench reads the host clock")]

use arch::{Arch, Arm64, KernelConfig, X86_64};
use events::{ByOp, Counters};
use machine::{Console, FreeClock, Observer, Pricing, RunConfig, Stream, run_with};
use mm::{Thp, ThpSize};
use mmu::{Exact, HwWalk, Machine, Model, Untracked};
use ptescope_tests::guest::Guest;
use ptescope_tests::gup::{Options, region};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use units::{ArchId, Order};

const ROUNDS: usize = 5;

/// Virtual time is host time: a guest that times itself prints what the emulator took.
#[derive(Debug)]
struct HostClock(Instant);

impl Pricing for HostClock {
    fn ns(&self, _: &Counters, _: u64) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

#[derive(Default)]
struct Output(Vec<u8>);

impl Console for Output {
    fn write(&mut self, _: Stream, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
    fn read(&mut self, _: &mut [u8]) -> usize {
        0
    }
}

fn repo() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn guest(arch: ArchId, name: &str) -> PathBuf {
    repo().join("guest-programs/prebuilt").join(arch.name()).join(name)
}

fn config(arch: ArchId, path: &Path, args: &[&str], thp: Thp) -> RunConfig {
    let kernel = KernelConfig::parse(KernelConfig::DEFAULT).expect("the default exists");
    let name = path.to_string_lossy().into_owned();
    let mut argv = vec![name.clone()];
    argv.extend(args.iter().map(|&a| a.to_owned()));
    let mut config = RunConfig::new(kernel, Machine::default_for(arch), &name, argv);
    config.thp = thp;
    config
}

fn emulate<A, S, M>(config: &RunConfig, sink: S, clock: &dyn Pricing) -> (Duration, String, u64)
where
    A: HwWalk + Arch,
    S: Observer,
    M: Model,
{
    let elf = fs::read(&config.path).expect("the guest exists");
    let mut output = Output::default();
    let start = Instant::now();
    let outcome = run_with::<A, S, M>(config, &elf, sink, clock, &mut output);
    let took = start.elapsed();
    let outcome = outcome.unwrap_or_else(|e| panic!("{}: {e}", config.path));
    (took, String::from_utf8_lossy(&output.0).into_owned(), outcome.instructions)
}

fn best<T>(mut once: impl FnMut() -> (Duration, T)) -> (Duration, T) {
    let mut rounds: Vec<(Duration, T)> = (0..ROUNDS).map(|_| once()).collect();
    rounds.sort_by_key(|r| r.0);
    rounds.swap_remove(0)
}

fn native(program: &Path, args: &[&str]) -> Option<(Duration, String)> {
    let start = Instant::now();
    let output = Command::new(program).args(args).output().ok()?;
    let took = start.elapsed();
    output.status.success().then(|| (took, String::from_utf8_lossy(&output.stdout).into_owned()))
}

/// Phases of the probe and what it says they took, in nanoseconds.
fn phases(stdout: &str) -> Vec<(String, f64)> {
    let field = |line: &str, key: &str| {
        let rest = line.split(&format!("\"{key}\":")).nth(1)?;
        let end = rest.find([',', '}'])?;
        Some(rest[..end].trim_matches('"').to_owned())
    };
    stdout
        .lines()
        .filter(|l| l.starts_with("@@{"))
        .filter_map(|l| Some((field(l, "phase")?, field(l, "ns")?.parse().ok()?)))
        .collect()
}

/// The host's knob for a folio size, set for as long as this lives.
struct HostThp(Vec<(PathBuf, String)>);

impl HostThp {
    fn only(kib: u64) -> Option<HostThp> {
        let root = Path::new("/sys/kernel/mm/transparent_hugepage");
        let mut saved = HostThp(Vec::new());
        for entry in fs::read_dir(root).ok()?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some(size) = name.strip_prefix("hugepages-").and_then(|s| s.strip_suffix("kB"))
            else {
                continue;
            };
            let knob = entry.path().join("enabled");
            // Sizes that only shared memory has have no such knob.
            let Ok(text) = fs::read_to_string(&knob) else { continue };
            let old = text.split('[').nth(1)?.split(']').next()?.to_owned();
            let new = if size.parse() == Ok(kib) { "always" } else { "never" };
            fs::write(&knob, new).ok()?;
            saved.0.push((knob, old));
        }
        (!saved.0.is_empty()).then_some(saved)
    }
}

impl Drop for HostThp {
    fn drop(&mut self) {
        for (knob, old) in &self.0 {
            let _ = fs::write(knob, old);
        }
    }
}

/// The same binary, natively and emulated: host time of each phase.
fn kernel_operations() {
    println!(
        "\nKernel operations, 256 MiB, x86-64: emulated host time / native time (aim: 1.0 or less)"
    );
    println!(
        "{:<10}{:<24}{:>14}{:>14}{:>8}",
        "folio", "phase", "native ms", "emulated ms", "ratio"
    );
    for (folio, kib) in [("4K", 4), ("64K", 64), ("2M", 2048)] {
        let Some(_knob) = HostThp::only(kib) else {
            println!("{folio:<10}skipped: the host's folio sizes cannot be set");
            continue;
        };
        let thp = || match Thp::order_of_kib(kib) {
            Some(order) => Thp::only([(order, ThpSize::Always)]),
            None => Thp::only([]),
        };
        let probe = guest(ArchId::X86_64, "probe");
        for program in ["fault", "munmap", "dontneed", "madvfree"] {
            let mut native_best: Vec<(String, f64)> = Vec::new();
            let mut emulated_best: Vec<(String, f64)> = Vec::new();
            for _ in 0..ROUNDS {
                if let Some((_, out)) = native(&probe, &[program, "256"]) {
                    keep_best(&mut native_best, phases(&out));
                }
                let config = config(ArchId::X86_64, &probe, &[program, "256"], thp());
                let clock = HostClock(Instant::now());
                let (_, out, _) = emulate::<X86_64, ByOp, Exact>(&config, ByOp::new(), &clock);
                keep_best(&mut emulated_best, phases(&out));
            }
            for ((phase, native_ns), (_, emulated_ns)) in native_best.iter().zip(&emulated_best) {
                let (n, e) = (native_ns / 1e6, emulated_ns / 1e6);
                println!("{folio:<10}{phase:<24}{n:>14.2}{e:>14.2}{:>8.2}", e / n);
            }
        }
    }
}

fn keep_best(best: &mut Vec<(String, f64)>, new: Vec<(String, f64)>) {
    if best.is_empty() {
        *best = new;
        return;
    }
    for (old, new) in best.iter_mut().zip(new) {
        old.1 = old.1.min(new.1);
    }
}

/// Builds the standard benchmark programs, where they and a compiler are at hand.
fn peers(arch: ArchId) -> Option<PathBuf> {
    let source = repo().join("../shared/bench/bench.c");
    let (compiler, extra): (&str, &[&str]) = match arch {
        ArchId::X86_64 => ("gcc", &["-fcf-protection=none"]),
        ArchId::Arm64 => ("aarch64-linux-gnu-gcc", &["-lgcc"]),
    };
    let out = std::env::temp_dir().join(format!("ptescope-bench-{}", arch.name()));
    let done = Command::new(compiler)
        .args(["-O2", "-ffreestanding", "-fno-stack-protector", "-static", "-nostdlib", "-fno-pic"])
        .args(["-fno-tree-loop-distribute-patterns", "-no-pie", "-Wl,--build-id=none"])
        .args(["-Wl,-z,max-page-size=4096", "-o"])
        .arg(&out)
        .arg(&source)
        .args(extra)
        .status()
        .ok()?;
    done.success().then_some(out)
}

fn guest_code<A: HwWalk + Arch>(arch: ArchId) {
    let qemu = match arch {
        ArchId::X86_64 => "qemu-x86_64",
        ArchId::Arm64 => "qemu-aarch64",
    };
    let Some(program) = peers(arch) else {
        println!("{arch}: skipped, no compiler or no benchmark sources");
        return;
    };
    for (kernel, reps) in [
        ("intloop", "10"),
        ("memloop", "5"),
        ("memset", "4"),
        ("memcpy", "2"),
        ("chase", "1"),
        ("matmul", "1"),
        ("qsort", "2"),
        ("sha", "8"),
        ("fib", "27"),
    ] {
        let config = config(arch, &program, &[kernel, reps], Thp::boot());
        let (exact, (out, instructions)) = best(|| {
            let (t, out, n) = emulate::<A, ByOp, Exact>(&config, ByOp::new(), &FreeClock);
            (t, (out, n))
        });
        let (untracked, _) = best(|| {
            let (t, _, _) = emulate::<A, ByOp, Untracked>(&config, ByOp::new(), &FreeClock);
            (t, ())
        });
        let qemu_best = (0..ROUNDS)
            .filter_map(|_| {
                let path = program.to_string_lossy().into_owned();
                let (t, stdout) = native(Path::new(qemu), &[&path, kernel, reps])?;
                assert_eq!(stdout, out, "{kernel}: QEMU and ptescope disagree");
                Some(t)
            })
            .min();
        let mips = instructions as f64 / exact.as_secs_f64() / 1e6;
        let model = exact.as_secs_f64() / untracked.as_secs_f64();
        let speed = qemu_best.map(|q| format!("{:.2}", q.as_secs_f64() / exact.as_secs_f64()));
        println!(
            "{:<8}{kernel:<10}{mips:>8.0} MIPS   speed/qemu-user {:>6}   exact TLB/none {model:>5.2}",
            arch.name(),
            speed.unwrap_or_else(|| "-".to_owned())
        );
    }
}

fn counting<A: HwWalk + Arch>(arch: ArchId) {
    let path = guest(arch, "pageout");
    let thp = Thp::only([(Order::new(4).expect("64 kB"), ThpSize::Always)]);
    let config = config(arch, &path, &["256"], thp);
    let time = |which: u8| {
        best(|| {
            let t = match which {
                0 => emulate::<A, (), Exact>(&config, (), &FreeClock).0,
                1 => emulate::<A, Counters, Exact>(&config, Counters::new(), &FreeClock).0,
                _ => emulate::<A, ByOp, Exact>(&config, ByOp::new(), &FreeClock).0,
            };
            (t, ())
        })
        .0
        .as_secs_f64()
    };
    let (none, flat, by_op) = (time(0), time(1), time(2));
    println!(
        "{:<8}pageout 256 MiB, 64K: Counters/() {:.2}, ByOp/() {:.2} ({:.0} ms without counting)",
        arch.name(),
        flat / none,
        by_op / none,
        none * 1e3
    );
}

/// Nanoseconds of a load that the one before it says the address of, from all over `bytes` of
/// memory.
fn memory_latency_ns(bytes: usize) -> f64 {
    const LOADS: u32 = 4_000_000;
    let len = bytes / size_of::<usize>();
    let mut next: Vec<usize> = (0..len).collect();
    // Sattolo's shuffle: one cycle through everything.
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    for i in (1..len).rev() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        next.swap(i, usize::try_from(random % i as u64).expect("an index"));
    }
    let (took, _) = best(|| {
        let (start, mut at) = (Instant::now(), 0);
        for _ in 0..LOADS {
            at = next[at];
        }
        (start.elapsed(), at)
    });
    took.as_secs_f64() * 1e9 / f64::from(LOADS)
}

/// `gup_test -L -n 65536 -t` of 256 MiB: what getting takes the emulator for each page.
fn gup_ns<A: Arch>(kernel: &str, kib: u64) -> f64 {
    const MIB: u64 = 256;
    let words = ["-L", "-m", "256", "-n", "65536", "-t"].map(str::to_owned);
    let options = Options::parse(&words).expect("options of gup_test");
    let thp = Thp::only(Thp::order_of_kib(kib).map(|order| (order, ThpSize::Always)));
    let hw = Machine::default_for(A::ID).hw;
    let kernel = KernelConfig::parse(kernel).expect("a known kernel");
    let mut guest = Guest::<A>::new(kernel, hw, thp, (2 * MIB + 64) << 20, 0);
    let at = region(&mut guest, &options, 0);
    let (took, _) = best(|| {
        let start = Instant::now();
        let held = guest.mm.gup_test_get(guest.id, &options.request(at)).expect("a good request");
        let took = start.elapsed();
        guest.mm.gup_test_put(held);
        (took, ())
    });
    took.as_secs_f64() * 1e9 / (MIB * 256) as f64
}

fn gup() {
    println!(
        "\nSlow GUP, host ns per page (published, on hardware: 46 for 4K, 5 for a batched 64K folio)"
    );
    let latency = memory_latency_ns(256 << 20);
    println!("host memory latency: {latency:.1} ns");
    for (what, kernel, kib) in [
        ("4K", "v7.3", 4),
        ("64K", "v7.3", 64),
        ("64K batched", "v7.3+gup-pte-batch", 64),
        ("2M", "v7.3", 2048),
    ] {
        let (x86, arm64) = (gup_ns::<X86_64>(kernel, kib), gup_ns::<Arm64>(kernel, kib));
        println!("{what:<14}x86_64 {x86:>7.1}   arm64 {arm64:>7.1}");
    }
}

/// The whole of a trivial program's run, as a process of the host.
fn start_up() {
    println!("\nStart-up of @hello, whole process (aim: at most half of qemu-user's)");
    let built = std::env::current_exe().ok().and_then(|exe| {
        let dir = exe.parent()?.parent()?;
        Some(dir.join("ptescope")).filter(|path| path.exists())
    });
    let Some(ptescope) = built else {
        println!("skipped: build the release binary first");
        return;
    };
    for (arch, qemu) in [(ArchId::X86_64, "qemu-x86_64"), (ArchId::Arm64, "qemu-aarch64")] {
        let path = guest(arch, "hello").to_string_lossy().into_owned();
        let fastest = |program: &Path, args: &[&str]| {
            (0..20).filter_map(|_| native(program, args)).map(|run| run.0).min()
        };
        let ms = |took: Option<Duration>| {
            took.map_or("-".to_owned(), |t| format!("{:.2} ms", t.as_secs_f64() * 1e3))
        };
        let ours = fastest(&ptescope, &["run", "--", &path]);
        let theirs = fastest(Path::new(qemu), &[&path]);
        let ratio = ours
            .zip(theirs)
            .map_or("-".to_owned(), |(a, b)| format!("{:.2}", a.as_secs_f64() / b.as_secs_f64()));
        println!("{:<8}{} against {} ({ratio})", arch.name(), ms(ours), ms(theirs));
    }
}

fn guests() {
    println!(
        "\nGuest code (aims: speed/qemu-user at least 0.25, exact TLB/none at most 1.3 on the first three)"
    );
    guest_code::<X86_64>(ArchId::X86_64);
    guest_code::<Arm64>(ArchId::Arm64);
}

fn counts() {
    println!("\nCounting (aim: at most 1.1)");
    counting::<X86_64>(ArchId::X86_64);
    counting::<Arm64>(ArchId::Arm64);
}

/// What can be measured, by the name that selects it.
const SECTIONS: [(&str, fn()); 5] = [
    ("guest", guests),
    ("counting", counts),
    ("gup", gup),
    ("start-up", start_up),
    ("kernel", kernel_operations),
];

fn main() {
    let named: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    for (name, section) in SECTIONS {
        if named.is_empty() || named.iter().any(|n| n == name) {
            section();
        }
    }
}
