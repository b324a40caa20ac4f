//! The audit log (R4): one JSON object a line, for each session that opens, is renewed or closes,
//! and for what is denied. `docs/security.md` has the format.
//!
//! Names outside the cluster are never written, nor are tokens; of a session's id, which opens
//! doors, only the first eight digits are. Denials are counted by [`denials`], so that whoever
//! probes fills no disk and hides nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kubebridge_proto::token::Reason;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::time::{Instant, interval, sleep};
use tokio_util::sync::CancellationToken;

use self::denials::{Denial, Denials, Subject};
use self::flows::{Closing, Flow};
use super::claims::Proof;
use super::wall::{self, Wall};
use crate::egress::Denied;

pub mod denials;
pub mod flows;

/// Lines that wait to be written: a burst of sessions after a restart. When the reader of the log
/// stands still, more are counted as lost rather than kept.
const QUEUE: usize = 1024;

/// How long the writer rests after it wrote: a write is a call on a thread for such calls, which for
/// each line of many short flows costs more than the flows. A crash loses no more than this.
const REST: Duration = Duration::from_millis(10);

/// The version of the format.
const FORMAT: u32 = 1;

/// Digits of a session's id that are written.
const SHOWN: usize = 8;

/// Writes the audit log.
#[derive(Debug)]
pub struct Audit {
    lines: Option<mpsc::Sender<String>>,
    lost: AtomicU64,
    denials: Mutex<Denials>,
    wall: Wall,
}

/// Why a session closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Closed {
    /// Its tokens expired.
    Expired,
    /// Nobody used it for a while.
    Idle,
    /// The manager ends.
    Shutdown,
}

/// A session, as lines name it.
#[derive(Debug, Clone, Copy)]
pub struct About<'a> {
    /// Its id.
    pub id: &'a str,
    /// Its namespaces.
    pub namespaces: &'a [String],
    /// What its tokens prove.
    pub proofs: &'a [Proof],
    /// The SHA-256 of the client's certificate, over mutual TLS.
    pub certificate: Option<&'a str>,
}

#[derive(Serialize)]
struct Line<'a> {
    audit: u32,
    time: String,
    #[serde(skip_serializing_if = "is_zero")]
    lost: u64,
    #[serde(flatten)]
    event: Event<'a>,
}

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
enum Event<'a> {
    Open {
        #[serde(flatten)]
        session: Session<'a>,
        client_version: &'a str,
    },
    Renew {
        #[serde(flatten)]
        session: Session<'a>,
        client_version: &'a str,
    },
    Close {
        #[serde(flatten)]
        session: Session<'a>,
        reason: Closed,
        seconds: u64,
    },
    FlowOpen(Flow<'a>),
    FlowClose {
        #[serde(flatten)]
        flow: Flow<'a>,
        #[serde(flatten)]
        closing: Closing,
    },
    Denied {
        #[serde(skip_serializing_if = "Option::is_none")]
        session: Option<&'a str>,
        call: &'static str,
        reason: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        namespace: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        service: Option<&'a str>,
        count: u64,
    },
}

#[derive(Serialize)]
struct Session<'a> {
    session: &'a str,
    namespaces: &'a [String],
    tokens: Vec<Token<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate: Option<&'a str>,
}

#[derive(Serialize)]
struct Token<'a> {
    namespace: &'a str,
    id: &'a str,
    account: String,
    uid: &'a str,
    expires: String,
}

impl Audit {
    /// Makes an audit log that is written to `lines`, or to nowhere.
    #[must_use]
    pub fn new(lines: Option<mpsc::Sender<String>>, wall: Wall) -> Self {
        Self {
            lines,
            lost: AtomicU64::new(0),
            denials: Mutex::default(),
            wall,
        }
    }

    /// Makes an audit log and the task that writes it to a file until shutdown.
    pub fn to(
        file: impl AsyncWrite + Send + Unpin,
        wall: Wall,
        shutdown: CancellationToken,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (sender, lines) = mpsc::channel(QUEUE);
        (Self::new(Some(sender), wall), write(file, lines, shutdown))
    }

    /// Tells that a session was opened.
    pub fn opened(&self, session: About<'_>, client_version: &str) {
        self.write(Event::Open {
            session: session.into(),
            client_version,
        });
    }

    /// Tells that a session was renewed.
    pub fn renewed(&self, session: About<'_>, client_version: &str) {
        self.write(Event::Renew {
            session: session.into(),
            client_version,
        });
    }

    /// Tells that a session is over, and how long it lasted.
    pub fn closed(&self, session: About<'_>, reason: Closed, lasted: Duration) {
        self.write(Event::Close {
            session: session.into(),
            reason,
            seconds: lasted.as_secs(),
        });
    }

