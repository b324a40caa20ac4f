//! Forwarding loops on real parts: managers and CoreDNS that send to each other (conditions/loops.md).
//!
//! Every process listens on an address of its own in one machine, as pods of one node do. What is
//! counted is what real servers logged; that an answer came at once shows by what it says, for a
//! query that nobody recognised is answered after its deadline and says so.

use std::{fs, time::Duration};

use anyhow::{Context, Result, ensure};
use kubebridge_tests::{
    checks::Checks,
    coredns::CoreDns,
    daemon::Daemon,
    lab::{AUTHORS, Lab},
    machine::Machine,
    outside::Outside,
    parts::{Parts, program},
    product,
    wait::until,
};
use tempfile::TempDir;

/// Far above the five seconds that are meant: the machine may be busy. What is tested is that it
/// is found out at all.
const FOUND: Duration = Duration::from_secs(60);

/// A name that nobody has, long enough to be spelled at random.
const NAME: &str = "nobody.in-the-ring.example.com";
/// Search domains and the bare name.
const CANDIDATES: usize = 4;
/// How often a query is sent within its two seconds when the machine is slow: after 200 ms, doubling.
const SENDINGS: usize = 5;

/// One machine with addresses for everybody.
struct Node {
    machine: Machine,
    folder: TempDir,
    parts: Parts,
}

/// A manager without Services.
struct Manager {
    daemon: Daemon,
    dns: String,
}

impl Node {
    fn start() -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("kb-loops-")
            .tempdir_in("/tmp")?;
        fs::create_dir(folder.path().join("logs"))?;
        let addresses = "for last in 1 2 3 53 54 80; do ip addr add 10.0.0.$last/32 dev lo; done";
        Ok(Self {
            machine: Machine::start("node", addresses)?,
            folder,
            parts: Parts::find()?,
        })
    }

    /// Starts a manager on an address, with upstreams and more flags, and does not wait for them.
    fn manager(&self, address: &str, upstreams: &[&str], more: &[&str]) -> Result<Manager> {
        let mut command = self.machine.command(program("traffic-manager")?);
        command
            .env("RUST_LOG", "debug,hyper=info,h2=info,tower=info")
            .args(["serve", "--resolv-conf", "/dev/null"])
            .args(["--dns-listen", &format!("{address}:53")])
            .args([
                "--grpc-listen",
                "127.0.0.1:0",
                "--admin-listen",
                "127.0.0.1:0",
            ])
            .args(["--search", "default.svc.cluster.local"])
            .args(["--search", "svc.cluster.local", "--search", "cluster.local"])
            .args(upstreams.iter().flat_map(|one| ["--upstream", one]))
            .args(more);
        let logs = self.folder.path().join("logs");
        let daemon = Daemon::start(&format!("manager-{address}"), &logs, command)?;
        daemon.until_line("the manager to listen", FOUND, |line| {
            line.contains("listening") && line.contains("admin")
        })?;
        let dns = address.to_owned();
        Ok(Manager { daemon, dns })
    }

    fn coredns(&self, name: &str, corefile: &str) -> Result<CoreDns> {
        CoreDns::start_with(
            &self.parts,
            name,
            self.folder.path(),
            &self.machine,
            corefile,
        )
    }

    fn outside(&self) -> Result<Outside> {
        let logs = self.folder.path().join("logs");
        Outside::start("outside", &logs, &self.machine, "10.0.0.80", &[])
    }

    /// Asks with dig; what it printed, the extended error included.
    fn ask(&self, manager: &Manager, name: &str) -> Result<String> {
        let server = format!("@{}", manager.dns);
        self.machine
            .output(&["dig", &server, "+tries=1", "+time=9", name, "A"])
    }
}

impl Manager {
    /// Waits until it says that an upstream leads back to it for a zone.
    fn finds_out(&self, upstream: &str, zone: &str) -> Result<()> {
        let (upstream, zone) = (format!("upstream={upstream}"), format!("zone={zone}"));
        let line = self
            .daemon
            .until_line("the loop to be found out", FOUND, |line| {
                let plain = without_colours(line);
                plain.contains("leads back to us") && plain.contains(&upstream) && {
                    plain.split(' ').any(|word| word == zone)
                }
            });
        line.map(drop)
    }

    fn has_said(&self, what: &str) -> Result<bool> {
        Ok(without_colours(&self.daemon.log()?).contains(what))
    }
}

/// Takes the escape sequences out of a log line.
fn without_colours(line: &str) -> String {
    let mut plain = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('\u{1b}') {
        plain.push_str(before);
        rest = after.split_once('m').map_or("", |(_, rest)| rest);
    }
    plain + rest
}

