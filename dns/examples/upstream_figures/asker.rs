//! The engine or the forwarder over two servers, asked one name after the other.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use kubebridge_dns::forward::Forwarder;
use kubebridge_dns::message::{QueryOptions, answers, encode_query};
use kubebridge_dns::name::RecordType;
use kubebridge_dns::records::NoLocalRecords;
use kubebridge_dns::resolver::{Asker as Origin, FanoutPolicy, Resolver, ResolverConfig};
use kubebridge_dns::test_util::name;
use kubebridge_dns::upstream::{Do53, PortPolicy, Upstream};
use kubebridge_dns::upstreams::{Settings, Upstreams};
use kubebridge_dns::view::{BarePolicy, PlainView, View};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Who asks the servers.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Who {
    /// A session's or a host's, in order.
    Forwarder,
    /// The manager's, by a policy.
    Resolver(FanoutPolicy),
}

enum Engine {
    Forwarder(Forwarder),
    Resolver(Arc<Resolver>, Origin),
}

/// Asks, every time for another name.
pub(crate) struct Asker {
    engine: Engine,
    pub(crate) upstreams: Arc<Upstreams>,
    asked: AtomicU32,
    _stop: DropGuard,
}

impl Asker {
    /// Over servers outside the cluster.
    pub(crate) fn new(who: Who, servers: &[SocketAddr]) -> Self {
        let ports = match who {
            Who::Forwarder => PortPolicy::FreshPort,
            Who::Resolver(_) => PortPolicy::Pooled,
        };
        let transport =
            |server: &SocketAddr| Arc::new(Do53::new(*server, ports)) as Arc<dyn Upstream>;
        Self::over(who, servers.iter().map(transport).collect())
    }

    pub(crate) fn over(who: Who, transports: Vec<Arc<dyn Upstream>>) -> Self {
        let upstreams = Upstreams::new(transports, Settings::default());
        let (set, stop) = (Arc::clone(&upstreams), CancellationToken::new());
        let token = stop.clone();
        tokio::spawn(async move { set.run(token).await });
        let engine = match who {
            Who::Forwarder => {
                let total = Duration::from_millis(4500);
                Engine::Forwarder(Forwarder::new(Arc::clone(&upstreams), total))
            }
            Who::Resolver(fanout) => {
                let mut config = ResolverConfig::of(Arc::clone(&upstreams));
                config.fanout = fanout;
                let resolver = Resolver::new(config, Arc::new(NoLocalRecords));
                Engine::Resolver(resolver, Origin::new(Arc::new(view())))
            }
        };
        Self {
            engine,
            upstreams,
            asked: AtomicU32::new(0),
            _stop: stop.drop_guard(),
        }
    }

    /// Asks for a name nobody asked for before; returns whose address the answer is.
    pub(crate) async fn ask(&self) -> Option<IpAddr> {
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        let asked = name(&format!("a{number}.b.c.d.e.test"));
        let packet = encode_query(1, &asked, RecordType::A, QueryOptions::default());
        let reply = match &self.engine {
            Engine::Forwarder(forwarder) => forwarder.forward(&packet).await,
            Engine::Resolver(resolver, origin) => resolver.answer(&packet, origin).await,
        };
        let reply = answers(&reply?).unwrap();
        reply.addresses().next()
    }
}

fn view() -> View {
    View::plain(PlainView {
        search: vec![],
        ndots: None,
        cluster_domain: None,
        absolute_zones: vec![],
        bare: BarePolicy::LastToUpstreams,
    })
}
