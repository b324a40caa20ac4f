//! The control socket of a session: answers `status`, `routes`, `dns …`, `namespace …` and
//! `disconnect` on this machine.
//!
//! A unix socket of mode 0600 in a folder of mode 0700; the peer must be the session's own user,
//! or root. Nobody gets more by it than the session's own credentials allow.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kubebridge_proto::explain::Freshness;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use self::forwarding::forward;
use super::board::{Board, Phase};
use super::{Reply, Request};
use crate::background::log::{LOG, OLDER};
use crate::inquiry::Question;
use crate::inquiry::path::PathTarget;
use crate::session::{State, Stop};

mod forwarding;

/// The socket's name in the session's folder.
pub(super) const SOCKET: &str = "control.sock";
/// The end of a folder's name until it is complete.
const NEW: &str = "new";
/// How often a folder is begun anew when a cleaner takes it for a leftover.
const CREATE_TRIES: u32 = 3;
/// The longest request; a name of 255 octets has 1,020 in text at most.
const REQUEST_BYTES: u64 = 4096;
/// Clients at once: a handful of terminals and a status bar.
const CLIENTS: usize = 16;
/// Clients that have ports forwarded: they stay, and may not take the place of others.
const FORWARDERS: usize = 8;
/// How long a client may take to ask.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the last words may take to be read.
const FAREWELL: Duration = Duration::from_secs(1);

/// Returns where the sessions of this machine have their folders.
#[must_use]
pub fn sessions_folder(runtime: &Path) -> PathBuf {
    runtime.join("sessions")
}

/// Lists the sessions whose process is gone and whose folder is still there: nobody listens.
#[must_use]
pub fn dead(runtime: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(sessions_folder(runtime)) else {
        return Vec::new();
    };
    let mut dead: Vec<_> = entries
        .filter_map(Result::ok)
        .filter(|entry| is_dead(&entry.path()))
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    dead.sort();
    dead
}

/// Removes the folders of sessions whose process is gone, and says whose they were.
///
/// A session that is starting right now is not taken for a dead one: its folder has another name
/// until somebody listens in it, and is locked meanwhile.
pub fn remove_dead(runtime: &Path) -> Vec<String> {
    let dead = dead(runtime);
    for session in &dead {
        remove_folder(&sessions_folder(runtime).join(session));
    }
    dead
}

fn is_dead(folder: &Path) -> bool {
    if folder.extension().is_some_and(|end| end == NEW) {
        return lock_folder(folder).is_ok();
    }
    let listening = std::os::unix::net::UnixStream::connect(folder.join(SOCKET));
    listening.is_err_and(|error| {
        let kinds = [io::ErrorKind::ConnectionRefused, io::ErrorKind::NotFound];
        kinds.contains(&error.kind())
    })
}

fn lock_folder(folder: &Path) -> io::Result<fs::File> {
    let open = fs::File::open(folder)?;
    rustix::fs::flock(&open, rustix::fs::FlockOperation::NonBlockingLockExclusive)?;
    Ok(open)
}

/// Makes a session's folder with a socket in it, which appears only when somebody listens.
fn make_folder(sessions: &Path, session: &str) -> io::Result<(PathBuf, UnixListener)> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(sessions)?;
    let (new, folder) = (
        sessions.join(session).with_extension(NEW),
        sessions.join(session),
    );
    let mut tries = 1..CREATE_TRIES;
    let (_locked, listener) = loop {
        // Somebody who cleans up may get it between two of these.
        let made = DirBuilder::new().mode(0o700).create(&new).and_then(|()| {
            let locked = lock_folder(&new)?;
            let path = new.join(SOCKET);
            // Nobody but us can be in the folder between the two calls.
            let listener = UnixListener::bind(&path)?;
            fs::set_permissions(&path, Permissions::from_mode(0o600))?;
            Ok((locked, listener))
        });
        match made {
            Err(_) if tries.next().is_some() => remove_folder(&new),
            made => break made?,
        }
    };
    fs::rename(&new, &folder)?;
    Ok((folder, listener))
}

