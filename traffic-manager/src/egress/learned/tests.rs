use kubebridge_dns::message::{Answer, Flags};
use kubebridge_dns::name::RecordType;
use kubebridge_dns::view::{BarePolicy, PlainView};
use kubebridge_proto::routes::ServiceRoute;

use super::*;
use crate::kubernetes::index::{Scope, Served};

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn grant() -> Grant {
    Grant {
        namespaces: vec!["shop".to_owned()],
        domains: vec![name("corp.example")],
    }
}

fn view() -> View {
    let search = [
        "pod.svc.cluster.local",
        "svc.cluster.local",
        "cluster.local",
    ];
    let plain = View::plain(PlainView {
        search: search.iter().map(|text| name(text)).collect(),
        ndots: None,
        cluster_domain: None,
        absolute_zones: vec![],
        bare: BarePolicy::Never,
    });
    let Grant {
        namespaces,
        domains,
    } = grant();
    plain.session(&namespaces, &domains, 7).unwrap()
}

fn index() -> Index {
    let service = |namespace: &str, name: &str, kind, target: Option<&str>| ServiceRoute {
        name: name.to_owned(),
        namespace: namespace.to_owned(),
        kind,
        cluster_ips: vec![],
        ports: vec![],
        external_name: target.map(str::to_owned),
    };
    let index = Index::new(Served::All, 1);
    let routes = vec![
        service("shop", "authors", ServiceKind::ClusterIp, None),
        service("shop", "db", ServiceKind::Headless, None),
        service(
            "shop",
            "docs",
            ServiceKind::ExternalName,
            Some("docs.example"),
        ),
        service("prod", "db", ServiceKind::Headless, None),
    ];
    index.reset(&Scope::All, routes, Instant::now());
    index
}

#[tokio::test]
async fn answers_are_learnt_for_granted_services_and_the_sessions_suffixes_alone() {
    let (view, grant, index) = (view(), grant(), index());
    let rules = Rules::default();
    let strict: Rules = ["domains=none".parse().unwrap()].into_iter().collect();
    for (asked, expected, strictly) in [
        ("db.shop.svc.cluster.local", Some(Origin::Cluster), true),
        ("DB.Shop.SVC.cluster.local", Some(Origin::Cluster), true),
        (
            "db-0.db.shop.svc.cluster.local",
            Some(Origin::Cluster),
            true,
        ),
        ("db", Some(Origin::Cluster), true),
        ("db.shop", Some(Origin::Cluster), true),
        ("db-0.db", Some(Origin::Cluster), true),
        ("authors", Some(Origin::Cluster), true),
        ("docs", Some(Origin::Outside), false),
        ("host.corp.example", Some(Origin::Outside), false),
        ("corp.example", Some(Origin::Outside), false),
        ("db.prod.svc.cluster.local", None, true),
        ("db.prod", None, true),
        ("nobody.shop.svc.cluster.local", None, true),
        ("10-244-9-9.shop.pod.cluster.local", None, true),
        ("169-254-169-254.shop.pod", None, true),
        ("db.shop.pod.cluster.local", None, true),
        ("example.com", None, true),
        ("notcorp.example", None, true),
        ("cluster.local", None, true),
    ] {
        let now = Instant::now();
        let found = |rules| origin(&name(asked), &view, &grant, &index, rules, now);
        assert_eq!(found(&rules), expected, "{asked}");
        let expected = expected.filter(|_| strictly);
        assert_eq!(found(&strict), expected, "{asked} without suffixes");
    }
}

fn reply(code: ResponseCode, addresses: &[(&str, u32)]) -> Parsed {
    let answers = addresses.iter().map(|(text, ttl)| Answer {
        owner: name("db"),
        rtype: RecordType::A,
        ttl: *ttl,
        data: Data::Address(text.parse().unwrap()),
    });
    Parsed {
        id: 1,
        code,
        flags: Flags {
            authoritative: false,
            truncated: false,
            recursion_desired: true,
            recursion_available: true,
            authentic: false,
            checking_disabled: false,
        },
        question: Some((name("db"), RecordType::A)),
        answers: answers.collect(),
        authority: vec![],
        edns: None,
    }
}

