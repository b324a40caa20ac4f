//! Asks the sessions of this machine over their control sockets.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kubebridge_platform::SessionId;
use kubebridge_platform::process::is_running;
use rustix::process::{Pid, Uid, geteuid, getpid};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout};

use super::server::{SOCKET, sessions_folder};
use super::{HostsListReport, NamespacesReport, Reply, Request, RoutesReport, StatusReport};
use crate::control::namespaces::Change;
use crate::failure::{Exit, Failure};
use crate::forward::{ForwardReport, Wanted};
use crate::helper::{Runtime, runtimes};
use crate::inquiry::path::{PathReport, PathTarget};
use crate::inquiry::report::{FlushReport, QueryReport, TraceReport, UpstreamsReport};
use crate::proxy::EnvReport;

/// How long a session may take to answer a question about itself: it answers from memory.
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// How long an answer about a name may take: resolving has 4.5 s, the way to the manager is some
/// more, and a manager that explains nothing is asked again.
const NAME_TIME: Duration = Duration::from_secs(15);
/// How long other namespaces may take: an exec plugin has 30 s for tokens, the machine 15 s to
/// follow, the Services 2 s to come.
const CHANGE_TIME: Duration = Duration::from_secs(60);
/// How long a session that is ending may be silent: the resolver answers on for 6 s, and the
/// system's DNS may take 5 s to give in.
const SILENCE: Duration = Duration::from_secs(30);
/// How long the process may take to be gone after its last word.
const EXIT_TIME: Duration = Duration::from_secs(5);
/// The time between two looks at a process.
const LOOK: Duration = Duration::from_millis(20);

/// A connection to one session.
#[derive(Debug)]
pub struct Session {
    /// The session's id.
    pub id: String,
    /// Its process, as the kernel knows it.
    pid: Option<Pid>,
    lines: Lines<BufReader<UnixStream>>,
}

/// Connects to every session of this machine that this user may speak to.
///
/// # Errors
///
/// The sockets may not be used by this user.
pub async fn all_sessions() -> Result<Vec<Session>, Failure> {
    let mut found = Vec::new();
    for Runtime { path, owner } in runtimes() {
        found.extend(sessions_of(&path, owner, |_| true).await?);
    }
    Ok(found)
}

/// Connects to the session with this id, if this user may speak to it.
///
/// # Errors
///
/// The sockets may not be used by this user.
pub async fn session(id: &str) -> Result<Option<Session>, Failure> {
    let mut found = Vec::new();
    for Runtime { path, owner } in runtimes() {
        found.extend(sessions_of(&path, owner, |one| one == id).await?);
    }
    Ok(found.pop())
}

/// Connects to every session of this user in a folder.
///
/// Folders of sessions that died are passed over: they are leftovers, not sessions.
///
/// # Errors
///
/// The sockets may not be used by this user.
pub async fn sessions(runtime: &Path) -> Result<Vec<Session>, Failure> {
    sessions_of(runtime, geteuid(), |_| true).await
}

/// The sessions of `owner`: whoever else listens there, by a symbolic link say, is told nothing.
async fn sessions_of(
    runtime: &Path,
    owner: Uid,
    wanted: impl Fn(&str) -> bool,
) -> Result<Vec<Session>, Failure> {
    let mut found = Vec::new();
    let sockets = sockets(runtime)?.into_iter();
    for (id, socket) in sockets.filter(|(id, _)| wanted(id)) {
        match UnixStream::connect(&socket).await {
            Ok(stream) if !is_of(&stream, owner) => {
                tracing::warn!(socket = %socket.display(), "not a session of the folder's user");
            }
            Ok(stream) => found.push(Session {
                id,
                pid: peer(&stream),
                lines: BufReader::new(stream).lines(),
            }),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(denied(&socket, error));
            }
            Err(_) => {}
        }
    }
    Ok(found)
}

fn is_of(stream: &UnixStream, owner: Uid) -> bool {
    let peer = stream.peer_cred();
    peer.is_ok_and(|peer| peer.uid() == owner.as_raw())
}

fn peer(stream: &UnixStream) -> Option<Pid> {
    let credentials = stream.peer_cred().ok()?;
    Pid::from_raw(credentials.pid()?)
}

fn sockets(runtime: &Path) -> Result<Vec<(String, PathBuf)>, Failure> {
    let folder = sessions_folder(runtime);
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Err(denied(&folder, error));
        }
        Err(error) => {
            return Err(Failure::new(Exit::File, error).context(folder.display().to_string()));
        }
    };
    let mut sockets: Vec<_> = entries
        .filter_map(Result::ok)
        .filter_map(|entry| {
            let id = entry.file_name().to_str()?.parse::<SessionId>().ok()?;
            Some((id.to_string(), entry.path().join(SOCKET)))
        })
        .collect();
    sockets.sort();
    Ok(sockets)
}

