//! What stands before the numbers.

use super::literal::{Literal, parse};
use crate::byte_stream::ByteStream;
use crate::datatype::{DataType, Endian};
use crate::xml::cut;
use crate::{Error, Result};

const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// The longest header that is read; numpy itself refuses from 10,000 bytes on.
const LONGEST: usize = 64 * 1024;

/// What an npy header says.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct NpyHeader {
    /// Path or URL, as the caller gave it.
    pub path: String,
    /// Lengths of the dimensions; none for a single number.
    pub shape: Vec<usize>,
    /// Whether the first dimension is fastest in the file.
    pub fortran_order: bool,
    /// How numbers are stored; truth values are bytes.
    pub data_type: DataType,
    /// Byte order.
    pub endian: Endian,
    pub(super) values_offset: u64,
}

impl NpyHeader {
    /// Count of numbers.
    pub fn values(&self) -> usize {
        self.shape.iter().product()
    }

    /// Reads up to the first number.
    pub(super) fn read(stream: &mut ByteStream) -> Result<Self> {
        let path = stream.path().to_owned();
        let place = || "the header".to_owned();
        let fault = |offset: usize, reason: String| Error::Header {
            path: path.clone(),
            field: "npy",
            offset: offset as u64,
            reason,
        };
        let mut start = [0; 8];
        stream.fill_exactly(&mut start, &place)?;
        if &start[..6] != MAGIC {
            let reason = format!("it begins with \"{}\", not \\x93NUMPY", start[..6].escape_ascii());
            return Err(fault(0, reason));
        }
        let (text_at, length) = match start[6] {
            1 => {
                let mut length = [0; 2];
                stream.fill_exactly(&mut length, &place)?;
                (10, usize::from(u16::from_le_bytes(length)))
            }
            2 | 3 => {
                let mut length = [0; 4];
                stream.fill_exactly(&mut length, &place)?;
                (12, u32::from_le_bytes(length) as usize)
            }
            version => return Err(fault(6, format!("its version is {version}, not 1 to 3"))),
        };
        if length > LONGEST {
            return Err(fault(8, format!("its length is {length} bytes, more than {LONGEST}")));
        }
        let mut text = vec![0; length];
        stream.fill_exactly(&mut text, &place)?;
        // Versions 1 and 2 are Latin 1; what is read of them is ASCII.
        let text = std::str::from_utf8(&text)
            .map_err(|error| fault(text_at + error.valid_up_to(), "it is not text".into()))?;
        let literal = parse(text).map_err(|(at, reason)| fault(text_at + at, reason))?;
        Self::judge(&literal, (text_at + length) as u64, &path).map_err(|reason| fault(text_at, reason))
    }

    fn judge(literal: &Literal, values_offset: u64, path: &str) -> Result<Self, String> {
        let unknown = || {
            format!(
                "its type '{}' is not a number type (f4, f8, i1 to i8, u1 to u8, b1; little- or big-endian)",
                cut(&literal.descr)
            )
        };
        let (order, kind) = literal.descr.split_at_checked(1).ok_or_else(unknown)?;
        let data_type = match kind {
            "u1" | "b1" => DataType::U8,
            "i1" => DataType::I8,
            "u2" => DataType::U16,
            "i2" => DataType::I16,
            "u4" => DataType::U32,
            "i4" => DataType::I32,
            "u8" => DataType::U64,
            "i8" => DataType::I64,
            "f4" => DataType::F32,
            "f8" => DataType::F64,
            _ => return Err(unknown()),
        };
        let endian = match order {
            "<" => Endian::Little,
            ">" => Endian::Big,
            "|" if data_type.size() == 1 => Endian::Little,
            _ => return Err(unknown()),
        };
        let shape = &literal.shape;
        // Without the zeros, for what is not read at once is a stretch of the other dimensions.
        let bytes = shape
            .iter()
            .filter(|&&length| length > 0)
            .try_fold(data_type.size(), |n, &length| n.checked_mul(length));
        if bytes.is_none_or(|bytes| isize::try_from(bytes).is_err()) {
            return Err(format!("its shape {shape:?} is too large"));
        }
        Ok(Self {
            path: path.into(),
            shape: shape.clone(),
            fortran_order: literal.fortran_order,
            data_type,
            endian,
            values_offset,
        })
    }
}
