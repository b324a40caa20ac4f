//! What a way comes to, in words. Pure.

use std::net::SocketAddr;

use kubebridge_proto::flow::Protocol;

use super::manifests::{network_policy, peer_authentication};
use crate::cluster::meshes::{Kind, Mesh};
use crate::doctor::{Check, Finding, Verdict};
use crate::failure::Exit;
use crate::flows::AbruptStatus;
use crate::inquiry::path::{PathReport, PathStep, PathTarget};
use crate::status::StatusReport;

/// What is known of the mesh of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Injected {
    /// Nobody looked: nothing called for it.
    NotAsked,
    /// It is in one.
    In(Mesh),
    /// It says nothing of one; pods may, for themselves.
    NotSaid,
    /// Nobody could look.
    Unknown(String),
}

/// A Service, as the steps name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Service<'a> {
    pub(super) name: &'a str,
    pub(super) namespace: &'a str,
}

/// All that is known of a way.
#[derive(Clone, Debug)]
pub(super) struct Seen<'a> {
    protocol: Protocol,
    report: &'a PathReport,
    /// Connections to there that were reset before anything came from it.
    abrupt: Vec<&'a AbruptStatus>,
    pub(super) mesh: Injected,
}

impl<'a> Seen<'a> {
    pub(super) fn new(
        wanted: &PathTarget,
        report: &'a PathReport,
        session: &'a StatusReport,
    ) -> Self {
        let addresses = report.addresses.iter();
        let here: Vec<_> = addresses
            .map(|one| SocketAddr::new(one.address, wanted.target.port))
            .collect();
        // Only TCP has resets.
        let is_tcp = wanted.protocol == Protocol::Tcp;
        let flows = session.flows.iter().filter(|_| is_tcp);
        let flows = flows.flat_map(|flows| &flows.abrupt);
        Self {
            protocol: wanted.protocol,
            report,
            abrupt: flows
                .filter(|one| here.contains(&one.destination))
                .collect(),
            mesh: Injected::NotAsked,
        }
    }
}

/// Whether a mesh may be why.
pub(super) fn is_suspicious(seen: &Seen<'_>) -> bool {
    let verdict = seen.report.verdict.as_str();
    ["timeout", "refused", "reset-at-once"].contains(&verdict) || !seen.abrupt.is_empty()
}

/// The Service that the manager says it is: the end of the step that judges.
pub(super) fn service_of(report: &PathReport) -> Option<Service<'_>> {
    let egress = report.steps.iter().find(|step| step.step == "egress")?;
    let (_, service) = egress.detail.rsplit_once(", service ")?;
    let (name, namespace) = service.split_once('.')?;
    Some(Service { name, namespace })
}

/// Judges a way.
pub(super) fn judge(seen: &Seen<'_>) -> Finding {
    let report = seen.report;
    let finding = match seen.protocol {
        Protocol::Icmp => ping(report),
        Protocol::Tcp | Protocol::Udp => target(seen),
    };
    let abrupt = seen.abrupt.iter().map(|one| {
        let (count, seconds) = (one.count, one.ago_millis / 1000);
        format!(
            "{count} connections from here to {} were reset before anything came back, the last {seconds} s ago",
            one.destination
        )
    });
    let mesh = match &seen.mesh {
        Injected::In(mesh) => Some(format!(
            "its namespace is in {}: {}",
            mesh.kind.name(),
            mesh.evidence
        )),
        Injected::NotSaid => Some("its namespace says nothing of a service mesh".to_owned()),
        Injected::Unknown(error) => Some(format!(
            "whether its namespace is in a service mesh is not known: {error}"
        )),
        Injected::NotAsked => None,
    };
    finding
        .seen(report.steps.iter().map(step))
        .seen(abrupt.collect::<Vec<_>>())
        .seen(mesh)
}

fn step(step: &PathStep) -> String {
    let PathStep {
        step,
        verdict,
        detail,
        ..
    } = step;
    format!("{step} {verdict}: {detail}")
}

