//! The manager as a process of its own, so that its memory and time are its own.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use kubebridge_tests::listening::addresses;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use traffic_manager::args::Invocation;
use traffic_manager::test_util::ApiServer;

/// A running manager; it and its API server end when dropped.
#[derive(Debug)]
pub(crate) struct Manager {
    child: Child,
    pub(crate) grpc: SocketAddr,
    admin: SocketAddr,
    serving: JoinHandle<std::io::Result<()>>,
    _directory: TempDir,
}

/// What the manager counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) frames: u64,
    pub(crate) changes: u64,
}

/// Is the manager, with the rest of the command line.
pub(crate) async fn serve(arguments: impl Iterator<Item = OsString>) -> Result<()> {
    let program = OsString::from("traffic-manager");
    match traffic_manager::args::parse([program].into_iter().chain(arguments))? {
        Invocation::Serve(config) => {
            traffic_manager::run::start_logs(config.log_format);
            traffic_manager::run::serve(*config).await
        }
        Invocation::Upstreams(_) | Invocation::Print(_) => bail!("nothing to serve"),
    }
}

impl Manager {
    pub(crate) async fn start(api: ApiServer) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let serving = tokio::spawn(api.serve(listener));
        let directory = tempfile::tempdir()?;
        let kubeconfig = directory.path().join("kubeconfig");
        let text = format!(
            "current-context: c\n\
             clusters: [{{name: c, cluster: {{server: 'http://{address}'}}}}]\n\
             users: [{{name: u, user: {{}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: u, namespace: default}}}}]\n"
        );
        std::fs::write(&kubeconfig, text)?;
        let mut child = Command::new(std::env::current_exe()?)
            .args(["manager", "serve", "--kubernetes", "--auth=port-forward"])
            .args(["--dns-listen=127.0.0.1:0", "--grpc-listen=127.0.0.1:0"])
            .args(["--admin-listen=127.0.0.1:0"])
            .env("KUBECONFIG", kubeconfig)
            .env("RUST_LOG", "traffic_manager=info")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let stderr = child.stderr.take().context("no stderr")?;
        let reading = tokio::task::spawn_blocking(|| addresses(stderr, ["grpc", "admin"]));
        let [grpc, admin] = reading.await??;
        Ok(Self {
            child,
            grpc,
            admin,
            serving,
            _directory: directory,
        })
    }

    pub(crate) async fn ready(&self) -> Result<()> {
        let mut ticks = tokio::time::interval(Duration::from_millis(10));
        loop {
            ticks.tick().await;
            if self.get("/readyz").await?.starts_with("HTTP/1.1 200") {
                return Ok(());
            }
        }
    }

    /// Returns a line of the process's status, in KiB.
    pub(crate) fn memory(&self, key: &str) -> Result<f64> {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        let number = line.context("no such line")?.trim().trim_end_matches(" kB");
        Ok(number.parse()?)
    }

    /// Returns the processor time used so far, in seconds of 100 ticks.
    pub(crate) fn cpu(&self) -> Result<f64> {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let (_, rest) = text.rsplit_once(')').context("no stat")?;
        let ticks = rest.split_whitespace().skip(11).take(2);
        let ticks: Vec<f64> = ticks.map(str::parse).collect::<Result<_, _>>()?;
        Ok(ticks.iter().sum::<f64>() / 100.0)
    }

    pub(crate) async fn counts(&self) -> Result<Counts> {
        let text = self.get("/metrics").await?;
        let value = |name: &str| -> Result<u64> {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            Ok(line.ok_or_else(|| anyhow!("no {name}"))?.trim().parse()?)
        };
        Ok(Counts {
            frames: value("kubebridge_route_frames_total{kind=\"delta\"}")?
                + value("kubebridge_route_frames_total{kind=\"page\"}")?,
            changes: value("kubebridge_route_changes_sent_total")?,
        })
    }

    async fn get(&self, path: &str) -> Result<String> {
        let mut stream = TcpStream::connect(self.admin).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await?;
        Ok(reply)
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        self.serving.abort();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
