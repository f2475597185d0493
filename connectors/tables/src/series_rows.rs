//! The columns of a NIFTI table: its schema, and batches of it.

use crate::{Image, Result};
use arrow::array::{
    ArrayRef, FixedSizeListArray, Float32Array, RecordBatch, RecordBatchOptions, StringArray, UInt16Array,
    UInt32Array,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use std::{collections::HashMap, sync::Arc};
use voxelflow_stage::{KEY_COLUMNS, SERIES_COLUMN};

/// Text columns at the start of [`KEY_COLUMNS`].
const NAMES: usize = 5;
/// Position of `voxel`.
pub(crate) const VOXEL: usize = 5;
/// Position of the series.
pub(crate) const SERIES: usize = KEY_COLUMNS.len();

/// The schema of series of `volumes` points: key columns, `series`, and `metadata`, which hold the grid.
pub(crate) fn schema(metadata: HashMap<String, String>, volumes: usize) -> SchemaRef {
    let mut fields: Vec<Field> = KEY_COLUMNS
        .iter()
        .enumerate()
        .map(|(at, name)| match at {
            0..NAMES => Field::new(*name, DataType::Utf8, true),
            VOXEL => Field::new(*name, DataType::UInt32, false),
            _ => Field::new(*name, DataType::UInt16, false),
        })
        .collect();
    fields.push(Field::new(SERIES_COLUMN, series_type(volumes), false));
    Arc::new(Schema::new_with_metadata(fields, metadata))
}

fn series_type(volumes: usize) -> DataType {
    DataType::FixedSizeList(item(), volumes as i32)
}

fn item() -> Arc<Field> {
    Arc::new(Field::new_list_field(DataType::Float32, true))
}

/// Builds batches of the columns that are asked for.
pub(crate) struct RowBuilder {
    schema: SchemaRef,
    columns: Vec<usize>,
    names: [Option<String>; NAMES],
    shape: [usize; 3],
    volumes: usize,
}

impl RowBuilder {
    /// For `image`; `columns` are positions in the full schema, `schema` describes just those.
    pub fn new(image: &Image, schema: SchemaRef, columns: Vec<usize>) -> Self {
        let names = image.keys.values().map(|v| v.map(str::to_owned));
        Self { schema, columns, names, shape: image.grid.shape, volumes: image.volumes }
    }

    /// True when a batch has the series.
    pub fn needs_series(&self) -> bool {
        self.columns.contains(&SERIES)
    }

    /// Rows of `voxels`; `series` is `[voxels.len(), volumes]`, or empty when it was not asked for.
    pub fn batch(&self, voxels: &[u32], series: Vec<f32>) -> Result<RecordBatch> {
        let mut series = Some(series);
        let columns: Vec<ArrayRef> =
            self.columns.iter().map(|at| self.column(*at, voxels, &mut series)).collect::<Result<_>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(voxels.len()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }

    fn column(&self, at: usize, voxels: &[u32], series: &mut Option<Vec<f32>>) -> Result<ArrayRef> {
        let [ni, nj, _] = self.shape.map(|n| n as u32);
        let index = |of: &dyn Fn(u32) -> u32| -> ArrayRef {
            Arc::new(UInt16Array::from_iter_values(voxels.iter().map(|v| of(*v) as u16)))
        };
        Ok(match at {
            0..NAMES => {
                let name = self.names[at].as_deref();
                Arc::new(std::iter::repeat_n(name, voxels.len()).collect::<StringArray>())
            }
            VOXEL => Arc::new(UInt32Array::from_iter_values(voxels.iter().copied())),
            6 => index(&|v| v % ni),
            7 => index(&|v| v / ni % nj),
            8 => index(&|v| v / ni / nj),
            _ => {
                let values = Arc::new(Float32Array::from(series.take().unwrap_or_default()));
                Arc::new(FixedSizeListArray::try_new(item(), self.volumes as i32, values, None)?)
            }
        })
    }
}
