//! The training step of a convolutional autoencoder on one card, or on several at once ([`Replicas`]).
//!
//! ```text
//!   minibatch i+1 ─copy stream─► slot ─┐
//!   minibatch i ──────────────────────►│ first conv+pool │ conv │ pool │ … │ Z │ hidden │ Z′ │ … │ last conv, loss │
//!                                      │ backward, the same way back │ sums of parts ‖ update │
//! ```
//! Activations stay on the card as rows `[time][channel]`; convolutions are products over them ([`crate::Conv1d`]). A step
//! is captured once as two graphs and replayed: no host takes part in it but by the copy of the next minibatch, and it learns
//! the loss before the update. Sums run in a fixed order, so that two runs on one card give the same bits.

mod buffers;
mod edges;
mod exchange;
mod hidden;
mod measured;
mod pooling;
mod replicas;
mod rules;
mod shape;
mod shares;
mod spread;
mod step;
mod training;
mod update;

pub use measured::Measured;
pub use replicas::Replicas;
pub use rules::{Rates, Rule};
pub use shape::{Activation, AutoencoderShape};

use crate::{
    Card, Error, Precision, Result,
    memory::{Memory, Values, bytes_of, bytes_of_mut},
};
use buffers::Buffers;
use exchange::Exchange;
use shape::Places;
use spread::Spread;
use std::sync::Arc;
use training::Slots;

/// An autoencoder on a card, with room for so many series at once.
#[derive(Debug)]
pub struct Autoencoder {
    card: Arc<Card>,
    shape: AutoencoderShape,
    precision: Precision,
    samples: usize,
    places: Places,
    buffers: Buffers,
    parameters: Memory,
    /// The parameters in bf16, if products take them so.
    narrow: Option<Memory>,
    spread: Spread,
    gradient: Memory,
    /// What it needs to train with replicas on other cards, if there are some.
    exchange: Option<Exchange>,
    rule: Option<Rule>,
    remembered: Vec<Memory>,
    /// Losses: of training since they were last read, of its last step; the same of passes outside of training.
    totals: Memory,
    map: Memory,
    flat: Memory,
    slots: Slots,
}

impl Autoencoder {
    /// An autoencoder for `samples` series at once, its parameters all zero. [`Replicas`] can be trained.
    ///
    /// Memory: about 1 MB a series at the paper's size in bf16, twice that in float32, and 16 bytes a parameter.
    ///
    /// # Errors
    /// A shape that cannot be; a card without room for it.
    pub fn new(
        card: Arc<Card>,
        shape: &AutoencoderShape,
        precision: Precision,
        samples: usize,
    ) -> Result<Self> {
        Self::replica(card, shape, precision, samples, None, (0, 1))
    }

    /// Replica `number` of `replicas`, with the rule that it trains by.
    fn replica(
        card: Arc<Card>,
        shape: &AutoencoderShape,
        precision: Precision,
        samples: usize,
        rule: Option<Rule>,
        (number, replicas): (usize, usize),
    ) -> Result<Self> {
        shape.check()?;
        let samples = samples.max(1);
        let most = (0..shape.layers()).map(|i| shape.conv(i, samples).padded_rows() * shape.filters[i]).max();
        if most.is_none_or(|n| n >= 1 << 31) {
            let reason = format!(
                "{samples} series at once are too many for the card's kernels; use a smaller minibatch"
            );
            return Err(Error::Shape { what: "an autoencoder", reason });
        }
        let places = Places::of(shape);
        let buffers = Buffers::new(&card, shape, &places, precision, samples)?;
        let float = |len: usize, what: &'static str| Memory::zeros(&card, Values::F32, len, what);
        let narrow = match precision {
            Precision::Bf16 => Some(Memory::zeros(&card, Values::Bf16, places.total, "weights")?),
            Precision::F32 | Precision::Tf32 => None,
        };
        let exchange =
            (replicas > 1).then(|| Exchange::new(&card, number, replicas, places.total)).transpose()?;
        let remembered = (0..rule.map_or(0, Rule::vectors))
            .map(|_| float(places.total, "what the optimizer remembers"))
            .collect::<Result<_>>()?;
        Ok(Self {
            parameters: float(places.total, "parameters")?,
            narrow,
            spread: Spread::new(&card, shape, &places, precision)?,
            gradient: float(places.total, "gradients")?,
            exchange,
            rule,
            remembered,
            totals: Memory::zeros(&card, Values::F64, 4, "losses")?,
            map: Memory::of(&card, Values::U32, bytes_of(&places.map(shape)), "parameters")?,
            flat: float(shape.parameters(), "parameters")?,
            slots: Slots::new(&card, samples * shape.time_points)?,
            shape: shape.clone(),
            precision,
            samples,
            places,
            buffers,
            card,
        })
    }

    /// Its shapes.
    pub fn shape(&self) -> &AutoencoderShape {
        &self.shape
    }

