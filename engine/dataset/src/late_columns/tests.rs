//! Lists come back as they were, and plans give the rows that they gave.
#![allow(clippy::unwrap_used)]

use super::{
    shelf::{Shelf, take},
    with_late_columns,
};
use crate::session_context::{EngineConfig, session_context};
use arrow::{
    array::{
        Array, ArrayRef, FixedSizeListArray, Float32Array, Int64Array, LargeListArray, ListArray,
        RecordBatch, StringArray, UInt64Array,
    },
    compute,
    datatypes::{DataType, Field, Float32Type, Float64Type, Int64Type, Schema},
    util::pretty::pretty_format_batches,
};
use datafusion::{
    datasource::MemTable,
    physical_plan::{ExecutionPlan, collect, displayable},
    prelude::SessionContext,
};
use rand::{Rng, SeedableRng, rngs::StdRng, seq::SliceRandom};
use std::sync::Arc;

/// Rows of the tables, and values of their series.
const ROWS: usize = 1_500;
const LENGTH: i32 = 100;

fn back_and_forth(lists: &ArrayRef, seed: u64) {
    let context = SessionContext::new().task_ctx();
    let shelf = Shelf::default();
    let mut writers = [shelf.writer(&context).unwrap(), shelf.writer(&context).unwrap()];
    // Two partitions, some batches each.
    let (mut addresses, step) = (Vec::new(), lists.len().div_ceil(5).max(1));
    for (n, from) in (0..lists.len()).step_by(step).enumerate() {
        let part = lists.slice(from, step.min(lists.len() - from));
        addresses.push(writers[n % 2].put(&part).unwrap());
    }
    let addresses: Vec<&dyn Array> = addresses.iter().map(|part| part as &dyn Array).collect();
    let addresses = compute::concat(&addresses).unwrap();
    let field = Field::new("lists", lists.data_type().clone(), true);
    let mut order: Vec<u64> = (0..lists.len() as u64).collect();
    for _ in 0..2 {
        let asked = UInt64Array::from(order.clone());
        let found = take(&shelf, &compute::take(&addresses, &asked, None).unwrap(), &field).unwrap();
        assert_eq!(&found, &compute::take(lists, &asked, None).unwrap(), "{}", lists.data_type());
        order.shuffle(&mut StdRng::seed_from_u64(seed));
    }
}

#[test]
fn equal_lists_have_one_address() {
    let context = SessionContext::new().task_ctx();
    let shelf = Shelf::of_equals();
    let list = |values: [Option<f64>; 3]| Some(values.to_vec());
    let rows = [
        list([Some(1.0), None, Some(3.0)]),
        list([Some(1.0), None, Some(3.0)]),
        list([Some(1.0), Some(0.0), Some(3.0)]),
        None,
        list([Some(-0.0), None, Some(f64::NAN)]),
        list([Some(0.0), None, Some(f64::NAN)]),
        list([Some(-0.0), None, Some(f64::NAN)]),
    ];
    let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Float64Type, _, _>(rows));
    let [first, second] = [(); 2].map(|()| shelf.writer(&context).unwrap().put(&lists).unwrap());
    assert_eq!(first, second);
    let address = |row: usize| first.is_valid(row).then(|| first.value(row));
    assert_eq!((address(0), address(3)), (address(1), None));
    assert_eq!(address(4), address(6));
    assert!(address(0) != address(2) && address(4) != address(5));
    let field = Field::new("lists", lists.data_type().clone(), true);
    assert_eq!(&take(&shelf, &first, &field).unwrap(), &lists);
}

