//! What a session with one namespace of fifty learns of the other forty-nine: nothing (R2); and
//! that each try is in the audit log (R4).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use kubebridge_proto::token::Reason;
use serde_json::Value;
use tonic::Code;

use super::dns::Exchange;
use super::*;

/// The namespaces of the cluster.
const NAMESPACES: usize = 50;

fn namespace(number: usize) -> String {
    format!("n{number:02}")
}

/// Fifty namespaces with the same Services, the first of which has an alias into each other one.
fn manifest() -> String {
    let mut text = "kind: List\nitems:\n".to_owned();
    for number in 0..NAMESPACES {
        let of = namespace(number);
        let item = |text: &mut String, name: &str, spec: &str| {
            let metadata = format!("{{name: {name}, namespace: {of}}}");
            writeln!(
                text,
                "- {{kind: Service, metadata: {metadata}, spec: {{{spec}}}}}"
            )
            .unwrap();
        };
        let addresses = format!("clusterIPs: [10.96.{number}.1, 'fd00::{number}:1']");
        item(&mut text, "authors", &addresses);
        item(&mut text, "db", "clusterIP: None");
        item(
            &mut text,
            "docs",
            "type: ExternalName, externalName: docs.example",
        );
    }
    for number in 1..NAMESPACES {
        let target = format!("authors.{}.svc.cluster.local", namespace(number));
        let metadata = format!("{{name: alias-{number}, namespace: n00}}");
        let spec = format!("{{type: ExternalName, externalName: {target}}}");
        writeln!(
            text,
            "- {{kind: Service, metadata: {metadata}, spec: {spec}}}"
        )
        .unwrap();
    }
    text
}

/// Every name by which somebody might get at a namespace.
fn names(number: usize) -> Vec<String> {
    let of = namespace(number);
    let upper = of.to_uppercase();
    let mut names = vec![
        format!("authors.{of}"),
        format!("authors.{of}.svc"),
        format!("authors.{of}.svc.cluster.local"),
        format!("AUTHORS.{upper}.SVC.Cluster.Local"),
        format!("db.{of}.svc.cluster.local"),
        format!("docs.{of}"),
        format!("docs.{of}.svc.cluster.local"),
        format!("{of}.svc"),
        format!("{of}.svc.cluster.local"),
        format!("*.{of}.svc.cluster.local"),
        format!("any.{of}.svc.cluster.local"),
        format!("_http._tcp.authors.{of}.svc.cluster.local"),
        format!("_http._tcp.authors.{of}"),
        format!("_tcp.authors.{of}.svc.cluster.local"),
        format!("endpoint-1.authors.{of}.svc.cluster.local"),
        format!("10-96-{number}-1.{of}.pod.cluster.local"),
        format!("10-96-{number}-1.{of}.pod"),
        format!("1.{number}.96.10.in-addr.arpa"),
    ];
    // The address `fd00::N:1`, whose N is hexadecimal.
    let address: std::net::Ipv6Addr = format!("fd00::{number}:1").parse().unwrap();
    names.push(reverse_name(address.into()).unwrap().to_string());
    names
}

