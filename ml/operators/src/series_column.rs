//! The column that stages read: series, whatever list type holds them. Those that learn from series alone need them of one
//! length; runs that features explain may be of several, where the schema says how long each is.

use crate::{Error, Result};
use arrow::{
    array::{Array, ArrayRef, AsArray, FixedSizeListArray, Float32Array},
    compute::cast,
    datatypes::{DataType, Field, FieldRef, Float32Type, Schema},
    error::ArrowError,
};
use std::sync::Arc;
use voxelflow_stage::{RunLengths, SERIES_COLUMN};

/// What to do where series are of several lengths and may not be.
pub(crate) const OF_ONE_LENGTH: &str =
    "take runs of one length T, with arrow_cast(series, 'FixedSizeList(T, Float32)')";

/// Points of series whose table does not say how long they are.
pub(crate) const UNKNOWN: usize = 0;

/// A list column and the length of its lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesColumn {
    /// Its name.
    pub name: String,
    /// Points of every series, or of the longest; 0 where they are of any length, and only the rows tell.
    pub time_points: usize,
    /// How long each run is, where they are of several lengths and the schema says so.
    pub lengths: Option<RunLengths>,
}

impl SeriesColumn {
    /// The column `series`, or the only column of lists, for example of hidden activations.
    ///
    /// # Errors
    /// [`Error::Column`] where there is neither, or its lists are not of one length.
    pub fn find(operator: &'static str, schema: &Schema) -> Result<Self> {
        Self::with_lengths(operator, schema, None)
    }

    /// The same column, which may also hold lists of several lengths, where the schema says how long each run is.
    ///
    /// # Errors
    /// [`Error::Column`] where there is neither, or the schema does not say it.
    pub fn find_told(operator: &'static str, schema: &Schema) -> Result<Self> {
        Self::with_lengths(operator, schema, RunLengths::of(schema)?)
    }

    /// The same column, for who takes lists of any length, and asks the rows where the schema does not say how long runs are.
    ///
    /// # Errors
    /// [`Error::Column`] where there is no such column.
    pub fn find_of_runs(operator: &'static str, schema: &Schema) -> Result<Self> {
        let field = list_column(operator, schema)?;
        if is_ragged(field.data_type()) && RunLengths::of(schema)?.is_none() {
            return Ok(Self { name: field.name().clone(), time_points: UNKNOWN, lengths: None });
        }
        Self::find_told(operator, schema)
    }

    fn with_lengths(operator: &'static str, schema: &Schema, lengths: Option<RunLengths>) -> Result<Self> {
        let field = list_column(operator, schema)?;
        let name = field.name().clone();
        match (series_length(field.data_type()), lengths) {
            (Some(time_points), _) => Ok(Self { name, time_points, lengths: None }),
            (None, Some(lengths)) if is_ragged(field.data_type()) => {
                Ok(Self { name, time_points: lengths.longest(), lengths: Some(lengths) })
            }
            (None, _) => {
                let found = format!("which holds lists of several lengths: {OF_ONE_LENGTH}");
                Err(wrong(operator, schema, found))
            }
        }
    }
}

/// The column `series`, or the only column of lists, of one length or of several.
///
/// # Errors
/// [`Error::Column`] where there is neither.
pub(crate) fn list_column<'a>(operator: &'static str, schema: &'a Schema) -> Result<&'a FieldRef> {
    let lists: Vec<&FieldRef> = schema.fields().iter().filter(|f| is_list(f.data_type())).collect();
    let named = schema.fields().iter().find(|f| f.name() == SERIES_COLUMN);
    let wrong = |found: String| wrong(operator, schema, found);
    let field = match (named, lists.as_slice()) {
        (Some(field), _) => field,
        (None, [field]) => *field,
        (None, []) => return Err(wrong("and the table has no column of series".into())),
        (None, several) => {
            let names: Vec<&str> = several.iter().map(|f| f.name().as_str()).collect();
            return Err(wrong(format!(
                "and the table has several lists, {}: name one `series`",
                names.join(", ")
            )));
        }
    };
    let numbers = |data_type: &DataType| match data_type {
        DataType::FixedSizeList(item, n) => *n > 0 && item.data_type().is_numeric(),
        DataType::List(item) | DataType::LargeList(item) => item.data_type().is_numeric(),
        _ => false,
    };
    if numbers(field.data_type()) { Ok(field) } else { Err(wrong(format!("which is {}", field.data_type()))) }
}

