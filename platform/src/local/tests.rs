use std::fs;

use super::*;
use crate::fault::Faults;
use crate::fs::{RootFs, Snapshot};
use crate::intent::DnsIntent;
use crate::recover::{Leftover, leftovers, recover};

mod crash;
mod sharing;

struct Machine {
    folder: tempfile::TempDir,
    sys: Sys,
}

fn machine(hosts: &str) -> Machine {
    // Flushing a file in memory is cheap, and these tests flush a lot.
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let folder = folder.unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir_all(at("root/etc")).unwrap();
    fs::write(at("root/etc/hosts"), hosts).unwrap();
    let nowhere = Some("unix:path=/nonexistent/bus".to_owned());
    let sys = Sys {
        root: at("root"),
        bus_address: nowhere,
        state_dir: at("state"),
        runtime_dir: at("run"),
        faults: Faults::default(),
    };
    Machine { folder, sys }
}

impl Machine {
    fn host(&self) -> LocalHost {
        LocalHost::new(self.sys.clone(), SessionId::random()).unwrap()
    }

    fn hosts(&self) -> Snapshot {
        RootFs::new(&self.sys)
            .snapshot("/etc/hosts".as_ref())
            .unwrap()
    }

    fn journals(&self) -> usize {
        fs::read_dir(self.sys.journals()).map_or(0, Iterator::count)
    }
}

fn authors() -> Intent {
    let names = vec![
        "authors".to_owned(),
        "authors.default".to_owned(),
        "localhost".to_owned(),
    ];
    Intent::new(
        None,
        vec![HostsLine {
            address: "10.96.0.7".parse().unwrap(),
            names,
        }],
    )
    .unwrap()
}

#[tokio::test]
async fn undo_leaves_the_hosts_file_as_it_was_and_no_journal() {
    let machine = machine("127.0.0.1 localhost");
    let before = machine.hosts();
    let mut host = machine.host();

    let applied = host.apply(&authors()).await.unwrap();
    assert_eq!(applied.changes, ["1 lines in the hosts file"]);
    assert_eq!(applied.conflicts[0].name, "localhost");
    assert_ne!(machine.hosts(), before);
    assert_eq!(
        host.apply(&authors()).await.unwrap().changes,
        Vec::<String>::new()
    );

    assert_eq!(
        host.undo().await.unwrap().changes,
        ["lines removed from the hosts file"]
    );
    assert_eq!(machine.hosts(), before);
    assert_eq!(machine.journals(), 0);
    assert_eq!(host.undo().await.unwrap(), Undone::default());
    assert!(matches!(
        host.apply(&authors()).await,
        Err(HostError::Ended)
    ));
}

#[tokio::test]
async fn a_session_ends_in_order_although_its_runtime_folder_and_journal_were_removed() {
    let machine = machine("127.0.0.1 localhost");
    let before = machine.hosts();
    let mut host = machine.host();
    host.apply(&authors()).await.unwrap();
    fs::remove_dir_all(&machine.sys.runtime_dir).unwrap();
    fs::remove_dir_all(&machine.sys.state_dir).unwrap();
    host.undo().await.unwrap();
    assert_eq!(machine.hosts(), before);
}

#[tokio::test]
async fn a_hosts_file_that_someone_removed_is_made_and_goes_again() {
    let machine = machine("127.0.0.1 localhost");
    let mut host = machine.host();
    host.apply(&authors()).await.unwrap();
    fs::remove_file(machine.sys.path("/etc/hosts")).unwrap();
    let verified = host.verify().await;
    assert_eq!(verified.repairs, ["1 lines put back into the hosts file"]);
    host.undo().await.unwrap();
    assert_eq!(machine.hosts().kind, crate::fs::Kind::Absent);
}

#[tokio::test]
async fn a_hosts_file_of_a_strange_kind_does_not_keep_a_session_from_ending() {
    let machine = machine("");
    fs::remove_file(machine.sys.path("/etc/hosts")).unwrap();
    fs::create_dir(machine.sys.path("/etc/hosts")).unwrap();
    let mut host = machine.host();
    assert!(matches!(
        host.apply(&authors()).await,
        Err(HostError::Hosts(_))
    ));
    host.undo().await.unwrap();
    assert_eq!(machine.journals(), 0);
    assert!(host.verify().await.troubles.is_empty());
}

#[tokio::test]
async fn a_session_that_died_is_listed_and_undone() {
    let machine = machine("127.0.0.1 localhost");
    let before = machine.hosts();
    let mut host = machine.host();
    host.apply(&authors()).await.unwrap();
    assert_eq!(
        leftovers(&machine.sys).await.unwrap(),
        Vec::<Leftover>::new()
    );
    drop(host);

    let left = leftovers(&machine.sys).await.unwrap();
    assert_eq!(left[0].changes, ["lines in the hosts file"]);
    assert_eq!(left[0].pid, std::process::id());

    let recovered = recover(&machine.sys).await.unwrap();
    assert_eq!(recovered[0].session, left[0].session);
    assert_eq!(recovered[0].changes, ["lines removed from the hosts file"]);
    assert_eq!(machine.hosts(), before);
    assert_eq!(machine.journals(), 0);
    assert_eq!(recover(&machine.sys).await.unwrap(), []);
}

