//! The answering end. The first line of a connection says what it is to do.

use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

use crate::pattern::Pattern;

/// One write, and one read.
pub(crate) const PIECE: usize = 64 * 1024;
/// The largest datagram of IPv4.
const DATAGRAM: usize = 65_507;
/// The datagram that is answered by others, again and again, until we are killed.
pub(crate) const GO_ON: &[u8] = b"go on";
/// The pause between two of them: an eye on a flow sees several.
const BETWEEN: Duration = Duration::from_millis(100);

/// Serves until it is killed.
pub(crate) async fn serve(port: u16) -> Result<String> {
    // Both families on one socket.
    let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    let listener = TcpListener::bind(any).await?;
    let udp = UdpSocket::bind(any).await?;
    let echoing = tokio::spawn(echo_datagrams(udp));
    crate::say(&format!("listening on {}", listener.local_addr()?));
    while !echoing.is_finished() {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(async move {
            // Whatever is wrong, the client sees it.
            let _ = answer(stream).await;
        });
    }
    bail!("no datagrams any more")
}

async fn echo_datagrams(socket: UdpSocket) -> Result<()> {
    let socket = Arc::new(socket);
    let mut buffer = vec![0; DATAGRAM];
    loop {
        let (count, from) = socket.recv_from(&mut buffer).await?;
        if buffer[..count] == *GO_ON {
            tokio::spawn(go_on(Arc::clone(&socket), from));
            continue;
        }
        // Refused or too large at the other end: its own affair.
        let _ = socket.send_to(&buffer[..count], from).await;
    }
}

async fn go_on(socket: Arc<UdpSocket>, to: SocketAddr) {
    loop {
        // Refused at the other end: its own affair.
        let _ = socket.send_to(b"on", to).await;
        tokio::time::sleep(BETWEEN).await;
    }
}

async fn answer(mut stream: TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    let (reading, mut writing) = stream.split();
    let mut reading = BufReader::with_capacity(PIECE, reading);
    let mut line = String::new();
    reading.read_line(&mut line).await?;
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        ["send", bytes, seed] => {
            let (bytes, mut pattern) = (bytes.parse()?, Pattern::new(seed.parse()?));
            send(&mut writing, &mut pattern, bytes).await?;
        }
        ["take", bytes, seed] => {
            let (bytes, mut pattern) = (bytes.parse()?, Pattern::new(seed.parse()?));
            let verdict = match take(&mut reading, &mut pattern, bytes).await {
                Ok(()) => "right".to_owned(),
                Err(error) => format!("wrong: {error:#}"),
            };
            writing.write_all(format!("{verdict}\n").as_bytes()).await?;
        }
        ["sink", seed] => {
            let mut pattern = Pattern::new(seed.parse()?);
            let verdict = match take_all(&mut reading, &mut pattern).await {
                Ok(()) => pattern.position().to_string(),
                Err(error) => format!("wrong: {error:#}"),
            };
            writing.write_all(format!("{verdict}\n").as_bytes()).await?;
        }
        ["echo"] => {
            let mut buffer = vec![0; PIECE];
            while let count @ 1.. = reading.read(&mut buffer).await? {
                writing.write_all(&buffer[..count]).await?;
            }
        }
        ["reset"] => {
            stream.set_zero_linger()?;
            return Ok(());
        }
        ["stall"] => tokio::time::sleep(Duration::MAX).await,
        _ => bail!("what is {line:?}?"),
    }
    writing.shutdown().await.context("end")
}

/// Writes so many bytes of a pattern.
pub(crate) async fn send(
    to: &mut (impl AsyncWriteExt + Unpin),
    pattern: &mut Pattern,
    bytes: u64,
) -> Result<()> {
    let mut buffer = vec![0; PIECE];
    while pattern.position() < bytes {
        let rest = bytes - pattern.position();
        let piece = usize::try_from(rest).unwrap_or(PIECE).min(PIECE);
        pattern.fill(&mut buffer[..piece]);
        to.write_all(&buffer[..piece]).await?;
    }
    Ok(())
}

/// Reads to the end, which must be so many bytes of a pattern.
pub(crate) async fn take(
    from: &mut (impl AsyncReadExt + Unpin),
    pattern: &mut Pattern,
    bytes: u64,
) -> Result<()> {
    take_all(from, pattern)
        .await
        .with_context(|| format!("of {bytes}"))?;
    if pattern.position() != bytes {
        bail!("{} bytes instead of {bytes}", pattern.position());
    }
    Ok(())
}

/// Reads bytes of a pattern to the end, wherever that is.
async fn take_all(from: &mut (impl AsyncReadExt + Unpin), pattern: &mut Pattern) -> Result<()> {
    let (mut buffer, mut scratch) = (vec![0; PIECE], Vec::new());
    loop {
        let at = pattern.position();
        let count = from.read(&mut buffer).await;
        let count = count.with_context(|| format!("broken at {at}"))?;
        if count == 0 {
            return Ok(());
        }
        if !pattern.goes_on(&buffer[..count], &mut scratch) {
            bail!("other bytes after {at}");
        }
    }
}
