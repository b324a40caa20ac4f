//! The image of the traffic-manager: what is in it, and that it runs as a Pod under Pod Security
//! "restricted" runs it: no root, no capability, no new privileges, nothing to write to.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use kubebridge_tests::{
    caller::{call, open},
    checks::Checks,
    daemon::Daemon,
    dig::{Transport, dig},
    lab::{AUTHORS, CLUSTER_DNS, DOCS, DOCS_TARGET, Lab, NODE},
    machine::{Machine, cable, http_ok},
    parts::TESTS,
    product::{MANAGER_ACCOUNT, NAMESPACES},
    wait::until,
};
use serde_json::{Value, json};

use crate::reach::contains;

/// Far longer than anything here takes, on a busy machine too.
const SOON: Duration = Duration::from_secs(90);

/// The Pod's address.
const POD: &str = "10.244.5.2";

/// Who the image runs as.
const USER: u32 = 65532;

/// Runs the script that builds the image, and gives what it printed.
fn build(image: &Path) -> Result<String> {
    let script = Path::new(TESTS).with_file_name("deploy/build-image");
    let built = Command::new(&script)
        .arg("--debug")
        .arg(image)
        // Whatever builds the tests is no matter of the image.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_TARGET_DIR")
        .output()
        .with_context(|| script.display().to_string())?;
    let said = String::from_utf8_lossy(&built.stderr).into_owned();
    ensure!(built.status.success(), "{}: {said}", built.status);
    Ok(String::from_utf8(built.stdout)?.trim().to_owned())
}

/// Runs a program of this machine, which must succeed.
fn must(program: &str, words: &[&str]) -> Result<String> {
    let ran = Command::new(program).args(words).output()?;
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    ensure!(ran.status.success(), "{program} {words:?}: {said}");
    Ok(String::from_utf8_lossy(&ran.stdout).into_owned())
}

/// Unpacks an image into a bundle: `rootfs` and `config.json`.
fn unpack(image: &Path, at: &Path) -> Result<PathBuf> {
    let layout = at.join("layout");
    fs::create_dir(&layout)?;
    let (layout, bundle) = (layout.display().to_string(), at.join("bundle"));
    must("tar", &["-xf", &image.display().to_string(), "-C", &layout])?;
    let from = format!("{layout}:latest");
    must(
        "umoci",
        &["unpack", "--image", &from, &bundle.display().to_string()],
    )?;
    Ok(bundle)
}

#[test]
fn the_image_is_one_static_binary_and_the_same_bytes_each_time() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let at = folder.path();
    let [one, other] = ["one.tar", "other.tar"].map(|name| at.join(name));
    let digests = [build(&one)?, build(&other)?];
    let mut checks = Checks::new();
    checks.equal("the digest", Ok(digests[0].clone()), &digests[1]);
    let same = fs::read(&one)? == fs::read(&other)?;
    checks.that("the bytes", same.then_some(()).context("they differ"));

    let bundle = unpack(&one, at)?;
    let files: Vec<_> = fs::read_dir(bundle.join("rootfs"))?
        .map(|entry| Ok(entry?.file_name()))
        .collect::<Result<_>>()?;
    checks.equal(
        "the files",
        Ok(format!("{files:?}")),
        r#"["traffic-manager"]"#,
    );
    let binary = bundle.join("rootfs/traffic-manager");
    let headers = must("readelf", &["-l", &binary.display().to_string()])?;
    checks.that(
        "no loader is asked for",
        (!headers.contains("INTERP")).then_some(()).context(headers),
    );
    let text = fs::read(&binary)?;
    for path in [TESTS, "/root/.cargo"] {
        let is_there = text.windows(path.len()).any(|part| part == path.as_bytes());
        checks.that(
            format!("no path of this machine ({path})"),
            (!is_there).then_some(()).context("it is in the binary"),
        );
    }
    let config: Value = serde_json::from_slice(&fs::read(bundle.join("config.json"))?)?;
    let process = &config["process"];
    checks.equal(
        "who and what",
        Ok(format!("{} {}", process["user"], process["args"])),
        r#"{"gid":65532,"uid":65532} ["/traffic-manager","serve"]"#,
    );
    checks.finish()
}

