//! Signals of the system bus: systemd-resolved, its settings, and suspend.
//!
//! On systemd-resolved 252 a link's own object emits nothing; the manager emits its `DNS` when the
//! servers of any link change, which is also what someone else's RevertLink does. A change of the
//! domains alone shows in the state file only (`files.rs`).

use std::collections::HashMap;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::select_all;
use tokio::sync::watch;
use tokio::time::sleep;
use zbus::{Connection, MatchRule, MessageStream, Variant, message};

use super::{Cause, Cues};
use crate::dns::DnsError;
use crate::dns::bus::Bus;
use crate::sys::Sys;

const RESOLVED: &str = "org.freedesktop.resolve1";

/// How long to wait before a bus that is not there is tried again.
const RETRY: Duration = Duration::from_secs(2);

/// Listens for good; when the bus comes back, so may have systemd-resolved.
pub(super) async fn watch(sys: Sys, cues: Cues, listening: watch::Sender<bool>) {
    let mut lost = false;
    loop {
        match listen(&sys, &cues, lost, &listening).await {
            Ok(()) => {
                lost = true;
                cues.put(Cause::ResolvedEnded);
            }
            Err(error) => tracing::debug!(%error, "the system bus cannot be watched"),
        }
        sleep(RETRY).await;
    }
}

/// Listens until the connection ends.
async fn listen(
    sys: &Sys,
    cues: &Cues,
    lost: bool,
    listening: &watch::Sender<bool>,
) -> Result<(), DnsError> {
    let bus = Bus::connect(sys).await?;
    let subscribed = subscribe(bus.connection()).await;
    let mut signals = select_all(subscribed.map_err(DnsError::Bus)?);
    listening.send_replace(true);
    if lost {
        cues.put(Cause::ResolvedStarted);
    }
    while let Some(Ok(signal)) = signals.next().await {
        if let Some(cause) = cause(&signal) {
            cues.put(cause);
        }
    }
    Ok(())
}

async fn subscribe(connection: &Connection) -> Result<Vec<MessageStream>, zbus::Error> {
    let rule = || MatchRule::builder().msg_type(message::Type::Signal);
    let rules = [
        rule()
            .sender("org.freedesktop.DBus")
            .interface("org.freedesktop.DBus")
            .member("NameOwnerChanged")
            .arg(0, RESOLVED),
        rule()
            .sender(RESOLVED)
            .interface("org.freedesktop.DBus.Properties")
            .member("PropertiesChanged")
            .path("/org/freedesktop/resolve1"),
        rule()
            .sender("org.freedesktop.login1")
            .interface("org.freedesktop.login1.Manager")
            .member("PrepareForSleep"),
    ];
    let mut streams = Vec::with_capacity(rules.len());
    for rule in rules {
        streams.push(MessageStream::for_match_rule(rule.build()?, connection, None).await?);
    }
    Ok(streams)
}

/// Tells what a signal means to us.
fn cause(signal: &zbus::Message) -> Option<Cause> {
    let body = signal.body();
    match signal.header().member()?.as_str() {
        "NameOwnerChanged" => {
            let (_, _, new): (String, String, String) = body.deserialize().ok()?;
            Some(if new.is_empty() {
                Cause::ResolvedEnded
            } else {
                Cause::ResolvedStarted
            })
        }
        "PropertiesChanged" => {
            // Which server is in use changes often and means nothing.
            let (_, changed, invalidated): (String, HashMap<String, Variant<'_>>, Vec<String>) =
                body.deserialize().ok()?;
            let settings = |name: &str| ["DNS", "DNSEx", "Domains"].contains(&name);
            let mut names = changed.keys().chain(&invalidated);
            names
                .any(|name| settings(name))
                .then_some(Cause::DnsSettings)
        }
        "PrepareForSleep" => {
            let going: bool = body.deserialize().ok()?;
            (!going).then_some(Cause::Woke)
        }
        _ => None,
    }
}
