//! The proxy of a session that changes nothing on the machine.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use super::missing;
use crate::failure::{Exit, Failure};
use crate::proxy::{Password, Proxy};
use crate::session::os::Os;
use crate::session::parts::Parts;
use crate::status::board::ProxyFacts;
use crate::status::client::sessions;

pub(in crate::session) async fn proxy<O: Os>(parts: &mut Parts<'_, O>) -> Result<String, Failure> {
    let cluster = parts.cluster.as_ref().ok_or_else(|| missing("session"))?;
    let (_, places) = parts.board.ways()?;
    // New in each session also where the port is not: who knew the last one may be let in no more.
    let password = Password::random();
    let opener = Arc::clone(&cluster.flows);
    let at = parts.config.proxy_listen;
    let proxy = match Proxy::start(at, password.clone(), opener, places).await {
        Ok(proxy) => proxy,
        Err(error) => return Err(not_listening(parts, at, error).await),
    };
    let address = proxy.address();
    parts.proxy = Some(proxy);
    parts
        .board
        .note(|facts| facts.proxy = Some(ProxyFacts { address, password }));
    Ok(format!(
        "{address}, SOCKS5 and HTTP CONNECT; `kubebridge env` has the password"
    ))
}

/// Says why a port cannot be had, and who has it where that is one of us.
async fn not_listening<O: Os>(parts: &Parts<'_, O>, at: SocketAddr, error: io::Error) -> Failure {
    if error.kind() != io::ErrorKind::AddrInUse {
        return Failure::new(Exit::HostOs, error).context(format!("listening on {at}"));
    }
    let taken = format!("{at} is in use");
    match holder(parts, at).await {
        Some(session) => Failure::message(
            Exit::Busy,
            format!("{taken}: session {session} has its proxy there"),
        )
        .with_hint(format!(
            "kubebridge disconnect {session}, or another port with --proxy-listen"
        )),
        None => {
            Failure::message(Exit::Busy, format!("{taken} by another program")).with_hint(format!(
                "ss -ltnp 'sport = :{}' shows by which; or another port with --proxy-listen, any \
                 free one without it",
                at.port()
            ))
        }
    }
}

/// The session of this user whose proxy listens there.
async fn holder<O: Os>(parts: &Parts<'_, O>, at: SocketAddr) -> Option<String> {
    for session in sessions(parts.os.runtime()).await.ok()? {
        let id = session.id.clone();
        if id == parts.id.as_str() {
            continue;
        }
        // One that does not answer is not asked again.
        let status = session.status().await.ok();
        if status
            .and_then(|status| status.proxy)
            .is_some_and(|proxy| proxy.address == at)
        {
            return Some(id);
        }
    }
    None
}
