//! What a named function may give back.

use arrow::record_batch::RecordBatch;

/// Any error.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What a named function gives: batches, or an error of any kind.
pub trait Outcome {
    /// The batches, in order; none for a function that is called for its effect.
    ///
    /// # Errors
    /// The function's own.
    fn into_batches(self) -> Result<Vec<RecordBatch>, BoxError>;
}

impl Outcome for () {
    fn into_batches(self) -> Result<Vec<RecordBatch>, BoxError> {
        Ok(Vec::new())
    }
}

impl Outcome for RecordBatch {
    fn into_batches(self) -> Result<Vec<RecordBatch>, BoxError> {
        Ok(vec![self])
    }
}

impl Outcome for Vec<RecordBatch> {
    fn into_batches(self) -> Result<Vec<RecordBatch>, BoxError> {
        Ok(self)
    }
}

impl<T: Outcome, E: Into<BoxError>> Outcome for Result<T, E> {
    fn into_batches(self) -> Result<Vec<RecordBatch>, BoxError> {
        self.map_err(Into::into)?.into_batches()
    }
}
