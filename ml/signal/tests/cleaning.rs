//! Cleaning against nilearn 0.14 and filter design against scipy, on random and on real series.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[allow(dead_code)]
mod fixture;

use std::time::Instant;
use voxelflow_signal::{Band, Butterworth, CleanSettings, Cleaner, Error, Filter, Standardize};

/// `|ours − theirs| ≤ 1e-5 · max(1, |theirs|)`.
fn assert_close(ours: &[f32], theirs: &[f32], what: &str) -> f64 {
    assert_eq!(ours.len(), theirs.len(), "{what}");
    let mut worst = 0.0f64;
    for (n, (a, b)) in ours.iter().zip(theirs).enumerate() {
        let (a, b) = (f64::from(*a), f64::from(*b));
        let error = (a - b).abs() / b.abs().max(1.0);
        assert!(error <= 1e-5, "{what}, value {n}: {a} instead of {b}");
        worst = worst.max(error);
    }
    worst
}

#[test]
fn every_combination_of_settings_gives_nilearns_numbers() {
    let mut cases = 0;
    for set in fixture::index()["cleaning"].as_array().unwrap() {
        let name = set["name"].as_str().unwrap();
        let (shape, series) = fixture::array::<f32>(name);
        let (_, expected) = fixture::array::<f32>(&format!("{name}_expected"));
        let mut worst = 0.0f64;
        for (case, theirs) in set["cases"].as_array().unwrap().iter().zip(expected.chunks_exact(series.len()))
        {
            let settings: CleanSettings = serde_json::from_value(case.clone()).unwrap();
            let cleaner = Cleaner::try_new(&settings, shape[1], set["t_r"].as_f64()).unwrap();
            let mut ours = series.clone();
            let report = cleaner.clean(&mut ours).unwrap();
            assert!(report.constant.is_empty() && report.not_finite.is_empty());
            worst = worst.max(assert_close(&ours, theirs, &format!("{name} {case}")));
            cases += 1;
        }
        println!("{name}: {shape:?}, largest error {worst:.1e}");
    }
    assert_eq!(cases, 32 + 30 + 30 + 24 + 6);
}

#[test]
fn filter_sections_and_their_steady_states_are_scipys() {
    let index = fixture::index();
    let filters = index["filters"].as_array().unwrap();
    assert!(!filters.is_empty());
    for case in filters {
        let band = match (case["high_pass"].as_f64(), case["low_pass"].as_f64()) {
            (Some(high), Some(low)) => Band::BandPass(high, low),
            (Some(high), None) => Band::HighPass(high),
            (_, low) => Band::LowPass(low.unwrap()),
        };
        let order = case["order"].as_u64().unwrap() as usize;
        let filter = Butterworth::try_new(order, band, case["t_r"].as_f64().unwrap()).unwrap();
        let sos: Vec<Vec<f64>> = serde_json::from_value(case["sos"].clone()).unwrap();
        let zi: Vec<Vec<f64>> = serde_json::from_value(case["zi"].clone()).unwrap();
        assert_eq!(filter.sections().len(), sos.len(), "{band:?}");
        for (section, (theirs, state)) in filter.sections().iter().zip(sos.iter().zip(&zi)) {
            let ours = [section.b[0], section.b[1], section.b[2], 1.0, section.a[0], section.a[1]];
            for (a, b) in ours.iter().zip(theirs).chain(section.steady_state.iter().zip(state)) {
                // A state is a quotient of small differences where the cut-off is close to 0.
                assert!((a - b).abs() <= 1e-8 * b.abs().max(1e-3), "{band:?}: {a} instead of {b}");
            }
        }
    }
}

#[test]
fn constant_and_broken_series_are_reported_and_do_not_touch_their_neighbours() {
    let (shape, series) = fixture::array::<f32>("random_156");
    let t = shape[1];
    let settings = CleanSettings { high_pass: Some(0.01), ..CleanSettings::default() };
    let cleaner = Cleaner::try_new(&settings, t, Some(2.0)).unwrap();
    let mut clean = series.clone();
    cleaner.clean(&mut clean).unwrap();

    let mut mixed = series.clone();
    mixed[t..2 * t].fill(1000.1);
    mixed[3 * t + 7] = f32::NAN;
    mixed[4 * t] = f32::INFINITY;
    let broken = mixed.clone();
    let report = cleaner.clean(&mut mixed).unwrap();
    assert_eq!(report.constant, [1]);
    assert_eq!(report.not_finite, [3, 4]);
    for row in 0..shape[0] {
        let range = row * t..(row + 1) * t;
        match row {
            1 => assert!(mixed[range].iter().all(|x| *x == 0.0)),
            3 | 4 => assert!(
                mixed[range.clone()].iter().zip(&broken[range]).all(|(a, b)| a.to_bits() == b.to_bits())
            ),
            _ => assert_eq!(mixed[range.clone()], clean[range]),
        }
    }
}

