//! Where an API server's address comes from.

use kubebridge_dns::test_util::{Answer, LoopbackServer};

use super::*;

fn addresses(server: Option<SocketAddr>, hosts: &str) -> (Addresses, tempfile::NamedTempFile) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), hosts).unwrap();
    let servers: Vec<_> = server.into_iter().collect();
    let originals = Arc::new(Originals::new(&servers, &[]));
    (Addresses::new(originals, file.path().to_owned()), file)
}

fn texts(found: &[IpAddr]) -> Vec<String> {
    found.iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn the_hosts_file_goes_before_dns() {
    let (addresses, _file) = addresses(
        None,
        "# 192.0.2.1 api.example\n192.0.2.2 other API.example # ours\n2001:db8::2\tapi.example\nno address api.example\n",
    );
    let found = addresses.find("api.example").await.unwrap();
    assert_eq!(texts(&found), ["192.0.2.2", "2001:db8::2"]);
}

#[tokio::test]
async fn l15_the_original_servers_are_asked_and_what_they_said_is_kept() {
    let server = LoopbackServer::saying(Answer::address("api.example", [192, 0, 2, 7])).await;
    let (addresses, _file) = addresses(Some(server.address()), "");
    let found = addresses.find("api.example.").await.unwrap();
    assert!(texts(&found).contains(&"192.0.2.7".to_owned()), "{found:?}");

    drop(server);

    assert_eq!(addresses.find("API.example").await.unwrap(), found);
}

#[tokio::test]
async fn a_host_nobody_else_knows_is_looked_up_as_programs_do() {
    let (addresses, _file) = addresses(None, "");
    let found = addresses.find("localhost").await.unwrap();
    assert!(found.iter().all(IpAddr::is_loopback) && !found.is_empty());
}

#[test]
fn what_is_kept_is_bounded() {
    let (addresses, _file) = addresses(None, "");
    for n in 0..20 {
        addresses
            .0
            .keep(&format!("host-{n:02}"), &[IpAddr::from([192, 0, 2, n])]);
    }
    assert_eq!(addresses.0.kept.lock().len(), KEPT);
}
