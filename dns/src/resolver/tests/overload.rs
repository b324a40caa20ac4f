//! More queries than can be answered (D16): what is bounded, what is shed, and what goes on.

use futures::future::join_all;

use super::*;

const LIMIT: usize = 50;

/// A world with silent upstreams but for one name, and room for a few resolutions.
fn flooded() -> World {
    let script = upstream()
        .with(SERVICE, RecordType::A, Answer::address(SERVICE, v4(1)))
        .otherwise(Answer::silence());
    World::with([script], Table::default(), |config| {
        config.in_flight_limit = LIMIT;
    })
}

fn unique(count: usize) -> Vec<String> {
    let named = |index| format!("s{index}.default.svc.cluster.local");
    (0..count).map(named).collect()
}

#[tokio::test(start_paused = true)]
async fn d16_a_flood_of_unique_names_is_all_answered_and_bounded() {
    let world = flooded();
    world.ask(SERVICE, RecordType::A).await;
    let names = unique(1000);
    let begun = Instant::now();
    let flood = join_all(names.iter().map(|one| world.ask(one, RecordType::A)));
    let watching = async {
        tokio::time::sleep(ms(1)).await;
        assert_eq!(world.upstreams[0].in_flight(), LIMIT);
        assert_eq!(world.resolver.stats().shed, 950);
        // What is cached is answered in the middle of it, without waiting.
        for _ in 0..100 {
            let reply = world.ask(SERVICE, RecordType::A).await;
            assert_eq!(reply.addresses().next(), Some(v4(1)));
        }
        assert_eq!(begun.elapsed(), ms(1));
    };
    let (replies, ()) = tokio::join!(flood, watching);
    assert!(
        replies
            .iter()
            .all(|reply| reply.code == ResponseCode::SERVFAIL)
    );
    assert_eq!(begun.elapsed(), ms(2000), "the total deadline");
    assert_eq!(world.upstreams[0].in_flight(), 0);
    assert_eq!(world.resolver.stats().waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn d16_what_was_shed_is_not_stored_and_what_failed_is() {
    let world = flooded();
    let names = unique(LIMIT + 10);
    let flood = join_all(names.iter().map(|one| world.ask(one, RecordType::A)));
    flood.await;
    // The failures of those that were asked for are kept for their second; nothing of the others is.
    assert_eq!(world.resolver.stats().cache_entries, LIMIT as u64);
    let before = world.asked().len();
    join_all(names.iter().map(|one| world.ask(one, RecordType::A))).await;
    assert_eq!(world.asked().len(), before + 10);
}

#[tokio::test(start_paused = true)]
async fn d16_a_transport_without_room_sheds_and_nothing_of_it_is_stored() {
    let upstream: Arc<dyn Upstream> = Arc::new(Crowded(upstream()));
    let resolver = Resolver::new(
        ResolverConfig::new(vec![upstream]),
        Arc::new(Table::default()),
    );
    let packet = encode_query(1, &name(SERVICE), RecordType::A, QueryOptions::default());
    let asker = Asker::new(pod());
    let reply = answers(&resolver.answer(&packet, &asker).await.unwrap()).unwrap();
    assert_eq!(reply.code, ResponseCode::SERVFAIL);
    assert_eq!(resolver.stats().cache_entries, 0);
}

/// An upstream whose sockets are all taken.
struct Crowded(ScriptedUpstream);

impl Upstream for Crowded {
    fn spec(&self) -> &crate::upstream::UpstreamSpec {
        self.0.spec()
    }

    fn exchange<'a>(
        &'a self,
        _: &'a crate::upstream::OutgoingQuery,
        _: Instant,
    ) -> futures::future::BoxFuture<'a, Result<Vec<u8>, crate::upstream::ExchangeError>> {
        Box::pin(async { Err(crate::upstream::ExchangeError::Overloaded) })
    }
}
