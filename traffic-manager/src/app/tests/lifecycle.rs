//! Probes, drain, broken files, and a `resolv.conf` that changes.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;

pub(super) async fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    reply
}

#[tokio::test]
async fn the_probes_answer_and_everything_else_is_not_found() {
    let world = World::start().await;
    for (path, status, body) in [
        ("/livez", "HTTP/1.1 200", "ok\n"),
        ("/readyz", "HTTP/1.1 200", "ready\n"),
        ("/", "HTTP/1.1 404", ""),
        ("/metrics/x", "HTTP/1.1 404", ""),
    ] {
        let reply = get(world.running.admin, path).await;
        assert!(
            reply.starts_with(status) && reply.ends_with(body),
            "{path}: {reply}"
        );
    }
}

#[tokio::test]
async fn shutdown_ends_open_streams_and_frees_the_ports() {
    let mut world = World::start().await;
    let session = world.open(&["default"]).await.id;
    let mut routes = Routes::open(&mut world.client, &session, &[("default", 0)]).await;
    routes.next().await;
    let (dns, grpc) = (world.running.dns[0], world.running.grpc);
    world.running.shutdown().await;
    // An idle stream is ended; one that the drain gave up on would break instead.
    let end = loop {
        match within("the end of the stream", routes.frames.message()).await {
            Ok(Some(_)) => {}
            end => break end,
        }
    };
    assert!(matches!(end, Ok(None)), "{end:?}");
    let freeing = async {
        while std::net::UdpSocket::bind(dns).is_err() {
            tokio::task::yield_now().await;
        }
    };
    within("a free port", freeing).await;
    assert!(TcpStream::connect(grpc).await.is_err());
}

#[tokio::test]
async fn a_broken_file_at_start_names_file_and_service() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("services.yaml");
    std::fs::write(
        &file,
        "kind: Service\nmetadata: {name: authors}\nspec: {}\n",
    )
    .unwrap();
    let source = Source::Manifests {
        file: file.clone(),
        namespaces: Namespaces::All,
    };
    let error = start(loopback(source)).await.unwrap_err();
    let (text, code) = crate::failure::report(&error);
    let expected = format!(
        "error: cannot use the services file {}: Service default/authors has no spec.clusterIP\nhint: ",
        file.display()
    );
    assert!(text.starts_with(&expected), "{text}");
    assert_eq!(code, 78);
}

#[tokio::test]
async fn the_resolv_conf_is_read_again_when_it_changes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("resolv.conf");
    std::fs::write(&path, "search a.svc.cluster.local\n").unwrap();
    let mut world = World::start_with(|config| {
        config.resolution.search = Vec::new();
        config.resolution.resolv_conf = Some(path.clone());
    })
    .await;
    let before = world.open(&["shop"]).await;
    assert_eq!(before.cluster_domain, "cluster.local");
    std::fs::write(&path, "search a.svc.k8s.corp corp\noptions ndots:2\n").unwrap();
    let reading = async {
        loop {
            let info = world.try_open(Some(&before.id), &["shop"]).await.unwrap();
            if info.cluster_domain == "k8s.corp" {
                return info;
            }
            tokio::task::yield_now().await;
        }
    };
    let info = within("the new file is read", reading).await;
    assert_eq!(info.search, ["shop.svc.k8s.corp", "corp"]);
    assert_eq!(info.ndots, 2);
}

