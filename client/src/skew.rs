//! What two versions mean to each other: a client may be refused, or told to upgrade.
//!
//! Pure. Messages have room for both directions (`proto`); this only compares the numbers.

use std::cmp::Ordering;

use kubebridge_proto::names::parse_version;
use kubebridge_proto::session::SessionInfo;

/// This client's version.
pub const CLIENT: &str = env!("CARGO_PKG_VERSION");

/// How many minors a manager may be ahead of a client.
const MANAGER_AHEAD: u64 = 3;
/// How many minors a manager may be behind a client.
const MANAGER_BEHIND: u64 = 1;

/// The manager does not work with a client this old.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this client is version {client}, and the manager works with {minimum} and above")]
pub struct TooOld {
    client: String,
    minimum: String,
}

/// Checks that the manager works with this client.
///
/// # Errors
///
/// It does not.
pub fn check(session: &SessionInfo) -> Result<(), TooOld> {
    check_version(CLIENT, session)
}

fn check_version(client: &str, session: &SessionInfo) -> Result<(), TooOld> {
    match &session.minimum_client_version {
        Some(minimum) if is_below(client, minimum) => Err(TooOld {
            client: client.to_owned(),
            minimum: minimum.clone(),
        }),
        Some(_) | None => Ok(()),
    }
}

/// Says what the user should know about the two versions.
#[must_use]
pub fn warning(session: &SessionInfo) -> Option<String> {
    warning_for(CLIENT, session)
}

fn warning_for(client: &str, session: &SessionInfo) -> Option<String> {
    if let Some(recommended) = &session.recommended_client_version
        && is_below(client, recommended)
    {
        return Some(format!(
            "the manager recommends client {recommended} or above, this is {client}"
        ));
    }
    let manager = &session.manager_version;
    match distance(client, manager)? {
        (Ordering::Greater, minors) if minors > MANAGER_AHEAD => Some(format!(
            "the manager is version {manager}, this client {client}: more than {MANAGER_AHEAD} minors older is not tested"
        )),
        (Ordering::Less, minors) if minors > MANAGER_BEHIND => Some(format!(
            "the manager is version {manager}, this client {client}: more than {MANAGER_BEHIND} minor newer is not tested"
        )),
        (Ordering::Greater | Ordering::Less | Ordering::Equal, _) => None,
    }
}

/// Describes the distance for `status`; `None` when there is none.
#[must_use]
pub fn describe(manager: &str) -> Option<String> {
    describe_for(CLIENT, manager)
}

fn describe_for(client: &str, manager: &str) -> Option<String> {
    let (direction, minors) = distance(client, manager)?;
    let direction = match direction {
        Ordering::Greater => "newer",
        Ordering::Less => "older",
        Ordering::Equal => return None,
    };
    let (one, two) = (number(client)?, number(manager)?);
    Some(if one.0 != two.0 {
        format!("the manager is {direction} by a major version")
    } else if minors == 0 {
        format!("the manager is {direction} by a patch")
    } else {
        let plural = if minors == 1 { "" } else { "s" };
        format!("the manager is {direction} by {minors} minor version{plural}")
    })
}

/// How the manager stands to the client, and by how many minors; another major counts as many.
fn distance(client: &str, manager: &str) -> Option<(Ordering, u64)> {
    let (client, manager) = (number(client)?, number(manager)?);
    let minors = if client.0 == manager.0 {
        client.1.abs_diff(manager.1)
    } else {
        u64::MAX
    };
    Some((manager.cmp(&client), minors))
}

fn is_below(client: &str, bound: &str) -> bool {
    match (number(client), number(bound)) {
        (Some(client), Some(bound)) => client < bound,
        _ => false,
    }
}

fn number(version: &str) -> Option<(u64, u64, u64)> {
    parse_version("version", version).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_util::session_info;

    fn session(manager: &str, minimum: Option<&str>, recommended: Option<&str>) -> SessionInfo {
        SessionInfo {
            manager_version: manager.to_owned(),
            minimum_client_version: minimum.map(str::to_owned),
            recommended_client_version: recommended.map(str::to_owned),
            ..session_info(&[])
        }
    }

    #[test]
    fn a_client_below_the_minimum_is_refused_and_told_which_version_works() {
        let refused = check_version("0.4.9", &session("0.7.0", Some("0.5.0"), None));

        assert!(refused.unwrap_err().to_string().contains("0.5.0 and above"));
        for minimum in [None, Some("0.4.9"), Some("0.4.0")] {
            assert_eq!(
                check_version("0.4.9", &session("0.7.0", minimum, None)),
                Ok(())
            );
        }
    }

    #[test]
    fn the_skew_is_described_and_warned_of_beyond_what_is_supported() {
        let table = [
            ("0.4.0", "0.4.0", None, false),
            ("0.4.0", "0.4.2", Some("newer by a patch"), false),
            ("0.4.0", "0.7.0", Some("newer by 3 minor"), false),
            ("0.4.0", "0.8.0", Some("newer by 4 minor"), true),
            ("0.4.0", "0.3.9", Some("older by 1 minor"), false),
            ("0.4.0", "0.2.0", Some("older by 2 minor"), true),
            ("0.4.0", "1.0.0", Some("newer by a major"), true),
        ];
        for (client, manager, described, warned) in table {
            let said = describe_for(client, manager);
            match described {
                None => assert_eq!(said, None),
                Some(words) => assert!(said.unwrap().contains(words), "{manager}"),
            }
            let warning = warning_for(client, &session(manager, None, None));
            assert_eq!(warning.is_some(), warned, "{manager}: {warning:?}");
        }
    }

    #[test]
    fn a_client_below_the_recommended_version_is_told_so() {
        let warning = warning_for("0.4.0", &session("0.4.0", None, Some("0.4.1")));

        assert!(warning.unwrap().contains("0.4.1"));
    }
}
