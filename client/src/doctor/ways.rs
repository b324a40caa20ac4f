//! The ways by which a name can be asked for on this machine, each asked by itself.
//!
//! What the C library says is what programs get; the others are there to say where it differs.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures::future::join_all;
use kubebridge_dns::name::{Name, RecordType};
use kubebridge_platform::{Family, LookupError, Sys, lookup_through_resolved};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::finding::Reading;
use crate::failure::chain;
use crate::probe::{self, Finding as Answer};

/// How long a way may take: two tries of the C library at one server have 10 s, and a way that
/// needs more than this is in trouble.
const PATIENCE: Duration = Duration::from_secs(4);
/// How long one server may take.
const SERVER: Duration = Duration::from_secs(2);

/// One way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Way {
    /// What programs call.
    Library,
    /// systemd-resolved over D-Bus.
    Resolved,
    /// A server, by UDP.
    Udp(SocketAddr),
    /// A server, by TCP.
    Tcp(SocketAddr),
}

/// What a way said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) way: Way,
    pub(super) answer: Reading<Answer>,
}

impl Told {
    /// Whether it gave addresses.
    pub(super) fn is_found(&self) -> bool {
        matches!(self.answer, Ok(Answer::Addresses(_)))
    }

    /// Whether it could be asked at all.
    pub(super) fn is_answered(&self) -> bool {
        matches!(
            self.answer,
            Ok(Answer::Addresses(_) | Answer::NoData | Answer::NoSuchName)
        )
    }

    /// The addresses it gave.
    pub(super) fn addresses(&self) -> &[IpAddr] {
        match &self.answer {
            Ok(Answer::Addresses(found)) => found,
            Ok(Answer::NoData | Answer::NoSuchName | Answer::Failed(_)) | Err(_) => &[],
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Library => formatter.write_str("getaddrinfo"),
            Self::Resolved => formatter.write_str("systemd-resolved by D-Bus"),
            Self::Udp(server) => write!(formatter, "{} by UDP", server.ip()),
            Self::Tcp(server) => write!(formatter, "{} by TCP", server.ip()),
        }
    }
}

impl fmt::Display for Told {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { way, answer } = self;
        match answer {
            Ok(answer) => write!(formatter, "{way}: {answer}"),
            Err(error) => write!(formatter, "{way}: {error}"),
        }
    }
}

/// Asks all ways for a name at once.
pub(super) async fn ask(sys: &Sys, name: &Name, ways: &[Way]) -> Vec<Told> {
    let asked = ways.iter().map(|&way| async move {
        let answer = timeout(PATIENCE, by(sys, name, way)).await;
        let late = |_| Err(format!("no answer within {PATIENCE:?}"));
        Told {
            way,
            answer: answer.unwrap_or_else(late),
        }
    });
    join_all(asked).await
}

async fn by(sys: &Sys, name: &Name, way: Way) -> Reading<Answer> {
    match way {
        Way::Library => library(name).await,
        Way::Resolved => resolved(sys, name).await,
        Way::Udp(server) => {
            let ask = |rtype| probe::ask(server, name, rtype, SERVER);
            either(ask(RecordType::A).await, || ask(RecordType::AAAA)).await
        }
        Way::Tcp(server) => {
            let ask = |rtype| probe::ask_by_tcp(server, name, rtype, SERVER);
            either(ask(RecordType::A).await, || ask(RecordType::AAAA)).await
        }
    }
}

/// A name that has an address of the other family only has one.
async fn either<F: Future<Output = anyhow::Result<Answer>>>(
    first: anyhow::Result<Answer>,
    second: impl FnOnce() -> F,
) -> Reading<Answer> {
    let answer = match first {
        Ok(Answer::NoData) => second().await,
        other => other,
    };
    answer.map_err(|error| chain(&error))
}

async fn resolved(sys: &Sys, name: &Name) -> Reading<Answer> {
    match lookup_through_resolved(sys, &text(name), Family::Any).await {
        Ok(addresses) => Ok(Answer::Addresses(addresses)),
        Err(LookupError::NotFound(_)) => Ok(Answer::NoSuchName),
        Err(LookupError::NoData(_)) => Ok(Answer::NoData),
        Err(error @ LookupError::Failed { .. }) => Err(chain(&error.into())),
    }
}

/// Asks the C library in a thread of its own: it cannot be told to stop, and nobody waits for it
/// when the command ends.
async fn library(name: &Name) -> Reading<Answer> {
    let (said, hears) = oneshot::channel();
    let host = text(name);
    let asking = std::thread::Builder::new().name("getaddrinfo".to_owned());
    let started = asking.spawn(move || {
        let found = std::net::ToSocketAddrs::to_socket_addrs(&(host.as_str(), 0));
        // Nobody waits any longer.
        let _ = said.send(found.map(|all| all.map(|one| one.ip()).collect::<Vec<_>>()));
    });
    started.map_err(|error| error.to_string())?;
    match hears.await.map_err(|_| "it ended without a word")? {
        Ok(mut addresses) => {
            addresses.sort();
            addresses.dedup();
            Ok(Answer::Addresses(addresses))
        }
        Err(error) => of_library(&error.to_string()),
    }
}

/// The C library's words, of glibc and musl, for a name that is not there; the rest is trouble.
fn of_library(words: &str) -> Reading<Answer> {
    let says = |some: &[&str]| some.iter().any(|part| words.contains(part));
    if says(&["No address associated", "Name has no usable address"]) {
        Ok(Answer::NoData)
    } else if says(&["Name or service not known", "Name does not resolve"]) {
        Ok(Answer::NoSuchName)
    } else {
        Err(words.to_owned())
    }
}

/// The name as programs write it.
fn text(name: &Name) -> String {
    let text = name.to_string();
    text.strip_suffix('.').unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_librarys_words_tell_a_name_that_is_not_there_from_trouble() {
        let prefix = "failed to lookup address information: ";
        for (words, answer) in [
            ("Name or service not known", Some(Answer::NoSuchName)),
            ("Name does not resolve", Some(Answer::NoSuchName)),
            ("No address associated with hostname", Some(Answer::NoData)),
            ("Temporary failure in name resolution", None),
        ] {
            let found = of_library(&format!("{prefix}{words}"));
            assert_eq!(found.ok(), answer, "{words}");
        }
    }

    #[tokio::test]
    async fn the_library_finds_what_every_machine_has() {
        let name = "localhost".parse().unwrap();
        let told = ask(&Sys::default(), &name, &[Way::Library]).await;
        assert!(told[0].is_found(), "{told:?}");
    }
}
