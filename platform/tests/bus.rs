//! What is said to systemd-resolved and its like, and what is made of their answers: against
//! stand-ins on a private bus. Needs dbus-daemon, but no root.
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests are not in tests for clippy"
)]

#[path = "support/fake.rs"]
mod fake;

use std::time::Duration;

use fake::{Bus, LOGIND, NETWORKD, RESOLVED, Service};
use kubebridge_platform::clock::Clock;
use kubebridge_platform::dns::DnsError;
use kubebridge_platform::dns::resolved::{Resolved, revert_leftover};
use kubebridge_platform::fault::{Faults, Trouble};
use kubebridge_platform::{Cause, DnsIntent, DriftWatch, Intent, Sys};
use tokio::time::{Instant, timeout};

/// The link of these tests: the loopback one, because it exists everywhere.
const LINK: u32 = 1;

/// No measure of anything, but the end of a wait for what never comes. The bounds themselves are
/// timers: a slow machine stretches what is between them.
const PATIENCE: Duration = Duration::from_secs(40);

const ALL: [&str; 8] = [
    "SetLinkDNSEx 198.19.248.2",
    "SetLinkDomains default.svc.cluster.local ~cluster.local ~svc ~default ~96.10.in-addr.arpa",
    "SetLinkDefaultRoute false",
    "SetLinkLLMNR no",
    "SetLinkMulticastDNS no",
    "SetLinkDNSSEC no",
    "SetLinkDNSOverTLS no",
    "FlushCaches",
];

fn strings(list: &[&str]) -> Vec<String> {
    list.iter().map(|&text| text.to_owned()).collect()
}

fn intent() -> DnsIntent {
    let dns = DnsIntent {
        servers: vec!["198.19.248.2".parse().unwrap()],
        routes: strings(&["cluster.local", "svc"]),
        namespaces: strings(&["default"]),
        search: strings(&["default.svc.cluster.local"]),
        reverse: strings(&["96.10.in-addr.arpa"]),
    };
    Intent::new(Some(dns), Vec::new()).unwrap().dns.unwrap()
}

struct Place {
    bus: Bus,
    sys: Sys,
    resolved: Service,
}

async fn place() -> Place {
    let bus = Bus::start();
    Place {
        sys: bus.sys(),
        resolved: bus.serve(RESOLVED).await,
        bus,
    }
}

impl Place {
    fn link(&self) -> Resolved {
        Resolved::new(&self.sys, "lo", LINK)
    }
}

#[tokio::test]
async fn settings_go_out_in_order_and_the_link_takes_no_other_names() {
    let place = place().await;
    let warnings = place.link().apply(&intent()).await.unwrap();
    assert_eq!(warnings, Vec::<String>::new());
    assert_eq!(place.resolved.calls(), ALL);
    assert_eq!(place.resolved.link(1).default_route, Some(false));
}

#[tokio::test]
async fn an_older_resolved_is_set_by_its_older_methods() {
    let place = place().await;
    for method in ["SetLinkDNSEx", "SetLinkDefaultRoute"] {
        let unknown = "org.freedesktop.DBus.Error.UnknownMethod";
        place.resolved.refuse(method, 1, unknown);
    }
    place.link().apply(&intent()).await.unwrap();
    let calls = place.resolved.calls();
    assert_eq!(
        calls[..2],
        ["SetLinkDNSEx refused", "SetLinkDNS 198.19.248.2"]
    );
    assert_eq!(calls[3], "SetLinkDefaultRoute refused");
}

#[tokio::test]
async fn too_many_domains_are_sent_again_without_reverse_zones() {
    let place = place().await;
    place
        .resolved
        .refuse("SetLinkDomains", 1, "System.Error.E2BIG");
    let mut link = place.link();
    let warnings = link.apply(&intent()).await.unwrap();
    assert!(warnings[0].contains("reverse zones are left out"));
    assert_eq!(
        place.resolved.calls()[1..4],
        [
            "SetLinkDomains refused",
            "SetLinkDomains",
            "SetLinkDomains default.svc.cluster.local ~cluster.local ~svc ~default",
        ]
    );
    // What could not be had is not missed: sending it again would wipe the list each time.
    assert_eq!(link.difference().await.unwrap(), None);
}

#[tokio::test]
async fn a_domain_that_turns_from_search_to_routing_makes_the_list_be_emptied_first() {
    let place = place().await;
    let mut link = place.link();
    link.apply(&intent()).await.unwrap();
    place.resolved.calls();
    let mut turned = intent();
    turned.routes.push(turned.search.pop().unwrap());
    link.apply(&turned).await.unwrap();
    let calls = place.resolved.calls();
    assert_eq!(calls[1], "SetLinkDomains");
    assert!(calls[2].contains("~default.svc.cluster.local"));
}

#[tokio::test]
async fn what_an_earlier_session_left_on_a_link_of_this_index_is_reverted_first() {
    let place = place().await;
    place.link().apply(&intent()).await.unwrap();
    place.resolved.calls();
    place.link().apply(&intent()).await.unwrap();
    let calls = place.resolved.calls();
    assert_eq!(calls[..3], ["RevertLink", "FlushCaches", ALL[0]]);
}

