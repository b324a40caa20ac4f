//! What `status` and `routes` tell of the IP routes into the session's link.
//!
//! Plain data and its words; what is routed is decided in the session.

use kubebridge_platform::routes::{Hole, Overlap};
use serde::{Deserialize, Serialize};

/// The IP routes of a session.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct RoutingReport {
    /// Whether they are set; before that they are a plan.
    pub applied: bool,
    /// The networks that lead into the link, in order.
    pub networks: Vec<NetworkReport>,
    /// Single hosts outside them, by address.
    pub hosts: Vec<HostRouteReport>,
    /// What was left out of the networks because somebody else has it, in order.
    pub holes: Vec<HoleReport>,
    /// The machine's routes that stood in the way, in order.
    pub overlaps: Vec<OverlapReport>,
    /// What the user has the session take from wider routes of the machine, in order.
    #[serde(default)]
    pub taken: Vec<OverlapReport>,
    /// Wanted networks that are not routed at all.
    pub left_out: Vec<LeftOutReport>,
    /// Why the routes are not as wanted now.
    pub error: Option<String>,
}

/// One network that leads into the link.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct NetworkReport {
    /// The network.
    pub network: String,
    /// What for: `services`, `pods`, `--include-cidr`, or a Service outside the known networks.
    pub purposes: Vec<String>,
}

/// A host that is routed for a while.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct HostRouteReport {
    /// Its address.
    pub address: String,
    /// The name it was an answer for.
    pub name: String,
    /// How long it stays, unless it is asked for again or has connections.
    pub seconds: u64,
}

/// What is left to somebody else.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct HoleReport {
    /// The network or address.
    pub network: String,
    /// Whose it is.
    pub reason: String,
    /// By which link it is reached, where that is known.
    pub via: Option<String>,
}

/// Two routes that share addresses.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct OverlapReport {
    /// The network that is wanted.
    pub ours: String,
    /// The machine's route.
    pub theirs: String,
    /// Its link, where that is known.
    pub via: Option<String>,
}

/// A wanted network that is not routed.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct LeftOutReport {
    /// The network.
    pub network: String,
    /// Why.
    pub reason: String,
}

impl From<&Hole> for HoleReport {
    fn from(hole: &Hole) -> Self {
        Self {
            network: hole.net.to_string(),
            reason: hole.why.to_string(),
            via: hole.via.clone(),
        }
    }
}

impl From<&Overlap> for OverlapReport {
    fn from(overlap: &Overlap) -> Self {
        Self {
            ours: overlap.ours.to_string(),
            theirs: overlap.theirs.to_string(),
            via: overlap.via.clone(),
        }
    }
}

/// Shows the routes as rows of a label and a value.
#[must_use]
pub(crate) fn routing_rows(report: &RoutingReport) -> Vec<(&'static str, String)> {
    let head = if report.applied {
        "IP routes"
    } else {
        "IP routes planned"
    };
    let mut rows: Vec<_> = report
        .networks
        .iter()
        .map(|one| {
            (
                head,
                format!("{} ({})", one.network, one.purposes.join(", ")),
            )
        })
        .collect();
    rows.extend(report.hosts.iter().map(|host| {
        let HostRouteReport {
            address,
            name,
            seconds,
        } = host;
        (head, format!("{address} ({name}, {seconds} s more)"))
    }));
    rows.extend(report.holes.iter().map(|hole| {
        let via = via(hole.via.as_deref());
        (
            "  left alone",
            format!("{}{via}: {}", hole.network, hole.reason),
        )
    }));
    rows.extend(report.taken.iter().map(|one| {
        let via = via(one.via.as_deref());
        let words = format!("{} from the route {}{via}", one.ours, one.theirs);
        ("  taken", words)
    }));
    let left_out = report.left_out.iter();
    rows.extend(left_out.map(|one| ("  not routed", format!("{}: {}", one.network, one.reason))));
    rows.extend(report.error.clone().map(|error| ("  error", error)));
    rows
}

fn via(link: Option<&str>) -> String {
    link.map(|link| format!(" dev {link}")).unwrap_or_default()
}
