//! Route streams against each other and against another manager: what must hold whoever is first.

use kubebridge_proto::routes::{NamespaceState, ServiceRoute};
use tokio::time::Instant;

use super::routes::fed::{serve_index, service};
use super::*;
use crate::kubernetes::index::{Scope, Served};

/// Reads one whole snapshot, which must be what comes.
async fn snapshot(routes: &mut Routes) -> (u64, Vec<ServiceRoute>) {
    let mut held = Vec::new();
    loop {
        match routes.next().await {
            RouteUpdate::State { state, .. } => assert_eq!(state, NamespaceState::Synced),
            RouteUpdate::Page {
                revision,
                routes,
                last,
                ..
            } => {
                held.extend(routes);
                if last {
                    return (revision, held);
                }
            }
            RouteUpdate::Delta { .. } => panic!("a delta in place of a snapshot"),
        }
    }
}

/// W4: a subscriber that comes while the last one goes is told every change after it came.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscribe_against_the_last_unsubscribe_is_never_left_without_changes() {
    const ROUNDS: u32 = 200;
    let shutdown = CancellationToken::new();
    let _stop = shutdown.clone().drop_guard();
    let index = Arc::new(Index::new(Served::All, 1));
    index.reset(&Scope::All, Vec::new(), Instant::now());
    let mut client = connect(serve_index(&index, &shutdown).await).await;
    let session = open(&mut client, None, &["default"], Vec::new())
        .await
        .unwrap()
        .id;
    let mut last = Routes::open(&mut client, &session, &[("default", 0)]).await;
    snapshot(&mut last).await;
    for round in 1..=ROUNDS {
        let going = tokio::spawn(async move {
            // Each round leaves another part of the way to the newcomer.
            for _ in 0..round % 8 {
                tokio::task::yield_now().await;
            }
            drop(last);
        });
        let mut coming = Routes::open(&mut client, &session, &[("default", 0)]).await;
        going.await.unwrap();
        snapshot(&mut coming).await;
        let changed = service(1, round);
        index.apply(changed.clone());
        let RouteUpdate::Delta { upserts, .. } = coming.next().await else {
            panic!("no delta in round {round}");
        };
        assert_eq!(upserts, [changed], "round {round}");
        last = coming;
    }
}

/// W7: a namespace the manager may not list has the state forbidden with verb and resource, and the
/// other namespace of the stream goes on.
#[tokio::test]
async fn a_forbidden_namespace_is_a_state_and_the_others_go_on() {
    let shutdown = CancellationToken::new();
    let _stop = shutdown.clone().drop_guard();
    let served = ["default", "secret"].map(str::to_owned).into();
    let index = Arc::new(Index::new(Served::Namespaces(served), 1));
    let scope = |name: &str| Scope::Namespace(name.to_owned());
    index.reset(&scope("default"), vec![service(1, 1)], Instant::now());
    let forbidden = NamespaceState::Forbidden {
        verb: "list".to_owned(),
        resource: "services".to_owned(),
    };
    index.set_state(&scope("secret"), &forbidden);
    let mut client = connect(serve_index(&index, &shutdown).await).await;
    let both = ["default", "secret"];
    let session = open(&mut client, None, &both, Vec::new()).await.unwrap().id;
    let mut routes = Routes::open(&mut client, &session, &both.map(|name| (name, 0))).await;
    let (mut told, mut pages) = (None, 0);
    while told.is_none() || pages == 0 {
        match routes.next().await {
            RouteUpdate::State { namespace, state } if namespace == "secret" => told = Some(state),
            RouteUpdate::State { .. } => {}
            RouteUpdate::Page { namespace, .. } => {
                assert_eq!(namespace, "default");
                pages += 1;
            }
            RouteUpdate::Delta { .. } => panic!("nothing changed"),
        }
    }
    assert_eq!(told, Some(forbidden));
    index.apply(service(2, 2));
    let update = routes.next().await;
    assert!(
        matches!(&update, RouteUpdate::Delta { namespace, .. } if namespace == "default"),
        "{update:?}"
    );
}

/// W8: a revision of the old manager is never taken for one of the new, although both hold the same
/// Services and made the same steps: the whole table comes. That it comes within 5 s is measured on
/// real parts (`manager_replaced` in `tests/e2e`).
#[tokio::test]
async fn a_revision_of_the_manager_before_gets_the_whole_table() {
    let mut old = World::start().await;
    let session = old.open(&["default"]).await.id;
    let mut routes = Routes::open(&mut old.client, &session, &[("default", 0)]).await;
    let (held, table) = snapshot(&mut routes).await;
    old.running.shutdown().await;

    let mut new = World::start().await;
    let refused = Routes::open(&mut new.client, &session, &[("default", held)])
        .await
        .failure()
        .await;
    assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
    let session = new.open(&["default"]).await.id;
    for around in [held, held - 1, held + 1] {
        let mut routes = Routes::open(&mut new.client, &session, &[("default", around)]).await;
        let (revision, again) = within("the whole table", snapshot(&mut routes)).await;
        assert_ne!(revision, held, "two managers with one revision");
        assert_eq!(again, table);
    }
}
