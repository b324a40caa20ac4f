//! What would become of a flow, as both sides know it. Words of the manager are text here, bounded and
//! fit to be printed.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::error::InvalidMessage;
use crate::flow::{Failure, FailureKind, Protocol};
use crate::v1;

/// The most characters of a text taken from a peer: a name and some words.
const MOST_TEXT: usize = 256;

/// The most addresses of endpoints that are told: what people read.
pub const MOST_ADDRESSES: usize = 16;

/// A flow that is asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeRequest {
    /// The session that asks.
    pub session_id: String,
    /// What it would carry.
    pub protocol: Protocol,
    /// Where to; the port is 0 for ICMP.
    pub destination: SocketAddr,
}

/// What would become of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probed {
    /// Whether the session may dial it.
    pub verdict: Verdict,
    /// The Service it belongs to, where it is granted.
    pub service: Option<Service>,
    /// How the dial went; `None` when there was none.
    pub dial: Option<Dial>,
}

/// Whether a session may dial, and the reason as a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It may.
    Allowed(String),
    /// It may not.
    Denied(String),
}

/// A Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its endpoints.
    pub endpoints: Endpoints,
    /// The addresses of those that take connections, [`MOST_ADDRESSES`] at most.
    pub ready: Vec<IpAddr>,
}

/// How the endpoints of a Service do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoints {
    /// So many are ready, of so many.
    Known {
        /// Those that take connections.
        ready: u32,
        /// All.
        total: u32,
    },
    /// They are not known; why, for people.
    Unknown(String),
}

/// How a dial went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dial {
    /// Why it failed; `None` when it did not.
    pub failure: Option<Failure>,
    /// How long it took.
    pub took: Duration,
    /// What came of one empty datagram, or of a moment on a connection without a word; `None`
    /// where neither was tried.
    pub heard: Option<Heard>,
}

/// What came of saying nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// Something was said.
    Answered,
    /// Neither an answer nor a refusal.
    Nothing,
    /// The connection was closed.
    Closed,
    /// The connection was reset.
    Reset,
}

impl Heard {
    fn word(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Nothing => "nothing",
            Self::Closed => "closed",
            Self::Reset => "reset",
        }
    }

    /// Of a word that only a newer manager knows nothing is known.
    fn read(word: &str) -> Option<Self> {
        let all = [Self::Answered, Self::Nothing, Self::Closed, Self::Reset];
        all.into_iter().find(|heard| heard.word() == word)
    }
}

impl TryFrom<v1::ProbeRequest> for ProbeRequest {
    type Error = InvalidMessage;

    fn try_from(wire: v1::ProbeRequest) -> Result<Self, Self::Error> {
        if wire.session_id.is_empty() {
            return Err(InvalidMessage::Missing {
                field: "session_id",
            });
        }
        let protocol = match wire.protocol() {
            v1::FlowProtocol::Tcp => Protocol::Tcp,
            v1::FlowProtocol::Udp => Protocol::Udp,
            v1::FlowProtocol::Icmp => Protocol::Icmp,
            v1::FlowProtocol::Unspecified => {
                let found = wire.protocol.to_string();
                return Err(InvalidMessage::invalid(
                    "protocol",
                    found,
                    "TCP, UDP or ICMP",
                ));
            }
        };
        let destination = wire.destination.parse().map_err(|_| {
            let reason = "expected ADDRESS:PORT";
            InvalidMessage::invalid("destination", &wire.destination, reason)
        })?;
        Ok(Self {
            session_id: wire.session_id,
            protocol,
            destination,
        })
    }
}

impl From<ProbeRequest> for v1::ProbeRequest {
    fn from(request: ProbeRequest) -> Self {
        let protocol = match request.protocol {
            Protocol::Tcp => v1::FlowProtocol::Tcp,
            Protocol::Udp => v1::FlowProtocol::Udp,
            Protocol::Icmp => v1::FlowProtocol::Icmp,
        };
        Self {
            session_id: request.session_id,
            protocol: protocol.into(),
            destination: request.destination.to_string(),
        }
    }
}

impl From<v1::ProbeResponse> for Probed {
    fn from(wire: v1::ProbeResponse) -> Self {
        let word = text(&wire.reason);
        let endpoints = wire.endpoints.unwrap_or_default();
        let ready = endpoints.ready_addresses.iter();
        let ready = ready.filter_map(|text| text.parse().ok());
        let ready = ready.take(MOST_ADDRESSES).collect();
        let endpoints = match endpoints.unknown.is_empty() {
            true => Endpoints::Known {
                ready: endpoints.ready,
                total: endpoints.total,
            },
            false => Endpoints::Unknown(text(&endpoints.unknown)),
        };
        let service = (!wire.service.is_empty()).then(|| Service {
            namespace: text(&wire.namespace),
            name: text(&wire.service),
            endpoints,
            ready,
        });
        let dial = wire.dial.map(|dial| Dial {
            // One that only a newer manager knows is no success.
            failure: (!dial.failure.is_empty()).then(|| Failure {
                kind: dial.failure.parse().unwrap_or(FailureKind::Internal),
                detail: (!dial.detail.is_empty()).then(|| text(&dial.detail)),
            }),
            took: Duration::from_micros(dial.took_micros),
            heard: Heard::read(&dial.heard),
        });
        Self {
            verdict: match wire.allowed {
                true => Verdict::Allowed(word),
                false => Verdict::Denied(word),
            },
            service,
            dial,
        }
    }
}

