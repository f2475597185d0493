//! Confounds against nilearn's `load_confounds`, on tables in two layouts of fMRIPrep, and what is refused.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[allow(dead_code)]
mod fixture;

use serde_json::Value;
use voxelflow_signal::{
    Error,
    confounds::{
        CompcorComponent, ConfoundSettings, ConfoundTable, Confounds, DropReason, FirstVolume, Preset,
        select_confounds,
    },
};

fn table(name: &str) -> ConfoundTable {
    let text = fixture::text(&format!("confounds/{name}.tsv"));
    let mut lines = text.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    let names = lines.next().unwrap();
    let rows: Vec<_> = lines.collect();
    let column =
        |k: usize| rows.iter().map(|row| (row[k] != "n/a").then(|| row[k].parse().unwrap())).collect();
    ConfoundTable::try_new(names.iter().enumerate().map(|(k, n)| ((*n).to_owned(), column(k))).collect())
        .unwrap()
}

/// The components that the JSON file lists, in no order.
fn sidecar(name: &str) -> Vec<CompcorComponent> {
    let json = fixture::json(&format!("confounds/{name}.json"));
    let component = |(name, of): (&String, &Value)| CompcorComponent {
        name: name.clone(),
        mask: of["Mask"].as_str().map(str::to_owned),
    };
    json.as_object().unwrap().iter().rev().map(component).collect()
}

fn settings(written: &Value) -> ConfoundSettings {
    match written.get("preset") {
        Some(name) => serde_json::from_value::<Preset>(name.clone()).unwrap().into(),
        None => serde_json::from_value(written.clone()).unwrap(),
    }
}

fn select(name: &str, settings: &ConfoundSettings) -> Result<Confounds, Error> {
    select_confounds(&table(name), &sidecar(name), settings)
}

#[test]
fn every_strategy_gives_nilearns_regressors_and_sample_mask() {
    let index = fixture::json("confounds/index.json");
    let (_, values) = fixture::array::<f64>("confounds/strategies");
    let (mut values, mut worst) = (values.as_slice(), 0.0f64);
    let cases = index["strategies"].as_array().unwrap();
    for case in cases {
        let what = case["settings"].to_string();
        let ours = select(case["table"].as_str().unwrap(), &settings(&case["settings"])).unwrap();
        let names: Vec<String> = serde_json::from_value(case["names"].clone()).unwrap();
        let kept: Vec<usize> = serde_json::from_value(case["kept"].clone()).unwrap();
        assert_eq!(ours.names, names, "{what}");
        assert_eq!(ours.sample_mask.indices(), kept, "{what}");
        let (volumes, k) = (ours.sample_mask.volumes(), names.len());
        assert_eq!(ours.dropped.len(), volumes - kept.len());
        let (theirs, rest) = values.split_at(volumes * k);
        values = rest;
        for (place, theirs) in theirs.iter().enumerate() {
            let a = ours.columns[place % k][place / k];
            let error = (a - theirs).abs() / theirs.abs().max(1.0);
            assert!(
                error <= 1e-9,
                "{what}, `{}`, volume {}: {a} instead of {theirs}",
                names[place % k],
                place / k
            );
            worst = worst.max(error);
        }
    }
    assert!(values.is_empty());
    println!("{} strategies, largest error {worst:.1e}", cases.len());
    assert_eq!(cases.len(), 32);
}

#[test]
fn what_was_dropped_is_told_with_its_reason() {
    let found = select("old", &Preset::Scrubbing.into()).unwrap();
    let reason = |volume: usize| &found.dropped.iter().find(|d| d.volume == volume).unwrap().reason;
    assert_eq!(*reason(0), DropReason::NonSteadyState);
    assert_eq!(*reason(2), DropReason::ShortSegment(4));
    assert_eq!(*reason(12), DropReason::FramewiseDisplacement(9.0));
    assert_eq!(*reason(14), DropReason::ShortSegment(3));
    assert_eq!(*reason(22), DropReason::StdDvars(1.8));
    assert!(reason(12).to_string().contains("9 mm"));
    let volumes: Vec<usize> = found.dropped.iter().map(|d| d.volume).collect();
    assert!(volumes.is_sorted() && volumes.iter().all(|v| !found.sample_mask.indices().contains(v)));
}

#[test]
fn columns_are_taken_by_name_and_by_pattern() {
    let columns =
        |patterns: &[&str]| ConfoundSettings::of_columns(patterns.iter().map(|p| (*p).to_owned()).collect());
    let found = select("old", &columns(&["trans_?", "csf", "rot_*_derivative1", "trans_x"])).unwrap();
    let expected = [
        "csf",
        "rot_x_derivative1",
        "rot_y_derivative1",
        "rot_z_derivative1",
        "trans_x",
        "trans_y",
        "trans_z",
    ];
    assert_eq!(found.names, expected);
    assert_eq!(found.filled.len(), 3);

    // Columns that mark volumes drop them.
    let found = select("old", &columns(&["csf", "motion_outlier*"])).unwrap();
    assert_eq!(found.names, ["csf"]);
    let dropped: Vec<usize> = found.dropped.iter().map(|d| d.volume).collect();
    assert_eq!(dropped, [0, 1, 12, 30]);

    let Err(Error::MissingConfounds { columns, near }) = select("old", &columns(&["trans_w", "csf"])) else {
        panic!("`trans_w` is not there")
    };
    assert_eq!(columns, ["trans_w"]);
    assert!(near.contains("`trans_x`"), "{near}");
    let e = select("new", &ConfoundSettings::default()).unwrap_err();
    assert!(
        e.to_string().contains("`rot_x_derivative1_power2`") && e.to_string().contains("`white_matter`"),
        "{e}"
    );
}

