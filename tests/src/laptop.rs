//! The laptop: a machine with its own /etc, D-Bus and systemd-resolved, as a Debian desktop has.
//!
//! The services are unpacked from their packages and started by hand: no systemd runs here.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use parking_lot::Mutex;
use rustix::process::Signal;

use crate::{daemon::Daemon, machine::Machine, parts::Parts};

const START: Duration = Duration::from_secs(60);

/// What /etc/nsswitch.conf says of hosts: which way a glibc program goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hosts {
    /// As Debian sets it: /etc/hosts, then systemd-resolved by nss-resolve.
    Resolve,
    /// Nothing but nss-resolve: proves that it is really there.
    OnlyResolve,
    /// /etc/hosts, then DNS as /etc/resolv.conf says: the stub on 127.0.0.53.
    Stub,
    /// Nothing but /etc/hosts.
    OnlyFiles,
}

impl Hosts {
    fn line(self) -> &'static str {
        match self {
            Self::Resolve => "hosts: files resolve [!UNAVAIL=return] dns\n",
            Self::OnlyResolve => "hosts: resolve\n",
            Self::Stub => "hosts: files dns\n",
            Self::OnlyFiles => "hosts: files\n",
        }
    }
}

/// The laptop and the services that run on it.
#[derive(Debug)]
pub struct Laptop {
    machine: Machine,
    folder: PathBuf,
    /// The folder that the packages of systemd-resolved were unpacked into.
    root: PathBuf,
    resolved: Mutex<Option<Daemon>>,
    #[expect(dead_code, reason = "it ends with the laptop")]
    dbus: Daemon,
}

impl Laptop {
    /// Starts it with the DNS server `dns` configured for all names.
    ///
    /// `folder` and all above it must be open to other users: systemd-resolved is one.
    pub fn machine(folder: &Path) -> Result<Machine> {
        Machine::start(
            "laptop",
            &format!(
                "cp -a /etc {folder}/etc
cd {folder}/etc
sed -i '/^systemd-resolve:/d' passwd group
echo 'systemd-resolve:x:995:995::/:/usr/sbin/nologin' >>passwd
echo 'systemd-resolve:x:995:' >>group
printf '127.0.0.1 localhost\\n::1 localhost ip6-localhost\\n192.0.2.99 printer.lab printer\\n' >hosts
chmod 664 hosts
rm -f resolv.conf
ln -s ../run/systemd/resolve/stub-resolv.conf resolv.conf
cd /
mount --bind {folder}/etc /etc
# systemd-resolved makes netif for the first link it is told of and then keeps it.
mkdir -p -m 755 /run/systemd/resolve
mkdir -m 700 /run/systemd/resolve/netif
chown -R 995:995 /run/systemd/resolve
mkdir {folder}/state
mount -t tmpfs -o mode=755 tmpfs {folder}/state
mkdir {folder}/state/upper {folder}/state/work
mount -t overlay -o lowerdir=/var/lib,upperdir={folder}/state/upper,workdir={folder}/state/work overlay /var/lib
",
                folder = folder.display()
            ),
        )
    }

