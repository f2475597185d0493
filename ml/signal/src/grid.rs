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

    #[test]
    fn a_flat_affine_is_refused() {
        let mut grid = Grid { shape: [2; 3], affine: [[0.0; 4]; 4] };
        let other = Grid { shape: [2; 3], affine: [[1.0; 4]; 4] };
        assert_eq!(grid.voxel_map(&other).unwrap_err().setting(), Some("affine"));
        grid.affine[0][0] = f64::NAN;
        assert!(grid.voxel_map(&other).is_err());
    }
}
