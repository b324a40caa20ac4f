//! Which Pod of the manager to take. Pure.

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use k8s_openapi::jiff::Timestamp;

/// A Pod as far as the choice goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) name: String,
    created: Option<Timestamp>,
    /// Why it cannot be taken.
    unfit: Option<String>,
}

impl Candidate {
    pub(super) fn read(pod: &Pod) -> Self {
        let status = pod.status.as_ref();
        let unfit = if pod.metadata.deletion_timestamp.is_some() {
            Some("is being ended".to_owned())
        } else if is_ready(status) {
            None
        } else {
            Some(format!("is not ready ({})", why_not(status)))
        };
        Self {
            name: pod.metadata.name.clone().unwrap_or_default(),
            created: pod.metadata.creation_timestamp.as_ref().map(|time| time.0),
            unfit,
        }
    }
}

/// Puts the Pods that can be taken in the order in which to try them: the newest first, but one
/// that has just failed last.
pub(super) fn order(candidates: &[Candidate], failed: Option<&str>) -> Vec<String> {
    let mut fit: Vec<_> = candidates
        .iter()
        .filter(|candidate| candidate.unfit.is_none())
        .collect();
    fit.sort_by(|one, other| {
        let suspect = |candidate: &Candidate| failed == Some(candidate.name.as_str());
        suspect(one)
            .cmp(&suspect(other))
            .then(other.created.cmp(&one.created))
            .then(one.name.cmp(&other.name))
    });
    fit.iter().map(|candidate| candidate.name.clone()).collect()
}

/// Says why none can be taken; `None` when there is no Pod at all.
pub(super) fn why_none(candidates: &[Candidate]) -> Option<String> {
    let words: Vec<_> = candidates
        .iter()
        .map(|candidate| {
            let why = candidate.unfit.as_deref().unwrap_or("can be taken");
            format!("{} {why}", candidate.name)
        })
        .collect();
    (!words.is_empty()).then(|| words.join(", "))
}

fn is_ready(status: Option<&PodStatus>) -> bool {
    let conditions = status.and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|conditions| {
        conditions
            .iter()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True")
    })
}

/// What a container waits for says more than the Pod's phase.
fn why_not(status: Option<&PodStatus>) -> String {
    let Some(status) = status else {
        return "no status".to_owned();
    };
    let containers = status.container_statuses.as_deref().unwrap_or_default();
    let waiting = containers.iter().find_map(|container| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        waiting.reason.clone()
    });
    waiting
        .or_else(|| status.phase.clone())
        .unwrap_or_else(|| "no phase".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, created: &str, ready: &str, ending: bool) -> Candidate {
        let mut pod: Pod = serde_json::from_value(serde_json::json!({
            "metadata": {"name": name, "creationTimestamp": created},
            "status": {
                "phase": "Running",
                "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": ready}],
            },
        }))
        .unwrap();
        if ending {
            pod.metadata.deletion_timestamp = pod.metadata.creation_timestamp.clone();
        }
        Candidate::read(&pod)
    }

    #[test]
    fn the_newest_ready_pod_that_stays_is_first() {
        let pods = [
            pod("old", "2026-11-01T00:00:00Z", "True", false),
            pod("ending", "2026-11-04T00:00:00Z", "True", true),
            pod("new", "2026-11-02T00:00:00Z", "True", false),
            pod("starting", "2026-11-03T00:00:00Z", "False", false),
        ];
        assert_eq!(order(&pods, None), ["new", "old"]);
    }

    #[test]
    fn a_pod_that_has_just_failed_is_last_but_not_left_out() {
        let pods = [
            pod("old", "2026-11-01T00:00:00Z", "True", false),
            pod("new", "2026-11-02T00:00:00Z", "True", false),
        ];
        assert_eq!(order(&pods, Some("new")), ["old", "new"]);
        assert_eq!(order(&pods[1..], Some("new")), ["new"]);
    }

    #[test]
    fn pods_of_the_same_second_are_taken_by_name() {
        let pods = [
            pod("b", "2026-11-01T00:00:00Z", "True", false),
            pod("a", "2026-11-01T00:00:00Z", "True", false),
        ];
        assert_eq!(order(&pods, None), ["a", "b"]);
    }

    #[test]
    fn why_no_pod_can_be_taken_is_told_of_each() {
        let mut stuck: Pod = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "stuck"},
            "status": {
                "phase": "Pending",
                "containerStatuses": [{
                    "name": "m", "image": "m", "imageID": "", "ready": false, "restartCount": 0,
                    "state": {"waiting": {"reason": "ImagePullBackOff"}},
                }],
            },
        }))
        .unwrap();
        let ending = pod("ending", "2026-11-04T00:00:00Z", "True", true);
        assert_eq!(
            why_none(&[Candidate::read(&stuck), ending]).unwrap(),
            "stuck is not ready (ImagePullBackOff), ending is being ended"
        );

        stuck.status = None;
        assert_eq!(
            why_none(&[Candidate::read(&stuck)]).unwrap(),
            "stuck is not ready (no status)"
        );
        assert_eq!(why_none(&[]), None);
    }
}
