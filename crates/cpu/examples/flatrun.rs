//! Runs a static ELF on the flat harness: `flatrun [--match] PROGRAM [ARG...]`. For developing the CPU.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool")]
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::allow_attributes,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "test harness"
)]

#[path = "../tests/harness/mod.rs"]
mod harness;

use std::io::Write;

fn main() -> std::io::Result<()> {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let oracle = args.first().is_some_and(|a| a == "--match");
    if oracle {
        args.remove(0);
    }
    let Some(path) = args.first() else {
        eprintln!("usage: flatrun [--match] PROGRAM [ARG...]");
        std::process::exit(2);
    };
    let elf = std::fs::read(path)?;
    let refs: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut guest = harness::Guest::new(&elf, &refs);
    if oracle {
        guest.cpu.set_engine(cpu::Engine::Match);
    }
    let end = guest.run(u64::MAX);
    std::io::stdout().write_all(&guest.out)?;
    println!();
    eprintln!("{end:?}; {} instructions, {} accesses", guest.retired, guest.bus.accesses);
    eprintln!(
        "pc {:#x}, {:?}, unknown syscalls {:?}",
        guest.cpu.state().pc,
        guest.cpu.stats(),
        guest.unknown
    );
    Ok(())
}
