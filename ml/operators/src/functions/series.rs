//! Functions over series that need no model: `pearson_r(a, b)`, `list_mean(a)`, `list_std(a)`.

use crate::{
    Error, Result,
    clean_lists::Lists,
    series_column::{is_ragged, series_as, series_length},
};
use arrow::{
    array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, FixedSizeListArray, Float32Array},
    compute::cast,
    datatypes::{DataType, Field, FieldRef, Float32Type, Float64Type},
};
use datafusion::{
    error::Result as PlanResult,
    logical_expr::{
        ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
    },
};
use std::sync::Arc;
use voxelflow_signal::pearson_r;

/// What to do where one of two series has lost volumes.
const OF_CLEANED: &str =
    "where clean has dropped volumes, take the design of the cleaned table, as design(series, …)";

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
    fn apply<T: Copy + Into<f64> + PartialEq + Sync>(
        self,
        series: &[&[T]],
        length: usize,
    ) -> Result<Vec<f32>> {
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
fn moments<T: Copy + Into<f64>>(row: &[T]) -> (f64, f64) {
    let n = row.len() as f64;
    let mean = row.iter().map(|v| (*v).into()).sum::<f64>() / n;
    let variance = row.iter().map(|v| ((*v).into() - mean).powi(2)).sum::<f64>() / n;
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

    /// The length that all arguments have; none where each row has its own.
    fn length<'a>(
        &self,
        arguments: impl IntoIterator<Item = (&'a str, &'a DataType)>,
    ) -> Result<Option<usize>> {
        let (mut length, mut ragged) = (None, false);
        for (name, data_type) in arguments {
            let Some(found) = series_length(data_type) else {
                if !is_ragged(data_type) {
                    let needed = "a column of series (FixedSizeList<Float32, T> or List<Float32>)";
                    return Err(self.wrong(format!("`{name}` is {data_type}, not {needed}")));
                }
                ragged = true;
                continue;
            };
            let expected = *length.get_or_insert(found);
            if found != expected {
                return Err(self.wrong(format!(
                    "`{name}` has {found} values, the other series {expected}; {OF_CLEANED}"
                )));
            }
        }
        Ok(length.filter(|_| !ragged))
    }

    /// One number for each row, computed from numbers of type `N`.
    fn numbers<N: ArrowPrimitiveType>(
        &self,
        arrays: &[ArrayRef],
        length: Option<usize>,
        rows: usize,
    ) -> PlanResult<Vec<Option<f32>>>
    where
        N::Native: Into<f64> + From<f32> + PartialEq,
    {
        match length {
            Some(length) => self.of_length::<N>(arrays, length),
            None => self.of_several_lengths::<N>(arrays, rows),
        }
    }

    /// One number for each row of series of one length.
    fn of_length<N: ArrowPrimitiveType>(
        &self,
        arrays: &[ArrayRef],
        length: usize,
    ) -> PlanResult<Vec<Option<f32>>>
    where
        N::Native: Into<f64> + PartialEq,
    {
        let series: Result<Vec<FixedSizeListArray>, _> =
            arrays.iter().map(|a| series_as(a, length, &N::DATA_TYPE)).collect();
        let series = series?;
        let values: Vec<&[N::Native]> =
            series.iter().map(|lists| &lists.values().as_primitive::<N>().values()[..]).collect();
        let numbers = self.function.apply(&values, length)?;
        let known = |row: usize| series.iter().all(|s| s.is_valid(row));
        let numbers = numbers.into_iter().enumerate();
        Ok(numbers.map(|(row, number)| Some(number).filter(|n| n.is_finite() && known(row))).collect())
    }

    /// One number for each of `rows` rows of series whose length changes from run to run.
    fn of_several_lengths<N: ArrowPrimitiveType>(
        &self,
        arrays: &[ArrayRef],
        rows: usize,
    ) -> PlanResult<Vec<Option<f32>>>
    where
        N::Native: Into<f64> + From<f32> + PartialEq,
    {
        let lists = DataType::new_list(N::DATA_TYPE, true);
        let columns = arrays.iter().map(|a| cast(a, &lists)).collect::<Result<Vec<_>, _>>()?;
        let series = columns.iter().map(Lists::of).collect::<PlanResult<Vec<_>>>()?;
        let values =
            series.iter().map(|own| own.values::<N>(f32::NAN.into())).collect::<PlanResult<Vec<_>>>()?;
        let mut numbers = vec![None; rows];
        let mut begin = 0;
        while begin < rows {
            // Neighbours of one length are computed together.
            let points = self.points(&series, begin)?;
            let mut end = begin + 1;
            while end < rows && self.points(&series, end)? == points {
                end += 1;
            }
            if let Some(points) = points.filter(|points| *points > 0) {
                let own: Vec<&[N::Native]> =
                    values.iter().zip(&series).map(|(all, own)| &all[own.place(begin..end)]).collect();
                let found = self.function.apply(&own, points)?.into_iter();
                let to = numbers[begin..end].iter_mut();
                to.zip(found).for_each(|(to, number)| *to = Some(number).filter(|n| n.is_finite()));
            }
            begin = end;
        }
        Ok(numbers)
    }

    /// Points of all series of a row; none where one of them is null.
    fn points(&self, series: &[Lists<'_>], row: usize) -> Result<Option<usize>> {
        if !series.iter().all(|own| own.is_valid(row)) {
            return Ok(None);
        }
        let mut lengths = series.iter().map(|own| own.points(row));
        let first = lengths.next();
        match lengths.find(|other| Some(*other) != first) {
            None => Ok(first),
            Some(other) => Err(self.wrong(format!(
                "a series of {} values meets one of {other}; {OF_CLEANED}",
                first.unwrap_or_default()
            ))),
        }
    }
}

fn is_double(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::FixedSizeList(item, _) | DataType::List(item) if *item.data_type() == DataType::Float64
    )
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
        // Series that are not cleaned yet may be of 64 bits, which would lose digits in 32.
        let numbers = match arrays.iter().any(|array| is_double(array.data_type())) {
            true => self.numbers::<Float64Type>(&arrays, length, args.number_rows)?,
            false => self.numbers::<Float32Type>(&arrays, length, args.number_rows)?,
        };
        Ok(ColumnarValue::Array(Arc::new(Float32Array::from(numbers))))
    }
}
