//! The HTTP client below the Kubernetes client: our own addresses, proxy and deadlines.
//!
//! Credentials and trust are the kubeconfig's; what kube makes of them is used as it is.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::legacy::connect::{Connection, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ConfigExt};
use kube::{Client, Config};
use tower::{BoxError, Service, ServiceBuilder, ServiceExt};

use super::addresses::Addresses;
use super::proxy::{Proxy, Scheme};

/// How long a TCP connection to one address may take.
const CONNECT: Duration = Duration::from_secs(2);
/// How long an idle connection is kept: enough for one connect to use it again, too short for the
/// next, which shall not meet one that died meanwhile.
const IDLE: Duration = Duration::from_secs(3);
/// TCP keep-alive, for the connections of port-forwards on networks that forget silent ones.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// The proxy said no. A type of its own, because the tunnel's cannot be named.
#[derive(Debug)]
pub(super) struct ProxyRefusal {
    pub(super) wants_user: bool,
    text: String,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl fmt::Display for ProxyRefusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl StdError for ProxyRefusal {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_ref().map(|source| source.as_ref() as _)
    }
}

/// Keeps what a proxy's tunnel says.
fn refusal(error: impl StdError + Send + Sync + 'static) -> ProxyRefusal {
    let text = error.to_string();
    ProxyRefusal {
        wants_user: text.contains("authorization required"),
        text: text.trim_start_matches("tunnel error: ").to_owned(),
        source: Some(Arc::new(error)),
    }
}

/// Makes a Kubernetes client that finds hosts by `addresses` and goes through `proxy`.
///
/// # Errors
///
/// The kubeconfig's certificates, keys or headers cannot be used.
pub(super) fn client(
    config: &Config,
    proxy: Option<&Proxy>,
    addresses: Addresses,
) -> Result<Client, kube::Error> {
    let mut http = HttpConnector::new_with_resolver(addresses);
    http.enforce_http(false);
    http.set_connect_timeout(Some(CONNECT));
    http.set_keepalive(Some(KEEP_ALIVE));
    http.set_nodelay(true);
    let Some(proxy) = proxy else {
        return over(config, http);
    };
    let to = proxy.uri.clone();
    match proxy.scheme {
        Scheme::Http => over(config, tunnel(to, http, proxy).map_err(refusal)),
        Scheme::Https => {
            // The proxy's certificate is no matter of the cluster's authority.
            let plain = Config::new(to.clone());
            let https = plain.rustls_https_connector_with_connector(http)?;
            over(config, tunnel(to, https, proxy).map_err(refusal))
        }
        Scheme::Socks5 => {
            let mut socks = SocksV5::new(to, http);
            if let Some((user, password)) = proxy.user.clone() {
                socks = socks.with_auth(user, password);
            }
            over(config, socks.map_err(refusal))
        }
    }
}

fn tunnel<C>(to: Uri, connector: C, proxy: &Proxy) -> Tunnel<C> {
    let tunnel = Tunnel::new(to, connector);
    match proxy.authorization.clone() {
        Some(authorization) => tunnel.with_auth(authorization),
        None => tunnel,
    }
}

/// The layers every kind of connection has above it.
fn over<C>(config: &Config, connector: C) -> Result<Client, kube::Error>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: hyper::rt::Read + hyper::rt::Write + Connection + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
{
    let https = config.rustls_https_connector_with_connector(connector)?;
    let http: HttpClient<_, Body> = HttpClient::builder(TokioExecutor::new())
        .pool_idle_timeout(IDLE)
        .pool_timer(TokioTimer::new())
        .build(https);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http);
    Ok(Client::new(service, config.default_namespace.clone()))
}
