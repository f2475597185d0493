//! What `EXPLAIN` shows of a training.

use crate::tables::{Bench, series};
use datafusion::physical_plan::displayable;
use serde_json::json;
use voxelflow_dataset::StagePlanner;

#[tokio::test]
async fn ranks_and_parameter_shards_are_nodes() {
    let bench = Bench::new();
    bench.table("bold", vec![vec![series(Some("a"), 0..3)]]);
    let settings = json!({"ranks": 3, "parameter_servers": 2});
    let request =
        bench.request("SELECT *, 1 AS unused FROM bold", Some("SELECT * FROM bold"), settings).await;
    let plan = bench.catalog.plan_train(request).unwrap();
    let state = bench.context.state();
    let optimized = state.optimize(&plan).unwrap();
    let logical = optimized.display_indent().to_string();
    let physical = state.create_physical_plan(&optimized).await.unwrap();
    let physical = displayable(physical.as_ref()).indent(false).to_string();
    for text in [&logical, &physical] {
        assert!(
            text.contains("model=m stage=line parameters=6 ranks=3 topology=parameter_service"),
            "{text}"
        );
        for node in [
            "Rank 0: rows 0/3",
            "Rank 2: rows 2/3",
            "ParameterShard 0: parameters [0..3)",
            "ParameterShard 1: parameters [3..6)",
        ] {
            assert_eq!(text.lines().filter(|line| line.trim() == node).count(), 1, "{node}:\n{text}");
        }
        assert!(!text.contains("unused"), "columns that training does not read are not computed:\n{text}");
    }
    assert!(logical.starts_with("Train: ") && physical.starts_with("TrainExec: "), "{logical}{physical}");
}

#[tokio::test]
async fn a_device_that_is_not_the_cpu_is_named() {
    let bench = Bench::new();
    bench.table("bold", vec![vec![series(Some("a"), 0..3)]]);
    for (device, named) in [("cpu", None), ("cuda:0,1", Some(" device=cuda:0,1"))] {
        let request = bench.request("SELECT * FROM bold", None, json!({"device": device})).await;
        let text = bench.catalog.plan_train(request).unwrap().display_indent().to_string();
        assert_eq!(text.find("device"), named.and_then(|named| text.find(named)).map(|at| at + 1), "{text}");
        assert_eq!(text.contains("device"), named.is_some(), "{text}");
    }
}

#[tokio::test]
async fn a_ring_has_no_shards() {
    let bench = Bench::new();
    bench.table("bold", vec![vec![series(Some("a"), 0..3)]]);
    let request = bench.request("SELECT * FROM bold", None, json!({"ranks": 2, "topology": "ring"})).await;
    let text = bench.catalog.plan_train(request).unwrap().display_indent().to_string();
    assert!(text.contains("Rank 1: rows 1/2, sends to rank 0"), "{text}");
    assert!(!text.contains("ParameterShard"), "{text}");
}
