//! The NIfTI-2 header and the XML together: what the values are and where they lie.

use super::SAVE_AS_ARRAY;
use super::axes::{Along, SeriesAxis, names};
use super::brain_models::{self, BrainModel, VolumeSpace};
use crate::byte_stream::ByteStream;
use crate::datatype::{DataType, Endian, Scaling};
use crate::gifti::Metadata;
use crate::nifti::{Layout, NiftiVersion, extension, scaling, vox_offset};
use crate::xml::{Element, Xml, cut};
use crate::{Error, Result};

/// The code of a CIFTI extension.
const CODE: i32 = 32;

/// What a CIFTI-2 file says of its values.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CiftiHeader {
    /// Path or URL, as the caller gave it.
    pub path: String,
    /// Whether the content is compressed.
    pub gzip: bool,
    /// What the values of one grayordinate are.
    pub along: Along,
    /// The structures that the grayordinates lie in, in the order of the grayordinates.
    pub models: Vec<BrainModel>,
    /// The volume that voxels lie in.
    pub volume: Option<VolumeSpace>,
    /// Names and values that the file carries.
    pub metadata: Metadata,
    /// How values are stored.
    pub data_type: DataType,
    /// Byte order.
    pub endian: Endian,
    pub(super) scaling: Option<Scaling>,
    pub(super) values_offset: u64,
}

impl CiftiHeader {
    /// Whether values are read in double precision where none may be lost (see [`DataType::exceeds_single`]).
    pub fn exceeds_single(&self) -> bool {
        self.data_type.exceeds_single(self.scaling)
    }

    /// Count of grayordinates.
    pub fn grayordinates(&self) -> usize {
        self.models.iter().map(|model| model.count).sum()
    }

    /// Length that the decompressed file has at least.
    pub(super) fn end(&self) -> u64 {
        let bytes = self.grayordinates() * self.along.len() * self.data_type.size();
        self.values_offset + bytes as u64
    }

    /// Reads up to the first value.
    pub(super) fn read(stream: &mut ByteStream) -> Result<Self> {
        let layout = Layout::read(stream)?;
        let path = stream.path().to_owned();
        let [along_length, grayordinates] = dimensions(&layout, &path)?;
        let data_type = DataType::from_code(layout.datatype).map_err(|name| Error::Datatype {
            path: path.clone(),
            name,
            code: layout.datatype,
        })?;
        let values_offset = vox_offset(&layout, &path)?;
        let found = extension::find(stream, &layout, values_offset, CODE)?;
        let Some(found) = found else {
            let reason = "it has no CIFTI extension (code 32): another kind of NIfTI-2 file?".into();
            return Err(Error::NotNifti { path, reason });
        };
        let mut matrix = Matrix::default();
        let mut xml = Xml::from_memory(trimmed(found.content), &path, found.offset);
        matrix.read(&mut xml)?;
        let along =
            matrix.along.ok_or_else(|| xml.fault("Matrix", "no map applies to dimension 0".into()))?;
        let (models, volume) =
            matrix.brain.ok_or_else(|| xml.fault("Matrix", "no map applies to dimension 1".into()))?;
        let header = Self {
            path: path.clone(),
            gzip: stream.is_gzip(),
            along,
            models,
            volume,
            metadata: matrix.metadata,
            data_type,
            endian: layout.endian,
            scaling: scaling(&layout, &path)?,
            values_offset,
        };
        let said = [header.along.len(), header.grayordinates()];
        if said != [along_length, grayordinates] {
            let reason = format!(
                "dim[5] and dim[6] are {along_length} and {grayordinates}, but the XML has {} and {}",
                said[0], said[1]
            );
            return Err(field(&layout, &path, reason));
        }
        let bytes = said.into_iter().try_fold(data_type.size(), usize::checked_mul);
        match bytes.filter(|&bytes| isize::try_from(bytes).is_ok()) {
            Some(_) => Ok(header),
            None => Err(field(&layout, &path, "the values are too many to count".into())),
        }
    }
}

/// What the XML says.
#[derive(Default)]
struct Matrix {
    metadata: Metadata,
    along: Option<Along>,
    brain: Option<(Vec<BrainModel>, Option<VolumeSpace>)>,
}

impl Matrix {
    fn read(&mut self, xml: &mut Xml) -> Result<()> {
        let root = xml.root("CIFTI")?;
        let version = xml.required(&root, "Version")?;
        if !(version == "2" || version.starts_with("2.")) {
            let reason = format!(
                "its version is '{}', not 2; convert with `wb_command -file-convert -cifti-version-convert IN 2 OUT`",
                cut(version)
            );
            return Err(xml.fault_at(&root, reason));
        }
        while let Some(matrix) = xml.child()? {
            if matrix.name != "Matrix" {
                xml.skip()?;
                continue;
            }
            while let Some(child) = xml.child()? {
                match &child.name[..] {
                    "MetaData" => self.metadata = Metadata::read(xml)?,
                    "MatrixIndicesMap" => self.read_map(xml, &child)?,
                    _ => xml.skip()?,
                }
            }
        }
        xml.finish()
    }

    fn read_map(&mut self, xml: &mut Xml, element: &Element) -> Result<()> {
        let kind = xml.required(element, "IndicesMapToDataType")?.to_owned();
        let dimension = xml.required(element, "AppliesToMatrixDimension")?.to_owned();
        let twice = match &dimension[..] {
            "0" => self.along.is_some(),
            "1" => self.brain.is_some(),
            _ => false,
        };
        if twice {
            return Err(xml.fault_at(element, format!("a second map applies to dimension {dimension}")));
        }
        match (&dimension[..], &kind[..]) {
            ("0", "CIFTI_INDEX_TYPE_SERIES") => {
                self.along = Some(Along::Series(SeriesAxis::read(xml, element)?));
            }
            ("0", "CIFTI_INDEX_TYPE_SCALARS") => self.along = Some(Along::Scalars(names(xml)?)),
            ("1", "CIFTI_INDEX_TYPE_BRAIN_MODELS") => self.brain = Some(brain_models::read(xml)?),
            _ => {
                let reason = format!("dimension {} is {}: {SAVE_AS_ARRAY}", cut(&dimension), cut(&kind));
                return Err(xml.fault_at(element, reason));
            }
        }
        Ok(())
    }
}

/// `dim[5]` and `dim[6]`, the others being 1.
fn dimensions(layout: &Layout, path: &str) -> Result<[usize; 2]> {
    let is_cifti = layout.version == NiftiVersion::Two && (3000..3100).contains(&layout.intent_code);
    if !is_cifti {
        let reason = format!("its intent code {} is not of CIFTI (3000 to 3099)", layout.intent_code);
        return Err(Error::NotNifti { path: path.into(), reason });
    }
    let dim = &layout.dim;
    if dim[0] != 6 || dim[1..5] != [1; 4] || dim[5..7].iter().any(|&length| length < 1) {
        let reason = format!("it is {dim:?}, but CIFTI of two dimensions has 6 1 1 1 1 and two lengths");
        return Err(field(layout, path, reason));
    }
    let length = |index: usize| usize::try_from(dim[index]).unwrap_or(usize::MAX);
    Ok([length(5), length(6)])
}

fn field(layout: &Layout, path: &str, reason: String) -> Error {
    let offset = layout.version.offsets().dim as u64;
    Error::Header { path: path.into(), field: "dim", offset, reason }
}

/// Extensions are filled up to a multiple of 16 bytes, with zeros.
fn trimmed(mut document: Vec<u8>) -> Vec<u8> {
    let end = document.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    document.truncate(end);
    document
}
