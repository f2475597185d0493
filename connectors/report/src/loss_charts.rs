//! What training did, drawn: loss curves, where the time of a step went, reconstructions.

use crate::{
    LossAxis, ReconstructionExample, Result,
    charts::{Axes, BLUE, FAINT_INK, GREEN, ORANGE, SCALE, builder, mesh, range, svg, thinned},
};
use maud::PreEscaped;
use plotters::{
    coord::ranged1d::{AsRangedCoord, ValueFormatter},
    prelude::*,
};
use std::ops::Range;
use voxelflow_stage::History;

type Points = Vec<(f64, f64)>;

/// The curves of one loss chart.
#[derive(Debug, Default)]
struct Curves {
    initial: Option<f64>,
    rounds: Points,
    smooth: Points,
    training: Points,
    validation: Points,
}

impl Curves {
    fn losses(&self) -> impl Iterator<Item = f64> + '_ {
        let lines = [&self.rounds, &self.smooth, &self.training, &self.validation];
        lines.into_iter().flatten().map(|p| p.1).chain(self.initial).filter(|v| v.is_finite())
    }

    fn logarithmic(&self, axis: LossAxis) -> bool {
        let (low, high) = self.losses().fold((f64::INFINITY, 0.0f64), |(l, h), v| (l.min(v), h.max(v)));
        let positive = low > 0.0 && low.is_finite();
        positive && (axis == LossAxis::Log || (axis == LossAxis::Auto && high / low > 20.0))
    }
}

/// Loss of every round, thinned and smoothed, with the epochs' means; `None` without rounds.
///
/// # Errors
/// What the drawing library said.
pub(crate) fn by_round(history: &History, axis: LossAxis) -> Result<Option<PreEscaped<String>>> {
    if history.steps.is_empty() {
        return Ok(None);
    }
    let rounds: Points = history.steps.iter().map(|s| (s.step as f64, s.loss)).collect();
    let smooth = smoothed(&rounds);
    let end_of = |epoch: u64| history.steps.iter().rev().find(|s| s.epoch == epoch).map(|s| s.step as f64);
    let validation = history
        .epochs
        .iter()
        .filter_map(|e| Some((end_of(e.epoch)?, e.validation_loss?)))
        .collect::<Points>();
    let curves = Curves {
        initial: Some(history.initial_loss).filter(|v| v.is_finite()),
        rounds: thinned(&finite(rounds), 1200),
        smooth: thinned(&smooth, 600),
        training: Vec::new(),
        validation: finite(validation),
    };
    draw("Loss by round", "round", &curves, axis).map(Some)
}

/// Mean loss of every epoch, from the loss before training on; `None` where that is no more than one point.
///
/// # Errors
/// What the drawing library said.
pub(crate) fn by_epoch(history: &History, axis: LossAxis) -> Result<Option<PreEscaped<String>>> {
    let x = |epoch: u64| epoch as f64 + 1.0;
    let initial = Some(history.initial_loss).filter(|v| v.is_finite());
    if history.epochs.is_empty() || history.epochs.len() + usize::from(initial.is_some()) < 2 {
        return Ok(None);
    }
    let training = initial.map(|loss| (0.0, loss)).into_iter();
    let curves = Curves {
        initial,
        training: finite(training.chain(history.epochs.iter().map(|e| (x(e.epoch), e.loss))).collect()),
        validation: finite(
            history.epochs.iter().filter_map(|e| Some((x(e.epoch), e.validation_loss?))).collect(),
        ),
        ..Curves::default()
    };
    draw("Loss by epoch", "epochs done", &curves, axis).map(Some)
}

fn finite(points: Points) -> Points {
    points.into_iter().filter(|p| p.1.is_finite()).collect()
}

/// A running mean over about a fiftieth of the line, centred; lines of fewer than 20 points are left alone.
fn smoothed(points: &[(f64, f64)]) -> Points {
    if points.len() < 20 {
        return Points::new();
    }
    let half = (points.len() / 100).max(1);
    let mean = |i: usize| {
        let window = &points[i.saturating_sub(half)..(i + half + 1).min(points.len())];
        window.iter().map(|p| p.1).sum::<f64>() / window.len() as f64
    };
    finite((0..points.len()).map(|i| (points[i].0, mean(i))).collect())
}

fn draw(title: &str, x: &str, curves: &Curves, axis: LossAxis) -> Result<PreEscaped<String>> {
    let xs = [&curves.rounds, &curves.training, &curves.validation].into_iter().flatten().map(|p| p.0);
    let first = if curves.rounds.is_empty() { 0.0 } else { curves.rounds[0].0 };
    let last = xs.fold(first + 1.0, f64::max);
    let x_range = first..last + (last - first) * 0.02;
    svg(title, (520, 300), |area| {
        if curves.logarithmic(axis) {
            let y = range(curves.losses().map(f64::log10), 0.06);
            let y = 10f64.powf(y.start)..10f64.powf(y.end);
            // At least one whole decade, so that the axis has labels.
            let y = y.start.min(10f64.powf(y.end.log10().floor()))..y.end;
            lines(area, x, x_range, y.log_scale(), "mean loss per sample (log)", curves)
        } else {
            lines(area, x, x_range, range(curves.losses(), 0.06), "mean loss per sample", curves)
        }
    })
}

