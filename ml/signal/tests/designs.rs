//! Designs against nilearn's, made by `integration-tests/reference/design.py`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[allow(dead_code)]
mod fixture;

use serde_json::Value;
use voxelflow_signal::design::{Design, DesignSettings, Event, FrameTimes};
use voxelflow_signal::pearson_r;

/// Of the largest value of a column.
const TOLERANCE: f64 = 1e-10;

fn events(case: &Value) -> Vec<Event> {
    let event = |row: &Value| Event {
        onset: row[0].as_f64().unwrap(),
        duration: row[1].as_f64().unwrap(),
        condition: row[2].as_str().map(str::to_owned),
        modulation: row[3].as_f64().unwrap(),
    };
    case["events"].as_array().unwrap().iter().map(event).collect()
}

fn times(case: &Value) -> FrameTimes {
    let number = |name: &str| case[name].as_f64().unwrap();
    FrameTimes::try_new(number("volumes") as usize, number("t_r"), number("start_time")).unwrap()
}

#[test]
fn columns_equal_nilearn() {
    let index = fixture::json("design/index.json");
    let cases = index["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 23);
    for case in cases {
        let name = case["name"].as_str().unwrap();
        let settings: DesignSettings = serde_json::from_value(case["settings"].clone()).unwrap();
        let (shape, expected) = fixture::array::<f64>(&format!("design/{name}"));
        let names: Vec<String> = serde_json::from_value(case["columns"].clone()).unwrap();
        let expected: Vec<&[f64]> = expected.chunks_exact(shape[1]).collect();
        let at = |name: &str| expected[names.iter().position(|n| n == name).unwrap()].to_vec();
        let extra: Vec<String> = serde_json::from_value(case["extra"].clone()).unwrap();
        let extra: Vec<(String, Vec<f64>)> =
            extra.into_iter().map(|name| (name.clone(), at(&name))).collect();

        let design = Design::try_new(&times(case), &events(case), &extra, &settings).unwrap();

        assert_eq!(design.names, names, "{name}");
        for ((column, found), expected) in names.iter().zip(&design.columns).zip(expected) {
            let largest = expected.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
            let worst = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(worst <= TOLERANCE * largest, "{name} {column}: {worst} of {largest}");
        }
        assert_eq!(design.report.rank, names.len(), "{name}: {:?}", design.report);
    }
}

#[test]
fn correlations_with_regressors_equal_numpy() {
    let (shape, design) = fixture::array::<f64>("design/studyforrest");
    let (_, series) = fixture::array::<f32>("design/series");
    let (_, expected) = fixture::array::<f64>("design/correlation");
    let design: Vec<f32> = design.iter().map(|x| *x as f32).collect();
    for (series, expected) in series.chunks_exact(shape[1]).zip(expected.chunks_exact(shape[0])) {
        let found = pearson_r(&series.repeat(shape[0]), &design, shape[1]).unwrap();
        for (found, expected) in found.iter().zip(expected) {
            assert!((f64::from(*found) - expected).abs() < 1e-7 || found.is_nan() && expected.is_nan());
        }
        assert!(found[0].abs() > 0.01 && found[shape[0] - 1].is_nan());
    }
}
