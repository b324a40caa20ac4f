//! The DNS side: the engine made of flags and `resolv.conf`, and plain DNS on the listeners.
//!
//! The file is read again when it changes; upstreams and the plain view follow, sessions follow the
//! plain view. How names are resolved is the `dns` crate's business.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use kubebridge_dns::resolv_conf::{self, Nameserver, ResolvConf};
use kubebridge_dns::resolver::{
    AnswerOrder as Order, Asker, FanoutPolicy, LONGEST_TOTAL, Resolver, ResolverConfig,
    StaleSettings,
};
use kubebridge_dns::server::{Handler, Transport};
use kubebridge_dns::upstream::{
    self, ConnectError, PortPolicy, ProxySettings, Trust, Upstream, UpstreamSpec,
};
use kubebridge_dns::view::{BarePolicy, PlainView, View};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::config::{AnswerOrder, BareSingleLabel, Fanout, Resolution};
use crate::failure::{Exit, Failure};
use crate::file_watch::FileWatch;
use crate::metrics::Metrics;
use crate::sessions::ViewIds;

/// How long one attempt takes when nothing says it, and how many there are (design §3).
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1);
const DEFAULT_ATTEMPTS: u8 = 2;

/// What flags and file make together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The upstreams, in order.
    pub upstreams: Vec<UpstreamSpec>,
    /// The view of plain DNS.
    pub view: View,
    /// The time one query may take in all.
    pub total: Duration,
}

impl Settings {
    /// Reads the file and lays the flags over it.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn load(resolution: &Resolution) -> Result<Self> {
        let file = match &resolution.resolv_conf {
            None => ResolvConf::default(),
            Some(path) => {
                let bytes = std::fs::read(path).with_context(|| {
                    Failure::new(Exit::File, format!("cannot read {}", path.display()))
                        .hint("name another file with --resolv-conf")
                })?;
                resolv_conf::parse(&bytes)
            }
        };
        for warning in &file.warnings {
            warn!(warning, "resolv.conf");
        }
        Ok(Self::merge(resolution, file))
    }

    /// Lays flags over what the file says.
    fn merge(resolution: &Resolution, file: ResolvConf) -> Self {
        let upstreams = if resolution.upstreams.is_empty() {
            file.nameservers.iter().filter_map(nameserver).collect()
        } else {
            resolution.upstreams.clone()
        };
        let search = if resolution.search.is_empty() {
            file.search
        } else {
            resolution.search.clone()
        };
        let bare = match resolution.bare_single_label {
            BareSingleLabel::Last => BarePolicy::LastToUpstreams,
            BareSingleLabel::Never => BarePolicy::Never,
        };
        let timeout = resolution
            .timeout
            .or(file.timeout)
            .unwrap_or(DEFAULT_TIMEOUT);
        let attempts = resolution
            .attempts
            .or(file.attempts)
            .unwrap_or(DEFAULT_ATTEMPTS);
        let view = View::plain(PlainView {
            search,
            ndots: resolution.ndots.or(file.ndots),
            cluster_domain: resolution.cluster_domain.clone(),
            absolute_zones: resolution.absolute_zones.clone(),
            bare,
        });
        Self {
            upstreams,
            view,
            total: (timeout * u32::from(attempts)).min(LONGEST_TOTAL),
        }
    }

    /// Makes the engine's configuration.
    ///
    /// # Errors
    /// When an encrypted upstream cannot be set up: no trust store, an unusable proxy.
    pub fn resolver(
        &self,
        resolution: &Resolution,
        ways: &upstream::Settings,
    ) -> Result<ResolverConfig> {
        let stale = |longest| StaleSettings { longest };
        Ok(ResolverConfig {
            total: self.total,
            stale: resolution.serve_stale.map(stale),
            prefetch: resolution.prefetch,
            answer_order: match resolution.answer_order {
                AnswerOrder::Search => Order::Search,
                AnswerOrder::First => Order::First,
            },
            fanout: match resolution.fanout {
                Fanout::All => FanoutPolicy::All,
                Fanout::Hedged => FanoutPolicy::Hedged,
            },
            ..ResolverConfig::new(connect(&self.upstreams, ways)?)
        })
    }
}

