//! Routes on a real kernel: what is read, punched, set, refused, put back and left behind.

use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

use kubebridge_platform::clock::Clock;
use kubebridge_platform::routes::{self, Known, Plan, Taken, Why, read_taken};
use kubebridge_platform::{
    Cause, DriftWatch, Host, HostError, Intent, IpNet, Link, LinkSpec, LocalHost, SessionId, Sys,
    recover,
};
use tokio::time::timeout;

use crate::machine::{Machine, on_a_machine, run, state, until};

#[path = "routes/families.rs"]
mod families;
#[path = "routes/taken_away.rs"]
mod taken_away;

/// Far above the half second of a burst, and below the period of looking anyway.
const PATIENCE: Duration = Duration::from_secs(25);

/// A laptop in a LAN with a way out, docker's bridge and a VPN with a table of its own.
const WORLD: &str = "
    ip link add eth0 type veth peer name outside
    ip addr add 192.0.2.10/24 dev eth0; ip link set eth0 up; ip link set outside up
    ip route add default via 192.0.2.1
    ip link add docker0 type bridge; ip addr add 10.96.64.1/18 dev docker0; ip link set docker0 up
    ip tuntap add tun0 mode tun; ip addr add 10.8.0.2/32 dev tun0; ip link set tun0 up
    ip route add 10.244.7.0/24 dev tun0 table 200; ip rule add pref 100 lookup 200
    ip route add 10.250.0.0/16 dev tun0 table 201
";

fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn words<T: ToString>(list: impl IntoIterator<Item = T>) -> Vec<String> {
    list.into_iter().map(|one| one.to_string()).collect()
}

