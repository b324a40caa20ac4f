//! Rings of several processes of ours.

use futures::future::join_all;

use super::*;

/// Resolvers that forward to each other in a circle, and the mirrors between them.
fn ring(size: usize, change: impl Fn(&mut Reflection)) -> (Vec<Arc<Resolver>>, Vec<Arc<Mirror>>) {
    let mirrors: Vec<_> = (0..size)
        .map(|number| Mirror::new(&format!("10.0.0.{}", number + 1)).set(&change))
        .collect();
    let resolvers: Vec<_> = mirrors
        .iter()
        .map(|mirror| {
            let config = ResolverConfig::new(vec![Arc::clone(mirror) as Arc<dyn Upstream>]);
            Resolver::new(config, Arc::new(Table::default()))
        })
        .collect();
    for (number, mirror) in mirrors.iter().enumerate() {
        mirror.lead_to(&resolvers[(number + 1) % size]);
    }
    (resolvers, mirrors)
}

#[tokio::test(start_paused = true)]
async fn loops_06_a_query_in_a_ring_fails_at_once_wherever_and_however_often_it_is_asked() {
    for size in [1, 2, 3, 4, 6] {
        for asked in [LONG, "www.example.org", "1.0.96.10.in-addr.arpa", "authors"] {
            let (resolvers, mirrors) = ring(size, |_| {});
            let begun = Instant::now();
            // All members at the same time: each is the other's flight.
            let replies = join_all(resolvers.iter().map(|one| ask(one, asked))).await;
            for reply in &replies {
                assert_eq!(reply[3] & 0x0f, 2, "{size} {asked}");
            }
            assert_eq!(begun.elapsed(), Duration::ZERO, "{size} {asked}");
            let candidates = if asked == "authors" { 4 } else { 1 };
            for mirror in &mirrors {
                let sent = mirror.asked_names();
                // Each member's query passes here once.
                assert!(
                    sent.len() <= size.min(4) * candidates.max(4),
                    "{size} {asked}: {sent:?}"
                );
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn loops_06_a_query_passes_four_of_our_processes_and_no_more() {
    let (resolvers, mirrors) = ring(6, |_| {});
    assert_eq!(ask(&resolvers[0], LONG).await[3] & 0x0f, 2);
    let hops: Vec<_> = mirrors
        .iter()
        .flat_map(|mirror| mirror.asked())
        .map(|query| query.origin.unwrap().hops)
        .collect();
    assert_eq!(hops, [1, 2, 3, 4]);
    let instances = mirrors.iter().flat_map(|mirror| mirror.asked());
    let instances: std::collections::BTreeSet<_> = instances
        .map(|query| query.origin.unwrap().instance)
        .collect();
    assert_eq!(instances.len(), 1, "the first one's number stays");
}

#[tokio::test(start_paused = true)]
async fn loops_06_what_another_part_of_ours_expanded_is_not_expanded_again() {
    let (resolvers, mirrors) = ring(2, |_| {});
    mirrors[1].set(|state| state.zones.clear());
    let reply = answers(&ask(&resolvers[0], "authors").await).unwrap();
    assert_eq!(reply.code, ResponseCode::NXDOMAIN);
    assert_eq!(mirrors[0].asked_names().len(), 4);
    let (mut near, mut far) = (mirrors[0].asked_names(), mirrors[1].asked_names());
    near.sort();
    far.sort();
    assert_eq!(near, far);
}

#[tokio::test(start_paused = true)]
async fn loops_06_each_ring_is_broken_by_a_member_within_five_seconds() {
    for size in [2, 3] {
        for drops_options in [false, true] {
            let (resolvers, mirrors) = ring(size, |state| state.drops_options = drops_options);
            let stop = CancellationToken::new();
            let running: Vec<_> = resolvers
                .iter()
                .map(|one| tokio::spawn(Arc::clone(one.loops()).run(stop.clone())))
                .collect();
            let broken = || {
                let statuses = resolvers.iter().map(|one| one.upstreams().status());
                statuses
                    .filter(|status| status[0].state == UpstreamState::Looped)
                    .count()
            };
            tokio::time::sleep(Duration::from_secs(5)).await;
            assert!(broken() >= 1, "{size} {drops_options}");
            let begun = Instant::now();
            for resolver in &resolvers {
                assert_eq!(ask(resolver, LONG).await[3] & 0x0f, 2);
            }
            assert_eq!(begun.elapsed(), Duration::ZERO);
            // From then on next to nothing goes round: probes only, and few of those.
            let before: usize = mirrors.iter().map(|mirror| mirror.asked().len()).sum();
            tokio::time::sleep(Duration::from_secs(600)).await;
            let after: usize = mirrors.iter().map(|mirror| mirror.asked().len()).sum();
            assert!(
                after - before < 600,
                "{size} {drops_options}: {}",
                after - before
            );
            stop.cancel();
            join_all(running).await;
        }
    }
}
