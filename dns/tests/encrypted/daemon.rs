//! A daemon from a package, run on loopback for one test.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

/// How long a daemon may take until it listens, on a busy machine.
const STARTING: Duration = Duration::from_secs(30);
/// How often it is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A running daemon; dropping it kills it.
pub(crate) struct Daemon {
    child: Child,
    command: Vec<String>,
    log: PathBuf,
    listens: Vec<SocketAddr>,
    ready: &'static str,
}

impl Daemon {
    /// Starts a program in the foreground and waits until it has logged that it is ready and
    /// listens on all the ports.
    pub(crate) async fn start(
        folder: &Path,
        command: &[&str],
        listens: &[SocketAddr],
        ready: &'static str,
    ) -> Self {
        let mut command: Vec<String> = command.iter().map(|part| (*part).to_owned()).collect();
        let log = folder.join(format!("{}.log", command[0]));
        command[0] = program(&command[0]);
        let mut daemon = Self {
            child: spawn(&command, &log),
            command,
            log,
            listens: listens.to_vec(),
            ready,
        };
        daemon.is_ready().await;
        daemon
    }

    /// Kills it and starts it again in the same place.
    pub(crate) async fn restart(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.child = spawn(&self.command, &self.log);
        self.is_ready().await;
    }

    /// Has it stand still, with all its threads.
    pub(crate) async fn stop(&self) {
        self.signal("STOP");
        while !self.stands_still() {
            sleep(LOOK_EVERY).await;
        }
    }

    /// Has it go on after a stop.
    pub(crate) fn go_on(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(sent.unwrap().success());
    }

    fn stands_still(&self) -> bool {
        let threads = fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let status = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("status"));
        let mut threads = threads.map(|thread| status(thread.unwrap()).unwrap());
        threads.all(|status| status.contains("State:\tT"))
    }

    /// Returns what it has written so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    async fn is_ready(&mut self) {
        let start = Instant::now();
        while !self.log().contains(self.ready) || !self.listens().await {
            let ended = self.child.try_wait().unwrap();
            let in_time = start.elapsed() < STARTING;
            assert!(ended.is_none() && in_time, "{ended:?}\n{}", self.log());
            // A daemon tells nobody when it is ready.
            sleep(LOOK_EVERY).await;
        }
    }

    async fn listens(&self) -> bool {
        let mut open = true;
        for address in &self.listens {
            open &= TcpStream::connect(address).await.is_ok();
        }
        open
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(command: &[String], log: &Path) -> Child {
    let output = File::create(log).unwrap();
    Command::new(&command[0])
        .args(&command[1..])
        .stdin(Stdio::null())
        .stdout(output.try_clone().unwrap())
        .stderr(output)
        .spawn()
        .unwrap()
}

/// Finds a program, also where only root looks.
fn program(name: &str) -> String {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    let found = places.map(|place| place.join(name)).find(|p| p.exists());
    let found = found.unwrap_or_else(|| panic!("{name} is not installed: run tests/setup"));
    found.into_os_string().into_string().unwrap()
}

/// Where ports are taken from: below those that the system gives to outgoing connections, any of
/// which could be gone again before the daemon binds it.
const PORTS: Range<u16> = 20_000..32_000;

/// Returns loopback addresses on which nobody listens, each once.
pub(crate) fn free<const N: usize>() -> [SocketAddr; N] {
    static NEXT: OnceLock<AtomicU16> = OnceLock::new();
    // Tests that run as processes of their own begin in different places.
    let next = NEXT.get_or_init(|| AtomicU16::new(rand::random_range(PORTS)));
    [(); N].map(|()| {
        loop {
            let port = next.fetch_add(1, Ordering::Relaxed);
            let port = PORTS.start + port % (PORTS.end - PORTS.start);
            let address = SocketAddr::from(([127, 0, 0, 1], port));
            if TcpListener::bind(address).is_ok() {
                return address;
            }
        }
    })
}
