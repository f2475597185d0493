//! Smoothing, resampling and parcels against nilearn, on a real image.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[allow(dead_code)]
mod fixture;

use serde_json::Value;
use voxelflow_signal::{
    Clip, Grid, Interpolation, Resampler, SmoothScratch, Smoother,
    parcels::{LabelAtlas, MapAtlas, ParcelSeries, ParcelStrategy, Parcellation},
};

fn from<T: serde::de::DeserializeOwned>(json: &Value) -> T {
    serde_json::from_value(json.clone()).unwrap()
}

fn index() -> (Value, Grid) {
    let index = fixture::json("volumes/index.json");
    let grid = Grid { shape: from(&index["shape"]), affine: from(&index["affine"]) };
    (index, grid)
}

fn volumes(name: &str) -> Vec<Vec<f32>> {
    let (shape, values) = fixture::array::<f32>(&format!("volumes/{name}"));
    values.chunks_exact(shape[1]).map(<[f32]>::to_vec).collect()
}

fn wide(volume: &[f32]) -> Vec<f64> {
    volume.iter().map(|x| f64::from(*x)).collect()
}

/// The largest of `|ours − theirs| / max(1, |theirs|)`; both may be NaN.
fn worst(ours: &[f64], theirs: &[f32], what: &str) -> f64 {
    assert_eq!(ours.len(), theirs.len(), "{what}");
    let mut worst = 0.0f64;
    for (place, (a, b)) in ours.iter().zip(theirs).enumerate() {
        assert_eq!(a.is_nan(), b.is_nan(), "{what}, voxel {place}: {a} instead of {b}");
        let error = (a - f64::from(*b)).abs() / f64::from(b.abs()).max(1.0);
        assert!(b.is_nan() || error <= 1e-5, "{what}, voxel {place}: {a} instead of {b}");
        worst = worst.max(error);
    }
    worst
}

#[test]
fn smoothing_gives_nilearns_volumes() {
    let (index, grid) = index();
    let (run, expected) = (volumes("run"), volumes("smoothed"));
    let widths = index["smoothing"].as_array().unwrap();
    assert_eq!(expected.len(), widths.len() * run.len());
    let mut scratch = SmoothScratch::default();
    for (fwhm, expected) in widths.iter().zip(expected.chunks_exact(run.len())) {
        let smoother = Smoother::try_new(&grid, from(fwhm)).unwrap();
        for (volume, theirs) in run.iter().zip(expected) {
            let mut ours = wide(volume);
            assert_eq!(smoother.smooth(&mut ours, &mut scratch).unwrap(), 0);
            println!("{fwhm} mm: largest error {:.1e}", worst(&ours, theirs, &fwhm.to_string()));
        }
    }
}

#[test]
fn resampling_gives_nilearns_volumes() {
    let (index, source) = index();
    let (_, expected) = fixture::array::<f32>("volumes/resampled");
    let (whole, holes) = (volumes("run").swap_remove(0), volumes("holes").swap_remove(0));
    let mut expected = expected.as_slice();
    let cases = index["resampling"].as_array().unwrap();
    for case in cases {
        let target = Grid { shape: from(&case["shape"]), affine: from(&case["affine"]) };
        let interpolation: Interpolation = from(&case["interpolation"]);
        let what = format!("{} {} {}", case["source"], case["name"], case["interpolation"]);
        let resampler = Resampler::try_new(source, target, interpolation, Clip::OwnRange).unwrap();
        let mut ours = vec![f64::NAN; target.voxels()];
        let volume = if case["source"] == "holes" { &holes } else { &whole };
        let report = resampler.resample(volume, &mut ours).unwrap();
        let (theirs, rest) = expected.split_at(ours.len());
        expected = rest;
        assert_eq!(report.not_finite, theirs.iter().filter(|x| x.is_nan()).count(), "{what}");
        println!("{what}: {report:?}, largest error {:.1e}", worst(&ours, theirs, &what));
        assert_eq!(report.outside > 0, case["name"] != "finer", "{what}");
    }
    assert!(expected.is_empty());
    assert_eq!(cases.len(), 18);
}

/// The mask of the reference script.
fn mask(grid: &Grid) -> Vec<bool> {
    let [ni, nj, _] = grid.shape;
    (0..grid.voxels()).map(|v| (v % ni + v / ni % nj + v / (ni * nj)) % 5 > 0).collect()
}

fn assert_series(atlas: &impl Parcellation, run: &[Vec<f32>], theirs: &Value, what: &str) {
    let mut series = ParcelSeries::new(atlas);
    run.iter().for_each(|volume| series.add(&wide(volume)).unwrap());
    assert_eq!(series.not_finite(), 0);
    let theirs: Vec<Vec<f32>> = from(theirs);
    println!("{what}: largest error {:.1e}", worst(&series.finish(), &theirs.concat(), what));
}

#[test]
fn label_atlases_give_nilearns_series() {
    let (index, grid) = index();
    let (_, labels) = fixture::array::<i32>("volumes/labels");
    let (run, theirs) = (volumes("run"), &index["parcels"]);
    for strategy in ["mean", "median", "sum", "minimum", "maximum", "variance", "standard_deviation"] {
        let named: ParcelStrategy = from(&Value::from(strategy));
        let atlas = LabelAtlas::try_new(&labels, 7, None, named).unwrap();
        assert_eq!(atlas.labels(), from::<Vec<i32>>(&theirs["names"]));
        assert_series(&atlas, &run, &theirs["signals"][strategy], strategy);
    }
    let atlas = LabelAtlas::try_new(&labels, 7, Some(&mask(&grid)), ParcelStrategy::Mean).unwrap();
    assert_eq!(atlas.labels(), from::<Vec<i32>>(&theirs["masked_names"]));
    assert_series(&atlas, &run, &theirs["masked"], "mean inside a mask");
}

#[test]
fn map_atlases_give_nilearns_series() {
    let (index, grid) = index();
    let (run, maps, theirs) = (volumes("run"), volumes("maps"), &index["parcels"]);
    assert_series(&MapAtlas::try_new(&maps, None).unwrap(), &run, &theirs["maps"], "maps");
    let atlas = MapAtlas::try_new(&maps, Some(&mask(&grid))).unwrap();
    assert_series(&atlas, &run, &theirs["maps_masked"], "maps inside a mask");
}
