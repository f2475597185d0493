//! The columns of tables of series that lie on no grid: their schema, and batches of it.

use crate::series_file::SeriesFile;
use crate::series_rows::{item, same_text, series_lists, series_type};
use crate::{Result, SeriesFormat};
use arrow::array::{
    ArrayRef, Float32Array, RecordBatch, RecordBatchOptions, StringArray, UInt16Array, UInt32Array,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use std::ops::Range;
use std::{collections::HashMap, sync::Arc};
use voxelflow_formats::cifti::{BrainModel, Places};
use voxelflow_stage::{KEY_COLUMNS, SERIES_COLUMN};

/// Text columns at the start of [`KEY_COLUMNS`].
const NAMES: usize = 5;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    /// A key of the run, by its place in [`KEY_COLUMNS`].
    Name(usize),
    Structure,
    /// The number of the row in its file.
    Number(&'static str),
    /// The vertex of a grayordinate on a surface.
    Vertex,
    /// The voxel of a grayordinate in the volume, along i, j or k.
    Axis(usize),
    Series,
}

impl Column {
    /// The columns of a table of `format`.
    pub fn of(format: SeriesFormat) -> Vec<Self> {
        let names = (0..NAMES).map(Self::Name);
        let places: &[Self] = match format {
            SeriesFormat::Gifti | SeriesFormat::Mgh => &[Self::Structure, Self::Number("vertex")],
            SeriesFormat::Cifti => &[
                Self::Structure,
                Self::Number("grayordinate"),
                Self::Vertex,
                Self::Axis(0),
                Self::Axis(1),
                Self::Axis(2),
            ],
            SeriesFormat::Npy => &[Self::Number("row")],
        };
        names.chain(places.iter().copied()).chain([Self::Series]).collect()
    }

    fn field(self, points: Option<usize>, number: &DataType) -> Field {
        match self {
            Self::Name(at) => Field::new(KEY_COLUMNS[at], DataType::Utf8, true),
            Self::Structure => Field::new("structure", DataType::Utf8, true),
            Self::Number(name) => Field::new(name, DataType::UInt32, false),
            Self::Vertex => Field::new("vertex", DataType::UInt32, true),
            Self::Axis(axis) => Field::new(["i", "j", "k"][axis], DataType::UInt16, true),
            Self::Series => Field::new(SERIES_COLUMN, series_type(item(number.clone()), points), false),
        }
    }
}

/// The schema of series of `points` points, or of several lengths, of 32 or 64 bits; `metadata` hold their origin.
pub(crate) fn schema(
    format: SeriesFormat,
    points: Option<usize>,
    double: bool,
    metadata: HashMap<String, String>,
) -> SchemaRef {
    let number = if double { DataType::Float64 } else { DataType::Float32 };
    let columns = Column::of(format).into_iter();
    let fields: Vec<Field> = columns.map(|column| column.field(points, &number)).collect();
    Arc::new(Schema::new_with_metadata(fields, metadata))
}

/// Builds batches of the columns that are asked for.
pub(crate) struct SeriesRowBuilder {
    schema: SchemaRef,
    columns: Vec<Column>,
    names: [String; NAMES],
    /// Structures of the rows: the row after the last of each.
    structures: Vec<(usize, Option<String>)>,
    models: Vec<BrainModel>,
    points: usize,
}

impl SeriesRowBuilder {
    /// For `file`, whose grayordinates lie in `models`; `columns` are positions in the table's schema, `schema`
    /// describes just those.
    pub fn new(file: &SeriesFile, models: Vec<BrainModel>, schema: SchemaRef, columns: &[usize]) -> Self {
        let all = Column::of(file.format);
        let mut end = 0;
        let structures = file.structures.iter().map(|structure| {
            end += structure.rows;
            (end, structure.name.clone())
        });
        Self {
            schema,
            columns: columns.iter().filter_map(|at| all.get(*at).copied()).collect(),
            names: file.keys.texts(),
            structures: structures.collect(),
            models,
            points: file.points,
        }
    }

    /// True when a batch has the series.
    pub fn needs_series(&self) -> bool {
        self.columns.contains(&Column::Series)
    }

    /// The rows of a file; `values` of their series are `[rows, points]`, none where they were not asked for.
    pub fn batch(&self, rows: Range<usize>, values: Option<ArrayRef>) -> Result<RecordBatch> {
        let mut series = values;
        let columns: Vec<ArrayRef> = self
            .columns
            .iter()
            .map(|column| self.column(*column, &rows, &mut series))
            .collect::<Result<_>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }

    fn column(&self, column: Column, rows: &Range<usize>, series: &mut Option<ArrayRef>) -> Result<ArrayRef> {
        Ok(match column {
            Column::Name(at) => same_text(&self.names[at], rows.len()),
            Column::Structure => {
                Arc::new(rows.clone().map(|row| self.structure(row)).collect::<StringArray>())
            }
            Column::Number(_) => Arc::new(UInt32Array::from_iter_values(rows.clone().map(|row| row as u32))),
            Column::Vertex => Arc::new(rows.clone().map(|row| self.vertex(row)).collect::<UInt32Array>()),
            Column::Axis(axis) => {
                let index = |row| self.voxel(row).map(|voxel| voxel[axis] as u16);
                Arc::new(rows.clone().map(index).collect::<UInt16Array>())
            }
            Column::Series => {
                let values = series.take().unwrap_or_else(|| Arc::new(Float32Array::new_null(0)));
                series_lists(&self.schema, self.points, values)?
            }
        })
    }

    fn structure(&self, row: usize) -> Option<&str> {
        let at = self.structures.partition_point(|(end, _)| *end <= row);
        self.structures.get(at)?.1.as_deref()
    }

    fn place(&self, row: usize) -> Option<(&Places, usize)> {
        let at = self.models.partition_point(|model| model.offset + model.count <= row);
        let model = self.models.get(at)?;
        Some((&model.places, row - model.offset))
    }

    fn vertex(&self, row: usize) -> Option<u32> {
        match self.place(row)? {
            (Places::Surface { vertices, .. }, at) => vertices.get(at).copied(),
            _ => None,
        }
    }

    fn voxel(&self, row: usize) -> Option<[u32; 3]> {
        match self.place(row)? {
            (Places::Volume { voxels }, at) => voxels.get(at).copied(),
            _ => None,
        }
    }
}
