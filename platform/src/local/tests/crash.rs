//! A session that dies, or meets a broken disk, at every step it takes.

use std::path::Path;

use rustix::io::Errno;

use super::*;
use crate::fault::Trouble;

const ORIGINAL: &str = "127.0.0.1 localhost\n192.0.2.7 printer";

/// How the hosts file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Renamed,
    InPlace,
    Absent,
    Link,
}

const SHAPES: [Shape; 4] = [Shape::Renamed, Shape::InPlace, Shape::Absent, Shape::Link];

fn shaped(shape: Shape) -> Machine {
    let machine = machine(ORIGINAL);
    let hosts = machine.sys.path("/etc/hosts");
    match shape {
        Shape::Renamed => {}
        Shape::InPlace => fs::hard_link(&hosts, machine.folder.path().join("second")).unwrap(),
        Shape::Absent => fs::remove_file(&hosts).unwrap(),
        Shape::Link => {
            fs::rename(&hosts, machine.sys.path("/etc/hosts.real")).unwrap();
            std::os::unix::fs::symlink("hosts.real", &hosts).unwrap();
        }
    }
    machine
}

/// Everything below the root, and whether a journal is left.
fn state(machine: &Machine) -> (Vec<(String, Snapshot)>, usize) {
    let root = RootFs::new(&Sys {
        faults: Faults::default(),
        ..machine.sys.clone()
    });
    let entries = fs::read_dir(machine.sys.path("/etc")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut all: Vec<_> = names
        .map(|name| {
            (
                name.clone(),
                root.snapshot(&Path::new("/etc").join(&name)).unwrap(),
            )
        })
        .collect();
    all.sort_by(|one, two| one.0.cmp(&two.0));
    (all, machine.journals())
}

fn wish(names: &[&str]) -> Intent {
    let line = |name: &&str| HostsLine {
        address: "10.96.0.7".parse().unwrap(),
        names: vec![(*name).to_owned(), format!("{name}.default")],
    };
    Intent::new(None, names.iter().map(line).collect()).unwrap()
}

/// A whole session; stops at the first failure. True if it got through.
async fn session(sys: Sys, undo: bool) -> bool {
    let Ok(mut host) = LocalHost::new(sys, SessionId::random()) else {
        return false;
    };
    for names in [&["authors"][..], &["authors", "db"], &["db"]] {
        if host.apply(&wish(names)).await.is_err() {
            // The session ends itself if it can.
            drop(host.undo().await);
            return false;
        }
    }
    undo && host.undo().await.is_ok()
}

fn with(machine: &Machine, faults: &Faults) -> Sys {
    Sys {
        faults: faults.clone(),
        ..machine.sys.clone()
    }
}

/// Counts the steps of a whole session.
async fn count(shape: Shape) -> usize {
    let faults = Faults::none_but_count();
    let machine = shaped(shape);
    assert!(session(with(&machine, &faults), true).await);
    faults.steps().len()
}

#[tokio::test]
async fn a_session_that_dies_at_any_step_is_undone_exactly() {
    for shape in SHAPES {
        let steps = count(shape).await;
        assert!(steps > 40, "{shape:?} {steps}");
        for step in 0..steps {
            let machine = shaped(shape);
            let before = state(&machine);
            let faults = Faults::at(step, Trouble::Death);
            session(with(&machine, &faults), true).await;

            let died_at = faults.steps()[step];
            recover(&machine.sys).await.unwrap();
            assert_eq!(state(&machine), before, "{shape:?} {step} {died_at}");
            for _ in 0..2 {
                assert_eq!(recover(&machine.sys).await.unwrap(), []);
                assert_eq!(state(&machine), before, "{shape:?} {step} {died_at}");
            }
        }
    }
}

#[tokio::test]
async fn a_recovery_that_dies_at_any_step_is_finished_by_the_next() {
    for shape in SHAPES {
        for step in 0.. {
            let machine = shaped(shape);
            let before = state(&machine);
            session(machine.sys.clone(), false).await;
            let faults = Faults::at(step, Trouble::Death);
            let through = recover(&with(&machine, &faults)).await.is_ok();
            recover(&machine.sys).await.unwrap();
            assert_eq!(state(&machine), before, "{shape:?} {step}");
            if through && faults.steps().len() <= step {
                break;
            }
        }
    }
}

#[tokio::test]
async fn a_write_in_place_and_its_repair_may_both_be_interrupted() {
    let shape = Shape::InPlace;
    for step in 0..count(shape).await {
        for again in 0..6 {
            let machine = shaped(shape);
            let before = state(&machine);
            session(with(&machine, &Faults::at(step, Trouble::Death)), true).await;
            drop(recover(&with(&machine, &Faults::at(again, Trouble::Death))).await);
            recover(&machine.sys).await.unwrap();
            assert_eq!(state(&machine), before, "{step} {again}");
        }
    }
}

/// A session on a disk that fails at each step in turn, in each shape and with each error; what is
/// done about it must lead back to the start.
async fn on_each_failing_disk(
    trouble: fn(Errno) -> Trouble,
    repair: impl AsyncFn(&Machine, &Faults),
) {
    for (shape, errno) in SHAPES
        .into_iter()
        .flat_map(|shape| [Errno::NOSPC, Errno::ROFS, Errno::IO].map(|errno| (shape, errno)))
    {
        for step in 0..count(shape).await {
            let machine = shaped(shape);
            let before = state(&machine);
            let faults = Faults::at(step, trouble(errno));
            session(with(&machine, &faults), true).await;
            repair(&machine, &faults).await;
            assert_eq!(state(&machine), before, "{shape:?} {step} {errno}");
        }
    }
}

#[tokio::test]
async fn a_disk_that_fails_once_at_any_step_costs_nothing() {
    on_each_failing_disk(Trouble::Once, async |machine, _| {
        recover(&machine.sys).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_disk_that_stays_broken_is_recovered_from_when_it_works_again() {
    on_each_failing_disk(Trouble::FromThenOn, async |machine, faults| {
        drop(recover(&with(machine, faults)).await);
        faults.heal();
        recover(&machine.sys).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_full_disk_does_not_keep_a_session_from_ending() {
    for shape in SHAPES {
        let machine = shaped(shape);
        let before = state(&machine);
        let faults = Faults::none_but_count();
        let mut host = LocalHost::new(with(&machine, &faults), SessionId::random()).unwrap();
        host.apply(&wish(&["authors", "db"])).await.unwrap();

        faults.script(faults.steps().len(), Trouble::FromThenOn(Errno::NOSPC));
        assert!(host.apply(&wish(&["authors", "db", "more"])).await.is_err());
        host.undo().await.unwrap();

        assert_eq!(state(&machine), before, "{shape:?}");
    }
}

#[tokio::test]
async fn what_others_write_between_death_and_recovery_survives() {
    for shape in [Shape::Renamed, Shape::InPlace, Shape::Link] {
        for step in 0..count(shape).await {
            let machine = shaped(shape);
            let faults = Faults::at(step, Trouble::Death);
            session(with(&machine, &faults), true).await;
            let hosts = machine.sys.path("/etc/hosts");
            let mut now = fs::read(&hosts).unwrap();
            now.extend_from_slice(b"\n192.0.2.8 nas\n");
            fs::write(&hosts, &now).unwrap();

            recover(&machine.sys).await.unwrap();

            let left = fs::read_to_string(&hosts).unwrap();
            let lines: Vec<_> = left.lines().filter(|line| !line.is_empty()).collect();
            let expected: Vec<_> = ORIGINAL.lines().chain(["192.0.2.8 nas"]).collect();
            if faults.steps()[step] == "write in place" {
                // Half a line of ours bears no mark, and nobody can say where it ends.
                assert!(expected.iter().all(|line| lines.contains(line)), "{step}");
            } else {
                assert_eq!(lines, expected, "{shape:?} {step}");
            }
        }
    }
}

#[tokio::test]
async fn a_journal_torn_at_any_byte_is_recovered_from() {
    let machine = machine(ORIGINAL);
    let id: SessionId = "0a1b2c3d".parse().unwrap();
    let mut host = LocalHost::new(machine.sys.clone(), id.clone()).unwrap();
    host.apply(&wish(&["authors"])).await.unwrap();
    let journal = fs::read(machine.sys.journal(&id)).unwrap();
    let hosts = fs::read(machine.sys.path("/etc/hosts")).unwrap();
    drop(host);
    let lines: Vec<_> = journal.split_inclusive(|&byte| byte == b'\n').collect();
    let intended = lines[0].len() + lines[1].len();

    for cut in 0..=journal.len() {
        let machine = super::machine(ORIGINAL);
        let before = state(&machine);
        fs::create_dir_all(machine.sys.journals()).unwrap();
        fs::write(machine.sys.journal(&id), &journal[..cut]).unwrap();
        // The lines are written only when their entry is on the disk.
        if cut >= intended {
            fs::write(machine.sys.path("/etc/hosts"), &hosts).unwrap();
        }
        recover(&machine.sys).await.unwrap();
        assert_eq!(state(&machine), before, "{cut}");
    }
}
