//! What `doctor -o json` prints. The golden file beside the tests is the contract.

use serde::Serialize;

use super::{Finding, Report, Verdict};
use crate::skew::CLIENT;

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    version: &'static str,
    verdict: Verdict,
    exit: u8,
    took_millis: u64,
    findings: Vec<Shown<'a>>,
}

#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    finding: &'a Finding,
    looked_at: &'static str,
}

/// Makes the object.
#[must_use]
pub fn doctor_document(report: &Report) -> String {
    let findings = report.findings.iter().map(|finding| Shown {
        finding,
        looked_at: finding.check.looked_at(),
    });
    let document = Document {
        schema: "kubebridge.doctor/v1",
        version: CLIENT,
        verdict: report.verdict(),
        exit: report.exit(),
        took_millis: u64::try_from(report.took.as_millis()).unwrap_or(u64::MAX),
        findings: findings.collect(),
    };
    // Plain data with text keys always has a JSON form.
    serde_json::to_string(&document).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::doctor::Check;
    use crate::doctor::text::doctor_text;

    fn report() -> Report {
        let findings = vec![
            Finding::ok(
                Check::DnsBackend,
                "resolved",
                "systemd-resolved, by nss-resolve",
            )
            .seen(["systemd-resolved is running"]),
            Finding::skipped(Check::Tunnel, "no session"),
            Finding::warn(Check::ResolvConf, "dangling", "it leads to nothing")
                .seen(["link to ../run/systemd/resolve/stub-resolv.conf"])
                .help("systemctl start systemd-resolved"),
            Finding::fail(Check::Target, "timeout", "a ready endpoint is silent")
                .about("authors.shop:9080")
                .seen(["2 of 3 endpoints ready"])
                .help("kubectl apply the manifest")
                .manifest("kind: NetworkPolicy\nmetadata: {}\n".to_owned()),
        ];
        Report::new(findings, Duration::from_millis(1234))
    }

    #[test]
    fn the_object_is_as_its_golden_file_says() {
        let golden = include_str!("golden/doctor.json");
        let found: serde_json::Value = serde_json::from_str(&doctor_document(&report())).unwrap();
        let wanted: serde_json::Value = serde_json::from_str(golden).unwrap();
        assert_eq!(found, wanted, "{}", doctor_document(&report()));
    }

    #[test]
    fn people_read_what_is_wrong_in_full_and_what_is_well_in_a_line() {
        assert_eq!(
            doctor_text(&report(), false),
            include_str!("golden/doctor.txt")
        );
    }
}
