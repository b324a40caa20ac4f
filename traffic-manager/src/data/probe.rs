//! What would become of a flow, for people who wonder: the same decisions and the same dial, and the
//! socket closed at once. Counts as a dial of the session.

use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use kubebridge_proto::flow::{Datagrams, Failure, Protocol, Socket};
use kubebridge_proto::probe::{Dial, Endpoints, Heard, MOST_ADDRESSES, Probed, Service, Verdict};
use kubebridge_proto::routes::NamespaceState;
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, timeout};

use super::flow::End;
use super::{Data, flow};
use crate::dial;
use crate::dial::packets::Packets;
use crate::egress::{Allowed, Dialled};
use crate::kubernetes::index::ServiceKey;
use crate::sessions::Session;

/// How long an answer to a datagram is waited for: a refusal comes from as far as a node of the
/// cluster, and silence is what most servers say.
const ANSWER: Duration = Duration::from_millis(500);

/// How long a connection is watched: a reset comes as soon as the far end has taken it.
const MOMENT: Duration = Duration::from_millis(250);

/// The session dials too often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooOften;

impl Data {
    /// Decides and dials as for a flow of the session.
    ///
    /// # Errors
    /// When the session dials too often.
    pub async fn probe(
        &self,
        session: &Session,
        protocol: Protocol,
        to: SocketAddr,
    ) -> Result<Probed, TooOften> {
        let now = Instant::now();
        let counted = self.shared.table.dials(session.id(), now);
        counted.map_err(|_| TooOften)?;
        let to = Dialled::of(protocol, to);
        let granted = |key: &ServiceKey| {
            let grant = session.grant();
            let grant = grant.borrow();
            grant.namespaces.contains(&key.namespace)
        };
        match self.judge(session, to, now) {
            Err(denied) => Ok(Probed {
                verdict: Verdict::Denied(denied.reason.word().to_owned()),
                service: denied.service.filter(granted).map(|key| self.service(key)),
                dial: None,
            }),
            Ok(Allowed { to, because }) => {
                let service = because.service().cloned().filter(granted);
                Ok(Probed {
                    verdict: Verdict::Allowed(because.word().to_owned()),
                    service: service.map(|key| self.service(key)),
                    dial: Some(self.dial_and_close(to).await),
                })
            }
        }
    }

    async fn dial_and_close(&self, to: Dialled) -> Dial {
        let start = Instant::now();
        let end = flow::dial(self, to).await;
        let connected = start.elapsed();
        let (dialled, took) = match end {
            Ok(End::Udp(packets)) => {
                let heard = knock(packets).await.map(Some);
                (heard, start.elapsed())
            }
            Ok(End::Tcp(socket)) => (Ok(Some(listen(socket, MOMENT).await)), connected),
            Ok(End::Ping(_)) => (Ok(None), connected),
            Err(failure) => (Err(failure), connected),
        };
        match dialled {
            Ok(heard) => Dial {
                failure: None,
                took,
                heard,
            },
            Err(failure) => Dial {
                failure: Some(failure),
                took,
                heard: None,
            },
        }
    }

    fn service(&self, key: ServiceKey) -> Service {
        let all = &self.shared.parts.egress.endpoints;
        let mut ready = Vec::new();
        let endpoints = match all.state(&key.namespace) {
            NamespaceState::Synced => {
                let of_it = all.of(&key);
                let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
                let takers = of_it.iter().filter(|endpoint| endpoint.ready);
                ready = takers.map(|endpoint| endpoint.address).collect();
                Endpoints::Known {
                    ready: count(ready.len()),
                    total: count(of_it.len()),
                }
            }
            NamespaceState::Waiting => Endpoints::Unknown("not listed yet".to_owned()),
            NamespaceState::Forbidden { verb, resource } => {
                Endpoints::Unknown(format!("the manager may not {verb} {resource}"))
            }
            NamespaceState::NoSource => {
                Endpoints::Unknown("the manager has no source of endpoints".to_owned())
            }
        };
        Service {
            namespace: key.namespace,
            name: key.name,
            endpoints,
            ready: first(ready),
        }
    }
}

/// The first addresses by number, as many as are told.
fn first(mut addresses: Vec<IpAddr>) -> Vec<IpAddr> {
    addresses.sort_unstable();
    addresses.truncate(MOST_ADDRESSES);
    addresses
}

/// Sends a datagram that says nothing, and waits a little for an answer or a refusal: without one
/// nothing at all is known of a way for datagrams.
async fn knock(mut packets: Packets) -> Result<Heard, Failure> {
    let sent = poll_fn(|context| packets.poll_send(context, &[])).await;
    sent.map_err(|error| dial::failure(&error))?;
    match timeout(ANSWER, poll_fn(|context| packets.poll_receive(context))).await {
        Ok(Ok(_)) => Ok(Heard::Answered),
        Ok(Err(error)) => Err(dial::failure(&error)),
        Err(_) => Ok(Heard::Nothing),
    }
}

/// Says nothing on a connection, and waits a little for what the far end does: one that has no
/// liking for its client may reset it at once.
async fn listen(mut socket: Socket, moment: Duration) -> Heard {
    let mut octet = [0];
    match timeout(moment, socket.read(&mut octet)).await {
        Ok(Ok(0)) => Heard::Closed,
        Ok(Ok(_)) => Heard::Answered,
        Ok(Err(_)) => Heard::Reset,
        Err(_) => Heard::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// Longer than any machine needs.
    const LONG: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn lifecycle_21_what_a_connection_does_without_a_word_is_told() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = listener.local_addr().unwrap();
        for (expected, moment) in [
            (Heard::Reset, LONG),
            (Heard::Closed, LONG),
            (Heard::Answered, LONG),
            (Heard::Nothing, Duration::ZERO),
        ] {
            let stream = TcpStream::connect(to).await.unwrap();
            let (mut far, _) = listener.accept().await.unwrap();
            let kept = match expected {
                Heard::Reset => {
                    far.set_zero_linger().unwrap();
                    drop(far);
                    None
                }
                Heard::Closed => {
                    drop(far);
                    None
                }
                Heard::Answered => {
                    far.write_all(b"220 hello").await.unwrap();
                    Some(far)
                }
                Heard::Nothing => Some(far),
            };
            assert_eq!(listen(Socket::new(stream), moment).await, expected);
            drop(kept);
        }
    }
}
