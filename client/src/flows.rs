//! Connections into the cluster, opened for whoever has a program's packets or a proxy's request.
//!
//! [`Opener`] is the seam: the laptop's stack and the proxies open flows through it, and their
//! tests have fakes of it. A flow is open when the manager has dialled its destination, so that
//! what the program is told is true. Who may go where is the manager's business.

mod datagram;

use std::net::{IpAddr, SocketAddr};

use futures::future::BoxFuture;
pub use kubebridge_proto::flow::{Ended, FailureKind, How, Local};

pub use datagram::{DatagramEnds, DatagramFlow};

/// Opens flows into the cluster.
pub trait Opener: Send + Sync + 'static {
    /// Opens a TCP connection; returns after it was dialled. Dropping the future cancels the dial.
    fn open_tcp(&self, to: SocketAddr) -> BoxFuture<'_, Result<BoxTcpFlow, Failure>>;

    /// Opens a UDP flow from a port of its own at the manager.
    fn open_udp(&self, to: SocketAddr) -> BoxFuture<'_, Result<DatagramFlow, Failure>>;

    /// Opens a flow of ICMP echo: each datagram is one message, from its type on; its identifier
    /// and checksum are the manager's.
    fn ping(&self, to: IpAddr) -> BoxFuture<'_, Result<DatagramFlow, Failure>>;
}

/// A TCP connection that was dialled at the manager and has no local end yet. Dropping it resets
/// the connection.
pub trait TcpFlow: Send {
    /// Carries it until both directions are finished or either side resets it. Dropping the
    /// future resets the cluster's side.
    fn carry(self: Box<Self>, local: Box<dyn Local>) -> BoxFuture<'static, Ended>;
}

/// Some [`TcpFlow`].
pub type BoxTcpFlow = Box<dyn TcpFlow>;

/// Why a flow was not opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The manager says so.
    #[error(transparent)]
    Manager(#[from] kubebridge_proto::flow::Failure),
    /// The session has as many flows as it may have.
    #[error("too many open flows")]
    Full,
    /// There is no connection to the manager.
    #[error("no connection to the manager")]
    Down,
}

/// What a program is told of a flow that was not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// A reset: nobody listens there, or not now.
    Reset,
    /// ICMP: host unreachable.
    HostUnreachable,
    /// ICMP: network unreachable.
    NetworkUnreachable,
    /// ICMP: administratively prohibited.
    Prohibited,
    /// Nothing: the program's own clock decides.
    Silence,
}

impl Failure {
    /// Returns what the program is told.
    #[must_use]
    pub fn answer(&self) -> Answer {
        match self {
            Self::Manager(failure) => match failure.kind {
                FailureKind::Refused
                | FailureKind::Limit
                | FailureKind::Gone
                | FailureKind::Internal => Answer::Reset,
                FailureKind::HostUnreachable => Answer::HostUnreachable,
                FailureKind::NetworkUnreachable | FailureKind::Session => {
                    Answer::NetworkUnreachable
                }
                FailureKind::Denied => Answer::Prohibited,
                FailureKind::Timeout => Answer::Silence,
            },
            Self::Full => Answer::Reset,
            Self::Down => Answer::NetworkUnreachable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f1_each_kind_of_failure_has_its_answer() {
        let answers = FailureKind::ALL.map(|kind| {
            let failure = kubebridge_proto::flow::Failure::from(kind);
            (kind.word(), Failure::from(failure).answer())
        });
        assert_eq!(
            answers,
            [
                ("refused", Answer::Reset),
                ("host-unreachable", Answer::HostUnreachable),
                ("network-unreachable", Answer::NetworkUnreachable),
                ("timeout", Answer::Silence),
                ("denied", Answer::Prohibited),
                ("limit", Answer::Reset),
                ("session", Answer::NetworkUnreachable),
                ("gone", Answer::Reset),
                ("internal", Answer::Reset),
            ]
        );
        assert_eq!(Failure::Full.answer(), Answer::Reset);
        assert_eq!(Failure::Down.answer(), Answer::NetworkUnreachable);
    }
}
