//! Where the voxels lie: an ellipsoid of a head's size on a regular grid, and six regions in it.

use crate::{Error, Result};

/// Centre of the head, mm in MNI space.
const CENTRE: [f64; 3] = [0.0, -18.0, 18.0];
/// Half axes, mm.
const HALF_AXES: [f64; 3] = [68.0, 86.0, 62.0];
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
        let shape = HALF_AXES.map(|a| 2 * (a / size).ceil() as usize + 5);
        let origin = [0, 1, 2].map(|n| CENTRE[n] - size * (shape[n] / 2) as f64);
        let mut affine = [[0.0; 4]; 4];
        for (n, row) in affine.iter_mut().take(3).enumerate() {
            row[n] = size;
            row[3] = origin[n];
        }
        affine[3][3] = 1.0;
        let at = |v: u32| {
            let v = v as usize;
            let index = [v % shape[0], v / shape[0] % shape[1], v / shape[0] / shape[1]];
            [0, 1, 2].map(|n| origin[n] + size * index[n] as f64)
        };
        let radius = |v: u32| {
            let p = at(v);
            (0..3).map(|n| ((p[n] - CENTRE[n]) / HALF_AXES[n]).powi(2)).sum::<f64>()
        };
        let mut by_radius: Vec<u32> = (0..shape.iter().product::<usize>() as u32).collect();
        by_radius.sort_by(|a, b| radius(*a).total_cmp(&radius(*b)).then(a.cmp(b)));
        by_radius.truncate(voxels);
        by_radius.sort_unstable();
        let regions = find_regions(&by_radius, at);
        Ok(Self { shape, affine, voxels: by_radius, regions })
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
    }
}
