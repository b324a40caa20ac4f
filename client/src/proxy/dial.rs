//! From a destination to a connection with it, by the cluster or from here.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::request::Target;
use super::{Place, Shared};
use kubebridge_proto::flow::Socket;

use crate::flows::{Answer, BoxTcpFlow, Failure};

/// How long one address outside may take to answer.
const OUTSIDE: Duration = Duration::from_secs(10);

/// A connection with a destination.
pub(crate) enum Dialled {
    /// In the cluster.
    Cluster(BoxTcpFlow),
    /// Elsewhere.
    Outside(TcpStream),
}

/// Why there is none, in the words that proxy protocols have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    NoSuchName,
    NameNotResolved,
    Refused,
    HostUnreachable,
    NetworkUnreachable,
    Prohibited,
    Timeout,
}

impl Refusal {
    /// Says it to people.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::NoSuchName => "there is no such name",
            Self::NameNotResolved => "the name could not be resolved",
            Self::Refused => "connection refused",
            Self::HostUnreachable => "no route to host",
            Self::NetworkUnreachable => "network is unreachable",
            Self::Prohibited => "the traffic-manager does not allow it",
            Self::Timeout => "nothing answers",
        }
    }

    fn of(failure: &Failure) -> Self {
        match failure.answer() {
            Answer::Reset => Self::Refused,
            Answer::HostUnreachable => Self::HostUnreachable,
            Answer::NetworkUnreachable => Self::NetworkUnreachable,
            Answer::Prohibited => Self::Prohibited,
            Answer::Silence => Self::Timeout,
        }
    }

    fn of_io(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => Self::Refused,
            io::ErrorKind::NetworkUnreachable => Self::NetworkUnreachable,
            io::ErrorKind::PermissionDenied => Self::Prohibited,
            io::ErrorKind::TimedOut => Self::Timeout,
            _ => Self::HostUnreachable,
        }
    }
}

/// Connects to the first address that answers; the last refusal tells of the others.
pub(crate) async fn dial(target: &Target, shared: &Shared) -> Result<Dialled, Refusal> {
    let (addresses, is_inside) = match shared.places.find(&target.host, target.port).await {
        Place::Cluster(addresses) => (addresses, true),
        Place::Outside(addresses) => (addresses, false),
        Place::NoSuchName => return Err(Refusal::NoSuchName),
        Place::Unknown => return Err(Refusal::NameNotResolved),
    };
    let mut refusal = Refusal::NoSuchName;
    for address in addresses {
        let dialled = match is_inside {
            true => {
                let opened = shared.opener.open_tcp(address).await;
                opened
                    .map(Dialled::Cluster)
                    .map_err(|failure| Refusal::of(&failure))
            }
            false => outside(address).await.map(Dialled::Outside),
        };
        match dialled {
            Ok(dialled) => return Ok(dialled),
            Err(failed) => refusal = failed,
        }
    }
    Err(refusal)
}

async fn outside(address: SocketAddr) -> Result<TcpStream, Refusal> {
    let connected = timeout(OUTSIDE, TcpStream::connect(address)).await;
    let connected = connected.map_err(|_| Refusal::Timeout)?;
    let stream = connected.map_err(|error| Refusal::of_io(&error))?;
    // Small writes of the program go on as they come.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

impl Dialled {
    /// Carries it until both directions have ended.
    pub(crate) async fn carry(self, mut local: TcpStream) {
        match self {
            Self::Cluster(flow) => {
                flow.carry(Box::new(Socket::new(local))).await;
            }
            Self::Outside(mut far) => {
                // Either side's reset ends both; nobody is left to be told.
                let _ = copy_bidirectional(&mut local, &mut far).await;
            }
        }
    }
}
