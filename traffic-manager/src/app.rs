//! The wiring: listeners, engine, index, sources and servers, and how they end.
//!
//! Nothing is decided here. Every task is essential: when one ends before shutdown, the program ends.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow};
use kubebridge_dns::records::{LocalRecords, NoLocalRecords};
use kubebridge_dns::resolver::Resolver;
use kubebridge_dns::server::{self, Limits};
use kubebridge_dns::view::View;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, error_span, info, warn};

use crate::admin::{self, Readiness, Zones};
use crate::config::{AnswerServices, Config, Source};
use crate::data::{self, Data};
use crate::dial::Sockets;
use crate::dns::{Followed, PlainDns, Settings};
use crate::egress::Egress;
use crate::egress::never::Ours;
use crate::feed::Feed;
use crate::grpc::{self, Service};
use crate::guard::Guarded;
use crate::host_network;
use crate::kubernetes::index::{Changed, Index};
use crate::listeners::{Addresses, Listeners};
use crate::metrics::{Exposition, Metrics};
use crate::own::Own;
use crate::records::{Authority, ServiceRecords, full_name, reverse_name};
use crate::sessions::{Sessions, ViewIds};
use crate::source::{Opened, Told};
use crate::tls::Current;

/// How long open queries, calls and connections may take to end.
const DRAIN: Duration = Duration::from_secs(5);

/// A running traffic-manager. Dropping it ends everything at once.
#[derive(Debug)]
pub struct Running {
    /// Where DNS is served, over UDP and TCP.
    pub dns: Vec<SocketAddr>,
    /// Where gRPC is served.
    pub grpc: SocketAddr,
    /// Where the probes are served.
    pub admin: SocketAddr,
    shutdown: CancellationToken,
    tasks: Tasks,
    /// The flows, which may go on for longer than the rest.
    flows: Tasks,
}

