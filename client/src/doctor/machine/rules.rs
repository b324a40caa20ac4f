//! `policy-rules`: rules that look packets up elsewhere before the machine's own routes.

use kubebridge_platform::inspect::{Rule, rules};

use super::{in_full, within};
use crate::doctor::{Check, Finding};

const CHECK: Check = Check::PolicyRules;

/// Asks the kernel, and judges.
pub(super) async fn check() -> Finding {
    let found = within("the kernel", async { rules().await.map_err(in_full) }).await;
    match found {
        Ok(rules) => judge(&rules),
        Err(error) => Finding::skipped(CHECK, error),
    }
}

fn judge(rules: &[Rule]) -> Finding {
    // A table with nothing in it sends packets on to the next rule.
    let effective = |rule: &&Rule| rule.has_default || !rule.networks.is_empty();
    let rules: Vec<_> = rules.iter().filter(effective).collect();
    let lines: Vec<_> = rules.iter().map(|rule| words(rule)).collect();
    let takes_all = |rule: &&&Rule| rule.selector.is_empty() && rule.has_default;
    let takes_some = |rule: &&&Rule| rule.selector.is_empty();
    let (found, why) = if rules.iter().any(|rule| takes_all(&rule)) {
        (
            "takes-all",
            "another routing table comes first and has a way for everything, a VPN's most likely: \
             routes of a session have no effect",
        )
    } else if rules.iter().any(|rule| takes_some(&rule)) {
        (
            "before-main",
            "another routing table comes first: what it has, a session cannot route",
        )
    } else if rules.is_empty() {
        return Finding::ok(CHECK, "none", "the machine's own routes come first");
    } else {
        let why = "some packets are looked up in another routing table first";
        return Finding::note(CHECK, "selective", why).seen(lines);
    };
    Finding::warn(CHECK, found, why)
        .seen(lines)
        .help("ip rule; have the VPN leave the cluster's networks out")
}

fn words(rule: &Rule) -> String {
    let Rule {
        priority,
        v6,
        table,
        selector,
        networks,
        has_default,
    } = rule;
    let family = if *v6 { "IPv6 " } else { "" };
    let selector = match selector.as_str() {
        "" => String::new(),
        some => format!(" ({some})"),
    };
    let mut has: Vec<_> = networks.iter().take(4).map(ToString::to_string).collect();
    if *has_default {
        has.insert(0, "default".to_owned());
    }
    let has = has.join(", ");
    format!("{family}rule {priority}{selector} looks in table {table}: {has}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn only_rules_with_something_to_say_count_and_those_for_all_packets_more() {
        let rule = |selector: &str, has_default, networks: &[&str]| Rule {
            priority: 100,
            v6: false,
            table: 52,
            selector: selector.to_owned(),
            networks: networks.iter().map(|net| net.parse().unwrap()).collect(),
            has_default,
        };
        for (rules, verdict, word) in [
            (vec![], Verdict::Ok, "none"),
            (vec![rule("", false, &[])], Verdict::Ok, "none"),
            (vec![rule("", true, &[])], Verdict::Warn, "takes-all"),
            (
                vec![rule("", false, &["10.96.0.0/16"])],
                Verdict::Warn,
                "before-main",
            ),
            (
                vec![rule("fwmark 0x1", true, &[])],
                Verdict::Note,
                "selective",
            ),
        ] {
            let finding = judge(&rules);
            assert_eq!(
                (finding.verdict, finding.found),
                (verdict, word),
                "{rules:?}"
            );
        }
        let told = judge(&[rule("", false, &["10.96.0.0/16"])]).evidence;
        assert_eq!(told, ["rule 100 looks in table 52: 10.96.0.0/16"]);
    }
}
