//! Generates the client and server code of the contract, without a system `protoc`.

use std::error::Error;
use std::path::PathBuf;

use prost::Message;

const CONTRACT: &str = "kubebridge/v1/traffic.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={CONTRACT}");
    let descriptors = protox::compile([CONTRACT], ["."])?;
    let encoded = PathBuf::from(std::env::var("OUT_DIR")?).join("descriptors.bin");
    std::fs::write(encoded, descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        .codec_path("crate::codec::SmallCodec")
        .compile_fds(descriptors)?;
    Ok(())
}
