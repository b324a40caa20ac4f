//! Queries at an even rate from a few sockets, whatever the answers do, and when each was answered.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use kubebridge_tests::wire::{head, query};
use tokio::time::Instant;

/// Sockets one load is sent from: with 16 bits of id each, none is used twice within a run.
const SOCKETS: usize = 4;
/// Queries are sent in small lots, as a clock that ticks for each would be late for most.
const TICK: Duration = Duration::from_millis(1);
/// How often a reader looks whether the load has ended.
const LOOK: Duration = Duration::from_millis(50);

/// A load that is being sent.
#[derive(Debug)]
pub(crate) struct Load {
    board: Arc<Board>,
    sending: JoinHandle<Result<f64>>,
    reading: Vec<JoinHandle<()>>,
}

/// What came of a load.
#[derive(Debug)]
pub(crate) struct Answers {
    pub(crate) sent: usize,
    /// Answered NOERROR.
    pub(crate) good: usize,
    /// Queries a second, as they were sent.
    pub(crate) rate: f64,
    /// How long each answered one took, in order.
    times: Vec<Duration>,
}

/// When each query was sent and answered, in microseconds since the start; 0 is not yet.
#[derive(Debug)]
struct Board {
    start: Instant,
    queries: Vec<Times>,
    ended: AtomicBool,
}

#[derive(Debug, Default)]
struct Times {
    sent: AtomicU64,
    answered: AtomicU64,
    good: AtomicBool,
}

impl Load {
    /// Begins to send so many queries a second for the time.
    pub(crate) fn start(
        to: SocketAddr,
        rate: u32,
        time: Duration,
        name: fn(usize) -> String,
    ) -> Result<Self> {
        let count = (f64::from(rate) * time.as_secs_f64()) as usize;
        let board = Arc::new(Board {
            start: Instant::now(),
            queries: (0..count).map(|_| Times::default()).collect(),
            ended: AtomicBool::new(false),
        });
        let mut sockets = Vec::new();
        let mut reading = Vec::new();
        for number in 0..SOCKETS {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
            socket.connect(to)?;
            socket.set_read_timeout(Some(LOOK))?;
            let (reader, board) = (socket.try_clone()?, Arc::clone(&board));
            reading.push(std::thread::spawn(move || board.read(&reader, number)));
            sockets.push(socket);
        }
        let sender = Arc::clone(&board);
        let sending = std::thread::spawn(move || sender.send(&sockets, rate, name));
        Ok(Self {
            board,
            sending,
            reading,
        })
    }

    /// Stops listening, and tells what came.
    pub(crate) fn end(self) -> Result<Answers> {
        let panicked = |_| anyhow!("a thread of the load panicked");
        let rate = self.sending.join().map_err(panicked)??;
        self.board.ended.store(true, Ordering::Release);
        for reading in self.reading {
            reading.join().map_err(panicked)?;
        }
        let queries = &self.board.queries;
        let mut times: Vec<Duration> = queries.iter().filter_map(Times::took).collect();
        times.sort_unstable();
        Ok(Answers {
            sent: queries.len(),
            good: queries
                .iter()
                .filter(|times| times.good.load(Ordering::Relaxed))
                .count(),
            rate,
            times,
        })
    }
}

impl Answers {
    pub(crate) fn unanswered(&self) -> usize {
        self.sent - self.times.len()
    }

    pub(crate) fn slowest(&self) -> Duration {
        self.times.last().copied().unwrap_or_default()
    }

    pub(crate) fn percentile(&self, part: f64) -> Duration {
        let at = (self.times.len().saturating_sub(1) as f64 * part) as usize;
        self.times.get(at).copied().unwrap_or_default()
    }
}

impl Board {
    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Sends everything in its time; returns the rate at which that was.
    fn send(&self, sockets: &[UdpSocket], rate: u32, name: fn(usize) -> String) -> Result<f64> {
        for (number, times) in self.queries.iter().enumerate() {
            let due = Duration::from_secs_f64(number as f64 / f64::from(rate));
            while due > self.start.elapsed() {
                std::thread::sleep(TICK);
            }
            let id = u16::try_from(number / SOCKETS % 0x1_0000).unwrap_or_default();
            let packet = query(id, &name(number));
            times.sent.store(self.now().max(1), Ordering::Relaxed);
            let sent = sockets[number % SOCKETS].send(&packet);
            sent.context("sending a query failed")?;
        }
        Ok(self.queries.len() as f64 / self.start.elapsed().as_secs_f64())
    }

    fn read(&self, socket: &UdpSocket, number: usize) {
        let mut buffer = [0; 4096];
        while !self.ended.load(Ordering::Acquire) {
            let length = match socket.recv(&mut buffer) {
                Ok(length) => length,
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    continue;
                }
                Err(_) => return,
            };
            let Some((id, code)) = head(&buffer[..length]) else {
                continue;
            };
            let times = self.queries.get(usize::from(id) * SOCKETS + number);
            if let Some(times) = times {
                times.answered.store(self.now().max(1), Ordering::Relaxed);
                times.good.store(code == 0, Ordering::Relaxed);
            }
        }
    }
}

impl Times {
    fn took(&self) -> Option<Duration> {
        let answered = self.answered.load(Ordering::Relaxed);
        let sent = self.sent.load(Ordering::Relaxed);
        (answered > 0).then(|| Duration::from_micros(answered.saturating_sub(sent)))
    }
}
