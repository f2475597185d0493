//! The verbs of datasets, as a driver program: it prints what each gives, the same in one process and on a cluster.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use voxelflow::{
    dataset::{Accumulator, Broadcast, ReduceOp},
    prelude::*,
};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A factor for each group, the same everywhere, and what was seen.
#[derive(Serialize, Deserialize)]
struct Weights {
    by_group: Broadcast<BTreeMap<i64, f64>>,
    rows: Accumulator<i64>,
    sum: Accumulator<f64>,
}

fn int64(batch: &RecordBatch, column: &str) -> Result<Vec<i64>, Failure> {
    let column = batch.column_by_name(column).ok_or("no such column")?;
    let numbers = column.as_any().downcast_ref::<arrow::array::Int64Array>().ok_or("no whole numbers")?;
    Ok(numbers.values().to_vec())
}

fn numbers(session: &Session, rows: i64, partitions: usize) -> Result<Dataset> {
    let n: arrow::array::Int64Array = (0..rows).collect();
    let group: arrow::array::Int64Array = (0..rows).map(|n| n % 7).collect();
    let batch = RecordBatch::try_from_iter([
        ("n", std::sync::Arc::new(n) as arrow::array::ArrayRef),
        ("g", std::sync::Arc::new(group) as _),
    ]);
    let batch = batch.map_err(|e| Error::input("numbers", e))?;
    Ok(session.from_batches(&[batch], partitions)?)
}

/// The rows in their own order as text: how they are spread over partitions is not part of the answer.
async fn show(what: &str, rows: &Dataset) -> Result<()> {
    let mut lines = Vec::new();
    for batch in rows.collect().await? {
        for row in 0..batch.num_rows() {
            let values = batch.columns().iter().map(|column| {
                arrow::util::display::array_value_to_string(column, row).unwrap_or_else(|e| e.to_string())
            });
            lines.push(values.collect::<Vec<_>>().join(" "));
        }
    }
    lines.sort();
    let hash = lines
        .iter()
        .flat_map(|line| line.bytes().chain([b'\n']))
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    println!(
        "{what}: {} rows, {hash:016x}, first `{}`",
        lines.len(),
        lines.first().map_or("", String::as_str)
    );
    Ok(())
}

/// Rows of each partition, the largest first: their order is not part of the answer.
async fn spread(what: &str, rows: &Dataset) -> Result<()> {
    let parts = rows.collect_partitions().await?;
    let mut sizes: Vec<usize> =
        parts.iter().map(|part| part.iter().map(RecordBatch::num_rows).sum()).collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    println!("{what}: {sizes:?}");
    Ok(())
}

#[voxelflow::main]
async fn main(session: Session) -> Result<()> {
    let rows = numbers(&session, 1000, 4)?;
    show("filter", &rows.filter(col("n").gt_eq(lit(990_i64)))).await?;
    println!("count: {}", rows.count().await?);
    println!("take: {}", rows.take(5).await?.iter().map(RecordBatch::num_rows).sum::<usize>());

    let weights = Weights {
        by_group: session.broadcast((0..7).map(|g| (g, 0.5 * g as f64)).collect())?,
        rows: session.accumulator("rows"),
        sum: session.accumulator("sum"),
    };
    let (seen, sum) = (weights.rows.clone(), weights.sum.clone());
    let weighted = rows.map_partitions(
        function!("weighted", |batch, weights: Weights| -> Result<RecordBatch, Failure> {
            let by_group = weights.by_group.value()?;
            let groups = int64(&batch, "g")?;
            let values: Vec<f64> =
                groups.iter().map(|g| by_group.get(g).copied().unwrap_or(f64::NAN)).collect();
            weights.rows.add(batch.num_rows() as i64);
            weights.sum.add(values.iter().sum());
            let n = int64(&batch, "n")?;
            Ok(RecordBatch::try_from_iter([
                ("g", std::sync::Arc::new(arrow::array::Int64Array::from(groups)) as arrow::array::ArrayRef),
                ("n", std::sync::Arc::new(arrow::array::Int64Array::from(n)) as _),
                ("w", std::sync::Arc::new(arrow::array::Float64Array::from(values)) as _),
            ])?)
        }),
        weights,
    );
    show("map_partitions", &weighted).await?;
    println!("accumulated: {} rows, {}", session.accumulated(&seen), session.accumulated(&sum));

    show("reduce_by_key", &weighted.reduce_by_key(&["g"], &[("n", ReduceOp::Sum), ("w", ReduceOp::Max)]))
        .await?;
    let largest = function!("largest", |batch| -> Result<RecordBatch, Failure> {
        let n = int64(&batch, "n")?;
        let at = n.iter().enumerate().max_by_key(|(_, n)| **n).map_or(0, |(at, _)| at);
        Ok(batch.slice(at, usize::from(!n.is_empty())))
    });
    show("map_groups", &rows.map_groups(&["g"], largest, ())).await?;
    let groups = rows.select_columns(&["g"]).distinct();
    show("distinct", &groups).await?;
    show("join", &rows.join(&groups.with_column("twice", col("g") * lit(2_i64)), &["g"], JoinType::Inner))
        .await?;
    show("sort_by", &rows.sort_by([col("n").sort(false, false)]).limit(10)).await?;
    show("union", &rows.union(&rows).filter(col("n").lt(lit(3_i64)))).await?;
    show("sample", &rows.sample(0.1, 7)).await?;

    spread("repartition", &rows.repartition(6)).await?;
    spread("coalesce", &rows.coalesce(2)).await?;
    show("zip_with_index", &rows.filter(col("g").eq(lit(3_i64))).zip_with_index("at")).await?;
    show("zip, then group", &rows.zip_with_index("at").group_by([col("g")]).count()).await?;

    let kept = weighted.persist().await?;
    show("persist", &kept).await?;
    let out = session.work_dir().join("written");
    let written =
        weighted.write_parquet_with(&out.to_string_lossy(), &WriteOptions::default().overwrite()).await?;
    println!("write_parquet: {} rows in {} files", written.rows, written.files);
    show("read back", &session.read_parquet(&out.to_string_lossy()).await?).await?;
    let empty = rows.filter(col("n").lt(lit(0_i64)));
    let out = session.work_dir().join("empty");
    let written =
        empty.write_parquet_with(&out.to_string_lossy(), &WriteOptions::default().overwrite()).await?;
    println!("write nothing: {} rows in {} files", written.rows, written.files);

    if std::env::var_os("VERBS_FAIL").is_some() {
        let fails = function!("fails at 700", |batch| -> Result<RecordBatch, Failure> {
            if int64(&batch, "n")?.contains(&700) { Err("700 is too much".into()) } else { Ok(batch) }
        });
        rows.map_partitions_to(rows.schema()?.as_ref(), fails, ()).collect().await?;
    }
    Ok(())
}
