//! Services changed over HTTP, and the moment each change is seen on the laptop.
//!
//! kubectl takes longer than what is measured; its proxy lets plain HTTP do it.

use std::{
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket},
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use tokio::time::Instant;

use crate::{
    daemon::Daemon,
    lab::Lab,
    machine::{Machine, enter_network},
    wire::{has_address, head, query},
};

const START: Duration = Duration::from_secs(60);

/// When a change that is still not seen is a failure, not a figure: a disk that others keep busy may
/// take half a minute to write the hosts file through.
const LIMIT: Duration = Duration::from_secs(120);

/// How long an answer may take; a lost one is asked again.
const ANSWER: Duration = Duration::from_millis(500);

/// Where the proxy listens on the node.
const PROXY: &str = "127.0.0.1:8001";

const SERVICES: &str = "/api/v1/namespaces/default/services";

/// The way to change Services.
#[derive(Debug)]
pub struct Api<'lab> {
    node: &'lab Machine,
    #[expect(dead_code, reason = "it ends with this")]
    proxy: Daemon,
}

impl<'lab> Api<'lab> {
    /// Starts kubectl's proxy on the node.
    pub fn start(lab: &'lab Lab) -> Result<Self> {
        let proxy = Daemon::start("kubectl-proxy", &lab.logs(), lab.api.proxy(&lab.node))?;
        proxy.until_says("Starting to serve", START)?;
        Ok(Self {
            node: &lab.node,
            proxy,
        })
    }

    /// Creates the Service `name` with `address`; gives when that was asked for.
    pub fn create(&self, name: &str, address: Ipv4Addr) -> Result<Instant> {
        let service = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": { "name": name },
            "spec": { "clusterIP": address, "ports": [{ "port": 80 }] },
        });
        self.request("POST", SERVICES, &service.to_string())
    }

    /// Deletes the Service `name`; gives when that was asked for.
    pub fn delete(&self, name: &str) -> Result<Instant> {
        self.request("DELETE", &format!("{SERVICES}/{name}"), "")
    }

    fn request(&self, method: &str, path: &str, body: &str) -> Result<Instant> {
        let process = self.node.process();
        let request = format!(
            "{method} {path} HTTP/1.0\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let asked = std::thread::spawn(move || -> Result<Instant> {
            enter_network(process)?;
            let mut stream = TcpStream::connect(PROXY)?;
            stream.set_read_timeout(Some(LIMIT))?;
            let asked = Instant::now();
            stream.write_all(request.as_bytes())?;
            let mut reply = String::new();
            stream.read_to_string(&mut reply)?;
            let status = reply.lines().next().unwrap_or_default();
            ensure!(status.contains(" 20"), "{status}: {reply}");
            Ok(asked)
        });
        asked
            .join()
            .map_err(|_| anyhow!("the asking thread died"))?
    }
}

/// When a change was seen, counted from when it was asked for.
#[derive(Debug, Clone, Copy)]
pub struct Seen<const SERVERS: usize> {
    /// By each of the servers asked.
    pub servers: [Duration; SERVERS],
    /// In the hosts file.
    pub hosts: Duration,
}

/// Looks at the laptop, again and again.
#[derive(Debug)]
pub struct Watcher<const SERVERS: usize> {
    socket: UdpSocket,
    servers: [SocketAddr; SERVERS],
    hosts: PathBuf,
    number: u16,
}

impl<const SERVERS: usize> Watcher<SERVERS> {
    /// Makes one that asks these addresses.
    pub fn new(laptop: &Machine, servers: [&str; SERVERS]) -> Result<Self> {
        let process = laptop.process();
        let socket = std::thread::spawn(move || -> Result<UdpSocket> {
            enter_network(process)?;
            Ok(UdpSocket::bind("0.0.0.0:0")?)
        })
        .join()
        .map_err(|_| anyhow!("the binding thread died"))??;
        socket.set_read_timeout(Some(ANSWER))?;
        let mut addresses = [SocketAddr::from(([0, 0, 0, 0], 53)); SERVERS];
        for (address, server) in addresses.iter_mut().zip(servers) {
            address.set_ip(server.parse().context(server.to_owned())?);
        }
        Ok(Self {
            socket,
            servers: addresses,
            hosts: laptop.path("/etc/hosts"),
            number: 0,
        })
    }

    /// Waits until all say `address` of `name`, or that there is none.
    pub fn sees(
        &mut self,
        since: Instant,
        name: &str,
        address: Option<Ipv4Addr>,
    ) -> Result<Seen<SERVERS>> {
        let (mut answered, mut hosts) = ([None; SERVERS], None);
        loop {
            for (server, answered) in self.servers.into_iter().zip(&mut answered) {
                if answered.is_none() && self.resolves(server, name, address)? {
                    *answered = Some(since.elapsed());
                }
            }
            if hosts.is_none() && self.has_line(name, address)? {
                hosts = Some(since.elapsed());
            }
            if let (Some(hosts), true) = (hosts, answered.iter().all(Option::is_some)) {
                let servers = answered.map(Option::unwrap_or_default);
                return Ok(Seen { servers, hosts });
            }
            if since.elapsed() > LIMIT {
                let servers = self.servers;
                bail!("{name} {address:?}: {servers:?} {answered:?}, hosts {hosts:?}");
            }
        }
    }

    fn resolves(
        &mut self,
        server: SocketAddr,
        name: &str,
        address: Option<Ipv4Addr>,
    ) -> Result<bool> {
        self.number = self.number.wrapping_add(1);
        self.socket.send_to(&query(self.number, name), server)?;
        let mut buffer = [0; 1500];
        loop {
            let Ok(count) = self.socket.recv(&mut buffer) else {
                return Ok(false);
            };
            let reply = &buffer[..count];
            match (head(reply), address) {
                (Some((number, _)), _) if number != self.number => {}
                (Some((_, 0)), Some(address)) => return Ok(has_address(reply, address)),
                (Some((_, code)), None) => return Ok(code == 3),
                _ => return Ok(false),
            }
        }
    }

    fn has_line(&self, name: &str, address: Option<Ipv4Addr>) -> Result<bool> {
        let text = fs::read_to_string(&self.hosts)?;
        let found = text.lines().find_map(|line| {
            let mut words = line.split_whitespace();
            let address = words.next()?;
            words.any(|word| word == name).then_some(address)
        });
        let wanted = address.map(|address| address.to_string());
        Ok(found == wanted.as_deref())
    }
}
