//! More laptops beside the lab's own, each with a session that changes nothing on it.

use anyhow::Result;
use kubebridge_tests::{
    daemon::Daemon,
    lab::{Lab, NODE},
    machine::{Machine, cable},
    parts::program,
    product::NAMESPACES,
};
use rustix::process::Signal;

use crate::cluster::PATIENCE;

/// A laptop and its session; it ends with this.
pub(crate) struct Laptop {
    session: Daemon,
    #[expect(dead_code, reason = "the session runs in it")]
    machine: Machine,
}

impl Laptop {
    /// Starts one with a network of its own to the node, and waits until its session is connected.
    pub(crate) fn start(lab: &Lab, number: usize) -> Result<Self> {
        // What the machine itself keeps there is not for the session to find.
        let machine = Machine::start("more-laptops", "mount -t tmpfs -o mode=755 tmpfs /var/lib")?;
        let end = format!("more{number}");
        cable((&machine, "eth0"), (&lab.node, &end))?;
        lab.node.shell(&format!(
            "ip addr add 172.31.{number}.1/24 dev {end}\nip link set {end} up"
        ))?;
        machine.shell(&format!(
            "ip addr add 172.31.{number}.2/24 dev eth0\nip link set eth0 up\n\
             ip route add {NODE} via 172.31.{number}.1"
        ))?;
        let mut command = machine.command(program("kubebridge")?);
        command
            .env("KUBECONFIG", lab.api.kubeconfig("dev"))
            .args(["connect", "--foreground", "--dns=off", "--hosts=off"])
            .args(NAMESPACES.iter().flat_map(|name| ["-n", name]));
        let session = Daemon::start(&format!("laptop-{number}"), &lab.logs(), command)?;
        session.until_says("connected", PATIENCE)?;
        Ok(Self { session, machine })
    }

    /// Ends the session, which must end well.
    pub(crate) fn end(self) -> Result<()> {
        self.session.signal(Signal::TERM)?;
        self.session.ended(PATIENCE)?;
        Ok(())
    }
}
