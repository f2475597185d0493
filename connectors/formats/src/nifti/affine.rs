//! From voxel indices to millimetres: sform, qform or voxel sizes, and which of them to believe.

use super::layout::Layout;
use crate::{Error, Result};

/// Row-major 4×4.
pub(super) type Affine = [[f64; 4]; 4];

/// Which transform to believe when both are set and they disagree about left and right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XformPolicy {
    /// Neither: the file is refused.
    #[default]
    Agree,
    /// The sform.
    Sform,
    /// The qform, also when the two merely differ.
    Qform,
}

impl XformPolicy {
    /// Its name, as it is parsed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Agree => "agree",
            Self::Sform => "sform",
            Self::Qform => "qform",
        }
    }
}

impl std::str::FromStr for XformPolicy {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "agree" => Ok(Self::Agree),
            "sform" => Ok(Self::Sform),
            "qform" => Ok(Self::Qform),
            other => Err(format!("'{other}' is not a transform policy: use agree, sform or qform")),
        }
    }
}

/// Where an affine came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XformSource {
    /// The matrix `srow_x`, `srow_y`, `srow_z`.
    Sform,
    /// The quaternion and `pixdim`.
    Qform,
    /// Voxel sizes alone: left and right are a guess.
    Pixdim,
}

/// An affine in millimetres with its code and origin.
pub(super) struct Xform {
    pub affine: Affine,
    pub code: i16,
    pub source: XformSource,
}

/// Chooses the affine: sform if its code is not 0, else qform if its code is not 0, else voxel sizes.
pub(super) fn choose(layout: &Layout, shape: [usize; 3], policy: XformPolicy, path: &str) -> Result<Xform> {
    let (has_sform, has_qform) = (layout.sform_code != 0, layout.qform_code != 0);
    if has_sform && has_qform && policy == XformPolicy::Agree {
        check_sides(layout, path)?;
    }
    let (mut affine, code, source) = if has_qform && (!has_sform || policy == XformPolicy::Qform) {
        (qform(layout, path)?, layout.qform_code, XformSource::Qform)
    } else if has_sform {
        (sform(layout, path)?, layout.sform_code, XformSource::Sform)
    } else {
        let sizes = std::array::from_fn(|axis| positive_size(layout.pixdim[axis + 1]));
        (from_voxel_sizes(shape, sizes), 0, XformSource::Pixdim)
    };
    let to_mm = match layout.xyzt_units & 0x07 {
        1 => 1000.0,
        3 => 0.001,
        _ => 1.0,
    };
    affine[..3].iter_mut().flatten().for_each(|value| *value *= to_mm);
    Ok(Xform { affine, code: code.clamp(i16::MIN.into(), i16::MAX.into()) as i16, source })
}

/// What a file with neither sform nor qform means: voxel sizes on the diagonal, x to the left, the
/// centre of the grid at 0 (as nibabel has it; the standard leaves the side open).
pub(super) fn from_voxel_sizes(shape: [usize; 3], sizes: [f64; 3]) -> Affine {
    let mut affine = [[0.0, 0.0, 0.0, 0.0], [0.0; 4], [0.0; 4], [0.0, 0.0, 0.0, 1.0]];
    for axis in 0..3 {
        let step = if axis == 0 { -sizes[axis] } else { sizes[axis] };
        affine[axis][axis] = step;
        affine[axis][3] = -step * (shape[axis] as f64 - 1.0) / 2.0;
    }
    affine
}

/// Lengths of the affine's columns: voxel sizes in the affine's unit.
pub(super) fn voxel_sizes(affine: &Affine) -> [f64; 3] {
    std::array::from_fn(|axis| (0..3).map(|row| affine[row][axis].powi(2)).sum::<f64>().sqrt())
}

/// Determinant of the upper left 3×3 block.
pub(super) fn determinant(m: &Affine) -> f64 {
    m[0][0] * (m[1][1] * m[2][2] - m[1][2] * m[2][1]) - m[0][1] * (m[1][0] * m[2][2] - m[1][2] * m[2][0])
        + m[0][2] * (m[1][0] * m[2][1] - m[1][1] * m[2][0])
}

fn positive_size(size: f64) -> f64 {
    if size.is_finite() && size != 0.0 { size.abs() } else { 1.0 }
}

