//! The distribution of a map's values, drawn.

use crate::{
    MapSection, Result,
    charts::{Axes, BLUE, FAINT_INK, ORANGE, SCALE, builder, mesh, svg},
    map_statistics::{MapStatistics, passes},
};
use maud::PreEscaped;
use plotters::prelude::*;

const BINS: usize = 60;

/// Counts of equal bins over all values of `statistics` (ascending).
fn bins(sorted: &[f32], low: f64, width: f64) -> [u64; BINS] {
    let mut counts = [0; BINS];
    for value in sorted {
        let bin = ((f64::from(*value) - low) / width).floor().clamp(0.0, (BINS - 1) as f64);
        counts[bin as usize] += 1;
    }
    counts
}

/// Draws the histogram; `None` when the map has no values.
///
/// # Errors
/// What the drawing library said.
pub(crate) fn draw(map: &MapSection, statistics: &MapStatistics) -> Result<Option<PreEscaped<String>>> {
    let (low, high) = (statistics.quantile(0.0), statistics.quantile(1.0));
    if statistics.sorted.is_empty() {
        return Ok(None);
    }
    let (low, high) = if high > low { (low, high) } else { (low - 0.5, high + 0.5) };
    let width = (high - low) / BINS as f64;
    let counts = bins(&statistics.sorted, low, width);
    let top = counts.iter().copied().max().unwrap_or(1) as f64 * 1.06;
    let unit = if map.unit.is_empty() { "value".to_owned() } else { format!("value ({})", map.unit) };
    svg(&format!("Histogram of {}", map.name), (520, 230), |area| {
        let mut chart = builder(area, 56).build_cartesian_2d(low..high, 0.0..top)?;
        mesh(&mut chart, Axes { x: &unit, y: "voxels", x_labels: 8, y_labels: 5 })?;
        let gap = width * 0.08;
        chart.draw_series(counts.iter().enumerate().filter(|(_, n)| **n > 0).map(|(bin, n)| {
            let left = low + bin as f64 * width;
            let shown = passes(map.threshold, (left + width / 2.0) as f32);
            let colour = if shown { BLUE.mix(0.85) } else { BLUE.mix(0.35) };
            Rectangle::new([(left + gap, 0.0), (left + width - gap, *n as f64)], colour.filled())
        }))?;
        let threshold = map.threshold.map(f64::from).unwrap_or(f64::NAN).abs();
        for mark in [-threshold, threshold].into_iter().filter(|m| (low..=high).contains(m)) {
            let line = [(mark, 0.0), (mark, top)];
            chart.draw_series(DashedLineSeries::new(
                line,
                5 * SCALE,
                4 * SCALE,
                ORANGE.stroke_width(SCALE),
            ))?;
        }
        if low < 0.0 && high > 0.0 {
            chart.draw_series(LineSeries::new(
                [(0.0, 0.0), (0.0, top)],
                FAINT_INK.mix(0.5).stroke_width(SCALE),
            ))?;
        }
        Ok(())
    })
    .map(Some)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::orientation::tests::volume;

    #[test]
    fn every_value_is_in_one_bin() {
        let values: Vec<f32> = (0..1000).map(|i| (i as f32 / 7.0).sin()).collect();
        let (low, high) = (-1.0, 1.0);
        let counts = bins(&values, low, (high - low) / BINS as f64);
        assert_eq!(counts.iter().sum::<u64>(), 1000);
    }

    #[test]
    fn one_value_and_none_are_drawn_or_not() {
        for (values, drawn) in [(vec![2.0, 2.0], true), (vec![f32::NAN, f32::NAN], false)] {
            let map = MapSection::statistic("m", "r", volume([2, 1, 1], values), None);
            assert_eq!(draw(&map, &MapStatistics::of(&map)).unwrap().is_some(), drawn);
        }
    }
}
