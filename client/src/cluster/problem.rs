//! Why the cluster cannot be reached or does not let us in: what, why, and what helps.
//!
//! Reads the errors of the Kubernetes client; asks nobody. Texts of credentials never get here.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use kube::client::UpgradeConnectionError;

use super::transport::ProxyRefusal;
use crate::access::Lacking;
use crate::failure::{Exit, Failure};

/// What was being reached when something failed, for the words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The API server's URL.
    pub(super) server: String,
    /// The kubeconfig's context.
    pub(super) context: String,
    /// The proxy on the way, where there is one.
    pub(super) proxy: Option<String>,
}

/// How the words for what is being done begin where an upgrade to a WebSocket is.
pub(super) const FORWARD: &str = "port-forward";

/// What stands between us and the manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub(super) kind: Kind,
    what: String,
    hint: Option<String>,
}

/// What can be done about a problem, as far as the program has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The API server, or the manager behind it, is out of reach.
    Unreachable,
    /// What answers does not prove to be the API server the kubeconfig knows.
    Untrusted,
    /// The credentials are not accepted, or cannot be had.
    Unauthorized,
    /// The user may not do this.
    Forbidden,
    /// What was asked for is not there.
    Missing,
    /// Somebody else holds what was to be changed.
    Conflict,
    /// A file cannot be used.
    File,
}

impl Problem {
    pub(super) fn new(kind: Kind, what: impl Into<String>) -> Self {
        Self {
            kind,
            what: what.into(),
            hint: None,
        }
    }

    pub(super) fn with_hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }

    /// Nothing happened in time.
    pub(super) fn late(place: &Place, doing: &str, limit: Duration) -> Self {
        let way = via(place);
        Self::new(
            Kind::Unreachable,
            format!(
                "{doing}: no answer from {}{way} within {limit:?}",
                place.server
            ),
        )
        .with_hint(format!(
            "is the VPN up? kubectl --context {} version",
            place.context
        ))
    }

    /// Reads what the Kubernetes client said while `doing` something.
    pub(super) fn read(place: &Place, doing: &str, error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => api(place, doing, status),
            kube::Error::UpgradeConnection(error) => no_upgrade(place, doing, error),
            other => transport(place, doing, other),
        }
    }

    /// Says it of the token of a namespace: a right or an account that is not there is not there
    /// a moment later either.
    pub(super) fn lacking(self, namespace: String) -> Lacking {
        Lacking {
            namespace,
            exit: self.exit(),
            lasting: matches!(self.kind, Kind::Forbidden | Kind::Missing),
            why: self.what,
            help: self.hint,
        }
    }

    /// The exit code it leads to.
    fn exit(&self) -> Exit {
        match self.kind {
            Kind::Unreachable | Kind::Untrusted | Kind::Missing => Exit::Unreachable,
            Kind::Conflict => Exit::Busy,
            Kind::Unauthorized | Kind::Forbidden => Exit::Privilege,
            Kind::File => Exit::File,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.what)
    }
}

impl StdError for Problem {}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        let failure = Self::message(problem.exit(), problem.what);
        match problem.hint {
            Some(hint) => failure.with_hint(hint),
            None => failure,
        }
    }
}

/// How kube marks an answer that is no Status.
const NO_STATUS: &str = "Failed to parse error data";

/// The server answered, with an error.
fn api(place: &Place, doing: &str, status: &kube::core::Status) -> Problem {
    let said = first_line(&status.message);
    match status.code {
        // A page, or nothing: an API server says what is wrong in a Status.
        code if status.reason == NO_STATUS && code != 401 => {
            let said = format!("answered {code}, and not as an API server does");
            if doing.starts_with(FORWARD) {
                // What was asked for before came through.
                return blocked(place, doing, &said);
            }
            Problem::new(
                Kind::Unreachable,
                format!("{doing}: {}{} {said}", place.server, via(place)),
            )
            .with_hint(format!(
                "is a gateway in the way? kubectl --context {} version",
                place.context
            ))
        }
        401 => Problem::new(
            Kind::Unauthorized,
            format!(
                "{doing}: {} does not accept the credentials of context {}",
                place.server, place.context
            ),
        )
        .with_hint(format!(
            "log in again; kubectl --context {} version shows when it works",
            place.context
        )),
        // Rights that may not be given are listed on lines of their own.
        403 => Problem::new(
            Kind::Forbidden,
            format!("{doing}: {}", joined_lines(&status.message)),
        ),
        409 => Problem::new(
            Kind::Conflict,
            format!("{doing}: {}", joined_lines(&status.message)),
        ),
        404 => Problem::new(Kind::Missing, format!("{doing}: {said}")),
        // What a gateway makes of a request whose upgrade it has dropped.
        400 if said.contains("pgrade request required") => blocked(place, doing, &said),
        code => Problem::new(
            Kind::Unreachable,
            format!(
                "{doing}: {}{} answers {code}: {said}",
                place.server,
                via(place)
            ),
        ),
    }
}

