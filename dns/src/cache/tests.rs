use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use proptest::prelude::*;

use super::*;
use crate::message::{CLASS_IN, Query, Record};
use crate::name::{RecordType, ResponseCode};
use crate::rewrite::Resolution;
use crate::test_util::name;

fn query(text: &str) -> Query {
    let (name, rtype) = (name(text), RecordType::A);
    Query {
        id: 1,
        rd: true,
        ad: false,
        cd: false,
        name,
        rtype,
        class: CLASS_IN,
        edns: None,
    }
}

fn path(text: &str) -> Path {
    Path::of(&name(text))
}

fn key(text: &str) -> Key {
    Key::new(&query(text), None)
}

fn entry(text: &str, keep: u32) -> Entry {
    let record = Record {
        owner: name(text),
        rtype: RecordType::A,
        class: CLASS_IN,
        ttl: keep,
        data: vec![1; 4],
    };
    let resolution = Resolution {
        answer: vec![record],
        keep,
        ..Resolution::empty(ResponseCode::NOERROR)
    };
    let asked = std::iter::once(name(text));
    Entry::new(
        &query(text),
        &resolution,
        Dependencies::new(asked, &[], &name("cluster.local")),
        Instant::now(),
    )
}

/// An answer about the first name that rests on all of them.
fn resting_on(names: &[&str], keep: u32) -> Entry {
    let asked = names.iter().map(|text| name(text));
    let resolution = Resolution {
        keep,
        ..Resolution::empty(ResponseCode::NXDOMAIN)
    };
    let dependencies = Dependencies::new(asked, &[], &name("cluster.local"));
    Entry::new(&query(names[0]), &resolution, dependencies, Instant::now())
}

async fn put(cache: &Cache, text: &str, keep: u32) {
    cache.once(&key(text), async |_| entry(text, keep)).await;
}

fn has(cache: &Cache, text: &str) -> bool {
    cache.get(&key(text), Instant::now()).is_some()
}

#[test]
fn keys_differ_by_everything_that_changes_an_answer_and_by_nothing_else() {
    let base = key("web.example");
    assert_eq!(base.as_bytes(), key("WEB.Example").as_bytes());
    let dnssec = Some(crate::message::Edns {
        udp_size: 1232,
        dnssec_ok: true,
        version: 0,
    });
    let plain = Some(crate::message::Edns {
        udp_size: 512,
        dnssec_ok: false,
        version: 0,
    });
    let same = Query {
        id: 9,
        rd: false,
        ad: true,
        edns: plain,
        ..query("web.example")
    };
    assert_eq!(base.as_bytes(), Key::new(&same, None).as_bytes());
    for other in [
        Query {
            rtype: RecordType::AAAA,
            ..query("web.example")
        },
        Query {
            class: 3,
            ..query("web.example")
        },
        Query {
            cd: true,
            ..query("web.example")
        },
        Query {
            edns: dnssec,
            ..query("web.example")
        },
        query("web.exampl"),
    ] {
        assert_ne!(base.as_bytes(), Key::new(&other, None).as_bytes());
    }
    let view = |view| Key::new(&query("web.example"), Some(view));
    assert_ne!(base.as_bytes(), view(1).as_bytes());
    assert_ne!(view(2).as_bytes(), view(1).as_bytes());
}

#[tokio::test(start_paused = true)]
async fn an_entry_is_a_miss_once_its_time_is_over() {
    let cache = Cache::new(1 << 20, 100);
    put(&cache, "web", 5).await;
    tokio::time::advance(Duration::from_millis(4999)).await;
    assert!(has(&cache, "web"));
    tokio::time::advance(Duration::from_millis(1)).await;
    assert!(!has(&cache, "web"));
    put(&cache, "web", 5).await;
    assert!(has(&cache, "web"), "an expired one is replaced");
}

