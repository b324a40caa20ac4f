//! The words of the control socket, and who may say them.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};

use kubebridge_platform::{Clock, HostError};

use super::board::{Board, Identity, Phase};
use super::client::sessions;
use super::server::{Server, remove_dead, sessions_folder};
use super::*;
use crate::session::{Ending, Health, State, Stop, Undo};
use crate::test_util::table_of;

fn board() -> Arc<Board> {
    let identity = Identity {
        session: "0a1b2c3d".to_owned(),
        manager: "127.0.0.1:7080".to_owned(),
        context: None,
        namespaces: vec!["default".to_owned(), "shop".to_owned()],
    };
    let board = Board::new(identity, Clock::fake().0);
    let (_, routes) = watch::channel(table_of(&[
        ("default", &["authors"]),
        ("shop", &["authors"]),
    ]));
    board.note(|facts| {
        facts.routes = Some(routes);
        facts.dns.found = Some("systemd-resolved by nss-resolve".to_owned());
        facts.dns.applied = true;
        facts.hosts.form = "namespaced".to_owned();
        facts.hosts.conflicts = vec![ConflictReport {
            name: "nas".to_owned(),
            reason: "resolved before the session".to_owned(),
        }];
    });
    Arc::new(board)
}

fn serve(runtime: &Path) -> (Server, Arc<Board>, mpsc::Receiver<Stop>) {
    let board = board();
    let (stop, stops) = mpsc::channel(1);
    let server = Server::start(runtime, "0a1b2c3d", Arc::clone(&board), stop).unwrap();
    (server, board, stops)
}

#[tokio::test(start_paused = true)]
async fn repairs_are_told_with_their_time_and_the_last_twenty_one_by_one() {
    let (clock, sleeper) = Clock::fake();
    let identity = Identity {
        session: "0a1b2c3d".to_owned(),
        manager: "127.0.0.1:7080".to_owned(),
        context: None,
        namespaces: vec!["default".to_owned()],
    };
    let board = Board::new(identity, clock);
    for n in 0..25 {
        board.note_verified(vec![format!("repair {n}")], Vec::new());
    }
    board.note_verified(Vec::new(), vec![HostError::NoLink]);

    sleeper.sleep(Duration::from_secs(3600));

    let repairs = board.status().repairs;
    assert_eq!((repairs.count, repairs.last.len()), (25, 20));
    assert_eq!(repairs.last[19].what, "repair 24");
    assert_eq!(repairs.last[19].ago_seconds, 3600);
    assert_eq!(repairs.troubles, ["no link is open"]);
    assert_eq!(board.status().uptime_seconds, 3600);
}

#[tokio::test]
async fn questions_about_names_wait_for_no_resolver_and_nonsense_is_refused_in_words() {
    let runtime = tempfile::tempdir().unwrap();
    let (server, _board, _stops) = serve(runtime.path());
    let ask = async |name: &str, rtype: &str| {
        let session = sessions(runtime.path()).await.unwrap().pop().unwrap();
        session
            .trace(name, rtype, false)
            .await
            .unwrap_err()
            .to_string()
    };

    let early = ask("authors", "A").await;
    assert_eq!(
        early,
        "the session refused: the session has no resolver yet"
    );
    let nonsense = ask("authors..default", "A").await;
    assert!(
        nonsense.contains("`authors..default` is no domain name"),
        "{nonsense}"
    );
    server.stop().await;
}

#[test]
fn the_text_of_a_session_names_what_a_user_looks_for() {
    let board = board();
    board.set_phase(Phase::Running(State::Connected(Health::Degraded)));

    let text = status_text(&board.status());

    for line in [
        "state             degraded, for 0 s",
        "system DNS        systemd-resolved by nss-resolve, points at the session",
        "shadowed outside  authors.shop",
        "  left alone      nas: resolved before the session",
        "routes            shop: synced, 1 services",
    ] {
        assert!(
            text.lines().any(|shown| shown == line),
            "{line}\nin\n{text}"
        );
    }
}

#[test]
fn routes_are_a_table_of_services() {
    let text = routes_text(&board().routes());

    let expected = "\
NAMESPACE  NAME     TYPE       ADDRESS    PORTS
default    authors  ClusterIP  10.96.0.7  -
shop       authors  ClusterIP  10.96.0.7  -
";
    assert_eq!(text, expected);
}

#[tokio::test]
async fn only_the_user_gets_at_the_socket() {
    let runtime = tempfile::tempdir().unwrap();
    let (_server, _board, _stops) = serve(runtime.path());

    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let folder = sessions_folder(runtime.path()).join("0a1b2c3d");

    assert_eq!(mode(&sessions_folder(runtime.path())), 0o700);
    assert_eq!(mode(&folder), 0o700);
    assert_eq!(mode(&folder.join("control.sock")), 0o600);
}

#[tokio::test]
async fn a_request_that_is_unknown_or_too_long_is_refused() {
    let runtime = tempfile::tempdir().unwrap();
    let (_server, _board, _stops) = serve(runtime.path());
    let socket = sessions_folder(runtime.path()).join("0a1b2c3d/control.sock");
    let long = format!("{}\n", "x".repeat(100_000));

    for request in [
        "{\"ask\":\"reboot\"}\n",
        "{\"ask\":\"status\",\"as\":\"root\"}\n",
        "\n",
        &long,
    ] {
        let mut stream = UnixStream::connect(&socket).await.unwrap();
        // The server may hang up before it has read all.
        let _ = stream.write_all(request.as_bytes()).await;
        let mut reply = String::new();
        let _ = stream.read_to_string(&mut reply).await;
        assert!(reply.is_empty() || reply.contains("refused"), "{reply}");
        assert!(!reply.contains("pid"), "{reply}");
    }
    let session = sessions(runtime.path()).await.unwrap().remove(0);
    assert_eq!(session.status().await.unwrap().session, "0a1b2c3d");
}

#[tokio::test]
async fn disconnect_waits_for_the_last_word() {
    let runtime = tempfile::tempdir().unwrap();
    let (server, board, mut stops) = serve(runtime.path());
    let session = sessions(runtime.path()).await.unwrap().remove(0);
    let mut seen = Vec::new();
    let asking = session.disconnect(|progress| seen.push(progress.to_owned()));
    let ending = async {
        assert_eq!(stops.recv().await, Some(Stop::Disconnect));
        let ending = Ending::Closed(Stop::Disconnect);
        board.set_phase(Phase::Running(State::Undoing(Undo::Linger, ending)));
        server.hide();
        board.set_phase(Phase::Over(Some("hosts: disk full".to_owned())));
        server.stop().await;
    };

    let (outcome, ()) = tokio::join!(asking, ending);

    assert!(outcome.unwrap_err().to_string().contains("disk full"));
    assert!(sessions(runtime.path()).await.unwrap().is_empty());
}

#[tokio::test]
async fn folders_of_dead_sessions_are_removed_and_those_of_live_ones_stay() {
    let runtime = tempfile::tempdir().unwrap();
    let (_server, _board, _stops) = serve(runtime.path());
    let half_made = sessions_folder(runtime.path()).join("deadbee0");
    std::fs::create_dir(&half_made).unwrap();
    let dead = sessions_folder(runtime.path()).join("deadbeef");
    std::fs::create_dir(&dead).unwrap();
    drop(std::os::unix::net::UnixListener::bind(dead.join("control.sock")).unwrap());

    assert_eq!(remove_dead(runtime.path()), ["deadbee0", "deadbeef"]);

    assert!(!dead.exists() && !half_made.exists());
    assert_eq!(sessions(runtime.path()).await.unwrap().len(), 1);
}
