use super::*;
use crate::message::{QueryOptions, answers, encode_query};
use crate::name::RecordType;
use crate::test_util::{Answer, LoopbackServer, Record, ScriptedUpstream, name};
use crate::upstream::{Do53, PortPolicy, Upstream};
use crate::upstreams::Settings;

mod order;

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
    assert_eq!(upstreams[0].asked_names(), ["a.test"]);
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

/// The cluster's upstreams and the others are two sets: when one is down the other does not stand in.
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
