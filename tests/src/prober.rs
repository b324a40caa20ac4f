//! A name asked every 10 ms for as long as something else goes on, and what came of it.
//!
//! Plain datagrams from a machine of the lab, each with a number of its own; one that is not
//! answered in time is a failure, as is any answer but the expected address.

use std::{
    collections::BTreeMap,
    fmt,
    io::ErrorKind,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context, Result, anyhow, ensure};
use tokio::time::Instant;

use crate::{
    machine::{Machine, enter_network},
    wait::until,
    wire::{has_address, head, query},
};

/// Between two questions.
const EVERY: Duration = Duration::from_millis(10);

/// What glibc waits for an answer unless it is told otherwise.
const PATIENCE: Duration = Duration::from_secs(5);

/// No verdict on fewer questions than this, however short the fault was.
const LEAST: usize = 100;

/// The longest wait for a datagram before it is looked whether the next question is due.
const LISTEN: Duration = Duration::from_millis(2);

/// What a report says of an answer without the address.
const OTHER: &str = "another or no address";

/// What a report says of a name that is said not to exist.
const NO_SUCH_NAME: &str = "NXDOMAIN";

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub enum Question {
    /// A name that nobody has asked before, below an outside name: no cache can help.
    Outside,
    /// Always the same name, and the address it has.
    Name(&'static str, Ipv4Addr),
}

impl Question {
    fn name(self, number: u16) -> String {
        match self {
            Self::Outside => format!("n{number}.probe.example.org"),
            Self::Name(name, _) => name.to_owned(),
        }
    }

    fn address(self) -> Ipv4Addr {
        match self {
            Self::Outside => Ipv4Addr::new(203, 0, 113, 82),
            Self::Name(_, address) => address,
        }
    }
}

/// A running series of questions.
#[derive(Debug)]
pub struct Prober {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    asking: JoinHandle<Result<Report>>,
}

impl Prober {
    /// Begins to ask `server` (`ADDRESS` or `ADDRESS#PORT`) from `machine`.
    pub fn start(machine: &Machine, server: &str, question: Question) -> Result<Self> {
        let process = machine.process();
        let (address, port) = server.split_once('#').unwrap_or((server, "53"));
        let server = SocketAddr::new(
            address.parse().context(address.to_owned())?,
            port.parse().context(port.to_owned())?,
        );
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let answered = Arc::new(AtomicUsize::new(0));
        let good = Arc::clone(&answered);
        let asking = thread::spawn(move || {
            enter_network(process)?;
            let socket = UdpSocket::bind("0.0.0.0:0")?;
            socket.set_read_timeout(Some(LISTEN))?;
            Series {
                socket,
                server,
                question,
                waiting: BTreeMap::new(),
                last_good: Instant::now(),
                good,
                report: Report::default(),
            }
            .run(&stopped)
        });
        Ok(Self {
            stop,
            answered,
            asking,
        })
    }

    /// Waits for the first good answer.
    pub fn answered(&self, limit: Duration) -> Result<()> {
        until("a first answer", limit, || {
            ensure!(self.answered.load(Ordering::Relaxed) > 0, "none is good");
            Ok(())
        })
    }

    /// Stops asking once enough was asked, waits for the answers, and reports.
    pub fn finish(self) -> Result<Report> {
        self.stop.store(true, Ordering::Relaxed);
        self.asking
            .join()
            .map_err(|_| anyhow!("the asking thread died"))?
    }
}

/// What came of a series.
#[derive(Debug, Default)]
pub struct Report {
    asked: usize,
    failures: BTreeMap<String, usize>,
    longest_wait: Duration,
    longest_gap: Duration,
}

impl Report {
    /// How many questions got no good answer.
    pub fn failed(&self) -> usize {
        self.failures.values().sum()
    }

    /// Fails if any question did.
    pub fn must_be_without_failure(&self) -> Result<()> {
        ensure!(self.failed() == 0, "{self}");
        Ok(())
    }

    /// Fails if the name was ever said not to exist, or to have another or no address.
    pub fn must_not_deny(&self) -> Result<()> {
        let denied = [NO_SUCH_NAME, OTHER]
            .iter()
            .any(|kind| self.failures.contains_key(*kind));
        ensure!(!denied, "{self}");
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} asked, {} failed, longest wait {:.1?}, longest gap {:.1?}",
            self.asked,
            self.failed(),
            self.longest_wait,
            self.longest_gap
        )?;
        for (kind, count) in &self.failures {
            write!(formatter, "; {count} × {kind}")?;
        }
        Ok(())
    }
}

struct Series {
    socket: UdpSocket,
    server: SocketAddr,
    question: Question,
    waiting: BTreeMap<u16, Instant>,
    last_good: Instant,
    good: Arc<AtomicUsize>,
    report: Report,
}

impl Series {
    fn run(mut self, stop: &AtomicBool) -> Result<Report> {
        let mut next = Instant::now();
        let mut number = 0;
        loop {
            let ended = stop.load(Ordering::Relaxed) && self.report.asked >= LEAST;
            if ended && self.waiting.is_empty() {
                return Ok(self.report);
            }
            if !ended && Instant::now() >= next {
                self.ask(number);
                number = number.wrapping_add(1);
                next += EVERY;
            }
            self.listen()?;
            self.give_up();
        }
    }

    fn ask(&mut self, number: u16) {
        self.report.asked += 1;
        let packet = query(number, &self.question.name(number));
        match self.socket.send_to(&packet, self.server) {
            Ok(_) => {
                self.waiting.insert(number, Instant::now());
            }
            Err(error) => self.failed(format!("not sent: {}", error.kind())),
        }
    }

    fn listen(&mut self) -> Result<()> {
        let mut buffer = [0; 2048];
        let count = match self.socket.recv_from(&mut buffer) {
            Ok((count, _)) => count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        let reply = &buffer[..count];
        let Some((number, code)) = head(reply) else {
            self.failed("a torn answer".to_owned());
            return Ok(());
        };
        let Some(asked) = self.waiting.remove(&number) else {
            return Ok(());
        };
        let wait = asked.elapsed();
        self.report.longest_wait = self.report.longest_wait.max(wait);
        match code {
            0 if has_address(reply, self.question.address()) => self.good(),
            0 => self.failed(OTHER.to_owned()),
            2 => self.failed("SERVFAIL".to_owned()),
            3 => self.failed(NO_SUCH_NAME.to_owned()),
            5 => self.failed("REFUSED".to_owned()),
            code => self.failed(format!("code {code}")),
        }
        Ok(())
    }

    fn good(&mut self) {
        let now = Instant::now();
        self.report.longest_gap = self.report.longest_gap.max(now - self.last_good);
        self.last_good = now;
        self.good.fetch_add(1, Ordering::Relaxed);
    }

    fn failed(&mut self, kind: String) {
        *self.report.failures.entry(kind).or_default() += 1;
    }

    fn give_up(&mut self) {
        while let Some(oldest) = self.waiting.first_entry()
            && oldest.get().elapsed() > PATIENCE
        {
            oldest.remove();
            self.failed("no answer".to_owned());
        }
    }
}
