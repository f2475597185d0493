//! User code by name: [`function!`](crate::function) registers a non-capturing closure where it is written,
//! a plan holds its name and its arguments as JSON, and whoever executes the plan looks the name up.
//!
//! ```text
//!   function!(|batch, args: Scale| …)  ──►  Function<Scale> (name)  ──►  plan { name, arguments }
//!                  │ inventory                                              │
//!                  └──────────►  registry: name → prepare ◄─────────────────┘ at execution
//! ```

mod accumulator;
mod broadcast;
mod context;
mod outcome;
mod registry;

pub use accumulator::{Accumulate, Accumulator};
pub use broadcast::Broadcast;
pub use outcome::{BoxError, Outcome};
pub use registry::{Function, Prepared, Registration, known, lookup, prepare};

#[cfg(test)]
pub(crate) use accumulator::Total;
pub(crate) use accumulator::{Accumulators, Totals, publish_totals};
pub(crate) use broadcast::{Broadcasts, CarriedBroadcasts};
pub(crate) use context::FunctionContext;
pub(crate) use registry::{BoundFunction, FunctionCall};

#[doc(hidden)]
pub use arrow::record_batch::RecordBatch;
#[doc(hidden)]
pub use inventory;
#[doc(hidden)]
pub use serde_json;

/// Registers a function over batches and gives its [`Function`](crate::functions::Function).
///
/// The closure takes a `RecordBatch` and, if wanted, arguments that serde can write and read; the arguments
/// are borrowed (`args: Scale` binds a `&Scale`). It captures nothing. It gives a batch, several batches, or
/// nothing (for `foreach_partition`), or a `Result` of these with any error; a body that uses `?` says its
/// return type. The name is the place where it is written, or the literal given first:
///
/// ```
/// use voxelflow_dataset::function;
/// use datafusion::arrow::{error::ArrowError, record_batch::RecordBatch};
///
/// let keep = function!(|batch| batch);
/// let head = function!("head", |batch, rows: usize| batch.slice(0, batch.num_rows().min(*rows)));
/// let first = function!("first column", |batch| -> Result<RecordBatch, ArrowError> {
///     Ok(batch.project(&[0])?)
/// });
/// assert_eq!(head.name(), "head");
/// assert!(keep.name().contains(".rs:"), "{}", keep.name());
/// # let _ = first;
/// ```
#[macro_export]
macro_rules! function {
    (@register $name:expr, $batch:ident, $args:ident, $type:ty, $output:ty, $body:expr) => {{
        fn body($batch: $crate::functions::RecordBatch, $args: &$type) -> $output {
            $body
        }
        fn prepare(
            arguments: &$crate::functions::serde_json::Value,
        ) -> ::core::result::Result<$crate::functions::Prepared, $crate::functions::serde_json::Error> {
            $crate::functions::prepare::<$type, _, _>(arguments, body)
        }
        $crate::functions::inventory::submit! {
            $crate::functions::Registration { name: $name, file: file!(), line: line!(), prepare }
        }
        $crate::functions::Function::<$type>::registered($name)
    }};
    (@here) => {
        concat!(module_path!(), "@", file!(), ":", line!(), ":", column!())
    };
    ($name:literal, |$batch:ident| -> $output:ty $body:block) => {
        $crate::function!(@register $name, $batch, _arguments, (), $output, $body)
    };
    ($name:literal, |$batch:ident, $args:ident : $type:ty| -> $output:ty $body:block) => {
        $crate::function!(@register $name, $batch, $args, $type, $output, $body)
    };
    ($name:literal, |$batch:ident| $body:expr) => {
        $crate::function!(@register $name, $batch, _arguments, (), impl $crate::functions::Outcome + use<>, $body)
    };
    ($name:literal, |$batch:ident, $args:ident : $type:ty| $body:expr) => {
        $crate::function!(@register $name, $batch, $args, $type, impl $crate::functions::Outcome + use<>, $body)
    };
    (|$batch:ident| -> $output:ty $body:block) => {
        $crate::function!(@register $crate::function!(@here), $batch, _arguments, (), $output, $body)
    };
    (|$batch:ident, $args:ident : $type:ty| -> $output:ty $body:block) => {
        $crate::function!(@register $crate::function!(@here), $batch, $args, $type, $output, $body)
    };
    (|$batch:ident| $body:expr) => {
        $crate::function!(
            @register $crate::function!(@here), $batch, _arguments, (), impl $crate::functions::Outcome + use<>, $body
        )
    };
    (|$batch:ident, $args:ident : $type:ty| $body:expr) => {
        $crate::function!(
            @register $crate::function!(@here), $batch, $args, $type, impl $crate::functions::Outcome + use<>, $body
        )
    };
}
