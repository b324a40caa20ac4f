use super::super::super::wire::EDNS_REJECTED_FOR;
use super::*;

fn has_edns(query: &Received) -> bool {
    query.message[11] == 1
}

/// A server from before EDNS: it rejects an OPT and answers without one.
fn old_server(code: ResponseCode) -> impl Fn(&Received) -> Vec<Action> + Send + Sync {
    move |query| {
        let answer = if has_edns(query) {
            Answer::code(code)
        } else {
            address()
        };
        vec![Action::Send(answer.without_edns().reply_to(&query.message))]
    }
}

#[tokio::test]
async fn our_opt_announces_1232_bytes_and_the_askers_dnssec_wish() {
    let server = LoopbackServer::saying(address()).await;
    let upstream = patient(&server, PortPolicy::FreshPort);
    let mut asked = query("a.test");
    asked.dnssec_ok = true;
    asked.checking_disabled = true;

    upstream
        .exchange(&asked, Instant::now() + LONG)
        .await
        .unwrap();

    let message = server.received().swap_remove(0).message;
    assert!(message.ends_with(b"\0\0\x29\x04\xd0\0\0\x80\0\0\0"));
    assert_eq!(message[3] & 0x10, 0x10);
}

#[tokio::test]
async fn a_server_that_rejects_edns_is_asked_without_for_five_minutes() {
    for code in [ResponseCode::FORMERR, ResponseCode::NOTIMP] {
        let server = LoopbackServer::start(old_server(code)).await;
        let upstream = patient(&server, PortPolicy::FreshPort);

        let first = ask_ok(&upstream, "a.test").await;
        ask_ok(&upstream, "a.test").await;
        tokio::time::pause();
        tokio::time::advance(EDNS_REJECTED_FOR).await;
        tokio::time::resume();
        ask_ok(&upstream, "a.test").await;

        assert_eq!(answers(&first).unwrap().code, ResponseCode::NOERROR);
        let with_edns: Vec<_> = server.received().iter().map(has_edns).collect();
        assert_eq!(with_edns, [true, false, false, true, false]);
    }
}

#[tokio::test]
async fn a_rejection_that_is_a_header_alone_counts_too() {
    let server = LoopbackServer::start(|query| {
        let mut answer = reply(query);
        if has_edns(query) {
            answer.truncate(12);
            answer[3] = 0x81;
            answer[4..12].fill(0);
        }
        vec![Action::Send(answer)]
    });
    let server = server.await;
    let upstream = patient(&server, PortPolicy::Pooled);

    ask_ok(&upstream, "a.test").await;

    assert_eq!(server.received().len(), 2);
}

#[tokio::test]
async fn a_server_that_rejects_the_question_itself_is_not_taken_for_old() {
    let rejection = Answer::code(ResponseCode::NOTIMP).without_edns();
    let server = LoopbackServer::saying(rejection).await;
    let upstream = patient(&server, PortPolicy::FreshPort);

    let got = ask_ok(&upstream, "a.test").await;
    ask_ok(&upstream, "a.test").await;

    assert_eq!(answers(&got).unwrap().code, ResponseCode::NOTIMP);
    let with_edns: Vec<_> = server.received().iter().map(has_edns).collect();
    assert_eq!(with_edns, [true, false, true, false]);
}

#[tokio::test]
async fn a_rejection_with_an_opt_is_the_answer() {
    let server = LoopbackServer::saying(Answer::code(ResponseCode::FORMERR)).await;
    let upstream = patient(&server, PortPolicy::FreshPort);
    ask_ok(&upstream, "a.test").await;
    assert_eq!(server.received().len(), 1);
}
