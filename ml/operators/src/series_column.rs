//! The column that stages read: series of one length, whatever list type holds them.

use crate::{Error, Result};
use arrow::{
    array::{Array, ArrayRef, AsArray, FixedSizeListArray},
    compute::cast,
    datatypes::{DataType, Field, FieldRef, Schema},
};
use std::sync::Arc;
use voxelflow_stage::SERIES_COLUMN;

/// A list column and the length of its lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesColumn {
    /// Its name.
    pub name: String,
    /// Points of every series.
    pub time_points: usize,
}

impl SeriesColumn {
    /// The column `series`, or the only column of lists, for example of hidden activations.
    ///
    /// # Errors
    /// [`Error::Column`] where there is neither, or its lists are not of one length.
    pub fn find(operator: &'static str, schema: &Schema) -> Result<Self> {
        let lists: Vec<&FieldRef> = schema.fields().iter().filter(|f| is_list(f.data_type())).collect();
        let named = schema.fields().iter().find(|f| f.name() == SERIES_COLUMN);
        let wrong = |found: String| Error::Column {
            operator,
            column: SERIES_COLUMN,
            needed: "FixedSizeList<Float32, T>",
            found,
            columns: schema.fields().iter().map(|f| format!("{} {}", f.name(), f.data_type())).collect(),
        };
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
        match series_length(field.data_type()) {
            Some(time_points) => Ok(Self { name: field.name().clone(), time_points }),
            None if is_list(field.data_type()) => {
                Err(wrong("which holds lists of several lengths: take runs of equal length together".into()))
            }
            None => Err(wrong(format!("which is {}", field.data_type()))),
        }
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
    let item = Arc::new(Field::new_list_field(DataType::Float32, true));
    DataType::FixedSizeList(item, i32::try_from(length).unwrap_or(i32::MAX))
}

fn is_list(data_type: &DataType) -> bool {
    matches!(data_type, DataType::FixedSizeList(..) | DataType::List(_) | DataType::LargeList(_))
}

/// `array` as lists of `length` 32-bit numbers.
///
/// # Errors
/// Lists of another length or of something else than numbers.
pub(crate) fn series_of(
    array: &ArrayRef,
    length: usize,
) -> Result<FixedSizeListArray, arrow::error::ArrowError> {
    let wanted = series_type(length);
    let lists = if array.data_type() == &wanted { Arc::clone(array) } else { cast(array, &wanted)? };
    Ok(lists.as_fixed_size_list().clone())
}

/// The values below the lists, `[rows, length]` row-major.
pub(crate) fn values_of(lists: &FixedSizeListArray) -> &[f32] {
    lists.values().as_primitive::<arrow::datatypes::Float32Type>().values()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

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
}
