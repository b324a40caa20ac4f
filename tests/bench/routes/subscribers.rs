//! Clients of the route stream, each on a connection of its own, that note when a change arrives.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use kubebridge_proto::v1;
use kubebridge_proto::v1::traffic_manager_client::TrafficManagerClient;
use kubebridge_proto::v1::watch_namespace_routes_response::Update;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tonic::Streaming;
use tonic::transport::Endpoint;

use crate::SERVICES;

/// When each change was made, in microseconds since the start.
#[derive(Debug, Clone)]
pub(crate) struct Board {
    start: Instant,
    sent: Arc<[AtomicU64]>,
}

impl Board {
    pub(crate) fn new(changes: usize) -> Self {
        Self {
            start: Instant::now(),
            sent: (0..=changes).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    pub(crate) fn sent(&self, number: usize) {
        self.sent[number].store(self.now(), Ordering::Relaxed);
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Returns the seconds since a change was made.
    fn age(&self, number: usize) -> f64 {
        let sent = self.sent[number].load(Ordering::Relaxed);
        (self.now() - sent) as f64 / 1e6
    }
}

/// What a subscriber holds: the change each Service was last seen with.
#[derive(Debug)]
struct Held {
    services: Vec<usize>,
    seen: Vec<(usize, f64)>,
}

/// One that reads as fast as it can.
#[derive(Debug)]
pub(crate) struct Subscriber {
    held: Arc<Mutex<Held>>,
    /// The highest change seen, and whether the snapshot is complete.
    progress: watch::Receiver<(usize, bool)>,
    reading: JoinHandle<Result<()>>,
}

impl Subscriber {
    pub(crate) async fn start(manager: SocketAddr, board: Board) -> Result<Self> {
        let mut frames = subscribe(manager).await?;
        let held = Arc::new(Mutex::new(Held {
            services: vec![usize::MAX; SERVICES],
            seen: Vec::new(),
        }));
        let (sender, progress) = watch::channel((0, false));
        let shared = Arc::clone(&held);
        let reading = tokio::spawn(async move {
            let (mut highest, mut complete) = (0, false);
            while let Some(frame) = frames.message().await? {
                let (routes, last) = routes(frame);
                complete |= last;
                let mut held = shared.lock();
                for (service, number) in routes {
                    held.services[service] = number;
                    if number > 0 {
                        held.seen.push((number, board.age(number)));
                        highest = highest.max(number);
                    }
                }
                drop(held);
                sender.send_replace((highest, complete));
            }
            Ok(())
        });
        Ok(Self {
            held,
            progress,
            reading,
        })
    }

    pub(crate) async fn complete(&mut self) -> Result<()> {
        self.progress.wait_for(|(_, complete)| *complete).await?;
        Ok(())
    }

    pub(crate) async fn saw(&mut self, number: usize) -> Result<()> {
        self.progress
            .wait_for(|(highest, _)| *highest >= number)
            .await?;
        Ok(())
    }

    pub(crate) fn seen(&self) -> Vec<(usize, f64)> {
        self.held.lock().seen.clone()
    }

    pub(crate) fn holds(&self, expected: &[usize]) -> bool {
        self.held.lock().services == expected
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

/// One that does not read until it is told to.
#[derive(Debug)]
pub(crate) struct Slow(Streaming<v1::WatchNamespaceRoutesResponse>);

impl Slow {
    pub(crate) async fn start(manager: SocketAddr) -> Result<Self> {
        Ok(Self(subscribe(manager).await?))
    }

    /// Reads until everything is as expected, and says after how many frames that was.
    pub(crate) async fn catch_up(mut self, expected: &[usize]) -> Result<(usize, bool)> {
        let mut services = vec![usize::MAX; SERVICES];
        let mut frames = 0;
        let limit = std::time::Duration::from_secs(10);
        while services != expected {
            let next = tokio::time::timeout(limit, self.0.message()).await;
            let Ok(frame) = next else {
                return Ok((frames, false));
            };
            frames += 1;
            for (service, number) in routes(frame?.context("the stream ended")?).0 {
                services[service] = number;
            }
        }
        Ok((frames, true))
    }
}

async fn subscribe(manager: SocketAddr) -> Result<Streaming<v1::WatchNamespaceRoutesResponse>> {
    let endpoint = Endpoint::from_shared(format!("http://{manager}"))?;
    let mut client = TrafficManagerClient::new(endpoint.connect().await?);
    let request = v1::OpenSessionRequest {
        client_version: "0.1.0".to_owned(),
        namespaces: vec!["default".to_owned()],
        ..Default::default()
    };
    let session = client.open_session(request).await?.into_inner();
    let wanted = v1::WatchNamespaceRoutesRequest {
        session_id: session.session_id,
        namespaces: vec![v1::NamespaceSubscription {
            namespace: "default".to_owned(),
            revision: 0,
            restart: false,
        }],
    };
    let frames = client
        .watch_namespace_routes(tokio_stream::once(wanted))
        .await?;
    Ok(frames.into_inner())
}

/// Returns service and change of each route in a frame, and whether it ends a snapshot.
fn routes(frame: v1::WatchNamespaceRoutesResponse) -> (Vec<(usize, usize)>, bool) {
    let (routes, last) = match frame.update {
        Some(Update::Page(page)) => (page.routes, page.last),
        Some(Update::Delta(delta)) => (delta.upserts, false),
        Some(Update::State(_)) | None => (Vec::new(), false),
    };
    let read = |route: &v1::ServiceRoute| {
        let service = route.name.strip_prefix("service-")?.parse().ok()?;
        let octets = <[u8; 4]>::try_from(route.cluster_ips.first()?.as_slice()).ok()?;
        Some((service, (u32::from_be_bytes(octets) - 0x0a00_0000) as usize))
    };
    (routes.iter().filter_map(read).collect(), last)
}
