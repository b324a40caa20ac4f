//! Any destination under any settings, against the rules said again in another way.

use proptest::prelude::*;
use proptest::sample::select;

use super::*;

/// Addresses that mean something in the world, and their neighbours.
const PLACES: [&str; 24] = [
    "10.96.0.1",
    "10.96.0.20",
    "10.96.0.21",
    "10.96.0.22",
    "10.96.0.24",
    "10.96.0.53",
    "10.244.1.5",
    "10.244.1.6",
    "10.244.3.3",
    "10.244.7.7",
    "192.0.2.1",
    "192.0.2.2",
    "192.0.2.9",
    "198.51.100.7",
    "203.0.113.5",
    "127.0.0.1",
    "169.254.169.254",
    "100.100.100.200",
    "0.0.0.0",
    "255.255.255.255",
    "224.0.0.1",
    "10.97.0.1",
    "8.8.8.8",
    "10.0.0.1",
];

/// What nobody may dial of these.
const NEVER: [&str; 14] = [
    "10.96.0.1",
    "10.96.0.53",
    "10.244.3.3",
    "192.0.2.1",
    "192.0.2.2",
    "192.0.2.9",
    "198.51.100.7",
    "127.0.0.1",
    "169.254.169.254",
    "100.100.100.200",
    "0.0.0.0",
    "255.255.255.255",
    "224.0.0.1",
    "::1",
];

fn address() -> impl Strategy<Value = IpAddr> {
    let v4 = select(&PLACES[..]).prop_map(|text| text.parse::<Ipv4Addr>().unwrap());
    let any = any::<u32>().prop_map(Ipv4Addr::from_bits);
    (prop_oneof![4 => v4, 1 => any], 0..6_u8).prop_map(|(v4, form)| {
        let bits = u128::from(v4.to_bits());
        let v6 = match form {
            0..=2 => return v4.into(),
            3 => 0xffff_0000_0000 | bits,
            4 => 0x0064_ff9b_u128 << 96 | bits,
            _ => 0x2002_u128 << 112 | bits << 80 | 1,
        };
        IpAddr::V6(v6.into())
    })
}

fn inner(address: IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V4(v4) => Some(v4),
        IpAddr::V6(v6) => match v6.segments() {
            [0, 0, 0, 0, 0, 0xffff, a, b]
            | [0x64, 0xff9b, 0, 0, 0, 0, a, b]
            | [0x2002, a, b, ..] => Some((u32::from(a) << 16 | u32::from(b)).into()),
            _ => None,
        },
    }
}

fn is_never(v4: Ipv4Addr) -> bool {
    let first = v4.octets()[0];
    NEVER.contains(&v4.to_string().as_str())
        || matches!(first, 0 | 127 | 224..)
        || v4.octets()[..2] == [169, 254]
        || ["192.0.0.192", "168.63.129.16", "100.96.0.96"].contains(&v4.to_string().as_str())
}

proptest! {
    #[test]
    fn nothing_is_dialled_that_the_rules_do_not_name(
        address in address(),
        port in prop_oneof![Just(80_u16), Just(53), Just(443), Just(8080), Just(2379), Just(10250), any::<u16>()],
        protocol in 0..3_u8,
        settings in prop::collection::vec(select(vec!["services", "pods", "cidr=0.0.0.0/0", "cidr=::/0", "except=8.0.0.0/8"]), 0..4),
        learned in prop::collection::vec((address(), any::<bool>()), 0..4),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let _entered = runtime.enter();
        let mut world = World::new(&settings);
        for (address, cluster) in &learned {
            let origin = if *cluster { Origin::Cluster } else { Origin::Outside };
            let text = address.to_canonical().to_string();
            world = world.resolved(&text, origin);
        }
        let to = match protocol {
            0 => Dialled::Tcp(SocketAddr::new(address, port)),
            1 => Dialled::Udp(SocketAddr::new(address, port)),
            _ => Dialled::Ping(address),
        };
        let judged = world.judge(to);
        let v4 = inner(address).unwrap();
        let plain = matches!(address.to_canonical(), IpAddr::V4(_));
        let is_port = protocol != 2;
        // Nobody, in no mode and no form.
        if is_never(v4) || (is_port && [2379, 2380, 10250, 10255].contains(&port)) {
            prop_assert!(judged.is_err(), "{to:?} {judged:?}");
        }
        if settings.contains(&"except=8.0.0.0/8") && v4.octets()[0] == 8 {
            prop_assert!(judged.is_err(), "{to:?} {judged:?}");
        }
        // Another namespace, in no mode and no form.
        if ["10.96.0.21", "10.244.1.6"].contains(&v4.to_string().as_str()) {
            prop_assert!(judged.is_err(), "{to:?} {judged:?}");
        }
        // What is allowed has one of the reasons there are.
        if judged.is_ok() {
            let text = v4.to_string();
            let service = plain && match text.as_str() {
                "10.96.0.20" => !is_port || (protocol == 0 && port == 80) || (protocol == 1 && port == 53),
                "10.96.0.24" => !is_port || (protocol == 0 && port == 80),
                _ => false,
            };
            let endpoint = plain && text == "10.244.1.5" && (!is_port || (protocol == 0 && port == 8080));
            let range: Cidr = "10.96.0.0/16".parse().unwrap();
            let in_services = range.contains(v4.into());
            let pod: Cidr = "10.244.0.0/16".parse().unwrap();
            let pods = plain && settings.contains(&"pods") && pod.contains(v4.into());
            let whole = if plain { "cidr=0.0.0.0/0" } else { "cidr=::/0" };
            let resolved = learned.iter().any(|(known, _)| known.to_canonical() == address.to_canonical());
            let named = resolved || pods || settings.contains(&whole);
            prop_assert!(service || endpoint || (named && !in_services), "{to:?} {judged:?}");
        }
        // What the default allows is allowed in every mode.
        if plain && v4 == Ipv4Addr::new(10, 96, 0, 20) && protocol == 0 && port == 80 {
            prop_assert_eq!(judged, Ok("service"));
        }
    }
}
