//! What the training loop needs of a model: a loss that is a sum over samples, and its gradient.

use crate::parameters::ParameterLayout;
use voxelflow_stage::Result;
use voxelflow_sync::OptimizerState;

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
    /// The same loss where parameters stay on a device and are updated there, if there is such a place: what a rank
    /// without peers trains by.
    fn resident(&mut self) -> Option<&mut dyn Resident> {
        None
    }
}

/// Training on a device that keeps the parameters and what the optimizer remembers; they come back when they are asked
/// for. The update rule is that of the gang's settings.
pub trait Resident {
    /// Begins with these parameters and this memory; none: a fresh one.
    ///
    /// # Errors
    /// Vectors of the wrong length, or of another rule; a device that fails.
    fn load(&mut self, parameters: &[f32], optimizer: Option<&OptimizerState>) -> Result<()>;
    /// The parameters after all steps so far, `[n_parameters]`.
    ///
    /// # Errors
    /// A device that fails.
    fn parameters(&mut self, into: &mut [f32]) -> Result<()>;
    /// The optimizer's memory after all steps so far.
    ///
    /// # Errors
    /// A device that fails.
    fn optimizer_state(&mut self) -> Result<OptimizerState>;
    /// Where the next minibatch is to be written, `[minibatch, time_points]`; it may be while the last step goes on.
    ///
    /// # Errors
    /// A device that fails.
    fn minibatch(&mut self) -> Result<&mut [f32]>;
    /// The first `samples` series there are those of the next step, and may go to the device while the last one goes on.
    ///
    /// # Errors
    /// A device that fails.
    fn send(&mut self, samples: usize) -> Result<()> {
        let _ = samples;
        Ok(())
    }
    /// One step with the first `samples` series there. It returns at once.
    ///
    /// # Errors
    /// A device that fails.
    fn step(&mut self, samples: usize) -> Result<()>;
    /// The loss of the last step, summed over its samples; waits for it.
    ///
    /// # Errors
    /// A device that fails.
    fn step_loss(&mut self) -> Result<f64>;
    /// The loss summed over `series`, at most a minibatch, with the parameters as they are.
    ///
    /// # Errors
    /// A device that fails.
    fn evaluate(&mut self, series: &[f32]) -> Result<f64>;
}
