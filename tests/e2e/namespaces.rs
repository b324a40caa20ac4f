//! The namespaces of a session change while it lives: by its user, by a right that goes, and
//! nothing changes where that was denied. Beside it, what else may change during a session.

use std::{
    fs,
    net::{Ipv4Addr, TcpListener},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, anyhow, ensure};
use kubebridge_tests::{
    checks::Checks,
    dig::{Transport, dig},
    kubelet::Kubelet,
    lab::{AUTHORS, Lab, SHOP_AUTHORS},
    machine::Machine,
    parts::program,
    product::{
        Attempt, Manager, Session, kubebridge, kubebridge_output, must_be_as, resolver_address,
        status,
    },
    snapshot::Snapshot,
    wait::until,
};

use crate::reach::{contains, with_pod};

/// Far longer than anything here takes, on a busy machine too.
const SOON: Duration = Duration::from_secs(90);

/// A session of `dev` by the kubeconfig, in these namespaces.
fn connect<'lab>(lab: &'lab Lab, namespaces: &[&str]) -> Result<Session<'lab>> {
    let kubeconfig = lab.api.kubeconfig("dev");
    Attempt::start_by_kubeconfig_in(lab, &kubeconfig, namespaces, &[], &[])?.connected()
}

/// Waits until the session's resolver says this of a name.
fn says(lab: &Lab, name: &str, wanted: &str) -> Result<()> {
    let resolver = resolver_address(lab)?;
    until(&format!("{wanted} of {name}"), SOON, || {
        let got = dig(lab.laptop.on(), &resolver, Transport::Udp, name, "A")?;
        ensure!(got.to_string() == wanted, "{got}");
        Ok(())
    })
}

fn has(lab: &Lab, name: &str, address: &str) -> Result<()> {
    says(lab, name, &format!("NOERROR {name}. A {address}"))
}

/// Fails unless the hosts file has a line of the name with this address and no other.
fn hosts(lab: &Lab, name: &str, address: &str) -> Result<()> {
    let text = fs::read_to_string(lab.laptop.on().path("/etc/hosts"))?;
    let mut lines = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let first = words.next()?;
        words.any(|word| word == name).then_some(first)
    });
    let found = (lines.next(), lines.next());
    ensure!(found == (Some(address), None), "{name}: {text}");
    Ok(())
}

#[test]
fn w12_namespaces_are_used_added_and_removed_without_a_new_session() -> Result<()> {
    let lab = Lab::start()?;
    let _pod = with_pod(&lab)?;
    let before = Snapshot::take(lab.laptop.on())?;
    let session = connect(&lab, &["default"])?;
    let id = status(&lab)?["session"].clone();
    let mut checks = Checks::new();
    checks.that("at first", has(&lab, "authors", AUTHORS));
    checks.that(
        "another namespace's name is not ours",
        says(&lab, "authors.shop.svc.cluster.local", "REFUSED"),
    );

    let said = kubebridge_output(&lab, &["namespace", "add", "shop"])?;
    let wanted = "namespaces: default, shop\n";
    checks.that("add", contains(&said, wanted));
    checks.that("add tells", contains(&said, "shop: synced, 1 services\n"));
    checks.that("added", has(&lab, "authors.shop", SHOP_AUTHORS));
    checks.that("the own stays", has(&lab, "authors", AUTHORS));

    let said = kubebridge_output(&lab, &["namespace", "use", "shop"])?;
    checks.that("use", contains(&said, "namespaces: shop, default\n"));
    // All has followed when the command returns.
    checks.that("hosts", hosts(&lab, "authors", SHOP_AUTHORS));
    let domains = lab.laptop.on().output(&["resolvectl", "domain"])?;
    checks.that("search", contains(&domains, "shop.svc.cluster.local"));
    checks.that("used", has(&lab, "authors", SHOP_AUTHORS));
    checks.that("the other stays", has(&lab, "authors.default", AUTHORS));
    checks.that(
        "as programs resolve it",
        until("getent hosts authors", SOON, || {
            let found = lab.laptop.on().output(&["getent", "hosts", "authors"])?;
            contains(&found, SHOP_AUTHORS)
        }),
    );

    let during = Snapshot::take(lab.laptop.on())?;
    checks.that("denied", denied(&lab));
    checks.that(
        "nothing changed by it",
        Snapshot::take(lab.laptop.on())?.must_equal(&during),
    );
    let standing = status(&lab)?;
    checks.equal(
        "status",
        Ok(standing["namespaces"].to_string()),
        r#"["shop","default"]"#,
    );
    checks.that("used as before", has(&lab, "authors", SHOP_AUTHORS));

    kubebridge_output(&lab, &["namespace", "remove", "default"])?;
    let gone = "authors.default.svc.cluster.local";
    checks.that("removed", says(&lab, gone, "REFUSED"));
    checks.that(
        "one session all the time",
        (status(&lab)?["session"] == id)
            .then_some(())
            .context("another one"),
    );
    let left = standing["tokens"]["seconds_left"].as_u64();
    checks.that(
        "the tokens' end is told",
        left.is_some_and(|left| (1..=3600).contains(&left))
            .then_some(())
            .with_context(|| standing["tokens"].to_string()),
    );

    checks.that("the end", session.end_at_once());
    checks.that("after it", must_be_as(&lab, &before));
    checks.finish()?;
    lab.finish();
    Ok(())
}

