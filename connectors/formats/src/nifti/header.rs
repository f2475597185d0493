//! The judged header: what the bytes of a [`Layout`] mean, or why they mean nothing.

use super::affine::{self, Affine, XformPolicy, XformSource};
use super::layout::{Layout, NiftiVersion};
use crate::cifti;
use crate::datatype::{DataType, Endian, Scaling};
use crate::{Error, Result};
use std::fmt;

/// Repetition times that a scanner can have, in seconds.
pub(crate) const PLAUSIBLE_T_R: std::ops::RangeInclusive<f64> = 0.01..=100.0;

/// What a NIfTI header says, every value checked.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct NiftiHeader {
    /// Path or URL of the image, as the caller gave it.
    pub path: String,
    /// NIfTI-1 or NIfTI-2.
    pub version: NiftiVersion,
    /// Byte order.
    pub endian: Endian,
    /// Whether the content is compressed.
    pub gzip: bool,
    /// Voxels along i, j, k.
    pub shape: [usize; 3],
    /// Time points, at least 1.
    pub volumes: usize,
    /// Whether it holds vertices of a surface, as FreeSurfer stores more of them than `dim` can count: the shape is
    /// `[vertices, 1, 1]`.
    pub surface: bool,
    /// How voxels are stored.
    pub data_type: DataType,
    /// Applied to every stored value; `None` when values are stored as they are.
    pub scaling: Option<Scaling>,
    /// Voxel index to millimetres, row-major 4×4.
    pub affine: [[f64; 4]; 4],
    /// Code of the transform that the affine came from: 0 unknown, 1 scanner, 2 aligned, 3 Talairach,
    /// 4 MNI 152, 5 another template.
    pub xform_code: i16,
    /// Where the affine came from.
    pub xform_source: XformSource,
    /// Lengths of the affine's columns in millimetres.
    pub voxel_size_mm: [f64; 3],
    /// `descrip`.
    pub description: String,
    /// `intent_code`.
    pub intent_code: i32,
    /// `intent_name`.
    pub intent_name: String,
    /// Time of the first volume in seconds, `toffset`; 0 when the header's is not finite.
    pub time_offset: f64,
    /// First byte of the voxels in the decompressed file.
    pub vox_offset: u64,
    time_step: f64,
    time_unit: i32,
    faults: Vec<String>,
}

impl NiftiHeader {
    /// Judges a header.
    pub(super) fn judge(layout: &Layout, path: &str, gzip: bool, policy: XformPolicy) -> Result<Self> {
        let (surface, dim) = with_vertices(layout);
        let (shape, volumes) = dimensions(layout, &dim, path)?;
        let data_type = DataType::from_code(layout.datatype).map_err(|name| Error::Datatype {
            path: path.into(),
            name,
            code: layout.datatype,
        })?;
        check_size(layout, shape, volumes, data_type, path)?;
        let xform = affine::choose(layout, shape, policy, path)?;
        let mut header = Self {
            path: path.into(),
            version: layout.version,
            endian: layout.endian,
            gzip,
            shape,
            volumes,
            surface,
            data_type,
            scaling: scaling(layout, path)?,
            affine: xform.affine,
            xform_code: xform.code,
            xform_source: xform.source,
            voxel_size_mm: affine::voxel_sizes(&xform.affine),
            description: layout.descrip.clone(),
            intent_code: layout.intent_code,
            intent_name: layout.intent_name.clone(),
            time_offset: 0.0,
            vox_offset: vox_offset(layout, path)?,
            time_step: layout.pixdim[4],
            time_unit: layout.xyzt_units & 0x38,
            faults: Vec::new(),
        };
        if layout.toffset.is_finite() {
            header.time_offset = layout.toffset * seconds_per(header.time_unit).unwrap_or(0.0);
        }
        header.faults = find_faults(layout, &header);
        Ok(header)
    }

    /// Whether values are read in double precision where none may be lost (see [`DataType::exceeds_single`]).
    pub fn exceeds_single(&self) -> bool {
        self.data_type.exceeds_single(self.scaling)
    }

