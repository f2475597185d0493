//! Reading files of series in other processes: the plan node as bytes, and its partitions as rows.
//!
//! A scheduler that runs some partitions of a plan cannot pick them from a node that it does not know. So the
//! files' numbers become rows of a table in memory, one a partition, from which it can.

use crate::files_exec::{FileRows, FilesExec};
use crate::nifti_exec::ImageRows;
use crate::{Image, NiftiExec, NiftiOptions, Stores, nifti_table::Source};
use arrow::{
    array::{AsArray, UInt64Array},
    datatypes::{DataType, Field, Schema, UInt64Type},
    record_batch::RecordBatch,
};
use datafusion::{
    common::plan_err,
    datasource::memory::MemorySourceConfig,
    error::{DataFusionError, Result as PlanResult},
    physical_plan::{ExecutionPlan, SendableRecordBatchStream},
};
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, sync::Arc};

/// All that another process needs to read the same rows.
#[derive(Serialize, Deserialize)]
struct Sent {
    images: Vec<Image>,
    options: NiftiOptions,
    /// The grid as the schema has it, to the letter.
    metadata: BTreeMap<String, String>,
    columns: Vec<usize>,
    limit: Option<usize>,
}

impl NiftiExec {
    /// The node as bytes, to be read by [`NiftiExec::from_bytes`]. Files are named by their whole paths or URLs:
    /// another process must find them there.
    ///
    /// # Errors
    /// Never for grids of finite numbers.
    pub fn to_bytes(&self) -> PlanResult<Vec<u8>> {
        let ImageRows { source, columns, limit, .. } = self.reader();
        let sent = Sent {
            images: source.images.clone(),
            options: source.options.clone(),
            metadata: source.schema.metadata().clone().into_iter().collect(),
            columns: columns.clone(),
            limit: *limit,
        };
        serde_json::to_vec(&sent).map_err(|e| DataFusionError::Plan(format!("images cannot be sent: {e}")))
    }

    /// The node again, which finds images in `stores`.
    ///
    /// # Errors
    /// Bytes that [`NiftiExec::to_bytes`] has not written.
    pub fn from_bytes(
        bytes: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        stores: Stores,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let damaged =
            |e: &dyn std::fmt::Display| DataFusionError::Plan(format!("images were received damaged: {e}"));
        let Sent { images, options, metadata, columns, limit } =
            serde_json::from_slice(bytes).map_err(|e| damaged(&e))?;
        if let Some(image) = images.iter().find(|image| !image.is_sound()) {
            return Err(damaged(&format!("{} has a size that no image has", image.name())));
        }
        let source = Arc::new(Source::try_new(images, options, metadata.into_iter().collect(), stores)?);
        let schema = Arc::new(source.schema.project(&columns)?);
        received(ImageRows { source, columns, schema, limit }, inputs)
    }
}

impl<R: FileRows> FilesExec<R> {
    /// The node with its files' numbers as rows; nothing when it has them already.
    pub fn distributed(&self) -> Option<PlanResult<Arc<dyn ExecutionPlan>>> {
        if self.numbers().is_some() {
            return None;
        }
        let numbers = numbers(self.reader().files());
        Some(numbers.map(|numbers| Arc::new(Self::new(self.reader().clone(), Some(numbers))) as _))
    }
}

/// The node that `reader` came in, over the inputs that came with it.
pub(crate) fn received<R: FileRows>(
    reader: R,
    inputs: &[Arc<dyn ExecutionPlan>],
) -> PlanResult<Arc<dyn ExecutionPlan>> {
    match inputs {
        [] => Ok(Arc::new(FilesExec::new(reader, None))),
        [numbers] => Ok(Arc::new(FilesExec::new(reader, Some(Arc::clone(numbers))))),
        _ => plan_err!("{} was received with {} inputs", R::NODE, inputs.len()),
    }
}

fn numbers(files: usize) -> PlanResult<Arc<dyn ExecutionPlan>> {
    let schema = Arc::new(Schema::new(vec![Field::new("file", DataType::UInt64, false)]));
    let row = |file: usize| -> PlanResult<Vec<RecordBatch>> {
        let number = Arc::new(UInt64Array::from(vec![file as u64]));
        Ok(vec![RecordBatch::try_new(Arc::clone(&schema), vec![number])?])
    };
    let rows = (0..files).map(row).collect::<PlanResult<Vec<_>>>()?;
    Ok(MemorySourceConfig::try_new_exec(&rows, Arc::clone(&schema), None)?)
}

/// The number that a partition of [`numbers`] holds.
pub(crate) async fn file_number(mut numbers: SendableRecordBatchStream) -> PlanResult<usize> {
    while let Some(batch) = numbers.next().await.transpose()? {
        let number = batch.columns().first().and_then(|c| c.as_primitive_opt::<UInt64Type>());
        if let Some(number) = number.and_then(|n| n.values().first().copied()) {
            return usize::try_from(number).map_err(|e| DataFusionError::External(Box::new(e)));
        }
    }
    plan_err!("a partition of files was received without its number")
}
