//! Training on one card: a minibatch comes by a stream of its own, and what is asked of the card for a step is captured as
//! graphs once.

use super::{
    Autoencoder,
    rules::{CONTROL, NO_RATES},
};
use crate::{
    Card, Error, Result,
    error::During,
    memory::{Memory, Values, bytes_of, bytes_of_mut},
};
use cudarc::driver::{
    CudaEvent, CudaGraph, result,
    sys::{CUgraphInstantiate_flags, CUstreamCaptureMode},
};

/// A graph, which one thread uses at a time.
struct Graph(CudaGraph);

// SAFETY: it is only launched through `&mut` of what owns the autoencoder.
unsafe impl Send for Graph {}

impl std::fmt::Debug for Graph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Graph")
    }
}

/// A minibatch on the card: `[samples, time_points]` and the step's control behind it.
#[derive(Debug)]
struct Slot {
    device: Memory,
    copied: CudaEvent,
    used: CudaEvent,
    graphs: Vec<Graph>,
}

impl Slot {
    fn new(card: &Card, values: usize) -> Result<Self> {
        Ok(Self {
            device: Memory::zeros(card, Values::F32, values + CONTROL, "minibatches")?,
            copied: card.event()?,
            used: card.event()?,
            graphs: Vec::new(),
        })
    }
}

/// Minibatches on their way: one computes while the next is copied and the one after it is filled.
pub(super) const SLOTS: usize = 3;

#[derive(Debug)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    /// Recorded when losses and gradient of the last step are there, before its update.
    known: CudaEvent,
    /// For passes outside of training.
    aside: Memory,
    values: usize,
}

impl Slots {
    pub fn new(card: &Card, values: usize) -> Result<Self> {
        let slots = (0..SLOTS).map(|_| Slot::new(card, values)).collect::<Result<_>>()?;
        let aside = Memory::zeros(card, Values::F32, values + CONTROL, "minibatches")?;
        Ok(Self { slots, known: card.event()?, aside, values })
    }
}

/// A part of a step, over the series and the control at these addresses.
type Part = fn(&Autoencoder, u64, u64) -> Result<()>;
/// The parts of a step, a graph each, with a cut where somebody waits for what is there: the host for the loss, while the
/// update goes on, and peers for gradients.
const ALONE: [Part; 2] = [Autoencoder::start_to_end, |a, _, control| a.update(control)];
const WITH_PEERS: [Part; 3] =
    [Autoencoder::start_to_hidden, Autoencoder::hidden_to_end, |a, _, control| a.update(control)];

impl Autoencoder {
    pub(super) fn samples_of(&self, values: usize) -> Result<usize> {
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
        let control = NO_RATES.control(samples, samples);
        let values = self.slots.values;
        self.slots.aside.write(&self.card, 0, bytes_of(series))?;
        self.slots.aside.write(&self.card, values, bytes_of(&control))?;
        Ok(self.aside())
    }

    /// Series and control of the last pass outside of training.
    pub(super) fn aside(&self) -> (u64, u64) {
        (self.slots.aside.at(0), self.slots.aside.at(self.slots.values))
    }

    /// Waits until the last minibatch of slot `i` has left the host.
    pub(super) fn wait_for_copy(&self, i: usize) -> Result<()> {
        self.slots.slots[i].copied.synchronize().during("a minibatch's copy")
    }

    /// What is recorded at the end of a step with slot `i`.
    pub(super) fn used(&self, i: usize) -> &CudaEvent {
        &self.slots.slots[i].used
    }

    /// Copies `series` and `control` to slot `i` when its last step is done; its next step finds them.
    ///
    /// # Safety
    /// Both must be pinned, and stay as they are until [`Self::wait_for_copy`] returns.
    pub(super) unsafe fn bring(&self, i: usize, series: &[f32], control: &[f32]) -> Result<()> {
        let (slot, what) = (&self.slots.slots[i], "a minibatch's copy");
        self.card.copies().wait(&slot.used).during(what)?;
        let both = [(0, series), (self.slots.values, control)];
        for (to, from) in both.into_iter().filter(|(_, from)| !from.is_empty()) {
            // SAFETY: the host's values are the caller's; the slot has room for both, and is free since `used`.
            unsafe { result::memcpy_htod_async(slot.device.at(to), from, self.card.copies().cu_stream()) }
                .during(what)?;
        }
        slot.copied.record(self.card.copies()).during(what)
    }

