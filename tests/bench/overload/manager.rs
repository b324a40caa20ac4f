//! The traffic-manager as a process of its own, and what it uses.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use kubebridge_tests::listening::addresses;
use tempfile::TempDir;
use tokio::time::Instant;

/// What a pod's file says.
const RESOLV_CONF: &str = "search default.svc.cluster.local svc.cluster.local cluster.local\n\
    options ndots:5\n";
/// How often what it uses is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// A running manager; it ends when dropped.
#[derive(Debug)]
pub(crate) struct Manager {
    child: Child,
    pub(crate) dns: SocketAddr,
    admin: SocketAddr,
    _directory: TempDir,
}

/// What the process uses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Usage {
    /// The most memory it ever had resident, in KiB.
    pub(crate) memory: f64,
    pub(crate) sockets: usize,
    /// Processor time so far, in seconds.
    pub(crate) cpu: f64,
}

impl Manager {
    /// Starts the program that was built beside this one.
    pub(crate) fn start(upstream: SocketAddr) -> Result<Self> {
        let program = program()?;
        let directory = tempfile::tempdir()?;
        let resolv_conf = directory.path().join("resolv.conf");
        std::fs::write(&resolv_conf, RESOLV_CONF)?;
        let mut child = Command::new(program)
            .arg("serve")
            .arg("--resolv-conf")
            .arg(resolv_conf)
            .arg(format!("--upstream={upstream}"))
            .args(["--dns-listen=127.0.0.1:0", "--grpc-listen=127.0.0.1:0"])
            .arg("--admin-listen=127.0.0.1:0")
            .env("RUST_LOG", "traffic_manager=info")
            .stderr(Stdio::piped())
            .spawn()?;
        let stderr = child.stderr.take().context("no stderr")?;
        let [dns, admin] = addresses(stderr, ["dns", "admin"])?;
        Ok(Self {
            child,
            dns,
            admin,
            _directory: directory,
        })
    }

    pub(crate) fn usage(&self) -> Result<Usage> {
        let process = PathBuf::from(format!("/proc/{}", self.child.id()));
        let status = std::fs::read_to_string(process.join("status"))?;
        let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let most = most.context("no VmHWM")?.trim().trim_end_matches(" kB");
        let mut sockets = 0;
        for descriptor in std::fs::read_dir(process.join("fd"))? {
            // One that was closed in this moment is none.
            let target = std::fs::read_link(descriptor?.path()).unwrap_or_default();
            sockets += usize::from(target.to_string_lossy().starts_with("socket:"));
        }
        let stat = std::fs::read_to_string(process.join("stat"))?;
        let (_, rest) = stat.rsplit_once(')').context("no stat")?;
        let ticks = rest.split_whitespace().skip(11).take(2);
        let ticks: Vec<f64> = ticks.map(str::parse).collect::<Result<_, _>>()?;
        Ok(Usage {
            memory: most.parse()?,
            sockets,
            cpu: ticks.iter().sum::<f64>() / 100.0,
        })
    }

    /// Looks at it for the time; returns the most of everything.
    pub(crate) fn watch(&mut self, time: Duration) -> Result<Usage> {
        let begun = Instant::now();
        let mut most = self.usage()?;
        while begun.elapsed() < time {
            std::thread::sleep(LOOK);
            ensure!(self.child.try_wait()?.is_none(), "the manager ended");
            let now = self.usage()?;
            most = Usage {
                memory: now.memory.max(most.memory),
                sockets: now.sockets.max(most.sockets),
                cpu: now.cpu,
            };
        }
        Ok(most)
    }

    /// Asks it how many resolutions were turned away.
    pub(crate) fn shed(&self) -> Result<u64> {
        let mut stream = TcpStream::connect(self.admin)?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix("kubebridge_dns_shed_total "));
        Ok(value.context("no count of what was shed")?.trim().parse()?)
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program() -> Result<PathBuf> {
    let program = std::env::current_exe()?.with_file_name("traffic-manager");
    if !program.exists() {
        bail!(
            "there is no {}: build it with `cargo build --release -p traffic-manager`",
            program.display()
        );
    }
    Ok(program)
}
