//! A TCP relay that counts what goes through it.

use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    count: watch::Sender<Count>,
    _task: AbortOnDropHandle<()>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) opened: usize,
    pub(crate) closed: usize,
}

impl Relay {
    pub(crate) async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let count = watch::Sender::new(Count::default());
        let task = tokio::spawn(run(listener, server, count.clone()));
        Self {
            address,
            count,
            _task: AbortOnDropHandle::new(task),
        }
    }

    pub(crate) fn count(&self) -> Count {
        *self.count.borrow()
    }

    /// Waits until this many connections have been closed.
    pub(crate) async fn sees_closed(&self, closed: usize) {
        let mut count = self.count.subscribe();
        let enough = count.wait_for(|count| count.closed >= closed).await;
        enough.map(drop).unwrap();
    }
}

async fn run(listener: TcpListener, server: SocketAddr, count: watch::Sender<Count>) {
    let mut tasks = JoinSet::new();
    loop {
        let (mut near, _) = listener.accept().await.unwrap();
        near.set_nodelay(true).unwrap();
        count.send_modify(|count| count.opened += 1);
        let count = count.clone();
        tasks.spawn(async move {
            if let Ok(mut far) = TcpStream::connect(server).await {
                far.set_nodelay(true).unwrap();
                let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            }
            count.send_modify(|count| count.closed += 1);
        });
    }
}
