use std::net::Ipv4Addr;
use std::time::Duration;

use kubebridge_proto::cidr::Cidr;
use kubebridge_proto::routes::{ServiceKind, ServicePort};

use super::*;
use crate::kubernetes::endpoints::{Port, Slice};
use crate::kubernetes::index::{Scope, Served};

mod property;

fn tcp(text: &str) -> Dialled {
    Dialled::Tcp(text.parse().unwrap())
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn ranges(texts: &[&str]) -> Vec<Cidr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn service(namespace: &str, name: &str, addresses: &[&str], ports: &[u16]) -> ServiceRoute {
    ServiceRoute {
        name: name.to_owned(),
        namespace: namespace.to_owned(),
        kind: ServiceKind::ClusterIp,
        cluster_ips: addresses.iter().map(|text| ip(text)).collect(),
        ports: ports
            .iter()
            .map(|port| ServicePort {
                name: format!("p{port}"),
                protocol: if *port == 53 {
                    PortProtocol::Udp
                } else {
                    PortProtocol::Tcp
                },
                port: *port,
            })
            .collect(),
        external_name: None,
    }
}

fn slice(namespace: &str, service: &str, addresses: &[&str], port: u16) -> Slice {
    Slice {
        namespace: namespace.to_owned(),
        name: format!("{service}-x"),
        service: service.to_owned(),
        addresses: addresses.iter().map(|text| (ip(text), true)).collect(),
        ports: vec![Port {
            protocol: PortProtocol::Tcp,
            number: Some(port),
        }],
    }
}

/// A cluster with two namespaces beside `default`, one node network, and everything known.
struct World {
    egress: Egress,
    learned: Learned,
    nodes: watch::Sender<Arc<Nodes>>,
    _ours: watch::Sender<Arc<Ours>>,
    _ranges: watch::Sender<Ranges>,
}

impl World {
    fn new(rules: &[&str]) -> Self {
        let index = Index::new(Served::All, 1);
        let routes = vec![
            service("default", "kubernetes", &["10.96.0.1"], &[443]),
            service("shop", "authors", &["10.96.0.20", "fd00:10::20"], &[80, 53]),
            service("shop", "etcd", &["10.96.0.24"], &[2379, 80]),
            service("shop", "bad", &["10.96.0.25"], &[80]),
            service("shop", "host", &["10.96.0.26"], &[80]),
            service("prod", "authors", &["10.96.0.21"], &[80]),
        ];
        index.reset(&Scope::All, routes, Instant::now());
        let endpoints = Endpoints::default();
        let slices = vec![
            slice("default", "kubernetes", &["192.0.2.9"], 6443),
            slice("shop", "authors", &["10.244.1.5"], 8080),
            slice("shop", "bad", &["192.0.2.1"], 10250),
            slice("shop", "host", &["192.0.2.1"], 9100),
            slice("prod", "authors", &["10.244.1.6"], 8080),
        ];
        endpoints.reset(&Scope::All, slices);
        let nodes = watch::Sender::new(Arc::new(Nodes {
            addresses: [ip("192.0.2.1"), ip("2001:db8::1")].into(),
            pod_ranges: ranges(&["10.244.0.0/16"]).into_iter().collect(),
        }));
        let ours = watch::Sender::new(Arc::new(Ours {
            own: [ip("10.244.3.3"), ip("10.96.0.53")].into(),
            api_servers: [ip("198.51.100.7")].into(),
            host: [ip("192.0.2.2")].into(),
        }));
        let of_services: Ranges = Arc::new(ranges(&["10.96.0.0/16"]).into_iter().collect());
        let of_services = watch::Sender::new(of_services);
        Self {
            egress: Egress {
                rules: Arc::new(
                    rules
                        .iter()
                        .map(|text| text.parse::<rules::Rule>().unwrap())
                        .collect(),
                ),
                index: Arc::new(index),
                endpoints: Arc::new(endpoints),
                ranges: of_services.subscribe(),
                nodes: nodes.subscribe(),
                ours: ours.subscribe(),
            },
            learned: Learned::default(),
            nodes,
            _ours: ours,
            _ranges: of_services,
        }
    }

    fn resolved(mut self, address: &str, origin: Origin) -> Self {
        let now = Instant::now();
        self.learned
            .put(ip(address), now + Duration::from_secs(60), origin, now);
        self
    }

    fn judge(&self, to: Dialled) -> Result<&'static str, &'static str> {
        let grant = Grant {
            namespaces: vec!["shop".to_owned()],
            domains: vec![],
        };
        let dialler = Dialler {
            grant: &grant,
            learned: &self.learned,
        };
        let judged = self.egress.judge(dialler, to, Instant::now());
        judged
            .map(|allowed| allowed.because.word())
            .map_err(|denied| denied.reason.word())
    }
}

#[tokio::test]
async fn services_and_their_endpoints_are_dialled_on_their_own_ports() {
    let world = World::new(&[]);
    for (to, expected) in [
        ("10.96.0.20:80", Ok("service")),
        ("[fd00:10::20]:80", Ok("service")),
        ("[::ffff:10.96.0.20]:80", Ok("service")),
        ("10.96.0.20:81", Err("no-such-port")),
        ("10.96.0.20:53", Err("no-such-port")),
        ("10.96.0.20:0", Err("no-such-port")),
        ("10.244.1.5:8080", Ok("endpoint")),
        ("10.244.1.5:22", Err("no-such-port")),
        ("10.96.0.21:80", Err("namespace-not-granted")),
        ("10.244.1.6:8080", Err("namespace-not-granted")),
        ("10.96.0.99:80", Err("unknown-service")),
        ("10.244.7.7:80", Err("not-listed")),
        ("203.0.113.5:443", Err("not-listed")),
    ] {
        assert_eq!(world.judge(tcp(to)), expected, "{to}");
    }
    let udp = |text: &str| world.judge(Dialled::Udp(text.parse().unwrap()));
    assert_eq!(udp("10.96.0.20:53"), Ok("service"));
    assert_eq!(udp("10.96.0.20:80"), Err("no-such-port"));
    assert_eq!(udp("10.244.1.5:8080"), Err("no-such-port"));
    let ping = |text: &str| world.judge(Dialled::Ping(ip(text)));
    assert_eq!(ping("10.244.1.5"), Ok("endpoint"));
    assert_eq!(ping("10.96.0.20"), Ok("service"));
    assert_eq!(ping("10.244.1.6"), Err("namespace-not-granted"));
    assert_eq!(ping("203.0.113.5"), Err("not-listed"));
}

#[tokio::test]
async fn what_was_resolved_is_dialled_on_any_port_unless_it_is_the_clusters_own() {
    let world = World::new(&[])
        .resolved("203.0.113.5", Origin::Outside)
        .resolved("10.244.7.7", Origin::Outside)
        .resolved("10.244.8.8", Origin::Cluster)
        .resolved("10.96.0.21", Origin::Outside)
        .resolved("10.96.0.99", Origin::Outside)
        .resolved("10.244.1.6", Origin::Outside)
        .resolved("10.244.1.5", Origin::Cluster)
        .resolved("192.0.2.1", Origin::Outside)
        .resolved("169.254.169.254", Origin::Outside);
    for (to, expected) in [
        ("203.0.113.5:443", Ok("resolved")),
        ("10.244.7.7:80", Err("pod-range")),
        ("10.244.8.8:5432", Ok("resolved")),
        ("10.244.1.5:22", Ok("resolved")),
        ("10.96.0.21:80", Err("namespace-not-granted")),
        ("10.96.0.99:80", Err("unknown-service")),
        ("10.244.1.6:8080", Err("namespace-not-granted")),
        ("192.0.2.1:80", Err("node")),
        ("169.254.169.254:80", Err("metadata")),
    ] {
        assert_eq!(world.judge(tcp(to)), expected, "{to}");
    }
}

#[tokio::test]
async fn settings_open_pods_and_ranges_and_no_foreign_service() {
    let world = World::new(&[
        "pods",
        "cidr=0.0.0.0/0",
        "cidr=::/0",
        "except=203.0.113.0/24",
    ]);
    for (to, expected) in [
        ("10.244.7.7:80", Ok("pods")),
        ("10.244.1.5:22", Ok("pods")),
        ("198.51.100.8:443", Ok("cidr")),
        ("[2001:db8:1::1]:443", Ok("cidr")),
        ("203.0.113.5:443", Err("excepted")),
        ("10.96.0.21:80", Err("namespace-not-granted")),
        ("10.244.1.6:8080", Err("namespace-not-granted")),
        ("10.96.0.99:80", Err("unknown-service")),
    ] {
        assert_eq!(world.judge(tcp(to)), expected, "{to}");
    }
}

/// Every address nobody may dial, in every form it can be written.
#[tokio::test]
async fn what_nobody_may_dial_is_denied_in_every_mode_and_in_every_form() {
    let world = World::new(&["pods", "cidr=0.0.0.0/0", "cidr=::/0"]);
    let never_v4 = [
        "127.0.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "240.0.0.1",
        "169.254.169.254",
        "169.254.1.1",
        "100.100.100.200",
        "192.0.0.192",
        "168.63.129.16",
        "192.0.2.1",
        "192.0.2.2",
        "192.0.2.9",
        "198.51.100.7",
        "10.96.0.1",
        "10.244.3.3",
        "10.96.0.53",
    ];
    for text in never_v4 {
        let v4: Ipv4Addr = text.parse().unwrap();
        let [a, b, c, d] = v4.octets().map(u16::from);
        let (high, low) = (a << 8 | b, c << 8 | d);
        for form in [
            text.to_owned(),
            format!("::ffff:{text}"),
            format!("64:ff9b::{text}"),
            format!("64:ff9b:1::{text}"),
            format!("2002:{high:x}:{low:x}::1"),
            format!("2001:0:1:2:0:0:{:x}:{:x}", !high, !low),
            format!("2001:db8:9::5efe:{high:x}:{low:x}"),
        ] {
            for to in [
                Dialled::Tcp(SocketAddr::new(ip(&form), 80)),
                Dialled::Tcp(SocketAddr::new(ip(&form), 443)),
                Dialled::Udp(SocketAddr::new(ip(&form), 53)),
                Dialled::Ping(ip(&form)),
            ] {
                assert!(world.judge(to).is_err(), "{form}");
            }
        }
    }
    for form in [
        "::1",
        "::",
        "ff02::1",
        "fe80::1",
        "fd00:ec2::254",
        "2001:db8::1",
    ] {
        let to = SocketAddr::new(ip(form), 80);
        assert!(world.judge(Dialled::Tcp(to)).is_err(), "{form}");
    }
    for port in [2379, 2380, 10250, 10255] {
        for address in ["10.96.0.24", "10.244.1.5", "203.0.113.5", "2001:db8:1::1"] {
            let to = SocketAddr::new(ip(address), port);
            assert_eq!(world.judge(Dialled::Tcp(to)), Err("control-port"), "{to}");
            assert_eq!(world.judge(Dialled::Udp(to)), Err("control-port"), "{to}");
        }
    }
}

#[tokio::test]
async fn a_service_that_points_at_the_control_plane_is_not_dialled() {
    let world = World::new(&[]);
    assert_eq!(world.judge(tcp("10.96.0.25:80")), Err("control-port"));
    // A pod in its node's network is served as anywhere.
    assert_eq!(world.judge(tcp("10.96.0.26:80")), Ok("service"));
    let nodes = Nodes::default();
    world.nodes.send_replace(Arc::new(nodes));
    world
        .egress
        .endpoints
        .apply(slice("shop", "host", &["192.0.2.9"], 6443));
    assert_eq!(world.judge(tcp("10.96.0.26:80")), Err("api-server"));
    world
        .egress
        .endpoints
        .apply(slice("shop", "host", &["169.254.169.254"], 80));
    assert_eq!(world.judge(tcp("10.96.0.26:80")), Err("metadata"));
}

#[tokio::test]
async fn a_cluster_address_in_disguise_is_not_dialled() {
    let world = World::new(&["cidr=::/0"]).resolved("64:ff9b::10.96.0.20", Origin::Outside);
    for form in [
        "64:ff9b::10.96.0.20",
        "64:ff9b::10.96.0.21",
        "64:ff9b::10.96.0.99",
        "64:ff9b::10.244.1.6",
    ] {
        let to = SocketAddr::new(ip(form), 80);
        assert_eq!(
            world.judge(Dialled::Tcp(to)),
            Err("disguised-address"),
            "{form}"
        );
    }
    let to = SocketAddr::new(ip("64:ff9b::203.0.113.5"), 80);
    assert_eq!(world.judge(Dialled::Tcp(to)), Ok("cidr"));
}

#[tokio::test]
async fn denials_name_the_service_they_are_about() {
    let world = World::new(&[]);
    let grant = Grant {
        namespaces: vec!["shop".to_owned()],
        domains: vec![],
    };
    let dialler = Dialler {
        grant: &grant,
        learned: &world.learned,
    };
    for (to, expected) in [
        ("10.96.0.21:80", Some("prod/authors")),
        ("10.244.1.6:8080", Some("prod/authors")),
        ("10.96.0.20:81", Some("shop/authors")),
        ("10.96.0.1:443", Some("default/kubernetes")),
        ("203.0.113.5:1", None),
    ] {
        let to = Dialled::Tcp(to.parse().unwrap());
        let denied = world.egress.judge(dialler, to, Instant::now()).unwrap_err();
        let service = denied
            .service
            .map(|key| format!("{}/{}", key.namespace, key.name));
        assert_eq!(service.as_deref(), expected, "{to:?}");
    }
}