    /// Voxels of one volume.
    pub fn voxels(&self) -> usize {
        self.shape.iter().product()
    }

    /// Repetition time in seconds; `None` when the header gives none (`pixdim[4]` is 0).
    ///
    /// # Errors
    /// [`Error::RepetitionTime`] when the value is negative, not finite, of a unit that is not time,
    /// or outside 0.01 s to 100 s, as 1500 ms labelled as seconds is.
    pub fn t_r(&self) -> Result<Option<f64>> {
        let refuse = |reason: String| {
            Err(Error::RepetitionTime { path: self.path.clone(), reason: format!("(pixdim[4]) {reason}") })
        };
        let step = self.time_step;
        if step == 0.0 {
            return Ok(None);
        }
        let unit = unit_name(self.time_unit);
        let Some(scale) = seconds_per(self.time_unit) else {
            return refuse(format!("is {step} {unit}, which is no time"));
        };
        let seconds = step * scale;
        if PLAUSIBLE_T_R.contains(&seconds) {
            return Ok(Some(seconds));
        }
        let guess =
            if PLAUSIBLE_T_R.contains(&(step / 1000.0)) && scale == 1.0 { " (milliseconds?)" } else { "" };
        refuse(format!("is {step} {unit}, implausible outside 0.01 s to 100 s{guess}"))
    }

    /// What is unusual about the file although it can be read, one sentence each.
    pub fn faults(&self) -> &[String] {
        &self.faults
    }

    /// Checks that `self` and `other` have one shape and one affine, the latter within 1e-3 mm.
    ///
    /// # Errors
    /// [`Error::Grid`] with the first difference.
    pub fn require_same_grid(&self, other: &Self) -> Result<()> {
        let differ =
            |reason: String| Err(Error::Grid { path: self.path.clone(), other: other.path.clone(), reason });
        if self.shape != other.shape {
            return differ(format!("the shapes are {} and {}", by(&self.shape), by(&other.shape)));
        }
        for (row, axis) in ["x", "y", "z"].into_iter().enumerate() {
            for (column, name) in ["i", "j", "k", "origin"].into_iter().enumerate() {
                let (a, b) = (self.affine[row][column], other.affine[row][column]);
                if (a - b).abs() > 1e-3 {
                    return differ(format!("the affines' {axis} of {name} is {a} mm and {b} mm"));
                }
            }
        }
        Ok(())
    }
}

/// Vertices that `fsaverage7` has, and how FreeSurfer writes them where it finds the factors of their number.
const ICO_7: (i64, [i64; 3]) = (163_842, [27_307, 1, 6]);

/// `dim`, and whether its first length is that of a surface: FreeSurfer writes one over 32,767 as -1, and the length
/// into `glmin`, as nibabel reads it too.
fn with_vertices(layout: &Layout) -> (bool, [i64; 8]) {
    let mut dim = layout.dim;
    if layout.version == NiftiVersion::One {
        match [dim[1], dim[2], dim[3]] {
            [-1, 1, 1] if layout.glmin > 0 => dim[1] = layout.glmin.into(),
            shape if shape == ICO_7.1 => [dim[1], dim[2], dim[3]] = [ICO_7.0, 1, 1],
            _ => return (false, dim),
        }
        return (true, dim);
    }
    (false, dim)
}

