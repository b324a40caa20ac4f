//! The ways to a manager, each of which makes gRPC channels and data connections to it as often as
//! they are needed.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use kubebridge_proto::flow::PREAMBLE;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::transport::{Channel, Endpoint};

use super::CALL_TIME;
use crate::access::{NoTokens, TokenSource};

/// A byte stream of some way.
pub trait Io: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

/// Some byte stream.
pub type BoxIo = Box<dyn Io>;

/// Which of the managers behind a way: flows live in one, and go on there only.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(String);

impl Place {
    /// Names a place among those of one way.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// Whether the way cannot tell one manager from another, if there are several behind it.
    #[must_use]
    pub fn is_unnamed(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the name, empty where the way knows one manager only.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0
    }
}

/// A way to a manager. Its `Display` says which, for people.
pub trait Way: fmt::Debug + fmt::Display + Send + Sync + 'static {
    /// Connects.
    fn dial(&self) -> BoxFuture<'_, anyhow::Result<Channel>>;

    /// Returns the addresses it leads to first, which must stay reachable whatever is routed.
    fn endpoints(&self) -> BoxFuture<'_, Vec<IpAddr>>;

    /// Where the last channel leads, and the session's flows with it.
    fn place(&self) -> Place {
        Place::default()
    }

    /// Opens a data connection to a place, up to where HTTP/2 begins.
    fn raw<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, anyhow::Result<BoxIo>>;

    /// How long that may take; more for a way of several connections, one after the other.
    fn patience(&self) -> Duration {
        CALL_TIME
    }
}

/// How a manager is reached, and how its sessions prove what they may see.
#[derive(Clone, Debug)]
pub struct Reach {
    /// The way there.
    pub way: Arc<dyn Way>,
    /// Where tokens come from.
    pub tokens: Arc<dyn TokenSource>,
}

impl Reach {
    /// Reaches a manager on loopback that asks for no tokens.
    #[must_use]
    pub fn direct(manager: SocketAddr) -> Self {
        Self {
            way: Arc::new(Direct(manager)),
            tokens: Arc::new(NoTokens),
        }
    }
}

/// A plain connection, for loopback.
#[derive(Clone, Copy, Debug)]
pub struct Direct(pub SocketAddr);

impl fmt::Display for Direct {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl Way for Direct {
    fn endpoints(&self) -> BoxFuture<'_, Vec<IpAddr>> {
        std::future::ready(vec![self.0.ip()]).boxed()
    }

    fn dial(&self) -> BoxFuture<'_, anyhow::Result<Channel>> {
        async move {
            let endpoint = Endpoint::from_shared(format!("http://{}", self.0))?
                .connect_timeout(CALL_TIME)
                .tcp_nodelay(true);
            Ok(endpoint.connect().await?)
        }
        .boxed()
    }

    fn raw<'a>(&'a self, _: &'a Place) -> BoxFuture<'a, anyhow::Result<BoxIo>> {
        async move {
            let mut stream = TcpStream::connect(self.0).await?;
            stream.set_nodelay(true)?;
            stream.write_all(PREAMBLE).await?;
            Ok(Box::new(stream) as BoxIo)
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_plain_data_connection_says_first_what_it_is() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let way = Direct(listener.local_addr().unwrap());
        let place = way.place();

        let (raw, accepted) = tokio::join!(way.raw(&place), listener.accept());

        let mut said = vec![0; PREAMBLE.len()];
        let (mut stream, _) = accepted.unwrap();
        let reading = stream.read_exact(&mut said);
        let read = tokio::time::timeout(Duration::from_secs(60), reading);
        read.await.expect("it says something").unwrap();
        assert_eq!(said, PREAMBLE);
        drop(raw.unwrap());
    }
}
