//! What happens to the Kubernetes API is survived: what is known stays, nothing that exists is
//! ever denied, and what changes afterwards shows.

use std::{net::Ipv4Addr, time::Duration};

use anyhow::{Result, ensure};
use kubebridge_tests::{
    checks::Checks,
    dig::{Transport, dig},
    lab::Lab,
    prober::{Prober, Question, Report},
    product::{Attempt, MANAGER_ACCOUNT, MANAGER_DNS, Manager, NAMESPACES, Session, status},
    wait::{last, until},
};
use rustix::process::Signal;
use tokio::time::Instant;

/// From when the API server is ready again until a change shows, on a busy machine. The figure
/// itself is printed.
const AGAIN: Duration = Duration::from_secs(60);

/// How long a right takes to be seen: three times what W5 allows, because a busy machine is no
/// failure of ours. The figure itself is printed.
const RIGHTS: Duration = Duration::from_secs(90);

/// Until a Service shows in quiet times, on a busy machine.
const SOON: Duration = Duration::from_secs(30);

/// How long it is watched on after the last change.
const WATCHED: Duration = Duration::from_secs(1);

const AUTHORS: Question = Question::Name(
    "authors.default.svc.cluster.local",
    Ipv4Addr::new(10, 96, 1, 1),
);

#[test]
fn an_api_server_that_goes_away_and_forgets_what_was_is_followed_again() -> Result<()> {
    let lab = Lab::start()?;
    lab.api
        .service_reader(&lab.node, MANAGER_ACCOUNT, &NAMESPACES)?;
    // It is away when the manager starts.
    lab.api.kill_api()?;
    let manager = Manager::launch(
        &lab,
        MANAGER_ACCOUNT,
        &["--namespace", "default", "--namespace", "shop"],
    )?;
    let mut checks = Checks::new();
    checks.equal(
        "an outside name without any API server",
        until("DNS to be served", SOON, || {
            dig(&lab.node, MANAGER_DNS, Transport::Udp, "example.shop", "A")
        })
        .map(|got| got.to_string()),
        "NOERROR example.shop. A 203.0.113.80",
    );
    checks.that(
        "not ready without Services",
        match manager.is_ready(&lab) {
            Err(_) => Ok(()),
            Ok(()) => Err(anyhow::anyhow!("it says that it is ready")),
        },
    );
    lab.api.start_api(&lab.node)?;
    checks.that("ready when it is there", manager.ready(&lab));
    let session = Session::connect(&lab, &[])?;
    let watched = Watched::start(&lab, &session)?;

    lab.api.kill_api()?;
    last(Duration::from_secs(2));
    lab.api.start_api(&lab.node)?;
    checks.that(
        "killed and back",
        watched.a_new_service_shows("books", "10.96.2.1"),
    );

    watched.finish(&mut checks)?;

    // The manager is held while the API server changes and restarts: what it last saw is older
    // than anything the new one remembers, which is 410 Gone.
    manager.signal(Signal::STOP)?;
    let version = newest_version(&lab)?;
    create(&lab, "papers", "10.96.2.2")?;
    lab.api.kill_api()?;
    lab.api.start_api(&lab.node)?;
    checks.that("the version is gone", is_gone(&lab, &version));
    let watched = Watched::start(&lab, &session)?;
    manager.signal(Signal::CONT)?;
    checks.that("410 Gone", watched.shows("papers", "10.96.2.2"));
    checks.that(
        "a change after it",
        watched.a_new_service_shows("letters", "10.96.2.3"),
    );
    // Nobody could answer for the manager while it was held; but nothing is denied.
    watched.finish_with(&mut checks, Report::must_not_deny)?;
    checks.that("the end", session.end_at_once());
    checks.finish()?;
    lab.finish();
    Ok(())
}

