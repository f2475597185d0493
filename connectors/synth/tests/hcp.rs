//! The generator keeps its promises: the same seed gives the same bytes however it is asked, the truth is
//! where it says, and files are bounded.
#![allow(clippy::unwrap_used)]

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Float32Type, UInt16Type, UInt32Type};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use proptest::prelude::*;
use std::fs::File;
use std::path::Path;
use voxelflow_stage::Grid;
use voxelflow_synth::{Error, HcpGenerator, HcpSynth, REGRESSORS, Region, write_hcp};

fn small() -> HcpSynth {
    HcpSynth { subjects: 2, voxels: 600, snr: 1.0, seed: 7, ..HcpSynth::default() }
}

fn series(batch: &RecordBatch, row: usize) -> Vec<f64> {
    let list = batch.column_by_name("series").unwrap().as_fixed_size_list().value(row);
    list.as_primitive::<Float32Type>().values().iter().map(|x| f64::from(*x)).collect()
}

fn pearson(a: &[f64], b: &[f64]) -> f64 {
    let n = a.len() as f64;
    let (ma, mb) = (a.iter().sum::<f64>() / n, b.iter().sum::<f64>() / n);
    let (mut ab, mut aa, mut bb) = (0.0, 0.0, 0.0);
    for (x, y) in a.iter().zip(b) {
        ab += (x - ma) * (y - mb);
        aa += (x - ma).powi(2);
        bb += (y - mb).powi(2);
    }
    ab / (aa * bb).sqrt()
}

fn read(path: &Path) -> Vec<RecordBatch> {
    let builder = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
    builder.build().unwrap().map(Result::unwrap).collect()
}

#[test]
fn planted_voxels_follow_their_regressor_and_others_do_not() {
    let generator = HcpGenerator::try_new(small()).unwrap();
    let batch = generator.batch(0, 0..600).unwrap();
    for (task, regressor) in REGRESSORS.iter().zip(&generator.design().regressors) {
        let (mut own, mut other) = (Vec::new(), Vec::new());
        for (row, region) in generator.anatomy().regions.iter().enumerate() {
            let r = pearson(&series(&batch, row), regressor);
            match region {
                Some(Region(n)) if REGRESSORS[usize::from(*n)] == *task => own.push(r),
                None => other.push(r),
                Some(_) => {}
            }
        }
        let mean = |x: &[f64]| x.iter().sum::<f64>() / x.len() as f64;
        assert_eq!(own.len(), 12);
        assert!(mean(&own) > 0.5 && own.iter().all(|r| *r > 0.25), "{task}: {own:?}");
        assert!(mean(&other).abs() < 0.1, "{task}: {}", mean(&other));
    }
}

#[test]
fn noise_drift_and_level_are_those_that_are_stated() {
    let generator = HcpGenerator::try_new(HcpSynth { snr: 0.0, ..small() }).unwrap();
    let batch = generator.batch(1, 0..600).unwrap();
    let (mut lag_one, mut level) = (0.0, 0.0);
    for row in 0..600 {
        let x = series(&batch, row);
        level += x.iter().sum::<f64>() / x.len() as f64 / 600.0;
        // Differences of a drift are nothing, so those two points apart tell the AR coefficient:
        // var(x[t+2] − x[t]) / var(x[t+1] − x[t]) = 1 + ρ. Medians keep the spikes out.
        let spread = |lag: usize| {
            let mut d: Vec<f64> = x.iter().zip(&x[lag..]).map(|(a, b)| (b - a).abs()).collect();
            d.sort_by(f64::total_cmp);
            d[d.len() / 2].powi(2)
        };
        lag_one += (spread(2) / spread(1) - 1.0) / 600.0;
    }
    assert!((level - 10_000.0).abs() < 100.0, "{level}");
    assert!((0.33..0.50).contains(&lag_one), "{lag_one}");
}

