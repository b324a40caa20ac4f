//! The ways from the laptop to a Pod, each set up beside the others, and who does its work.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kubebridge_tests::daemon::Daemon;
use kubebridge_tests::distance::Shape;
use kubebridge_tests::lab::{Lab, NODE};
use kubebridge_tests::machine::Machine;
use kubebridge_tests::parts::{compile, program};
use kubebridge_tests::pods::{Exposed, PodNetwork, serve};
use kubebridge_tests::product::{Attempt, Manager, NAMESPACES, Session, token_flags};
use kubebridge_tests::secured::{make_certificates, network_manager, tls_flags};
use kubebridge_tests::wait::until;

/// As much as the manager logs by itself.
const LOG: &str = "info,kube_client=off";
const START: Duration = Duration::from_secs(60);

/// Where the peer is, for each way another Service of the same Pod, so that all can be up at once.
const SERVICE: Exposed<'_> = Exposed {
    name: "peer",
    namespace: "default",
    cluster_ip: "10.96.4.1",
    ports: &[("main", "TCP", 9000, 9000)],
    endpoints: &[POD],
};
const POD: &str = "10.244.1.41";
/// A ClusterIP that sshuttle is told of, and nobody else.
const BY_SSHUTTLE: &str = "10.96.5.1";
/// What the packets of the TUN are for.
const BY_PACKETS: &str = "10.96.6.1";

/// One way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Direct,
    Kubebridge,
    OneConnection,
    Sshuttle,
    Packets,
}

impl Way {
    const ALL: [Self; 5] = [
        Self::Direct,
        Self::Kubebridge,
        Self::OneConnection,
        Self::Sshuttle,
        Self::Packets,
    ];

    /// Those that `KUBEBRIDGE_WAYS` names, or all.
    pub(crate) fn wanted() -> Vec<Self> {
        let wanted = std::env::var("KUBEBRIDGE_WAYS").ok();
        let is_wanted = |way: &Self| match &wanted {
            Some(names) => names.split(',').any(|name| name == way.name()),
            None => true,
        };
        Self::ALL.into_iter().filter(is_wanted).collect()
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Direct => "no tunnel",
            Self::Kubebridge => "kubebridge",
            Self::OneConnection => "streams over one TCP",
            Self::Sshuttle => "sshuttle",
            Self::Packets => "packets over TCP",
        }
    }

    /// Where the peer is by this way.
    pub(crate) fn target(self) -> String {
        let host = match self {
            Self::Direct => NODE,
            Self::Kubebridge | Self::OneConnection => SERVICE.cluster_ip,
            Self::Sshuttle => BY_SSHUTTLE,
            Self::Packets => BY_PACKETS,
        };
        format!("{host}:9000")
    }

    /// With what a session of ours is made for it.
    fn options(self) -> Option<&'static [&'static str]> {
        match self {
            Self::Kubebridge => Some(&[]),
            Self::OneConnection => Some(&["--data-connections=1"]),
            Self::Direct | Self::Sshuttle | Self::Packets => None,
        }
    }

    /// Words in the command lines of the processes that do its work, on either machine.
    pub(crate) fn processes(self) -> &'static [&'static str] {
        match self {
            Self::Direct => &[],
            Self::Kubebridge | Self::OneConnection => &["kubebridge", "traffic-manager"],
            Self::Sshuttle => &["sshuttle", "ssh", "sshd", "python"],
            Self::Packets => &["l3"],
        }
    }
}

/// All of it, up.
pub(crate) struct Bench<'lab> {
    pub(crate) lab: &'lab Lab,
    #[expect(dead_code, reason = "they run as long as it lives")]
    running: (PodNetwork, Machine, Vec<Daemon>, Manager),
    /// The session, and which way it was made for.
    session: Option<(Way, Session<'lab>)>,
}

/// Makes the lab, with a distance where one is asked for.
pub(crate) fn lab(shape: Option<Shape>) -> Result<Lab> {
    let mut lab = match shape {
        Some(shape) => Lab::start_far(shape)?,
        None => Lab::start()?,
    };
    lab.log = LOG;
    for machine in [lab.laptop.on(), &lab.node] {
        prepare(machine)?;
    }
    Ok(lab)
}

/// Has a machine's TCP do what the figures of other tools were taken with, whatever this one does.
/// Of connections that are over it keeps few: those of one round would slow the next one's down,
/// whose ports are hard to find among theirs.
fn prepare(machine: &Machine) -> Result<()> {
    machine
        .shell(
            "cd /proc/sys/net/ipv4; echo reno >tcp_congestion_control; echo 512 >tcp_max_tw_buckets",
        )
        .map(drop)
}

impl<'lab> Bench<'lab> {
    /// Starts the peer and every way to it.
    pub(crate) fn start(lab: &'lab Lab) -> Result<Self> {
        let network = PodNetwork::start(lab)?;
        let pod = network.pod(lab, "peer", POD)?;
        prepare(&pod)?;
        let peer = program("peer")?.display().to_string();
        let mut daemons = vec![serve(lab, &pod, 9000, &[&peer, "serve", "9000"])?];
        for cluster_ip in [SERVICE.cluster_ip, BY_SSHUTTLE, BY_PACKETS] {
            let name = format!("peer-{}", cluster_ip.replace('.', "-"));
            let service = Exposed {
                name: &name,
                cluster_ip,
                ..SERVICE
            };
            network.expose(lab, &service)?;
        }
        // Without a tunnel the node's own address leads to the Pod.
        lab.node.shell(&format!(
            "iptables -t nat -A PREROUTING -d {NODE} -p tcp --dport 9000 -j DNAT --to-destination {POD}:9000"
        ))?;
        let wanted = Way::wanted();
        if wanted.contains(&Way::Sshuttle) {
            daemons.extend(sshuttle(lab)?);
        }
        if wanted.contains(&Way::Packets) {
            daemons.extend(packets(lab)?);
        }
        make_certificates(lab, "certs")?;
        let manager = network_manager(lab)?;
        let mut bench = Self {
            lab,
            running: (network, pod, daemons, manager),
            session: None,
        };
        for way in wanted {
            bench.turn(way)?;
        }
        Ok(bench)
    }

