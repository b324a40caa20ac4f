//! One stream of a data connection: a flow, the next stream of one, or an echo.

use std::future::poll_fn;
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{Method, Request, Response, StatusCode};
use kubebridge_proto::flow::{
    Attached, Credit, Datagrams, ECHO_PATH, Ended, Failure, FailureKind, Frame, How, Local, Meter,
    Open, Side, Socket, accepted, carry, carry_datagrams, echo_session, refused,
};
use tokio::time::{Instant, timeout};
use tracing::debug;

use super::Data;
use super::admit::Admitted;
use super::again::{Again, Offer};
use super::life::over;
use super::table::Known;
use crate::access::audit::flows::Closing;
use crate::dial::packets::{Packets, Pings};
use crate::egress::Dialled;

/// How long a flow of datagrams may be quiet: as NAT gateways keep them (RFC 4787 asks for more, and
/// nobody does it), and for DNS as long as a resolver waits.
const IDLE: Duration = Duration::from_secs(60);
const IDLE_DNS: Duration = Duration::from_secs(10);
const DNS: u16 = 53;

/// The longest echo: enough to fill some packets, too little to be a way to move data.
const MAX_ECHO: usize = 64 * 1024;

/// How long an echo may take.
const ECHO: Duration = Duration::from_secs(10);

/// Answers a request.
pub(super) async fn answer(data: Data, request: Request<RecvStream>, respond: SendResponse<Bytes>) {
    let is_echo = request.method() == Method::POST && request.uri().path() == ECHO_PATH;
    match Open::read(&request) {
        Ok(Some(open)) => {
            let receive = request.into_body();
            match open.resume {
                Some(received) => resume(
                    &data,
                    &open,
                    Offer {
                        receive,
                        respond,
                        received,
                    },
                ),
                None => Box::pin(serve(data, open, receive, respond)).await,
            }
        }
        Ok(None) if is_echo => {
            if let Some(session) = echo_session(&request)
                && let Err(failure) = data.session(session, Instant::now())
            {
                return refuse(&data, respond, &failure);
            }
            let _ = timeout(ECHO, echo(request.into_body(), respond)).await;
        }
        Ok(None) => {
            let mut response = Response::new(());
            *response.status_mut() = StatusCode::NOT_FOUND;
            send(respond, response);
        }
        Err(error) => {
            let failure = Failure::with_detail(FailureKind::Internal, error.to_string());
            refuse(&data, respond, &failure);
        }
    }
}

/// Hands a stream to the flow it wants to go on with.
fn resume(data: &Data, open: &Open, offer: Offer) {
    let known = data
        .shared
        .table
        .find(&open.session, open.flow, Instant::now());
    match known {
        Some(Known::Open(handover)) => {
            if let Some((offer, over)) = handover.put(offer) {
                turn_away(data, offer, over);
            }
        }
        Some(Known::Over(reached)) => late(offer, reached),
        None => gone(data, offer),
    }
}

/// Acknowledges all of a flow that is over, to a laptop that lost just that.
fn late(mut offer: Offer, reached: u64) {
    let credit = Frame::Credit(Credit {
        consumed: reached,
        window: 0,
    });
    if let Ok(mut send) = offer.respond.send_response(accepted(Some(reached)), false) {
        // A stream that is gone asks again, or does not.
        let _ = send.send_data(credit.encode(), true);
    }
}

/// Answers a laptop whose flow is over.
fn turn_away(data: &Data, offer: Offer, over: Option<u64>) {
    match over {
        Some(reached) => late(offer, reached),
        None => gone(data, offer),
    }
}

fn gone(data: &Data, offer: Offer) {
    refuse(data, offer.respond, &FailureKind::Gone.into());
}

/// The local end of a flow.
pub(super) enum End {
    Tcp(Socket),
    Udp(Packets),
    Ping(Pings),
}

async fn serve(data: Data, open: Open, receive: RecvStream, mut respond: SendResponse<Bytes>) {
    let admitted = match data.admit(&open, Instant::now()) {
        Ok(admitted) => admitted,
        Err(failure) => {
            debug!(destination = %open.destination, %failure, "flow refused");
            return refuse(&data, respond, &failure);
        }
    };
    let dialled = tokio::select! {
        dialled = dial(&data, admitted.to) => dialled,
        // The laptop gave up, or its connection is lost.
        _ = poll_fn(|context| respond.poll_reset(context)) => return,
        () = data.shared.cut.cancelled() => return,
    };
    let end = match dialled {
        Ok(end) => end,
        Err(failure) => {
            debug!(destination = %open.destination, %failure, "dial failed");
            return refuse(&data, respond, &failure);
        }
    };
    let Ok(send) = respond.send_response(accepted(None), false) else {
        return;
    };
    debug!(destination = %open.destination, flow = %open.flow, "flow open");
    run(&data, admitted, end, Attached { send, receive }).await;
}

