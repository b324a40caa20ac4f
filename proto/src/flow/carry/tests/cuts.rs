use std::time::Duration;

use proptest::prelude::*;
use tokio::time::timeout;

use super::world::{Wire, World, octets};
use crate::flow::How;

/// Carries octets both ways at once over wires that break.
async fn exchange(wires: Vec<Wire>, up: usize, down: usize, piece: usize) {
    let world = World::open(wires, usize::MAX / 2, 16 * 1024).await;
    let (laptop, service, carrying) = world.split();
    let (sent, answered) = (octets(up, 1), octets(down, 2));

    let exchanging = async {
        tokio::join!(
            laptop.exchange(sent.clone(), piece),
            service.exchange(answered.clone(), piece),
        )
    };
    let hour = Duration::from_secs(3600);
    let (got, asked) = timeout(hour, exchanging).await.expect("everything arrives");
    let (near, far) = World::ended(carrying).await;

    assert!(got == answered, "{} of {down} octets down", got.len());
    assert!(asked == sent, "{} of {up} octets up", asked.len());
    assert_eq!((near.how, far.how), (How::Finished, How::Finished));
    assert_eq!((near.sent, near.received), (up as u64, down as u64));
    assert_eq!((far.sent, far.received), (down as u64, up as u64));
}

/// A paused clock, so that waits cost nothing.
fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(test);
}

/// The octets an open flow has cost on the wire: with fewer it was never open.
const OPENED: usize = 2_000;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn f5_flows_cut_anywhere_deliver_each_octet_once_both_ways(
        cuts in prop::collection::vec((0_usize..200_000, any::<bool>()), 0..8),
        up in 0_usize..400_000,
        down in 0_usize..400_000,
        piece in prop_oneof![Just(7_usize), Just(1000), Just(70_000)],
    ) {
        let wires = cuts
            .iter()
            .map(|(after, is_silent)| Wire { after: OPENED + after, is_silent: *is_silent })
            .collect();
        run(exchange(wires, up, down, piece));
    }
}

#[test]
fn f5_a_short_exchange_survives_a_cut_at_every_octet() {
    for after in (300..1_600).step_by(3) {
        let wires = vec![
            Wire {
                after: OPENED,
                is_silent: false,
            },
            Wire {
                after,
                is_silent: false,
            },
        ];
        run(exchange(wires, 40, 30, 11));
    }
}

#[tokio::test(start_paused = true)]
async fn a_flow_whose_connections_all_break_is_reset_at_both_ends() {
    let broken = Wire {
        after: 100,
        is_silent: false,
    };
    let mut wires = vec![Wire {
        after: 5_000,
        is_silent: false,
    }];
    wires.extend([broken; 60]);
    let (laptop, service, carrying) = World::open(wires, usize::MAX / 2, 1024).await.split();
    let writing = tokio::spawn(async move {
        let mut laptop = laptop;
        let all = octets(100_000, 0);
        let _ = tokio::io::AsyncWriteExt::write_all(&mut laptop.stream, &all).await;
        laptop
    });

    let (near, far) = World::ended(carrying).await;

    assert_eq!((near.how, far.how), (How::Lost, How::Lost));
    assert!(service.was_reset());
    assert!(writing.await.unwrap().was_reset());
}