#[tokio::test]
async fn r2_a_session_with_one_namespace_of_fifty_is_answered_no_name_of_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("fifty.yaml");
    std::fs::write(&file, manifest()).unwrap();
    let mut world = World::start_with(|config| {
        config.source = Source::Manifests {
            file,
            namespaces: Namespaces::All,
        };
    })
    .await;
    let session = world.open(&["n00"]).await.id;
    let mut exchange = Exchange::open(&mut world.client, &session).await;
    // Our own answers, so that silence proves something.
    let own = exchange.ask("authors", RecordType::A).await;
    assert_eq!(own, "NOERROR A=10.96.0.1");
    let own = exchange
        .ask("1.0.96.10.in-addr.arpa", RecordType::PTR)
        .await;
    assert_eq!(own, "NOERROR PTR=authors.n00.svc.cluster.local");

    let types = [
        RecordType::A,
        RecordType::AAAA,
        RecordType::SRV,
        RecordType::PTR,
        RecordType::HTTPS,
        RecordType::TXT,
    ];
    let mut asked = BTreeMap::new();
    for number in 1..NAMESPACES {
        for name in names(number) {
            let reverse = [RecordType::PTR];
            let types = match name.ends_with(".arpa") {
                true => &reverse[..],
                false => &types[..],
            };
            for rtype in types {
                let reply = exchange.ask(&name, *rtype).await;
                let negative = ["REFUSED", "NXDOMAIN"].contains(&reply.as_str());
                assert!(negative, "{name} {rtype}: {reply}");
                *asked.entry(namespace(number)).or_insert(0) += 1;
            }
        }
        // The answer that every name has, also one that is not there (RFC 8482).
        let name = format!("authors.{}", namespace(number));
        let any = exchange.ask(&name, RecordType::ANY).await;
        assert_eq!(any, "NOERROR HINFO=RFC8482 ");
        let alias = format!("alias-{number}.n00.svc.cluster.local");
        let reply = exchange.ask(&alias, RecordType::A).await;
        assert_eq!(reply, "REFUSED", "{alias}");
        let mut routes =
            Routes::open(&mut world.client, &session, &[(&namespace(number), 0)]).await;
        let status = routes.failure().await;
        assert_eq!(status.code(), Code::PermissionDenied);
    }

    world.running.shutdown().await;
    let told = denials(&mut world.audit).await;
    assert_eq!(told["WatchNamespaceRoutes"].len(), NAMESPACES - 1);
    let mut dns = told["ExchangeDns"].clone();
    // Aliases lead out of a namespace of ours; it is not told which one they lead to.
    assert_eq!(dns.remove("-"), Some(NAMESPACES as u64 - 1));
    assert_eq!(dns, asked);
}

/// The story of a reply that is refused tells no more than the reply does.
#[tokio::test]
async fn r2_no_explanation_tells_a_name_of_another_namespace() {
    let mut world = World::start().await;
    world.write(&format!(
        "{MANIFEST}- {{kind: Service, metadata: {{name: out}}, \
         spec: {{type: ExternalName, externalName: authors.shop.svc.cluster.local}}}}\n"
    ));
    let both = world.open(&["default", "shop"]).await.id;
    let one = world.open(&["default"]).await.id;
    let mut routes = Routes::open(&mut world.client, &both, &[("default", 0)]).await;
    while !has_route(&routes.next().await, "out") {}
    for (name, rtype) in [
        ("21.0.96.10.in-addr.arpa", RecordType::PTR),
        ("out.default.svc.cluster.local", RecordType::A),
    ] {
        // Once for somebody who may know, so that it is in the cache; and afresh.
        for fresh in [false, true] {
            let explain = |session: &str| v1::ExplainRequest {
                session_id: session.to_owned(),
                query: query(name, rtype),
                fresh,
            };
            let told = world.client.explain(explain(&both)).await.unwrap();
            let told = text(&told.into_inner().reply);
            assert!(told.contains("authors.shop"), "{name}: {told}");
            let told = world
                .client
                .explain(explain(&one))
                .await
                .unwrap()
                .into_inner();
            assert_eq!(text(&told.reply), "REFUSED", "{name}");
            let story = format!("{:?}", told.steps);
            // Where an alias of our own leads is its own business, and no secret.
            let told = rtype == RecordType::PTR && story.contains("authors");
            assert!(!told, "{name}: {story}");
            assert!(!story.contains("10.96.0.21"), "{name}: {story}");
        }
    }
    // Each refusal is in the audit log (R4); it is not told which namespace an alias leads to.
    world.running.shutdown().await;
    let told = denials(&mut world.audit).await;
    let wanted = BTreeMap::from([("shop".to_owned(), 2), ("-".to_owned(), 2)]);
    assert_eq!(told["Explain"], wanted);
}

