//! Route streams over the wire: every kind of Service, grants, and what a client that comes back is told.

use std::collections::BTreeMap;

use kubebridge_proto::routes::{NamespaceState, PAGE_ROUTES, ServiceKind, ServiceRoute};
use tokio::net::TcpListener;
use tonic::Code;
use tonic::transport::Endpoint;

use super::*;
use crate::access::Gate;
use crate::access::audit::Audit;
use crate::access::wall::Wall;
use crate::kubernetes::index::{Scope, Served};

pub(super) mod fed;

/// What a client holds of one namespace, by the rules of the contract.
#[derive(Debug, Default)]
struct Table {
    revision: u64,
    routes: BTreeMap<String, ServiceRoute>,
    pages: Vec<ServiceRoute>,
    frames: usize,
}

impl Table {
    fn apply(&mut self, update: RouteUpdate) {
        self.frames += 1;
        match update {
            RouteUpdate::Page {
                revision,
                routes,
                last,
                ..
            } => {
                assert!(routes.len() <= PAGE_ROUTES);
                self.pages.extend(routes);
                if last {
                    let pages = std::mem::take(&mut self.pages);
                    self.routes = pages
                        .into_iter()
                        .map(|route| (route.name.clone(), route))
                        .collect();
                    self.revision = revision;
                }
            }
            RouteUpdate::Delta {
                base_revision,
                revision,
                upserts,
                deletes,
                ..
            } => {
                assert_eq!(base_revision, self.revision, "a gap");
                for name in deletes {
                    self.routes.remove(&name);
                }
                self.routes
                    .extend(upserts.into_iter().map(|route| (route.name.clone(), route)));
                self.revision = revision;
            }
            RouteUpdate::State { state, .. } => assert_eq!(state, NamespaceState::Synced),
        }
    }

    async fn read_until(&mut self, routes: &mut Routes, done: impl Fn(&Self) -> bool) {
        while !done(self) {
            self.apply(routes.next().await);
        }
    }

    fn names(&self) -> Vec<&str> {
        self.routes.keys().map(String::as_str).collect()
    }
}

fn describe(route: &ServiceRoute) -> String {
    let ips: Vec<_> = route.cluster_ips.iter().map(ToString::to_string).collect();
    let target = route.external_name.clone().unwrap_or_default();
    format!("{} {:?} {}{target}", route.name, route.kind, ips.join(","))
}

#[tokio::test]
async fn every_kind_of_service_is_streamed_as_the_table_says() {
    let mut world = World::start().await;
    let session = world.open(&["default"]).await.id;
    let mut routes = Routes::open(&mut world.client, &session, &[("default", 0)]).await;
    let mut table = Table::default();
    table
        .read_until(&mut routes, |table| table.revision != 0)
        .await;
    let found: Vec<_> = table.routes.values().map(describe).collect();
    let expected = [
        "authors ClusterIp 10.96.0.20",
        "balanced ClusterIp 10.96.0.23",
        "db Headless ",
        "docs ExternalName docs.example",
        "dual ClusterIp 10.96.0.22,fd00::22",
    ];
    assert_eq!(found, expected);
}

#[tokio::test]
async fn a_service_created_changed_and_deleted_shows_in_the_stream() {
    let mut world = World::start().await;
    let session = world.open(&["shop"]).await.id;
    let mut routes = Routes::open(&mut world.client, &session, &[("shop", 0)]).await;
    let mut table = Table::default();
    table
        .read_until(&mut routes, |table| table.revision != 0)
        .await;
    for (line, expected) in [
        (
            "name: authors, namespace: shop}, spec: {clusterIP: 10.96.9.9",
            "authors ClusterIp 10.96.9.9",
        ),
        (
            "name: new, namespace: shop}, spec: {clusterIP: 10.96.9.8",
            "new ClusterIp 10.96.9.8",
        ),
    ] {
        let before = table.revision;
        world.write(&format!("{{kind: Service, metadata: {{{line}}}}}\n"));
        table
            .read_until(&mut routes, |table| table.revision != before)
            .await;
        let found: Vec<_> = table.routes.values().map(describe).collect();
        assert_eq!(found, [expected]);
    }
}

