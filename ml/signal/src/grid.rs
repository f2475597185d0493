//! Voxel grids: where voxels lie in the world.

use crate::{Error, Result};

/// A grid of voxels; the voxel (i, j, k) lies at `affine · (i, j, k, 1)` millimetres and has the index
/// `i + ni·(j + nj·k)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grid {
    /// Voxels along i, j, k.
    pub shape: [usize; 3],
    /// From voxels to millimetres, row by row; the last row is `0 0 0 1`.
    pub affine: [[f64; 4]; 4],
}

impl Grid {
    /// Voxels of a volume.
    pub fn voxels(&self) -> usize {
        self.shape.iter().product()
    }

    /// Lengths of a voxel along i, j, k in millimetres.
    pub fn voxel_sizes(&self) -> [f64; 3] {
        std::array::from_fn(|axis| (0..3).map(|row| self.affine[row][axis].powi(2)).sum::<f64>().sqrt())
    }

    /// The grid of voxels of these sizes, in millimetres along the world's x, y, z, that holds this one: as
    /// `nilearn.image.resample_img` makes of a 3×3 `target_affine`.
    ///
    /// # Errors
    /// Sizes that are none, and grids that would have none or too many voxels.
    pub fn with_voxel_sizes(&self, sizes: [f64; 3]) -> Result<Self> {
        let refuse = |reason: String| Err(Error::Setting { setting: "target", reason });
        if !sizes.iter().all(|size| size.is_finite() && *size > 0.0) {
            return refuse(format!("{sizes:?} mm are no voxel sizes; give millimetres over 0"));
        }
        let last = self.shape.map(|n| n.saturating_sub(1) as f64);
        let (mut shape, mut affine) = ([0; 3], [[0.0; 4]; 4]);
        affine[3][3] = 1.0;
        for row in 0..3 {
            // Each end of an axis is reached at one of its two corners.
            let reach = (0..3).map(|axis| self.affine[row][axis] * last[axis]);
            let (below, above) =
                reach.fold((0.0, 0.0), |(low, high), x| (low + f64::min(x, 0.0), high + f64::max(x, 0.0)));
            // What rounding adds must not become a slice.
            let voxels = ((above - below) / sizes[row] - 1e-9).ceil();
            if !(voxels.is_finite() && voxels < f64::from(u16::MAX)) {
                return refuse(format!("voxels of {sizes:?} mm make a grid of over 65,535 voxels a side"));
            }
            shape[row] = voxels as usize + 1;
            affine[row][row] = sizes[row];
            affine[row][3] = below + self.affine[row][3];
        }
        Ok(Self { shape, affine })
    }

    /// From voxels of `target` to voxels of this grid: the matrix `A` and the offset `b` of `A·(i, j, k) + b`.
    ///
    /// # Errors
    /// An affine that maps the grid on a plane, or is not finite.
    pub(crate) fn voxel_map(&self, target: &Self) -> Result<([[f64; 3]; 3], [f64; 3])> {
        if self.affine == target.affine {
            return Ok((
                std::array::from_fn(|r| std::array::from_fn(|c| f64::from(u8::from(r == c)))),
                [0.0; 3],
            ));
        }
        let inverse = self.inverse()?;
        let product = |row: usize, column: usize| -> f64 {
            (0..4).map(|inner| inverse[row][inner] * target.affine[inner][column]).sum()
        };
        let matrix: [[f64; 3]; 3] = std::array::from_fn(|r| std::array::from_fn(|c| product(r, c)));
        let offset: [f64; 3] = std::array::from_fn(|r| product(r, 3));
        if matrix.iter().flatten().chain(&offset).any(|x| !x.is_finite()) {
            let reason = "the affine of the target grid is not finite".to_owned();
            return Err(Error::Setting { setting: "target_affine", reason });
        }
        Ok((matrix, offset))
    }

