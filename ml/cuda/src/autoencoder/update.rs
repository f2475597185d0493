//! The end of a step: sums of parts, losses, the update, and the weights as the next products take them.

use super::Autoencoder;
use crate::{
    Result,
    launch::Launch,
    memory::{Memory, Values},
};

const THREADS: usize = 256;

impl Autoencoder {
    /// Sums the parts of the gradient.
    pub(super) fn gather(&self) -> Result<()> {
        let launch = Launch::of(&self.card, "gather_gradient")
            .pointer(self.buffers.segments.at(0))
            .pointer(self.gradient.at(0));
        unsafe { launch.run([1024, self.buffers.segment_count, 1], [32, 8], 0) }
    }

    /// Sums the losses of the pass, and adds them to the total `to`.
    pub(super) fn gather_losses(&self, to: usize) -> Result<()> {
        let launch = Launch::of(&self.card, "gather_losses")
            .pointer(self.buffers.losses.at(0))
            .int(self.buffers.losses.len())
            .pointer(self.totals.at(to));
        unsafe { launch.run([1, 1, 1], [256, 1], 0) }
    }

    /// One step of the rule with the sum of all replicas' gradients, and the weights as the next products take them.
    pub(super) fn update(&self, control: u64) -> Result<()> {
        let Some(rule) = self.rule else { return Ok(()) };
        let peers = self.exchange.as_ref().map_or((0, 0, 0), |e| (e.received(), e.before, e.peers));
        let memory = |i: usize| self.remembered.get(i).map_or(0, |m: &Memory| m.at(0));
        let launch = Launch::of(&self.card, "update")
            .int(rule as usize)
            .pointer(self.parameters.at(0))
            .pointer(self.gradient.at(0))
            .pointer(peers.0)
            .int(peers.1)
            .int(peers.2)
            .pointer(memory(0))
            .pointer(memory(1))
            .pointer(self.narrow.as_ref().map_or(0, |m| m.at(0)))
            .int(self.places.total)
            .pointer(control);
        unsafe { launch.run([self.places.total.div_ceil(4 * THREADS), 1, 1], [THREADS, 1], 0)? };
        self.spread_weights()
    }

    /// bf16 of all weights, after they came from outside.
    pub(super) fn narrow_weights(&self) -> Result<()> {
        if let Some(narrow) = &self.narrow {
            let launch = Launch::of(&self.card, "copy_bf16")
                .pointer(self.parameters.at(0))
                .pointer(narrow.at(0))
                .int(self.places.total);
            unsafe { launch.run([self.places.total.div_ceil(4 * THREADS), 1, 1], [THREADS, 1], 0)? };
        }
        self.spread_weights()
    }

    fn spread_weights(&self) -> Result<()> {
        let kernel = format!("spread_weights1_{}", self.precision.values().suffix());
        let launch = Launch::of(&self.card, kernel)
            .pointer(self.spread.table.at(0))
            .pointer(self.parameters.at(0))
            .pointer(self.spread.weights.at(0));
        unsafe { launch.run([128, self.spread.count, 1], [THREADS, 1], 0) }
    }

    /// Between the order of files and that of the card: `scatter` or `gather`.
    pub(super) fn permute(&self, kernel: &'static str, from: &Memory, to: &Memory) -> Result<()> {
        debug_assert_eq!((from.kind(), to.kind()), (Values::F32, Values::F32));
        let n = self.map.len();
        let launch = Launch::of(&self.card, kernel)
            .pointer(from.at(0))
            .pointer(self.map.at(0))
            .pointer(to.at(0))
            .int(n);
        unsafe { launch.run([n.div_ceil(THREADS), 1, 1], [THREADS, 1], 0) }
    }
}
