//! The hosts file where it cannot be replaced: mounted, immutable, read-only, on a full disk.

use std::fs;
use std::os::unix::fs::MetadataExt;

use kubebridge_platform::{Host, HostError, LocalHost, SessionId, Sys, recover};

use crate::machine::{Machine, intent, on_a_machine, run};

fn host(machine: &Machine) -> LocalHost {
    let sys = Sys {
        bus_address: Some("unix:path=/nonexistent".to_owned()),
        ..machine.sys()
    };
    LocalHost::new(sys, SessionId::random()).unwrap()
}

fn hosts() -> String {
    fs::read_to_string("/etc/hosts").unwrap()
}

#[test]
fn a_mounted_hosts_file_is_written_in_place_and_restored() {
    on_a_machine(
        "files::a_mounted_hosts_file_is_written_in_place_and_restored",
        async |machine| {
            fs::copy("/etc/hosts", "/run/outside").unwrap();
            run("mount --bind /run/outside /etc/hosts");
            let before = hosts();
            let mut host = host(&machine);
            host.apply(&intent(None)).await.unwrap();
            // Whoever mounted it sees the lines, too.
            assert!(
                fs::read_to_string("/run/outside")
                    .unwrap()
                    .contains("10.96.0.7")
            );
            run("echo '192.0.2.8 nas' >>/etc/hosts");
            host.undo().await.unwrap();
            assert_eq!(hosts(), format!("{before}\n192.0.2.8 nas\n"));
        },
    );
}

#[test]
fn a_killed_session_is_recovered_from_in_a_mounted_hosts_file() {
    let name = "files::a_killed_session_is_recovered_from_in_a_mounted_hosts_file";
    on_a_machine(name, async |machine| {
        fs::copy("/etc/hosts", "/run/outside").unwrap();
        run("mount --bind /run/outside /etc/hosts");
        let before = hosts();
        let mut host = host(&machine);
        host.apply(&intent(None)).await.unwrap();
        drop(host);
        recover(&machine.sys()).await.unwrap();
        assert_eq!(hosts(), before);
    });
}

#[test]
fn a_hosts_file_that_may_not_be_written_is_an_error_and_stays() {
    let name = "files::a_hosts_file_that_may_not_be_written_is_an_error_and_stays";
    on_a_machine(name, async |machine| {
        for (make, unmake) in [
            ("chattr +i /etc/hosts", "chattr -i /etc/hosts"),
            ("chattr +a /etc/hosts", "chattr -a /etc/hosts"),
            (
                "mount --bind /etc/hosts /etc/hosts; mount -o remount,ro,bind /etc/hosts",
                "umount /etc/hosts",
            ),
            (
                "mount -o remount,ro,bind /etc",
                "mount -o remount,rw,bind /etc",
            ),
        ] {
            let before = (hosts(), fs::metadata("/etc/hosts").unwrap().ino());
            run(make);
            let mut host = host(&machine);
            let failed = host.apply(&intent(None)).await;
            assert!(
                matches!(failed, Err(HostError::Hosts(_))),
                "{make} {failed:?}"
            );
            host.undo().await.unwrap();
            run(unmake);
            assert_eq!(
                (hosts(), fs::metadata("/etc/hosts").unwrap().ino()),
                before,
                "{make}"
            );
        }
    });
}

#[test]
fn lines_behind_a_file_made_immutable_meanwhile_are_recovered_later() {
    let name = "files::lines_behind_a_file_made_immutable_meanwhile_are_recovered_later";
    on_a_machine(name, async |machine| {
        let before = hosts();
        let mut host = host(&machine);
        host.apply(&intent(None)).await.unwrap();
        run("chattr +i /etc/hosts");
        assert!(host.undo().await.is_err());
        drop(host);
        assert!(recover(&machine.sys()).await.is_err());
        run("chattr -i /etc/hosts");
        recover(&machine.sys()).await.unwrap();
        assert_eq!(hosts(), before);
    });
}

#[test]
fn on_a_full_disk_lines_cannot_come_but_can_go() {
    on_a_machine(
        "files::on_a_full_disk_lines_cannot_come_but_can_go",
        async |machine| {
            // Everything we write to is this one small disk.
            run("mkdir /run/small && mount -t tmpfs -o size=256k tmpfs /run/small");
            run("mkdir -p /run/small/etc /run/small/state && cp /etc/hosts /run/small/etc/hosts");
            let sys = Sys {
                root: "/run/small".into(),
                state_dir: "/run/small/state".into(),
                ..machine.sys()
            };
            let hosts = || fs::read("/run/small/etc/hosts").unwrap();
            let before = hosts();
            let mut host = LocalHost::new(sys.clone(), SessionId::random()).unwrap();
            host.apply(&intent(None)).await.unwrap();
            let with_lines = hosts();

            run("dd if=/dev/zero of=/run/small/fill bs=4k 2>/dev/null || true");
            let mut more = intent(None);
            more.hosts[0]
                .names
                .extend((0..200).map(|number| format!("name-that-is-long-{number}")));
            assert!(host.apply(&more).await.is_err());
            assert_eq!(hosts(), with_lines);

            host.undo().await.unwrap();
            assert_eq!(hosts(), before);
            run("rm /run/small/fill");
            assert_eq!(recover(&sys).await.unwrap(), []);
            assert_eq!(hosts(), before);
        },
    );
}

#[test]
fn another_users_hosts_file_keeps_owner_mode_and_attributes() {
    on_a_machine(
        "files::another_users_hosts_file_keeps_owner_mode_and_attributes",
        async |machine| {
            run("chown 65534:1234 /etc/hosts; chmod 0640 /etc/hosts");
            let attribute = xattr::set("/etc/hosts", "trusted.note", b"mine");
            attribute.unwrap();
            let look = || {
                let metadata = fs::metadata("/etc/hosts").unwrap();
                let note = xattr::get("/etc/hosts", "trusted.note").unwrap();
                (metadata.uid(), metadata.gid(), metadata.mode(), note)
            };
            let before = (look(), hosts());
            let mut host = host(&machine);
            host.apply(&intent(None)).await.unwrap();
            assert_eq!(look(), before.0);
            host.undo().await.unwrap();
            assert_eq!((look(), hosts()), before);
        },
    );
}
