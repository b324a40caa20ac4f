//! The ways to a manager, each of which makes a gRPC channel to it as often as one is needed.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tonic::transport::{Channel, Endpoint};

use super::CALL_TIME;
use crate::access::{NoTokens, TokenSource};

/// A way to a manager. Its `Display` says which, for people.
pub trait Way: fmt::Debug + fmt::Display + Send + Sync + 'static {
    /// Connects.
    fn dial(&self) -> BoxFuture<'_, anyhow::Result<Channel>>;

    /// Returns the addresses it leads to first, which must stay reachable whatever is routed.
    fn endpoints(&self) -> BoxFuture<'_, Vec<IpAddr>>;

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
}
