//! Which proxy, if any, is on the way to the API server. Pure.
//!
//! `NO_PROXY` is held against the API server's host, never against the proxy's own.

use std::fmt;
use std::net::IpAddr;

use http::{HeaderValue, Uri};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};

/// What the environment says about proxies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxyEnvironment {
    /// `HTTPS_PROXY`.
    pub https: Option<String>,
    /// `HTTP_PROXY`.
    pub http: Option<String>,
    /// `NO_PROXY`.
    pub no: Option<String>,
}

impl ProxyEnvironment {
    /// Reads the variables by `read`, the upper-case form of each first, as kubectl does.
    pub(super) fn read(read: impl Fn(&str) -> Option<String>) -> Self {
        let either = |name: &str| {
            read(name)
                .filter(|value| !value.is_empty())
                .or_else(|| read(&name.to_ascii_lowercase()))
                .filter(|value| !value.is_empty())
        };
        Self {
            https: either("HTTPS_PROXY"),
            http: either("HTTP_PROXY"),
            no: either("NO_PROXY"),
        }
    }
}

/// A kind of proxy that is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    /// CONNECT over a plain connection.
    Http,
    /// CONNECT over TLS.
    Https,
    /// SOCKS5; the proxy looks names up.
    Socks5,
}

/// The proxy on the way.
#[derive(Clone)]
pub(super) struct Proxy {
    pub(super) scheme: Scheme,
    pub(super) uri: Uri,
    pub(super) authorization: Option<HeaderValue>,
    pub(super) user: Option<(String, String)>,
}

/// Without the password.
impl fmt::Display for Proxy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.scheme {
            Scheme::Http => "http",
            Scheme::Https => "https",
            Scheme::Socks5 => "socks5",
        };
        let host = self.uri.host().unwrap_or_default();
        match self.uri.port_u16() {
            Some(port) => write!(formatter, "{scheme}://{host}:{port}"),
            None => write!(formatter, "{scheme}://{host}"),
        }
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// Chooses the proxy for `server`: the kubeconfig's `proxy-url` if there is one, else what the
/// environment says.
///
/// # Errors
///
/// The setting, by name, cannot be used.
pub(super) fn choose(
    server: &Uri,
    proxy_url: Option<&str>,
    environment: &ProxyEnvironment,
) -> Result<Option<Proxy>, String> {
    if let Some(url) = proxy_url.filter(|url| !url.is_empty()) {
        let matcher = Matcher::builder().all(url).build();
        let found = matcher.intercept(server);
        return found
            .as_ref()
            .and_then(read)
            .map(Some)
            .ok_or_else(|| wrong("proxy-url"));
    }
    // As for every Go program: what listens on loopback is no matter of a proxy.
    if is_loopback(server) {
        return Ok(None);
    }
    let (name, setting) = match server.scheme_str() {
        Some("http") => ("HTTP_PROXY", &environment.http),
        _ => ("HTTPS_PROXY", &environment.https),
    };
    let Some(setting) = setting else {
        return Ok(None);
    };
    let all = Matcher::builder().all(setting.as_str()).build();
    let proxy = all.intercept(server).as_ref().and_then(read);
    let proxy = proxy.ok_or_else(|| wrong(name))?;
    let excepted = environment.no.as_deref().unwrap_or_default();
    Ok((!is_excepted(server, excepted)).then_some(proxy))
}

fn wrong(setting: &str) -> String {
    format!(
        "{setting} is not of the form http://[USER:PASSWORD@]HOST[:PORT] (or https://, socks5://)"
    )
}

fn read(found: &Intercept) -> Option<Proxy> {
    let uri = found.uri().clone();
    let scheme = match uri.scheme_str() {
        Some("http") | None => Scheme::Http,
        Some("https") => Scheme::Https,
        Some("socks5" | "socks5h") => Scheme::Socks5,
        Some(_) => return None,
    };
    uri.host()?;
    let user = found.raw_auth();
    Some(Proxy {
        scheme,
        authorization: found.basic_auth().cloned(),
        user: user.map(|(name, password)| (name.to_owned(), password.to_owned())),
        uri,
    })
}

fn is_loopback(server: &Uri) -> bool {
    let host = server.host().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

/// Whether `NO_PROXY` lists the server: its host by the usual rules, or its host and port.
fn is_excepted(server: &Uri, list: &str) -> bool {
    let port = server.port_u16().unwrap_or(443).to_string();
    // An entry with a port is an entry without one where that is the server's.
    let entries = list.split([',', ' ']).filter_map(|entry| {
        let entry = entry.trim();
        match entry.rsplit_once(':') {
            Some((host, digits)) if is_port(digits) && !host.contains(':') => {
                (digits == port).then_some(host)
            }
            Some((host, digits)) if is_port(digits) && host.starts_with('[') => {
                (digits == port).then_some(host)
            }
            Some(_) | None => Some(entry),
        }
    });
    let entries: Vec<_> = entries
        .map(|entry| entry.trim_start_matches("*.").trim_matches(['[', ']']))
        .collect();
    let matcher = Matcher::builder()
        .all("http://proxy.invalid")
        .no(entries.join(","))
        .build();
    matcher.intercept(server).is_none()
}

fn is_port(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests;
