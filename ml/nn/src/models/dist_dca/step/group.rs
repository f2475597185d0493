//! A few samples on their way through the convolutions, forward and back, on one thread.
//!
//! A group keeps the inputs of all convolutions and the gradients of all their outputs: from these the gradients of the
//! weights are summed over all groups afterwards, so that no thread needs sums of its own. Buffers are made once.

use super::{convolutions::Convolutions, shapes::Shapes};
use crate::{
    kernels::{
        conv1d::add_bias_gradient,
        maps::Maps,
        pooling::{max_pool, pick, pooled, repeat, sum_windows, unpool},
        real::Real,
    },
    layers::Activation,
};

/// Samples of a group: enough to share the weights in a near cache, few enough for many threads.
pub(super) const GROUP: usize = 4;

/// What is kept of a convolution.
#[derive(Clone, Debug)]
pub(super) struct Kept<E> {
    /// Its input, padded.
    pub x: Vec<E>,
    /// The gradient of its output before the nonlinearity, padded.
    pub dy: Vec<E>,
    /// The gradient of its bias, summed over the group.
    pub bias: Vec<E>,
    /// Decoder: its output after the nonlinearity.
    y: Vec<E>,
    /// Encoder: of the pooling that follows, if one does.
    switches: Vec<u8>,
}

#[derive(Clone, Debug)]
pub(super) struct Group<E> {
    /// Samples in it, at most [`GROUP`].
    pub samples: usize,
    pub encoder: Vec<Kept<E>>,
    pub decoder: Vec<Kept<E>>,
    /// Z, in panels.
    top: Vec<E>,
    /// The output of a convolution, or the gradient of its input.
    wide: Vec<E>,
    /// A gradient after unpooling was undone.
    narrow: Vec<E>,
}

impl<E: Real> Group<E> {
    pub fn new(shapes: &Shapes) -> Self {
        let zeros = |n: usize| vec![E::default(); n];
        let kept = |shape: &crate::kernels::conv1d::Conv1dShape, y: usize, switches: usize| Kept {
            x: zeros(GROUP * shape.x().len()),
            dy: zeros(GROUP * shape.dy().len()),
            bias: zeros(shape.output.channels),
            y: zeros(GROUP * y),
            switches: vec![0; GROUP * switches],
        };
        let encoder = shapes.encoder.iter().enumerate().map(|(i, shape)| {
            let switches = if i < shapes.pools { pooled(&shape.y(), shapes.window).len() } else { 0 };
            kept(shape, 0, switches)
        });
        let all = || shapes.encoder.iter().chain(&shapes.decoder);
        let widest = all().map(|shape| shape.y().len().max(shape.dx().len())).max().unwrap_or_default();
        Self {
            samples: 0,
            encoder: encoder.collect(),
            decoder: shapes.decoder.iter().map(|shape| kept(shape, shape.y().len(), 0)).collect(),
            top: zeros(GROUP * shapes.top.len()),
            wide: zeros(GROUP * widest),
            narrow: zeros(GROUP * widest),
        }
    }

    /// `series` `[samples, time_points]` → Z in `top` `[samples, features]`.
    pub fn encode(&mut self, shapes: &Shapes, weights: &Convolutions<E>, series: &[E], top: &mut [E]) {
        let n = series.len() / shapes.time_points;
        self.samples = n;
        let first = shapes.encoder[0].x();
        let samples = self.encoder[0].x.chunks_exact_mut(first.len()).zip(series.chunks_exact(first.length));
        samples.for_each(|(x, series)| first.take(series, x));
        for (i, shape) in shapes.encoder.iter().enumerate() {
            let (maps, to) = (shape.y(), shapes.encoded(i));
            let (done, rest) = self.encoder.split_at_mut(i + 1);
            let kept = &mut done[i];
            let y = &mut self.wide[..n * maps.len()];
            weights.encoder[i].apply(&kept.x[..n * shape.x().len()], y, maps.length);
            activate(shapes.activation, y);
            let next = rest.first_mut().map_or(&mut self.top, |next| &mut next.x);
            let samples = y.chunks_exact(maps.len()).zip(next.chunks_exact_mut(to.len()));
            if i < shapes.pools {
                let switches = kept.switches.chunks_exact_mut(pooled(&maps, shapes.window).len());
                samples.zip(switches).for_each(|((y, to_values), switches)| {
                    max_pool(shapes.window, (&maps, y), (&to, to_values), switches);
                });
            } else {
                samples.for_each(|(y, to_values)| copy((&maps, y), (&to, to_values)));
            }
        }
        let samples = self.top.chunks_exact(shapes.top.len()).zip(top.chunks_exact_mut(shapes.features()));
        samples.for_each(|(maps, top)| shapes.top.give(maps, top));
    }

