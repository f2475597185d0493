//! Columns of features: numbers, or lists of numbers of whatever type of lists, in 64 bits.

use super::refused;
use crate::{Result, series_column::is_list};
use arrow::{
    array::{Array, ArrayRef, AsArray, Float64Array, RecordBatch},
    buffer::NullBuffer,
    compute::cast,
    datatypes::{DataType, Float64Type},
    error::ArrowError,
};

/// Whether pandas has named a column so that is a level of an index without a name.
pub fn is_unnamed_index(column: &str) -> bool {
    let level = column.strip_prefix("__index_level_").and_then(|rest| rest.strip_suffix("__"));
    level.is_some_and(|level| !level.is_empty() && level.bytes().all(|byte| byte.is_ascii_digit()))
}

/// A column of lists of numbers, of whatever type of lists.
pub struct Lists {
    values: Float64Array,
    /// Where each list begins, and the last ends.
    offsets: Vec<usize>,
    nulls: Option<NullBuffer>,
}

impl Lists {
    pub fn of(batch: &RecordBatch, name: &str) -> Result<Self> {
        let found = batch.column_by_name(name).ok_or_else(|| refused(format!("column `{name}` is gone")))?;
        let (values, offsets) = match found.data_type() {
            DataType::FixedSizeList(_, n) => {
                let width = usize::try_from(*n).unwrap_or(0);
                let offsets = (0..=found.len()).map(|row| row * width).collect();
                (found.as_fixed_size_list().values(), offsets)
            }
            DataType::List(_) => {
                let lists = found.as_list::<i32>();
                (lists.values(), lists.value_offsets().iter().map(|at| *at as usize).collect())
            }
            DataType::LargeList(_) => {
                let lists = found.as_list::<i64>();
                (lists.values(), lists.value_offsets().iter().map(|at| *at as usize).collect())
            }
            other => return Err(refused(format!("column `{name}` is {other}, not lists of numbers"))),
        };
        let values = wide(values, name)?;
        Ok(Self { values, offsets, nulls: found.nulls().cloned() })
    }

    /// The numbers of a row, NaN for one that is null; none where the list is.
    pub fn row(&self, row: usize) -> Option<impl ExactSizeIterator<Item = f64>> {
        let is_null = self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
        let range = self.offsets[row]..self.offsets[row + 1];
        (!is_null).then(|| range.map(|at| number(&self.values, at)))
    }
}

/// Numbers in 64 bits.
fn wide(values: &ArrayRef, name: &str) -> Result<Float64Array> {
    let cast = cast(values, &DataType::Float64);
    let cast = cast.map_err(|e: ArrowError| refused(format!("column `{name}`: {e}")))?;
    Ok(cast.as_primitive::<Float64Type>().clone())
}

/// Null is NaN, which is refused with its place.
fn number(values: &Float64Array, at: usize) -> f64 {
    if values.is_valid(at) { values.value(at) } else { f64::NAN }
}

/// A column of numbers or lists, `[rows, width]`.
pub enum Part {
    Numbers(Float64Array),
    Lists(Lists, usize),
}

impl Part {
    pub fn of(batch: &RecordBatch, name: &str) -> Result<Self> {
        let found = batch.column_by_name(name).ok_or_else(|| refused(format!("column `{name}` is gone")))?;
        if !is_list(found.data_type()) {
            return Ok(Self::Numbers(wide(found, name)?));
        }
        let lists = Lists::of(batch, name)?;
        let width = (0..batch.num_rows()).find_map(|row| lists.row(row).map(|values| values.len()));
        let none =
            || refused(format!("column `{name}` is null where lists are to be; leave such samples out"));
        Ok(Self::Lists(lists, width.ok_or_else(none)?))
    }

    pub fn names(&self, name: &str) -> Vec<String> {
        let width = match self {
            Self::Numbers(_) => None,
            Self::Lists(_, width) => Some(*width),
        };
        names_of(name, width)
    }

    /// Appends what row `row` has.
    ///
    /// # Errors
    /// A list of another length: its own, and that of the others.
    pub fn push(&self, row: usize, to: &mut Vec<f64>) -> Result<(), (usize, usize)> {
        match self {
            Self::Numbers(values) => to.push(number(values, row)),
            Self::Lists(lists, width) => match lists.row(row) {
                None => to.extend(std::iter::repeat_n(f64::NAN, *width)),
                Some(values) if values.len() == *width => to.extend(values),
                Some(values) => return Err((values.len(), *width)),
            },
        }
        Ok(())
    }
}

/// Names of the features of a column: its own, or, of lists of a width, one for each place.
pub fn names_of(column: &str, width: Option<usize>) -> Vec<String> {
    match width {
        None => vec![column.to_owned()],
        Some(width) => (0..width).map(|number| format!("{column}[{number}]")).collect(),
    }
}
