//! Writes an image one volume at a time: all of it or nothing.

use super::affine::{self, Affine};
use super::header::NiftiHeader;
use super::layout::NiftiVersion;
use crate::datatype::DataType;
use crate::whole_file::WholeFile;
use crate::{Error, Result};
use std::path::Path;

/// What an image that is to be written looks like.
#[derive(Clone, Debug, PartialEq)]
pub struct NiftiSpec {
    /// Voxels along i, j, k.
    pub shape: [usize; 3],
    /// Time points; 1 gives a 3-dimensional image.
    pub volumes: usize,
    /// How voxels are stored; an integer type takes only whole numbers that it can hold.
    pub data_type: DataType,
    /// Voxel index to millimetres, row-major 4×4.
    pub affine: [[f64; 4]; 4],
    /// Code of the affine (see [`NiftiHeader::xform_code`]).
    pub xform_code: i16,
    /// Repetition time in seconds.
    pub t_r: Option<f64>,
    /// Stored in `descrip`, at most 79 bytes of it.
    pub description: String,
}

impl NiftiSpec {
    /// A float32 image of 1 mm voxels without known place.
    pub fn new(shape: [usize; 3], volumes: usize) -> Self {
        Self {
            shape,
            volumes,
            data_type: DataType::F32,
            affine: affine::from_voxel_sizes(shape, [1.0; 3]),
            xform_code: 0,
            t_r: None,
            description: String::new(),
        }
    }

    /// A float32 image of `volumes` volumes on the grid of `source`; the repetition time is kept when
    /// it is plausible.
    pub fn like(source: &NiftiHeader, volumes: usize) -> Self {
        Self {
            affine: source.affine,
            xform_code: source.xform_code,
            t_r: source.t_r().ok().flatten().filter(|_| volumes > 1),
            ..Self::new(source.shape, volumes)
        }
    }

    /// Stores voxels as `data_type`.
    #[must_use]
    pub fn with_data_type(mut self, data_type: DataType) -> Self {
        self.data_type = data_type;
        self
    }

    /// Sets affine and code.
    #[must_use]
    pub fn with_affine(mut self, affine: [[f64; 4]; 4], xform_code: i16) -> Self {
        (self.affine, self.xform_code) = (affine, xform_code);
        self
    }

    /// An image without known place, of voxels of `sizes` millimetres.
    #[must_use]
    pub fn with_voxel_size(self, sizes: [f64; 3]) -> Self {
        let affine = affine::from_voxel_sizes(self.shape, sizes);
        self.with_affine(affine, 0)
    }

    /// Sets the repetition time in seconds.
    #[must_use]
    pub fn with_t_r(mut self, seconds: f64) -> Self {
        self.t_r = Some(seconds);
        self
    }

    /// Sets the description.
    #[must_use]
    pub fn with_description(mut self, text: impl Into<String>) -> Self {
        self.description = text.into();
        self
    }

    fn voxels(&self) -> usize {
        self.shape.iter().product()
    }

    /// What is wrong with the image, if anything.
    fn fault(&self) -> Option<String> {
        let lengths = self.shape.into_iter().chain([self.volumes, self.data_type.size()]);
        let bytes = lengths.clone().try_fold(1_usize, usize::checked_mul);
        if lengths.min() == Some(0) || bytes.is_none_or(|bytes| isize::try_from(bytes).is_err()) {
            return Some(format!("the shape {:?} × {} is empty or too large", self.shape, self.volumes));
        }
        let finite = self.affine.iter().flatten().all(|value| value.is_finite());
        if !finite || affine::determinant(&self.affine) == 0.0 {
            return Some(format!("the affine {:?} is singular or not finite", self.affine));
        }
        if self.affine[3] != [0.0, 0.0, 0.0, 1.0] {
            return Some(format!("the affine's last row is {:?}, not 0 0 0 1", self.affine[3]));
        }
        match self.t_r {
            Some(seconds) if !(seconds.is_finite() && seconds > 0.0) => {
                Some(format!("the repetition time {seconds} s is not positive"))
            }
            _ => None,
        }
    }

    /// The bytes before the first voxel.
    fn header_bytes(&self) -> Vec<u8> {
        let longest = self.shape.into_iter().chain([self.volumes]).max().unwrap_or(0);
        let version = if longest > i16::MAX as usize { NiftiVersion::Two } else { NiftiVersion::One };
        let at = version.offsets();
        let sizes = affine::voxel_sizes(&self.affine);
        let mut fields = Fields { bytes: vec![0; version.first_voxel() as usize], version };
        fields.put(0, &(version.header_size() as i32).to_le_bytes());
        fields.put(at.magic, version.magic());
        let dimensions = if self.volumes > 1 { 4 } else { 3 };
        let [ni, nj, nk] = self.shape;
        for (index, length) in [dimensions, ni, nj, nk, self.volumes, 1, 1, 1].into_iter().enumerate() {
            fields.dim(at.dim, index, length);
        }
        fields.put(at.datatype, &self.data_type.code().to_le_bytes());
        fields.put(at.bitpix, &(8 * self.data_type.size() as i16).to_le_bytes());
        for (index, size) in [1.0, sizes[0], sizes[1], sizes[2]].into_iter().enumerate() {
            fields.real(at.pixdim, index, size);
        }
        fields.real(at.pixdim, 4, self.t_r.unwrap_or(0.0));
        match version {
            NiftiVersion::One => fields.real(at.vox_offset, 0, version.first_voxel() as f64),
            NiftiVersion::Two => fields.put(at.vox_offset, &version.first_voxel().to_le_bytes()),
        }
        fields.real(at.scl_slope, 0, 1.0);
        fields.bytes[at.xyzt_units] = 2 | 8; // millimetres, seconds
        let description = self.description.as_bytes();
        let length = (0..=79.min(description.len())).rev().find(|&n| self.description.is_char_boundary(n));
        fields.put(at.descrip, &description[..length.unwrap_or(0)]);
        self.put_affine(&mut fields, sizes);
        fields.bytes
    }

