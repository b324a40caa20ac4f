//! What the keeper makes of the cluster, the machine and the user.

use std::time::Duration;

use kubebridge_platform::routes::{TakenNet, Why};
use kubebridge_proto::routes::ServiceRoute;

use super::*;
use crate::test_util::{cluster_ip, session_info, table_with};

fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn taken(list: &[(&str, Why)]) -> Taken {
    let net = |(net, why): &(&str, Why)| TakenNet {
        net: net.parse().unwrap(),
        why: *why,
        via: None,
    };
    Taken {
        nets: list.iter().map(net).collect(),
        no_ipv6: false,
    }
}

fn keeper(
    cidrs: &[&str],
    choice: RouteChoice,
    services: Vec<ServiceRoute>,
) -> (RoutesKeeper, watch::Sender<RouteTable>) {
    let table = watch::Sender::new(table_with(vec![("default", services)]));
    let keeper = RoutesKeeper::new(choice, &session_info(cidrs), table.subscribe());
    (keeper, table)
}

fn answered(number: u8) -> Answered {
    Answered {
        name: format!("name{number}."),
        addresses: vec![IpAddr::from([203, 0, 113, number])],
        ttl: Duration::from_secs(60),
        done: None,
    }
}

#[tokio::test]
async fn w9_what_each_route_is_for_is_told_also_of_neighbours_that_are_one() {
    let choice = RouteChoice {
        include: nets(&["10.97.0.0/16", "192.168.7.0/24"]),
        ..RouteChoice::default()
    };
    let (mut keeper, _table) = keeper(&["10.96.0.0/16"], choice, Vec::new());
    keeper.replan().unwrap();
    let report = keeper.report();
    let words: Vec<_> = report
        .networks
        .iter()
        .map(|one| format!("{} {}", one.network, one.purposes.join("+")))
        .collect();
    assert_eq!(
        words,
        [
            "10.96.0.0/15 --include-cidr+services",
            "192.168.7.0/24 --include-cidr"
        ]
    );
}

#[test]
fn lifecycle_09_what_the_user_leaves_out_is_not_claimed() {
    let choice = RouteChoice {
        include: nets(&["172.20.0.0/16"]),
        exclude: nets(&["10.96.0.0/17"]),
        ..RouteChoice::default()
    };
    assert_eq!(
        wished(&choice, &session_info(&["10.96.0.0/16"])),
        nets(&["10.96.128.0/17", "172.20.0.0/16"])
    );
}

#[tokio::test]
async fn w9_services_outside_are_bounded_and_told_once() {
    let services = (0..2000u32).map(|number| {
        let address = std::net::Ipv4Addr::from_bits(0x0ac8_0000 + 2 * number);
        cluster_ip("default", &format!("s{number}"), &address.to_string())
    });
    let (mut keeper, _table) = keeper(&[], RouteChoice::default(), services.collect());
    assert!(keeper.observe());
    assert!(!keeper.observe());
    keeper.replan().unwrap();
    assert_eq!(keeper.routes().len(), MAX_OBSERVED);
    let news = keeper.news();
    assert_eq!(news.len(), 1, "{news:?}");
    assert!(news[0].contains("--include-cidr"), "{news:?}");
    // Where networks are known, each is told, as long as they are few.
    assert!(keeper.follow(&session_info(&["172.30.0.0/16"])));
    let news = keeper.news();
    assert_eq!(news.len(), 9, "{news:?}");
    assert_eq!(keeper.news(), Vec::<String>::new());
}

#[tokio::test]
async fn w9_too_many_routes_are_an_error_and_the_old_plan_stays() {
    let (mut keeper, _table) = keeper(&["10.96.0.0/16"], RouteChoice::default(), Vec::new());
    keeper.replan().unwrap();
    let before = keeper.routes();
    let holes: Vec<_> = (0..3000u32)
        .map(|number| {
            let net = std::net::Ipv4Addr::from_bits(0x0a60_0000 + 4 * number);
            TakenNet {
                net: IpNet::new(net.into(), 32).unwrap(),
                why: Why::Route,
                via: None,
            }
        })
        .collect();
    keeper.take(Taken {
        nets: holes,
        no_ipv6: false,
    });
    let failure = keeper.replan().unwrap_err();
    assert!(failure.to_string().contains("too many"), "{failure}");
    assert_eq!(keeper.routes(), before);
}

