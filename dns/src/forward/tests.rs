use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::CancellationToken;

use super::*;
use crate::message::{QueryOptions, answers, encode_query};
use crate::name::RecordType;
use crate::split::Split;
use crate::test_util::{Answer, LoopbackServer, Received, Record, ScriptedUpstream, name};
use crate::upstream::{Do53, PortPolicy, Upstream};
use crate::upstreams::{Settings, UpstreamState};

const TOTAL: Duration = Duration::from_secs(4);

fn upstream(number: u8, answer: Answer) -> Arc<ScriptedUpstream> {
    Arc::new(ScriptedUpstream::new(&format!("10.0.0.{number}")).otherwise(answer))
}

fn forwarder(upstreams: &[Arc<ScriptedUpstream>]) -> Forwarder {
    let upstreams = upstreams.iter().map(|u| Arc::clone(u) as Arc<dyn Upstream>);
    Forwarder::new(set(upstreams.collect()), TOTAL)
}

fn set(upstreams: Vec<Arc<dyn Upstream>>) -> Arc<Upstreams> {
    Upstreams::new(upstreams, Settings::default())
}

fn good(last: u8) -> Answer {
    Answer::address("a.test", [10, 1, 1, last])
}

fn query() -> Vec<u8> {
    encode_query(
        0x1234,
        &name("A.test"),
        RecordType::A,
        QueryOptions::default(),
    )
}

async fn code_of(forwarder: &Forwarder) -> ResponseCode {
    let reply = forwarder.forward(&query()).await.unwrap();
    answers(&reply).unwrap().code
}

