//! `kubebridge dns …` against what the real servers say they were asked (condition lifecycle 12).
//!
//! The trace is held against the logs of CoreDNS and of the laptop's own DNS server: what it says
//! was asked was asked, as often, and of nobody else.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kubebridge_tests::{
    checks::Checks,
    dig::{Transport, dig},
    lab::{AUTHORS, CLUSTER_DNS, DB, DOCS, DOCS_TARGET, Lab, OUTSIDE_DNS},
    product::{Manager, Session, kubebridge, kubebridge_output},
    wait::until,
};
use serde_json::Value;

/// How long a server's log may lag behind its answers.
const LOG_TIME: Duration = Duration::from_secs(20);

#[test]
fn lc12_dns_trace_tells_what_the_real_servers_were_asked() -> Result<()> {
    let lab = Lab::start()?;
    let mut checks = Checks::new();
    checks.that(
        "without a session",
        without_a_session_it_fails_with_a_hint(&lab),
    );
    let manager = Manager::start(&lab)?;
    let session = Session::connect(&lab, &[])?;

    checks.that("a Service", a_service_is_told_by_the_index(&lab));
    checks.that(
        "a headless Service",
        a_headless_service_is_told_as_coredns_saw_it(&lab),
    );
    checks.that("an alias", an_alias_is_told_as_coredns_saw_it(&lab));
    checks.that(
        "an outside name",
        an_outside_name_is_told_as_its_server_saw_it(&lab),
    );
    checks.that(
        "a foreign namespace",
        a_namespace_not_granted_is_told_as_refused(&lab),
    );
    checks.that(
        "a single label",
        a_single_label_is_told_as_going_nowhere(&lab),
    );
    checks.that("text", the_text_tells_the_same(&lab));
    checks.that(
        "query",
        a_query_answers_as_dig_does(&lab, &session.resolver()?),
    );
    checks.that("upstreams", the_upstreams_of_both_ends_are_healthy(&lab));

    manager.kill()?;
    checks.that("without the manager", a_stale_answer_is_told_as_stale(&lab));
    checks.that("flush", a_flush_takes_the_stale_answer_away(&lab));
    checks.that("disconnect", session.disconnect());
    checks.finish()?;
    lab.finish();
    Ok(())
}

/// What `dns trace -o json` says for the only session.
fn trace(lab: &Lab, words: &[&str]) -> Result<Value> {
    let command = [&["dns", "trace"], words, &["-o", "json"]].concat();
    let said = kubebridge_output(lab, &command)?;
    let mut document: Value = serde_json::from_str(&said)?;
    ensure!(
        document["schema"] == "kubebridge.dns.trace/v1",
        "said {said}"
    );
    let report = document["sessions"][0].take();
    ensure!(!report.is_null(), "there is no session: {said}");
    Ok(report)
}

fn must_be(report: &Value, field: &str, wanted: &str) -> Result<()> {
    let found = report.pointer(field).and_then(Value::as_str);
    ensure!(
        found == Some(wanted),
        "{field} is {found:?}, not {wanted:?}: {report}"
    );
    Ok(())
}

fn addresses(report: &Value) -> Result<Vec<String>> {
    let records = report["answer"]["records"]
        .as_array()
        .context("no records")?;
    let mut found: Vec<String> = records
        .iter()
        .filter(|record| record["type"] == "A")
        .filter_map(|record| Some(record["data"].as_str()?.to_owned()))
        .collect();
    found.sort();
    Ok(found)
}