/// Verdicts that need no more than words: how it is, the word for it, and the sentence.
const PLAIN: [(&str, Verdict, &str, &str); 17] = [
    (
        "reachable",
        Verdict::Ok,
        "reachable",
        "a connection is made there",
    ),
    (
        "outside",
        Verdict::Note,
        "outside",
        "it is not the cluster's: this machine connects by itself",
    ),
    (
        "unanswered",
        Verdict::Note,
        "unanswered",
        "nobody refused a datagram there, and nobody answered one",
    ),
    (
        "partly",
        Verdict::Warn,
        "partly",
        "some of its addresses lead there, others do not",
    ),
    (
        "no-such-name",
        Verdict::Fail,
        "no-such-name",
        "there is no such name: no service of the session's namespaces has it, and nobody else",
    ),
    (
        "not-resolved",
        Verdict::Fail,
        "not-resolved",
        "its name could not be resolved",
    ),
    (
        "left-out",
        Verdict::Fail,
        "left-out",
        "its network is one that this session does not route",
    ),
    (
        "no-ready-endpoints",
        Verdict::Fail,
        "no-ready-endpoints",
        "no pod behind the service is ready",
    ),
    (
        "host-unreachable",
        Verdict::Fail,
        "unreachable",
        UNREACHABLE,
    ),
    (
        "network-unreachable",
        Verdict::Fail,
        "unreachable",
        UNREACHABLE,
    ),
    (
        "limit",
        Verdict::Fail,
        "limit",
        "the manager's limit of flows or dials of this session is reached",
    ),
    (
        "session",
        Verdict::Fail,
        "session",
        "the session's tokens have expired, or the manager was replaced",
    ),
    (
        "gone",
        Verdict::Fail,
        "gone",
        "the manager's pod that had it is gone",
    ),
    (
        "manager-unreachable",
        Verdict::Fail,
        "manager-unreachable",
        "the manager does not answer",
    ),
    (
        "not-told",
        Verdict::Fail,
        "manager-too-old",
        "the manager is too old to be asked",
    ),
    (
        "internal",
        Verdict::Fail,
        "internal",
        "the manager could not try: its log tells why",
    ),
    (
        "unknown",
        Verdict::Note,
        "unknown",
        "nothing is known of the way there",
    ),
];

const UNREACHABLE: &str =
    "the manager's pod has no way to it: the cluster's network drops it, or the pod is gone";

fn target(seen: &Seen<'_>) -> Finding {
    const CHECK: Check = Check::Target;
    let report = seen.report;
    let service = service_of(report);
    match report.verdict.as_str() {
        "reset-at-once" => return reset(seen, service),
        "reachable" if !seen.abrupt.is_empty() => return reset(seen, service),
        "denied" => return denied(report, service),
        "refused" => return refused(seen, service),
        "timeout" => return silent(seen, service),
        "no-route" => return no_route(report),
        _ => {}
    }
    let plain = PLAIN
        .iter()
        .find(|(verdict, ..)| *verdict == report.verdict);
    let finding = match plain {
        Some((_, verdict, found, why)) => Finding::of(CHECK, *verdict, found, *why),
        None => Finding::fail(CHECK, "other", format!("it fails: {}", report.verdict)),
    };
    let finding = match &report.help {
        Some(help) => finding.help(help.clone()),
        None => finding,
    };
    match report.verdict.as_str() {
        "limit" => {
            finding.help("close some connections; the manager's --flows-per-session allows more")
        }
        "session" => finding
            .help("try again in a moment; kubebridge status shows until when tokens are good"),
        "gone" => finding.help("open the connection again"),
        "not-told" => finding.help("kubebridge upgrade"),
        "internal" => finding.help("kubectl -n kubebridge logs deploy/traffic-manager"),
        "manager-unreachable" => finding.exiting(Exit::Unreachable),
        _ => finding,
    }
}

/// What the detail of a step says.
fn detail<'a>(report: &'a PathReport, wanted: &str) -> &'a str {
    let step = report.steps.iter().find(|step| step.step == wanted);
    step.map_or("", |step| step.detail.as_str())
}

fn no_route(report: &PathReport) -> Finding {
    let route = detail(report, "route");
    let (found, why, help) = if route.contains("--exclude-cidr") {
        (
            "excluded",
            format!("it is left out by --exclude-cidr: {route}"),
            "connect without that --exclude-cidr",
        )
    } else if route.contains("is left alone") {
        (
            "swallowed",
            format!("another route of this machine has it: {route}"),
            "end what has that route, a VPN or a local network, or go by another address",
        )
    } else {
        (
            "no-route",
            format!("no route leads there: {route}"),
            "connect with --include-cidr to reach it, or go by a name of the cluster",
        )
    };
    Finding::fail(Check::Target, found, why).help(help)
}

fn refused(seen: &Seen<'_>, service: Option<Service<'_>>) -> Finding {
    let why = match seen.protocol {
        Protocol::Udp => "the port is closed: the pod answered that nothing listens there",
        Protocol::Tcp | Protocol::Icmp => {
            "refused by a ready endpoint: nothing listens there, or on its localhost alone"
        }
    };
    let namespace = service.map_or("NAMESPACE", |service| service.namespace);
    Finding::fail(Check::Target, "refused", why).help(format!(
        "compare the service's targetPort with what the program listens on (0.0.0.0, not 127.0.0.1): \
         kubectl -n {namespace} exec POD -- ss -ltn"
    ))
}

