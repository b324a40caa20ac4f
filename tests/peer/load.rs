//! A load of every kind of flow, until the input ends: what a laptop does in a week, in minutes.
//!
//! Whatever is broken after it was open ends it with status 1. A connection that could not be opened
//! is tried again, and counted: the way may be cut just then.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::client::{self, DATAGRAM_TRIES, ask, connect, echoed, input_ends, must_say};
use crate::pattern::Pattern;
use crate::server::{send, take};

/// How long one thing may take: only what hangs takes so long.
const PATIENCE: Duration = Duration::from_secs(120);
/// The pause between two things of a lane: a load, not a flood.
const PAUSE: Duration = Duration::from_millis(20);
/// The pause between two pieces of a long echo.
const LONG_PAUSE: Duration = Duration::from_millis(100);
/// How long before a connection that could not be opened is tried again, and how often it is.
const AGAIN: Duration = Duration::from_millis(200);
const TRIES: usize = 100;
/// What is moved at once.
const BULK: u64 = 512 * 1024;
/// A piece of a long echo.
const PIECE: usize = 4096;

/// Where the load goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Places {
    /// The serving end, by TCP.
    pub(crate) open: SocketAddr,
    /// The same, by UDP.
    pub(crate) datagrams: SocketAddr,
    /// Where nobody listens.
    pub(crate) closed: SocketAddr,
}

/// One thing that a lane does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Short,
    Down,
    Up,
    Half,
    TheirReset,
    OurReset,
    Refused,
    Datagram,
    Name,
}

const KINDS: [Kind; 9] = [
    Kind::Short,
    Kind::Down,
    Kind::Up,
    Kind::Half,
    Kind::TheirReset,
    Kind::OurReset,
    Kind::Refused,
    Kind::Datagram,
    Kind::Name,
];

/// What was done so far, by its name.
#[derive(Debug, Clone, Default)]
struct Done(Arc<Mutex<BTreeMap<String, u64>>>);

impl Done {
    fn count(&self, name: impl Into<String>) {
        *self.0.lock().entry(name.into()).or_default() += 1;
    }
}

/// Runs so many lanes, and as many long echoes beside them.
pub(crate) async fn load(places: Places, lanes: u64) -> Result<String> {
    let over = watch::Sender::new(false);
    let done = Done::default();
    let mut running = JoinSet::new();
    for number in 0..lanes {
        let (lane, long) = (over.subscribe(), over.subscribe());
        running.spawn(run(places, number, lane, done.clone()));
        running.spawn(long_echo(places.open, number, long, done.clone()));
    }
    crate::say("loading");
    let all = async {
        while let Some(ended) = running.join_next().await {
            ended??;
        }
        Ok::<_, anyhow::Error>(())
    };
    tokio::pin!(all);
    let early = tokio::select! {
        ended = input_ends() => ended.map(|()| None)?,
        ended = &mut all => Some(ended),
    };
    over.send_replace(true);
    match early {
        Some(ended) => ended?,
        None => all.await?,
    }
    let done = done.0.lock();
    let told: Vec<_> = done.iter().map(|(name, n)| format!("{name}={n}")).collect();
    Ok(told.join(" "))
}

async fn run(places: Places, lane: u64, over: watch::Receiver<bool>, done: Done) -> Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await?;
    socket.connect(places.datagrams).await?;
    let mut choices = Pattern::new(lane);
    let mut number = lane << 32;
    while !*over.borrow() {
        let mut choice = [0];
        choices.fill(&mut choice);
        let kind = KINDS[usize::from(choice[0]) % KINDS.len()];
        number += 1;
        let doing = patiently(&done, || one(kind, places, &socket, number));
        doing.await.with_context(|| format!("{kind:?} {number}"))?;
        done.count(format!("{kind:?}"));
        sleep(PAUSE).await;
    }
    Ok(())
}

