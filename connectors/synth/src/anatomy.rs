//! Where the voxels lie: an ellipsoid of a head's size on a regular grid, and six regions in it.
//!
//! Either the number of voxels is given and the grid follows from it, or the other way round.

use crate::{Error, Result};

/// Centre of the head, mm in MNI space.
const CENTRE: [f64; 3] = [0.0, -18.0, 18.0];
/// Half axes, mm.
const HALF_AXES: [f64; 3] = [68.0, 86.0, 62.0];
/// Sides of the box that a given grid spans, mm: 91×109×91 voxels of 2 mm, as in MNI space.
const BOX: [f64; 3] = [182.0, 218.0, 182.0];
/// Share of the voxels that each region takes.
const REGION_SHARE: f64 = 0.02;
/// Least voxels of a head.
const MIN_VOXELS: usize = 200;
/// Centres of the regions in the order of [`crate::REGRESSORS`], mm in MNI space: occipital pole; hand, foot
/// and tongue areas of the motor strip, opposite to the side that moves.
const REGION_CENTRES: [[f64; 3]; 6] = [
    [0.0, -85.0, 5.0],
    [40.0, -22.0, 54.0],
    [-40.0, -22.0, 54.0],
    [10.0, -35.0, 66.0],
    [-10.0, -35.0, 66.0],
    [-54.0, -6.0, 22.0],
];

/// The region of a regressor: a position in [`crate::REGRESSORS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Region(pub u8);

/// A grid, the voxels of the head on it, and their regions.
#[derive(Clone, Debug, PartialEq)]
pub struct Anatomy {
    /// Voxels along i, j, k.
    pub shape: [usize; 3],
    /// Voxel index to mm, row-major.
    pub affine: [[f64; 4]; 4],
    /// Linear indices `i + ni·(j + nj·k)` of the head, ascending.
    pub voxels: Vec<u32>,
    /// Region of each of `voxels`.
    pub regions: Vec<Option<Region>>,
}

impl Anatomy {
    /// A head of exactly `voxels` voxels; they are as large as that needs.
    ///
    /// # Errors
    /// [`Error::Setting`] under 200 voxels, where a region would hardly be one, or over 8 million.
    pub fn try_new(voxels: usize) -> Result<Self> {
        if !(MIN_VOXELS..=8_000_000).contains(&voxels) {
            let reason = format!("{voxels} is not between {MIN_VOXELS} and 8,000,000 voxels");
            return Err(Error::Setting { setting: "voxels", reason });
        }
        let volume = 4.0 / 3.0 * std::f64::consts::PI * HALF_AXES.iter().product::<f64>();
        let size = (volume / voxels as f64).cbrt();
        // Two voxels of air on every side hold the ones that rounding puts outside.
        let grid = Space::around([0, 1, 2].map(|n| 2 * (HALF_AXES[n] / size).ceil() as usize + 5), size);
        let mut by_radius: Vec<u32> = grid.indices().collect();
        by_radius.sort_by(|a, b| grid.radius(*a).total_cmp(&grid.radius(*b)).then(a.cmp(b)));
        by_radius.truncate(voxels);
        by_radius.sort_unstable();
        Ok(grid.with(by_radius))
    }

    /// The head on a grid of `shape` voxels, which are cubes so large that it spans 182×218×182 mm at least.
    ///
    /// # Errors
    /// [`Error::Setting`] for a grid on which the head has under 200 voxels or over 8 million.
    pub fn on_grid(shape: [usize; 3]) -> Result<Self> {
        let fits = |voxels| (MIN_VOXELS..=8_000_000).contains(&voxels);
        let total = shape.iter().try_fold(1_usize, |total, n| total.checked_mul(*n));
        if total.is_some_and(|total| (MIN_VOXELS..=80_000_000).contains(&total)) {
            let size = (0..3).map(|n| BOX[n] / shape[n] as f64).fold(0.0, f64::max);
            let grid = Space::around(shape, size);
            let head: Vec<u32> = grid.indices().filter(|v| grid.radius(*v) <= 1.0).collect();
            if fits(head.len()) {
                return Ok(grid.with(head));
            }
        }
        let reason = format!("on {shape:?} the head has not between {MIN_VOXELS} and 8,000,000 voxels");
        Err(Error::Setting { setting: "shape", reason })
    }
}

/// A grid of cubes around the centre of the head.
struct Space {
    shape: [usize; 3],
    size: f64,
    origin: [f64; 3],
}

impl Space {
    fn around(shape: [usize; 3], size: f64) -> Self {
        let origin = [0, 1, 2].map(|n| CENTRE[n] - size * (shape[n] / 2) as f64);
        Self { shape, size, origin }
    }

    fn indices(&self) -> std::ops::Range<u32> {
        0..self.shape.iter().product::<usize>() as u32
    }