/// Checks `dim` and gives shape and volumes.
fn dimensions(layout: &Layout, dim: &[i64; 8], path: &str) -> Result<([usize; 3], usize)> {
    let refuse = |reason: String| {
        Err(Error::Header {
            path: path.into(),
            field: "dim",
            offset: layout.version.offsets().dim as u64,
            reason,
        })
    };
    let count = dim[0];
    if !(1..=7).contains(&count) {
        return refuse(format!("dim[0], the number of dimensions, is {count}, not 1 to 7"));
    }
    let used = &dim[1..=count as usize];
    if (3000..3100).contains(&layout.intent_code) {
        let advice = match layout.intent_code {
            cifti::DENSE_SERIES | cifti::DENSE_SCALARS | cifti::UNSAID => {
                "make a table STORED AS CIFTI of it"
            }
            _ => cifti::SAVE_AS_ARRAY,
        };
        return refuse(format!("it is a CIFTI file, not an image of voxels: {advice}"));
    }
    if let Some(index) = used.iter().position(|&length| length < 1) {
        return refuse(format!("dim[{}] is {}, but every dimension has at least 1", index + 1, used[index]));
    }
    if let Some(index) = used.iter().skip(4).position(|&length| length > 1) {
        return refuse(format!(
            "its shape {} has a real dimension {}; only i, j, k and time are read: split it first",
            by(used),
            index + 5
        ));
    }
    let mut lengths = [1_usize; 4];
    for (length, &stored) in lengths.iter_mut().zip(used) {
        let Ok(stored) = usize::try_from(stored) else {
            return refuse(format!("its shape {} is too large", by(used)));
        };
        *length = stored;
    }
    let [i, j, k, volumes] = lengths;
    Ok(([i, j, k], volumes))
}

/// Checks that the count of bytes is a number at all.
fn check_size(
    layout: &Layout,
    shape: [usize; 3],
    volumes: usize,
    data_type: DataType,
    path: &str,
) -> Result<()> {
    let bytes = shape
        .into_iter()
        .chain([volumes, data_type.size()])
        .try_fold(1_usize, usize::checked_mul)
        .filter(|&bytes| isize::try_from(bytes).is_ok());
    if bytes.is_some() {
        return Ok(());
    }
    Err(Error::Header {
        path: path.into(),
        field: "dim",
        offset: layout.version.offsets().dim as u64,
        reason: format!("its shape {}×{volumes} is too large", by(&shape)),
    })
}

/// Slope 0 or not finite: not scaled. A finite slope needs a finite intercept.
pub(crate) fn scaling(layout: &Layout, path: &str) -> Result<Option<Scaling>> {
    let (slope, intercept) = (layout.scl_slope, layout.scl_inter);
    if slope == 0.0 || !slope.is_finite() {
        return Ok(None);
    }
    if !intercept.is_finite() {
        return Err(Error::Header {
            path: path.into(),
            field: "scl_inter",
            offset: layout.version.offsets().scl_inter as u64,
            reason: format!(
                "the slope {slope} is finite but the intercept is {intercept}: repair it, or set the slope to 0"
            ),
        });
    }
    Ok(Some(Scaling { slope, intercept }).filter(|_| (slope, intercept) != (1.0, 0.0)))
}

pub(crate) fn vox_offset(layout: &Layout, path: &str) -> Result<u64> {
    let (value, least) = (layout.vox_offset, layout.version.first_voxel());
    // 2^62 keeps sums of offsets from overflowing.
    if value >= least as f64 && value <= (1_u64 << 62) as f64 && value.fract() == 0.0 {
        return Ok(value as u64);
    }
    Err(Error::Header {
        path: path.into(),
        field: "vox_offset",
        offset: layout.version.offsets().vox_offset as u64,
        reason: format!("it is {value}, but voxels of a single file begin at byte {least} or later"),
    })
}

/// Seconds per unit of `xyzt_units & 0x38`; an unknown unit is taken for seconds. `None` when it is
/// no time.
fn seconds_per(unit: i32) -> Option<f64> {
    match unit {
        0 | 8 => Some(1.0),
        16 => Some(1e-3),
        24 => Some(1e-6),
        _ => None,
    }
}

fn unit_name(unit: i32) -> &'static str {
    match unit {
        0 => "(no unit, taken for seconds)",
        8 => "s",
        16 => "ms",
        24 => "µs",
        32 => "Hz",
        40 => "ppm",
        48 => "rad/s",
        _ => "(unknown unit)",
    }
}

