//! Programs of other people in Pods, and their own clients: what somebody connects a laptop for.

use anyhow::{Context, Result, ensure};
use kubebridge_tests::{
    checks::Checks,
    daemon::Daemon,
    lab::Lab,
    machine::Machine,
    parts::program,
    pods::{Exposed, PodNetwork, serve},
};

/// Where Debian has PostgreSQL.
const POSTGRES: &str = "/usr/lib/postgresql/15/bin";
/// Debian's own Python, which has the websockets package.
pub(crate) const PYTHON: &str = "/usr/bin/python3";

/// What each of the Services is exposed at; the Pod's address follows from the order.
const SERVICES: [(&str, &str, u16, u16); 5] = [
    ("web", "10.96.3.10", 9080, 8080),
    ("postgres", "10.96.3.11", 5432, 5432),
    ("grpc", "10.96.3.12", 50051, 50051),
    ("chat", "10.96.3.13", 80, 8765),
    ("iperf", "10.96.3.14", 5201, 5201),
];

const CHAT_SERVER: &str = "
import asyncio, websockets
async def echo(socket, *_):
    async for message in socket:
        await socket.send(message)
async def main():
    async with websockets.serve(echo, '0.0.0.0', 8765, max_size=None):
        await asyncio.Future()
asyncio.run(main())
";

const CHAT_CLIENT: &str = "
import asyncio, sys, websockets
async def main():
    async with websockets.connect(sys.argv[1], max_size=None) as socket:
        for size in (0, 1, 125, 126, 65535, 65536, 1000000):
            sent = bytes(i % 251 for i in range(size))
            await socket.send(sent)
            assert await socket.recv() == sent, size
        await socket.ping()
    print('ok')
asyncio.run(main())
";

/// The Pods with their programs.
#[derive(Debug)]
pub(crate) struct Workloads {
    #[expect(dead_code, reason = "they run as long as it lives")]
    running: Vec<(Machine, Vec<Daemon>)>,
}

impl Workloads {
    /// Starts all, and exposes each by a Service of its name in `default`.
    pub(crate) fn start(lab: &Lab, network: &PodNetwork) -> Result<Self> {
        let mut running = Vec::new();
        for (number, (name, cluster_ip, port, target)) in SERVICES.iter().enumerate() {
            let address = format!("10.244.1.{}", 31 + number);
            let pod = network.pod(lab, name, &address)?;
            let daemon = start(lab, &pod, name, *target).with_context(|| format!("pod {name}"))?;
            let service = Exposed {
                name,
                namespace: "default",
                cluster_ip,
                ports: &[("main", "TCP", *port, *target)],
                endpoints: &[&address],
            };
            network.expose(lab, &service)?;
            running.push((pod, vec![daemon]));
        }
        Ok(Self { running })
    }
}

fn start(lab: &Lab, pod: &Machine, name: &str, port: u16) -> Result<Daemon> {
    let other_manager = program("other-manager")?.display().to_string();
    let postgres = format!("{POSTGRES}/postgres");
    let words: &[&str] = match name {
        "web" => {
            pod.shell("mkdir /run/web; echo 'hello from a pod' >/run/web/index.html; head -c 3000000 /dev/zero >/run/web/zeros")?;
            &[
                PYTHON,
                "-m",
                "http.server",
                "8080",
                "--directory",
                "/run/web",
            ]
        }
        "postgres" => {
            pod.shell(&format!(
                "install -d -o postgres /run/pg
setpriv --reuid=postgres --regid=postgres --clear-groups {POSTGRES}/initdb -A trust -N -D /run/pg
echo 'host all all all trust' >>/run/pg/pg_hba.conf"
            ))?;
            &[
                "setpriv",
                "--reuid=postgres",
                "--regid=postgres",
                "--clear-groups",
                &postgres,
                "-D",
                "/run/pg",
                "-h",
                "*",
                "-k",
                "/run/pg",
                "-c",
                "fsync=off",
            ]
        }
        "grpc" => &[&other_manager, "0.0.0.0:50051", "0.1.0"],
        "chat" => &[PYTHON, "-c", CHAT_SERVER],
        _ => &["iperf3", "-s"],
    };
    serve(lab, pod, port, words)
}