/// Answers plain DNS under the plain view.
#[derive(Clone)]
pub struct PlainDns {
    /// The engine.
    pub resolver: Arc<Resolver>,
    /// The view, as it is at each query.
    pub plain: watch::Receiver<Arc<View>>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
}

impl std::fmt::Debug for PlainDns {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("PlainDns").finish_non_exhaustive()
    }
}

impl Handler for PlainDns {
    async fn handle(
        &self,
        packet: Vec<u8>,
        peer: SocketAddr,
        transport: Transport,
    ) -> Option<Vec<u8>> {
        let query = self.metrics.query(transport.into());
        let asker = Asker::at(peer, Arc::clone(&self.plain.borrow()));
        let reply = self.resolver.answer(&packet, &asker).await;
        query.answered(reply.as_deref());
        reply
    }

    fn at_hand(&self, packet: &[u8], _peer: SocketAddr, reply: &mut Vec<u8>) -> bool {
        let found = self
            .resolver
            .answer_at_hand(packet, &self.plain.borrow(), reply);
        if found {
            self.metrics
                .query(Transport::Udp.into())
                .answered(Some(reply));
        }
        found
    }
}

/// Says how upstreams are reached. One for the life of the process: upstreams made anew when the
/// file changes keep the connections that are still right.
#[must_use]
pub fn ways(resolution: &Resolution) -> upstream::Settings {
    upstream::Settings {
        port_policy: PortPolicy::Pooled,
        trust: Trust {
            system: resolution.upstream_cas.is_empty(),
            ca_files: resolution.upstream_cas.clone(),
        },
        proxy: ProxySettings::from_env(),
        ..upstream::Settings::default()
    }
}

/// The settings with the file they came from.
#[derive(Debug)]
pub struct Followed {
    resolution: Resolution,
    watch: Option<FileWatch>,
    /// How upstreams are reached.
    pub ways: upstream::Settings,
    /// The settings as they were read last.
    pub current: Settings,
}

impl Followed {
    /// Reads the file for the first time.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn open(resolution: Resolution) -> Result<Self> {
        // Before the file is read, so that no change is missed.
        let watch = resolution.resolv_conf.as_deref().map(FileWatch::new);
        let current = Settings::load(&resolution)?;
        Ok(Self {
            ways: ways(&resolution),
            resolution,
            watch,
            current,
        })
    }

    /// Reads the file again whenever it changes, until shutdown.
    pub async fn follow(
        mut self,
        plain: watch::Sender<Arc<View>>,
        view_ids: Arc<ViewIds>,
        resolver: Arc<Resolver>,
        shutdown: CancellationToken,
    ) {
        let Some(mut watch) = self.watch.take() else {
            return shutdown.cancelled().await;
        };
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = watch.changed() => {}
            }
            match Settings::load(&self.resolution) {
                Ok(next) => self.replace(next, &plain, &view_ids, &resolver),
                Err(error) => {
                    warn!(
                        error = format!("{error:#}"),
                        "resolv.conf cannot be read, the last stays"
                    );
                }
            }
        }
    }

    fn replace(
        &mut self,
        next: Settings,
        plain: &watch::Sender<Arc<View>>,
        view_ids: &ViewIds,
        resolver: &Resolver,
    ) {
        if next == self.current {
            return;
        }
        info!(
            upstreams = next.upstreams.len(),
            search = next.view.search.len(),
            "resolv.conf read"
        );
        resolver.set_total(next.total);
        if next.view != self.current.view {
            let view = View {
                id: view_ids.next(),
                ..next.view.clone()
            };
            plain.send_replace(Arc::new(view));
        }
        if next.upstreams != self.current.upstreams {
            match connect(&next.upstreams, &self.ways) {
                Ok(upstreams) => resolver.set_upstreams(upstreams),
                Err(error) => {
                    warn!(error = format!("{error:#}"), "upstreams not replaced");
                    return;
                }
            }
        }
        self.current = next;
    }
}

/// Makes a transport for each upstream.
fn connect(specs: &[UpstreamSpec], ways: &upstream::Settings) -> Result<Vec<Arc<dyn Upstream>>> {
    let connected = specs.iter().map(|spec| upstream::connect(spec, ways));
    connected
        .map(|upstream| upstream.map_err(unusable))
        .collect()
}

