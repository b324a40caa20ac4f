//! A machine made of namespaces: its own network, mounts, processes, /etc, /run and, if wanted,
//! system bus and systemd-resolved.

use std::fs;
use std::future::{Future, poll_fn};
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use kubebridge_platform::tun::Packets;
use kubebridge_platform::{
    DnsIntent, Host, HostsLine, Intent, Link, LinkSpec, LocalHost, SessionId, Sys,
};
use tokio::time::{Instant, sleep, timeout};

/// Says to a test binary that it runs inside.
const INSIDE: &str = "KUBEBRIDGE_TEST_MACHINE";

/// The longest a test may take: PID 1 of a namespace cannot be asked to end.
const LIMIT: &str = "300";

const HOSTS: &str = "127.0.0.1 localhost\n192.0.2.7 printer";

/// Runs `body` in namespaces of its own, by starting this test once more there.
pub(crate) fn on_a_machine<F: Future<Output = ()>>(test: &str, body: impl FnOnce(Machine) -> F) {
    if std::env::var_os(INSIDE).is_some() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let machine = Machine::new();
        runtime.block_on(async { body(machine).await });
        return;
    }
    let status = Command::new("timeout")
        .args(["-s", "KILL", LIMIT, "unshare", "-n", "-m", "-p", "-f"])
        .args(["--kill-child", "--mount-proc"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .status()
        .unwrap();
    assert!(status.success(), "{test}: {status}");
}

/// The machine, seen from inside.
#[derive(Debug)]
pub(crate) struct Machine {
    folder: tempfile::TempDir,
    daemons: Vec<Child>,
}

impl Machine {
    fn new() -> Self {
        run("mount --make-rprivate / && mount -t sysfs sysfs /sys && ip link set lo up");
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        // systemd-resolved is another user.
        run(&format!("chmod 755 {}", folder.path().display()));
        let etc = folder.path().join("etc");
        let lines = [
            format!("cp -a /etc {0} && mount --bind {0} /etc", etc.display()),
            "mount -t tmpfs -o mode=755 tmpfs /run && mount -t tmpfs tmpfs /var/lib".to_owned(),
            "rm -f /etc/hosts /etc/resolv.conf".to_owned(),
        ];
        lines.iter().for_each(|line| run(line));
        fs::write("/etc/hosts", HOSTS).unwrap();
        fs::write("/etc/resolv.conf", "nameserver 192.0.2.53\n").unwrap();
        Self {
            folder,
            daemons: Vec::new(),
        }
    }

    /// Starts a system bus and systemd-resolved.
    pub(crate) async fn with_resolved(mut self) -> Self {
        let folder = self.folder.path().display();
        run("sed -i '/^systemd-resolve:/d' /etc/passwd /etc/group");
        run("echo 'systemd-resolve:x:995:995::/:/usr/sbin/nologin' >>/etc/passwd");
        run("echo 'systemd-resolve:x:995:' >>/etc/group");
        run("mkdir -p /etc/systemd /run/systemd/resolve && chown 995:995 /run/systemd/resolve");
        let conf = "[Resolve]\nLLMNR=no\nMulticastDNS=no\nDNSSEC=no\nDNS=192.0.2.53\n";
        fs::write("/etc/systemd/resolved.conf", conf).unwrap();
        let bus = format!(
            r#"<busconfig><type>system</type><listen>unix:path={folder}/bus</listen><auth>EXTERNAL</auth>
<policy context="default"><allow user="*"/><allow own="*"/><allow send_destination="*"/>
<allow receive_sender="*"/></policy></busconfig>"#
        );
        fs::write(self.folder.path().join("bus.conf"), bus).unwrap();
        let mut daemon = Command::new("dbus-daemon")
            .args(["--nofork", "--nopidfile", "--print-address=1"])
            .arg(format!("--config-file={folder}/bus.conf"))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let output = daemon.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        self.daemons.push(daemon);
        self.start_resolved().await;
        self
    }

    /// Starts systemd-resolved and waits until it has its name.
    pub(crate) async fn start_resolved(&mut self) {
        let root = resolved_root();
        let libraries = root.join("usr/lib/x86_64-linux-gnu");
        let path = [libraries.clone(), libraries.join("systemd")];
        let daemon = Command::new(root.join("lib/systemd/systemd-resolved"))
            .env("LD_LIBRARY_PATH", std::env::join_paths(path).unwrap())
            .env("DBUS_SYSTEM_BUS_ADDRESS", self.bus())
            .stderr(Stdio::null())
            .spawn();
        self.daemons.push(daemon.unwrap());
        let sys = self.sys();
        until("systemd-resolved on the bus", async || {
            let dns = kubebridge_platform::read_host_dns(&sys).await;
            dns.is_ok_and(|dns| dns.reasons[0].contains("is running"))
        })
        .await;
    }

    /// Kills systemd-resolved, which leaves its state of links behind.
    pub(crate) fn kill_resolved(&mut self) {
        let mut daemon = self.daemons.pop().unwrap();
        daemon.kill().unwrap();
        daemon.wait().unwrap();
    }

    /// Kills the system bus.
    pub(crate) fn kill_bus(&mut self) {
        let mut daemon = self.daemons.remove(0);
        daemon.kill().unwrap();
        daemon.wait().unwrap();
    }

    fn bus(&self) -> String {
        format!("unix:path={}/bus", self.folder.path().display())
    }

    /// Returns the machine for our crate.
    pub(crate) fn sys(&self) -> Sys {
        Sys {
            bus_address: Some(self.bus()),
            ..Sys::default()
        }
    }

    /// Returns the settings systemd-resolved has of a link, empty if none.
    pub(crate) fn link_state(&self, index: u32) -> String {
        fs::read_to_string(format!("/run/systemd/resolve/netif/{index}")).unwrap_or_default()
    }

    /// Asks systemd-resolved to do what `resolvectl` does.
    pub(crate) fn tell_resolved(&self, arguments: &str) {
        let name = "org.freedesktop.resolve1";
        let target = format!("{name} /org/freedesktop/resolve1 {name}.Manager");
        let bus = self.bus();
        run(&format!("busctl --address={bus} call {target} {arguments}"));
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            drop(daemon.kill());
            drop(daemon.wait());
        }
    }
}

