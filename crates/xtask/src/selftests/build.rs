//! Fetches the sources of Linux's mm selftests and builds the programs, unchanged and static.
//!
//! Everything lands in one directory: `src` (the part of the kernel's tree that the build reads),
//! `hdr-<arch>` (its headers for user space), `sys-<arch>` (static libraries), `<arch>/<program>`.
//! What is there is not made again. Sources are Debian's package; nothing of them is checked in.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::Arch;

const PACKAGE: &str = "linux-source-6.12";
const LIBRARIES: [&str; 4] = ["libcap-dev", "libnuma-dev", "liburing-dev", "busybox-static"];
/// What the build reads of the kernel's tree.
const TREE: [&str; 9] = [
    "*/Makefile",
    "*/Kbuild*",
    "*/include/*",
    "*/scripts/*",
    "*/arch/x86/*",
    "*/arch/arm64/*",
    "*/tools/testing/selftests/*",
    "*/mm/gup_test.h",
    "*/lib/*.h",
];

/// A program of `tools/testing/selftests/mm`, with what it needs beyond the common flags.
struct Spec {
    name: &'static str,
    flags: &'static [&'static str],
    /// Static libraries of packages: without them it cannot be built, liburing apart.
    library: Option<&'static str>,
    arches: &'static [Arch],
}

const fn plain(name: &'static str) -> Spec {
    Spec { name, flags: &[], library: None, arches: &Arch::ALL }
}

