//! What a purge costs beside a full cache: 50,000 answers, 1,000 Services that change.
//!
//!     cargo run --release -p kubebridge-dns --example purge_figures
#![expect(clippy::print_stdout, reason = "figures are this program's output")]

use std::sync::Arc;
use std::time::Duration;

use kubebridge_dns::message::{QueryOptions, encode_query};
use kubebridge_dns::name::{Name, RecordType};
use kubebridge_dns::records::NoLocalRecords;
use kubebridge_dns::resolver::{Asker, Resolver, ResolverConfig};
use kubebridge_dns::test_util::{Answer, ScriptedUpstream, name};
use kubebridge_dns::upstream::Upstream;
use kubebridge_dns::view::{BarePolicy, PlainView, View};
use tokio::time::Instant;

const ANSWERS: usize = 50_000;
const PURGES: usize = 1_000;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let upstream = ScriptedUpstream::new("10.96.0.10").otherwise(Answer::nxdomain("."));
    let upstream: Arc<dyn Upstream> = Arc::new(upstream);
    let config = ResolverConfig {
        cache_bytes: 64 << 20,
        cache_entries: ANSWERS,
        ..ResolverConfig::new(vec![upstream])
    };
    let resolver = Resolver::new(config, Arc::new(NoLocalRecords));
    let asker = Asker::new(Arc::new(View::plain(PlainView {
        search: vec![],
        ndots: None,
        cluster_domain: None,
        absolute_zones: vec![],
        bare: BarePolicy::LastToUpstreams,
    })));
    let filling = Instant::now();
    for number in 0..ANSWERS {
        let packet = encode_query(1, &service(number), RecordType::A, QueryOptions::default());
        resolver.answer(&packet, &asker).await;
    }
    let each = filling.elapsed() / u32::try_from(ANSWERS).unwrap_or(u32::MAX);
    println!(
        "{} answers, {each:?} to make each",
        resolver.stats().cache_entries
    );

    let absent = time(&resolver, ANSWERS);
    let before = resolver.stats().cache_entries;
    let present = time(&resolver, ANSWERS / 2);
    let gone = before - resolver.stats().cache_entries;
    println!("{PURGES} purges of names nothing rests on: {absent:?} each");
    println!("{PURGES} purges that forgot {gone} answers: {present:?} each");
}

/// Purges names from this number on; returns the time for each.
fn time(resolver: &Resolver, first: usize) -> Duration {
    let names: Vec<Name> = (first..first + PURGES).map(service).collect();
    let begun = Instant::now();
    names.iter().for_each(|one| resolver.purge(one));
    begun.elapsed() / u32::try_from(PURGES).unwrap_or(u32::MAX)
}

fn service(number: usize) -> Name {
    name(&format!("s{number}.n{}.svc.cluster.local", number % 100))
}