    /// What is recorded when losses and gradient of a step are there.
    pub(super) fn known(&self) -> &CudaEvent {
        &self.slots.known
    }

    fn launch(&self, i: usize, part: usize) -> Result<()> {
        self.slots.slots[i].graphs[part].0.launch().during("a training step")
    }

    /// The step with slot `i` as far as losses and gradient.
    pub(super) fn differentiate(&self, i: usize) -> Result<()> {
        let what = "a training step";
        self.card.stream().wait(&self.slots.slots[i].copied).during(what)?;
        self.launch(i, 0)?;
        if let Some(exchange) = &self.exchange {
            exchange.hidden().record(self.card.stream()).during(what)?;
            self.launch(i, 1)?;
        }
        self.known().record(self.card.stream()).during(what)
    }

    /// The rest of it.
    pub(super) fn end(&self, i: usize) -> Result<()> {
        self.launch(i, if self.exchange.is_some() { 2 } else { 1 })?;
        self.used(i).record(self.card.stream()).during("a training step")
    }

    /// The graphs of each slot, once. A pass without samples comes first, in which cuBLAS loads what it needs.
    pub(super) fn capture(&mut self) -> Result<()> {
        let parts: &[Part] = if self.exchange.is_some() { &WITH_PEERS } else { &ALONE };
        if self.slots.slots.iter().all(|slot| slot.graphs.len() == parts.len()) {
            return Ok(());
        }
        let (series, control) = self.place(&[])?;
        self.start_to_end(series, control)?;
        self.update(control)?;
        for i in 0..SLOTS {
            let device = &self.slots.slots[i].device;
            let (series, control) = (device.at(0), device.at(self.slots.values));
            let graphs = parts.iter().map(|part| self.captured(*part, series, control));
            self.slots.slots[i].graphs = graphs.collect::<Result<_>>()?;
        }
        self.card.wait()
    }

    fn captured(&self, part: Part, series: u64, control: u64) -> Result<Graph> {
        let (stream, what) = (self.card.stream(), "capturing a training step");
        stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).during(what)?;
        let asked = part(self, series, control);
        // Ends the capture in any case.
        let graph = stream.end_capture(CUgraphInstantiate_flags(0)).during(what);
        asked?;
        let graph = graph?.ok_or_else(|| Error::failed(what, "the graph is empty"))?;
        graph.upload().during(what)?;
        Ok(Graph(graph))
    }

    fn start_to_end(&self, series: u64, control: u64) -> Result<()> {
        self.start_to_hidden(series, control)?;
        self.hidden_to_end(series, control)
    }

    /// As far as the gradients of the hidden layers' weights, which are most of all.
    fn start_to_hidden(&self, series: u64, control: u64) -> Result<()> {
        self.forward(series, control, 0)?;
        self.backward_to_hidden(control)
    }

    /// From there to the whole gradient.
    fn hidden_to_end(&self, series: u64, control: u64) -> Result<()> {
        self.backward_from_hidden(series, control)?;
        self.gather_losses(0)
    }

    /// Waits until all that was asked of it is done.
    pub(super) fn wait(&self) -> Result<()> {
        if let Some(exchange) = &self.exchange {
            exchange.wait()?;
        }
        self.card.wait()
    }

    /// As [`super::Replicas::take_losses`], of this one.
    pub(super) fn take_losses(&mut self) -> Result<f64> {
        let mut sum = [0f64];
        self.totals.read(&self.card, 0, bytes_of_mut(&mut sum))?;
        self.totals.write(&self.card, 0, bytes_of(&[0f64]))?;
        Ok(sum[0])
    }

    /// As [`super::Replicas::step_loss`], of this one.
    pub(super) fn step_loss(&self) -> Result<f64> {
        let (mut last, copies, what) = ([0f64], self.card.copies(), "reading a loss");
        copies.wait(self.known()).during(what)?;
        // SAFETY: the value is there, and the copy is waited for before it is used.
        unsafe { result::memcpy_dtoh_async(bytes_of_mut(&mut last), self.totals.at(1), copies.cu_stream()) }
            .during(what)?;
        copies.synchronize().during(what)?;
        Ok(last[0])
    }
}
