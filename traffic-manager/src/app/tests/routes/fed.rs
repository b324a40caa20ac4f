//! Streams of an index that the test feeds itself: slow readers, namespaces that come late.

use super::*;

/// The gRPC service over an index that the test feeds itself, and what its views follow.
pub(in crate::app::tests) fn service_over(
    index: &Arc<Index>,
    gate: Gate,
    audit: Arc<Audit>,
    shutdown: &CancellationToken,
) -> (Service, watch::Sender<Arc<View>>) {
    let resolution = loopback(Source::None).resolution;
    let settings = Settings::load(&resolution).unwrap();
    let plain = watch::Sender::new(Arc::new(settings.view.clone()));
    let resolver = Resolver::new(
        settings
            .resolver(&resolution, &kubebridge_dns::upstream::Settings::default())
            .unwrap(),
        Arc::new(NoLocalRecords),
    );
    let sessions = Arc::new(Sessions::new(
        plain.subscribe(),
        Arc::default(),
        Arc::clone(&audit),
    ));
    let metrics = Arc::new(Metrics::new("0"));
    let (config, told) = (loopback(Source::None), Told::default());
    let data = Data::new(data::Parts {
        sessions: Arc::clone(&sessions),
        egress: egress(&config, index, &told, &watch::Sender::default()),
        dial: Arc::new(Sockets),
        flows_per_session: config.flows_per_session,
        audit: Arc::clone(&audit),
        counts: metrics.flows(),
        shutdown: shutdown.clone(),
    });
    let service = Service {
        sessions,
        data,
        index: Arc::clone(index),
        observed: watch::Sender::default().subscribe(),
        ranges: watch::Sender::default().subscribe(),
        resolver,
        metrics,
        gate,
        audit,
        explains: Arc::default(),
        shutdown: shutdown.clone(),
    };
    (service, plain)
}

/// A gRPC server over an index that the test feeds itself.
pub(in crate::app::tests) async fn serve_index(
    index: &Arc<Index>,
    shutdown: &CancellationToken,
) -> SocketAddr {
    let audit = Arc::new(Audit::new(None, Wall::System));
    let (service, plain) = service_over(index, Gate::Demo, audit, shutdown);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        // The plain view lives as long as the server.
        let _plain = plain;
        grpc::serve::serve(listener, None, service).await.unwrap();
    });
    address
}

pub(in crate::app::tests) fn service(number: usize, ip: u32) -> ServiceRoute {
    ServiceRoute {
        name: format!("service-with-a-longish-name-{number:05}"),
        namespace: "default".to_owned(),
        kind: ServiceKind::ClusterIp,
        cluster_ips: vec![std::net::Ipv4Addr::from(ip).into()],
        ports: Vec::new(),
        external_name: None,
    }
}

/// W1: a subscriber that does not read while 20,000 changes go by gets few frames and no gap.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_subscriber_ends_with_the_right_table_and_few_frames() {
    const SERVICES: usize = 4000;
    let shutdown = CancellationToken::new();
    let _stop = shutdown.clone().drop_guard();
    let index = Arc::new(Index::new(Served::All, 1));
    let all = (0..SERVICES).map(|number| service(number, 1)).collect();
    index.reset(&Scope::All, all, tokio::time::Instant::now());
    let address = serve_index(&index, &shutdown).await;

    // The smallest windows there are, so that the server feels a client that does not read.
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let endpoint = endpoint
        .initial_stream_window_size(65_535)
        .initial_connection_window_size(65_535);
    let mut client = TrafficManagerClient::new(endpoint.connect().await.unwrap());
    let session = open(&mut client, None, &["default"], Vec::new())
        .await
        .unwrap()
        .id;
    let mut routes = Routes::open(&mut client, &session, &[("default", 0)]).await;
    let mut table = Table::default();
    table.apply(routes.next().await);
    table.apply(routes.next().await);

    for change in 0..20_000_usize {
        match change % 5 {
            0 => drop(index.delete(
                "default",
                &service(change * 7 % SERVICES, 0).name,
                tokio::time::Instant::now(),
            )),
            _ => {
                let ip = u32::try_from(change).unwrap();
                index.apply(service(change * 13 % SERVICES, ip));
            }
        }
    }
    index.apply(service(SERVICES, 7));
    let end = index
        .subscribe("default", tokio::time::Instant::now())
        .borrow()
        .revision;
    table
        .read_until(&mut routes, |table| table.revision == end)
        .await;

    let (expected, _) = index.page("default", None, usize::MAX);
    let expected: Vec<_> = expected.iter().map(|route| (**route).clone()).collect();
    assert!(table.routes.into_values().eq(expected), "another table");
    // Five whole tables in pages of 50, for 20,000 changes.
    assert!(table.frames < 400 + 100, "{} frames", table.frames);
}

/// W3: namespaces do not wait for each other.
#[tokio::test]
async fn a_namespace_that_is_not_listed_yet_delays_no_other() {
    let shutdown = CancellationToken::new();
    let _stop = shutdown.clone().drop_guard();
    let served = ["default", "slow"].map(str::to_owned).into();
    let index = Arc::new(Index::new(Served::Namespaces(served), 1));
    let now = tokio::time::Instant::now();
    index.reset(
        &Scope::Namespace("default".to_owned()),
        vec![service(1, 1)],
        now,
    );
    let mut client = connect(serve_index(&index, &shutdown).await).await;
    let session = open(&mut client, None, &["default", "slow"], Vec::new())
        .await
        .unwrap()
        .id;
    let wanted = [("slow", 0), ("default", 0)];
    let mut routes = Routes::open(&mut client, &session, &wanted).await;
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(routes.next().await);
    }
    let waiting = RouteUpdate::State {
        namespace: "slow".to_owned(),
        state: NamespaceState::Waiting,
    };
    assert!(seen.contains(&waiting), "{seen:?}");
    assert!(
        seen.iter()
            .any(|update| matches!(update, RouteUpdate::Page { last: true, .. }))
    );
    drop(routes);

    index.reset(&Scope::Namespace("slow".to_owned()), vec![], now);
    let mut routes = Routes::open(&mut client, &session, &[("slow", 0)]).await;
    Table::default()
        .read_until(&mut routes, |table| table.revision != 0)
        .await;
}
