//! Reads the route stream into the table that others watch.

use std::convert::Infallible;
use std::time::Duration;

use kubebridge_proto::routes::RouteUpdate;
use kubebridge_proto::v1::{NamespaceSubscription, WatchNamespaceRoutesRequest};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status};

use super::{Client, Shared};
use crate::routes::{Merged, RouteTable};

/// Requests on one stream that the network has not taken yet: the first, and one per gap.
const REQUESTS: usize = 4;
/// The wait after a refusal that a new connection would not cure.
const REFUSED_WAIT: Duration = Duration::from_secs(5);

/// Keeps the table up to date until the channel or the session breaks, and returns why it did.
pub(super) async fn watch_routes(client: Client, session: &str, shared: &Shared) -> anyhow::Error {
    loop {
        match watch_once(client.clone(), session, shared).await {
            Ok(never) => match never {},
            Err(Broken::Channel(error)) => return error,
            Err(Broken::Stream(reason)) => {
                tracing::warn!(%reason, "routes not followed");
                sleep(REFUSED_WAIT).await;
            }
        }
    }
}

/// Why a route stream ended.
#[derive(Debug)]
enum Broken {
    /// The manager is out of reach, or has forgotten the session.
    Channel(anyhow::Error),
    /// It refuses, or says what cannot be understood; names still resolve.
    Stream(String),
}

impl From<Status> for Broken {
    fn from(status: Status) -> Self {
        if is_refusal(&status) {
            Self::Stream(format!("{}: {}", status.code(), status.message()))
        } else {
            Self::Channel(status.into())
        }
    }
}

fn ended(reason: &'static str) -> Broken {
    Broken::Channel(anyhow::anyhow!(reason))
}

/// Whether the manager said no, rather than being out of reach: names still resolve then.
fn is_refusal(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::PermissionDenied
            | Code::InvalidArgument
            | Code::Unimplemented
            | Code::Unauthenticated
    )
}

async fn watch_once(
    mut client: Client,
    session: &str,
    shared: &Shared,
) -> Result<Infallible, Broken> {
    let routes = &shared.routes;
    let mut namespaces = shared.namespaces.subscribe();
    routes.send_if_modified(|table| {
        table.forget_partial();
        false
    });
    let (requests, outgoing) = mpsc::channel(REQUESTS);
    let first = WatchNamespaceRoutesRequest {
        session_id: session.to_owned(),
        namespaces: subscriptions(&routes.borrow(), None),
    };
    if requests.try_send(first).is_err() {
        return Err(ended("the queue of a new stream is closed"));
    }
    let response = client
        .watch_namespace_routes(ReceiverStream::new(outgoing))
        .await?;
    let mut frames = response.into_inner();
    let ask_again = |restart: Option<&str>| {
        let again = WatchNamespaceRoutesRequest {
            session_id: String::new(),
            namespaces: subscriptions(&routes.borrow(), restart),
        };
        let sent = requests.try_send(again);
        sent.map_err(|_| ended("the network takes no requests for routes"))
    };
    loop {
        let frame = tokio::select! {
            frame = frames.message() => match frame? {
                Some(frame) => frame,
                None => return Err(ended("the manager ended the route stream")),
            },
            // The sender is the one we hold.
            _ = namespaces.changed() => {
                ask_again(None)?;
                continue;
            }
        };
        let update = match RouteUpdate::try_from(frame) {
            Ok(update) => update,
            Err(error) if error.is_from_newer_peer() => continue,
            Err(error) => return Err(Broken::Stream(error.to_string())),
        };
        let namespace = update.namespace().to_owned();
        if merge(routes, update) == Merged::Gap {
            tracing::debug!(%namespace, "gap in routes");
            ask_again(Some(&namespace))?;
        }
    }
}

fn merge(routes: &watch::Sender<RouteTable>, update: RouteUpdate) -> Merged {
    let mut merged = Merged::Unchanged;
    routes.send_if_modified(|table| {
        merged = table.merge(update);
        merged == Merged::Changed
    });
    merged
}

fn subscriptions(table: &RouteTable, restart: Option<&str>) -> Vec<NamespaceSubscription> {
    table
        .namespaces()
        .filter(|(_, routes)| routes.lost().is_none())
        .map(|(namespace, routes)| NamespaceSubscription {
            namespace: namespace.to_owned(),
            revision: if restart == Some(namespace) {
                0
            } else {
                routes.revision()
            },
            restart: restart == Some(namespace),
        })
        .collect()
}
