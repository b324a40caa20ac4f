//! What a plan keeps, leaves out and says.

use std::net::{IpAddr, Ipv4Addr};

use proptest::prelude::*;

use super::*;

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| net(text)).collect()
}

fn taken(list: &[(&str, Why)]) -> Taken {
    let nets = list.iter().map(|(text, why)| TakenNet {
        net: net(text),
        why: *why,
        via: Some("eth0".to_owned()),
    });
    Taken {
        nets: nets.collect(),
        no_ipv6: false,
    }
}

fn routes(wanted: &[&str], list: &[(&str, Why)], exclude: &[&str]) -> Vec<String> {
    let plan = plan(&nets(wanted), &taken(list), &nets(exclude));
    plan.routes.iter().map(ToString::to_string).collect()
}

#[test]
fn w9_a_network_that_nobody_uses_is_routed_as_it_is() {
    assert_eq!(
        routes(
            &[
                "10.244.0.0/16",
                "10.96.0.0/16",
                "fd00:10::/108",
                "10.96.7.0/24"
            ],
            &[("192.0.2.0/24", Why::OnLink), ("10.97.0.0/16", Why::Route)],
            &[]
        ),
        ["10.96.0.0/16", "10.244.0.0/16", "fd00:10::/108"]
    );
}

#[test]
fn w9_holes_are_punched_and_everything_else_stays() {
    assert_eq!(
        routes(&["10.96.0.0/30"], &[("10.96.0.1/32", Why::Cluster)], &[]),
        ["10.96.0.0/32", "10.96.0.2/31"]
    );
    assert_eq!(
        routes(&["10.96.0.0/16"], &[("10.96.128.0/17", Why::Route)], &[]),
        ["10.96.0.0/17"]
    );
    assert_eq!(
        routes(&["fd00::/126"], &[("fd00::3/128", Why::NameServer)], &[]),
        ["fd00::/127", "fd00::2/128"]
    );
    // One hole in two wanted networks that meet.
    assert_eq!(
        routes(
            &["10.0.0.0/9", "10.128.0.0/9"],
            &[("10.96.0.0/11", Why::OnLink), ("10.128.0.0/16", Why::Route)],
            &[]
        ),
        routes(
            &["10.0.0.0/8"],
            &[("10.96.0.0/11", Why::OnLink), ("10.128.0.0/16", Why::Route)],
            &[]
        )
    );
}

#[test]
fn w9_neighbours_become_one_route() {
    assert_eq!(
        routes(
            &[
                "10.244.0.0/24",
                "10.244.1.0/24",
                "10.244.2.7/32",
                "10.244.2.6/32"
            ],
            &[],
            &[]
        ),
        ["10.244.0.0/23", "10.244.2.6/31"]
    );
}

#[test]
fn w9_neighbours_do_not_become_a_route_that_is_too_wide() {
    assert_eq!(
        routes(
            &["124.0.0.0/8", "125.0.0.0/8", "fc00::/8", "fd00::/8"],
            &[],
            &[]
        ),
        ["124.0.0.0/8", "125.0.0.0/8", "fc00::/8", "fd00::/8"]
    );
}

#[test]
fn w9_what_means_something_else_everywhere_is_never_routed() {
    let wanted = [
        "127.0.0.0/8",
        "169.254.169.254/32",
        "224.0.0.0/8",
        "fe80::/10",
        "ff00::/8",
        "64:ff9b::/96",
        "::ffff:10.0.0.0/104",
        "0.0.0.0/8",
    ];
    assert_eq!(routes(&wanted, &[], &[]), [""; 0]);
    let free = Taken::default();
    for address in [
        "127.0.0.1",
        "169.254.169.254",
        "::1",
        "fe80::1",
        "255.255.255.255",
    ] {
        assert!(!is_free(address.parse().unwrap(), &free), "{address}");
    }
    assert!(is_free("10.96.0.1".parse().unwrap(), &free));
}

