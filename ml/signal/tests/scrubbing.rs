//! Cleaning with confounds and sample masks against nilearn, and against scipy where nilearn 0.14 errs.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[allow(dead_code)]
mod fixture;

use voxelflow_signal::{
    CleanSettings, Cleaner, Error, SampleMask, Standardize,
    confounds::{ConfoundSettings, ConfoundTable, select_confounds},
};

/// Series `[n, 120]` and regressors `[5][120]`.
fn run() -> (Vec<f32>, Vec<Vec<f64>>) {
    let (_, series) = fixture::array::<f32>("confounds/series");
    let (shape, regressors) = fixture::array::<f64>("confounds/regressors");
    (series, regressors.chunks_exact(shape[1]).map(<[f64]>::to_vec).collect())
}

fn cleaned(cleaner: &Cleaner, series: &[f32]) -> Vec<f32> {
    let mut out = vec![f32::NAN; series.len() / cleaner.time_points() * cleaner.kept()];
    cleaner.clean_into(series, &mut out).unwrap();
    out
}

fn butterworth() -> CleanSettings {
    CleanSettings { high_pass: Some(0.01), ..CleanSettings::default() }
}

#[test]
fn confounds_and_sample_masks_give_nilearns_numbers() {
    let (series, regressors) = run();
    let (_, expected) = fixture::array::<f32>("confounds/cleaned");
    let index = fixture::json("confounds/index.json");
    let (mut expected, mut worst, mut by_scipy) = (expected.as_slice(), 0.0f64, 0);
    let cases = index["cleaning"]["cases"].as_array().unwrap();
    for case in cases {
        let settings: CleanSettings = serde_json::from_value(case["settings"].clone()).unwrap();
        let kept: Vec<usize> = serde_json::from_value(case["kept"].clone()).unwrap();
        let mask = SampleMask::from_indices(&kept, 120).unwrap();
        let t_r = index["cleaning"]["t_r"].as_f64();
        let cleaner = Cleaner::try_with_regressors(&settings, t_r, &regressors, &mask).unwrap();
        let ours = cleaned(&cleaner, &series);
        let (theirs, rest) = expected.split_at(ours.len());
        expected = rest;
        by_scipy += usize::from(case["who"] == "scipy");
        for (place, (a, b)) in ours.iter().zip(theirs).enumerate() {
            let error = f64::from((a - b).abs() / b.abs().max(1.0));
            assert!(
                error <= 1e-5,
                "{} {}, value {place}: {a} instead of {b}",
                case["mask"],
                case["settings"]
            );
            worst = worst.max(error);
        }
    }
    assert!(expected.is_empty());
    // Nine cases in which the mirror image of a censored volume is censored: nilearn leaves volumes unfilled.
    assert_eq!((cases.len(), by_scipy), (75, 9));
    println!("{} cases, {by_scipy} of them by scipy, largest error {worst:.1e}", cases.len());
}

#[test]
fn in_place_and_into_another_buffer_are_the_same() {
    let (series, regressors) = run();
    let all = SampleMask::all(120).unwrap();
    let cleaner = Cleaner::try_with_regressors(&butterworth(), Some(2.0), &regressors, &all).unwrap();
    let mut in_place = series.clone();
    cleaner.clean(&mut in_place).unwrap();
    assert_eq!(in_place, cleaned(&cleaner, &series));
}

