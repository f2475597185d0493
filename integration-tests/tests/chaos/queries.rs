//! What the clusters are asked: a dozen queries that send many rows from executor to executor.

use super::{driver::Driver, standing::Standing, tables::Tables, tables::rows_of};
use crate::program::files_below;
use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Longest that a query may take when nothing disturbs it.
const UNDISTURBED: Duration = Duration::from_secs(60);

/// Where the rows of a query go.
#[derive(Clone, Copy, PartialEq)]
enum Target {
    /// The standard output; in this order, if it has one.
    Output { ordered: bool },
    /// A folder that `COPY` writes.
    Copy,
    /// A table of a pipeline file.
    Table,
    /// The folder of `--output`.
    Folder,
}

pub struct Query {
    pub name: &'static str,
    sql: &'static str,
    target: Target,
    /// How long it takes when nothing disturbs it.
    pub takes: Duration,
    /// The rows that one process gives.
    expected: Vec<String>,
}

const ROWS: Target = Target::Output { ordered: false };

/// All queries, not run yet.
pub fn all() -> Vec<Query> {
    let query = |(name, target, sql)| Query { name, sql, target, takes: UNDISTURBED, expected: Vec::new() };
    [
        (
            "join",
            ROWS,
            "SELECT k.w, count(*) AS rows, sum(a.v + b.v) AS v, max(b.t) AS t FROM FACTS a \
             JOIN FACTS b ON a.n = b.n + 97 JOIN KEYS k ON a.k = k.k GROUP BY k.w",
        ),
        (
            "group",
            ROWS,
            "SELECT t, count(*) AS rows, sum(v) AS v FROM FACTS GROUP BY t HAVING sum(v) % 50 = 0",
        ),
        (
            "window",
            ROWS,
            "SELECT g, n, running FROM (SELECT g, n, sum(v) OVER (PARTITION BY k ORDER BY n) AS running, \
             row_number() OVER (PARTITION BY g ORDER BY v DESC, n) AS place FROM FACTS WHERE g < 40) WHERE place <= 20",
        ),
        ("sort", Target::Output { ordered: true }, "SELECT t, n FROM FACTS WHERE g < 40 ORDER BY t DESC, n"),
        (
            "distinct",
            ROWS,
            "SELECT count(*) AS rows, sum(k) AS k, max(t) AS t FROM (SELECT DISTINCT k, v, t FROM FACTS)",
        ),
        (
            "union",
            ROWS,
            "SELECT t, k % 10 AS part, count(*) AS rows, sum(n) AS total FROM \
             (SELECT k, n, t FROM FACTS WHERE g < 60 UNION ALL SELECT v AS k, n, t FROM FACTS WHERE g > 50) \
             GROUP BY t, k % 10 HAVING sum(n) % 50 = 0",
        ),
        (
            "cte",
            ROWS,
            "WITH sums AS (SELECT t, sum(v) AS v, min(k) AS k FROM FACTS GROUP BY t) SELECT a.k, a.t, a.v, b.v AS other \
             FROM sums a JOIN sums b ON a.t = b.t JOIN KEYS k ON a.k = k.k WHERE (a.v + b.k) % 20 = 0",
        ),
        ("copy", Target::Copy, "SELECT k, count(*) AS rows, sum(v) AS v, min(t) AS t FROM FACTS GROUP BY k"),
        (
            "table",
            Target::Table,
            "SELECT k.label, count(*) AS rows, sum(f.v) AS v, max(f.t) AS t FROM FACTS f JOIN KEYS k ON f.k = k.k \
             GROUP BY k.label",
        ),
        (
            "not in",
            ROWS,
            "SELECT n, t FROM FACTS WHERE n NOT IN (SELECT n * 3 FROM FACTS) AND t NOT IN \
             (SELECT t FROM FACTS WHERE g = 1) AND g < 30",
        ),
        (
            "except",
            ROWS,
            "SELECT k, v % 1000 AS v FROM FACTS WHERE g < 60 EXCEPT SELECT k, v % 1000 AS v FROM FACTS WHERE g >= 40",
        ),
        (
            "folder",
            Target::Folder,
            "SELECT a.n, b.k, b.t FROM (SELECT n, t FROM FACTS WHERE g < 50) a \
             FULL OUTER JOIN (SELECT n, k, t FROM FACTS WHERE g > 20) b ON a.n = b.n + 1 WHERE (a.n / 3 + b.k) % 20 = 3",
        ),
    ]
    .map(query)
    .into()
}

