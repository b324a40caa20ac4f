//! The laptop moves under open flows: its address goes, another uplink comes, also one within the
//! cluster's own networks, and VPNs come and go.

use anyhow::{Result, ensure};
use kubebridge_tests::{
    checks::Checks,
    dig::{Transport, dig},
    lab::LAPTOP,
    machine::{Machine, cable},
    pods::hold,
    product::{Session, status},
    wait::until,
};
use tokio::time::Instant;

use super::tunnel::{OPEN, START};
use super::ways::{OverWay, Way, new_flow};

/// A network that the laptop can be in.
struct Network {
    /// The laptop's end, and the internet's.
    ends: (&'static str, &'static str),
    address: &'static str,
    gateway: &'static str,
}

/// Of a hotel, say.
const HOTEL: Network = Network {
    ends: ("eth1", "hotel"),
    address: "100.66.0.10",
    gateway: "100.66.0.1",
};

/// Of an office that uses addresses of the cluster's Services.
const OFFICE: Network = Network {
    ends: ("eth2", "office"),
    address: "10.96.200.10",
    gateway: "10.96.200.1",
};

/// What the cluster has, and what of it is left in the office and beside each VPN.
const ALL: &str = "10.96.0.0/16 10.244.1.0/24";
const BESIDE_NARROW: &str = "10.96.0.0/22 10.96.5.0/24 10.96.6.0/23 10.96.8.0/21 10.96.16.0/20 \
    10.96.32.0/19 10.96.64.0/18 10.96.128.0/17 10.244.1.0/24";
const BESIDE_WIDE: &str = "10.244.1.0/24";

#[test]
fn lifecycle_15_f5_flows_over_mutual_tls_go_on_on_other_networks() -> Result<()> {
    moves(Way::Tls)
}

#[test]
fn lifecycle_15_f5_flows_by_the_api_server_go_on_on_other_networks() -> Result<()> {
    moves(Way::ApiServer)
}

fn moves(way: Way) -> Result<()> {
    let over = way.start()?;
    let laptop = over.world.laptop();
    let session = over.connect(&[])?;
    let mut checks = Checks::new();
    checks.that("the routes at first", has_routes(laptop, ALL));
    let held = hold(laptop, &["hold", OPEN, "24"], "holding")?;

    move_to(&over, "eth0", &HOTEL)?;
    checks.that("in the hotel", all_is_well(&over, &session, "hotel"));
    checks.that("the routes in the hotel", has_routes(laptop, ALL));

    move_to(&over, HOTEL.ends.0, &OFFICE)?;
    checks.that("in the office", all_is_well(&over, &session, "office"));
    checks.that("the office", leaves_the_office_alone(laptop));

    move_back(laptop)?;
    checks.that("at home", all_is_well(&over, &session, "home"));
    checks.that("the routes at home", has_routes(laptop, ALL));

    // A VPN of a part of the cluster's networks, then of more than all of them.
    laptop.shell(
        "ip tuntap add tun9 mode tun; ip addr add 172.29.0.2/32 dev tun9; ip link set tun9 up
ip route add 10.96.4.0/24 dev tun9",
    )?;
    checks.that("beside a narrow VPN", has_routes(laptop, BESIDE_NARROW));
    checks.that("a flow beside it", new_flow(laptop));
    laptop.shell("ip route del 10.96.4.0/24 dev tun9; ip route add 10.96.0.0/12 dev tun9")?;
    checks.that("beside a wide VPN", has_routes(laptop, BESIDE_WIDE));
    checks.that("both are named", tells_overlap(&over));
    laptop.shell("ip link del tun9")?;
    checks.that("after the VPN", has_routes(laptop, ALL));
    checks.that(
        "all is well after it",
        all_is_well(&over, &session, "no VPN"),
    );

    checks.that("flows that were open all the time", held.end().map(drop));
    let ended = session.end_at_once();
    over.finish(checks, ended)
}

