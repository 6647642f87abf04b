//! Finished runs on disk, each under the hash of its inputs.
//!
//! A file appears under its name only when it is whole (written beside it, then renamed), so a
//! process that is killed leaves at worst a file of another name; and what a file holds is checked
//! when it is read. Two processes may use one store.

use crate::{hex, status};
use report::{Failure, RunReport};
use sha2::{Digest, Sha256};
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A directory of finished runs.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
}

impl Store {
    /// The store in `dir`, which is created if it does not exist.
    ///
    /// # Errors
    /// 73 if it cannot be.
    pub fn open(dir: &Path) -> Result<Store, Failure> {
        fs::create_dir_all(dir).map_err(|error| no_store(dir, &error))?;
        Ok(Store { dir: dir.to_owned() })
    }

    /// The run of that key, if it is there and whole.
    pub fn get(&self, key: &str) -> Option<RunReport> {
        let text = fs::read_to_string(self.path(key)).ok()?;
        let (sum, json) = text.split_once('\n')?;
        if sum != hex(&Sha256::digest(json)) {
            return None;
        }
        RunReport::from_json(json).ok()
    }

    /// Keeps a run.
    ///
    /// # Errors
    /// 73 if it cannot be written.
    pub fn put(&self, key: &str, run: &RunReport) -> Result<(), Failure> {
        let json = run.to_json().map_err(|error| Failure {
            message: format!("internal error: a report is no JSON: {error}; please report it"),
            status: status::INTERNAL,
        })?;
        let text = format!("{}\n{json}", hex(&Sha256::digest(&json)));
        let path = self.path(key);
        path.parent()
            .map_or(Ok(()), fs::create_dir_all)
            .and_then(|()| write_whole(&path, text.as_bytes()))
            .map_err(|error| no_store(&self.dir, &error))
    }

    fn path(&self, key: &str) -> PathBuf {
        let (dir, file) = key.split_at(key.len().min(2));
        self.dir.join(dir).join(format!("{file}.json"))
    }
}

fn no_store(dir: &Path, error: &io::Error) -> Failure {
    let message = format!(
        "cannot write to the store of finished runs {}: {error}; name another with --store",
        dir.display()
    );
    Failure { message, status: status::NO_OUTPUT }
}

/// Writes a file so that it is either as it was or whole, whenever the process ends.
///
/// # Errors
/// Those of the file system.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    static NR: AtomicU64 = AtomicU64::new(0);
    let nr = NR.fetch_add(1, Ordering::Relaxed);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = path.with_file_name(format!(".{name}.{}.{nr}.tmp", std::process::id()));
    let written = fs::File::create(&beside)
        .and_then(|mut file| file.write_all(bytes))
        .and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&beside);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::point;
    use report::Point;

    fn directory(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("ptescope-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        dir
    }

    #[test]
    fn what_was_put_comes_back_and_damage_is_noticed() {
        let point = Point {
            cpus: 1,
            kernel: "v7.3".to_owned(),
            machine: "zen2".to_owned(),
            program: "@hello".to_owned(),
            ..Point::default()
        };
        let (key, run) = (point::key(&point).expect("known"), point::run(&point).expect("runs"));
        let dir = directory("store");
        let store = Store::open(&dir).expect("a new directory");
        assert_eq!(store.get(&key), None);
        store.put(&key, &run).expect("writes");
        assert_eq!(store.get(&key).as_ref(), Some(&run));

        let path = store.path(&key);
        let whole = fs::read(&path).expect("is there");
        for damaged in [&whole[..whole.len() / 2], b"", b"\n"] {
            fs::write(&path, damaged).expect("writes");
            assert_eq!(store.get(&key), None);
        }
        let changed = String::from_utf8(whole).expect("text").replace("zen2", "zen3");
        fs::write(&path, changed).expect("writes");
        assert_eq!(store.get(&key), None);
        fs::remove_dir_all(dir).expect("removes");
    }

    #[test]
    fn a_store_that_cannot_be_says_where() {
        let failure = Store::open(Path::new("/proc/no/store")).expect_err("no directory");
        assert_eq!(failure.status, status::NO_OUTPUT);
        assert!(failure.message.contains("/proc/no/store"), "{failure}");
    }
}
