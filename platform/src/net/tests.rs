use super::*;

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

#[test]
fn a_network_is_held_by_its_network_address() {
    assert_eq!(net("10.96.3.4/12").to_string(), "10.96.0.0/12");
    assert_eq!(net("10.1.2.3").to_string(), "10.1.2.3/32");
    assert_eq!(net("fd00::1:2/64").to_string(), "fd00::/64");
    assert_eq!(net("1.2.3.4/0").to_string(), "0.0.0.0/0");
}

#[test]
fn bad_networks_are_refused_with_their_text() {
    for text in [
        "",
        "10.0.0.0/33",
        "10.0.0/8",
        "10.0.0.0/",
        "10.0.0.0/+8",
        "fd00::/129",
        "a/8",
        "10.0.0.0/8/8",
    ] {
        assert!(text.parse::<IpNet>().is_err(), "{text}");
    }
    assert_eq!(
        "10.0.0/8".parse::<IpNet>().unwrap_err().to_string(),
        "\"10.0.0/8\" is not an IP network (expected ADDRESS/PREFIX)"
    );
}

#[test]
fn networks_overlap_when_one_contains_the_other() {
    for (a, b, overlap) in [
        ("10.0.0.0/8", "10.96.0.0/12", true),
        ("10.96.0.0/12", "10.0.0.0/8", true),
        ("10.0.0.0/30", "10.0.0.4/30", false),
        ("0.0.0.0/0", "10.0.0.0/8", true),
        ("fd00::/8", "fd12::/16", true),
        ("0.0.0.0/0", "::/0", false),
    ] {
        assert_eq!(net(a).overlaps(&net(b)), overlap, "{a} {b}");
    }
}

#[test]
fn reverse_zones_are_aligned_and_never_wider_than_the_network() {
    let zones = |text| net(text).reverse_zones();
    let sixteen = zones("10.96.0.0/12").unwrap();
    assert_eq!(sixteen.len(), 16);
    assert_eq!(sixteen[0], "96.10.in-addr.arpa");
    assert_eq!(sixteen[15], "111.10.in-addr.arpa");
    assert_eq!(zones("10.43.0.0/16").unwrap(), ["43.10.in-addr.arpa"]);
    assert_eq!(zones("10.0.0.0/8").unwrap(), ["10.in-addr.arpa"]);
    assert_eq!(zones("10.0.16.0/20").unwrap()[15], "31.0.10.in-addr.arpa");
    assert_eq!(zones("10.0.0.1/32").unwrap(), ["1.0.0.10.in-addr.arpa"]);
    assert_eq!(zones("fd00:10:96::/112").unwrap().len(), 1);
    assert_eq!(
        zones("fd12:3400::/22").unwrap(),
        [
            "4.3.2.1.d.f.ip6.arpa",
            "5.3.2.1.d.f.ip6.arpa",
            "6.3.2.1.d.f.ip6.arpa",
            "7.3.2.1.d.f.ip6.arpa"
        ]
    );
}

#[test]
fn a_network_needing_too_many_zones_gets_none() {
    for text in [
        "10.0.0.0/9",
        "10.0.0.0/17",
        "0.0.0.0/0",
        "::/0",
        "128.0.0.0/1",
    ] {
        assert_eq!(net(text).reverse_zones(), None, "{text}");
    }
    assert_eq!(net("10.0.0.0/11").reverse_zones().unwrap().len(), 32);
}

#[test]
fn the_zones_of_several_networks_stay_within_the_bound() {
    let nets = [
        net("10.96.0.0/12"),
        net("10.96.0.0/12"),
        net("10.0.0.0/11"),
        net("10.244.0.0/16"),
    ];

    let out = reverse_zones(&nets);

    assert_eq!(out.zones.len(), 17);
    assert_eq!(out.zones[16], "244.10.in-addr.arpa");
    assert_eq!(out.skipped, [net("10.0.0.0/11")]);
}

#[test]
fn subnets_are_yielded_in_order() {
    let range: Ipv4Net = "198.19.248.0/21".parse().unwrap();
    let all: Vec<_> = range.subnets(30).collect();
    assert_eq!(all.len(), 512);
    assert_eq!(all[1].to_string(), "198.19.248.4/30");
    assert_eq!(all[511].to_string(), "198.19.255.252/30");
    assert_eq!(range.subnets(20).count(), 0);
}

#[test]
fn networks_travel_as_text() {
    let text = serde_json::to_string(&net("10.96.0.0/12")).unwrap();
    assert_eq!(text, "\"10.96.0.0/12\"");
    assert_eq!(
        serde_json::from_str::<IpNet>(&text).unwrap(),
        net("10.96.0.0/12")
    );
}
