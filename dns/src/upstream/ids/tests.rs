use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn question() -> Question {
    let query = b"\0\0\x01\0\0\x01\0\0\0\0\0\0\x01a\0\0\x01\0\x01";
    Question::of_query(query).unwrap()
}

fn reply(id: u16) -> Vec<u8> {
    let mut reply = id.to_be_bytes().to_vec();
    reply.extend_from_slice(b"\x81\x80\0\x01\0\0\0\0\0\0\x01a\0\0\x01\0\x01");
    reply
}

/// An id that is not in use.
fn stranger(ids: &Ids) -> u16 {
    let state = ids.0.lock();
    (0..=u16::MAX)
        .find(|id| !state.uses.contains_key(id))
        .unwrap()
}

#[tokio::test]
async fn every_id_of_a_resent_query_stays_valid() {
    let ids = Ids::default();
    let now = Instant::now();
    let mut ticket = ids.open(question()).unwrap();
    let first = ticket.draw(now).unwrap();
    let second = ticket.draw(now + SECOND).unwrap();
    assert_ne!(first, second);

    let arrival = ids.arrived(&reply(first), now + 2 * SECOND);

    assert_eq!(arrival, Arrival::Delivered);
    let outcome = ticket.outcome().await;
    assert!(
        matches!(outcome, Outcome::Reply(bytes, rtt) if bytes == reply(first) && rtt == 2 * SECOND)
    );
    assert_eq!(
        ids.arrived(&reply(second), now + 2 * SECOND),
        Arrival::Ignored
    );
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_id_is_spent_for_five_seconds() {
    let ids = Ids::default();
    let now = Instant::now();
    let ticket = ids.open(question()).unwrap();
    let id = ticket.draw(now).unwrap();
    drop(ticket);

    let just_before = now + SPENT_FOR - Duration::from_millis(1);
    assert_eq!(ids.arrived(&reply(id), just_before), Arrival::Ignored);
    assert_eq!(ids.arrived(&reply(id), now + SPENT_FOR), Arrival::Stranger);
    assert!(ids.0.lock().uses.is_empty());
}

#[tokio::test]
async fn a_wrong_id_is_a_stranger_and_a_wrong_question_is_not() {
    let ids = Ids::default();
    let now = Instant::now();
    let ticket = ids.open(question()).unwrap();
    let id = ticket.draw(now).unwrap();

    let mut other_question = reply(id);
    other_question[13] = b'b';
    assert_eq!(ids.arrived(&other_question, now), Arrival::Ignored);
    assert_eq!(ids.arrived(&reply(stranger(&ids)), now), Arrival::Stranger);
    assert_eq!(ids.arrived(b"short", now), Arrival::Ignored);
    assert_eq!(ids.arrived(&reply(id), now), Arrival::Delivered);
}

#[tokio::test]
async fn closing_tells_those_who_wait_and_refuses_those_who_come() {
    let ids = Ids::default();
    let mut ticket = ids.open(question()).unwrap();
    assert!(!ids.close_if_idle());

    ids.close(Reason::Guessed);

    let outcome = ticket.outcome().await;
    assert!(matches!(outcome, Outcome::Closed(Reason::Guessed)));
    assert_eq!(ids.open(question()).unwrap_err(), Reason::Guessed);
}

#[tokio::test]
async fn the_number_of_ids_in_use_is_bounded() {
    let ids = Ids::default();
    let now = Instant::now();
    let ticket = ids.open(question()).unwrap();
    for _ in 0..MAX_IDS {
        ticket.draw(now).unwrap();
    }
    let refused = ticket.draw(now).unwrap_err();
    assert!(matches!(refused, ExchangeError::Overloaded));
    drop(ticket);
    let later = Instant::now() + SPENT_FOR;
    ids.open(question()).unwrap().draw(later).unwrap();
}

#[tokio::test]
async fn ids_are_spread_evenly_over_the_whole_space() {
    let mut buckets = [0_u32; 256];
    let draws = 102_400_u32;
    for _ in 0..draws / 1024 {
        let ids = Ids::default();
        let ticket = ids.open(question()).unwrap();
        for _ in 0..1024 {
            let id = ticket.draw(Instant::now()).unwrap();
            buckets[usize::from(id >> 8)] += 1;
        }
    }
    let expected = f64::from(draws) / 256.0;
    let deviation = |seen: &u32| (f64::from(*seen) - expected).powi(2) / expected;
    let chi_square: f64 = buckets.iter().map(deviation).sum();
    // 255 degrees of freedom: a fair source exceeds 400 once in about 10^8 runs.
    assert!(chi_square < 400.0, "{chi_square}");
}
