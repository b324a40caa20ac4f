//! What must hold for any bytes: the properties that the fuzz targets (`dns/fuzz`) look for breaches of.
//!
//! They live here because they look at what no user of the crate sees; the committed corpus is
//! replayed through them by an ordinary test. They make no bytes up themselves.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use tokio::runtime::Runtime;
use tokio::time::Instant;

use super::name;
use crate::cache::{Dependencies, Entry, Key};
use crate::forward::Forwarder;
use crate::interpret::{Finding, Kind};
use crate::message::{
    Answer, CLASS_IN, Checked, Edns, Frame, Header, PlainQuery, Query, QueryOptions, UDP_PAYLOAD,
    answers, check, encode_query, error_reply, fit_udp, flags, flatten_addresses, push_question,
    zero_ttls,
};
use crate::name::{Name, RecordType, ResponseCode};
use crate::resolv_conf;
use crate::rewrite::{Resolution, data, no_data, no_name};
use crate::search::{Candidate, Stage};
use crate::settle::{Outcome, Settled, Spot, Verdict};
use crate::upstream::{ExchangeError, OutgoingQuery, Upstream, UpstreamSpec};
use crate::upstreams::{Settings, Upstreams};

#[cfg(test)]
mod tests;

/// A clock for what would wait, if the reply were not there at once.
static CLOCK: LazyLock<Runtime> = LazyLock::new(|| {
    let clock = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    clock.expect("a runtime that only keeps time")
});

/// The bits of the header that no reply of ours sets: Z.
const ZERO_BIT: u16 = 0x0040;
/// The longest an answer is kept.
const POSITIVE_CAP: u32 = 1800;
/// The types asked, those first that are treated in a way of their own.
const TYPES: [RecordType; 8] = [
    RecordType::A,
    RecordType::AAAA,
    RecordType::CNAME,
    RecordType::SRV,
    RecordType::PTR,
    RecordType::RRSIG,
    RecordType::HTTPS,
    RecordType(65_280),
];

/// Gives a packet from a client to the check: whatever it is, it is accepted whole, answered well, or dropped.
///
/// # Panics
///
/// Panics when that does not hold, as the others here do.
pub fn query(packet: &[u8]) {
    let plain = PlainQuery::read(packet);
    match check(packet) {
        Checked::Query(query) => {
            assert!(plain.is_none_or(|plain| plain.to_query() == query));
            let written: Name = query.name.to_string().parse().expect("a name as text");
            assert_eq!(written.as_wire(), query.name.as_wire());
            assert_eq!(query.class, CLASS_IN);
            assert!(Key::new(&query, Some(1)).as_bytes().len() > query.name.as_wire().len());
            let reply = error_reply(&query, ResponseCode::SERVFAIL);
            answers_well(packet, &reply);
            // Our own form of the question is one we take ourselves.
            let ours = encode_query(7, &query.name, query.rtype, QueryOptions::default());
            assert!(matches!(check(&ours), Checked::Query(again) if again.name == query.name));
        }
        Checked::Reply(reply) => {
            // Only for the sake of its type, which is never in the cache.
            assert!(plain.is_none_or(|plain| !TYPES.contains(&plain.rtype)));
            answers_well(packet, &reply);
        }
        Checked::Drop => {
            assert!(plain.is_none());
            let header = Header::read(packet);
            assert!(header.is_none_or(|header| header.has(flags::QR)));
        }
    }
}

/// Gives a reply of an upstream, made of these bytes, to everything that edits replies.
///
/// The first octets choose the question and make the header; the rest are the records.
///
/// # Panics
///
/// Panics when a reply of ours is malformed, too long for its asker, or shows what it must not.
pub fn reply(input: &[u8]) {
    raw(input);
    let Some((&[choice, age, high, low, answer, authority, additional], records)) =
        input.split_first_chunk()
    else {
        return;
    };
    let question = Asked::new(choice);
    let mut packet = Vec::new();
    Header {
        id: 0,
        flags: flags::QR | u16::from_be_bytes([high, low]),
        counts: [1, answer.into(), authority.into(), additional.into()],
    }
    .write(&mut packet);
    push_question(
        &mut packet,
        &question.candidate.name,
        question.query.rtype,
        CLASS_IN,
    );
    packet.extend_from_slice(records);
    raw(&packet);
    resolved(&question, &packet, Duration::from_secs(age.into()));
    forwarded(&question, packet);
}