/// The ClusterIP of one of the Services.
pub(crate) fn cluster_ip(service: &str) -> String {
    let found = SERVICES.iter().find(|(name, ..)| *name == service);
    found
        .map(|(_, address, ..)| (*address).to_owned())
        .unwrap_or_default()
}

/// Uses each as its users do, from `client`, by the address that `named` gives for a Service.
pub(crate) fn use_all(checks: &mut Checks, client: &Machine, named: impl Fn(&str) -> String) {
    checks.that("curl", web(client, &named("web")));
    checks.that("psql", database(client, &named("postgres")));
    checks.that("gRPC", grpc(client, &named("grpc")));
    checks.that("WebSocket", chat(client, &named("chat")));
    checks.that("iperf3", iperf(client, &named("iperf")));
}

fn web(client: &Machine, host: &str) -> Result<()> {
    let curl = ["curl", "-sS", "--noproxy", "*", "--max-time", "30"];
    let at = |path: &str| format!("http://{host}:9080/{path}");
    let page = client.output(&[&curl[..], &[&at("")]].concat())?;
    ensure!(page == "hello from a pod\n", "{page:?}");
    // Four at once, over connections of their own.
    let zeros = at("zeros");
    let how = [
        "-Z",
        "-o",
        "/dev/null",
        "-w",
        "%{http_code} %{size_download}\\n",
    ];
    let urls = [
        zeros.as_str(),
        "-o",
        "/dev/null",
        &zeros,
        "-o",
        "/dev/null",
        &zeros,
    ];
    let sizes = client.output(&[&curl[..], &how, &urls].concat())?;
    ensure!(sizes == "200 3000000\n".repeat(3), "{sizes:?}");
    Ok(())
}

fn database(client: &Machine, host: &str) -> Result<()> {
    let sql = "create table t(id int primary key, word text);
insert into t select n, repeat('x', 1000) from generate_series(1, 5000) n;
select count(*), sum(length(word)) from t; drop table t;";
    let words = [
        "psql",
        "-h",
        host,
        "-U",
        "postgres",
        "-qAt",
        "-v",
        "ON_ERROR_STOP=1",
        "-c",
        sql,
    ];
    let said = client.output(&words)?;
    ensure!(said.trim() == "5000|5000000", "{said:?}");
    // The bulk of it, there and back.
    let copy = "psql -h \"$1\" -U postgres -qAt -c 'copy (select repeat(md5(n::text), 100) from generate_series(1, 3000) n) to stdout' | md5sum";
    let here = client.output(&["bash", "-ec", copy, "copy", host])?;
    ensure!(here.len() > 32, "{here:?}");
    Ok(())
}

fn grpc(client: &Machine, host: &str) -> Result<()> {
    let program = program("peer")?.display().to_string();
    let said = client.output(&[&program, "grpc", &format!("{host}:50051"), "50"])?;
    ensure!(said.trim() == "calls=50", "{said:?}");
    Ok(())
}

fn chat(client: &Machine, host: &str) -> Result<()> {
    let said = client.output(&[PYTHON, "-c", CHAT_CLIENT, &format!("ws://{host}:80/")])?;
    ensure!(said.trim() == "ok", "{said:?}");
    Ok(())
}

fn iperf(client: &Machine, host: &str) -> Result<()> {
    for way in [&["-R"][..], &[]] {
        let words = [&["iperf3", "-c", host, "-t", "1", "-P", "2", "-J"][..], way].concat();
        let said: serde_json::Value = serde_json::from_str(&client.output(&words)?)?;
        let bits = said["end"]["sum_received"]["bits_per_second"].as_f64();
        ensure!(bits.is_some_and(|bits| bits > 0.0), "{said}");
    }
    Ok(())
}
