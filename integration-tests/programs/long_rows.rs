//! Rows of many numbers, written as Parquet: a test looks at the peak memory of this process.
//!
//!     long_rows FOLDER ROWS POINTS

use arrow::{
    array::{ArrayRef, FixedSizeListArray, Float32Array},
    datatypes::{DataType, Field},
};
use std::sync::Arc;
use voxelflow::prelude::*;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A series of `points` numbers for every row, which no compression makes shorter.
fn with_series(batch: &RecordBatch, points: usize) -> Result<RecordBatch, Failure> {
    let rows = batch.column_by_name("voxel").ok_or("no voxels")?;
    let rows = rows.as_any().downcast_ref::<arrow::array::Int64Array>().ok_or("voxels are no numbers")?;
    let mut values = Vec::with_capacity(rows.len() * points);
    for row in rows.values() {
        // Xorshift (Marsaglia 2003), begun anew in every row.
        let mut state = (*row as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        values.extend((0..points).map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1 << 24) as f32 - 0.5
        }));
    }
    let item = Arc::new(Field::new_list_field(DataType::Float32, false));
    let series = FixedSizeListArray::try_new(
        item,
        i32::try_from(points)?,
        Arc::new(Float32Array::from(values)),
        None,
    )?;
    let voxels: ArrayRef = Arc::clone(batch.column(0));
    Ok(RecordBatch::try_from_iter([("voxel", voxels), ("series", Arc::new(series) as _)])?)
}

#[voxelflow::main]
async fn main(session: Session) -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, rows, points] = arguments.as_slice() else {
        return Err(Error::input("long_rows", "FOLDER ROWS POINTS"));
    };
    let points: usize = points.parse().map_err(|e| Error::input("POINTS", e))?;
    let voxels = format!("SELECT value AS voxel FROM generate_series(1, {rows})");
    let plan = session.context().sql(&voxels).await?.into_unoptimized_plan();
    let series = session
        .dataset(plan)
        .map_partitions(function!(|batch, points: usize| with_series(&batch, *points)), points);
    let written = series.write_parquet(folder).await?;
    println!("{} rows, {} bytes", written.rows, written.bytes);
    Ok(())
}
