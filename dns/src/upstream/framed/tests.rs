//! A stream held in memory, its other end played by the test, under a clock of the test's own.

use tokio::io::{AsyncReadExt, DuplexStream, duplex};

use super::*;
use crate::test_util::{Answer, name};

/// More than the messages of a test take.
const ROOM: usize = 64 * 1024;
/// Longer than any question here waits.
const IDLE: Duration = Duration::from_secs(600);

fn connected() -> (Framed, DuplexStream) {
    let (near, far) = duplex(ROOM);
    (Framed::new(near, IDLE, tracing::Span::none()), far)
}

fn wire(text: &str) -> Wire {
    let query = OutgoingQuery::new(name(text), RecordType::A);
    Wire::new(&query, Form::PLAIN).unwrap()
}

async fn read(far: &mut DuplexStream) -> Vec<u8> {
    let length = far.read_u16().await.unwrap();
    let mut message = vec![0; usize::from(length)];
    far.read_exact(&mut message).await.unwrap();
    message
}

async fn answer(far: &mut DuplexStream, query: &[u8]) {
    let reply = Answer::address("a.test", [10, 0, 0, 1]).reply_to(query);
    far.write_all(&frame(&reply).unwrap()).await.unwrap();
}

fn is_probe(message: &[u8]) -> bool {
    message[12..] == [0, 0, 2, 0, 1]
}

#[tokio::test(start_paused = true)]
async fn a_used_connection_without_a_sign_of_life_is_given_up_after_a_second() {
    let (connection, mut far) = connected();
    let start = Instant::now();

    let got = connection.ask(&mut wire("a.test"), Age::Used).await;

    let given_up = matches!(got, Err(Failure::Stale(ExchangeError::Timeout)));
    assert!(given_up, "{got:?}");
    assert_eq!(start.elapsed(), SILENCE);
    assert!(!connection.is_open());
    assert!(!is_probe(&read(&mut far).await));
    assert!(is_probe(&read(&mut far).await), "it was asked for one");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_thinks_long_and_answers_the_probe_is_waited_for() {
    let (connection, mut far) = connected();
    let server = async {
        let query = read(&mut far).await;
        let probe = read(&mut far).await;
        assert!(is_probe(&probe));
        answer(&mut far, &probe).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        answer(&mut far, &query).await;
        far
    };

    let mut question = wire("a.test");
    let (got, _far) = tokio::join!(connection.ask(&mut question, Age::Used), server);

    got.unwrap();
    assert!(connection.is_open());
}

#[tokio::test(start_paused = true)]
async fn one_probe_is_sent_however_many_wait() {
    let (connection, mut far) = connected();
    let server = async {
        let mut queries = Vec::new();
        loop {
            let message = read(&mut far).await;
            if is_probe(&message) {
                break;
            }
            queries.push(message);
        }
        for query in &queries {
            answer(&mut far, query).await;
        }
        assert_eq!(queries.len(), 20);
        far
    };
    let mut wires: Vec<_> = (0..20).map(|_| wire("a.test")).collect();
    let asked = wires.iter_mut().map(|wire| connection.ask(wire, Age::Used));

    let (got, mut far) = tokio::join!(futures::future::join_all(asked), server);

    assert!(got.iter().all(Result::is_ok), "{got:?}");
    let more = timeout(SILENCE * 10, far.read_u8()).await;
    assert!(more.is_err(), "{more:?}");
}

#[tokio::test(start_paused = true)]
async fn a_question_given_up_early_still_leads_to_a_probe_and_its_answer_keeps_the_connection() {
    for answers in [true, false] {
        let (connection, mut far) = connected();
        let limit = Duration::from_millis(50);
        let mut question = wire("a.test");
        let asked = timeout(limit, connection.ask(&mut question, Age::Used)).await;
        assert!(asked.is_err());
        read(&mut far).await;

        let probe = read(&mut far).await;
        assert!(is_probe(&probe));
        if answers {
            answer(&mut far, &probe).await;
        }
        tokio::time::sleep(SILENCE).await;

        assert_eq!(connection.is_open(), answers);
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_answered_in_time_is_not_probed() {
    let (connection, mut far) = connected();
    for _ in 0..3 {
        let server = async {
            let query = read(&mut far).await;
            answer(&mut far, &query).await;
        };
        let mut question = wire("a.test");
        let (got, ()) = tokio::join!(connection.ask(&mut question, Age::Used), server);
        got.unwrap();
        tokio::time::sleep(PROBE_AFTER * 3).await;
    }
    let more = timeout(SILENCE * 10, far.read_u8()).await;
    assert!(more.is_err(), "{more:?}");
}
