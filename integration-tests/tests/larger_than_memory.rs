//! A gigabyte of series is sorted, joined, grouped, numbered and made distinct in 200 MB, by the kernel's account of memory.

use crate::program::{Ended, files_below, program, voxelflow, with_peak_memory};
use arrow::{array::AsArray, datatypes::Int64Type};
use parquet::arrow::{ProjectionMask, arrow_reader::ParquetRecordBatchReaderBuilder};
use std::{fs, path::Path};

/// Rows and their values: 1.0 GB.
const ROWS: u64 = 210_000;
const POINTS: usize = 1_200;
const MEMORY: &str = "200MB";
/// 300 MB.
const PEAK_MIB: u64 = 286;

/// Runs a query whose result is the table `result`; gives its peak of memory.
#[track_caller]
fn made(folder: &Path, name: &str, query: &str) -> u64 {
    let pipeline = folder.join(format!("{name}.vf"));
    let text = format!(
        "CREATE EXTERNAL TABLE rows STORED AS PARQUET LOCATION '{}';
         CREATE TABLE result AS {query};",
        folder.join("rows").display()
    );
    fs::write(&pipeline, text).unwrap();
    let mut command = program("voxelflow");
    command.arg("run").arg(&pipeline).args(["--memory", MEMORY, "--out"]).arg(folder.join(name));
    let (ended, peak) = with_peak_memory(command);
    ended.expect_code(0);
    println!("{name}: peak {peak} MiB");
    peak
}

/// The answer to a query over what was made as `name`, and over the rows, as CSV.
#[track_caller]
fn ask(folder: &Path, name: &str, query: &str) -> String {
    let tables = fs::read_dir(folder.join(name).join("tables/result")).into_iter().flatten();
    let table = tables.map(|entry| entry.unwrap().path()).find(|path| path.is_dir());
    let table = table.map_or_else(String::new, |table| format!("'{}/'", table.display()));
    let query =
        query.replace("result", &table).replace("rows", &format!("'{}/'", folder.join("rows").display()));
    let ended: Ended = voxelflow(["sql", &query, "--format", "csv"]);
    ended.expect_code(0).stdout
}

/// The voxels of the one file below `folder`, in its order.
fn voxels(folder: &Path) -> Vec<i64> {
    let files: Vec<String> = files_below(folder).into_iter().filter(|f| f.ends_with(".parquet")).collect();
    let [file] = files.as_slice() else { panic!("{files:?}") };
    let file = ParquetRecordBatchReaderBuilder::try_new(fs::File::open(folder.join(file)).unwrap()).unwrap();
    let columns = ProjectionMask::columns(file.parquet_schema(), ["voxel"]);
    let batches = file.with_projection(columns).build().unwrap().map(Result::unwrap);
    batches.flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec()).collect()
}

#[test]
fn a_gigabyte_of_series_needs_200_mb() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut rows = program("long_rows");
    rows.arg(folder.join("rows")).args([ROWS.to_string(), POINTS.to_string()]);
    Ended::from(rows.env("VOXELFLOW_OUT", folder).output().unwrap()).expect_code(0);
    // Rounded: rows come in another order.
    let sums = "round(sum(series[1]), 6) AS first, round(sum(series[1200]), 6) AS last, count(*) AS n";
    let known = ask(folder, "rows", &format!("SELECT {sums} FROM rows"));
    let mut peaks = Vec::new();
    let mut make = |name: &'static str, query: &str| peaks.push((name, made(folder, name, query)));

    make("sorted", "SELECT * FROM rows ORDER BY (voxel * 7919) % 210011, voxel");
    assert_eq!(ask(folder, "sorted", &format!("SELECT {sums} FROM result")), known);
    let places: Vec<(i64, i64)> =
        voxels(&folder.join("sorted/tables/result")).into_iter().map(|v| ((v * 7919) % 210_011, v)).collect();
    assert!(places.len() as u64 == ROWS && places.is_sorted());
    fs::remove_dir_all(folder.join("sorted")).unwrap();

    make(
        "joined",
        "SELECT a.voxel, a.series, b.series AS other FROM rows a JOIN rows b ON a.voxel = b.voxel",
    );
    assert_eq!(ask(folder, "joined", &format!("SELECT {sums} FROM result")), known);
    let different =
        "SELECT count(*) AS n FROM result WHERE series[7] <> other[7] OR series[1199] <> other[1199]";
    assert_eq!(ask(folder, "joined", different), "n\n0\n");
    fs::remove_dir_all(folder.join("joined")).unwrap();

    make(
        "numbered",
        "SELECT voxel, series, row_number() OVER (PARTITION BY voxel % 100 ORDER BY voxel DESC) AS n FROM rows",
    );
    assert_eq!(ask(folder, "numbered", &format!("SELECT {sums} FROM result")), known);
    let numbers = "SELECT min(n) AS least, max(n) AS most, count(DISTINCT n) AS n FROM result";
    assert_eq!(ask(folder, "numbered", numbers), "least,most,n\n1,2100,2100\n");
    fs::remove_dir_all(folder.join("numbered")).unwrap();

    make(
        "grouped",
        "SELECT voxel % 1000 AS g, count(*) AS n, avg(series) AS mean FROM rows GROUP BY voxel % 1000",
    );
    let means = "SELECT count(*) AS groups, sum(n) AS n, \
                 abs(round(sum(n * mean[1200]) - (SELECT sum(series[1200]) FROM rows), 2)) AS off FROM result";
    assert_eq!(ask(folder, "grouped", means), "groups,n,off\n1000,210000,0.0\n");

    make(
        "distinct",
        "SELECT DISTINCT voxel, series FROM (SELECT * FROM rows UNION ALL SELECT * FROM rows WHERE voxel < 100)",
    );
    assert_eq!(ask(folder, "distinct", &format!("SELECT {sums} FROM result")), known);

    assert!(peaks.iter().all(|(_, peak)| *peak <= PEAK_MIB), "{peaks:?}");
}
