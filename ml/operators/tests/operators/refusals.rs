//! What a user can get wrong, and what they are told.

use crate::tables::{Bench, T, ours, refused, series, with_values};
use arrow::buffer::NullBuffer;
use serde_json::json;
use voxelflow_dataset::StagePlanner;
use voxelflow_operators::{Error, StageCatalog};

#[tokio::test]
async fn names_and_values_are_refused_before_anything_runs() {
    let bench = Bench::new();
    bench.table("bold", vec![vec![series(Some("a"), 0..3)]]);
    let plan = async |settings: serde_json::Value| {
        refused(bench.catalog.plan_train(bench.request("SELECT * FROM bold", None, settings).await))
    };
    let error = plan(json!({"rank": 2})).await;
    assert_eq!(error.option.as_deref(), Some("rank"));
    assert!(error.to_string().contains("did you mean `ranks`?"), "{error}");
    assert!(error.to_string().contains("subject_overlap"), "{error}");
    for (setting, value) in [("ranks", json!(0)), ("minibatch", json!(0)), ("learning_rate", json!(-1.0))] {
        let error = plan(json!({setting: value})).await;
        assert!(error.to_string().contains(&format!("`{setting}`")), "{error}");
    }
    assert!(plan(json!({"per": "subject"})).await.to_string().contains("leave PER out"));

    let mut request = bench.request("SELECT * FROM bold", None, json!({})).await;
    request.stage = "lines".into();
    let error = refused(bench.catalog.plan_train(request)).to_string();
    assert_eq!(error, "there is no stage `lines`, did you mean `line`?; the stages are: line");
    let mut request = bench.request("SELECT * FROM bold", None, json!({})).await;
    request.options.insert("fial".into(), json!(1));
    let error = refused(bench.catalog.plan_train(request));
    assert_eq!(error.option.as_deref(), Some("fial"));
    assert!(error.to_string().contains("did you mean `fail`?"), "{error}");
    assert!(bench.left_behind().is_empty());
}

#[tokio::test]
async fn rows_that_no_stage_can_read_are_refused() {
    let bench = Bench::new();
    bench.table("bold", vec![vec![series(Some("a"), 0..3)]]);
    let error =
        refused(bench.catalog.plan_train(bench.request("SELECT voxel FROM bold", None, json!({})).await));
    assert!(error.to_string().contains("the columns are: voxel UInt32"), "{error}");
    let lists = "SELECT voxel, make_array(1.0, 2.0) AS series FROM bold";
    let error = refused(bench.catalog.plan_train(bench.request(lists, None, json!({})).await));
    assert!(error.to_string().contains("several lengths"), "{error}");
    let short = "SELECT arrow_cast(make_array(1.0, 2.0), 'FixedSizeList(2, Float32)') AS series";
    let error =
        refused(bench.catalog.plan_train(bench.request("SELECT * FROM bold", Some(short), json!({})).await));
    assert!(error.to_string().contains("have 2 time points, those to train on 6"), "{error}");
    let error = refused(bench.catalog.plan_table_operator(
        "claen",
        bench.plan_of("SELECT * FROM bold").await,
        &Default::default(),
    ));
    assert!(error.to_string().contains("did you mean `clean`?"), "{error}");
    assert!(StageCatalog::new(Vec::new()).stages().is_empty());
}

#[tokio::test]
async fn an_empty_input_is_refused() {
    let bench = Bench::new();
    bench.table("bold", vec![vec![series(Some("a"), 0..3)]]);
    let error = bench.train("SELECT * FROM bold WHERE voxel > 100", json!({"ranks": 4})).await.unwrap_err();
    assert!(matches!(ours(&error), Error::NoRows { .. }), "{error}");
    assert!(ours(&error).is_input());
    assert!(bench.left_behind().is_empty());

    let none = "SELECT * FROM bold WHERE voxel > 100";
    let error =
        bench.run(bench.request("SELECT * FROM bold", Some(none), json!({})).await).await.unwrap_err();
    assert!(ours(&error).to_string().contains("the query after VALIDATE ON"), "{error}");
    assert!(ours(&error).is_input() && bench.left_behind().is_empty());
}

