//! The rules by which names go where they go, with their words.

use serde::{Deserialize, Serialize};

use super::Destination;

/// Why a name goes where it goes.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// It is the root.
    Root,
    /// A single label: a Service of the session's first namespace.
    Service,
    /// A single label, and the Services are not known yet.
    RoutesUnknown,
    /// A single label that is no Service.
    NoService,
    /// A single label that is no Service, with names below it.
    NamesBelow,
    /// Under a suffix of the session.
    Suffix,
    /// Under a namespace of the session, and made by a search list out of a name of the world.
    SearchNoise,
    /// Under a namespace that is also a suffix of the world: a known Service.
    SharedService,
    /// Under a namespace that is also a suffix of the world: no known Service.
    SharedOutside,
    /// Under no suffix of the session.
    Outside,
}

impl Rule {
    /// Says where it sends a query.
    #[must_use]
    pub fn destination(self) -> Destination {
        match self {
            Self::Service | Self::RoutesUnknown | Self::Suffix | Self::SharedService => {
                Destination::Cluster
            }
            Self::Root | Self::SharedOutside | Self::Outside => Destination::Originals,
            Self::NoService | Self::SearchNoise => Destination::NoSuchName,
            Self::NamesBelow => Destination::NoData,
        }
    }

    /// Says it in words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Root => "the root: asked outside",
            Self::Service => "a single label: a Service of the session's namespace",
            Self::RoutesUnknown => "a single label: the Services are not known yet",
            Self::NoService => "a single label that is no Service: it is never asked outside",
            Self::NamesBelow => "a single label with names below it only",
            Self::Suffix => "under a suffix of the session",
            Self::SearchNoise => {
                "more labels than a Service has: made by a search list, so it does not exist"
            }
            Self::SharedService => "a known Service, under a namespace that is a public suffix too",
            Self::SharedOutside => {
                "no known Service, under a namespace that is a public suffix too"
            }
            Self::Outside => "outside the cluster",
        }
    }
}

impl Destination {
    /// Says it in words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Cluster => "the manager",
            Self::Originals => "the original servers",
            Self::NoSuchName => "nowhere: it does not exist",
            Self::NoData => "nowhere: it has no records",
        }
    }
}
