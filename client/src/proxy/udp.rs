//! Datagrams of a SOCKS5 client (RFC 1928 §7), as long as its connection stays open.
//!
//! Only the first sender is heard that belongs to the connection's user: other users reach
//! loopback, too. Each destination has a flow of its own.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::owner::{self, Owners};
use super::socks::{put_address, read_datagram, reply};
use super::{Place, Shared};
use crate::flows::DatagramFlow;

/// Destinations of one client at once: a resolver and a few peers, with room.
const DESTINATIONS: usize = 64;
/// Datagrams that wait for a flow to be opened.
const WAITING: usize = 16;
/// The largest datagram.
const DATAGRAM: usize = 65_535;
/// A destination that says and hears nothing for so long is forgotten.
const IDLE: Duration = Duration::from_secs(60);

/// Serves a client's datagrams until its connection ends.
pub(crate) async fn associate(mut stream: TcpStream, shared: &Shared) -> Result<()> {
    let socket = Arc::new(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?);
    stream.write_all(&reply(0, socket.local_addr()?)).await?;
    let mut association = Association {
        socket,
        owners: owners(&stream)?,
        client: None,
        destinations: HashMap::new(),
        tasks: JoinSet::new(),
    };
    let (mut packet, mut rest) = (vec![0; DATAGRAM], [0; 64]);
    loop {
        tokio::select! {
            received = association.socket.recv_from(&mut packet) => {
                let (count, from) = received?;
                association.take(&packet[..count], from, shared);
            }
            // Nothing more is said on it: its end is the end of all.
            read = stream.read(&mut rest) => if read? == 0 {
                return Ok(());
            },
            Some(ended) = association.tasks.join_next() => if let Ok(target) = ended {
                association.destinations.remove(&target);
            },
        }
    }
}

struct Association {
    socket: Arc<UdpSocket>,
    /// Who asked for it.
    owners: Owners,
    client: Option<SocketAddr>,
    destinations: HashMap<String, mpsc::Sender<Bytes>>,
    tasks: JoinSet<String>,
}

impl Association {
    fn is_client(&self, from: SocketAddr) -> bool {
        let sender = match from {
            SocketAddr::V4(from) => owner::of_sender(from),
            SocketAddr::V6(_) => Owners::new(),
        };
        let is_same = owner::is_same(&self.owners, &sender);
        if !is_same {
            tracing::debug!("a datagram of somebody else");
        }
        is_same
    }

    /// Passes a datagram of the client on; of anybody else it is dropped.
    fn take(&mut self, packet: &[u8], from: SocketAddr, shared: &Shared) {
        match self.client {
            Some(client) if client == from => {}
            None if self.is_client(from) => self.client = Some(from),
            None | Some(_) => return,
        }
        let Some((target, data)) = read_datagram(packet) else {
            return;
        };
        let key = target.to_string();
        let data = Bytes::copy_from_slice(&packet[data..]);
        if let Some(queue) = self.destinations.get(&key) {
            // Full is a network that is slow: datagrams are lost there too.
            let _ = queue.try_send(data);
            return;
        }
        if self.destinations.len() >= DESTINATIONS {
            tracing::debug!(limit = DESTINATIONS, "too many destinations of one client");
            return;
        }
        let (queue, waiting) = mpsc::channel(WAITING);
        let _ = queue.try_send(data);
        self.destinations.insert(key.clone(), queue);
        let back = Back {
            socket: Arc::clone(&self.socket),
            client: from,
        };
        let (opener, places) = (Arc::clone(&shared.opener), Arc::clone(&shared.places));
        self.tasks.spawn(async move {
            let (address, is_inside) = match places.find(&target.host, target.port).await {
                Place::Cluster(addresses) => (addresses.into_iter().next(), true),
                Place::Outside(addresses) => (addresses.into_iter().next(), false),
                Place::NoSuchName | Place::Unknown => (None, false),
            };
            let Some(address) = address else { return key };
            let outcome = match is_inside {
                true => match opener.open_udp(address).await {
                    Ok(flow) => inside(flow, waiting, &back, address).await,
                    Err(failure) => {
                        tracing::debug!(%failure, "no flow for datagrams");
                        Ok(())
                    }
                },
                false => outside(waiting, &back, address).await,
            };
            if let Err(error) = outcome {
                tracing::debug!(%error, "datagrams of a client");
            }
            key
        });
    }
}

/// Returns who has the client's end of the connection.
fn owners(stream: &TcpStream) -> Result<Owners> {
    Ok(match (stream.peer_addr()?, stream.local_addr()?) {
        (SocketAddr::V4(client), SocketAddr::V4(here)) => owner::of_connection(client, here),
        _ => Owners::new(),
    })
}

/// The way back to the client.
struct Back {
    socket: Arc<UdpSocket>,
    client: SocketAddr,
}

impl Back {
    async fn give(&self, from: SocketAddr, data: &[u8]) -> std::io::Result<()> {
        let mut packet = vec![0, 0, 0];
        put_address(&mut packet, from);
        packet.extend_from_slice(data);
        self.socket.send_to(&packet, self.client).await?;
        Ok(())
    }
}

async fn inside(
    mut flow: DatagramFlow,
    mut waiting: mpsc::Receiver<Bytes>,
    back: &Back,
    address: SocketAddr,
) -> Result<()> {
    loop {
        // The flow itself ends when it is idle.
        tokio::select! {
            data = waiting.recv() => match data {
                Some(data) => if flow.send(data).is_err() {
                    return Ok(());
                },
                None => return Ok(()),
            },
            data = flow.recv() => match data {
                Some(data) => back.give(address, &data).await?,
                None => return Ok(()),
            },
        }
    }
}

async fn outside(
    mut waiting: mpsc::Receiver<Bytes>,
    back: &Back,
    address: SocketAddr,
) -> Result<()> {
    let any: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(address).await?;
    let mut packet = vec![0; DATAGRAM];
    loop {
        let next = async {
            tokio::select! {
                data = waiting.recv() => data.map(Step::There),
                received = socket.recv(&mut packet) => Some(Step::Back(received)),
            }
        };
        match timeout(IDLE, next).await {
            Ok(Some(Step::There(data))) => {
                socket.send(&data).await?;
            }
            Ok(Some(Step::Back(count))) => back.give(address, &packet[..count?]).await?,
            Ok(None) | Err(_) => return Ok(()),
        }
    }
}

/// What happens next with a destination outside.
enum Step {
    There(Bytes),
    Back(std::io::Result<usize>),
}
