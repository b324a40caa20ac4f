//! Files that others write: the hosts file, systemd-resolved's state of our link, and what other
//! sessions claim.
//!
//! Folders are watched, because files are replaced; the hosts file itself too, because a mounted
//! one changes without its folder. Our own writes are noticed like any other.

use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::{Cause, Cues};
use crate::claims::registry::EXTENSION;
use crate::fs::RootFs;
use crate::hosts::file::HOSTS;
use crate::sys::Sys;

/// Where systemd-resolved keeps the settings of each link, one file per index.
const LINK_STATE: &str = "/run/systemd/resolve/netif";

/// How often places that did not exist are looked for again.
const LOOK: Duration = Duration::from_secs(2);

/// Watches for good.
pub(super) async fn watch(sys: Sys, link: watch::Receiver<Option<u32>>, cues: Cues) {
    loop {
        if let Err(error) = listen(&sys, &link, &cues).await {
            tracing::debug!(%error, "files cannot be watched");
        }
        sleep(LOOK).await;
    }
}

async fn listen(sys: &Sys, link: &watch::Receiver<Option<u32>>, cues: &Cues) -> io::Result<()> {
    let notes = notes()?;
    loop {
        let places = Places::find(sys, notes.get_ref());
        let Ok(ready) = timeout(LOOK, notes.readable()).await else {
            continue;
        };
        let mut ready = ready?;
        for (watch, name) in read(notes.get_ref())? {
            if let Some(cause) = places.cause(watch, &name, *link.borrow()) {
                cues.put(cause);
            }
        }
        ready.clear_ready();
    }
}

#[expect(
    deprecated,
    reason = "its successor is unsafe; an OwnedFd keeps the descriptor open as long as needed"
)]
fn notes() -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::new(inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?)
}

/// The watches that could be set; setting one again changes nothing.
#[derive(Debug, Default)]
struct Places {
    hosts_file: Option<i32>,
    /// Folders with the name that matters in each.
    folders: Vec<(i32, PathBuf)>,
    link_state: Option<i32>,
    claims: Option<i32>,
}

impl Places {
    fn find(sys: &Sys, notes: &OwnedFd) -> Self {
        let folder = WatchFlags::CLOSE_WRITE
            | WatchFlags::MODIFY
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::DELETE;
        let add = |path: &Path, flags| inotify::add_watch(notes, path, flags).ok();
        let mut places = Self {
            link_state: add(&sys.path(LINK_STATE), folder),
            claims: add(&sys.claims(), folder),
            ..Self::default()
        };
        let mut hosts = vec![sys.path(HOSTS)];
        hosts.extend(RootFs::new(sys).resolve(Path::new(HOSTS)));
        for file in hosts {
            let parent = file.parent().unwrap_or(&file);
            if let (Some(watch), Some(name)) = (add(parent, folder), file.file_name()) {
                places.folders.push((watch, name.into()));
            }
            let written = WatchFlags::CLOSE_WRITE | WatchFlags::MODIFY;
            places.hosts_file = add(&file, written);
        }
        places
    }

    fn cause(&self, watch: i32, name: &[u8], link: Option<u32>) -> Option<Cause> {
        let name = OsStr::from_bytes(name);
        if self.hosts_file == Some(watch) {
            return Some(Cause::Hosts);
        }
        if self.link_state == Some(watch) {
            let ours = link.is_some_and(|index| name == index.to_string().as_str());
            return ours.then_some(Cause::DnsSettings);
        }
        if self.claims == Some(watch) {
            let is_claim = Path::new(name).extension() == Some(OsStr::new(EXTENSION));
            return is_claim.then_some(Cause::Sessions);
        }
        let mut folders = self.folders.iter();
        let ours = |(folder, file): &(i32, PathBuf)| *folder == watch && file.as_os_str() == name;
        folders.any(ours).then_some(Cause::Hosts)
    }
}

/// Reads what there is: the watch and the name of each event.
fn read(notes: &OwnedFd) -> io::Result<Vec<(i32, Vec<u8>)>> {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut reader = inotify::Reader::new(notes, &mut buffer);
    let mut events = Vec::new();
    loop {
        match reader.next() {
            Ok(event) => {
                let name = event.file_name().map(|name| name.to_bytes().to_vec());
                events.push((event.wd(), name.unwrap_or_default()));
            }
            Err(Errno::AGAIN) => return Ok(events),
            Err(error) => return Err(error.into()),
        }
    }
}
