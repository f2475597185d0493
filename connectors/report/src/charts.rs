//! The frame that every chart shares: size, fonts, grid, colours, and the way from plotters to inline SVG.
//!
//! Charts are drawn at twice their size, so that lines keep half-pixel precision, and scaled by their view box.
//! Ink, grid and paper use colours of their own that the style sheet replaces on dark screens.

use crate::{Error, Result, quantity};
use maud::PreEscaped;
use plotters::{
    coord::{Shift, ranged1d::ValueFormatter},
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};
use std::ops::Range;

/// Okabe and Ito's colours (2008), distinct also for colour-blind readers.
pub(crate) const BLUE: RGBColor = RGBColor(0x00, 0x72, 0xb2);
/// See [`BLUE`].
pub(crate) const ORANGE: RGBColor = RGBColor(0xd5, 0x5e, 0x00);
/// See [`BLUE`].
pub(crate) const GREEN: RGBColor = RGBColor(0x00, 0x9e, 0x73);
/// Text and axes; `#24292f` in the style sheet.
pub(crate) const INK: RGBColor = RGBColor(0x24, 0x29, 0x2f);
/// Secondary text; `#57606a` in the style sheet.
pub(crate) const FAINT_INK: RGBColor = RGBColor(0x57, 0x60, 0x6a);
/// Grid lines; `#e2e6ea` in the style sheet.
pub(crate) const GRID: RGBColor = RGBColor(0xe2, 0xe6, 0xea);

/// Pixels drawn per pixel shown.
pub(crate) const SCALE: u32 = 2;

/// A drawing area over a string.
pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws a chart of `size` shown pixels; `title` names it for screen readers and in errors.
///
/// # Errors
/// [`Error::Figure`] with what the drawing library said.
pub(crate) fn svg(
    title: &str,
    size: (u32, u32),
    draw: impl FnOnce(&Area<'_>) -> Result<(), Box<dyn std::error::Error>>,
) -> Result<PreEscaped<String>> {
    let mut text = String::new();
    let (width, height) = (size.0 * SCALE, size.1 * SCALE);
    {
        let area = SVGBackend::with_string(&mut text, (width, height)).into_drawing_area();
        let failed = |reason: String| Error::Figure { figure: title.to_owned(), reason };
        draw(&area).map_err(|e| failed(e.to_string()))?;
        area.present().map_err(|e| failed(e.to_string()))?;
    }
    let body = text.split_once('>').map_or("", |(_, body)| body);
    let label = maud::html! { (title) }.into_string();
    Ok(PreEscaped(format!(
        "<svg class=\"chart\" role=\"img\" aria-label=\"{label}\" viewBox=\"0 0 {width} {height}\" \
         style=\"max-width:{}px\" xmlns=\"http://www.w3.org/2000/svg\">{body}",
        size.0
    )))
}

/// Text of `size` shown pixels.
pub(crate) fn text(size: u32, colour: &RGBColor) -> TextStyle<'static> {
    ("sans-serif", size * SCALE).into_font().color(colour)
}

/// Text of `size` shown pixels, anchored.
pub(crate) fn anchored(size: u32, colour: &RGBColor, horizontal: HPos, vertical: VPos) -> TextStyle<'static> {
    text(size, colour).pos(Pos::new(horizontal, vertical))
}

/// What a chart's axes are called, and how dense they are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axes<'a> {
    /// Below.
    pub(crate) x: &'a str,
    /// At the left.
    pub(crate) y: &'a str,
    /// About how many labels below.
    pub(crate) x_labels: usize,
    /// About how many labels at the left.
    pub(crate) y_labels: usize,
}

/// Draws the grid, the axes and their labels on a chart.
///
/// # Errors
/// What the drawing library said.
pub(crate) fn mesh<'a, 'b, X, Y>(
    chart: &mut ChartContext<'a, SVGBackend<'b>, Cartesian2d<X, Y>>,
    axes: Axes<'_>,
) -> Result<(), Box<dyn std::error::Error>>
where
    'b: 'a,
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID.stroke_width(SCALE))
        .axis_style(FAINT_INK.stroke_width(SCALE))
        .label_style(text(12, &FAINT_INK))
        .axis_desc_style(text(13, &INK))
        .x_desc(axes.x)
        .y_desc(axes.y)
        .x_labels(axes.x_labels)
        .y_labels(axes.y_labels)
        .x_label_formatter(&|v| quantity::number(nearly(*v), 4))
        .y_label_formatter(&|v| quantity::number(nearly(*v), 3))
        .draw()?;
    Ok(())
}

/// A tick's value without the rounding error of counting up to it: `−1e-16` is 0.
fn nearly(value: f64) -> f64 {
    if value.abs() < 1e-12 { 0.0 } else { value }
}

/// A builder with the margins that all charts share.
pub(crate) fn builder<'a, 'b>(area: &'a Area<'b>, left: u32) -> ChartBuilder<'a, 'b, SVGBackend<'b>> {
    let mut builder = ChartBuilder::on(area);
    builder
        .margin_top(8 * SCALE)
        .margin_right(14 * SCALE)
        .x_label_area_size(38 * SCALE)
        .y_label_area_size(left * SCALE);
    builder
}

/// The range of finite `values`, widened by `margin` of itself at both ends; never empty.
pub(crate) fn range(values: impl Iterator<Item = f64>, margin: f64) -> Range<f64> {
    let (low, high) = values
        .filter(|v| v.is_finite())
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
    if low > high {
        return 0.0..1.0;
    }
    let widen = if high > low { (high - low) * margin } else { low.abs().max(1.0) * 0.05 };
    low - widen..high + widen
}

/// A legend in HTML: colour and label, in order.
pub(crate) fn legend(entries: &[(RGBColor, &str, &str)]) -> maud::Markup {
    maud::html! {
        ul.legend {
            @for (RGBColor(r, g, b), class, label) in entries {
                li { span.key.(class) style=(format!("color:#{r:02x}{g:02x}{b:02x}")) {} (label) }
            }
        }
    }
}

/// At most about `most` points of a long line: of every bucket its least and its greatest, in order, so that
/// no spike is lost.
pub(crate) fn thinned(points: &[(f64, f64)], most: usize) -> Vec<(f64, f64)> {
    if points.len() <= most.max(4) {
        return points.to_vec();
    }
    let bucket = points.len().div_ceil(most.max(4) / 2);
    let mut out = Vec::with_capacity(most + 2);
    for chunk in points.chunks(bucket) {
        let extreme = |sign: f64| {
            (0..chunk.len()).max_by(|a, b| (sign * chunk[*a].1).total_cmp(&(sign * chunk[*b].1))).unwrap_or(0)
        };
        let (low, high) = (extreme(-1.0), extreme(1.0));
        out.push(chunk[low.min(high)]);
        if low != high {
            out.push(chunk[low.max(high)]);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_keeps_spikes_and_order() {
        let mut points: Vec<_> = (0..10_000).map(|i| (f64::from(i), 1.0)).collect();
        points[4_321].1 = 50.0;
        let thin = thinned(&points, 400);
        assert!(thin.len() <= 402, "{}", thin.len());
        assert!(thin.contains(&(4_321.0, 50.0)));
        assert!(thin.windows(2).all(|w| w[0].0 < w[1].0));
    }

    #[test]
    fn ranges_are_never_empty() {
        for values in [vec![], vec![f64::NAN], vec![3.0], vec![0.0, 0.0]] {
            let r = range(values.into_iter(), 0.1);
            assert!(r.end > r.start, "{r:?}");
        }
    }
}
