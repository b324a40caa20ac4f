//! `upstreams`: the DNS servers of both ends, and those that lead back to where they are asked from.

use std::time::Duration;

use tokio::time::timeout;

use crate::doctor::{Check, Finding};
use crate::inquiry::report::{UpstreamReport, UpstreamsReport};
use crate::status::client;

const CHECK: Check = Check::Upstreams;

/// How long the answer may take: the manager's part of it is a call.
const PATIENCE: Duration = Duration::from_secs(7);

/// Asks the session, and judges.
pub(super) async fn check(session: &str) -> Finding {
    let asking = async {
        let found = client::session(session).await;
        let found = found.map_err(|failure| failure.to_string())?;
        let found = found.ok_or("the session is gone")?;
        found
            .upstreams()
            .await
            .map_err(|error| format!("{error:#}"))
    };
    let late = |_| Err(format!("no answer within {PATIENCE:?}"));
    let answer: Result<_, String> = timeout(PATIENCE, asking).await.unwrap_or_else(late);
    match answer {
        Ok(report) => judge(&report),
        Err(error) => Finding::skipped(CHECK, error),
    }
}

fn judge(report: &UpstreamsReport) -> Finding {
    let sides = [("manager", &report.manager), ("laptop", &report.originals)];
    let lines = sides.iter().flat_map(|(side, all)| {
        let line = |one: &UpstreamReport| words(side, one);
        all.iter().map(line).collect::<Vec<_>>()
    });
    let lines: Vec<_> = lines.chain(report.manager_error.clone()).collect();
    let is = |one: &UpstreamReport, state: &str| one.state == state;
    let looped = sides.iter().find_map(|(side, all)| {
        let found = all
            .iter()
            .find(|one| is(one, "looped") || !one.looped_zones.is_empty());
        found.map(|one| (side, one))
    });
    let dead = sides
        .iter()
        .find(|(_, all)| !all.is_empty() && all.iter().all(|one| is(one, "unhealthy")));
    let sick = sides.iter().find_map(|(side, all)| {
        let found = all.iter().find(|one| is(one, "unhealthy"));
        found.map(|one| (side, one))
    });
    let finding = if let Some((side, one)) = looped {
        let zones = match one.looped_zones.as_slice() {
            [] => "all names".to_owned(),
            zones => zones.join(" "),
        };
        let why = format!(
            "{} of the {side} leads back to where it is asked from, for {zones}",
            one.spec
        );
        Finding::warn(CHECK, "looped", why)
            .help("have it forward these zones elsewhere (its Corefile, or the node's resolv.conf): docs/dns.md")
    } else if let Some((side, _)) = dead {
        let why = format!("no DNS server of the {side} answers");
        Finding::fail(CHECK, "none-answers", why).help("kubebridge dns upstreams")
    } else if let Some((side, one)) = sick {
        let why = format!("{} of the {side} does not answer, others do", one.spec);
        Finding::warn(CHECK, "unhealthy", why).help("kubebridge dns upstreams")
    } else if let Some(error) = &report.manager_error {
        Finding::skipped(CHECK, format!("the manager's are not known: {error}"))
    } else {
        let count = report.manager.len() + report.originals.len();
        Finding::ok(
            CHECK,
            "healthy",
            format!("{count} servers, none of them in trouble"),
        )
    };
    finding.seen(lines)
}

fn words(side: &str, one: &UpstreamReport) -> String {
    let error = one.last_error.as_ref();
    let error = error.map_or_else(String::new, |error| format!(", {error}"));
    format!("{side} {}: {}{error}", one.spec, one.state)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    fn upstream(spec: &str, state: &str, zones: &[&str]) -> UpstreamReport {
        UpstreamReport {
            spec: spec.to_owned(),
            state: state.to_owned(),
            looped_zones: zones.iter().map(|&zone| zone.to_owned()).collect(),
            ..UpstreamReport::default()
        }
    }

    #[test]
    fn loops_and_dead_servers_are_named_with_their_side() {
        let good = || upstream("10.96.0.10", "healthy", &[]);
        let report = |manager, originals| UpstreamsReport {
            manager,
            originals,
            ..UpstreamsReport::default()
        };
        for (report, verdict, word, words) in [
            (
                report(vec![good()], vec![good()]),
                Verdict::Ok,
                "healthy",
                "2 servers",
            ),
            (
                report(
                    vec![upstream("10.0.0.53", "healthy", &["corp.example"])],
                    vec![],
                ),
                Verdict::Warn,
                "looped",
                "corp.example",
            ),
            (
                report(vec![upstream("10.0.0.53", "looped", &[])], vec![]),
                Verdict::Warn,
                "looped",
                "of the manager",
            ),
            (
                report(vec![good()], vec![upstream("192.0.2.1", "unhealthy", &[])]),
                Verdict::Fail,
                "none-answers",
                "of the laptop",
            ),
            (
                report(
                    vec![good(), upstream("10.0.0.53", "unhealthy", &[])],
                    vec![good()],
                ),
                Verdict::Warn,
                "unhealthy",
                "10.0.0.53",
            ),
        ] {
            let finding = judge(&report);
            assert_eq!(
                (finding.verdict, finding.found),
                (verdict, word),
                "{finding:?}"
            );
            assert!(finding.why.contains(words), "{finding:?}");
        }
    }
}