#[tokio::test]
async fn a_broken_edit_keeps_the_last_good_state() {
    let mut world = World::start().await;
    let session = world.open(&["shop"]).await.id;
    let mut routes = Routes::open(&mut world.client, &session, &[("shop", 0)]).await;
    let mut table = Table::default();
    table
        .read_until(&mut routes, |table| table.revision != 0)
        .await;
    let before = table.revision;
    world.write("kind: Service\nmetadata: {name: authors, namespace: shop}\nspec: {}\n");
    world.write(
        "{kind: Service, metadata: {name: b, namespace: shop}, spec: {clusterIP: 10.0.0.1}}\n",
    );
    table
        .read_until(&mut routes, |table| table.revision != before)
        .await;
    assert_eq!(table.names(), ["b"]);
}

/// W12: the namespace added shows in the stream that is open, and the one before goes on in it.
#[tokio::test]
async fn one_stream_covers_several_namespaces_and_takes_more_without_reconnect() {
    let mut world = World::start().await;
    let session = world.open(&["default"]).await.id;
    let mut routes = Routes::open(&mut world.client, &session, &[("default", 0)]).await;
    let mut table = Table::default();
    table
        .read_until(&mut routes, |table| table.revision != 0)
        .await;
    world
        .try_open(Some(&session), &["default", "shop"])
        .await
        .unwrap();
    routes.want(&[("default", 0), ("shop", 0)]).await;
    let update = routes.next().await;
    assert_eq!(update.namespace(), "shop");
    let mut shop = Table::default();
    shop.apply(update);
    shop.read_until(&mut routes, |table| table.revision != 0)
        .await;
    assert_eq!(shop.names(), ["authors"]);

    world.write(&MANIFEST.replace("name: dual", "name: renamed"));
    let held = table.revision;
    table
        .read_until(&mut routes, |table| table.revision != held)
        .await;
    assert_eq!(
        table.names(),
        ["authors", "balanced", "db", "docs", "renamed"]
    );
    assert_eq!(table.frames, 2 + 1, "one delta, no second snapshot");
}

/// W7: what the session has no right to is PERMISSION_DENIED.
#[tokio::test]
async fn a_namespace_that_was_not_granted_is_denied_by_name() {
    let mut world = World::start().await;
    let session = world.open(&["default"]).await.id;
    let mut routes = Routes::open(&mut world.client, &session, &[("shop", 0)]).await;
    let status = routes.failure().await;
    assert_eq!(status.code(), Code::PermissionDenied);
    assert_eq!(
        status.message(),
        "namespace \"shop\" is not granted to the session"
    );
}

/// W7: "" is not "all", nor is a star, and a good name beside a bad one does not help.
#[tokio::test]
async fn an_empty_or_invalid_list_of_namespaces_is_refused() {
    let mut world = World::start().await;
    let session = world.open(&["default"]).await.id;
    let long = "n".repeat(64);
    for wanted in [
        vec![],
        vec![("", 0)],
        vec![("default", 0), ("", 0)],
        vec![("No", 0)],
        vec![("*", 0)],
        vec![("a.b", 0)],
        vec![("-a", 0)],
        vec![(long.as_str(), 0)],
    ] {
        let mut routes = Routes::open(&mut world.client, &session, &wanted).await;
        assert_eq!(
            routes.failure().await.code(),
            Code::InvalidArgument,
            "{wanted:?}"
        );
    }
}

