//! Machines with one of the two families, and rules that come first.

use super::*;

#[test]
fn lifecycle_17_a_machine_without_ipv6_gets_the_other_routes() {
    let name = "routes::lifecycle_17_a_machine_without_ipv6_gets_the_other_routes";
    on_a_machine(name, async |machine| {
        run("sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1");
        let sys = offline(&machine);
        let plan = planned(&sys, &["10.96.0.0/16", "fd00:10::/112"]).await;
        assert_eq!(words(&plan.routes), ["10.96.0.0/16"]);
        assert_eq!(words(&plan.without_ipv6), ["fd00:10::/112"]);
        let (mut host, link) = open(&sys).await;
        host.apply(&wish(&plan.routes)).await.unwrap();
        assert_eq!(way("10.96.0.1"), link.name);
        host.undo().await.unwrap();
    });
}

#[test]
fn lifecycle_17_routes_of_ipv6_alone_lead_into_the_link() {
    let name = "routes::lifecycle_17_routes_of_ipv6_alone_lead_into_the_link";
    on_a_machine(name, async |machine| {
        let sys = offline(&machine);
        let plan = planned(&sys, &["fd00:10::/112", "2001:db8:1::/64"]).await;
        assert_eq!(words(&plan.routes), ["2001:db8:1::/64", "fd00:10::/112"]);
        let (mut host, link) = open(&sys).await;
        let applied = host.apply(&wish(&plan.routes)).await.unwrap();
        assert_eq!(applied.warnings, [""; 0]);
        for address in ["fd00:10::7", "2001:db8:1::7"] {
            assert_eq!(way(address), link.name);
            // There is an address to send from, too.
            let address: IpAddr = address.parse().unwrap();
            let socket = std::net::UdpSocket::bind("[::]:0").unwrap();
            assert!(socket.connect((address, 9)).is_ok(), "{address}");
        }
        host.undo().await.unwrap();
    });
}

#[test]
fn lifecycle_16_a_vpn_whose_rule_comes_first_is_told() {
    on_a_machine(
        "routes::lifecycle_16_a_vpn_whose_rule_comes_first_is_told",
        async |machine| {
            run(WORLD);
            // A full tunnel by a table of its own takes everything before the main table.
            run("ip route add default dev tun0 table 200");
            let sys = offline(&machine);
            let (mut host, _link) = open(&sys).await;
            let applied = host.apply(&wish(&nets(&["10.60.0.0/16"]))).await.unwrap();
            assert_eq!(applied.warnings.len(), 1, "{:?}", applied.warnings);
            assert!(
                applied.warnings[0].contains("10.60.0.0/16"),
                "{:?}",
                applied.warnings
            );
            host.undo().await.unwrap();
        },
    );
}
