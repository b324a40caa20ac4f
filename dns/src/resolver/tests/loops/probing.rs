//! Upstreams that are found out by probes.

use tokio_util::task::AbortOnDropHandle;

use super::*;

/// Has the loops of a resolver looked for.
fn probe(resolver: &Arc<Resolver>) -> AbortOnDropHandle<()> {
    let run = Arc::clone(resolver.loops()).run(CancellationToken::new());
    AbortOnDropHandle::new(tokio::spawn(run))
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Waits until the first upstream is in a state, and says how long that took.
async fn until(resolver: &Arc<Resolver>, looped: bool) -> Duration {
    let begun = Instant::now();
    let mut seen = resolver.upstreams().watch();
    let is_it = |state: &Arc<[UpstreamStatus]>| (state[0].state == UpstreamState::Looped) == looped;
    let waiting = tokio::time::timeout(seconds(3600), seen.wait_for(is_it));
    let found = waiting.await.expect("the state within an hour").map(drop);
    found.unwrap();
    begun.elapsed()
}

fn zones_of(resolver: &Arc<Resolver>) -> Vec<String> {
    let status = resolver.upstreams().status();
    let zones = status[0].looped_zones.iter();
    zones.map(ToString::to_string).collect()
}

#[tokio::test(start_paused = true)]
async fn loops_05_an_upstream_is_left_out_for_the_zone_that_it_sends_back_only() {
    for (back, held) in [
        (".", ["cluster.local", "corp.example"]),
        ("corp.example", ["cluster.local", "example.org"]),
    ] {
        let dns = Mirror::new("10.96.0.10").set(|state| {
            state.zones = vec![name(back)];
            state.held = held.map(name).to_vec();
        });
        let resolver = looped(std::slice::from_ref(&dns), &[]);
        resolver
            .loops()
            .set_zones(&[name("cluster.local"), name("corp.example")]);
        let _probing = probe(&resolver);
        assert!(until(&resolver, true).await <= seconds(5));
        tokio::time::sleep(seconds(5)).await;
        assert_eq!(zones_of(&resolver), [back]);

        for zone in held {
            let asked = format!("a.b.c.d.{zone}");
            let reply = answers(&ask(&resolver, &asked).await).unwrap();
            let address = reply.addresses().next();
            assert_eq!(address, Some([192, 0, 2, 7].into()), "{asked}");
        }
        let before = dns.asked().len();
        let asked = if back == "." {
            "1.2.0.192.in-addr.arpa"
        } else {
            "a.b.c.d.corp.example"
        };
        assert_loop(&ask(&resolver, asked).await);
        assert!(
            !dns.asked_names()[..].contains(&asked.to_owned()),
            "{before}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn loops_05_two_probes_of_random_names_lie_in_each_zone_and_one_zone_a_second_is_tried() {
    let dns = Mirror::new("10.96.0.10").set(|state| state.zones.clear());
    let resolver = looped(std::slice::from_ref(&dns), &[]);
    resolver.loops().set_zones(&[name("cluster.local")]);
    let _probing = probe(&resolver);
    tokio::time::sleep(ms(900)).await;
    let asked = dns.asked();
    let types: Vec<_> = asked.iter().map(|query| query.rtype).collect();
    assert_eq!(types, [RecordType::TXT, RecordType::A]);
    assert_eq!(asked[0].name, asked[1].name);
    assert!(
        asked[0].name.labels().last().unwrap().len() > 10,
        "no name of the world"
    );
    tokio::time::sleep(ms(900)).await;
    let asked = dns.asked();
    assert_eq!(asked.len(), 4, "not expanded, not asked again");
    assert!(asked[2].name.ends_with(&name("cluster.local")));
    assert_eq!(resolver.stats().cache_entries, 0);
    assert_eq!(resolver.upstreams().status()[0].looped_zones, []);
}

#[tokio::test(start_paused = true)]
async fn loops_08_a_loop_that_appears_later_is_found_after_a_change_or_within_75_seconds() {
    let dns = Mirror::new("10.96.0.10").set(|state| {
        state.zones.clear();
        state.folds_case = true;
        state.drops_options = true;
    });
    let resolver = looped(std::slice::from_ref(&dns), &[]);
    let _probing = probe(&resolver);
    tokio::time::sleep(seconds(100)).await;
    assert_eq!(zones_of(&resolver), [""; 0]);
    dns.set(|state| state.zones.push(Name::root()));
    assert!(until(&resolver, true).await <= seconds(75));

    // With a sign: the routes of the machine changed.
    dns.set(|state| state.zones.clear());
    until(&resolver, false).await;
    tokio::time::sleep(seconds(10)).await;
    dns.set(|state| state.zones.push(Name::root()));
    resolver.loops().probe_again();
    assert!(until(&resolver, true).await <= seconds(5));
}

#[tokio::test(start_paused = true)]
async fn loops_08_a_query_that_comes_back_has_its_upstream_found_out_within_five_seconds() {
    let dns = Mirror::new("10.96.0.10").set(|state| {
        state.zones.clear();
        state.drops_options = true;
    });
    let resolver = looped(std::slice::from_ref(&dns), &[]);
    let _probing = probe(&resolver);
    tokio::time::sleep(seconds(20)).await;
    dns.set(|state| state.zones.push(Name::root()));
    assert_loop(&ask(&resolver, LONG).await);
    assert!(until(&resolver, true).await <= seconds(5));
}

#[tokio::test(start_paused = true)]
async fn loops_12_an_upstream_that_was_mended_is_back_within_five_minutes() {
    for looped_for in [1, 40, 100, 1000, 5000] {
        let dns = Mirror::new("10.96.0.10");
        let resolver = looped(std::slice::from_ref(&dns), &[]);
        let _probing = probe(&resolver);
        assert!(until(&resolver, true).await <= seconds(5));
        tokio::time::sleep(seconds(looped_for)).await;
        dns.set(|state| state.zones.clear());
        let took = until(&resolver, false).await;
        assert!(took <= seconds(301), "{looped_for}: {took:?}");
        let reply = answers(&ask(&resolver, LONG).await).unwrap();
        assert_eq!(reply.code, ResponseCode::NXDOMAIN);
        let most = usize::try_from(looped_for / 60).unwrap() + 10;
        assert!(dns.probes() <= 2 * most, "{looped_for}: {}", dns.probes());
    }
}

#[tokio::test(start_paused = true)]
async fn loops_12_silence_is_no_sign_that_an_upstream_was_mended() {
    let dns = Mirror::new("10.96.0.10");
    let resolver = looped(std::slice::from_ref(&dns), &[]);
    let _probing = probe(&resolver);
    until(&resolver, true).await;
    let silent = Arc::new(upstream().otherwise(Answer::silence()));
    resolver.set_upstreams(vec![silent]);
    tokio::time::sleep(seconds(600)).await;
    assert_eq!(zones_of(&resolver), ["."]);
}

#[tokio::test(start_paused = true)]
async fn loops_12_a_zone_that_nobody_uses_any_more_leaves_nothing_out() {
    let dns = Mirror::new("10.96.0.10").set(|state| state.zones = vec![name("corp.example")]);
    let resolver = looped(std::slice::from_ref(&dns), &[]);
    resolver.loops().set_zones(&[name("corp.example")]);
    let _probing = probe(&resolver);
    assert!(until(&resolver, true).await <= seconds(5));
    resolver.loops().set_zones(&[]);
    assert_eq!(until(&resolver, false).await, Duration::ZERO);
    tokio::time::sleep(seconds(600)).await;
    assert_eq!(zones_of(&resolver), [""; 0]);
}
