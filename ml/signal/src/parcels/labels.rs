//! Atlases whose voxels hold the number of a parcel, as `nilearn.maskers.NiftiLabelsMasker`.

use super::{Parcellation, check};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// How the voxels of a parcel become one value; nilearn's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParcelStrategy {
    /// Their mean.
    #[default]
    Mean,
    /// Their median; of an even number the mean of the two in the middle.
    Median,
    /// Their sum.
    Sum,
    /// The least.
    Minimum,
    /// The greatest.
    Maximum,
    /// Their variance, with their number as divisor.
    Variance,
    /// Its root.
    StandardDeviation,
}

/// An atlas of labels.
#[derive(Clone, Debug)]
pub struct LabelAtlas {
    strategy: ParcelStrategy,
    voxels: usize,
    labels: Vec<i32>,
    /// Voxels of all parcels, parcel after parcel, and where each begins.
    members: Vec<usize>,
    starts: Vec<usize>,
}

impl LabelAtlas {
    /// From one label per voxel; `background` is no parcel. With a mask, labels outside count as background, and a
    /// label that is left without voxels is no parcel either: compare [`LabelAtlas::labels`].
    ///
    /// # Errors
    /// A mask of another size, and an atlas in which nothing is left.
    pub fn try_new(
        labels: &[i32],
        background: i32,
        mask: Option<&[bool]>,
        strategy: ParcelStrategy,
    ) -> Result<Self> {
        if let Some(mask) = mask.filter(|mask| mask.len() != labels.len()) {
            return Err(Error::Shape { what: "mask", found: mask.len(), expected: labels.len().to_string() });
        }
        let inside = |v: &usize| labels[*v] != background && mask.is_none_or(|mask| mask[*v]);
        let mut members: Vec<usize> = (0..labels.len()).filter(inside).collect();
        if members.is_empty() {
            let reason = format!(
                "no voxel of {} holds a label other than the background, {background}, inside the mask",
                labels.len()
            );
            return Err(Error::NothingLeft { step: "the choice of parcels", reason });
        }
        members.sort_by_key(|v| labels[*v]);
        let (mut starts, mut names) = (Vec::new(), Vec::new());
        for (place, voxel) in members.iter().enumerate() {
            if names.last() != Some(&labels[*voxel]) {
                names.push(labels[*voxel]);
                starts.push(place);
            }
        }
        starts.push(members.len());
        Ok(Self { strategy, voxels: labels.len(), labels: names, members, starts })
    }

    /// The parcels' labels, ascending: the order of the values.
    pub fn labels(&self) -> &[i32] {
        &self.labels
    }

    /// Voxels of each parcel.
    pub fn sizes(&self) -> impl Iterator<Item = usize> {
        self.starts.windows(2).map(|pair| pair[1] - pair[0])
    }
}

impl Parcellation for LabelAtlas {
    fn voxels(&self) -> usize {
        self.voxels
    }

    fn parcels(&self) -> usize {
        self.labels.len()
    }

    fn extract(&self, volume: &[f64], values: &mut [f64]) -> Result<usize> {
        check(self, volume, values)?;
        let mut finite = Vec::new();
        let mut not_finite = 0;
        for (bounds, value) in self.starts.windows(2).zip(values) {
            let members = &self.members[bounds[0]..bounds[1]];
            finite.clear();
            finite.extend(members.iter().map(|v| volume[*v]).filter(|x| x.is_finite()));
            not_finite += members.len() - finite.len();
            *value = reduce(&mut finite, self.strategy);
        }
        Ok(not_finite)
    }
}

/// One value of many; NaN of none.
fn reduce(x: &mut [f64], strategy: ParcelStrategy) -> f64 {
    if x.is_empty() {
        return f64::NAN;
    }
    let n = x.len() as f64;
    let sum = |x: &[f64]| x.iter().sum::<f64>();
    match strategy {
        ParcelStrategy::Mean => sum(x) / n,
        ParcelStrategy::Sum => sum(x),
        ParcelStrategy::Minimum => x.iter().copied().fold(f64::INFINITY, f64::min),
        ParcelStrategy::Maximum => x.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        ParcelStrategy::Median => {
            let middle = x.len() / 2;
            let even = x.len().is_multiple_of(2);
            let (below, upper, _) = x.select_nth_unstable_by(middle, f64::total_cmp);
            let lower = if even { below.iter().copied().fold(f64::NEG_INFINITY, f64::max) } else { *upper };
            0.5 * (lower + *upper)
        }
        ParcelStrategy::Variance => {
            let mean = sum(x) / n;
            x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n
        }
        ParcelStrategy::StandardDeviation => reduce(x, ParcelStrategy::Variance).sqrt(),
    }
}

/// The labels of an atlas image as numbers that hold any of them: nothing wraps, whatever type the file stores.
///
/// # Errors
/// A value that is no whole number, or none that fits.
pub fn labels_of(values: &[f64]) -> Result<Vec<i32>> {
    let label = |(voxel, x): (usize, &f64)| {
        let whole =
            x.is_finite() && x.fract() == 0.0 && *x >= f64::from(i32::MIN) && *x <= f64::from(i32::MAX);
        if whole {
            return Ok(*x as i32);
        }
        let reason = format!(
            "voxel {voxel} of the atlas holds {x}, which is no label; is this a map of probabilities?"
        );
        Err(Error::Setting { setting: "labels", reason })
    };
    values.iter().enumerate().map(label).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::parcels::ParcelSeries;

    /// Case 14: a label of 200 in eight bits.
    #[test]
    fn labels_over_127_do_not_wrap() {
        let stored: [u8; 6] = [0, 200, 200, 56, 0, 255];
        let labels = labels_of(&stored.map(f64::from)).unwrap();
        let atlas = LabelAtlas::try_new(&labels, 0, None, ParcelStrategy::Mean).unwrap();
        assert_eq!(atlas.labels(), [56, 200, 255]);
        assert_eq!(atlas.sizes().collect::<Vec<_>>(), [1, 2, 1]);
        let mut values = [0.0; 3];
        atlas.extract(&[9.0, 1.0, 2.0, 3.0, 9.0, 5.0], &mut values).unwrap();
        assert_eq!(values, [3.0, 1.5, 5.0]);
        for broken in [0.5, f64::NAN, 3e9] {
            assert_eq!(labels_of(&[1.0, broken]).unwrap_err().setting(), Some("labels"));
        }
    }

    #[test]
    fn voxels_that_are_not_finite_take_no_part() {
        let atlas = LabelAtlas::try_new(&[1, 1, 1, 2], 0, None, ParcelStrategy::Mean).unwrap();
        let mut series = ParcelSeries::new(&atlas);
        series.add(&[1.0, 3.0, 5.0, 7.0]).unwrap();
        series.add(&[1.0, f64::NAN, 5.0, f64::INFINITY]).unwrap();
        assert!(series.add(&[1.0; 3]).is_err());
        assert_eq!(series.not_finite(), 2);
        let series = series.finish();
        assert_eq!(series[..3], [3.0, 3.0, 7.0]);
        assert!(series[3].is_nan());
    }

    #[test]
    fn an_atlas_without_parcels_is_refused() {
        let new = |mask: Option<&[bool]>| LabelAtlas::try_new(&[0, 4, 0], 0, mask, ParcelStrategy::Sum);
        assert!(matches!(new(Some(&[true, false, true])), Err(Error::NothingLeft { .. })));
        assert!(matches!(new(Some(&[true])), Err(Error::Shape { found: 1, .. })));
        assert!(new(None).unwrap().extract(&[0.0; 3], &mut [0.0; 2]).is_err());
    }
}
