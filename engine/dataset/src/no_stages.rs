//! A planner without stages: for an engine that only moves rows.

use crate::{OptionMap, StageError, StagePlanner, TrainRequest};
use datafusion::logical_expr::{LogicalPlan, ScalarUDF};
use std::sync::Arc;

/// Has no stages, operators or functions, and says so.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoStages;

impl NoStages {
    fn refuse(what: &str, name: &str) -> StageError {
        let source = format!("there is no {what} `{name}`: this engine was built without any").into();
        StageError { option: None, source }
    }
}

impl StagePlanner for NoStages {
    fn stages(&self) -> Vec<String> {
        Vec::new()
    }
    fn plan_train(&self, request: TrainRequest) -> Result<LogicalPlan, StageError> {
        Err(Self::refuse("stage", &request.stage))
    }
    fn table_operators(&self) -> Vec<String> {
        Vec::new()
    }
    fn plan_table_operator(
        &self,
        operator: &str,
        _input: LogicalPlan,
        _options: &OptionMap,
    ) -> Result<LogicalPlan, StageError> {
        Err(Self::refuse("table operator", operator))
    }
    fn model_functions(&self) -> Vec<Arc<ScalarUDF>> {
        Vec::new()
    }
    fn series_functions(&self) -> Vec<Arc<ScalarUDF>> {
        Vec::new()
    }
}