    /// Z′ `[samples, features]` → the series, which stay in the last layer; by the switches of [`Self::encode`] or by
    /// repetition, as the network is configured.
    pub fn decode(&mut self, shapes: &Shapes, weights: &Convolutions<E>, top: &[E]) {
        let n = self.samples;
        let samples = self.narrow.chunks_exact_mut(shapes.top.len()).zip(top.chunks_exact(shapes.features()));
        samples.for_each(|(maps, top)| shapes.top.take(top, maps));
        for (j, shape) in shapes.decoder.iter().enumerate() {
            let (from, to, mirrored) = (shapes.before_decoder(j), shape.x(), shapes.mirrored(j));
            let (done, rest) = self.decoder.split_at_mut(j);
            let before = done.last().map_or(&self.narrow, |before| &before.y);
            let Some(kept) = rest.first_mut() else { return };
            let samples = before.chunks_exact(from.len()).zip(kept.x.chunks_exact_mut(to.len())).take(n);
            if mirrored >= shapes.pools {
                samples.for_each(|(x, y)| copy((&from, x), (&to, y)));
            } else if shapes.switches {
                let switches = self.encoder[mirrored].switches.chunks_exact(from.len());
                samples.zip(switches).for_each(|((x, y), s)| unpool(shapes.window, (&from, x), s, (&to, y)));
            } else {
                samples.for_each(|(x, y)| repeat(shapes.window, (&from, x), (&to, y)));
            }
            let y = &mut kept.y[..n * shape.y().len()];
            weights.decoder[j].apply(&kept.x[..n * to.len()], y, shape.length);
            if mirrored > 0 {
                activate(shapes.activation, y);
            }
        }
    }

    /// `½‖series − what was decoded‖²`, and its gradient for [`Self::decoder_backward`].
    pub fn signal_loss(&mut self, shapes: &Shapes, series: &[E]) -> f64 {
        let Some((kept, shape)) = self.decoder.last_mut().zip(shapes.decoder.last()) else { return 0.0 };
        let maps = shape.dy();
        let mut sum = 0.0;
        let samples = kept.dy.chunks_exact_mut(maps.len()).zip(kept.y.chunks_exact(shapes.time_points));
        for ((dy, y), x) in samples.zip(series.chunks_exact(shapes.time_points)) {
            for ((dy, y), x) in maps.points_mut(dy).flatten().zip(y).zip(x) {
                *dy = *y - *x;
                sum += dy.wide() * dy.wide();
            }
        }
        0.5 * sum
    }

    /// From the gradient of the series to that of Z′, `[samples, features]`.
    pub fn decoder_backward(&mut self, shapes: &Shapes, weights: &Convolutions<E>, top: &mut [E]) {
        let n = self.samples;
        for (j, shape) in shapes.decoder.iter().enumerate().rev() {
            let (maps, dx_maps, mirrored) = (shape.dy(), shape.dx(), shapes.mirrored(j));
            let (before, rest) = self.decoder.split_at_mut(j);
            let Some(kept) = rest.first_mut() else { return };
            let dy = &kept.dy[..n * maps.len()];
            kept.bias.fill(E::default());
            add_bias_gradient(&maps, dy, &mut kept.bias);
            let dx = &mut self.wide[..n * dx_maps.len()];
            weights.decoder_backward[j].apply(dy, dx, shape.length);
            // The gradient of the output before, or of Z′.
            let (to, y, values) = match (before.last_mut(), j.checked_sub(1)) {
                (Some(before), Some(b)) => (shapes.decoder[b].dy(), Some(&before.y), &mut before.dy),
                _ => (shapes.top, None, &mut self.narrow),
            };
            let samples = dx.chunks_exact(dx_maps.len()).zip(values.chunks_exact_mut(to.len()));
            if mirrored >= shapes.pools {
                samples.for_each(|(dx, values)| copy((&dx_maps, dx), (&to, values)));
            } else if shapes.switches {
                let one = shapes.before_decoder(j).len();
                let switches = self.encoder[mirrored].switches.chunks_exact(one);
                samples.zip(switches).for_each(|((dx, values), switches)| {
                    pick(shapes.window, (&dx_maps, dx), switches, (&to, values));
                });
            } else {
                samples.for_each(|(dx, values)| sum_windows(shapes.window, (&dx_maps, dx), (&to, values)));
            }
            if let Some(y) = y {
                let maps = shapes.before_decoder(j);
                let samples = values.chunks_exact_mut(to.len()).zip(y.chunks_exact(maps.len())).take(n);
                samples.for_each(|(dy, y)| multiply_by_slope(shapes.activation, (&to, dy), (&maps, y)));
            }
        }
        let samples = self.narrow.chunks_exact(shapes.top.len()).zip(top.chunks_exact_mut(shapes.features()));
        samples.for_each(|(maps, top)| shapes.top.give(maps, top));
    }

