//! What is in the cache is given without allocating: the part of the hot path that a test can hold
//! on any machine.
#![expect(
    unsafe_code,
    reason = "an allocator that counts is written in no other way"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use kubebridge_dns::name::RecordType;
use kubebridge_dns::records::NoLocalRecords;
use kubebridge_dns::resolver::{Asker, Resolver, ResolverConfig};
use kubebridge_dns::test_util::{Answer, ScriptedUpstream};
use kubebridge_dns::upstream::Upstream;

use crate::packet::*;
use crate::world::*;

const SERVICE: &str = "authors.default.svc.cluster.local";

thread_local! {
    static ALLOCATED: Cell<u64> = const { Cell::new(0) };
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// The system's allocator, and a count for each thread.
struct Counting;

// SAFETY: every call goes to the system's allocator as it came, which keeps the promises for it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that is ending has no count any more.
        let _ = ALLOCATED.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller promises what the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the memory came from the system's allocator, with this layout.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// The hot path, point 3
#[tokio::test]
async fn a_hit_allocates_nothing() {
    let answer = Answer::address(SERVICE, [10, 96, 0, 7]);
    let upstream = ScriptedUpstream::new("10.96.0.10").with(SERVICE, RecordType::A, answer);
    let upstream: Arc<dyn Upstream> = Arc::new(upstream);
    let resolver = Resolver::new(
        ResolverConfig::new(vec![upstream]),
        Arc::new(NoLocalRecords),
    );
    let pod = pod_view();
    let session = pod.session(&["default".to_owned()], &[], 2).unwrap();
    let plain = query(SERVICE, RecordType::A);
    let short = query("authors", RecordType::A);
    let with_edns = with_opt(&plain, 1232, DO, b"");
    for view in [Arc::new(pod), Arc::new(session)] {
        for packet in [&plain, &short, &with_edns] {
            let asker = Asker::new(Arc::clone(&view));
            resolver.answer(packet, &asker).await.unwrap();
            let mut reply = Vec::with_capacity(1232);
            let before = ALLOCATED.get();
            for _ in 0..100 {
                assert!(resolver.answer_at_hand(packet, &view, &mut reply));
            }
            assert_eq!(ALLOCATED.get() - before, 0);
        }
    }
    assert!(ALLOCATED.get() > 0, "it counts");
}