#[tokio::test]
async fn a_link_of_networkd_is_set_and_reverted_through_networkd() {
    let place = place().await;
    // It has settings of its own, which are to go first.
    place
        .resolved
        .state
        .lock()
        .links
        .entry(1)
        .or_default()
        .domains = vec![("x".to_owned(), true)];
    let networkd = place
        .bus
        .serve_with(NETWORKD, place.resolved.state.clone())
        .await;
    let busy = "org.freedesktop.resolve1.LinkBusy";
    place.resolved.refuse("RevertLink", usize::MAX, busy);
    place.resolved.refuse("SetLinkDNSEx", 1, busy);

    let mut link = place.link();
    link.apply(&intent()).await.unwrap();

    let calls = networkd.calls();
    assert_eq!(
        calls[..5],
        [
            "RevertLink refused",
            "RevertLinkDNS",
            "FlushCaches",
            "SetLinkDNSEx refused",
            ALL[0]
        ]
    );
    link.revert().await.unwrap();
    assert_eq!(
        networkd.calls(),
        ["RevertLink refused", "RevertLinkDNS", "FlushCaches"]
    );
    // A later process knows nothing of networkd.
    assert!(revert_leftover(&place.sys, "lo", LINK).await.unwrap());
    assert_eq!(
        networkd.calls(),
        ["RevertLink refused", "RevertLinkDNS", "FlushCaches"]
    );
}

#[tokio::test]
async fn a_busy_link_without_networkd_is_an_error() {
    let place = place().await;
    place.resolved.refuse(
        "SetLinkDNSEx",
        usize::MAX,
        "org.freedesktop.resolve1.LinkBusy",
    );
    let failed = place.link().apply(&intent()).await;
    assert!(matches!(failed, Err(DnsError::Call { .. })), "{failed:?}");
}

#[tokio::test]
async fn a_link_the_kernel_just_made_is_waited_for() {
    let place = place().await;
    place
        .resolved
        .refuse("GetLink", 3, "org.freedesktop.resolve1.NoSuchLink");
    place.link().apply(&intent()).await.unwrap();
    assert_eq!(place.resolved.calls()[3..], ALL);
}

#[tokio::test]
async fn a_link_that_is_gone_is_named_at_once_and_needs_no_revert() {
    let place = place().await;
    let gone = "org.freedesktop.resolve1.NoSuchLink";
    for method in ["GetLink", "RevertLink"] {
        place.resolved.refuse(method, usize::MAX, gone);
    }
    let mut link = Resolved::new(&place.sys, "kb0", 999_999);
    let failed = link.apply(&intent()).await;
    assert!(matches!(failed, Err(DnsError::LinkGone(_))), "{failed:?}");
    link.revert().await.unwrap();
    link.revert().await.unwrap();
}

#[tokio::test]
async fn an_index_that_another_link_has_by_now_is_left_alone() {
    let place = place().await;
    assert!(!revert_leftover(&place.sys, "kb0", LINK).await.unwrap());
    assert_eq!(place.resolved.calls(), Vec::<String>::new());
}

#[tokio::test]
async fn a_setting_that_is_not_taken_over_is_named() {
    for (method, setting) in [
        ("SetLinkDNSEx", "the servers"),
        ("SetLinkDomains", "the domains"),
    ] {
        let place = place().await;
        place.resolved.state.lock().deaf.insert(method);
        let failed = place.link().apply(&intent()).await;
        assert!(
            matches!(&failed, Err(DnsError::NotTaken { setting: found, .. }) if *found == setting),
            "{failed:?}"
        );
    }
}

#[tokio::test]
async fn a_protocol_that_cannot_be_turned_off_is_a_warning() {
    let place = place().await;
    place.resolved.refuse(
        "SetLinkDNSSEC",
        1,
        "org.freedesktop.DBus.Error.AccessDenied",
    );
    let warnings = place.link().apply(&intent()).await.unwrap();
    assert_eq!(warnings.len(), 1);
    assert!(
        warnings[0].starts_with("SetLinkDNSSEC failed"),
        "{warnings:?}"
    );
}

#[tokio::test]
async fn a_refusal_for_lack_of_privilege_is_handed_on() {
    let place = place().await;
    place
        .resolved
        .refuse("SetLinkDNSEx", 1, "org.freedesktop.DBus.Error.AccessDenied");
    let failed = place.link().apply(&intent()).await.unwrap_err();
    let source = std::error::Error::source(&failed).unwrap().to_string();
    assert!(
        source.contains("AccessDenied") || source.contains("as told"),
        "{source}"
    );
}

#[tokio::test]
async fn one_call_takes_a_second_at_most() {
    let place = place().await;
    place.resolved.state.lock().hanging.insert("SetLinkDNSEx");
    let start = Instant::now();
    let outcome = timeout(PATIENCE, place.link().apply(&intent())).await;
    assert!(outcome.expect("the call has no end").is_err());
    assert!(start.elapsed().as_millis() >= 900, "{:?}", start.elapsed());
}