fn unusable(error: ConnectError) -> anyhow::Error {
    let message = "an upstream cannot be used";
    let failure = match &error {
        ConnectError::Trust { .. } => {
            Failure::new(Exit::File, message).hint("name another file with --upstream-ca")
        }
        ConnectError::ServerName(_) => Failure::new(Exit::Usage, message)
            .hint("write it as tls://ADDRESS#NAME or https://ADDRESS#NAME"),
        ConnectError::Proxy { .. } => {
            Failure::new(Exit::Usage, message).hint("correct or unset https_proxy")
        }
    };
    anyhow::Error::new(error).context(failure)
}

fn nameserver(server: &Nameserver) -> Option<UpstreamSpec> {
    let text = match (&server.scope, server.address) {
        (None, address) => address.to_string(),
        (Some(scope), address) => format!("{address}%{}", interface_index(scope)?),
    };
    match text.parse() {
        Ok(spec) => Some(spec),
        Err(error) => {
            warn!(error = %error, "nameserver left out");
            None
        }
    }
}

/// Returns the number of an interface, which may be written as its name.
fn interface_index(scope: &str) -> Option<u32> {
    if let Ok(index) = scope.parse() {
        return Some(index);
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let safe = scope.chars().all(plain) && !scope.starts_with('.');
    let text = safe.then(|| std::fs::read_to_string(format!("/sys/class/net/{scope}/ifindex")));
    let index = text
        .and_then(Result::ok)
        .and_then(|text| text.trim().parse().ok());
    if index.is_none() {
        warn!(scope, "nameserver left out: no such interface");
    }
    index
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(resolution: &Resolution, file: &str) -> Settings {
        Settings::merge(resolution, resolv_conf::parse(file.as_bytes()))
    }

    const POD: &str = "nameserver 10.96.0.10\n\
        search kubebridge.svc.cluster.local svc.cluster.local cluster.local\n\
        options ndots:5\n";

    #[test]
    fn a_pods_file_is_taken_as_it_is() {
        let settings = merged(&Resolution::default(), POD);
        assert_eq!(settings.upstreams, ["10.96.0.10".parse().unwrap()]);
        assert_eq!(settings.view.search.len(), 3);
        assert_eq!(settings.view.ndots, 5);
        assert_eq!(
            settings.view.cluster_domain,
            "cluster.local".parse().unwrap()
        );
        assert_eq!(settings.total, Duration::from_secs(2));
    }

    #[test]
    fn flags_win_over_the_file() {
        let resolution = Resolution {
            upstreams: vec!["192.0.2.1:5353".parse().unwrap()],
            search: vec!["a.svc.k8s.corp".parse().unwrap()],
            ndots: Some(2),
            timeout: Some(Duration::from_millis(300)),
            attempts: Some(3),
            ..Resolution::default()
        };
        let settings = merged(&resolution, POD);
        assert_eq!(settings.upstreams, ["192.0.2.1:5353".parse().unwrap()]);
        assert_eq!(settings.view.cluster_domain, "k8s.corp".parse().unwrap());
        assert_eq!(settings.view.ndots, 2);
        assert_eq!(settings.total, Duration::from_millis(900));
    }

    #[test]
    fn timeout_and_attempts_of_the_file_count_and_are_bounded() {
        let options = |text: &str| merged(&Resolution::default(), text).total;
        assert_eq!(
            options("options timeout:1 attempts:3\n"),
            Duration::from_secs(3)
        );
        assert_eq!(options("options timeout:30 attempts:5\n"), LONGEST_TOTAL);
    }

    #[test]
    fn a_missing_file_is_an_error_that_names_it() {
        let resolution = Resolution {
            resolv_conf: Some("/nonexistent/file".into()),
            ..Resolution::default()
        };
        let error = Settings::load(&resolution).unwrap_err();
        let (text, code) = crate::failure::report(&error);
        assert!(
            text.starts_with("error: cannot read /nonexistent/file: "),
            "{text}"
        );
        assert_eq!(code, 78);
    }
}