fn wrong(operator: &'static str, schema: &Schema, found: String) -> Error {
    Error::Column {
        operator,
        column: SERIES_COLUMN,
        needed: "FixedSizeList<Float32, T>",
        found,
        columns: schema.fields().iter().map(|f| format!("{} {}", f.name(), f.data_type())).collect(),
    }
}

/// `List<number>`, which other tools write as `LargeList` too.
pub(crate) fn is_ragged(data_type: &DataType) -> bool {
    match data_type {
        DataType::List(item) | DataType::LargeList(item) => item.data_type().is_numeric(),
        _ => false,
    }
}

/// Length of the lists of `FixedSizeList<number, T>`.
pub(crate) fn series_length(data_type: &DataType) -> Option<usize> {
    match data_type {
        DataType::FixedSizeList(item, n) if item.data_type().is_numeric() => {
            usize::try_from(*n).ok().filter(|n| *n > 0)
        }
        _ => None,
    }
}

/// `FixedSizeList<Float32, length>` as every series column is typed.
pub(crate) fn series_type(length: usize) -> DataType {
    lists_of(length, &DataType::Float32)
}

fn lists_of(length: usize, number: &DataType) -> DataType {
    let item = Arc::new(Field::new_list_field(number.clone(), true));
    DataType::FixedSizeList(item, i32::try_from(length).unwrap_or(i32::MAX))
}

/// Whether a column is of lists, of whatever.
pub(crate) fn is_list(data_type: &DataType) -> bool {
    matches!(data_type, DataType::FixedSizeList(..) | DataType::List(_) | DataType::LargeList(_))
}

/// `array` as lists of `length` 32-bit numbers.
///
/// # Errors
/// Lists of another length or of something else than numbers.
pub(crate) fn series_of(array: &ArrayRef, length: usize) -> Result<FixedSizeListArray, ArrowError> {
    series_as(array, length, &DataType::Float32)
}

/// `array` as lists of `length` numbers of type `number`.
///
/// # Errors
/// As [`series_of`].
pub(crate) fn series_as(
    array: &ArrayRef,
    length: usize,
    number: &DataType,
) -> Result<FixedSizeListArray, ArrowError> {
    let wanted = lists_of(length, number);
    let lists = if array.data_type() == &wanted { Arc::clone(array) } else { cast(array, &wanted)? };
    Ok(lists.as_fixed_size_list().clone())
}

/// The same of lists that may be shorter, NaN behind them, and the length of each; 0 of one that is null.
///
/// # Errors
/// Lists that are longer, or of something else than numbers.
pub(crate) fn padded(array: &ArrayRef, length: usize) -> Result<(FixedSizeListArray, Vec<u32>), ArrowError> {
    let narrow = match array.data_type() {
        DataType::LargeList(item) => Some(cast(array, &DataType::List(Arc::clone(item)))?),
        _ => None,
    };
    let array = narrow.as_ref().unwrap_or(array);
    let Some(lists) = array.as_list_opt::<i32>() else {
        let lists = series_of(array, length)?;
        let lengths = vec![length as u32; lists.len()];
        return Ok((lists, lengths));
    };
    let all = cast(lists.values(), &DataType::Float32)?;
    let all = all.as_primitive::<Float32Type>();
    let mut values = vec![f32::NAN; lists.len() * length];
    let mut lengths = Vec::with_capacity(lists.len());
    for (row, into) in values.chunks_exact_mut(length.max(1)).enumerate() {
        let [from, to] = [row, row + 1].map(|at| lists.value_offsets()[at] as usize);
        if lists.is_null(row) {
            lengths.push(0);
            continue;
        }
        if to - from > length {
            let reason = format!("a list has {} numbers, the longest run {length}", to - from);
            return Err(ArrowError::ComputeError(reason));
        }
        let own = into.iter_mut().zip(from..to).filter(|(_, at)| all.is_valid(*at));
        own.for_each(|(into, at)| *into = all.value(at));
        lengths.push((to - from) as u32);
    }
    let DataType::FixedSizeList(item, points) = series_type(length) else {
        return Err(ArrowError::ComputeError("series are lists of one length".into()));
    };
    let values = Arc::new(Float32Array::from(values));
    Ok((FixedSizeListArray::try_new(item, points, values, lists.nulls().cloned())?, lengths))
}

