//! Functions that a query can call on series: those of fitted models, and those of series themselves.

mod model_cache;
mod model_function;
mod series;

pub use model_cache::ModelSource;
pub(crate) use model_cache::{FoundModel, ModelCache};
pub(crate) use model_function::{ModelFunctionUdf, check_series, has_only};
pub use series::series_functions;