/// Gives a file to the reader of `resolv.conf`.
///
/// # Panics
///
/// Panics when what was read cannot be written and read again.
pub fn resolv_conf(bytes: &[u8]) {
    let read = resolv_conf::parse(bytes);
    let mut text = String::new();
    for server in &read.nameservers {
        text += &format!("nameserver {server}\n");
    }
    if !read.search.is_empty() {
        let domains: Vec<String> = read.search.iter().map(Name::to_string).collect();
        text += &format!("search {}\n", domains.join(" "));
    }
    if let Some(ndots) = read.ndots {
        text += &format!("options ndots:{ndots}\n");
    }
    let again = resolv_conf::parse(text.as_bytes());
    assert_eq!(again.nameservers, read.nameservers);
    // A domain with a blank or a comment sign inside cannot be written on one line.
    if read.search.iter().all(is_plain) {
        assert_eq!(again.search, read.search);
    }
    assert_eq!(again.ndots, read.ndots);
    assert!(read.ndots.is_none_or(|ndots| ndots <= 15));
}

fn is_plain(domain: &Name) -> bool {
    let plain = |octet: &u8| octet.is_ascii_alphanumeric() || b"-_".contains(octet);
    domain.labels().flatten().all(plain)
}

/// What is asked, of whom, and by whom.
struct Asked {
    query: Query,
    candidate: Candidate,
}

impl Asked {
    fn new(choice: u8) -> Self {
        let bit = |number: u8| choice >> number & 1 == 1;
        let expanded = bit(3);
        let (asked, candidate) = if expanded {
            ("wEb", "web.default.svc.cluster.local")
        } else {
            ("wWw.Example.org", "www.example.org")
        };
        let edns = bit(4).then(|| Edns {
            udp_size: if bit(5) { 4096 } else { 0 },
            ..Edns::ours(bit(6))
        });
        let query = Query {
            id: 0x5eed,
            rd: true,
            ad: bit(7),
            cd: false,
            name: name(asked),
            rtype: TYPES[usize::from(choice & 7)],
            class: CLASS_IN,
            edns,
        };
        let candidate = Candidate {
            name: name(candidate),
            stage: Stage::First,
            expanded,
            inside: expanded,
            structural: false,
        };
        Self { query, candidate }
    }

    /// The packet this was asked with.
    fn packet(&self) -> Vec<u8> {
        let mut wire = Vec::new();
        let flags = flags::RD | if self.query.ad { flags::AD } else { 0 };
        let counts = [1, 0, 0, u16::from(self.query.edns.is_some())];
        let id = self.query.id;
        Header { id, flags, counts }.write(&mut wire);
        push_question(&mut wire, &self.query.name, self.query.rtype, CLASS_IN);
        if let Some(edns) = self.query.edns {
            edns.write(&mut wire, ResponseCode::NOERROR);
        }
        wire
    }

    fn limit(&self) -> usize {
        let size = self.query.edns.map_or(512, |edns| edns.udp_size);
        usize::from(size.clamp(512, UDP_PAYLOAD))
    }
}

/// Edits that take any bytes at all.
fn raw(bytes: &[u8]) {
    let _ = answers(bytes);
    for asker in [&b""[..], bytes] {
        let cut = fit_udp(bytes.to_vec(), asker);
        assert!(cut.len() <= bytes.len().max(Header::LENGTH));
    }
    let mut zeroed = bytes.to_vec();
    zero_ttls(&mut zeroed);
    assert_eq!(zeroed.len(), bytes.len());
}

/// The way of the engine: what the reply says, under the asked name, kept, aged, cut.
fn resolved(asked: &Asked, packet: &[u8], age: Duration) {
    let Asked { query, candidate } = asked;
    let kind = Kind {
        rtype: query.rtype,
        dnssec_ok: query.dnssec_ok(),
        checking_disabled: false,
    };
    let finding = Finding::of_reply(packet, &candidate.name, kind);
    let spot = Spot {
        candidate: 0,
        source: 0,
    };
    let outcome = finding.outcome;
    let verdict = Verdict {
        result: Settled::Failed,
        better: vec![],
        passed_over: false,
    };
    let resolution = match outcome {
        Outcome::Data => data(&query.name, candidate, finding, &verdict),
        Outcome::NoData(ttl) => no_data(&query.name, candidate, finding, ttl, &verdict),
        Outcome::NxDomain(ttl) => {
            let all = std::slice::from_ref(candidate);
            no_name(&query.name, all, spot.candidate, finding, ttl)
        }
        Outcome::Failed => Resolution::failure(true),
    };
    assert!(resolution.keep <= POSITIVE_CAP);
    let now = Instant::now();
    let asked_names = [query.name.clone(), candidate.name.clone()];
    let domain = name("cluster.local");
    let dependencies = Dependencies::new(asked_names.into_iter(), &resolution.answer, &domain);
    let entry = Entry::new(query, &resolution, dependencies, now);
    assert!(entry.size() > Header::LENGTH);
    let reply = entry.reply(query, now + age);
    answers_well(&asked.packet(), &reply);
    flattened(asked, reply.clone());
    let seen = answers(&reply).expect("a reply that reads back");
    if outcome == Outcome::Data && seen.code == ResponseCode::NOERROR {
        // A DNAME stands before the alias that it proves (RFC 6672).
        let proves = |answer: &&Answer| answer.rtype == RecordType::DNAME;
        let first = seen.answers.iter().find(|answer| !proves(answer));
        match first {
            Some(first) => assert_eq!(first.owner, query.name),
            // Signatures do not fit another name; without them there is no data, which an SOA says.
            None => assert!(candidate.expanded && seen.authority.len() == 1),
        }
    }
    fits(asked, reply);
}