#[test]
fn w9_a_network_that_is_too_wide_is_refused_and_told() {
    let wide = plan(
        &nets(&["0.0.0.0/0", "fc00::/7", "10.0.0.0/8"]),
        &Taken::default(),
        &[],
    );
    assert_eq!(wide.too_wide, nets(&["0.0.0.0/0", "fc00::/7"]));
    assert_eq!(wide.routes, nets(&["10.0.0.0/8"]));
}

#[test]
fn lifecycle_16_both_routes_of_an_overlap_are_named() {
    let found = plan(
        &nets(&["10.96.0.0/16"]),
        &taken(&[
            ("10.96.4.0/24", Why::Route),
            ("10.96.9.1/32", Why::SshPeer),
            ("10.0.0.0/8", Why::Excluded),
        ]),
        &nets(&["10.96.5.0/24"]),
    );
    let words: Vec<_> = found.overlaps.iter().map(ToString::to_string).collect();
    assert_eq!(
        words,
        ["10.96.0.0/16 overlaps the route 10.96.4.0/24 dev eth0"]
    );
    let holes: Vec<_> = found
        .holes
        .iter()
        .map(|hole| (hole.net, hole.why))
        .collect();
    assert!(holes.contains(&(net("10.96.4.0/24"), Why::Route)));
    assert!(holes.contains(&(net("10.96.5.0/24"), Why::Excluded)));
    assert!(holes.contains(&(net("10.96.9.1/32"), Why::SshPeer)));
}

#[test]
fn lifecycle_16_a_network_of_which_nothing_is_left_is_told_unless_the_user_left_it_out() {
    let vpn = taken(&[("10.0.0.0/8", Why::Route)]);
    let wanted = nets(&["10.96.0.0/16", "172.20.0.0/16"]);
    let found = plan(&wanted, &vpn, &[]);
    assert_eq!(found.covered, nets(&["10.96.0.0/16"]));
    assert_eq!(found.routes, nets(&["172.20.0.0/16"]));
    let helped = plan(&wanted, &vpn, &nets(&["10.96.0.0/16"]));
    assert_eq!(helped.covered, []);
    assert_eq!(helped.overlaps, []);
    assert_eq!(helped.routes, nets(&["172.20.0.0/16"]));
}

#[test]
fn lifecycle_17_without_ipv6_its_networks_are_left_and_told() {
    let four_only = Taken {
        nets: Vec::new(),
        no_ipv6: true,
    };
    let found = plan(&nets(&["10.96.0.0/16", "fd00:10::/108"]), &four_only, &[]);
    assert_eq!(found.routes, nets(&["10.96.0.0/16"]));
    assert_eq!(found.without_ipv6, nets(&["fd00:10::/108"]));
}

#[test]
fn w9_a_route_that_takes_what_is_taken_is_refused_with_both_named() {
    let machine = taken(&[("10.96.4.0/24", Why::OnLink)]);
    let refused = check(&nets(&["10.97.0.0/16", "10.96.0.0/16"]), &machine).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the route 10.96.0.0/16 is refused: 10.96.4.0/24 is a local network (dev eth0)"
    );
    assert!(check(&nets(&["10.96.0.0/22", "10.96.8.0/21"]), &machine).is_ok());
    for route in ["0.0.0.0/1", "169.254.169.254/32", "::1/128", "2000::/3"] {
        assert!(
            check(&nets(&[route]), &Taken::default()).is_err(),
            "{route}"
        );
    }
}

