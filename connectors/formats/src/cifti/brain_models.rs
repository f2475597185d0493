//! Where grayordinates lie: models of structures, on a surface or in a volume.

use crate::Result;
use crate::xml::{Element, Xml, cut};
use std::collections::HashSet;
use std::str::FromStr;

/// A stretch of grayordinates that belong to one structure.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct BrainModel {
    /// Such as `CIFTI_STRUCTURE_CORTEX_LEFT`.
    pub structure: String,
    /// The first grayordinate.
    pub offset: usize,
    /// Count of grayordinates.
    pub count: usize,
    /// Where each lies.
    pub places: Places,
}

/// Where the grayordinates of a model lie, in their order.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Places {
    /// On a surface.
    Surface {
        /// Vertices of the whole surface.
        vertices_of_surface: usize,
        /// `[count]` vertices.
        vertices: Vec<u32>,
    },
    /// In the volume of the file.
    Volume {
        /// `[count]` voxels i, j, k.
        voxels: Vec<[u32; 3]>,
    },
}

/// The volume that voxels lie in.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct VolumeSpace {
    /// Voxels along i, j, k.
    pub shape: [usize; 3],
    /// Voxel index to millimetres, row-major 4×4.
    pub affine: [[f64; 4]; 4],
}

/// Reads the models and the volume of a map of brain models, which was entered. Together the models have every
/// grayordinate from 0 on once, and no vertex or voxel twice.
pub(super) fn read(xml: &mut Xml) -> Result<(Vec<BrainModel>, Option<VolumeSpace>)> {
    let (mut models, mut volume) = (Vec::new(), None);
    while let Some(child) = xml.child()? {
        match &child.name[..] {
            "BrainModel" => models.push((model(xml, &child)?, child)),
            "Volume" if volume.is_some() => return Err(xml.fault_at(&child, "there are two volumes".into())),
            "Volume" => volume = Some(volume_space(xml, &child)?),
            _ => xml.skip()?,
        }
    }
    models.sort_by_key(|(model, _)| model.offset);
    let (mut next, mut structures, mut voxels) = (0, HashSet::new(), HashSet::new());
    for (model, element) in &models {
        let fault = |reason: String| Err(xml.fault_at(element, format!("{}: {reason}", model.structure)));
        if model.offset != next {
            return fault(format!(
                "its IndexOffset is {}, but the models before it end at {next}",
                model.offset
            ));
        }
        next += model.count;
        match &model.places {
            Places::Surface { .. } if !structures.insert(&model.structure) => {
                return fault("there are two models of this surface".into());
            }
            Places::Surface { .. } => {}
            Places::Volume { voxels: here } => {
                let Some(VolumeSpace { shape, .. }) = &volume else {
                    return fault("it has voxels, but the file has no Volume".into());
                };
                for voxel in here {
                    if voxel.iter().zip(shape).any(|(&index, &length)| index as usize >= length) {
                        return fault(format!("the voxel {voxel:?} lies outside the volume of {shape:?}"));
                    }
                    if !voxels.insert(*voxel) {
                        return fault(format!("the voxel {voxel:?} is there twice"));
                    }
                }
            }
        }
    }
    Ok((models.into_iter().map(|(model, _)| model).collect(), volume))
}

