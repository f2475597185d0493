//! Verbs that run the plan: counting, collecting, streaming, calling functions for their effect.

use crate::{
    Dataset,
    error::{Error, Result},
    functions::{Function, FunctionContext},
    keys::same_as_input,
    nodes,
    partitions::Run,
};
use arrow::{
    array::AsArray, compute::concat_batches, datatypes::Int64Type, record_batch::RecordBatch,
    util::pretty::pretty_format_batches,
};
use datafusion::{
    functions_aggregate::count::count_all,
    physical_plan::{SendableRecordBatchStream, displayable},
};
use futures::StreamExt;
use serde::Serialize;
use std::sync::Arc;

impl Dataset {
    /// The number of rows; from the files' own counts where these suffice.
    ///
    /// # Errors
    /// The first fault in the chain, or a partition that fails.
    pub async fn count(&self) -> Result<usize> {
        let counted = self.then_frame("count", |frame| frame.aggregate(Vec::new(), vec![count_all()]));
        let numbers = counted.collect().await?;
        let number = numbers
            .iter()
            .find_map(|b| b.columns().first()?.as_primitive_opt::<Int64Type>()?.values().first().copied());
        Ok(usize::try_from(number.unwrap_or_default()).unwrap_or_default())
    }

    /// All rows, partition by partition.
    ///
    /// # Errors
    /// The first fault in the chain, or a partition that fails.
    pub async fn collect(&self) -> Result<Vec<RecordBatch>> {
        Ok(self.collect_partitions().await?.into_iter().flatten().collect())
    }

    /// All rows, each partition's by itself.
    ///
    /// # Errors
    /// The first fault in the chain, or a partition that fails.
    pub async fn collect_partitions(&self) -> Result<Vec<Vec<RecordBatch>>> {
        Run::of(self).await?.collect().await
    }

    /// At most `rows` rows; partitions are run no further than needed.
    ///
    /// # Errors
    /// The first fault in the chain, or a partition that fails.
    pub async fn take(&self, rows: usize) -> Result<Vec<RecordBatch>> {
        self.limit(rows).collect().await
    }

    /// One row, if there is any.
    ///
    /// # Errors
    /// The first fault in the chain, or a partition that fails.
    pub async fn first(&self) -> Result<Option<RecordBatch>> {
        Ok(self.take(1).await?.into_iter().find(|b| b.num_rows() > 0))
    }

    /// The rows as they come, from all partitions side by side. Dropping the stream ends the work.
    ///
    /// # Errors
    /// The first fault in the chain; a partition that fails is told by the stream.
    pub async fn stream(&self) -> Result<SendableRecordBatchStream> {
        Run::of(self).await?.merged().await
    }

    /// Calls `function` on the batches of every partition, for its effect.
    ///
    /// # Errors
    /// The first fault in the chain, or a partition that fails.
    pub async fn foreach_partition<A: Serialize>(&self, function: Function<A>, arguments: A) -> Result<()> {
        let run = Run::of(&self.for_effect(function, &arguments)).await?;
        let drain = |mut rows: SendableRecordBatchStream| async move {
            while let Some(batch) = rows.next().await {
                batch?;
            }
            Ok(())
        };
        run.for_each(run.partitions(), drain).await.map(drop)
    }

    /// All rows reduced by `function`, which is given any number of rows and gives one row (or few) with the
    /// same columns; nothing where there are no rows. It must not matter how rows are put together.
    ///
    /// # Errors
    /// The first fault in the chain, or a partition that fails.
    pub async fn reduce<A: Serialize>(
        &self,
        function: Function<A>,
        arguments: A,
    ) -> Result<Option<RecordBatch>> {
        let call = function.call(&arguments)?;
        let schema = self.schema()?;
        let given = nodes::output_schema(&call, &schema, self.engine().broadcasts())?;
        let schema = same_as_input("reduce", &schema, &given)?;
        let folded = self.map_partitions_to(&schema, function, arguments).collect().await?;
        let Some(first) = folded.first() else { return Ok(None) };
        let all = concat_batches(&first.schema(), &folded).map_err(|e| Error::plan("reduce", e))?;
        let bound = call.resolve()?;
        let context = FunctionContext::new(Some(Arc::clone(self.engine().broadcasts())));
        let reduced = bound.call(all, &context).map_err(|reason| Error::Function {
            partition: 0,
            partitions: 1,
            function: bound.registration.short_name().to_owned(),
            location: bound.registration.location(),
            reason,
        })?;
        Ok(reduced.into_iter().next())
    }

    /// The number of partitions that an action would run.
    ///
    /// # Errors
    /// The first fault in the chain.
    pub async fn num_partitions(&self) -> Result<usize> {
        Ok(Run::of(self).await?.partitions())
    }

    /// The plan before and after planning, as text.
    ///
    /// # Errors
    /// The first fault in the chain.
    pub async fn explain(&self) -> Result<String> {
        let run = Run::of(self).await?;
        let physical = displayable(run.plan().as_ref()).indent(false).to_string();
        Ok(format!("{}\n\n{physical}", self.logical_plan()?.display_indent()))
    }

    /// At most `rows` rows as a text table.
    ///
    /// # Errors
    /// The first fault in the chain, or a partition that fails.
    pub async fn to_text(&self, rows: usize) -> Result<String> {
        let batches = self.take(rows).await?;
        let table = pretty_format_batches(&batches).map_err(|e| Error::plan("to_text", e))?;
        Ok(table.to_string())
    }
}
