//! `encode(model, series)` and its like: a function of a fitted model over a column of series.

use super::ModelCache;
use crate::{
    Error, Result,
    series_column::{OF_ONE_LENGTH, is_ragged, series_length, series_of, series_type, values_of},
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
        let missing = || {
            let (stage, names) = (model.stage(), has_only(functions.iter().map(|f| f.name)));
            self.wrong(format!("the model in {folder} is of stage `{stage}`, which has {names}"))
        };
        let function = functions.iter().find(|f| f.name == self.name).cloned().ok_or_else(missing)?;
        Ok((model, function))
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

/// Whether the column `series` can be given to `function`.
///
/// # Errors
/// A column of something else, series of another length.
pub(crate) fn check_series(function: &ModelFunction, series: &Field) -> Result<()> {
    let expected = function.input_length;
    let reason = match series_length(series.data_type()) {
        Some(found) if found == expected => return Ok(()),
        Some(found) => format!(
            "`{}` has {found} values, the model was trained on {expected}; give it series like those it was trained on",
            series.name()
        ),
        None if is_ragged(series.data_type()) => return Ok(()),
        None => format!(
            "its second argument is a column of series, but `{}` is {}",
            series.name(),
            series.data_type()
        ),
    };
    Err(Error::Call { function: function.name.to_owned(), reason })
}

/// Which functions a stage has, for messages.
pub(crate) fn has_only<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    if names.is_empty() { "no functions of series".to_owned() } else { format!("only {}", names.join(", ")) }
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
        check_series(&function, series)?;
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
        let given = series.to_array(args.number_rows)?;
        let series = series_of(&given, function.input_length)?;
        // Lists of another length are null once they are series.
        if series.null_count() > given.null_count() {
            let expected = function.input_length;
            return Err(self
                .wrong(format!(
                    "a list has another length than {expected}, that of the series that the model was trained on; {OF_ONE_LENGTH}"
                ))
                .into());
        }
        Ok(ColumnarValue::Array(Arc::new(self.apply(&*model, &function, &series)?)))
    }
}