/// The values below the lists, `[rows, length]` row-major.
pub(crate) fn values_of(lists: &FixedSizeListArray) -> &[f32] {
    lists.values().as_primitive::<Float32Type>().values()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use arrow::array::ListArray;

    fn find(fields: Vec<Field>) -> Result<SeriesColumn> {
        SeriesColumn::find("TRAIN", &Schema::new(fields))
    }

    #[test]
    fn series_comes_first_and_a_single_list_stands_in() {
        let hidden = Field::new("hidden", series_type(16), true);
        let series = Field::new("series", series_type(8), false);
        let voxel = Field::new("voxel", DataType::UInt32, false);
        assert_eq!(find(vec![voxel.clone(), hidden.clone(), series]).unwrap().time_points, 8);
        assert_eq!(find(vec![voxel, hidden]).unwrap().name, "hidden");
    }

    #[test]
    fn what_is_there_instead_is_listed() {
        let text = |fields| find(fields).unwrap_err().to_string();
        let voxel = Field::new("voxel", DataType::UInt32, false);
        assert!(text(vec![voxel.clone()]).contains("voxel UInt32"), "{}", text(vec![voxel]));
        assert!(text(vec![Field::new("series", DataType::Utf8, false)]).contains("which is Utf8"));
        let lists = DataType::new_list(DataType::Float32, true);
        assert!(text(vec![Field::new("series", lists.clone(), false)]).contains("several lengths"));
        let two = vec![Field::new("a", lists.clone(), false), Field::new("b", lists, false)];
        assert!(text(two).contains("several lists, a, b"));
    }

    #[test]
    fn runs_may_be_of_several_lengths_where_the_schema_says_how_long_each_is() {
        let run = |name: &str| [None, None, None, Some(name.to_owned())];
        let lengths = RunLengths::of_runs([(run("1"), 3), (run("2"), 2)]).unwrap().unwrap();
        let lists = DataType::new_list(DataType::Float64, true);
        let schema = Schema::new(vec![Field::new("series", lists, true)]);
        assert!(SeriesColumn::find_told("TRAIN", &schema).is_err());
        let asked = SeriesColumn::find_of_runs("TRAIN", &schema).unwrap();
        assert_eq!((asked.time_points, asked.lengths), (UNKNOWN, None));
        let schema = schema.with_metadata(lengths.to_metadata().unwrap());
        let found = SeriesColumn::find_of_runs("TRAIN", &schema).unwrap();
        assert_eq!((found.time_points, found.lengths), (3, Some(lengths)));
        assert!(SeriesColumn::find("TRAIN", &schema).is_err());
    }

    #[test]
    fn shorter_lists_are_filled_up() {
        let rows = [Some(vec![Some(1.0), None, Some(3.0)]), None, Some(vec![Some(4.0), Some(5.0)])];
        let lists: ArrayRef =
            Arc::new(ListArray::from_iter_primitive::<arrow::datatypes::Float64Type, _, _>(rows));
        let (found, lengths) = padded(&lists, 3).unwrap();
        assert_eq!(lengths, [3, 0, 2]);
        assert!(found.is_null(1) && found.null_count() == 1);
        let nan = f32::NAN;
        let expected = [1.0, nan, 3.0, nan, nan, nan, 4.0, 5.0, nan];
        assert!(values_of(&found).iter().zip(&expected).all(|(a, b)| a == b || a.is_nan() && b.is_nan()));
        // A part of an array keeps the values of the whole.
        assert_eq!(padded(&lists.slice(2, 1), 3).unwrap().1, [2]);
        assert!(padded(&lists, 2).unwrap_err().to_string().contains("3 numbers"));
        let even: ArrayRef = Arc::new(padded(&lists, 3).unwrap().0);
        assert_eq!(padded(&even, 3).unwrap().1, [3; 3]);
    }
}
