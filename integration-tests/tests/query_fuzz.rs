//! Queries, random ones and those that were once answered wrongly, give the same rows in one process, on 1, 2 and 3
//! executors, and in DuckDB: the program `query_fuzz` asks.

use crate::program::{Ended, program};

#[test]
fn queries_have_the_same_answers_in_one_process_on_executors_and_in_duckdb() {
    let out = tempfile::tempdir().unwrap();
    let mut fuzz = program("query_fuzz");
    fuzz.env("VOXELFLOW_OUT", out.path());
    if std::env::var_os("QUERY_FUZZ_QUERIES").is_none() {
        fuzz.env("QUERY_FUZZ_QUERIES", "200").env("QUERY_FUZZ_SECONDS", "220");
    }
    let ended = Ended::from(fuzz.output().unwrap()).expect_code(0);
    println!("{}", ended.stdout);
    assert!(ended.stdout.contains(", 0 differences, "), "{}", ended.stdout);
    if std::env::var_os("CI").is_some() {
        assert!(ended.stdout.contains("\"same in DuckDB\": "), "{}", ended.stdout);
    }
}
