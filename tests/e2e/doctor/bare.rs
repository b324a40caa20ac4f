//! Without a cluster, a session or D-Bus: what is wrong with the machine alone.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use anyhow::{Result, ensure};
use kubebridge_tests::{daemon::Daemon, machine::Machine, product::as_nobody, wait::until};
use tempfile::TempDir;

use super::{Said, doctor};

/// The checks that every machine has.
const MACHINE: [&str; 14] = [
    "nsswitch",
    "resolv-conf",
    "dns-backend",
    "answers",
    "own-resolvers",
    "encrypted-dns",
    "port-53",
    "leftovers",
    "other-tools",
    "route-overlap",
    "policy-rules",
    "tun-device",
    "ipv6",
    "privilege",
];

/// A machine with an /etc of its own and no network but loopback.
struct Bare {
    machine: Machine,
    folder: TempDir,
}

impl Bare {
    /// Makes one, and runs the shell lines `more` in it.
    fn start(more: &str) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("kb-doctor-")
            .permissions(fs::Permissions::from_mode(0o755))
            .tempdir_in("/tmp")?;
        let etc = folder.path().join("etc").display().to_string();
        let setup = format!(
            "cp -a /etc {etc}
rm -f {etc}/resolv.conf {etc}/hosts.original
printf '127.0.0.1 localhost\\n' >{etc}/hosts
printf 'nameserver 192.0.2.53\\n' >{etc}/resolv.conf
sed -i '/^hosts:/d' {etc}/nsswitch.conf
echo 'hosts: files dns' >>{etc}/nsswitch.conf
mount --bind {etc} /etc
{more}"
        );
        Ok(Self {
            machine: Machine::start("bare", &setup)?,
            folder,
        })
    }

    fn doctor(&self, words: &[&str]) -> Result<Said> {
        doctor(&self.machine, words)
    }

    /// Runs it as a user without any rights.
    fn as_nobody(&self) -> Result<Said> {
        let words = ["doctor", "-o", "json"];
        Said::read(&as_nobody(&self.machine, self.folder.path(), &words)?)
    }

    /// Starts dnsmasq on an address, and waits until it listens.
    fn dnsmasq(&self, address: &str) -> Result<Daemon> {
        let logs = self.folder.path().join("logs");
        fs::create_dir_all(&logs)?;
        let mut command = self.machine.command("dnsmasq");
        command
            .args([
                "--keep-in-foreground",
                "--conf-file=/dev/null",
                "--pid-file",
            ])
            .args([
                "--no-resolv",
                "--no-hosts",
                "--user=root",
                "--bind-interfaces",
            ])
            .args(["--log-facility=-", &format!("--listen-address={address}")])
            .arg("--host-record=www.example.com,203.0.113.7")
            .arg("--local=/#/");
        let daemon = Daemon::start("dnsmasq", &logs, command)?;
        let patience = std::time::Duration::from_secs(60);
        until("dnsmasq to listen", patience, || {
            let listening = self.machine.output(&["ss", "-Hlntu", "sport = :53"])?;
            ensure!(listening.contains(address), "{listening}");
            Ok(())
        })?;
        Ok(daemon)
    }
}

#[test]
fn lifecycle_11_doctor_needs_no_cluster_no_session_no_daemon_and_no_root() -> Result<()> {
    let bare = Bare::start("")?;
    let etc = ["bash", "-c", "find /etc -type f | sort | xargs sha256sum"];
    let before = bare.machine.output(&etc)?;
    for said in [bare.doctor(&[])?, bare.as_nobody()?] {
        for check in MACHINE {
            said.of(check)?;
        }
        said.must("session", "skipped", "skipped", &["session"])?;
        said.must("dns-backend", "warn", "plain", &["there is no system bus"])?;
        said.must(
            "answers",
            "warn",
            "nothing-answers",
            &["getaddrinfo", "192.0.2.53 by TCP"],
        )?;
        said.must("port-53", "ok", "free", &[])?;
        said.ends(0)?;
    }
    ensure!(bare.machine.output(&etc)? == before, "/etc was changed");
    Ok(())
}

#[test]
fn lifecycle_11_the_same_name_by_every_way_is_the_same_or_the_one_that_differs_is_named()
-> Result<()> {
    let bare = Bare::start("printf 'nameserver 127.0.0.1\\n' >/etc/resolv.conf")?;
    let _dnsmasq = bare.dnsmasq("127.0.0.1")?;
    let ways = [
        "getaddrinfo: 203.0.113.7",
        "127.0.0.1 by UDP: 203.0.113.7",
        "127.0.0.1 by TCP: 203.0.113.7",
    ];
    bare.doctor(&[])?.must("answers", "ok", "same", &ways)?;

    bare.machine
        .shell("echo '192.0.2.9 www.example.com' >>/etc/hosts")?;
    let ways = ["getaddrinfo: 192.0.2.9", "127.0.0.1 by UDP: 203.0.113.7"];
    bare.doctor(&[])?
        .must("answers", "note", "hosts-line", &ways)?;

    // DNS that is not asked: programs do not find what it knows.
    bare.machine.shell(
        "sed -i /www.example.com/d /etc/hosts; sed -i 's/^hosts:.*/hosts: files/' /etc/nsswitch.conf",
    )?;
    let said = bare.doctor(&[])?;
    said.must("answers", "fail", "programs-differ", &["127.0.0.1 by UDP"])?;
    said.must("nsswitch", "warn", "no-dns", &["hosts: files"])?;
    said.ends(71)
}

