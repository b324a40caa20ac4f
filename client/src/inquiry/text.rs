//! An inquiry's findings for people.

use std::fmt::Write;

use super::path::{OUTSIDE, PathReport, PathStep};
use super::report::{
    AnswerReport, FlushReport, QueryReport, StepReport, TraceReport, UpstreamReport,
    UpstreamsReport,
};
use crate::status::text::{table, tunnel};
use crate::zones::Destination;

/// Shows how an answer came about: laptop first, then the manager, then the answer and why.
#[must_use]
pub(crate) fn trace_text(report: &TraceReport) -> String {
    let mut rows = vec![
        (
            "question",
            format!(
                "{} {} (session {})",
                report.name, report.rtype, report.session
            ),
        ),
        ("rule", rule(report)),
    ];
    rows.extend(hosts(report).map(|words| ("hosts file", words)));
    if !report.system_dns {
        let words = "not pointed at the session: programs do not ask here";
        rows.push(("system DNS", words.to_owned()));
    }
    let way = report
        .tunnel
        .as_ref()
        .map(|found| ("tunnel", tunnel(found)));
    rows.extend(way);
    let silent = report.manager_silent.as_ref();
    rows.extend(silent.map(|reason| ("manager", format!("told no steps: {reason}"))));
    let mut text = String::new();
    for (label, value) in rows {
        row(&mut text, label, &value);
    }
    for side in ["laptop", "manager"] {
        text.push_str(&steps(report, side));
    }
    if report.left_out > 0 {
        row(&mut text, "", &format!("{} steps more", report.left_out));
    }
    row(&mut text, "answer", &answer(report));
    records(&mut text, &report.answer);
    row(&mut text, "why", &report.why);
    text
}

/// Shows an answer.
#[must_use]
pub(crate) fn query_text(report: &QueryReport) -> String {
    let mut text = String::new();
    for record in &report.answer.records {
        let (name, ttl) = (&record.name, record.ttl);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name} {ttl} {} {}", record.rtype, record.data);
    }
    if text.is_empty() {
        let rcode = words_of_code(&report.answer);
        let _ = writeln!(text, "# {} {}: {rcode}", report.name, report.rtype);
    }
    text
}

/// Shows the way to a destination.
#[must_use]
pub(crate) fn path_text(report: &PathReport) -> String {
    let row = |step: &PathStep, indent: &str| {
        let took = step
            .took_micros
            .map(|took| format!("{} ms", took as f64 / 1000.0));
        let name = format!("{indent}{}", step.step);
        let (verdict, detail) = (step.verdict.clone(), step.detail.clone());
        [name, verdict, took.unwrap_or_default(), detail]
    };
    let is_all_outside = report.verdict == OUTSIDE;
    let mut rows: Vec<_> = match report.addresses.as_slice() {
        several @ [_, _, ..] if !is_all_outside => {
            let names = report.steps.iter().filter(|step| step.step == "name");
            let names: Vec<_> = names.map(|step| row(step, "")).collect();
            let groups = several.iter().flat_map(|one| {
                let (address, verdict) = (one.address.to_string(), one.verdict.clone());
                let head = [address, verdict, String::new(), String::new()];
                let steps = one.steps.iter().map(|step| row(step, "  "));
                std::iter::once(head).chain(steps)
            });
            names.into_iter().chain(groups).collect()
        }
        _ => report.steps.iter().map(|step| row(step, "")).collect(),
    };
    // A last row in the columns of the others.
    let verdict = report.verdict.clone();
    rows.push(["verdict".to_owned(), verdict, String::new(), String::new()]);
    let label = rows.iter().map(|row| row[0].len()).max();
    let mut text = format!("{} (session {})\n", report.target, report.session);
    text.push_str(&table(&rows));
    if let Some(help) = &report.help {
        let label = label.unwrap_or_default();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{:<label$}  {help}", "help");
    }
    text
}

/// Shows what was forgotten.
#[must_use]
pub(crate) fn flush_text(report: &FlushReport) -> String {
    format!(
        "session {}: {} answers forgotten\n",
        report.session, report.forgotten
    )
}

