//! A planned file run to its end, as the driver would: values, not only plans.

use crate::stages::{SmallStages, session};
use arrow::{
    array::AsArray,
    datatypes::{Float32Type, Float64Type, Int64Type},
};
use datafusion::prelude::SessionContext;
use std::{collections::BTreeMap, sync::Arc};
use voxelflow_pipeline::{
    Planned, Planner, Source, Statement, Variables, explain_batch, parse, statement_key,
};

fn statements(text: &str) -> Vec<Statement> {
    parse(&Arc::new(Source::new("f.vf", text)), &Variables::new()).unwrap()
}

fn planner() -> (SessionContext, Planner) {
    let session = session();
    let mut planner = Planner::try_new(session.clone(), Arc::new(SmallStages), "models").unwrap();
    planner.add_model("atlas", "tests/golden/models/atlas");
    (session, planner)
}

#[tokio::test]
async fn operators_and_model_functions_compute() {
    let (session, planner) = planner();
    let text = "SELECT c.value, encode(atlas, series) AS hidden FROM clean(bold, gain => 10) c ORDER BY c.value LIMIT 2";
    let Planned::Query(plan) = planner.plan(&statements(text)[0]).await.unwrap() else {
        panic!("not a query")
    };
    let rows = session.execute_logical_plan(plan).await.unwrap().collect().await.unwrap();
    assert_eq!(rows[0].column(0).as_primitive::<Float64Type>().values(), &[10.0, 20.0]);
    let hidden = rows[0].column(1).as_fixed_size_list();
    assert_eq!(hidden.value_length(), 2);
    // The series are 0,1,2,3 and 4,5,6,7; the gain of the model is 2.
    assert_eq!(hidden.value(0).as_primitive::<Float32Type>().values(), &[2.0, 10.0]);
    assert_eq!(hidden.value(1).as_primitive::<Float32Type>().values(), &[18.0, 26.0]);
}

#[tokio::test]
async fn the_plan_of_a_training_runs() {
    let (session, planner) = planner();
    let text = "TRAIN MODEL dca USING dist_dca ON (SELECT * FROM bold WHERE split = 'train')";
    let Planned::Train(train) = planner.plan(&statements(text)[0]).await.unwrap() else {
        panic!("not a training")
    };
    let rows = session.execute_logical_plan(train.plan).await.unwrap().collect().await.unwrap();
    assert_eq!(rows[0].column(0).as_primitive::<Int64Type>().values(), &[3]);
}

#[tokio::test]
async fn a_declared_table_keeps_types_and_metadata_and_has_no_rows() {
    let (session, mut planner) = planner();
    let made = &statements("CREATE TABLE kept AS SELECT voxel, series FROM bold")[0];
    let planned = planner.plan(made).await.unwrap();
    planner.declare(made, &planned).await.unwrap();
    let table = session.table("kept").await.unwrap();
    assert!(table.schema().as_arrow().metadata().contains_key("voxelflow.grid"));
    assert!(!table.schema().field_with_unqualified_name("series").unwrap().is_nullable());
    assert_eq!(table.count().await.unwrap(), 0);
}

#[tokio::test]
async fn a_declared_model_has_a_type_and_refuses_to_run() {
    let (session, mut planner) = planner();
    let train = &statements("TRAIN MODEL dca USING dist_dca ON bold")[0];
    let planned = planner.plan(train).await.unwrap();
    planner.declare(train, &planned).await.unwrap();
    let query = &statements("SELECT encode(dca, series) FROM bold")[0];
    let Planned::Query(plan) = planner.plan(query).await.unwrap() else { panic!("not a query") };
    let e = session.execute_logical_plan(plan).await.unwrap().collect().await.unwrap_err();
    assert!(e.to_string().contains("model dca is declared, not trained"), "{e}");
    // Once trained, the same statement reads its folder.
    planner.add_model("dca", "tests/golden/models/atlas");
    let Planned::Query(plan) = planner.plan(query).await.unwrap() else { panic!("not a query") };
    assert_eq!(plan.schema().field(0).name(), "encode(dca, series)");
    let rows = session.execute_logical_plan(plan).await.unwrap().collect().await.unwrap();
    assert_eq!(rows.iter().map(|b| b.num_rows()).sum::<usize>(), 6);
}

#[tokio::test]
async fn a_refusal_keeps_the_typed_error_of_the_stage() {
    let (_, planner) = planner();
    for text in
        ["TRAIN MODEL dca USING dist_dca (lamda => 1) ON bold", "SELECT * FROM clean(bold, gian => 1)"]
    {
        let e = planner.plan(&statements(text)[0]).await.unwrap_err();
        let stage = e.stage_error().expect("the stage's error").source.to_string();
        assert!(stage.contains(e.message()), "{stage} / {e}");
    }
}

#[tokio::test]
async fn explain_is_a_table() {
    let (_, planner) = planner();
    let text = "EXPLAIN TRAIN MODEL dca USING dist_dca ON bold";
    let Planned::Explain(rows) = planner.plan(&statements(text)[0]).await.unwrap() else {
        panic!("not explained")
    };
    let batch = explain_batch(&rows).unwrap();
    let types: Vec<_> = batch.column(0).as_string::<i32>().iter().flatten().collect();
    assert_eq!(types, ["logical_plan", "physical_plan"]);
    assert!(batch.column(1).as_string::<i32>().value(1).contains("AggregateExec"), "{batch:?}");
}

#[tokio::test]
async fn keys_follow_what_is_read() {
    let (_, planner) = planner();
    let parsed = statements(
        "SELECT encode(atlas, series) FROM clean(bold); select encode(atlas,series) from clean(bold) -- same",
    );
    let by_folder = statements("SELECT encode('a/b', series) FROM predict('s3://lab/m', bold)");
    let folders = planner.inputs(&by_folder[0]).unwrap().model_folders;
    assert_eq!(folders.iter().map(String::as_str).collect::<Vec<_>>(), ["a/b", "s3://lab/m"]);
    let inputs = planner.inputs(&parsed[0]).unwrap();
    assert_eq!(inputs, planner.inputs(&parsed[1]).unwrap());
    assert_eq!((inputs.tables.len(), inputs.models.len()), (1, 1));
    let mut read: BTreeMap<String, String> =
        inputs.tables.iter().chain(&inputs.models).map(|name| (name.clone(), "k".to_string())).collect();
    let key = statement_key(&parsed[0], &read);
    assert_eq!(key, statement_key(&parsed[1], &read));
    read.insert("atlas".into(), "another".into());
    assert_ne!(key, statement_key(&parsed[0], &read));
}