#[test]
fn series_of_64_bits_keep_the_digits_that_vary() {
    let (series, regressors) = run();
    let kept: Vec<usize> = (1..120).filter(|v| v % 17 != 5).collect();
    let mask = SampleMask::from_indices(&kept, 120).unwrap();
    // Of a mean of 3·10⁷ float32 keeps steps of 2.
    let wide: Vec<f64> = series.iter().map(|x| 3e7 + f64::from(*x)).collect();
    for standardize in [Standardize::ZscoreSample, Standardize::Psc, Standardize::None] {
        let settings = CleanSettings { standardize, ..butterworth() };
        let cleaner = Cleaner::try_with_regressors(&settings, Some(2.0), &regressors, &mask).unwrap();
        let mut out = vec![f32::NAN; 6 * kept.len()];
        cleaner.clean_into(&wide, &mut out).unwrap();
        let scale = |row: usize| match standardize {
            Standardize::Psc => {
                let span: f64 = series[row * 120 + 1..(row + 1) * 120].iter().map(|x| f64::from(*x)).sum();
                span / 119.0 / 3e7
            }
            _ => 1.0,
        };
        for (place, (a, b)) in out.iter().zip(cleaned(&cleaner, &series)).enumerate() {
            let b = f64::from(b) * scale(place / kept.len());
            assert!((f64::from(*a) - b).abs() <= 1e-3 * b.abs().max(1e-3), "{place}: {a} instead of {b}");
        }
        assert!(cleaner.clean_into(&wide[1..], &mut out).is_err());
    }
    // What is not cleaned comes back whole.
    let cleaner = Cleaner::try_with_regressors(&CleanSettings::default(), None, &[], &mask).unwrap();
    let mut out = vec![0.0; kept.len()];
    let report = cleaner.clean_into(&[f64::INFINITY; 120], &mut out).unwrap();
    assert_eq!((report.not_finite, out[3]), (vec![0], f32::INFINITY));
}

/// Case 3: a voxel that is zero everywhere, beside one that is not.
#[test]
fn a_zero_voxel_stays_zero_and_is_counted() {
    let (series, regressors) = run();
    let mask = SampleMask::from_indices(&(3..117).collect::<Vec<_>>(), 120).unwrap();
    for detrend in [true, false] {
        for standardize in [Standardize::None, Standardize::ZscoreSample, Standardize::Psc] {
            let settings = CleanSettings { detrend, standardize, ..CleanSettings::default() };
            let cleaner = Cleaner::try_with_regressors(&settings, None, &regressors, &mask).unwrap();
            let voxels = [vec![0.0; 120], series[..120].to_vec()].concat();
            let mut out = vec![f32::NAN; 2 * 114];
            let report = cleaner.clean_into(&voxels, &mut out).unwrap();
            assert_eq!(report.constant, [0]);
            assert!(out[..114].iter().all(|x| *x == 0.0));
            assert!(out[114..].iter().any(|x| *x != 0.0));
        }
    }
}

/// Case 15: the first two volumes are censored, with filtering.
#[test]
fn nothing_is_extrapolated() {
    let mask = SampleMask::from_indices(&(2..10).collect::<Vec<_>>(), 10).unwrap();
    let e = Cleaner::try_with_regressors(&butterworth(), Some(2.0), &[], &mask).unwrap_err();
    assert!(matches!(e, Error::TooShort { time_points: 8, minimum: 19, .. }), "{e}");

    // Censored edges have no influence at all, be they as large as they like; nor has a censored NaN.
    let (mut series, regressors) = run();
    let inner: Vec<usize> = (2..118).filter(|v| !(40..45).contains(v)).collect();
    let mask = SampleMask::from_indices(&inner, 120).unwrap();
    let cleaner = Cleaner::try_with_regressors(&butterworth(), Some(2.0), &regressors, &mask).unwrap();
    let expected = cleaned(&cleaner, &series);
    for row in series.chunks_exact_mut(120) {
        row[..2].fill(1e6);
        row[118..].fill(f32::NAN);
        row[42] = f32::INFINITY;
    }
    assert_eq!(cleaned(&cleaner, &series), expected);

    // The run without its edges gives the same.
    let short: Vec<f32> = series.chunks_exact(120).flat_map(|row| &row[2..118]).copied().collect();
    let regressors: Vec<_> = regressors.iter().map(|r| r[2..118].to_vec()).collect();
    let mask = SampleMask::from_indices(&inner.iter().map(|v| v - 2).collect::<Vec<_>>(), 116).unwrap();
    let cleaner = Cleaner::try_with_regressors(&butterworth(), Some(2.0), &regressors, &mask).unwrap();
    assert_eq!(cleaned(&cleaner, &short), expected);
}

