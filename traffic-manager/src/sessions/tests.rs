//! Sessions open, renew, expire and are bounded.

use kubebridge_dns::view::{BarePolicy, PlainView};

use super::*;
use crate::access::wall::Wall;

fn plain(search: &str) -> Arc<View> {
    Arc::new(View::plain(PlainView {
        search: vec![search.parse().unwrap()],
        ndots: None,
        cluster_domain: None,
        absolute_zones: Vec::new(),
        bare: BarePolicy::LastToUpstreams,
    }))
}

fn sessions() -> (Sessions, watch::Sender<Arc<View>>) {
    let sender = watch::Sender::new(plain("kubebridge.svc.cluster.local"));
    (
        Sessions::new(sender.subscribe(), Arc::default(), audit()),
        sender,
    )
}

fn request(id: Option<&str>, namespaces: &[&str]) -> SessionRequest {
    SessionRequest {
        client_version: "0.1.0".to_owned(),
        id: id.map(str::to_owned),
        namespaces: namespaces.iter().map(|name| (*name).to_owned()).collect(),
        domains: Vec::new(),
        tokens: Vec::new(),
    }
}

fn audit() -> Arc<Audit> {
    Arc::new(Audit::new(None, Wall::System))
}

fn open(
    sessions: &Sessions,
    request: SessionRequest,
    now: Instant,
) -> Result<Arc<Session>, Refused> {
    sessions.open(request, Admission::default(), now)
}

fn first_search(session: &Session) -> String {
    session.view().search[0].to_string()
}

#[test]
fn the_first_namespace_decides_short_names() {
    let (sessions, _plain) = sessions();
    let session = open(
        &sessions,
        request(None, &["shop", "default"]),
        Instant::now(),
    )
    .unwrap();
    assert_eq!(first_search(&session), "shop.svc.cluster.local");
}

#[test]
fn a_renewal_replaces_the_grant_and_changes_the_view() {
    let (sessions, _plain) = sessions();
    let now = Instant::now();
    let session = open(&sessions, request(None, &["shop"]), now).unwrap();
    let before = session.view();
    let renewed = open(
        &sessions,
        request(Some(session.id()), &["default", "shop"]),
        now,
    )
    .unwrap();
    assert!(Arc::ptr_eq(&session, &renewed));
    assert_eq!(first_search(&session), "default.svc.cluster.local");
    assert_ne!(session.view().id, before.id);
    assert_eq!(session.view().id, session.view().id);
}

#[test]
fn a_session_follows_the_plain_view() {
    let (sessions, plain_view) = sessions();
    let session = open(&sessions, request(None, &["shop"]), Instant::now()).unwrap();
    let before = session.view().id;
    plain_view.send_replace(plain("kubebridge.svc.k8s.corp"));
    assert_eq!(first_search(&session), "shop.svc.k8s.corp");
    assert_ne!(session.view().id, before);
}

#[test]
fn an_idle_session_expires_and_one_with_a_stream_does_not() {
    let (sessions, _plain) = sessions();
    let now = Instant::now();
    let session = open(&sessions, request(None, &["shop"]), now).unwrap();
    let id = session.id().to_owned();
    let almost = now + IDLE - Duration::from_secs(1);
    assert!(sessions.find(&id, almost).is_ok());
    let lease = session.lease();
    assert!(sessions.find(&id, almost + IDLE * 3).is_ok());
    drop(lease);
    let later = Instant::now() + IDLE * 9;
    assert_eq!(sessions.find(&id, later).unwrap_err(), Refused::Unknown);
    sessions.sweep(later);
    assert_eq!(sessions.count(), 0);
    let renewal = open(&sessions, request(Some(&id), &["shop"]), now);
    assert_eq!(renewal.unwrap_err(), Refused::Unknown);
}

#[test]
fn a_full_table_makes_room_for_expired_sessions_only() {
    let (sessions, _plain) = sessions();
    let now = Instant::now();
    for _ in 0..MAX_SESSIONS {
        open(&sessions, request(None, &["shop"]), now).unwrap();
    }
    assert_eq!(
        open(&sessions, request(None, &["shop"]), now).unwrap_err(),
        Refused::Full
    );
    assert!(open(&sessions, request(None, &["shop"]), now + IDLE).is_ok());
    assert_eq!(sessions.count(), 1);
}

#[test]
fn too_many_namespaces_or_domains_are_refused() {
    let (sessions, _plain) = sessions();
    let names: Vec<_> = (0..=MAX_NAMESPACES)
        .map(|number| format!("n{number}"))
        .collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let refused = open(&sessions, request(None, &names), Instant::now()).unwrap_err();
    assert_eq!(
        refused,
        Refused::Invalid("65 namespaces, at most 64".to_owned())
    );
    let mut domains = request(None, &["shop"]);
    domains.domains = vec!["a..b".to_owned()];
    let refused = open(&sessions, domains, Instant::now()).unwrap_err();
    let expected = "domain \"a..b\": name has an empty label".to_owned();
    assert_eq!(refused, Refused::Invalid(expected));
}
