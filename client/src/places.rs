//! Where the destinations of a session's proxy and forwards are, by its own resolver.
//!
//! What is not the cluster's is looked up as this machine does. Opens no connection.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, join};
use kubebridge_dns::name::{Name, RecordType};
use kubebridge_platform::net::IpNet;
use kubebridge_proto::session::SessionInfo;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::local_dns::LocalDns;
use crate::probe::{self, Finding};
use crate::proxy::{Host, Place, Places};
use crate::session::routes::RouteChoice;
use crate::zones::Destination;

/// How long this machine may take to look a name up: as long as the C library waits for one server.
const LOOKUP: Duration = Duration::from_secs(5);

/// The places of one session.
#[derive(Debug)]
pub struct SessionPlaces {
    local: Arc<LocalDns>,
    session: watch::Receiver<SessionInfo>,
    choice: RouteChoice,
}

impl SessionPlaces {
    /// Finds places by a session's resolver, and what is known of its cluster's networks.
    #[must_use]
    pub fn new(
        local: Arc<LocalDns>,
        session: watch::Receiver<SessionInfo>,
        choice: RouteChoice,
    ) -> Self {
        Self {
            local,
            session,
            choice,
        }
    }

    /// Tells whether an address is the cluster's, as far as networks and Services say.
    #[must_use]
    pub fn is_inside(&self, address: IpAddr) -> bool {
        let has = |nets: &[IpNet]| nets.iter().any(|net| net.contains(address));
        if has(&self.choice.exclude) {
            return false;
        }
        has(&self.choice.include)
            || has(&self.choice.take)
            || self.is_of_network(address)
            || self.is_of_service(address)
    }

    fn is_of_network(&self, address: IpAddr) -> bool {
        let session = self.session.borrow();
        let mut networks = session.service_cidrs.iter().chain(&session.pod_cidrs);
        networks.any(|cidr| {
            let net = IpNet::new(cidr.network(), cidr.prefix());
            net.is_ok_and(|net| net.contains(address))
        })
    }

    fn is_of_service(&self, address: IpAddr) -> bool {
        let table = self.local.routes.borrow();
        table
            .namespaces()
            .flat_map(|(namespace, _)| table.services(namespace))
            .any(|service| service.cluster_ips.contains(&address))
    }

    async fn find_name(&self, name: &Name, port: u16) -> Place {
        let zones = Arc::clone(&self.local.zones.borrow());
        let destination = zones.decide(name, &self.local.routes.borrow());
        match destination {
            Destination::Cluster => self.ask_cluster(name, port).await,
            Destination::Originals => self.ask_machine(name, port).await,
            Destination::NoSuchName | Destination::NoData => Place::NoSuchName,
        }
    }

    /// Both families at once; what the cluster says is the cluster's, whatever its address.
    async fn ask_cluster(&self, name: &Name, port: u16) -> Place {
        let ask = async |rtype| {
            let reply = self.local.answer(probe::query(name, rtype)).await?;
            Finding::read(&reply).ok()
        };
        let both = join(ask(RecordType::A), ask(RecordType::AAAA)).await;
        let mut found = Vec::new();
        let mut is_sure = true;
        for finding in [both.0, both.1] {
            match finding {
                Some(Finding::Addresses(addresses)) => {
                    for address in addresses {
                        let at = SocketAddr::new(address, port);
                        if !found.contains(&at) {
                            found.push(at);
                        }
                    }
                }
                Some(Finding::NoData | Finding::NoSuchName) => {}
                Some(Finding::Failed(_)) | None => is_sure = false,
            }
        }
        match (found.is_empty(), is_sure) {
            (false, _) => Place::Cluster(found),
            (true, true) => Place::NoSuchName,
            (true, false) => Place::Unknown,
        }
    }

    /// A name of the world may lead into the cluster's networks, by a hosts file say.
    async fn ask_machine(&self, name: &Name, port: u16) -> Place {
        let looked_up = timeout(LOOKUP, tokio::net::lookup_host((name.to_string(), port)));
        let Ok(Ok(found)) = looked_up.await else {
            return Place::Unknown;
        };
        let (inside, outside): (Vec<_>, Vec<_>) =
            found.partition(|address| self.is_inside(address.ip()));
        match (inside.is_empty(), outside.is_empty()) {
            (false, _) => Place::Cluster(inside),
            (true, false) => Place::Outside(outside),
            (true, true) => Place::NoSuchName,
        }
    }
}

impl Places for SessionPlaces {
    fn find<'a>(&'a self, host: &'a Host, port: u16) -> BoxFuture<'a, Place> {
        async move {
            match host {
                Host::Address(address) => {
                    let at = vec![SocketAddr::new(*address, port)];
                    match self.is_inside(*address) {
                        true => Place::Cluster(at),
                        false => Place::Outside(at),
                    }
                }
                Host::Name(name) => self.find_name(name, port).await,
            }
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests;
