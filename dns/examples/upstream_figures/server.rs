//! A DNS server that can die in two ways and come back on the same port.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kubebridge_dns::message::{Checked, check};
use kubebridge_dns::test_util::Answer;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

/// How a server is dead.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Death {
    /// Its port takes packets and nothing comes back, like a host that is gone.
    Silent,
    /// Its port is closed, so that the host says so at once.
    Closed,
}

/// A server that gives one address for every name, its own.
#[derive(Debug)]
pub(crate) struct Server {
    address: SocketAddr,
    round_trip: Duration,
    task: Option<AbortOnDropHandle<()>>,
}

impl Server {
    pub(crate) async fn start(address: SocketAddr, round_trip: Duration) -> Self {
        let mut server = Self {
            address,
            round_trip,
            task: None,
        };
        server.revive().await;
        server
    }

    pub(crate) async fn kill(&mut self, death: Death) {
        self.stop().await;
        if matches!(death, Death::Silent) {
            self.run(false).await;
        }
    }

    pub(crate) async fn revive(&mut self) {
        self.stop().await;
        self.run(true).await;
    }

    async fn stop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
            let _ = task.await;
        }
    }

    async fn run(&mut self, answers: bool) {
        let socket = Arc::new(UdpSocket::bind(self.address).await.unwrap());
        let (own, round_trip) = (self.address.ip(), self.round_trip);
        let task = async move {
            let mut buffer = [0; 4096];
            let mut replies = JoinSet::new();
            loop {
                let Ok((length, peer)) = socket.recv_from(&mut buffer).await else {
                    continue;
                };
                let packet = &buffer[..length];
                if let (true, Checked::Query(query)) = (answers, check(packet)) {
                    let reply = Answer::address(&query.name.to_string(), own).reply_to(packet);
                    let socket = Arc::clone(&socket);
                    replies.spawn(async move {
                        sleep(round_trip).await;
                        let _ = socket.send_to(&reply, peer).await;
                    });
                    while replies.try_join_next().is_some() {}
                }
            }
        };
        self.task = Some(AbortOnDropHandle::new(tokio::spawn(task)));
    }
}