fn resolved_root() -> PathBuf {
    let cache = std::env::var_os("KUBEBRIDGE_CACHE").map(PathBuf::from);
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache/kubebridge");
    let root = cache.unwrap_or_else(home).join("systemd-resolved-252");
    assert!(root.exists(), "{}: run tests/setup", root.display());
    root
}

/// Runs a shell line that must succeed.
pub(crate) fn run(line: &str) {
    let output = Command::new("bash").args(["-ec", line]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {said}");
}

/// Polls until something holds.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds().await {
        assert!(Instant::now() < deadline, "{what} did not come");
        sleep(Duration::from_millis(10)).await;
    }
}

/// Returns what the tests want of the machine.
pub(crate) fn intent(link: Option<&Link>) -> Intent {
    let strings = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect();
    let dns = link.map(|link| DnsIntent {
        servers: vec![link.resolver.into()],
        routes: strings(&["cluster.local", "svc"]),
        namespaces: strings(&["default"]),
        search: strings(&["default.svc.cluster.local"]),
        reverse: strings(&["96.10.in-addr.arpa"]),
    });
    let hosts = vec![HostsLine {
        address: "10.96.0.7".parse().unwrap(),
        names: strings(&["authors", "authors.default"]),
    }];
    let mut intent = Intent::new(dns, hosts).unwrap();
    if link.is_some() {
        let routes = ["10.96.0.0/16", "10.244.0.0/16", "fd00:10::/112"];
        intent.routes = routes.map(|text| text.parse().unwrap()).to_vec();
    }
    intent.checked().unwrap()
}

/// Connects a session with everything.
pub(crate) async fn connect(sys: &Sys) -> (LocalHost, Link) {
    let mut host = LocalHost::new(sys.clone(), SessionId::random()).unwrap();
    let spec = LinkSpec {
        cidr: None,
        avoid: Vec::new(),
        mtu: 16_000,
        v6: false,
    };
    let link = host.open(&spec).await.unwrap();
    let applied = host.apply(&intent(Some(&link))).await.unwrap();
    assert_eq!(applied.warnings, Vec::<String>::new());
    (host, link)
}

/// Takes a link's device for its packets.
pub(crate) fn packets(link: &mut Link) -> Packets {
    let none = OwnedFd::from(fs::File::open("/dev/null").unwrap());
    std::mem::replace(&mut link.tun, none.into())
        .packets()
        .unwrap()
}

/// Sends a datagram to a link's resolver and sees it leave by the device.
pub(crate) async fn reaches(packets: &Packets, resolver: Ipv4Addr) {
    let sender = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    sender.send_to(b"hello", (resolver, 53)).unwrap();
    let mut buffer = [0; 2048];
    let arrival = async {
        loop {
            let length = poll_fn(|cx| packets.poll_recv(cx, &mut buffer))
                .await
                .unwrap();
            let packet = &buffer[..length];
            if packet.ends_with(b"hello") && packet[16..20] == resolver.octets() {
                return;
            }
        }
    };
    timeout(Duration::from_secs(30), arrival).await.unwrap();
}

/// Returns everything a session may leave behind.
pub(crate) fn state() -> Vec<String> {
    let mut all = vec![
        fs::read_to_string("/etc/hosts").unwrap(),
        fs::read_to_string("/etc/resolv.conf").unwrap(),
    ];
    for folder in [
        "/etc",
        "/var/lib/kubebridge/sessions",
        "/run/systemd/resolve/netif",
    ] {
        all.extend(names(Path::new(folder)));
    }
    let links = names(Path::new("/sys/class/net")).into_iter();
    all.extend(links.filter(|link| link != "lo"));
    for family in ["-4", "-6"] {
        let routes = ["route", "show", "table", "all", "proto", "107"];
        let output = Command::new("ip")
            .arg(family)
            .args(routes)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        all.extend(text.lines().map(str::to_owned));
    }
    all
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries
        .map(|entry| entry.path().display().to_string())
        .collect();
    names.sort();
    names
}
