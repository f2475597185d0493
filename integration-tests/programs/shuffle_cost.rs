//! What a cluster's channels cost: a join whose shuffles all pass a socket, and a stage of many tasks. `bench/shuffle_cost.py`
//! runs two builds of this program side by side.
//!
//!     VOXELFLOW_EXECUTORS=2 shuffle_cost join FACTS NAMES
//!     VOXELFLOW_EXECUTORS=2 shuffle_cost tasks COUNT
//!
//! The program prints the seconds of the job and a checksum of its rows. The start of the cluster is not counted.

use arrow::{
    array::{ArrayRef, Int64Array},
    datatypes::Int64Type,
};
use ballista_core::config::BallistaConfig;
use std::{sync::Arc, time::Instant};
use voxelflow::prelude::*;

/// A shuffle whose file lies on the reader's machine is read from the disk unless this is set.
const FORCE_REMOTE_READ: &str = "ballista.shuffle.force_remote_read";

#[voxelflow::main]
async fn main(session: Session) -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let usage = || Error::input("shuffle_cost", "join FACTS NAMES, or tasks COUNT");
    {
        let state = session.context().state_ref();
        let mut state = state.write();
        let config = state.config().clone().with_option_extension(BallistaConfig::default());
        *state.config_mut() = config.set_str(FORCE_REMOTE_READ, "true");
    }
    let job = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["join", facts, names] => {
            let query = format!(
                "SELECT d.name, count(*) AS rows, sum(f.v) AS sum FROM '{facts}' f JOIN '{names}' d ON f.k = d.k \
                 GROUP BY d.name ORDER BY d.name"
            );
            let plan = session.context().sql(&query).await?.into_unoptimized_plan();
            session.dataset(plan)
        }
        ["tasks", count] => {
            let count: usize = count.parse().map_err(|e| Error::input("COUNT", e))?;
            let last = i64::try_from(count).map_err(|e| Error::input("COUNT", e))?;
            let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(1..=last));
            let batch =
                RecordBatch::try_from_iter([("sum", numbers)]).map_err(|e| Error::input("tasks", e))?;
            session.from_batches(&[batch], count)?.map_partitions(function!(|batch| batch), ())
        }
        _ => return Err(usage()),
    };
    let begun = Instant::now();
    let batches = job.collect().await?;
    let seconds = begun.elapsed().as_secs_f64();
    let sums = batches.iter().filter_map(|batch| batch.column_by_name("sum"));
    let sum: i64 = sums
        .filter_map(|sums| arrow::compute::sum(arrow::array::AsArray::as_primitive::<Int64Type>(sums)))
        .sum();
    println!("{seconds:.4} {sum}");
    Ok(())
}
