use super::*;
use crate::loops::Loops;
use crate::name::RecordType;
use crate::test_util::{Answer, ScriptedUpstream, name};
use crate::upstream::Upstream;
use crate::upstreams::{Settings, Upstreams};

const KIND: Kind = Kind {
    rtype: RecordType::A,
    dnssec_ok: false,
    checking_disabled: false,
};

fn member(answer: Answer) -> (Arc<ScriptedUpstream>, Arc<Member>) {
    let upstream = Arc::new(ScriptedUpstream::new("10.0.0.1").otherwise(answer));
    let set = vec![Arc::clone(&upstream) as Arc<dyn Upstream>];
    let member = Arc::clone(&Upstreams::new(set, Settings::default()).members()[0]);
    (upstream, member)
}

fn sending() -> Sending {
    Sending {
        loops: Loops::new(),
        origin: None,
    }
}

fn after(milliseconds: u64) -> Instant {
    Instant::now() + Duration::from_millis(milliseconds)
}

fn slow() -> Answer {
    Answer::address("web", [10, 0, 0, 1]).after(Duration::from_millis(20))
}

#[tokio::test(start_paused = true)]
async fn the_same_question_is_sent_once_and_asked_in_lower_case() {
    let (upstream, member) = member(slow());
    let sending = sending();
    let (upper, lower) = (name("WEB"), name("web"));
    let (first, second) = tokio::join!(
        member.ask(&upper, KIND, after(1000), &sending),
        member.ask(&lower, KIND, after(1000), &sending)
    );
    assert_eq!(first.unwrap(), second.unwrap());
    assert_eq!(upstream.asked_names(), ["web"]);
    assert!(member.flights().is_empty());
}

#[tokio::test(start_paused = true)]
async fn other_flags_are_another_question_and_a_later_one_is_sent_again() {
    let (upstream, member) = member(slow());
    let sending = sending();
    let web = name("web");
    let signed = Kind {
        dnssec_ok: true,
        ..KIND
    };
    let unchecked = Kind {
        checking_disabled: true,
        ..KIND
    };
    let _ = tokio::join!(
        member.ask(&web, KIND, after(1000), &sending),
        member.ask(&web, signed, after(1000), &sending),
        member.ask(&web, unchecked, after(1000), &sending),
    );
    let _ = member.ask(&web, KIND, after(1000), &sending).await;
    assert_eq!(upstream.asked().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn an_exchange_goes_on_while_somebody_waits_and_ends_with_the_last() {
    let (upstream, member) = member(slow());
    let sending = sending();
    let web = name("web");
    let impatient = tokio::time::timeout(
        Duration::from_millis(5),
        member.ask(&web, KIND, after(1000), &sending),
    );
    let (gone, patient) = tokio::join!(impatient, member.ask(&web, KIND, after(1000), &sending));
    assert!(gone.is_err() && patient.is_ok());
    assert_eq!(upstream.asked().len(), 1);
    let _ = tokio::time::timeout(
        Duration::from_millis(5),
        member.ask(&web, KIND, after(1000), &sending),
    )
    .await;
    assert_eq!((upstream.in_flight(), upstream.cancelled()), (0, 1));
    assert!(member.flights().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_joiner_has_its_own_deadline() {
    let (upstream, member) = member(Answer::silence());
    let sending = sending();
    let web = name("web");
    let begun = Instant::now();
    let leader = member.ask(&web, KIND, after(100), &sending);
    let joiner = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        member.ask(&web, KIND, after(1000), &sending).await
    };
    let _ = tokio::join!(leader, joiner);
    assert_eq!(begun.elapsed(), Duration::from_millis(1050));
    assert_eq!(upstream.asked().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_window_follows_the_round_trip_within_bounds() {
    for (round_trip, window) in [(1, 100), (50, 150), (900, 300)] {
        let (_, member) = member(Answer::nxdomain(".").after(Duration::from_millis(round_trip)));
        assert_eq!(member.window(), Duration::from_millis(100));
        let _ = member
            .ask(&name("web"), KIND, after(2000), &sending())
            .await;
        assert_eq!(member.window(), Duration::from_millis(window));
    }
}
