//! When hosts lines are written.

use super::*;
use crate::cli::HostsForm;
use crate::originals::Originals;
use crate::test_util::table_of;

fn keeper() -> (HostsKeeper, watch::Sender<RouteTable>) {
    let (sender, routes) = watch::channel(table_of(&[("default", &["authors"])]));
    let policy = HostsPolicy {
        form: HostsForm::Short,
        namespace: "default".to_owned(),
        cluster_domain: "cluster.local".to_owned(),
    };
    let originals = Arc::new(Originals::new(&[], &[]));
    let lookback = Lookback::start(originals, policy.clone(), routes.clone());
    (HostsKeeper::new(policy, routes, lookback), sender)
}

#[tokio::test(start_paused = true)]
async fn the_first_change_is_due_at_once_and_later_ones_five_times_a_second() {
    let (mut keeper, routes) = keeper();
    let start = Instant::now();
    keeper.first_look().await;
    keeper.due().await.unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(keeper.plan().len(), 1);
    keeper.note_write::<()>(&Ok(()));

    for _ in 0..3 {
        routes.send_modify(|table| table.forget_partial());
        keeper.due().await.unwrap();
        keeper.plan();
        keeper.note_write::<()>(&Ok(()));
    }

    assert_eq!(start.elapsed(), 3 * PACE);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_failed_is_tried_again_later() {
    let (mut keeper, _routes) = keeper();
    keeper.first_look().await;
    keeper.due().await.unwrap();
    keeper.plan();
    let start = Instant::now();

    keeper.note_write(&Err(()));
    keeper.due().await.unwrap();

    assert_eq!(start.elapsed(), AFTER_FAILURE);
}

#[tokio::test(start_paused = true)]
async fn a_change_is_not_lost_when_waiting_for_it_is_cut_short() {
    let (mut keeper, routes) = keeper();
    keeper.first_look().await;
    keeper.due().await.unwrap();
    keeper.plan();
    keeper.note_write::<()>(&Ok(()));
    routes.send_modify(|table| table.forget_partial());

    assert!(timeout(PACE / 2, keeper.due()).await.is_err());
    keeper.due().await.unwrap();
}
