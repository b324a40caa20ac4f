//! A laptop made of a network namespace: a TUN, routes into it, and the terminator behind it.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use kubebridge_client::netstack::{Netstack, Settings};
use kubebridge_client::reachable::{Holds, Reachable};
use kubebridge_dns::server::{Handler, Transport};
use kubebridge_platform::tun::{Packets, Tun};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::far::Far;

/// Says to a test binary that it runs inside.
const INSIDE: &str = "KUBEBRIDGE_TEST_LAPTOP";

/// The longest a test may take: PID 1 of a namespace cannot be asked to end.
const LIMIT: &str = "300";

/// How long anything may take that has to come at once.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where the resolver is asked.
pub(crate) const RESOLVER: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(198, 19, 248, 2)), 53);

/// How many flows the laptop may have.
pub(crate) const FLOWS: usize = 64;

/// A resolver that says what it heard.
struct Mirror;

impl Handler for Mirror {
    async fn handle(&self, packet: Vec<u8>, _: SocketAddr, _: Transport) -> Option<Vec<u8>> {
        Some(packet)
    }
}

/// A laptop, seen from inside.
pub(crate) struct Laptop {
    pub(crate) netstack: Netstack<Packets>,
    pub(crate) far: Arc<Far>,
    _reachable: watch::Sender<Arc<Reachable>>,
}

/// Runs `body` in a network of its own, by starting this test once more there.
pub(crate) fn on_a_laptop<F: Future<Output = ()>>(test: &str, body: impl FnOnce(Laptop) -> F) {
    on_a_laptop_with_mtu(test, 16_000, body);
}

/// The same with another MTU.
pub(crate) fn on_a_laptop_with_mtu<F: Future<Output = ()>>(
    test: &str,
    mtu: u16,
    body: impl FnOnce(Laptop) -> F,
) {
    if std::env::var_os(INSIDE).is_some() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async { body(Laptop::start(mtu)).await });
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

impl Laptop {
    fn start(mtu: u16) -> Self {
        run("ip link set lo up");
        let tun = Tun::create("kb0", mtu).unwrap();
        run("ip address add 198.19.248.1/30 dev kb0; ip route add 10.96.0.0/12 dev kb0");
        run("ip address add fd00:6b::1/64 dev kb0 nodad; ip route add fd00:96::/32 dev kb0");
        let far = Arc::new(Far::default());
        let nets = vec![
            "10.96.0.0/16".parse().unwrap(),
            "fd00:96::/64".parse().unwrap(),
        ];
        let (reachable, receiver) = watch::channel(Arc::new(Reachable::new(
            nets,
            BTreeMap::new(),
            Holds::default(),
        )));
        let settings = Settings {
            mtu: usize::from(mtu),
            resolver: RESOLVER.ip(),
            flows: FLOWS,
        };
        let opener = Arc::clone(&far);
        let io = tun.packets().unwrap();
        let netstack = Netstack::start(io, settings, opener, receiver, Arc::new(Mirror));
        Self {
            netstack,
            far,
            _reachable: reachable,
        }
    }
}

/// Runs a shell line that must succeed.
pub(crate) fn run(line: &str) -> String {
    let output = Command::new("bash").args(["-ec", line]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// Waits for what has to come.
pub(crate) async fn soon<T>(what: &str, event: impl Future<Output = T>) -> T {
    let Ok(value) = timeout(PATIENCE, event).await else {
        panic!("{what} did not come");
    };
    value
}
