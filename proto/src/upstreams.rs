//! The health of the manager's upstreams as it is told to laptops.
//!
//! When an upstream counts as down is the manager's business, not decided here.

use std::time::Duration;

use crate::error::InvalidMessage;
use crate::v1;
use crate::v1::upstream_status::State;

/// Tells whether an upstream is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UpstreamState {
    /// Nothing was heard of it yet.
    Unknown,
    /// It replies.
    Healthy,
    /// It failed several times in a row.
    Unhealthy,
    /// It leads back to the manager for some zone.
    Looped,
}

/// What the manager knows about one of its upstreams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamStatus {
    /// Tells it from all other upstreams the manager has had.
    pub id: u32,
    /// The upstream as it was configured, for example `tls://9.9.9.9#dns.quad9.net`.
    pub spec: String,
    /// Whether it is asked.
    pub state: UpstreamState,
    /// Its failures since it last replied.
    pub fails: u32,
    /// The last failure in words; it stays after a recovery.
    pub last_error: Option<String>,
    /// The smoothed round trip.
    pub rtt: Option<Duration>,
    /// How long ago it last replied.
    pub last_ok: Option<Duration>,
    /// The zones for which it leads back to the manager.
    pub looped_zones: Vec<String>,
}

impl From<UpstreamState> for State {
    fn from(state: UpstreamState) -> Self {
        match state {
            UpstreamState::Unknown => Self::Unspecified,
            UpstreamState::Healthy => Self::Healthy,
            UpstreamState::Unhealthy => Self::Unhealthy,
            UpstreamState::Looped => Self::Looped,
        }
    }
}

impl From<UpstreamStatus> for v1::UpstreamStatus {
    fn from(status: UpstreamStatus) -> Self {
        Self {
            spec: status.spec,
            state: State::from(status.state).into(),
            fails: status.fails,
            last_error: status.last_error.unwrap_or_default(),
            rtt_micros: whole(status.rtt.map(|rtt| rtt.as_micros())),
            last_ok_millis: whole(status.last_ok.map(|ago| ago.as_millis())),
            id: status.id,
            looped_zones: status.looped_zones,
        }
    }
}

impl TryFrom<v1::UpstreamStatus> for UpstreamStatus {
    type Error = InvalidMessage;

    fn try_from(message: v1::UpstreamStatus) -> Result<Self, InvalidMessage> {
        if message.spec.is_empty() {
            let field = "upstreams.spec";
            return Err(InvalidMessage::Missing { field });
        }
        let state = match State::try_from(message.state) {
            Ok(State::Unspecified) => UpstreamState::Unknown,
            Ok(State::Healthy) => UpstreamState::Healthy,
            Ok(State::Unhealthy) => UpstreamState::Unhealthy,
            Ok(State::Looped) => UpstreamState::Looped,
            Err(_) => {
                return Err(InvalidMessage::Unknown {
                    field: "upstreams.state",
                    value: message.state,
                });
            }
        };
        let some = |number: u64| (number > 0).then_some(number);
        Ok(Self {
            id: message.id,
            spec: message.spec,
            state,
            fails: message.fails,
            last_error: Some(message.last_error).filter(|error| !error.is_empty()),
            rtt: some(message.rtt_micros).map(Duration::from_micros),
            last_ok: some(message.last_ok_millis).map(Duration::from_millis),
            looped_zones: message.looped_zones,
        })
    }
}

/// Returns a number that is 0 only when there is none.
fn whole(number: Option<u128>) -> u64 {
    number.map_or(0, |number| u64::try_from(number).unwrap_or(u64::MAX).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(state: UpstreamState) -> UpstreamStatus {
        UpstreamStatus {
            id: 7,
            spec: "tls://9.9.9.9#dns.quad9.net".to_owned(),
            state,
            fails: 2,
            last_error: Some("no reply in time".to_owned()),
            rtt: Some(Duration::from_micros(1500)),
            last_ok: Some(Duration::from_millis(3)),
            looped_zones: vec!["cluster.local".to_owned()],
        }
    }

    #[test]
    fn a_status_arrives_as_it_was_sent() {
        for state in [
            UpstreamState::Unknown,
            UpstreamState::Healthy,
            UpstreamState::Unhealthy,
            UpstreamState::Looped,
        ] {
            let sent = status(state);
            let message = v1::UpstreamStatus::from(sent.clone());
            assert_eq!(UpstreamStatus::try_from(message), Ok(sent));
        }
    }

    #[test]
    fn what_is_not_known_stays_unknown() {
        let sent = UpstreamStatus {
            last_error: None,
            rtt: None,
            last_ok: None,
            ..status(UpstreamState::Unknown)
        };
        let message = v1::UpstreamStatus::from(sent.clone());
        assert_eq!((message.rtt_micros, message.last_ok_millis), (0, 0));
        assert_eq!(UpstreamStatus::try_from(message), Ok(sent));
    }

    #[test]
    fn a_reply_of_this_very_moment_is_not_taken_for_none() {
        let sent = UpstreamStatus {
            last_ok: Some(Duration::ZERO),
            ..status(UpstreamState::Healthy)
        };
        assert_eq!(v1::UpstreamStatus::from(sent).last_ok_millis, 1);
    }

    #[test]
    fn a_state_of_a_newer_manager_is_told_from_nonsense() {
        let mut message = v1::UpstreamStatus::from(status(UpstreamState::Healthy));
        message.state = 99;
        let error = UpstreamStatus::try_from(message.clone()).unwrap_err();
        assert!(error.is_from_newer_peer());
        message.spec.clear();
        let error = UpstreamStatus::try_from(message).unwrap_err();
        assert_eq!(error.to_string(), "upstreams.spec is missing");
    }
}
