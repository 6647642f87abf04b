//! Everything that leaves the process.

#![expect(clippy::print_stderr, reason = "this module is where printing is")]

use machine::{Console, Stream};
use report::Failure;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::Path;
use study::status;

/// One sentence on stderr.
pub(crate) fn error(message: &str) {
    let message = message.trim_end();
    let end = if message.ends_with(['.', '!', '?']) { "" } else { "." };
    eprintln!("ptescope: {message}{end}");
}

/// Text for people on stderr, beside whatever the guest writes.
pub(crate) fn note(text: &str) {
    eprint!("{text}");
}

/// Text on stdout; a reader that went away is no failure.
pub(crate) fn text(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(no_output("standard output", &error))
        }
        _ => Ok(()),
    }
}

/// Where JSON goes. Opened before the work starts, so that a run is not lost to a bad path.
#[derive(Debug)]
pub(crate) enum Json {
    /// Nowhere.
    None,
    /// `-`.
    Stdout,
    /// A file.
    File(File, String),
}

impl Json {
    /// Opens `path`, or standard output for `-`; what the file holds stays until
    /// [`Json::write`].
    ///
    /// # Errors
    /// 73 if the file cannot be created.
    pub(crate) fn open(path: Option<&str>) -> Result<Json, Failure> {
        match path {
            None => Ok(Json::None),
            Some("-") => Ok(Json::Stdout),
            Some(path) => {
                let file = OpenOptions::new().create(true).write(true).truncate(false).open(path);
                file.map(|f| Json::File(f, path.to_owned())).map_err(|e| no_output(path, &e))
            }
        }
    }

    /// Replaces what is there by `json`.
    ///
    /// # Errors
    /// 73 if it cannot be written.
    pub(crate) fn write(&mut self, json: &str) -> Result<(), Failure> {
        match self {
            Json::None => Ok(()),
            Json::Stdout => text(json),
            Json::File(file, path) => file
                .set_len(0)
                .and_then(|()| file.rewind())
                .and_then(|()| file.write_all(json.as_bytes()))
                .map_err(|error| no_output(path, &error)),
        }
    }

    /// Whether it shares standard output with the guest.
    pub(crate) fn is_stdout(&self) -> bool {
        matches!(self, Json::Stdout)
    }
}

/// Whether a file can be made there: known before the work starts, so that results are not lost to a bad path.
///
/// # Errors
/// 73 if not.
pub(crate) fn probe(path: &Path) -> Result<(), Failure> {
    let name = path.to_string_lossy();
    let existed = path.exists();
    let opened = OpenOptions::new().create(true).append(true).open(path);
    opened.map_err(|error| no_output(&name, &error))?;
    if existed { Ok(()) } else { fs::remove_file(path).map_err(|error| no_output(&name, &error)) }
}

/// Writes a file so that it is whole or as it was before.
///
/// # Errors
/// 73 if it cannot be written.
pub(crate) fn file(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let regular = fs::symlink_metadata(path).map_or(true, |meta| meta.is_file());
    // A device or a pipe cannot be renamed onto, a link would be replaced.
    let written = if regular { study::write_whole(path, bytes) } else { fs::write(path, bytes) };
    written.map_err(|error| no_output(&path.to_string_lossy(), &error))
}

fn no_output(path: &str, error: &io::Error) -> Failure {
    Failure {
        message: format!(
            "cannot write {path}: {error}; name a file in a directory that exists and can be written"
        ),
        status: status::NO_OUTPUT,
    }
}

/// The guest's streams are the process's.
#[derive(Debug, Default)]
pub(crate) struct Terminal;

impl Console for Terminal {
    fn write(&mut self, stream: Stream, bytes: &[u8]) {
        // A reader that went away is the guest's reader, not ours.
        let _ = match stream {
            Stream::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(bytes).and_then(|()| out.flush())
            }
            Stream::Stderr => io::stderr().lock().write_all(bytes),
        };
    }

    fn read(&mut self, into: &mut [u8]) -> usize {
        io::stdin().lock().read(into).unwrap_or(0)
    }
}

/// The same, but all output goes to stderr: stdout is taken by JSON.
#[derive(Debug, Default)]
pub(crate) struct Aside;

impl Console for Aside {
    fn write(&mut self, _: Stream, bytes: &[u8]) {
        let _ = io::stderr().lock().write_all(bytes);
    }

    fn read(&mut self, into: &mut [u8]) -> usize {
        Terminal.read(into)
    }
}