fn no_upgrade(place: &Place, doing: &str, error: &UpgradeConnectionError) -> Problem {
    let said = match error {
        UpgradeConnectionError::ProtocolSwitch(status) => format!("answered {status}"),
        other => chain(other),
    };
    blocked(place, doing, &said)
}

/// Plain requests pass, a WebSocket does not.
fn blocked(place: &Place, doing: &str, said: &str) -> Problem {
    Problem::new(
        Kind::Unreachable,
        format!(
            "{doing}: something on the way to {}{} does not let WebSockets through ({said})",
            place.server,
            via(place)
        ),
    )
    .with_hint("have the proxy or gateway pass HTTP upgrades (Connection: Upgrade, Upgrade: websocket) to the API server, or go around it by NO_PROXY")
}

/// There was no answer.
fn transport(place: &Place, doing: &str, error: &kube::Error) -> Problem {
    let why = cause(error);
    let version = format!("kubectl --context {} version", place.context);
    let about = |text: String| {
        Problem::new(
            Kind::Unreachable,
            format!("{doing}: {}{}: {text}", place.server, via(place)),
        )
    };
    if let Some(refusal) = find::<ProxyRefusal>(error) {
        return if refusal.wants_user {
            about("the proxy wants a user and a password".to_owned()).with_hint(
                "HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT, or proxy-url in the kubeconfig",
            )
        } else if refusal
            .source()
            .is_some_and(|source| source.source().is_some())
        {
            about(format!("the proxy is out of reach: {why}"))
                .with_hint("HTTPS_PROXY, or proxy-url in the kubeconfig, says which proxy; NO_PROXY what goes around it")
        } else {
            about(format!("the proxy refuses to connect there ({refusal})"))
                .with_hint("name the API server in NO_PROXY, have the proxy allow CONNECT to it, or correct its user and password")
        };
    }
    match find::<rustls::Error>(error) {
        Some(rustls::Error::InvalidCertificate(_)) => {
            return Problem {
                kind: Kind::Untrusted,
                ..about(why)
            }
            .with_hint(
                "certificate-authority and tls-server-name of the kubeconfig's cluster say whom to trust",
            );
        }
        // With TLS 1.3 this is how a client certificate is refused.
        Some(rustls::Error::AlertReceived(_)) => {
            return Problem {
                kind: Kind::Unauthorized,
                ..about(why)
            }
            .with_hint(format!("is the client certificate still valid? {version}"));
        }
        Some(_) | None => {}
    }
    about(why).with_hint(format!("is the cluster up, and the VPN? {version}"))
}

fn via(place: &Place) -> String {
    let proxy = place.proxy.as_ref();
    proxy.map_or_else(String::new, |proxy| format!(" (by the proxy {proxy})"))
}

/// The innermost errors say why, the outer ones only where in the client.
fn cause(error: &dyn StdError) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    first_line(&last.to_string())
}

/// An error with its sources, in one line.
fn chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut at = error.source();
    while let Some(source) = at {
        let said = source.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        at = source.source();
    }
    first_line(&text)
}

/// The longest part of a peer's words that is repeated: a proxy may answer with a page.
const MOST_SAID: usize = 300;

fn first_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default().trim();
    line.chars().take(MOST_SAID).collect()
}

/// The longest list of an API server's that is repeated: the rights of a Role are in it.
const MOST_LISTED: usize = 2000;

fn joined_lines(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    lines.join(" ").trim().chars().take(MOST_LISTED).collect()
}

/// Looks for an error of one type among the sources, also inside of input-output errors.
fn find<'a, E: StdError + 'static>(error: &'a (dyn StdError + 'static)) -> Option<&'a E> {
    let mut at = Some(error);
    while let Some(error) = at {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        let within = error
            .downcast_ref::<std::io::Error>()
            .and_then(|error| error.get_ref());
        if let Some(found) = within.and_then(|within| find(within)) {
            return Some(found);
        }
        at = error.source();
    }
    None
}
