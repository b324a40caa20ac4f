//! Connections without a tunnel: the proxy of a session, single ports, and the story of a way.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kubebridge_tests::{
    checks::Checks,
    daemon::Daemon,
    lab::Lab,
    parts::program,
    pods::Exposed,
    product::{Attempt, Session, kubebridge, kubebridge_output, status},
    snapshot::Snapshot,
    wait::until,
};

use super::tunnel::World;
use super::workloads::Workloads;
use super::{peer, says};

const START: Duration = Duration::from_secs(60);

#[test]
#[expect(clippy::too_many_lines, reason = "one lab, one way after the other")]
fn programs_that_are_told_reach_the_cluster_by_the_proxy_and_nothing_is_changed() -> Result<()> {
    let world = World::start(Lab::start()?)?;
    let _running = Workloads::start(&world.lab, &world.network)?;
    let laptop = world.laptop();
    let fixed = ["--mode=proxy", "--proxy-listen=127.0.0.1:18888"];
    let session = Session::connect(&world.lab, &fixed)?;
    let mut checks = Checks::new();
    let now = Snapshot::take(laptop)?;
    checks.that("nothing is changed", now.must_equal(&world.before));

    let said = kubebridge_output(&world.lab, &["env", "-o", "json"])?;
    let said: serde_json::Value = serde_json::from_str(&said)?;
    let variable = |name: &str| {
        let value = said["sessions"][0]["variables"][name].as_str();
        value
            .map(str::to_owned)
            .with_context(|| format!("no {name} in {said}"))
    };
    let page = |proxy: &str| {
        let curl = [
            "curl",
            "-sS",
            "--max-time",
            "30",
            "--proxytunnel",
            "-x",
            proxy,
        ];
        laptop.output(&[&curl[..], &["http://web.default:9080/"]].concat())
    };
    let wanted = "hello from a pod\n";
    for name in ["ALL_PROXY", "HTTPS_PROXY"] {
        checks.equal(name, variable(name).and_then(|proxy| page(&proxy)), wanted);
    }
    let stranger = variable("ALL_PROXY")?.replace("kubebridge:", "kubebridge:x");
    let refused = match page(&stranger) {
        Err(_) => Ok(()),
        Ok(page) => Err(anyhow::anyhow!("it is given {page:?}")),
    };
    checks.that("a wrong password", refused);
    let told = status(&world.lab)?;
    checks.that("status has the proxy and not its password", {
        let proxy = variable("HTTPS_PROXY")?;
        let (credentials, address) = proxy.split_once('@').unwrap_or_default();
        let password = credentials.rsplit(':').next().unwrap_or_default();
        let text = kubebridge_output(&world.lab, &["status"])?;
        let hides = !format!("{told}{text}").contains(password);
        let row = format!("proxy             {address}, ");
        let right = told["proxy"]["address"] == address && text.contains(&row);
        (hides && right && password.len() == 32)
            .then_some(())
            .with_context(|| format!("{told}\n{text}"))
    });

    let second = Attempt::start(&world.lab, &fixed)?;
    let status = second.ended()?;
    let said = second.said()?;
    checks.that("a second session on the same port", {
        let named = said.contains("127.0.0.1:18888 is in use: session ");
        (status.code() == Some(73) && named)
            .then_some(())
            .with_context(|| format!("{status}: {said}"))
    });
    let old = variable("ALL_PROXY")?;
    checks.that("disconnect", session.disconnect());

    let session = Session::connect(&world.lab, &fixed)?;
    let new = kubebridge_output(&world.lab, &["env", "-o", "json"])?;
    let new: serde_json::Value = serde_json::from_str(&new)?;
    let new = &new["sessions"][0];
    checks.equal(
        "the port of before",
        Ok(new["address"].to_string()),
        "\"127.0.0.1:18888\"",
    );
    let new = new["variables"]["ALL_PROXY"]
        .as_str()
        .context("ALL_PROXY")?;
    checks.equal("by the new password", page(new), wanted);
    checks.that("not by the one of before", {
        match page(&old) {
            Err(_) if old != new => Ok(()),
            other => Err(anyhow::anyhow!("{old} {new} {other:?}")),
        }
    });
    let ended = session.disconnect();
    world.finish(checks, ended)
}

