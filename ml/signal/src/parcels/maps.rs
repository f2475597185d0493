//! Atlases of overlapping maps, as `nilearn.maskers.NiftiMapsMasker`: the series that, times the maps, come nearest
//! to the volume.
//!
//! `min ‖y − Mᵀs‖` by the normal equations `(M Mᵀ) s = M y`, whose Cholesky factor is computed once.

use super::{Parcellation, check};
use crate::{Error, Result};

/// An atlas of maps.
#[derive(Clone, Debug)]
pub struct MapAtlas {
    total_voxels: usize,
    /// Voxels in which any map is not zero.
    members: Vec<usize>,
    /// `[maps][members]`.
    maps: Vec<Vec<f32>>,
    /// `M Mᵀ`, `[maps, maps]`, and the lower triangle of its Cholesky factor.
    gram: Vec<f64>,
    factor: Vec<f64>,
}

impl MapAtlas {
    /// From maps, `[maps]` of `[voxels]`; a mask cuts them.
    ///
    /// # Errors
    /// No maps, maps or a mask of other sizes, values that are not finite, maps that are empty or sums of others.
    pub fn try_new(maps: &[Vec<f32>], mask: Option<&[bool]>) -> Result<Self> {
        let total_voxels = maps.first().map_or(0, Vec::len);
        for (what, found) in maps.iter().map(|m| ("map", m.len())).chain(mask.map(|m| ("mask", m.len()))) {
            if found != total_voxels {
                return Err(Error::Shape { what, found, expected: total_voxels.to_string() });
            }
        }
        if let Some(map) = maps.iter().position(|m| m.iter().any(|x| !x.is_finite())) {
            let reason = format!("map {map} (the first is 0) holds NaN or infinity");
            return Err(Error::Setting { setting: "maps", reason });
        }
        let inside = |v: &usize| mask.is_none_or(|m| m[*v]) && maps.iter().any(|m| m[*v] != 0.0);
        let members: Vec<usize> = (0..total_voxels).filter(inside).collect();
        let maps: Vec<Vec<f32>> = maps.iter().map(|m| members.iter().map(|v| m[*v]).collect()).collect();
        if members.is_empty() {
            let reason = "no map has a weight inside the mask".to_owned();
            return Err(Error::NothingLeft { step: "the choice of maps", reason });
        }
        let k = maps.len();
        let gram = (0..k * k).map(|place| dot(&maps[place / k], &maps[place % k])).collect::<Vec<f64>>();
        let factor = cholesky(&gram, k).map_err(|map| Error::Setting {
            setting: "maps",
            reason: format!(
                "map {map} (the first is 0) is empty or a sum of those before it, inside the mask: its series is not \
                 determined; leave it out"
            ),
        })?;
        Ok(Self { total_voxels, members, maps, gram, factor })
    }

    /// The factor when some members take no part, whose places are given.
    fn factor_without(&self, holes: &[usize]) -> Option<Vec<f64>> {
        let k = self.maps.len();
        let mut gram = self.gram.clone();
        for (place, entry) in gram.iter_mut().enumerate() {
            let (a, b) = (&self.maps[place / k], &self.maps[place % k]);
            *entry -= holes.iter().map(|h| f64::from(a[*h]) * f64::from(b[*h])).sum::<f64>();
        }
        cholesky(&gram, k).ok()
    }
}

impl Parcellation for MapAtlas {
    fn voxels(&self) -> usize {
        self.total_voxels
    }

    fn parcels(&self) -> usize {
        self.maps.len()
    }

    /// Where voxels are not finite, the others determine the series; all are NaN if they cannot.
    fn extract(&self, volume: &[f64], values: &mut [f64]) -> Result<usize> {
        check(self, volume, values)?;
        let mut y: Vec<f64> = self.members.iter().map(|v| volume[*v]).collect();
        let holes: Vec<usize> = (0..y.len()).filter(|m| !y[*m].is_finite()).collect();
        holes.iter().for_each(|m| y[*m] = 0.0);
        let refactored;
        let factor = match holes.is_empty() {
            true => &self.factor,
            false => match self.factor_without(&holes) {
                Some(factor) => {
                    refactored = factor;
                    &refactored
                }
                None => {
                    values.fill(f64::NAN);
                    return Ok(holes.len());
                }
            },
        };
        let mut series: Vec<f64> =
            self.maps.iter().map(|map| map.iter().zip(&y).map(|(m, y)| f64::from(*m) * y).sum()).collect();
        solve(factor, &mut series);
        values.copy_from_slice(&series);
        Ok(holes.len())
    }
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum()
}

