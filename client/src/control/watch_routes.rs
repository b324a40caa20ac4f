//! Reads the route stream into the table that others watch.

use std::time::Duration;

use kubebridge_proto::routes::RouteUpdate;
use kubebridge_proto::v1::{NamespaceSubscription, WatchNamespaceRoutesRequest};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status};

use super::Client;
use crate::routes::{Merged, RouteTable};

/// Requests on one stream that the network has not taken yet: the first, and one per gap.
const REQUESTS: usize = 4;
/// The wait after a refusal that a new connection would not cure.
const REFUSED_WAIT: Duration = Duration::from_secs(5);

/// Keeps the table up to date until the channel or the session breaks, and returns why it did.
pub(super) async fn watch_routes(
    client: Client,
    session: &str,
    routes: &watch::Sender<RouteTable>,
) -> anyhow::Error {
    loop {
        let status = match watch_once(client.clone(), session, routes).await {
            Ok(reason) => return anyhow::anyhow!(reason),
            Err(status) => status,
        };
        if !is_refusal(&status) {
            return status.into();
        }
        tracing::warn!(code = %status.code(), reason = status.message(), "routes refused");
        sleep(REFUSED_WAIT).await;
    }
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
    routes: &watch::Sender<RouteTable>,
) -> Result<&'static str, Status> {
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
        return Ok("the queue of a new stream is closed");
    }
    let response = client
        .watch_namespace_routes(ReceiverStream::new(outgoing))
        .await?;
    let mut frames = response.into_inner();
    while let Some(frame) = frames.message().await? {
        let update = match RouteUpdate::try_from(frame) {
            Ok(update) => update,
            Err(error) if error.is_from_newer_peer() => continue,
            Err(error) => return Err(Status::internal(error.to_string())),
        };
        let namespace = update.namespace().to_owned();
        if merge(routes, update) == Merged::Gap {
            tracing::debug!(%namespace, "gap in routes");
            let again = WatchNamespaceRoutesRequest {
                session_id: String::new(),
                namespaces: subscriptions(&routes.borrow(), Some(&namespace)),
            };
            // A full queue means the network takes nothing: the echo will notice.
            let _ = requests.try_send(again);
        }
    }
    Ok("the manager ended the route stream")
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