fn model(xml: &mut Xml, element: &Element) -> Result<BrainModel> {
    let count: usize = xml.attribute(element, "IndexCount")?;
    let kind = xml.required(element, "ModelType")?.to_owned();
    let (mut vertices, mut voxels) = (None, None);
    while let Some(child) = xml.child()? {
        match &child.name[..] {
            "VertexIndices" => {
                let text = xml.text("VertexIndices")?;
                vertices = Some(numbers::<u32>(xml, &child, &text)?);
            }
            "VoxelIndicesIJK" => {
                let text = xml.text("VoxelIndicesIJK")?;
                voxels = Some(numbers::<u32>(xml, &child, &text)?);
            }
            _ => xml.skip()?,
        }
    }
    let places = match (&kind[..], vertices, voxels) {
        ("CIFTI_MODEL_TYPE_SURFACE", Some(vertices), None) => surface(xml, element, vertices)?,
        ("CIFTI_MODEL_TYPE_VOXELS", None, Some(indices)) if indices.len() % 3 == 0 => {
            Places::Volume { voxels: indices.as_chunks::<3>().0.to_vec() }
        }
        _ => {
            let reason =
                format!("its ModelType '{}' and its lists of vertices or voxels do not fit", cut(&kind));
            return Err(xml.fault_at(element, reason));
        }
    };
    let found = match &places {
        Places::Surface { vertices, .. } => vertices.len(),
        Places::Volume { voxels } => voxels.len(),
    };
    if found != count || count == 0 {
        return Err(xml.fault_at(element, format!("its IndexCount is {count}, and {found} are listed")));
    }
    Ok(BrainModel {
        structure: xml.required(element, "BrainStructure")?.to_owned(),
        offset: xml.attribute(element, "IndexOffset")?,
        count,
        places,
    })
}

fn surface(xml: &Xml, element: &Element, vertices: Vec<u32>) -> Result<Places> {
    let vertices_of_surface: usize = xml.attribute(element, "SurfaceNumberOfVertices")?;
    let mut seen = HashSet::with_capacity(vertices.len());
    for &vertex in &vertices {
        if vertex as usize >= vertices_of_surface || !seen.insert(vertex) {
            let reason = format!(
                "the vertex {vertex} is there twice, or beyond the surface's {vertices_of_surface} vertices"
            );
            return Err(xml.fault_at(element, reason));
        }
    }
    Ok(Places::Surface { vertices_of_surface, vertices })
}

fn volume_space(xml: &mut Xml, element: &Element) -> Result<VolumeSpace> {
    let dimensions = xml.required(element, "VolumeDimensions")?.replace(',', " ");
    let shape = numbers::<usize>(xml, element, &dimensions)?;
    let shape = <[usize; 3]>::try_from(shape).map_err(|_| {
        xml.fault_at(element, format!("its VolumeDimensions are '{}', not three", cut(&dimensions)))
    })?;
    let mut affine = None;
    while let Some(child) = xml.child()? {
        if child.name != "TransformationMatrixVoxelIndicesIJKtoXYZ" {
            xml.skip()?;
            continue;
        }
        let exponent: i32 = xml.attribute(&child, "MeterExponent")?;
        let text = xml.text(&child.name)?;
        affine = Some(matrix(xml, &child, &text, exponent)?);
    }
    let affine = affine.ok_or_else(|| xml.fault_at(element, "it has no transformation matrix".into()))?;
    Ok(VolumeSpace { shape, affine })
}

/// A matrix to 10^`exponent` metres, made one to millimetres.
fn matrix(xml: &Xml, element: &Element, text: &str, exponent: i32) -> Result<[[f64; 4]; 4]> {
    let values = numbers::<f64>(xml, element, text)?;
    let to_mm = 10_f64.powi(exponent.saturating_add(3));
    let mut affine = [[0.0; 4]; 4];
    let fits = values.len() == 16 && values[12..] == [0.0, 0.0, 0.0, 1.0];
    if fits {
        for (row, line) in affine.iter_mut().enumerate() {
            let scale = if row < 3 { to_mm } else { 1.0 };
            line.copy_from_slice(&values[4 * row..4 * row + 4]);
            line.iter_mut().for_each(|value| *value *= scale);
        }
    }
    if fits && affine.iter().flatten().all(|value| value.is_finite()) {
        return Ok(affine);
    }
    Err(xml.fault_at(element, "it is not 16 finite numbers whose last four are 0 0 0 1".into()))
}

fn numbers<T: FromStr>(xml: &Xml, element: &Element, text: &str) -> Result<Vec<T>> {
    let number = |(index, word): (usize, &str)| {
        word.parse().map_err(|_| {
            xml.fault_at(element, format!("number {} is '{}', which cannot be", index + 1, cut(word)))
        })
    };
    text.split_ascii_whitespace().enumerate().map(number).collect()
}
