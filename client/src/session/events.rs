//! Waiting for something to happen to a part of a connected session.

use std::time::Duration;

use kubebridge_platform::tun::Packets;
use kubebridge_platform::{Drift, DriftWatch, Host};
use tokio::sync::watch;
use tokio::sync::watch::error::RecvError;
use tokio::time::{Instant, sleep_until};

use super::hosts::HostsKeeper;
use super::os::Os;
use super::parts::{Cluster, Parts};
use super::routes::RoutesKeeper;
use super::{Event, Health, Stop};
use crate::control::Tunnel;
use crate::local_dns::Watching;
use crate::netstack::Netstack;
use crate::proxy::Proxy;
use crate::status::server::Server;

impl<O: Os> Parts<'_, O> {
    /// Waits for something to happen to a part. May be dropped and called again.
    pub(super) async fn next_event(&mut self) -> Event {
        let Self {
            cluster,
            hosts,
            netstack,
            watching,
            proxy,
            server,
            watch,
            second_look,
            drift,
            host,
            routes,
            clock,
            ..
        } = self;
        tokio::select! {
            event = cluster_event(cluster.as_mut()) => event,
            event = hosts_due(hosts.as_mut()) => event,
            () = routes_due(routes.as_mut(), clock.asleep()) => Event::ReachChanged,
            () = broken(netstack.as_mut()) => Event::Stop(Stop::Broken),
            () = unwatched(watching.as_mut()) => Event::Stop(Stop::Broken),
            () = closed(proxy.as_mut()) => Event::Stop(Stop::Broken),
            () = unheard(server.as_mut()) => Event::Stop(Stop::Broken),
            () = lost(host.as_mut()) => Event::Stop(Stop::Broken),
            () = at(*second_look) => Event::Drifted,
            noticed = next_drift(watch.as_mut()) => {
                tracing::debug!(causes = ?noticed.causes, "drift");
                *drift = Some(noticed);
                Event::Drifted
            }
        }
    }
}

/// Waits until the manager starts or stops answering, or is no longer watched.
async fn cluster_event(cluster: Option<&mut Cluster>) -> Event {
    let Some(Cluster {
        control,
        sessions,
        tunnel,
        health,
        flows,
        ..
    }) = cluster
    else {
        return std::future::pending().await;
    };
    let told = *health;
    tokio::select! {
        () = control.ended() => Event::Stop(Stop::Broken),
        () = flows.ended() => Event::Stop(Stop::Broken),
        Ok(()) = sessions.changed() => Event::ClusterChanged,
        Ok(now) = health_other_than(tunnel, told) => {
            *health = now;
            if now == Health::Degraded {
                // What broke that connection may have broken these.
                flows.doubt();
            }
            Event::Tunnel(now)
        }
    }
}

async fn health_other_than(
    tunnel: &mut watch::Receiver<Tunnel>,
    told: Health,
) -> Result<Health, RecvError> {
    let changed = tunnel.wait_for(|tunnel| tunnel.health() != told).await;
    changed.map(|tunnel| tunnel.health())
}

/// Waits until the IP routes need another look.
async fn routes_due(routes: Option<&mut RoutesKeeper>, asleep: Duration) {
    match routes {
        Some(routes) => routes.due(asleep).await,
        None => std::future::pending().await,
    }
}

/// Waits until the hosts lines need another look.
async fn hosts_due(hosts: Option<&mut HostsKeeper>) -> Event {
    match hosts {
        Some(hosts) => match hosts.due().await {
            Ok(()) => Event::RoutesChanged,
            Err(_) => Event::Stop(Stop::Broken),
        },
        None => std::future::pending().await,
    }
}

/// Waits until the proxy serves no longer.
async fn closed(proxy: Option<&mut Proxy>) {
    match proxy {
        Some(proxy) => proxy.ended().await,
        None => std::future::pending().await,
    }
}

/// Waits until nobody can speak to the session any more.
async fn unheard(server: Option<&mut Server>) {
    match server {
        Some(server) => server.ended().await,
        None => std::future::pending().await,
    }
}

/// Waits until the machine cannot be changed any more.
async fn lost<H: Host>(host: Option<&mut H>) {
    match host {
        Some(host) => host.lost().await,
        None => std::future::pending().await,
    }
}

async fn next_drift(watch: Option<&mut DriftWatch>) -> Drift {
    match watch {
        Some(watch) => watch.next().await,
        None => std::future::pending().await,
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Waits until nobody reads the link any more.
async fn broken(netstack: Option<&mut Netstack<Packets>>) {
    match netstack {
        Some(netstack) => netstack.ended().await,
        None => std::future::pending().await,
    }
}

/// Waits until nobody watches the original servers any more.
async fn unwatched(watching: Option<&mut Watching>) {
    match watching {
        Some(watching) => watching.ended().await,
        None => std::future::pending().await,
    }
}
