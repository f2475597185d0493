//! What a map's values are like: counts, quantiles, the colour scale and the cut that follow from them.

use crate::{
    Cut, MapKind, MapSection,
    colour::{BERLIN, GREY, Scale, VIRIDIS},
    orientation::Ras,
};

/// Numbers that describe a map's values.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MapStatistics {
    /// Values that count, ascending.
    pub(crate) sorted: Vec<f32>,
    /// Voxels of the grid.
    pub(crate) voxels: usize,
    /// NaN or infinite voxels.
    pub(crate) not_finite: usize,
    /// Values at or beyond the threshold.
    pub(crate) shown: usize,
    /// Mean of the values that count.
    pub(crate) mean: f64,
    /// Whether 0 is a value.
    pub(crate) zeros: bool,
}

impl MapStatistics {
    /// Describes `map`: values that are finite and, unless [`zeros_count`], not exactly zero.
    pub(crate) fn of(map: &MapSection) -> Self {
        let (values, zeros) = (&map.volume.values, zeros_count(map));
        let mut sorted: Vec<f32> = values.iter().copied().filter(|v| counts(zeros, *v)).collect();
        sorted.sort_unstable_by(f32::total_cmp);
        let shown = sorted.iter().filter(|v| passes(map.threshold, **v)).count();
        let mean = sorted.iter().map(|v| f64::from(*v)).sum::<f64>() / sorted.len().max(1) as f64;
        let not_finite = values.iter().filter(|v| !v.is_finite()).count();
        Self { shown, mean, not_finite, voxels: values.len(), sorted, zeros }
    }

    /// The value below which `part` (0..=1) of the values lie; NaN for none.
    pub(crate) fn quantile(&self, part: f64) -> f64 {
        let Some(last) = self.sorted.len().checked_sub(1) else { return f64::NAN };
        let position = part.clamp(0.0, 1.0) * last as f64;
        let (below, above) = (position.floor() as usize, position.ceil() as usize);
        let (a, b) = (f64::from(self.sorted[below]), f64::from(self.sorted[above]));
        a + (b - a) * position.fract()
    }

    /// The scale that the map is coloured with: images from their 0.5 to 99.5 % quantile in grey; statistics
    /// of one sign sequential from zero, of both signs diverging and symmetric, up to the 99.8 % quantile of
    /// the absolute values, so that one extreme voxel does not take the colours from all others.
    pub(crate) fn scale(&self, map: &MapSection) -> Scale {
        if map.kind == MapKind::Image {
            return Scale::new(self.quantile(0.005).min(self.quantile(0.5)), self.quantile(0.995), &GREY);
        }
        let mut sizes: Vec<f32> =
            self.sorted.iter().map(|v| v.abs()).filter(|v| passes(map.threshold, *v)).collect();
        sizes.sort_unstable_by(f32::total_cmp);
        let position = (sizes.len().saturating_sub(1) as f64 * 0.998).round() as usize;
        let high = sizes.get(position).map_or(1.0, |v| f64::from(*v));
        let (low, top) = (self.quantile(0.0), self.quantile(1.0));
        if low >= 0.0 {
            Scale::new(0.0, high, &VIRIDIS)
        } else if top <= 0.0 {
            Scale::new(-high, 0.0, &VIRIDIS)
        } else {
            Scale::new(-high, high, &BERLIN)
        }
    }
}

/// Whether 0 is a value of `map`: of an image it is, and of a statistic that marks voxels without a value by NaN. Others
/// have 0 there.
pub(crate) fn zeros_count(map: &MapSection) -> bool {
    map.kind == MapKind::Image || map.volume.values.iter().any(|value| value.is_nan())
}

/// Whether a value is one at all.
pub(crate) fn counts(zeros: bool, value: f32) -> bool {
    value.is_finite() && (zeros || value != 0.0)
}

/// Whether a value is far enough from zero to be coloured.
pub(crate) fn passes(threshold: Option<f32>, value: f32) -> bool {
    threshold.is_none_or(|t| value.abs() >= t)
}