/// Tells whether a frame brings a Service.
fn has_route(update: &RouteUpdate, name: &str) -> bool {
    match update {
        RouteUpdate::Page { routes, .. }
        | RouteUpdate::Delta {
            upserts: routes, ..
        } => routes.iter().any(|route| route.name == name),
        RouteUpdate::State { .. } => false,
    }
}

/// How often each namespace was denied, by call.
async fn denials(lines: &mut mpsc::Receiver<String>) -> BTreeMap<String, BTreeMap<String, u64>> {
    let mut told: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
    while let Some(line) = lines.recv().await {
        let line: Value = serde_json::from_str(&line).unwrap();
        if line["event"] == "denied" {
            let word = |key: &str| line[key].as_str().unwrap_or("-").to_owned();
            let count = line["count"].as_u64().unwrap();
            *told
                .entry(word("call"))
                .or_default()
                .entry(word("namespace"))
                .or_insert(0) += count;
        }
    }
    told
}

#[tokio::test]
async fn r1_without_a_good_token_for_each_namespace_there_is_no_session_and_that_is_audited() {
    let mut world = World::start().await;
    let good = world.issuer.tokens(&["default"]);
    let both = ["default", "shop"];
    let missing = open(&mut world.client, None, &both, good.clone()).await;
    let foreign = Issuer::default().tokens(&["default"]);
    let forged = open(&mut world.client, None, &["default"], foreign).await;
    let mut claims = Issuer::claims("default", 1_000_000_000);
    claims["exp"] = 1_000_003_600.into();
    let old = v1::NamespaceToken {
        namespace: "default".to_owned(),
        token: world.issuer.sign(&claims),
    };
    let expired = open(&mut world.client, None, &["default"], vec![old]).await;
    for (outcome, code, reason, namespace) in [
        (
            missing,
            Code::PermissionDenied,
            Reason::TokenMissing,
            "shop",
        ),
        (
            forged,
            Code::Unauthenticated,
            Reason::TokenInvalid,
            "default",
        ),
        (
            expired,
            Code::Unauthenticated,
            Reason::TokenExpired,
            "default",
        ),
    ] {
        let status = outcome.unwrap_err();
        assert_eq!((status.code(), Reason::of(&status)), (code, Some(reason)));
        let line: Value = serde_json::from_str(&world.audit.recv().await.unwrap()).unwrap();
        assert_eq!(line["event"], "denied");
        assert_eq!(line["reason"], reason.word());
        assert_eq!(line["namespace"], namespace);
    }
    let opened = open(&mut world.client, None, &["default"], good)
        .await
        .unwrap();
    let left = opened.expires_in.unwrap();
    assert!(
        left > Duration::from_secs(3000) && left <= Duration::from_secs(3600),
        "{left:?}"
    );
    // Another namespace takes another token, also for a session that is there.
    let renewal = world.issuer.tokens(&["default"]);
    let renewal = open(&mut world.client, Some(&opened.id), &both, renewal).await;
    assert_eq!(
        Reason::of(&renewal.unwrap_err()),
        Some(Reason::TokenMissing)
    );
}

#[tokio::test]
async fn r5_a_manager_of_one_namespace_needs_no_token_and_gives_no_other() {
    let mut world = World::start_of_one("shop").await;
    let opened = open(&mut world.client, None, &["shop"], Vec::new()).await;
    assert_eq!(opened.unwrap().expires_in, None);
    let denied = open(&mut world.client, None, &["default"], Vec::new()).await;
    let status = denied.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
    assert_eq!(Reason::of(&status), Some(Reason::NamespaceNotServed));
}

#[tokio::test]
async fn r5_a_manager_of_several_namespaces_does_not_start_without_tokens() {
    let config = Config {
        auth: Auth::PortForward,
        ..loopback(Source::Manifests {
            file: "f".into(),
            namespaces: Namespaces::All,
        })
    };
    let (text, code) = crate::failure::report(&start(config).await.unwrap_err());
    assert!(text.contains("serves one namespace, not several"), "{text}");
    assert_eq!(code, 64);
}
