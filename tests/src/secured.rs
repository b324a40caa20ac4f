//! A manager that listens on the network, with mutual TLS, and the flags of its clients.

use anyhow::Result;

use crate::{
    lab::{Lab, NODE},
    product::{MANAGER_ACCOUNT, Manager, NAMESPACES, kubebridge_output},
};

/// Where the manager listens for the network.
pub fn listen() -> String {
    format!("{NODE}:7443")
}

/// A file in the lab's folder of logs.
pub fn file(lab: &Lab, name: &str) -> String {
    lab.logs().join(name).display().to_string()
}

/// Has an authority, a certificate for the manager and one for a client made, in a folder `out`.
pub fn make_certificates(lab: &Lab, out: &str) -> Result<()> {
    let out = file(lab, out);
    kubebridge_output(lab, &["certs", "--out", &out, "--host", NODE])?;
    Ok(())
}

/// Starts the manager with the certificates of the folder `certs`, and waits until it is ready.
pub fn network_manager(lab: &Lab) -> Result<Manager> {
    lab.api
        .service_reader(&lab.node, MANAGER_ACCOUNT, &NAMESPACES)?;
    listening(lab, "127.0.0.1", &listen())
}

/// Starts another one beside it, and a balancer in front of both: connections to its address go to
/// one and the other in turn, as to a Service of the cluster.
pub fn replica_and_balancer(lab: &Lab) -> Result<(Manager, String)> {
    let replica = listening(lab, "127.0.0.2", &format!("{NODE}:7444"))?;
    lab.node.shell(
        "nft add table ip balancer
nft add chain ip balancer in '{ type nat hook prerouting priority -110; }'
nft 'add rule ip balancer in tcp dport 7440 redirect to :numgen inc mod 2 map { 0 : 7443, 1 : 7444 }'",
    )?;
    Ok((replica, format!("{NODE}:7440")))
}

fn listening(lab: &Lab, address: &'static str, listen: &str) -> Result<Manager> {
    let flags = [
        "--namespace=default,shop".to_owned(),
        format!("--grpc-listen={listen}"),
        format!("--tls-cert={}", file(lab, "certs/server.crt")),
        format!("--tls-key={}", file(lab, "certs/server.key")),
        format!("--tls-ca={}", file(lab, "certs/ca.crt")),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let manager = Manager::launch_at(lab, address, MANAGER_ACCOUNT, &flags)?;
    manager.ready(lab)?;
    Ok(manager)
}

/// The flags of a connection with a client's certificate of one folder and the authority of another.
pub fn tls_flags(lab: &Lab, client: &str, authority: &str) -> Vec<String> {
    vec![
        format!("--manager={}", listen()),
        format!("--tls-cert={}", file(lab, &format!("{client}/client.crt"))),
        format!("--tls-key={}", file(lab, &format!("{client}/client.key"))),
        format!("--tls-ca={}", file(lab, &format!("{authority}/ca.crt"))),
    ]
}