#[test]
fn w9_a_given_network_is_taken_from_a_wider_route_and_from_nothing_else() {
    let machine = taken(&[
        ("10.0.0.0/8", Why::Route),
        ("10.244.9.0/24", Why::Route),
        ("10.244.0.53/32", Why::NameServer),
        ("10.244.0.1/32", Why::Gateway),
        ("10.244.0.6/32", Why::Cluster),
        ("10.244.0.7/32", Why::SshPeer),
        ("10.244.0.8/32", Why::Own),
    ]);
    let given = nets(&["10.244.0.0/16"]);
    let left = machine.clone().giving(&given);

    let found = plan(&given, &left, &[]);

    for free in ["10.244.0.9", "10.244.77.1"] {
        assert!(has(&found.routes, free.parse().unwrap()), "{free}");
    }
    let stays = ["0.1", "0.6", "0.7", "0.8", "0.53", "9.1"];
    for taken in stays.map(|end| format!("10.244.{end}")) {
        assert!(!has(&found.routes, taken.parse().unwrap()), "{taken}");
    }
    assert!(check(&found.routes, &left).is_ok());
    // The rest of the wider route is not given.
    assert!(check(&nets(&["10.245.0.0/24"]), &left).is_err());
    // Without the word of the user none of it is.
    assert!(check(&found.routes, &machine).is_err());
    let told: Vec<_> = machine
        .given_up(&given)
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        told,
        ["10.244.0.0/16 overlaps the route 10.0.0.0/8 dev eth0"]
    );
}

#[test]
fn w9_a_route_as_narrow_as_what_is_wanted_and_a_local_network_are_not_given() {
    for (theirs, why) in [
        ("10.244.0.0/16", Why::Route),
        ("10.244.0.0/17", Why::Route),
        ("10.0.0.0/8", Why::OnLink),
        ("10.0.0.0/8", Why::Excluded),
    ] {
        let machine = taken(&[(theirs, why)]);
        let given = nets(&["10.244.0.0/16"]);
        assert_eq!(machine.clone().giving(&given), machine, "{theirs}");
        assert_eq!(machine.given_up(&given), []);
    }
}

/// Networks inside a universe so small that every address can be looked at.
fn small_net() -> impl Strategy<Value = IpNet> {
    (any::<u8>(), 24u8..=32).prop_map(|(last, prefix)| {
        IpNet::V4(Ipv4Net::new(Ipv4Addr::new(10, 0, 0, last), prefix).unwrap())
    })
}

fn any_net() -> impl Strategy<Value = IpNet> {
    let four = (any::<u32>(), 0u8..=32)
        .prop_map(|(bits, prefix)| IpNet::V4(Ipv4Net::new(bits.into(), prefix).unwrap()));
    let six = (any::<u128>(), 0u8..=128)
        .prop_map(|(bits, prefix)| IpNet::V6(Ipv6Net::new(bits.into(), prefix).unwrap()));
    // Of one neighbourhood, so that they meet.
    let near = (any::<u128>(), 100u8..=128).prop_map(|(bits, prefix)| {
        let address = 0xfd << 120 | bits & 0xfff_ffff;
        IpNet::V6(Ipv6Net::new(address.into(), prefix).unwrap())
    });
    prop_oneof![four, six, near, small_net()]
}

fn whole(nets: Vec<IpNet>) -> Taken {
    let nets = nets.into_iter().map(|net| TakenNet {
        net,
        why: Why::Route,
        via: None,
    });
    Taken {
        nets: nets.collect(),
        no_ipv6: false,
    }
}

fn has(nets: &[IpNet], address: IpAddr) -> bool {
    nets.iter().any(|net| net.contains(address))
}

/// No two of the fewest networks are halves of one that may be routed, lie in one another or are
/// out of order.
fn assert_fewest(routes: &[IpNet]) {
    for pair in routes.windows(2) {
        assert!(pair[0] < pair[1], "{pair:?}");
        assert!(!pair[0].overlaps(&pair[1]), "{pair:?}");
        let (one, two) = (pair[0], pair[1]);
        if one.prefix() == two.prefix() && one.prefix() > WIDEST {
            let parent = |net: IpNet| match net {
                IpNet::V4(net) => IpNet::new(net.address().into(), net.prefix() - 1),
                IpNet::V6(net) => IpNet::new(net.address().into(), net.prefix() - 1),
            };
            assert_ne!(parent(one), parent(two), "{pair:?}");
        }
    }
}

