//! The filters of a layer, drawn: small multiples of lines for one input channel, a matrix in colour for many.

use crate::{
    Error, Result,
    charts::{BLUE, FAINT_INK, GRID, SCALE, anchored, svg},
    colour::{COOLWARM, Scale},
    raster::Raster,
};
use maud::{PreEscaped, html};
use plotters::{
    prelude::*,
    style::text_anchor::{HPos, VPos},
};
use voxelflow_stage::LayerFilters;

/// Small multiples hold at most this many filters; more are drawn as a matrix.
const MOST_LINES: usize = 128;

/// A drawing of filters and the words that explain it.
#[derive(Debug)]
pub(crate) struct FilterFigure {
    /// The drawing.
    pub(crate) drawing: PreEscaped<String>,
    /// Its caption.
    pub(crate) caption: String,
}

/// Draws the filters of one layer.
///
/// # Errors
/// [`Error::Filters`] when the values do not fill the shape.
pub(crate) fn draw(layer: &LayerFilters) -> Result<FilterFigure> {
    let [filters, channels, length] = layer.shape;
    let expected = filters.checked_mul(channels).and_then(|n| n.checked_mul(length));
    if expected.is_none_or(|n| n == 0) || expected != Some(layer.values.len()) {
        let found = layer.values.len();
        let reason =
            format!("{found} values do not fill {filters} filters × {channels} channels × {length} taps");
        return Err(Error::Filters { layer: layer.layer.clone(), reason });
    }
    let largest = layer.values.iter().filter(|v| v.is_finite()).fold(0.0f32, |m, v| m.max(v.abs()));
    let largest = f64::from(if largest > 0.0 { largest } else { 1.0 });
    if channels == 1 && filters <= MOST_LINES && length > 1 {
        lines(layer, largest)
    } else {
        matrix(layer, largest)
    }
}

fn lines(layer: &LayerFilters, largest: f64) -> Result<FilterFigure> {
    let [filters, _, length] = layer.shape;
    let columns = filters.min(8);
    let rows = filters.div_ceil(columns);
    let title = format!("The {filters} filters of layer {}", layer.layer);
    let drawing = svg(&title, (columns as u32 * 130, rows as u32 * 84), |area| {
        let panels = area.split_evenly((rows, columns));
        for ((number, values), panel) in layer.values.chunks(length).enumerate().zip(&panels) {
            let last = (length - 1) as f64;
            let mut chart = ChartBuilder::on(panel)
                .margin(5 * SCALE)
                .build_cartesian_2d(0.0..last, -largest * 1.05..largest * 1.05)?;
            let frame =
                Rectangle::new([(0.0, -largest * 1.05), (last, largest * 1.05)], GRID.stroke_width(SCALE));
            chart.draw_series([frame])?;
            chart.draw_series(LineSeries::new([(0.0, 0.0), (last, 0.0)], GRID.stroke_width(SCALE)))?;
            let points = values.iter().enumerate().map(|(tap, v)| (tap as f64, f64::from(*v)));
            chart.draw_series(LineSeries::new(points.filter(|p| p.1.is_finite()), BLUE.stroke_width(3)))?;
            let style = anchored(9, &FAINT_INK, HPos::Left, VPos::Top);
            panel.draw_text(&(number + 1).to_string(), &style, (8 * SCALE as i32, 7 * SCALE as i32))?;
        }
        Ok(())
    })?;
    let caption = format!(
        "Weights of all {filters} filters over their {length} taps (time points, left to right). All panels share \
         one vertical scale, ±{}; the middle line is zero.",
        crate::quantity::number(largest, 3)
    );
    Ok(FilterFigure { drawing, caption })
}

fn matrix(layer: &LayerFilters, largest: f64) -> Result<FilterFigure> {
    let [filters, channels, length] = layer.shape;
    // Large layers are thinned by whole filters and whole channels, never by averaging weights.
    let (every_filter, every_channel) = (filters.div_ceil(256), (channels * length).div_ceil(2048));
    let (rows, blocks) = (filters.div_ceil(every_filter), channels.div_ceil(every_channel));
    let scale = Scale::new(-largest, largest, &COOLWARM);
    let image = Raster::from_fn(blocks * length, rows, |x, y| {
        let (channel, tap) = (x / length * every_channel, x % length);
        let value = layer.values[(y * every_filter * channels + channel) * length + tap];
        if value.is_finite() { scale.colour(f64::from(value)) } else { [0, 0, 0] }
    });
    let uri = image.data_uri()?;
    let title = format!("Filters of layer {} as a matrix", layer.layer);
    let limit = crate::quantity::number(largest, 3);
    let drawing = html! {
        div.matrix {
            img.pixels src=(uri) alt=(title);
            div.bar {
                span { "−" (limit) }
                span.gradient style=(format!("background:{}", gradient(&COOLWARM))) {}
                span { (limit) }
            }
        }
    };
    let thinned = if every_filter * every_channel > 1 {
        format!(" Shown: one of {every_filter} filters and one of {every_channel} channels.")
    } else {
        String::new()
    };
    let caption = format!(
        "Weights of {filters} filters (rows) over {channels} input channels × {length} taps (columns, taps fastest); \
         colours saturate at ±{limit}.{thinned}"
    );
    Ok(FilterFigure { drawing, caption })
}

fn gradient(map: &crate::colour::ColourMap) -> String {
    let stops: Vec<_> = (0..=16).map(|i| crate::colour::hex(map.at(f64::from(i) / 16.0))).collect();
    format!("linear-gradient(to right,{})", stops.join(","))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn layer(shape: [usize; 3]) -> LayerFilters {
        let n = shape.iter().product::<usize>();
        LayerFilters { layer: "encoder.0".into(), shape, values: (0..n).map(|i| (i as f32).sin()).collect() }
    }

    #[test]
    fn every_filter_of_the_first_layer_has_a_panel() {
        let figure = draw(&layer([32, 1, 21])).unwrap();
        for number in 1..=32 {
            assert!(figure.drawing.0.contains(&format!("\n{number}\n")), "filter {number}");
        }
        assert!(figure.caption.contains("all 32 filters"));
    }

    #[test]
    fn deeper_layers_are_a_matrix_and_large_ones_say_what_is_left_out() {
        let figure = draw(&layer([64, 32, 9])).unwrap();
        assert!(figure.drawing.0.contains("data:image/png"));
        assert!(!figure.caption.contains("one of"));
        assert!(
            draw(&layer([600, 400, 9])).unwrap().caption.contains("one of 3 filters and one of 2 channels")
        );
    }

    #[test]
    fn values_that_do_not_fill_the_shape_are_refused() {
        let mut short = layer([4, 2, 3]);
        short.values.pop();
        assert!(draw(&short).unwrap_err().to_string().contains("encoder.0"));
        assert!(draw(&layer([0, 2, 3])).is_err());
    }

    #[test]
    fn weights_that_are_not_finite_are_drawn_around() {
        let mut nan = layer([2, 1, 5]);
        nan.values.fill(f32::NAN);
        assert!(draw(&nan).is_ok());
    }
}
