//! What the kernel says about our link and its addresses.

use std::io;
use std::time::Duration;

use futures::StreamExt;
use rtnetlink::MulticastGroup;
use rtnetlink::packet_core::NetlinkPayload;
use rtnetlink::packet_route::RouteNetlinkMessage;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::{Cause, Cues};

/// How long to wait before a netlink socket that broke is made anew.
const RETRY: Duration = Duration::from_secs(2);

/// Listens for good; after a break the link may have changed unseen.
pub(super) async fn watch(link: watch::Receiver<Option<u32>>, cues: Cues) {
    loop {
        match listen(&link, &cues).await {
            Ok(()) => cues.put(Cause::Link),
            Err(error) => tracing::debug!(%error, "links cannot be watched"),
        }
        sleep(RETRY).await;
    }
}

async fn listen(link: &watch::Receiver<Option<u32>>, cues: &Cues) -> io::Result<()> {
    let groups = [MulticastGroup::Link, MulticastGroup::Ipv4Ifaddr];
    let (connection, _handle, mut messages) = rtnetlink::new_multicast_connection(&groups)?;
    let mut serving = JoinSet::new();
    serving.spawn(connection);
    while let Some((message, _)) = messages.next().await {
        let NetlinkPayload::InnerMessage(message) = message.payload else {
            continue;
        };
        let found = cause(&message);
        if let Some((index, cause)) = found
            && *link.borrow() == Some(index)
        {
            cues.put(cause);
        }
    }
    Ok(())
}

fn cause(message: &RouteNetlinkMessage) -> Option<(u32, Cause)> {
    match message {
        RouteNetlinkMessage::NewLink(link) | RouteNetlinkMessage::DelLink(link) => {
            Some((link.header.index, Cause::Link))
        }
        RouteNetlinkMessage::NewAddress(address) | RouteNetlinkMessage::DelAddress(address) => {
            Some((address.header.index, Cause::Address))
        }
        _ => None,
    }
}
