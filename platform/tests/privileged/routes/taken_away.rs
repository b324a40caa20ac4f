//! Routes that others set, remove or leave behind.

use super::*;

#[test]
fn w9_a_route_of_somebody_else_that_comes_later_wins_and_is_noticed() {
    let name = "routes::w9_a_route_of_somebody_else_that_comes_later_wins_and_is_noticed";
    on_a_machine(name, async |machine| {
        run(WORLD);
        let sys = offline(&machine);
        let (mut host, link) = open(&sys).await;
        host.apply(&wish(&nets(&["10.60.0.0/16"]))).await.unwrap();
        let mut watch = DriftWatch::start(&sys, Clock::system());
        watch.follow(Some(link.index));
        // Whether the kernel is listened to is only known when something is heard.
        let mut round = 0;
        let drift = loop {
            round += 1;
            run(&format!("ip route replace 10.60.{round}.0/24 dev tun0"));
            match timeout(Duration::from_secs(2), watch.next()).await {
                Ok(drift) if drift.causes.contains(&Cause::Network) => break drift,
                Ok(_) | Err(_) => assert!(round < 30, "nothing was noticed"),
            }
        };
        assert!(!drift.causes.contains(&Cause::Route), "{drift:?}");
        let known = Known {
            link: Some(link.index),
            ours: nets(&["10.60.0.0/16"]),
            ..Known::default()
        };
        let taken = read_taken(&sys, &known).await.unwrap();
        let plan = routes::plan(&nets(&["10.60.0.0/16"]), &taken, &[]);
        assert!(
            plan.overlaps
                .iter()
                .any(|one| one.theirs == "10.60.1.0/24".parse().unwrap())
        );
        host.apply(&wish(&plan.routes)).await.unwrap();
        assert_eq!(way("10.60.1.1"), "tun0");
        assert_eq!(way("10.60.200.1"), link.name);
        host.undo().await.unwrap();
    });
}

#[test]
fn routes_that_somebody_removes_are_noticed_and_put_back() {
    on_a_machine(
        "routes::routes_that_somebody_removes_are_noticed_and_put_back",
        async |machine| {
            let sys = offline(&machine);
            let (mut host, link) = open(&sys).await;
            let wanted = nets(&["10.96.0.0/16", "fd00:10::/112"]);
            host.apply(&wish(&wanted)).await.unwrap();
            let mut watch = DriftWatch::start(&sys, Clock::system());
            watch.follow(Some(link.index));
            for (what, causes) in [
                ("ip route del 10.96.0.0/16", vec![Cause::Route]),
                ("ip -6 route flush proto 107", vec![Cause::Route]),
                // The kernel drops routes of a link that goes down, without a word for IPv4.
                (
                    "ip link set kb0 down; ip link set kb0 up",
                    vec![Cause::Link],
                ),
                (
                    "ip route add 10.99.0.0/16 dev kb0 proto 107; ip route del 10.96.0.0/16",
                    vec![Cause::Route],
                ),
            ] {
                run(what);
                loop {
                    let drift = timeout(PATIENCE, watch.next()).await.unwrap();
                    let verified = host.verify().await;
                    assert!(
                        verified.troubles.is_empty(),
                        "{what}: {:?}",
                        verified.troubles
                    );
                    if !verified.repairs.is_empty() {
                        let known = causes.iter().any(|cause| drift.causes.contains(cause));
                        assert!(
                            known || drift.causes.contains(&Cause::Period),
                            "{what}: {drift:?}"
                        );
                        break;
                    }
                }
                assert_eq!(listed(&link.name), words(&wanted), "{what}");
            }
            host.undo().await.unwrap();
        },
    );
}

#[test]
fn a_link_made_anew_has_its_routes_again() {
    on_a_machine(
        "routes::a_link_made_anew_has_its_routes_again",
        async |machine| {
            let sys = offline(&machine);
            let (mut host, link) = open(&sys).await;
            host.apply(&wish(&nets(&["10.96.0.0/16"]))).await.unwrap();
            run(&format!("ip link del {}", link.name));
            let verified = host.verify().await;
            assert!(verified.troubles.is_empty(), "{:?}", verified.troubles);
            let relinked = verified.link.unwrap();
            assert_eq!(listed(&relinked.name), ["10.96.0.0/16"]);
            host.undo().await.unwrap();
            assert_eq!(listed(&relinked.name), [""; 0]);
        },
    );
}

#[test]
fn routes_of_a_dead_session_go_with_its_link_or_by_recovery() {
    let name = "routes::routes_of_a_dead_session_go_with_its_link_or_by_recovery";
    on_a_machine(name, async |machine| {
        run(WORLD);
        let sys = offline(&machine);
        let before = kernel();
        // The device died with the session.
        let (mut host, link) = open(&sys).await;
        host.apply(&wish(&nets(&["10.60.0.0/16"]))).await.unwrap();
        drop((host, link));
        until("the end of the link", async || kernel() == before).await;
        let recovered = recover(&sys).await.unwrap();
        assert_eq!(recovered.len(), 1);
        assert_eq!(recovered[0].changes, [""; 0]);
        // Somebody, a child say, still holds the device.
        let (mut host, link) = open(&sys).await;
        host.apply(&wish(&nets(&["10.60.0.0/16", "10.61.0.0/16"])))
            .await
            .unwrap();
        drop(host);
        let recovered = recover(&sys).await.unwrap();
        assert_eq!(recovered[0].changes, ["2 routes into link kb0"]);
        assert_eq!(listed(&link.name), [""; 0]);
        assert_eq!(recover(&sys).await.unwrap(), []);
    });
}
