//! Ledgers do not depend on how rows were spread, and lose nothing on their way through metrics and files.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;
use arrow::{
    array::{Array, AsArray},
    datatypes::Int64Type,
};
use bytes::Bytes;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures::{StreamExt, executor::block_on, stream};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn run(number: &str) -> RunKey {
    [Some("01".into()), None, Some("rest".into()), Some(number.into())]
}

fn constant(voxels: &[u64]) -> LedgerEntry {
    LedgerEntry::of_rows(run("1"), Level::Voxel, Finding::Constant, "no variance", voxels.len() as u64)
        .at(voxels.iter().copied())
}

fn dropped(volumes: impl IntoIterator<Item = u64>) -> LedgerEntry {
    let volumes: Vec<u64> = volumes.into_iter().collect();
    LedgerEntry::of_run(run("1"), Level::Volume, Finding::Dropped, "moved", volumes.len() as u64).at(volumes)
}

#[test]
fn numbers_are_written_as_ranges_and_read_again() {
    for (numbers, text) in [
        (vec![], ""),
        (vec![17], "17"),
        (vec![3, 1, 2, 0, 17, 3], "0-3,17"),
        (vec![5, 7, 9, 10], "5,7,9-10"),
        (vec![u64::MAX, u64::MAX - 1], "18446744073709551614-18446744073709551615"),
    ] {
        let indices: Indices = numbers.into_iter().collect();
        assert_eq!(indices.to_string(), text);
        assert_eq!(text.parse::<Indices>().unwrap(), indices);
    }
    let most = format!("0-{}", u64::MAX).parse::<Indices>().unwrap();
    assert_eq!((most.len(), most.to_string().as_str()), (LISTED, "0-999"));
    for wrong in ["-", "3-1", "1,,2", "a", "1-2-3", "-1", "1 ,2"] {
        assert!(wrong.parse::<Indices>().is_err(), "{wrong}");
    }
}

#[test]
fn the_text_of_places_says_when_there_are_more() {
    let many = dropped((0..40).map(|n| 2 * n));
    assert!(many.places().text(40).unwrap().ends_with(",28,30,…"), "{:?}", many.places().text(40));
    assert_eq!(dropped(0..2000).places().text(2000).unwrap(), "0-999,…");
    assert_eq!(dropped([4, 5]).places().text(2).unwrap(), "4-5");
    let named = dropped([]).named(["rot_x", "a"]);
    assert_eq!(named.places().text(2).unwrap(), "a, rot_x");
    assert_eq!(dropped([]).places().text(7), None);
}

#[test]
fn rows_add_up_and_what_is_said_of_a_run_is_said_once() {
    let ledger: Ledger = [constant(&[5]), dropped([0, 1]), constant(&[2, 3]), dropped([0, 1]), constant(&[])]
        .into_iter()
        .collect();
    let found: Vec<_> = ledger.iter().map(|e| (e.what(), e.count(), e.places().text(e.count()))).collect();
    assert_eq!(
        found,
        [(Finding::Dropped, 2, Some("0-1".into())), (Finding::Constant, 3, Some("2-3,5".into()))]
    );
    let totals: Vec<_> = ledger.totals().into_iter().collect();
    assert_eq!(totals, [("constant voxel: no variance".into(), 3), ("dropped volume: moved".into(), 2)]);
}

#[test]
fn entries_on_other_runs_reasons_and_levels_stay_apart() {
    let entry = |number, level, what, reason| LedgerEntry::of_rows(run(number), level, what, reason, 1);
    let all = [
        entry("1", Level::Voxel, Finding::Dropped, "a"),
        entry("2", Level::Voxel, Finding::Dropped, "a"),
        entry("1", Level::Value, Finding::Dropped, "a"),
        entry("1", Level::Voxel, Finding::Zeroed, "a"),
        entry("1", Level::Voxel, Finding::Dropped, "b"),
    ];
    assert_eq!(all.into_iter().collect::<Ledger>().len(), 5);
}