fn lines<Y>(
    area: &crate::charts::Area<'_>,
    x: &str,
    x_range: Range<f64>,
    y_range: Y,
    y: &str,
    curves: &Curves,
) -> Result<(), Box<dyn std::error::Error>>
where
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let ends = (x_range.start, x_range.end);
    let mut chart = builder(area, 64).build_cartesian_2d(x_range, y_range)?;
    mesh(&mut chart, Axes { x, y, x_labels: 7, y_labels: 12 })?;
    if let Some(initial) = curves.initial {
        let dash = DashedLineSeries::new(
            [(ends.0, initial), (ends.1, initial)],
            5 * SCALE,
            4 * SCALE,
            FAINT_INK.stroke_width(SCALE),
        );
        chart.draw_series(dash)?;
    }
    let faint = if curves.smooth.is_empty() { BLUE.to_rgba() } else { BLUE.mix(0.3) };
    chart.draw_series(LineSeries::new(curves.rounds.iter().copied(), faint.stroke_width(SCALE)))?;
    chart.draw_series(LineSeries::new(curves.smooth.iter().copied(), BLUE.stroke_width(2 * SCALE)))?;
    for (points, colour) in [(&curves.training, GREEN), (&curves.validation, ORANGE)] {
        chart.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2 * SCALE)))?;
        chart.draw_series(points.iter().map(|p| Circle::new(*p, 3 * SCALE as i32, colour.filled())))?;
    }
    Ok(())
}

/// One series and its reconstruction.
///
/// # Errors
/// What the drawing library said.
pub(crate) fn reconstruction(example: &ReconstructionExample) -> Result<PreEscaped<String>> {
    let step = example.t_r.filter(|t| t.is_finite() && *t > 0.0);
    let points = |values: &[f32]| -> Points {
        finite(
            values.iter().enumerate().map(|(t, v)| (t as f64 * step.unwrap_or(1.0), f64::from(*v))).collect(),
        )
    };
    let (series, reconstruction) = (points(&example.series), points(&example.reconstruction));
    let both = || series.iter().chain(&reconstruction);
    let last = both().map(|p| p.0).fold(1e-9, f64::max);
    let y = range(both().map(|p| p.1), 0.06);
    let x = if step.is_some() { "time (s)" } else { "time point" };
    svg(&format!("Series and reconstruction, {}", example.label), (520, 190), |area| {
        let mut chart = builder(area, 46).build_cartesian_2d(0.0..last, y)?;
        mesh(&mut chart, Axes { x, y: "", x_labels: 8, y_labels: 4 })?;
        chart
            .draw_series(LineSeries::new(series.iter().copied(), FAINT_INK.mix(0.75).stroke_width(SCALE)))?;
        chart.draw_series(LineSeries::new(reconstruction.iter().copied(), ORANGE.stroke_width(3)))?;
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use voxelflow_stage::EpochRecord;

    fn epoch(epoch: u64, loss: f64, validation_loss: Option<f64>) -> EpochRecord {
        EpochRecord { epoch, samples: 10, loss, validation_loss, seconds: 1.0 }
    }

    #[test]
    fn the_axis_is_logarithmic_where_it_pays_and_can_be() {
        let curves = |losses: &[f64]| Curves {
            training: losses.iter().enumerate().map(|(i, l)| (i as f64, *l)).collect(),
            ..Curves::default()
        };
        assert!(curves(&[100.0, 1.0]).logarithmic(LossAxis::Auto));
        assert!(!curves(&[10.0, 1.0]).logarithmic(LossAxis::Auto));
        assert!(curves(&[10.0, 1.0]).logarithmic(LossAxis::Log));
        assert!(!curves(&[10.0, 0.0]).logarithmic(LossAxis::Log));
        assert!(!curves(&[100.0, 1.0]).logarithmic(LossAxis::Linear));
        assert!(!curves(&[]).logarithmic(LossAxis::Log));
    }

    #[test]
    fn losses_that_are_not_finite_do_not_stop_the_drawing() {
        let epochs = vec![epoch(0, f64::NAN, None), epoch(1, f64::INFINITY, Some(f64::NAN))];
        let history = History { initial_loss: f64::NAN, epochs, ..History::default() };
        assert!(by_epoch(&history, LossAxis::Log).unwrap().unwrap().0.contains("<svg"));
        assert!(by_round(&history, LossAxis::Auto).unwrap().is_none());
    }

    #[test]
    fn one_point_is_no_chart() {
        let one =
            |initial_loss| History { initial_loss, epochs: vec![epoch(0, 1.0, None)], ..History::default() };
        assert!(by_epoch(&one(f64::NAN), LossAxis::Auto).unwrap().is_none());
        assert!(by_epoch(&one(2.0), LossAxis::Auto).unwrap().is_some());
    }

    #[test]
    fn the_curve_starts_at_the_initial_loss() {
        let history = History {
            initial_loss: 5.0,
            epochs: vec![epoch(0, 2.0, Some(2.5)), epoch(1, 1.0, Some(1.5))],
            ..History::default()
        };
        let chart = by_epoch(&history, LossAxis::Linear).unwrap().unwrap().0;
        // Three training points (before, two epochs) and two of validation.
        assert_eq!(chart.matches("<circle").count(), 5, "{chart}");
    }

    #[test]
    fn a_reconstruction_of_nothing_is_an_empty_chart() {
        let svg =
            reconstruction(&ReconstructionExample { label: "<b>".into(), ..Default::default() }).unwrap().0;
        assert!(svg.contains("&lt;b&gt;") && !svg.contains("<b>"));
    }
}
