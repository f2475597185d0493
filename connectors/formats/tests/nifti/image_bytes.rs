//! Images made byte by byte, so that they can have any type, byte order, version and fault.

use flate2::{Compression, write::GzEncoder};
use std::io::{Cursor, Write};
use voxelflow_formats::{DataType, Endian, NiftiReader, NiftiVersion, ReadOptions, Result};

/// An image to be; `dim` is the header's, count first.
#[derive(Clone, Debug)]
pub struct Image {
    pub version: NiftiVersion,
    pub endian: Endian,
    pub dim: [i64; 8],
    pub datatype: i16,
    pub bitpix: i16,
    pub pixdim: [f64; 8],
    pub vox_offset: f64,
    pub scl_slope: f64,
    pub scl_inter: f64,
    pub xyzt_units: u8,
    pub qform_code: i16,
    pub sform_code: i16,
    pub quatern: [f64; 3],
    pub qoffset: [f64; 3],
    pub srow: [[f64; 4]; 3],
    pub intent_code: i16,
    pub magic: Vec<u8>,
    /// Bytes between the header's end and the voxels.
    pub extensions: Vec<u8>,
    pub voxels: Vec<u8>,
}

impl Image {
    /// An unscaled little-endian NIfTI-1 image with an sform of 2 mm voxels and a TR of 2 s.
    pub fn new(shape: &[i64], data_type: DataType) -> Self {
        let mut dim = [1; 8];
        dim[0] = shape.len() as i64;
        dim[1..=shape.len()].copy_from_slice(shape);
        Self {
            version: NiftiVersion::One,
            endian: Endian::Little,
            dim,
            datatype: data_type.code(),
            bitpix: 8 * data_type.size() as i16,
            pixdim: [1.0, 2.0, 2.0, 2.0, 2.0, 0.0, 0.0, 0.0],
            vox_offset: 352.0,
            scl_slope: 1.0,
            scl_inter: 0.0,
            xyzt_units: 10,
            qform_code: 0,
            sform_code: 1,
            quatern: [0.0; 3],
            qoffset: [0.0; 3],
            srow: [[2.0, 0.0, 0.0, -3.0], [0.0, 2.0, 0.0, -4.0], [0.0, 0.0, 2.0, -5.0]],
            intent_code: 0,
            magic: b"n+1\0".to_vec(),
            extensions: vec![0; 4],
            voxels: vec![0; shape.iter().product::<i64>() as usize * data_type.size()],
        }
    }

    pub fn into_version_two(mut self) -> Self {
        self.version = NiftiVersion::Two;
        self.vox_offset += 192.0;
        self.magic = b"n+2\0\r\n\x1a\n".to_vec();
        self
    }

    fn number(&self, little: &[u8]) -> Vec<u8> {
        let mut bytes = little.to_vec();
        if self.endian == Endian::Big {
            bytes.reverse();
        }
        bytes
    }

    fn real(&self, value: f64) -> Vec<u8> {
        match self.version {
            NiftiVersion::One => self.number(&(value as f32).to_le_bytes()),
            NiftiVersion::Two => self.number(&value.to_le_bytes()),
        }
    }

    fn code(&self, value: i16) -> Vec<u8> {
        match self.version {
            NiftiVersion::One => self.number(&value.to_le_bytes()),
            NiftiVersion::Two => self.number(&i32::from(value).to_le_bytes()),
        }
    }

    /// The file's bytes, written from the tables of the two standards.
    pub fn bytes(&self) -> Vec<u8> {
        let two = self.version == NiftiVersion::Two;
        let size = if two { 540 } else { 348 };
        let mut out = vec![0_u8; size];
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &self.number(&(size as i32).to_le_bytes()));
        put(if two { 4 } else { 344 }, &self.magic);
        for (n, &length) in self.dim.iter().enumerate() {
            if two {
                put(16 + 8 * n, &self.number(&length.to_le_bytes()));
            } else {
                put(40 + 2 * n, &self.number(&(length as i16).to_le_bytes()));
            }
        }
        put(if two { 12 } else { 70 }, &self.number(&self.datatype.to_le_bytes()));
        put(if two { 14 } else { 72 }, &self.number(&self.bitpix.to_le_bytes()));
        let (width, pixdim) = if two { (8, 104) } else { (4, 76) };
        for (n, &value) in self.pixdim.iter().enumerate() {
            put(pixdim + width * n, &self.real(value));
        }
        if two {
            put(168, &self.number(&(self.vox_offset as i64).to_le_bytes()));
        } else {
            put(108, &self.real(self.vox_offset));
        }
        put(if two { 176 } else { 112 }, &self.real(self.scl_slope));
        put(if two { 184 } else { 116 }, &self.real(self.scl_inter));
        if two {
            put(500, &self.number(&i32::from(self.xyzt_units).to_le_bytes()));
        } else {
            put(123, &[self.xyzt_units]);
        }
        put(if two { 344 } else { 252 }, &self.code(self.qform_code));
        put(if two { 348 } else { 254 }, &self.code(self.sform_code));
        put(if two { 504 } else { 68 }, &self.code(self.intent_code));
        let start = if two { 352 } else { 256 };
        let all = self.quatern.iter().chain(&self.qoffset).chain(self.srow.iter().flatten());
        for (n, &value) in all.enumerate() {
            put(start + width * n, &self.real(value));
        }
        out.extend_from_slice(&self.extensions);
        out.extend_from_slice(&self.voxels);
        out
    }

    /// Reads the image as if it were the file `x.nii`.
    pub fn read(&self) -> Result<Vec<f32>> {
        Ok(open(self.bytes(), "x.nii")?.read_all()?.1)
    }

    /// Opens the image as if it were the file `x.nii`.
    pub fn open(&self) -> Result<NiftiReader> {
        open(self.bytes(), "x.nii")
    }

    /// The message with which the image is refused.
    pub fn refusal(&self) -> String {
        let error = self.read().unwrap_err();
        assert!(error.is_input());
        let message = error.to_string();
        assert!(message.contains("x.nii"), "the file is not named: {message}");
        message
    }
}

/// Opens bytes under a name.
pub fn open(bytes: Vec<u8>, name: &str) -> Result<NiftiReader> {
    NiftiReader::from_reader(Cursor::new(bytes), name, &ReadOptions::default())
}

/// One gzip member.
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Stores `values`, whole numbers for integer types, in the image's type and byte order.
pub fn store(values: &[f64], data_type: DataType, endian: Endian) -> Vec<u8> {
    let mut out = Vec::new();
    for &value in values {
        let mut bytes = match data_type {
            DataType::U8 => (value as u8).to_le_bytes().to_vec(),
            DataType::I8 => (value as i8).to_le_bytes().to_vec(),
            DataType::U16 => (value as u16).to_le_bytes().to_vec(),
            DataType::I16 => (value as i16).to_le_bytes().to_vec(),
            DataType::U32 => (value as u32).to_le_bytes().to_vec(),
            DataType::I32 => (value as i32).to_le_bytes().to_vec(),
            DataType::U64 => (value as u64).to_le_bytes().to_vec(),
            DataType::I64 => (value as i64).to_le_bytes().to_vec(),
            DataType::F32 => (value as f32).to_le_bytes().to_vec(),
            _ => value.to_le_bytes().to_vec(),
        };
        if endian == Endian::Big {
            bytes.reverse();
        }
        out.extend(bytes);
    }
    out
}