#[tokio::test]
async fn lifecycle_16_an_overlap_is_told_once() {
    let (mut keeper, _table) = keeper(&["10.96.0.0/16"], RouteChoice::default(), Vec::new());
    keeper.take(taken(&[("10.96.4.0/24", Why::Route)]));
    keeper.replan().unwrap();
    let news = keeper.news();
    assert_eq!(news.len(), 1);
    for word in ["10.96.0.0/16", "10.96.4.0/24", "--exclude-cidr"] {
        assert!(news[0].contains(word), "{news:?}");
    }
    keeper.replan().unwrap();
    assert_eq!(keeper.news(), Vec::<String>::new());
    assert!(keeper.check_covered().is_ok());
}

#[tokio::test]
async fn lifecycle_16_a_single_service_that_somebody_else_has_keeps_nobody_from_connecting() {
    let services = vec![
        cluster_ip("default", "one", "10.96.4.1"),
        cluster_ip("default", "two", "10.96.4.2"),
        cluster_ip("default", "three", "10.96.5.1"),
    ];
    let (mut keeper, _table) = keeper(&[], RouteChoice::default(), services);
    keeper.observe();
    keeper.take(taken(&[("10.96.4.0/24", Why::Route)]));
    keeper.replan().unwrap();
    assert!(keeper.check_covered().is_ok());
    assert_eq!(keeper.routes(), nets(&["10.96.5.1/32"]));
    let news = keeper.news();
    assert_eq!(news.len(), 2, "{news:?}");
    assert!(news[0].contains("10.96.4.0/24"), "{news:?}");
    assert_eq!(keeper.report().left_out.len(), 2);
}

