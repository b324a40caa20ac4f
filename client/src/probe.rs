//! One question to one resolver, and what kind of answer it got.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use kubebridge_dns::message::{self, QueryOptions};
use kubebridge_dns::name::{Name, RecordType, ResponseCode};
use kubebridge_dns::upstream::{Do53, OutgoingQuery, PortPolicy, Upstream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

/// What an answer means to a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The name has these addresses.
    Addresses(Vec<IpAddr>),
    /// The name exists without such an address.
    NoData,
    /// The name does not exist.
    NoSuchName,
    /// The resolver could not tell.
    Failed(ResponseCode),
}

impl Finding {
    /// Reads a reply.
    ///
    /// # Errors
    ///
    /// The reply is no DNS message.
    pub fn read(reply: &[u8]) -> anyhow::Result<Self> {
        let parsed = message::answers(reply)?;
        let addresses: Vec<_> = parsed.addresses().collect();
        Ok(match parsed.code {
            ResponseCode::NOERROR if addresses.is_empty() => Self::NoData,
            ResponseCode::NOERROR => Self::Addresses(addresses),
            ResponseCode::NXDOMAIN => Self::NoSuchName,
            other => Self::Failed(other),
        })
    }

    /// Whether two answers are of the same kind; addresses may differ from one answer to the next.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Addresses(_), Self::Addresses(_))
            | (Self::NoData, Self::NoData)
            | (Self::NoSuchName, Self::NoSuchName)
            | (Self::Failed(_), Self::Failed(_)) => true,
            (Self::Addresses(_) | Self::NoData | Self::NoSuchName | Self::Failed(_), _) => false,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Addresses(addresses) => {
                let texts: Vec<_> = addresses.iter().map(ToString::to_string).collect();
                f.write_str(&texts.join(", "))
            }
            Self::NoData => f.write_str("NODATA"),
            Self::NoSuchName => f.write_str("NXDOMAIN"),
            Self::Failed(code) => write!(f, "{code}"),
        }
    }
}

/// Makes the wire form of a question.
#[must_use]
pub fn query(name: &Name, rtype: RecordType) -> Vec<u8> {
    message::encode_query(rand::random(), name, rtype, QueryOptions::default())
}

/// Asks a resolver one question over the network.
///
/// # Errors
///
/// There was no reply, or none that can be read.
pub async fn ask(
    resolver: SocketAddr,
    name: &Name,
    rtype: RecordType,
    patience: Duration,
) -> anyhow::Result<Finding> {
    let upstream = Do53::new(resolver, PortPolicy::FreshPort);
    let question = OutgoingQuery::new(name.clone(), rtype);
    let reply = upstream
        .exchange(&question, Instant::now() + patience)
        .await?;
    Finding::read(&reply)
}

/// Asks a resolver one question over TCP.
///
/// # Errors
///
/// There was no reply, or none that can be read.
pub async fn ask_by_tcp(
    resolver: SocketAddr,
    name: &Name,
    rtype: RecordType,
    patience: Duration,
) -> anyhow::Result<Finding> {
    let question = query(name, rtype);
    let asking = async {
        let mut stream = TcpStream::connect(resolver).await?;
        let length = u16::try_from(question.len())?;
        let framed = [&length.to_be_bytes()[..], &question].concat();
        stream.write_all(&framed).await?;
        let length = stream.read_u16().await?;
        let mut reply = vec![0; length.into()];
        stream.read_exact(&mut reply).await?;
        anyhow::Ok(reply)
    };
    let reply = timeout(patience, asking).await;
    let reply = reply.map_err(|_| anyhow::anyhow!("no reply within {patience:?}"))??;
    anyhow::ensure!(
        reply.get(..2) == question.get(..2),
        "the reply is to something else"
    );
    Finding::read(&reply)
}
