use std::collections::VecDeque;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::flow::budget::Budget;
use crate::flow::frame::{Credit, Frame, FrameReader};

/// One direction with a wire between its two sides.
struct Direction {
    budget: Budget,
    sender: Sender,
    receiver: Receiver,
    reader: FrameReader,
    wire: VecDeque<u8>,
    credits: VecDeque<Credit>,
    written: Vec<u8>,
    read: Vec<u8>,
}

impl Direction {
    fn new(memory: usize) -> Self {
        let budget = Budget::new(memory);
        let mut direction = Self {
            sender: Sender::new(&budget),
            receiver: Receiver::new(&budget),
            reader: FrameReader::stream(),
            wire: VecDeque::new(),
            credits: VecDeque::new(),
            written: Vec::new(),
            read: Vec::new(),
            budget,
        };
        direction.receiver.attach();
        direction.tell();
        direction
    }

    /// Sends as much as there is room for.
    fn write(&mut self, wanted: usize) {
        let count = wanted.min(self.sender.room());
        if count == 0 {
            return;
        }
        let at = self.written.len();
        let octets: Vec<u8> = (at..at + count).map(|at| (at * 31 % 251) as u8).collect();
        self.written.extend_from_slice(&octets);
        let octets = Bytes::from(octets);
        self.sender.push(octets.clone());
        self.wire.extend(Frame::Data(octets).encode());
    }

    fn finish(&mut self) {
        if !self.sender.is_finished() {
            self.sender.finish();
            self.wire.extend(Frame::Fin.encode());
        }
    }

    /// Lets so many octets of the wire arrive.
    fn arrive(&mut self, count: usize) {
        let octets: Bytes = self.wire.drain(..count.min(self.wire.len())).collect();
        self.reader.push(octets);
        while let Some(frame) = self.reader.read().unwrap() {
            match frame {
                Frame::Data(octets) => self.receiver.push(octets).unwrap(),
                Frame::Fin => self.receiver.end().unwrap(),
                Frame::Credit(_) => unreachable!("credits go the other way"),
            }
        }
    }

    /// Lets the local side take so many octets.
    fn read(&mut self, wanted: usize) {
        let mut slices = [std::io::IoSlice::new(&[]); 4];
        let filled = self.receiver.waiting(&mut slices);
        let mut taken = Vec::new();
        for slice in &slices[..filled] {
            taken.extend_from_slice(&slice[..slice.len().min(wanted - taken.len())]);
        }
        self.receiver.consume(taken.len());
        self.read.extend_from_slice(&taken);
        if self.receiver.is_at_end() {
            self.receiver.consume_end();
        }
        if self.receiver.owing() == Owing::Now {
            self.tell();
        }
    }

    fn tell(&mut self) {
        let credit = self.receiver.credit();
        self.credits.push_back(credit);
    }

    fn take_credit(&mut self) {
        if let Some(credit) = self.credits.pop_front() {
            self.sender.credit(credit).unwrap();
        }
    }

    /// Loses what is on the wire, and goes on over another one.
    fn cut(&mut self) {
        self.wire.clear();
        self.credits.clear();
        self.reader = FrameReader::stream();
        let received = self.receiver.reached();
        for piece in self.sender.resume(received).unwrap() {
            self.wire.extend(Frame::Data(piece).encode());
        }
        if self.sender.is_finished() && received < self.sender.reached() {
            self.wire.extend(Frame::Fin.encode());
        }
        self.receiver.attach();
        self.tell();
    }

    fn check_bounds(&self) {
        assert!(self.sender.replay_len() <= MOST_WINDOW);
        assert!(self.receiver.queue_len() <= MOST_WINDOW);
        assert!(self.budget.used() <= self.budget.total());
    }

