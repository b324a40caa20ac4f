//! The health of real upstreams on loopback, as laptops, probes, dashboards and people see it.

use kubebridge_dns::test_util::{Action, Answer, LoopbackServer};
use kubebridge_proto::upstreams::{UpstreamState, UpstreamStatus};
use tokio::sync::watch;
use tonic::Code;

use super::lifecycle::get;
use super::*;

/// A server that answers only while it is told to.
async fn upstream(answers: &watch::Sender<bool>) -> LoopbackServer {
    let answers = answers.subscribe();
    LoopbackServer::start(move |query| match *answers.borrow() {
        true => Answer::nxdomain(".").actions(query),
        false => Vec::<Action>::new(),
    })
    .await
}

/// A manager without Services behind these servers.
async fn manager(servers: &[&LoopbackServer]) -> World {
    World::start_with(|config| {
        config.source = Source::None;
        config.resolution.upstreams = servers
            .iter()
            .map(|server| server.address().to_string().parse().unwrap())
            .collect();
    })
    .await
}

struct Watching(Streaming<v1::WatchUpstreamsResponse>);

impl Watching {
    async fn open(world: &mut World) -> Self {
        let session_id = world.open(&["default"]).await.id;
        let request = v1::WatchUpstreamsRequest { session_id };
        Self(
            world
                .client
                .watch_upstreams(request)
                .await
                .unwrap()
                .into_inner(),
        )
    }

    async fn next(&mut self) -> Vec<UpstreamStatus> {
        let list = self.0.message().await.unwrap().expect("the stream ended");
        let statuses = list.upstreams.into_iter().map(UpstreamStatus::try_from);
        statuses.collect::<Result<_, _>>().unwrap()
    }

    /// Reads lists until the states are these.
    async fn until(&mut self, states: &[UpstreamState]) -> Vec<UpstreamStatus> {
        loop {
            let list = self.next().await;
            if list
                .iter()
                .map(|status| status.state)
                .eq(states.iter().copied())
            {
                return list;
            }
        }
    }
}

async fn report(world: &World) -> serde_json::Value {
    let reply = get(world.running.admin, "/upstreams").await;
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{reply}");
    assert!(head.contains("content-type: application/json"), "{reply}");
    serde_json::from_str(body).unwrap()
}

#[tokio::test]
async fn an_upstream_that_falls_silent_and_comes_back_is_seen_everywhere() {
    use UpstreamState::{Healthy, Unhealthy};
    let (always, sometimes) = (watch::Sender::new(true), watch::Sender::new(true));
    let servers = (upstream(&always).await, upstream(&sometimes).await);
    let mut world = manager(&[&servers.0, &servers.1]).await;
    let mut watching = Watching::open(&mut world).await;
    watching.until(&[Healthy, Healthy]).await;
    assert!(
        get(world.running.admin, "/readyz")
            .await
            .starts_with("HTTP/1.1 200")
    );

    sometimes.send_replace(false);
    // Somebody has to ask before it can be missed.
    dns::plain(&world, "a.example.", RecordType::A).await;
    let list = watching.until(&[Healthy, Unhealthy]).await;

    assert_eq!(list[1].spec, servers.1.address().to_string());
    assert!(
        list[1].fails > 2 && list[1].last_error.is_some(),
        "{list:?}"
    );
    assert!(
        list[0].rtt.is_some() && list[0].last_ok.is_some(),
        "{list:?}"
    );
    let found = report(&world).await;
    assert_eq!(found["schema"], "kubebridge.upstreams/v1");
    assert_eq!(found["upstreams"][0]["state"], "healthy");
    assert_eq!(found["upstreams"][1]["state"], "unhealthy");
    assert_eq!(found["upstreams"][1]["id"], list[1].id);
    let metrics = get(world.running.admin, "/metrics").await;
    for line in [
        "kubebridge_upstream_state{index=\"0\",protocol=\"do53\",state=\"healthy\"} 1".to_owned(),
        "kubebridge_upstream_state{index=\"1\",protocol=\"do53\",state=\"healthy\"} 0".to_owned(),
        "kubebridge_upstream_state{index=\"1\",protocol=\"do53\",state=\"unhealthy\"} 1".to_owned(),
        format!(
            "kubebridge_upstream_info{{index=\"1\",protocol=\"do53\",upstream=\"{}\"}} 1",
            servers.1.address()
        ),
    ] {
        assert!(
            metrics.lines().any(|found| found == line),
            "{line}\n{metrics}"
        );
    }
    let ready = get(world.running.admin, "/readyz").await;
    assert!(ready.starts_with("HTTP/1.1 200"), "{ready}");
    assert!(
        ready.contains(&format!("upstream {}: down: ", servers.1.address())),
        "{ready}"
    );

    sometimes.send_replace(true);
    watching.until(&[Healthy, Healthy]).await;
}

#[tokio::test]
async fn without_a_good_upstream_and_without_services_it_is_not_ready() {
    let silent = watch::Sender::new(false);
    let server = upstream(&silent).await;
    let mut world = manager(&[&server]).await;
    let mut watching = Watching::open(&mut world).await;
    watching.until(&[UpstreamState::Unhealthy]).await;
    let ready = get(world.running.admin, "/readyz").await;
    assert!(ready.starts_with("HTTP/1.1 503"), "{ready}");

    silent.send_replace(true);
    watching.until(&[UpstreamState::Healthy]).await;
    let ready = get(world.running.admin, "/readyz").await;
    assert!(ready.starts_with("HTTP/1.1 200"), "{ready}");
}

#[tokio::test]
async fn a_changed_set_is_told_whole_with_new_ids() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("resolv.conf");
    std::fs::write(&path, "nameserver 127.0.0.9\n").unwrap();
    let mut world = World::start_with(|config| {
        config.resolution.resolv_conf = Some(path.clone());
    })
    .await;
    let mut watching = Watching::open(&mut world).await;
    let before = watching.next().await;
    assert_eq!(before[0].spec, "127.0.0.9");

    std::fs::write(&path, "nameserver 127.0.0.10\nnameserver 127.0.0.11\n").unwrap();

    let after = loop {
        let list = watching.next().await;
        if list.len() == 2 {
            break list;
        }
    };
    assert_eq!(
        (after[0].spec.as_str(), after[1].spec.as_str()),
        ("127.0.0.10", "127.0.0.11")
    );
    assert!(
        after.iter().all(|status| status.id > before[0].id),
        "{after:?}"
    );
}

#[tokio::test]
async fn the_upstreams_are_for_open_sessions_alone() {
    let mut world = World::start().await;
    for (session, code) in [
        ("", Code::InvalidArgument),
        ("unknown", Code::FailedPrecondition),
    ] {
        let request = v1::WatchUpstreamsRequest {
            session_id: session.to_owned(),
        };
        let status = world.client.watch_upstreams(request).await.unwrap_err();
        assert_eq!(status.code(), code, "{session:?}");
    }
}

#[tokio::test]
async fn the_stream_ends_with_the_manager() {
    let mut world = World::start().await;
    let mut watching = Watching::open(&mut world).await;
    assert!(watching.next().await.is_empty());
    world.running.shutdown().await;
    while let Ok(Some(_)) = watching.0.message().await {}
}
