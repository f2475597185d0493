//! Text files as typed columns: those of all files together, a batch a file.

use crate::series_rows::same_text;
use crate::text_file::{Content, TextFile};
use crate::{Result, TextTables};
use arrow::array::{ArrayRef, Float64Array, RecordBatch, RecordBatchOptions, StringArray, UInt32Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use std::sync::Arc;
use voxelflow_stage::{KEY_COLUMNS, run_index};

/// Keys of a run among [`KEY_COLUMNS`].
const KEYS: usize = 4;

/// Where the cells of a column come from.
#[derive(Clone, Debug, PartialEq)]
enum Column {
    /// A key, by its place in [`KEY_COLUMNS`].
    Key(usize),
    /// A key that the file has itself, by its place.
    OwnKey(usize),
    /// `participant_id` or `session_id` of the row, without `sub-` or `ses-`.
    Participant {
        of: &'static str,
        prefix: &'static str,
    },
    /// The number of the row.
    Volume,
    Condition,
    Numbers,
    Text,
}

/// The rows of `files`: their schema, and a batch of each.
///
/// A column holds numbers if it does in every file that has it (cells without value aside), else text; where a file
/// lacks it, it is null.
///
/// # Errors
/// A cell of a column of numbers that holds none.
pub(crate) fn batches(kind: TextTables, files: &[TextFile]) -> Result<(SchemaRef, Vec<RecordBatch>)> {
    let columns = columns(kind, files)?;
    let field = |(name, column): &(String, Column)| {
        let data_type = match column {
            Column::Volume => DataType::UInt32,
            Column::Numbers => DataType::Float64,
            Column::Key(_)
            | Column::OwnKey(_)
            | Column::Participant { .. }
            | Column::Condition
            | Column::Text => DataType::Utf8,
        };
        Field::new(name, data_type, *column != Column::Volume)
    };
    let schema = Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()));
    let batch = |file: &TextFile| -> Result<RecordBatch> {
        let cells = columns.iter().map(|(name, column)| cells(kind, file, name, column));
        let options = RecordBatchOptions::new().with_row_count(Some(file.rows));
        let cells: Vec<ArrayRef> = cells.collect::<Result<_>>()?;
        Ok(RecordBatch::try_new_with_options(Arc::clone(&schema), cells, &options)?)
    };
    let batches = files.iter().map(batch).collect::<Result<_>>()?;
    Ok((schema, batches))
}

/// Names of the columns of a file, in its order.
pub(crate) fn names(file: &TextFile) -> Vec<&str> {
    match &file.content {
        Content::Table(table) => table.names().iter().map(String::as_str).collect(),
        Content::Numbers(columns) => columns.iter().map(|(name, _)| *name).collect(),
    }
}

fn columns(kind: TextTables, files: &[TextFile]) -> Result<Vec<(String, Column)>> {
    let mut own: Vec<&str> = Vec::new();
    for name in files.iter().flat_map(names) {
        if !own.contains(&name) {
            own.push(name);
        }
    }
    let key =
        |at: usize| match (KEY_COLUMNS[at], own.contains(&"participant_id"), own.contains(&"session_id")) {
            ("subject", true, _) => Column::Participant { of: "participant_id", prefix: "sub-" },
            ("session", _, true) => Column::Participant { of: "session_id", prefix: "ses-" },
            _ => Column::Key(at),
        };
    let mut columns: Vec<(String, Column)> =
        (0..KEYS).map(|at| (KEY_COLUMNS[at].to_owned(), key(at))).collect();
    if kind.counts_volumes() {
        columns.push(("volume".into(), Column::Volume));
    }
    if kind == TextTables::Ev {
        columns.push(("condition".into(), Column::Condition));
    }
    columns.retain(|(name, _)| !own.contains(&name.as_str()));
    for name in own {
        if let Some(at) = KEY_COLUMNS[..KEYS].iter().position(|key| *key == name) {
            columns.push((name.to_owned(), Column::OwnKey(at)));
            continue;
        }
        let numbers = match kind.is_number(name) {
            Some(numbers) => numbers,
            None => is_numeric(files, name)?,
        };
        columns.push((name.to_owned(), if numbers { Column::Numbers } else { Column::Text }));
    }
    Ok(columns)
}

/// Whether a column holds numbers in every file in which it holds anything.
fn is_numeric(files: &[TextFile], name: &str) -> Result<bool> {
    for file in files {
        let Content::Table(table) = &file.content else { continue };
        if table.has(name) && !table.is_numeric(name)? && table.text(name)?.iter().any(Option::is_some) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn cells(kind: TextTables, file: &TextFile, name: &str, column: &Column) -> Result<ArrayRef> {
    let same = |text: Option<&str>| Arc::new(std::iter::repeat_n(text, file.rows).collect::<StringArray>());
    Ok(match column {
        Column::Key(at) => same_text(file.keys[*at].as_deref().unwrap_or_default(), file.rows),
        Column::OwnKey(at) => {
            let key = |text: Option<&str>| match (KEY_COLUMNS[*at], text.unwrap_or_default()) {
                ("run", run) => run_index(run).into_owned(),
                (_, key) => key.to_owned(),
            };
            Arc::new(StringArray::from_iter_values(texts(file, name)?.into_iter().map(key)))
        }
        Column::Condition => same(file.condition.as_deref()),
        Column::Volume => Arc::new(UInt32Array::from_iter_values(0..file.rows as u32)),
        Column::Participant { of, prefix } => {
            let bare = |id: Option<&str>| {
                let id = id.unwrap_or_default();
                id.strip_prefix(prefix).unwrap_or(id).to_owned()
            };
            Arc::new(StringArray::from_iter_values(texts(file, of)?.into_iter().map(bare)))
        }
        Column::Text => Arc::new(texts(file, name)?.into_iter().collect::<StringArray>()),
        Column::Numbers => Arc::new(numbers(kind, file, name)?.into_iter().collect::<Float64Array>()),
    })
}

fn texts<'f>(file: &'f TextFile, name: &str) -> Result<Vec<Option<&'f str>>> {
    match &file.content {
        Content::Table(table) if table.has(name) => Ok(table.text(name)?),
        _ => Ok(vec![None; file.rows]),
    }
}

fn numbers(kind: TextTables, file: &TextFile, name: &str) -> Result<Vec<Option<f64>>> {
    match &file.content {
        Content::Numbers(columns) => {
            let found = columns.iter().find(|(known, _)| *known == name);
            Ok(found.map_or_else(
                || vec![None; file.rows],
                |(_, values)| values.iter().copied().map(Some).collect(),
            ))
        }
        Content::Table(table) if !table.has(name) => Ok(vec![None; file.rows]),
        // Here an empty cell is a fault of the file, elsewhere it is a missing value.
        Content::Table(table) if kind.is_number(name) == Some(true) => {
            Ok(table.numbers(name)?.into_iter().map(|value| (!value.is_nan()).then_some(value)).collect())
        }
        Content::Table(table) => {
            Ok(table.text(name)?.into_iter().map(|text| text.and_then(|text| text.parse().ok())).collect())
        }
    }
}
