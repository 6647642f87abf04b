//! What a run is asked for.

use arch::KernelConfig;
use events::TraceLimits;
use mm::Thp;
use mmu::Machine;

/// How guest instructions are executed. What a run computes and counts does not depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Engine {
    /// By the interpreter alone.
    Interp,
    /// Hot blocks as host code, where the host allows it; the rest by the interpreter.
    #[default]
    Jit,
}

/// Everything that a run depends on, beside the program and its console.
#[derive(Clone, Debug)]
pub struct RunConfig {
    /// The kernel that is modelled.
    pub kernel: KernelConfig,
    /// The machine, with its overrides; `hw.cpus` says how many CPUs it has.
    pub machine: Machine,
    /// Bytes of guest RAM.
    pub mem_bytes: u64,
    /// Bytes of swap.
    pub swap_bytes: u64,
    /// Large folios at boot.
    pub thp: Thp,
    /// What a read fault of a file maps (debugfs `fault_around_bytes`); `None` as Linux boots.
    pub fault_around_bytes: Option<u64>,
    /// What the program is called.
    pub path: String,
    /// Its arguments, its name first.
    pub argv: Vec<String>,
    /// Its environment, `NAME=value`.
    pub env: Vec<String>,
    /// What every random number follows from.
    pub seed: u64,
    /// Whether the oracles watch.
    pub check: bool,
    /// How instructions are executed.
    pub engine: Engine,
    /// What is written to pseudo-files before the program starts, as an init script would do it: path
    /// and text.
    pub boot_writes: Vec<(String, String)>,
    /// The user and the group that the program runs as.
    pub uid: u32,
    /// The only CPU that the program may use until it asks for others, as `taskset` would have
    /// it.
    pub first_cpu: Option<u16>,
    /// When to give up.
    pub max_instructions: Option<u64>,
    /// How much of what happens when is written down, if anything.
    pub trace: Option<TraceLimits>,
}

impl RunConfig {
    /// A run of `path` on `machine` under `kernel`, with 1 GiB of RAM and of swap.
    pub fn new(kernel: KernelConfig, machine: Machine, path: &str, argv: Vec<String>) -> Self {
        RunConfig {
            kernel,
            machine,
            mem_bytes: 1 << 30,
            swap_bytes: 1 << 30,
            thp: Thp::boot(),
            fault_around_bytes: None,
            path: path.to_owned(),
            argv,
            env: Vec::new(),
            seed: 0,
            check: false,
            engine: Engine::default(),
            boot_writes: Vec::new(),
            uid: 0,
            first_cpu: None,
            max_instructions: None,
            trace: None,
        }
    }
}