#[tokio::test]
async fn all_calls_take_five_seconds_at_most() {
    let place = place().await;
    let modes = [
        "SetLinkLLMNR",
        "SetLinkMulticastDNS",
        "SetLinkDNSSEC",
        "SetLinkDNSOverTLS",
    ];
    place.resolved.state.lock().hanging.extend(modes);
    place.resolved.state.lock().hanging.insert("FlushCaches");
    let start = Instant::now();
    let failed = timeout(PATIENCE, place.link().apply(&intent())).await;
    let failed = failed.expect("the calls have no end");
    assert!(
        matches!(failed, Err(DnsError::Timeout { .. })),
        "{failed:?}"
    );
    assert!(start.elapsed().as_millis() >= 4900, "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_resolved_that_does_not_run_is_neither_started_nor_an_error_to_undo() {
    let bus = Bus::start();
    let sys = bus.sys();
    let mut link = Resolved::new(&sys, "lo", LINK);
    assert!(matches!(
        link.apply(&intent()).await,
        Err(DnsError::NotRunning)
    ));
    assert!(matches!(link.difference().await, Err(DnsError::NotRunning)));
    link.revert().await.unwrap();
    assert!(revert_leftover(&sys, "lo", LINK).await.is_ok());
}

#[tokio::test]
async fn a_difference_is_named_and_nothing_is_sent_when_there_is_none() {
    let place = place().await;
    let mut link = place.link();
    link.apply(&intent()).await.unwrap();
    place.resolved.calls();
    assert_eq!(link.difference().await.unwrap(), None);
    assert_eq!(place.resolved.calls(), Vec::<String>::new());

    place
        .resolved
        .state
        .lock()
        .links
        .get_mut(&1)
        .unwrap()
        .default_route = Some(true);
    assert_eq!(link.difference().await.unwrap(), Some("the default route"));
    place
        .resolved
        .state
        .lock()
        .links
        .get_mut(&1)
        .unwrap()
        .servers[0]
        .2 = 5399;
    assert_eq!(link.difference().await.unwrap(), Some("the servers"));
    place.resolved.revert_by_someone_else(1).await;
    assert_eq!(link.difference().await.unwrap(), Some("the servers"));
}

#[tokio::test]
async fn dying_at_any_call_leaves_what_one_revert_takes_back() {
    let counting = Faults::none_but_count();
    let place = place().await;
    let sys = |faults: &Faults| Sys {
        faults: faults.clone(),
        ..place.sys.clone()
    };
    Resolved::new(&sys(&counting), "lo", LINK)
        .apply(&intent())
        .await
        .unwrap();
    let steps = counting.steps().len();
    assert!(steps >= 10, "{:?}", counting.steps());
    for step in 0..steps {
        place.resolved.state.lock().links.clear();
        let faults = Faults::at(step, Trouble::Death);
        // Only flushing the cache may fail without notice.
        drop(
            Resolved::new(&sys(&faults), "lo", LINK)
                .apply(&intent())
                .await,
        );
        assert!(revert_leftover(&place.sys, "lo", LINK).await.unwrap());
        assert!(place.resolved.state.lock().links.is_empty(), "{step}");
    }
}

/// Waits for a cause. On a slow machine what belongs together may come as two drifts, and two
/// things as one.
async fn until(watch: &mut DriftWatch, wanted: Cause) {
    let coming = async { while !watch.next().await.causes.contains(&wanted) {} };
    let came = timeout(PATIENCE, coming).await;
    assert!(came.is_ok(), "{wanted:?} is not noticed");
}

#[tokio::test]
async fn resolveds_end_and_start_its_settings_and_waking_are_noticed() {
    let place = place().await;
    let logind = place.bus.serve(LOGIND).await;
    let mut watch = DriftWatch::start(&place.sys, Clock::fake().0);
    watch.ready().await;

    place.resolved.revert_by_someone_else(1).await;
    until(&mut watch, Cause::DnsSettings).await;
    logind.prepare_for_sleep(true).await;
    logind.prepare_for_sleep(false).await;
    until(&mut watch, Cause::Woke).await;

    let state = place.resolved.stop().await;
    until(&mut watch, Cause::ResolvedEnded).await;
    let _resolved = place.bus.serve_with(RESOLVED, state).await;
    until(&mut watch, Cause::ResolvedStarted).await;
}

#[tokio::test]
async fn a_bus_that_ends_and_comes_back_is_listened_to_again() {
    let bus = Bus::start();
    let sys = bus.sys();
    let _resolved = bus.serve(RESOLVED).await;
    let mut watch = DriftWatch::start(&sys, Clock::fake().0);
    watch.ready().await;
    let bus = bus.restart();
    until(&mut watch, Cause::ResolvedEnded).await;
    until(&mut watch, Cause::ResolvedStarted).await;
    drop(bus);
}
