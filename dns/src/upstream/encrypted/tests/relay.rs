//! A way to a server that can go dead without a word.

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

use super::*;
use crate::test_util::loopback;

pub(super) struct Relay {
    pub(super) address: SocketAddr,
    frozen: watch::Sender<usize>,
    _task: AbortOnDropHandle<()>,
}

impl Relay {
    pub(super) async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind(loopback()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let frozen = watch::Sender::new(0);
        let task = run(listener, server, frozen.clone());
        Self {
            address,
            frozen,
            _task: AbortOnDropHandle::new(tokio::spawn(task)),
        }
    }

    /// Lets nothing more through on the connections that are open now.
    pub(super) fn freeze(&self) {
        self.frozen.send_modify(|times| *times += 1);
    }
}

async fn run(listener: TcpListener, server: SocketAddr, frozen: watch::Sender<usize>) {
    let mut tasks = JoinSet::new();
    loop {
        let (mut near, _) = listener.accept().await.unwrap();
        let mut frozen = frozen.subscribe();
        tasks.spawn(async move {
            let mut far = TcpStream::connect(server).await.unwrap();
            tokio::select! {
                biased;
                _ = frozen.changed() => std::future::pending().await,
                _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
            }
        });
    }
}
