//! What the training loop needs of a model: a loss that is a sum over samples, and its gradient.

use crate::parameters::ParameterLayout;
use voxelflow_stage::Result;
use voxelflow_sync::{OptimizerSettings, OptimizerState};

/// A loss over series with respect to one flat parameter vector.
pub trait Objective {
    /// Names and shapes of the parameters.
    fn layout(&self) -> &ParameterLayout;
    /// Parameters to start from.
    fn initial(&self, seed: u64) -> Vec<f32> {
        self.layout().initial(seed)
    }
    /// Points of a series.
    fn time_points(&self) -> usize;
    /// The loss summed over `series`, `[n, time_points]`; its gradient, summed likewise, replaces `gradient`,
    /// `[n_parameters]`.
    ///
    /// # Errors
    /// A vector of the wrong length, or a device that fails.
    fn gradient(&mut self, parameters: &[f32], series: &[f32], gradient: &mut [f32]) -> Result<f64>;
    /// The loss summed over `series`, `[n, time_points]`.
    ///
    /// # Errors
    /// A vector of the wrong length, or a device that fails.
    fn loss(&mut self, parameters: &[f32], series: &[f32]) -> Result<f64>;
    /// Training that stays on the device of this objective, if that can be.
    fn resident(&mut self) -> Option<&mut dyn Resident> {
        None
    }
}

/// Parameters, update rule and its memory on the device that makes the gradient: nothing but minibatches travels to it.
pub trait Resident {
    /// Goes on from `parameters` `[n_parameters]` by the rule of `settings`, with its `memory`; one without vectors is
    /// that of a rule that begins.
    ///
    /// # Errors
    /// Vectors of the wrong length, a rule that the device does not have, a device that fails.
    fn load(
        &mut self,
        parameters: &[f32],
        settings: &OptimizerSettings,
        memory: &OptimizerState,
    ) -> Result<()>;
    /// Room for `n` series, `[n, time_points]`, which the next [`Self::step`] trains on. Waits until there is some.
    ///
    /// # Errors
    /// A device that fails.
    fn room(&mut self, n: usize) -> Result<&mut [f32]>;
    /// One update by the series that are in the room. May return before it is made.
    ///
    /// # Errors
    /// A device that fails.
    fn step(&mut self) -> Result<()>;
    /// Waits for all steps. The loss of each of them since the last call, summed over its series, before its update.
    ///
    /// # Errors
    /// A device that fails.
    fn losses(&mut self) -> Result<Vec<f64>>;
    /// Waits for all steps; puts the parameters into `parameters`, `[n_parameters]`.
    ///
    /// # Errors
    /// A vector of the wrong length, a device that fails.
    fn parameters(&mut self, parameters: &mut [f32]) -> Result<()>;
    /// Replaces the parameters, `[n_parameters]`; the rule's memory stays.
    ///
    /// # Errors
    /// A vector of the wrong length, a device that fails.
    fn set_parameters(&mut self, parameters: &[f32]) -> Result<()>;
    /// Waits for all steps; the rule's memory.
    ///
    /// # Errors
    /// A device that fails.
    fn memory(&mut self) -> Result<OptimizerState>;
}
