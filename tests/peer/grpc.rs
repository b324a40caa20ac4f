//! A gRPC client: unary calls over one HTTP/2 connection.

use anyhow::{Context, Result, ensure};
use kubebridge_proto::v1::EchoRequest;
use kubebridge_proto::v1::traffic_manager_client::TrafficManagerClient;

/// Calls `Echo` so many times; each payload is some bytes larger than the one before.
pub(crate) async fn echo(to: &str, count: usize) -> Result<String> {
    let mut client = TrafficManagerClient::connect(format!("http://{to}"))
        .await
        .context("connect")?;
    for number in 0..count {
        let payload = vec![number as u8; number * 1000];
        let request = EchoRequest {
            payload: payload.clone(),
        };
        let reply = client.echo(request).await?.into_inner();
        ensure!(reply.payload == payload, "another payload");
    }
    Ok(format!("calls={count}"))
}
