//! Who is asked when: the order, hedging, and servers that are down.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::CancellationToken;

use super::*;
use crate::split::Split;
use crate::test_util::Received;
use crate::upstreams::UpstreamState;

#[tokio::test(start_paused = true)]
async fn the_next_upstream_is_asked_beside_a_silent_one_after_300_ms_and_may_take_its_time() {
    let slow = good(3).after(Duration::from_secs(2));
    let upstreams = [
        upstream(1, Answer::silence()),
        upstream(2, Answer::silence()),
        upstream(3, slow),
    ];
    let start = Instant::now();
    assert_eq!(code_of(&forwarder(&upstreams)).await, ResponseCode::NOERROR);
    assert_eq!(start.elapsed(), 2 * HEDGE + Duration::from_secs(2));
    for upstream in &upstreams {
        assert_eq!((upstream.asked().len(), upstream.in_flight()), (1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_upstream_still_answers_when_the_next_does_not() {
    let slow = good(1).after(Duration::from_secs(1));
    for next in [
        Answer::silence(),
        Answer::failure(),
        Answer::code(ResponseCode::SERVFAIL),
    ] {
        let upstreams = [upstream(1, slow.clone()), upstream(2, next)];
        let start = Instant::now();
        let reply = forwarder(&upstreams).forward(&query()).await.unwrap();
        assert_eq!(reply, good(1).reply_to(&query()));
        assert_eq!(start.elapsed(), Duration::from_secs(1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_costs_no_time_and_the_order_is_that_of_the_set() {
    let upstreams = [
        upstream(3, Answer::failure()),
        upstream(1, Answer::code(ResponseCode::REFUSED)),
        upstream(2, good(2)),
        upstream(4, good(4)),
    ];
    let start = Instant::now();
    let reply = forwarder(&upstreams).forward(&query()).await.unwrap();
    assert_eq!(reply, good(2).reply_to(&query()));
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert!(upstreams[3].asked().is_empty());
}

#[tokio::test(start_paused = true)]
async fn upstreams_are_asked_twice_at_most_and_only_when_none_was_reached() {
    let servfail = Answer::code(ResponseCode::SERVFAIL);
    for (answers, times) in [
        ([Answer::failure(), Answer::failure()], 2),
        ([Answer::failure(), servfail.clone()], 1),
        ([servfail, Answer::failure()], 1),
    ] {
        let upstreams = answers.map(|answer| upstream(1, answer));
        let start = Instant::now();
        assert_eq!(
            code_of(&forwarder(&upstreams)).await,
            ResponseCode::SERVFAIL
        );
        assert_eq!(start.elapsed(), PAUSE * (times - 1));
        for upstream in upstreams {
            assert_eq!(upstream.asked().len(), times as usize);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_between_two_networks_gets_its_answer_in_the_second_round() {
    let upstreams = [
        upstream(1, Answer::failure()),
        upstream(2, Answer::failure()),
    ];
    let forwarder = forwarder(&upstreams);
    let back = async {
        sleep(PAUSE / 2).await;
        upstreams[0].set_otherwise(good(1));
    };
    let (reply, ()) = tokio::join!(code_of(&forwarder), back);
    assert_eq!(reply, ResponseCode::NOERROR);
}

#[tokio::test(start_paused = true)]
async fn a_dead_upstream_is_left_out_within_a_second_and_asked_first_again_when_it_is_back() {
    let upstreams = [upstream(1, good(1)), upstream(2, good(2))];
    let forwarder = forwarder(&upstreams);
    let stop = CancellationToken::new();
    let _stop = stop.clone().drop_guard();
    let set = Arc::clone(&forwarder.upstreams);
    tokio::spawn(async move { set.run(stop).await });
    // Asks every 50 ms, and returns who answered and how long it took.
    let ask = async || {
        sleep(Duration::from_millis(50)).await;
        let start = Instant::now();
        let reply = forwarder.forward(&query()).await.unwrap();
        (reply == good(1).reply_to(&query()), start.elapsed())
    };
    assert_eq!(ask().await, (true, Duration::ZERO));

    upstreams[0].set_otherwise(Answer::silence());
    let died = Instant::now();
    loop {
        let (by_first, took) = ask().await;
        assert!(!by_first && took <= HEDGE, "{took:?}");
        if took.is_zero() {
            break;
        }
    }
    // Three silences of 300 ms, and the time between the questions.
    assert!(
        died.elapsed() <= Duration::from_millis(1200),
        "{:?}",
        died.elapsed()
    );

    upstreams[0].set_otherwise(good(1));
    let back = Instant::now();
    while !ask().await.0 {}
    assert!(
        back.elapsed() <= Duration::from_secs(1),
        "{:?}",
        back.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_negative_answer_of_a_hedge_is_an_answer() {
    let upstreams = [
        upstream(1, Answer::silence()),
        upstream(2, Answer::nxdomain("test")),
        upstream(3, good(3)),
    ];
    let start = Instant::now();
    assert_eq!(
        code_of(&forwarder(&upstreams)).await,
        ResponseCode::NXDOMAIN
    );
    assert_eq!(start.elapsed(), HEDGE);
    assert!(upstreams[2].asked().is_empty());
}

#[tokio::test(start_paused = true)]
async fn zones_and_default_upstreams_are_never_mixed() {
    let (cluster, outside) = (upstream(1, Answer::failure()), upstream(2, good(2)));
    let mut split = Split::new(forwarder(&[Arc::clone(&outside)]));
    split.insert(&name("cluster.local"), forwarder(&[Arc::clone(&cluster)]));
    let ask = async |text| {
        let asked = name(text);
        let packet = encode_query(1, &asked, RecordType::A, QueryOptions::default());
        let reply = split.route(&asked).forward(&packet).await.unwrap();
        answers(&reply).unwrap().code
    };
    for _ in 0..4 {
        assert_eq!(ask("a.cluster.local").await, ResponseCode::SERVFAIL);
    }
    assert!(outside.asked().is_empty());
    let before = cluster.asked().len();
    ask("a.test").await;
    assert_eq!((cluster.asked().len(), outside.asked().len()), (before, 1));
}

#[tokio::test]
async fn over_real_sockets_a_server_that_falls_silent_is_left_out_until_it_answers_again() {
    let silent = Arc::new(AtomicBool::new(false));
    let is_silent = Arc::clone(&silent);
    let first = LoopbackServer::start(move |query| {
        if is_silent.load(Ordering::Relaxed) {
            return vec![];
        }
        good(1).actions(query)
    });
    let servers = [first.await, LoopbackServer::saying(good(2)).await];
    let transport = |server: &LoopbackServer| -> Arc<dyn Upstream> {
        Arc::new(Do53::new(server.address(), PortPolicy::FreshPort))
    };
    let set = set(servers.iter().map(transport).collect());
    let (watched, stop) = (Arc::clone(&set), CancellationToken::new());
    let _stop = stop.clone().drop_guard();
    tokio::spawn(async move { watched.run(stop).await });
    let forwarder = Forwarder::new(Arc::clone(&set), TOTAL * 10);
    let first_answers = async || {
        let reply = forwarder.forward(&query()).await.unwrap();
        assert!(reply == good(1).reply_to(&query()) || reply == good(2).reply_to(&query()));
        reply == good(1).reply_to(&query())
    };
    let until = async |what, expected| {
        let asking = async { while first_answers().await != expected {} };
        let asked = tokio::time::timeout(Duration::from_secs(60), asking).await;
        asked.expect(what);
    };
    until("the first server's answer", true).await;

    silent.store(true, Ordering::Relaxed);
    until("the second server's answer", false).await;
    let is_down = async {
        while set.status()[0].state != UpstreamState::Unhealthy {
            first_answers().await;
        }
    };
    let down = tokio::time::timeout(Duration::from_secs(60), is_down).await;
    down.expect("the first server marked as down");
    let to_first = |packets: &[Received]| packets.iter().filter(|p| p.message[12] != 0).count();
    let asked = to_first(&servers[0].received());
    for _ in 0..20 {
        assert!(!first_answers().await);
    }
    assert_eq!(to_first(&servers[0].received()), asked);

    silent.store(false, Ordering::Relaxed);
    until("the first server's answer again", true).await;
}
