//! Namespaces that are added and taken away while the session runs.

use super::*;

/// What the fake manager sends when it is asked for a namespace.
async fn sends(world: &World, namespace: &str, services: &[(&str, &str)]) {
    let namespace = namespace.to_owned();
    let state = RouteUpdate::State {
        namespace: namespace.clone(),
        state: NamespaceState::Synced,
    };
    world.script.send(state).await;
    let routes = services.iter();
    let routes = routes.map(|(name, address)| cluster_ip(&namespace, name, address));
    let page = RouteUpdate::Page {
        routes: routes.collect(),
        namespace,
        revision: 1,
        last: true,
    };
    world.script.send(page).await;
}

async fn change(world: &World, change: Change) -> Result<NamespacesReport, Failure> {
    let mut found = sessions(world.os.runtime.path()).await.unwrap();
    found.remove(0).change(change).await
}

#[tokio::test]
async fn w12_another_own_namespace_takes_hosts_lines_search_and_zones_with_it() {
    let mut world = World::new(|_, _| {}).await;
    world.script.remembers.store(true, Ordering::Relaxed);
    let session = world.start().await;
    world.until_state("connected").await;
    let changing = change(&world, Change::Use("shop".to_owned()));
    let answering = async {
        world.script.subscribed(2).await;
        sends(&world, "shop", &[("carts", "10.96.0.9")]).await;
    };
    let (report, ()) = tokio::join!(changing, answering);

    let report = report.unwrap();
    assert_eq!(report.namespaces, ["shop", "default"]);
    assert_eq!(report.trouble, None);
    let states: Vec<_> = report
        .kubernetes
        .iter()
        .map(|one| one.state.as_str())
        .collect();
    assert_eq!(states, ["synced", "synced"]);
    let mut intents = world.os.intent();
    let followed = |intent: &Intent| hosts(intent) == ["10.96.0.9 carts"];
    let intent = crate::test_util::within("the lines of shop", intents.wait_for(followed));
    let intent = intent.await.unwrap().clone();
    let dns = intent.dns.clone().unwrap();
    assert_eq!(dns.search, ["shop.svc.cluster.local"]);
    assert_eq!(dns.namespaces, ["shop", "default"]);
    // Short names are those of the new namespace.
    assert!(matches!(world.ask("carts").await, Finding::Addresses(_)));
    assert_eq!(world.ask("authors").await, Finding::NoSuchName);
    assert_eq!(world.status().await.namespaces, ["shop", "default"]);
    session.abort();
}

#[tokio::test]
async fn w12_a_refused_namespace_changes_nothing_on_the_machine() {
    let mut world = World::new(|_, _| {}).await;
    world.script.remembers.store(true, Ordering::Relaxed);
    let session = world.start().await;
    world.until_state("connected").await;
    let before = world.os.intent().borrow().clone();
    *world.script.refusal.lock() = Some(tonic::Status::permission_denied("not yours"));

    let failure = change(&world, Change::Use("prod".to_owned()))
        .await
        .unwrap_err();

    assert_eq!(failure.exit, Exit::Privilege);
    assert!(
        format!("{:#}", failure.error).contains("not yours"),
        "{failure}"
    );
    assert_eq!(*world.os.intent().borrow(), before);
    assert_eq!(world.status().await.namespaces, ["default"]);
    session.abort();
}