#[tokio::test]
async fn a_journal_that_lost_its_first_line_still_frees_the_file_of_its_lines() {
    let lines = "127.0.0.1 localhost\n10.96.0.7\tdb # kubebridge:0a1b2c3d:1\n";
    let machine = machine(lines);
    fs::create_dir_all(machine.sys.journals()).unwrap();
    fs::write(machine.sys.journals().join("0a1b2c3d.journal"), b"000000").unwrap();
    let recovered = recover(&machine.sys).await.unwrap();
    assert_eq!(recovered[0].changes, ["lines removed from the hosts file"]);
    let hosts = fs::read(machine.sys.path("/etc/hosts")).unwrap();
    assert_eq!(hosts, b"127.0.0.1 localhost\n");
    assert_eq!(machine.journals(), 0);
}

#[tokio::test]
async fn one_unreadable_journal_keeps_no_other_from_being_undone() {
    let machine = machine("127.0.0.1 localhost");
    let before = machine.hosts();
    let mut host = machine.host();
    host.apply(&authors()).await.unwrap();
    drop(host);
    fs::create_dir(machine.sys.journals().join("00000000.journal")).unwrap();
    assert!(recover(&machine.sys).await.is_err());
    assert_eq!(machine.hosts(), before);
}

#[tokio::test]
async fn recovering_an_untouched_machine_does_nothing() {
    let machine = machine("");
    assert_eq!(recover(&machine.sys).await.unwrap(), []);
    assert_eq!(leftovers(&machine.sys).await.unwrap(), []);
}

#[tokio::test]
async fn routes_need_a_link() {
    let machine = machine("");
    let mut host = machine.host();
    let routes = vec!["10.96.0.0/16".parse().unwrap()];
    let wish = Intent::default().with_routes(routes).unwrap();
    assert!(matches!(host.apply(&wish).await, Err(HostError::NoLink)));
    host.undo().await.unwrap();
}

#[tokio::test]
async fn dns_needs_a_link() {
    let machine = machine("");
    let mut host = machine.host();
    let dns = DnsIntent {
        servers: vec!["198.19.248.2".parse().unwrap()],
        ..DnsIntent::default()
    };
    let applied = host
        .apply(&Intent {
            dns: Some(dns),
            ..Intent::default()
        })
        .await;
    assert!(matches!(applied, Err(HostError::NoLink)));
    host.undo().await.unwrap();
}

#[tokio::test]
async fn a_machine_without_a_bus_resolves_plainly() {
    let machine = machine("");
    fs::write(
        machine.sys.path("/etc/resolv.conf"),
        "nameserver 192.0.2.1\nsearch lan\n",
    )
    .unwrap();
    let found = crate::dns::read_host_dns(&machine.sys).await.unwrap();
    assert_eq!(found.mode, crate::host::HostDnsMode::Plain);
    assert_eq!(found.servers, ["192.0.2.1:53".parse().unwrap()]);
    assert_eq!(found.search, ["lan"]);
    assert_eq!(found.reasons, ["there is no system bus"]);
}

/// Puts a machine into the state of a crash and recovers it.
async fn recovered_from(journal: &str, hosts: &[u8]) -> Vec<u8> {
    let machine = machine("");
    fs::create_dir_all(machine.sys.journals()).unwrap();
    fs::write(machine.sys.journals().join("0a1b2c3d.journal"), journal).unwrap();
    fs::write(machine.sys.path("/etc/hosts"), hosts).unwrap();
    recover(&machine.sys).await.unwrap();
    assert_eq!(machine.journals(), 0);
    fs::read(machine.sys.path("/etc/hosts")).unwrap()
}

/// Applies once and returns the journal and the hosts file as they then are.
async fn applied_once(machine: &Machine) -> (String, Vec<u8>) {
    let session: SessionId = "0a1b2c3d".parse().unwrap();
    let mut host = LocalHost::new(machine.sys.clone(), session.clone()).unwrap();
    host.apply(&authors()).await.unwrap();
    let journal = fs::read_to_string(machine.sys.journal(&session)).unwrap();
    (journal, fs::read(machine.sys.path("/etc/hosts")).unwrap())
}

#[tokio::test]
async fn a_crash_at_any_step_of_a_write_is_undone() {
    let before = b"127.0.0.1 localhost";
    let machine = machine("127.0.0.1 localhost");
    let (journal, after) = applied_once(&machine).await;
    let lines: Vec<_> = journal.split_inclusive('\n').collect();
    assert_eq!(lines.len(), 3);

    for (written, hosts) in [
        (1, before.as_slice()),
        (2, before),
        (2, &after),
        (3, &after),
    ] {
        let left = recovered_from(&lines[..written].concat(), hosts).await;
        assert_eq!(left, before, "{written} entries");
    }
}

#[tokio::test]
async fn a_crash_at_any_byte_of_a_write_in_place_is_undone() {
    let before = b"127.0.0.1 localhost";
    let machine = machine("127.0.0.1 localhost");
    fs::hard_link(
        machine.sys.path("/etc/hosts"),
        machine.sys.path("/etc/second"),
    )
    .unwrap();
    let (journal, after) = applied_once(&machine).await;
    let lines: Vec<_> = journal.split_inclusive('\n').collect();
    assert!(lines[2].contains("hosts-in-place"));

    for cut in 0..=after.len() {
        let rest = before.get(cut..).unwrap_or_default();
        let left = recovered_from(&lines[..3].concat(), &[&after[..cut], rest].concat()).await;
        assert_eq!(left, before, "{cut} bytes");
    }
}
