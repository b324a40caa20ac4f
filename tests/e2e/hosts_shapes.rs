//! The hosts file in the shapes it has in the wild: a session leaves each as it found it, to the
//! byte.

use std::fs;

use anyhow::{Context, Result, ensure};
use kubebridge_tests::{
    checks::Checks,
    lab::{AUTHORS, Lab},
    product::{Manager, Session, must_be_as},
    snapshot::Snapshot,
};

/// One shape: how it is made of a common hosts file, whether a session may write it, and how to
/// take it away again.
struct Shape {
    what: &'static str,
    made: &'static str,
    written: bool,
    undone: &'static str,
}

impl Shape {
    const fn new(what: &'static str, made: &'static str) -> Self {
        Self {
            what,
            made,
            written: true,
            undone: "",
        }
    }
}

const SHAPES: &[Shape] = &[
    Shape::new("common", ""),
    Shape::new("empty", ": >/etc/hosts"),
    Shape::new(
        "no final line break",
        "printf '127.0.0.1 localhost\\n192.0.2.9 last' >/etc/hosts",
    ),
    Shape::new("CRLF", "sed -i 's/$/\\r/' /etc/hosts"),
    Shape::new(
        "CRLF without the last",
        "printf '127.0.0.1 localhost\\r\\n192.0.2.9 last' >/etc/hosts",
    ),
    Shape::new(
        "BOM",
        "printf '\\xef\\xbb\\xbf127.0.0.1 localhost\\n' >/etc/hosts",
    ),
    Shape::new(
        "NUL and no UTF-8",
        "printf '127.0.0.1 localhost\\n# \\0\\xff\\xfe\\n' >>/etc/hosts",
    ),
    Shape::new("mode 0600", "chmod 600 /etc/hosts"),
    Shape::new(
        "read-only and another owner",
        "chmod 444 /etc/hosts; chown 12:34 /etc/hosts",
    ),
    Shape {
        what: "symbolic link",
        made: "mv /etc/hosts /etc/hosts.real; ln -s hosts.real /etc/hosts",
        written: true,
        undone: "rm /etc/hosts.real",
    },
    Shape {
        what: "hard link",
        made: "ln /etc/hosts /etc/hosts.other",
        written: true,
        undone: "test /etc/hosts -ef /etc/hosts.other; rm /etc/hosts.other",
    },
    Shape {
        what: "bind mount",
        made: "cp -a /etc/hosts /run/hosts; mount --bind /run/hosts /etc/hosts",
        written: true,
        undone: "cmp /run/hosts /etc/hosts; umount /etc/hosts",
    },
    Shape {
        what: "immutable",
        made: "chattr +i /etc/hosts",
        written: false,
        undone: "chattr -i /etc/hosts",
    },
];

#[test]
fn a_hosts_file_of_any_shape_is_the_same_after_a_session() -> Result<()> {
    let lab = Lab::start()?;
    let _manager = Manager::start(&lab)?;
    let laptop = lab.laptop.on();
    laptop.shell("cp -a /etc/hosts /run/hosts.saved")?;
    let mut checks = Checks::new();
    for shape in SHAPES {
        laptop.shell(shape.made).context(shape.what)?;
        checks.that(shape.what, survives(&lab, shape.written));
        checks.that(
            format!("{}, after it", shape.what),
            laptop.shell(shape.undone).map(drop),
        );
        laptop.shell("rm -f /etc/hosts; cp -a /run/hosts.saved /etc/hosts")?;
    }
    for (what, made, wanted) in [
        ("a common file", "", None),
        (
            "a file without a final line break",
            "printf '127.0.0.1 localhost' >/etc/hosts",
            Some("127.0.0.1 localhost\n192.0.2.77 scanner\n"),
        ),
    ] {
        laptop.shell(made)?;
        checks.that(
            format!("a line appended to {what}"),
            foreign_line_stays(&lab, wanted),
        );
        laptop.shell("rm -f /etc/hosts; cp -a /run/hosts.saved /etc/hosts")?;
    }
    checks.finish()?;
    lab.finish();
    Ok(())
}

/// Runs a session; the hosts file must have its lines meanwhile, and be the same after it.
fn survives(lab: &Lab, written: bool) -> Result<()> {
    let before = Snapshot::take(lab.laptop.on())?;
    let session = Session::connect(lab, &[])?;
    let during = fs::read(lab.laptop.on().path("/etc/hosts"))?;
    session.end_at_once()?;
    must_be_as(lab, &before)?;
    let during = String::from_utf8_lossy(&during);
    let there = during
        .lines()
        .any(|line| line.starts_with(AUTHORS) && line.contains("authors.default"));
    ensure!(there == written, "during the session it was {during:?}");
    Ok(())
}

/// Another program appends a line while the session is there: it stays, as a line of its own.
fn foreign_line_stays(lab: &Lab, wanted: Option<&str>) -> Result<()> {
    let laptop = lab.laptop.on();
    let before = fs::read_to_string(laptop.path("/etc/hosts"))?;
    let session = Session::connect(lab, &[])?;
    laptop.shell("echo '192.0.2.77 scanner' >>/etc/hosts")?;
    session.end_at_once()?;
    let after = fs::read_to_string(laptop.path("/etc/hosts"))?;
    let wanted = wanted.map_or_else(|| before + "192.0.2.77 scanner\n", str::to_owned);
    ensure!(after == wanted, "it became {after:?}, not {wanted:?}");
    Ok(())
}