fn find_faults(layout: &Layout, header: &NiftiHeader) -> Vec<String> {
    let mut faults = Vec::new();
    let mut say = |when: bool, text: &dyn Fn() -> String| {
        if when {
            faults.push(text());
        }
    };
    say(header.gzip && !crate::byte_stream::named_gzip(&header.path), &|| {
        "the content is gzip although the name does not end in .gz".into()
    });
    say(header.xform_source == XformSource::Pixdim, &|| {
        "neither sform nor qform is set: left and right are a guess".into()
    });
    say(layout.sform_code != 0 && header.xform_source == XformSource::Qform, &|| {
        "the qform was used although an sform is set".into()
    });
    say(header.xform_source == XformSource::Qform && layout.pixdim[0].abs() != 1.0, &|| {
        format!("qfac (pixdim[0]) is {}, taken for 1", layout.pixdim[0])
    });
    say(matches!(layout.xyzt_units & 0x07, 1 | 3), &|| {
        "lengths are not stored in millimetres; the affine was converted".into()
    });
    say(layout.scl_slope.is_infinite(), &|| {
        format!("scl_slope is {}: values are used unscaled", layout.scl_slope)
    });
    say(layout.scl_slope == 0.0 && layout.scl_inter.is_finite() && layout.scl_inter != 0.0, &|| {
        format!("scl_slope is 0, so the intercept {} is not used", layout.scl_inter)
    });
    say(i64::from(layout.bitpix) != 8 * header.data_type.size() as i64, &|| {
        format!(
            "bitpix is {}, but {} has {} bits",
            layout.bitpix,
            header.data_type,
            8 * header.data_type.size()
        )
    });
    if header.volumes > 1 {
        match header.t_r() {
            Ok(None) => faults.push("the header gives no repetition time (pixdim[4] is 0)".into()),
            Ok(Some(_)) if header.time_unit == 0 => {
                faults.push("the repetition time has no unit; it is taken for seconds".into());
            }
            Ok(Some(_)) => {}
            Err(_) => faults.push(format!(
                "the repetition time {} {} cannot be right",
                header.time_step,
                unit_name(header.time_unit)
            )),
        }
    }
    faults
}

fn by<T: fmt::Display>(lengths: &[T]) -> String {
    lengths.iter().map(T::to_string).collect::<Vec<_>>().join("×")
}

/// Voxel-to-millimetre matrix as three bracketed rows.
fn rows(affine: &Affine) -> String {
    affine[..3]
        .iter()
        .map(|row| format!("[{}]", row.map(|value| format!("{value:.4}")).join(" ")))
        .collect::<Vec<_>>()
        .join(" ")
}

/// The summary that `inspect` prints: one line per thing, faults last.
impl fmt::Display for NiftiHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = if self.version == NiftiVersion::One { 1 } else { 2 };
        let endian = if self.endian == Endian::Little { "little" } else { "big" };
        let gzip = if self.gzip { ", gzip" } else { "" };
        writeln!(f, "{}: NIfTI-{version}, {endian}-endian{gzip}", self.path)?;
        writeln!(f, "  shape      {} voxels, {} volume(s)", by(&self.shape), self.volumes)?;
        let sizes = self.voxel_size_mm.map(|size| format!("{size:.4}")).join(" × ");
        writeln!(f, "  voxel size {sizes} mm")?;
        match self.t_r() {
            Ok(Some(seconds)) => writeln!(f, "  t_r        {seconds:.6} s")?,
            Ok(None) => writeln!(f, "  t_r        none")?,
            Err(_) => writeln!(f, "  t_r        refused")?,
        }
        match self.scaling {
            Some(Scaling { slope, intercept }) => {
                writeln!(f, "  values     {} × {slope} + {intercept}", self.data_type)?;
            }
            None => writeln!(f, "  values     {}, unscaled", self.data_type)?,
        }
        let source = match self.xform_source {
            XformSource::Sform => "sform",
            XformSource::Qform => "qform",
            XformSource::Pixdim => "voxel sizes only",
        };
        writeln!(f, "  affine     {} ({source}, code {})", rows(&self.affine), self.xform_code)?;
        if !self.description.is_empty() {
            writeln!(f, "  descrip    {}", self.description.escape_debug())?;
        }
        for fault in &self.faults {
            writeln!(f, "  ! {fault}")?;
        }
        Ok(())
    }
}