const fn with(name: &'static str, flags: &'static [&'static str]) -> Spec {
    Spec { flags, ..plain(name) }
}

const fn linked(name: &'static str, library: &'static str) -> Spec {
    Spec { library: Some(library), ..plain(name) }
}

const PKEY: &[&str] = &["-ldl"];

const PROGRAMS: &[Spec] = &[
    plain("compaction_test"),
    plain("gup_test"),
    plain("hmm-tests"),
    plain("hugetlb-madvise"),
    plain("hugetlb-read-hwpoison"),
    plain("hugetlb-soft-offline"),
    plain("hugepage-mmap"),
    plain("hugepage-mremap"),
    plain("hugepage-shm"),
    plain("hugepage-vmemmap"),
    // It uses KSFT_SKIP without including what defines it.
    with("khugepaged", &["-include", "../kselftest.h"]),
    plain("madv_populate"),
    plain("map_fixed_noreplace"),
    plain("map_hugetlb"),
    plain("map_populate"),
    plain("mkdirty"),
    plain("mlock2-tests"),
    plain("mrelease_test"),
    plain("mremap_dontunmap"),
    plain("mremap_test"),
    plain("mseal_test"),
    plain("seal_elf"),
    plain("on-fault-limit"),
    plain("pagemap_ioctl"),
    plain("thuge-gen"),
    plain("transhuge-stress"),
    plain("split_huge_page_test"),
    plain("ksm_functional_tests"),
    plain("mdwe_test"),
    plain("hugetlb_fault_after_madv"),
    plain("hugetlb_madv_vs_map"),
    plain("hugetlb_dio"),
    plain("droppable"),
    plain("va_high_addr_switch"),
    plain("virtual_address_range"),
    plain("write_to_hugetlbfs"),
    plain("soft-dirty"),
    linked("cow", "uring"),
    linked("gup_longterm", "uring"),
    with("uffd-stress", &["uffd-common.c"]),
    with("uffd-unit-tests", &["uffd-common.c"]),
    linked("mlock-random-test", "cap"),
    linked("memfd_secret", "cap"),
    linked("ksm_tests", "numa"),
    linked("migration", "numa"),
    with("protection_keys", PKEY),
    Spec { arches: &[Arch::X86_64], ..with("pkey_sighandler_tests", PKEY) },
];

/// Builds the programs (those of `only`, if it names any) for both architectures in `dir`.
pub(crate) fn build(dir: &Path, only: &[&str]) -> Result<()> {
    fs::create_dir_all(dir)?;
    let dir = fs::canonicalize(dir)?;
    let unknown = only.iter().find(|name| !PROGRAMS.iter().any(|spec| spec.name == **name));
    ensure!(unknown.is_none(), "there is no selftest {unknown:?}");
    fetch_sources(&dir)?;
    let wanted = |spec: &&Spec| only.is_empty() || only.contains(&spec.name);
    std::thread::scope(|scope| {
        let build_for =
            |arch| build_arch(&dir, arch, &PROGRAMS.iter().filter(wanted).collect::<Vec<_>>());
        let threads: Vec<_> =
            Arch::ALL.map(|arch| scope.spawn(move || build_for(arch))).into_iter().collect();
        threads.into_iter().try_for_each(|t| t.join().expect("a build does not panic"))
    })
}

fn run(command: &mut Command, what: &str) -> Result<()> {
    let output = command.output().with_context(|| format!("{what}: the program does not run"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{what} failed:\n{said}");
    Ok(())
}

fn fetch_sources(dir: &Path) -> Result<()> {
    let (done, src) = (dir.join("src.done"), dir.join("src"));
    if done.exists() {
        return Ok(());
    }
    let debs = dir.join("debs");
    fs::create_dir_all(&debs)?;
    fs::create_dir_all(&src)?;
    download(&debs, &["apt-get"], &[PACKAGE])?;
    unpack(&debs, &dir.join("package"))?;
    let tarball = dir.join(format!("package/usr/src/{PACKAGE}.tar.xz"));
    let mut tar = Command::new("tar");
    tar.arg("-xf").arg(&tarball).arg("-C").arg(&src).args(["--strip-components=1", "--wildcards"]);
    run(tar.args(TREE), "unpacking the kernel's sources")?;
    fs::remove_dir_all(dir.join("package"))?;
    Ok(fs::write(done, PACKAGE)?)
}

/// Downloads packages into `debs` with this apt-get; with fresh lists if the ones there are too old.
fn download(debs: &Path, apt: &[&str], packages: &[&str]) -> Result<()> {
    let get = |words: &[&str]| {
        let mut command = Command::new(apt[0]);
        command.current_dir(debs).args(&apt[1..]).args(words);
        run(&mut command, &format!("apt-get {}", words.join(" ")))
    };
    let words = [&["-qq", "download"], packages].concat();
    get(&words).or_else(|_| get(&["-qq", "update"]).and_then(|()| get(&words)))
}

fn unpack(debs: &Path, into: &Path) -> Result<()> {
    for entry in fs::read_dir(debs)? {
        let path = entry?.path();
        run(Command::new("dpkg").arg("-x").arg(&path).arg(into), "dpkg -x")?;
        fs::remove_file(&path)?;
    }
    Ok(())
}

/// Static libraries and a shell of `arch`, in a directory of their own: this machine's package state does not
/// change, also where it is another architecture's.
fn fetch_libraries(dir: &Path, arch: Arch) -> Result<PathBuf> {
    let sys = dir.join(format!("sys-{}", arch.name()));
    if sys.exists() {
        return Ok(sys);
    }
    let state = dir.join(format!("apt-{}", arch.name()));
    for part in ["lists/partial", "cache/archives/partial", "debs"] {
        fs::create_dir_all(state.join(part))?;
    }
    fs::write(state.join("status"), "")?;
    let at = |key: &str, part: &str| format!("-oDir::{key}={}", state.join(part).display());
    let options = [
        format!("-oAPT::Architecture={}", arch.debian()),
        format!("-oAPT::Architectures={}", arch.debian()),
        at("State::lists", "lists"),
        at("Cache", "cache"),
        at("State::status", "status"),
    ];
    let apt: Vec<&str> =
        std::iter::once("apt-get").chain(options.iter().map(String::as_str)).collect();
    let debs = state.join("debs");
    download(&debs, &apt, &LIBRARIES)?;
    let partial = dir.join(format!("sys-{}.partial", arch.name()));
    unpack(&debs, &partial)?;
    fs::rename(&partial, &sys)?;
    fs::remove_dir_all(&state)?;
    Ok(sys)
}

fn make_headers(dir: &Path, arch: Arch) -> Result<PathBuf> {
    let headers = dir.join(format!("hdr-{}", arch.name()));
    let done = headers.join("done");
    if !done.exists() {
        fs::create_dir_all(&headers)?;
        let mut make = Command::new("make");
        make.arg("-s").arg("-C").arg(dir.join("src")).arg(format!("O={}", headers.display()));
        run(make.arg(format!("ARCH={}", arch.kbuild())).arg("headers"), "make headers")?;
        fs::write(done, "")?;
    }
    Ok(headers)
}

fn build_arch(dir: &Path, arch: Arch, programs: &[&Spec]) -> Result<()> {
    let headers = make_headers(dir, arch)?;
    let sys = match fetch_libraries(dir, arch) {
        Ok(sys) => Some(sys),
        Err(error) => {
            eprintln!(
                "xtask selftests: {arch:?} goes without libcap, libnuma, liburing: {error:#}"
            );
            None
        }
    };
    let out = dir.join(arch.name());
    fs::create_dir_all(&out)?;
    // What check_config.sh finds out: whether io_uring's cases are built.
    let config = if sys.is_some() { "#define LOCAL_CONFIG_HAVE_LIBURING 1\n" } else { "" };
    fs::write(headers.join("local_config.h"), config)?;
    for spec in programs.iter().filter(|spec| spec.arches.contains(&arch)) {
        let to = out.join(spec.name);
        if to.exists() {
            continue;
        }
        if sys.is_none() && spec.library.is_some_and(|library| library != "uring") {
            eprintln!(
                "xtask selftests: SKIPPED {}: no static lib{}",
                spec.name,
                spec.library.unwrap_or_default()
            );
            continue;
        }
        let mut compile = compiler(dir, arch, &headers, sys.as_deref());
        compile.args([&format!("{}.c", spec.name), "vm_util.c", "thp_settings.c"]).args(spec.flags);
        if let (Some(library), Some(_)) = (spec.library, &sys) {
            compile.arg(format!("-l{library}"));
        }
        let what = format!("{} for {}", spec.name, arch.name());
        run(compile.args(["-lrt", "-lpthread", "-lm", "-o"]).arg(&to), &what)?;
    }
    Ok(())
}

/// The compiler in the directory of the sources: `gup_longterm` puts a file beside `__FILE__`.
fn compiler(dir: &Path, arch: Arch, headers: &Path, sys: Option<&Path>) -> Command {
    let src = dir.join("src");
    let mut command = Command::new(arch.compiler());
    command
        .current_dir(src.join("tools/testing/selftests/mm"))
        .args(["-O2", "-w", "-static", "-U_FORTIFY_SOURCE", "-D_GNU_SOURCE=", "-I"])
        .arg(&src)
        .arg("-isystem")
        .arg(headers.join("usr/include"))
        .arg("-isystem")
        .arg(src.join("tools/include/uapi"))
        .arg("-I")
        .arg(headers);
    if arch == Arch::X86_64 {
        command.args(["-no-pie", "-m64", "-mxsave"]);
    }
    if let Some(sys) = sys {
        let triplet = format!("{}-linux-gnu", arch.triplet());
        let (include, lib) = (sys.join("usr/include"), sys.join("usr/lib").join(&triplet));
        command.arg("-idirafter").arg(&include).arg("-idirafter").arg(include.join(&triplet));
        command.arg("-L").arg(lib);
    }
    command
}
