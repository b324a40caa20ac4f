//! Readers that follow random histories.

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Apply(u8, u8),
    Delete(u8),
    Reset(Vec<(u8, u8)>),
    Read(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..6u8, 0..4u8).prop_map(|(name, ip)| Step::Apply(name, ip)),
        (0..6u8).prop_map(Step::Delete),
        proptest::collection::vec((0..6u8, 0..4u8), 0..5).prop_map(Step::Reset),
        (1..4usize).prop_map(Step::Read),
    ]
}

proptest! {
    /// Whatever happens, a reader that applies what it is given holds what the index holds.
    #[test]
    fn a_reader_that_follows_ends_with_the_same_table(
        steps in proptest::collection::vec(step(), 0..60)
    ) {
        let now = Instant::now();
        let index = index_of(&["default"]);
        let make = |name: u8, ip: u8| service("default", &format!("s{name}"), &format!("10.0.0.{ip}"));
        let mut held: BTreeMap<String, ServiceRoute> = BTreeMap::new();
        let mut revision = 0;
        let mut read = |index: &Index, most| match index.since("default", revision, most) {
            Changes::Nothing => held.clone(),
            Changes::Delta { revision: next, upserts, deletes } => {
                for name in deletes {
                    assert!(held.remove(&name).is_some() || revision != next);
                }
                held.extend(upserts.iter().map(|route| (route.name.clone(), (**route).clone())));
                revision = next;
                held.clone()
            }
            Changes::Snapshot { revision: next } => {
                let (routes, _) = index.page("default", None, usize::MAX);
                held = routes.iter().map(|route| (route.name.clone(), (**route).clone())).collect();
                revision = next;
                held.clone()
            }
        };
        for step in steps {
            match step {
                Step::Apply(name, ip) => drop(index.apply(make(name, ip))),
                Step::Delete(name) => drop(index.delete("default", &format!("s{name}"), now)),
                Step::Reset(all) => {
                    let routes = all.into_iter().map(|(name, ip)| make(name, ip)).collect();
                    index.reset(&only("default"), routes, now);
                }
                Step::Read(most) => drop(read(&index, most)),
            }
        }
        // One by one, there is an end to what 60 steps did.
        (0..400).for_each(|_| drop(read(&index, 1)));
        let followed: Vec<_> = read(&index, 1).into_values().collect();
        let (_, whole) = snapshot(&index, "default");
        let text: Vec<_> =
            followed.iter().map(|route| format!("{}={}", route.name, route.cluster_ips[0])).collect();
        prop_assert_eq!(text, whole);
    }
}

/// W4: a namespace that somebody asks for while its last follower goes, and tables nobody follows
/// are dropped, is either kept or made anew, never followed without being fed.
#[test]
fn a_follower_that_comes_while_tables_are_dropped_is_told_what_follows() {
    const ROUNDS: u32 = 300;
    let index = Index::new(Served::All, 1);
    let mut now = Instant::now();
    // More tables than are kept idle, none of them idle: each look for idle ones goes over them.
    let full =
        (0..=MAX_IDLE_NAMESPACES).map(|number| service(&format!("n{number}"), "a", "10.0.0.1"));
    index.reset(&Scope::All, full.collect(), now);
    let together = std::sync::Barrier::new(2);
    let mut dropped = 0;
    for round in 1..=ROUNDS {
        let last = index.subscribe("raced", now);
        now += GONE_FOR;
        let came = std::thread::scope(|scope| {
            scope.spawn(|| {
                together.wait();
                drop(last);
                drop(index.subscribe("other", now + DROP_EVERY * 2));
            });
            let coming = scope.spawn(|| {
                together.wait();
                index.subscribe("raced", now)
            });
            coming.join().unwrap()
        });
        let held = came.borrow().revision;
        index.apply(service("raced", "a", &format!("10.0.1.{}", round % 250)));
        assert!(came.has_changed().unwrap(), "round {round}");
        assert_eq!(delta(&index, "raced", held).0, ["a"], "round {round}");
        index.delete("raced", "a", now);
        now += GONE_FOR;
        drop(came);
        // Once more without a race, so that tables are really dropped here.
        drop(index.subscribe("other", now));
        dropped += u32::from(!index.inner.lock().tables.contains_key("raced"));
    }
    assert_eq!(dropped, ROUNDS);
}
