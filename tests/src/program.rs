//! Programs as `ptescope run` runs them: what they print, and the report.

use machine::{Console, Stream};
use report::RunReport;
use std::path::PathBuf;
use study::{Program, RunRequest};
use units::ArchId;

/// Keeps what the guest writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorder {
    /// What went to descriptor 1.
    pub stdout: String,
    /// What went to descriptor 2.
    pub stderr: String,
}

impl Console for Recorder {
    fn write(&mut self, stream: Stream, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        match stream {
            Stream::Stdout => self.stdout += &text,
            Stream::Stderr => self.stderr += &text,
        }
    }
    fn read(&mut self, _: &mut [u8]) -> usize {
        0
    }
}

/// A built-in guest.
///
/// # Panics
/// If there is none of that name.
pub fn guest(name: &str, arch: ArchId) -> Program {
    Program::open(&format!("@{name}"), arch).unwrap_or_else(|e| panic!("{}", e.message))
}

/// A program of the kernel's own tests, if `PTESCOPE_LINUX_SELFTESTS` names a directory with their
/// builds (`x86_64/NAME`, `arm64/NAME`).
///
/// # Panics
/// If it is not in there.
pub fn linux_selftest(name: &str, arch: ArchId) -> Option<Program> {
    let dir = PathBuf::from(std::env::var_os("PTESCOPE_LINUX_SELFTESTS")?);
    let path = dir.join(arch.name()).join(name);
    let path = path.to_str().expect("the path is UTF-8");
    Some(Program::open(path, arch).unwrap_or_else(|e| panic!("{}", e.message)))
}

/// A request to run `program` with `options` separated by spaces.
pub fn request(program: Program, options: &str) -> RunRequest {
    let name = program.path.rsplit(['/', '@']).next().unwrap_or_default().to_owned();
    let options = options.split_whitespace().map(str::to_owned);
    RunRequest::new(program, std::iter::once(name).chain(options).collect())
}

/// Runs it.
///
/// # Panics
/// If ptescope gives up.
pub fn run(request: &RunRequest) -> (RunReport, Recorder) {
    let mut console = Recorder::default();
    let result = study::run(request, &mut console);
    let report =
        result.unwrap_or_else(|e| panic!("{:?}: {}\n{console:?}", request.argv, e.message));
    (report, console)
}
