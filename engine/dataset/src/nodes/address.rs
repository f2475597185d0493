//! Rows sent to chosen partitions of another stage.
//!
//! A scheduler moves rows between stages by the hash of a column only. So every row gets a column of numbers whose
//! hash leads to the partition that it is meant for; it is dropped on the other side.
//!
//! ```text
//!   rows ─► AddressRowsExec (+ column) ─► RepartitionExec: hash of the column ─► ProjectionExec (− column)
//! ```

use super::{
    UnaryExec, UnaryOperator,
    unary::{self, UnaryTask},
};
use crate::node_codec::NodeCodec;
use arrow::{
    array::UInt64Array,
    datatypes::{DataType, Field, Schema, SchemaRef},
    record_batch::RecordBatch,
};
use datafusion::{
    common::plan_err,
    error::Result,
    physical_expr::{PhysicalExpr, expressions::Column},
    physical_plan::{
        ExecutionPlan, Partitioning, SendableRecordBatchStream,
        metrics::Time,
        projection::ProjectionExec,
        repartition::{BatchPartitioner, RepartitionExec},
        stream::RecordBatchStreamAdapter,
    },
};
use futures::{StreamExt, TryStreamExt};
use serde::{Deserialize, Serialize};
use std::{fmt, sync::Arc};

/// Name of the column; it never leaves the plan.
const TO: &str = "__to_partition";

/// Which partition a row is sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Address {
    /// One after the other, so that all get the same number of rows.
    InTurn,
    /// Neighbouring partitions to the same one, in their order.
    Neighbours,
}

/// Settings of `AddressRowsExec`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct AddressRows {
    address: Address,
    /// A number for each partition whose hash leads there.
    numbers: Vec<u64>,
}

inventory::submit! {
    NodeCodec {
        name: AddressRows::NAME,
        encode: unary::encode::<AddressRows>,
        decode: unary::decode::<AddressRows>,
    }
}

/// `input` sent to `partitions` partitions, by a scheduler that knows hash partitioning only.
///
/// # Errors
/// Those of the nodes that it is made of.
pub(crate) fn send_rows(
    input: Arc<dyn ExecutionPlan>,
    address: Address,
    partitions: usize,
) -> Result<Arc<dyn ExecutionPlan>> {
    let columns = input.schema().fields().len();
    let operator = AddressRows { address, numbers: leading_to(partitions)? };
    let addressed = Arc::new(UnaryExec::try_new(operator, input)?.with_places()?);
    let to: Arc<dyn PhysicalExpr> = Arc::new(Column::new(TO, columns));
    let schema = addressed.schema();
    let sent = Arc::new(RepartitionExec::try_new(addressed, Partitioning::Hash(vec![to], partitions))?);
    let kept = schema.fields().iter().take(columns).enumerate();
    let kept = kept.map(|(at, field)| {
        (Arc::new(Column::new(field.name(), at)) as Arc<dyn PhysicalExpr>, field.name().clone())
    });
    Ok(Arc::new(ProjectionExec::try_new(kept.collect::<Vec<_>>(), sent)?))
}

/// For each of `partitions` partitions the least number that hash partitioning sends there.
fn leading_to(partitions: usize) -> Result<Vec<u64>> {
    let schema = Arc::new(Schema::new(vec![Field::new(TO, DataType::UInt64, false)]));
    let column: Vec<Arc<dyn PhysicalExpr>> = vec![Arc::new(Column::new(TO, 0))];
    let mut partitioner = BatchPartitioner::new_hash_partitioner(column, partitions, Time::default())?;
    let mut numbers = vec![None; partitions];
    let mut next = 0_u64;
    while numbers.iter().any(Option::is_none) {
        let some = Arc::new(UInt64Array::from_iter_values(next..next + 1024));
        next += 1024;
        partitioner.partition(
            RecordBatch::try_new(Arc::clone(&schema), vec![some])?,
            |partition, batch| {
                let column = batch.column(0).as_any().downcast_ref::<UInt64Array>();
                if let (None, Some(first)) = (numbers[partition], column.filter(|c| !c.is_empty())) {
                    numbers[partition] = Some(first.value(0));
                }
                Ok(())
            },
        )?;
    }
    Ok(numbers.into_iter().flatten().collect())
}

