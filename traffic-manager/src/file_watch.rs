//! Notices that a file was written, replaced, or exchanged through a symbolic link.
//!
//! By looking at it now and then: an inotify watch on a path loses files that are exchanged, which
//! is how editors and mounted `ConfigMap`s write.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often a file is looked at: one `stat` costs a few microseconds, and an edit shows within
/// the 250 ms a Service change may take.
const INTERVAL: Duration = Duration::from_millis(200);

/// What tells one state of a file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

/// Follows one file.
#[derive(Debug)]
pub struct FileWatch {
    path: PathBuf,
    seen: Option<Stamp>,
}

impl FileWatch {
    /// Begins with the file as it is now; to be called before it is read.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            seen: stamp(path),
        }
    }

    /// Waits until the file differs from what was last seen; a missing file differs too.
    pub async fn changed(&mut self) {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            // On the runtime's thread: a stat of a local file does not wait.
            let now = stamp(&self.path);
            if now != self.seen {
                self.seen = now;
                return;
            }
        }
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let metadata = std::fs::metadata(path).ok()?;
    Some(Stamp {
        device: metadata.dev(),
        inode: metadata.ino(),
        size: metadata.size(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn writing_replacing_and_removing_are_all_seen() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let other = directory.path().join("other");
        std::fs::write(&path, "a").unwrap();
        let mut watch = FileWatch::new(&path);
        std::fs::write(&path, "bb").unwrap();
        watch.changed().await;
        std::fs::write(&other, "cc").unwrap();
        std::fs::rename(&other, &path).unwrap();
        watch.changed().await;
        std::fs::remove_file(&path).unwrap();
        watch.changed().await;
        std::fs::write(&path, "a").unwrap();
        watch.changed().await;
    }
}