#[tokio::test]
async fn lifecycle_17_a_network_of_ipv6_is_left_out_and_told_where_there_is_none() {
    let (mut keeper, _table) = keeper(
        &["10.96.0.0/16", "fd00:10::/112"],
        RouteChoice::default(),
        Vec::new(),
    );
    keeper.take(Taken {
        nets: Vec::new(),
        no_ipv6: true,
    });
    keeper.replan().unwrap();
    assert!(keeper.check_covered().is_ok());
    assert_eq!(keeper.routes(), nets(&["10.96.0.0/16"]));
    let news = keeper.news();
    assert!(
        news[0].contains("fd00:10::/112") && news[0].contains("IPv6"),
        "{news:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn f11_hosts_come_go_and_give_way_to_what_the_machine_needs() {
    let (mut keeper, _table) = keeper(&["10.96.0.0/16"], RouteChoice::default(), Vec::new());
    keeper.replan().unwrap();
    let now = Instant::now();
    keeper.waiting = vec![answered(7), answered(8)];
    keeper.renew_hosts(now);
    keeper.publish();
    assert_eq!(
        keeper.routes(),
        nets(&["10.96.0.0/16", "203.0.113.7/32", "203.0.113.8/32"])
    );
    let reachable = keeper.resolver().reachable();
    let host = IpAddr::from([203, 0, 113, 7]);
    let hold = reachable.borrow().admit(host, now);
    assert!(hold.is_some());

    // The time of both is over; one has a connection.
    keeper.renew_hosts(now + Duration::from_secs(60));
    keeper.publish();
    assert_eq!(keeper.routes(), nets(&["10.96.0.0/16", "203.0.113.7/32"]));
    // What the machine needs is more than any connection.
    keeper.take(taken(&[("203.0.113.0/24", Why::OnLink)]));
    keeper.replan().unwrap();
    keeper.publish();
    assert_eq!(keeper.routes(), nets(&["10.96.0.0/16"]));
    assert!(reachable.borrow().admit(host, now).is_none());
    keeper.waiting = vec![answered(9)];
    keeper.renew_hosts(now);
    keeper.publish();
    assert_eq!(keeper.routes(), nets(&["10.96.0.0/16"]));
    let address = IpAddr::from([203, 0, 113, 9]);
    assert!(reachable.borrow().refuses(address));
    // Until the machine is another.
    keeper.take(Taken::default());
    keeper.replan().unwrap();
    keeper.publish();
    assert!(!reachable.borrow().refuses(address));
}

#[tokio::test(start_paused = true)]
async fn f11_a_host_that_a_network_has_meanwhile_is_the_networks() {
    let (mut keeper, _table) = keeper(&["10.96.0.0/16"], RouteChoice::default(), Vec::new());
    keeper.replan().unwrap();
    keeper.waiting = vec![answered(7)];
    keeper.renew_hosts(Instant::now());
    assert!(keeper.follow(&session_info(&["10.96.0.0/16", "203.0.113.0/24"])));
    keeper.replan().unwrap();
    assert_eq!(keeper.routes(), nets(&["10.96.0.0/16", "203.0.113.0/24"]));
    assert!(!keeper.follow(&session_info(&["10.96.0.0/16", "203.0.113.0/24"])));
}

#[tokio::test]
async fn w9_what_the_user_takes_from_a_vpn_is_routed_and_told_with_both_routes() {
    let vpn = taken(&[
        ("10.0.0.0/8", Why::Route),
        ("10.244.0.53/32", Why::NameServer),
    ]);
    let cluster = ["10.244.0.0/16"];
    let (mut without, _table) = keeper(&cluster, RouteChoice::default(), Vec::new());
    without.take(vpn.clone());
    without.replan().unwrap();
    let failure = without.check_covered().unwrap_err();
    let hint = failure.hint.unwrap();
    assert!(
        hint.starts_with("--exclude-cidr 10.244.0.0/16 connects without it"),
        "{hint}"
    );
    assert!(
        hint.contains("--take-cidr 10.244.0.0/16 takes it from 10.0.0.0/8"),
        "{hint}"
    );

    let choice = RouteChoice {
        take: nets(&cluster),
        ..RouteChoice::default()
    };
    let (mut with, _table) = keeper(&cluster, choice, Vec::new());
    with.take(vpn);
    with.replan().unwrap();

    with.check_covered().unwrap();
    assert_eq!(with.given(), nets(&cluster));
    let report = with.report();
    let purposes: Vec<_> = report
        .networks
        .iter()
        .flat_map(|one| &one.purposes)
        .collect();
    assert!(
        purposes
            .iter()
            .all(|one| ["pods", "services", "--take-cidr"].contains(&one.as_str()))
    );
    let name_server = "10.244.0.53/32".parse().unwrap();
    assert!(
        with.routes()
            .iter()
            .all(|route| !route.overlaps(&name_server))
    );
    assert_eq!(
        (
            report.taken[0].ours.as_str(),
            report.taken[0].theirs.as_str()
        ),
        ("10.244.0.0/16", "10.0.0.0/8")
    );
    let news = with.news();
    assert!(
        news.contains(
            &"10.244.0.0/16 overlaps the route 10.0.0.0/8: packets to 10.244.0.0/16 go to the cluster (--take-cidr)"
                .to_owned()
        ),
        "{news:?}"
    );
}

#[tokio::test]
async fn lifecycle_16_a_local_network_is_not_taken_whatever_the_user_says() {
    let choice = RouteChoice {
        take: nets(&["10.244.0.0/16"]),
        ..RouteChoice::default()
    };
    let (mut keeper, _table) = keeper(&["10.244.0.0/16"], choice, Vec::new());
    keeper.take(taken(&[("10.0.0.0/8", Why::OnLink)]));
    keeper.replan().unwrap();
    let failure = keeper.check_covered().unwrap_err();
    assert!(!failure.hint.unwrap().contains("--take-cidr"));
}