#[tokio::test]
async fn a_series_that_cannot_be_learned_from_is_named() {
    for (odd, text) in [(f32::NAN, "holds NaN at time point 3"), (f32::INFINITY, "holds inf at time point 3")]
    {
        let bench = Bench::new();
        let mut values = vec![1.0; 4 * T];
        values[2 * T + 3] = odd;
        bench.table("bold", vec![vec![with_values(Some("07"), 10..14, values, None)]]);
        let error = bench.train("SELECT * FROM bold", json!({})).await.unwrap_err();
        let message = ours(&error).to_string();
        assert!(message.contains("subject 07, voxel 12") && message.contains(text), "{message}");
        assert!(ours(&error).is_input() && bench.left_behind().is_empty());
    }
    let bench = Bench::new();
    let nulls = NullBuffer::from(vec![true, false, true]);
    bench.table("bold", vec![vec![with_values(None, 10..13, vec![1.0; 3 * T], Some(nulls))]]);
    let error = bench.train("SELECT * FROM bold", json!({})).await.unwrap_err();
    assert!(ours(&error).to_string().contains("`series` of voxel 11 is null"), "{error}");
}

#[tokio::test]
async fn a_subject_on_both_sides_is_refused_where_it_would_deceive() {
    let bench = Bench::new();
    bench.table("bold", vec![vec![series(Some("a"), 0..6), series(Some("b"), 0..6)]]);
    let halves = [("SELECT * FROM bold WHERE voxel < 3", "SELECT * FROM bold WHERE voxel >= 3")];
    for (train, validation) in halves {
        let request = bench.request(train, Some(validation), json!({})).await;
        let error = bench.run(request).await.unwrap_err();
        assert!(ours(&error).to_string().contains("subject a, b"), "{error}");
        assert_eq!(ours(&error).option(), Some("subject_overlap"));
        let request = bench.request(train, Some(validation), json!({"subject_overlap": "allow"})).await;
        bench.run(request).await.unwrap();
        // One subject: its voxels are split, unless that is to be an error as well.
        let only = |query: &str| format!("{query} AND subject = 'a'");
        let request = bench.request(&only(train), Some(&only(validation)), json!({})).await;
        bench.run(request).await.unwrap();
        let request =
            bench.request(&only(train), Some(&only(validation)), json!({"subject_overlap": "error"})).await;
        bench.run(request).await.unwrap_err();
    }
}

/// The text of the statement decides it, so nothing is read.
#[tokio::test]
async fn rows_that_are_trained_on_are_not_validated_on() {
    let bench = Bench::new();
    bench.table("bold", vec![vec![series(Some("a"), 0..6)]]);
    let plan = async |query: &str, settings: serde_json::Value| {
        bench.catalog.plan_train(bench.request(query, Some(query), settings).await)
    };
    let error = refused(plan("SELECT * FROM bold", json!({})).await);
    assert_eq!(error.option.as_deref(), Some("subject_overlap"));
    assert!(error.to_string().contains("are the rows to train on; split them"), "{error}");
    plan("SELECT * FROM bold", json!({"subject_overlap": "allow"})).await.unwrap();
    // Other rows whenever they are asked for.
    plan("SELECT * FROM bold WHERE random() < 0.5", json!({})).await.unwrap();
}

#[tokio::test]
async fn a_place_that_cannot_be_written_is_found_first() {
    let bench = Bench::new();
    bench.table("bold", vec![vec![series(Some("a"), 0..3)]]);
    std::fs::write(bench.folder.path().join("models"), "a file where the folder should be").unwrap();
    let error = bench.train("SELECT * FROM bold", json!({})).await.unwrap_err();
    assert!(matches!(ours(&error), Error::ModelFolder { .. }), "{error}");
    assert!(ours(&error).is_input());
}
