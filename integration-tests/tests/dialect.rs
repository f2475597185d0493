//! What SQL says is done, as DuckDB does it, or refused at its place, in one process and on two executors: the program
//! `dialect` asks what the golden files say, which scripts in `reference/` make.

use crate::program::{Ended, program};

#[track_caller]
fn agrees(golden: &str) {
    let out = tempfile::tempdir().unwrap();
    let mut dialect = program("dialect");
    dialect.env("VOXELFLOW_OUT", out.path()).arg(format!("integration-tests/golden/{golden}.json"));
    let ended = Ended::from(dialect.output().unwrap()).expect_code(0);
    assert!(ended.stdout.ends_with(" answers, 0 wrong\n"), "{}", ended.stdout);
}

#[test]
fn every_clause_is_done_as_duckdb_does_it_or_refused_at_its_place() {
    agrees("dialect");
}

#[test]
fn nan_is_found_whatever_statistics_say() {
    agrees("nan");
}

#[test]
fn folders_of_other_tools_are_read_as_these_read_them() {
    agrees("folders");
}