fn sform(layout: &Layout, path: &str) -> Result<Affine> {
    let [x, y, z] = layout.srow;
    let affine = [x, y, z, [0.0, 0.0, 0.0, 1.0]];
    let usable = affine.iter().flatten().all(|value| value.is_finite()) && determinant(&affine) != 0.0;
    if usable {
        return Ok(affine);
    }
    let way_out =
        if layout.qform_code != 0 { ", or read the image with OPTIONS (xform 'qform')" } else { "" };
    Err(Error::Header {
        path: path.into(),
        field: "srow_x",
        offset: layout.version.offsets().srow as u64,
        reason: format!(
            "sform_code is {} but the matrix is singular or not finite: repair it{way_out}",
            layout.sform_code
        ),
    })
}

/// The rotation of the unit quaternion (a, b, c, d), a = √(1 − b² − c² − d²), times voxel sizes, with
/// the third column negated when qfac is −1 (nifti1.h, METHOD 2).
fn qform(layout: &Layout, path: &str) -> Result<Affine> {
    let fault = |reason: String| Error::Header {
        path: path.into(),
        field: "quatern_b",
        offset: layout.version.offsets().quatern as u64,
        reason,
    };
    let [mut b, mut c, mut d] = layout.quatern;
    if !layout.quatern.iter().chain(&layout.qoffset).all(|value| value.is_finite()) {
        return Err(fault(format!("qform_code is {} but the quaternion is not finite", layout.qform_code)));
    }
    let squares = b * b + c * c + d * d;
    if squares > 1.0 + 1e-4 {
        return Err(fault(format!(
            "the quaternion is not of unit length: b² + c² + d² = {squares} exceeds 1"
        )));
    }
    let a = if 1.0 - squares < 3.0 * f64::from(f32::EPSILON) {
        // Half a turn, up to rounding: a would be noise.
        let length = squares.sqrt();
        (b, c, d) = (b / length, c / length, d / length);
        0.0
    } else {
        (1.0 - squares).sqrt()
    };
    let rotation = [
        [a * a + b * b - c * c - d * d, 2.0 * (b * c - a * d), 2.0 * (b * d + a * c)],
        [2.0 * (b * c + a * d), a * a + c * c - b * b - d * d, 2.0 * (c * d - a * b)],
        [2.0 * (b * d - a * c), 2.0 * (c * d + a * b), a * a + d * d - b * b - c * c],
    ];
    let qfac = if layout.pixdim[0] == -1.0 { -1.0 } else { 1.0 };
    let mut sizes: [f64; 3] = std::array::from_fn(|axis| positive_size(layout.pixdim[axis + 1]));
    sizes[2] *= qfac;
    let mut affine = [[0.0, 0.0, 0.0, 0.0], [0.0; 4], [0.0; 4], [0.0, 0.0, 0.0, 1.0]];
    for row in 0..3 {
        for axis in 0..3 {
            affine[row][axis] = rotation[row][axis] * sizes[axis];
        }
        affine[row][3] = layout.qoffset[row];
    }
    Ok(affine)
}

/// Refuses a file whose sform and qform are mirror images, or whose voxel axis along x runs to the
/// right in one and to the left in the other. A qform that cannot be says nothing against the sform.
fn check_sides(layout: &Layout, path: &str) -> Result<()> {
    let s = sform(layout, path)?;
    let Ok(q) = qform(layout, path) else { return Ok(()) };
    let handed = |affine: &Affine| if determinant(affine) < 0.0 { "left-handed" } else { "right-handed" };
    let (s_side, q_side) = (side(&s), side(&q));
    let detail = if s_side.0 == q_side.0 && s_side.1 != q_side.1 {
        let axis = ["i", "j", "k"][s_side.0];
        let way = |right: bool| if right { "right" } else { "left" };
        format!(
            "voxel axis {axis} runs to the {} in the sform, to the {} in the qform",
            way(s_side.1),
            way(q_side.1)
        )
    } else if handed(&s) != handed(&q) {
        format!("the sform is {}, the qform {}", handed(&s), handed(&q))
    } else {
        return Ok(());
    };
    Err(Error::XformConflict {
        path: path.into(),
        sform_code: layout.sform_code as i16,
        qform_code: layout.qform_code as i16,
        detail,
    })
}

/// The voxel axis that runs most along x, and whether it runs to the right (+x).
fn side(affine: &Affine) -> (usize, bool) {
    let sizes = voxel_sizes(affine);
    let along = |axis: usize| affine[0][axis].abs() / sizes[axis];
    let axis = (1..3).fold(0, |best, axis| if along(axis) > along(best) { axis } else { best });
    (axis, affine[0][axis] > 0.0)
}
