//! SOCKS5 and HTTP CONNECT on loopback: connections into the cluster without root.
//!
//! One listener speaks both: the first octet tells. Everybody has to know the session's password,
//! since other users of the machine reach loopback too. Names are looked up where [`Place`] says:
//! the session's in the cluster, all others as this machine does; what is not the cluster's is
//! dialled from here, so that a program may send everything to the proxy.
//! It changes nothing on the machine, and knows neither sessions nor DNS.

mod dial;
mod env;
mod http;
mod owner;
mod password;
mod request;
mod socks;
mod udp;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::flows::Opener;
use crate::task::Essential;

pub use env::EnvReport;
pub use password::Password;
pub use request::{Host, Target};

/// Connections at once: as many as a session may have flows.
const CONNECTIONS: usize = 1024;
/// How long a client may take to say what it wants.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long a listener rests when a connection cannot be accepted, for want of descriptors say.
pub(crate) const REST: Duration = Duration::from_millis(100);
/// How long open connections may go on when the proxy ends.
const DRAIN: Duration = Duration::from_millis(500);

/// Where a destination is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the cluster, at one of these addresses.
    Cluster(Vec<SocketAddr>),
    /// Elsewhere, at one of these addresses.
    Outside(Vec<SocketAddr>),
    /// There is no such name.
    NoSuchName,
    /// The name could not be looked up now.
    Unknown,
}

/// Finds out where destinations are.
pub trait Places: Send + Sync + 'static {
    /// Says where a host is; never fails, and takes seconds at most.
    fn find<'a>(&'a self, host: &'a Host, port: u16) -> BoxFuture<'a, Place>;
}

/// What the connections of a proxy share.
pub(crate) struct Shared {
    pub(crate) opener: Arc<dyn Opener>,
    pub(crate) places: Arc<dyn Places>,
    pub(crate) password: Password,
}

/// A proxy that serves. Dropping it ends it.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    task: Essential,
}

impl Proxy {
    /// Starts serving on an address of loopback; port 0 is any free one.
    ///
    /// # Errors
    ///
    /// The port is taken.
    pub async fn start(
        at: SocketAddr,
        password: Password,
        opener: Arc<dyn Opener>,
        places: Arc<dyn Places>,
    ) -> std::io::Result<Self> {
        let listener = TcpListener::bind(at).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            opener,
            places,
            password,
        });
        let shutdown = CancellationToken::new();
        let serving = serve(listener, shared, shutdown.clone());
        let task = tokio::spawn(serving.instrument(tracing::info_span!("proxy")));
        Ok(Self {
            address,
            task: Essential::new("proxy", shutdown, task),
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until serving ends by itself, which it should not.
    pub async fn ended(&mut self) {
        self.task.ended().await;
    }

    /// Ends serving, and every connection.
    pub async fn stop(self) {
        self.task.stop(2 * DRAIN).await;
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>, shutdown: CancellationToken) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shutdown.cancelled() => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!(%error, "not accepted");
                tokio::time::sleep(REST).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            tracing::warn!(limit = CONNECTIONS, "too many connections to the proxy");
            continue;
        };
        let shared = Arc::clone(&shared);
        connections.spawn(
            async move {
                let _place = place;
                if let Err(error) = connection(stream, &shared).await {
                    tracing::debug!(%error, "connection of the proxy");
                }
            }
            .in_current_span(),
        );
    }
    drop(listener);
    let ending = async { while connections.join_next().await.is_some() {} };
    // What does not end by itself ends with the set.
    let _ = timeout(DRAIN, ending).await;
}

/// Serves one connection in the protocol that its first octet is of.
async fn connection(mut stream: TcpStream, shared: &Shared) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let mut first = [0];
    let peeked = timeout(HANDSHAKE, stream.peek(&mut first)).await??;
    match (peeked, first[0]) {
        (0, _) => Ok(()),
        (_, socks::VERSION) => socks::serve(stream, shared).await,
        (_, 0x04) => {
            // SOCKS4 has neither a password nor names.
            stream.write_all(&[0, 0x5b, 0, 0, 0, 0, 0, 0]).await?;
            Ok(())
        }
        _ => http::serve(stream, shared).await,
    }
}

#[cfg(test)]
mod tests;
