//! The demo as its users run it.

use super::*;
use crate::cli::Progress;

fn once() -> DemoArgs {
    DemoArgs {
        dns_listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        once: true,
    }
}

fn global() -> Global {
    Global {
        session: None,
        namespaces: Vec::new(),
        context: None,
        kubeconfig: None,
        output: Output::Json,
        progress: Progress::Quiet,
        verbose: 0,
        config: None,
    }
}

#[tokio::test]
async fn the_demo_gets_the_answers_it_expects() {
    demo(&once(), &global()).await.unwrap();
}

#[tokio::test]
async fn a_port_in_use_exits_73() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let arguments = DemoArgs {
        dns_listen: taken.local_addr().unwrap(),
        ..once()
    };

    let failure = demo(&arguments, &global()).await.unwrap_err();

    assert_eq!(failure.exit, Exit::Busy);
}