#[tokio::test(start_paused = true)]
async fn one_leader_serves_all_who_wait_even_when_nothing_is_kept() {
    for keep in [0, 1, 30] {
        let cache = Cache::new(1 << 20, 100);
        let led = AtomicUsize::new(0);
        let ask = || async {
            let lead = async |_| {
                led.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(10)).await;
                entry("web", keep)
            };
            cache.once(&key("web"), lead).await
        };
        join_all((0..500).map(|_| ask())).await;
        assert_eq!(led.load(Ordering::Relaxed), 1, "keep {keep}");
        assert_eq!(has(&cache, "web"), keep > 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_leader_hands_over() {
    let cache = Cache::new(1 << 20, 100);
    let stuck = async |_| std::future::pending::<Entry>().await;
    let key = key("web");
    let leader = tokio::time::timeout(Duration::from_millis(5), cache.once(&key, stuck));
    let (leader, follower) = tokio::join!(leader, cache.once(&key, async |_| entry("web", 30)));
    assert!(leader.is_err());
    assert!(follower.is_kept());
}

#[tokio::test]
async fn bytes_and_entries_are_both_bounded() {
    for (bytes, entries) in [(1 << 20, 50), (20_000, 1_000_000)] {
        let cache = Cache::new(bytes, entries);
        for index in 0..2000 {
            put(&cache, &format!("n{index}.example"), 300).await;
        }
        assert!(cache.map.weight() <= bytes as u64);
        assert!(cache.map.len() <= entries.min(200), "{}", cache.map.len());
        assert!(cache.map.len() > 10, "{}", cache.map.len());
    }
}

/// A million names with `KUBEBRIDGE_FUZZ_CASES=1000000`.
#[tokio::test]
async fn a_flood_of_random_names_leaves_the_hot_ones() {
    let cache = Cache::new(4 << 20, 1000);
    let hot: Vec<String> = (0..200)
        .map(|index| format!("hot{index}.example"))
        .collect();
    for _ in 0..3 {
        for text in &hot {
            if !has(&cache, text) {
                put(&cache, text, 1800).await;
            }
        }
    }
    let given = std::env::var("KUBEBRIDGE_FUZZ_CASES").ok();
    let flood = given.map_or(20_000, |text| text.parse().unwrap());
    for index in 0..flood {
        put(&cache, &format!("random{index}.example"), 300).await;
        has(&cache, &hot[index % hot.len()]);
    }
    let left = hot.iter().filter(|text| has(&cache, text)).count();
    assert!(left >= 180, "{left} of 200");
}

#[tokio::test]
async fn a_purge_reaches_the_name_and_names_below_it_only() {
    let cache = Cache::new(1 << 20, 100);
    for text in [
        "db.shop.svc.cluster.local",
        "web-0.db.shop.svc.cluster.local",
        "mydb.shop.svc.cluster.local",
    ] {
        put(&cache, text, 30).await;
    }
    cache.purge(&name("DB.shop.svc.cluster.local"));
    assert!(
        !has(&cache, "db.shop.svc.cluster.local")
            && !has(&cache, "web-0.db.shop.svc.cluster.local")
    );
    assert!(has(&cache, "mydb.shop.svc.cluster.local"));
    cache.flush();
    assert!(!has(&cache, "mydb.shop.svc.cluster.local"));
}

/// What a purge by looking at every answer would leave.
fn scanned(entries: &[Arc<Entry>], purged: &Path) -> Vec<Arc<Entry>> {
    let stays = |entry: &&Arc<Entry>| !entry.dependencies().include(purged);
    entries.iter().filter(stays).cloned().collect()
}

/// What the cache holds, having checked that the index holds the same and nothing else.
fn held(cache: &Cache) -> Vec<Arc<Entry>> {
    let mut held: Vec<Arc<Entry>> = cache.map.iter().map(|(_, entry)| entry).collect();
    assert!(held.iter().all(|entry| cache.index.holds(entry)));
    let places = held.iter().map(|entry| entry.dependencies().paths().len());
    assert_eq!(cache.index.len(), places.sum::<usize>());
    held.sort_unstable_by_key(|entry| Arc::as_ptr(entry).addr());
    held
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Names of few labels, so that they meet; a cache that is too small, so that it evicts.
    #[test]
    fn the_index_purges_what_a_scan_would(
        steps in proptest::collection::vec(
            (proptest::collection::vec("([ab](\\.[abc]){0,3}|\\.)", 1..5), 0_u8..8),
            1..120,
        ),
        capacity in 4_usize..80,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let cache = Cache::new(1 << 20, capacity);
            for (names, action) in steps {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                match action {
                    0 | 1 => {
                        let before = held(&cache);
                        cache.purge(&name(names[0]));
                        let mut left = scanned(&before, &path(names[0]));
                        left.sort_unstable_by_key(|entry| Arc::as_ptr(entry).addr());
                        let now = held(&cache);
                        prop_assert!(left.len() == now.len());
                        prop_assert!(left.iter().zip(&now).all(|(one, other)| Arc::ptr_eq(one, other)));
                    }
                    2 => cache.flush(),
                    3 => {
                        let unkept = async |_| resting_on(&names, 0);
                        cache.once(&key(names[0]), unkept).await;
                    }
                    _ => {
                        let kept = async |_| resting_on(&names, 30);
                        cache.once(&key(names[0]), kept).await;
                    }
                }
                held(&cache);
            }
            Ok(())
        })?;
    }
}

