//! `encode(model, series)` and its like: a function of a fitted model over a column of series.

use super::ModelCache;
use crate::{
    Error, Result,
    series_column::{series_length, series_of, series_type, values_of},
};
use arrow::{
    array::{Array, FixedSizeListArray, Float32Array},
    datatypes::{DataType, Field, FieldRef},
};
use datafusion::{
    common::{ScalarValue, exec_err},
    error::Result as PlanResult,
    logical_expr::{
        ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
    },
};
use std::{
    hash::{Hash, Hasher},
    sync::Arc,
};
use voxelflow_stage::{Model, ModelFunction};

/// The function `name` of whichever model the first argument names.
#[derive(Debug)]
pub(crate) struct ModelFunctionUdf {
    name: &'static str,
    signature: Signature,
    models: Arc<ModelCache>,
}

/// Rows that a model is applied to at once: bounds the memory of its activations.
const CHUNK: usize = 1024;

impl ModelFunctionUdf {
    pub fn new(name: &'static str, models: Arc<ModelCache>) -> Self {
        // Stable: within a query a folder holds one model, between queries it may be trained anew.
        Self { name, signature: Signature::any(2, Volatility::Stable), models }
    }

    fn wrong(&self, reason: String) -> Error {
        Error::Call { function: self.name.to_owned(), reason }
    }

    /// The model and its function that the folder `model` gives.
    fn resolve(&self, model: Option<&ScalarValue>) -> Result<(Arc<dyn Model>, ModelFunction)> {
        let folder = model.and_then(|value| value.try_as_str().flatten());
        let folder = folder.ok_or_else(|| {
            self.wrong(format!("its first argument is a model, as in {}(model, series)", self.name))
        })?;
        let model = self.models.get(folder)?;
        let functions = model.functions();
        let names: Vec<&str> = functions.iter().map(|f| f.name).collect();
        let missing = || {
            let (stage, names) = (model.stage(), names.join(", "));
            self.wrong(format!("the model in {folder} is of stage `{stage}`, which has only {names}"))
        };
        let function = functions.iter().find(|f| f.name == self.name).cloned().ok_or_else(missing)?;
        Ok((model, function))
    }

    /// Whether `series` can be given to `function`.
    fn check(&self, function: &ModelFunction, series: &Field) -> Result<()> {
        let expected = function.input_length;
        let reason = match series.data_type() {
            DataType::List(_) | DataType::LargeList(_) => return Ok(()),
            other => match series_length(other) {
                Some(found) if found == expected => return Ok(()),
                Some(found) => format!(
                    "`{}` has {found} values, the model was trained on {expected}; give it series like those it \
                     was trained on",
                    series.name()
                ),
                None => {
                    format!("its second argument is a column of series, but `{}` is {other}", series.name())
                }
            },
        };
        Err(self.wrong(reason))
    }

    fn apply(
        &self,
        model: &dyn Model,
        function: &ModelFunction,
        series: &FixedSizeListArray,
    ) -> Result<FixedSizeListArray> {
        let (input, output) = (function.input_length, function.output_length);
        let mut values = Vec::with_capacity(series.len() * output);
        for chunk in values_of(series).chunks(CHUNK * input) {
            values.extend(model.apply(self.name, chunk)?);
        }
        if values.len() != series.len() * output {
            let (found, rows) = (values.len(), series.len());
            return Err(self.wrong(format!("the model gave {found} values for {rows} series of {output}")));
        }
        let DataType::FixedSizeList(item, length) = series_type(output) else {
            return Err(self.wrong("the model has no output".into()));
        };
        let values = Arc::new(Float32Array::from(values));
        FixedSizeListArray::try_new(item, length, values, series.nulls().cloned())
            .map_err(|e| self.wrong(e.to_string()))
    }
}

impl PartialEq for ModelFunctionUdf {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && Arc::ptr_eq(&self.models, &other.models)
    }
}

impl Eq for ModelFunctionUdf {}

impl Hash for ModelFunctionUdf {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for ModelFunctionUdf {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> PlanResult<DataType> {
        exec_err!("the type of {} depends on its model: it is known from the arguments only", self.name)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> PlanResult<FieldRef> {
        let (_, function) = self.resolve(args.scalar_arguments.first().copied().flatten())?;
        let series = args.arg_fields.get(1).ok_or_else(|| self.wrong("it lacks the series".into()))?;
        self.check(&function, series)?;
        Ok(Arc::new(Field::new(self.name, series_type(function.output_length), series.is_nullable())))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let [model, series] = args.args.as_slice() else {
            return Err(self.wrong(format!("it has two arguments, not {}", args.args.len())).into());
        };
        let ColumnarValue::Scalar(model) = model else {
            return Err(self.wrong("its model differs by row".into()).into());
        };
        let (model, function) = self.resolve(Some(model))?;
        let series = series_of(&series.to_array(args.number_rows)?, function.input_length)?;
        Ok(ColumnarValue::Array(Arc::new(self.apply(&*model, &function, &series)?)))
    }
}