/// Case 22: a sample mask that does not fit.
#[test]
fn masks_and_confounds_of_another_length_are_refused() {
    assert!(matches!(SampleMask::from_flags(&[true; 9], 10), Err(Error::SampleMask { .. })));
    assert!(matches!(
        SampleMask::from_indices(&[1, 1, 0, 1, 1, 1, 1, 1, 1, 1], 10),
        Err(Error::SampleMask { .. })
    ));
    let mask = SampleMask::from_flags(&[true; 10], 10).unwrap();
    let e =
        Cleaner::try_with_regressors(&CleanSettings::default(), None, &[vec![0.0; 9]], &mask).unwrap_err();
    assert!(matches!(e, Error::Shape { found: 9, .. }), "{e}");

    let nine = SampleMask::from_indices(&[0, 1, 2, 3, 4, 5, 6, 7, 8], 10).unwrap();
    let cleaner = Cleaner::try_with_regressors(&CleanSettings::default(), None, &[], &nine).unwrap();
    assert!(matches!(cleaner.clean(&mut [0.0; 10]), Err(Error::SampleMask { .. })));
    assert!(matches!(cleaner.clean_into(&[0.0f32; 10], &mut [0.0; 10]), Err(Error::Shape { found: 10, .. })));
    assert!(matches!(cleaner.clean_into(&[0.0f32; 9], &mut [0.0; 9]), Err(Error::Shape { found: 9, .. })));
}

#[test]
fn regressors_that_explain_everything_are_refused() {
    let (_, regressors) = run();
    let six: Vec<usize> = (10..16).collect();
    let mask = SampleMask::from_indices(&six, 120).unwrap();
    let e = Cleaner::try_with_regressors(&CleanSettings::default(), None, &regressors, &mask).unwrap_err();
    assert!(matches!(e, Error::NothingLeft { .. }), "{e}");
    let mut broken = regressors;
    broken[1][50] = f64::NAN;
    let all = SampleMask::all(120).unwrap();
    let e = Cleaner::try_with_regressors(&CleanSettings::default(), None, &broken, &all).unwrap_err();
    assert_eq!(e.setting(), Some("confounds"));
}

#[test]
fn drifts_are_not_removed_twice() {
    let columns = ["cosine00", "trans_x"].map(|name| {
        (name.to_owned(), (0..120).map(|t| Some((f64::from(t) * 0.03 + name.len() as f64).cos())).collect())
    });
    let table = ConfoundTable::try_new(columns.to_vec()).unwrap();
    let confounds = |columns: &[&str]| {
        let settings = ConfoundSettings::of_columns(columns.iter().map(|c| (*c).to_owned()).collect());
        select_confounds(&table, &[], &settings).unwrap()
    };
    let both = confounds(&["cosine*", "trans_x"]);
    let e = Cleaner::try_with_confounds(&butterworth(), Some(2.0), &both).unwrap_err();
    assert_eq!(e.setting(), Some("high_pass"));
    assert!(Cleaner::try_with_confounds(&CleanSettings::default(), Some(2.0), &both).is_ok());
    let cleaner = Cleaner::try_with_confounds(&butterworth(), Some(2.0), &confounds(&["trans_x"])).unwrap();
    assert_eq!(
        cleaner.describe(),
        "clean: linear detrend, Butterworth of order 5 high_pass 0.01 Hz (t_r 2 s), 1 confounds removed, \
         zscore_sample"
    );
}

#[test]
fn the_history_tells_what_was_censored_and_filled() {
    let (_, regressors) = run();
    let kept: Vec<usize> = (2..120).filter(|v| *v != 50).collect();
    let mask = SampleMask::from_indices(&kept, 120).unwrap();
    let cleaner = Cleaner::try_with_regressors(&butterworth(), Some(2.0), &regressors, &mask).unwrap();
    assert_eq!(
        cleaner.describe(),
        "clean: 117 of 120 volumes kept, 1 filled by a cubic spline for the filter, linear detrend, Butterworth of \
         order 5 high_pass 0.01 Hz (t_r 2 s), 5 confounds removed, zscore_sample"
    );
}