/// Fails unless the answer is SERVFAIL because of a loop.
fn is_loop(answer: &str) -> Result<()> {
    let says = answer.contains("status: SERVFAIL") && answer.contains("(loop)");
    ensure!(says, "not recognised: {answer}");
    Ok(())
}

/// How often a name was asked, with any search domain behind it.
fn count(names: &[String], name: &str) -> usize {
    names.iter().filter(|seen| seen.starts_with(name)).count()
}

/// How often exactly this name was asked: the zone of a search domain may be no loop.
fn count_bare(names: &[String], name: &str) -> usize {
    names.iter().filter(|seen| *seen == name).count()
}

#[test]
fn loops_01_and_d15_a_manager_that_is_its_own_upstream_leaves_itself_out() -> Result<()> {
    let node = Node::start()?;
    let outside = node.outside()?;
    let manager = node.manager("10.0.0.1", &["10.0.0.1", "10.0.0.80"], &[])?;
    let mut checks = Checks::new();
    checks.that("told", {
        let said = manager.has_said("upstream is this process itself")?;
        said.then_some(()).context("it does not say so")
    });
    let answer = node.ask(&manager, "www.example.org")?;
    checks.that("answered", {
        let good = answer.contains("203.0.113.81");
        good.then_some(()).with_context(|| answer.clone())
    });
    let asked = count(&outside.queries()?, "www.example.org");
    checks.that("amplification", {
        let few = asked <= CANDIDATES * SENDINGS;
        few.then_some(())
            .with_context(|| format!("{asked} queries"))
    });
    checks.finish()
}

#[test]
fn loops_05_coredns_that_sends_one_zone_back_is_left_out_for_that_zone_only() -> Result<()> {
    let node = Node::start()?;
    let outside = node.outside()?;
    let coredns = node.coredns(
        "coredns",
        "corp.example:53 {\n bind 10.0.0.53\n log\n forward . 10.0.0.1\n}\n\
         .:53 {\n bind 10.0.0.53\n log\n forward . 10.0.0.80\n}\n",
    )?;
    let manager = node.manager(
        "10.0.0.1",
        &["10.0.0.53"],
        &["--absolute-zone", "corp.example"],
    )?;
    manager.finds_out("10.0.0.53", "corp.example")?;

    let asked = "git.corp.example";
    is_loop(&node.ask(&manager, asked)?)?;
    let queries = coredns.queries()?;
    ensure!(
        count(&queries, asked) == 0,
        "asked all the same: {queries:?}"
    );
    let answer = node.ask(&manager, "www.example.org")?;
    ensure!(
        answer.contains("203.0.113.81"),
        "the rest is left out too: {answer}"
    );
    let asked = count(&outside.queries()?, "www.example.org");
    ensure!(asked <= CANDIDATES * SENDINGS, "{asked} queries");
    ensure!(!manager.has_said("zone=.")?, "the root is no loop");
    Ok(())
}

#[test]
fn loops_06_two_managers_that_forward_to_each_other_break_the_ring() -> Result<()> {
    let node = Node::start()?;
    let outside = node.outside()?;
    let first = node.manager("10.0.0.1", &["10.0.0.2", "10.0.0.80"], &[])?;
    let second = node.manager("10.0.0.2", &["10.0.0.1", "10.0.0.80"], &[])?;
    // At once, before anything is found out: the other way answers.
    for manager in [&first, &second] {
        let answer = node.ask(manager, "www.example.org")?;
        ensure!(answer.contains("203.0.113.81"), "{answer}");
    }
    let asked = count(&outside.queries()?, "www.example.org");
    // Both managers ask it, for both questions, each candidate at most.
    ensure!(asked <= 2 * 2 * CANDIDATES * SENDINGS, "{asked} queries");
    // One of the two is enough, and which one is chance.
    until("the ring to be broken", FOUND, || {
        let said = [&first, &second].map(|one| one.has_said("leads back to us, left out"));
        let [one, other] = said;
        ensure!(one? || other?, "nobody has found out");
        Ok(())
    })?;
    for manager in [&first, &second] {
        let answer = node.ask(manager, "cdn.example.net")?;
        ensure!(answer.contains("203.0.113.81"), "{answer}");
    }
    Ok(())
}

#[test]
fn loops_06_two_managers_with_no_other_way_fail_at_once() -> Result<()> {
    let node = Node::start()?;
    let first = node.manager("10.0.0.1", &["10.0.0.2"], &[])?;
    let second = node.manager("10.0.0.2", &["10.0.0.1"], &[])?;
    for manager in [&first, &second] {
        let answer = node.ask(manager, NAME)?;
        ensure!(answer.contains("status: SERVFAIL"), "{answer}");
        ensure!(
            !answer.contains("No Reachable Authority"),
            "it waited: {answer}"
        );
    }
    Ok(())
}