pub(super) async fn dial(data: &Data, to: Dialled) -> Result<End, Failure> {
    let dial = &data.shared.parts.dial;
    match to {
        Dialled::Tcp(to) => dial.tcp(to).await.map(End::Tcp),
        Dialled::Udp(to) => dial.udp(to).await.map(End::Udp),
        Dialled::Ping(to) => dial.ping(to).await.map(End::Ping),
    }
}

/// Carries a flow to its end, and tells of both.
async fn run(data: &Data, admitted: Admitted, end: End, stream: Attached) {
    let Admitted {
        mut lease,
        mut slot,
        to,
        about,
    } = admitted;
    let parts = &data.shared.parts;
    let start = Instant::now();
    let counted = parts.counts.flow(to.protocol_word());
    parts.audit.flow_opened(about.line());
    let meter = Meter::default();
    let again = Again {
        handover: slot.handover.clone(),
        counts: parts.counts.clone(),
    };
    let outcome = {
        let ending = async {
            tokio::select! {
                over = over(&mut lease, about.namespace()) => over.word(),
                () = data.shared.cut.cancelled() => "shutdown",
            }
        };
        let idle = match to.port() {
            Some(DNS) => IDLE_DNS,
            Some(_) | None => IDLE,
        };
        match end {
            End::Tcp(mut local) => {
                let carrying = carry(
                    Side::Answers,
                    &mut local,
                    stream,
                    again,
                    &data.shared.memory,
                    &meter,
                );
                let outcome = until(carrying, ending).await;
                if outcome.is_err() {
                    local.abort();
                }
                outcome
            }
            End::Udp(local) => datagrams(local, stream, idle, &meter, ending).await,
            End::Ping(local) => datagrams(local, stream, idle, &meter, ending).await,
        }
    };
    let reason = match &outcome {
        Ok(ended) => word(ended.how),
        Err(word) => word,
    };
    let over = match &outcome {
        Ok(ended) if ended.how == How::Finished => Some(ended.reached),
        Ok(_) | Err(_) => None,
    };
    if let Some(reached) = over {
        slot.leave(reached);
    }
    // Who asked to go on in the meantime is told how far the flow had come.
    let waiting = slot.handover.close(over);
    drop(slot);
    if let Some(offer) = waiting {
        turn_away(data, offer, over);
    }
    counted.closed(reason, &meter);
    // The meter is seen from here: what came from the laptop went up.
    let octets = (meter.received(), meter.sent());
    parts
        .audit
        .flow_closed(about.line(), Closing::new(reason, octets, start.elapsed()));
    debug!(reason, up = octets.0, down = octets.1, "flow over");
}

async fn datagrams(
    local: impl Datagrams,
    stream: Attached,
    idle: Duration,
    meter: &Meter,
    ending: impl Future<Output = &'static str>,
) -> Result<Ended, &'static str> {
    until(carry_datagrams(local, stream, idle, meter), ending).await
}

async fn until(
    carrying: impl Future<Output = Ended>,
    ending: impl Future<Output = &'static str>,
) -> Result<Ended, &'static str> {
    tokio::select! {
        ended = carrying => Ok(ended),
        word = ending => Err(word),
    }
}

/// The word for the end of a flow in the audit log and the counters.
fn word(how: How) -> &'static str {
    match how {
        How::Finished => "finished",
        How::LocalReset => "reset-by-cluster",
        How::PeerReset => "reset-by-laptop",
        How::Lost => "lost",
        How::Broken => "broken",
        How::Idle => "idle",
        How::Refused => "refused",
    }
}

async fn echo(mut receive: RecvStream, mut respond: SendResponse<Bytes>) {
    let Ok(mut send) = respond.send_response(Response::new(()), false) else {
        return;
    };
    let mut length = 0;
    while let Some(Ok(octets)) = receive.data().await {
        length += octets.len();
        let _ = receive.flow_control().release_capacity(octets.len());
        if length > MAX_ECHO {
            return send.send_reset(Reason::ENHANCE_YOUR_CALM);
        }
        if send.send_data(octets, false).is_err() {
            return;
        }
    }
    // The connection may be lost by now.
    let _ = send.send_data(Bytes::new(), true);
}

fn refuse(data: &Data, respond: SendResponse<Bytes>, failure: &Failure) {
    data.shared.parts.counts.refused(failure.kind.word());
    send(respond, refused(failure));
}

/// Sends a response without a body. A stream that is gone needs none.
fn send(mut respond: SendResponse<Bytes>, response: Response<()>) {
    let _ = respond.send_response(response, true);
}