/// What is running; each task says what it was and how it ended.
pub(crate) type Tasks = JoinSet<(&'static str, Result<()>)>;

/// Starts everything; returns once all listeners are bound.
///
/// # Errors
/// When a listener cannot be bound, or a file or the cluster's configuration cannot be used.
pub async fn start(config: Config) -> Result<Running> {
    config.check()?;
    host_network::refuse(&config)?;
    let listeners = Listeners::bind(&config).await?;
    let followed = Followed::open(config.resolution.clone())?;
    let settings = followed.current.clone();
    let engine = settings.resolver(&config.resolution, &followed.ways)?;
    let metrics = Arc::new(Metrics::new(env!("CARGO_PKG_VERSION")));
    let opened = Opened::open(&config.source, &metrics).await?;
    let shutdown = CancellationToken::new();
    let mut tasks = Tasks::new();
    let guarded = Guarded::open(&config, &opened, &shutdown, &mut tasks)?;
    // All that can be refused is open, and nothing runs yet that has something to say.
    listeners.addresses.log();
    if settings.upstreams.is_empty() {
        warn!("no upstream: only Services are answered");
    }

    let index = empty_index(&opened);
    let plain = watch::Sender::new(Arc::new(settings.view.clone()));
    let local = local_records(&config, &settings, &index, &plain);
    let resolver = Resolver::new(engine, local);
    let feed = Arc::new(Feed::new(Arc::clone(&index), purge(&resolver, &plain)));

    let view_ids = Arc::new(ViewIds::default());
    let told = Told::default();
    let place = Place::of(&config, &opened);
    let sessions = Arc::new(Sessions::new(
        plain.subscribe(),
        Arc::clone(&view_ids),
        Arc::clone(&guarded.audit),
    ));
    let data = Data::new(data::Parts {
        egress: egress(&config, &index, &told, &place.ours),
        sessions: Arc::clone(&sessions),
        dial: Arc::new(Sockets),
        flows_per_session: config.flows_per_session,
        audit: Arc::clone(&guarded.audit),
        counts: metrics.flows(),
        shutdown: shutdown.clone(),
    });
    let service = Service {
        sessions,
        data: data.clone(),
        index,
        observed: told.observed.subscribe(),
        ranges: told.ranges.subscribe(),
        resolver: Arc::clone(&resolver),
        metrics,
        gate: guarded.gate,
        audit: guarded.audit,
        explains: Arc::default(),
        shutdown: shutdown.clone(),
    };
    let handler = Arc::new(PlainDns {
        resolver: Arc::clone(&resolver),
        plain: plain.subscribe(),
        metrics: Arc::clone(&service.metrics),
    });

    let watches = opened.spawn(&feed, told, &shutdown, &mut tasks);
    let readiness = Readiness {
        watches,
        token_keys: guarded.keys,
        zones: zones(&config),
        upstreams: Arc::clone(resolver.upstreams()),
        shutdown: shutdown.clone(),
    };
    let following = followed.follow(plain, view_ids, resolver, shutdown.clone());
    spawn(&mut tasks, "resolv.conf", done(following));
    let addresses = Faces {
        handler,
        tls: guarded.tls,
        place,
        exposition: exposition(&service),
        service,
        readiness,
    }
    .serve(listeners, &shutdown, &mut tasks);
    Ok(Running::new(addresses, data, shutdown, tasks))
}

/// Where the program runs.
struct Place {
    namespace: Option<String>,
    host: BTreeSet<IpAddr>,
    api_servers: BTreeSet<IpAddr>,
    ours: watch::Sender<Arc<Ours>>,
}

impl Place {
    fn of(config: &Config, opened: &Opened) -> Self {
        Self {
            namespace: config.pod_namespace.clone(),
            host: config.host_ips.0.clone(),
            api_servers: opened.api_servers(),
            ours: watch::Sender::default(),
        }
    }
}

/// Puts together what is told to who asks for numbers.
fn exposition(service: &Service) -> Exposition {
    Exposition::new(
        Arc::clone(&service.metrics),
        Arc::clone(&service.resolver),
        Arc::clone(&service.index),
        Arc::clone(&service.sessions),
        service.data.memory().clone(),
    )
}

/// Puts together what decides where flows may go.
fn egress(
    config: &Config,
    index: &Arc<Index>,
    told: &Told,
    ours: &watch::Sender<Arc<Ours>>,
) -> Egress {
    Egress {
        rules: Arc::new(config.egress.clone()),
        index: Arc::clone(index),
        endpoints: Arc::clone(&told.endpoints),
        ranges: told.ranges.subscribe(),
        nodes: told.nodes.subscribe(),
        ours: ours.subscribe(),
    }
}

/// Makes an index whose revisions no earlier manager used.
fn empty_index(opened: &Opened) -> Arc<Index> {
    let first_revision = u64::from(rand::random::<u32>()) << 24;
    Arc::new(Index::new(opened.served(), first_revision))
}

/// Has loops looked for. What can be known at once is, before the first query.
fn watch_for_loops(own: Own, shutdown: &CancellationToken, tasks: &mut Tasks) {
    own.tell();
    let (loops, stop) = (Arc::clone(&own.loops), shutdown.clone());
    spawn(tasks, "loops", async move {
        loops.run(stop).await;
        Ok(())
    });
    let following = own.follow(shutdown.clone());
    spawn(tasks, "own addresses", done(following));
}

/// What the listeners are for, with what keeps it up.
struct Faces {
    handler: Arc<PlainDns>,
    tls: Option<Current>,
    place: Place,
    service: Service,
    readiness: Readiness,
    exposition: Exposition,
}

impl Faces {
    fn serve(
        self,
        listeners: Listeners,
        shutdown: &CancellationToken,
        tasks: &mut Tasks,
    ) -> Addresses {
        let Listeners {
            dns_udp,
            dns_tcp,
            grpc,
            admin,
            addresses,
        } = listeners;
        let own = Own {
            loops: Arc::clone(self.handler.resolver.loops()),
            bound: addresses.dns.clone(),
            plain: self.handler.plain.clone(),
            sessions: Arc::clone(&self.service.sessions),
            index: Arc::clone(&self.service.index),
            namespace: self.place.namespace,
            host: self.place.host,
            api_servers: self.place.api_servers,
            ours: self.place.ours,
        };
        watch_for_loops(own, shutdown, tasks);
        let sweeping = Arc::clone(&self.service.sessions).sweep_until(shutdown.clone());
        spawn(tasks, "sessions", done(sweeping));
        let (upstreams, stop) = (Arc::clone(&self.readiness.upstreams), shutdown.clone());
        spawn(tasks, "upstreams", async move {
            upstreams.run(stop).await;
            Ok(())
        });
        let stop = shutdown.clone();
        spawn(tasks, "dns", async move {
            server::serve(dns_udp, dns_tcp, self.handler, Limits::default(), stop).await?;
            Ok(())
        });
        let serving = grpc::serve::serve(grpc, self.tls, self.service);
        spawn(tasks, "grpc", serving);
        let probes = admin::serve(admin, self.readiness, self.exposition);
        spawn(tasks, "admin", probes);
        addresses
    }
}

impl Running {
    fn new(addresses: Addresses, data: Data, shutdown: CancellationToken, tasks: Tasks) -> Self {
        let mut flows = Tasks::new();
        spawn(&mut flows, "flows", done(data.run()));
        Self {
            dns: addresses.dns,
            grpc: addresses.grpc,
            admin: addresses.admin,
            shutdown,
            tasks,
            flows,
        }
    }

    /// Waits until something essential ends, which it does not on its own.
    ///
    /// # Errors
    /// Always: with what ended, and why.
    pub async fn wait(&mut self) -> Result<()> {
        let ended = tokio::select! {
            ended = self.tasks.join_next() => ended,
            ended = self.flows.join_next() => ended,
        };
        let (name, ended) = match ended {
            Some(Ok(ended)) => ended,
            Some(Err(error)) => return Err(anyhow!(error).context("a task panicked")),
            None => return Err(anyhow!("nothing is running")),
        };
        match ended {
            Ok(()) => Err(anyhow!("{name} ended")),
            Err(error) => Err(error.context(format!("{name} ended"))),
        }
    }

    /// Stops accepting, lets what is open end, and gives up on the rest after a while.
    pub async fn shutdown(mut self) {
        info!("shutting down");
        self.shutdown.cancel();
        let ending = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN, ending).await.is_err() {
            info!(tasks = self.tasks.len(), "gave up on what was open");
            self.tasks.shutdown().await;
        }
        // They have a window of their own.
        while self.flows.join_next().await.is_some() {}
    }
}