/// Silence, where somebody is ready to take connections.
fn silent(seen: &Seen<'_>, service: Option<Service<'_>>) -> Finding {
    let Some(Service { name, namespace }) = service else {
        let why = "nobody answers there: packets are dropped on the way, or the pod is gone";
        return Finding::fail(Check::Target, "silent", why)
            .help("a firewall, or a NetworkPolicy of its namespace, has to admit the traffic-manager's pod");
    };
    let is_ready = detail(seen.report, "endpoints").contains(" ready")
        && !detail(seen.report, "endpoints").starts_with("0 ");
    let (found, why) = if is_ready {
        (
            "silent-endpoint",
            format!(
                "a ready endpoint of {name}.{namespace} is silent: a NetworkPolicy drops the packets, most likely"
            ),
        )
    } else {
        (
            "silent",
            format!("{name}.{namespace} is silent: packets are dropped, or nobody is there"),
        )
    };
    Finding::fail(Check::Target, found, why)
        .help("kubectl apply this, which admits the traffic-manager's pod (the namespace kubebridge must have its name as a label: Kubernetes 1.21 and later give it)")
        .manifest(network_policy(namespace))
}

/// Reset after the handshake: somebody is there, and does not want this client.
fn reset(seen: &Seen<'_>, service: Option<Service<'_>>) -> Finding {
    let (name, namespace) =
        service.map_or(("SERVICE", "NAMESPACE"), |one| (one.name, one.namespace));
    let Injected::In(mesh) = &seen.mesh else {
        let why = "connections are made and then reset before anything comes back: a service mesh \
                   with strict mTLS, or the program itself";
        return Finding::fail(Check::Target, "reset-at-once", why).help(format!(
            "kubectl get namespace {namespace} --show-labels tells of a mesh; else the program's own log tells why"
        ));
    };
    let kind = mesh.kind;
    let why = format!(
        "reset right after connecting, in a namespace of {}: it wants mutual TLS, and the manager has no certificate of the mesh",
        kind.name()
    );
    let finding = Finding::fail(Check::Target, "mesh", why);
    match kind {
        Kind::Istio => finding
            .help("kubectl apply this, which lets clients without a certificate in; or have the namespace kubebridge injected, too")
            .manifest(peer_authentication(namespace, name)),
        Kind::Linkerd => finding.help(format!(
            "annotate the workload's pod template with config.linkerd.io/default-inbound-policy: all-unauthenticated, \
             or admit it by an AuthorizationPolicy in {namespace}"
        )),
        Kind::Kuma => finding.help("mode: PERMISSIVE in the Mesh's mtls backend, or a MeshTLS for the workload"),
    }
}

/// What the manager does not allow, and whose setting that is.
fn denied(report: &PathReport, service: Option<Service<'_>>) -> Finding {
    let said = detail(report, "egress");
    let word = said.split(", service ").next().unwrap_or_default();
    let namespace = service.map_or("NAMESPACE", |service| service.namespace);
    let fail = |found, why: &str| Finding::fail(Check::Target, found, why);
    match word {
        "namespace-not-granted" => fail("not-granted", "it belongs to a namespace that the session has no right to")
            .exiting(Exit::Privilege)
            .help("kubebridge namespace add NAMESPACE"),
        "no-such-port" => fail("no-such-port", "the service has no such port")
            .help(format!("kubectl -n {namespace} get service shows those it has")),
        "unknown-service" => fail("unknown-service", "it is an address for services, and no service is known to have it")
            .help("kubebridge routes shows the services of the session"),
        "not-listed" => fail("not-listed", "the manager's --egress does not list it: no service has it, and this session has not resolved it")
            .help("connect by a name of the cluster; or --egress pods, cidr=… or domains=… of the manager"),
        "pod-range" | "disguised-address" => fail("not-listed", "it is an address of pods in the form of another, or by a name from outside")
            .help("connect by the name of the pod's service"),
        "excepted" => fail("excepted", "the manager's --egress except=… has it")
            .help("ask whoever runs the manager"),
        "" => fail("denied", "the pod's network denies it").help("a NetworkPolicy of the namespace kubebridge may deny it"),
        other => fail("never", &format!("nobody may connect there by the manager ({other}), whatever --egress says"))
            .help("docs/security.md lists what is denied to everybody"),
    }
}

fn ping(report: &PathReport) -> Finding {
    const CHECK: Check = Check::Ping;
    let dial = detail(report, "dial");
    let egress = report
        .steps
        .iter()
        .any(|step| step.step == "egress" && step.verdict == "denied");
    match report.verdict.as_str() {
        "reachable" => Finding::ok(CHECK, "allowed", "the manager's pod may ping it; whether it answers, ping shows"),
        "denied" if !egress && dial.contains("ping_group_range") => Finding::fail(
            CHECK,
            "prohibited",
            "the manager's pod may not ping: a sysctl of it says so",
        )
        .help("securityContext.sysctls of the manager's pod: net.ipv4.ping_group_range \"0 2147483647\" (a safe sysctl)"),
        "denied" => Finding::fail(CHECK, "denied", format!("the manager does not allow it: {}", detail(report, "egress")))
            .help("ping pods, by the address or the name of a headless service; a ClusterIP answers no ping"),
        "outside" => Finding::note(CHECK, "outside", "it is not the cluster's: this machine pings by itself"),
        other => {
            let why = format!("it cannot be pinged: {other}");
            let finding = Finding::fail(CHECK, "other", why);
            match &report.help {
                Some(help) => finding.help(help.clone()),
                None => finding,
            }
        }
    }
}
