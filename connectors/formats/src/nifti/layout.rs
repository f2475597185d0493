//! Where each header field lies in the bytes of NIfTI-1 (348 bytes) and NIfTI-2 (540 bytes), read
//! into one struct for both.

use crate::byte_stream::ByteStream;
use crate::datatype::Endian;
use crate::{Error, Result};

/// Version of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NiftiVersion {
    /// 348 bytes, dimensions up to 32,767.
    One,
    /// 540 bytes, 64-bit dimensions.
    Two,
}

impl NiftiVersion {
    /// Bytes of the header, the value of `sizeof_hdr`.
    pub(crate) const fn header_size(self) -> usize {
        match self {
            Self::One => 348,
            Self::Two => 540,
        }
    }
    /// The first byte where voxels may lie in a single file: after the header and the extension flag.
    pub(crate) const fn first_voxel(self) -> u64 {
        self.header_size() as u64 + 4
    }
    /// The magic string of a single file.
    pub(crate) const fn magic(self) -> &'static [u8] {
        match self {
            Self::One => b"n+1\0",
            Self::Two => b"n+2\0\r\n\x1a\n",
        }
    }
    /// Offsets of the fields.
    pub(crate) const fn offsets(self) -> &'static Offsets {
        match self {
            Self::One => &ONE,
            Self::Two => &TWO,
        }
    }
}

/// Byte offset of `glmin`, which NIfTI-2 lacks.
const GLMIN: usize = 144;

/// Byte offsets of the fields that are used.
pub(crate) struct Offsets {
    pub magic: usize,
    pub dim: usize,
    pub datatype: usize,
    pub bitpix: usize,
    pub pixdim: usize,
    pub vox_offset: usize,
    pub scl_slope: usize,
    pub scl_inter: usize,
    pub xyzt_units: usize,
    pub toffset: usize,
    pub descrip: usize,
    pub qform_code: usize,
    pub sform_code: usize,
    pub quatern: usize,
    pub qoffset: usize,
    pub srow: usize,
    pub intent_code: usize,
    pub intent_name: usize,
}

const ONE: Offsets = Offsets {
    magic: 344,
    dim: 40,
    datatype: 70,
    bitpix: 72,
    pixdim: 76,
    vox_offset: 108,
    scl_slope: 112,
    scl_inter: 116,
    xyzt_units: 123,
    toffset: 136,
    descrip: 148,
    qform_code: 252,
    sform_code: 254,
    quatern: 256,
    qoffset: 268,
    srow: 280,
    intent_code: 68,
    intent_name: 328,
};

const TWO: Offsets = Offsets {
    magic: 4,
    dim: 16,
    datatype: 12,
    bitpix: 14,
    pixdim: 104,
    vox_offset: 168,
    scl_slope: 176,
    scl_inter: 184,
    xyzt_units: 500,
    toffset: 216,
    descrip: 240,
    qform_code: 344,
    sform_code: 348,
    quatern: 352,
    qoffset: 376,
    srow: 400,
    intent_code: 504,
    intent_name: 508,
};

/// The fields of either version as they are stored, nothing judged yet.
pub(crate) struct Layout {
    pub version: NiftiVersion,
    pub endian: Endian,
    pub dim: [i64; 8],
    /// Of NIfTI-1, where FreeSurfer keeps a first dimension that `dim` cannot count.
    pub glmin: i32,
    pub datatype: i16,
    pub bitpix: i16,
    pub pixdim: [f64; 8],
    pub vox_offset: f64,
    pub scl_slope: f64,
    pub scl_inter: f64,
    pub xyzt_units: i32,
    pub toffset: f64,
    pub descrip: String,
    pub qform_code: i32,
    pub sform_code: i32,
    /// b, c, d.
    pub quatern: [f64; 3],
    pub qoffset: [f64; 3],
    pub srow: [[f64; 4]; 3],
    pub intent_code: i32,
    pub intent_name: String,
}

impl Layout {
    /// Reads the header's bytes and takes them apart.
    pub(crate) fn read(stream: &mut ByteStream) -> Result<Self> {
        let place = || "the header".to_owned();
        let mut bytes = [0_u8; 540];
        let first = stream.fill(&mut bytes[..4], &place)?;
        let size = [bytes[0], bytes[1], bytes[2], bytes[3]];
        let (version, endian) = match (i32::from_le_bytes(size), i32::from_be_bytes(size)) {
            _ if first < 4 => return Err(not_nifti(stream, format!("it has only {first} bytes"))),
            (348, _) => (NiftiVersion::One, Endian::Little),
            (540, _) => (NiftiVersion::Two, Endian::Little),
            (_, 348) => (NiftiVersion::One, Endian::Big),
            (_, 540) => (NiftiVersion::Two, Endian::Big),
            (little, _) => {
                let reason = format!("sizeof_hdr at byte 0 is {little}, not 348 or 540 in either byte order");
                return Err(not_nifti(stream, reason));
            }
        };
        let bytes = &mut bytes[..version.header_size()];
        stream.fill_exactly(&mut bytes[4..], &place)?;
        let at = version.offsets();
        check_magic(stream, version, &bytes[at.magic..])?;
        Ok(Self::take_apart(&Fields { bytes, version, endian }))
    }

