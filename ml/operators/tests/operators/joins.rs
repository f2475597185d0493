//! Joins by keys of runs: their rows are what they would be anyway, and the ledger says what their keys do.

use crate::tables::Bench;
use arrow::{
    array::{ArrayRef, Int32Array, RecordBatch, StringArray},
    util::pretty::pretty_format_batches,
};
use datafusion::{datasource::MemTable, physical_plan::collect, prelude::SessionContext};
use std::sync::Arc;
use voxelflow_dataset::Ledger;
use voxelflow_operators::NoteJoinKeys;

fn bench() -> Bench {
    let bench = Bench::new();
    bench.context.add_analyzer_rule(Arc::new(NoteJoinKeys));
    bench
}

/// Rows of subject, session, run and a number, a partition each.
fn table(context: &SessionContext, name: &str, rows: &[(&str, &str, &str)]) {
    let row = |(number, (subject, session, run)): (usize, &(&str, &str, &str))| {
        let text = |text: &str| Arc::new(StringArray::from(vec![text])) as ArrayRef;
        let number = Arc::new(Int32Array::from(vec![number as i32])) as ArrayRef;
        let columns =
            [("subject", text(subject)), ("session", text(session)), ("run", text(run)), ("n", number)];
        vec![RecordBatch::try_from_iter(columns).unwrap()]
    };
    let partitions: Vec<Vec<RecordBatch>> = rows.iter().enumerate().map(row).collect();
    let table = MemTable::try_new(partitions[0][0].schema(), partitions).unwrap();
    context.register_table(name, Arc::new(table)).unwrap();
}

/// The rows of a query, and what is noted.
async fn run(context: &SessionContext, query: &str) -> (usize, Vec<String>) {
    let plan = context.sql(query).await.unwrap().create_physical_plan().await.unwrap();
    let rows = collect(Arc::clone(&plan), context.task_ctx()).await.unwrap();
    let plain = Bench::new().context;
    for name in ["series", "design", "people"] {
        plain.register_table(name, context.table_provider(name).await.unwrap()).unwrap();
    }
    let expected = plain.sql(query).await.unwrap().collect().await.unwrap();
    let sorted = |batches: &[RecordBatch]| {
        let text = pretty_format_batches(batches).unwrap().to_string();
        let lines = text.lines().filter(|line| line.starts_with('|')).skip(1);
        let mut lines: Vec<String> = lines.map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&rows), sorted(&expected), "{query}");
    let ledger = Ledger::of_plan(plan.as_ref()).concluded();
    let text = |entry: &voxelflow_dataset::LedgerEntry| {
        format!("{} [{}]", entry.reason(), entry.places().text(entry.count()).unwrap_or_default())
    };
    (rows.iter().map(RecordBatch::num_rows).sum(), ledger.iter().map(text).collect())
}

#[tokio::test]
async fn joins_say_what_their_keys_do() {
    let bench = bench();
    let context = &bench.context;
    let runs = [("01", "a", ""), ("01", "b", ""), ("02", "a", "")];
    table(context, "series", &runs);
    table(context, "design", &runs);
    table(context, "people", &[("1", "", ""), ("02", "", "")]);
    let whole = "SELECT s.n, d.n AS m FROM series s JOIN design d USING (subject, session, run)";
    assert_eq!(run(context, whole).await, (3, vec![]));
    let crossed =
        "SELECT s.n, d.n AS m FROM series s JOIN design d ON s.subject = d.subject AND s.run = d.run";
    let (rows, notes) = run(context, crossed).await;
    assert_eq!(
        (rows, notes),
        (
            5,
            vec![
                "a join of s and d by subject, run pairs rows of different sessions: compare session too [a with b]"
                    .to_owned()
            ]
        )
    );
    // A condition on the session, of whatever kind, is meant so.
    let meant = format!("{crossed} AND s.session <> d.session");
    assert_eq!(run(context, &meant).await, (2, vec![]));
    let (rows, notes) = run(context, "SELECT s.n FROM series s JOIN people p USING (subject)").await;
    assert!(rows == 1 && notes.len() == 1 && notes[0].ends_with("[subject 01 and 1]"), "{notes:?}");
    let none =
        "SELECT s.n FROM series s JOIN people p ON s.subject = p.subject WHERE p.subject = '1' AND s.n < 2";
    let (rows, notes) = run(context, none).await;
    assert!(
        rows == 0 && notes.iter().all(|note| note.starts_with("a join of s and p by subject")),
        "{notes:?}"
    );
    // Joins by other columns are none of its business, and rows pass through joins of every kind.
    for query in [
        "SELECT s.n FROM series s JOIN design d ON s.n = d.n",
        "SELECT s.n, p.n AS m FROM series s LEFT JOIN people p USING (subject)",
        "SELECT s.n, p.n AS m FROM series s FULL JOIN people p ON s.subject = p.subject AND s.n > 0",
        "SELECT n FROM series WHERE subject IN (SELECT subject FROM people)",
        "SELECT n FROM series s WHERE EXISTS (SELECT 1 FROM people p WHERE p.subject = s.subject)",
        "SELECT s.n FROM series s, people p WHERE s.subject = p.subject",
        "SELECT a.n, count(*) AS c FROM series a JOIN design b USING (subject) JOIN people c USING (subject) GROUP BY a.n",
    ] {
        run(context, query).await;
    }
}
