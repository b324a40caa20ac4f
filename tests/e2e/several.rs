//! Several sessions on one laptop: to two clusters at once, and what they cannot both have.

use std::{fs, time::Duration};

use anyhow::{Result, ensure};
use kubebridge_tests::{
    background::{connect, connect_words, run, status_of},
    checks::Checks,
    daemon::Daemon,
    lab::{AUTHORS, Lab},
    laptop::Hosts,
    lookup::Family,
    parts::program,
    product::{MANAGER_ACCOUNT, Manager, kubebridge, kubebridge_output, must_be_as},
    relay::Relay,
    snapshot::Snapshot,
    wait::until,
};

/// Longer than what any of this takes on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// Where `authors` and `cart` of the other cluster are.
pub(crate) const OTHER_AUTHORS: &str = "10.112.0.7";
const OTHER_CART: &str = "10.112.0.8";

/// Writes the other cluster's Services to a file, and gives the flag that names it.
pub(crate) fn other_services(lab: &Lab) -> Result<String> {
    let services = lab.logs().join("services.yaml");
    fs::write(&services, OTHER_SERVICES)?;
    Ok(format!("--services={}", services.display()))
}

/// The Services of the other cluster: one by a name that the first has too, one by its own.
const OTHER_SERVICES: &str = "
apiVersion: v1
kind: Service
metadata: {name: authors, namespace: default}
spec: {clusterIP: 10.112.0.7, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: cart, namespace: default}
spec: {clusterIP: 10.112.0.8, ports: [{port: 80}]}
";

/// Another manager on the node, and the way to it.
pub(crate) struct Other {
    relay: Relay,
    #[expect(dead_code, reason = "it ends with the test")]
    daemon: Daemon,
}

impl Other {
    pub(crate) fn start(
        lab: &Lab,
        domain: &str,
        address: &'static str,
        grpc: &'static str,
        flag: &str,
    ) -> Result<Self> {
        let mut command = lab.node.command(program("traffic-manager")?);
        command
            .env("KUBECONFIG", lab.api.kubeconfig(MANAGER_ACCOUNT))
            .args(["serve", "--auth", "port-forward", "--namespace", "default"])
            .args(["--pod-namespace", "default", "--resolv-conf", "/dev/null"])
            .args(["--upstream", "10.96.0.10", "--grpc-listen", grpc])
            .args(["--dns-listen", &format!("{address}:1053")])
            .args(["--admin-listen", &format!("{address}:7081")])
            .args(["--cluster-domain", domain])
            .args(["--search", &format!("default.svc.{domain}")])
            .args(["--search", &format!("svc.{domain}"), "--search", domain])
            .arg(flag);
        let daemon = Daemon::start(&format!("manager-{address}"), &lab.logs(), command)?;
        daemon.until("another manager to be ready", LONG, || {
            kubebridge_tests::machine::http_ok(&lab.node, &format!("{address}:7081"), "/readyz")
        })?;
        let relay = Relay::start(lab.laptop.on(), &lab.node, grpc)?;
        Ok(Self { relay, daemon })
    }

    pub(crate) fn words(&self, options: &[&str]) -> Vec<String> {
        let manager = self.relay.address().to_string();
        let words = ["connect", "--manager", &manager, "-n", "default"];
        let all = words.iter().chain(options);
        all.map(|&word| word.to_owned()).collect()
    }
}

/// Has the cluster say its networks to the manager.
fn grant_networks(lab: &Lab) -> Result<()> {
    let reads = "--resource=servicecidrs.networking.k8s.io";
    let account = format!("--serviceaccount=default:{MANAGER_ACCOUNT}");
    lab.kubectl(&[
        "create",
        "clusterrole",
        "networks",
        "--verb=list,watch",
        reads,
    ])?;
    let binding = [
        "create",
        "clusterrolebinding",
        "networks",
        "--clusterrole=networks",
    ];
    lab.kubectl(&[&binding[..], &[&account]].concat())?;
    Ok(())
}