#[tokio::test]
async fn an_address_is_known_for_its_time_and_at_least_a_minute() {
    let mut learned = Learned::default();
    let start = Instant::now();
    let reply = reply(
        ResponseCode::NOERROR,
        &[
            ("10.0.0.1", 0),
            ("10.0.0.2", 120),
            ("10.0.0.3", 86_400),
            ("::ffff:10.0.0.4", 5),
        ],
    );
    learned.learn(&reply, Origin::Cluster, start);
    let known = |after: u64| -> Vec<u8> {
        let now = start + Duration::from_secs(after);
        (1..=4)
            .filter(|last| {
                learned
                    .origin(IpAddr::from([10, 0, 0, *last]), now)
                    .is_some()
            })
            .collect()
    };
    assert_eq!(known(0), [1, 2, 3, 4]);
    assert_eq!(known(59), [1, 2, 3, 4]);
    assert_eq!(known(60), [2, 3]);
    assert_eq!(known(120), [3]);
    assert_eq!(known(1799), [3]);
    assert_eq!(known(1800), [0_u8; 0]);
}

#[tokio::test]
async fn a_negative_answer_teaches_nothing() {
    let mut learned = Learned::default();
    let reply = reply(ResponseCode::NXDOMAIN, &[("10.0.0.1", 60)]);
    learned.learn(&reply, Origin::Cluster, Instant::now());
    assert!(learned.until.is_empty());
}

#[tokio::test]
async fn what_is_learnt_is_bounded_and_the_first_to_end_gives_way() {
    let mut learned = Learned::default();
    let start = Instant::now();
    let at =
        |number: usize| IpAddr::from((0x0a00_0000 + u32::try_from(number).unwrap()).to_be_bytes());
    for number in 0..MOST + 10 {
        let until = start + Duration::from_secs(60) + Duration::from_millis(number as u64);
        learned.put(at(number), until, Origin::Outside, start);
    }
    assert_eq!(learned.until.len(), MOST);
    assert_eq!(learned.origin(at(9), start), None);
    assert_eq!(learned.origin(at(10), start), Some(Origin::Outside));
    let later = start + Duration::from_secs(3600);
    learned.put(at(0), later + LEAST, Origin::Cluster, later);
    assert_eq!(learned.until.len(), 1);
}

#[tokio::test]
async fn a_service_whose_name_a_suffix_has_does_not_vouch_for_what_others_answer() {
    let (view, grant, index) = (view(), grant(), index());
    // `corp.example` is the session's suffix, and `example` a Service of its namespace.
    let example = ServiceRoute {
        name: "example".to_owned(),
        namespace: "shop".to_owned(),
        kind: ServiceKind::Headless,
        cluster_ips: vec![],
        ports: vec![],
        external_name: None,
    };
    index.apply(example);
    let open = Rules::default();
    let strict: Rules = ["domains=none".parse().unwrap()].into_iter().collect();
    for (asked, rules, expected) in [
        ("db.corp.example", &open, Some(Origin::Outside)),
        ("db.corp.example", &strict, None),
        ("corp.example", &open, Some(Origin::Outside)),
        (
            "corp.example.shop.svc.cluster.local",
            &open,
            Some(Origin::Cluster),
        ),
    ] {
        let found = origin(&name(asked), &view, &grant, &index, rules, Instant::now());
        assert_eq!(found, expected, "{asked}");
    }
}

#[tokio::test]
async fn what_others_answer_does_not_prolong_what_the_cluster_said() {
    let mut learned = Learned::default();
    let start = Instant::now();
    let address = IpAddr::from([10, 0, 0, 1]);
    let answer = |ttl| reply(ResponseCode::NOERROR, &[("10.0.0.1", ttl)]);
    learned.learn(&answer(300), Origin::Outside, start);
    learned.learn(&answer(60), Origin::Cluster, start);

    let at = |seconds| learned.origin(address, start + Duration::from_secs(seconds));

    assert_eq!(at(59), Some(Origin::Cluster));
    assert_eq!(at(60), Some(Origin::Outside));
    assert_eq!(at(299), Some(Origin::Outside));
    assert_eq!(at(300), None);
}

#[tokio::test]
async fn an_answer_never_shortens_what_an_earlier_one_allowed() {
    let mut learned = Learned::default();
    let start = Instant::now();
    learned.learn(
        &reply(ResponseCode::NOERROR, &[("10.0.0.1", 300)]),
        Origin::Cluster,
        start,
    );
    learned.learn(
        &reply(ResponseCode::NOERROR, &[("10.0.0.1", 0)]),
        Origin::Outside,
        start,
    );
    let late = start + Duration::from_secs(200);
    assert_eq!(
        learned.origin(IpAddr::from([10, 0, 0, 1]), late),
        Some(Origin::Cluster)
    );
}