fn remove_folder(folder: &Path) {
    let files = [SOCKET, LOG, OLDER].map(|name| fs::remove_file(folder.join(name)));
    for gone in files.into_iter().chain([fs::remove_dir(folder)]) {
        if let Err(error) = gone
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "control socket left behind");
        }
    }
}

/// A control socket that is served.
#[derive(Debug)]
pub struct Server {
    folder: PathBuf,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
    has_ended: bool,
}

impl Server {
    /// Creates the session's folder and socket and starts serving.
    ///
    /// # Errors
    ///
    /// The folder or the socket cannot be made.
    pub fn start(
        runtime: &Path,
        session: &str,
        board: Arc<Board>,
        stops: mpsc::Sender<Stop>,
    ) -> io::Result<Self> {
        let (folder, listener) = make_folder(&sessions_folder(runtime), session)?;
        let shutdown = CancellationToken::new();
        let serving = serve(listener, board, stops, shutdown.clone());
        Ok(Self {
            folder,
            shutdown,
            task: tokio::spawn(serving.instrument(tracing::info_span!("control_socket"))),
            has_ended: false,
        })
    }

    /// Waits until serving ends by itself, which it should not. May be dropped and called again.
    pub async fn ended(&mut self) {
        if !self.has_ended {
            let outcome = (&mut self.task).await;
            self.has_ended = true;
            tracing::error!(?outcome, "control socket ended");
        }
    }

    /// Returns the session's folder, which nobody else may look into.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Removes the socket, so that the session is no longer found.
    pub fn hide(&self) {
        remove_folder(&self.folder);
    }

    /// Lets the clients that wait for the end hear of it, and ends.
    pub async fn stop(mut self) {
        self.shutdown.cancel();
        if !self.has_ended && timeout(FAREWELL, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}

/// A last resort: [`Server::hide`] and [`Server::stop`] are the plan.
impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
        self.hide();
    }
}

async fn serve(
    listener: UnixListener,
    board: Arc<Board>,
    stops: mpsc::Sender<Stop>,
    shutdown: CancellationToken,
) {
    let room = Arc::new(Semaphore::new(CLIENTS));
    let forwarders = Arc::new(Semaphore::new(FORWARDERS));
    let mut clients = JoinSet::new();
    loop {
        let stream = tokio::select! {
            () = shutdown.cancelled() => break,
            Some(_) = clients.join_next() => continue,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "control socket refused a client");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
        };
        let Ok(place) = Arc::clone(&room).try_acquire_owned() else {
            continue;
        };
        let (board, stops) = (Arc::clone(&board), stops.clone());
        let seat = Seat {
            place,
            forwarders: Arc::clone(&forwarders),
        };
        clients.spawn(async move {
            if let Err(error) = attend(stream, &board, &stops, seat).await {
                tracing::debug!(%error, "control client gone");
            }
        });
    }
    // Those who wait for the end are told it now; nobody else has long to wait.
    while clients.join_next().await.is_some() {}
}

/// A client's place among the others, and those for clients that stay.
struct Seat {
    place: OwnedSemaphorePermit,
    forwarders: Arc<Semaphore>,
}

