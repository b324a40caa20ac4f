use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};

use super::world::{World, octets};
use crate::flow::How;
use crate::flow::state::{FIRST_WINDOW, LEAST_WINDOW, MOST_WINDOW};

const MEMORY: usize = usize::MAX / 2;
/// The pipe at each end.
const PIPE: usize = 1024;

#[tokio::test(start_paused = true)]
async fn f2_a_reader_that_stalls_stops_its_writer_and_goes_on() {
    let (mut laptop, mut service, carrying) = World::open(vec![], MEMORY, PIPE).await.split();
    let all = octets(3_000_000, 0);
    let wanted = all.clone();
    let writing = tokio::spawn(async move {
        laptop.stream.write_all(&all).await.unwrap();
        laptop.stream.shutdown().await.unwrap();
        laptop
    });
    sleep(Duration::from_secs(600)).await;
    assert!(
        !writing.is_finished(),
        "three megabytes are waiting somewhere"
    );

    let mut got = Vec::new();
    service.stream.read_to_end(&mut got).await.unwrap();
    service.stream.shutdown().await.unwrap();

    assert!(got == wanted);
    writing.await.unwrap();
    let (near, far) = World::ended(carrying).await;
    assert_eq!((near.how, far.how), (How::Finished, How::Finished));
}

#[tokio::test(start_paused = true)]
async fn a_stalled_flow_holds_no_more_than_its_window() {
    let mut world = World::open(vec![], MEMORY, PIPE).await;
    let all = octets(3_000_000, 0);
    let stalled = timeout(
        Duration::from_secs(600),
        world.laptop.stream.write_all(&all),
    );
    assert!(stalled.await.is_err());
    let sent = usize::try_from(world.meter.sent()).unwrap();
    assert!(sent <= FIRST_WINDOW + PIPE, "{sent} octets");
}

#[tokio::test(start_paused = true)]
async fn an_idle_flow_gives_its_memory_back() {
    let mut world = World::open(vec![], MEMORY, 64 * 1024).await;
    let all = octets(2_000_000, 0);
    let reading = async {
        let mut got = vec![0; 2_000_000];
        world.service.stream.read_exact(&mut got).await.unwrap();
        got
    };
    let (wrote, got) = tokio::join!(world.laptop.stream.write_all(&all), reading);
    wrote.unwrap();
    assert!(got == all);
    assert_eq!(world.manager_memory.used(), MOST_WINDOW - LEAST_WINDOW);

    sleep(Duration::from_secs(11)).await;

    assert_eq!(world.manager_memory.used(), 0);
    assert_eq!(world.laptop_memory.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn without_memory_flows_go_on_with_the_least_window() {
    let (laptop, service, carrying) = World::open(vec![], 0, PIPE).await.split();
    let (up, down) = (octets(500_000, 1), octets(400_000, 2));
    let (got, asked) = tokio::join!(
        laptop.exchange(up.clone(), 5_000),
        service.exchange(down.clone(), 5_000)
    );
    assert!(got == down);
    assert!(asked == up);
    World::ended(carrying).await;
}

#[tokio::test(start_paused = true)]
async fn f2_octets_written_one_by_one_arrive() {
    let (laptop, service, carrying) = World::open(vec![], MEMORY, 1).await.split();
    let (up, down) = (octets(5_000, 1), octets(4_000, 2));
    let (got, asked) = tokio::join!(
        laptop.exchange(up.clone(), 1),
        service.exchange(down.clone(), 1)
    );
    assert!(got == down);
    assert!(asked == up);
    World::ended(carrying).await;
}