    /// Where a voxel lies, mm.
    fn at(&self, voxel: u32) -> [f64; 3] {
        let ([ni, nj, _], v) = (self.shape, voxel as usize);
        let index = [v % ni, v / ni % nj, v / ni / nj];
        [0, 1, 2].map(|n| self.origin[n] + self.size * index[n] as f64)
    }

    /// The squared distance from the centre; 1 is the surface of the head.
    fn radius(&self, voxel: u32) -> f64 {
        let p = self.at(voxel);
        (0..3).map(|n| ((p[n] - CENTRE[n]) / HALF_AXES[n]).powi(2)).sum()
    }

    fn with(self, voxels: Vec<u32>) -> Anatomy {
        let mut affine = [[0.0; 4]; 4];
        for (n, row) in affine.iter_mut().take(3).enumerate() {
            row[n] = self.size;
            row[3] = self.origin[n];
        }
        affine[3][3] = 1.0;
        let regions = find_regions(&voxels, |v| self.at(v));
        Anatomy { shape: self.shape, affine, voxels, regions }
    }
}

/// Each region is the voxels nearest to its centre, of those that are nearest to no other centre.
fn find_regions(voxels: &[u32], at: impl Fn(u32) -> [f64; 3]) -> Vec<Option<Region>> {
    let size = ((voxels.len() as f64 * REGION_SHARE).round() as usize).max(1);
    let mut near: [Vec<(f64, usize)>; 6] = Default::default();
    for (row, voxel) in voxels.iter().enumerate() {
        let p = at(*voxel);
        let distance = |c: &[f64; 3]| (0..3).map(|n| (p[n] - c[n]).powi(2)).sum::<f64>();
        let nearest =
            (0..6).min_by(|a, b| distance(&REGION_CENTRES[*a]).total_cmp(&distance(&REGION_CENTRES[*b])));
        if let Some(region) = nearest {
            near[region].push((distance(&REGION_CENTRES[region]), row));
        }
    }
    let mut regions = vec![None; voxels.len()];
    for (region, mut rows) in (0_u8..).zip(near) {
        rows.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        rows.iter().take(size).for_each(|(_, row)| regions[*row] = Some(Region(region)));
    }
    regions
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::collections::HashSet;

    /// Voxels of a region that can be walked to from its first by faces, edges and corners.
    fn reachable(anatomy: &Anatomy, region: Region) -> (usize, usize) {
        let members: HashSet<i64> = anatomy
            .voxels
            .iter()
            .zip(&anatomy.regions)
            .filter(|(_, r)| **r == Some(region))
            .map(|(v, _)| i64::from(*v))
            .collect();
        let [ni, nj, _] = anatomy.shape.map(|n| n as i64);
        let mut seen = HashSet::new();
        let mut next: Vec<i64> = members.iter().min().copied().into_iter().collect();
        while let Some(v) = next.pop() {
            if members.contains(&v) && seen.insert(v) {
                for d in 0..27_i64 {
                    next.push(v + (d % 3 - 1) + ni * ((d / 3 % 3 - 1) + nj * (d / 9 - 1)));
                }
            }
        }
        (seen.len(), members.len())
    }

    #[test]
    fn heads_of_any_size_have_exactly_their_voxels_and_contiguous_regions() {
        for voxels in [200, 1_000, 20_000] {
            let anatomy = Anatomy::try_new(voxels).unwrap();
            assert_eq!(anatomy.voxels.len(), voxels);
            assert!(anatomy.voxels.is_sorted());
            for region in 0..6 {
                let (reached, members) = reachable(&anatomy, Region(region));
                assert_eq!(reached, members, "{voxels} {region}");
                assert_eq!(members, (voxels as f64 * 0.02).round() as usize, "{voxels} {region}");
            }
        }
    }

    #[test]
    fn too_few_voxels_are_refused() {
        assert!(Anatomy::try_new(10).unwrap_err().to_string().contains("200"));
        for shape in [[4, 4, 4], [0, 9, 9], [usize::MAX, 2, 2]] {
            assert!(Anatomy::on_grid(shape).unwrap_err().to_string().contains("200"), "{shape:?}");
        }
    }

    #[test]
    fn the_grid_of_the_hcp_has_a_head_of_two_millimetres() {
        let anatomy = Anatomy::on_grid([91, 109, 91]).unwrap();
        assert_eq!((anatomy.shape, anatomy.affine[0][0]), ([91, 109, 91], 2.0));
        let litres = anatomy.voxels.len() as f64 * 8e-6;
        let ellipsoid = 4.0 / 3.0 * std::f64::consts::PI * HALF_AXES.iter().product::<f64>() * 1e-6;
        // Whole voxels follow the surface only roughly.
        assert!((litres / ellipsoid - 1.0).abs() < 5e-3, "{litres} {ellipsoid}");
    }
}
