//! What helps against each thing that can be in the way. Pure.

use kubebridge_proto::probe::Service;

use super::{LEFT_OUT, RESET_AT_ONCE, UNANSWERED};
use crate::proxy::Host;

/// What helps against a denial.
pub(super) fn denied(word: &str) -> String {
    match word {
        "namespace-not-granted" => {
            "the session has no right to that namespace: kubebridge namespace add NAMESPACE"
        }
        "no-such-port" => "the service has no such port: kubectl get service shows those it has",
        _ => {
            "the manager's --egress does not allow it: reach it by a service, or ask whoever runs the manager"
        }
    }
    .to_owned()
}

/// What helps against a dial that failed.
pub(super) fn failed(verdict: &str, service: Option<&Service>) -> String {
    let (namespace, name) = service.map_or(("NAMESPACE", "SERVICE"), |service| {
        (service.namespace.as_str(), service.name.as_str())
    });
    match verdict {
        "no-ready-endpoints" => format!(
            "no pod of the service is ready: kubectl -n {namespace} get endpointslices -l kubernetes.io/service-name={name}"
        ),
        "refused" => {
            "nothing listens there: compare the service's targetPort with what the container listens on; a mesh may refuse what has no certificate of its own".to_owned()
        }
        "timeout" => format!(
            "packets are dropped: a NetworkPolicy of {namespace} has to admit the traffic-manager's pod (namespace kubebridge, label app.kubernetes.io/name=traffic-manager), and a service mesh with strict mTLS has to except the port"
        ),
        "host-unreachable" | "network-unreachable" => {
            "the manager's pod has no way there: see the cluster's network".to_owned()
        }
        RESET_AT_ONCE => {
            "a service mesh with strict mTLS, or the program itself: kubebridge doctor HOST:PORT tells more".to_owned()
        }
        "limit" => "too many connections of this session: close some, or try again".to_owned(),
        "session" | "gone" => "the session is being renewed: try again".to_owned(),
        _ => "the manager's log tells more".to_owned(),
    }
}

/// What helps where the laptop's side says what is wrong.
pub(super) fn help_for(verdict: &str, host: &Host) -> Option<String> {
    Some(match verdict {
        "no-such-name" => "kubebridge routes shows the services of the session".to_owned(),
        "not-resolved" => format!(
            "kubebridge dns trace {host} tells how it was asked"
        ),
        "no-route" => "connect with --include-cidr to reach it, or by another name".to_owned(),
        "manager-unreachable" => "kubebridge status tells why".to_owned(),
        "not-told" => "upgrade the traffic-manager: kubebridge upgrade".to_owned(),
        "no-ready-endpoints" => "kubectl get endpointslices shows who is not ready".to_owned(),
        UNANSWERED => {
            "without a handshake nobody can tell silence from loss: see whether the server's log has a datagram of the traffic-manager's pod".to_owned()
        }
        LEFT_OUT => "kubebridge status tells why that network is not routed".to_owned(),
        _ => return None,
    })
}