    /// An affine of unknown code that says no more than the voxel sizes is left out, so that every
    /// program reads the image as it read the source; any other is the sform.
    fn put_affine(&self, fields: &mut Fields, sizes: [f64; 3]) {
        let at = fields.version.offsets();
        let implied: Affine = affine::from_voxel_sizes(self.shape, sizes);
        if self.xform_code == 0 && close(&implied, &self.affine) {
            return;
        }
        let code = if self.xform_code == 0 { 2 } else { self.xform_code };
        fields.code(at.sform_code, code);
        for (row, values) in self.affine[..3].iter().enumerate() {
            for (column, &value) in values.iter().enumerate() {
                fields.real(at.srow, 4 * row + column, value);
            }
        }
    }
}

fn close(a: &Affine, b: &Affine) -> bool {
    a.iter().flatten().zip(b.iter().flatten()).all(|(a, b)| (a - b).abs() <= 1e-4)
}

/// The header while it is filled, little-endian.
struct Fields {
    bytes: Vec<u8>,
    version: NiftiVersion,
}

impl Fields {
    fn put(&mut self, at: usize, value: &[u8]) {
        self.bytes[at..at + value.len()].copy_from_slice(value);
    }
    fn real(&mut self, start: usize, index: usize, value: f64) {
        match self.version {
            NiftiVersion::One => self.put(start + 4 * index, &(value as f32).to_le_bytes()),
            NiftiVersion::Two => self.put(start + 8 * index, &value.to_le_bytes()),
        }
    }
    fn dim(&mut self, start: usize, index: usize, length: usize) {
        match self.version {
            NiftiVersion::One => self.put(start + 2 * index, &(length as i16).to_le_bytes()),
            NiftiVersion::Two => self.put(start + 8 * index, &(length as i64).to_le_bytes()),
        }
    }
    fn code(&mut self, start: usize, code: i16) {
        match self.version {
            NiftiVersion::One => self.put(start, &code.to_le_bytes()),
            NiftiVersion::Two => self.put(start, &i32::from(code).to_le_bytes()),
        }
    }
}

/// Writes an image one volume at a time. Dropped before [`Self::finish`] it leaves nothing behind.
pub struct NiftiWriter {
    file: WholeFile,
    spec: NiftiSpec,
    written: usize,
    buffer: Vec<u8>,
}

impl NiftiWriter {
    /// Begins an image at `path`, compressed when its name ends in `.gz`. NIfTI-1, or NIfTI-2 when a
    /// dimension is over 32,767.
    ///
    /// # Errors
    /// [`Error::Content`] for a `spec` that cannot be stored, [`Error::Write`] from the system.
    pub fn create(path: impl AsRef<Path>, spec: &NiftiSpec) -> Result<Self> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let refuse = |reason: String| Error::Content { path: name.clone(), reason };
        if let Some(reason) = spec.fault() {
            return Err(refuse(reason));
        }
        let lower = name.to_ascii_lowercase();
        if !(lower.ends_with(".nii") || lower.ends_with(".nii.gz")) {
            return Err(refuse("the name of a NIfTI image ends in .nii or .nii.gz".into()));
        }
        let mut file = WholeFile::create(path)?;
        file.write_all(&spec.header_bytes())?;
        Ok(Self { file, spec: spec.clone(), written: 0, buffer: Vec::new() })
    }

    /// Writes the next volume, `[ni·nj·nk]` with i fastest.
    ///
    /// # Errors
    /// [`Error::Content`] when its length is not that of a volume, when all volumes were written, or
    /// when an integer type cannot hold a value; [`Error::Write`] from the system.
    pub fn write_volume(&mut self, values: &[f32]) -> Result<()> {
        let volume = self.written + 1;
        if values.len() != self.spec.voxels() {
            let reason =
                format!("volume {volume} has {} values, the grid has {}", values.len(), self.spec.voxels());
            return Err(self.refuse(reason));
        }
        if volume > self.spec.volumes {
            return Err(
                self.refuse(format!("it was created for {} volume(s), this is one more", self.spec.volumes))
            );
        }
        self.buffer.clear();
        if let Err(index) = self.spec.data_type.encode(values, &mut self.buffer) {
            let ([ni, nj, _], data_type) = (self.spec.shape, self.spec.data_type);
            let voxel = [index % ni, index / ni % nj, index / (ni * nj)];
            let reason = format!(
                "volume {volume}, voxel {voxel:?}: {} is not a value of {data_type}; use float32 or a wider type",
                values[index]
            );
            return Err(self.refuse(reason));
        }
        self.file.write_all(&self.buffer)?;
        self.written = volume;
        Ok(())
    }

    /// Completes the image and gives it its name, replacing what had it before.
    ///
    /// # Errors
    /// [`Error::Content`] when volumes are missing, [`Error::Write`] from the system. Then nothing is
    /// left behind, and a previous file of that name is as it was.
    pub fn finish(self) -> Result<()> {
        if self.written < self.spec.volumes {
            let reason = format!("{} of {} volumes were written", self.written, self.spec.volumes);
            return Err(self.refuse(reason));
        }
        self.file.publish()
    }

    fn refuse(&self, reason: String) -> Error {
        self.file.refuse(reason)
    }
}
