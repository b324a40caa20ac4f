//! Sessions that do not come about, or are stopped: what was done is undone, and the exit says why.

use super::*;

#[tokio::test]
async fn a_failing_step_undoes_what_was_done_and_says_which() {
    let applied = Deed::Applied(routes_only());
    let table: [(&str, &str, Vec<Deed>); 6] = [
        ("take", "recover", vec![]),
        ("recover", "recover", vec![Deed::Recovered, Deed::Undone]),
        ("read dns", "read DNS", vec![Deed::Recovered, Deed::Undone]),
        (
            "read routes",
            "plan routes",
            vec![Deed::Recovered, Deed::Undone],
        ),
        (
            "open",
            "link",
            vec![Deed::Recovered, Deed::Opened, Deed::Undone],
        ),
        (
            "resolve",
            "verify",
            vec![Deed::Resolved, applied, Deed::Undone],
        ),
    ];
    for (failing, step, wanted) in table {
        let mut world = World::new(|os, config| {
            os.failing = Some(failing);
            config.hosts = HostsForm::Off;
        })
        .await;
        let task = match failing {
            "take" | "recover" | "read dns" => world.start_without_routes(),
            _ => world.start().await,
        };

        let failure = task.await.unwrap().unwrap_err();

        assert!(
            failure.to_string().starts_with(&format!("{step}: ")),
            "{failure}"
        );
        let deeds = world.os.deeds();
        assert!(deeds.ends_with(&wanted), "{failing}: {deeds:?}");
        assert!(sessions(world.os.runtime.path()).await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn resolved_is_an_error_where_it_was_demanded_and_is_not_there() {
    let mut world = World::new(|os, config| {
        os.mode = HostDnsMode::Bypassed;
        config.dns = DnsChoice::Resolved;
    })
    .await;

    let failure = world.start_without_routes().await.unwrap().unwrap_err();

    assert_eq!(failure.exit, Exit::HostOs);
    assert!(failure.hint.is_some());
}

#[tokio::test]
async fn a_signal_while_connecting_undoes_everything() {
    let mut world = World::new(|_, _| {}).await;
    // No routes: the session waits for them when the signal comes.
    let task = world.start_without_routes();
    world.script.subscribed(1).await;

    world.stop.send(Stop::Signal).await.unwrap();
    let failure = task.await.unwrap().unwrap_err();

    assert!(failure.to_string().starts_with("interrupted"), "{failure}");
    assert_eq!(world.os.deeds(), [Deed::Recovered, Deed::Undone]);
}

#[tokio::test]
async fn disconnect_returns_when_everything_is_undone() {
    let mut world = World::new(|_, config| config.hosts = HostsForm::Off).await;
    let task = world.start().await;
    world.until_state("connected").await;
    let session = sessions(world.os.runtime.path()).await.unwrap().remove(0);
    let cut = world.stop.clone();

    let mut seen = Vec::new();
    session
        .disconnect(|progress| {
            if progress == Undo::Linger.label() {
                cut.try_send(Stop::Signal).unwrap();
            }
            seen.push(progress.to_owned());
        })
        .await
        .unwrap();

    assert_eq!(world.os.deeds().last(), Some(&Deed::Undone));
    assert!(seen.contains(&Undo::Linger.label().to_owned()), "{seen:?}");
    task.await.unwrap().unwrap();
}

#[tokio::test]
async fn an_unreachable_manager_exits_69_and_leaves_nothing() {
    let mut world =
        World::new(|_, config| config.target = at("127.0.0.1:1".parse().unwrap())).await;

    let failure = world.start_without_routes().await.unwrap().unwrap_err();

    assert_eq!(failure.exit, Exit::Unreachable);
    assert_eq!(world.os.deeds(), [Deed::Recovered, Deed::Undone]);
}

#[tokio::test]
async fn a_panic_in_a_step_is_undone_and_the_exit_is_not_clean() {
    let mut world = World::new(|os, _| os.panicking = Some("resolve")).await;

    let failure = world.start().await.await.unwrap().unwrap_err();

    assert_eq!(failure.exit, Exit::Other);
    assert!(
        failure.to_string().starts_with("internal error"),
        "{failure}"
    );
    let undone = [Deed::Applied(routes_only()), Deed::Undone];
    assert!(
        world.os.deeds().ends_with(&undone),
        "{:?}",
        world.os.deeds()
    );
    assert!(sessions(world.os.runtime.path()).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_manager_that_wants_a_newer_client_is_told_of_and_nothing_is_changed() {
    let mut world = World::new(|_, _| {}).await;
    world.script.info.lock().minimum_client_version = Some("999.0.0".to_owned());

    let failure = world.start_without_routes().await.unwrap().unwrap_err();

    assert_eq!(failure.exit, Exit::Other);
    let text = failure.to_string();
    assert!(
        text.contains("999.0.0 and above") && text.contains("hint: upgrade"),
        "{text}"
    );
    assert_eq!(world.os.deeds(), [Deed::Recovered, Deed::Undone]);
}

#[tokio::test]
async fn what_the_manager_refuses_is_told_with_its_exit_code_and_nothing_is_changed() {
    let table = [
        (
            tonic::Status::invalid_argument("namespaces is \"a.b\""),
            Exit::Usage,
        ),
        (
            tonic::Status::permission_denied("no token for shop"),
            Exit::Privilege,
        ),
        (tonic::Status::unimplemented("unknown service"), Exit::Other),
        (
            tonic::Status::resource_exhausted("too many sessions"),
            Exit::Unreachable,
        ),
    ];
    for (refusal, exit) in table {
        let mut world = World::new(|_, _| {}).await;
        let said = refusal.message().to_owned();
        *world.script.refusal.lock() = Some(refusal);

        let failure = world.start_without_routes().await.unwrap().unwrap_err();

        assert_eq!(failure.exit, exit, "{said}");
        let text = failure.to_string();
        assert!(text.contains(&said) && text.contains("\nhint: "), "{text}");
        assert_eq!(text.lines().count(), 2, "{text}");
        assert_eq!(world.os.deeds(), [Deed::Recovered, Deed::Undone]);
    }
}