#[test]
fn lifecycle_09_two_sessions_to_two_clusters_work_and_bare_names_go_to_the_first() -> Result<()> {
    let lab = Lab::start()?;
    let _manager = Manager::start(&lab)?;
    grant_networks(&lab)?;
    let services = other_services(&lab)?;
    let other = Other::start(&lab, "beta.local", "127.0.0.9", "127.0.0.9:7080", &services)?;
    let kubernetes = "--kubernetes";
    let overlapping = Other::start(
        &lab,
        "gamma.local",
        "127.0.0.8",
        "127.0.0.8:7080",
        kubernetes,
    )?;
    let before = Snapshot::take(lab.laptop.on())?;
    let mut checks = Checks::new();

    let first = connect(&lab, &connect_words(&lab, &[])?)?;
    until("the manager to know its networks", LONG, || {
        let dns = status_of(&lab, &first)?["dns"]["domains"].to_string();
        ensure!(dns.contains("96.10.in-addr.arpa"), "{dns}");
        Ok(())
    })?;
    let second = connect(&lab, &other.words(&[]))?;

    both_work(&lab, &mut checks, &first, &second)?;
    let clashing = overlapping.words(&[]);
    what_is_refused(&lab, &mut checks, &clashing, [&first, &second])?;
    kubebridge_output(&lab, &["disconnect", &first])?;
    second_alone(&lab, &mut checks, &second);

    // What was first comes second now, and both leave at once.
    let third = connect(&lab, &connect_words(&lab, &[])?)?;
    resolves(
        &lab,
        &mut checks,
        "the other way round",
        &[
            ("authors", OTHER_AUTHORS),
            ("authors.shop", "10.96.1.2"),
            ("authors.default.svc.cluster.local", AUTHORS),
        ],
    );
    checks.that("a killed first", kill_first(&lab, &second, &third));
    kubebridge_output(&lab, &["disconnect", "--all"])?;
    checks.that("after all", must_be_as(&lab, &before));
    checks.finish()?;
    lab.finish();
    Ok(())
}

/// Each cluster's own names are there, and names of neither are those of the first.
fn both_work(lab: &Lab, checks: &mut Checks, first: &str, second: &str) -> Result<()> {
    resolves(
        lab,
        checks,
        "both",
        &[
            ("authors.default.svc.cluster.local", AUTHORS),
            ("authors.default.svc.beta.local", OTHER_AUTHORS),
            ("cart.default.svc.beta.local", OTHER_CART),
            ("authors", AUTHORS),
            ("authors.default", AUTHORS),
            ("authors.default.svc", AUTHORS),
            ("cart", ""),
            ("cart.default", ""),
            ("example.shop", "203.0.113.80"),
        ],
    );
    let domains = lab.laptop.on().output(&["resolvectl", "domain"])?;
    checks.that("the domains of the second link", {
        let link = domains.lines().find(|line| line.contains("(kb1)"));
        ensure!(
            link.is_some_and(|line| line.ends_with(": ~beta.local")),
            "{domains}"
        );
        Ok(())
    });
    checks.that("status of the second", {
        let status = status_of(lab, second)?;
        let withheld = &status["withheld"];
        ensure!(withheld["session"] == first, "{withheld}");
        // authors, cart, and both with .default
        ensure!(withheld["hosts_names"] == 4, "{withheld}");
        ensure!(status["hosts"]["lines"] == 0, "{}", status["hosts"]);
        Ok(())
    });

    Ok(())
}

/// What clashes is refused, and a command about one session names both.
fn what_is_refused(
    lab: &Lab,
    checks: &mut Checks,
    clashing: &[String],
    sessions: [&str; 2],
) -> Result<()> {
    let [first, second] = sessions;
    let twice = connect_words(lab, &[])?;
    checks.that(
        "the same domain",
        refused(lab, &twice, "both have the domain cluster.local", first),
    );
    checks.that(
        "overlapping networks",
        refused(
            lab,
            clashing,
            "have networks that overlap: 10.96.0.0/16",
            first,
        ),
    );
    for words in [
        &["disconnect"][..],
        &["routes"],
        &["hosts", "list"],
        &["dns", "query", "authors"],
    ] {
        checks.that(
            format!("{words:?} is ambiguous"),
            ambiguous(lab, words, sessions),
        );
    }
    checks.that("dns query --session", {
        let words = ["dns", "query", "authors", "--session", second];
        let said = kubebridge_output(lab, &words)?;
        ensure!(said.contains(OTHER_AUTHORS), "{said}");
        Ok(())
    });
    Ok(())
}

/// The one that is left has all names.
fn second_alone(lab: &Lab, checks: &mut Checks, second: &str) {
    checks.that("the hosts lines of the second appear", {
        until("its hosts lines", LONG, || {
            let hosts = fs::read_to_string(lab.laptop.on().path("/etc/hosts"))?;
            ensure!(hosts.contains("10.112.0.8\tcart cart.default "), "{hosts}");
            let status = status_of(lab, second)?;
            ensure!(status["withheld"].is_null(), "{status}");
            ensure!(status["hosts"]["lines"] == 2, "{}", status["hosts"]);
            Ok(())
        })
    });
    resolves(
        lab,
        checks,
        "the second alone",
        &[
            ("authors", OTHER_AUTHORS),
            ("authors.default.svc", OTHER_AUTHORS),
            ("cart.default", OTHER_CART),
            ("authors.default.svc.beta.local", OTHER_AUTHORS),
            ("authors.default.svc.cluster.local", ""),
            ("example.shop", "203.0.113.80"),
        ],
    );
}