#[test]
fn notes_are_told_before_the_end_is_seen_or_when_they_are_dropped() {
    let metrics = ExecutionPlanMetricsSet::new();
    let told = || {
        let entries = metrics.clone_inner();
        let found = entries.iter().filter_map(|m| entry_in(m.value().name())).map(Option::unwrap);
        found.collect::<Ledger>()
    };
    let notes = LedgerNotes::new(&metrics, 0);
    let mut rows = Box::pin(notes.until_end(stream::iter([1, 2])));
    notes.note(constant(&[7]));
    assert_eq!(block_on(rows.next()), Some(1));
    notes.note(constant(&[3]));
    assert_eq!(block_on(rows.next()), Some(2));
    assert!(told().is_empty());
    assert_eq!(block_on(rows.next()), None);
    assert_eq!(told(), [constant(&[3, 7])].into_iter().collect());
    notes.note(constant(&[9]));
    drop((rows, notes));
    assert_eq!(told(), [constant(&[3, 7, 9])].into_iter().collect());
    assert!(entry_in("output_rows").is_none());
    assert_eq!(entry_in("ledger {\"of\": \"another build\"}"), Some(None));
}

#[test]
fn a_file_of_the_ledger_has_a_row_an_entry() {
    let filled =
        LedgerEntry::of_run(RunKey::default(), Level::Value, Finding::Filled, "n/a", 1).named(["csf"]);
    let ledger: Ledger = [constant(&[5, 6]), filled].into_iter().collect();
    let file = Bytes::from(ledger.to_parquet("table series").unwrap());
    let batches: Vec<_> = ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap().collect();
    let batch = batches.into_iter().next().unwrap().unwrap();
    assert_eq!(batch.schema().fields(), ledger_schema().fields());
    assert_eq!(batch.num_rows(), 2);
    let text = |name: &str, row| {
        let column = batch.column_by_name(name).unwrap().as_string::<i32>();
        column.is_valid(row).then(|| column.value(row).to_owned())
    };
    assert_eq!(text("statement", 0).unwrap(), "table series");
    assert_eq!(
        ["subject", "what", "places"].map(|n| text(n, 0)),
        [None, Some("filled".into()), Some("csf".into())]
    );
    assert_eq!(text("run", 1).unwrap(), "1");
    let indices = batch.column_by_name("indices").unwrap().as_list::<i32>();
    assert!(indices.is_null(0));
    assert_eq!(indices.value(1).as_primitive::<Int64Type>().values(), &[5, 6]);
    let empty = Bytes::from(Ledger::default().to_parquet("t").unwrap());
    assert_eq!(ParquetRecordBatchReaderBuilder::try_new(empty).unwrap().schema().fields().len(), 11);
}

proptest! {
    /// Whatever partition a row is in, and in whatever order partitions come.
    #[test]
    fn a_ledger_does_not_depend_on_partitions(
        voxels in prop::collection::btree_set(0_u64..6000, 0..2500),
        partitions in prop::collection::vec(0_usize..7, 2500),
    ) {
        let all: Vec<u64> = voxels.iter().copied().collect();
        let whole: Ledger = [constant(&all), dropped([1, 4])].into_iter().collect();
        let mut parts = vec![Vec::new(); 7];
        all.iter().zip(partitions).for_each(|(voxel, part)| parts[part].push(*voxel));
        let mut spread = Ledger::default();
        for part in parts.iter().rev() {
            let part: Ledger = [constant(part), dropped([1, 4])].into_iter().collect();
            let text = serde_json::to_string(&part).unwrap();
            spread.extend(serde_json::from_str::<Ledger>(&text).unwrap());
        }
        prop_assert_eq!(&spread, &whole);
        let lowest: Vec<u64> = all.into_iter().take(LISTED).collect();
        let listed: Vec<u64> = whole.iter().filter_map(|e| e.places().indices()).flat_map(Indices::iter)
            .collect::<Vec<_>>();
        let expected: BTreeSet<u64> = lowest.into_iter().chain([1, 4]).collect();
        prop_assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), expected);
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[0-9,\\-a ]{0,30}") {
        if let Ok(indices) = text.parse::<Indices>() {
            prop_assert_eq!(indices.to_string().parse::<Indices>().unwrap(), indices);
        }
    }
}
