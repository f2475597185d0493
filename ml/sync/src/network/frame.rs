//! What a message looks like on a connection: a header of 72 bytes, a note, a payload.
//!
//! ```text
//!    0  magic "VXFL"      8  shard  u32     32 generation u64     56 length of the payload u64
//!    4  version u16      12  member u32     40 round      u64     64 length of the note    u32
//!    6  kind    u8       16  run    u128    48 seq        u64     68 codec u8
//!    7  dtype   u8                                                69 zero [3]
//! ```
//!
//! All numbers are little-endian. The note is a few bytes that belong to the message (postcard); the payload is
//! the tensor, whole: it streams in blocks, so its length bounds no buffer. What reads a header refuses lengths
//! above its limits before it reads on, and everything that no writer of this version writes.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Bytes of a header.
pub const HEADER: usize = 72;
/// Longest note.
pub const NOTE_LIMIT: u32 = 1 << 20;
/// Longest payload unless a reader says otherwise: a model of 4·10⁹ parameters in f32.
pub const PAYLOAD_LIMIT: u64 = 16 << 30;

const MAGIC: [u8; 4] = *b"VXFL";
/// Of this layout; another one is another program.
pub const VERSION: u16 = 1;

/// What a frame is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// The first frame of whoever connects: who it is.
    Hello,
    /// The answer to a `Hello` that is right.
    Welcome,
    /// The answer to one that is not; the note says why.
    Refused,
    /// A message between members.
    #[default]
    Message,
}

/// Elements of a payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dtype {
    /// Bytes.
    #[default]
    Bytes,
    /// 32-bit floats.
    F32,
    /// 64-bit floats.
    F64,
}

/// How elements are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Codec {
    /// As they are.
    #[default]
    Plain,
    /// f32 rounded to the nearest 16-bit brain float: half the bytes, 8 bits of precision.
    Bf16,
}

/// What comes before every note and payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// What the frame is for.
    pub kind: Kind,
    /// Elements of the payload.
    pub dtype: Dtype,
    /// How they are written.
    pub codec: Codec,
    /// The shard that the message is about.
    pub shard: u32,
    /// The sender.
    pub member: u32,
    /// The run that it belongs to.
    pub run: u128,
    /// Number of the membership view.
    pub generation: u64,
    /// Number of the round.
    pub round: u64,
    /// The sender's count.
    pub seq: u64,
    /// Bytes of the payload.
    pub length: u64,
    /// Bytes of the note.
    pub note: u32,
}

/// Why bytes are no header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed(String);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Dtype {
    /// Bytes of an element with `codec`; `None` where they do not go together.
    pub fn bytes(self, codec: Codec) -> Option<u64> {
        match (self, codec) {
            (Self::Bytes, Codec::Plain) => Some(1),
            (Self::F32, Codec::Plain) => Some(4),
            (Self::F32, Codec::Bf16) => Some(2),
            (Self::F64, Codec::Plain) => Some(8),
            (Self::Bytes | Self::F64, Codec::Bf16) => None,
        }
    }
}