/// Kills the session `first`; after `recover` its names are those of the `second`.
fn kill_first(lab: &Lab, first: &str, second: &str) -> Result<()> {
    let pid = status_of(lab, first)?["pid"].to_string();
    lab.laptop.on().output(&["kill", "-KILL", &pid])?;
    until("what the killed one left to be repaired", LONG, || {
        kubebridge_output(lab, &["recover"])?;
        let status = status_of(lab, second)?;
        ensure!(status["withheld"].is_null(), "{status}");
        let hosts = fs::read_to_string(lab.laptop.on().path("/etc/hosts"))?;
        ensure!(
            hosts.contains("10.96.1.1\tauthors authors.default "),
            "{hosts}"
        );
        Ok(())
    })
}

#[test]
fn lifecycle_09_two_users_of_one_cluster_do_not_disturb_each_other() -> Result<()> {
    let lab = Lab::start()?;
    let _manager = Manager::start(&lab)?;
    let mut checks = Checks::new();
    // The other user's laptop: another machine with the same way to the manager.
    let desk = kubebridge_tests::machine::Machine::start("desk", "mount -t tmpfs tmpfs /var/lib")?;
    let relay = Relay::start(&desk, &lab.node, "127.0.0.1:7080")?;
    let first = connect(&lab, &connect_words(&lab, &[])?)?;

    let mut words = connect_words(&lab, &["--dns", "off", "--hosts", "off", "--foreground"])?;
    let place = words.iter().position(|word| word == "--manager");
    words[place.unwrap_or_default() + 1] = relay.address().to_string();
    let mut command = desk.command(program("kubebridge")?);
    command.args(&words);
    let other = Daemon::start("other-user", &lab.logs(), command)?;
    other.until_says("connected", LONG)?;

    lab.kubectl(&[
        "create",
        "service",
        "clusterip",
        "books",
        "--tcp=80",
        "--clusterip=10.96.2.1",
    ])?;
    let sees = |words: &[&str], what: &str| {
        until(what, LONG, || {
            let said = String::from_utf8(lab.laptop.on().run(words)?.stdout)?;
            ensure!(said.contains("10.96.2.1"), "{said}");
            Ok(())
        })
    };
    let own = program("kubebridge")?.display().to_string();
    checks.that(
        "the first sees the change",
        sees(&[&own, "routes"], "the change"),
    );
    checks.that("the other sees it too", {
        until("the change at the other's", LONG, || {
            let said = desk.output(&[&own, "routes"])?;
            ensure!(said.contains("10.96.2.1"), "{said}");
            Ok(())
        })
    });
    other.signal(rustix::process::Signal::KILL)?;
    other.ended(LONG)?;
    resolves(
        &lab,
        &mut checks,
        "after the other was killed",
        &[("authors", AUTHORS), ("books", "10.96.2.1")],
    );
    checks.that("the first is connected", {
        let state = status_of(&lab, &first)?["state"].to_string();
        ensure!(state == "\"connected\"", "{state}");
        Ok(())
    });
    kubebridge_output(&lab, &["disconnect"])?;
    checks.finish()?;
    lab.finish();
    Ok(())
}

/// Asks each name by glibc as Debian sets it up; an empty address is a name that must not be there.
fn resolves(lab: &Lab, checks: &mut Checks, when: &str, names: &[(&str, &str)]) {
    for (name, address) in names {
        let found = lab
            .lookup
            .glibc(&lab.laptop, Hosts::Resolve, Family::V4, &[name])
            .and_then(|found| found.of(name));
        let what = format!("{when}: {name}");
        if address.is_empty() {
            checks.that(what, {
                found.and_then(|found| {
                    ensure!(found.starts_with('!'), "{found}");
                    Ok(())
                })
            });
        } else {
            checks.equal(what, found, &format!("= {address}"));
        }
    }
}

/// Fails unless connecting with these words is refused because of the session `other`.
fn refused(lab: &Lab, words: &[String], why: &str, other: &str) -> Result<()> {
    let said = run(lab, words)?;
    let error = String::from_utf8_lossy(&said.stderr);
    ensure!(said.status.code() == Some(73), "{}: {error}", said.status);
    let says = [why, &format!("session {other} (pid "), "and this one ("];
    for words in says {
        ensure!(error.contains(words), "{words:?} is not in {error}");
    }
    ensure!(
        error.contains(&format!("hint: kubebridge disconnect {other}")),
        "{error}"
    );
    Ok(())
}

/// Fails unless the command names both sessions instead of choosing one.
fn ambiguous(lab: &Lab, words: &[&str], sessions: [&str; 2]) -> Result<()> {
    let said = kubebridge(lab, words)?;
    let error = String::from_utf8_lossy(&said.stderr);
    ensure!(said.status.code() == Some(64), "{}: {error}", said.status);
    let names = sessions.iter().all(|session| error.contains(*session));
    ensure!(names && error.contains("--session"), "{error}");
    Ok(())
}
