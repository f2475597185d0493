//! Gradients between the cards of a host.
//!
//! ```text
//!   card 0   forward, backward to the hidden layers │ rest of backward │            │ update │
//!                                                   ├─ hidden weights ─┼─ the rest ─┤
//!   card 1   forward, backward to the hidden layers │ rest of backward │            │ update │
//! ```
//! Every card copies the gradients of all others to memory of its own and applies the rule to their sum, added up in the
//! order of the cards: replicas stay the same to the bit, and nothing waits for the host. The hidden layers' weights, which
//! are most of a gradient (87 % at the paper's size), travel while the rest is computed.
//!
//! A card receives the whole gradient once from every other (24 MB each at the paper's size), which suits the two to eight
//! cards of a host that are connected directly. Where they are not, the driver copies by the host's memory.

use super::{Autoencoder, Measured, replicas::Replicas, shape::Run};
use crate::{
    Card, Result,
    error::During,
    memory::{Memory, Values},
};
use cudarc::driver::{CudaEvent, CudaStream, result};
use std::{sync::Arc, time::Instant};

/// What a replica needs to share gradients with the others.
#[derive(Debug)]
pub(super) struct Exchange {
    /// Copies that go on while the card computes.
    stream: Arc<CudaStream>,
    /// The gradients of the others, in their order, `[peers, values]`.
    received: Memory,
    /// Replicas before this one, and all others.
    pub before: usize,
    pub peers: usize,
    /// The gradients of the hidden layers' weights are there.
    hidden: CudaEvent,
    /// Those of the others' hidden layers are here.
    arrived: CudaEvent,
}

impl Exchange {
    /// For replica `number` of `replicas` with so many values each.
    pub fn new(card: &Card, number: usize, replicas: usize, values: usize) -> Result<Self> {
        let peers = replicas - 1;
        Ok(Self {
            stream: card.context().new_stream().during("a stream")?,
            received: Memory::zeros(card, Values::F32, peers * values, "gradients")?,
            before: number,
            peers,
            hidden: card.event()?,
            arrived: card.event()?,
        })
    }

    /// Waits for the copies that it asked for.
    pub fn wait(&self) -> Result<()> {
        self.stream.synchronize().during("copies of gradients")
    }

    /// What is recorded when the gradients of the hidden layers' weights are there.
    pub fn hidden(&self) -> &CudaEvent {
        &self.hidden
    }

    /// The gradients of the others.
    pub fn received(&self) -> u64 {
        self.received.at(0)
    }
}

/// The runs of a gradient of `total` values that are there as soon as the hidden layers have been differentiated, and
/// the rest.
fn runs(hidden: [Run; 2], total: usize) -> [Vec<Run>; 2] {
    let mut at = 0;
    let mut rest = Vec::new();
    for next in hidden.iter().copied().chain([Run { at: total, len: 0 }]) {
        if next.at > at {
            rest.push(Run { at, len: next.at - at });
        }
        at = next.at + next.len;
    }
    [hidden.to_vec(), rest]
}

impl Replicas {
    /// One step of every replica with slot `slot` (the last was with `last`), whose minibatches are on their way.
    pub(super) fn step(&self, slot: usize, last: usize) -> Result<()> {
        let what = "a training step";
        for (i, one) in self.replicas.iter().enumerate() {
            // Until then the others copy what is overwritten here.
            for (_, peer) in self.peers(i) {
                one.card.stream().wait(peer.used(last)).during(what)?;
            }
            one.differentiate(slot)?;
        }
        for (i, one) in self.replicas.iter().enumerate() {
            self.exchange(i, last)?;
            one.end(slot)?;
        }
        Ok(())
    }

    /// All replicas but `i`, each with its place among them.
    fn peers(&self, i: usize) -> impl Iterator<Item = (usize, &Autoencoder)> {
        self.replicas.iter().enumerate().filter(move |(p, _)| *p != i).map(|(_, peer)| peer).enumerate()
    }

    /// How long the gradients take alone, all cards at once, the mean of `repetitions`; bytes are those that a card
    /// receives. None for a lone replica.
    ///
    /// # Errors
    /// A card that fails.
    pub fn measure_exchange(&mut self, repetitions: usize) -> Result<Option<Measured>> {
        let Some(exchange) = &self.replicas[0].exchange else { return Ok(None) };
        let bytes = (exchange.peers * self.replicas[0].places.total * size_of::<f32>()) as f64;
        let all = |times: usize| -> Result<f64> {
            let clock = Instant::now();
            for _ in 0..times {
                (0..self.replicas.len()).try_for_each(|i| self.exchange(i, 0))?;
            }
            self.replicas.iter().try_for_each(Autoencoder::wait)?;
            Ok(clock.elapsed().as_secs_f64())
        };
        all(2)?;
        let seconds = all(repetitions.max(1))? / repetitions.max(1) as f64;
        Ok(Some(Measured { name: "exchange of gradients".into(), operations: 0.0, bytes, seconds }))
    }

    /// Copies the gradients of all others to replica `i`: what comes next on its stream finds them.
    pub(super) fn exchange(&self, i: usize, last: usize) -> Result<()> {
        let what = "copies of gradients";
        let one = &self.replicas[i];
        let Some(exchange) = &one.exchange else { return Ok(()) };
        let total = one.places.total;
        let [hidden, rest] = runs([one.places.to_hidden.weight, one.places.from_hidden.weight], total);
        let copy = |stream: &CudaStream, place: usize, peer: &Autoencoder, runs: &[Run]| {
            for run in runs {
                // SAFETY: both buffers have these runs. The other's gradient stays as it is until the end of this step
                // is recorded, and what was received before has been used when that of the last step was.
                unsafe {
                    result::memcpy_peer_async(
                        one.card.context().cu_ctx(),
                        exchange.received.at(place * total + run.at),
                        peer.card.context().cu_ctx(),
                        peer.gradient.at(run.at),
                        run.len * size_of::<f32>(),
                        stream.cu_stream(),
                    )
                }
                .during(what)?;
            }
            Ok(())
        };
        one.card.context().bind_to_thread().during(what)?;
        exchange.stream.wait(one.used(last)).during(what)?;
        for (place, peer) in self.peers(i) {
            if let Some(theirs) = &peer.exchange {
                exchange.stream.wait(&theirs.hidden).during(what)?;
                copy(&exchange.stream, place, peer, &hidden)?;
            }
        }
        exchange.arrived.record(&exchange.stream).during(what)?;
        let stream = one.card.stream();
        for (place, peer) in self.peers(i) {
            stream.wait(peer.known()).during(what)?;
            copy(stream, place, peer, &rest)?;
        }
        stream.wait(&exchange.arrived).during(what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gradient_travels_whole_and_once() {
        let run = |at, len| Run { at, len };
        let whole = runs([run(64, 128), run(256, 64)], 512);
        assert_eq!(whole[1], [run(0, 64), run(192, 64), run(320, 192)]);
        // Nothing lies before, between or behind.
        assert_eq!(runs([run(0, 64), run(64, 64)], 128), [vec![run(0, 64), run(64, 64)], Vec::new()]);
        for (at, total) in [(0, 500), (10, 500), (10, 260)] {
            let [hidden, rest] = runs([run(at, 100), run(at + 150, 100)], total);
            let mut all: Vec<usize> =
                hidden.iter().chain(&rest).flat_map(|run| run.at..run.at + run.len).collect();
            all.sort_unstable();
            assert_eq!(all, (0..total).collect::<Vec<_>>());
        }
    }
}
