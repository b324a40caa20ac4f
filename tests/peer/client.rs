//! The asking end: one word, one thing looked at, one line about it.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use crate::errno;
use crate::pattern::Pattern;
use crate::server::{GO_ON, PIECE, send, take};

/// How long one datagram may take there and back before it is sent again.
const DATAGRAM_TIME: Duration = Duration::from_secs(2);
/// How often one datagram is sent.
pub(crate) const DATAGRAM_TRIES: usize = 5;
/// What an echo holds: many small pieces, so that a cut meets one.
const HELD_PIECE: usize = 4096;
/// How many idle connections are opened at a time.
const LANES: u64 = 8;

pub(crate) async fn ask(to: SocketAddr, line: &str) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(to).await.context("connect")?;
    stream.set_nodelay(true)?;
    stream.write_all(format!("{line}\n").as_bytes()).await?;
    Ok(stream)
}

/// Runs one flow of each number and waits for all.
async fn each<F>(flows: u64, flow: impl Fn(u64) -> F) -> Result<()>
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    let mut all = JoinSet::new();
    for number in 0..flows {
        let work = flow(number);
        all.spawn(async move { work.await.with_context(|| format!("flow {number}")) });
    }
    while let Some(ended) = all.join_next().await {
        ended??;
    }
    Ok(())
}

fn moved(bytes: u64, start: Instant) -> String {
    let seconds = start.elapsed().as_secs_f64();
    let rate = bytes as f64 * 8.0 / seconds / 1e6;
    format!("bytes={bytes} seconds={seconds:.3} mbit={rate:.1}")
}

pub(crate) async fn down(to: SocketAddr, bytes: u64, flows: u64) -> Result<String> {
    let start = Instant::now();
    each(flows, |seed| async move {
        let mut stream = ask(to, &format!("send {bytes} {seed}")).await?;
        take(&mut stream, &mut Pattern::new(seed), bytes).await
    })
    .await?;
    Ok(moved(bytes * flows, start))
}

pub(crate) async fn up(to: SocketAddr, bytes: u64, flows: u64) -> Result<String> {
    let start = Instant::now();
    each(flows, |seed| async move {
        let mut stream = ask(to, &format!("take {bytes} {seed}")).await?;
        send(&mut stream, &mut Pattern::new(seed), bytes).await?;
        stream.shutdown().await?;
        must_say(&mut stream, "right\n").await
    })
    .await?;
    Ok(moved(bytes * flows, start))
}

/// Takes bytes for so long, and leaves the rest: what a slow path carries decides how much.
pub(crate) async fn down_for(to: SocketAddr, time: Duration, flows: u64) -> Result<String> {
    let (start, count) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let counting = Arc::clone(&count);
    each(flows, move |seed| {
        let count = Arc::clone(&counting);
        async move {
            let mut stream = ask(to, &format!("send {} {seed}", u64::MAX)).await?;
            let mut pattern = Pattern::new(seed);
            let taking = take(&mut stream, &mut pattern, u64::MAX);
            match timeout_at(start + time, taking).await {
                Ok(ended) => ended?,
                Err(_) => stream.set_zero_linger()?,
            }
            count.fetch_add(pattern.position(), Ordering::Relaxed);
            Ok(())
        }
    })
    .await?;
    Ok(moved(count.load(Ordering::Relaxed), start))
}

/// Sends bytes for so long, and waits until all of them have arrived: that time counts as well.
pub(crate) async fn up_for(to: SocketAddr, time: Duration, flows: u64) -> Result<String> {
    let (start, count) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let counting = Arc::clone(&count);
    each(flows, move |seed| {
        let count = Arc::clone(&counting);
        async move {
            let mut stream = ask(to, &format!("sink {seed}")).await?;
            let (mut pattern, mut piece) = (Pattern::new(seed), vec![0; PIECE]);
            while start.elapsed() < time {
                pattern.fill(&mut piece);
                stream.write_all(&piece).await?;
            }
            stream.shutdown().await?;
            let sent = pattern.position();
            must_say(&mut stream, &format!("{sent}\n")).await?;
            count.fetch_add(sent, Ordering::Relaxed);
            Ok(())
        }
    })
    .await?;
    Ok(moved(count.load(Ordering::Relaxed), start))
}

pub(crate) async fn must_say(stream: &mut TcpStream, words: &str) -> Result<()> {
    let mut said = String::new();
    stream.read_to_string(&mut said).await?;
    ensure!(said == words, "it says {said:?} instead of {words:?}");
    Ok(())
}

