//! The manager's DNS as other people's tools see it: dig, kdig, drill and dnsperf, with BIND behind it.
//!
//! The rows are conditions of the protocol, seen over UDP and TCP, cold and from the cache. What these
//! tools cannot send is tested by hand-made packets in `dns/tests/protocol`.

use std::{fs, path::PathBuf, time::Duration};

use anyhow::{Context, Result, anyhow, ensure};
use kubebridge_tests::{
    checks::Checks,
    daemon::Daemon,
    machine::Machine,
    nameserver::{LONG_RECORDS, NameServer, PLAIN, TLS},
    parts::program,
    tool::{Tool, ask, say},
    wait::until,
};
use tempfile::TempDir;

use self::rows::{DIG_ROWS, DRILL_ROWS, KDIG_ROWS, ROWS, Row, SOA, TRANSPORTS};

mod rows;

const START: Duration = Duration::from_secs(30);
/// Far above what a change of trust takes: what is tested is that it is followed.
const FOLLOWED: Duration = Duration::from_secs(30);

/// An address of the machine that is not loopback.
const OUTSIDE: &str = "192.0.2.99";

/// The Services of the manager.
const SERVICES: &str = "kind: List
items:
- {kind: Service, metadata: {name: authors}, spec: {clusterIP: 10.96.1.1, ports: [{port: 80}]}}
- {kind: Service, metadata: {name: docs}, spec: {type: ExternalName, externalName: a.example}}
";
/// No nameserver: upstreams are named by flags.
const RESOLV_CONF: &str =
    "search default.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n";

/// A machine with BIND, for managers to run in.
struct World {
    folder: TempDir,
    machine: Machine,
}