#[test]
fn spikes_are_shared_by_the_voxels_of_a_subject() {
    let generator = HcpGenerator::try_new(HcpSynth { snr: 0.0, ..small() }).unwrap();
    let largest_step = |subject: usize| {
        let batch = generator.batch(subject, 0..600).unwrap();
        let mut mean = vec![0.0; 284];
        for row in 0..600 {
            series(&batch, row).iter().zip(&mut mean).for_each(|(x, m)| *m += x / 600.0);
        }
        let step = |t: &usize| (mean[*t] - mean[*t - 1]).abs();
        let at = (1..284).max_by(|a, b| step(a).total_cmp(&step(b))).unwrap();
        (at, step(&at))
    };
    let (first, second) = (largest_step(0), largest_step(1));
    // 600 independent voxels average to 150/√600 = 6; a spike is at least 300.
    assert!(first.1 > 150.0 && second.1 > 150.0, "{first:?} {second:?}");
    assert_ne!(first.0, second.0);
}

#[test]
fn the_truth_names_region_and_amplitude() {
    let generator = HcpGenerator::try_new(small()).unwrap();
    let truth = generator.truth(1).unwrap();
    let tasks = truth.column_by_name("task").unwrap().as_string::<i32>().clone();
    let amplitudes = truth.column_by_name("amplitude").unwrap().as_primitive::<Float32Type>().clone();
    assert_eq!(tasks.len() - tasks.null_count(), 72);
    for row in 0..600 {
        let amplitude = amplitudes.value(row);
        assert_eq!(tasks.is_null(row), amplitude == 0.0);
        assert!(amplitude == 0.0 || (0.75..1.25).contains(&amplitude));
    }
    let grid = Grid::of(&truth.schema()).unwrap();
    let index = |name: &str| truth.column_by_name(name).unwrap().as_primitive::<UInt16Type>().clone();
    let voxels = truth.column_by_name("voxel").unwrap().as_primitive::<UInt32Type>().clone();
    let [i, j, k] = ["i", "j", "k"].map(index);
    for row in 0..600 {
        let [i, j, k] = [&i, &j, &k].map(|a| a.value(row) as usize);
        assert_eq!(i + grid.shape[0] * (j + grid.shape[1] * k), voxels.value(row) as usize);
    }
}

#[test]
fn version_2_is_frozen() {
    let generator = HcpGenerator::try_new(small()).unwrap();
    let batch = generator.batch(1, 0..600).unwrap();
    let values = batch.column_by_name("series").unwrap().as_fixed_size_list().values().clone();
    let bytes: Vec<u8> =
        values.as_primitive::<Float32Type>().values().iter().flat_map(|x| x.to_le_bytes()).collect();
    // A change here needs a new VERSION: results on the old data could not be made again.
    assert_eq!(blake3::hash(&bytes).to_hex().as_str(), include_str!("fixtures/hcp_version_2.blake3").trim());
}

#[test]
fn equal_settings_give_equal_bytes_and_a_seed_other_ones() {
    let [a, b, c] = [7, 7, 8].map(|seed| {
        let folder = tempfile::tempdir().unwrap();
        let summary = write_hcp(&HcpSynth { seed, ..small() }, folder.path(), &mut |_, _| {}).unwrap();
        let file = std::fs::read(folder.path().join("series/sub-001.parquet")).unwrap();
        let first = &summary.files[0];
        assert_eq!((first.bytes, first.rows), (file.len() as u64, 600));
        assert_eq!(first.blake3, blake3::hash(&file).to_hex().to_string());
        summary
    });
    assert_eq!(a, b);
    assert_ne!(a.content, c.content);
    assert_ne!(a.files[0].blake3, c.files[0].blake3);
}

