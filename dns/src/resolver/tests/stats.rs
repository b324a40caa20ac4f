use super::*;

#[tokio::test(start_paused = true)]
async fn stats_tell_hits_from_misses_and_what_is_kept() {
    let answer = Answer::records([Record::address("a.example", v4(1))]);
    let world = World::new([upstream().with("a.example", RecordType::A, answer)]);
    for _ in 0..3 {
        world.ask("a.example.", RecordType::A).await;
    }
    let stats = world.resolver.stats();
    assert_eq!((stats.cache_hits, stats.cache_misses), (2, 1));
    assert!(stats.cache_entries >= 1 && stats.cache_bytes > 0);
    assert_eq!(stats.waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn a_new_total_holds_for_the_next_query() {
    let world = World::new([upstream().otherwise(Answer::silence())]);
    world.resolver.set_total(Duration::from_millis(300));
    let asked = Instant::now();
    let reply = world.ask("a.example.", RecordType::A).await;
    assert_eq!(reply.code, ResponseCode::SERVFAIL);
    assert_eq!(asked.elapsed(), Duration::from_millis(300));
}
