//! What tests of other crates need to look at the wire: raw octets in, and how long a message is.
//!
//! Behind the feature `test-util`; nothing of it is in the programs.

use std::marker::PhantomData;

use prost::bytes::{Buf, BufMut};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

pub use prost::Message;

/// Sends octets as they are and reads messages of type `D`.
#[derive(Debug, Clone)]
pub struct Raw<D>(PhantomData<D>);

impl<D> Default for Raw<D> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<D: Message + Default + 'static> Codec for Raw<D> {
    type Encode = Vec<u8>;
    type Decode = D;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self::default()
    }

    fn decoder(&mut self) -> Self {
        Self::default()
    }
}

impl<D> Encoder for Raw<D> {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(&item);
        Ok(())
    }
}

impl<D: Message + Default> Decoder for Raw<D> {
    type Item = D;
    type Error = Status;

    fn decode(&mut self, octets: &mut DecodeBuf<'_>) -> Result<Option<D>, Status> {
        let octets = octets.copy_to_bytes(octets.remaining());
        D::decode(octets)
            .map(Some)
            .map_err(|error| Status::internal(error.to_string()))
    }
}