/// Spawns an essential task under a span of its name.
pub(crate) fn spawn(
    tasks: &mut Tasks,
    name: &'static str,
    task: impl Future<Output = Result<()>> + Send + 'static,
) {
    let span = error_span!("task", name);
    tasks.spawn(async move { (name, task.await) }.instrument(span));
}

fn local_records(
    config: &Config,
    settings: &Settings,
    index: &Arc<Index>,
    plain: &watch::Sender<Arc<View>>,
) -> Arc<dyn LocalRecords> {
    let authority = match config.source {
        Source::None | Source::Kubernetes(_) => Authority::Cluster,
        Source::Manifests { .. } if settings.upstreams.is_empty() => Authority::Alone,
        Source::Manifests { .. } => Authority::Manifests,
    };
    match config.answer_services {
        AnswerServices::Upstream => Arc::new(NoLocalRecords),
        AnswerServices::Index => Arc::new(ServiceRecords::new(
            Arc::clone(index),
            authority,
            plain.subscribe(),
        )),
    }
}

/// Says what answers for the zones of the cluster.
fn zones(config: &Config) -> Zones {
    match (&config.source, config.answer_services) {
        (Source::Kubernetes(_) | Source::Manifests { .. }, AnswerServices::Index) => Zones::Ours,
        (Source::None, _) | (_, AnswerServices::Upstream) => Zones::Upstreams,
    }
}

/// Makes the resolver forget what depends on a Service: its name, and the names of its addresses.
fn purge(resolver: &Arc<Resolver>, plain: &watch::Sender<Arc<View>>) -> crate::feed::Purge {
    let (resolver, plain) = (Arc::clone(resolver), plain.subscribe());
    Box::new(move |changed: &Changed| {
        let domain = plain.borrow().cluster_domain.clone();
        let reverse = changed.addresses.iter().copied().map(reverse_name);
        let names: BTreeSet<_> = reverse
            .chain([full_name(&changed.key, &domain)])
            .flatten()
            .collect();
        names.iter().for_each(|name| resolver.purge(name));
    })
}

/// Lets a task that cannot fail be essential.
pub(crate) async fn done(task: impl Future<Output = ()>) -> Result<()> {
    task.await;
    Ok(())
}

#[cfg(test)]
mod tests;