    /// Tells that a session was not opened, or not renewed.
    pub fn session_denied(&self, reason: Reason, namespace: Option<&str>) {
        let subject = Subject {
            session: None,
            call: "OpenSession",
            reason: reason.word(),
        };
        self.denied(subject, namespace, None);
    }

    /// Tells that a call of a session was denied.
    pub fn call_denied(
        &self,
        session: &str,
        call: &'static str,
        namespace: Option<&str>,
        service: Option<&str>,
    ) {
        let subject = Subject {
            session: Some(shown(session).to_owned()),
            call,
            reason: "namespace-not-granted",
        };
        self.denied(subject, namespace, service);
    }

    /// Tells that a flow was opened.
    pub fn flow_opened(&self, flow: Flow<'_>) {
        self.write(Event::FlowOpen(flow));
    }

    /// Tells that a flow is over, and what it carried.
    pub fn flow_closed(&self, flow: Flow<'_>, closing: Closing) {
        self.write(Event::FlowClose { flow, closing });
    }

    /// Tells that a session may not dial what it wants to dial.
    pub fn flow_denied(&self, session: &str, denied: &Denied) {
        let subject = Subject {
            session: Some(shown(session).to_owned()),
            call: "Flow",
            reason: denied.reason.word(),
        };
        let service = denied.service.as_ref();
        let namespace = service.map(|key| key.namespace.as_str());
        self.denied(subject, namespace, service.map(|key| key.name.as_str()));
    }

    /// Writes what was counted and is due.
    pub fn flush(&self, now: Instant) {
        let due = self.denials.lock().due(now);
        due.iter().for_each(|denial| self.write_denial(denial));
    }

    /// Flushes now and then until shutdown, and all at the end.
    pub async fn flush_until(self: Arc<Self>, shutdown: CancellationToken) {
        let mut ticks = interval(denials::WINDOW / 4);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => break,
                _ = ticks.tick() => self.flush(Instant::now()),
            }
        }
        let rest = self.denials.lock().all();
        rest.iter().for_each(|denial| self.write_denial(denial));
    }

    fn denied(&self, subject: Subject, namespace: Option<&str>, service: Option<&str>) {
        let now = Instant::now();
        let told = self.denials.lock().count(subject, namespace, service, now);
        if let Some(denial) = told {
            self.write_denial(&denial);
        }
    }

    fn write_denial(&self, denial: &Denial) {
        self.write(Event::Denied {
            session: denial.subject.session.as_deref(),
            call: denial.subject.call,
            reason: denial.subject.reason,
            namespace: denial.namespace.as_deref(),
            service: denial.service.as_deref(),
            count: denial.count,
        });
    }

    fn write(&self, event: Event<'_>) {
        let Some(lines) = &self.lines else {
            return;
        };
        let line = Line {
            audit: FORMAT,
            time: self.wall.text(),
            lost: self.lost.swap(0, Ordering::Relaxed),
            event,
        };
        let lost = line.lost;
        let sent = serde_json::to_string(&line)
            .ok()
            .and_then(|text| lines.try_send(text + "\n").ok());
        if sent.is_none() {
            self.lost.fetch_add(lost + 1, Ordering::Relaxed);
        }
    }
}

impl<'a> From<About<'a>> for Session<'a> {
    fn from(about: About<'a>) -> Self {
        let token = |proof: &'a Proof| Token {
            namespace: &proof.namespace,
            id: &proof.token_id,
            account: proof.subject(),
            uid: &proof.account_uid,
            expires: wall::text(proof.expires),
        };
        Self {
            session: shown(about.id),
            namespaces: about.namespaces,
            tokens: about.proofs.iter().map(token).collect(),
            certificate: about.certificate,
        }
    }
}

/// The part of a session's id that may be written down.
fn shown(id: &str) -> &str {
    id.get(..SHOWN).unwrap_or(id)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde wants it")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

async fn write(
    mut file: impl AsyncWrite + Send + Unpin,
    mut lines: mpsc::Receiver<String>,
    shutdown: CancellationToken,
) {
    let mut batch = Vec::new();
    loop {
        tokio::select! {
            count = lines.recv_many(&mut batch, QUEUE) => if count == 0 {
                return;
            },
            () = shutdown.cancelled() => break,
        }
        put(&mut file, &mut batch).await;
        tokio::select! {
            () = sleep(REST) => {}
            () = shutdown.cancelled() => break,
        }
    }
    // What was told before the end, and what the sessions' end tells.
    while lines.recv_many(&mut batch, QUEUE).await > 0 {
        put(&mut file, &mut batch).await;
    }
}

/// Writes lines at once, whole ones.
async fn put(file: &mut (impl AsyncWrite + Unpin), batch: &mut Vec<String>) {
    let text = batch.concat();
    batch.clear();
    // A log that cannot be written is no reason to end: whoever reads it closed it.
    if file.write_all(text.as_bytes()).await.is_ok() {
        let _ = file.flush().await;
    }
}

#[cfg(test)]
mod tests;
