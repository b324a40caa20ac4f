//! Pods that run something and Services in front of them: what the data plane leads to.
//!
//! A Pod is a machine on the node's bridge. kube-proxy, the real one, makes ClusterIPs lead to
//! Pods. There are no controllers: `EndpointSlices` are applied with their Service.

use std::{
    fmt::Write as _,
    io::{BufRead, BufReader, Read},
    process::{Child, ChildStdout, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};

use crate::{
    daemon::Daemon,
    kubelet::register_node,
    lab::Lab,
    machine::{Machine, cable, http_ok},
    parts::{Parts, program},
    wait::until,
};

/// The node's address towards its Pods.
const BRIDGE: &str = "10.244.1.1";

const START: Duration = Duration::from_secs(60);

/// The node's bridge and its kube-proxy.
#[derive(Debug)]
pub struct PodNetwork {
    proxy: Daemon,
}

impl PodNetwork {
    /// Makes the bridge and starts kube-proxy, which knows the Services there are when this
    /// returns.
    pub fn start(lab: &Lab) -> Result<Self> {
        lab.node.shell(&format!(
            "echo 1 >/proc/sys/net/ipv4/ip_forward
ip link add cni0 type bridge
ip addr add {BRIDGE}/24 dev cni0
ip addr add fd00:244:1::1/64 dev cni0 nodad
ip link set cni0 up"
        ))?;
        register_node(lab)?;
        let mut command = lab.node.command(Parts::find()?.path("KUBE_PROXY")?);
        command
            .arg("--kubeconfig")
            .arg(lab.api.kubeconfig("admin"))
            .args(["--proxy-mode=iptables", "--hostname-override=node"])
            .args(["--cluster-cidr", lab.families.pods()])
            .arg("--iptables-min-sync-period=0s")
            .arg("--iptables-localhost-nodeports=false")
            .args(["--healthz-bind-address=127.0.0.1:10256"])
            .args(["--metrics-bind-address=127.0.0.1:10249"])
            // Both are limits of the whole machine, which is not the lab's to change.
            .args(["--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0s"])
            .arg("--conntrack-tcp-timeout-close-wait=0s");
        let proxy = Daemon::start("kube-proxy", &lab.logs(), command)?;
        proxy.until("kube-proxy to have the Services", START, || {
            http_ok(&lab.node, "127.0.0.1:10256", "/healthz")
        })?;
        Ok(Self { proxy })
    }

    /// Makes a Pod's machine at `address`, one of 10.244.1.0/24.
    pub fn pod(&self, lab: &Lab, name: &'static str, address: &str) -> Result<Machine> {
        let pod = Machine::start(name, "")?;
        cable((&lab.node, name), (&pod, "eth0"))?;
        let number = address.rsplit('.').next().unwrap_or_default();
        pod.shell(&format!(
            "ip addr add {address}/24 dev eth0
ip addr add fd00:244:1::{number}/64 dev eth0 nodad
ip link set eth0 up
ip route add default via {BRIDGE}
ip -6 route add default via fd00:244:1::1"
        ))?;
        lab.node
            .shell(&format!("ip link set {name} master cni0 up"))?;
        Ok(pod)
    }

    /// Makes a Service with its ready endpoints, and waits until kube-proxy has it.
    pub fn expose(&self, lab: &Lab, service: &Exposed<'_>) -> Result<()> {
        lab.api.apply(&lab.node, &service.manifests()?)?;
        if service.cluster_ip == "None" {
            return Ok(());
        }
        self.proxy.until("kube-proxy to have it", START, || {
            for address in service.cluster_ips() {
                let program = match is_v6(address) {
                    true => "ip6tables-save",
                    false => "iptables-save",
                };
                let rules = lab.node.output(&[program, "-t", "nat"])?;
                for (name, ..) in service.ports {
                    let (namespace, service) = (service.namespace, service.name);
                    let comment = format!("\"{namespace}/{service}:{name} cluster IP\"");
                    ensure!(rules.contains(&comment), "no {comment} in: {rules}");
                }
            }
            Ok(())
        })
    }
}

/// Has the Kubernetes API know which addresses the node's Pods have, as a cluster's network does it.
pub fn assign_ranges(lab: &Lab) -> Result<()> {
    let ranges = lab.families.pods_of_node();
    let first = ranges.first().context("no family")?;
    let spec = serde_json::json!({"spec": {"podCIDR": first, "podCIDRs": ranges}});
    lab.kubectl(&["patch", "node", "node", "-p", &spec.to_string()])?;
    Ok(())
}

/// A Service and where it leads.
#[derive(Debug, Clone, Copy)]
pub struct Exposed<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its namespace.
    pub namespace: &'a str,
    /// Its ClusterIP, one of each family separated by a comma, or `None`.
    pub cluster_ip: &'a str,
    /// Name, protocol, port of the Service, port of the Pods.
    pub ports: &'a [(&'a str, &'a str, u16, u16)],
    /// The Pods' addresses.
    pub endpoints: &'a [&'a str],
}

