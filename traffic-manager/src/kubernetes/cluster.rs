//! The connection to a cluster, made anew from the files it came from when it does not work any more.
//!
//! kube itself reads a token file, and the authority's file of a pod, again about once a minute.
//! What it does not: everything else a kubeconfig names (address, authority, client certificate,
//! an inline token), and anything at the moment it is needed. Nothing is watched here: a failure
//! asks, and asking is bounded.

use std::error::Error;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::future::BoxFuture;
use kube::Client;
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::metrics::Metrics;

/// How long a connection may take to be made; see [`super::follow`].
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The least time between two readings of the configuration: some small files, or an exec plugin.
pub(super) const RENEW_EVERY: Duration = Duration::from_secs(10);

/// What a failed request tells about the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    /// Nothing: the server answered.
    None,
    /// No connection; the server may be elsewhere now.
    Unreachable,
    /// Our credentials or the server's certificate are refused.
    Refused,
}

impl Trouble {
    pub(super) fn of(error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.code == 401 => Self::Refused,
            kube::Error::Api(_) | kube::Error::SerdeError(_) => Self::None,
            // A file of the configuration went away or makes no sense, perhaps for a moment.
            kube::Error::Auth(_) => Self::Refused,
            error if is_tls(error) => Self::Refused,
            _ => Self::Unreachable,
        }
    }
}

/// A connection with what it was made of.
#[derive(Clone)]
pub(super) struct Connection {
    pub(super) client: Client,
    /// Which one it is, counted from 0.
    pub(super) generation: u64,
    /// The server's address and authority.
    place: Place,
}

/// Where the server is, and by what it is known.
pub(super) type Place = (String, Option<Vec<Vec<u8>>>);

/// What reading the configuration gives.
pub(super) struct Fresh {
    pub(super) client: Client,
    pub(super) namespace: String,
    pub(super) place: Place,
}

type Read = Box<dyn Fn() -> BoxFuture<'static, Result<Fresh>> + Send + Sync>;

/// A cluster.
#[derive(Clone)]
pub struct Cluster {
    /// The namespace the process runs in, or the one of the kubeconfig's context.
    pub namespace: String,
    /// What is counted.
    pub(super) metrics: Arc<Metrics>,
    shared: Arc<Shared>,
}

struct Shared {
    read: Read,
    current: Mutex<Connection>,
    last_read: Mutex<Option<Instant>>,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Cluster")
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

impl Cluster {
    /// Reads the kubeconfig, else the pod's service account; connects to nothing yet.
    ///
    /// # Errors
    /// When there is neither, or it cannot be used.
    pub async fn infer(metrics: Arc<Metrics>) -> Result<Self> {
        let cluster = Self::read(metrics, Box::new(|| Box::pin(read()))).await?;
        let server = cluster.connection().place.0;
        info!(server, namespace = cluster.namespace, "use cluster");
        Ok(cluster)
    }

    pub(super) async fn read(metrics: Arc<Metrics>, read: Read) -> Result<Self> {
        let Fresh {
            client,
            namespace,
            place,
        } = read().await?;
        let shared = Shared {
            read,
            current: Mutex::new(Connection {
                client,
                generation: 0,
                place,
            }),
            last_read: Mutex::new(None),
        };
        Ok(Self {
            namespace,
            metrics,
            shared: Arc::new(shared),
        })
    }

    /// Returns the address of the API server where the configuration gives one, not a name.
    pub(crate) fn server_address(&self) -> Option<IpAddr> {
        let uri: http::Uri = self.connection().place.0.parse().ok()?;
        uri.host()?.trim_matches(['[', ']']).parse().ok()
    }

    /// Returns the connection to use now.
    pub(super) fn connection(&self) -> Connection {
        self.shared.current.lock().clone()
    }

    /// Returns another connection than the one that failed, if there is reason to think it works.
    pub(super) async fn instead(&self, generation: u64, trouble: Trouble) -> Option<Connection> {
        let current = self.connection();
        if current.generation != generation {
            return Some(current);
        }
        if trouble == Trouble::None || !self.may_read() {
            return None;
        }
        let fresh = match (self.shared.read)().await {
            Ok(fresh) => fresh,
            Err(error) => {
                let error = format!("{error:#}");
                warn!(
                    error,
                    "cannot read the cluster's configuration, the last stays"
                );
                return None;
            }
        };
        if trouble == Trouble::Unreachable && fresh.place == current.place {
            return None;
        }
        info!(server = fresh.place.0, "cluster's configuration read again");
        let next = Connection {
            client: fresh.client,
            generation: generation + 1,
            place: fresh.place,
        };
        *self.shared.current.lock() = next.clone();
        Some(next)
    }

    fn may_read(&self) -> bool {
        let now = Instant::now();
        let mut last = self.shared.last_read.lock();
        let may = last.is_none_or(|last| now.duration_since(last) >= RENEW_EVERY);
        if may {
            *last = Some(now);
        }
        may
    }
}

async fn read() -> Result<Fresh> {
    let mut config = kube::Config::infer()
        .await
        .context("neither a kubeconfig nor a service account can be used")?;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    // Our own waits are shorter, and tell what is the matter meanwhile.
    config.default_retry = false;
    let namespace = config.default_namespace.clone();
    let place = (config.cluster_url.to_string(), config.root_cert.clone());
    let client = Client::try_from(config).context("cannot make a client of the API server")?;
    Ok(Fresh {
        client,
        namespace,
        place,
    })
}

/// Tells whether a TLS handshake failed somewhere down the chain.
fn is_tls(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.is::<rustls::Error>() {
            return true;
        }
        // An IO error hides what it was made of from `source`.
        if let Some(inner) = error
            .downcast_ref::<std::io::Error>()
            .and_then(std::io::Error::get_ref)
        {
            return is_tls(inner);
        }
        next = error.source();
    }
    false
}
