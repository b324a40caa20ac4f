//! Several sessions on one machine.

use super::*;
use crate::claims::Contested;

fn claims(domain: &str, network: &str) -> Claims {
    Claims {
        name: format!("context {domain}"),
        domain: domain.to_owned(),
        namespaces: vec!["default".to_owned()],
        networks: vec![network.parse().unwrap()],
        ..Claims::default()
    }
}

impl Machine {
    async fn host_with(&self, domain: &str, network: &str) -> LocalHost {
        let mut host = self.host();
        host.claim(&claims(domain, network)).await.unwrap();
        host
    }

    fn text(&self) -> String {
        fs::read_to_string(self.sys.path("/etc/hosts")).unwrap()
    }

    fn claim_files(&self) -> usize {
        fs::read_dir(self.sys.claims()).map_or(0, Iterator::count)
    }
}

#[tokio::test]
async fn lifecycle_09_bare_names_go_to_the_first_session_and_to_the_second_when_it_leaves() {
    let machine = machine("127.0.0.1 localhost");
    let before = machine.hosts();
    let mut first = machine.host_with("alpha.local", "10.96.0.0/12").await;
    let mut second = machine.host_with("beta.local", "10.112.0.0/12").await;
    first.apply(&authors()).await.unwrap();

    let mut wish = authors();
    wish.hosts[0].address = "10.112.0.7".parse().unwrap();
    wish.hosts[0]
        .names
        .push("authors.default.svc.beta.local".to_owned());
    let applied = second.apply(&wish).await.unwrap();

    let withheld = applied.withheld.unwrap();
    assert_eq!(withheld.session, first.session);
    assert_eq!(withheld.name, "context alpha.local");
    assert_eq!(withheld.hosts_names, 3);
    assert!(
        machine
            .text()
            .contains("10.112.0.7\tauthors.default.svc.beta.local #")
    );

    // As a session ends: its wishes first, then its claims, and the rest later.
    first.apply(&Intent::default()).await.unwrap();
    first.claim(&Claims::default()).await.unwrap();
    let verified = second.verify().await;
    assert_eq!(verified.withheld, None);
    assert_eq!(verified.repairs.len(), 1);
    let text = machine.text();
    assert!(
        text.contains("10.112.0.7\tauthors authors.default "),
        "{text}"
    );

    first.undo().await.unwrap();
    second.undo().await.unwrap();
    assert_eq!(machine.hosts(), before);
    assert_eq!((machine.journals(), machine.claim_files()), (0, 0));
}

#[tokio::test]
async fn lifecycle_09_a_session_that_clashes_is_refused_by_name_and_changes_nothing() {
    let machine = machine("");
    let first = machine.host_with("alpha.local", "10.96.0.0/12").await;
    let mut second = machine.host();
    let own = "10.100.0.0/16".parse().unwrap();
    let other = "10.96.0.0/12".parse().unwrap();
    let domain = Contested::Domain("alpha.local".to_owned());
    for (domain, network, expected) in [
        ("Alpha.Local", "10.112.0.0/12", domain),
        (
            "beta.local",
            "10.100.0.0/16",
            Contested::Networks { own, other },
        ),
    ] {
        let refused = second.claim(&claims(domain, network)).await;

        let Err(HostError::Clash(clash)) = refused else {
            panic!("{domain} {network}: {refused:?}")
        };
        assert_eq!(clash.what, expected);
        assert_eq!(
            (&clash.session, &clash.other),
            (&second.session, &first.session)
        );
        assert_eq!(clash.other_pid, std::process::id());
    }
    assert_eq!(machine.claim_files(), 1);
    second
        .claim(&claims("beta.local", "10.112.0.0/12"))
        .await
        .unwrap();
    // The cluster has other networks now: what it had stays in force.
    let again = second.claim(&claims("beta.local", "10.96.0.0/16")).await;
    assert!(matches!(again, Err(HostError::Clash(_))));
    let third = machine
        .host()
        .claim(&claims("gamma.local", "10.112.3.0/24"))
        .await;
    assert!(matches!(third, Err(HostError::Clash(_))));
}

#[tokio::test]
async fn what_a_dead_session_claimed_is_free() {
    let machine = machine("127.0.0.1 localhost");
    let mut dead = machine.host_with("alpha.local", "10.96.0.0/12").await;
    dead.apply(&authors()).await.unwrap();
    let mut second = machine.host_with("beta.local", "10.112.0.0/12").await;
    second.apply(&authors()).await.unwrap();
    drop(dead);
    assert_eq!(machine.claim_files(), 2);

    assert_eq!(recover(&machine.sys).await.unwrap().len(), 1);
    assert_eq!(machine.claim_files(), 1);
    assert_eq!(second.verify().await.repairs.len(), 1);
    machine.host_with("alpha.local", "10.96.0.0/12").await;
}

#[tokio::test]
async fn a_session_that_has_not_claimed_yet_comes_last() {
    let machine = machine("127.0.0.1 localhost");
    let mut early = machine.host();
    let _first = machine.host_with("alpha.local", "10.96.0.0/12").await;
    let applied = early.apply(&authors()).await.unwrap();
    assert_eq!(
        applied.withheld.map(|withheld| withheld.hosts_names),
        Some(3)
    );
}

#[tokio::test]
async fn two_sessions_at_once_get_one_after_the_other() {
    let machine = machine("");
    let claim = |domain: String| {
        let sys = machine.sys.clone();
        tokio::spawn(async move {
            let mut host = LocalHost::new(sys, SessionId::random()).unwrap();
            let claimed = host.claim(&claims(&domain, "10.96.0.0/12")).await;
            (host, claimed.is_ok())
        })
    };
    let racing: Vec<_> = (0..8)
        .map(|number| claim(format!("c{number}.local")))
        .collect();
    let mut hosts = Vec::new();
    for one in racing {
        hosts.push(one.await.unwrap());
    }
    assert_eq!(hosts.iter().filter(|(_, has)| *has).count(), 1);
}
