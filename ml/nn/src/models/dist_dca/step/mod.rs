//! Loss and gradient of a dist-DCA on the CPU, written out by hand over the flat parameter vector.
//!
//! ```text
//!   groups of samples in parallel   encode ─► Z           decode ─► loss ─► backward ─► dZ′      backward ─► dy of all layers
//!   a piece of samples together            Z ─► H ─► Z′                            dZ′ ─► dH ─► dZ           dW of all layers
//! ```
//! The network is [`super::Network`]'s, whose gradient by burn is the reference of the tests. Results do not depend on
//! the number of threads: samples are cut into groups and pieces of fixed size, and every sum runs over them in order.
//! Nothing is allocated once a minibatch of the largest size has gone through.

mod convolutions;
mod group;
mod hidden;
mod phases;
mod shapes;

use super::{Architecture, Measured};
use crate::{kernels::real::Real, parameters::ParameterLayout};
use convolutions::{Convolutions, Gradients, Place, places};
use group::{GROUP, Group};
use hidden::Hidden;
use phases::{Clock, Phase};
use rayon::prelude::*;
pub(super) use shapes::Shapes;

/// Samples that go through together: it bounds memory, to about 0.6 MB a sample at 284 points.
const PIECE: usize = 128;

/// Buffers for training steps of one architecture.
#[derive(Debug)]
pub(super) struct Step<E> {
    shapes: Shapes,
    places: Vec<Place>,
    weights: Convolutions<E>,
    gradients: Gradients<E>,
    hidden: Hidden<E>,
    groups: Vec<Group<E>>,
    /// Z and Z′ of a piece, `[samples, features]`.
    top: Vec<E>,
    decoded_top: Vec<E>,
    losses: Vec<f64>,
    clock: Clock,
    /// Samples of the last call.
    samples: usize,
}

impl<E: Real> Step<E> {
    pub fn new(architecture: &Architecture, layout: &ParameterLayout) -> Self {
        let shapes = Shapes::new(architecture);
        Self {
            places: places(layout),
            weights: Convolutions::new(&shapes),
            gradients: Gradients::new(&shapes),
            hidden: Hidden::default(),
            groups: Vec::new(),
            top: Vec::new(),
            decoded_top: Vec::new(),
            losses: Vec::new(),
            clock: Clock::started(),
            samples: 0,
            shapes,
        }
    }

    /// The loss summed over `series` `[n, time_points]`.
    pub fn loss(&mut self, parameters: &[E], series: &[E]) -> f64 {
        self.start(parameters, series);
        series.chunks(PIECE * self.shapes.time_points).map(|piece| self.forward(parameters, piece)).sum()
    }

    /// As [`Self::loss`]; its gradient replaces `gradient`.
    pub fn gradient(&mut self, parameters: &[E], series: &[E], gradient: &mut [E]) -> f64 {
        self.start(parameters, series);
        self.places.iter().for_each(|place| gradient[place.bias.clone()].fill(E::default()));
        if series.is_empty() {
            gradient.fill(E::default());
        }
        self.gradients.clear();
        self.clock.lap(Phase::Weights);
        let mut sum = 0.0;
        for (i, piece) in series.chunks(PIECE * self.shapes.time_points).enumerate() {
            sum += self.forward(parameters, piece);
            self.backward(parameters, (&mut *gradient, i == 0));
        }
        self.gradients.give(&self.places, gradient);
        self.clock.lap(Phase::Weights);
        sum
    }

    /// Where the time of the last call went.
    pub fn phases(&self) -> Vec<Measured> {
        self.clock.measured(&self.shapes, self.samples)
    }

    fn start(&mut self, parameters: &[E], series: &[E]) {
        self.clock = Clock::started();
        self.samples = series.len() / self.shapes.time_points;
        self.weights.pack(parameters, &self.places);
    }

    /// The loss of a piece; all that [`Self::backward`] needs stays here.
    fn forward(&mut self, parameters: &[E], series: &[E]) -> f64 {
        let Self { shapes, places, weights, hidden, groups, top, decoded_top, losses, clock, .. } = self;
        let (samples, features) = (series.len() / shapes.time_points, shapes.features());
        let layers = shapes.layers();
        groups.resize_with(samples.div_ceil(GROUP).max(groups.len()), || Group::new(shapes));
        groups.iter_mut().for_each(|group| group.samples = 0);
        losses.resize(groups.len(), 0.0);
        top.resize(samples * features, E::default());
        decoded_top.resize(samples * features, E::default());

        let series = || series.par_chunks(GROUP * shapes.time_points);
        let tops = top.par_chunks_mut(GROUP * features);
        groups.par_iter_mut().zip(series()).zip(tops).for_each(|((group, series), top)| {
            group.encode(shapes, weights, series, top);
        });
        clock.lap(Phase::Encoder);
        hidden.encode(shapes, parameters, &places[layers], top);
        hidden.decode(shapes, parameters, &places[layers + 1], decoded_top);
        clock.lap(Phase::Hidden);
        let tops = top.par_chunks(GROUP * features).zip(decoded_top.par_chunks(GROUP * features));
        let groups = groups.par_iter_mut().zip(series()).zip(tops).zip(losses.par_iter_mut());
        let count = samples.div_ceil(GROUP);
        groups.for_each(|(((group, series), (top, decoded)), loss)| {
            group.decode(shapes, weights, decoded);
            let squares = top.iter().zip(decoded).map(|(z, d)| (*z - *d).wide().powi(2));
            *loss = group.signal_loss(shapes, series) + 0.5 * shapes.lambda * squares.sum::<f64>();
        });
        clock.lap(Phase::Decoder);
        losses[..count].iter().sum()
    }

    /// Adds the gradient of what went [`Self::forward`]; the weights of a `fresh` one are not read.
    fn backward(&mut self, parameters: &[E], (gradient, fresh): (&mut [E], bool)) {
        let Self { shapes, places, weights, gradients, hidden, groups, top, decoded_top, clock, .. } = self;
        let (features, layers) = (shapes.features(), shapes.layers());
        let lambda = E::of(shapes.lambda);
        let used = top.len().div_ceil(GROUP * features);
        let groups = &mut groups[..used];

        // From here on `top` holds λ(Z − Z′), and `decoded_top` the gradient of Z′, then that of Z.
        let tops = top.par_chunks_mut(GROUP * features).zip(decoded_top.par_chunks_mut(GROUP * features));
        groups.par_iter_mut().zip(tops).for_each(|(group, (top, decoded))| {
            top.iter_mut().zip(&*decoded).for_each(|(z, d)| *z = lambda * (*z - *d));
            group.decoder_backward(shapes, weights, decoded);
            decoded.iter_mut().zip(top).for_each(|(g, d)| *g = *g - *d);
        });
        clock.lap(Phase::DecoderBackward);
        let between = [places[layers].clone(), places[layers + 1].clone()];
        hidden.backward(shapes, parameters, &between, decoded_top, (&mut *gradient, fresh));
        clock.lap(Phase::HiddenBackward);
        let tops = top.par_chunks(GROUP * features).zip(decoded_top.par_chunks_mut(GROUP * features));
        groups.par_iter_mut().zip(tops).for_each(|(group, (top, decoded))| {
            decoded.iter_mut().zip(top).for_each(|(g, d)| *g += *d);
            group.encoder_backward(shapes, weights, decoded);
        });
        clock.lap(Phase::EncoderBackward);
        gradients.add(shapes, groups, places, gradient);
        clock.lap(Phase::WeightGradients);
    }
}