    /// From the gradient of Z, `[samples, features]`, to those of all the encoder's layers.
    pub fn encoder_backward(&mut self, shapes: &Shapes, weights: &Convolutions<E>, top: &[E]) {
        let n = self.samples;
        let samples = self.wide.chunks_exact_mut(shapes.top.len()).zip(top.chunks_exact(shapes.features()));
        samples.for_each(|(maps, top)| shapes.top.take(top, maps));
        for (i, shape) in shapes.encoder.iter().enumerate().rev() {
            let (to, after) = (shape.dy(), shapes.encoded(i));
            let from = if i < shapes.pools { pooled(&shape.y(), shapes.window) } else { shape.y() };
            let (done, rest) = self.encoder.split_at_mut(i + 1);
            let kept = &mut done[i];
            let values = rest.first().map_or(&self.top, |next| &next.x);
            let gradients = self.wide.chunks_exact_mut(from.len()).zip(values.chunks_exact(after.len()));
            for ((gradient, values), (s, dy)) in
                gradients.zip(kept.dy.chunks_exact_mut(to.len()).enumerate()).take(n)
            {
                multiply_by_slope(shapes.activation, (&from, gradient), (&after, values));
                if i < shapes.pools {
                    let switches = &kept.switches[s * from.len()..][..from.len()];
                    unpool(shapes.window, (&from, gradient), switches, (&to, dy));
                } else {
                    copy((&from, gradient), (&to, dy));
                }
            }
            let dy = &kept.dy[..n * to.len()];
            kept.bias.fill(E::default());
            add_bias_gradient(&to, dy, &mut kept.bias);
            if let Some(filters) = &weights.encoder_backward[i] {
                filters.apply(dy, &mut self.wide[..n * shape.dx().len()], shape.length);
            }
        }
    }
}

fn copy<E: Real>((from, x): (&Maps, &[E]), (to, y): (&Maps, &mut [E])) {
    from.points(x).zip(to.points_mut(y)).for_each(|(x, y)| y.copy_from_slice(x));
}

/// The nonlinearity, in place.
fn activate<E: Real>(activation: Activation, values: &mut [E]) {
    let (zero, small) = (E::default(), E::of(0.01));
    match activation {
        Activation::Relu => values.iter_mut().for_each(|v| *v = if *v > zero { *v } else { zero }),
        Activation::LeakyRelu => values.iter_mut().for_each(|v| *v = if *v > zero { *v } else { small * *v }),
        Activation::Tanh => values.iter_mut().for_each(|v| *v = v.tanh()),
        Activation::Linear => {}
    }
}

/// The gradient of an output `y` of the nonlinearity becomes that of its input.
fn multiply_by_slope<E: Real>(
    activation: Activation,
    (to, gradient): (&Maps, &mut [E]),
    (maps, y): (&Maps, &[E]),
) {
    let (zero, small) = (E::default(), E::of(0.01));
    for (gradient, y) in to.points_mut(gradient).zip(maps.points(y)) {
        let both = gradient.iter_mut().zip(y);
        match activation {
            Activation::Relu => both.for_each(|(g, y)| *g = if *y > zero { *g } else { zero }),
            Activation::LeakyRelu => both.for_each(|(g, y)| *g = if *y > zero { *g } else { small * *g }),
            Activation::Tanh => both.for_each(|(g, y)| *g = *g * (E::of(1.0) - *y * *y)),
            Activation::Linear => {}
        }
    }
}
