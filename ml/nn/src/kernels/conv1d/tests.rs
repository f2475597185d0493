//! Convolutions against their definitions, term by term.

use super::*;
use crate::layers::gradient_check::ramp;

/// Input, weights, bias and the output's gradient of three samples, `[samples][channels][length]` and so on.
struct Case {
    shape: Conv1dShape,
    x: Vec<f64>,
    w: Vec<f64>,
    b: Vec<f64>,
    dy: Vec<f64>,
}

const SAMPLES: usize = 3;

fn cases() -> impl Iterator<Item = Case> {
    let panels = Side::panels_of;
    let sides = [
        (Side::SERIES, panels(3)),
        (panels(3), Side::SERIES),
        (panels(2), panels(3)),
        (panels(1), panels(1)),
        (panels(33), panels(34)),
    ];
    let paddings = |kernel: usize| [((kernel - 1) / 2, kernel / 2), (0, 0), (kernel - 1, kernel - 1)];
    sides.into_iter().flat_map(move |(input, output)| {
        [(1, 5), (3, 7), (4, 7), (9, 9), (8, 13), (35, 40)].into_iter().flat_map(move |(kernel, length)| {
            paddings(kernel).map(|(before, after)| {
                let shape = Conv1dShape { input, output, kernel, length, before, after };
                let outputs = SAMPLES * output.channels * shape.output_length();
                Case {
                    shape,
                    x: ramp(SAMPLES * input.channels * length, 1),
                    w: ramp(shape.weights(), 2),
                    b: ramp(output.channels, 3),
                    dy: ramp(outputs, 4),
                }
            })
        })
    })
}

impl Case {
    /// Every product that the definition names: sample and channel, filter, tap, point of the output, of the input.
    fn terms(&self, mut term: impl FnMut([usize; 3], [usize; 3], [usize; 3])) {
        let Conv1dShape { input, output, kernel, length, before, .. } = self.shape;
        for (s, o) in (0..SAMPLES).flat_map(|s| (0..output.channels).map(move |o| (s, o))) {
            for (t, c) in
                (0..self.shape.output_length()).flat_map(|t| (0..input.channels).map(move |c| (t, c)))
            {
                for k in 0..kernel {
                    if let Some(at) = (t + k).checked_sub(before).filter(|at| *at < length) {
                        term([s, o, t], [o, c, k], [s, c, at]);
                    }
                }
            }
        }
    }

    fn y(&self, [s, o, t]: [usize; 3]) -> usize {
        (s * self.shape.output.channels + o) * self.shape.output_length() + t
    }

    fn x(&self, [s, c, t]: [usize; 3]) -> usize {
        (s * self.shape.input.channels + c) * self.shape.length + t
    }

    fn w(&self, [o, c, k]: [usize; 3]) -> usize {
        (o * self.shape.input.channels + c) * self.shape.kernel + k
    }
}

/// All samples into maps.
fn taken(maps: &Maps, values: &[f64]) -> Vec<f64> {
    let mut samples = vec![0.0; SAMPLES * maps.len()];
    let each = maps.side.channels * maps.length;
    samples.chunks_exact_mut(maps.len()).zip(values.chunks_exact(each)).for_each(|(s, v)| maps.take(v, s));
    samples
}

fn given(maps: &Maps, samples: &[f64]) -> Vec<f64> {
    let each = maps.side.channels * maps.length;
    let mut values = vec![0.0; SAMPLES * each];
    samples.chunks_exact(maps.len()).zip(values.chunks_exact_mut(each)).for_each(|(s, v)| maps.give(s, v));
    values
}

fn close(found: &[f64], expected: &[f64], shape: &Conv1dShape) {
    assert_eq!(found.len(), expected.len());
    let same = found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-11);
    assert!(same, "{shape:?}: {found:?} != {expected:?}");
}

#[test]
fn output_and_gradients_equal_their_definitions() {
    for case in cases() {
        let shape = case.shape;
        let (x, dy) = (taken(&shape.x(), &case.x), taken(&shape.dy(), &case.dy));

        let mut filters = Filters::forward(&shape);
        filters.pack(&case.w, &case.b);
        let mut y = vec![9.0; SAMPLES * shape.y().len()];
        filters.apply(&x, &mut y, shape.output_length());
        let mut expected = vec![0.0; case.dy.len()];
        let of = |i: usize| i / shape.output_length() % shape.output.channels;
        expected.iter_mut().enumerate().for_each(|(i, y)| *y = case.b[of(i)]);
        case.terms(|y, w, x| expected[case.y(y)] += case.w[case.w(w)] * case.x[case.x(x)]);
        close(&given(&shape.y(), &y), &expected, &shape);

        let mut filters = Filters::backward(&shape);
        filters.pack_backward(&case.w);
        let mut dx = vec![9.0; SAMPLES * shape.dx().len()];
        filters.apply(&dy, &mut dx, shape.length);
        let mut expected = vec![0.0; case.x.len()];
        case.terms(|y, w, x| expected[case.x(x)] += case.w[case.w(w)] * case.dy[case.y(y)]);
        close(&given(&shape.dx(), &dx), &expected, &shape);

        let mut gradient = WeightGradient::zeros(shape);
        let two = (&x[..2 * shape.x().len()], &dy[..2 * shape.dy().len()]);
        let one = (&x[2 * shape.x().len()..], &dy[2 * shape.dy().len()..]);
        gradient.add([two, one].into_iter());
        let (mut dw, mut db) = (vec![9.0; case.w.len()], vec![0.0; case.b.len()]);
        gradient.give(&mut dw);
        let mut expected = vec![0.0; case.w.len()];
        case.terms(|y, w, x| expected[case.w(w)] += case.x[case.x(x)] * case.dy[case.y(y)]);
        close(&dw, &expected, &shape);

        add_bias_gradient(&shape.dy(), &dy, &mut db);
        let mut expected = vec![0.0; case.b.len()];
        case.dy.iter().enumerate().for_each(|(i, dy)| expected[of(i)] += dy);
        close(&db, &expected, &shape);
    }
}
