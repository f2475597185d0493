//! One array of a GIFTI file.

use super::content::{Encoding, Shape, decode};
use super::intent::Intent;
use super::metadata::Metadata;
use crate::datatype::{DataType, Endian, Value};
use crate::nifti::PLAUSIBLE_T_R;
use crate::xml::{Element, Xml, cut};
use crate::{Error, Result};

/// Dimensions that the format allows.
const MOST_DIMENSIONS: usize = 6;

/// One array: a time point, a map, the coordinates or triangles of a surface.
#[derive(Clone, Debug)]
pub struct DataArray {
    path: String,
    intent: Intent,
    data_type: DataType,
    dims: Vec<usize>,
    metadata: Metadata,
    /// Little-endian, last dimension fastest.
    bytes: Vec<u8>,
}

impl DataArray {
    /// What the array means.
    pub fn intent(&self) -> Intent {
        self.intent.clone()
    }

    /// How its numbers are stored.
    pub fn data_type(&self) -> DataType {
        self.data_type
    }

    /// Lengths of its dimensions; data on a surface are `[vertices]`, or `[vertices, columns]`.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// Names and values that it carries.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Its numbers in single precision, the last dimension fastest whatever the file's order.
    pub fn values(&self) -> Vec<f32> {
        self.values_as()
    }

    /// The same in single or double precision.
    pub fn values_as<T: Value>(&self) -> Vec<T> {
        let mut values = Vec::with_capacity(self.bytes.len() / self.data_type.size());
        self.data_type.decode(&self.bytes, Endian::Little, None, &mut values);
        values
    }

    /// One of the columns of an array `[rows, columns]`.
    pub fn column_as<T: Value>(&self, column: usize) -> Vec<T> {
        let (rows, columns) =
            (self.dims.first().copied().unwrap_or(0), self.dims.get(1).copied().unwrap_or(1));
        let size = self.data_type.size();
        let mut bytes = Vec::with_capacity(rows * size);
        for row in self.bytes.chunks_exact(columns * size) {
            bytes.extend_from_slice(row.get(column * size..(column + 1) * size).unwrap_or_default());
        }
        let mut values = Vec::with_capacity(rows);
        self.data_type.decode(&bytes, Endian::Little, None, &mut values);
        values
    }

    /// Its numbers as indices or label keys, without loss.
    ///
    /// # Errors
    /// [`Error::Content`] when the type is a float, wider than 32 bit, or a number is out of range.
    pub fn integers(&self) -> Result<Vec<i32>> {
        macro_rules! integers {
            ($number:ty, $size:literal) => {
                self.bytes
                    .as_chunks::<$size>()
                    .0
                    .iter()
                    .map(|b| i32::try_from(<$number>::from_le_bytes(*b)).ok())
                    .collect()
            };
        }
        let integers: Option<Vec<i32>> = match self.data_type {
            DataType::U8 => integers!(u8, 1),
            DataType::I8 => integers!(i8, 1),
            DataType::U16 => integers!(u16, 2),
            DataType::I16 => integers!(i16, 2),
            DataType::U32 => integers!(u32, 4),
            DataType::I32 => integers!(i32, 4),
            DataType::U64 => integers!(u64, 8),
            DataType::I64 => integers!(i64, 8),
            DataType::F32 | DataType::F64 => None,
        };
        integers.ok_or_else(|| self.fault(format!("its {} numbers are no 32-bit indices", self.data_type)))
    }

    /// The repetition time in seconds, from the metadata `TimeStep` in milliseconds; `None` where it is absent
    /// or 0.
    ///
    /// # Errors
    /// [`Error::RepetitionTime`] for what is no number, or outside 0.01 s to 100 s.
    pub fn t_r(&self) -> Result<Option<f64>> {
        let Some(text) = self.metadata.get("TimeStep") else { return Ok(None) };
        let refuse = |why: &str| {
            let reason = format!("(TimeStep) is '{}' ms, {why}", cut(text));
            Err(Error::RepetitionTime { path: self.path.clone(), reason })
        };
        match text.parse::<f64>().map(|milliseconds| milliseconds / 1000.0) {
            Ok(0.0) => Ok(None),
            Ok(seconds) if PLAUSIBLE_T_R.contains(&seconds) => Ok(Some(seconds)),
            Ok(seconds) if PLAUSIBLE_T_R.contains(&(1000.0 * seconds)) => {
                refuse("implausible outside 0.01 s to 100 s (stored in seconds?)")
            }
            Ok(_) => refuse("implausible outside 0.01 s to 100 s"),
            Err(_) => refuse("which is no number"),
        }
    }

