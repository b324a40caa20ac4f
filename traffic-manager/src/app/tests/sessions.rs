//! Sessions, namespaces, echo and health over the wire.

use kubebridge_proto::token::Reason;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::*;

#[tokio::test]
async fn a_session_is_told_search_list_and_domain() {
    let mut world = World::start().await;
    let info = world.open(&["shop", "default"]).await;
    assert_eq!(info.cluster_domain, "cluster.local");
    assert_eq!(
        info.search,
        [
            "shop.svc.cluster.local",
            "svc.cluster.local",
            "cluster.local"
        ]
    );
    assert_eq!(info.ndots, 5);
    assert_eq!(info.manager_version, env!("CARGO_PKG_VERSION"));
    assert!(info.limits.idle.is_some() && info.limits.dns_in_flight.is_some());
}

#[tokio::test]
async fn a_bad_request_is_refused_with_the_value() {
    let mut world = World::start().await;
    for (namespaces, message) in [
        (vec![], "namespaces is missing"),
        (
            vec![""],
            "namespaces is \"\": an empty name does not mean all namespaces",
        ),
        (
            vec!["default", "Shop"],
            "namespaces is \"Shop\": an RFC 1123 label",
        ),
    ] {
        let status = world.try_open(None, &namespaces).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().starts_with(message), "{status}");
    }
    let versionless = v1::OpenSessionRequest {
        namespaces: vec!["default".to_owned()],
        ..v1::OpenSessionRequest::default()
    };
    let status = world.client.open_session(versionless).await.unwrap_err();
    assert_eq!(status.message(), "client_version is missing");
}

#[tokio::test]
async fn without_keys_sessions_are_refused_with_the_reason() {
    let mut world = World::start_with(|config| config.token_keys = None).await;
    let status = world.try_open(None, &["default"]).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(Reason::of(&status), Some(Reason::KeyUnknown));
    assert!(status.message().contains("--token-keys"), "{status}");
}

#[tokio::test]
async fn an_unknown_session_is_sent_back_to_open_one() {
    let mut world = World::start().await;
    let renewal = world
        .try_open(Some("nope"), &["default"])
        .await
        .unwrap_err();
    assert_eq!(renewal.code(), Code::FailedPrecondition);
    let mut routes = Routes::open(&mut world.client, "nope", &[("default", 0)]).await;
    assert_eq!(routes.failure().await.code(), Code::FailedPrecondition);
    let request = v1::WatchNamespacesRequest {
        session_id: "nope".to_owned(),
    };
    let namespaces = world.client.watch_namespaces(request).await.unwrap_err();
    assert_eq!(namespaces.code(), Code::FailedPrecondition);
}

#[tokio::test]
async fn namespaces_follow_the_file_where_all_may_be_asked_for() {
    let mut world = World::start_with(|config| config.auth = Auth::Demo).await;
    let session_id = world.open(&["default"]).await.id;
    let request = v1::WatchNamespacesRequest { session_id };
    let mut names = world
        .client
        .watch_namespaces(request)
        .await
        .unwrap()
        .into_inner();
    let first = names.message().await.unwrap().unwrap();
    assert_eq!(first.namespaces, ["default", "shop"]);
    assert!(!first.observed);
    world.write(
        "kind: Service\nmetadata: {name: a, namespace: other}\nspec: {clusterIP: 10.0.0.1}\n",
    );
    let second = names.message().await.unwrap().unwrap();
    assert_eq!(second.namespaces, ["other"]);
}

#[tokio::test]
async fn r2_a_session_is_told_its_own_namespaces_alone() {
    let mut world = World::start().await;
    let session_id = world.open(&["default"]).await.id;
    let request = v1::WatchNamespacesRequest {
        session_id: session_id.clone(),
    };
    let names = world.client.watch_namespaces(request).await.unwrap();
    let mut names = names.into_inner();
    let first = names.message().await.unwrap().unwrap();
    assert_eq!(
        (first.namespaces, first.observed),
        (vec!["default".to_owned()], false)
    );
    let both = ["shop", "default"];
    world.try_open(Some(&session_id), &both).await.unwrap();
    let second = names.message().await.unwrap().unwrap();
    assert_eq!(second.namespaces, ["default", "shop"]);
}

#[tokio::test]
async fn echo_sends_back_what_it_got_up_to_a_bound() {
    let mut world = World::start().await;
    let echo = world
        .client
        .echo(v1::EchoRequest {
            payload: vec![7; 4096],
        })
        .await
        .unwrap();
    assert_eq!(echo.into_inner().payload, vec![7; 4096]);
    let status = world
        .client
        .echo(v1::EchoRequest {
            payload: vec![7; 4097],
        })
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn the_standard_health_service_says_serving() {
    let world = World::start().await;
    let channel = Channel::from_shared(format!("http://{}", world.running.grpc)).unwrap();
    let mut health = HealthClient::new(channel.connect().await.unwrap());
    for service in ["", "kubebridge.v1.TrafficManager"] {
        let request = HealthCheckRequest {
            service: service.to_owned(),
        };
        let answer = health.check(request).await.unwrap().into_inner();
        assert_eq!(answer.status(), ServingStatus::Serving, "{service:?}");
    }
}

#[tokio::test]
async fn reflection_lists_and_describes_the_service_on_loopback() {
    use tonic_reflection::pb::v1::ServerReflectionRequest;
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
    let world = World::start().await;
    let channel = Channel::from_shared(format!("http://{}", world.running.grpc)).unwrap();
    let mut client = ServerReflectionClient::new(channel.connect().await.unwrap());
    let ask = |request| ServerReflectionRequest {
        host: String::new(),
        message_request: Some(request),
    };
    let requests = [
        ask(MessageRequest::ListServices(String::new())),
        ask(MessageRequest::FileContainingSymbol(
            "kubebridge.v1.TrafficManager.WatchNamespaceRoutes".to_owned(),
        )),
    ];
    let replies = client
        .server_reflection_info(tokio_stream::iter(requests))
        .await
        .unwrap();
    let mut replies = replies.into_inner();
    let Some(MessageResponse::ListServicesResponse(services)) =
        replies.message().await.unwrap().unwrap().message_response
    else {
        panic!("no list")
    };
    let mut names: Vec<_> = services.service.into_iter().map(|one| one.name).collect();
    names.sort();
    assert_eq!(
        names,
        [
            "grpc.health.v1.Health",
            "grpc.reflection.v1.ServerReflection",
            "kubebridge.v1.TrafficManager",
        ]
    );
    let Some(MessageResponse::FileDescriptorResponse(files)) =
        replies.message().await.unwrap().unwrap().message_response
    else {
        panic!("no description")
    };
    let contract = String::from_utf8_lossy(&files.file_descriptor_proto[0]).into_owned();
    assert!(contract.contains("NamespaceSubscription"), "{contract}");
}
