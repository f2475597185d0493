//! One reader for images of voxels, whatever their format: NIfTI, and MGH of FreeSurfer.

use crate::Result;
use crate::number::Number;
use crate::volume_set::VolumeSet;
use voxelflow_formats::mgh::MghReader;
use voxelflow_formats::{NiftiHeader, NiftiReader, Scaling};

/// Gives the volumes of an image one by one.
pub(crate) enum ImageReader {
    Nifti(Box<NiftiReader>),
    Mgh(Box<MghReader>),
    /// Of one volume each.
    Set(Box<VolumeSet>),
}

/// What a table needs to know of an image before its volumes.
pub(crate) struct ImageHeader<'r> {
    /// Voxels along i, j, k.
    pub shape: [usize; 3],
    pub volumes: usize,
    /// Voxel index to millimetres, row-major 4×4.
    pub affine: [[f64; 4]; 4],
    /// As in NIfTI.
    pub xform_code: i16,
    /// Whether values are kept in double precision.
    pub double: bool,
    /// Whether it is NIfTI that holds vertices of a surface.
    pub surface: bool,
    nifti: Option<&'r NiftiHeader>,
}

impl ImageHeader<'_> {
    /// How stored numbers become values, if they are not the values.
    pub fn scaling(&self) -> Option<Scaling> {
        self.nifti.and_then(|header| header.scaling)
    }

    /// What is odd about the header.
    pub fn faults(&self) -> &[String] {
        self.nifti.map(NiftiHeader::faults).unwrap_or_default()
    }

    /// Repetition time in seconds; none where the header has no place for one (MGH has it behind the values).
    pub fn t_r(&self) -> Result<Option<f64>> {
        Ok(self.nifti.map(NiftiHeader::t_r).transpose()?.flatten())
    }
}

impl ImageReader {
    pub fn header(&self) -> ImageHeader<'_> {
        match self {
            Self::Set(set) => ImageHeader { volumes: set.files.len(), ..set.first.header() },
            Self::Nifti(reader) => {
                let header = reader.header();
                let NiftiHeader { shape, volumes, affine, xform_code, .. } = *header;
                let double = header.exceeds_single();
                let surface = header.surface;
                ImageHeader { shape, volumes, affine, xform_code, double, surface, nifti: Some(header) }
            }
            Self::Mgh(reader) => {
                let header = reader.header();
                // Scanner coordinates, or none.
                let xform_code = i16::from(header.has_place);
                let (shape, volumes) = (header.shape, header.frames);
                let double = header.data_type.exceeds_single(None);
                let (affine, surface) = (header.affine, false);
                ImageHeader { shape, volumes, affine, xform_code, double, surface, nifti: None }
            }
        }
    }

    /// Replaces the content of `into` by the next volume, `[i + ni·(j + nj·k)]`; false after the last.
    pub fn next_volume<T: Number>(&mut self, into: &mut Vec<T>) -> Result<bool> {
        Ok(match self {
            Self::Nifti(reader) => reader.next_volume(into)?,
            Self::Mgh(reader) => reader.next_frame(into)?,
            Self::Set(set) => set.next_volume(into)?,
        })
    }
}
