//! How many bytes a row takes, as far as its schema says: series are thousands of times wider than keys, so what is
//! counted in rows elsewhere is counted in bytes here.

use arrow::datatypes::{DataType, Schema};
use datafusion::{execution::TaskContext, physical_plan::ExecutionPlan, prelude::SessionConfig};
use std::sync::Arc;

/// Bytes that a text is taken to have.
const TEXT: usize = 32;
/// Values that a list of no fixed length is taken to have.
const LIST: usize = 512;

/// Rows, or lists, of fewer bytes are cheaper to move than to be asked for later.
pub(crate) const WIDE: usize = 256;

/// Bytes of a batch, where the session's memory allows.
const BATCH_BYTES: usize = 4 << 20;
/// A batch is at most this part of the session's memory: many are on their way at once, and a merge holds one of every
/// run that it merges.
const PART_OF_MEMORY: usize = 256;
/// Fewer rows make work a batch, and not a row, cost.
const LEAST_ROWS: usize = 32;

/// Bytes of a row of `schema`.
pub(crate) fn row_bytes(schema: &Schema) -> usize {
    schema.fields().iter().map(|field| value_bytes(field.data_type())).sum()
}

pub(crate) fn value_bytes(of: &DataType) -> usize {
    match of {
        DataType::FixedSizeList(item, length) => {
            value_bytes(item.data_type()) * usize::try_from(*length).unwrap_or(0)
        }
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item) => value_bytes(item.data_type()) * LIST,
        DataType::Struct(fields) => fields.iter().map(|field| value_bytes(field.data_type())).sum(),
        DataType::FixedSizeBinary(length) => usize::try_from(*length).unwrap_or(0),
        DataType::Boolean | DataType::Null => 1,
        other => other.primitive_width().unwrap_or(TEXT),
    }
}

/// The context of `task`, in which batches of `plan` have so few rows that they are bounded in bytes.
pub(crate) fn in_bounded_batches(
    plan: &dyn ExecutionPlan,
    task: Arc<TaskContext>,
    memory: usize,
) -> Arc<TaskContext> {
    let most = task.session_config().batch_size();
    let rows = batch_rows(widest_row(plan), most, memory);
    if rows == most {
        return task;
    }
    let config = task.session_config().clone().with_batch_size(rows);
    with_config(&task, config)
}

/// Rows of a batch, at most `most`, where a row has so many bytes and the session so many to share.
fn batch_rows(row_bytes: usize, most: usize, memory: usize) -> usize {
    let bytes = BATCH_BYTES.min(memory / PART_OF_MEMORY);
    most.min((bytes / row_bytes.max(1)).max(LEAST_ROWS))
}

fn widest_row(plan: &dyn ExecutionPlan) -> usize {
    let below = plan.children().into_iter().map(|child| widest_row(child.as_ref())).max().unwrap_or(0);
    below.max(row_bytes(&plan.schema()))
}

/// The context of `task` with another configuration.
pub(crate) fn with_config(task: &TaskContext, config: SessionConfig) -> Arc<TaskContext> {
    Arc::new(TaskContext::new(
        task.task_id(),
        task.session_id(),
        config,
        task.scalar_functions().clone(),
        task.higher_order_functions().clone(),
        task.aggregate_functions().clone(),
        task.window_functions().clone(),
        task.runtime_env(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::Field;

    #[test]
    fn rows_are_as_wide_as_their_values() {
        let series = DataType::new_fixed_size_list(DataType::Float32, 1200, false);
        let position = DataType::Struct(vec![Field::new("i", DataType::Int32, false)].into());
        let schema = Schema::new(vec![
            Field::new("voxel", DataType::Int64, false),
            Field::new("subject", DataType::Utf8, true),
            Field::new("position", position, false),
            Field::new("series", series, false),
        ]);
        assert_eq!(row_bytes(&schema), 8 + TEXT + 4 + 4800);
        assert_eq!(row_bytes(&Schema::empty()), 0);
    }

    #[test]
    fn batches_are_bounded_in_bytes() {
        // Keys alone, series with memory to spare, series with little, rows wider than a batch, rows without columns.
        assert_eq!(batch_rows(16, 8192, 16 << 30), 8192);
        assert_eq!(batch_rows(4800, 8192, 16 << 30), (4 << 20) / 4800);
        assert_eq!(batch_rows(4800, 8192, 128 << 20), (128 << 20) / 256 / 4800);
        assert_eq!(batch_rows(1 << 30, 8192, 128 << 20), LEAST_ROWS);
        assert_eq!(batch_rows(0, 8192, 128 << 20), 8192);
        assert_eq!(batch_rows(4800, 10, 16 << 30), 10);
    }
}
