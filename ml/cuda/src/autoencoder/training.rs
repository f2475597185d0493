//! Training on the card: minibatches come by a stream of their own, a step is one graph, and losses are read when asked
//! for.

use super::Autoencoder;
use crate::{
    Card, Error, Result,
    error::During,
    memory::{Memory, Values, bytes_of, bytes_of_mut},
    pinned::Pinned,
};
use cudarc::driver::{
    CudaEvent, CudaGraph, result,
    sys::{CUgraphInstantiate_flags, CUstreamCaptureMode},
};

/// An update rule, with the formulas of `voxelflow-sync`; kernels number it so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// `G += g²; w −= γ·g/(√G + ε)`; it remembers G.
    Adagrad = 0,
    /// `w −= γ·g`.
    Sgd = 1,
    /// `v = μ·v + g; w −= γ·v`; it remembers v.
    Momentum = 2,
    /// `v = μ·v + g; w −= γ·(g + μ·v)`; it remembers v.
    Nesterov = 3,
    /// `m = β₁m + (1−β₁)g; v = β₂v + (1−β₂)g²; w −= γ·m̂/(√v̂ + ε)`; it remembers m and v. μ is β₁.
    Adam = 4,
}

impl Rule {
    /// Vectors that it remembers, each as long as the parameters.
    pub fn vectors(self) -> usize {
        match self {
            Self::Sgd => 0,
            Self::Adagrad | Self::Momentum | Self::Nesterov => 1,
            Self::Adam => 2,
        }
    }
}

/// The numbers of one step of a rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// γ.
    pub learning_rate: f32,
    /// ε.
    pub epsilon: f32,
    /// μ, or Adam's β₁.
    pub momentum: f32,
    /// Adam's β₂.
    pub beta_2: f32,
    /// The rule takes the mean of the samples' gradients; if false, their sum.
    pub mean: bool,
    /// The number of the step, from 1: Adam's corrections.
    pub step: u64,
}

/// 32-bit words of the kernels' `Control`.
const CONTROL: usize = 8;

impl Rates {
    /// The kernels' `Control` for a minibatch of `samples`.
    fn control(&self, samples: usize) -> [f32; CONTROL] {
        // As voxelflow-sync has it: powers close to 1 are taken in f64.
        let power = i32::try_from(self.step).unwrap_or(i32::MAX);
        let first = 1.0 - f64::from(self.momentum).powi(power);
        let second = 1.0 - f64::from(self.beta_2).powi(power);
        [
            f32::from_bits(samples as u32),
            if self.mean { samples as f32 } else { 1.0 },
            self.learning_rate,
            self.epsilon,
            self.momentum,
            self.beta_2,
            (f64::from(self.learning_rate) / first) as f32,
            second.sqrt() as f32,
        ]
    }
}

/// The control of passes that update nothing.
const NO_RATES: Rates =
    Rates { learning_rate: 0.0, epsilon: 0.0, momentum: 0.0, beta_2: 0.0, mean: false, step: 1 };

/// A graph, which one thread uses at a time.
struct Graph(CudaGraph);

// SAFETY: it is only launched through `&mut Autoencoder`.
unsafe impl Send for Graph {}

impl std::fmt::Debug for Graph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Graph")
    }
}

/// A minibatch on its way: `[samples, time_points]` and the step's control behind it, on both sides.
#[derive(Debug)]
struct Slot {
    host: Pinned,
    device: Memory,
    copied: CudaEvent,
    used: CudaEvent,
    graph: Option<Graph>,
}

impl Slot {
    fn new(card: &Card, values: usize) -> Result<Self> {
        let event = || card.context().new_event(None).during("an event");
        Ok(Self {
            host: Pinned::new(card, values + CONTROL)?,
            device: Memory::zeros(card, Values::F32, values + CONTROL, "minibatches")?,
            copied: event()?,
            used: event()?,
            graph: None,
        })
    }
}

/// Minibatches on their way: one computes while the next is copied and the one after it is filled.
const SLOTS: usize = 3;

#[derive(Debug)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    /// The one that is filled next.
    next: usize,
    /// For passes outside of training.
    aside: Memory,
    values: usize,
}

impl Slots {
    pub fn new(card: &Card, values: usize) -> Result<Self> {
        let slots = (0..SLOTS).map(|_| Slot::new(card, values)).collect::<Result<_>>()?;
        let aside = Memory::zeros(card, Values::F32, values + CONTROL, "minibatches")?;
        Ok(Self { slots, next: 0, aside, values })
    }
}

impl Autoencoder {
    fn samples_of(&self, values: usize) -> Result<usize> {
        let time_points = self.shape.time_points;
        let samples = values / time_points;
        if !values.is_multiple_of(time_points) || samples > self.samples {
            let reason =
                format!("{values} values are not at most {} series of {time_points} points", self.samples);
            return Err(Error::Shape { what: "a minibatch", reason });
        }
        Ok(samples)
    }

    /// Puts series where a pass outside of training finds them: the addresses of series and control.
    pub(super) fn place(&mut self, series: &[f32]) -> Result<(u64, u64)> {
        let samples = self.samples_of(series.len())?;
        let control = NO_RATES.control(samples);
        let values = self.slots.values;
        self.slots.aside.write(&self.card, 0, bytes_of(series))?;
        self.slots.aside.write(&self.card, values, bytes_of(&control))?;
        Ok((self.slots.aside.at(0), self.slots.aside.at(values)))
    }

