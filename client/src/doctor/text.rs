//! The findings for people: a line each, and more about what is not well.

use std::fmt::Write;

use super::{Finding, Report, Verdict};
use crate::status::text::table;

/// Shows a report; `all` shows what was seen of what is well, too.
#[must_use]
pub(crate) fn doctor_text(report: &Report, all: bool) -> String {
    let rows: Vec<_> = report.findings.iter().map(cells).collect();
    let lines = table(&rows);
    let mut text = String::new();
    for (line, finding) in lines.lines().zip(&report.findings) {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{line}");
        if all || finding.verdict > Verdict::Ok {
            text.push_str(&more(finding));
        }
    }
    let _ = writeln!(text, "{}", sum(report));
    text
}

fn cells(finding: &Finding) -> [String; 3] {
    let about = finding.about.as_ref();
    let about = about.map_or_else(String::new, |about| format!("{about}: "));
    [
        finding.check.word().to_owned(),
        finding.verdict.word().to_owned(),
        printable(&format!("{about}{}", finding.why)),
    ]
}

/// Files and peers have the word here: nothing of theirs moves the cursor or breaks a line.
fn printable(text: &str) -> String {
    let plain = |character: char| match character.is_control() {
        true => ' ',
        false => character,
    };
    text.chars().map(plain).collect()
}

/// What was seen, and what helps.
fn more(finding: &Finding) -> String {
    let mut text = String::new();
    for line in &finding.evidence {
        let _ = writeln!(text, "    {}", printable(line));
    }
    if let Some(help) = &finding.help {
        let _ = writeln!(text, "    help: {}", printable(help));
    }
    for line in finding
        .manifest
        .iter()
        .flat_map(|manifest| manifest.lines())
    {
        let _ = writeln!(text, "      {}", printable(line));
    }
    text
}

fn sum(report: &Report) -> String {
    let counts = [
        (Verdict::Fail, "failed"),
        (Verdict::Warn, "to be wary of"),
        (Verdict::Note, "to know"),
        (Verdict::Ok, "well"),
        (Verdict::Skipped, "skipped"),
    ];
    let words = counts
        .iter()
        .map(|(verdict, words)| (report.count(*verdict), words))
        .filter(|(count, _)| *count > 0)
        .map(|(count, words)| format!("{count} {words}"));
    let took = report.took.as_millis();
    format!(
        "{} ({}.{} s)",
        words.collect::<Vec<_>>().join(", "),
        took / 1000,
        took % 1000 / 100
    )
}
