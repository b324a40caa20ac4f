//! What the kernel says about our link, and about the networks that the machine is in.

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
use crate::routes::netlink::{is_ours, oif};

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
    let groups = [
        MulticastGroup::Link,
        MulticastGroup::Ipv4Ifaddr,
        MulticastGroup::Ipv6Ifaddr,
        MulticastGroup::Ipv4Route,
        MulticastGroup::Ipv6Route,
        MulticastGroup::Ipv4Rule,
        MulticastGroup::Ipv6Rule,
    ];
    let (connection, _handle, mut messages) = rtnetlink::new_multicast_connection(&groups)?;
    let mut serving = JoinSet::new();
    serving.spawn(connection);
    while let Some((message, _)) = messages.next().await {
        let NetlinkPayload::InnerMessage(message) = message.payload else {
            continue;
        };
        let own = *link.borrow();
        if let Some(cause) = cause(&message, own) {
            cues.put(cause);
        }
    }
    Ok(())
}

/// What a message means for a session with this link; without one nothing does.
fn cause(message: &RouteNetlinkMessage, own: Option<u32>) -> Option<Cause> {
    let own = own?;
    match message {
        RouteNetlinkMessage::NewLink(link) | RouteNetlinkMessage::DelLink(link) => {
            (link.header.index == own).then_some(Cause::Link)
        }
        RouteNetlinkMessage::NewAddress(address) | RouteNetlinkMessage::DelAddress(address) => {
            let is_own = address.header.index == own;
            Some(if is_own {
                Cause::Address
            } else {
                Cause::Network
            })
        }
        RouteNetlinkMessage::NewRoute(route) => (oif(route) != Some(own)).then_some(Cause::Network),
        RouteNetlinkMessage::DelRoute(route) if oif(route) == Some(own) => {
            is_ours(route).then_some(Cause::Route)
        }
        RouteNetlinkMessage::DelRoute(_)
        | RouteNetlinkMessage::NewRule(_)
        | RouteNetlinkMessage::DelRule(_) => Some(Cause::Network),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rtnetlink::RouteMessageBuilder;
    use rtnetlink::packet_route::address::AddressMessage;
    use rtnetlink::packet_route::link::LinkMessage;
    use rtnetlink::packet_route::route::{RouteMessage, RouteProtocol};
    use rtnetlink::packet_route::rule::RuleMessage;

    use super::*;
    use crate::routes::netlink::PROTOCOL;

    fn route(link: u32, protocol: RouteProtocol) -> RouteMessage {
        let builder = RouteMessageBuilder::<std::net::Ipv4Addr>::new();
        builder.output_interface(link).protocol(protocol).build()
    }

    #[test]
    fn what_others_change_is_told_from_what_happens_to_ours() {
        let (mut link, mut address) = (LinkMessage::default(), AddressMessage::default());
        (link.header.index, address.header.index) = (7, 7);
        let ours = RouteProtocol::Other(PROTOCOL);
        let table = [
            (
                RouteNetlinkMessage::DelLink(link.clone()),
                7,
                Some(Cause::Link),
            ),
            (RouteNetlinkMessage::DelLink(link), 2, None),
            (
                RouteNetlinkMessage::NewAddress(address.clone()),
                7,
                Some(Cause::Address),
            ),
            (
                RouteNetlinkMessage::NewAddress(address),
                2,
                Some(Cause::Network),
            ),
            // What we do ourselves is no news.
            (RouteNetlinkMessage::NewRoute(route(7, ours)), 7, None),
            (
                RouteNetlinkMessage::DelRoute(route(7, ours)),
                7,
                Some(Cause::Route),
            ),
            (
                RouteNetlinkMessage::DelRoute(route(7, RouteProtocol::Kernel)),
                7,
                None,
            ),
            (
                RouteNetlinkMessage::NewRoute(route(2, RouteProtocol::Boot)),
                7,
                Some(Cause::Network),
            ),
            (
                RouteNetlinkMessage::DelRoute(route(2, RouteProtocol::Boot)),
                7,
                Some(Cause::Network),
            ),
            (
                RouteNetlinkMessage::NewRule(RuleMessage::default()),
                7,
                Some(Cause::Network),
            ),
        ];
        for (message, own, expected) in table {
            assert_eq!(cause(&message, Some(own)), expected, "{message:?}");
            assert_eq!(cause(&message, None), None, "{message:?}");
        }
    }
}
