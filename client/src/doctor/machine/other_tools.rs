//! `other-tools`: what other bridges to clusters have left here, or have here now.
//!
//! Recognised by what they are publicly known to write: KubeVPN's comment behind hosts lines and its
//! `utunN`, Telepresence's `telN`, kubefwd's addresses of 127/8 for names under `.svc`, mirrord's
//! library in `LD_PRELOAD`.

use std::net::IpAddr;

use kubebridge_platform::Sys;
use kubebridge_platform::inspect::{file, link_names};

use super::hosts_lines::{self, Line};
use crate::doctor::{Check, Finding};

const CHECK: Check = Check::OtherTools;

/// How many lines are shown of one tool.
const MOST_SHOWN: usize = 5;

/// What is looked at.
#[derive(Debug, Default)]
struct Traces<'a> {
    hosts: &'a str,
    links: Vec<String>,
    preload: String,
    /// Copies of the hosts file that kubefwd makes.
    copies: Vec<&'static str>,
}

/// Looks for them, and judges.
pub(super) async fn check(sys: &Sys, hosts: &str) -> Finding {
    let copies = ["/etc/hosts.original"];
    let is_there = |path: &&'static str| matches!(file(sys, path), Ok(Some(_)));
    judge(&Traces {
        hosts,
        links: link_names().await.unwrap_or_default(),
        preload: std::env::var("LD_PRELOAD").unwrap_or_default(),
        copies: copies.into_iter().filter(is_there).collect(),
    })
}

fn judge(traces: &Traces<'_>) -> Finding {
    let found = [
        ("mirrord", mirrord(traces)),
        ("KubeVPN", kubevpn(traces)),
        ("Telepresence", telepresence(traces)),
        ("kubefwd", kubefwd(traces)),
    ];
    let found = found.into_iter().filter(|(_, seen)| !seen.is_empty());
    let (tools, evidence): (Vec<_>, Vec<_>) = found.unzip();
    if tools.is_empty() {
        return Finding::ok(CHECK, "none", "nothing of other tools");
    }
    let why = format!(
        "traces of {}: names and routes of others may come first",
        tools.join(", ")
    );
    let evidence = tools.iter().zip(evidence).flat_map(|(tool, seen)| {
        let seen: Vec<String> = seen;
        seen.into_iter().map(move |line| format!("{tool}: {line}"))
    });
    Finding::warn(CHECK, "found", why)
        .seen(evidence.collect::<Vec<_>>())
        .help(help(&tools))
}

fn mirrord(traces: &Traces<'_>) -> Vec<String> {
    let is_inside = traces.preload.contains("mirrord_layer");
    let words = format!("this command runs inside it: LD_PRELOAD={}", traces.preload);
    is_inside.then_some(words).into_iter().collect()
}

fn kubevpn(traces: &Traces<'_>) -> Vec<String> {
    let is_its = |line: &Line<'_>| {
        let comment = line.comment.unwrap_or_default();
        comment.eq_ignore_ascii_case("add by kubevpn")
    };
    let mut seen = shown(&of(traces, is_its));
    seen.extend(links(traces, "utun"));
    seen
}

fn telepresence(traces: &Traces<'_>) -> Vec<String> {
    links(traces, "tel")
}

fn kubefwd(traces: &Traces<'_>) -> Vec<String> {
    let is_its = |line: &Line<'_>| {
        let elsewhere = match line.address {
            // Of 127.0/16 are localhost and Debian's own name.
            IpAddr::V4(four) => four.is_loopback() && four.octets()[1] != 0,
            IpAddr::V6(_) => false,
        };
        elsewhere && line.names.iter().any(|name| name.contains(".svc"))
    };
    let mut seen = shown(&of(traces, is_its));
    // Others make such a copy as well: it counts beside lines only.
    if !seen.is_empty() {
        let copies = traces.copies.iter();
        seen.extend(copies.map(|path| format!("{path}, a copy of the hosts file")));
    }
    seen
}

/// The hosts lines that are a tool's.
fn of<'a>(traces: &Traces<'a>, is_its: impl Fn(&Line<'_>) -> bool) -> Vec<Line<'a>> {
    let lines = hosts_lines::lines(traces.hosts);
    lines.filter(|line| is_its(line)).collect()
}

fn shown(lines: &[Line<'_>]) -> Vec<String> {
    let mut all: Vec<_> = lines
        .iter()
        .map(|line| format!("hosts line {}", line.text))
        .collect();
    let more = all.len().saturating_sub(MOST_SHOWN);
    all.truncate(MOST_SHOWN);
    if more > 0 {
        all.push(format!("{more} hosts lines more"));
    }
    all
}

fn links(traces: &Traces<'_>, stem: &str) -> Vec<String> {
    let is_its = |name: &&String| {
        let number = name.strip_prefix(stem).unwrap_or_default();
        !number.is_empty() && number.bytes().all(|octet| octet.is_ascii_digit())
    };
    let found = traces.links.iter().filter(is_its);
    found.map(|name| format!("link {name}")).collect()
}

fn help(tools: &[&str]) -> String {
    let commands = tools.iter().map(|tool| match *tool {
        "mirrord" => "run kubebridge outside of mirrord",
        "KubeVPN" => "kubevpn quit, then delete its lines from /etc/hosts",
        "Telepresence" => "telepresence quit -s",
        _ => "end kubefwd, then delete its lines from /etc/hosts",
    });
    commands.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn each_tool_is_recognised_by_what_it_writes_and_nothing_else_is() {
        let traces = |hosts, links: &[&str], preload: &str| Traces {
            hosts,
            links: links.iter().map(|&link| link.to_owned()).collect(),
            preload: preload.to_owned(),
            copies: vec!["/etc/hosts.original"],
        };
        let plain = "127.0.0.1 localhost\n127.0.1.1 laptop.svc\n# 10.0.0.1 x # Add by KubeVPN\n";
        for (traces, tool) in [
            (
                traces(plain, &["lo", "eth0", "tun0", "tel", "tele0"], ""),
                None,
            ),
            (
                traces("10.96.0.7 authors # Add by KubeVPN\n", &[], ""),
                Some("KubeVPN"),
            ),
            (traces(plain, &["utun3"], ""), Some("KubeVPN")),
            (traces(plain, &["tel0"], ""), Some("Telepresence")),
            (
                traces("127.1.27.1 authors authors.shop.svc\n", &[], ""),
                Some("kubefwd"),
            ),
            (
                traces(plain, &[], "/tmp/x-libmirrord_layer.so"),
                Some("mirrord"),
            ),
        ] {
            let finding = judge(&traces);
            let verdict = tool.map_or(Verdict::Ok, |_| Verdict::Warn);
            assert_eq!(finding.verdict, verdict, "{traces:?}: {finding:?}");
            assert!(
                finding.why.contains(tool.unwrap_or("nothing")),
                "{finding:?}"
            );
            assert_eq!(finding.help.is_some(), tool.is_some());
        }
    }

    #[test]
    fn of_many_lines_a_few_are_shown_and_the_rest_is_counted() {
        let lines: String = (0..9)
            .map(|n| format!("10.0.0.{n} a{n} # Add by KubeVPN\n"))
            .collect();
        let finding = judge(&Traces {
            hosts: &lines,
            ..Traces::default()
        });
        assert_eq!(finding.evidence.len(), MOST_SHOWN + 1);
        assert_eq!(finding.evidence[MOST_SHOWN], "KubeVPN: 4 hosts lines more");
    }
}