#[test]
fn rotated_certificates_and_tokens_are_taken_up() -> Result<()> {
    in_a_session(|lab, watched, checks| {
        lab.api.kill_api()?;
        lab.api.renew_certificate(&lab.node)?;
        lab.api.start_api(&lab.node)?;
        checks.that(
            "another certificate of the same authority",
            watched.a_new_service_shows("books", "10.96.2.1"),
        );
        lab.api.kill_api()?;
        lab.api.renew_authority(&lab.node)?;
        lab.api.start_api(&lab.node)?;
        checks.that(
            "another authority",
            watched.a_new_service_shows("papers", "10.96.2.2"),
        );
        lab.api
            .rotate_token(&lab.node, MANAGER_ACCOUNT, "traffic-manager-2", &NAMESPACES)?;
        // All its connections break, so that it has to show a token again.
        lab.api.kill_api()?;
        lab.api.start_api(&lab.node)?;
        checks.that(
            "another token",
            watched.a_new_service_shows("letters", "10.96.2.3"),
        );
        Ok(())
    })
}

#[test]
fn rights_that_come_and_go_are_seen() -> Result<()> {
    in_a_session(|lab, watched, checks| {
        let begin = Instant::now();
        lab.api.withdraw(&lab.node, MANAGER_ACCOUNT, "shop")?;
        let seen = until("shop to be forbidden", RIGHTS, || {
            state_of(lab, "shop", "forbidden")
        });
        tell("a withdrawn right is told after", begin.elapsed());
        checks.that("withdrawn", seen);
        lab.kubectl(&[
            "create",
            "service",
            "clusterip",
            "books",
            "-n",
            "shop",
            "--tcp=80",
            "--clusterip=10.96.2.1",
        ])?;
        checks.that(
            "default goes on",
            watched.a_new_service_shows("papers", "10.96.2.2"),
        );
        let begin = Instant::now();
        lab.api.grant(&lab.node, MANAGER_ACCOUNT, "shop")?;
        let granted = until("books.shop", RIGHTS, || {
            watched.says("books.shop", "10.96.2.1")
        });
        tell("a granted right works after", begin.elapsed());
        checks.that("granted", granted);
        checks.that("synced", state_of(lab, "shop", "synced"));
        Ok(())
    })
}

#[test]
fn a_namespace_that_appears_later_has_its_services_at_once() -> Result<()> {
    let lab = Lab::start()?;
    lab.api.reader_of_all(&lab.node, "reader-of-all")?;
    let manager = Manager::launch(&lab, "reader-of-all", &["--all-namespaces"])?;
    manager.ready(&lab)?;
    lab.kubectl(&["create", "namespace", "later"])?;
    let session = Attempt::start_in(&lab, &["default", "later"], &[])?.connected()?;
    let watched = Watched::start(&lab, &session)?;
    let mut checks = Checks::new();

    checks.equal(
        "before",
        dig(
            lab.laptop.on(),
            &watched.resolver,
            Transport::Udp,
            "books.later",
            "A",
        )
        .map(|got| got.status),
        "NXDOMAIN",
    );
    lab.kubectl(&[
        "create",
        "service",
        "clusterip",
        "books",
        "-n",
        "later",
        "--tcp=80",
        "--clusterip=10.96.2.1",
    ])?;
    let begin = Instant::now();
    let seen = until("books.later", SOON, || {
        watched.says("books.later", "10.96.2.1")
    });
    tell("a Service of a new namespace shows after", begin.elapsed());
    checks.that("a Service of it", seen);
    checks.that(
        "another one",
        watched.a_new_service_shows("papers", "10.96.2.2"),
    );

    watched.finish(&mut checks)?;
    checks.that("the end", session.end_at_once());
    checks.finish()?;
    lab.finish();
    Ok(())
}

