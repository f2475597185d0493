//! A volume seen along the patient's axes, whatever order and direction its voxels are stored in.
//!
//! The affine says where voxel axes point. The stored axes are permuted and flipped, never resampled, to the
//! nearest of Right, Anterior, Superior ("closest canonical" in nibabel's words), so that x grows to the
//! patient's right, y to the front, z to the top. What is left of an oblique affine is stated as a tilt.

use crate::{Error, Result, Volume};

/// The six orders of three axes.
const PERMUTATIONS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

/// A view of a volume with x to the right, y to the front, z to the top.
#[derive(Clone, Debug)]
pub(crate) struct Ras<'a> {
    values: &'a [f32],
    /// Voxels along x, y, z.
    pub(crate) shape: [usize; 3],
    /// Voxel size along x, y, z in mm.
    pub(crate) zooms: [f64; 3],
    /// Largest angle between a voxel axis and the patient axis it is shown as, in degrees.
    pub(crate) tilt: f64,
    /// Directions of the stored axes, for example `LAS`.
    pub(crate) stored: String,
    affine: [[f64; 4]; 3],
    first: isize,
    strides: [isize; 3],
}

impl<'a> Ras<'a> {
    /// The view of `volume`; `map` is its name in errors.
    ///
    /// # Errors
    /// Values that do not fill the grid, or an affine whose axes do not span space.
    pub(crate) fn try_new(map: &str, volume: &'a Volume) -> Result<Self> {
        let refuse = |reason: String| Error::Map { map: map.to_owned(), reason };
        let stored = volume.grid.shape;
        let voxels = stored.iter().try_fold(1usize, |n, &s| n.checked_mul(s)).unwrap_or(usize::MAX);
        if voxels == 0 || volume.values.len() != voxels {
            let [i, j, k] = stored;
            let found = volume.values.len();
            return Err(refuse(format!("its grid has {i} × {j} × {k} voxels, but it has {found} values")));
        }
        let affine = &volume.grid.affine;
        let column = |c: usize| [affine[0][c], affine[1][c], affine[2][c]];
        let lengths = [0, 1, 2].map(|c| column(c).iter().map(|v| v * v).sum::<f64>().sqrt());
        let unit = |c: usize, axis: usize| affine[axis][c] / lengths[c];
        if !spans_space(affine, lengths) {
            return Err(refuse(
                "its affine does not map voxels to a volume: set the sform or qform of the image".into(),
            ));
        }
        // order[axis] is the stored axis that is shown as patient axis `axis`.
        let closeness = |order: &[usize; 3]| (0..3).map(|axis| unit(order[axis], axis).abs()).sum::<f64>();
        let order = PERMUTATIONS
            .into_iter()
            .max_by(|a, b| closeness(a).total_cmp(&closeness(b)))
            .unwrap_or([0, 1, 2]);
        let reversed = [0, 1, 2].map(|axis| affine[axis][order[axis]] < 0.0);
        let steps = [1, stored[0] as isize, (stored[0] * stored[1]) as isize];

        let mut view = Self {
            values: &volume.values,
            shape: order.map(|c| stored[c]),
            zooms: order.map(|c| lengths[c]),
            tilt: (0..3).map(|a| unit(order[a], a).abs().min(1.0).acos().to_degrees()).fold(0.0, f64::max),
            stored: letters(order, reversed),
            affine: [0, 1, 2].map(|row| [0.0, 0.0, 0.0, affine[row][3]]),
            first: 0,
            strides: order.map(|c| steps[c]),
        };
        for axis in 0..3 {
            let last = view.shape[axis] - 1;
            let sign = if reversed[axis] { -1.0 } else { 1.0 };
            for (row, stored_row) in view.affine.iter_mut().zip(affine) {
                let step = stored_row[order[axis]];
                row[axis] = sign * step;
                row[3] += if reversed[axis] { step * last as f64 } else { 0.0 };
            }
            if reversed[axis] {
                view.first += view.strides[axis] * last as isize;
                view.strides[axis] = -view.strides[axis];
            }
        }
        Ok(view)
    }