    /// How exact its products are.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Series that it takes at once, at most.
    pub fn samples(&self) -> usize {
        self.samples
    }

    /// The card that it is on.
    pub fn card(&self) -> &Arc<Card> {
        &self.card
    }

    fn check(&self, what: &'static str, found: usize) -> Result<()> {
        let expected = self.shape.parameters();
        if found == expected {
            return Ok(());
        }
        Err(Error::Shape { what, reason: format!("{found} values, {expected} are needed") })
    }

    /// Takes over the flat vector of parameters, in the order of declaration: encoder, to and from the hidden state,
    /// decoder; weights `[filter][channel][tap]` or `[input][output]` before biases.
    ///
    /// # Errors
    /// A vector of another length; a card that fails.
    pub fn set_parameters(&mut self, parameters: &[f32]) -> Result<()> {
        self.check("parameters", parameters.len())?;
        self.flat.write(&self.card, 0, bytes_of(parameters))?;
        self.permute("scatter", &self.flat, &self.parameters)?;
        self.narrow_weights()
    }

    /// The flat vector of parameters, after all steps so far.
    ///
    /// # Errors
    /// As [`Self::set_parameters`].
    pub fn parameters(&self, into: &mut [f32]) -> Result<()> {
        self.check("parameters", into.len())?;
        self.fetch(&self.parameters, into)
    }

    /// Takes over vector `i` of what the rule remembers.
    ///
    /// # Errors
    /// No such vector, or one of another length; a card that fails.
    pub fn set_remembered(&mut self, i: usize, values: &[f32]) -> Result<()> {
        self.check("what an optimizer remembers", values.len())?;
        self.flat.write(&self.card, 0, bytes_of(values))?;
        self.permute("scatter", &self.flat, self.vector(i)?)
    }

    /// Vector `i` of what the rule remembers, after all steps so far.
    ///
    /// # Errors
    /// As [`Self::set_remembered`].
    pub fn remembered(&self, i: usize, into: &mut [f32]) -> Result<()> {
        self.check("what an optimizer remembers", into.len())?;
        self.fetch(self.vector(i)?, into)
    }

    fn vector(&self, i: usize) -> Result<&Memory> {
        let reason =
            || format!("the rule remembers {} vectors, vector {i} was asked for", self.remembered.len());
        self.remembered.get(i).ok_or_else(|| Error::Shape { what: "an optimizer", reason: reason() })
    }

    fn fetch(&self, from: &Memory, into: &mut [f32]) -> Result<()> {
        self.permute("gather", from, &self.flat)?;
        self.flat.read(&self.card, 0, bytes_of_mut(into))
    }

    /// The loss summed over `series` `[n, time_points]`, n at most [`Self::samples`].
    ///
    /// # Errors
    /// Too many series; a card that fails.
    pub fn loss(&mut self, series: &[f32]) -> Result<f64> {
        self.ask_loss(series)?;
        self.last_loss()
    }

    /// Asks for a pass forward over `series`.
    fn ask_loss(&mut self, series: &[f32]) -> Result<()> {
        let (series, control) = self.place(series)?;
        self.forward(series, control, 0)
    }

    /// The decoded series of `series` `[n, time_points]`, to `decoded`.
    ///
    /// # Errors
    /// As [`Self::loss`].
    pub fn decode(&mut self, series: &[f32], decoded: &mut [f32]) -> Result<()> {
        let (at, control) = self.place(series)?;
        let output = Memory::zeros(&self.card, Values::F32, self.samples * self.shape.time_points, "series")?;
        self.forward(at, control, output.at(0))?;
        output.read(&self.card, 0, bytes_of_mut(decoded))
    }

    /// The loss summed over `series`, and its gradient in the order of [`Self::set_parameters`].
    ///
    /// # Errors
    /// As [`Self::loss`].
    pub fn gradient(&mut self, series: &[f32], gradient: &mut [f32]) -> Result<f64> {
        self.ask_gradient(series)?;
        self.last_gradient(gradient)
    }

    /// Asks for a pass forward and backward over `series`.
    fn ask_gradient(&mut self, series: &[f32]) -> Result<()> {
        let (series, control) = self.place(series)?;
        self.forward(series, control, 0)?;
        self.backward(series, control)
    }

    /// Loss and gradient of the pass that was asked for; waits for it.
    fn last_gradient(&self, gradient: &mut [f32]) -> Result<f64> {
        self.check("a gradient", gradient.len())?;
        let loss = self.last_loss()?;
        self.fetch(&self.gradient, gradient)?;
        Ok(loss)
    }

    /// The loss of the pass that was asked for; waits for it.
    fn last_loss(&self) -> Result<f64> {
        self.gather_losses(2)?;
        let mut last = [0f64];
        self.totals.read(&self.card, 3, bytes_of_mut(&mut last))?;
        Ok(last[0])
    }
}