/// The lower triangle `L` of `G = L Lᵀ`; the row in which `G` is singular otherwise.
fn cholesky(gram: &[f64], k: usize) -> std::result::Result<Vec<f64>, usize> {
    let mut factor = vec![0.0; k * k];
    for row in 0..k {
        for column in 0..=row {
            let done: f64 = (0..column).map(|c| factor[row * k + c] * factor[column * k + c]).sum();
            let rest = gram[row * k + column] - done;
            if column < row {
                factor[row * k + column] = rest / factor[column * k + column];
            } else if rest > 1e-10 * gram[row * k + row] {
                factor[row * k + row] = rest.sqrt();
            } else {
                return Err(row);
            }
        }
    }
    Ok(factor)
}

/// Solves `L Lᵀ s = r` in place.
fn solve(factor: &[f64], right: &mut [f64]) {
    let k = right.len();
    for row in 0..k {
        let done: f64 = (0..row).map(|c| factor[row * k + c] * right[c]).sum();
        right[row] = (right[row] - done) / factor[row * k + row];
    }
    for row in (0..k).rev() {
        let done: f64 = (row + 1..k).map(|c| factor[c * k + row] * right[c]).sum();
        right[row] = (right[row] - done) / factor[row * k + row];
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn maps() -> Vec<Vec<f32>> {
        vec![vec![1.0, 0.5, 0.0, 0.0, 0.0], vec![0.0, 0.5, 1.0, 0.2, 0.0]]
    }

    #[test]
    fn the_series_of_a_mixture_are_found_again_with_and_without_holes() {
        let atlas = MapAtlas::try_new(&maps(), None).unwrap();
        let (a, b) = (3.0, -2.0);
        let weight = |map: usize, v: usize| f64::from(maps()[map][v]);
        let mut volume: Vec<f64> = (0..5).map(|v| a * weight(0, v) + b * weight(1, v)).collect();
        volume[4] = 1000.0; // outside all maps
        let mut values = [0.0; 2];
        assert_eq!(atlas.extract(&volume, &mut values).unwrap(), 0);
        assert!((values[0] - a).abs() < 1e-12 && (values[1] - b).abs() < 1e-12, "{values:?}");
        volume[2] = f64::NAN;
        volume[4] = f64::NAN;
        assert_eq!(atlas.extract(&volume, &mut values).unwrap(), 1);
        assert!((values[0] - a).abs() < 1e-12 && (values[1] - b).abs() < 1e-12, "{values:?}");
        // One voxel cannot determine two series.
        volume[0] = f64::NAN;
        volume[3] = f64::NAN;
        assert_eq!(atlas.extract(&volume, &mut values).unwrap(), 3);
        assert!(values.iter().all(|x| x.is_nan()));
    }

    #[test]
    fn maps_that_determine_nothing_are_refused() {
        let refuse = |maps: &[Vec<f32>], mask: Option<&[bool]>| MapAtlas::try_new(maps, mask).unwrap_err();
        let mut dependent = maps();
        dependent.push((0..5).map(|v| dependent[0][v] - 2.0 * dependent[1][v]).collect());
        assert!(refuse(&dependent, None).to_string().contains("map 2"));
        assert!(matches!(refuse(&maps(), Some(&[false; 5])), Error::NothingLeft { .. }));
        assert!(refuse(&maps(), Some(&[true, false, false, false, false])).to_string().contains("map 1"));
        assert!(matches!(refuse(&maps(), Some(&[true])), Error::Shape { .. }));
        assert!(refuse(&[vec![f32::NAN; 3]], None).setting() == Some("maps"));
        assert!(matches!(refuse(&[], None), Error::NothingLeft { .. }));
    }
}
