//! An autoencoder that trains on one card, or as replicas on several cards of this host.
//!
//! A minibatch lies in memory that all cards read by themselves, and each takes its share. Several replicas exchange
//! their gradients ([`super::exchange`]) and apply the rule each for itself.

use super::{
    Autoencoder, AutoencoderShape,
    rules::{CONTROL, Rates, Rule},
    shares::shares,
    training::SLOTS,
};
use crate::{Card, Error, Precision, Result, pinned::Pinned};
use std::sync::Arc;

/// Replicas of one autoencoder that train together, the same to the bit: one on each card.
#[derive(Debug)]
pub struct Replicas {
    pub(super) replicas: Vec<Autoencoder>,
    /// Minibatches on their way, `[samples, time_points]`, and the control of every replica behind them.
    host: Vec<Pinned>,
    /// The one that is filled next.
    next: usize,
    /// With how many samples and with which rates it is on its way already.
    sent: Option<(usize, Rates)>,
    samples: usize,
    connected: bool,
}

impl Replicas {
    /// A replica on each of `cards`, for minibatches of at most `samples` series over all of them, its parameters all
    /// zero; with a rule they can be trained. Results depend on how many cards there are, as sums depend on their order,
    /// but not on which. A card may be given twice, which helps nobody but tests.
    ///
    /// Memory of a card: as [`Autoencoder::new`] for its share, 24 bytes a parameter, and 4 bytes a parameter for every
    /// other card.
    ///
    /// # Errors
    /// No cards, or cards of different kinds; a shape that cannot be; a card without room for it.
    pub fn new(
        cards: &[Arc<Card>],
        shape: &AutoencoderShape,
        precision: Precision,
        samples: usize,
        rule: Option<Rule>,
    ) -> Result<Self> {
        let refuse = |reason: String| Err(Error::Shape { what: "an autoencoder", reason });
        let Some(first) = cards.first() else { return refuse("it needs a card".into()) };
        if let Some(other) = cards.iter().find(|card| card.capability() != first.capability()) {
            let (a, b) = (first.describe(), other.describe());
            return refuse(format!(
                "{a} and {b} are cards of different kinds, whose replicas would drift apart; name cards of one kind"
            ));
        }
        let mut connected = true;
        for (reader, owner) in cards.iter().flat_map(|reader| cards.iter().map(move |owner| (reader, owner)))
        {
            connected &= owner.lend_memory(reader)?;
        }
        let samples = samples.max(1);
        let share = samples.div_ceil(cards.len());
        let replica = |(i, card): (usize, &Arc<Card>)| {
            Autoencoder::replica(card.clone(), shape, precision, share, rule, (i, cards.len()))
        };
        let replicas = cards.iter().enumerate().map(replica).collect::<Result<_>>()?;
        let values = samples * shape.time_points + cards.len() * CONTROL;
        let host = (0..SLOTS).map(|_| Pinned::new(first, values)).collect::<Result<_>>()?;
        Ok(Self { replicas, host, next: 0, sent: None, samples, connected })
    }

    /// The replicas, in the order of the cards. All have the same parameters.
    pub fn replicas(&self) -> &[Autoencoder] {
        &self.replicas
    }

    /// True if every card copies from every other without the host.
    pub fn connected(&self) -> bool {
        self.connected
    }

    fn first(&self) -> &Autoencoder {
        &self.replicas[0]
    }

    /// Its shapes.
    pub fn shape(&self) -> &AutoencoderShape {
        self.first().shape()
    }

    /// Series of a minibatch, at most.
    pub fn samples(&self) -> usize {
        self.samples
    }

    /// Takes over the flat vector of parameters, as [`Autoencoder::set_parameters`].
    ///
    /// # Errors
    /// As there.
    pub fn set_parameters(&mut self, parameters: &[f32]) -> Result<()> {
        self.replicas.iter_mut().try_for_each(|one| one.set_parameters(parameters))
    }

    /// The flat vector of parameters, after all steps so far.
    ///
    /// # Errors
    /// As [`Autoencoder::parameters`].
    pub fn parameters(&self, into: &mut [f32]) -> Result<()> {
        self.first().parameters(into)
    }

    /// Takes over vector `i` of what the rule remembers.
    ///
    /// # Errors
    /// As [`Autoencoder::set_remembered`].
    pub fn set_remembered(&mut self, i: usize, values: &[f32]) -> Result<()> {
        self.replicas.iter_mut().try_for_each(|one| one.set_remembered(i, values))
    }

    /// Vector `i` of what the rule remembers, after all steps so far.
    ///
    /// # Errors
    /// As [`Autoencoder::remembered`].
    pub fn remembered(&self, i: usize, into: &mut [f32]) -> Result<()> {
        self.first().remembered(i, into)
    }

    /// The loss summed over `series` `[n, time_points]`, n at most [`Self::samples`]; every card computes its share.
    ///
    /// # Errors
    /// Too many series; a card that fails.
    pub fn loss(&mut self, series: &[f32]) -> Result<f64> {
        let asked = self.ask(series, Autoencoder::ask_loss)?;
        self.replicas[..asked].iter().map(Autoencoder::last_loss).sum()
    }