    /// Starts D-Bus and systemd-resolved on `machine`, whose network must be there, with the DNS
    /// server `dns` for all names, and with more lines in its configuration.
    pub fn start(
        parts: &Parts,
        folder: &Path,
        mut machine: Machine,
        dns: &str,
        more: &str,
    ) -> Result<Self> {
        let root = parts.path("RESOLVED_ROOT")?.display().to_string();
        let bus = folder.join("bus");
        let libraries = format!("{root}/usr/lib/x86_64-linux-gnu");
        machine.environment(
            "DBUS_SYSTEM_BUS_ADDRESS",
            &format!("unix:path={}", bus.display()),
        );
        // Also where glibc finds libnss_resolve.so.2.
        machine.environment(
            "LD_LIBRARY_PATH",
            &format!("{libraries}:{libraries}/systemd"),
        );
        machine.environment(
            "PATH",
            &format!("{root}/usr/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
        );
        write_configuration(folder, &bus, dns, more)?;

        let logs = folder.join("logs");
        let mut command = machine.command("dbus-daemon");
        command.args(["--nofork", "--nopidfile", "--config-file"]);
        command.arg(folder.join("bus.conf"));
        let dbus = Daemon::start("dbus", &logs, command)?;
        dbus.until("the system bus", START, || {
            fs::metadata(&bus).context("no socket").map(drop)
        })?;

        let laptop = Self {
            machine,
            folder: folder.to_owned(),
            root: root.into(),
            resolved: Mutex::new(None),
            dbus,
        };
        laptop.start_resolved()?;
        Ok(laptop)
    }

    /// Starts systemd-resolved, which must not be running, and waits until it is on the bus.
    pub fn start_resolved(&self) -> Result<()> {
        let program = self.root.join("lib/systemd/systemd-resolved");
        let logs = self.folder.join("logs");
        let daemon = Daemon::start("systemd-resolved", &logs, self.machine.command(program))?;
        daemon.until("systemd-resolved on the bus", START, || {
            let owned = self.machine.output(&[
                "busctl",
                "call",
                "org.freedesktop.DBus",
                "/org/freedesktop/DBus",
                "org.freedesktop.DBus",
                "NameHasOwner",
                "s",
                "org.freedesktop.resolve1",
            ])?;
            ensure!(owned.contains("true"), "its name has no owner");
            fs::metadata(self.machine.path("/run/systemd/resolve/stub-resolv.conf"))?;
            Ok(())
        })?;
        *self.resolved.lock() = Some(daemon);
        Ok(())
    }

    /// Ends systemd-resolved by a signal. No systemd is here to start it again.
    pub fn end_resolved(&self, signal: Signal) -> Result<()> {
        let daemon = self.resolved.lock().take();
        let daemon = daemon.context("systemd-resolved does not run")?;
        daemon.signal(signal)?;
        daemon.ended(START)?;
        Ok(())
    }

    /// The machine itself.
    pub fn on(&self) -> &Machine {
        &self.machine
    }

    /// Runs a command that must succeed under another /etc/nsswitch.conf, and gives its output.
    pub fn output_with(&self, hosts: Hosts, words: &[&str]) -> Result<String> {
        let file = self.folder.join(format!("nsswitch.{hosts:?}"));
        if !file.exists() {
            let own = fs::read_to_string(self.machine.path("/etc/nsswitch.conf"))?;
            let others = own.lines().filter(|line| !line.starts_with("hosts:"));
            let mut text: String = others.map(|line| format!("{line}\n")).collect();
            text.push_str(hosts.line());
            fs::write(&file, text)?;
        }
        let bind = format!(
            "mount --bind {} /etc/nsswitch.conf; exec \"$@\"",
            file.display()
        );
        let mut all = vec!["unshare", "-m", "bash", "-ec", &bind, "with"];
        all.extend_from_slice(words);
        self.machine.output(&all)
    }
}

fn write_configuration(folder: &Path, bus: &Path, dns: &str, more: &str) -> Result<()> {
    let etc = folder.join("etc");
    fs::create_dir_all(etc.join("systemd"))?;
    fs::write(
        etc.join("systemd/resolved.conf"),
        format!("[Resolve]\nDNS={dns}\nLLMNR=no\nMulticastDNS=no\nDNSSEC=no\n{more}"),
    )?;
    let nsswitch = fs::read_to_string(etc.join("nsswitch.conf"))?;
    let mut text: String = nsswitch
        .lines()
        .filter(|line| !line.starts_with("hosts:"))
        .map(|line| format!("{line}\n"))
        .collect();
    text.push_str(Hosts::Resolve.line());
    fs::write(etc.join("nsswitch.conf"), text)?;
    fs::write(
        folder.join("bus.conf"),
        format!(
            "<busconfig><type>system</type><listen>unix:path={}</listen><auth>EXTERNAL</auth>
<policy context=\"default\"><allow user=\"*\"/><allow own=\"*\"/>
<allow send_destination=\"*\"/><allow receive_sender=\"*\"/></policy></busconfig>\n",
            bus.display()
        ),
    )?;
    Ok(())
}