    /// Lets everything arrive.
    fn settle(&mut self) {
        self.finish();
        while !self.sender.is_acknowledged() {
            self.arrive(usize::MAX);
            self.read(usize::MAX);
            if self.receiver.owing() != Owing::Nothing {
                self.tell();
            }
            self.take_credit();
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Write(usize),
    Arrive(usize),
    Read(usize),
    Credit,
    Idle,
    Finish,
    Cut,
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => prop_oneof![1_usize..10, 1_usize..100_000].prop_map(Step::Write),
        4 => prop_oneof![1_usize..10, 1_usize..100_000].prop_map(Step::Arrive),
        4 => prop_oneof![1_usize..10, 1_usize..100_000].prop_map(Step::Read),
        3 => Just(Step::Credit),
        1 => Just(Step::Idle),
        1 => Just(Step::Cut),
        1 => prop_oneof![20 => Just(Step::Write(1)), 1 => Just(Step::Finish)],
    ]
}

proptest! {
    #[test]
    fn a_direction_cut_at_any_octet_delivers_each_octet_once(
        memory in prop_oneof![Just(0), 0_usize..300_000, Just(usize::MAX / 2)],
        steps in prop::collection::vec(any_step(), 1..120),
    ) {
        let mut direction = Direction::new(memory);
        for step in steps {
            match step {
                Step::Write(count) => direction.write(count),
                Step::Arrive(count) => direction.arrive(count),
                Step::Read(count) => direction.read(count),
                Step::Credit => direction.take_credit(),
                Step::Idle => {
                    let credit = direction.receiver.idle();
                    direction.credits.extend(credit);
                }
                Step::Finish => direction.finish(),
                Step::Cut => direction.cut(),
            }
            direction.check_bounds();
        }
        direction.settle();

        prop_assert!(direction.read == direction.written);
        prop_assert!(direction.receiver.is_done());
        prop_assert_eq!(direction.sender.replay_len(), 0);
        prop_assert_eq!(direction.budget.used(), 0);
    }
}

#[test]
fn a_receiver_that_takes_nothing_stops_its_sender_at_the_first_window() {
    let mut direction = Direction::new(usize::MAX);
    direction.take_credit();
    for _ in 0..100 {
        direction.write(MOST_WINDOW);
        direction.arrive(usize::MAX);
    }
    assert_eq!(direction.written.len(), FIRST_WINDOW);
    assert_eq!(direction.sender.room(), 0);
}

#[test]
fn a_flow_that_is_used_gets_the_largest_window_and_an_idle_one_the_least() {
    let mut direction = Direction::new(usize::MAX);
    for _ in 0..40 {
        direction.write(MOST_WINDOW);
        direction.arrive(usize::MAX);
        direction.read(usize::MAX);
        direction.take_credit();
    }
    assert_eq!(direction.budget.used(), MOST_WINDOW - LEAST_WINDOW);

    let credit = direction.receiver.idle().unwrap();

    assert_eq!(credit.window as usize, LEAST_WINDOW);
    assert_eq!(direction.budget.used(), 0);
    assert_eq!(direction.receiver.idle(), None);
}

#[test]
fn without_memory_every_flow_still_has_the_least_window() {
    let mut direction = Direction::new(0);
    direction.take_credit();
    for _ in 0..10 {
        direction.write(MOST_WINDOW);
        direction.arrive(usize::MAX);
    }
    assert_eq!(direction.written.len(), LEAST_WINDOW);
    direction.settle();
    assert_eq!(direction.read.len(), LEAST_WINDOW);
}

#[test]
fn windows_shrink_when_memory_is_short() {
    let budget = Budget::new(4 * MOST_WINDOW);
    let mut receiver = Receiver::new(&budget);
    let mut others = budget.share();
    receiver.attach();
    let before = receiver.credit().window;

    assert!(others.resize(3 * MOST_WINDOW + LEAST_WINDOW));
    let after = receiver.credit().window;

    assert_eq!(
        (before as usize, after as usize),
        (FIRST_WINDOW, FIRST_WINDOW / 2)
    );
}

#[test]
fn small_writes_are_acknowledged_before_they_hold_the_sender_up() {
    let mut direction = Direction::new(usize::MAX);
    for _ in 0..10_000 {
        direction.write(1);
        direction.arrive(usize::MAX);
        direction.read(usize::MAX);
        direction.take_credit();
    }
    assert_eq!(direction.read.len(), 10_000);
}

#[test]
fn small_writes_that_nobody_takes_are_held_up() {
    let mut direction = Direction::new(usize::MAX);
    for _ in 0..10_000 {
        direction.write(1);
    }
    assert_eq!(direction.written.len(), sender::MOST_SMALL as usize);
}

#[test]
fn a_peer_that_breaks_the_rules_is_found_out() {
    let budget = Budget::new(usize::MAX);
    let mut receiver = Receiver::new(&budget);
    let much = Bytes::from(vec![0; LEAST_WINDOW]);
    assert_eq!(receiver.push(much.clone()), Ok(()));
    let one = Bytes::from_static(b"x");
    assert_eq!(receiver.push(one.clone()), Err(Violation::BeyondCredit));
    assert_eq!(receiver.end(), Ok(()));
    assert_eq!(receiver.end(), Err(Violation::AfterEnd));
    assert_eq!(receiver.push(one), Err(Violation::AfterEnd));

    let mut sender = Sender::new(&budget);
    sender.push(much);
    let end = LEAST_WINDOW as u64;
    let credit = |consumed| Credit {
        consumed,
        window: 1,
    };
    assert_eq!(sender.credit(credit(end + 1)), Err(Violation::Offset));
    assert_eq!(sender.credit(credit(end)), Ok(()));
    assert_eq!(sender.resume(end - 1), Err(Violation::Offset));
    assert_eq!(sender.resume(end + 1), Err(Violation::Offset));
    assert_eq!(sender.resume(end), Ok(vec![]));
}

#[test]
fn an_end_that_was_received_is_not_sent_again_but_counts_when_it_was_taken() {
    let budget = Budget::new(usize::MAX);
    let mut sender = Sender::new(&budget);
    sender.finish();
    assert_eq!(sender.resume(1), Ok(vec![]));
    assert!(!sender.is_acknowledged());
    let taken = Credit {
        consumed: 1,
        window: 0,
    };
    sender.credit(taken).unwrap();
    assert!(sender.is_acknowledged());
}

#[test]
fn small_pieces_cost_no_more_than_they_hold() {
    let mut chunks = Chunks::default();
    for _ in 0..100_000 {
        chunks.push(Bytes::from_static(b"abc"));
    }
    assert_eq!(chunks.len(), 300_000);
    assert!(chunks.pieces().count() <= 300_000 / (16 * 1024) + 1);
    let all: usize = chunks.shared().map(|piece| piece.len()).sum();
    assert_eq!(all, 300_000);
    chunks.advance(299_999);
    assert_eq!(chunks.pieces().collect::<Vec<_>>(), [b"c"]);
}
