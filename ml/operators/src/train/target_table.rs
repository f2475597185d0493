//! The table of a model that knows something of each of its targets: `targets.parquet` in its folder.
//!
//! Rows carry their keys and the grid, so that every column can be written as a map. A key that targets do not have is the
//! empty text, another value null.

use super::samples::TargetGroup;
use crate::{Error, Result};
use arrow::{
    array::{ArrayRef, Float64Array, RecordBatch, StringArray, UInt16Array, UInt32Array},
    datatypes::{DataType, Field, Schema, SchemaRef},
};
use parquet::{arrow::ArrowWriter, file::properties::WriterProperties};
use std::{collections::HashMap, fs::File, path::Path, sync::Arc};
use voxelflow_dataset::MODEL_TABLE;
use voxelflow_stage::{GRID_METADATA_KEY, Grid};

/// Rows that are written at once.
const ROWS: usize = 64 << 10;

/// Columns of the table of a model that was trained on rows of `trained`, with `columns` of its own.
pub(crate) fn schema(trained: &Schema, columns: &[String]) -> SchemaRef {
    let number = |name: &String| Field::new(name, DataType::Float64, true);
    let mut fields = vec![
        Field::new("subject", DataType::Utf8, true),
        Field::new("space", DataType::Utf8, true),
        Field::new("voxel", DataType::UInt32, false),
    ];
    let grid = trained.metadata().get(GRID_METADATA_KEY);
    if grid.is_some() {
        fields.extend(["i", "j", "k"].map(|name| Field::new(name, DataType::UInt16, false)));
    }
    fields.extend(columns.iter().map(number));
    let metadata = grid.map(|grid| (GRID_METADATA_KEY.to_owned(), grid.clone()));
    Arc::new(Schema::new(fields).with_metadata(metadata.into_iter().collect()))
}

/// Writes the table of `groups`, whose schema says what the model has `seen`; `columns`: of each of the model's columns the numbers of all targets.
///
/// # Errors
/// Storage that fails, columns of another length than targets.
pub(super) fn write(
    folder: &Path,
    (trained, seen): (&Schema, HashMap<String, String>),
    groups: &[TargetGroup],
    columns: &[(String, Vec<f64>)],
) -> Result<()> {
    let path = folder.join(MODEL_TABLE);
    let failed = |reason: String| Error::ModelFolder { path: path.display().to_string(), reason };
    let names: Vec<String> = columns.iter().map(|(name, _)| name.clone()).collect();
    let schema = schema(trained, &names);
    let metadata = schema.metadata().clone().into_iter().chain(seen).collect();
    let schema = Arc::new(schema.as_ref().clone().with_metadata(metadata));
    let grid = Grid::of(trained).ok();
    let targets: usize = groups.iter().map(|group| group.voxels.len()).sum();
    if let Some((name, values)) = columns.iter().find(|(_, values)| values.len() != targets) {
        return Err(failed(format!("the model has {} values of {name} for {targets} targets", values.len())));
    }
    let file = File::create(&path).map_err(|e| failed(e.to_string()))?;
    let mut writer =
        ArrowWriter::try_new(file, Arc::clone(&schema), Some(WriterProperties::builder().build()))
            .map_err(|e| failed(e.to_string()))?;
    let mut first = 0;
    for group in groups {
        for voxels in group.voxels.chunks(ROWS) {
            let n = voxels.len();
            let text = |text: &Option<String>| {
                let text = text.as_deref().unwrap_or_default();
                Arc::new(StringArray::from_iter_values(std::iter::repeat_n(text, n))) as ArrayRef
            };
            let mut arrays = vec![
                text(&group.subject),
                text(&group.space),
                Arc::new(UInt32Array::from(voxels.to_vec())) as ArrayRef,
            ];
            if let Some(Grid { shape: [ni, nj, _], .. }) = &grid {
                let (ni, nj) = ((*ni).max(1), (*nj).max(1));
                let index = |of: &dyn Fn(usize) -> usize| {
                    let each =
                        voxels.iter().map(|voxel| u16::try_from(of(*voxel as usize)).unwrap_or(u16::MAX));
                    Arc::new(UInt16Array::from_iter_values(each)) as ArrayRef
                };
                arrays.extend([index(&|v| v % ni), index(&|v| v / ni % nj), index(&|v| v / ni / nj)]);
            }
            for (_, values) in columns {
                let own = values[first..first + n].iter().map(|value| Some(*value).filter(|v| v.is_finite()));
                arrays.push(Arc::new(Float64Array::from_iter(own)));
            }
            first += n;
            let batch =
                RecordBatch::try_new(Arc::clone(&schema), arrays).map_err(|e| failed(e.to_string()))?;
            writer.write(&batch).map_err(|e| failed(e.to_string()))?;
        }
    }
    writer.close().map(drop).map_err(|e| failed(e.to_string()))
}