#[test]
fn a_series_is_cleaned_alike_wherever_it_lies() {
    let (shape, series) = fixture::array::<f32>("random_20");
    let cleaner = Cleaner::try_new(&CleanSettings::default(), shape[1], None).unwrap();
    let mut alone = series.clone();
    alone.chunks_exact_mut(shape[1]).for_each(|row| drop(cleaner.clean(row).unwrap()));
    let mut many = series.repeat(30);
    cleaner.clean(&mut many).unwrap();
    many.chunks_exact(series.len()).for_each(|copy| assert_eq!(copy, alone));
}

#[test]
fn a_constant_series_stays_where_nothing_removes_the_mean() {
    let settings =
        CleanSettings { detrend: false, standardize: Standardize::None, ..CleanSettings::default() };
    let mut series = vec![7.0; 12];
    let report = Cleaner::try_new(&settings, 12, None).unwrap().clean(&mut series).unwrap();
    assert_eq!((report.constant, series), (vec![0], vec![7.0; 12]));
}

#[test]
fn settings_that_cannot_work_say_what_would() {
    let refuse = |settings: CleanSettings, t, t_r| Cleaner::try_new(&settings, t, t_r).unwrap_err();
    let base = CleanSettings::default;
    let cosine =
        |high_pass, low_pass| CleanSettings { filter: Filter::Cosine, high_pass, low_pass, ..base() };
    let high = CleanSettings { high_pass: Some(0.01), ..base() };
    let band = CleanSettings { low_pass: Some(0.1), ..high.clone() };

    let e = refuse(high.clone(), 18, Some(2.0));
    assert!(matches!(e, Error::TooShort { time_points: 18, minimum: 19, .. }), "{e}");
    assert!(e.to_string().contains("18") && e.to_string().contains("19"), "{e}");
    assert!(matches!(refuse(band, 33, Some(2.0)), Error::TooShort { minimum: 34, .. }));
    assert_eq!(refuse(high.clone(), 100, None).setting(), Some("t_r"));
    assert_eq!(refuse(high, 100, Some(-1.0)).setting(), Some("t_r"));
    assert_eq!(refuse(cosine(None, None), 100, Some(2.0)).setting(), Some("high_pass"));
    assert_eq!(refuse(cosine(Some(0.01), Some(0.1)), 100, Some(2.0)).setting(), Some("low_pass"));
    assert!(matches!(refuse(base(), 1, None), Error::TooShort { minimum: 2, .. }));
    let cleaner = Cleaner::try_new(&base(), 5, None).unwrap();
    assert!(matches!(cleaner.clean(&mut [0.0; 7]).unwrap_err(), Error::Shape { found: 7, .. }));
}

#[test]
fn the_history_says_what_was_done_and_the_settings_outrank_the_data() {
    let settings = CleanSettings { high_pass: Some(0.01), t_r: Some(1.5), ..CleanSettings::default() };
    let text = Cleaner::try_new(&settings, 156, Some(2.0)).unwrap().describe();
    assert_eq!(
        text,
        "clean: linear detrend, Butterworth of order 5 high_pass 0.01 Hz (t_r 1.5 s), zscore_sample"
    );
    let settings = CleanSettings { filter: Filter::Cosine, standardize: Standardize::Psc, ..settings };
    let text = Cleaner::try_new(&settings, 156, None).unwrap().describe();
    assert_eq!(text, "clean: linear detrend, 4 cosine drifts under 0.01 Hz removed (t_r 1.5 s), psc");
}

#[test]
fn fifty_thousand_series_take_well_under_a_minute() {
    let (shape, series) = fixture::array::<f32>("random_156");
    let mut rows = series.repeat(50_000 / shape[0]);
    for settings in
        [CleanSettings::default(), CleanSettings { high_pass: Some(0.01), ..CleanSettings::default() }]
    {
        let cleaner = Cleaner::try_new(&settings, shape[1], Some(2.0)).unwrap();
        let start = Instant::now();
        let report = cleaner.clean(&mut rows).unwrap();
        let seconds = start.elapsed().as_secs_f64();
        println!(
            "{} series of {} points, {}: {seconds:.3} s",
            rows.len() / shape[1],
            shape[1],
            cleaner.describe()
        );
        assert!(report.constant.is_empty());
        // The bound is loose since other work may share the machine; what was measured is printed.
        assert!(seconds < 60.0);
    }
}
