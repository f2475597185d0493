//! Real text files outside the repository give what numpy reads (`integration-tests/reference/formats_reference.py`).

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use voxelflow_formats::table::{EvFile, Events, Gradients};

/// Compares numbers, row by row, with their count, sum and last.
fn compare(name: &str, rows: &[Vec<f64>], expected: &Value) {
    let all = rows.concat();
    let count: u64 = expected["shape"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).product();
    assert_eq!(all.len() as u64, count, "{name}");
    let (sum, theirs) = (all.iter().map(|value| value.abs()).sum::<f64>(), expected["sum"].as_f64().unwrap());
    assert!((sum - theirs).abs() <= 1e-9 * theirs.max(1.0), "{name}: {sum} {theirs}");
    let (last, theirs) = (all[all.len() - 1], expected["last"].as_f64().unwrap());
    assert!((last - theirs).abs() <= 1e-12 * theirs.abs().max(1.0), "{name}: {last} {theirs}");
}

#[test]
fn real_events_ev_files_and_gradients_equal_numpy() {
    let data = std::env::var_os("VOXELFLOW_DATA").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    if !data.is_dir() {
        assert!(std::env::var_os("CI").is_none(), "no real data at {}", data.display());
        println!("SKIPPED: no real data at {} (set VOXELFLOW_DATA)", data.display());
        return;
    }
    let expected: Value = serde_json::from_str(include_str!("../fixtures/formats.json")).unwrap();
    let expected = &expected["tables"];

    let events = Events::read(data.join("fmri/studyforrest/sub-02_task-visloc_events.tsv")).unwrap();
    let times: Vec<_> =
        events.events().iter().map(|event| vec![event.onset, event.duration.unwrap()]).collect();
    compare("events", &times, &expected["events"]["times"]);
    let mut conditions = BTreeMap::new();
    for event in events.events() {
        *conditions.entry(event.trial_type.clone().unwrap()).or_insert(0) += 1;
    }
    assert_eq!(serde_json::json!(conditions), expected["events"]["conditions"]);

    let ev = expected["ev"].as_object().unwrap();
    assert_eq!(ev.len(), 96);
    for (name, digest) in ev {
        let read = EvFile::read(data.join(name)).unwrap();
        let rows: Vec<_> = read.events.iter().map(|e| vec![e.onset, e.duration, e.amplitude]).collect();
        compare(name, &rows, digest);
    }
    for (name, digest) in expected["gradients"].as_object().unwrap() {
        let stem = data.join(format!("dwi/dipy_small_{name}"));
        let read = Gradients::read(stem.with_extension("bval"), stem.with_extension("bvec")).unwrap();
        compare(name, &[read.b_values], &digest["b_values"]);
        let rows: Vec<_> = read.directions.iter().map(|direction| direction.to_vec()).collect();
        compare(name, &rows, &digest["directions"]);
    }
}
