//! From the text of a `Data` element to little-endian numbers, row by row.

use crate::datatype::{DataType, Endian};
use crate::dimension_order::row_order;
use crate::xml::cut;
use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use flate2::read::{GzDecoder, ZlibDecoder};
use std::io::Read;

/// How the text stands for numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    /// Decimal numbers.
    Ascii,
    /// Bytes in base 64.
    Base64,
    /// Bytes compressed by zlib, in base 64.
    GzipBase64,
}

/// Padding is neither needed nor refused: writers differ.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// What an array's attributes say about its numbers.
pub(super) struct Shape<'a> {
    pub encoding: Encoding,
    pub data_type: DataType,
    pub endian: Endian,
    pub dims: &'a [usize],
    pub column_major: bool,
    /// Product of `dims`, times the size of a number.
    pub bytes: usize,
}

/// The numbers of `text` as little-endian bytes with the last dimension fastest, or what is wrong.
pub(super) fn decode(mut text: String, shape: &Shape<'_>) -> Result<Vec<u8>, String> {
    let mut bytes = match shape.encoding {
        Encoding::Ascii => numbers(&text, shape.data_type)?,
        Encoding::Base64 => base64(&mut text)?,
        Encoding::GzipBase64 => inflate(&base64(&mut text)?, shape.bytes)?,
    };
    if bytes.len() != shape.bytes {
        let size = shape.data_type.size();
        return Err(format!(
            "it holds {} bytes, which is {} number(s) of {}, not the {} of its dimensions {:?}",
            bytes.len(),
            bytes.len() / size,
            shape.data_type,
            shape.bytes / size,
            shape.dims
        ));
    }
    if shape.endian == Endian::Big && shape.encoding != Encoding::Ascii {
        bytes.chunks_exact_mut(shape.data_type.size()).for_each(<[u8]>::reverse);
    }
    if shape.column_major && shape.dims.len() > 1 {
        let size = shape.data_type.size();
        bytes = row_order(shape.dims).flat_map(|at| &bytes[at * size..][..size]).copied().collect();
    }
    Ok(bytes)
}

fn base64(text: &mut String) -> Result<Vec<u8>, String> {
    text.retain(|letter| !letter.is_ascii_whitespace());
    BASE64.decode(&*text).map_err(|error| format!("it is not base 64: {error}"))
}

/// Inflates what is mostly a zlib stream (the format's name says gzip, and a few writers believe it), one byte
/// more than `expected` at most.
fn inflate(packed: &[u8], expected: usize) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let most = expected as u64 + 1;
    let outcome = if packed.starts_with(&[0x1f, 0x8b]) {
        GzDecoder::new(packed).take(most).read_to_end(&mut bytes)
    } else {
        ZlibDecoder::new(packed).take(most).read_to_end(&mut bytes)
    };
    match outcome {
        Ok(_) if bytes.len() > expected => {
            Err(format!("it unfolds to more than the {expected} bytes of its dimensions"))
        }
        Ok(_) => Ok(bytes),
        Err(error) => Err(format!("damaged compressed data after {} bytes: {error}", bytes.len())),
    }
}

fn numbers(text: &str, data_type: DataType) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    for (index, word) in text.split_ascii_whitespace().enumerate() {
        number(word, data_type, &mut bytes)
            .ok_or_else(|| format!("number {} is '{}', not a value of {data_type}", index + 1, cut(word)))?;
    }
    Ok(bytes)
}

fn number(word: &str, data_type: DataType, out: &mut Vec<u8>) -> Option<()> {
    macro_rules! append {
        ($number:ty) => {
            out.extend_from_slice(&word.parse::<$number>().ok()?.to_le_bytes())
        };
    }
    match data_type {
        DataType::U8 => append!(u8),
        DataType::I8 => append!(i8),
        DataType::U16 => append!(u16),
        DataType::I16 => append!(i16),
        DataType::U32 => append!(u32),
        DataType::I32 => append!(i32),
        DataType::U64 => append!(u64),
        DataType::I64 => append!(i64),
        DataType::F32 => append!(f32),
        DataType::F64 => append!(f64),
    }
    Some(())
}
