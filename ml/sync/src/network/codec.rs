//! Messages of tonic services as postcard writes them. Both ends are of one build, so the types are the schema.

use bytes::{Buf, BufMut};
use serde::{Serialize, de::DeserializeOwned};
use std::marker::PhantomData;
use tonic::{
    Status,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
};

/// Encodes `T` and decodes `U`; for `codec_path` of services that are built by hand.
#[derive(Debug)]
pub struct PostcardCodec<T, U>(PhantomData<fn(T) -> U>);

impl<T, U> Default for PostcardCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for PostcardCodec<T, U>
where
    T: Serialize + Send + 'static,
    U: DeserializeOwned + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = PostcardEncoder<T>;
    type Decoder = PostcardDecoder<U>;

    fn encoder(&mut self) -> PostcardEncoder<T> {
        PostcardEncoder(PhantomData)
    }

    fn decoder(&mut self) -> PostcardDecoder<U> {
        PostcardDecoder(PhantomData)
    }
}

/// The writing half of a [`PostcardCodec`].
#[derive(Debug)]
pub struct PostcardEncoder<T>(PhantomData<fn(T)>);

impl<T: Serialize> Encoder for PostcardEncoder<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, item: T, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        let written = postcard::to_io(&item, buffer.writer());
        written.map(drop).map_err(|e| Status::internal(format!("a message cannot be written: {e}")))
    }
}

/// The reading half of a [`PostcardCodec`].
#[derive(Debug)]
pub struct PostcardDecoder<U>(PhantomData<fn() -> U>);

impl<U: DeserializeOwned> Decoder for PostcardDecoder<U> {
    type Item = U;
    type Error = Status;

    /// The buffer holds one message.
    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        read(&buffer.copy_to_bytes(buffer.remaining())).map(Some)
    }
}

/// The one message in `bytes`, no more and no less.
fn read<U: DeserializeOwned>(bytes: &[u8]) -> Result<U, Status> {
    let unread = |reason: String| {
        Status::invalid_argument(format!(
            "a message cannot be read, is its sender of another build? {reason}"
        ))
    };
    match postcard::take_from_bytes(bytes) {
        Ok((item, [])) => Ok(item),
        Ok((_, rest)) => Err(unread(format!("{} bytes are left over", rest.len()))),
        Err(e) => Err(unread(e.to_string())),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use proptest::prelude::*;

    type Message = (String, Vec<u64>, Option<bool>);

    proptest! {
        #[test]
        fn messages_travel_and_damaged_ones_are_refused(
            message in any::<Message>(), cut in any::<proptest::sample::Index>(), noise in any::<Vec<u8>>(),
        ) {
            let bytes = postcard::to_stdvec(&message).unwrap();
            prop_assert_eq!(&read::<Message>(&bytes).unwrap(), &message);
            prop_assert!(read::<Message>(&bytes[..cut.index(bytes.len())]).is_err());
            let longer = [&bytes[..], &[0]].concat();
            let refusal = read::<Message>(&longer).unwrap_err();
            prop_assert!(refusal.message().contains("1 bytes are left over"));
            // Whatever it is, it is read or refused.
            let _ = read::<Message>(&noise);
        }
    }
}
