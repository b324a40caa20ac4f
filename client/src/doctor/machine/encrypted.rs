//! `encrypted-dns`: who resolves names past this machine's DNS, or in a way that fails in a tunnel.

use std::net::SocketAddr;
use std::time::Duration;

use kubebridge_dns::name::{Name, RecordType};
use kubebridge_platform::Sys;
use kubebridge_platform::inspect::{Encryption, encryption};

use super::{Facts, in_full, within};
use crate::doctor::finding::Reading;
use crate::doctor::{Check, Finding};
use crate::probe::{self, Finding as Answer};

const CHECK: Check = Check::EncryptedDns;

/// The name that says to browsers whether they may go around; a network that wants to be asked
/// answers that it does not exist.
const CANARY: &str = "use-application-dns.net";
const CANARY_TIME: Duration = Duration::from_secs(2);

/// Asks systemd-resolved and the network, and judges.
pub(super) async fn check(sys: &Sys, facts: &Facts) -> Finding {
    let settings = within("systemd-resolved", async {
        encryption(sys).await.map_err(in_full)
    });
    let servers = facts.dns.as_ref().map(|dns| dns.servers.clone());
    let first = servers.unwrap_or_default().into_iter().next();
    let (settings, canary) = futures::join!(settings, canary(first));
    judge(settings, canary.as_ref())
}

async fn canary(server: Option<SocketAddr>) -> Option<Answer> {
    let name: Name = CANARY.parse().ok()?;
    let asked = probe::ask(server?, &name, RecordType::A, CANARY_TIME);
    asked.await.ok()
}

fn judge(settings: Reading<Option<Encryption>>, canary: Option<&Answer>) -> Finding {
    let Encryption {
        dns_over_tls,
        dnssec,
    } = settings.ok().flatten().unwrap_or_default();
    let is_on = |setting: &Option<String>| setting.as_deref().is_some_and(|word| word != "no");
    let mut seen = Vec::new();
    seen.extend(dns_over_tls.iter().map(|word| format!("DNSOverTLS={word}")));
    seen.extend(dnssec.iter().map(|word| format!("DNSSEC={word}")));
    let browsers = match canary {
        Some(Answer::Addresses(_)) => {
            seen.push(format!("{CANARY} exists: browsers may use DNS over HTTPS"));
            true
        }
        Some(Answer::NoData | Answer::NoSuchName) => {
            seen.push(format!(
                "{CANARY} does not exist: browsers are told to ask here"
            ));
            false
        }
        Some(Answer::Failed(_)) | None => false,
    };
    let finding = if is_on(&dns_over_tls) {
        Finding::note(
            CHECK,
            "dns-over-tls",
            "systemd-resolved asks its servers by TLS; a session switches that off for its own link",
        )
    } else if browsers {
        Finding::note(
            CHECK,
            "browsers",
            "a browser with DNS over HTTPS asks elsewhere: of the cluster it knows hosts lines at most",
        )
        .help("switch it off, or leave the cluster's domain out (network.trr.excluded-domains)")
    } else {
        Finding::ok(CHECK, "none", "no DNS that goes around is seen")
    };
    finding.seen(seen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn encryption_is_good_to_know_and_never_a_failure() {
        let settings = |word: &str| {
            Ok(Some(Encryption {
                dns_over_tls: Some(word.to_owned()),
                dnssec: Some("no".to_owned()),
            }))
        };
        let exists = Answer::Addresses(vec!["192.0.2.1".parse().unwrap()]);
        for (settings, canary, verdict, word) in [
            (Ok(None), None, Verdict::Ok, "none"),
            (Err("no bus".to_owned()), None, Verdict::Ok, "none"),
            (
                settings("no"),
                Some(&Answer::NoSuchName),
                Verdict::Ok,
                "none",
            ),
            (settings("no"), Some(&exists), Verdict::Note, "browsers"),
            (settings("yes"), None, Verdict::Note, "dns-over-tls"),
            (
                settings("opportunistic"),
                Some(&exists),
                Verdict::Note,
                "dns-over-tls",
            ),
        ] {
            let finding = judge(settings, canary);
            assert_eq!((finding.verdict, finding.found), (verdict, word));
        }
    }
}