pub(crate) async fn ping(to: SocketAddr, count: usize) -> Result<String> {
    let mut stream = ask(to, "echo").await?;
    let mut times = Vec::with_capacity(count);
    for number in 0..count {
        let (sent, mut back) = ([number as u8], [0]);
        let start = Instant::now();
        stream.write_all(&sent).await?;
        stream.read_exact(&mut back).await?;
        times.push(start.elapsed());
        ensure!(sent == back, "another byte");
    }
    times.sort_unstable();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize].as_micros();
    Ok(format!(
        "p50_us={} p95_us={} p99_us={}",
        at(0.5),
        at(0.95),
        at(0.99)
    ))
}

pub(crate) async fn rate(to: SocketAddr, time: Duration, flows: u64) -> Result<String> {
    let (start, count) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let counting = Arc::clone(&count);
    each(flows, move |_| {
        let count = Arc::clone(&counting);
        async move {
            while start.elapsed() < time {
                let mut stream = ask(to, "echo").await?;
                stream.write_all(b"x").await?;
                stream.shutdown().await?;
                must_say(&mut stream, "x").await?;
                count.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        }
    })
    .await?;
    let count = count.load(Ordering::Relaxed);
    let rate = count as f64 / start.elapsed().as_secs_f64();
    Ok(format!("connections={count} per_second={rate:.0}"))
}

/// Waits until nobody holds our input any more.
pub(crate) async fn input_ends() -> Result<()> {
    let reading = || io::copy(&mut io::stdin(), &mut io::sink());
    tokio::task::spawn_blocking(reading).await??;
    Ok(())
}

pub(crate) async fn hold(to: SocketAddr, flows: u64) -> Result<String> {
    let (over, _) = tokio::sync::watch::channel(false);
    let (over, moved) = (Arc::new(over), Arc::new(AtomicU64::new(0)));
    let (listening, counting) = (Arc::clone(&over), Arc::clone(&moved));
    let holding = tokio::spawn(async move {
        each(flows, move |seed| {
            let (over, count) = (listening.subscribe(), Arc::clone(&counting));
            async move { echo_until(to, seed, over, &count).await }
        })
        .await
    });
    crate::say("holding");
    input_ends().await?;
    // Nobody listens only when all have failed, which is told below.
    let _ = over.send(true);
    holding.await??;
    Ok(format!(
        "flows={flows} bytes={}",
        moved.load(Ordering::Relaxed)
    ))
}

/// Sends a piece and reads it back, again and again, and then the end.
async fn echo_until(
    to: SocketAddr,
    seed: u64,
    over: tokio::sync::watch::Receiver<bool>,
    moved: &AtomicU64,
) -> Result<()> {
    let mut stream = ask(to, "echo").await?;
    let (mut there, mut back) = (Pattern::new(seed), Pattern::new(seed));
    let (mut piece, mut got, mut scratch) = (vec![0; HELD_PIECE], vec![0; HELD_PIECE], Vec::new());
    while !*over.borrow() {
        there.fill(&mut piece);
        let at = back.position();
        let told = || format!("after {at} bytes");
        stream.write_all(&piece).await.with_context(told)?;
        stream.read_exact(&mut got).await.with_context(told)?;
        ensure!(back.goes_on(&got, &mut scratch), "other bytes after {at}");
        moved.fetch_add(HELD_PIECE as u64, Ordering::Relaxed);
    }
    stream.shutdown().await?;
    must_say(&mut stream, "").await
}

/// Opens connections, waits until the input ends, and has each say something.
pub(crate) async fn idle(to: SocketAddr, flows: u64) -> Result<String> {
    let mut lanes = JoinSet::new();
    for lane in 0..LANES {
        lanes.spawn(async move {
            let mut open = Vec::new();
            for number in (lane..flows).step_by(LANES as usize) {
                let opening = async {
                    let mut stream = ask(to, "echo").await?;
                    one_byte(&mut stream, b'x').await?;
                    Ok::<_, anyhow::Error>(stream)
                };
                let stream = opening.await.with_context(|| format!("flow {number}"))?;
                open.push((number, stream));
            }
            Ok::<_, anyhow::Error>(open)
        });
    }
    let open: Vec<_> = lanes.join_all().await.into_iter().collect::<Result<_>>()?;
    crate::say(&format!("open={flows}"));
    input_ends().await?;
    let mut lanes = JoinSet::new();
    for lane in open {
        lanes.spawn(async move {
            for (number, mut stream) in lane {
                let living = one_byte(&mut stream, b'y').await;
                living.with_context(|| format!("flow {number}, after its sleep"))?;
            }
            Ok(())
        });
    }
    lanes.join_all().await.into_iter().collect::<Result<()>>()?;
    Ok("all well".to_owned())
}

/// Sends a byte, which must come back.
async fn one_byte(stream: &mut TcpStream, byte: u8) -> Result<()> {
    stream.write_all(&[byte]).await?;
    let mut back = [0];
    stream.read_exact(&mut back).await?;
    ensure!(back == [byte], "another byte");
    Ok(())
}

pub(crate) async fn half_close(to: SocketAddr) -> Result<String> {
    // Our end first: what was sent before comes back after it.
    let mut stream = ask(to, "echo").await?;
    stream.write_all(b"before the end").await?;
    stream.shutdown().await?;
    must_say(&mut stream, "before the end").await?;
    // Its end first: we may still write, and it takes it.
    let mut stream = ask(to, "send 3 0").await?;
    take(&mut stream, &mut Pattern::new(0), 3).await?;
    stream.shutdown().await?;
    Ok("both ways".to_owned())
}

pub(crate) async fn reset(to: SocketAddr) -> Result<String> {
    let mut stream = ask(to, "reset").await?;
    let mut byte = [0];
    let there = match stream.read(&mut byte).await {
        Ok(count) => format!("{count} bytes and no reset"),
        Err(error) => errno::name(&error),
    };
    // And the other way: a reset of ours, which nobody answers.
    ask(to, "echo").await?.set_zero_linger()?;
    Ok(there)
}

pub(crate) async fn tiny(to: SocketAddr) -> Result<String> {
    let mut stream = ask(to, "take 2000 9").await?;
    let (mut pattern, mut byte) = (Pattern::new(9), [0]);
    for _ in 0..2000 {
        pattern.fill(&mut byte);
        stream.write_all(&byte).await?;
    }
    stream.shutdown().await?;
    must_say(&mut stream, "right\n").await?;
    Ok("2000 writes".to_owned())
}

/// Writes to somebody who never reads, until nothing more is taken.
pub(crate) async fn stall(to: SocketAddr) -> Result<String> {
    let mut stream = ask(to, "stall").await?;
    let piece = vec![0; HELD_PIECE];
    let mut taken = 0;
    while let Ok(written) = timeout(DATAGRAM_TIME, stream.write(&piece)).await {
        taken += written?;
    }
    crate::say(&format!("stalled after {taken} bytes"));
    input_ends().await?;
    Ok("over".to_owned())
}

pub(crate) async fn connect(to: SocketAddr) -> String {
    match TcpStream::connect(to).await {
        Ok(_) => "connected".to_owned(),
        Err(error) => errno::name(&error),
    }
}

/// Any port of an address of the same family.
pub(crate) fn any(to: SocketAddr) -> SocketAddr {
    match to {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

async fn speak_to(to: SocketAddr) -> Result<UdpSocket> {
    let socket = UdpSocket::bind(any(to)).await?;
    socket.connect(to).await?;
    Ok(socket)
}

pub(crate) async fn udp_connect(to: SocketAddr) -> Result<String> {
    let socket = speak_to(to).await?;
    for _ in 0..DATAGRAM_TRIES {
        match echoed(&socket, b"anybody?").await {
            Ok(true) => return Ok("answered".to_owned()),
            Ok(false) => {}
            Err(error) => return Ok(error.to_string()),
        }
    }
    Ok("silence".to_owned())
}

pub(crate) async fn udp_leave(to: SocketAddr) -> Result<String> {
    let socket = speak_to(to).await?;
    let mut got = [0; GO_ON.len() + 1];
    for _ in 0..DATAGRAM_TRIES {
        socket.send(GO_ON).await?;
        if let Ok(count) = timeout(DATAGRAM_TIME, socket.recv(&mut got)).await {
            count?;
            return Ok("left".to_owned());
        }
    }
    bail!("nothing comes")
}

pub(crate) async fn udp(to: SocketAddr, bytes: usize, count: usize) -> Result<String> {
    let socket = speak_to(to).await?;
    let mut resent = 0;
    for seed in 0..count {
        let mut sent = vec![0; bytes];
        Pattern::new(seed as u64).fill(&mut sent);
        let mut tries = 0;
        while !echoed(&socket, &sent).await? {
            tries += 1;
            ensure!(tries < DATAGRAM_TRIES, "datagram {seed} never came back");
        }
        resent += tries;
    }
    Ok(format!("datagrams={count} resent={resent}"))
}

/// Whether the datagram came back in time; others may come first.
pub(crate) async fn echoed(socket: &UdpSocket, sent: &[u8]) -> Result<bool> {
    let mut got = vec![0; 65_535];
    let outcome: Result<Result<usize, io::Error>, _> = timeout(DATAGRAM_TIME, async {
        socket.send(sent).await?;
        loop {
            let count = socket.recv(&mut got).await?;
            if got[..count] == *sent {
                return Ok(count);
            }
        }
    })
    .await;
    match outcome {
        Ok(Ok(_)) => Ok(true),
        Ok(Err(error)) => bail!("{}", errno::name(&error)),
        Err(_) => Ok(false),
    }
}
