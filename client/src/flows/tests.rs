mod connections;
mod flows;
mod world;

use super::*;

#[test]
fn f1_each_kind_of_failure_has_its_answer() {
    let answers = FailureKind::ALL.map(|kind| {
        let failure = kubebridge_proto::flow::Failure::from(kind);
        (kind.word(), Failure::from(failure).answer())
    });
    assert_eq!(
        answers,
        [
            ("refused", Answer::Reset),
            ("host-unreachable", Answer::HostUnreachable),
            ("network-unreachable", Answer::NetworkUnreachable),
            ("timeout", Answer::Silence),
            ("denied", Answer::Prohibited),
            ("limit", Answer::Reset),
            ("session", Answer::NetworkUnreachable),
            ("gone", Answer::Reset),
            ("internal", Answer::Reset),
        ]
    );
    assert_eq!(Failure::Full.answer(), Answer::Reset);
    assert_eq!(Failure::Down.answer(), Answer::NetworkUnreachable);
}
