//! Keeps one session going over channels that come and go.

use std::time::Duration;

use kubebridge_proto::session::SessionRequest;
use kubebridge_proto::v1::EchoRequest;
use kubebridge_proto::v1::traffic_manager_client::TrafficManagerClient;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tonic::transport::Channel;

use super::backoff::Backoff;
use super::exchange::{self, Ask};
use super::{Shared, Tunnel, dial, echo, open_session, renew, watch_routes};
use crate::{failure, skew};

/// How long a channel must have worked for the next break to count as the first.
const STEADY: Duration = Duration::from_secs(5);

/// Runs for ever: uses the channel until it breaks, then gets another one.
pub(super) async fn keep(shared: Shared, mut channel: Channel, mut asks: mpsc::Receiver<Ask>) {
    let mut backoff = Backoff::default();
    loop {
        let start = Instant::now();
        let session = shared.session.borrow().id.clone();
        let error = use_channel(&shared, channel, &session, &mut asks).await;
        if start.elapsed() >= STEADY {
            backoff.reset();
        }
        tracing::warn!("tunnel down");
        tracing::debug!(error = %format!("{error:#}"), "tunnel down because");
        go_down(&shared, &error);
        exchange::refuse_waiting(&mut asks);
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
    asks: &mut mpsc::Receiver<Ask>,
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
        error = watch_routes::watch_routes(client.clone(), session, &shared.routes) => error,
        error = exchange::carry(client.clone(), session.to_owned(), asks) => error,
        error = renew::renew(shared, client.clone()) => error,
    }
}

async fn reopen(shared: &Shared, session: String, backoff: &mut Backoff) -> Channel {
    let request = SessionRequest {
        id: Some(session),
        ..shared.request.clone()
    };
    loop {
        sleep(backoff.next(rand::random())).await;
        match try_reopen(shared, &request).await {
            Ok(channel) => return channel,
            Err(error) => go_down(shared, &error),
        }
    }
}

async fn try_reopen(shared: &Shared, request: &SessionRequest) -> anyhow::Result<Channel> {
    let channel = dial(&shared.reach).await?;
    let asked = shared.clock.now();
    let session = open_session(&shared.reach, channel.clone(), request).await?;
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
    shared.note_opened(session, asked);
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
