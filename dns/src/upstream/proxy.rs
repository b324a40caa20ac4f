//! The HTTP proxy that DNS over HTTPS goes through where `https_proxy` says so.
//!
//! Only DoH: nothing else looks like the web to a proxy. The proxy's own address is never looked
//! up here, for that would need the resolver that is being set up.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use bytes::BytesMut;
use http::{HeaderValue, Uri};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::error::{ExchangeError, ProxyRefusal};
use super::tcp::dial;

/// The port of a proxy written without one.
const PROXY_PORT: u16 = 80;
/// The longest answer to CONNECT that is read; proxies send a few hundred bytes.
const MAX_ANSWER: usize = 8192;
/// The most header fields in it.
const MAX_FIELDS: usize = 64;

/// Says which proxy DNS over HTTPS takes, in the words of `https_proxy` and `no_proxy`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ProxySettings {
    /// The proxy's URL, `http://[USER:PASSWORD@]HOST[:PORT]`.
    pub https_proxy: Option<String>,
    /// The hosts, domains and networks that are reached without it. An upstream is when its server
    /// name or its address is listed.
    pub no_proxy: Option<String>,
    /// The addresses of proxies that are written by name, found by the caller without our help;
    /// see [`ProxySettings::host_name`].
    pub addresses: BTreeMap<String, IpAddr>,
}

/// Tells why a proxy setting is of no use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProxyError {
    /// The setting is not a URL, or one of a kind that is not spoken.
    #[error("https_proxy is not of the form `http://[USER:PASSWORD@]HOST[:PORT]`")]
    Url,
    /// The proxy is written by name, and nobody has said what its address is.
    #[error(
        "the proxy `{0}` has no known address: write its IP address into https_proxy, for names are looked up through it"
    )]
    HostName(String),
}

/// A proxy on the way to an upstream.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Proxy {
    address: SocketAddr,
    authorization: Option<HeaderValue>,
}

impl ProxySettings {
    /// Reads `https_proxy` and `no_proxy` from the environment, or their upper-case forms.
    pub fn from_env() -> Self {
        let read = |name: &str| {
            let upper = name.to_ascii_uppercase();
            let value = std::env::var(name).or_else(|_| std::env::var(upper));
            value.ok().filter(|value| !value.is_empty())
        };
        Self {
            https_proxy: read("https_proxy"),
            no_proxy: read("no_proxy"),
            addresses: BTreeMap::new(),
        }
    }

    /// Returns the proxy's host name if it is not written as an address. The caller looks it up,
    /// by other means than the upstreams it is needed for, and puts it into `addresses`.
    pub fn host_name(&self) -> Option<String> {
        let proxy = self.proxy().ok()??;
        let host = proxy.uri().host()?;
        ip(host).is_none().then(|| host.to_ascii_lowercase())
    }

    /// Returns the proxy to take to a server, if any.
    pub(super) fn way_to(
        &self,
        uri: &Uri,
        address: SocketAddr,
    ) -> Result<Option<Proxy>, ProxyError> {
        let Some(proxy) = self.proxy()? else {
            return Ok(None);
        };
        // Without the scope of a link-local address, which a URL cannot hold.
        let plain = SocketAddr::new(address.ip(), address.port());
        let by_address = format!("https://{plain}/");
        let by_address: Uri = by_address.parse().map_err(|_| ProxyError::Url)?;
        let matcher = self.matcher(self.no_proxy.as_deref());
        if matcher.intercept(uri).is_none() || matcher.intercept(&by_address).is_none() {
            return Ok(None);
        }
        let host = proxy.uri().host().ok_or(ProxyError::Url)?;
        let known = || self.addresses.get(&host.to_ascii_lowercase()).copied();
        let ip = ip(host).or_else(known);
        let ip = ip.ok_or_else(|| ProxyError::HostName(host.to_owned()))?;
        let port = proxy.uri().port_u16().unwrap_or(PROXY_PORT);
        Ok(Some(Proxy {
            address: SocketAddr::new(ip, port),
            authorization: proxy.basic_auth().cloned(),
        }))
    }

    fn proxy(&self) -> Result<Option<Intercept>, ProxyError> {
        if self.https_proxy.as_ref().is_none_or(String::is_empty) {
            return Ok(None);
        }
        let anywhere = Uri::from_static("https://example.org/");
        let proxy = self.matcher(None).intercept(&anywhere);
        let proxy = proxy.ok_or(ProxyError::Url)?;
        match proxy.uri().scheme_str() {
            Some("http") => Ok(Some(proxy)),
            Some(_) | None => Err(ProxyError::Url),
        }
    }

    fn matcher(&self, no_proxy: Option<&str>) -> Matcher {
        let https = self.https_proxy.as_deref().unwrap_or_default();
        let builder = Matcher::builder().https(https);
        builder.no(no_proxy.unwrap_or_default()).build()
    }
}

impl Proxy {
    /// Opens a way through the proxy (RFC 9110 §9.3.6).
    pub(super) async fn connect(&self, target: SocketAddr) -> Result<TcpStream, ExchangeError> {
        let refused = |refusal| ExchangeError::Proxy {
            proxy: self.address,
            target,
            refusal,
        };
        self.tunnel(target).await.map_err(refused)
    }

    async fn tunnel(&self, target: SocketAddr) -> Result<TcpStream, ProxyRefusal> {
        let unreachable = |error: std::io::Error| ProxyRefusal::Unreachable(error.kind());
        let mut stream = dial(self.address).await.map_err(unreachable)?;
        let request = self.request(target);
        stream.write_all(&request).await.map_err(unreachable)?;
        let mut answer = BytesMut::new();
        loop {
            let read = stream.read_buf(&mut answer).await.map_err(unreachable)?;
            if let Some((status, length)) = parse(&answer)? {
                return match status {
                    // In TLS the client speaks first: more than the answer is no tunnel.
                    200..=299 if length == answer.len() => Ok(stream),
                    200..=299 => Err(ProxyRefusal::NotHttp),
                    _ => Err(ProxyRefusal::Status(status)),
                };
            }
            if read == 0 || answer.len() > MAX_ANSWER {
                return Err(ProxyRefusal::NotHttp);
            }
        }
    }

    fn request(&self, target: SocketAddr) -> Vec<u8> {
        let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n");
        let mut request = request.into_bytes();
        if let Some(value) = &self.authorization {
            request.extend_from_slice(b"Proxy-Authorization: ");
            request.extend_from_slice(value.as_bytes());
            request.extend_from_slice(b"\r\n");
        }
        request.extend_from_slice(b"\r\n");
        request
    }
}

/// Returns the status and the length of an answer that is all there.
fn parse(answer: &[u8]) -> Result<Option<(u16, usize)>, ProxyRefusal> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut response = httparse::Response::new(&mut fields);
    match response.parse(answer) {
        Ok(httparse::Status::Complete(length)) => Ok(response.code.map(|code| (code, length))),
        Ok(httparse::Status::Partial) => Ok(None),
        Err(_) => Err(ProxyRefusal::NotHttp),
    }
}

/// Reads an address from the host part of a URL.
fn ip(host: &str) -> Option<IpAddr> {
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    bare.unwrap_or(host).parse().ok()
}

impl fmt::Debug for ProxySettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL may hold a password.
        f.debug_struct("ProxySettings")
            .field("https_proxy", &self.proxy())
            .field("no_proxy", &self.no_proxy)
            .field("addresses", &self.addresses)
            .finish()
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy({})", self.address)
    }
}

#[cfg(test)]
mod tests;