    /// The value at x, y, z; NaN outside.
    pub(crate) fn at(&self, [x, y, z]: [usize; 3]) -> f32 {
        if x >= self.shape[0] || y >= self.shape[1] || z >= self.shape[2] {
            return f32::NAN;
        }
        let [sx, sy, sz] = self.strides;
        let index = self.first + x as isize * sx + y as isize * sy + z as isize * sz;
        usize::try_from(index).ok().and_then(|i| self.values.get(i)).copied().unwrap_or(f32::NAN)
    }

    /// Millimetres of the centre of voxel x, y, z.
    pub(crate) fn millimetres(&self, voxel: [usize; 3]) -> [f64; 3] {
        self.affine.map(|row| row[3] + (0..3).map(|a| row[a] * voxel[a] as f64).sum::<f64>())
    }

    /// The affine of this view, for a reader outside: nine numbers row by row, and the origin.
    pub(crate) fn affine_text(&self) -> (String, String) {
        let words = |values: Vec<f64>| values.iter().map(f64::to_string).collect::<Vec<_>>().join(" ");
        let linear = self.affine.iter().flat_map(|row| row[..3].to_vec()).collect();
        (words(linear), words(self.affine.iter().map(|row| row[3]).collect()))
    }

    /// The voxel whose centre is nearest to a point in millimetres, kept inside the volume.
    pub(crate) fn nearest(&self, point: [f64; 3]) -> [usize; 3] {
        let m = self.affine;
        let offset = [0, 1, 2].map(|row| point[row] - m[row][3]);
        let column = |c: usize| [m[0][c], m[1][c], m[2][c]];
        let whole = determinant(column(0), column(1), column(2));
        // Cramer's rule.
        let parts = [
            determinant(offset, column(1), column(2)),
            determinant(column(0), offset, column(2)),
            determinant(column(0), column(1), offset),
        ];
        [0, 1, 2].map(|axis| (parts[axis] / whole).round().clamp(0.0, (self.shape[axis] - 1) as f64) as usize)
    }

    /// All voxels, x fastest.
    pub(crate) fn voxels(&self) -> impl Iterator<Item = [usize; 3]> + use<> {
        let [nx, ny, nz] = self.shape;
        (0..nz).flat_map(move |z| (0..ny).flat_map(move |y| (0..nx).map(move |x| [x, y, z])))
    }
}

fn determinant(a: [f64; 3], b: [f64; 3], c: [f64; 3]) -> f64 {
    a[0] * (b[1] * c[2] - b[2] * c[1]) - b[0] * (a[1] * c[2] - a[2] * c[1])
        + c[0] * (a[1] * b[2] - a[2] * b[1])
}

fn spans_space(affine: &[[f64; 4]; 4], lengths: [f64; 3]) -> bool {
    let unit = |c: usize| [0, 1, 2].map(|row| affine[row][c] / lengths[c]);
    let finite = affine.iter().flatten().all(|v| v.is_finite());
    finite && lengths.iter().all(|l| *l > 0.0) && determinant(unit(0), unit(1), unit(2)).abs() > 1e-3
}

