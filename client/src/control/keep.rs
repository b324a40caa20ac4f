//! Keeps one session going over channels that come and go.

use std::time::Duration;

use kubebridge_proto::session::SessionRequest;
use kubebridge_proto::v1::EchoRequest;
use kubebridge_proto::v1::traffic_manager_client::TrafficManagerClient;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tonic::Code;
use tonic::transport::Channel;

use super::backoff::Backoff;
use super::exchange::{self, Ask};
use super::namespaces::{self, Asked};
use super::{Shared, Tunnel, dial, echo, open_once, renew, watch_routes};
use crate::{failure, skew};

/// How long a channel must have worked for the next break to count as the first.
const STEADY: Duration = Duration::from_secs(5);

/// What people and programs ask of the manager.
pub(super) struct Queues {
    pub(super) asks: mpsc::Receiver<Ask>,
    pub(super) asked: mpsc::Receiver<Asked>,
}

/// Runs for ever: uses the channel until it breaks, then gets another one.
pub(super) async fn keep(shared: Shared, mut channel: Channel, mut queues: Queues) {
    let mut backoff = Backoff::default();
    loop {
        let start = Instant::now();
        let session = shared.session.borrow().id.clone();
        let error = use_channel(&shared, channel, &session, &mut queues).await;
        if start.elapsed() >= STEADY {
            backoff.reset();
        }
        tracing::warn!("tunnel down");
        tracing::debug!(error = %format!("{error:#}"), "tunnel down because");
        go_down(&shared, &error);
        exchange::refuse_waiting(&mut queues.asks);
        namespaces::refuse_waiting(&mut queues.asked);
        channel = reopen(&shared, session, &mut backoff).await;
        tracing::info!("tunnel up");
        shared.tunnel.send_replace(Tunnel::Up {
            seen: shared.clock.now(),
            round_trip: None,
        });
    }
}

/// Runs everything that needs the channel; the first part to fail ends them all.
async fn use_channel(
    shared: &Shared,
    channel: Channel,
    session: &str,
    queues: &mut Queues,
) -> anyhow::Error {
    let client = TrafficManagerClient::new(channel);
    shared.line.send_replace(Some(client.clone()));
    let ask = || {
        let mut client = client.clone();
        let echo = EchoRequest {
            payload: Vec::new(),
        };
        async move { client.echo(echo).await.map(drop) }
    };
    let heard = |round_trip| {
        shared.tunnel.send_replace(Tunnel::Up {
            seen: shared.clock.now(),
            round_trip: Some(round_trip),
        });
    };
    tokio::select! {
        error = echo::watch_echo(ask, heard, &shared.suspicion) => error,
        error = watch_routes::watch_routes(client.clone(), session, shared) => error,
        error = exchange::carry(client.clone(), session.to_owned(), &mut queues.asks) => error,
        error = renew::renew(shared, client.clone(), &mut queues.asked) => error,
    }
}

async fn reopen(shared: &Shared, session: String, backoff: &mut Backoff) -> Channel {
    loop {
        sleep(backoff.next(rand::random())).await;
        match try_reopen(shared, &session).await {
            Ok(channel) => return channel,
            Err(error) => go_down(shared, &error),
        }
    }
}

async fn try_reopen(shared: &Shared, id: &str) -> anyhow::Result<Channel> {
    let channel = dial(&shared.reach).await?;
    let mut client = TrafficManagerClient::new(channel.clone());
    let (request, namespaces) = renew::request(shared, None).await?;
    let asked = shared.clock.now();
    let again = SessionRequest {
        id: Some(id.to_owned()),
        ..request.clone()
    };
    let session = match open_once(&mut client, again).await {
        // Forgotten: as a new one then.
        Err(status) if status.code() == Code::FailedPrecondition => {
            open_once(&mut client, request).await?
        }
        opened => opened?,
    };
    // It may be another manager than before.
    skew::check(&session)?;
    let known = shared.session.borrow().cluster_domain.clone();
    // The settings made on the machine are those of one cluster.
    if session.cluster_domain != known {
        anyhow::bail!(
            "the manager now serves the cluster domain {}, not {known}",
            session.cluster_domain
        );
    }
    shared.note_opened(session, namespaces, asked);
    Ok(channel)
}

/// Says that the manager is out of reach; since when stays what it was.
fn go_down(shared: &Shared, error: &anyhow::Error) {
    let reason = failure::chain(error);
    shared.line.send_replace(None);
    shared.tunnel.send_modify(|tunnel| {
        let since = match tunnel {
            Tunnel::Down { since, .. } => *since,
            Tunnel::Up { .. } => shared.clock.now(),
        };
        *tunnel = Tunnel::Down { since, reason };
    });
}