fn any_why() -> impl Strategy<Value = Why> {
    prop_oneof![
        3 => Just(Why::Route),
        1 => Just(Why::OnLink),
        1 => Just(Why::Gateway),
        1 => Just(Why::Cluster),
        1 => Just(Why::NameServer),
    ]
}

proptest! {
    #[test]
    fn w9_giving_frees_just_the_given_addresses_of_wider_routes(
        used in prop::collection::vec((small_net(), any_why()), 0..8),
        given in prop::collection::vec(small_net(), 0..4),
    ) {
        let nets = used.iter().map(|(net, why)| TakenNet { net: *net, why: *why, via: None });
        let machine = Taken { nets: nets.collect(), no_ipv6: false };
        let left = machine.clone().giving(&given);
        let whole: IpNet = net("10.0.0.0/24");
        let found = plan(&[whole], &left, &[]);
        for last in 0..=255 {
            let address = IpAddr::from([10, 0, 0, last]);
            let is_kept = used.iter().any(|(net, why)| {
                let is_given = |one: &IpNet| {
                    one.contains(address) && *why == Why::Route && net.prefix() < one.prefix()
                };
                net.contains(address) && !given.iter().any(is_given)
            });
            prop_assert_eq!(has(&found.routes, address), !is_kept, "{}", address);
        }
        prop_assert!(check(&found.routes, &left).is_ok());
        // Nothing is given twice, and what was told is what changed.
        prop_assert_eq!(machine.given_up(&given).is_empty(), left == machine);
        prop_assert_eq!(left.clone().giving(&given), left);
    }

    #[test]
    fn w9_no_wanted_address_is_lost_but_those_in_a_hole(
        wanted in prop::collection::vec(small_net(), 0..8),
        used in prop::collection::vec(small_net(), 0..8),
        exclude in prop::collection::vec(small_net(), 0..4),
    ) {
        let found = plan(&wanted, &whole(used.clone()), &exclude);
        let holes: Vec<_> = found.holes.iter().map(|hole| hole.net).collect();
        for last in 0..=255 {
            let address = IpAddr::from([10, 0, 0, last]);
            let is_ours = has(&wanted, address) && !has(&used, address) && !has(&exclude, address);
            prop_assert_eq!(has(&found.routes, address), is_ours, "{}", address);
            let is_hole = has(&wanted, address) && !is_ours;
            prop_assert_eq!(has(&holes, address), is_hole, "{}", address);
        }
        assert_fewest(&found.routes);
        prop_assert!(check(&found.routes, &whole(used)).is_ok());
    }

    #[test]
    fn w9_nothing_protected_is_ever_covered(
        wanted in prop::collection::vec(any_net(), 0..12),
        used in prop::collection::vec(any_net(), 0..12),
        exclude in prop::collection::vec(any_net(), 0..4),
    ) {
        let found = plan(&wanted, &whole(used.clone()), &exclude);
        assert_fewest(&found.routes);
        for route in &found.routes {
            prop_assert!(wanted.iter().any(|net| net.overlaps(route)));
            prop_assert!(!used.iter().chain(&exclude).any(|net| net.overlaps(route)));
        }
        prop_assert!(check(&found.routes, &whole(used.clone())).is_ok());
        // The plan does not depend on the order of what it is made of.
        let turned: Vec<_> = wanted.iter().rev().copied().collect();
        let again = plan(&turned, &whole(used.into_iter().rev().collect()), &exclude);
        prop_assert_eq!(again, found);
    }

    #[test]
    fn w9_planning_again_from_the_routes_changes_nothing(
        wanted in prop::collection::vec(any_net(), 0..12),
        used in prop::collection::vec(any_net(), 0..12),
    ) {
        let once = plan(&wanted, &whole(used.clone()), &[]).routes;
        let narrow: Vec<_> = once.clone();
        prop_assert_eq!(plan(&narrow, &whole(used), &[]).routes, once);
    }
}