/// Takes the laptop off one network, whose address is no more, and onto another.
fn move_to(over: &OverWay, from: &str, to: &Network) -> Result<()> {
    let (laptop, internet) = (over.world.laptop(), &over.world.lab.internet);
    let Network {
        ends: (near, far),
        address,
        gateway,
    } = to;
    cable((laptop, near), (internet, far))?;
    internet.shell(&format!(
        "ip addr add {gateway}/24 dev {far}; ip link set {far} up"
    ))?;
    laptop.shell(&format!(
        "ip -4 addr flush dev {from}
ip addr add {address}/24 dev {near}
ip link set {near} up
ip route add default via {gateway}"
    ))?;
    Ok(())
}

/// To the network of the start, as it was.
fn move_back(laptop: &Machine) -> Result<()> {
    laptop.shell(&format!(
        "ip link del eth2
ip link del eth1
ip addr add {LAPTOP}/24 dev eth0
ip route add default via 192.0.2.1"
    ))?;
    Ok(())
}

/// Waits until new flows work, names that nobody has asked for are resolved, and status is well.
fn all_is_well(over: &OverWay, session: &Session<'_>, place: &str) -> Result<()> {
    let begin = Instant::now();
    let (lab, laptop) = (&over.world.lab, over.world.laptop());
    new_flow(laptop)?;
    tell(&format!("{place}: a new flow after"), begin);
    let resolver = session.resolver()?;
    let name = format!("{}.probe.example.org", place.replace(' ', ""));
    until("names outside", START, || {
        let got = dig(laptop, &resolver, Transport::Udp, &name, "A")?;
        ensure!(got.to_string().ends_with("A 203.0.113.82"), "{got}");
        Ok(())
    })?;
    // Never asked before: only the manager can say that.
    let name = format!("{}.default.svc.cluster.local", place.replace(' ', ""));
    until(
        "the cluster to say that there is no such name",
        START,
        || {
            let got = dig(laptop, &resolver, Transport::Udp, &name, "A")?;
            ensure!(got.to_string() == "NXDOMAIN", "{got}");
            Ok(())
        },
    )?;
    until("status to be well", START, || {
        let status = status(lab)?;
        let routing = &status["routing"];
        let is_well = status["state"] == "connected" && routing["error"].is_null();
        ensure!(is_well, "{}: {routing}", status["state"]);
        Ok(())
    })?;
    tell(&format!("{place}: all is well after"), begin);
    Ok(())
}

/// Waits until these are the routes of ours.
fn has_routes(laptop: &Machine, wanted: &str) -> Result<()> {
    until(&format!("the routes {wanted}"), START, || {
        let said = laptop.output(&["ip", "-4", "route", "show", "proto", "107"])?;
        let routes: Vec<&str> = said
            .lines()
            .filter_map(|line| line.split(' ').next())
            .collect();
        let routes = routes.join(" ");
        ensure!(routes == wanted, "there are {routes}");
        Ok(())
    })
}

/// What the laptop shares a cable with stays its neighbour, and is no part of the cluster.
fn leaves_the_office_alone(laptop: &Machine) -> Result<()> {
    until("the office's network to be left out", START, || {
        let said = laptop.output(&["ip", "-4", "route", "show", "proto", "107"])?;
        ensure!(!said.contains("10.96.0.0/16"), "{said}");
        ensure!(said.contains("10.96.0.0/17"), "{said}");
        Ok(())
    })?;
    let ping = ["ping", "-n", "-c", "1", "-W", "10", OFFICE.gateway];
    laptop.output(&ping).map(drop)
}

fn tells_overlap(over: &OverWay) -> Result<()> {
    let status = status(&over.world.lab)?;
    let overlaps = status["routing"]["overlaps"].to_string();
    let both = r#"{"ours":"10.96.0.0/16","theirs":"10.96.0.0/12","via":"tun9"}"#;
    ensure!(overlaps.contains(both), "{overlaps}");
    Ok(())
}

#[expect(clippy::print_stderr, reason = "the times are what is shown")]
fn tell(what: &str, begin: Instant) {
    eprintln!("{what} {:.1?}", begin.elapsed());
}