#[test]
fn lifecycle_11_the_order_of_resolvers_in_nsswitch_is_told() -> Result<()> {
    let bare = Bare::start("sed -i 's/^hosts:.*/hosts: dns files/' /etc/nsswitch.conf")?;
    let words = ["hosts: dns files", "files resolve"];
    bare.doctor(&[])?
        .must("nsswitch", "warn", "dns-first", &words)
}

#[test]
fn lifecycle_11_a_file_that_names_a_sessions_resolver_is_a_loop() -> Result<()> {
    let bare = Bare::start("printf 'nameserver 198.19.248.2\\n' >/etc/resolv.conf")?;
    let said = bare.doctor(&[])?;
    said.must("resolv-conf", "fail", "loops", &["198.19.248.2"])?;
    said.ends(71)
}

#[test]
fn lifecycle_11_a_resolver_that_nobody_runs_and_a_busy_port_53_are_named() -> Result<()> {
    let bare = Bare::start("printf 'nameserver 127.0.0.53\\n' >/etc/resolv.conf")?;
    let said = bare.doctor(&[])?;
    said.must("port-53", "fail", "nobody-listens", &["127.0.0.53"])?;
    said.ends(73)?;

    let _usurper = bare.dnsmasq("127.0.0.53")?;
    let said = bare.doctor(&[])?;
    said.must("port-53", "fail", "stub-taken", &["dnsmasq"])?;
    said.ends(73)?;

    let bare = Bare::start("")?;
    let _elsewhere = bare.dnsmasq("127.0.0.1")?;
    let said = bare.doctor(&[])?;
    said.must("port-53", "note", "busy", &["dnsmasq", "udp 127.0.0.1:53"])
}

#[test]
fn lifecycle_18_a_container_is_recognised_by_its_embedded_resolver() -> Result<()> {
    let bare = Bare::start(
        "printf 'nameserver 127.0.0.11\\n' >/run/resolv.conf; mount --bind /run/resolv.conf /etc/resolv.conf",
    )?;
    let said = bare.doctor(&[])?;
    said.must("resolv-conf", "note", "container", &["mounted by itself"])?;
    said.must("port-53", "ok", "free", &[])?;
    said.ends(0)
}

#[test]
fn lifecycle_11_another_tools_hosts_lines_and_links_are_named() -> Result<()> {
    let bare = Bare::start(
        "printf '10.96.0.7\\tauthors.shop\\t\\t# Add by KubeVPN\\n' >>/etc/hosts
printf '127.1.27.1 db db.shop db.shop.svc db.shop.svc.cluster.local\\n' >>/etc/hosts
ip tuntap add tel0 mode tun",
    )?;
    let said = bare.doctor(&[])?;
    let words = [
        "KubeVPN: hosts line 10.96.0.7",
        "Telepresence: link tel0",
        "kubefwd: hosts line 127.1.27.1",
        "telepresence quit",
    ];
    said.must("other-tools", "warn", "found", &words)?;
    said.ends(0)
}

#[test]
fn lifecycle_16_a_vpns_route_over_the_clusters_networks_is_named_without_a_session() -> Result<()> {
    let bare = Bare::start(
        "ip tuntap add tun0 mode tun; ip addr add 10.8.0.2/32 dev tun0; ip link set tun0 up
ip route add 10.96.0.0/12 dev tun0",
    )?;
    let said = bare.doctor(&["--include-cidr", "10.96.0.0/16"])?;
    let words = [
        "10.96.0.0/16",
        "10.96.0.0/12 dev tun0",
        "--exclude-cidr 10.96.0.0/16",
    ];
    said.must("route-overlap", "fail", "covered", &words)?;
    said.ends(73)?;

    let helped = bare.doctor(&[
        "--include-cidr",
        "10.97.0.0/16",
        "--exclude-cidr",
        "10.97.0.0/16",
    ])?;
    helped.must("route-overlap", "ok", "none", &[])?;

    bare.machine
        .shell("ip route del 10.96.0.0/12; ip route add 10.96.64.0/18 dev tun0")?;
    let part = bare.doctor(&["--include-cidr", "10.96.0.0/16"])?;
    let words = ["10.96.0.0/16", "10.96.64.0/18 dev tun0"];
    part.must("route-overlap", "warn", "overlap", &words)?;
    part.ends(0)
}

#[test]
fn lifecycle_11_a_rule_that_comes_before_all_routes_is_named() -> Result<()> {
    let bare = Bare::start(
        "ip tuntap add tun0 mode tun; ip addr add 10.8.0.2/32 dev tun0; ip link set tun0 up
ip route add default dev tun0 table 52; ip rule add pref 100 fwmark 0x80000 lookup 52",
    )?;
    let said = bare.doctor(&[])?;
    said.must(
        "policy-rules",
        "note",
        "selective",
        &["rule 100", "fwmark 0x80000"],
    )?;
    bare.machine.shell("ip rule add pref 101 lookup 52")?;
    let said = bare.doctor(&[])?;
    said.must(
        "policy-rules",
        "warn",
        "takes-all",
        &["rule 101 looks in table 52: default"],
    )
}

#[test]
fn lifecycle_17_ipv6_that_is_switched_off_is_told() -> Result<()> {
    let bare = Bare::start("echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6")?;
    bare.doctor(&[])?.must("ipv6", "note", "off", &[])
}

#[test]
fn a_destination_without_a_session_fails_with_what_helps() -> Result<()> {
    let bare = Bare::start("")?;
    let said = bare.doctor(&["authors.shop:80"])?;
    said.must("target", "fail", "no-session", &["kubebridge connect"])?;
    said.ends(1)
}