impl World {
    fn start() -> Result<(Self, NameServer)> {
        let folder = tempfile::tempdir()?;
        let machine = Machine::start("tools", &format!("ip addr add {OUTSIDE}/32 dev lo"))?;
        for (name, text) in [("services.yaml", SERVICES), ("resolv.conf", RESOLV_CONF)] {
            fs::write(folder.path().join(name), text)?;
        }
        fs::create_dir(folder.path().join("logs"))?;
        let server = NameServer::start(&machine, folder.path())?;
        Ok((Self { folder, machine }, server))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts a manager that answers DNS at this port and its probes at the one 6,000 above.
    fn manager(&self, port: u16, more: &[&str]) -> Result<Daemon> {
        let mut command = self.machine.command(program("traffic-manager")?);
        command
            .args(["serve", "--absolute-zone=example"])
            .arg(format!(
                "--services={}",
                self.path("services.yaml").display()
            ))
            .arg(format!(
                "--resolv-conf={}",
                self.path("resolv.conf").display()
            ))
            .arg(format!("--dns-listen=127.0.0.1:{port}"))
            .args(["--grpc-listen=127.0.0.1:0"])
            .arg(format!("--admin-listen=[::]:{}", port + 6000))
            .args(more);
        let name = format!("traffic-manager-{port}");
        let daemon = Daemon::start(&name, &self.path("logs"), command)?;
        daemon.until_line("the manager to have started", START, |line| {
            line.contains("started")
        })?;
        Ok(daemon)
    }

    fn read(&self, port: u16, tool: Tool, words: &[&str]) -> Result<String> {
        ask(&self.machine, tool, port, words).map(|reply| reply.to_string())
    }
}

#[test]
fn dig_kdig_and_drill_see_each_reply_as_the_conditions_have_it() -> Result<()> {
    let (world, _server) = World::start()?;
    let upstream = format!("--upstream={PLAIN}");
    // Each question is cold over UDP at the first and over TCP at the second.
    let _managers = [
        world.manager(1053, &[&upstream])?,
        world.manager(1054, &[&upstream])?,
    ];
    let mut checks = Checks::new();
    let mut see = |port, tool, row: &Row, transport: &str| {
        let (condition, question, wanted) = row;
        let mut words: Vec<_> = question.split(' ').collect();
        words.insert(0, transport);
        words.retain(|word| !word.is_empty());
        let wanted = match wanted.strip_suffix("; SOA") {
            Some(start) => format!("{start}; {SOA}"),
            None => (*wanted).to_owned(),
        };
        let got = world.read(port, tool, &words);
        checks.equal(
            format!("{condition} {tool:?} {words:?} at {port}"),
            got,
            &wanted,
        );
    };
    let [udp, tcp] = TRANSPORTS;
    for row in ROWS {
        for tool in [Tool::Dig, Tool::Kdig] {
            for transport in [udp, tcp] {
                see(1053, tool, row, transport);
            }
        }
        for tool in [Tool::Kdig, Tool::Dig] {
            for transport in [tcp, udp] {
                see(1054, tool, row, transport);
            }
        }
    }
    for (tool, rows) in [(Tool::Dig, DIG_ROWS), (Tool::Kdig, KDIG_ROWS)] {
        for row in rows {
            for transport in [udp, tcp] {
                see(1053, tool, row, transport);
            }
            for transport in [tcp, udp] {
                see(1054, tool, row, transport);
            }
        }
    }
    for row in DRILL_ROWS {
        for transport in ["-u", "-t"] {
            see(1053, Tool::Drill, row, transport);
        }
    }
    checks.finish()
}

#[test]
fn what_does_not_fit_is_cut_and_fetched_over_tcp_and_no_ttl_ever_rises() -> Result<()> {
    let (world, _server) = World::start()?;
    let _manager = world.manager(1053, &[&format!("--upstream={PLAIN}")])?;
    let mut checks = Checks::new();
    for tool in [Tool::Dig, Tool::Kdig] {
        for size in ["+noedns", "+edns=0 +bufsize=512", "+edns=0 +bufsize=65535"] {
            let mut words = vec!["+notcp", "+ignore", "long.example", "TXT"];
            words.extend(size.split(' '));
            let edns = if size == "+noedns" {
                ""
            } else {
                " edns 0 1232"
            };
            let wanted = format!("NOERROR qr tc rd ra 1/0/0{edns}");
            checks.equal(
                format!("T1 {tool:?} {size}"),
                world.read(1053, tool, &words),
                &wanted,
            );
        }
        let whole = ask(&world.machine, tool, 1053, &["long.example", "TXT"]);
        let whole =
            whole.map(|reply| format!("{} {} {}", reply.status, reply.flags, reply.records.len()));
        checks.equal(
            format!("T2 {tool:?}"),
            whole,
            &format!("NOERROR qr rd ra {LONG_RECORDS}"),
        );
        for (kind, word) in [("AXFR", "AXFR"), ("IXFR", "IXFR=1")] {
            let said = say(&world.machine, tool, 1053, &["example", "-t", word])?;
            let refused = said.contains("Transfer failed") || said.contains("error 'REFUSED'");
            let outcome = if refused { Ok(()) } else { Err(anyhow!(said)) };
            checks.that(format!("P11 {kind} {tool:?}"), outcome);
        }
    }
    let mut last = 301;
    for transport in TRANSPORTS.into_iter().cycle().take(6) {
        let reply = ask(
            &world.machine,
            Tool::Dig,
            1053,
            &[transport, "a.example", "A"],
        )?;
        let ttl = *reply.ttls.first().context("a TTL")?;
        let fell = (1..=last).contains(&ttl);
        let outcome = if fell {
            Ok(())
        } else {
            Err(anyhow!("{ttl} after {last}"))
        };
        checks.that("K2", outcome);
        last = ttl;
    }
    // One connection, question after question.
    let names: Vec<String> = (0..50)
        .map(|number| format!("n{number}.many.example"))
        .collect();
    let mut words = vec!["+tcp", "+keepopen"];
    words.extend(names.iter().map(String::as_str));
    let said = say(&world.machine, Tool::Kdig, 1053, &words)?;
    checks.equal(
        "C7 kdig +keepopen",
        Ok(said.matches("192.0.2.7").count().to_string()),
        "50",
    );
    checks.finish()
}

#[test]
fn e12_a_failure_that_no_upstream_answered_says_so() -> Result<()> {
    let (world, _server) = World::start()?;
    // Nobody listens there.
    let _manager = world.manager(1053, &["--upstream=127.0.0.1:5999"])?;
    let mut checks = Checks::new();
    for (tool, option) in [
        (Tool::Dig, "; EDE: 23 (Network Error)"),
        (Tool::Kdig, ";; EDE: 23 (Network Error)"),
    ] {
        for transport in TRANSPORTS {
            let with = [transport, "+edns=0", "a.example", "A"];
            let wanted = format!("SERVFAIL qr rd ra 1/0/0 edns 0 1232 {option}");
            checks.equal(
                format!("{tool:?} {with:?}"),
                world.read(1053, tool, &with),
                &wanted,
            );
            let without = [transport, "+noedns", "a.example", "A"];
            let got = world.read(1053, tool, &without);
            checks.equal(
                format!("{tool:?} {without:?}"),
                got,
                "SERVFAIL qr rd ra 1/0/0",
            );
        }
    }
    checks.finish()
}

/// How often the file of questions is asked: 10,000 questions in all.
const RUNS: usize = 1_000;
/// Names that are kept, that are ours, that do not exist, that have no such type.
const MIXED: &str = "a.example A\na.example AAAA\nauthors A\nauthors AAAA\nodd.example TYPE65280\nweb.example HTTPS\n\
    gone.example A\nalias.example A\nlocalhost A\ndocs A\n";

#[test]
fn of_ten_thousand_questions_of_dnsperf_none_is_lost_and_each_has_its_code() -> Result<()> {
    let (world, _server) = World::start()?;
    let _manager = world.manager(1053, &[&format!("--upstream={PLAIN}")])?;
    fs::write(world.path("mixed"), MIXED)?;
    let mut checks = Checks::new();
    for mode in ["udp", "tcp"] {
        let said = dnsperf(&world, "mixed", &["-m", mode, "-n", &RUNS.to_string()])?;
        let summary = ["Queries sent:", "Queries lost:", "Response codes:"].map(|line| {
            let found = said.lines().find_map(|said| said.trim().strip_prefix(line));
            found
                .unwrap_or("is missing")
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
        });
        checks.equal(
            format!("over {mode}"),
            Ok(summary.join("; ")),
            "10000; 0 (0.00%); NOERROR 9000 (90.00%), NXDOMAIN 1000 (10.00%)",
        );
    }
    checks.finish()
}

fn dnsperf(world: &World, file: &str, more: &[&str]) -> Result<String> {
    let file = world.path(file).display().to_string();
    let words = [
        "dnsperf",
        "-s",
        "127.0.0.1",
        "-p",
        "1053",
        "-d",
        &file,
        "-c",
        "10",
        "-q",
        "100",
        "-t",
        "20",
    ];
    world.machine.output(&[&words[..], more].concat())
}

/// Runs `traffic-manager upstreams` for the manager at port 1053, and gives its exit code and what it
/// printed.
fn upstreams(world: &World, output: &str) -> Result<(Option<i32>, String)> {
    let (code, said, _) = upstreams_at(world, "127.0.0.1", output)?;
    Ok((code, said))
}

fn upstreams_at(
    world: &World,
    address: &str,
    output: &str,
) -> Result<(Option<i32>, String, String)> {
    let manager = program("traffic-manager")?.display().to_string();
    let admin = format!("--admin={address}:7053");
    let words = [manager.as_str(), "upstreams", &admin, "-o", output];
    let ended = world.machine.run(&words)?;
    let [said, error] = [ended.stdout, ended.stderr].map(String::from_utf8);
    Ok((ended.status.code(), said?, error?))
}

fn until_upstreams(world: &World, code: i32, words: &[&str]) -> Result<()> {
    until(
        &format!("exit {code} and {words:?} of `upstreams`"),
        FOLLOWED,
        || {
            let (found, text) = upstreams(world, "text")?;
            let has_all = words.iter().all(|word| text.contains(word));
            ensure!(found == Some(code) && has_all, "exit {found:?}:\n{text}");
            Ok(())
        },
    )
}

#[test]
fn an_encrypted_upstream_is_followed_through_a_change_of_authority() -> Result<()> {
    let (world, server) = World::start()?;
    let trusted = world.path("trusted.pem");
    fs::copy(server.authority("ca"), &trusted)?;
    let flags = [
        format!("--upstream={TLS}"),
        format!("--upstream-ca={}", trusted.display()),
    ];
    let _manager = world.manager(1053, &[&flags[0], &flags[1]])?;
    let answer = |name: &str| world.read(1053, Tool::Dig, &[name, "A"]);
    let good = |name: &str| format!("NOERROR qr rd ra 1/1/0; {name}. A 192.0.2.7");
    let mut checks = Checks::new();

    until_upstreams(
        &world,
        0,
        &["healthy", "dot", "127.0.0.1:8530", "dns.example"],
    )?;
    let (code, said, error) = upstreams_at(&world, OUTSIDE, "json")?;
    let refused = code == Some(69) && said.is_empty() && error.contains("403 Forbidden");
    let outcome = if refused {
        Ok(())
    } else {
        Err(anyhow!("{code:?} {said}{error}"))
    };
    checks.that("told to nobody outside", outcome);
    checks.equal(
        "trusted",
        answer("one.many.example"),
        &good("one.many.example"),
    );

    let server = server.start_again_certified_by(&world.machine, "next")?;
    // Nothing asks but this: the failures of questions are what makes it look.
    let lost = until("the strange certificate to be refused", FOLLOWED, || {
        let got = answer(&format!("n{}.many.example", rand::random::<u32>()))?;
        ensure!(got == "SERVFAIL qr rd ra 1/0/0", "{got}");
        Ok(())
    });
    checks.that("no longer trusted", lost);
    checks.that(
        "shown",
        until_upstreams(&world, 1, &["unhealthy", "unknown authority"]),
    );

    let mut both = fs::read(&trusted)?;
    both.extend(fs::read(server.authority("next"))?);
    fs::write(world.path("both.pem"), both)?;
    fs::rename(world.path("both.pem"), &trusted)?;
    checks.that("trusted again", until_upstreams(&world, 0, &["healthy"]));
    checks.equal(
        "answered again",
        answer("two.many.example"),
        &good("two.many.example"),
    );
    let (_, json) = upstreams(&world, "json")?;
    let document: serde_json::Value = serde_json::from_str(&json)?;
    checks.equal(
        "JSON",
        Ok(document["schema"].to_string()),
        "\"kubebridge.upstreams/v1\"",
    );
    checks.finish()
}

#[test]
fn ten_thousand_questions_to_an_encrypted_upstream_share_their_connection() -> Result<()> {
    let (world, server) = World::start()?;
    let ca = format!("--upstream-ca={}", server.authority("ca").display());
    let _manager = world.manager(1053, &[&format!("--upstream={TLS}"), &ca])?;
    until_upstreams(&world, 0, &["healthy"])?;
    // Each name once, so that each is asked upstream.
    let names: String = (0..10_000)
        .map(|number| format!("n{number}.many.example A\n"))
        .collect();
    fs::write(world.path("names"), names)?;
    world.machine.shell(
        "nft add table ip count
nft add chain ip count out '{ type filter hook output priority 0; }'
nft add rule ip count out tcp dport 8530 tcp flags '& (syn|ack) == syn' counter",
    )?;
    let said = dnsperf(&world, "names", &["-n", "1"])?;
    let counted = world.machine.shell("nft list table ip count")?;
    let opened = counted
        .split_once("packets ")
        .and_then(|(_, rest)| rest.split(' ').next());
    let opened: usize = opened.context("nft counted nothing")?.parse()?;
    println!("10,000 questions opened {opened} connections beside that of the first probe");
    let mut checks = Checks::new();
    let lost = said
        .lines()
        .find(|line| line.contains("Queries lost:"))
        .unwrap_or_default();
    checks.equal(
        "lost",
        Ok(lost.trim().to_owned()),
        "Queries lost:         0 (0.00%)",
    );
    // None is the rule; one is replaced when the machine lets BIND wait for a second.
    let few = if opened <= 10 {
        Ok(())
    } else {
        Err(anyhow!("{opened} for 10,000 questions"))
    };
    checks.that("opened", few);
    checks.finish()
}