#[tokio::test]
async fn a_namespace_nobody_feeds_has_the_state_no_source() {
    for source in [
        Source::None,
        Source::Manifests {
            file: "f".into(),
            namespaces: Namespaces::These(["default".into()].into()),
        },
    ] {
        let mut world = World::start_with(|config| {
            config.source = match (source, &config.source) {
                (Source::Manifests { namespaces, .. }, Source::Manifests { file, .. }) => {
                    Source::Manifests {
                        file: file.clone(),
                        namespaces,
                    }
                }
                (other, _) => other,
            };
        })
        .await;
        let session = world.open(&["shop"]).await.id;
        let mut routes = Routes::open(&mut world.client, &session, &[("shop", 0)]).await;
        let state = NamespaceState::NoSource;
        assert_eq!(
            routes.next().await,
            RouteUpdate::State {
                namespace: "shop".into(),
                state
            }
        );
    }
}

#[tokio::test]
async fn a_client_that_comes_back_learns_what_was_removed_meanwhile() {
    let mut world = World::start().await;
    let session = world.open(&["default", "shop"]).await.id;
    let mut routes = Routes::open(&mut world.client, &session, &[("default", 0)]).await;
    let mut table = Table::default();
    table
        .read_until(&mut routes, |table| table.revision != 0)
        .await;
    drop(routes);

    // Another stream shows when the change is there.
    let mut other = Routes::open(&mut world.client, &session, &[("shop", 0)]).await;
    let mut shop = Table::default();
    shop.read_until(&mut other, |table| table.revision != 0)
        .await;
    let before = shop.revision;
    world.write(
        &MANIFEST
            .replace("name: dual", "name: renamed")
            .replace("10.96.0.21", "10.96.1.1"),
    );
    shop.read_until(&mut other, |table| table.revision != before)
        .await;

    let held = table.revision;
    let mut again = Routes::open(&mut world.client, &session, &[("default", held)]).await;
    table
        .read_until(&mut again, |table| table.revision != held)
        .await;
    assert_eq!(
        table.names(),
        ["authors", "balanced", "db", "docs", "renamed"]
    );
    assert_eq!(table.frames, 2 + 2, "a state and one delta");
}

#[tokio::test]
async fn a_client_that_is_up_to_date_is_told_only_the_state() {
    let mut world = World::start().await;
    let session = world.open(&["default", "shop"]).await.id;
    let mut routes = Routes::open(&mut world.client, &session, &[("default", 0)]).await;
    let mut table = Table::default();
    table
        .read_until(&mut routes, |table| table.revision != 0)
        .await;
    let wanted = [("default", table.revision), ("shop", 0)];
    let mut again = Routes::open(&mut world.client, &session, &wanted).await;
    let mut of_default = 0;
    loop {
        match again.next().await {
            RouteUpdate::Page {
                namespace, last, ..
            } => {
                assert_eq!(namespace, "shop");
                if last {
                    break;
                }
            }
            RouteUpdate::State { namespace, .. } => {
                of_default += usize::from(namespace == "default");
            }
            RouteUpdate::Delta { .. } => panic!("nothing changed"),
        }
    }
    assert_eq!(of_default, 1);
}

/// W8: a new manager's full snapshot comes in time and stale entries are gone with its last page.
#[tokio::test]
async fn after_another_manager_a_snapshot_takes_the_place_of_what_was_held() {
    let mut first = World::start().await;
    let session = first.open(&["shop"]).await.id;
    let mut routes = Routes::open(&mut first.client, &session, &[("shop", 0)]).await;
    let mut table = Table::default();
    table
        .read_until(&mut routes, |table| table.revision != 0)
        .await;
    let held = table.revision;
    let mut second = World::start().await;
    second.write(
        "{kind: Service, metadata: {name: b, namespace: shop}, spec: {clusterIP: 10.0.0.1}}\n",
    );
    let session = second.open(&["shop"]).await.id;
    let mut routes = Routes::open(&mut second.client, &session, &[("shop", held)]).await;
    table
        .read_until(&mut routes, |table| table.names() == ["b"])
        .await;
}