/// Shows the upstreams of both ends as a table.
#[must_use]
pub(crate) fn upstreams_text(report: &UpstreamsReport) -> String {
    let head = [
        "SIDE",
        "UPSTREAM",
        "STATE",
        "FAILS",
        "RTT",
        "LAST REPLY",
        "LAST ERROR",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    let manager = report.manager.iter().map(|one| upstream("manager", one));
    let laptop = report.originals.iter().map(|one| upstream("laptop", one));
    rows.extend(manager.chain(laptop));
    let mut text = format!("session {}\n{}", report.session, table(&rows));
    if let Some(error) = &report.manager_error {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "the manager's upstreams are not known: {error}");
    }
    text
}

fn upstream(side: &str, upstream: &UpstreamReport) -> [String; 7] {
    let dash = || "-".to_owned();
    let state = match upstream.looped_zones.as_slice() {
        [] => upstream.state.clone(),
        zones => format!("{} for {}", upstream.state, zones.join(" ")),
    };
    let ago = |millis: u64| format!("{}.{} s ago", millis / 1000, millis % 1000 / 100);
    [
        side.to_owned(),
        upstream.spec.clone(),
        state,
        upstream.fails.to_string(),
        upstream.rtt_micros.map_or_else(dash, millis),
        upstream.last_ok_millis.map_or_else(dash, ago),
        upstream.last_error.clone().unwrap_or_else(dash),
    ]
}

fn row(text: &mut String, label: &str, value: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{label:<12}{value}");
}

fn rule(report: &TraceReport) -> String {
    let rule = &report.rule;
    let suffix = rule
        .suffix
        .as_ref()
        .map(|suffix| format!(" ({suffix})"))
        .unwrap_or_default();
    format!(
        "{}{suffix}: {}",
        rule.rule.words(),
        rule.destination.words()
    )
}

fn hosts(report: &TraceReport) -> Option<String> {
    let line = report.hosts.as_ref()?;
    let names = line.names.join(" ");
    Some(format!(
        "{} {names}: programs find this line first",
        line.address
    ))
}

fn steps(report: &TraceReport, side: &str) -> String {
    let of_side: Vec<_> = report
        .steps
        .iter()
        .filter(|step| step.side == side)
        .map(cells)
        .collect();
    if of_side.is_empty() {
        return String::new();
    }
    let mut text = format!("{side}\n");
    for line in table(&of_side).lines() {
        let _ = writeln!(text, "  {line}");
    }
    text
}

fn cells(step: &StepReport) -> [String; 5] {
    let rank = step
        .rank
        .map(|rank| format!("{rank}. "))
        .unwrap_or_default();
    let name = step.name.clone().unwrap_or_default();
    let took = step.took_micros.map(millis);
    let upstream = step.upstream.as_ref().map(|upstream| match took {
        Some(took) => format!("@{upstream} {took}"),
        None => format!("@{upstream}"),
    });
    let mark = if step.decides { "* " } else { "" };
    [
        millis(step.at_micros),
        step.stage.clone(),
        format!("{rank}{name}"),
        upstream.unwrap_or_default(),
        format!("{mark}{}", step.outcome),
    ]
}

fn answer(report: &TraceReport) -> String {
    let took = millis(report.took_micros);
    let from = match (report.source.as_str(), report.stale_millis) {
        ("stale", Some(age)) => format!("the manager's of {} s ago", age / 1000),
        ("session", _) => "the session itself".to_owned(),
        _ => match report.rule.destination {
            Destination::Cluster => "the manager".to_owned(),
            Destination::Originals => "the original servers".to_owned(),
            Destination::NoSuchName | Destination::NoData => "the session itself".to_owned(),
        },
    };
    format!("{} in {took}, from {from}", words_of_code(&report.answer))
}

fn words_of_code(answer: &AnswerReport) -> String {
    match (&answer.rcode, answer.records.len()) {
        (None, _) => "no reply".to_owned(),
        (Some(rcode), 0) if rcode == "NOERROR" => "NOERROR, no records".to_owned(),
        (Some(rcode), _) => rcode.clone(),
    }
}

fn records(text: &mut String, answer: &AnswerReport) {
    for record in &answer.records {
        let (name, ttl) = (&record.name, record.ttl);
        row(
            text,
            "",
            &format!("{name} {ttl} {} {}", record.rtype, record.data),
        );
    }
    if answer.left_out > 0 {
        row(text, "", &format!("{} records more", answer.left_out));
    }
}

fn millis(micros: u64) -> String {
    format!("{}.{} ms", micros / 1000, micros % 1000 / 100)
}