/// The voxel that the three planes go through, and why it was chosen; `None` when no voxel has a value.
pub(crate) fn cut(map: &MapSection, ras: &Ras<'_>) -> Option<([usize; 3], &'static str)> {
    let zeros = zeros_count(map);
    let valued = || ras.voxels().map(|v| (v, ras.at(v))).filter(|(_, value)| counts(zeros, *value));
    let choice = match (map.cut, map.kind) {
        (Cut::Auto, MapKind::Statistic) => Cut::Peak,
        (Cut::Auto, MapKind::Image) => Cut::CentreOfMass,
        (chosen, _) => chosen,
    };
    match choice {
        Cut::At(point) => valued().next().map(|_| (ras.nearest(point), "the point asked for")),
        Cut::CentreOfMass => {
            let mut sums = [0.0f64; 4];
            for (voxel, value) in valued() {
                let weight = f64::from(value.abs());
                for axis in 0..3 {
                    sums[axis] += weight * voxel[axis] as f64;
                }
                sums[3] += weight;
            }
            (sums[3] > 0.0)
                .then(|| ([0, 1, 2].map(|a| (sums[a] / sums[3]).round() as usize), "the centre of mass"))
        }
        Cut::Auto | Cut::Peak => valued()
            .max_by(|a, b| a.1.abs().total_cmp(&b.1.abs()))
            .map(|(voxel, _)| (voxel, "the largest absolute value")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::orientation::tests::volume;

    fn map(values: Vec<f32>) -> MapSection {
        MapSection::statistic("m", "r", volume([values.len(), 1, 1], values), None)
    }

    #[test]
    fn what_is_not_finite_never_counts_and_zero_only_beside_nan() {
        let s = MapStatistics::of(&map(vec![0.0, 1.0, 3.0, f32::INFINITY]));
        assert_eq!((s.sorted.len(), s.not_finite, s.voxels), (2, 1, 4));
        assert_eq!((s.mean, s.quantile(0.0), s.quantile(0.5)), (2.0, 1.0, 2.0));
        let s = MapStatistics::of(&map(vec![0.0, f32::NAN, 1.0, 2.0, f32::INFINITY]));
        assert_eq!((s.sorted.len(), s.not_finite, s.voxels), (3, 2, 5));
        assert_eq!((s.mean, s.quantile(0.0), s.quantile(1.0)), (1.0, 0.0, 2.0));
    }

    #[test]
    fn a_map_of_p_whose_other_voxels_are_nan_is_coloured_by_its_own_values() {
        let p = map(vec![f32::NAN, 0.02, 0.5, f32::NAN, 0.98, 0.0]);
        let s = MapStatistics::of(&p);
        assert_eq!(s.scale(&p), Scale::new(0.0, f64::from(0.98_f32), &VIRIDIS));
        assert_eq!((s.quantile(0.0), s.sorted.len()), (0.0, 4));
    }

    #[test]
    fn signs_choose_the_colours() {
        let scale = |values| {
            let map = map(values);
            MapStatistics::of(&map).scale(&map)
        };
        assert_eq!(scale(vec![1.0, 2.0]), Scale::new(0.0, 2.0, &VIRIDIS));
        assert_eq!(scale(vec![-1.0, -2.0]), Scale::new(-2.0, 0.0, &VIRIDIS));
        assert_eq!(scale(vec![-1.0, 2.0]), Scale::new(-2.0, 2.0, &BERLIN));
        assert_eq!(scale(vec![f32::NAN]).map, &BERLIN);
    }

    #[test]
    fn cuts_go_where_they_are_sent() {
        let mut m = map(vec![0.0, 0.5, f32::NAN, -2.0, 0.5, 0.0]);
        let at = |m: &MapSection| cut(m, &Ras::try_new("m", &m.volume).unwrap()).unwrap().0;
        assert_eq!(at(&m), [3, 0, 0]);
        m.cut = Cut::CentreOfMass;
        assert_eq!(at(&m), [3, 0, 0]);
        m.cut = Cut::At([-8.4, -20.0, 0.0]);
        assert_eq!(at(&m), [1, 0, 0]);
        let empty = map(vec![f32::NAN, f32::NAN]);
        assert!(cut(&empty, &Ras::try_new("m", &empty.volume).unwrap()).is_none());
    }
}