/// A namespace that the user has no right to, and one that the manager does not know.
fn denied(lab: &Lab) -> Result<()> {
    lab.kubectl(&["create", "namespace", "prod"])?;
    for change in ["use", "add"] {
        let said = kubebridge(lab, &["namespace", change, "prod"])?;
        let text = String::from_utf8_lossy(&said.stderr).into_owned();
        ensure!(said.status.code() == Some(77), "{}: {text}", said.status);
        for part in [
            "the namespaces are as they were: user dev of context lab may not: \
             create serviceaccounts/token in namespace prod",
            "hint: have the cluster's administrator bind a Role in namespace prod",
        ] {
            contains(&text, part)?;
        }
    }
    let said = kubebridge(lab, &["namespace", "remove", "shop"])?;
    let text = String::from_utf8_lossy(&said.stderr).into_owned();
    ensure!(said.status.code() == Some(64), "{}: {text}", said.status);
    contains(&text, "hint: kubebridge namespace use default")
}

#[test]
fn r3_a_namespace_whose_account_is_gone_is_lost_alone_and_comes_back_with_it() -> Result<()> {
    let lab = Lab::start()?;
    let (manager, _kubelet): (Manager, Kubelet) = with_pod(&lab)?;
    let session = connect(&lab, &["default", "shop"])?;
    let mut checks = Checks::new();
    checks.that("at first", has(&lab, "authors.shop", SHOP_AUTHORS));

    let account = ["serviceaccount", "kubebridge-access", "-n", "shop"];
    lab.kubectl(&[&["delete"][..], &account].concat())?;
    // New tokens are needed at once, not in 48 minutes.
    manager.kill()?;
    let manager = Manager::start_again(&lab)?;
    let told = until("status to tell of the lost namespace", SOON, || {
        let standing = status(&lab)?;
        ensure!(standing["state"] == "connected", "{standing}");
        let shop = standing["kubernetes"][1].to_string();
        contains(&shop, "no token: namespace shop has no ServiceAccount")?;
        contains(&shop, r#""help":"kubebridge install --namespace shop""#)
    });
    checks.that("told", told);
    checks.that("the other goes on", has(&lab, "authors", AUTHORS));
    let lost = "authors.shop.svc.cluster.local";
    checks.that("lost", says(&lab, lost, "REFUSED"));

    lab.kubectl(&[&["create"][..], &account].concat())?;
    checks.that("back", has(&lab, lost, SHOP_AUTHORS));
    checks.that("the end", session.end_at_once());
    drop(manager);
    checks.finish()?;
    lab.finish();
    Ok(())
}

#[test]
fn l19_an_authority_of_the_cluster_replaced_during_a_session_is_read_again() -> Result<()> {
    let lab = Lab::start()?;
    let _pod = with_pod(&lab)?;
    let session = connect(&lab, &["default"])?;
    let mut checks = Checks::new();
    lab.api.kill_api()?;
    lab.api.renew_authority(&lab.node)?;
    lab.api.start_api(&lab.node)?;
    checks.that(
        "connected again",
        until("the session to be connected", SOON, || {
            let standing = status(&lab)?;
            ensure!(standing["state"] == "connected", "{standing}");
            ensure!(standing["credentials"]["trouble"].is_null(), "{standing}");
            Ok(())
        }),
    );
    // The API server itself is needed for this.
    checks.that(
        "tokens from it",
        kubebridge_output(&lab, &["namespace", "add", "shop"]).map(drop),
    );
    checks.that("a name", has(&lab, "authors.shop", SHOP_AUTHORS));
    checks.that("the end", session.end_at_once());
    checks.finish()?;
    lab.finish();
    Ok(())
}

/// A pod in the network of a node: the kubelet's port shows it.
#[test]
fn the_manager_ends_where_a_kubelet_listens_in_its_network() -> Result<()> {
    let node = Machine::start("node", "")?;
    let kubelet = thread::scope(|scope| {
        let listening = scope.spawn(|| -> Result<TcpListener> {
            node.enter_network()?;
            Ok(TcpListener::bind((Ipv4Addr::UNSPECIFIED, 10250))?)
        });
        let joined = listening.join();
        joined.map_err(|_| anyhow!("the listening thread died"))?
    })?;
    let serve = || -> Result<(Option<i32>, String)> {
        let ended = node
            .command("timeout")
            .args(["-s", "KILL", "60"])
            .arg(program("traffic-manager")?)
            .args([
                "serve",
                "--resolv-conf=/nonexistent",
                "--dns-listen=127.0.0.1:0",
            ])
            .env("KUBERNETES_SERVICE_HOST", "10.96.0.1")
            .output()?;
        let said = String::from_utf8(ended.stderr)?;
        Ok((ended.status.code(), said))
    };
    let (code, said) = serve()?;
    ensure!(code == Some(64), "{code:?}: {said}");
    contains(&said, "hostNetwork (a kubelet listens on port 10250")?;
    drop(kubelet);
    // In a network of its own the next mistake is told.
    let (code, said) = serve()?;
    ensure!(code == Some(78), "{code:?}: {said}");
    Ok(())
}