    /// Where the next minibatch is to be written, `[samples, time_points]` at most: memory that the card reads by itself.
    /// Waits until the card has read what was there before.
    ///
    /// # Errors
    /// A card that fails.
    pub fn minibatch(&mut self) -> Result<&mut [f32]> {
        let (next, values) = (self.slots.next, self.slots.values);
        let slot = &mut self.slots.slots[next];
        slot.copied.synchronize().during("a minibatch's copy")?;
        Ok(&mut slot.host.values_mut()[..values])
    }

    /// Trains on the first `samples` series of what was written to [`Self::minibatch`]: one step. It returns at once;
    /// what fails shows later.
    ///
    /// # Errors
    /// No rule, too many samples, a card that fails.
    pub fn train(&mut self, samples: usize, rates: &Rates) -> Result<()> {
        if self.rule.is_none() || samples > self.samples {
            let reason = format!("{samples} samples, {} at most, and a rule is needed", self.samples);
            return Err(Error::Shape { what: "a training step", reason });
        }
        self.capture()?;
        let (card, values) = (self.card.clone(), self.slots.values);
        let slot = &mut self.slots.slots[self.slots.next];
        slot.host.values_mut()[values..].copy_from_slice(&rates.control(samples));
        card.copies().wait(&slot.used).during("a minibatch's copy")?;
        // What counts, then the control behind the whole slot.
        let host = slot.host.values();
        for run in [0..samples * self.shape.time_points, values..values + CONTROL] {
            // SAFETY: the host's buffer is pinned and stays as it is until `copied`; the slot is free since `used`.
            unsafe {
                result::memcpy_htod_async(slot.device.at(run.start), &host[run], card.copies().cu_stream())
            }
            .during("a minibatch's copy")?;
        }
        slot.copied.record(card.copies()).during("a minibatch's copy")?;
        card.stream().wait(&slot.copied).during("a training step")?;
        if let Some(graph) = &slot.graph {
            graph.0.launch().during("a training step")?;
        }
        slot.used.record(card.stream()).during("a training step")?;
        self.slots.next = (self.slots.next + 1) % SLOTS;
        Ok(())
    }

    /// One graph for each slot, once. A pass without samples comes first, in which cuBLAS loads what it needs.
    fn capture(&mut self) -> Result<()> {
        if self.slots.slots.iter().all(|slot| slot.graph.is_some()) {
            return Ok(());
        }
        let (series, control) = self.place(&[])?;
        self.step(series, control)?;
        let stream = self.card.stream().clone();
        for i in 0..SLOTS {
            let device = &self.slots.slots[i].device;
            let (series, control) = (device.at(0), device.at(self.slots.values));
            let what = "capturing a training step";
            stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).during(what)?;
            let asked = self.step(series, control);
            // Ends the capture in any case.
            let graph = stream.end_capture(CUgraphInstantiate_flags(0)).during(what);
            asked?;
            let graph = graph?.ok_or_else(|| Error::failed(what, "the graph is empty"))?;
            graph.upload().during(what)?;
            self.slots.slots[i].graph = Some(Graph(graph));
        }
        self.card.wait()
    }

    fn step(&self, series: u64, control: u64) -> Result<()> {
        self.forward(series, control, 0)?;
        self.backward(series, control)?;
        self.gather_losses(0)?;
        self.update(control)
    }

    /// The losses of all steps since this was last called, summed over their samples; waits for them.
    ///
    /// # Errors
    /// A card that failed in one of these steps.
    pub fn take_losses(&mut self) -> Result<f64> {
        let mut sum = [0f64];
        self.totals.read(&self.card, 0, bytes_of_mut(&mut sum))?;
        self.totals.write(&self.card, 0, bytes_of(&[0f64]))?;
        Ok(sum[0])
    }

    /// The loss of the last step, summed over its samples; waits for it.
    ///
    /// # Errors
    /// A card that failed in one of the steps so far.
    pub fn step_loss(&self) -> Result<f64> {
        let mut last = [0f64];
        self.totals.read(&self.card, 1, bytes_of_mut(&mut last))?;
        Ok(last[0])
    }

    /// Series and control of the last pass outside of training.
    pub(super) fn aside(&self) -> (u64, u64) {
        (self.slots.aside.at(0), self.slots.aside.at(self.slots.values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_holds_what_the_kernels_expect() {
        let rates =
            Rates { learning_rate: 0.1, epsilon: 1e-8, momentum: 0.9, beta_2: 0.999, mean: true, step: 2 };
        let control = rates.control(1600);
        assert_eq!(control[0].to_bits(), 1600);
        assert_eq!(control[1..6], [1600.0, 0.1, 1e-8, 0.9, 0.999]);
        assert!((control[6] - 0.1 / 0.19).abs() < 1e-6, "{control:?}");
        assert!((control[7] - 0.001_999_f32.sqrt()).abs() < 1e-5, "{control:?}");
        assert_eq!(Rates { mean: false, ..rates }.control(5)[1], 1.0);
    }
}
