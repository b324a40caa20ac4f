//! Ports that are forwarded for as long as the client stays on the control socket.

use std::io;
use std::sync::Arc;

use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::net::unix::ReadHalf;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Board, Phase, Reply, send};
use crate::failure::Failure;
use crate::flows::Opener;
use crate::forward::{Forwards, Wanted};
use crate::proxy::Places;
use crate::session::State;

/// Connections that led nowhere and wait to be told of; more are not told.
const TROUBLES: usize = 16;

/// Listens and serves, or says why not.
pub(super) async fn forward(
    stream: &mut UnixStream,
    board: &Board,
    ports: &[String],
) -> io::Result<()> {
    let (forwards, opener, places) = match listen(board, ports).await {
        Ok(listening) => listening,
        Err(failure) => return send(stream, &Reply::NotChanged(failure.into())).await,
    };
    hold(stream, board, forwards, opener, places).await
}

/// Serves until the client goes away or the session ends.
async fn hold(
    stream: &mut UnixStream,
    board: &Board,
    forwards: Forwards,
    opener: Arc<dyn Opener>,
    places: Arc<dyn Places>,
) -> io::Result<()> {
    let report = forwards.report(board.session());
    send(stream, &Reply::Forward(report)).await?;
    let (tell, mut troubles) = mpsc::channel(TROUBLES);
    let over = CancellationToken::new();
    let serving = forwards.serve(opener, places, tell, over.clone());
    tokio::pin!(serving);
    let (mut reader, mut writer) = stream.split();
    // Apart from serving: a client that does not read must not hold up connections.
    let talk = async {
        loop {
            tokio::select! {
                () = gone(&mut reader) => return Ok(()),
                () = ending(board) => return send(&mut writer, &Reply::Ended(None)).await,
                Some(trouble) = troubles.recv() => {
                    send(&mut writer, &Reply::Progress(trouble)).await?;
                }
            }
        }
    };
    let outcome = tokio::select! {
        outcome = talk => outcome,
        () = &mut serving => return Ok(()),
    };
    over.cancel();
    serving.await;
    outcome
}

async fn listen(
    board: &Board,
    ports: &[String],
) -> Result<(Forwards, Arc<dyn Opener>, Arc<dyn Places>), Failure> {
    let (opener, places) = board.ways()?;
    let wanted: Result<Vec<Wanted>, String> = ports.iter().map(|text| text.parse()).collect();
    let wanted = wanted.map_err(Failure::usage)?;
    let forwards = Forwards::listen(&wanted, &*places).await?;
    Ok((forwards, opener, places))
}

/// Waits until the client has closed its end; what it says meanwhile means nothing.
async fn gone(reader: &mut ReadHalf<'_>) {
    let mut ignored = [0; 64];
    while matches!(reader.read(&mut ignored).await, Ok(1..)) {}
}

/// Waits until the session is no longer to be had.
async fn ending(board: &Board) {
    let mut phase = board.phase();
    let is_ending = |phase: &Phase| match phase {
        Phase::Running(State::Undoing(..) | State::Ended(_)) | Phase::Over(_) => true,
        Phase::Running(State::Ready | State::Connecting(..) | State::Connected(_)) => false,
    };
    // A board that is gone has no session either.
    let _ = phase.wait_for(is_ending).await;
}

#[cfg(test)]
mod tests {
    use kubebridge_platform::Clock;
    use tokio::io::{AsyncBufReadExt, BufReader};
    use tokio::net::TcpStream;

    use super::super::super::board::Identity;
    use super::*;
    use crate::session::{Ending, Stop, Undo};
    use crate::test_util::fake_cluster::{Cluster, Names, converse, program};
    use crate::test_util::within;

    async fn board_and_forwards() -> (Arc<Board>, Forwards, Arc<dyn Opener>) {
        let identity = Identity {
            session: "0a1b2c3d".to_owned(),
            manager: "127.0.0.1:7080".to_owned(),
            context: None,
            namespaces: vec!["default".to_owned()],
        };
        let board = Arc::new(Board::new(identity, Clock::fake().0));
        let wanted = ["authors.default:80=0".parse().unwrap()];
        let forwards = Forwards::listen(&wanted, &Names).await.unwrap();
        let opener = Arc::new(Cluster {
            program: program().await,
        });
        (board, forwards, opener)
    }

    async fn reply(lines: &mut BufReader<UnixStream>) -> Reply {
        let mut line = String::new();
        within("a reply", lines.read_line(&mut line)).await.unwrap();
        serde_json::from_str(&line).unwrap()
    }

    #[tokio::test]
    async fn ports_are_served_until_the_client_is_gone() {
        let (board, forwards, opener) = board_and_forwards().await;
        let (client, mut server) = UnixStream::pair().unwrap();
        let holding = async { hold(&mut server, &board, forwards, opener, Arc::new(Names)).await };
        let using = async {
            let mut client = BufReader::new(client);
            let Reply::Forward(report) = reply(&mut client).await else {
                panic!("no report");
            };
            let port = report.forwards[0].address;
            let stream = TcpStream::connect(port).await.unwrap();
            assert_eq!(converse(stream, "hello").await, "echo: hello");
            drop(client);
            port
        };
        let (held, port) = within("the end", futures::future::join(holding, using)).await;

        held.unwrap();
        assert!(TcpStream::connect(port).await.is_err());
    }

    #[tokio::test]
    async fn a_client_hears_that_the_session_ends() {
        let (board, forwards, opener) = board_and_forwards().await;
        let (client, mut server) = UnixStream::pair().unwrap();
        let holding = async { hold(&mut server, &board, forwards, opener, Arc::new(Names)).await };
        let using = async {
            let mut client = BufReader::new(client);
            assert!(matches!(reply(&mut client).await, Reply::Forward(_)));
            let ending = State::Undoing(Undo::RestoreHost, Ending::Closed(Stop::Signal));
            board.set_phase(Phase::Running(ending));
            assert_eq!(reply(&mut client).await, Reply::Ended(None));
        };
        let (held, ()) = within("the end", futures::future::join(holding, using)).await;

        held.unwrap();
    }
}
