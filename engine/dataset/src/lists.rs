//! Lists of all kinds, row by row: what lies in them, without an array for each.

use arrow::{
    array::{Array, ArrayRef, AsArray},
    datatypes::DataType,
};
use datafusion::common::{Result, internal_err};
use std::ops::Range;

/// The elements of all lists.
pub(crate) fn elements(lists: &dyn Array) -> Result<&ArrayRef> {
    match lists.data_type() {
        DataType::FixedSizeList(..) => Ok(lists.as_fixed_size_list().values()),
        DataType::List(_) => Ok(lists.as_list::<i32>().values()),
        DataType::LargeList(_) => Ok(lists.as_list::<i64>().values()),
        other => internal_err!("{other} is no list"),
    }
}

/// Which of them are of `row`.
pub(crate) fn elements_of(lists: &dyn Array, row: usize) -> Result<Range<usize>> {
    let [from, to] = match lists.data_type() {
        DataType::FixedSizeList(..) => {
            let length = i64::from(lists.as_fixed_size_list().value_length());
            [row as i64 * length, (row as i64 + 1) * length]
        }
        DataType::List(_) => [0, 1].map(|end| i64::from(lists.as_list::<i32>().value_offsets()[row + end])),
        DataType::LargeList(_) => [0, 1].map(|end| lists.as_list::<i64>().value_offsets()[row + end]),
        other => return internal_err!("{other} is no list"),
    };
    Ok(from.unsigned_abs() as usize..to.unsigned_abs() as usize)
}