#[test]
#[expect(clippy::too_many_lines, reason = "one lab, one way after the other")]
fn single_ports_lead_to_services_and_the_way_of_a_connection_is_told() -> Result<()> {
    let world = World::start(Lab::start()?)?;
    let laptop = world.laptop();
    let session = world.connect()?;
    let mut checks = Checks::new();

    let mut command = laptop.command(program("kubebridge")?);
    command.args(["forward", "peer.default:80=18080"]);
    let forward = Daemon::start("kubebridge-forward", &world.lab.logs(), command)?;
    let listens = |line: &str| line.contains("127.0.0.1:18080");
    forward.until_line("the port to be forwarded", START, listens)?;
    let at = "127.0.0.1:18080";
    checks.that("half", says(laptop, &["half", at], "both ways"));
    checks.that(
        "down",
        peer(laptop, &["down", at, "4000000", "2"]).map(drop),
    );
    checks.that("up", peer(laptop, &["up", at, "4000000", "2"]).map(drop));

    // Pods behind no address of their own: one of them is gone.
    let pods = Exposed {
        name: "pods",
        namespace: "default",
        cluster_ip: "None",
        ports: &[("tcp", "TCP", 9000, 9000), ("mute", "UDP", 9003, 9003)],
        endpoints: &["10.244.1.21", "10.244.1.99"],
    };
    world.network.expose(&world.lab, &pods)?;
    until("the Pods' names", START, || {
        let said = kubebridge_output(&world.lab, &["dns", "query", "pods.default"])?;
        ensure!(said.contains("10.244.1.99"), "{said}");
        Ok(())
    })?;
    for (destination, code, parts) in [
        (
            "peer.default:80",
            0,
            &["reachable", "1 of 1 ready: 10.244.1.21"][..],
        ),
        ("closed.default:80", 1, &["refused"]),
        ("peer.default:81", 1, &["denied"]),
        ("nobody.default:80", 1, &["no-such-name"]),
        (
            "peer.default:80/udp",
            0,
            &["peer.default:80/udp", "reachable", "10.96.3.1:80 answered"],
        ),
        (
            "silent.default:80",
            1,
            &[
                "timeout",
                "NetworkPolicy of default",
                "app.kubernetes.io/name=traffic-manager",
            ],
        ),
        ("closed.default:80/udp", 1, &["denied", "no-such-port"]),
        ("pods.default:9003/udp", 1, &["refused"]),
        (
            "pods.default:9000",
            1,
            &[
                "\n10.244.1.21  reachable\n",
                "\n10.244.1.99  host-unreachable\n",
                "\nverdict      partly\n",
                "\nhelp         10.244.1.99 is host-unreachable: ",
            ],
        ),
    ] {
        let told = (|| {
            let output = kubebridge(&world.lab, &["trace", destination])?;
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            ensure!(
                output.status.code() == Some(code),
                "{:?}: {said}",
                output.status
            );
            parts.iter().try_for_each(|part| {
                ensure!(said.contains(part), "no {part} in {said}");
                Ok(())
            })
        })();
        checks.that(destination, told);
    }
    checks.that("the NetworkPolicy of the documentation", {
        let docs = include_str!("../../../docs/dataplane.md");
        let policies = docs
            .split("```yaml\n")
            .filter_map(|part| part.split("```").next());
        let mut policies = policies.filter(|text| text.contains("\nkind: NetworkPolicy\n"));
        let policy = policies.next().context("docs/dataplane.md has none")?;
        world.lab.api.apply(&world.lab.node, policy)
    });
    forward.signal(rustix::process::Signal::INT)?;
    forward.ended(START)?;
    let ended = session.end_at_once();
    world.finish(checks, ended)
}