async fn attend(
    mut stream: UnixStream,
    board: &Board,
    stops: &mpsc::Sender<Stop>,
    seat: Seat,
) -> io::Result<()> {
    let peer = stream.peer_cred()?.uid();
    if peer != 0 && peer != rustix::process::geteuid().as_raw() {
        return send(
            &mut stream,
            &Reply::Refused("not the session's user".to_owned()),
        )
        .await;
    }
    let mut line = String::new();
    let mut reader = BufReader::new((&mut stream).take(REQUEST_BYTES));
    timeout(PATIENCE, reader.read_line(&mut line)).await??;
    match serde_json::from_str(&line) {
        Ok(Request::Status {}) => send(&mut stream, &Reply::Status(Box::new(board.status()))).await,
        Ok(Request::Routes {}) => send(&mut stream, &Reply::Routes(board.routes())).await,
        Ok(Request::Hosts {}) => send(&mut stream, &Reply::Hosts(board.hosts())).await,
        Ok(
            request @ (Request::DnsTrace { .. }
            | Request::DnsQuery { .. }
            | Request::DnsFlush {}
            | Request::DnsUpstreams {}
            | Request::Trace { .. }),
        ) => {
            let reply = about_names(request, board).await;
            send(&mut stream, &reply.unwrap_or_else(Reply::Refused)).await
        }
        Ok(Request::Namespace { change }) => {
            let reply = match board.change(change).await {
                Ok(report) => Reply::Namespace(report),
                Err(failure) => Reply::NotChanged(failure.into()),
            };
            send(&mut stream, &reply).await
        }
        Ok(Request::Env {}) => {
            let reply = match board.env() {
                Ok(report) => Reply::Env(report),
                Err(failure) => Reply::NotChanged(failure.into()),
            };
            send(&mut stream, &reply).await
        }
        Ok(Request::Forward { ports }) => {
            let Ok(_place) = seat.forwarders.try_acquire_owned() else {
                let words = format!("{FORWARDERS} commands forward ports already");
                return send(&mut stream, &Reply::Refused(words)).await;
            };
            drop(seat.place);
            forward(&mut stream, board, &ports).await
        }
        Ok(Request::Disconnect {}) => disconnect(&mut stream, board, stops).await,
        Err(error) => {
            send(
                &mut stream,
                &Reply::Refused(format!("unknown request: {error}")),
            )
            .await
        }
    }
}

/// Answers what is asked about names.
async fn about_names(request: Request, board: &Board) -> Result<Reply, String> {
    match request {
        Request::DnsTrace { name, rtype, fresh } => {
            let freshness = if fresh {
                Freshness::Fresh
            } else {
                Freshness::Cached
            };
            let report = board
                .trace(&Question::read(&name, &rtype)?, freshness)
                .await?;
            Ok(Reply::DnsTrace(Box::new(report)))
        }
        Request::DnsQuery { name, rtype } => {
            let report = board.query(&Question::read(&name, &rtype)?).await?;
            Ok(Reply::DnsQuery(report))
        }
        Request::DnsFlush {} => board.flush().map(Reply::DnsFlush),
        Request::Trace { target } => {
            let target: PathTarget = target.parse()?;
            Ok(Reply::Trace(Box::new(board.path(&target).await?)))
        }
        Request::DnsUpstreams {} => board.upstreams().await.map(Reply::DnsUpstreams),
        Request::Status {}
        | Request::Routes {}
        | Request::Hosts {}
        | Request::Namespace { .. }
        | Request::Env {}
        | Request::Forward { .. }
        | Request::Disconnect {} => Err("not about names".to_owned()),
    }
}

/// Asks the session to end, and tells of each thing undone until all is.
async fn disconnect(
    stream: &mut UnixStream,
    board: &Board,
    stops: &mpsc::Sender<Stop>,
) -> io::Result<()> {
    let mut phase = board.phase();
    // A session that is ending already reads no more of these.
    let _ = stops.try_send(Stop::Disconnect);
    loop {
        let now = phase.borrow_and_update().clone();
        match now {
            Phase::Over(error) => return send(stream, &Reply::Ended(error)).await,
            Phase::Running(State::Undoing(undo, _)) => {
                send(stream, &Reply::Progress(undo.label().to_owned())).await?;
            }
            Phase::Running(
                State::Ready | State::Connecting(..) | State::Connected(_) | State::Ended(_),
            ) => {}
        }
        if phase.changed().await.is_err() {
            return Ok(());
        }
    }
}

async fn send(stream: &mut (impl AsyncWrite + Unpin), reply: &Reply) -> io::Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    stream.write_all(&line).await
}