#[test]
fn files_hold_what_the_generator_says_in_bounded_row_groups() {
    let folder = tempfile::tempdir().unwrap();
    // 16 MiB of 4,000 points are 1,048 series: three row groups.
    let settings = HcpSynth { voxels: 3_000, time_points: 4_000, subjects: 1, ..small() };
    let mut last = (0, 0);
    let summary = write_hcp(&settings, folder.path(), &mut |done, total| last = (done, total)).unwrap();
    assert_eq!(last, (3_000, 3_000));
    let path = folder.path().join("series/sub-001.parquet");
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(&path).unwrap()).unwrap();
    assert_eq!(reader.metadata().num_row_groups(), 3);
    for group in reader.metadata().row_groups() {
        assert!(group.total_byte_size() < 17 << 20, "{}", group.total_byte_size());
        let series = group.columns().last().unwrap();
        assert_eq!(series.column_path().string(), "series.list.item");
        assert!(series.dictionary_page_offset().is_none() && series.statistics().is_none());
    }
    let generator = HcpGenerator::try_new(settings).unwrap();
    let grid = Grid::of(reader.schema()).unwrap();
    assert!(grid.same_space(generator.grid()), "{grid:?}");
    assert_eq!(grid.mask_hash, generator.grid().mask_hash);
    let batches = read(&path);
    let found = arrow::compute::concat_batches(&batches[0].schema(), &batches).unwrap();
    assert_eq!(found.columns(), generator.batch(0, 0..3_000).unwrap().columns());
    let design = read(&folder.path().join("design.parquet"));
    assert_eq!(design.iter().map(RecordBatch::num_rows).sum::<usize>(), 4_000);
    assert_eq!(design[0].num_columns(), 7);
    let text = std::fs::read_to_string(folder.path().join("synth.json")).unwrap();
    assert_eq!(serde_json::from_str::<voxelflow_synth::Summary>(&text).unwrap(), summary);
}

#[test]
fn a_smaller_data_set_leaves_nothing_of_a_larger_one() {
    let folder = tempfile::tempdir().unwrap();
    write_hcp(&small(), folder.path(), &mut |_, _| {}).unwrap();
    write_hcp(&HcpSynth { subjects: 1, ..small() }, folder.path(), &mut |_, _| {}).unwrap();
    let names: Vec<String> = std::fs::read_dir(folder.path().join("series"))
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(names, ["sub-001.parquet"]);
}

#[test]
fn other_files_among_the_series_are_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("series")).unwrap();
    let mine = folder.path().join("series/mine.parquet");
    std::fs::write(&mine, b"precious").unwrap();
    let e = write_hcp(&small(), folder.path(), &mut |_, _| {}).unwrap_err();
    assert!(e.is_input() && e.to_string().contains("mine.parquet"), "{e}");
    assert_eq!(std::fs::read(&mine).unwrap(), b"precious");
}

#[test]
fn settings_out_of_range_are_named() {
    for (settings, name) in [
        (HcpSynth { subjects: 0, ..small() }, "subjects"),
        (HcpSynth { voxels: 3, ..small() }, "voxels"),
        (HcpSynth { time_points: 20, ..small() }, "time_points"),
        (HcpSynth { t_r: 0.0, ..small() }, "t_r"),
        (HcpSynth { snr: f64::NAN, ..small() }, "snr"),
    ] {
        let e = HcpGenerator::try_new(settings).unwrap_err();
        assert!(e.is_input() && matches!(e, Error::Setting { setting, .. } if setting == name), "{e}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    /// A voxel's values do not depend on which rows are asked for with it.
    #[test]
    fn any_partitioning_gives_the_same_values(cuts in prop::collection::vec(0_usize..300, 0..4)) {
        let settings = HcpSynth { voxels: 300, time_points: 120, ..small() };
        let generator = HcpGenerator::try_new(settings).unwrap();
        let mut cuts = cuts;
        cuts.extend([0, 300]);
        cuts.sort_unstable();
        let parts: Vec<RecordBatch> = cuts.windows(2).map(|c| generator.batch(0, c[0]..c[1]).unwrap()).collect();
        let whole = arrow::compute::concat_batches(&generator.schema(), &parts).unwrap();
        prop_assert_eq!(whole, generator.batch(0, 0..300).unwrap());
    }
}
