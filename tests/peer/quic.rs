//! QUIC, as HTTP/3 has it below: streams over datagrams, with its own idea of the path's MTU.

use std::net::{Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use quinn::{ClientConfig, Connection, Endpoint, RecvStream, SendStream, ServerConfig};
use rcgen::generate_simple_self_signed;
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::pattern::Pattern;
use crate::server::{send, take};

/// The name in the certificate.
const NAME: &str = "peer";

/// Serves until it is killed; `certificate` is written for the clients.
pub(crate) async fn serve(port: u16, certificate: &Path) -> Result<String> {
    let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    let made = generate_simple_self_signed([NAME.to_owned()])?;
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let config = ServerConfig::with_single_cert(vec![made.cert.der().clone()], key.into())?;
    let endpoint = Endpoint::server(config, any)?;
    tokio::fs::write(certificate, made.cert.der()).await?;
    // As servers of HTTP/3 do: by this one it is seen that we are there.
    let _listener = TcpListener::bind(any).await?;
    crate::say(&format!("listening on {any}"));
    while let Some(incoming) = endpoint.accept().await {
        tokio::spawn(async move {
            // Whatever is wrong, the client sees it.
            if let Ok(connection) = incoming.await {
                let _ = answer(connection).await;
            }
        });
    }
    Ok("closed".to_owned())
}

async fn answer(connection: Connection) -> Result<()> {
    loop {
        let (sending, receiving) = connection.accept_bi().await?;
        tokio::spawn(exchange(sending, receiving));
    }
}

/// Takes a pattern, and sends the next one back if it was right.
async fn exchange(mut sending: SendStream, mut receiving: RecvStream) -> Result<()> {
    let (bytes, seed) = (receiving.read_u64().await?, receiving.read_u64().await?);
    take(&mut receiving, &mut Pattern::new(seed), bytes).await?;
    send(&mut sending, &mut Pattern::new(seed + 1), bytes).await?;
    sending.finish()?;
    sending.stopped().await?;
    Ok(())
}

/// Moves so many bytes there and back in each of so many streams of one connection.
pub(crate) async fn both_ways(
    to: SocketAddr,
    certificate: &Path,
    bytes: u64,
    streams: u64,
) -> Result<String> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(tokio::fs::read(certificate).await?))?;
    let mut endpoint = Endpoint::client(crate::client::any(to))?;
    let config = ClientConfig::with_root_certificates(Arc::new(roots))?;
    endpoint.set_default_client_config(config);
    let connection = endpoint.connect(to, NAME)?.await.context("connect")?;
    let start = Instant::now();
    let mut all = JoinSet::new();
    for seed in 0..streams {
        let connection = connection.clone();
        all.spawn(async move { one(&connection, bytes, seed).await });
    }
    while let Some(ended) = all.join_next().await {
        ended??;
    }
    let path = connection.stats().path;
    connection.close(0_u32.into(), b"");
    endpoint.wait_idle().await;
    Ok(format!(
        "bytes={} seconds={:.1} mtu={} black_holes={} lost={}",
        2 * bytes * streams,
        start.elapsed().as_secs_f64(),
        path.current_mtu,
        path.black_holes_detected,
        path.lost_packets
    ))
}

async fn one(connection: &Connection, bytes: u64, seed: u64) -> Result<()> {
    let (mut sending, mut receiving) = connection.open_bi().await?;
    sending.write_u64(bytes).await?;
    sending.write_u64(seed).await?;
    send(&mut sending, &mut Pattern::new(seed), bytes).await?;
    sending.finish()?;
    let back = take(&mut receiving, &mut Pattern::new(seed + 1), bytes).await;
    back.with_context(|| format!("stream {seed}"))
}
