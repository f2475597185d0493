//! Binary morphology of volumes with the six face neighbours; outside the volume is background, as in
//! `scipy.ndimage` by default.

use crate::{Error, Result};

/// A binary volume; voxel index `i + ni·(j + nj·k)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Voxels along i, j, k.
    pub shape: [usize; 3],
    /// Whether each voxel is set.
    pub voxels: Vec<bool>,
}

impl Volume {
    /// # Errors
    /// A number of voxels that is not that of `shape`.
    pub fn try_new(shape: [usize; 3], voxels: Vec<bool>) -> Result<Self> {
        let expected: usize = shape.iter().product();
        if voxels.len() != expected {
            return Err(Error::Shape { what: "volume", found: voxels.len(), expected: expected.to_string() });
        }
        Ok(Self { shape, voxels })
    }

    /// Voxels that are set.
    pub fn count(&self) -> usize {
        self.voxels.iter().filter(|v| **v).count()
    }

    /// Indices of the voxels that are set, ascending.
    pub fn indices(&self) -> impl Iterator<Item = usize> + '_ {
        self.voxels.iter().enumerate().filter(|(_, set)| **set).map(|(index, _)| index)
    }

    fn neighbours(&self, index: usize) -> [Option<usize>; 6] {
        face_neighbours(self.shape, index)
    }

    fn map(&self, f: impl Fn(usize) -> bool) -> Self {
        Self { shape: self.shape, voxels: (0..self.voxels.len()).map(f).collect() }
    }
}

/// The face neighbours of a voxel of a volume of `shape`; `None` is outside.
pub(crate) fn face_neighbours([ni, nj, nk]: [usize; 3], index: usize) -> [Option<usize>; 6] {
    let (i, j, k) = (index % ni, index / ni % nj, index / (ni * nj));
    let step = |exists: bool, neighbour: usize| exists.then_some(neighbour);
    [
        step(i > 0, index.wrapping_sub(1)),
        step(i + 1 < ni, index + 1),
        step(j > 0, index.wrapping_sub(ni)),
        step(j + 1 < nj, index + ni),
        step(k > 0, index.wrapping_sub(ni * nj)),
        step(k + 1 < nk, index + ni * nj),
    ]
}

/// Unsets every voxel that touches the background or the border of the volume, `iterations` times.
pub fn binary_erosion(volume: &Volume, iterations: usize) -> Volume {
    (0..iterations).fold(volume.clone(), |v, _| {
        v.map(|index| v.voxels[index] && v.neighbours(index).iter().all(|n| n.is_some_and(|n| v.voxels[n])))
    })
}

/// Sets every voxel that touches a set one, `iterations` times.
pub fn binary_dilation(volume: &Volume, iterations: usize) -> Volume {
    (0..iterations).fold(volume.clone(), |v, _| {
        v.map(|index| v.voxels[index] || v.neighbours(index).iter().any(|n| n.is_some_and(|n| v.voxels[n])))
    })
}

/// Keeps the largest component. Of equal ones the first is kept, in the order in which scipy labels them: k
/// runs fastest.
pub fn largest_connected_component(volume: &Volume) -> Volume {
    let [ni, nj, nk] = volume.shape;
    let mut seen = vec![false; volume.voxels.len()];
    let mut largest: Vec<usize> = Vec::new();
    for seed in (0..volume.voxels.len()).map(|c| c / (nj * nk) + ni * (c / nk % nj + nj * (c % nk))) {
        if !volume.voxels[seed] || seen[seed] {
            continue;
        }
        seen[seed] = true;
        let mut component = vec![seed];
        let mut next = 0;
        while next < component.len() {
            for neighbour in volume.neighbours(component[next]).into_iter().flatten() {
                if volume.voxels[neighbour] && !seen[neighbour] {
                    seen[neighbour] = true;
                    component.push(neighbour);
                }
            }
            next += 1;
        }
        if component.len() > largest.len() {
            largest = component;
        }
    }
    let mut kept = vec![false; volume.voxels.len()];
    largest.into_iter().for_each(|index| kept[index] = true);
    Volume { shape: volume.shape, voxels: kept }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn from(shape: [usize; 3], set: &[usize]) -> Volume {
        let voxels: usize = shape.iter().product();
        Volume::try_new(shape, (0..voxels).map(|v| set.contains(&v)).collect()).unwrap()
    }

    #[test]
    fn a_point_grows_to_a_cross_and_shrinks_back() {
        let point = from([5, 5, 5], &[62]);
        let cross = binary_dilation(&point, 1);
        assert_eq!(cross.indices().collect::<Vec<_>>(), [37, 57, 61, 62, 63, 67, 87]);
        assert_eq!(binary_erosion(&cross, 1), point);
        assert_eq!(binary_dilation(&point, 2).count(), 25);
    }

    #[test]
    fn the_border_counts_as_background() {
        let full = from([3, 3, 3], &(0..27).collect::<Vec<_>>());
        assert_eq!(binary_erosion(&full, 1).indices().collect::<Vec<_>>(), [13]);
        assert_eq!(binary_erosion(&full, 2).count(), 0);
    }

    #[test]
    fn corners_do_not_connect_and_the_larger_wins() {
        // On a 3×3 plane: {0}, {4, 5, 8}; 0 and 4 touch by a corner only.
        let volume = from([3, 3, 1], &[0, 4, 5, 8]);
        assert_eq!(largest_connected_component(&volume).indices().collect::<Vec<_>>(), [4, 5, 8]);
        // Two of equal size: {(2,0), (2,1)} comes after {(0,1), (0,2)} when j runs faster than i.
        let volume = from([3, 3, 1], &[2, 5, 3, 6]);
        assert_eq!(largest_connected_component(&volume).indices().collect::<Vec<_>>(), [3, 6]);
    }
}