    pub(super) fn fault(&self, reason: String) -> Error {
        Error::Content { path: self.path.clone(), reason: format!("array {}: {reason}", self.intent.name()) }
    }

    /// Reads `DataArray`, which was entered.
    pub(super) fn read(xml: &mut Xml, element: &Element, path: &str) -> Result<Self> {
        let intent = Intent::from_name(element.attribute("Intent").unwrap_or("NIFTI_INTENT_NONE"));
        let data_type = data_type(xml, element)?;
        let dims = dims(xml, element)?;
        let count = dims.iter().try_fold(data_type.size(), |product, &length| product.checked_mul(length));
        let bytes = count.filter(|&bytes| isize::try_from(bytes).is_ok());
        let bytes =
            bytes.ok_or_else(|| xml.fault_at(element, format!("its dimensions {dims:?} are too large")))?;
        let shape = Shape {
            encoding: encoding(xml, element)?,
            data_type,
            endian: endian(xml, element)?,
            dims: &dims,
            column_major: match element.attribute("ArrayIndexingOrder").unwrap_or("RowMajorOrder") {
                "RowMajorOrder" => false,
                "ColumnMajorOrder" => true,
                other => {
                    return Err(
                        xml.fault_at(element, format!("its ArrayIndexingOrder '{}' is unknown", cut(other)))
                    );
                }
            },
            bytes,
        };
        let (mut metadata, mut content) = (Metadata::default(), None);
        while let Some(child) = xml.child()? {
            match &child.name[..] {
                "MetaData" => metadata = Metadata::read(xml)?,
                "Data" if content.is_some() => {
                    return Err(xml.fault_at(&child, "it is the array's second".into()));
                }
                "Data" => {
                    let text = xml.text("Data")?;
                    content = Some(decode(text, &shape).map_err(|reason| xml.fault_at(&child, reason))?);
                }
                _ => xml.skip()?,
            }
        }
        let bytes = content.ok_or_else(|| xml.fault_at(element, "it has no Data".into()))?;
        Ok(Self { path: path.into(), intent, data_type, dims, metadata, bytes })
    }
}

fn data_type(xml: &Xml, element: &Element) -> Result<DataType> {
    let name = xml.required(element, "DataType")?;
    let known = name.strip_prefix("NIFTI_TYPE_").map(str::to_ascii_lowercase);
    DataType::ALL.into_iter().find(|known_type| Some(known_type.to_string()) == known).ok_or_else(|| {
        xml.fault_at(element, format!("its DataType '{}' is no integer or float type", cut(name)))
    })
}

fn dims(xml: &Xml, element: &Element) -> Result<Vec<usize>> {
    let count: usize = xml.attribute(element, "Dimensionality")?;
    if !(1..=MOST_DIMENSIONS).contains(&count) {
        return Err(
            xml.fault_at(element, format!("its Dimensionality {count} is not 1 to {MOST_DIMENSIONS}"))
        );
    }
    (0..count).map(|n| xml.attribute(element, &format!("Dim{n}"))).collect()
}

/// The names of the standard, and those that early writers took from its C library.
fn encoding(xml: &Xml, element: &Element) -> Result<Encoding> {
    match xml.required(element, "Encoding")? {
        "ASCII" | "GIFTI_ENCODING_ASCII" => Ok(Encoding::Ascii),
        "Base64Binary" | "GIFTI_ENCODING_B64BIN" => Ok(Encoding::Base64),
        "GZipBase64Binary" | "GIFTI_ENCODING_B64GZ" => Ok(Encoding::GzipBase64),
        "ExternalFileBinary" | "GIFTI_ENCODING_EXTBIN" => {
            let name = element.attribute("ExternalFileName").unwrap_or_default();
            let reason = format!(
                "its numbers lie in another file, '{}', which is not read; convert with \
                 `wb_command -gifti-convert GZIP_BASE64_BINARY IN OUT`",
                cut(name)
            );
            Err(xml.fault_at(element, reason))
        }
        other => Err(xml.fault_at(element, format!("its Encoding '{}' is unknown", cut(other)))),
    }
}

fn endian(xml: &Xml, element: &Element) -> Result<Endian> {
    match element.attribute("Endian") {
        Some("LittleEndian" | "GIFTI_ENDIAN_LITTLE") => Ok(Endian::Little),
        Some("BigEndian" | "GIFTI_ENDIAN_BIG") => Ok(Endian::Big),
        // Decimal numbers have none.
        _ if matches!(encoding(xml, element), Ok(Encoding::Ascii)) => Ok(Endian::Little),
        other => {
            let reason = format!("its Endian '{}' is unknown", cut(other.unwrap_or_default()));
            Err(xml.fault_at(element, reason))
        }
    }
}