#[tokio::test(start_paused = true)]
async fn the_first_upstream_answers_and_the_others_are_not_asked() {
    let upstreams = [upstream(1, good(1)), upstream(2, good(2))];
    let reply = forwarder(&upstreams).forward(&query()).await.unwrap();
    assert_eq!(reply, good(1).reply_to(&query()));
    assert_eq!(upstreams[0].asked_names(), ["A.test"]);
    assert_eq!(upstreams[1].asked_names(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn the_next_upstream_is_asked_after_a_failure_and_never_after_a_negative_answer() {
    use ResponseCode as Code;
    for (first, code, asked) in [
        (Answer::code(Code::SERVFAIL), Code::NOERROR, 1),
        (Answer::code(Code::REFUSED), Code::NOERROR, 1),
        (Answer::failure(), Code::NOERROR, 1),
        (Answer::silence(), Code::NOERROR, 1),
        (good(1).truncated(), Code::NOERROR, 1),
        (Answer::nxdomain("test"), Code::NXDOMAIN, 0),
        (Answer::nodata("test"), Code::NOERROR, 0),
        (Answer::code(Code::NOTIMP), Code::NOTIMP, 0),
    ] {
        let upstreams = [upstream(1, first.clone()), upstream(2, good(2))];
        assert_eq!(code_of(&forwarder(&upstreams)).await, code, "{first:?}");
        assert_eq!(upstreams[1].asked().len(), asked, "{first:?}");
    }
}

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
async fn when_all_fail_the_answer_is_servfail_within_the_total() {
    let silent: Vec<_> = (1..=9).map(|n| upstream(n, Answer::silence())).collect();
    let start = Instant::now();
    let reply = forwarder(&silent).forward(&query()).await.unwrap();

    let reply = answers(&reply).unwrap();
    assert_eq!((reply.id, reply.code), (0x1234, ResponseCode::SERVFAIL));
    assert_eq!(reply.question.unwrap().0.to_string(), "A.test");
    assert_eq!(start.elapsed(), TOTAL);
    assert!(silent.iter().all(|upstream| upstream.asked().len() == 1));
    assert_eq!(code_of(&forwarder(&[])).await, ResponseCode::SERVFAIL);
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

/// The cluster's upstreams and the others are two sets: when one is down the other does not stand in.
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

#[tokio::test(start_paused = true)]
async fn the_askers_dnssec_flags_reach_the_upstream() {
    let upstreams = [upstream(1, good(1))];
    let options = QueryOptions {
        dnssec_ok: true,
        checking_disabled: true,
        ..QueryOptions::default()
    };
    let query = encode_query(1, &name("a.test"), RecordType::DS, options);
    forwarder(&upstreams).forward(&query).await.unwrap();
    let asked = upstreams[0].asked().swap_remove(0);
    assert!(asked.dnssec_ok && asked.checking_disabled);
    assert_eq!((asked.rtype, asked.class), (RecordType::DS, 1));
}

#[tokio::test(start_paused = true)]
async fn what_is_no_query_to_forward_never_reaches_an_upstream() {
    let upstreams = [upstream(1, good(1))];
    let forwarder = forwarder(&upstreams);
    let mut response = query();
    response[2] |= 0x80;
    assert_eq!(forwarder.forward(&response).await, None);
    assert_eq!(forwarder.forward(b"short").await, None);
    let mut without_recursion = query();
    without_recursion[2] &= !0x01;
    let mut chaos = query();
    chaos[23] = 3;
    for packet in [without_recursion, chaos] {
        let reply = forwarder.forward(&packet).await.unwrap();
        assert_eq!(answers(&reply).unwrap().code, ResponseCode::REFUSED);
    }
    assert!(upstreams[0].asked().is_empty());
}

#[tokio::test(start_paused = true)]
async fn dropping_the_query_cancels_the_exchange() {
    let upstreams = [upstream(1, Answer::silence())];
    let forwarder = forwarder(&upstreams);
    let query = query();
    let waiting = tokio::time::timeout(HEDGE / 2, forwarder.forward(&query)).await;
    assert!(waiting.is_err());
    assert_eq!(upstreams[0].cancelled(), 1);
}

#[tokio::test]
async fn over_real_sockets_a_cname_chain_passes_byte_exact_and_truncation_does_not_pass() {
    let address = |n| Record::address("edge.example.net", [10, 1, n, 1]);
    let mut records = vec![
        Record::cname("a.test", "www.example.org").ttl(77),
        Record::cname("www.example.org", "edge.example.net"),
        Record::new("www.example.org", RecordType(65_280), [1, 2, 3]),
    ];
    records.extend((0..90).map(address));
    let answer = Answer::records(records);
    let server = LoopbackServer::saying(answer.clone().truncated()).await;
    let upstream = Do53::new(server.address(), PortPolicy::FreshPort);
    let forwarder = Forwarder::new(set(vec![Arc::new(upstream)]), TOTAL * 10);

    let reply = forwarder.forward(&query()).await.unwrap();

    assert_eq!(server.received().len(), 2);
    assert_eq!(reply, answer.reply_to(&query()));
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

#[tokio::test(start_paused = true)]
async fn a_trace_tells_what_each_upstream_said_and_which_were_not_needed() {
    let upstreams = [
        ScriptedUpstream::new("192.0.2.1").otherwise(Answer::silence()),
        ScriptedUpstream::new("192.0.2.2").otherwise(Answer::code(ResponseCode::SERVFAIL)),
        ScriptedUpstream::new("192.0.2.3")
            .otherwise(Answer::nxdomain("example").after(Duration::from_millis(20))),
        ScriptedUpstream::new("192.0.2.4"),
    ];
    let upstreams = upstreams.map(|one| Arc::new(one) as Arc<dyn Upstream>);
    let forwarder = Forwarder::new(set(upstreams.to_vec()), TOTAL);
    let asked = "www.example".parse().unwrap();
    let packet = encode_query(7, &asked, RecordType::A, QueryOptions::default());

    let (reply, trace) = forwarder.explain(&packet).await;

    assert_eq!(reply, forwarder.forward(&packet).await);
    let told: Vec<String> = trace
        .steps
        .iter()
        .filter(|step| step.event.upstream().is_some())
        .map(|step| {
            let upstream = step.event.upstream().unwrap();
            let took = step.event.took().unwrap_or_default().as_millis();
            format!("{upstream} {took} ms: {}", step.event.outcome())
        })
        .collect();
    assert_eq!(
        told,
        [
            "192.0.2.2 0 ms: SERVFAIL, of no use",
            "192.0.2.3 20 ms: NXDOMAIN",
            "192.0.2.4 0 ms: not asked: one before it answered",
            "192.0.2.1 320 ms: cancelled: no longer needed",
        ]
    );
    let last = trace.steps.last().unwrap();
    assert_eq!(last.event.outcome(), "NXDOMAIN, no records");
}
