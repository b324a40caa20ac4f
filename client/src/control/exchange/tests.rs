//! Queries over one stream: bounds, deadlines, tags.

use kubebridge_proto::v1::DnsFailure;
use tokio::time::Instant;

use super::*;

fn up() -> Tunnel {
    Tunnel::Up {
        seen: Instant::now(),
        round_trip: None,
    }
}

fn response(tag: u64, outcome: Outcome) -> ExchangeDnsResponse {
    ExchangeDnsResponse {
        tag,
        outcome: Some(outcome),
    }
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_that_is_down_fails_a_query_at_once() {
    let (tunnel, watched) = watch::channel(Tunnel::Down {
        since: Instant::now(),
        reason: "test".to_owned(),
    });
    let (exchange, _asks) = channel(watched, Arc::new(Notify::new()));
    let start = Instant::now();

    assert_eq!(exchange.ask(vec![1]).await, Err(AskError::TunnelDown));

    assert_eq!(start.elapsed(), Duration::ZERO);
    drop(tunnel);
}

#[tokio::test(start_paused = true)]
async fn a_query_without_reply_fails_in_two_seconds_and_raises_suspicion() {
    let (_tunnel, watched) = watch::channel(up());
    let suspicion = Arc::new(Notify::new());
    let (exchange, _asks) = channel(watched, Arc::clone(&suspicion));
    let start = Instant::now();

    assert_eq!(exchange.ask(vec![1]).await, Err(AskError::Timeout));

    assert_eq!(start.elapsed(), REPLY_TIME);
    suspicion.notified().await;
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_refuses() {
    let (_tunnel, watched) = watch::channel(up());
    let (exchange, _asks) = channel(watched, Arc::new(Notify::new()));
    let mut waiting = futures::future::join_all((0..QUEUE).map(|_| exchange.ask(vec![1])));
    assert!(futures::poll!(&mut waiting).is_pending());

    assert_eq!(exchange.ask(vec![2]).await, Err(AskError::Overloaded));

    assert_eq!(waiting.await, vec![Err(AskError::Timeout); QUEUE]);
}

#[test]
fn replies_find_their_query_by_tag_in_any_order() {
    let mut flights = Flights::default();
    let mut depart = |query| {
        let (reply, answer) = oneshot::channel();
        (flights.depart(Ask { query, reply }).tag, answer)
    };
    let (first, mut first_answer) = depart(vec![1]);
    let (second, mut second_answer) = depart(vec![2]);

    flights.land(response(second, Outcome::Reply(vec![22])));
    flights.land(response(77, Outcome::Reply(vec![77])));
    flights.land(response(
        first,
        Outcome::Failure(DnsFailure {
            reason: Reason::NotAQuery.into(),
            detail: String::new(),
        }),
    ));

    assert_eq!(second_answer.try_recv().unwrap(), Ok(vec![22]));
    assert_eq!(first_answer.try_recv().unwrap(), Err(AskError::NotAQuery));
}

#[test]
fn queries_nobody_waits_for_make_room() {
    let mut flights = Flights::default();
    let mut answers = Vec::new();
    for _ in 0..IN_FLIGHT {
        let (reply, answer) = oneshot::channel();
        flights.depart(Ask {
            query: Vec::new(),
            reply,
        });
        answers.push(answer);
    }
    assert!(!flights.has_room());

    answers.truncate(10);

    assert!(flights.has_room());
    assert_eq!(flights.by_tag.len(), 10);
}
