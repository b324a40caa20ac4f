//! A machine of the lab: own network, mounts and processes, held by one process.
//!
//! Everything started in it dies with its holder, and the holder ends when the test process does,
//! however that ends: it reads a pipe that only the test process holds. Knows nothing of DNS.

use std::{
    fmt, fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// The longest a command may run: above the slowest (`kubectl` on a busy machine).
const COMMAND: Duration = Duration::from_secs(40);

/// How long an HTTP server may take for a probe.
const HTTP_TIMEOUT: Duration = Duration::from_secs(30);

/// What every machine does first. A fresh sysfs, else /sys shows the links outside; no duplicate
/// address detection, so that a link's addresses do not change after it is up.
const FIRST: &str = "set -e
mount --make-rprivate /
mount -t sysfs sysfs /sys
mount -t tmpfs -o mode=755 tmpfs /run
echo 0 >/proc/sys/net/ipv6/conf/all/accept_dad
echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad
ip link set lo up
";

/// A set of namespaces and the process that keeps them alive.
pub struct Machine {
    name: &'static str,
    holder: Child,
    first_process: u32,
    environment: Vec<(String, String)>,
}

impl fmt::Debug for Machine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} (process {})", self.name, self.first_process)
    }
}

impl Machine {
    /// Makes the namespaces and runs the shell lines `setup` in them.
    pub fn start(name: &'static str, setup: &str) -> Result<Self> {
        let script = format!("{FIRST}{setup}\necho ready\nexec cat >/dev/null");
        let mut holder = clean(Command::new("unshare"))
            .args(["-n", "-m", "-p", "-f", "--kill-child", "--mount-proc"])
            .args(["bash", "-c", &script, name])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("unshare")?;
        let mut said = String::new();
        let output = holder.stdout.take().context("the holder has no output")?;
        BufReader::new(output).read_line(&mut said)?;
        ensure!(
            said == "ready\n",
            "{name} did not start (needs root), its setup ended with {:?}",
            holder.wait()?
        );
        let first_process = child_of(holder.id())?;
        Ok(Self {
            name,
            holder,
            first_process,
            environment: Vec::new(),
        })
    }

    /// What the machine is called in messages and log names.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The process to name when something is to be put into this machine's namespaces.
    pub fn process(&self) -> u32 {
        self.first_process
    }

    /// Adds a variable to the environment of all later commands.
    pub fn environment(&mut self, name: &str, value: &str) {
        self.environment.push((name.to_owned(), value.to_owned()));
    }

    /// `path` of this machine as seen from outside.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        Path::new("/proc")
            .join(self.first_process.to_string())
            .join("root")
            .join(path.strip_prefix("/").unwrap_or(path))
    }

    /// A command inside the machine, to be given its arguments and started by the caller.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = clean(Command::new("nsenter"));
        command
            .args(["-t", &self.first_process.to_string(), "-n", "-m", "-p"])
            .arg(program.as_ref())
            .envs(self.environment.iter().cloned())
            .stdin(Stdio::null());
        command
    }

    /// Runs a command to its end, which may be a failure.
    pub fn run(&self, words: &[&str]) -> Result<Output> {
        self.run_within(COMMAND, words)
    }

    /// As [`run`](Self::run), with a limit of its own.
    pub fn run_within(&self, limit: Duration, words: &[&str]) -> Result<Output> {
        self.command("timeout")
            .args(["-s", "KILL", &limit.as_secs().to_string()])
            .args(words)
            .output()
            .with_context(|| format!("{}: run {words:?}", self.name))
    }

    /// Runs a command that must succeed and gives what it printed.
    pub fn output(&self, words: &[&str]) -> Result<String> {
        self.output_within(COMMAND, words)
    }

    /// As [`output`](Self::output), with a limit of its own.
    pub fn output_within(&self, limit: Duration, words: &[&str]) -> Result<String> {
        let output = self.run_within(limit, words)?;
        if !output.status.success() {
            bail!(
                "{}: {words:?} ended with {}: {}{}",
                self.name,
                output.status,
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Runs shell lines that must succeed.
    pub fn shell(&self, lines: &str) -> Result<String> {
        self.output(&["bash", "-euc", lines])
    }

    /// Moves the calling thread into the machine's network, for good: use a thread made for it.
    pub fn enter_network(&self) -> Result<()> {
        enter_network(self.first_process)
    }
}

/// Moves the calling thread into the network of the machine with this [`Machine::process`].
pub(crate) fn enter_network(process: u32) -> Result<()> {
    let network = fs::File::open(format!("/proc/{process}/ns/net"))?;
    move_into_link_name_space(
        std::os::fd::AsFd::as_fd(&network),
        Some(LinkNameSpaceType::Network),
    )
    .context("enter a machine's network")
}

/// Fails unless an HTTP GET in the machine's network is answered with 200.
pub fn http_ok(machine: &Machine, address: &str, path: &str) -> Result<()> {
    http_get(machine, address, path).map(drop)
}

/// What an HTTP GET in the machine's network is answered with, which must be 200: its header and
/// body.
pub fn http_get(machine: &Machine, address: &str, path: &str) -> Result<String> {
    let process = machine.process();
    let reply = thread::scope(|scope| {
        let asking = scope.spawn(|| -> Result<String> {
            enter_network(process)?;
            let mut stream = TcpStream::connect(address)?;
            stream.set_read_timeout(Some(HTTP_TIMEOUT))?;
            write!(stream, "GET {path} HTTP/1.0\r\nHost: lab\r\n\r\n")?;
            let mut reply = String::new();
            stream.read_to_string(&mut reply)?;
            Ok(reply)
        });
        asking
            .join()
            .unwrap_or_else(|_| bail!("the asking thread died"))
    })?;
    let status = reply.lines().next().unwrap_or_default();
    ensure!(status.contains(" 200"), "http://{address}{path}: {reply}");
    Ok(reply)
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Killing unshare kills its child (--kill-child), the first process of the machine, and
        // with it the kernel kills every other process there.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Joins two machines by a cable whose ends have the given names.
pub fn cable(left: (&Machine, &str), right: (&Machine, &str)) -> Result<()> {
    let (left, left_end) = left;
    let (right, right_end) = right;
    // Entered without the process namespace: the process numbers below are ours.
    let made = clean(Command::new("nsenter"))
        .args(["-t", &left.process().to_string(), "-n", "ip", "link", "add"])
        .args(["name", left_end, "type", "veth", "peer", "name", right_end])
        .args(["netns", &right.process().to_string()])
        .output()?;
    ensure!(
        made.status.success(),
        "cable {left:?}-{right:?}: {}",
        String::from_utf8_lossy(&made.stderr)
    );
    Ok(())
}

/// The only child of a process, once it has one.
pub(crate) fn child_of(process: u32) -> Result<u32> {
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children"))?;
    children
        .split_whitespace()
        .next()
        .with_context(|| format!("process {process} has no child"))?
        .parse()
        .context("read a process number")
}

/// A command that does not see the environment of the test process.
pub(crate) fn clean(mut command: Command) -> Command {
    command
        .env_clear()
        .env(
            "PATH",
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        )
        .env("HOME", "/root")
        .env("LC_ALL", "C");
    command
}