    /// Makes ready for a way's turn.
    pub(crate) fn turn(&mut self, way: Way) -> Result<()> {
        if let Some(options) = way.options() {
            self.connect(way, options)?;
        }
        self.reached(way)
    }

    /// Has a session that was made for this way.
    fn connect(&mut self, way: Way, options: &[&str]) -> Result<()> {
        match self.session.take() {
            Some((of, session)) if of == way => {
                self.session = Some((of, session));
                return Ok(());
            }
            Some((_, session)) => session.end_at_once()?,
            None => {}
        }
        let mut flags = tls_flags(self.lab, "certs", "certs");
        flags.extend(token_flags(self.lab, &NAMESPACES)?);
        flags.push(format!("--exclude-cidr={BY_SSHUTTLE}/32,{BY_PACKETS}/32"));
        flags.extend(options.iter().map(|&option| option.to_owned()));
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let session = Attempt::start_with(self.lab, &NAMESPACES, &flags)?.connected()?;
        self.session = Some((way, session));
        Ok(())
    }

    /// Waits until the peer is reached by a way.
    pub(crate) fn reached(&self, way: Way) -> Result<()> {
        until(way.name(), START, || {
            let said = self.peer(&["connect", &way.target()])?;
            ensure!(said == "connected", "{said}");
            Ok(())
        })
    }

    /// Runs the peer's client on the laptop.
    pub(crate) fn peer(&self, words: &[&str]) -> Result<String> {
        let program = program("peer")?.display().to_string();
        let said = self
            .lab
            .laptop
            .on()
            .command("timeout")
            .args(["-s", "KILL", "300"])
            .arg(program)
            .args(words)
            .output()?;
        ensure!(
            said.status.success(),
            "{words:?}: {}",
            String::from_utf8_lossy(&said.stderr)
        );
        Ok(String::from_utf8(said.stdout)?.trim().to_owned())
    }
}

/// A real sshd on the node, and sshuttle on the laptop for one address.
fn sshuttle(lab: &Lab) -> Result<Vec<Daemon>> {
    let folder = lab.logs();
    let at = folder.display();
    lab.node.shell(&format!(
        "mkdir -p -m 755 /run/sshd
ssh-keygen -q -t ed25519 -N '' -f {at}/ssh-host
ssh-keygen -q -t ed25519 -N '' -f {at}/ssh-user
install -m 600 {at}/ssh-user.pub {at}/ssh-allowed"
    ))?;
    let mut command = lab.node.command("/usr/sbin/sshd");
    command
        .args(["-D", "-e", "-f", "/dev/null", "-p", "22", "-h"])
        .arg(folder.join("ssh-host"))
        .args(["-o", "StrictModes=no", "-o", "UsePAM=no", "-o"])
        .arg(format!("AuthorizedKeysFile={at}/ssh-allowed"));
    let sshd = Daemon::start("sshd", &folder, command)?;
    let mut command = lab.laptop.on().command("/usr/bin/sshuttle");
    command
        .args(["--method=nft", "--disable-ipv6", "-r", &format!("root@{NODE}")])
        .arg(format!("--ssh-cmd=ssh -i {at}/ssh-user -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"))
        .arg(format!("{BY_SSHUTTLE}/32"));
    let sshuttle = Daemon::start("sshuttle", &folder, command)?;
    sshuttle.until_line("sshuttle to be connected", START, |line| {
        line.contains("onnected")
    })?;
    Ok(vec![sshd, sshuttle])
}

/// The TUN at each end of one TCP connection; the node's end hides the laptop's addresses.
fn packets(lab: &Lab) -> Result<Vec<Daemon>> {
    let folder = lab.logs();
    let program = folder.join("l3");
    compile("gcc", &[], "l3.c", &program)?;
    let mut command = lab.node.command(&program);
    command.args(["serve", "4789", "l3"]);
    let far = Daemon::start("l3-node", &folder, command)?;
    far.until_says("listening", START)?;
    let mut command = lab.laptop.on().command(&program);
    command.args(["connect", NODE, "4789", "l3"]);
    let near = Daemon::start("l3-laptop", &folder, command)?;
    near.until_says("connected", START)?;
    let up = |machine: &Machine, address: &str| {
        machine.shell(&format!(
            "ip addr add {address}/30 dev l3; ip link set l3 up mtu 1500"
        ))
    };
    up(&lab.node, "172.31.0.1").context("the node's TUN")?;
    up(lab.laptop.on(), "172.31.0.2")?;
    lab.laptop
        .on()
        .shell(&format!("ip route add {BY_PACKETS}/32 dev l3"))?;
    lab.node
        .shell("iptables -t nat -A POSTROUTING -s 172.31.0.0/30 -j MASQUERADE")?;
    Ok(vec![far, near])
}