#[test]
fn loops_06_and_09_a_ring_of_two_managers_and_coredns_is_broken() -> Result<()> {
    let node = Node::start()?;
    let coredns = node.coredns(
        "coredns",
        ".:53 {\n bind 10.0.0.53\n log\n forward . 10.0.0.1\n}\n",
    )?;
    let first = node.manager("10.0.0.1", &["10.0.0.2"], &[])?;
    let second = node.manager("10.0.0.2", &["10.0.0.53"], &[])?;
    let answer = node.ask(&first, NAME)?;
    ensure!(answer.contains("status: SERVFAIL"), "{answer}");
    ensure!(
        !answer.contains("No Reachable Authority"),
        "it waited: {answer}"
    );
    let asked = count(&coredns.queries()?, "nobody.in-the-ring");
    ensure!(asked <= CANDIDATES * SENDINGS, "{asked} queries went round");
    until("the ring to be broken", FOUND, || {
        let said = [&first, &second].map(|one| one.has_said("leads back to us, left out"));
        let [one, other] = said;
        ensure!(one? || other?, "nobody has found out");
        Ok(())
    })
}

#[test]
fn loops_08_and_09_coredns_that_sends_all_back_is_recognised_and_found_out() -> Result<()> {
    let node = Node::start()?;
    let outside = node.outside()?;
    let coredns = node.coredns(
        "coredns",
        ".:53 {\n bind 10.0.0.53\n log\n forward . 10.0.0.1\n}\n",
    )?;
    let manager = node.manager("10.0.0.1", &["10.0.0.53", "10.0.0.80"], &[])?;
    let answer = node.ask(&manager, "www.example.org")?;
    ensure!(answer.contains("203.0.113.81"), "{answer}");
    for (server, asked) in [
        ("CoreDNS", count(&coredns.queries()?, "www.example.org")),
        (
            "the real one",
            count(&outside.queries()?, "www.example.org"),
        ),
    ] {
        ensure!(
            asked <= CANDIDATES * SENDINGS,
            "{asked} queries at {server}"
        );
    }
    manager.finds_out("10.0.0.53", ".")?;
    let before = coredns.queries()?.len();
    let answer = node.ask(&manager, "edge.example.net")?;
    ensure!(answer.contains("203.0.113.81"), "{answer}");
    let asked = coredns.queries()?;
    ensure!(
        count_bare(&asked[before..], "edge.example.net") == 0,
        "asked all the same: {asked:?}"
    );
    Ok(())
}

/// The laptop's application → resolved → session → manager → CoreDNS → the laptop's resolved → session:
/// for names of a suffix that is resolved in the cluster, which runs on the laptop.
#[test]
fn loops_07_a_cluster_on_the_laptop_itself_makes_no_name_go_round() -> Result<()> {
    let lab = Lab::start_local()?;
    let manager = product::Manager::start(&lab)?;
    let session = product::Session::connect(&lab, &["--domain", "corp.example"])?;
    let laptop = lab.laptop.on();
    manager.says("the manager to find out", |line| {
        let plain = without_colours(line);
        plain.contains("leads back to us, left out") && plain.contains("zone=corp.example")
    })?;
    let mut checks = Checks::new();
    let before = lab.coredns.queries()?.len();
    let looped = "nobody.has-this.corp.example";
    let resolver = format!("@{}", session.resolver()?);
    let dig = |name: &str| laptop.output(&["dig", &resolver, "+tries=1", "+time=9", name, "A"]);
    checks.that("a name that would go round", is_loop(&dig(looped)?));
    checks.that("CoreDNS is not asked it", {
        let asked = count_bare(&lab.coredns.queries()?[before..], looped);
        (asked == 0)
            .then_some(())
            .with_context(|| format!("{asked} queries"))
    });
    checks.that("a name of the cluster", {
        let answer = dig("authors.default.svc.cluster.local")?;
        answer
            .contains(AUTHORS)
            .then_some(())
            .with_context(|| answer.clone())
    });
    let outside = "www.example.org";
    checks.that("a name of the world", {
        let answer = laptop.output(&["resolvectl", "query", "--cache=no", outside])?;
        answer
            .contains("203.0.113.81")
            .then_some(())
            .with_context(|| answer.clone())
    });
    checks.that("which never went to the cluster", {
        let asked = count(&lab.coredns.queries()?, outside);
        (asked == 0)
            .then_some(())
            .with_context(|| format!("{asked} queries"))
    });
    checks.finish()?;
    session.end_at_once()?;
    lab.finish();
    Ok(())
}
