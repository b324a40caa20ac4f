//! What is on its way to upstreams, and how it would be known again. Bounded; the time is given.
//!
//! An entry counts while its exchange lasts and for a window after it, because packets are late.
//! When the table is full, nothing more is entered, and what is not in it is not recognised.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::name::{MAX_NAME, Name, RecordType};
use crate::upstream::UpstreamSpec;

/// How long a query may still come back after its exchange ended.
pub(super) const WINDOW: Duration = Duration::from_secs(2);
/// Eight upstream queries for each of the resolutions that may be under way: some 5 MB.
const MOST: usize = 16_384;

/// The table.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    table: DashMap<Box<[u8]>, Vec<Sent>>,
    ended: Mutex<VecDeque<(Instant, Box<[u8]>)>>,
    begun: AtomicU64,
    /// How many entries there are, and how many of them have no spelling of their own.
    size: AtomicUsize,
    unspelled: AtomicUsize,
}

/// One exchange.
#[derive(Debug)]
struct Sent {
    number: u64,
    upstream: UpstreamSpec,
    /// The spelling it was sent in, if that was drawn at random.
    spelling: Option<Name>,
    /// When it stops to count, once it has ended.
    until: Option<Instant>,
    came_back: bool,
}

/// By what an entry may be known.
#[derive(Debug, Clone, Copy)]
pub(super) enum Sign<'a> {
    /// The spelling.
    Spelling(&'a Name),
    /// The address of whoever sent it to us.
    Address(IpAddr),
    /// Something else, so that all entries of the question are meant.
    Other,
}

/// The question of an entry, made without allocating.
#[derive(Debug)]
pub(super) struct Key {
    bytes: [u8; MAX_NAME + 2],
    length: usize,
}

impl Key {
    pub(super) fn new(name: &Name, rtype: RecordType) -> Self {
        let wire = name.as_wire();
        let mut bytes = [0; MAX_NAME + 2];
        bytes[..wire.len()].copy_from_slice(wire);
        bytes[..wire.len()].make_ascii_lowercase();
        let length = wire.len() + 2;
        bytes[wire.len()..length].copy_from_slice(&rtype.0.to_be_bytes());
        Self { bytes, length }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Sent {
    fn counts(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now < until)
    }

    fn is_known_by(&self, sign: Sign<'_>) -> bool {
        match (sign, &self.spelling) {
            (Sign::Spelling(seen), Some(sent)) => seen.as_wire() == sent.as_wire(),
            (Sign::Address(address), None) => {
                let server = self.upstream.address.ip().to_canonical();
                // Whoever is on loopback shares the address with every program there.
                !server.is_loopback() && server == address.to_canonical()
            }
            (Sign::Spelling(_), None) | (Sign::Address(_), Some(_)) => false,
            (Sign::Other, _) => true,
        }
    }
}

impl InFlight {
    /// Enters an exchange that begins, and numbers it; `None` when there is no room.
    pub(super) fn begin(
        &self,
        key: &Key,
        spelling: Option<Name>,
        upstream: UpstreamSpec,
        now: Instant,
    ) -> Option<u64> {
        self.forget(now);
        if self.size.load(Ordering::Relaxed) >= MOST {
            return None;
        }
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        self.count(spelling.is_none(), |count| {
            count.fetch_add(1, Ordering::Release);
        });
        let mut entries = self.table.entry(key.as_bytes().into()).or_default();
        entries.push(Sent {
            number,
            upstream,
            spelling,
            until: None,
            came_back: false,
        });
        Some(number)
    }

    /// Tells that an exchange that was entered has ended.
    pub(super) fn end(&self, key: &Key, number: u64, now: Instant) {
        let until = now + WINDOW;
        if let Some(mut entries) = self.table.get_mut(key.as_bytes()) {
            let mut ended = entries.iter_mut().filter(|sent| sent.number == number);
            ended.by_ref().for_each(|sent| sent.until = Some(until));
        }
        self.ended.lock().push_back((until, key.as_bytes().into()));
        self.forget(now);
    }

    /// Finds the upstream of what is under way or was just now, and notes that it has come back.
    pub(super) fn see(&self, key: &Key, sign: Sign<'_>, now: Instant) -> Option<UpstreamSpec> {
        let mut entries = self.table.get_mut(key.as_bytes())?;
        let mut upstream = None;
        for sent in entries.iter_mut() {
            if sent.counts(now) && sent.is_known_by(sign) {
                sent.came_back = true;
                upstream.get_or_insert_with(|| sent.upstream.clone());
            }
        }
        upstream
    }