fn letters(order: [usize; 3], reversed: [bool; 3]) -> String {
    let mut letters = [' '; 3];
    for axis in 0..3 {
        letters[order[axis]] = [['R', 'L'], ['A', 'P'], ['S', 'I']][axis][usize::from(reversed[axis])];
    }
    letters.iter().collect()
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use voxelflow_stage::Grid;

    pub(crate) fn grid(shape: [usize; 3], affine: [[f64; 4]; 4]) -> Grid {
        Grid {
            shape,
            affine,
            xform_code: 1,
            t_r: Some(2.0),
            mask_hash: String::new(),
            mask_voxels: shape.iter().product(),
            source: "test".into(),
            history: Vec::new(),
        }
    }

    pub(crate) const RAS_2MM: [[f64; 4]; 4] =
        [[2.0, 0.0, 0.0, -10.0], [0.0, 2.0, 0.0, -20.0], [0.0, 0.0, 2.0, 0.0], [0.0, 0.0, 0.0, 1.0]];
    /// Left-handed: i grows to the left.
    pub(crate) const LAS_2MM: [[f64; 4]; 4] =
        [[-2.0, 0.0, 0.0, 10.0], [0.0, 2.0, 0.0, -20.0], [0.0, 0.0, 2.0, 0.0], [0.0, 0.0, 0.0, 1.0]];
    /// Sagittal storage: i to the back, j to the feet, k to the left; voxels 1 × 1 × 3 mm.
    pub(crate) const PIL: [[f64; 4]; 4] =
        [[0.0, 0.0, -3.0, 15.0], [-1.0, 0.0, 0.0, 5.0], [0.0, -1.0, 0.0, 7.0], [0.0, 0.0, 0.0, 1.0]];

    pub(crate) fn volume(shape: [usize; 3], values: Vec<f32>) -> Volume {
        Volume { grid: grid(shape, RAS_2MM), values }
    }

    /// One hot voxel of value 1 at stored i, j, k, zeros elsewhere.
    pub(crate) fn hot(shape: [usize; 3], affine: [[f64; 4]; 4], [i, j, k]: [usize; 3]) -> Volume {
        let mut values = vec![0.0; shape.iter().product()];
        values[i + shape[0] * (j + shape[1] * k)] = 1.0;
        Volume { grid: grid(shape, affine), values }
    }

    #[test]
    fn the_hot_voxel_keeps_its_place_in_millimetres() {
        let shape = [5, 4, 3];
        for (affine, stored) in [(RAS_2MM, "RAS"), (LAS_2MM, "LAS"), (PIL, "PIL")] {
            let at = [1, 3, 2];
            let volume = hot(shape, affine, at);
            let ras = Ras::try_new("m", &volume).unwrap();
            let found: Vec<_> = ras.voxels().filter(|v| ras.at(*v) == 1.0).collect();
            assert_eq!(found.len(), 1);
            let expected =
                [0, 1, 2].map(|r| affine[r][3] + (0..3).map(|c| affine[r][c] * at[c] as f64).sum::<f64>());
            assert_eq!(ras.millimetres(found[0]), expected, "{stored}");
            assert_eq!(ras.nearest(expected), found[0]);
            assert_eq!(ras.stored, stored);
            assert!(ras.tilt < 1e-6);
        }
    }

    #[test]
    fn axes_follow_the_patient() {
        let volume = hot([5, 4, 3], PIL, [0, 0, 0]);
        let ras = Ras::try_new("m", &volume).unwrap();
        assert_eq!(ras.shape, [3, 5, 4]);
        assert_eq!(ras.zooms, [3.0, 1.0, 1.0]);
        // The first stored voxel is the rightmost, foremost, topmost.
        assert_eq!(ras.at([2, 4, 3]), 1.0);
        assert!(ras.at([3, 0, 0]).is_nan());
    }

    #[test]
    fn an_oblique_affine_states_its_tilt() {
        let (s, c) = 20f64.to_radians().sin_cos();
        let affine = [
            [-3.0, 0.0, 0.0, 0.0],
            [0.0, 3.0 * c, -3.0 * s, 0.0],
            [0.0, 3.0 * s, 3.0 * c, 0.0],
            [0.0, 0.0, 0.0, 1.0],
        ];
        let volume = hot([3, 3, 3], affine, [0, 1, 2]);
        let ras = Ras::try_new("m", &volume).unwrap();
        assert!((ras.tilt - 20.0).abs() < 1e-9, "{}", ras.tilt);
        assert_eq!(ras.stored, "LAS");
        assert_eq!(ras.at([2, 1, 2]), 1.0);
    }

    #[test]
    fn what_cannot_be_placed_is_refused() {
        let mut flat = RAS_2MM;
        flat[2][2] = 0.0;
        let mut nan = RAS_2MM;
        nan[0][0] = f64::NAN;
        for affine in [flat, nan, [[0.0; 4]; 4]] {
            let e = Ras::try_new("r map", &hot([2, 2, 2], affine, [0, 0, 0])).unwrap_err();
            assert!(e.to_string().contains("r map") && e.to_string().contains("affine"), "{e}");
        }
        assert!(Ras::try_new("m", &volume([2, 2, 2], vec![0.0; 7])).is_err());
        assert!(Ras::try_new("m", &volume([0, 2, 2], vec![])).is_err());
    }
}
