//! `authorisation`: until when the session may go on, and what renews it.

use crate::doctor::{Check, Finding};
use crate::status::{CredentialsReport, TokensReport};

const CHECK: Check = Check::Authorisation;

/// Tokens are renewed long before this is left of them.
const SHORT_SECONDS: u64 = 300;

/// Judges both.
pub(super) fn judge(
    tokens: Option<&TokensReport>,
    credentials: Option<&CredentialsReport>,
) -> Finding {
    let seen_tokens = tokens.map(|one| format!("tokens until {}", one.until));
    let seen_user = credentials.map(|one| {
        let until = one.until.as_deref().unwrap_or("an unknown time");
        format!("credentials of {} until {until}", one.user)
    });
    let renew = credentials.map(|one| one.renew.clone());
    let trouble = credentials.and_then(|one| one.trouble.clone());
    let finding = match tokens {
        Some(tokens) if tokens.seconds_left == 0 => {
            let why = format!("the tokens have expired: {}", tokens.until);
            Finding::fail(CHECK, "expired", why)
        }
        Some(tokens) if tokens.seconds_left < SHORT_SECONDS => {
            let why = format!(
                "the tokens end in {} s and were not renewed",
                tokens.seconds_left
            );
            Finding::warn(CHECK, "ending", why)
        }
        Some(_) | None => match &trouble {
            Some(trouble) => {
                let why = format!("the credentials were of no use: {trouble}");
                Finding::warn(CHECK, "trouble", why)
            }
            None => {
                let until = tokens.map_or("for as long as it lives", |one| one.until.as_str());
                Finding::ok(CHECK, "good", until)
            }
        },
    };
    let is_well = finding.found == "good";
    let finding = finding.seen(seen_tokens).seen(seen_user);
    match renew.filter(|_| !is_well) {
        Some(renew) => finding.help(renew),
        None if is_well => finding,
        None => finding.help("kubebridge status, then connect again"),
    }
}
