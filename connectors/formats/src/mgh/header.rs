//! The 284 bytes before the values.

use crate::byte_stream::ByteStream;
use crate::datatype::DataType;
use crate::{Error, Result};

/// Bytes before the values.
const LENGTH: usize = 284;
// Where the fields lie.
const DIMENSIONS: usize = 4;
const TYPE: usize = 20;
const GOOD_RAS: usize = 28;
const SPACING: usize = 30;
const COSINES: usize = 42;
const CENTRE: usize = 78;

/// What an MGH header says.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct MghHeader {
    /// Path or URL, as the caller gave it.
    pub path: String,
    /// Whether the content is compressed.
    pub gzip: bool,
    /// Width, height and depth; data on a surface are `[vertices, 1, 1]`.
    pub shape: [usize; 3],
    /// Frames, which are time points, at least 1.
    pub frames: usize,
    /// How values are stored.
    pub data_type: DataType,
    /// Voxel index to scanner millimetres (right, anterior, superior), row-major 4×4. Where the header gives
    /// no place, FreeSurfer's coronal slices of 1 mm voxels.
    pub affine: [[f64; 4]; 4],
    /// Whether the header gives the place (`goodRASFlag`).
    pub has_place: bool,
}

impl MghHeader {
    /// Reads and judges the header.
    pub(super) fn read(stream: &mut ByteStream) -> Result<Self> {
        let mut bytes = [0_u8; LENGTH];
        stream.fill_exactly(&mut bytes, &|| "the header".into())?;
        let fields = Fields { bytes: &bytes, path: stream.path() };
        if fields.int(0) != 1 {
            let reason =
                format!("it is {}, but MGH has version 1 only: another kind of file?", fields.int(0));
            return Err(fields.fault("version", 0, reason));
        }
        let lengths: [i32; 4] = std::array::from_fn(|n| fields.int(DIMENSIONS + 4 * n));
        let [width, height, depth, frames] = fields.lengths(lengths)?;
        let code = fields.int(TYPE);
        let data_type = match code {
            0 => DataType::U8,
            1 => DataType::I32,
            3 => DataType::F32,
            4 => DataType::I16,
            10 => DataType::U16,
            _ => {
                let reason = format!(
                    "its code {code} is not one of 0 (uchar), 1 (int), 3 (float), 4 (short), 10 (ushort)"
                );
                return Err(fields.fault("type", TYPE, reason));
            }
        };
        fields.check_size(&lengths, data_type)?;
        let has_place = i16::from_be_bytes([bytes[GOOD_RAS], bytes[GOOD_RAS + 1]]) > 0;
        Ok(Self {
            path: stream.path().into(),
            gzip: stream.is_gzip(),
            shape: [width, height, depth],
            frames,
            data_type,
            affine: fields.affine([width, height, depth], has_place)?,
            has_place,
        })
    }

    /// Values of one frame.
    pub fn values(&self) -> usize {
        self.shape.iter().product()
    }

    /// Length that the decompressed file has at least.
    pub(super) fn end(&self) -> u64 {
        (LENGTH + self.values() * self.frames * self.data_type.size()) as u64
    }
}

struct Fields<'a> {
    bytes: &'a [u8; LENGTH],
    path: &'a str,
}

impl Fields<'_> {
    fn at(&self, start: usize) -> [u8; 4] {
        let mut number = [0; 4];
        number.copy_from_slice(&self.bytes[start..start + 4]);
        number
    }

    fn int(&self, start: usize) -> i32 {
        i32::from_be_bytes(self.at(start))
    }

    fn real(&self, start: usize, index: usize) -> f64 {
        f64::from(f32::from_be_bytes(self.at(start + 4 * index)))
    }

    fn lengths(&self, stored: [i32; 4]) -> Result<[usize; 4]> {
        let mut lengths = [0; 4];
        for ((length, stored), name) in
            lengths.iter_mut().zip(stored).zip(["width", "height", "depth", "frames"])
        {
            *length = usize::try_from(stored).ok().filter(|&length| length > 0).ok_or_else(|| {
                self.fault("dims", DIMENSIONS, format!("{name} is {stored}, but is at least 1"))
            })?;
        }
        Ok(lengths)
    }

    fn check_size(&self, lengths: &[i32; 4], data_type: DataType) -> Result<()> {
        // Four lengths under 2³¹ overflow neither.
        let bytes = lengths.iter().map(|&length| length as u128).product::<u128>() * data_type.size() as u128;
        if bytes <= (isize::MAX as u128) / 2 {
            return Ok(());
        }
        Err(self.fault("dims", DIMENSIONS, format!("the shape {lengths:?} is too large")))
    }

    /// Cosines times spacing; the middle of the volume lies at the centre.
    fn affine(&self, shape: [usize; 3], has_place: bool) -> Result<[[f64; 4]; 4]> {
        let (mut spacing, mut centre) = ([1.0; 3], [0.0; 3]);
        // Row by voxel axis: where the axis points.
        let mut cosines = [[-1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]];
        if has_place {
            spacing = std::array::from_fn(|n| self.real(SPACING, n));
            centre = std::array::from_fn(|n| self.real(CENTRE, n));
            cosines = std::array::from_fn(|axis| std::array::from_fn(|n| self.real(COSINES, 3 * axis + n)));
        }
        let mut affine = [[0.0, 0.0, 0.0, 0.0], [0.0; 4], [0.0; 4], [0.0, 0.0, 0.0, 1.0]];
        for (row, line) in affine.iter_mut().take(3).enumerate() {
            line[3] = centre[row];
            for axis in 0..3 {
                line[axis] = cosines[axis][row] * spacing[axis];
                line[3] -= line[axis] * shape[axis] as f64 / 2.0;
            }
        }
        if affine.iter().flatten().all(|value| value.is_finite()) {
            return Ok(affine);
        }
        let reason = "goodRASFlag is set but spacing, cosines or centre are not finite".to_owned();
        Err(self.fault("Mdc", SPACING, reason))
    }

    fn fault(&self, field: &'static str, offset: usize, reason: String) -> Error {
        Error::Header { path: self.path.into(), field, offset: offset as u64, reason }
    }
}
