//! What was chosen by cross-validation, drawn: the mean score of every candidate.
//!
//! Penalties are points of a curve over a logarithmic axis, whose top is what was chosen: one at an end says that the
//! penalties do not reach far enough. Candidates that were drawn have no order but that of the draws: what counts is
//! whether the best score still grew when the drawing ended.

use crate::{
    Result,
    charts::{self, Axes, BLUE, FAINT_INK, GREEN, ORANGE, SCALE, builder, mesh, range, svg},
    page::figure,
    quantity::number,
};
use maud::{Markup, PreEscaped, html};
use plotters::{
    coord::ranged1d::{AsRangedCoord, ValueFormatter},
    prelude::*,
};
use voxelflow_stage::Choice;

type Points = Vec<(f64, f64)>;

/// What is drawn of a choice.
struct Curve {
    points: Points,
    /// Where penalties are the candidates.
    penalties: bool,
    chosen: Option<(f64, f64)>,
}

impl Curve {
    fn of(choice: &Choice) -> Self {
        let penalties = !choice.penalties.is_empty();
        let x = |candidate: usize| match penalties {
            true => choice.penalties.get(candidate).copied().filter(|x| x.is_finite() && *x > 0.0),
            false => Some(candidate as f64 + 1.0),
        };
        let point = |(candidate, score): (usize, &f64)| Some((x(candidate)?, *score));
        let finite = |point: &(f64, f64)| point.1.is_finite();
        let mut points: Points =
            choice.mean_scores.iter().enumerate().filter_map(point).filter(finite).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let chosen = choice.chosen.and_then(|at| point((at, choice.mean_scores.get(at)?))).filter(finite);
        Self { points, penalties, chosen }
    }

    /// The best score of all draws until each.
    fn best(&self) -> Points {
        let mut best = f64::NEG_INFINITY;
        let so_far = |(x, score): &(f64, f64)| {
            best = best.max(*score);
            (*x, best)
        };
        self.points.iter().map(so_far).collect()
    }
}

/// The score in words, with a capital where it has one.
fn score(scoring: &str) -> &str {
    match scoring {
        "r2" => "R²",
        "pearson" => "r",
        "neg_mean_squared_error" => "−MSE",
        other => other,
    }
}

/// What was chosen, behind what the model is.
pub(crate) fn outcome(choice: &Choice) -> String {
    let best = choice.mean_scores.iter().copied().filter(|score| score.is_finite()).fold(f64::NAN, f64::max);
    let score = score(&choice.scoring);
    let chosen = choice.chosen.and_then(|at| choice.penalties.get(at));
    match chosen {
        _ if best.is_nan() => "; no candidate has a score".into(),
        Some(alpha) => {
            format!("; penalty {}, of a mean {score} of {} by cross-validation", alpha, number(best, 3))
        }
        None => format!("; the best candidate has a mean {score} of {} by cross-validation", number(best, 3)),
    }
}

/// The chart with its legend and caption; nothing for fewer than two candidates.
///
/// # Errors
/// What the drawing library said.
pub(crate) fn section(choice: &Choice) -> Result<Markup> {
    let curve = Curve::of(choice);
    let Some(chart) = draw(choice, &curve)? else {
        return Ok(html! { p.empty { "There was nothing to choose among." } });
    };
    let (shown, caption) = match (curve.penalties, curve.chosen) {
        (true, Some((alpha, _))) => (
            vec![
                (BLUE, "line dot", "candidates".to_owned()),
                (ORANGE, "line dot", format!("chosen: {alpha}")),
            ],
            "Score of each penalty by cross-validation, the mean over all targets that can be fitted. Where the one that \
             was chosen is the first or the last, others beyond it may be better.",
        ),
        (true, None) => (
            vec![(BLUE, "line dot", "candidates".to_owned())],
            "Score of each penalty by cross-validation, the mean over all targets that can be fitted. Each target has the \
             penalty that is best for it.",
        ),
        (false, _) => (
            vec![(FAINT_INK, "line dot", "each draw".to_owned()), (GREEN, "line", "best so far".to_owned())],
            "Score of each draw of weights of the bands, with its best penalty, by cross-validation: the mean over all \
             targets that can be fitted. Each target has the draw that is best for it. Where the line still rises at its \
             end, more draws may be better.",
        ),
    };
    let legend: Vec<(RGBColor, &str, &str)> =
        shown.iter().map(|(colour, class, label)| (*colour, *class, label.as_str())).collect();
    Ok(figure(html! { (charts::legend(&legend)) (chart) }, caption))
}