/// Does something, again where no connection could be had.
async fn patiently<T, F>(done: &Done, work: impl Fn() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    for _ in 0..TRIES {
        let outcome = timeout(PATIENCE, work());
        match outcome.await.map_err(|_| anyhow!("it hangs"))? {
            Err(error) if was_not_open(&error) => done.count("again"),
            outcome => return outcome,
        }
        sleep(AGAIN).await;
    }
    bail!("no connection, {TRIES} times")
}

/// Whether a connection was not even opened.
fn was_not_open(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.to_string() == "connect")
}

async fn one(kind: Kind, places: Places, socket: &UdpSocket, number: u64) -> Result<()> {
    let to = places.open;
    match kind {
        Kind::Short => {
            let mut stream = ask(to, "echo").await?;
            stream.write_all(b"short").await?;
            stream.shutdown().await?;
            must_say(&mut stream, "short").await
        }
        Kind::Down => {
            let mut stream = ask(to, &format!("send {BULK} {number}")).await?;
            take(&mut stream, &mut Pattern::new(number), BULK).await
        }
        Kind::Up => {
            let mut stream = ask(to, &format!("take {BULK} {number}")).await?;
            send(&mut stream, &mut Pattern::new(number), BULK).await?;
            stream.shutdown().await?;
            must_say(&mut stream, "right\n").await
        }
        Kind::Half => client::half_close(to).await.map(drop),
        Kind::TheirReset => {
            let said = client::reset(to).await?;
            ensure!(said == "ECONNRESET", "{said} instead of a reset");
            Ok(())
        }
        Kind::OurReset => {
            let mut stream = ask(to, &format!("send {BULK} {number}")).await?;
            stream.read_exact(&mut [0]).await?;
            Ok(stream.set_zero_linger()?)
        }
        Kind::Refused => match connect(places.closed).await.as_str() {
            "ECONNREFUSED" => Ok(()),
            other => Err(anyhow!("{other} where nobody listens").context("connect")),
        },
        Kind::Datagram => datagram(socket, number).await,
        Kind::Name => name(number).await,
    }
}

async fn datagram(socket: &UdpSocket, number: u64) -> Result<()> {
    let mut sent = vec![0; 1000];
    Pattern::new(number).fill(&mut sent);
    for _ in 0..DATAGRAM_TRIES {
        if echoed(socket, &sent).await? {
            return Ok(());
        }
    }
    Err(anyhow!("the datagram never came back").context("connect"))
}

/// Two names, one that there is and one that there is not.
async fn name(number: u64) -> Result<()> {
    let found = tokio::net::lookup_host("peer.default:80").await;
    let found = found.context("connect")?.next();
    ensure!(found.is_some(), "no address");
    let nobody = format!("nobody-{number}.default.svc.cluster.local:80");
    let found = tokio::net::lookup_host(&nobody).await;
    ensure!(found.is_err(), "{nobody} has an address");
    Ok(())
}

/// One connection that lives as long as the load, and says something now and then.
async fn long_echo(
    to: SocketAddr,
    lane: u64,
    over: watch::Receiver<bool>,
    done: Done,
) -> Result<()> {
    let mut stream = patiently(&done, || ask(to, "echo")).await?;
    let (mut there, mut back) = (Pattern::new(lane), Pattern::new(lane));
    let (mut piece, mut got, mut scratch) = (vec![0; PIECE], vec![0; PIECE], Vec::new());
    while !*over.borrow() {
        there.fill(&mut piece);
        let told = || format!("long echo {lane}");
        let echoing = async {
            stream.write_all(&piece).await?;
            stream.read_exact(&mut got).await
        };
        let echoed = timeout(PATIENCE, echoing).await;
        echoed
            .map_err(|_| anyhow!("long echo {lane} hangs"))?
            .with_context(told)?;
        ensure!(
            back.goes_on(&got, &mut scratch),
            "long echo {lane}: other bytes"
        );
        done.count("pieces");
        sleep(LONG_PAUSE).await;
    }
    stream.shutdown().await?;
    must_say(&mut stream, "").await
}