impl Query {
    /// Whether its rows go to a folder.
    pub fn writes(&self) -> bool {
        !matches!(self.target, Target::Output { .. })
    }

    /// The arguments of the program that runs it into `out`.
    pub fn arguments(&self, tables: &Tables, out: &Path) -> Vec<String> {
        let sql = tables.named(self.sql);
        let written = out.join("written").display().to_string();
        match self.target {
            Target::Output { .. } => ["sql", &sql, "--format", "csv"].map(str::to_owned).into(),
            Target::Copy => {
                ["sql".to_owned(), format!("COPY ({sql}) TO '{written}/' STORED AS PARQUET")].into()
            }
            Target::Table => {
                let file = out.join("table.vf");
                fs::write(&file, format!("CREATE TABLE made AS {sql};\n")).unwrap();
                ["run", file.to_str().unwrap(), "--out", &written].map(str::to_owned).into()
            }
            Target::Folder => {
                ["sql", &sql, "--format", "parquet", "--output", &written].map(str::to_owned).into()
            }
        }
    }

    /// Runs it in one process, to know its rows, and undisturbed on `cluster`, to know how long it takes.
    #[track_caller]
    pub fn learn(&mut self, tables: &Tables, cluster: &Standing) {
        let here = tempfile::tempdir().unwrap();
        let mut alone = Driver::start(&self.arguments(tables, here.path()), &[]);
        let code = alone.wait(Instant::now() + UNDISTURBED);
        assert_eq!(code, Some(0), "{} in one process: {}", self.name, alone.said());
        self.expected = self.rows(&alone.stdout(), here.path()).unwrap();
        assert!(!self.expected.is_empty(), "{} has no rows", self.name);

        let there = tempfile::tempdir().unwrap();
        let started = Instant::now();
        let mut undisturbed = Driver::start(&self.arguments(tables, there.path()), &cluster.flags());
        let code = undisturbed.wait(started + UNDISTURBED);
        self.takes = started.elapsed();
        assert_eq!(code, Some(0), "{} undisturbed on a cluster: {}", self.name, undisturbed.said());
        self.is_whole(&undisturbed, there.path())
            .unwrap_or_else(|e| panic!("{} undisturbed: {e}", self.name));
    }

    /// The rows of a run that has ended well.
    fn rows(&self, stdout: &str, out: &Path) -> Result<Vec<String>, String> {
        let mut rows: Vec<String> = match self.target {
            Target::Output { .. } => stdout.lines().skip(1).map(str::to_owned).collect(),
            _ => {
                let files = visible_parquet(out);
                let read: Result<Vec<_>, _> = files.iter().map(|file| rows_of(file)).collect();
                read?.concat()
            }
        };
        if self.target != (Target::Output { ordered: true }) {
            rows.sort_unstable();
        }
        Ok(rows)
    }

    /// Checks the rows of a run that has ended well.
    ///
    /// # Errors
    /// How they differ from those that are right.
    pub fn is_whole(&self, driver: &Driver, out: &Path) -> Result<(), String> {
        self.compare(&self.rows(&driver.stdout(), out)?)
    }

    /// Checks the files that a run has left which was stopped.
    ///
    /// # Errors
    /// How they differ from those that are right.
    pub fn has_written(&self, out: &Path) -> Result<(), String> {
        self.compare(&self.rows("", out)?)
    }

    fn compare(&self, rows: &[String]) -> Result<(), String> {
        if rows == self.expected.as_slice() {
            return Ok(());
        }
        let at = rows.iter().zip(&self.expected).position(|(found, right)| found != right);
        let at = at.unwrap_or(rows.len().min(self.expected.len()));
        Err(format!(
            "{} rows instead of {}; row {at} is {:?} instead of {:?}",
            rows.len(),
            self.expected.len(),
            rows.get(at),
            self.expected.get(at)
        ))
    }
}

/// Parquet files below `folder` that a reader of their folder sees.
pub fn visible_parquet(folder: &Path) -> Vec<PathBuf> {
    let files = files_below(folder).into_iter();
    let visible = files.filter(|file| file.ends_with(".parquet") && !is_hidden(file));
    visible.map(|file| folder.join(file)).collect()
}

/// Files below `folder` that only their writer sees.
pub fn hidden(folder: &Path) -> Vec<String> {
    files_below(folder).into_iter().filter(|file| is_hidden(file)).collect()
}

fn is_hidden(file: &str) -> bool {
    file.split('/')
        .any(|name| name.starts_with(['.', '_']) || name.ends_with(".tmp") || name.ends_with(".partial"))
}
