//! How the parts of a session go away again, in the order the session says.

use kubebridge_platform::host::Host;
use kubebridge_platform::intent::Intent;

use super::os::{Os, host_failure};
use super::parts::Parts;
use super::steps;
use crate::failure::Failure;

impl<O: Os> Parts<'_, O> {
    /// Takes the machine's DNS and hosts lines back; the link stays.
    pub(super) async fn restore_host(&mut self) -> Result<String, Failure> {
        self.hosts = None;
        self.watch = None;
        // Names are answered on for a while, and their addresses shall lead somewhere: the routes
        // go with the link.
        self.intent = Intent {
            routes: std::mem::take(&mut self.intent.routes),
            given: std::mem::take(&mut self.intent.given),
            ..Intent::default()
        };
        self.routes = None;
        let changes = self.apply().await?;
        self.give_up().await?;
        self.board.note(|facts| {
            facts.dns.applied = false;
            facts.hosts.lines = 0;
            facts.lines.clear();
            facts.host_routes.clear();
        });
        Ok(steps::summary(&changes, "nothing to do"))
    }

    /// Resets what is open, has the host undo the rest, and closes the device.
    pub(super) async fn remove_link(&mut self) -> Result<String, Failure> {
        let device = match self.netstack.take() {
            Some(netstack) => netstack.stop().await,
            None => None,
        };
        if let Some(watching) = self.watching.take() {
            watching.stop().await;
        }
        // The lock goes with the host, and the next session may need the link's name.
        let mut host = self.host.take();
        let undone = match &mut host {
            Some(host) => host
                .undo()
                .await
                .map_err(host_failure)
                .map(|undone| undone.changes),
            None => Ok(Vec::new()),
        };
        let name = self.link.take().map(|link| link.name);
        drop((device, host));
        Ok(steps::summary(
            &undone?,
            name.as_deref().unwrap_or("nothing to do"),
        ))
    }

    /// Ends the proxy, and drops the connection to the manager.
    pub(super) async fn close_session(&mut self) -> Result<String, Failure> {
        self.channel = None;
        self.board.note(|facts| facts.proxy = None);
        if let Some(proxy) = self.proxy.take() {
            proxy.stop().await;
        }
        if let Some(watching) = self.watching.take() {
            watching.stop().await;
        }
        if let Some(cluster) = self.cluster.take() {
            cluster.flows.stop().await;
            cluster.control.stop().await;
        }
        Ok("closed".to_owned())
    }

    /// Gives the machine back to the next session, whatever was reached.
    pub(super) async fn release(&mut self) -> Result<(), Failure> {
        if let Some(mut host) = self.host.take() {
            host.undo().await.map_err(host_failure)?;
        }
        if let Some(server) = &self.server {
            server.hide();
        }
        Ok(())
    }

    /// Tells those who wait that the session is over.
    pub(super) async fn close_control_socket(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop().await;
        }
    }
}