/// Takes the aliases out, as a laptop does towards its own system.
fn flattened(asked: &Asked, reply: Vec<u8>) {
    let flat = flatten_addresses(reply, &asked.query);
    answers_well(&asked.packet(), &flat);
    let seen = answers(&flat).expect("a reply that reads back");
    let is_alias = |answer: &Answer| answer.rtype == RecordType::CNAME;
    // Longer chains are left alone.
    if asked.query.rtype.is_address() && seen.answers.len() <= 16 {
        assert!(!seen.answers.iter().any(is_alias));
    }
    fits(asked, flat);
}

/// The way of the forwarder: the reply's bytes with what belongs to the hop exchanged.
fn forwarded(asked: &Asked, packet: Vec<u8>) {
    let upstream = Canned {
        spec: "10.96.0.10".parse().expect("an upstream"),
        reply: packet,
    };
    let second = Duration::from_secs(1);
    let upstreams = Upstreams::new(vec![Arc::new(upstream)], Settings::default());
    // What waits beside the reply, even for nothing, wants a clock.
    let _clock = CLOCK.enter();
    let forwarder = Forwarder::new(upstreams, second);
    let question = asked.packet();
    let reply = forwarder.forward(&question).now_or_never();
    let reply = reply.expect("no wait").expect("a reply");
    answers_well(&question, &reply);
    fits(asked, reply);
}

/// Cuts a reply to its asker's size and takes its lifetimes out; both must leave a sound message.
fn fits(asked: &Asked, reply: Vec<u8>) {
    let question = asked.packet();
    let mut cut = fit_udp(reply, &question);
    assert!(cut.len() <= asked.limit(), "{} octets", cut.len());
    if Header::read(&cut).is_some_and(|header| header.counts[0] == 1) {
        answers_well(&question, &cut);
    }
    zero_ttls(&mut cut);
    let frame = Frame::read(&cut).expect("a sound message");
    let mut records = frame.records.iter();
    assert!(records.all(|record| record.rtype == RecordType::OPT || record.ttl == 0));
}

/// Checks a reply of ours against its query. Record data is not looked at: the forwarder's is as it came.
fn answers_well(query: &[u8], reply: &[u8]) {
    let frame = Frame::read(reply).expect("a sound message");
    assert_eq!(frame.end, reply.len(), "trailing bytes");
    let asked = Header::read(query).expect("a query has a header");
    assert_eq!(frame.header.id, asked.id);
    assert!(frame.header.has(flags::QR) && frame.header.has(flags::RA));
    assert!(!frame.header.has(ZERO_BIT));
    assert!(!frame.header.has(flags::AA), "nothing here is our own");
    for copied in [flags::OPCODE, flags::RD, flags::CD] {
        assert_eq!(frame.header.flags & copied, asked.flags & copied);
    }
    let opts = |frame: &Frame<'_>| {
        let records = frame.records.iter();
        records
            .filter(|record| record.rtype == RecordType::OPT)
            .count()
    };
    let sent = Frame::read(query).map_or(0, |frame| opts(&frame));
    assert_eq!(opts(&frame), sent.min(1), "one OPT exactly if one came");
    for record in &frame.records {
        frame.owner(record).expect("an owner that is a name");
    }
}

/// Says the same bytes to everything at once.
struct Canned {
    spec: UpstreamSpec,
    reply: Vec<u8>,
}

impl Upstream for Canned {
    fn spec(&self) -> &UpstreamSpec {
        &self.spec
    }

    fn exchange<'a>(
        &'a self,
        _query: &'a OutgoingQuery,
        _deadline: Instant,
    ) -> BoxFuture<'a, Result<Vec<u8>, ExchangeError>> {
        ready(Ok(self.reply.clone())).boxed()
    }
}