impl Header {
    /// The bytes of this header.
    pub fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &MAGIC);
        put(4, &VERSION.to_le_bytes());
        put(6, &[self.kind as u8, self.dtype as u8]);
        put(8, &self.shard.to_le_bytes());
        put(12, &self.member.to_le_bytes());
        put(16, &self.run.to_le_bytes());
        put(32, &self.generation.to_le_bytes());
        put(40, &self.round.to_le_bytes());
        put(48, &self.seq.to_le_bytes());
        put(56, &self.length.to_le_bytes());
        put(64, &self.note.to_le_bytes());
        put(68, &[self.codec as u8]);
        bytes
    }

    /// The header in `bytes`; its payload may have at most `limit` bytes.
    ///
    /// # Errors
    /// Says what no writer of this version writes.
    pub fn decode(bytes: &[u8; HEADER], limit: u64) -> Result<Self, Malformed> {
        let refuse = |reason: String| Err(Malformed(reason));
        if bytes[..4] != MAGIC {
            return refuse(format!("it starts with {:02x?}, which no member of a gang sends", &bytes[..4]));
        }
        let version = u16::from_le_bytes([bytes[4], bytes[5]]);
        if version != VERSION {
            return refuse(format!("it speaks version {version}, this process version {VERSION}"));
        }
        let Some(kind) =
            [Kind::Hello, Kind::Welcome, Kind::Refused, Kind::Message].get(usize::from(bytes[6]))
        else {
            return refuse(format!("unknown kind {}", bytes[6]));
        };
        let Some(dtype) = [Dtype::Bytes, Dtype::F32, Dtype::F64].get(usize::from(bytes[7])) else {
            return refuse(format!("unknown type {}", bytes[7]));
        };
        let Some(codec) = [Codec::Plain, Codec::Bf16].get(usize::from(bytes[68])) else {
            return refuse(format!("unknown codec {}", bytes[68]));
        };
        let header = Self {
            kind: *kind,
            dtype: *dtype,
            codec: *codec,
            shard: u32::from_le_bytes(at(bytes, 8)),
            member: u32::from_le_bytes(at(bytes, 12)),
            run: u128::from_le_bytes(at(bytes, 16)),
            generation: u64::from_le_bytes(at(bytes, 32)),
            round: u64::from_le_bytes(at(bytes, 40)),
            seq: u64::from_le_bytes(at(bytes, 48)),
            length: u64::from_le_bytes(at(bytes, 56)),
            note: u32::from_le_bytes(at(bytes, 64)),
        };
        header.validate(limit)?;
        if bytes[69..] != [0; 3] {
            return refuse("bytes that must be zero are not".into());
        }
        Ok(header)
    }

    fn validate(&self, limit: u64) -> Result<(), Malformed> {
        let Self { dtype, codec, length, note, .. } = *self;
        let Some(element) = dtype.bytes(codec) else {
            return Err(Malformed(format!("{dtype:?} cannot be written as {codec:?}")));
        };
        if length > limit {
            return Err(Malformed(format!("its payload of {length} bytes is above the limit of {limit}")));
        }
        if !length.is_multiple_of(element) {
            return Err(Malformed(format!("a payload of {length} bytes is no whole number of {dtype:?}")));
        }
        if note > NOTE_LIMIT {
            return Err(Malformed(format!("its note of {note} bytes is above the limit of {NOTE_LIMIT}")));
        }
        Ok(())
    }

    /// Elements in the payload.
    pub fn elements(&self) -> u64 {
        self.length / self.dtype.bytes(self.codec).unwrap_or(1)
    }
}

fn at<const N: usize>(bytes: &[u8; HEADER], start: usize) -> [u8; N] {
    std::array::from_fn(|i| bytes[start + i])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use proptest::prelude::*;

    fn header() -> impl Strategy<Value = Header> {
        let kinds =
            prop_oneof![Just(Kind::Hello), Just(Kind::Welcome), Just(Kind::Refused), Just(Kind::Message)];
        let written = prop_oneof![
            Just((Dtype::Bytes, Codec::Plain)),
            Just((Dtype::F32, Codec::Plain)),
            Just((Dtype::F32, Codec::Bf16)),
            Just((Dtype::F64, Codec::Plain))
        ];
        let numbers =
            (any::<[u32; 2]>(), any::<u128>(), any::<[u64; 3]>(), 0..PAYLOAD_LIMIT / 8, 0..=NOTE_LIMIT);
        (kinds, written, numbers).prop_map(|(kind, (dtype, codec), (small, run, large, elements, note))| {
            let [shard, member] = small;
            let [generation, round, seq] = large;
            let length = elements * dtype.bytes(codec).unwrap();
            Header { kind, dtype, codec, shard, member, run, generation, round, seq, length, note }
        })
    }

    proptest! {
        #[test]
        fn a_header_survives_its_bytes(header in header()) {
            prop_assert_eq!(Header::decode(&header.encode(), PAYLOAD_LIMIT).unwrap(), header);
        }

        #[test]
        fn any_bytes_are_a_header_or_an_error(bytes in proptest::collection::vec(any::<u8>(), HEADER)) {
            let bytes: [u8; HEADER] = bytes.try_into().unwrap();
            let _ = Header::decode(&bytes, PAYLOAD_LIMIT);
        }

        #[test]
        fn a_changed_byte_never_gives_a_header_beyond_the_limits(
            header in header(), at in 0..HEADER, byte in any::<u8>(), limit in 0_u64..1 << 20,
        ) {
            let mut bytes = header.encode();
            bytes[at] = byte;
            if let Ok(read) = Header::decode(&bytes, limit) {
                prop_assert!(read.length <= limit && read.note <= NOTE_LIMIT);
                prop_assert_eq!(read.encode(), bytes, "what is read is what was written");
            }
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let good = Header { dtype: Dtype::F32, length: 8, ..Header::default() };
        let cases: [(usize, u8, &str); 8] = [
            (0, b'G', "no member of a gang"),
            (4, 9, "version 9"),
            (6, 200, "kind 200"),
            (7, 3, "type 3"),
            (68, 2, "codec 2"),
            (71, 1, "must be zero"),
            (56, 7, "whole number"),
            (60, 1, "above the limit of 100"),
        ];
        for (at, byte, says) in cases {
            let mut bytes = good.encode();
            bytes[at] = byte;
            let error = Header::decode(&bytes, 100).unwrap_err().to_string();
            assert!(error.contains(says), "{at}: {error}");
        }
    }
}
