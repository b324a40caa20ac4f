//! How messages are put into octets: prost, with buffers small enough for hundreds of open streams.
//!
//! gRPC's usual buffers are 8 KB at either end of each call, and frames are gathered up to 32 KB.
//! Whatever size an encode buffer once reached is kept for as long as the stream is open, so that
//! the gathering bounds what a subscriber costs.

use std::marker::PhantomData;

use prost::Message;
use tonic::codec::{BufferSettings, Codec};
use tonic_prost::ProstCodec;

/// What a buffer starts with: most messages here are one small change or one DNS message.
const BUFFER: usize = 512;

/// Frames are gathered into one write up to this: three packets' worth, below the 8 KB that a
/// subscriber may cost.
const GATHER: usize = 2 * 1024;

/// The codec of the generated code.
#[derive(Debug, Clone)]
pub struct SmallCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for SmallCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for SmallCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = <ProstCodec<T, U> as Codec>::Encoder;
    type Decoder = <ProstCodec<T, U> as Codec>::Decoder;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::raw_encoder(BufferSettings::new(BUFFER, GATHER))
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<T, U>::raw_decoder(BufferSettings::new(BUFFER, GATHER))
    }
}