fn draw(choice: &Choice, curve: &Curve) -> Result<Option<PreEscaped<String>>> {
    let (Some(first), Some(last)) = (curve.points.first(), curve.points.last()) else { return Ok(None) };
    if last.0 <= first.0 {
        return Ok(None);
    }
    let label = format!("mean {} by cross-validation", score(&choice.scoring));
    let (title, ends) = match curve.penalties {
        true => ("Score by penalty", (first.0, last.0)),
        false => ("Score by draw", (first.0 - 0.5, last.0 + 0.5)),
    };
    let drawn = svg(title, (520, 300), |area| {
        if curve.penalties {
            let widen = (ends.1 / ends.0).powf(0.04);
            let x = (ends.0 / widen..ends.1 * widen).log_scale();
            points(area, Axes { x: "penalty (log)", y: &label, x_labels: 9, y_labels: 8 }, x, curve)
        } else {
            points(area, Axes { x: "draw", y: &label, x_labels: 9, y_labels: 8 }, ends.0..ends.1, curve)
        }
    });
    drawn.map(Some)
}

fn points<X>(
    area: &charts::Area<'_>,
    axes: Axes<'_>,
    x: X,
    curve: &Curve,
) -> Result<(), Box<dyn std::error::Error>>
where
    X: AsRangedCoord<Value = f64>,
    X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let y = range(curve.points.iter().map(|point| point.1), 0.08);
    let bottom = y.start;
    let mut chart = builder(area, 72).build_cartesian_2d(x, y)?;
    mesh(&mut chart, axes)?;
    let dots = |colour: RGBColor| {
        let dot = move |point: &(f64, f64)| Circle::new(*point, 3 * SCALE as i32, colour.filled());
        curve.points.iter().map(dot)
    };
    if curve.penalties {
        chart.draw_series(LineSeries::new(curve.points.iter().copied(), BLUE.stroke_width(2 * SCALE)))?;
        chart.draw_series(dots(BLUE))?;
    } else {
        chart.draw_series(dots(FAINT_INK))?;
        chart.draw_series(LineSeries::new(curve.best(), GREEN.stroke_width(2 * SCALE)))?;
    }
    if let Some(chosen) = curve.chosen {
        let down = [(chosen.0, bottom), chosen];
        chart.draw_series(DashedLineSeries::new(down, 5 * SCALE, 4 * SCALE, ORANGE.stroke_width(SCALE)))?;
        chart.draw_series([Circle::new(chosen, 5 * SCALE as i32, ORANGE.filled())])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn penalties(chosen: Option<usize>) -> Choice {
        Choice {
            scoring: "r2".into(),
            mean_scores: vec![0.01, 0.03, f64::NAN, 0.02],
            penalties: vec![100.0, 1.0, 10.0, 1000.0],
            chosen,
        }
    }

    #[test]
    fn penalties_are_in_order_and_the_chosen_one_is_marked() {
        let curve = Curve::of(&penalties(Some(1)));
        assert_eq!(curve.points, [(1.0, 0.03), (100.0, 0.01), (1000.0, 0.02)]);
        assert_eq!(curve.chosen, Some((1.0, 0.03)));
        let page = section(&penalties(Some(1))).unwrap().into_string();
        assert_eq!(page.matches("<circle").count(), 4, "three candidates and the mark");
        assert!(page.contains("chosen: 1<") && page.contains("mean R² by cross-validation"));
        assert!(outcome(&penalties(Some(1))).contains("penalty 1, of a mean R² of 0.03"));
        let each = section(&penalties(None)).unwrap().into_string();
        assert_eq!(each.matches("<circle").count(), 3);
        assert!(each.contains("Each target has the penalty") && !each.contains("chosen:"));
    }

    #[test]
    fn draws_show_the_best_so_far() {
        let drawn = Choice { mean_scores: vec![0.1, 0.05, 0.2, 0.15], ..Choice::default() };
        assert_eq!(Curve::of(&drawn).best(), [(1.0, 0.1), (2.0, 0.1), (3.0, 0.2), (4.0, 0.2)]);
        let page = section(&drawn).unwrap().into_string();
        assert_eq!(page.matches("<circle").count(), 4);
        assert!(page.contains("best so far"));
    }

    #[test]
    fn one_candidate_is_no_chart() {
        let one =
            Choice { mean_scores: vec![0.1], penalties: vec![10.0], chosen: Some(0), ..Choice::default() };
        for choice in [one, Choice::default(), Choice { mean_scores: vec![f64::NAN; 3], ..Choice::default() }]
        {
            let page = section(&choice).unwrap().into_string();
            assert!(!page.contains("<svg") && page.contains("nothing to choose among"));
        }
        assert_eq!(outcome(&Choice::default()), "; no candidate has a score");
    }
}
