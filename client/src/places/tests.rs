//! Where hosts are, by a resolver between a manager and an original server on loopback.

use kubebridge_dns::message::{self, Checked};
use kubebridge_dns::name::ResponseCode;
use kubebridge_dns::test_util::{Answer, Record};

use super::*;
use crate::local_dns::tests::World;
use crate::test_util::session_info;

/// `authors.default` has an address of each family, `broken.default` an answer for one alone.
fn cluster(packet: &[u8]) -> Option<Vec<u8>> {
    let Checked::Query(query) = message::check(packet) else {
        return None;
    };
    let name = query.name.to_string();
    let answer = match (name.as_str(), query.rtype) {
        ("authors.default", RecordType::A) => Answer::address(&name, [10, 96, 0, 7]),
        ("authors.default", RecordType::AAAA) => {
            let address: IpAddr = "fd00::7".parse().unwrap();
            Answer::records([Record::address(&name, address)])
        }
        ("half.default", RecordType::A) => Answer::address(&name, [10, 96, 0, 8]),
        ("half.default" | "broken.default", _) => Answer::code(ResponseCode::SERVFAIL),
        _ => Answer::nxdomain("default"),
    };
    Some(answer.reply_to(packet))
}

fn places(world: &World, include: &[&str], exclude: &[&str]) -> SessionPlaces {
    let nets = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
    let choice = RouteChoice {
        include: nets(include),
        take: Vec::new(),
        exclude: nets(exclude),
        peers: Vec::new(),
    };
    let mut session = session_info(&["10.96.0.0/16"]);
    session.pod_cidrs = vec!["10.244.0.0/16".parse().unwrap()];
    let (_, session) = watch::channel(session);
    SessionPlaces::new(Arc::clone(&world.resolver), session, choice)
}

async fn find(places: &SessionPlaces, host: &str) -> Place {
    places.find(&Host::parse(host).unwrap(), 80).await
}

fn at(addresses: &[&str]) -> Vec<SocketAddr> {
    let all = addresses.iter();
    all.map(|text| SocketAddr::new(text.parse().unwrap(), 80))
        .collect()
}

#[tokio::test]
async fn names_of_the_cluster_have_the_addresses_of_both_families() {
    let world = World::with(cluster).await;
    let places = places(&world, &[], &[]);

    for (name, place) in [
        (
            "authors.default",
            Place::Cluster(at(&["10.96.0.7", "fd00::7"])),
        ),
        ("half.default", Place::Cluster(at(&["10.96.0.8"]))),
        ("broken.default", Place::Unknown),
        ("nobody.default", Place::NoSuchName),
        ("printer", Place::NoSuchName),
        ("shop", Place::NoSuchName),
    ] {
        assert_eq!(find(&places, name).await, place, "{name}");
    }
}

#[tokio::test]
async fn what_this_machine_looks_up_is_outside_unless_it_leads_into_the_cluster() {
    let world = World::with(cluster).await;
    let places = places(&world, &[], &[]);
    // Numbers are looked up without asking anybody.
    let look = async |text: &str| places.ask_machine(&text.parse().unwrap(), 80).await;

    assert_eq!(look("127.0.0.1").await, Place::Outside(at(&["127.0.0.1"])));
    assert_eq!(look("10.96.0.1").await, Place::Cluster(at(&["10.96.0.1"])));
}

#[tokio::test]
async fn addresses_of_the_sessions_networks_and_services_are_the_clusters() {
    let world = World::with(cluster).await;
    let places = places(
        &world,
        &["172.20.0.0/16"],
        &["10.96.7.0/24", "172.20.9.0/24"],
    );

    for (address, is_inside) in [
        ("10.96.0.1", true),
        ("10.96.7.1", false),
        ("10.244.1.2", true),
        ("172.20.1.1", true),
        ("172.20.9.1", false),
        ("192.0.2.1", false),
        ("[fd00::1]", false),
    ] {
        let place = match is_inside {
            true => Place::Cluster(at(&[address])),
            false => Place::Outside(vec![SocketAddr::new(
                address.trim_matches(['[', ']']).parse().unwrap(),
                80,
            )]),
        };
        assert_eq!(find(&places, address).await, place, "{address}");
    }
}
