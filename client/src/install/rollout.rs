//! How far the manager's Deployment is, and why it is not further. Pure.

use serde_json::Value;

/// What is to be waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rollout {
    /// All managers are new and ready: how many.
    Ready(u64),
    /// Not yet; why.
    Waiting(String),
}

/// Reads a Deployment and its Pods.
#[must_use]
pub fn look(deployment: &Value, pods: &[Value]) -> Rollout {
    let status = &deployment["status"];
    let count = |name: &str| status[name].as_u64().unwrap_or(0);
    let wanted = deployment["spec"]["replicas"].as_u64().unwrap_or(1);
    if count("observedGeneration") < deployment["metadata"]["generation"].as_u64().unwrap_or(0) {
        return Rollout::Waiting("the cluster has not looked at the Deployment yet".to_owned());
    }
    let updated = count("updatedReplicas");
    let is_done =
        updated == wanted && count("replicas") == wanted && count("availableReplicas") == wanted;
    if is_done {
        return Rollout::Ready(wanted);
    }
    let why = refusal(status)
        .or_else(|| pods.iter().rev().find_map(of_pod))
        .unwrap_or_else(|| match updated < wanted {
            true => format!("{updated} of {wanted} pods are new"),
            false => format!("{} of {wanted} pods are ready", count("availableReplicas")),
        });
    Rollout::Waiting(why)
}

/// What keeps pods from being made at all.
fn refusal(status: &Value) -> Option<String> {
    let conditions = status["conditions"].as_array()?;
    let failing = conditions
        .iter()
        .find(|condition| condition["type"] == "ReplicaFailure" && condition["status"] == "True")?;
    Some(format!(
        "pods are refused: {}",
        failing["message"].as_str().unwrap_or("no reason given")
    ))
}

/// Why a pod is not ready.
fn of_pod(pod: &Value) -> Option<String> {
    let name = pod["metadata"]["name"].as_str()?;
    let status = &pod["status"];
    if !pod["metadata"]["deletionTimestamp"].is_null() {
        return None;
    }
    let with = |reason: &str, message: &Value| match message.as_str() {
        Some(message) if !message.is_empty() => format!("pod {name}: {reason}: {message}"),
        _ => format!("pod {name}: {reason}"),
    };
    let containers = status["containerStatuses"].as_array();
    for container in containers.into_iter().flatten() {
        let waiting = &container["state"]["waiting"];
        if let Some(reason) = waiting["reason"].as_str() {
            let ended = &container["lastState"]["terminated"];
            return Some(match ended["exitCode"].as_u64() {
                Some(code) => format!(
                    "pod {name}: {reason}: it ended with {code} ({})",
                    ended["reason"].as_str().unwrap_or("no reason")
                ),
                None => with(reason, &waiting["message"]),
            });
        }
        let ended = &container["state"]["terminated"];
        if let Some(code) = ended["exitCode"].as_u64() {
            return Some(with(&format!("it ended with {code}"), &ended["message"]));
        }
    }
    let condition = |kind: &str| {
        let conditions = status["conditions"].as_array()?;
        conditions
            .iter()
            .find(|condition| condition["type"] == kind && condition["status"] == "False")
    };
    if let Some(unplaced) = condition("PodScheduled") {
        return Some(with("no node takes it", &unplaced["message"]));
    }
    match status["phase"].as_str() {
        Some("Running") => {
            condition("Ready").map(|_| with("it runs and is not ready", &Value::Null))
        }
        Some(phase) => Some(with(phase, &status["message"])),
        None => Some(with("no status", &Value::Null)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment(updated: u64, all: u64, available: u64) -> Value {
        json!({
            "metadata": {"generation": 2},
            "spec": {"replicas": 2},
            "status": {
                "observedGeneration": 2, "updatedReplicas": updated, "replicas": all,
                "availableReplicas": available,
            },
        })
    }

    fn why(deployment: &Value, pods: &[Value]) -> String {
        match look(deployment, pods) {
            Rollout::Waiting(why) => why,
            Rollout::Ready(count) => panic!("{count} are ready"),
        }
    }

    #[test]
    fn it_is_ready_when_all_are_new_available_and_no_old_one_is_left() {
        assert_eq!(look(&deployment(2, 2, 2), &[]), Rollout::Ready(2));
        assert_eq!(why(&deployment(1, 2, 2), &[]), "1 of 2 pods are new");
        assert_eq!(why(&deployment(2, 2, 1), &[]), "1 of 2 pods are ready");
        assert_eq!(why(&deployment(2, 3, 2), &[]), "2 of 2 pods are ready");
        let mut stale = deployment(2, 2, 2);
        stale["metadata"]["generation"] = 3.into();
        assert!(why(&stale, &[]).contains("not looked at"));
    }

    #[test]
    fn why_a_pod_is_not_ready_is_told() {
        let pod = |status: Value| json!({"metadata": {"name": "m-1"}, "status": status});
        let waits = |reason: &str, message: &str, last: Value| {
            pod(json!({"phase": "Pending", "containerStatuses": [{
                "state": {"waiting": {"reason": reason, "message": message}}, "lastState": last,
            }]}))
        };
        let table = [
            (
                waits("ImagePullBackOff", "not found", json!({})),
                "pod m-1: ImagePullBackOff: not found",
            ),
            (
                waits(
                    "CrashLoopBackOff",
                    "back-off 10s",
                    json!({"terminated": {"exitCode": 64, "reason": "Error"}}),
                ),
                "pod m-1: CrashLoopBackOff: it ended with 64 (Error)",
            ),
            (
                pod(json!({"phase": "Pending", "conditions": [{
                    "type": "PodScheduled", "status": "False", "message": "0/3 nodes",
                }]})),
                "pod m-1: no node takes it: 0/3 nodes",
            ),
            (
                pod(json!({"phase": "Running", "conditions": [
                    {"type": "Ready", "status": "False"},
                ]})),
                "pod m-1: it runs and is not ready",
            ),
            (pod(json!({"phase": "Pending"})), "pod m-1: Pending"),
        ];
        for (pod, expected) in table {
            assert_eq!(why(&deployment(2, 2, 0), &[pod]), expected);
        }
    }

    #[test]
    fn pods_that_are_refused_are_told_before_pods_that_are_there() {
        let mut refused = deployment(0, 0, 0);
        refused["status"]["conditions"] = json!([{
            "type": "ReplicaFailure", "status": "True", "message": "violates PodSecurity",
        }]);
        assert_eq!(why(&refused, &[]), "pods are refused: violates PodSecurity");
    }
}