    /// The loss summed over `series`, and its gradient in the order of [`Self::set_parameters`]; every card computes its
    /// share.
    ///
    /// # Errors
    /// As [`Self::loss`].
    pub fn gradient(&mut self, series: &[f32], gradient: &mut [f32]) -> Result<f64> {
        let asked = self.ask(series, Autoencoder::ask_gradient)?;
        let mut sum = self.first().last_gradient(gradient)?;
        let mut part = vec![0.0; if asked > 1 { gradient.len() } else { 0 }];
        for one in &self.replicas[1..asked] {
            sum += one.last_gradient(&mut part)?;
            gradient.iter_mut().zip(&part).for_each(|(sum, part)| *sum += part);
        }
        Ok(sum)
    }

    /// Asks the replicas for a pass over their shares of `series`: how many have one, and at least one.
    fn ask(&mut self, series: &[f32], pass: fn(&mut Autoencoder, &[f32]) -> Result<()>) -> Result<usize> {
        let time_points = self.shape().time_points;
        let samples = series.len() / time_points;
        if !series.len().is_multiple_of(time_points) || samples > self.samples {
            let (values, most) = (series.len(), self.samples);
            let reason = format!("{values} values are not at most {most} series of {time_points} points");
            return Err(Error::Shape { what: "a minibatch", reason });
        }
        let cards = self.replicas.len();
        let mut asked = 0;
        for (one, share) in self.replicas.iter_mut().zip(shares(samples, cards)) {
            if asked == 0 || !share.is_empty() {
                pass(one, &series[share.start * time_points..share.end * time_points])?;
                asked += 1;
            }
        }
        Ok(asked)
    }

    /// Where the next minibatch is to be written, `[samples, time_points]` at most: memory that the cards read by
    /// themselves. Waits until they have read what was there before.
    ///
    /// # Errors
    /// A card that fails.
    pub fn minibatch(&mut self) -> Result<&mut [f32]> {
        let values = self.samples * self.shape().time_points;
        self.wait_for_copies()?;
        self.sent = None;
        Ok(&mut self.host[self.next].values_mut()[..values])
    }

    fn wait_for_copies(&self) -> Result<()> {
        self.replicas.iter().try_for_each(|one| one.wait_for_copy(self.next))
    }

    /// Brings the first `samples` series of what was written to [`Self::minibatch`] to the cards, for the step that
    /// [`Self::train`] with the same numbers takes: then they travel while the cards are at the step before.
    ///
    /// # Errors
    /// As [`Self::train`].
    pub fn send(&mut self, samples: usize, rates: &Rates) -> Result<()> {
        if self.first().rule.is_none() || samples > self.samples {
            let reason = format!("{samples} samples, {} at most, and a rule is needed", self.samples);
            return Err(Error::Shape { what: "a training step", reason });
        }
        self.wait_for_copies()?;
        let (time_points, cards, slot) = (self.shape().time_points, self.replicas.len(), self.next);
        let (series, controls) = self.host[slot].values_mut().split_at_mut(self.samples * time_points);
        let controls = controls.chunks_exact_mut(CONTROL);
        for ((one, share), control) in self.replicas.iter().zip(shares(samples, cards)).zip(controls) {
            control.copy_from_slice(&rates.control(share.len(), samples));
            let series = &series[share.start * time_points..share.end * time_points];
            // SAFETY: all of it is pinned, and written to after `minibatch` has waited for the copy.
            unsafe { one.bring(slot, series, control)? };
        }
        self.sent = Some((samples, *rates));
        Ok(())
    }

    /// Trains on the first `samples` series of what was written to [`Self::minibatch`]: one step. It returns at once;
    /// what fails shows later.
    ///
    /// # Errors
    /// No rule, too many samples, a card that fails.
    pub fn train(&mut self, samples: usize, rates: &Rates) -> Result<()> {
        if self.sent != Some((samples, *rates)) {
            self.send(samples, rates)?;
        }
        self.replicas.iter_mut().try_for_each(Autoencoder::capture)?;
        self.sent = None;
        let slot = self.next;
        self.next = (slot + 1) % SLOTS;
        self.step(slot, (slot + SLOTS - 1) % SLOTS)
    }

    /// The losses of all steps since this was last called, summed over their samples; waits for them.
    ///
    /// # Errors
    /// A card that failed in one of these steps.
    pub fn take_losses(&mut self) -> Result<f64> {
        self.replicas.iter_mut().map(Autoencoder::take_losses).sum()
    }

    /// The loss of the last step, summed over its samples; waits for it, but not for the step's update.
    ///
    /// # Errors
    /// A card that failed in one of the steps so far.
    pub fn step_loss(&self) -> Result<f64> {
        self.replicas.iter().map(Autoencoder::step_loss).sum()
    }
}

impl Drop for Replicas {
    /// A card may still read what another one frees.
    fn drop(&mut self) {
        for one in &self.replicas {
            let _ = one.wait();
        }
    }
}