/// The names and types people build their dashboards on.
const METRICS: &str = "\
kubebridge_build_info gauge
kubebridge_data_connections gauge
kubebridge_dns_cache_bytes gauge
kubebridge_dns_cache_entries gauge
kubebridge_dns_cache_hits_total counter
kubebridge_dns_cache_misses_total counter
kubebridge_dns_in_flight gauge
kubebridge_dns_queries_total counter
kubebridge_dns_renewals_total counter
kubebridge_dns_shed_total counter
kubebridge_dns_stale_answers_total counter
kubebridge_dns_waiting gauge
kubebridge_flow_datagrams_dropped_total counter
kubebridge_flow_memory_bytes gauge
kubebridge_flow_octets_total counter
kubebridge_flows gauge
kubebridge_flows_closed_total counter
kubebridge_flows_opened_total counter
kubebridge_flows_parked gauge
kubebridge_flows_refused_total counter
kubebridge_flows_resumed_total counter
kubebridge_namespaces gauge
kubebridge_route_changes_sent_total counter
kubebridge_route_frames_total counter
kubebridge_route_streams gauge
kubebridge_routes gauge
kubebridge_sessions gauge
kubebridge_tasks gauge
kubebridge_upstream_failures gauge
kubebridge_upstream_info gauge
kubebridge_upstream_last_reply_seconds gauge
kubebridge_upstream_rtt_seconds gauge
kubebridge_upstream_state gauge
kubebridge_watch_relists_total counter
kubebridge_watch_restarts_total counter
";

async fn metrics(world: &World) -> String {
    let reply = get(world.running.admin, "/metrics").await;
    assert!(
        reply.contains("content-type: text/plain; version=0.0.4"),
        "{reply}"
    );
    reply.split_once("\r\n\r\n").unwrap().1.to_owned()
}

#[tokio::test]
async fn metrics_have_the_documented_names_and_types() {
    let text = metrics(&World::start().await).await;
    let mut types: Vec<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .collect();
    types.sort_unstable();
    assert_eq!(format!("{}\n", types.join("\n")), METRICS);
}

#[tokio::test]
async fn metrics_count_what_happens_and_name_nothing() {
    let mut world = World::start().await;
    let session = world.open(&["default"]).await.id;
    let mut routes = Routes::open(&mut world.client, &session, &[("default", 0)]).await;
    routes.next().await;
    routes.next().await;
    let mut exchange = dns::Exchange::open(&mut world.client, &session).await;
    for _ in 0..2 {
        exchange.ask("authors", RecordType::A).await;
    }
    let text = metrics(&world).await;
    for line in [
        "kubebridge_dns_queries_total{transport=\"grpc\",rcode=\"NOERROR\"} 2",
        "kubebridge_dns_cache_hits_total 1",
        "kubebridge_dns_cache_misses_total 1",
        "kubebridge_dns_cache_entries 1",
        "kubebridge_sessions 1",
        "kubebridge_route_streams 1",
        "kubebridge_route_frames_total{kind=\"page\"} 1",
        "kubebridge_route_changes_sent_total 5",
        "kubebridge_namespaces{state=\"synced\"} 2",
        "kubebridge_routes{state=\"synced\"} 6",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    for name in ["authors", "default", "shop", session.as_str()] {
        assert!(!text.contains(name), "{name} is told:\n{text}");
    }
}

/// The time until SERVFAIL, when nobody answers, is what the file says now.
#[tokio::test]
async fn a_changed_timeout_takes_effect_without_a_restart() {
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("resolv.conf");
    std::fs::write(&path, "options timeout:4 attempts:1\n").unwrap();
    let world = World::start_with(|config| {
        config.source = Source::None;
        config.resolution.upstreams =
            vec![silent.local_addr().unwrap().to_string().parse().unwrap()];
        config.resolution.resolv_conf = Some(path.clone());
    })
    .await;
    std::fs::write(&path, "options timeout:1 attempts:1\n").unwrap();
    // A query of its own name each time: failures are remembered for a moment. On a slow machine
    // some may take longer than the file says, but hardly all.
    for number in 0.. {
        let asked = tokio::time::Instant::now();
        let name = format!("n{number}.example.");
        assert_eq!(dns::plain(&world, &name, RecordType::A).await, "SERVFAIL");
        if asked.elapsed() < Duration::from_millis(2500) {
            return;
        }
        assert!(number < 10, "the new timeout never came");
    }
}