    /// Says whether an exchange has come back.
    pub(super) fn came_back(&self, key: &Key, number: u64) -> bool {
        let entries = self.table.get(key.as_bytes());
        let is_it = |sent: &Sent| sent.number == number && sent.came_back;
        entries.is_some_and(|entries| entries.iter().any(is_it))
    }

    /// Says whether anything is known by an address only.
    pub(super) fn has_unspelled(&self) -> bool {
        self.unspelled.load(Ordering::Acquire) > 0
    }

    fn forget(&self, now: Instant) {
        let mut ended = self.ended.lock();
        while ended.front().is_some_and(|(until, _)| *until <= now) {
            let Some((_, key)) = ended.pop_front() else {
                return;
            };
            self.table.remove_if_mut(&key, |_, entries| {
                entries.retain(|sent| {
                    let stays = sent.counts(now);
                    if !stays {
                        self.count(sent.spelling.is_none(), |count| {
                            count.fetch_sub(1, Ordering::Release);
                        });
                    }
                    stays
                });
                entries.is_empty()
            });
        }
    }

    fn count(&self, unspelled: bool, change: impl Fn(&AtomicUsize)) {
        change(&self.size);
        if unspelled {
            change(&self.unspelled);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: RecordType = RecordType::A;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn key(text: &str) -> Key {
        Key::new(&name(text), A)
    }

    fn upstream(text: &str) -> UpstreamSpec {
        text.parse().unwrap()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn an_entry_counts_while_it_lasts_and_for_the_window_after() {
        let (table, start) = (InFlight::default(), Instant::now());
        let (dns, key) = (upstream("10.0.0.1"), key("a.test"));
        let number = table.begin(&key, None, dns.clone(), start).unwrap();
        let much_later = start + 10 * WINDOW;
        assert_eq!(table.see(&key, Sign::Other, much_later), Some(dns.clone()));
        table.end(&key, number, much_later);
        let last = much_later + WINDOW - Duration::from_millis(1);
        assert_eq!(table.see(&key, Sign::Other, last), Some(dns));
        assert_eq!(table.see(&key, Sign::Other, much_later + WINDOW), None);
        table.forget(much_later + WINDOW);
        assert!(!table.has_unspelled() && table.table.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn loops_10_an_entry_is_known_by_its_spelling_or_else_by_the_address() {
        let (table, now) = (InFlight::default(), Instant::now());
        let (first, second) = (upstream("10.0.0.1"), upstream("10.0.0.2"));
        let spelled = name("aBcDeF.GhIjKl.test");
        let (long, short) = (Key::new(&spelled, A), key("a.test"));
        let number = table
            .begin(&long, Some(spelled.clone()), first.clone(), now)
            .unwrap();
        table.begin(&short, None, second.clone(), now).unwrap();
        table
            .begin(&short, None, upstream("127.0.0.1:5353"), now)
            .unwrap();

        let followers = name("abcdef.ghijkl.test");
        assert_eq!(table.see(&long, Sign::Spelling(&followers), now), None);
        assert_eq!(table.see(&long, Sign::Address(ip("10.0.0.1")), now), None);
        assert!(!table.came_back(&long, number));
        assert_eq!(table.see(&long, Sign::Spelling(&spelled), now), Some(first));
        assert!(table.came_back(&long, number));

        for (from, known) in [
            ("10.0.0.2", true),
            ("::ffff:10.0.0.2", true),
            ("10.0.0.1", false),
            ("127.0.0.1", false),
        ] {
            let seen = table.see(&short, Sign::Address(ip(from)), now);
            assert_eq!(seen, known.then(|| second.clone()), "{from}");
        }
        let other_type = Key::new(&name("a.test"), RecordType::AAAA);
        assert_eq!(table.see(&other_type, Sign::Other, now), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_table_takes_no_more_until_entries_have_ended() {
        let (table, start) = (InFlight::default(), Instant::now());
        let dns = upstream("10.0.0.1");
        let begin = |text: &str, now| table.begin(&key(text), None, dns.clone(), now);
        let first = begin("a.test", start).unwrap();
        for _ in 1..MOST {
            assert!(begin("b.test", start).is_some());
        }
        assert_eq!(begin("more.test", start), None);
        table.end(&key("a.test"), first, start);
        assert_eq!(begin("more.test", start), None, "it may still come back");
        assert!(begin("more.test", start + WINDOW).is_some());
    }
}
