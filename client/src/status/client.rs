//! Asks the sessions of this machine over their control sockets.

use std::io;
use std::path::{Path, PathBuf};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;

use super::server::{SOCKET, sessions_folder};
use super::{Reply, Request, RoutesReport, StatusReport};
use crate::failure::{Exit, Failure};

/// A connection to one session.
#[derive(Debug)]
pub struct Session {
    /// The session's id.
    pub id: String,
    lines: Lines<BufReader<UnixStream>>,
}

/// Connects to every session that runs on this machine.
///
/// Folders of sessions that died are passed over: they are leftovers, not sessions.
///
/// # Errors
///
/// The sockets may not be used by this user.
pub async fn sessions(runtime: &Path) -> Result<Vec<Session>, Failure> {
    let mut found = Vec::new();
    for (id, socket) in sockets(runtime)? {
        match UnixStream::connect(&socket).await {
            Ok(stream) => found.push(Session {
                id,
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
        .map(|entry| {
            let id = entry.file_name().to_string_lossy().into_owned();
            (id, entry.path().join(SOCKET))
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
        match self.ask(Request::Status {}).await? {
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
        match self.ask(Request::Routes {}).await? {
            Reply::Routes(report) => Ok(report),
            other => Err(unexpected(&other)),
        }
    }

    /// Ends the session and waits until everything is undone and its process is gone.
    ///
    /// # Errors
    ///
    /// The session went away or could not undo everything.
    pub async fn disconnect(mut self, mut progress: impl FnMut(&str)) -> anyhow::Result<()> {
        let mut reply = self.ask(Request::Disconnect {}).await?;
        loop {
            match reply {
                Reply::Progress(text) => progress(&text),
                Reply::Ended(None) => break,
                Reply::Ended(Some(error)) => anyhow::bail!("session {}: {error}", self.id),
                other @ (Reply::Status(_) | Reply::Routes(_) | Reply::Refused(_)) => {
                    return Err(unexpected(&other));
                }
            }
            reply = self.read().await?;
        }
        // The process closes the connection when it ends.
        while self
            .lines
            .next_line()
            .await
            .is_ok_and(|line| line.is_some())
        {}
        Ok(())
    }

    async fn ask(&mut self, request: Request) -> anyhow::Result<Reply> {
        let mut line = serde_json::to_vec(&request)?;
        line.push(b'\n');
        self.lines.get_mut().write_all(&line).await?;
        self.read().await
    }

    async fn read(&mut self) -> anyhow::Result<Reply> {
        match self.lines.next_line().await? {
            Some(line) => Ok(serde_json::from_str(&line)?),
            None => anyhow::bail!("session {} went away without a word", self.id),
        }
    }
}

fn unexpected(reply: &Reply) -> anyhow::Error {
    match reply {
        Reply::Refused(reason) => anyhow::anyhow!("the session refused: {reason}"),
        Reply::Status(_) | Reply::Routes(_) | Reply::Progress(_) | Reply::Ended(_) => {
            anyhow::anyhow!("the session said something that was not asked")
        }
    }
}