impl UnaryOperator for AddressRows {
    const NAME: &'static str = "AddressRowsExec";

    fn check(&self, _input: &SchemaRef) -> Result<()> {
        if self.numbers.is_empty() { plan_err!("rows cannot be sent to no partition") } else { Ok(()) }
    }
    fn schema(&self, input: &SchemaRef) -> SchemaRef {
        let to = Arc::new(Field::new(TO, DataType::UInt64, false));
        let fields: Vec<_> = input.fields().iter().cloned().chain([to]).collect();
        Arc::new(Schema::new_with_metadata(fields, input.metadata().clone()))
    }
    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, partitions={}", self.address, self.numbers.len())
    }
    fn run(&self, task: UnaryTask) -> Result<SendableRecordBatchStream> {
        let UnaryTask { rows, place, schema, .. } = task;
        let (numbers, address, output) = (self.numbers.clone(), self.address, Arc::clone(&schema));
        // Partitions begin their turns at different ones, so that few rows in many partitions are spread too.
        let mut turn = place.partition * numbers.len() / place.partitions.max(1);
        let addressed = rows.map(move |batch| {
            let batch = batch?;
            let number = |_| {
                let to = match address {
                    Address::InTurn => turn % numbers.len(),
                    Address::Neighbours => place.partition * numbers.len() / place.partitions.max(1),
                };
                turn += 1;
                numbers[to.min(numbers.len() - 1)]
            };
            let to = UInt64Array::from_iter_values((0..batch.num_rows()).map(number));
            let mut columns = batch.columns().to_vec();
            columns.push(Arc::new(to));
            Ok(RecordBatch::try_new(Arc::clone(&output), columns)?)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, addressed.into_stream())))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use datafusion::{
        datasource::memory::MemorySourceConfig, execution::TaskContext, physical_plan::collect_partitioned,
    };

    fn numbers(partitions: &[Vec<u64>]) -> Arc<dyn ExecutionPlan> {
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::UInt64, false)]));
        let batch = |rows: &Vec<u64>| {
            vec![
                RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(UInt64Array::from(rows.clone()))])
                    .unwrap(),
            ]
        };
        let parts: Vec<_> = partitions.iter().map(batch).collect();
        MemorySourceConfig::try_new_exec(&parts, schema, None).unwrap()
    }

    async fn sent(input: &[Vec<u64>], address: Address, partitions: usize) -> Vec<Vec<u64>> {
        let plan = send_rows(numbers(input), address, partitions).unwrap();
        assert_eq!(plan.schema().fields().len(), 1, "the column of addresses is gone");
        let parts = collect_partitioned(plan, Arc::new(TaskContext::default())).await.unwrap();
        let rows = |batches: Vec<RecordBatch>| {
            let mut rows: Vec<u64> = batches
                .iter()
                .flat_map(|b| b.column(0).as_any().downcast_ref::<UInt64Array>().unwrap().values().to_vec())
                .collect();
            rows.sort_unstable();
            rows
        };
        parts.into_iter().map(rows).collect()
    }

    #[tokio::test]
    async fn rows_are_dealt_out_evenly_also_where_partitions_have_one_each() {
        let one_each: Vec<Vec<u64>> = (0..8).map(|n| vec![n]).collect();
        assert_eq!(
            sent(&one_each, Address::InTurn, 4).await.iter().map(Vec::len).collect::<Vec<_>>(),
            [2; 4]
        );
        let all = sent(&[(0..100).collect(), Vec::new()], Address::InTurn, 7).await;
        assert!(all.iter().all(|part| (14..=15).contains(&part.len())), "{all:?}");
        assert_eq!(all.concat().len(), 100);
    }

    #[tokio::test]
    async fn neighbours_come_together() {
        let parts: Vec<Vec<u64>> = (0..5).map(|p| vec![10 * p, 10 * p + 1]).collect();
        let two = sent(&parts, Address::Neighbours, 2).await;
        assert_eq!(two, [vec![0, 1, 10, 11, 20, 21], vec![30, 31, 40, 41]]);
    }
}