fn denied(path: &Path, error: io::Error) -> Failure {
    Failure::new(Exit::Privilege, error)
        .context(path.display().to_string())
        .with_hint("run the command as the session's user, or with sudo")
}

impl Session {
    /// Asks how the session stands.
    ///
    /// # Errors
    ///
    /// The session went away or said something else.
    pub async fn status(mut self) -> anyhow::Result<StatusReport> {
        match self.ask(Request::Status {}, ANSWER_TIME).await? {
            Reply::Status(report) => Ok(*report),
            other => Err(unexpected(&other)),
        }
    }

    /// Asks for the Services.
    ///
    /// # Errors
    ///
    /// The session went away or said something else.
    pub async fn routes(mut self) -> anyhow::Result<RoutesReport> {
        match self.ask(Request::Routes {}, ANSWER_TIME).await? {
            Reply::Routes(report) => Ok(report),
            other => Err(unexpected(&other)),
        }
    }

    /// Asks for what is in the hosts file.
    ///
    /// # Errors
    ///
    /// The session went away or said something else.
    pub async fn hosts(mut self) -> anyhow::Result<HostsListReport> {
        match self.ask(Request::Hosts {}, ANSWER_TIME).await? {
            Reply::Hosts(report) => Ok(report),
            other => Err(unexpected(&other)),
        }
    }

    /// Has a name resolved, and the answer explained.
    ///
    /// # Errors
    ///
    /// The session went away, refused, or said something else.
    pub async fn trace(
        mut self,
        name: &str,
        rtype: &str,
        fresh: bool,
    ) -> anyhow::Result<TraceReport> {
        let request = Request::DnsTrace {
            name: name.to_owned(),
            rtype: rtype.to_owned(),
            fresh,
        };
        match self.ask(request, NAME_TIME).await? {
            Reply::DnsTrace(report) => Ok(*report),
            other => Err(unexpected(&other)),
        }
    }

    /// Has a name resolved.
    ///
    /// # Errors
    ///
    /// The session went away, refused, or said something else.
    pub async fn query(mut self, name: &str, rtype: &str) -> anyhow::Result<QueryReport> {
        let request = Request::DnsQuery {
            name: name.to_owned(),
            rtype: rtype.to_owned(),
        };
        match self.ask(request, NAME_TIME).await? {
            Reply::DnsQuery(report) => Ok(report),
            other => Err(unexpected(&other)),
        }
    }

    /// Has the session forget the answers it keeps.
    ///
    /// # Errors
    ///
    /// The session went away, refused, or said something else.
    pub async fn flush(mut self) -> anyhow::Result<FlushReport> {
        match self.ask(Request::DnsFlush {}, ANSWER_TIME).await? {
            Reply::DnsFlush(report) => Ok(report),
            other => Err(unexpected(&other)),
        }
    }

    /// Asks for the upstreams of both ends.
    ///
    /// # Errors
    ///
    /// The session went away, refused, or said something else.
    pub async fn upstreams(mut self) -> anyhow::Result<UpstreamsReport> {
        match self.ask(Request::DnsUpstreams {}, NAME_TIME).await? {
            Reply::DnsUpstreams(report) => Ok(report),
            other => Err(unexpected(&other)),
        }
    }

    /// Changes the session's namespaces.
    ///
    /// # Errors
    ///
    /// They are as they were, or the session went away.
    pub async fn change(mut self, change: Change) -> Result<NamespacesReport, Failure> {
        match self.ask(Request::Namespace { change }, CHANGE_TIME).await? {
            Reply::Namespace(report) => Ok(report),
            Reply::NotChanged(refusal) => Err(refusal.into()),
            other => Err(unexpected(&other).into()),
        }
    }

    /// Asks for what sends programs to the proxy.
    ///
    /// # Errors
    ///
    /// There is no proxy, or the session went away.
    pub async fn env(mut self) -> Result<EnvReport, Failure> {
        match self.ask(Request::Env {}, ANSWER_TIME).await? {
            Reply::Env(report) => Ok(report),
            Reply::NotChanged(refusal) => Err(refusal.into()),
            other => Err(unexpected(&other).into()),
        }
    }

    /// Has the way to a destination followed.
    ///
    /// # Errors
    ///
    /// The session went away, refused, or said something else.
    pub async fn path(mut self, target: &PathTarget) -> anyhow::Result<PathReport> {
        let target = target.to_string();
        match self.ask(Request::Trace { target }, NAME_TIME).await? {
            Reply::Trace(report) => Ok(*report),
            other => Err(unexpected(&other)),
        }
    }