impl Exposed<'_> {
    fn cluster_ips(&self) -> impl Iterator<Item = &str> {
        self.cluster_ip.split(',')
    }

    fn manifests(&self) -> Result<String> {
        let Self {
            name,
            namespace,
            cluster_ip,
            ports,
            ..
        } = self;
        let mut text = format!(
            "apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: {namespace}}}
spec:
"
        );
        let first = self.cluster_ips().next().unwrap_or_default();
        writeln!(text, "  clusterIP: '{first}'")?;
        if self.cluster_ips().count() > 1 {
            let quoted = cluster_ip.replace(',', "', '");
            writeln!(text, "  clusterIPs: ['{quoted}']")?;
            writeln!(text, "  ipFamilyPolicy: RequireDualStack")?;
        }
        text.push_str("  ports:\n");
        for (port, protocol, number, _) in *ports {
            writeln!(
                text,
                "  - {{name: {port}, protocol: {protocol}, port: {number}}}"
            )?;
        }
        for (family, is_its) in [("IPv4", false), ("IPv6", true)] {
            self.write_slice(&mut text, family, is_its)?;
        }
        Ok(text)
    }

    /// The endpoints of one family, if there are any.
    fn write_slice(&self, text: &mut String, family: &str, six: bool) -> Result<()> {
        let Self {
            name, namespace, ..
        } = self;
        let mut endpoints = self.endpoints.iter().filter(|one| is_v6(one) == six);
        let Some(first) = endpoints.next() else {
            return Ok(());
        };
        let slice = format!("{name}-{}", family.to_lowercase());
        write!(
            text,
            "---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: {slice}, namespace: {namespace}, labels: {{kubernetes.io/service-name: {name}}}}}
addressType: {family}
ports:
"
        )?;
        for (port, protocol, _, target) in self.ports {
            writeln!(
                text,
                "- {{name: {port}, protocol: {protocol}, port: {target}}}"
            )?;
        }
        text.push_str("endpoints:\n");
        for address in std::iter::once(first).chain(endpoints) {
            writeln!(
                text,
                "- {{addresses: ['{address}'], conditions: {{ready: true}}}}"
            )?;
        }
        Ok(())
    }
}

fn is_v6(address: &str) -> bool {
    address.contains(':')
}

/// Starts a program in a Pod and waits until it listens on the TCP port.
pub fn serve(lab: &Lab, pod: &Machine, port: u16, words: &[&str]) -> Result<Daemon> {
    let (program, arguments) = words.split_first().context("no program")?;
    let mut command = pod.command(program);
    command.args(arguments);
    let daemon = Daemon::start(pod.name(), &lab.logs(), command)?;
    daemon.until(
        &format!("{} to listen on {port}", pod.name()),
        START,
        || {
            let sockets = pod.output(&["ss", "-Hltn", &format!("sport = :{port}")])?;
            ensure!(!sockets.is_empty(), "nobody listens on {port}");
            Ok(())
        },
    )?;
    Ok(daemon)
}

/// Starts a client of the test's own peer in a machine, to be ended by [`Held::end`]; returns
/// when it says that it is where it stays.
pub fn hold(machine: &Machine, words: &[&str], says: &str) -> Result<Held> {
    let mut child = machine
        .command(program("peer")?)
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut said = String::new();
    let output = child.stdout.take().context("it has no output")?;
    let mut output = BufReader::new(output);
    output.read_line(&mut said)?;
    if !said.starts_with(says) {
        let _ = child.kill();
        let error = child.wait_with_output()?.stderr;
        bail!("{words:?}: {said}{}", String::from_utf8_lossy(&error));
    }
    Ok(Held { child, output })
}

/// A client that stays until it is ended.
#[derive(Debug)]
pub struct Held {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Held {
    /// Ends its input; it must have been content to the end. Gives what it said last.
    pub fn end(mut self) -> Result<String> {
        drop(self.child.stdin.take());
        let mut said = String::new();
        self.output.read_to_string(&mut said)?;
        let output = self.child.wait_with_output()?;
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "{}: {said}{error}", output.status);
        Ok(said.trim().to_owned())
    }
}

/// Looks until the command succeeds in the machine, and gives what it printed.
pub fn until_works(machine: &Machine, what: &str, words: &[&str]) -> Result<String> {
    until(what, START, || machine.output(words))
}
