//! The types of the command line's values.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use clap::ValueEnum;

/// Form of what is written to stdout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    #[default]
    Text,
    /// For programs: one JSON object.
    Json,
}

/// Form of the progress written to stderr.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Progress {
    /// What suits the output: plain lines for now.
    #[default]
    Auto,
    /// One line per step.
    Plain,
    /// One JSON object per step.
    Json,
    /// Nothing but warnings and errors.
    Quiet,
}

/// How programs get into the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// All of them, by a link of this machine; root sets it up.
    #[default]
    Tun,
    /// Those that are told to, by a proxy on loopback; nothing of this machine is changed.
    Proxy,
}

/// How the system's DNS is pointed at the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DnsChoice {
    /// systemd-resolved where it is in charge, else hosts entries only, with a warning.
    #[default]
    Auto,
    /// systemd-resolved, or an error.
    Resolved,
    /// No change of the system's DNS; names resolve through the hosts file.
    HostsOnly,
    /// No change of the system's DNS; the hosts file is governed by `--hosts`.
    Off,
}

/// Which names go into the hosts file; each form adds to the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum HostsForm {
    /// None.
    Off,
    /// `service`.
    Short,
    /// `service.namespace`.
    #[default]
    Namespaced,
    /// `service.namespace.svc.DOMAIN`.
    Fqdn,
}

/// The name of a namespace (an RFC 1123 label).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Namespace(String);

impl Namespace {
    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The namespace `default`.
impl Default for Namespace {
    fn default() -> Self {
        Self("default".to_owned())
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Namespace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let body = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let valid = (1..=63).contains(&text.len())
            && text.bytes().all(body)
            && !text.starts_with('-')
            && !text.ends_with('-');
        if valid {
            Ok(Self(text.to_owned()))
        } else {
            Err("a namespace is up to 63 of a-z, 0-9 and -, with no - at either end".to_owned())
        }
    }
}

/// A file with a token for a namespace, `NAMESPACE=FILE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenFile {
    /// The namespace.
    pub namespace: Namespace,
    /// The file.
    pub path: PathBuf,
}

impl FromStr for TokenFile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // The text is not repeated: somebody may have given the token itself.
        match text.split_once('=') {
            Some((namespace, path)) if !path.is_empty() => Ok(Self {
                namespace: namespace.parse()?,
                path: path.into(),
            }),
            Some(_) | None => Err("expected NAMESPACE=FILE".to_owned()),
        }
    }
}

/// Where a manager is: `HOST:PORT`, the host a name or an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagerAddress {
    /// The name or address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl ManagerAddress {
    /// Returns the address, when it is one and no name.
    #[must_use]
    pub fn ip(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }
}

impl From<SocketAddr> for ManagerAddress {
    fn from(address: SocketAddr) -> Self {
        Self {
            host: address.ip().to_string(),
            port: address.port(),
        }
    }
}

impl fmt::Display for ManagerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ip() {
            Some(ip) => SocketAddr::new(ip, self.port).fmt(f),
            None => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl FromStr for ManagerAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(address.into());
        }
        let wrong = || "expected ADDR:PORT or HOST:PORT".to_owned();
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse().map_err(|_| wrong())?;
        let label = |label: &str| {
            let body = |octet: u8| octet.is_ascii_alphanumeric() || b"-_".contains(&octet);
            !label.is_empty() && label.len() <= 63 && label.bytes().all(body)
        };
        // A name whose last label is a number would be taken for an address.
        let name = host.len() <= 253
            && host.split('.').all(label)
            && host
                .rsplit('.')
                .next()
                .is_some_and(|top| top.parse::<u32>().is_err());
        if !name {
            return Err(wrong());
        }
        Ok(Self {
            host: host.to_owned(),
            port,
        })
    }
}
