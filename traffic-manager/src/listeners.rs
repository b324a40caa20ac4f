//! Every listener is bound before anything else is done, so that a busy port ends the program at
//! once and nothing is half started.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Result;
use tokio::net::{TcpListener, UdpSocket};
use tracing::info;

use crate::config::Config;
use crate::failure::{Exit, Failure};

/// How often a free port is looked for that is free for UDP and TCP alike, when any port will do.
const PORT_ATTEMPTS: usize = 16;

/// The bound listeners.
#[derive(Debug)]
pub struct Listeners {
    /// UDP sockets for DNS.
    pub dns_udp: Vec<UdpSocket>,
    /// TCP listeners for DNS, on the same addresses.
    pub dns_tcp: Vec<TcpListener>,
    /// The listener for gRPC.
    pub grpc: TcpListener,
    /// The listener for the probes.
    pub admin: TcpListener,
    /// The addresses of all.
    pub addresses: Addresses,
}

/// Where the listeners ended up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addresses {
    /// DNS, UDP and TCP.
    pub dns: Vec<SocketAddr>,
    /// gRPC.
    pub grpc: SocketAddr,
    /// The probes.
    pub admin: SocketAddr,
}

impl Listeners {
    /// Binds what the configuration names.
    ///
    /// # Errors
    /// With exit code 73 when an address is in use.
    pub async fn bind(config: &Config) -> Result<Self> {
        let (mut dns_udp, mut dns_tcp, mut dns) = (Vec::new(), Vec::new(), Vec::new());
        for address in &config.dns_listen {
            let (udp, tcp) = bind_dns(*address)
                .await
                .map_err(|error| failed("dns", *address, error))?;
            dns.push(udp.local_addr()?);
            dns_udp.push(udp);
            dns_tcp.push(tcp);
        }
        let grpc = bind_tcp("grpc", config.grpc_listen).await?;
        let admin = bind_tcp("admin", config.admin_listen).await?;
        let addresses = Addresses {
            dns,
            grpc: grpc.local_addr()?,
            admin: admin.local_addr()?,
        };
        Ok(Self {
            dns_udp,
            dns_tcp,
            grpc,
            admin,
            addresses,
        })
    }
}

impl Addresses {
    /// Logs one line for each listener.
    pub fn log(&self) {
        for address in &self.dns {
            info!(listener = "dns", %address, "listening");
        }
        info!(listener = "grpc", address = %self.grpc, "listening");
        info!(listener = "admin", address = %self.admin, "listening");
    }
}

async fn bind_tcp(listener: &'static str, address: SocketAddr) -> Result<TcpListener> {
    let bound = match TcpListener::bind(address).await {
        Err(error) if lacks_ipv6(&error, address) => TcpListener::bind(any_ipv4(address)).await,
        bound => bound,
    };
    bound.map_err(|error| failed(listener, address, error))
}

async fn bind_dns(address: SocketAddr) -> std::io::Result<(UdpSocket, TcpListener)> {
    let mut attempts = if address.port() == 0 {
        PORT_ATTEMPTS
    } else {
        1
    };
    loop {
        attempts -= 1;
        let udp = match UdpSocket::bind(address).await {
            Err(error) if lacks_ipv6(&error, address) => UdpSocket::bind(any_ipv4(address)).await?,
            bound => bound?,
        };
        match TcpListener::bind(udp.local_addr()?).await {
            Err(error) if error.kind() == ErrorKind::AddrInUse && attempts > 0 => {}
            tcp => return Ok((udp, tcp?)),
        }
    }
}

/// Tells whether `[::]` cannot be bound because the kernel has no IPv6.
fn lacks_ipv6(error: &std::io::Error, address: SocketAddr) -> bool {
    let missing = match error.kind() {
        ErrorKind::AddrNotAvailable | ErrorKind::Unsupported => true,
        // EAFNOSUPPORT has no kind of its own.
        _ => error.raw_os_error() == Some(97),
    };
    missing && address.is_ipv6() && address.ip().is_unspecified()
}

fn any_ipv4(address: SocketAddr) -> SocketAddr {
    (Ipv4Addr::UNSPECIFIED, address.port()).into()
}

fn failed(listener: &'static str, address: SocketAddr, error: std::io::Error) -> anyhow::Error {
    let exit = match error.kind() {
        ErrorKind::PermissionDenied => Exit::Privilege,
        // Taken, or not an address of ours.
        _ => Exit::Busy,
    };
    let failure = Failure::new(exit, format!("cannot listen on {address} for {listener}"))
        .hint(format!("choose another address with --{listener}-listen"));
    anyhow::Error::new(error).context(failure)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::report;

    fn config(dns: &[&str]) -> Config {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        Config {
            dns_listen: dns.iter().map(|text| text.parse().unwrap()).collect(),
            grpc_listen: any,
            admin_listen: any,
            ..Config::default()
        }
    }

    #[tokio::test]
    async fn dns_has_udp_and_tcp_on_one_port() {
        let listeners = Listeners::bind(&config(&["127.0.0.1:0", "127.0.0.1:0"]))
            .await
            .unwrap();
        let tcp: Vec<_> = listeners
            .dns_tcp
            .iter()
            .map(|tcp| tcp.local_addr().unwrap())
            .collect();
        assert_eq!(listeners.addresses.dns, tcp);
    }

    #[tokio::test]
    async fn a_busy_port_names_address_and_flag_and_exits_73() {
        let taken = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = taken.local_addr().unwrap().to_string();
        let error = Listeners::bind(&config(&[&address])).await.unwrap_err();
        let (text, code) = report(&error);
        assert!(
            text.starts_with(&format!("error: cannot listen on {address} for dns: ")),
            "{text}"
        );
        assert!(
            text.ends_with("hint: choose another address with --dns-listen"),
            "{text}"
        );
        assert_eq!(code, 73);
    }
}