#[test]
fn the_image_runs_as_a_restricted_pod_does_and_serves() -> Result<()> {
    let lab = Lab::start()?;
    let folder = tempfile::tempdir()?;
    let image = folder.path().join("image.tar");
    build(&image)?;
    let bundle = unpack(&image, folder.path())?;
    let pod = pod(&lab)?;
    write_config(&lab, &bundle)?;
    let mut command = pod.command("crun");
    command
        .args(["--root=/run/crun", "--cgroup-manager=disabled"])
        .args(["run", "--bundle"])
        .arg(&bundle)
        .arg("traffic-manager")
        .stdin(Stdio::null());
    let running = Daemon::start("traffic-manager", &lab.logs(), command)?;
    let mut checks = Checks::new();
    let probe = |path: &str| http_ok(&pod, &format!("{POD}:7081"), path);
    running.until("/livez", SOON, || probe("/livez"))?;
    running.until("/readyz", SOON, || probe("/readyz"))?;
    checks.that("its process", confined(&pod));

    let ask = |name: &str, wanted: &str| {
        until(name, SOON, || {
            let server = format!("{POD}#53");
            let got = dig(&lab.node, &server, Transport::Udp, name, "A")?;
            ensure!(got.to_string() == wanted, "{got}");
            Ok(())
        })
    };
    let authors = "authors.default.svc.cluster.local";
    checks.that(
        "a Service",
        ask(authors, &format!("NOERROR {authors}. A {AUTHORS}")),
    );
    // Its own address, which its resolv.conf names first, is no way to anywhere.
    checks.that(
        "an outside name, not by itself",
        ask(DOCS_TARGET, &format!("NOERROR {DOCS_TARGET}. A {DOCS}")),
    );
    let token = lab.api.access_tokens(&lab.node, &["default"])?;
    let token = fs::read_to_string(&token[0].1)?;
    let opened = call(&pod, "127.0.0.1:7080", async |mut client| {
        open(&mut client, &["default"], &[("default", token.trim())]).await
    })?;
    let opened = opened.map(drop);
    checks.that(
        "a session",
        opened.map_err(|reason| anyhow::anyhow!("{reason:?}")),
    );

    let kill = ["crun", "--root=/run/crun", "--cgroup-manager=disabled"];
    pod.output(&[&kill[..], &["kill", "traffic-manager", "TERM"]].concat())?;
    let ended = running.ended(SOON)?;
    ensure!(ended.success(), "it ended with {ended}");
    checks.finish()?;
    lab.finish();
    Ok(())
}

/// The network of a Pod on the node. Ports below 1024 are anybody's there, as containerd has it;
/// crun looks for a cgroup tree, and makes nothing in it.
fn pod(lab: &Lab) -> Result<Machine> {
    let pod = Machine::start(
        "pod",
        "echo 0 >/proc/sys/net/ipv4/ip_unprivileged_port_start\n\
         mount -t cgroup2 cgroup2 /sys/fs/cgroup",
    )?;
    cable((&pod, "eth0"), (&lab.node, "pod"))?;
    lab.node
        .shell("ip addr add 10.244.5.1/24 dev pod\nip link set pod up")?;
    pod.shell(&format!(
        "ip addr add {POD}/24 dev eth0\nip link set eth0 up\nip route add default via 10.244.5.1"
    ))?;
    Ok(pod)
}

