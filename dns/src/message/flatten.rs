//! Takes the aliases out of an address answer, for askers who would follow them elsewhere.
//!
//! systemd-resolved looks a CNAME's target up again by itself, at the servers that its name routes
//! to, whenever one of the asked families has no record. The target of an `ExternalName` Service is
//! the cluster's to resolve.

use super::build::Builder;
use super::reply::{Record, Reply};
use super::{Edns, Header, Query, flags};
use crate::name::{Name, RecordType, ResponseCode};
use crate::rewrite::synthetic_soa;

/// The longest chain followed: longer ones are loops, or as good as.
const MAX_CHAIN: usize = 16;

/// Makes the addresses at the end of a CNAME chain those of the asked name itself.
///
/// A chain that ends without such an address becomes NODATA. Replies without a chain, to other
/// types than A and AAAA, and such as cannot be read are returned as they are.
pub fn flatten_addresses(reply: Vec<u8>, query: &Query) -> Vec<u8> {
    let is_address = query.rtype == RecordType::A || query.rtype == RecordType::AAAA;
    let read = is_address.then(|| Reply::read(&reply).ok()).flatten();
    let flat = read.and_then(|read| flattened(read, query));
    flat.unwrap_or(reply)
}

fn flattened(reply: Reply, query: &Query) -> Option<Vec<u8>> {
    let is_answer = reply.code == ResponseCode::NOERROR || reply.code == ResponseCode::NXDOMAIN;
    let target = is_answer
        .then(|| end_of_chain(&query.name, &reply.answer))
        .flatten()?;
    let mut builder = Builder::new(&query.name, query.rtype, query.class);
    let mut found = false;
    let at_end = |record: &&Record| record.rtype == query.rtype && record.owner == target;
    for record in reply.answer.iter().filter(at_end) {
        found = true;
        builder.answer(&Record {
            owner: query.name.clone(),
            ..record.clone()
        });
    }
    if !found {
        builder.authority(&synthetic_soa(&query.name, 0));
    }
    let mut wire = builder.finish()?.wire;
    let mut header = Header::read(&wire)?;
    header.id = reply.header.id;
    header.flags = reply.header.flags & !(flags::AD | flags::RCODE);
    if reply.edns.is_some() {
        header.counts[3] = 1;
        Edns::ours(query.dnssec_ok()).write(&mut wire, ResponseCode::NOERROR);
    }
    header.overwrite(&mut wire);
    Some(wire)
}

/// Follows the aliases of a name; `None` when it has none, or too many.
fn end_of_chain(asked: &Name, answer: &[Record]) -> Option<Name> {
    let next = |name: &Name| {
        let is_alias =
            |record: &&Record| record.rtype == RecordType::CNAME && record.owner == *name;
        let alias = answer.iter().find(is_alias)?;
        Name::from_wire(&alias.data).ok()
    };
    let mut end = next(asked)?;
    for _ in 0..MAX_CHAIN {
        match next(&end) {
            Some(further) => end = further,
            None => return Some(end),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Checked, Data, QueryOptions, answers, check, encode_query};
    use crate::test_util::{Answer, Record as Made, name};

    fn ask(rtype: RecordType) -> (Vec<u8>, Query) {
        let packet = encode_query(7, &name("Docs.default"), rtype, QueryOptions::default());
        match check(&packet) {
            Checked::Query(query) => (packet, query),
            other => panic!("{other:?}"),
        }
    }

    fn chain(end: Vec<Made>) -> Answer {
        let mut records = vec![
            Made::cname("docs.default", "docs.example.net"),
            Made::cname("docs.example.net", "edge.example.net"),
        ];
        records.extend(end);
        Answer::records(records)
    }

    #[test]
    fn addresses_at_the_end_of_a_chain_become_the_asked_names_own() {
        let (packet, query) = ask(RecordType::A);
        let end = vec![
            Made::address("edge.example.net", [192, 0, 2, 1]),
            Made::address("edge.example.net", [192, 0, 2, 2]),
        ];

        let flat = flatten_addresses(chain(end).reply_to(&packet), &query);

        let parsed = answers(&flat).unwrap();
        let owners: Vec<_> = parsed
            .answers
            .iter()
            .map(|one| one.owner.to_string())
            .collect();
        assert_eq!(owners, ["Docs.default", "Docs.default"]);
        assert_eq!(parsed.addresses().count(), 2);
        assert_eq!((parsed.id, parsed.code), (7, ResponseCode::NOERROR));
        assert!(parsed.edns.is_some());
    }

    #[test]
    fn a_chain_to_nothing_is_nodata_with_an_soa() {
        let (packet, query) = ask(RecordType::AAAA);
        let end = vec![Made::address("edge.example.net", [192, 0, 2, 1])];

        let flat = flatten_addresses(chain(end).reply_to(&packet), &query);

        let parsed = answers(&flat).unwrap();
        assert_eq!(parsed.code, ResponseCode::NOERROR);
        assert_eq!(parsed.answers, []);
        assert_eq!(parsed.authority[0].rtype, RecordType::SOA);
    }

    #[test]
    fn everything_else_stays_as_it_is() {
        let address = Answer::address("docs.default", [192, 0, 2, 1]);
        let circle = Answer::records(vec![
            Made::cname("docs.default", "other.default"),
            Made::cname("other.default", "docs.default"),
        ]);
        let table = [
            (RecordType::CNAME, chain(Vec::new())),
            (RecordType::A, address),
            (RecordType::A, circle),
            (RecordType::A, Answer::code(ResponseCode::SERVFAIL)),
            (RecordType::A, Answer::nxdomain("default")),
        ];
        for (rtype, answer) in table {
            let (packet, query) = ask(rtype);
            let reply = answer.reply_to(&packet);

            assert_eq!(flatten_addresses(reply.clone(), &query), reply);
        }
        let (_, query) = ask(RecordType::A);
        assert_eq!(flatten_addresses(vec![1, 2, 3], &query), [1, 2, 3]);
    }

    #[test]
    fn the_flat_answer_has_no_name_of_the_chain_in_it() {
        let (packet, query) = ask(RecordType::A);
        let end = vec![Made::address("edge.example.net", [192, 0, 2, 1])];

        let flat = flatten_addresses(chain(end).reply_to(&packet), &query);

        assert!(!flat.windows(7).any(|window| window == b"example"));
        let data: Vec<_> = answers(&flat)
            .unwrap()
            .answers
            .into_iter()
            .map(|one| one.data)
            .collect();
        assert_eq!(data, [Data::Address([192, 0, 2, 1].into())]);
    }
}
