//! What the training loop needs of a model: a loss that is a sum over samples, and its gradient.

use crate::parameters::ParameterLayout;
use voxelflow_stage::Result;

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
}