#[tokio::test(start_paused = true)]
async fn an_expired_answer_leaves_the_index_when_it_is_replaced_or_thrown_out() {
    let cache = Cache::new(1 << 20, 20);
    for round in 0..3 {
        for index in 0..100 {
            put(&cache, &format!("n{index}.example"), 1 + round).await;
        }
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(held(&cache).len() <= 20);
    }
    cache.purge(&name("example"));
    assert_eq!((cache.index.len(), cache.map.len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn who_asks_after_a_flush_waits_for_no_answer_from_before_it() {
    let cache = Cache::new(1 << 20, 100);
    let key = key("web");
    let slow = async |_| {
        tokio::time::sleep(Duration::from_secs(2)).await;
        entry("web", 30)
    };
    let after = async {
        tokio::task::yield_now().await;
        cache.flush();
        let begun = Instant::now();
        cache.once(&key, async |_| entry("web", 20)).await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
    };
    tokio::join!(cache.once(&key, slow), after);
    assert_eq!(held(&cache).len(), 1, "the answer from after it");
}

#[tokio::test(start_paused = true)]
async fn more_purges_than_are_remembered_count_as_a_purge() {
    let purges = Purges::default();
    let mark = purges.mark();
    let dependencies = Dependencies::new(std::iter::once(name("a.b")), &[], &name("cluster.local"));
    purges.record(&path("c.d"));
    assert!(!purges.since(mark, &dependencies));
    purges.record(&path("b"));
    assert!(purges.since(mark, &dependencies));
    let later = purges.mark();
    (0..1025).for_each(|_| purges.record(&path("c.d")));
    assert!(purges.since(later, &dependencies));
    assert!(!purges.since(purges.mark(), &dependencies));
}

#[tokio::test(start_paused = true)]
async fn an_answer_too_large_for_dns_becomes_a_failure() {
    let record = |index: u16| Record {
        owner: name("web"),
        rtype: RecordType::TXT,
        class: CLASS_IN,
        ttl: 30,
        data: [&[200][..], &[index.to_be_bytes()[1]; 200]].concat(),
    };
    let resolution = Resolution {
        answer: (0..400).map(record).collect(),
        keep: 30,
        ..Resolution::empty(ResponseCode::NOERROR)
    };
    let entry = Entry::new(
        &query("web"),
        &resolution,
        Dependencies::default(),
        Instant::now(),
    );
    let reply = crate::message::answers(&entry.reply(&query("web"), Instant::now())).unwrap();
    assert_eq!(reply.code, ResponseCode::SERVFAIL);
}