fn output(line: &str) -> String {
    let output = Command::new("bash").args(["-c", line]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Everything the kernel knows of routes and rules, but for what every link gets by itself a moment
/// after it is up.
fn kernel() -> String {
    output(
        "ip -4 rule; ip -6 rule; ip -4 route show table all
         ip -6 route show table all | grep -vE '(fe80|ff00):' || true",
    )
}

/// Every setting of the kernel that a network program might turn.
fn sysctls() -> String {
    output(
        "sysctl -a -r '^net\\.' 2>/dev/null | grep -vE '\\.kb[0-9]+\\.|_count|route/max|tcp_mem|random|stat'",
    )
}

fn firewall() -> String {
    output("nft list ruleset 2>/dev/null; iptables-save 2>/dev/null | grep -v '^#'")
}

/// The link by which the kernel would send packets to an address.
fn way(address: &str) -> String {
    let found = output(&format!("ip route get {address} 2>&1"));
    let mut fields = found.split_whitespace().skip_while(|field| *field != "dev");
    fields.nth(1).unwrap_or("none").to_owned()
}

fn offline(machine: &Machine) -> Sys {
    Sys {
        bus_address: Some("unix:path=/nonexistent".to_owned()),
        ..machine.sys()
    }
}

async fn open(sys: &Sys) -> (LocalHost, Link) {
    let mut host = LocalHost::new(sys.clone(), SessionId::random()).unwrap();
    let spec = LinkSpec {
        cidr: None,
        avoid: Vec::new(),
        mtu: 16_000,
        v6: false,
    };
    let link = host.open(&spec).await.unwrap();
    (host, link)
}

async fn taken(sys: &Sys) -> Taken {
    read_taken(sys, &Known::default()).await.unwrap()
}

async fn planned(sys: &Sys, wanted: &[&str]) -> Plan {
    routes::plan(&nets(wanted), &taken(sys).await, &[])
}

fn wish(routes: &[IpNet]) -> Intent {
    Intent::default().with_routes(routes.to_vec()).unwrap()
}

/// Our routes on a link, as iproute2 lists them.
fn listed(link: &str) -> Vec<String> {
    let six = output(&format!("ip -6 route show proto 107 dev {link}"));
    let four = output(&format!("ip -4 route show proto 107 dev {link}"));
    let lines = four.lines().chain(six.lines());
    let mut nets: Vec<_> = lines
        .filter_map(|line| line.split_whitespace().next())
        .map(|text| text.parse::<IpNet>().unwrap())
        .collect();
    nets.sort();
    words(nets)
}

#[test]
fn w9_what_the_machine_uses_is_read_from_every_table_that_a_rule_names() {
    let name = "routes::w9_what_the_machine_uses_is_read_from_every_table_that_a_rule_names";
    on_a_machine(name, async |machine| {
        run(WORLD);
        let known = Known {
            name_servers: vec!["10.96.0.53".parse().unwrap()],
            peers: routes::ssh_peer("10.96.1.7 4242 192.0.2.10 22")
                .into_iter()
                .collect(),
            cluster: vec!["::ffff:10.96.2.1".parse().unwrap()],
            ..Known::default()
        };
        let taken = read_taken(&machine.sys(), &known).await.unwrap();
        let has = |net: &str, why, via: Option<&str>| {
            let found = taken.nets.iter().any(|one| {
                one.net.to_string() == net && one.why == why && one.via.as_deref() == via
            });
            assert!(found, "{net} {why} {via:?} in {:#?}", taken.nets);
        };
        has("192.0.2.0/24", Why::OnLink, Some("eth0"));
        has("192.0.2.1/32", Why::Gateway, Some("eth0"));
        has("192.0.2.10/32", Why::Own, Some("eth0"));
        has("10.96.64.0/18", Why::OnLink, Some("docker0"));
        has("10.244.7.0/24", Why::Route, Some("tun0"));
        has("10.96.0.53/32", Why::NameServer, None);
        has("10.96.1.7/32", Why::SshPeer, None);
        has("10.96.2.1/32", Why::Cluster, None);
        assert!(!taken.no_ipv6);
        let others = words(taken.nets.iter().map(|one| one.net));
        // A table that no rule names carries no packets; the default route says nothing.
        assert!(!others.contains(&"10.250.0.0/16".to_owned()), "{others:?}");
        assert!(!others.contains(&"0.0.0.0/0".to_owned()), "{others:?}");
    });
}

#[test]
fn w9_routes_are_set_with_holes_for_what_was_there_and_go_again() {
    let name = "routes::w9_routes_are_set_with_holes_for_what_was_there_and_go_again";
    on_a_machine(name, async |machine| {
        run(WORLD);
        let sys = offline(&machine);
        let before = (state(), kernel());
        let plan = planned(&sys, &["10.96.0.0/16", "10.244.0.0/21", "fd00:10::/112"]).await;
        assert_eq!(
            words(plan.overlaps),
            [
                "10.96.0.0/16 overlaps the route 10.96.64.0/18 dev docker0",
                "10.244.0.0/21 overlaps the route 10.244.7.0/24 dev tun0"
            ]
        );
        let (mut host, link) = open(&sys).await;
        let applied = host.apply(&wish(&plan.routes)).await.unwrap();
        assert_eq!(applied.warnings, Vec::<String>::new());
        assert_eq!(listed(&link.name), words(&plan.routes));
        for (address, expected) in [
            ("10.96.0.1", link.name.as_str()),
            ("10.96.63.255", &link.name),
            ("10.96.64.9", "docker0"),
            ("10.96.128.1", &link.name),
            ("10.244.6.255", &link.name),
            ("10.244.7.1", "tun0"),
            ("fd00:10::7", &link.name),
            ("192.0.2.99", "eth0"),
            ("203.0.113.1", "eth0"),
        ] {
            assert_eq!(way(address), expected, "{address}");
        }
        // The same wish again changes nothing.
        assert_eq!(
            host.apply(&wish(&plan.routes)).await.unwrap().changes,
            [""; 0]
        );
        host.undo().await.unwrap();
        assert_eq!(listed(&link.name), [""; 0]);
        drop(link);
        until("the routes of the start", async || kernel() == before.1).await;
        assert!(
            state()
                .iter()
                .filter(|line| !line.contains("/var/lib"))
                .eq(before.0.iter())
        );
    });
}

#[test]
fn w9_the_applying_side_refuses_what_the_machine_uses_whatever_it_is_asked() {
    let name = "routes::w9_the_applying_side_refuses_what_the_machine_uses_whatever_it_is_asked";
    on_a_machine(name, async |machine| {
        run(WORLD);
        let sys = offline(&machine);
        let (mut host, link) = open(&sys).await;
        let before = kernel();
        for (route, theirs) in [
            ("192.0.0.0/16", "192.0.2."),
            ("192.0.2.1/32", "192.0.2."),
            ("10.96.0.0/16", "10.96.64."),
            ("10.96.64.7/32", "10.96.64.0/18"),
            ("10.244.0.0/16", "10.244.7.0/24"),
            ("10.8.0.2/32", "10.8.0.2/32"),
        ] {
            let wish = wish(&nets(&["10.60.0.0/16", route]));
            let refused = host.apply(&wish).await.unwrap_err();
            let HostError::Routes(error) = refused else {
                panic!("{route}: {refused:?}");
            };
            let said = error.to_string();
            assert!(said.contains(route) && said.contains(theirs), "{said}");
            assert_eq!(kernel(), before, "{route}");
        }
        // The name server of resolv.conf, 192.0.2.53, without a LAN around it.
        run("ip addr del 192.0.2.10/24 dev eth0");
        let refused = host
            .apply(&wish(&nets(&["192.0.2.0/24"])))
            .await
            .unwrap_err();
        assert!(format!("{refused:?}").contains("192.0.2.53"), "{refused:?}");
        host.undo().await.unwrap();
        drop(link);
    });
}

#[test]
fn w9_an_ssh_peer_of_the_machine_is_not_cut_off() {
    on_a_machine(
        "routes::w9_an_ssh_peer_of_the_machine_is_not_cut_off",
        async |machine| {
            run("ip link add eth0 type veth peer name peer
             ip addr add 192.0.2.10/24 dev eth0; ip link set eth0 up
             ip netns add peer 2>/dev/null || { mkdir -p /run/netns; ip netns add peer; }
             ip link set peer netns peer
             ip -n peer addr add 192.0.2.1/24 dev peer; ip -n peer link set peer up
             ip -n peer link set lo up; ip -n peer addr add 10.96.9.1/32 dev lo
             ip route add default via 192.0.2.1");
            let daemon = std::net::TcpListener::bind("192.0.2.10:22").unwrap();
            let mut peer = Command::new("ip")
            .args(["netns", "exec", "peer", "bash", "-c"])
            .arg("ip route replace 192.0.2.10 dev peer src 10.96.9.1; exec 3<>/dev/tcp/192.0.2.10/22; sleep infinity")
            .spawn()
            .unwrap();
            daemon.set_nonblocking(true).unwrap();
            let mut accepted = None;
            until("a login", async || {
                accepted = daemon.accept().ok();
                accepted.is_some()
            })
            .await;
            let sys = offline(&machine);
            let plan = planned(&sys, &["10.96.0.0/16"]).await;
            let peers: Vec<_> = plan
                .holes
                .iter()
                .filter(|hole| hole.why == Why::SshPeer)
                .collect();
            assert_eq!(words(peers.iter().map(|hole| hole.net)), ["10.96.9.1/32"]);

            let (mut host, link) = open(&sys).await;
            // Not even when the session forgets.
            let refused = host.apply(&wish(&nets(&["10.96.0.0/16"]))).await;
            assert!(matches!(refused, Err(HostError::Routes(_))), "{refused:?}");
            host.apply(&wish(&plan.routes)).await.unwrap();
            assert_eq!(way("10.96.9.1"), "eth0");
            assert_eq!(way("10.96.9.2"), link.name);
            host.undo().await.unwrap();
            peer.kill().unwrap();
            peer.wait().unwrap();
        },
    );
}

#[test]
fn w9_routes_follow_the_wish_while_the_session_runs() {
    on_a_machine(
        "routes::w9_routes_follow_the_wish_while_the_session_runs",
        async |machine| {
            let sys = offline(&machine);
            let (mut host, link) = open(&sys).await;
            for routes in [
                nets(&["10.96.0.0/16", "10.244.0.0/16"]),
                nets(&["10.96.0.0/17", "10.244.0.0/16", "fd00:10::/112"]),
                nets(&["10.96.0.0/16"]),
                nets(&["203.0.113.7/32", "10.96.0.0/16"]),
                Vec::new(),
                nets(&["10.244.0.0/16"]),
            ] {
                host.apply(&wish(&routes)).await.unwrap();
                let mut routes = routes;
                routes.sort();
                assert_eq!(listed(&link.name), words(routes));
            }
            let journal = std::fs::read_dir("/var/lib/kubebridge/sessions")
                .unwrap()
                .count();
            assert_eq!(journal, 1);
            host.undo().await.unwrap();
            assert_eq!(listed(&link.name), [""; 0]);
            assert_eq!(recover(&sys).await.unwrap(), []);
        },
    );
}

#[test]
fn w9_routes_that_could_not_be_set_are_set_when_they_are_asked_for_again() {
    let name = "routes::w9_routes_that_could_not_be_set_are_set_when_they_are_asked_for_again";
    on_a_machine(name, async |machine| {
        let sys = offline(&machine);
        let (mut host, link) = open(&sys).await;
        host.apply(&wish(&nets(&["10.96.0.0/16"]))).await.unwrap();
        let in_the_way = format!("10.60.0.0/16 dev {}", link.name);
        run(&format!("ip route add {in_the_way}"));
        let both = nets(&["10.60.0.0/16", "10.96.0.0/16"]);
        host.apply(&wish(&both)).await.unwrap_err();

        run(&format!("ip route del {in_the_way}"));
        host.apply(&wish(&both)).await.unwrap();

        assert_eq!(listed(&link.name), words(&both));
        host.undo().await.unwrap();
    });
}

#[test]
fn f10_no_sysctl_firewall_rule_or_foreign_route_changes() {
    let name = "routes::f10_no_sysctl_firewall_rule_or_foreign_route_changes";
    on_a_machine(name, async |machine| {
        run(WORLD);
        let sys = offline(&machine);
        let (sysctl, rules, others) = (sysctls(), firewall(), kernel());
        assert!(sysctl.lines().count() > 100);
        let (mut host, link) = open(&sys).await;
        let plan = planned(&sys, &["10.96.0.0/16", "10.244.0.0/16", "fd00:10::/112"]).await;
        host.apply(&wish(&plan.routes)).await.unwrap();
        let foreign: Vec<_> = kernel()
            .lines()
            .filter(|line| !line.contains(&link.name))
            .map(str::to_owned)
            .collect();
        assert_eq!(foreign, others.lines().collect::<Vec<_>>());
        assert_eq!((sysctls(), firewall()), (sysctl.clone(), rules.clone()));
        host.undo().await.unwrap();
        drop(link);
        until("the routes of the start", async || kernel() == others).await;
        assert_eq!((sysctls(), firewall()), (sysctl, rules));
    });
}
