//! The proxy of a session that changes nothing on the machine.

use std::sync::Arc;

use super::missing;
use crate::failure::{Exit, Failure};
use crate::proxy::{Password, Proxy};
use crate::session::os::Os;
use crate::session::parts::Parts;
use crate::status::board::ProxyFacts;

pub(in crate::session) async fn proxy<O: Os>(parts: &mut Parts<'_, O>) -> Result<String, Failure> {
    let cluster = parts.cluster.as_ref().ok_or_else(|| missing("session"))?;
    let (_, places) = parts.board.ways()?;
    let password = Password::random();
    let opener = Arc::clone(&cluster.flows);
    let proxy = Proxy::start(0, password.clone(), opener, places).await;
    let proxy = proxy.map_err(|error| {
        Failure::new(Exit::HostOs, error).context("listening on a port of 127.0.0.1")
    })?;
    let address = proxy.address();
    parts.proxy = Some(proxy);
    parts
        .board
        .note(|facts| facts.proxy = Some(ProxyFacts { address, password }));
    Ok(format!(
        "{address}, SOCKS5 and HTTP CONNECT; `kubebridge env` has the password"
    ))
}