/// Lets something happen in a lab with a manager and a session: what was asked all the time must
/// have been answered all the time.
fn in_a_session(happens: impl FnOnce(&Lab, &Watched<'_>, &mut Checks) -> Result<()>) -> Result<()> {
    let lab = Lab::start()?;
    let _manager = Manager::start(&lab)?;
    let session = Session::connect(&lab, &[])?;
    let watched = Watched::start(&lab, &session)?;
    let mut checks = Checks::new();
    happens(&lab, &watched, &mut checks)?;
    watched.finish(&mut checks)?;
    checks.that("the end", session.end_at_once());
    checks.finish()?;
    lab.finish();
    Ok(())
}

/// A Service that exists all the time, asked at the manager and on the laptop all the time.
struct Watched<'lab> {
    lab: &'lab Lab,
    resolver: String,
    probers: Vec<(&'static str, Prober)>,
}

impl<'lab> Watched<'lab> {
    fn start(lab: &'lab Lab, session: &Session<'_>) -> Result<Self> {
        let resolver = session.resolver()?;
        let laptop = lab.laptop.on();
        let probers = vec![
            (
                "an outside name",
                Prober::start(laptop, &resolver, Question::Outside)?,
            ),
            (
                "a Service on the laptop",
                Prober::start(laptop, &resolver, AUTHORS)?,
            ),
            (
                "a Service at the manager",
                Prober::start(&lab.node, MANAGER_DNS, AUTHORS)?,
            ),
        ];
        Ok(Self {
            lab,
            resolver,
            probers,
        })
    }

    fn a_new_service_shows(&self, name: &str, address: &str) -> Result<()> {
        create(self.lab, name, address)?;
        self.shows(name, address)
    }

    fn shows(&self, name: &str, address: &str) -> Result<()> {
        let begin = Instant::now();
        let seen = until(&format!("{name} = {address}"), AGAIN, || {
            self.says(name, address)
        });
        tell(&format!("{name} shows after"), begin.elapsed());
        seen
    }

    /// Fails unless the session's resolver says `address` of `name`.
    fn says(&self, name: &str, address: &str) -> Result<()> {
        let got = dig(
            self.lab.laptop.on(),
            &self.resolver,
            Transport::Udp,
            name,
            "A",
        )?;
        ensure!(
            got.to_string() == format!("NOERROR {name}. A {address}"),
            "{got}"
        );
        Ok(())
    }

    fn finish(self, checks: &mut Checks) -> Result<()> {
        self.finish_with(checks, |report| report.must_be_without_failure())
    }

    #[expect(clippy::print_stderr, reason = "the counts are what is shown")]
    fn finish_with(self, checks: &mut Checks, verdict: fn(&Report) -> Result<()>) -> Result<()> {
        last(WATCHED);
        for (what, prober) in self.probers {
            let report = prober.finish()?;
            eprintln!("{what}: {report}");
            checks.that(format!("{what}, all the time"), verdict(&report));
        }
        Ok(())
    }
}

fn create(lab: &Lab, name: &str, address: &str) -> Result<()> {
    let address = format!("--clusterip={address}");
    lab.kubectl(&["create", "service", "clusterip", name, "--tcp=80", &address])?;
    Ok(())
}

/// The resourceVersion of the Services now.
fn newest_version(lab: &Lab) -> Result<String> {
    let path = "--raw=/api/v1/namespaces/default/services";
    let list: serde_json::Value = serde_json::from_str(&lab.kubectl(&["get", path])?)?;
    let version = list["metadata"]["resourceVersion"].as_str();
    Ok(version.unwrap_or_default().to_owned())
}

/// Fails unless a watch from `version` is refused for its age.
fn is_gone(lab: &Lab, version: &str) -> Result<()> {
    let path = format!(
        "--raw=/api/v1/namespaces/default/services?watch=1&timeoutSeconds=2&resourceVersion={version}"
    );
    let said = lab
        .api
        .kubectl_run_as(&lab.node, "admin", &["get", &path])?;
    let said =
        String::from_utf8_lossy(&said.stdout).into_owned() + &String::from_utf8_lossy(&said.stderr);
    ensure!(
        said.contains("too old resource version"),
        "a watch says {said}"
    );
    Ok(())
}

fn state_of(lab: &Lab, namespace: &str, wanted: &str) -> Result<()> {
    let status = status(lab)?;
    let known = status["kubernetes"].as_array().into_iter().flatten();
    let state = known
        .filter(|about| about["namespace"] == namespace)
        .find_map(|about| about["state"].as_str());
    ensure!(
        state.is_some_and(|state| state.starts_with(wanted)),
        "{namespace} is {state:?}"
    );
    Ok(())
}

#[expect(clippy::print_stderr, reason = "the times are what is shown")]
fn tell(what: &str, time: Duration) {
    eprintln!("{what} {time:.1?}");
}