#[test]
fn lists_come_back_as_they_were() {
    for seed in 0..20 {
        let mut random = StdRng::seed_from_u64(seed);
        let rows = random.random_range(1..300);
        let nulls = [0.0, 0.1][seed as usize % 2];
        let ragged = |random: &mut StdRng| {
            let row = |random: &mut StdRng| {
                let length = random.random_range(0..2_000);
                (!random.random_bool(nulls)).then(|| {
                    (0..length)
                        .map(|_| (!random.random_bool(nulls)).then(|| random.random::<i64>()))
                        .collect::<Vec<_>>()
                })
            };
            (0..rows).map(|_| row(random)).collect::<Vec<_>>()
        };
        let fixed: Vec<_> = (0..rows)
            .map(|_| {
                (!random.random_bool(nulls)).then(|| {
                    (0..37)
                        .map(|_| (!random.random_bool(nulls)).then(|| random.random::<f32>()))
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        let floats = ragged(&mut random).into_iter().map(|row| {
            row.map(|row| row.into_iter().map(|value| value.map(|value| value as f64)).collect::<Vec<_>>())
        });
        let all: [ArrayRef; 3] = [
            Arc::new(FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(fixed, 37)),
            Arc::new(LargeListArray::from_iter_primitive::<Float64Type, _, _>(floats)),
            Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(ragged(&mut random))),
        ];
        for lists in all {
            back_and_forth(&lists, seed);
            let from = random.random_range(0..lists.len());
            back_and_forth(&lists.slice(from, lists.len() - from), seed);
        }
    }
}

/// Two tables of series in several partitions; keys in no order, some of them null.
async fn tables() -> SessionContext {
    let config = EngineConfig { target_partitions: Some(3), ..EngineConfig::default() };
    let context = session_context(Vec::new(), &config).unwrap();
    for (number, name) in ["a", "b"].into_iter().enumerate() {
        let mut random = StdRng::seed_from_u64(number as u64);
        let series = DataType::new_fixed_size_list(DataType::Float32, LENGTH, false);
        let schema = Arc::new(Schema::new(vec![
            Field::new("k", DataType::Int64, true),
            Field::new("name", DataType::Utf8, false),
            Field::new("series", series, true),
        ]));
        let mut partition = |rows: usize| {
            let keys: Int64Array =
                (0..rows).map(|_| random.random_bool(0.95).then(|| random.random_range(0..2_000))).collect();
            let names = StringArray::from_iter_values((0..rows).map(|row| format!("{name}{}", row % 7)));
            let values = Float32Array::from_iter_values((0..rows * LENGTH as usize).map(|_| random.random()));
            let valid = (0..rows).map(|_| random.random_bool(0.9)).collect::<Vec<bool>>();
            let item = Arc::new(Field::new_list_field(DataType::Float32, false));
            let series = FixedSizeListArray::new(item, LENGTH, Arc::new(values), Some(valid.into()));
            let columns: Vec<ArrayRef> = vec![Arc::new(keys), Arc::new(names), Arc::new(series)];
            vec![RecordBatch::try_new(Arc::clone(&schema), columns).unwrap()]
        };
        let rows = vec![partition(ROWS / 3), partition(0), partition(ROWS - ROWS / 3)];
        context.register_table(name, Arc::new(MemTable::try_new(schema, rows).unwrap())).unwrap();
    }
    context
}

async fn planned(context: &SessionContext, query: &str) -> Arc<dyn ExecutionPlan> {
    context.sql(query).await.unwrap().create_physical_plan().await.unwrap()
}

fn lines(batches: &[RecordBatch], ordered: bool) -> Vec<String> {
    let text = pretty_format_batches(batches).unwrap().to_string();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    if !ordered {
        lines.sort();
    }
    lines
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_give_the_rows_that_they_gave() {
    let context = tables().await;
    // The query, whether lists must be put aside, whether its rows have an order.
    for (query, puts_aside, ordered) in [
        ("SELECT * FROM a ORDER BY k, name, series[1]", false, true),
        ("SELECT series, k, name FROM a ORDER BY name, k NULLS FIRST, k % 3", true, false),
        ("SELECT * FROM a ORDER BY k LIMIT 5", false, false),
        ("SELECT * FROM a WHERE k > 100 ORDER BY name, k", true, false),
        ("SELECT a.k, a.series, b.series AS other, b.name FROM a JOIN b ON a.k = b.k", true, false),
        ("SELECT * FROM a LEFT JOIN b ON a.k = b.k AND a.name < b.name", true, false),
        ("SELECT * FROM a RIGHT JOIN b ON a.k = b.k", true, false),
        ("SELECT * FROM a FULL JOIN b ON a.k = b.k", true, false),
        ("SELECT * FROM a JOIN b ON a.k = b.k AND a.series[2] < b.series[2]", false, false),
        ("SELECT * FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k)", false, false),
        ("SELECT * FROM a WHERE k NOT IN (SELECT k FROM b WHERE k IS NOT NULL)", false, false),
        ("SELECT * FROM a JOIN b ON a.k < b.k - 1990", true, false),
        (
            "SELECT a.k, a.name, a.series, b.series AS other, row_number() OVER (PARTITION BY a.k ORDER BY a.name, b.name, \
             a.series[1], b.series[1]) AS n FROM a JOIN b ON a.k = b.k",
            true,
            false,
        ),
        ("SELECT k, series, count(*) OVER (PARTITION BY name) AS n FROM a", true, false),
        (
            "SELECT k, name, series, sum(k) OVER (PARTITION BY name ORDER BY k RANGE BETWEEN 10 PRECEDING AND CURRENT ROW) \
             AS s FROM a",
            true,
            false,
        ),
        (
            "SELECT k, lag(series) OVER (PARTITION BY name ORDER BY k, series[1]) AS before FROM a WHERE k < 300",
            false,
            false,
        ),
        ("SELECT k, series[3] AS third, series AS x, series AS y FROM a ORDER BY name, k", true, false),
        (
            "SELECT name, count(*), sum(series[1]) FROM (SELECT * FROM a ORDER BY k) GROUP BY name",
            false,
            false,
        ),
        (
            "SELECT * FROM (SELECT * FROM a ORDER BY name, k) x JOIN b ON x.k = b.k JOIN a AS c ON c.k = b.k",
            true,
            false,
        ),
        (
            "(SELECT * FROM a ORDER BY k, name LIMIT 20) UNION ALL (SELECT * FROM b ORDER BY k, name LIMIT 20)",
            false,
            false,
        ),
        (
            "SELECT DISTINCT name, series FROM (SELECT name, series FROM a UNION ALL SELECT name, series FROM a WHERE k < 900)",
            true,
            false,
        ),
        (
            "SELECT series, count(*) AS n, min(k) AS least FROM (SELECT * FROM a UNION ALL SELECT * FROM a WHERE name = 'a3') \
             GROUP BY series ORDER BY least, n",
            true,
            false,
        ),
        ("SELECT series, max(series[2]) AS m FROM a GROUP BY series", false, false),
        ("SELECT k, avg(series) AS mean FROM a WHERE k < 50 GROUP BY k", false, false),
        (
            "WITH RECURSIVE t AS (SELECT 1 AS i, k, series FROM a WHERE k < 20 UNION ALL SELECT i + 1, t.k, a.series \
             FROM t JOIN a ON t.k + 1 = a.k WHERE i < 3) SELECT * FROM t",
            false,
            false,
        ),
    ] {
        // A plan runs once.
        let [plan, again] = [planned(&context, query).await, planned(&context, query).await];
        let late = with_late_columns(again, 1 << 20).unwrap();
        let shown = displayable(late.as_ref()).indent(false).to_string();
        assert_eq!(late.schema(), plan.schema(), "{query}");
        let expected = collect(plan, context.task_ctx()).await.unwrap();
        let found =
            collect(late, context.task_ctx()).await.unwrap_or_else(|e| panic!("{query}: {e}\n{shown}"));
        assert!(expected.iter().map(RecordBatch::num_rows).sum::<usize>() > 0, "{query}");
        assert!(lines(&expected, ordered) == lines(&found, ordered), "{query}\n{shown}");
        assert!(shown.contains("PutAsideExec") || !puts_aside, "{query}\n{shown}");
    }
}

#[tokio::test]
async fn what_fits_stays_with_its_rows() {
    let context = tables().await;
    let plan = planned(&context, "SELECT * FROM a ORDER BY k").await;
    let late = with_late_columns(Arc::clone(&plan), 1 << 30).unwrap();
    assert!(Arc::ptr_eq(&late, &plan));
}
