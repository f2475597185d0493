//! What streamed ridge asks of where products are computed.

use crate::{Coefficients, Evidence, Result};
use faer::MatRef;
use std::ops::Range;

/// Memory of this machine into which targets are read, of a kind that a back end copies from fast.
pub(crate) trait Staging<T>: Send {
    /// All of it.
    fn values(&mut self) -> Result<&mut [T]>;
}

/// Holds decomposed features and all that is summed over targets. Blocks of targets are `[n_samples, n_targets]`, column
/// by column.
pub(crate) trait Backend<T> {
    /// Memory for `len` numbers.
    fn staging(&self, len: usize) -> Result<Box<dyn Staging<T>>>;

    /// Uses at most `bytes` of a card's memory for what can be made again. The cores keep nothing such.
    fn limit(&mut self, _bytes: u64) {}

    /// Expects a pass over `count` targets, `largest` at once.
    fn begin(&mut self, count: usize, largest: usize) -> Result<()>;

    /// Adds a block to what the scores follow from. Work may go on afterwards; `values` is free again.
    fn add(&mut self, range: Range<usize>, values: &[T]) -> Result<()>;

    /// Waits for all that was added; gives the seconds in which blocks were worked on.
    fn finish(&mut self) -> Result<f64>;

    /// What all targets say about the penalties, and the mean score of each penalty over them.
    fn evidence(&mut self) -> Result<(Evidence<T>, Vec<f64>)>;

    /// True if [`Backend::fit`] needs no targets: their products with the features are kept since they were added.
    fn has_products(&self) -> bool;

    /// Takes features `[n_held_out, n_features]` whose targets will be predicted.
    fn hold_out(&mut self, x: MatRef<'_, T>) -> Result<()>;

    /// Coefficients of the targets `range` with the penalty of each. `values`: the block, where products were not kept.
    fn fit(&mut self, range: Range<usize>, alphas: &[f64], values: Option<&[T]>) -> Result<Coefficients<T>>;

    /// Pearson's r of held-out targets, `[n_held_out, n_targets]`, with the predictions of the block that was fitted last.
    fn correlations(&mut self, actual: &[T]) -> Result<Vec<f64>>;
}