    /// The inverse of the affine, by Gauss and Jordan with pivots from the whole column.
    fn inverse(&self) -> Result<[[f64; 4]; 4]> {
        let mut rows: [[f64; 8]; 4] = std::array::from_fn(|r| {
            std::array::from_fn(|c| if c < 4 { self.affine[r][c] } else { f64::from(u8::from(c - 4 == r)) })
        });
        for column in 0..4 {
            let largest = |row: &usize| rows[*row][column].abs();
            let pivot = (column..4).max_by(|a, b| largest(a).total_cmp(&largest(b))).unwrap_or(column);
            rows.swap(column, pivot);
            let diagonal = rows[column][column];
            if !(diagonal.abs() > 1e-12 && diagonal.is_finite()) {
                let reason = format!("{:?} cannot be inverted: it is no map of a volume", self.affine);
                return Err(Error::Setting { setting: "affine", reason });
            }
            rows[column].iter_mut().for_each(|x| *x /= diagonal);
            let pivot_row = rows[column];
            for (_, row) in rows.iter_mut().enumerate().filter(|(r, _)| *r != column) {
                let factor = row[column];
                row.iter_mut().zip(&pivot_row).for_each(|(x, p)| *x -= factor * p);
            }
        }
        Ok(rows.map(|row| [row[4], row[5], row[6], row[7]]))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn an_oblique_grid_is_inverted() {
        let affine =
            [[-2.0, 0.3, 0.1, 90.0], [0.2, 2.1, -0.4, -126.0], [0.0, 0.5, 3.0, -72.0], [0.0, 0.0, 0.0, 1.0]];
        let grid = Grid { shape: [4, 5, 6], affine };
        let unit = Grid {
            shape: [1; 3],
            affine: std::array::from_fn(|r| std::array::from_fn(|c| f64::from(u8::from(r == c)))),
        };
        let (matrix, offset) = grid.voxel_map(&unit).unwrap();
        // The inverse takes the world's place of a voxel back to it.
        let voxel = [3.0, 1.0, 5.0];
        let world: [f64; 3] =
            std::array::from_fn(|r| (0..3).map(|c| affine[r][c] * voxel[c]).sum::<f64>() + affine[r][3]);
        for r in 0..3 {
            let back = (0..3).map(|c| matrix[r][c] * world[c]).sum::<f64>() + offset[r];
            assert!((back - voxel[r]).abs() < 1e-12);
        }
        assert!((grid.voxel_sizes()[0] - (4.0f64 + 0.04).sqrt()).abs() < 1e-15);
    }

    /// Values of nilearn 0.14: `resample_img(image, target_affine=numpy.diag(sizes))`.
    #[test]
    fn a_grid_of_other_voxels_holds_the_whole_image() {
        let affine =
            [[-2.0, 0.3, 0.1, 90.0], [0.2, 2.1, -0.4, -126.0], [0.0, 0.5, 3.0, -72.0], [0.0, 0.0, 0.0, 1.0]];
        let grid = Grid { shape: [10, 12, 8], affine }.with_voxel_sizes([3.0, 2.5, 4.0]).unwrap();
        assert_eq!(grid.shape, [9, 13, 8]);
        let expected =
            [[3.0, 0.0, 0.0, 72.0], [0.0, 2.5, 0.0, -128.8], [0.0, 0.0, 4.0, -72.0], [0.0, 0.0, 0.0, 1.0]];
        for (a, b) in grid.affine.iter().flatten().zip(expected.iter().flatten()) {
            assert!((a - b).abs() < 1e-12, "{grid:?}");
        }
        for sizes in [[0.0, 1.0, 1.0], [1.0, f64::NAN, 1.0], [1.0, 1.0, 1e-9]] {
            let e = Grid { shape: [10, 12, 8], affine }.with_voxel_sizes(sizes).unwrap_err();
            assert_eq!(e.setting(), Some("target"));
        }
    }

    #[test]
    fn a_flat_affine_is_refused() {
        let mut grid = Grid { shape: [2; 3], affine: [[0.0; 4]; 4] };
        let other = Grid { shape: [2; 3], affine: [[1.0; 4]; 4] };
        assert_eq!(grid.voxel_map(&other).unwrap_err().setting(), Some("affine"));
        grid.affine[0][0] = f64::NAN;
        assert!(grid.voxel_map(&other).is_err());
    }
}
