//! Functions over series that need no model: `pearson_r(a, b)`, `list_mean(a)`, `list_std(a)`.

use crate::{
    Error, Result,
    series_column::{OF_ONE_LENGTH, is_ragged, series_length, series_of, values_of},
};
use arrow::{
    array::{Array, ArrayRef, FixedSizeListArray, Float32Array},
    datatypes::{DataType, Field, FieldRef},
};
use datafusion::{
    error::Result as PlanResult,
    logical_expr::{
        ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
    },
};
use std::sync::Arc;
use voxelflow_signal::pearson_r;

/// The functions over series, to be registered with a session.
pub fn series_functions() -> Vec<Arc<ScalarUDF>> {
    let all = [SeriesFunction::PearsonR, SeriesFunction::Mean, SeriesFunction::Std];
    all.map(|function| Arc::new(ScalarUDF::from(SeriesUdf::new(function)))).into()
}

/// What is computed for each row; null where it is not defined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum SeriesFunction {
    /// Pearson's correlation; null where one of the two is constant.
    PearsonR,
    /// Mean over time.
    Mean,
    /// Standard deviation over time, divided by T.
    Std,
}

impl SeriesFunction {
    fn name(self) -> &'static str {
        match self {
            Self::PearsonR => "pearson_r",
            Self::Mean => "list_mean",
            Self::Std => "list_std",
        }
    }

    fn arity(self) -> usize {
        if self == Self::PearsonR { 2 } else { 1 }
    }

    /// One number for each row of `series`, all `[rows, length]` row-major.
    fn apply(self, series: &[&[f32]], length: usize) -> Result<Vec<f32>> {
        match (self, series) {
            (Self::PearsonR, [a, b]) => Ok(pearson_r(a, b, length)?),
            (Self::Mean, [a]) => Ok(a.chunks_exact(length).map(|row| moments(row).0 as f32).collect()),
            (_, [a]) => Ok(a.chunks_exact(length).map(|row| moments(row).1 as f32).collect()),
            _ => Err(Error::Call {
                function: self.name().into(),
                reason: format!("it takes {} series", self.arity()),
            }),
        }
    }
}

/// Mean and standard deviation.
fn moments(row: &[f32]) -> (f64, f64) {
    let n = row.len() as f64;
    let mean = row.iter().map(|v| f64::from(*v)).sum::<f64>() / n;
    let variance = row.iter().map(|v| (f64::from(*v) - mean).powi(2)).sum::<f64>() / n;
    (mean, variance.sqrt())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct SeriesUdf {
    function: SeriesFunction,
    signature: Signature,
}

impl SeriesUdf {
    fn new(function: SeriesFunction) -> Self {
        Self { function, signature: Signature::any(function.arity(), Volatility::Immutable) }
    }

    fn wrong(&self, reason: String) -> Error {
        Error::Call { function: self.function.name().to_owned(), reason }
    }

    /// The length that all arguments have.
    fn length<'a>(&self, arguments: impl IntoIterator<Item = (&'a str, &'a DataType)>) -> Result<usize> {
        let mut length = None;
        for (name, data_type) in arguments {
            let found = series_length(data_type).ok_or_else(|| {
                let advice = if is_ragged(data_type) { format!(": {OF_ONE_LENGTH}") } else { String::new() };
                self.wrong(format!(
                    "`{name}` is {data_type}, not a column of series (FixedSizeList<Float32, T>){advice}"
                ))
            })?;
            let expected = *length.get_or_insert(found);
            if found != expected {
                return Err(self.wrong(format!("`{name}` has {found} values, the other series {expected}")));
            }
        }
        length.ok_or_else(|| self.wrong("it takes a column of series".into()))
    }
}

impl ScalarUDFImpl for SeriesUdf {
    fn name(&self) -> &str {
        self.function.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> PlanResult<DataType> {
        self.length(arguments.iter().map(|a| ("argument", a)))?;
        Ok(DataType::Float32)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> PlanResult<FieldRef> {
        self.length(args.arg_fields.iter().map(|f| (f.name().as_str(), f.data_type())))?;
        Ok(Arc::new(Field::new(self.name(), DataType::Float32, true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let arrays: PlanResult<Vec<ArrayRef>> =
            args.args.iter().map(|a| a.to_array(args.number_rows)).collect();
        let arrays = arrays?;
        let length = self.length(arrays.iter().map(|a| ("argument", a.data_type())))?;
        let series: Result<Vec<FixedSizeListArray>, _> =
            arrays.iter().map(|a| series_of(a, length)).collect();
        let series = series?;
        let values: Vec<&[f32]> = series.iter().map(values_of).collect();
        let numbers = self.function.apply(&values, length)?;
        let known = |row: usize| series.iter().all(|s| s.is_valid(row));
        let numbers =
            numbers.iter().enumerate().map(|(row, v)| Some(*v).filter(|v| v.is_finite() && known(row)));
        Ok(ColumnarValue::Array(Arc::new(Float32Array::from_iter(numbers))))
    }
}