    fn take_apart(fields: &Fields<'_>) -> Self {
        let (version, endian, at) = (fields.version, fields.endian, fields.version.offsets());
        let real = |start: usize, index: usize| fields.real(start, index);
        Self {
            version,
            endian,
            dim: std::array::from_fn(|n| fields.dim(at.dim, n)),
            glmin: match version {
                NiftiVersion::One => fields.int(GLMIN),
                NiftiVersion::Two => 0,
            },
            datatype: fields.short(at.datatype),
            bitpix: fields.short(at.bitpix),
            pixdim: std::array::from_fn(|n| real(at.pixdim, n)),
            vox_offset: match version {
                NiftiVersion::One => real(at.vox_offset, 0),
                NiftiVersion::Two => fields.long(at.vox_offset) as f64,
            },
            scl_slope: real(at.scl_slope, 0),
            scl_inter: real(at.scl_inter, 0),
            xyzt_units: match version {
                NiftiVersion::One => i32::from(fields.bytes[at.xyzt_units]),
                NiftiVersion::Two => fields.int(at.xyzt_units),
            },
            toffset: real(at.toffset, 0),
            descrip: fields.text(at.descrip, 80),
            qform_code: fields.code(at.qform_code),
            sform_code: fields.code(at.sform_code),
            quatern: std::array::from_fn(|n| real(at.quatern, n)),
            qoffset: std::array::from_fn(|n| real(at.qoffset, n)),
            srow: std::array::from_fn(|row| std::array::from_fn(|n| real(at.srow, 4 * row + n))),
            intent_code: fields.code(at.intent_code),
            intent_name: fields.text(at.intent_name, 16),
        }
    }
}

/// The header's bytes, read number by number. Every offset comes from [`Offsets`], so each lies
/// within the header.
struct Fields<'a> {
    bytes: &'a [u8],
    version: NiftiVersion,
    endian: Endian,
}

impl Fields<'_> {
    /// `N` bytes in little-endian order.
    fn at<const N: usize>(&self, start: usize) -> [u8; N] {
        let mut number = [0; N];
        number.copy_from_slice(&self.bytes[start..start + N]);
        if self.endian == Endian::Big {
            number.reverse();
        }
        number
    }
    fn short(&self, start: usize) -> i16 {
        i16::from_le_bytes(self.at(start))
    }
    fn int(&self, start: usize) -> i32 {
        i32::from_le_bytes(self.at(start))
    }
    fn long(&self, start: usize) -> i64 {
        i64::from_le_bytes(self.at(start))
    }
    /// A code: 16 bit in version 1, 32 bit in version 2.
    fn code(&self, start: usize) -> i32 {
        match self.version {
            NiftiVersion::One => i32::from(self.short(start)),
            NiftiVersion::Two => self.int(start),
        }
    }
    fn dim(&self, start: usize, index: usize) -> i64 {
        match self.version {
            NiftiVersion::One => i64::from(self.short(start + 2 * index)),
            NiftiVersion::Two => self.long(start + 8 * index),
        }
    }
    /// A real number: single precision in version 1, double in version 2.
    fn real(&self, start: usize, index: usize) -> f64 {
        match self.version {
            NiftiVersion::One => f64::from(f32::from_le_bytes(self.at(start + 4 * index))),
            NiftiVersion::Two => f64::from_le_bytes(self.at(start + 8 * index)),
        }
    }
    fn text(&self, start: usize, length: usize) -> String {
        let field = &self.bytes[start..start + length];
        let end = field.iter().position(|&byte| byte == 0).unwrap_or(length);
        String::from_utf8_lossy(&field[..end]).trim_end().to_owned()
    }
}

fn check_magic(stream: &ByteStream, version: NiftiVersion, field: &[u8]) -> Result<()> {
    let magic = version.magic();
    let found = &field[..magic.len()];
    // The four control characters of version 2 show damage by text-mode transfer; the first four
    // characters alone identify the format.
    if found == magic {
        return Ok(());
    }
    let reason = match &found[..4] {
        b"n+2\0" => {
            "the characters after its magic \"n+2\" are damaged, as by a transfer in text mode".to_owned()
        }
        b"ni1\0" | b"ni2\0" => "it is the header of a .hdr/.img pair: convert it to .nii".to_owned(),
        [0, 0, 0, 0] if version == NiftiVersion::One => {
            "it has no magic (Analyze 7.5?), so left and right are unknown: convert it to .nii".to_owned()
        }
        other => format!("its magic is \"{}\", not \"n+1\" or \"n+2\"", other.escape_ascii()),
    };
    Err(not_nifti(stream, reason))
}

fn not_nifti(stream: &ByteStream, reason: String) -> Error {
    Error::NotNifti { path: stream.path().to_owned(), reason }
}
