//! The columns of a table of images: its schema, and batches of it.

use crate::atlas::Parcel;
use crate::{Image, Result};
use arrow::array::{
    Array, ArrayRef, FixedSizeListArray, Float32Array, Int32Array, ListArray, RecordBatch,
    RecordBatchOptions, StringArray, UInt16Array, UInt32Array,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use std::{collections::HashMap, ops::Range, sync::Arc};
use voxelflow_stage::{KEY_COLUMNS, PARCEL_COLUMNS, SERIES_COLUMN};

/// Text columns at the start of [`KEY_COLUMNS`].
const NAMES: usize = 5;

/// What the rows of a table are.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RowKind {
    /// Parcels, not voxels.
    pub parcels: bool,
    /// Series are computed from volumes.
    pub computed: bool,
    /// Series are of 64 bits: they are computed, or the numbers of an image need it.
    pub double: bool,
}

impl RowKind {
    /// The schema of series of `volumes` points, or of several lengths: key columns, `series`, and `metadata`, which hold
    /// the grid.
    pub fn schema(self, metadata: HashMap<String, String>, volumes: Option<usize>) -> SchemaRef {
        let (names, indices) = KEY_COLUMNS.split_at(NAMES);
        let mut fields: Vec<Field> =
            names.iter().map(|name| Field::new(*name, DataType::Utf8, true)).collect();
        match self.parcels {
            true => {
                fields.push(Field::new(PARCEL_COLUMNS[0], DataType::Int32, false));
                fields.push(Field::new(PARCEL_COLUMNS[1], DataType::Utf8, true));
            }
            false => fields.extend(indices.iter().enumerate().map(|(at, name)| {
                let number = if at == 0 { DataType::UInt32 } else { DataType::UInt16 };
                Field::new(*name, number, false)
            })),
        }
        let number = if self.double { DataType::Float64 } else { DataType::Float32 };
        fields.push(Field::new(SERIES_COLUMN, series_type(item(number), volumes), false));
        Arc::new(Schema::new_with_metadata(fields, metadata))
    }

    /// The column that rows are sorted by.
    pub fn sorted_by(self) -> &'static str {
        if self.parcels { PARCEL_COLUMNS[0] } else { KEY_COLUMNS[NAMES] }
    }

    /// Bytes of a point of a series.
    pub fn point_bytes(self) -> usize {
        if self.double { 8 } else { 4 }
    }
}

/// Lists of `points` items, or of several lengths.
pub(crate) fn series_type(item: Arc<Field>, points: Option<usize>) -> DataType {
    match points {
        Some(points) => DataType::FixedSizeList(item, points as i32),
        None => DataType::List(item),
    }
}

/// `values` as lists of `points` each, of the type that `schema` has for them.
pub(crate) fn series_lists(schema: &Schema, points: usize, values: ArrayRef) -> Result<ArrayRef> {
    let item = item(values.data_type().clone());
    Ok(match schema.field_with_name(SERIES_COLUMN)?.data_type() {
        DataType::List(_) => {
            let rows = values.len() / points.max(1);
            let offsets = OffsetBuffer::from_repeated_length(points, rows);
            Arc::new(ListArray::try_new(item, offsets, values, None)?)
        }
        _ => Arc::new(FixedSizeListArray::try_new(item, points as i32, values, None)?),
    })
}

/// A column that says the same in all of its rows.
pub(crate) fn same_text(text: &str, rows: usize) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(std::iter::repeat_n(text, rows)))
}

pub(crate) fn item(number: DataType) -> Arc<Field> {
    Arc::new(Field::new_list_field(number, true))
}

/// What the rows of an image are, in their order.
#[derive(Clone, Debug)]
pub(crate) enum Rows {
    /// Voxels by linear index `i + ni·(j + nj·k)`.
    Voxels(Vec<u32>),
    /// Parcels of an atlas.
    Parcels(Arc<Vec<Parcel>>),
}

impl Rows {
    pub fn len(&self) -> usize {
        match self {
            Self::Voxels(voxels) => voxels.len(),
            Self::Parcels(parcels) => parcels.len(),
        }
    }
}

/// Builds batches of the columns that are asked for.
pub(crate) struct RowBuilder {
    schema: SchemaRef,
    names: [String; NAMES],
    shape: [usize; 3],
    volumes: usize,
}

impl RowBuilder {
    /// For rows of `image` on a grid of `shape`; `schema` describes the columns that are asked for.
    pub fn new(image: &Image, shape: [usize; 3], schema: SchemaRef) -> Self {
        let names = image.keys.texts();
        Self { schema, names, shape, volumes: image.volumes }
    }

    /// True when a batch has the series.
    pub fn needs_series(&self) -> bool {
        self.schema.column_with_name(SERIES_COLUMN).is_some()
    }

    /// The rows in `range`; `values` of their series, row after row, where they were asked for.
    pub fn batch(&self, rows: &Rows, range: Range<usize>, values: Option<ArrayRef>) -> Result<RecordBatch> {
        let count = range.len();
        let mut values = values;
        let column = |field: &Arc<Field>| match field.name().as_str() {
            SERIES_COLUMN => {
                let values = values.take().unwrap_or_else(|| Arc::new(Float32Array::new_null(0)));
                series_lists(&self.schema, self.volumes, values)
            }
            name => Ok(match KEY_COLUMNS.iter().take(NAMES).position(|known| *known == name) {
                Some(at) => same_text(&self.names[at], count),
                None => self.key(name, rows, range.clone()),
            }),
        };
        let columns: Vec<ArrayRef> = self.schema.fields().iter().map(column).collect::<Result<_>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }

    /// What tells rows of an image apart.
    fn key(&self, name: &str, rows: &Rows, range: Range<usize>) -> ArrayRef {
        let [ni, nj, _] = self.shape.map(|n| n as u32);
        match rows {
            Rows::Voxels(voxels) => {
                let voxels = &voxels[range];
                let index = |of: &dyn Fn(u32) -> u32| -> ArrayRef {
                    Arc::new(UInt16Array::from_iter_values(voxels.iter().map(|v| of(*v) as u16)))
                };
                match name {
                    "i" => index(&|v| v % ni),
                    "j" => index(&|v| v / ni % nj),
                    "k" => index(&|v| v / ni / nj),
                    _ => Arc::new(UInt32Array::from_iter_values(voxels.iter().copied())),
                }
            }
            Rows::Parcels(parcels) => {
                let parcels = &parcels[range];
                match name == PARCEL_COLUMNS[1] {
                    true => Arc::new(parcels.iter().map(|p| p.name.as_deref()).collect::<StringArray>()),
                    false => Arc::new(Int32Array::from_iter_values(parcels.iter().map(|p| p.number))),
                }
            }
        }
    }
}