#[test]
fn a_strategy_that_the_data_cannot_serve_says_why() {
    let written = |json: Value| settings(&json);
    let compcor = written(serde_json::json!({"strategy": ["compcor"]}));
    assert_eq!(select("old", &compcor).unwrap_err().setting(), Some("strategy"));
    let compcor: ConfoundSettings = Preset::Compcor.into();
    let e = select_confounds(&table("old"), &[], &compcor).unwrap_err();
    assert_eq!(e.setting(), Some("compcor"));
    assert!(e.to_string().contains("sidecar"), "{e}");
    let temporal = written(serde_json::json!({"strategy": ["high_pass", "compcor"], "compcor": "temporal"}));
    assert_eq!(select("new", &temporal).unwrap_err().setting(), Some("compcor"));
    let aroma = written(serde_json::json!({"strategy": ["ica_aroma"], "ica_aroma": "basic"}));
    assert!(select("new", &aroma).unwrap_err().to_string().contains("`aroma_motion_*`"));
    let scrub = written(serde_json::json!({"strategy": ["scrub"], "fd_threshold": -0.5}));
    assert_eq!(select("old", &scrub).unwrap_err().setting(), Some("fd_threshold"));
}

/// nilearn reads the columns that a strategy names and no others.
#[test]
fn what_nobody_uses_is_not_judged() {
    let settings =
        |names: &[&str]| ConfoundSettings::of_columns(names.iter().map(|n| (*n).to_owned()).collect());
    let motion = ("trans_x".to_owned(), vec![Some(1.0), Some(3.0), Some(2.0)]);
    let broken =
        ("notes".to_owned(), Err("c.tsv: line 3, column notes: 'eyes shut' is not a number".to_owned()));
    let clean = ConfoundTable::try_new(vec![motion.clone()]).unwrap();
    let table = ConfoundTable::of_columns(vec![broken, (motion.0, Ok(motion.1))])
        .unwrap()
        .with_sidecar_fault("c.json: line 1: not JSON".into());
    let wanted = settings(&["trans_x"]);
    assert_eq!(
        select_confounds(&table, &[], &wanted).unwrap(),
        select_confounds(&clean, &[], &wanted).unwrap()
    );
    let e = select_confounds(&table, &[], &settings(&["notes"])).unwrap_err();
    assert!(matches!(&e, Error::UnusableConfound { column, .. } if column == "notes"));
    assert!(e.is_input() && e.to_string().contains("line 3, column notes: 'eyes shut'"), "{e}");
    let e = select_confounds(&table, &[], &Preset::Compcor.into()).unwrap_err();
    assert!(e.to_string().contains("c.json: line 1: not JSON"), "{e}");
}

/// A table of one derivative beside the two measures of motion.
fn small(derivative: [Option<f64>; 5], fd: f64) -> ConfoundTable {
    let motion = |name: &str| (name.to_owned(), [None].into_iter().chain([Some(fd); 4]).collect());
    let derivative = ("trans_x_derivative1".to_owned(), derivative.to_vec());
    ConfoundTable::try_new(vec![derivative, motion("framewise_displacement"), motion("std_dvars")]).unwrap()
}

/// Case 1: `n/a` in the derivative's first row.
#[test]
fn a_missing_first_value_is_filled_by_the_stated_policy_and_no_other() {
    let mut settings = ConfoundSettings::of_columns(vec!["trans_x_derivative1".to_owned()]);
    settings.demean = false;
    let table = small([None, Some(2.0), Some(3.0), Some(5.0), Some(1.0)], 0.1);
    for (policy, value) in [(FirstVolume::Backfill, 2.0), (FirstVolume::Zero, 0.0)] {
        settings.first_volume = policy;
        let found = select_confounds(&table, &[], &settings).unwrap();
        assert_eq!(found.columns, [[value, 2.0, 3.0, 5.0, 1.0]]);
        let filled = &found.filled[0];
        assert_eq!(
            (filled.column.as_str(), filled.value, filled.policy),
            ("trans_x_derivative1", value, policy)
        );
    }
    for broken in [None, Some(f64::NAN), Some(f64::INFINITY)] {
        let table = small([None, Some(2.0), Some(3.0), broken, Some(1.0)], 0.1);
        let e = select_confounds(&table, &[], &settings).unwrap_err();
        assert_eq!(e, Error::MissingValue { column: "trans_x_derivative1".to_owned(), row: 3 });
    }
    // Nothing to fill the first row from.
    settings.first_volume = FirstVolume::Backfill;
    let e = select_confounds(&small([None, None, Some(3.0), Some(5.0), Some(1.0)], 0.1), &[], &settings);
    assert!(matches!(e, Err(Error::MissingValue { row: 1, .. })));
}

/// Case 2: every volume moves by 9 mm.
#[test]
fn a_run_of_which_nothing_is_left_is_refused() {
    let mut settings = ConfoundSettings::of_columns(vec!["trans_x_derivative1".to_owned()]);
    settings.strategy = vec![voxelflow_signal::confounds::Component::Scrub];
    let e = select_confounds(&small([Some(1.0); 5], 9.0), &[], &settings).unwrap_err();
    assert!(matches!(e, Error::NothingLeft { .. }), "{e}");
    assert!(e.to_string().contains("all 5 volumes") && e.to_string().contains("9 mm"), "{e}");
}
