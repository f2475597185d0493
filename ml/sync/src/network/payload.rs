//! What a frame carries behind its note.

use super::frame::{Codec, Dtype, Header};

/// What a frame carries.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// Bytes as they are.
    Bytes(&'a [u8]),
    /// Numbers of one or several arrays, one behind the other, written as the codec says.
    F32(&'a [&'a [f32]], Codec),
}

impl Payload<'_> {
    /// Nothing.
    pub const EMPTY: Self = Self::Bytes(&[]);

    /// `header` with the type, codec and length of this payload.
    pub(super) fn described(&self, header: Header) -> Header {
        let (dtype, codec, elements) = match self {
            Self::Bytes(bytes) => (Dtype::Bytes, Codec::Plain, bytes.len()),
            Self::F32(arrays, codec) => (Dtype::F32, *codec, arrays.iter().map(|array| array.len()).sum()),
        };
        let length = elements as u64 * dtype.bytes(codec).unwrap_or(1);
        Header { dtype, codec, length, ..header }
    }

    /// Bytes on the wire.
    pub fn bytes(&self) -> u64 {
        self.described(Header::default()).length
    }
}