impl From<Probed> for v1::ProbeResponse {
    fn from(probed: Probed) -> Self {
        let (allowed, reason) = match probed.verdict {
            Verdict::Allowed(reason) => (true, reason),
            Verdict::Denied(reason) => (false, reason),
        };
        let dial = probed.dial.map(|dial| {
            let micros = dial.took.as_micros();
            v1::probe_response::Dial {
                detail: dial
                    .failure
                    .as_ref()
                    .and_then(|failure| failure.detail.clone())
                    .unwrap_or_default(),
                failure: dial
                    .failure
                    .map(|failure| failure.kind.word().to_owned())
                    .unwrap_or_default(),
                took_micros: u64::try_from(micros).unwrap_or(u64::MAX),
                heard: dial.heard.map(Heard::word).unwrap_or_default().to_owned(),
            }
        });
        let (namespace, service, endpoints) = match probed.service {
            None => (String::new(), String::new(), None),
            Some(service) => {
                let ready = service.ready.iter().take(MOST_ADDRESSES);
                let mut endpoints = v1::probe_response::Endpoints {
                    ready_addresses: ready.map(ToString::to_string).collect(),
                    ..Default::default()
                };
                match service.endpoints {
                    Endpoints::Known { ready, total } => {
                        (endpoints.ready, endpoints.total) = (ready, total);
                    }
                    Endpoints::Unknown(why) => endpoints.unknown = why,
                }
                (service.namespace, service.name, Some(endpoints))
            }
        };
        Self {
            allowed,
            reason,
            namespace,
            service,
            endpoints,
            dial,
        }
    }
}

/// Takes a text of a peer: not too long, and nothing that moves a terminal's cursor.
fn text(text: &str) -> String {
    let printable = text.chars().filter(|character| !character.is_control());
    printable.take(MOST_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probed() -> Probed {
        Probed {
            verdict: Verdict::Allowed("service".to_owned()),
            service: Some(Service {
                namespace: "shop".to_owned(),
                name: "authors".to_owned(),
                endpoints: Endpoints::Known { ready: 1, total: 3 },
                ready: vec!["10.244.1.21".parse().unwrap(), "fd00::21".parse().unwrap()],
            }),
            dial: Some(Dial {
                failure: Some(Failure::with_detail(FailureKind::Refused, "nobody")),
                took: Duration::from_micros(1500),
                heard: None,
            }),
        }
    }

    #[test]
    fn what_is_told_arrives() {
        let unknown = Probed {
            service: Some(Service {
                namespace: "shop".to_owned(),
                name: "authors".to_owned(),
                endpoints: Endpoints::Unknown("may not list endpointslices".to_owned()),
                ready: Vec::new(),
            }),
            dial: Some(Dial {
                failure: None,
                took: Duration::ZERO,
                heard: Some(Heard::Nothing),
            }),
            ..probed()
        };
        let denied = Probed {
            verdict: Verdict::Denied("not-listed".to_owned()),
            service: None,
            dial: None,
        };
        for told in [probed(), unknown, denied] {
            let wire = v1::ProbeResponse::from(told.clone());
            assert_eq!(Probed::from(wire), told);
        }
    }

    #[test]
    fn a_request_is_read_back_and_nonsense_is_refused_by_name() {
        let request = ProbeRequest {
            session_id: "1".to_owned(),
            protocol: Protocol::Udp,
            destination: "[fd00::1]:53".parse().unwrap(),
        };
        let wire = v1::ProbeRequest::from(request.clone());
        assert_eq!(ProbeRequest::try_from(wire.clone()), Ok(request));
        for (field, change) in [
            (
                "session_id",
                (|wire| wire.session_id.clear()) as fn(&mut v1::ProbeRequest),
            ),
            ("protocol", |wire| wire.protocol = 0),
            ("protocol", |wire| wire.protocol = 99),
            ("destination", |wire| {
                wire.destination = "authors:80".to_owned();
            }),
        ] {
            let mut wire = wire.clone();
            change(&mut wire);
            let error = ProbeRequest::try_from(wire).unwrap_err();
            assert!(error.to_string().contains(field), "{error}");
        }
    }

    #[test]
    fn a_newer_managers_failure_is_a_failure_and_text_is_harmless() {
        let mut wire = v1::ProbeResponse::from(probed());
        wire.reason = format!("a\u{1b}[2J{}", "x".repeat(1000));
        if let Some(dial) = &mut wire.dial {
            dial.failure = "eaten".to_owned();
            dial.heard = "a song".to_owned();
        }
        if let Some(endpoints) = &mut wire.endpoints {
            endpoints.ready_addresses = vec!["nowhere".to_owned(); 3];
            endpoints
                .ready_addresses
                .extend(vec!["fd00::1".to_owned(); 99]);
        }
        let told = Probed::from(wire);
        assert_eq!(told.service.unwrap().ready.len(), MOST_ADDRESSES);
        assert_eq!(told.dial.as_ref().unwrap().heard, None);
        let failure = told.dial.and_then(|dial| dial.failure).unwrap();
        assert_eq!(failure.kind, FailureKind::Internal);
        let Verdict::Allowed(word) = told.verdict else {
            panic!("{:?}", told.verdict);
        };
        assert!(
            word.starts_with("a[2Jx") && word.len() == MOST_TEXT,
            "{word}"
        );
    }
}