/// Makes the bundle's configuration that of a restricted Pod, with what a kubelet puts into one.
fn write_config(lab: &Lab, bundle: &Path) -> Result<()> {
    let file = |name: &str| bundle.join(name).display().to_string();
    fs::write(
        file("resolv.conf"),
        format!(
            "nameserver 127.0.0.1\nnameserver {CLUSTER_DNS}\n\
             search default.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n"
        ),
    )?;
    let account = bundle.join("account");
    fs::create_dir(&account)?;
    let kubeconfig = lab
        .api
        .service_reader(&lab.node, MANAGER_ACCOUNT, &NAMESPACES)?;
    fs::copy(kubeconfig.with_file_name("ca.crt"), account.join("ca.crt"))?;
    let token = kubeconfig.with_file_name(format!("{MANAGER_ACCOUNT}.token"));
    fs::copy(token, account.join("token"))?;
    fs::write(account.join("namespace"), "kubebridge")?;

    let path = bundle.join("config.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&path)?)?;
    config["root"]["readonly"] = true.into();
    let sets = [
        "bounding",
        "effective",
        "inheritable",
        "permitted",
        "ambient",
    ];
    let none: serde_json::Map<_, _> = sets
        .map(|set| (set.to_owned(), json!([])))
        .into_iter()
        .collect();
    let process = &mut config["process"];
    process["terminal"] = false.into();
    process["noNewPrivileges"] = true.into();
    process["capabilities"] = none.into();
    process["args"] = json!([
        "/traffic-manager",
        "serve",
        "--kubernetes",
        "--namespace=default",
        "--namespace=shop",
        "--dns-listen=[::]:53",
    ]);
    process["env"] = json!([
        format!("KUBERNETES_SERVICE_HOST={NODE}"),
        "KUBERNETES_SERVICE_PORT=6443",
        format!("KUBEBRIDGE_POD_IP={POD}"),
        format!("KUBEBRIDGE_HOST_IP={NODE}"),
    ]);
    let bind = |from: String, to: &str| json!({"destination": to, "source": from, "type": "bind", "options": ["rbind", "ro"]});
    config["mounts"] = json!([
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["mode=755"]},
        bind(file("resolv.conf"), "/etc/resolv.conf"),
        bind(file("account"), "/var/run/secrets/kubernetes.io/serviceaccount"),
    ]);
    // The network is the one it is started in.
    config["linux"] = json!({
        "namespaces": [{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"}],
    });
    fs::write(path, serde_json::to_vec(&config)?)?;
    Ok(())
}

/// Fails unless the program in the pod has neither rights nor anything to write to.
fn confined(pod: &Machine) -> Result<()> {
    let process = process_in(pod)?;
    let status = fs::read_to_string(process.join("status"))?;
    let lines: BTreeSet<String> = status
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    let none = "0000000000000000";
    for wanted in [
        format!("Uid: {USER} {USER} {USER} {USER}"),
        format!("Gid: {USER} {USER} {USER} {USER}"),
        "NoNewPrivs: 1".to_owned(),
        format!("CapEff: {none}"),
        format!("CapPrm: {none}"),
        format!("CapBnd: {none}"),
    ] {
        ensure!(lines.contains(&wanted), "no {wanted:?} in {status}");
    }
    let mounts = fs::read_to_string(process.join("mountinfo"))?;
    // … MOUNT-POINT OPTIONS …
    let at = |line: &&str| line.split_whitespace().nth(4) == Some("/");
    let root = mounts.lines().find(at).context("no root")?;
    let options = root.split_whitespace().nth(5).unwrap_or_default();
    ensure!(options.split(',').any(|one| one == "ro"), "{root}");
    contains(&mounts, "/etc/resolv.conf ro")
}

/// The program in the pod's network, as `/proc` has it.
fn process_in(pod: &Machine) -> Result<PathBuf> {
    let network = |process: &Path| fs::read_link(process.join("ns/net"));
    let wanted = network(Path::new(&format!("/proc/{}", pod.process())))?;
    for entry in fs::read_dir("/proc")? {
        let process = entry?.path();
        let program = fs::read_link(process.join("exe")).unwrap_or_default();
        if program.ends_with("traffic-manager") && network(&process).is_ok_and(|it| it == wanted) {
            return Ok(process);
        }
    }
    bail!("it does not run in the pod")
}
