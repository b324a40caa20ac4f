//! The log of a session in the background: a file in the session's folder, of bounded size.
//!
//! Before there is a folder, the lines wait in memory. What the process itself prints, as the
//! words of a panic, goes there too.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

/// The file's name in the session's folder.
pub const LOG: &str = "session.log";
/// The name of the part before it.
pub const OLDER: &str = "session.log.1";
/// The name of the log of the last session that did not end well, in the folder of all.
pub const LAST: &str = "last.log";

/// The size at which a new part begins, of two that are kept: weeks of what a session notes, and
/// nothing beside what a disk in memory holds.
const PART_BYTES: u64 = 1024 * 1024;
/// What waits for the folder: a few hundred lines.
const EARLY_BYTES: usize = 64 * 1024;

/// What is done with each file that is begun.
type Redirect = fn(&File) -> io::Result<()>;

/// The log.
#[derive(Debug, Default)]
pub struct LogFile(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    open: Option<Open>,
    early: Vec<u8>,
}

#[derive(Debug)]
struct Open {
    folder: PathBuf,
    file: File,
    size: u64,
    redirect: Redirect,
}

impl LogFile {
    /// Opens the file in a folder, makes it this process's stderr, and returns where it is.
    ///
    /// # Errors
    ///
    /// The file cannot be made.
    pub fn open(&self, folder: &Path) -> io::Result<PathBuf> {
        self.open_with(folder, |file| Ok(rustix::stdio::dup2_stderr(file)?))
    }

    fn open_with(&self, folder: &Path, redirect: Redirect) -> io::Result<PathBuf> {
        let mut inner = self.0.lock();
        let mut open = Open::start(folder, redirect)?;
        redirect(&open.file)?;
        open.put(&std::mem::take(&mut inner.early));
        inner.open = Some(open);
        Ok(folder.join(LOG))
    }

    /// Adds text; what cannot be written is lost, and nothing else.
    pub fn write(&self, text: &[u8]) {
        let mut inner = self.0.lock();
        match &mut inner.open {
            Some(open) => open.put(text),
            None => {
                let room = EARLY_BYTES.saturating_sub(inner.early.len());
                let text = &text[..text.len().min(room)];
                inner.early.extend_from_slice(text);
            }
        }
    }

    /// Keeps the last part as [`LAST`] in `folder`, for whoever asks why the session ended; the
    /// session's own folder may be gone already.
    ///
    /// # Errors
    ///
    /// It cannot be read or written.
    pub fn keep(&self, folder: &Path) -> io::Result<()> {
        let inner = self.0.lock();
        let Some(open) = &inner.open else {
            return Ok(());
        };
        let mut bytes = vec![0; usize::try_from(open.size).unwrap_or_default()];
        std::os::unix::fs::FileExt::read_exact_at(&open.file, &mut bytes, 0)?;
        let path = folder.join(LAST);
        // Never into a file that somebody else put there.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        create(&path)?.write_all(&bytes)
    }
}

impl Open {
    fn start(folder: &Path, redirect: Redirect) -> io::Result<Self> {
        Ok(Self {
            folder: folder.to_owned(),
            file: create(&folder.join(LOG))?,
            size: 0,
            redirect,
        })
    }

    fn put(&mut self, text: &[u8]) {
        if self.size + text.len() as u64 > PART_BYTES && self.size > 0 {
            let (log, older) = (self.folder.join(LOG), self.folder.join(OLDER));
            if fs::rename(log, older).is_ok()
                && let Ok(next) = Self::start(&self.folder, self.redirect)
            {
                // Else the words of a panic stand in the older part.
                let _ = (self.redirect)(&next.file);
                *self = next;
            }
        }
        if self.size + text.len() as u64 <= PART_BYTES && self.file.write_all(text).is_ok() {
            self.size += text.len() as u64;
        }
    }
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .append(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

/// Log lines.
impl Write for &LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LogFile::write(self, bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    thread_local! {
        static REDIRECTED: Cell<usize> = const { Cell::new(0) };
    }

    #[expect(clippy::unnecessary_wraps, reason = "as what redirects is called")]
    fn count(_: &File) -> io::Result<()> {
        REDIRECTED.set(REDIRECTED.get() + 1);
        Ok(())
    }

    fn line(number: usize) -> String {
        format!("{number:0>99}\n")
    }

    #[test]
    fn two_parts_are_kept_of_bounded_size_in_order_and_the_newest_line_is_in_the_newest() {
        let folder = tempfile::tempdir().unwrap();
        let log = LogFile::default();
        log.write(line(0).as_bytes());
        let path = log.open_with(folder.path(), count).unwrap();
        let lines = 3 * usize::try_from(PART_BYTES).unwrap() / line(0).len();
        for number in 1..=lines {
            log.write(line(number).as_bytes());
        }

        let mut names: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        assert_eq!(names, [LOG, OLDER]);
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        let (older, newer) = (read(OLDER), read(LOG));
        for part in [&older, &newer] {
            assert!(part.len() as u64 <= PART_BYTES, "{}", part.len());
        }
        let both: Vec<usize> = older
            .lines()
            .chain(newer.lines())
            .map(|line| line.parse().unwrap())
            .collect();
        assert_eq!(both.last(), Some(&lines));
        assert!(both.windows(2).all(|pair| pair[0] + 1 == pair[1]));
        assert!(both.len() as u64 * 100 > PART_BYTES, "{}", both.len());
        // What the process itself prints goes to each new part: four were begun.
        assert_eq!(REDIRECTED.get(), 4);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn of_a_session_that_ended_badly_the_newest_part_stays_even_when_its_folder_is_gone() {
        let folders = tempfile::tempdir().unwrap();
        let folder = folders.path().join("0a1b2c3d");
        fs::create_dir(&folder).unwrap();
        let log = LogFile::default();
        log.open_with(&folder, count).unwrap();
        log.write(b"the end\n");
        fs::remove_dir_all(&folder).unwrap();
        fs::write(folders.path().join(LAST), "of a session before").unwrap();

        log.keep(folders.path()).unwrap();

        let kept = fs::read_to_string(folders.path().join(LAST)).unwrap();
        assert_eq!(kept, "the end\n");
    }

    #[test]
    fn what_comes_before_there_is_a_folder_waits_and_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let log = LogFile::default();
        for number in 0..EARLY_BYTES / 50 {
            log.write(line(number).as_bytes());
        }
        let path = log.open_with(folder.path(), count).unwrap();
        let text = fs::read_to_string(path).unwrap();
        assert_eq!(text.len(), EARLY_BYTES);
        assert!(text.starts_with(&line(0)));
    }
}
