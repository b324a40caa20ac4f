//! From a description to an upstream, whatever its protocol; upstreams that are reached in the
//! same way share their connection.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Weak};

use http::Uri;
use parking_lot::Mutex;
use rustls_pki_types::ServerName;

use super::channel::{Channel, Transport};
use super::doh::Doh;
use super::dot::Dot;
use super::encrypted::Encrypted;
use super::proxy::{Proxy, ProxyError, ProxySettings};
use super::tls::TrustStore;
use super::trust::{Trust, TrustError};
use super::{Do53, PortPolicy, Protocol, Upstream, UpstreamSpec};

/// The path of every DoH server (design §3; the example of RFC 8484, and everybody's choice).
const PATH: &str = "/dns-query";

/// Says how upstreams are reached, beyond what their descriptions say.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The source ports of plain DNS.
    pub port_policy: PortPolicy,
    /// Who may certify the servers of encrypted upstreams.
    pub trust: Trust,
    /// The proxy for DNS over HTTPS.
    pub proxy: ProxySettings,
    /// The open connections; clones share them, so that upstreams made anew after a change of
    /// configuration keep those that are still right.
    pub connections: Connections,
}

impl Default for Settings {
    /// Fresh ports, the system's authorities, no proxy.
    fn default() -> Self {
        Self {
            port_policy: PortPolicy::FreshPort,
            trust: Trust::default(),
            proxy: ProxySettings::default(),
            connections: Connections::default(),
        }
    }
}

/// The connections of encrypted upstreams, one for all that have protocol, address, server name,
/// trust and proxy in common. Each lives as long as its last upstream.
#[derive(Debug, Clone, Default)]
pub struct Connections(Arc<Mutex<Registry>>);

/// Tells why a description cannot become an upstream.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// An encrypted upstream has no server name, or none that TLS can prove.
    #[error("upstream `{0}` has no usable server name")]
    ServerName(UpstreamSpec),
    /// The trusted authorities could not be read.
    #[error("upstream `{spec}` cannot be checked")]
    Trust {
        /// The upstream.
        spec: UpstreamSpec,
        /// What is wrong.
        #[source]
        source: TrustError,
    },
    /// The proxy setting is of no use.
    #[error("upstream `{spec}` cannot be reached through the proxy")]
    Proxy {
        /// The upstream.
        spec: UpstreamSpec,
        /// What is wrong.
        #[source]
        source: ProxyError,
    },
}

#[derive(Debug, Default)]
struct Registry {
    stores: HashMap<Trust, Weak<TrustStore>>,
    dot: HashMap<Key, Weak<Channel<Dot>>>,
    doh: HashMap<Key, Weak<Channel<Doh>>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    spec: UpstreamSpec,
    trust: Trust,
    proxy: Option<Proxy>,
}

/// Makes the upstream that a description stands for. Opens nothing yet: connections come with the
/// first question.
///
/// # Errors
///
/// Fails when what an encrypted upstream needs to be checked or reached is missing.
pub fn connect(
    spec: &UpstreamSpec,
    settings: &Settings,
) -> Result<Arc<dyn Upstream>, ConnectError> {
    match spec.protocol {
        Protocol::Do53 => Ok(Arc::new(Do53::new(spec.address, settings.port_policy))),
        Protocol::Dot => {
            let (_, name) = server_name(spec)?;
            let key = Key::new(spec, &settings.trust, None);
            let mut registry = settings.connections.0.lock();
            let trust = registry.store(spec, &settings.trust)?;
            let address = spec.address;
            let channel = share(&mut registry.dot, key, || Dot {
                address,
                name,
                trust,
            });
            Ok(Arc::new(Encrypted::new(spec.clone(), channel)))
        }
        Protocol::Doh => {
            let (uri, name) = server_name(spec)?;
            let proxy = settings.proxy.way_to(&uri, spec.address);
            let proxy = proxy.map_err(|source| {
                let spec = spec.clone();
                ConnectError::Proxy { spec, source }
            })?;
            let key = Key::new(spec, &settings.trust, proxy.clone());
            let mut registry = settings.connections.0.lock();
            let trust = registry.store(spec, &settings.trust)?;
            let address = spec.address;
            let channel = share(&mut registry.doh, key, || Doh {
                address,
                name,
                uri,
                trust,
                proxy,
            });
            Ok(Arc::new(Encrypted::new(spec.clone(), channel)))
        }
    }
}

impl Connections {
    /// Has every upstream open a new connection for its next question, as after a change of
    /// network. Questions on the old ones are still answered.
    pub fn renew(&self) {
        let registry = self.0.lock();
        registry.dot.values().for_each(renew);
        registry.doh.values().for_each(renew);
    }
}

impl Registry {
    fn store(
        &mut self,
        spec: &UpstreamSpec,
        trust: &Trust,
    ) -> Result<Arc<TrustStore>, ConnectError> {
        if let Some(store) = self.stores.get(trust).and_then(Weak::upgrade) {
            return Ok(store);
        }
        let store = TrustStore::new(trust.clone());
        let store = store.map_err(|source| {
            let spec = spec.clone();
            ConnectError::Trust { spec, source }
        })?;
        let store = Arc::new(store);
        remember(&mut self.stores, trust.clone(), &store);
        Ok(store)
    }
}

impl Key {
    fn new(spec: &UpstreamSpec, trust: &Trust, proxy: Option<Proxy>) -> Self {
        Self {
            spec: spec.clone(),
            trust: trust.clone(),
            proxy,
        }
    }
}

fn share<T: Transport>(
    channels: &mut HashMap<Key, Weak<Channel<T>>>,
    key: Key,
    transport: impl FnOnce() -> T,
) -> Arc<Channel<T>> {
    if let Some(channel) = channels.get(&key).and_then(Weak::upgrade) {
        return channel;
    }
    let channel = Arc::new(Channel::new(transport()));
    remember(channels, key, &channel);
    channel
}

/// Puts in a new entry and takes out those that nobody uses any more.
fn remember<K: Eq + Hash, V>(entries: &mut HashMap<K, Weak<V>>, key: K, value: &Arc<V>) {
    entries.retain(|_, value| value.strong_count() > 0);
    entries.insert(key, Arc::downgrade(value));
}

fn renew<T: Transport>(channel: &Weak<Channel<T>>) {
    if let Some(channel) = channel.upgrade() {
        channel.renew();
    }
}

/// Returns the server name as TLS and as HTTP want it.
fn server_name(spec: &UpstreamSpec) -> Result<(Uri, ServerName<'static>), ConnectError> {
    let unusable = || ConnectError::ServerName(spec.clone());
    let name = spec.server_name.clone().ok_or_else(unusable)?;
    let authority = match spec.address.port() {
        port if port == Protocol::Doh.default_port() => name.clone(),
        port => format!("{name}:{port}"),
    };
    let uri = Uri::try_from(format!("https://{authority}{PATH}")).map_err(|_| unusable())?;
    let name = ServerName::try_from(name).map_err(|_| unusable())?;
    match name {
        ServerName::DnsName(_) => Ok((uri, name)),
        // An address is not sent as SNI, and a certificate seldom proves one.
        _ => Err(unusable()),
    }
}
