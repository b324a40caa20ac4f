//! Generates the client and server code of the contract, without a system `protoc`.

use std::error::Error;

const CONTRACT: &str = "kubebridge/v1/traffic.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={CONTRACT}");
    let descriptors = protox::compile([CONTRACT], ["."])?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}