/// The names that the trace says one upstream answered, each as often as it says so.
fn answered(report: &Value, upstream: &str) -> Result<Vec<String>> {
    let steps = report["steps"].as_array().context("no steps")?;
    let mut names = Vec::new();
    for step in steps.iter().filter(|step| step["upstream"] == upstream) {
        if !step["rcode"].is_null() {
            ensure!(step["took_micros"].as_u64() > Some(0), "no time in {step}");
            names.push(step["name"].as_str().context("no name")?.to_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// Fails unless the server logged exactly the names the trace tells of, after those of before.
fn must_be_logged(
    told: &[String],
    before: &[String],
    queries: impl Fn() -> Result<Vec<String>>,
) -> Result<()> {
    until(
        "the server's log to have what the trace tells",
        LOG_TIME,
        || {
            let all = queries()?;
            let mut new: Vec<&String> = all.iter().skip(before.len()).collect();
            new.retain(|name| told.contains(name));
            new.sort();
            ensure!(
                new == told.iter().collect::<Vec<_>>(),
                "it logged {new:?}, told is {told:?}"
            );
            Ok(())
        },
    )
}

fn without_a_session_it_fails_with_a_hint(lab: &Lab) -> Result<()> {
    for command in ["trace", "query"] {
        let said = kubebridge(lab, &["dns", command, "authors.default"])?;
        let error = String::from_utf8_lossy(&said.stderr);
        ensure!(
            said.status.code() == Some(1),
            "{command} ended with {}",
            said.status
        );
        ensure!(
            error.contains("no session") && error.contains("hint:"),
            "said {error}"
        );
    }
    Ok(())
}

fn a_service_is_told_by_the_index(lab: &Lab) -> Result<()> {
    let before = lab.coredns.queries()?;

    let report = trace(lab, &["authors.default"])?;

    ensure!(addresses(&report)? == [AUTHORS], "{report}");
    must_be(&report, "/rule/rule", "suffix")?;
    must_be(&report, "/rule/suffix", "default")?;
    must_be(&report, "/source", "manager")?;
    must_be(&report, "/hosts/address", AUTHORS)?;
    ensure!(
        report["system_dns"] == true && report["tunnel"]["up"] == true,
        "{report}"
    );
    let full = "authors.default.svc.cluster.local";
    let steps = report["steps"].as_array().context("no steps")?;
    let own = steps.iter().find(|step| step["stage"] == "records");
    let name = own.and_then(|step| step["name"].as_str());
    ensure!(name == Some(full), "{report}");
    // A better rank is no Service's name, so CoreDNS has to say that it does not exist.
    let told = answered(&report, CLUSTER_DNS)?;
    must_be_logged(&told, &before, || lab.coredns.queries())?;
    let asked = lab.coredns.queries()?;
    ensure!(
        !asked.iter().skip(before.len()).any(|name| name == full),
        "CoreDNS was asked for the Service: {asked:?}"
    );
    Ok(())
}

fn a_headless_service_is_told_as_coredns_saw_it(lab: &Lab) -> Result<()> {
    let before = lab.coredns.queries()?;

    let report = trace(lab, &["db.default", "--fresh"])?;

    ensure!(addresses(&report)? == DB, "{report}");
    let told = answered(&report, CLUSTER_DNS)?;
    let full = "db.default.svc.cluster.local".to_owned();
    ensure!(told.contains(&full), "the trace tells of {told:?}");
    must_be_logged(&told, &before, || lab.coredns.queries())?;
    let why = report["why"].as_str().unwrap_or_default();
    ensure!(why.starts_with(&full) && why.contains("wins"), "why: {why}");
    let outside = lab.outside.queries()?;
    ensure!(
        !outside.iter().any(|name| name.starts_with("db.default")),
        "{outside:?}"
    );
    Ok(())
}

fn an_alias_is_told_as_coredns_saw_it(lab: &Lab) -> Result<()> {
    let before = lab.coredns.queries()?;

    let report = trace(lab, &["docs.default", "--fresh"])?;

    ensure!(addresses(&report)? == [DOCS], "{report}");
    let told = answered(&report, CLUSTER_DNS)?;
    // The better rank is no Service's name, and goes to CoreDNS too.
    ensure!(
        told.iter().any(|name| name == DOCS_TARGET),
        "the trace tells of {told:?}"
    );
    must_be_logged(&told, &before, || lab.coredns.queries())
}

fn an_outside_name_is_told_as_its_server_saw_it(lab: &Lab) -> Result<()> {
    let (before, inside) = (lab.outside.queries()?, lab.coredns.queries()?);
    let name = "www.example.org";

    let report = trace(lab, &[name])?;

    must_be(&report, "/rule/rule", "outside")?;
    must_be(&report, "/source", "originals")?;
    must_be(
        &report,
        "/why",
        &format!("{OUTSIDE_DNS} was the first in order to answer"),
    )?;
    let original = dig(lab.laptop.on(), OUTSIDE_DNS, Transport::Udp, name, "A")?;
    let wanted: Vec<String> = original
        .records
        .iter()
        .filter(|record| record.kind == "A")
        .map(|record| record.data.clone())
        .collect();
    ensure!(
        addresses(&report)? == wanted,
        "{report}, the server says {original}"
    );
    let told = answered(&report, OUTSIDE_DNS)?;
    ensure!(told == [name], "the trace tells of {told:?}");
    // Our own dig asked once more.
    let with_dig = [name.to_owned(), name.to_owned()];
    must_be_logged(&with_dig, &before, || lab.outside.queries())?;
    let leaked = lab.coredns.queries()?;
    ensure!(
        !leaked.iter().skip(inside.len()).any(|seen| seen == name),
        "{leaked:?}"
    );
    Ok(())
}

fn a_namespace_not_granted_is_told_as_refused(lab: &Lab) -> Result<()> {
    let report = trace(lab, &["kube-dns.kube-system.svc.cluster.local"])?;

    must_be(&report, "/answer/rcode", "REFUSED")?;
    let why = report["why"].as_str().unwrap_or_default();
    ensure!(
        why.contains("a namespace that is not granted"),
        "why: {why}"
    );
    ensure!(answered(&report, CLUSTER_DNS)?.is_empty(), "{report}");
    Ok(())
}

fn a_single_label_is_told_as_going_nowhere(lab: &Lab) -> Result<()> {
    let report = trace(lab, &["printer"])?;

    must_be(&report, "/rule/rule", "no-service")?;
    must_be(&report, "/answer/rcode", "NXDOMAIN")?;
    ensure!(
        !lab.outside.queries()?.iter().any(|name| name == "printer"),
        "it was asked outside"
    );
    Ok(())
}

fn the_text_tells_the_same(lab: &Lab) -> Result<()> {
    let said = kubebridge_output(lab, &["dns", "trace", "db.default", "A", "--fresh"])?;
    for part in [
        "question    db.default A",
        "rule        under a suffix of the session (default): the manager",
        "tunnel      up",
        "\nmanager\n",
        "@10.96.0.10 ",
        "answer      NOERROR in ",
        "\nwhy         db.default.svc.cluster.local wins",
    ] {
        ensure!(said.contains(part), "{part:?} is not in:\n{said}");
    }
    Ok(())
}

fn a_query_answers_as_dig_does(lab: &Lab, resolver: &str) -> Result<()> {
    for name in [
        "authors.default",
        "docs.default",
        "example.shop",
        "nobody.default",
    ] {
        let said = kubebridge_output(lab, &["dns", "query", name, "-o", "json"])?;
        let document: Value = serde_json::from_str(&said)?;
        let answer = &document["sessions"][0]["answer"];
        let dug = dig(lab.laptop.on(), resolver, Transport::Udp, name, "A")?;
        let found = addresses(&document["sessions"][0])?;
        let mut wanted: Vec<String> = dug
            .records
            .iter()
            .map(|record| record.data.clone())
            .collect();
        wanted.sort();
        ensure!(found == wanted, "{name}: {said}, dig says {dug}");
        let rcode = answer["rcode"].as_str().unwrap_or_default();
        ensure!(
            dug.to_string().starts_with(rcode),
            "{name}: {said}, dig says {dug}"
        );
    }
    Ok(())
}

fn the_upstreams_of_both_ends_are_healthy(lab: &Lab) -> Result<()> {
    let said = kubebridge_output(lab, &["dns", "upstreams", "-o", "json"])?;
    let document: Value = serde_json::from_str(&said)?;
    let report = &document["sessions"][0];
    for (side, server) in [("manager", CLUSTER_DNS), ("originals", OUTSIDE_DNS)] {
        let one = &report[side][0];
        ensure!(
            one["spec"] == server && one["state"] == "healthy",
            "{side}: {said}"
        );
        ensure!(one["rtt_micros"].as_u64() > Some(0), "{side}: {said}");
    }
    let text = kubebridge_output(lab, &["dns", "upstreams"])?;
    ensure!(
        text.contains(CLUSTER_DNS) && text.contains(OUTSIDE_DNS),
        "said {text}"
    );
    Ok(())
}

fn a_stale_answer_is_told_as_stale(lab: &Lab) -> Result<()> {
    until(
        "the session to notice that the manager is gone",
        LOG_TIME,
        || {
            let report = trace(lab, &["authors.default"])?;
            must_be(&report, "/source", "stale")?;
            ensure!(report["tunnel"]["up"] == false, "{report}");
            ensure!(report["stale_millis"].as_u64().is_some(), "{report}");
            ensure!(addresses(&report)? == [AUTHORS], "{report}");
            Ok(())
        },
    )
}

fn a_flush_takes_the_stale_answer_away(lab: &Lab) -> Result<()> {
    let said = kubebridge_output(lab, &["dns", "flush", "-o", "json"])?;
    let document: Value = serde_json::from_str(&said)?;
    ensure!(
        document["sessions"][0]["forgotten"].as_u64() > Some(0),
        "said {said}"
    );
    let report = trace(lab, &["authors.default"])?;
    must_be(&report, "/answer/rcode", "SERVFAIL")?;
    must_be(&report, "/source", "session")
}