    /// Has ports of loopback lead into the cluster until the value is dropped.
    ///
    /// # Errors
    ///
    /// No port listens, or the session went away.
    pub async fn forward(mut self, ports: &[Wanted]) -> Result<Forwarding, Failure> {
        let ports = ports.iter().map(ToString::to_string).collect();
        match self.ask(Request::Forward { ports }, NAME_TIME).await? {
            Reply::Forward(report) => Ok(Forwarding {
                report,
                session: self,
            }),
            Reply::NotChanged(refusal) => Err(refusal.into()),
            other => Err(unexpected(&other).into()),
        }
    }

    /// Ends the session and waits until everything is undone and its process is gone.
    ///
    /// # Errors
    ///
    /// The session went away or could not undo everything.
    pub async fn disconnect(mut self, mut progress: impl FnMut(&str)) -> anyhow::Result<()> {
        let mut reply = self.ask(Request::Disconnect {}, SILENCE).await?;
        let outcome = loop {
            match reply {
                Reply::Progress(text) => progress(&text),
                Reply::Ended(None) => break Ok(()),
                Reply::Ended(Some(error)) => break Err(anyhow::anyhow!("{error}")),
                other @ (Reply::Status(_)
                | Reply::Routes(_)
                | Reply::Hosts(_)
                | Reply::DnsTrace(_)
                | Reply::DnsQuery(_)
                | Reply::DnsFlush(_)
                | Reply::DnsUpstreams(_)
                | Reply::Namespace(_)
                | Reply::Trace(_)
                | Reply::Env(_)
                | Reply::Forward(_)
                | Reply::NotChanged(_)
                | Reply::Refused(_)) => {
                    return Err(unexpected(&other));
                }
            }
            reply = self.read(SILENCE).await?;
        };
        self.gone().await;
        outcome
    }

    /// Waits until the process is gone: what it left is not repaired before.
    async fn gone(&self) {
        let Some(pid) = self.pid.filter(|pid| *pid != getpid()) else {
            return;
        };
        let end = Instant::now() + EXIT_TIME;
        while is_running(pid.as_raw_nonzero().get().unsigned_abs()) && Instant::now() < end {
            sleep(LOOK).await;
        }
    }

    async fn ask(&mut self, request: Request, patience: Duration) -> anyhow::Result<Reply> {
        let mut line = serde_json::to_vec(&request)?;
        line.push(b'\n');
        self.lines.get_mut().write_all(&line).await?;
        self.read(patience).await
    }

    async fn read(&mut self, patience: Duration) -> anyhow::Result<Reply> {
        match timeout(patience, self.lines.next_line()).await {
            Ok(Ok(Some(line))) => Ok(serde_json::from_str(&line)?),
            Ok(Ok(None)) => anyhow::bail!("it went away without a word"),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => match self.pid {
                Some(pid) => anyhow::bail!(
                    "it does not answer: sudo kill -9 {pid} ends it, sudo kubebridge recover repairs what it leaves",
                    pid = pid.as_raw_nonzero()
                ),
                None => anyhow::bail!("it does not answer"),
            },
        }
    }
}

/// Ports that listen.
#[derive(Debug)]
pub struct Forwarding {
    /// Which, and where they lead.
    pub report: ForwardReport,
    session: Session,
}

impl Forwarding {
    /// Waits for a connection that led nowhere, and says why; `None` when the session has ended.
    /// May be dropped and called again.
    ///
    /// # Errors
    ///
    /// The session said something else.
    pub async fn next(&mut self) -> anyhow::Result<Option<String>> {
        match self.session.lines.next_line().await? {
            None => Ok(None),
            Some(line) => match serde_json::from_str(&line)? {
                Reply::Progress(trouble) => Ok(Some(trouble)),
                Reply::Ended(_) => Ok(None),
                other => Err(unexpected(&other)),
            },
        }
    }
}

fn unexpected(reply: &Reply) -> anyhow::Error {
    match reply {
        Reply::Refused(reason) => anyhow::anyhow!("the session refused: {reason}"),
        Reply::Status(_)
        | Reply::Routes(_)
        | Reply::Hosts(_)
        | Reply::DnsTrace(_)
        | Reply::DnsQuery(_)
        | Reply::DnsFlush(_)
        | Reply::DnsUpstreams(_)
        | Reply::Namespace(_)
        | Reply::Trace(_)
        | Reply::Env(_)
        | Reply::Forward(_)
        | Reply::NotChanged(_)
        | Reply::Progress(_)
        | Reply::Ended(_) => {
            anyhow::anyhow!("the session said something that was not asked")
        }
    }
}
