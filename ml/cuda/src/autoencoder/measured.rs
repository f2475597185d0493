//! How long the operations of a step take, each alone and repeated, beside what the card can do.

use super::Autoencoder;
use crate::{
    Card, Precision, Result,
    error::During,
    memory::{Memory, Values},
    product::{Operand, Product},
};
use cudarc::driver::sys::CUevent_flags;

/// Something that was timed.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// What.
    pub name: String,
    /// Floating-point operations that its definition needs; zero if it only moves values.
    pub operations: f64,
    /// Bytes that it reads and writes at least.
    pub bytes: f64,
    /// How long it took.
    pub seconds: f64,
}

impl Card {
    /// Seconds that `work` takes on the card, the mean of `repetitions` after two more.
    ///
    /// # Errors
    /// What `work` gives, and a card that fails.
    pub fn time(&self, repetitions: usize, mut work: impl FnMut() -> Result<()>) -> Result<f64> {
        let event = || self.context().new_event(Some(CUevent_flags::CU_EVENT_DEFAULT)).during("an event");
        let (start, end) = (event()?, event()?);
        work()?;
        work()?;
        start.record(self.stream()).during("an event")?;
        for _ in 0..repetitions.max(1) {
            work()?;
        }
        end.record(self.stream()).during("an event")?;
        let milliseconds = start.elapsed_ms(&end).during("an event")?;
        Ok(f64::from(milliseconds) / 1e3 / repetitions.max(1) as f64)
    }

    /// What this card reaches: a product of 8192 × 8192 × 8192 in this precision, and a copy of 1 GiB, with values that
    /// are not zero.
    ///
    /// # Errors
    /// A card without 4 GiB of room, or that fails.
    pub fn ceilings(&self, precision: Precision) -> Result<[Measured; 2]> {
        const N: usize = 8192;
        let pattern: Vec<u32> = (0..(N * N) as u32)
            .map(|i| 0x3f80_3f80 ^ (i.wrapping_mul(2_654_435_761) & 0x007f_807f))
            .collect();
        let bytes = crate::memory::bytes_of(&pattern);
        let kind = precision.values();
        let used = &bytes[..N * N * kind.size()];
        let (a, b) = (Memory::of(self, kind, used, "a ceiling")?, Memory::of(self, kind, used, "a ceiling")?);
        let c = Memory::zeros(self, kind, N * N, "a ceiling")?;
        let plain = Operand { offset: 0, leading: N, stride: 0, transposed: false };
        let product = Product { rows: N, columns: N, inner: N, batches: 1, a: plain, b: plain, c: plain };
        let repetitions = if precision == Precision::F32 { 2 } else { 10 };
        let seconds = self.time(repetitions, || product.run(self, precision, &a, &b, &c))?;
        let of_product = Measured {
            name: format!("product of {N} in {}", precision.name()),
            operations: product.operations(),
            bytes: 3.0 * c.bytes() as f64,
            seconds,
        };
        let from = Memory::zeros(self, Values::U8, 1 << 30, "a ceiling")?;
        let to = Memory::zeros(self, Values::U8, 1 << 30, "a ceiling")?;
        let seconds = self.time(10, || {
            // SAFETY: both are as long.
            let copy = unsafe {
                cudarc::driver::result::memcpy_dtod_async(
                    to.at(0),
                    from.at(0),
                    1 << 30,
                    self.stream().cu_stream(),
                )
            };
            copy.during("a copy")
        })?;
        let of_copy = Measured {
            name: "copy of 1 GiB".into(),
            operations: 0.0,
            bytes: 2.0 * (1u64 << 30) as f64,
            seconds,
        };
        Ok([of_product, of_copy])
    }
}

impl Autoencoder {
    /// Every product of a step alone, and the rest of it together, over what the last pass left.
    ///
    /// # Errors
    /// A card that fails.
    pub fn measure(&self, repetitions: usize) -> Result<Vec<Measured>> {
        let mut rows = Vec::new();
        let last = self.shape.layers() - 1;
        let b = &self.buffers;
        let size = self.precision.values().size();
        let mut add =
            |name: String, operations: f64, bytes: f64, work: &dyn Fn() -> Result<()>| -> Result<()> {
                rows.push(Measured { name, operations, bytes, seconds: self.card.time(repetitions, work)? });
                Ok(())
            };
        let layers = (1..=last)
            .map(|i| {
                let conv = self.shape.conv(i, self.samples);
                let (x, dy, parts) =
                    (&b.encoded[i - 1], &b.encoder_gradients[i - 1], &b.encoder_weights[i - 1]);
                (format!("encoder.{i}"), conv, x, dy, parts, &self.spread.encoder[i - 1])
            })
            .chain((0..last).map(|j| {
                let conv = self.shape.mirrored(last - j, self.samples);
                let (x, dy, parts) = (self.decoder_input(j), &b.decoder_gradients[j], &b.decoder_weights[j]);
                (format!("decoder.{j}"), conv, x, dy, parts, &self.spread.decoder[j])
            }));
        for (name, conv, x, dy, parts, layer) in layers {
            let operations = 2.0 * (conv.weights() * conv.length * conv.samples) as f64;
            let bytes = (conv.samples * conv.length * (conv.channels + conv.filters) * size) as f64;
            let (forward, back) = (layer.forward(&conv), layer.input_gradient(&conv));
            let of_weight = conv.weight_gradient(parts.parts);
            add(format!("{name} forward"), operations, bytes, &|| {
                self.product(&forward, &x.memory, &self.spread.weights, &b.raw)
            })?;
            add(format!("{name} input gradient"), operations, bytes, &|| {
                self.product(&back, &dy.memory, &self.spread.weights, &b.raw)
            })?;
            add(format!("{name} weight gradient"), operations, bytes, &|| {
                self.product(&of_weight, &x.memory, &dy.memory, &parts.memory)
            })?;
        }
        let (series, control) = self.aside();
        let hidden = 2.0 * (self.samples * self.shape.features() * self.shape.hidden) as f64;
        let top = (self.samples * self.shape.features() * size) as f64;
        add("hidden layers forward".into(), 2.0 * hidden, 4.0 * top, &|| self.hidden_forward(control))?;
        add("hidden layers backward".into(), 4.0 * hidden, 8.0 * top, &|| self.hidden_backward(control))?;
        let parameters = (self.places.total * 4) as f64;
        add("sums of parts".into(), 0.0, 0.0, &|| self.gather())?;
        add("update and spread weights".into(), 0.0, 5.5 * parameters, &|| self.update(control))?;
        add("forward, all".into(), 0.0, 0.0, &|| self.forward(series, control, 0))?;
        add("backward, all".into(), 0.0, 0.0, &|| self.backward(series, control))?;
        Ok(rows)
    }
}
