//! Whether the other end of an HTTP/2 connection still lives: when it was last heard, and pings
//! when it has not been (RFC 9113 §6.7).
//!
//! Any byte counts as a sign of life, so a server that thinks long is not taken for a dead path.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use h2::{Ping, PingPong};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

/// How often an idle server is pinged: below the shortest time for which address translators
/// remember a connection.
const PING_EVERY: Duration = Duration::from_secs(20);
/// How long a ping may go unanswered before the connection is closed.
const PONG_WITHIN: Duration = Duration::from_secs(5);
/// How long an unused connection is kept: pings cost a laptop's battery.
const IDLE: Duration = Duration::from_secs(300);

/// The signs of life of one connection.
#[derive(Debug)]
pub(super) struct Pulse {
    signs: Mutex<Signs>,
    ping: Notify,
}

#[derive(Debug)]
struct Signs {
    is_open: bool,
    used: Instant,
    heard: Instant,
    unheard_since: Option<Instant>,
}

/// A question on its way. Dropped unanswered, it has the server pinged: a cancelled question gets
/// no reply that would tell whether the server was there.
#[derive(Debug)]
pub(super) struct Sending<'a> {
    pulse: &'a Pulse,
    sent: Instant,
}

impl Pulse {
    pub(super) fn new(now: Instant) -> Self {
        let signs = Signs {
            is_open: true,
            used: now,
            heard: now,
            unheard_since: None,
        };
        Self {
            signs: Mutex::new(signs),
            ping: Notify::new(),
        }
    }

    /// Takes note that a question goes out.
    pub(super) fn sending(&self, now: Instant) -> Sending<'_> {
        let mut signs = self.signs.lock();
        signs.used = now;
        signs.unheard_since.get_or_insert(now);
        drop(signs);
        Sending {
            pulse: self,
            sent: now,
        }
    }

    /// Has the server pinged.
    pub(super) fn ask(&self) {
        self.ping.notify_one();
    }

    /// Takes note that the connection is of no use any more.
    pub(super) fn close(&self) {
        self.signs.lock().is_open = false;
    }

    pub(super) fn is_open(&self) -> bool {
        self.signs.lock().is_open
    }

    /// Returns how long questions have been going out without anything coming in.
    pub(super) fn silence(&self, now: Instant) -> Duration {
        let since = self.signs.lock().unheard_since;
        since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    fn heard(&self, now: Instant) {
        let mut signs = self.signs.lock();
        signs.heard = now;
        signs.unheard_since = None;
    }

    fn is_idle(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.signs.lock().used) >= IDLE
    }
}

impl Sending<'_> {
    /// Tells whether the server has been heard since.
    pub(super) fn is_heard(&self) -> bool {
        self.pulse.signs.lock().heard > self.sent
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        if !self.is_heard() {
            self.pulse.ask();
        }
    }
}

/// Pings now and then, and when asked to. Ends when the connection should be closed, and says why.
pub(super) async fn keep_alive(mut pings: PingPong, pulse: &Pulse) -> &'static str {
    loop {
        // Either way it is time for a ping.
        let _ = timeout(PING_EVERY, pulse.ping.notified()).await;
        if pulse.is_idle(Instant::now()) {
            return "idle";
        }
        match timeout(PONG_WITHIN, pings.ping(Ping::opaque())).await {
            Ok(Ok(_pong)) => {}
            Ok(Err(_)) => return "closed by the server",
            Err(_elapsed) => return "silent",
        }
    }
}

/// A stream that tells when something arrives on it.
#[derive(Debug)]
pub(super) struct Listening<S> {
    stream: S,
    pulse: Arc<Pulse>,
}

impl<S> Listening<S> {
    pub(super) fn new(stream: S, pulse: Arc<Pulse>) -> Self {
        Self { stream, pulse }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Listening<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.pulse.heard(Instant::now());
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Listening<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
