//! Random queries, each run in one process, on standing clusters of 1, 2 and 3 executors, and by DuckDB: all must give the
//! same rows.
//!
//! ```text
//!   seed ─► tables ─┬─► one process ──────┐
//!           query ──┼─► 1, 2, 3 executors ├─► the same rows, whatever their order: else seed, query, tables and answers
//!                   └─► DuckDB ───────────┘    are printed, and the program fails
//! ```
//!
//! Environment: `QUERY_FUZZ_QUERIES` (200), `QUERY_FUZZ_SEED` (1), `QUERY_FUZZ_SECONDS` (no bound): after so many seconds
//! no further query is begun, `QUERY_FUZZ_FIRST` (0): the query to begin with, `QUERY_FUZZ_ONLY`: queries, as text with
//! blank lines between, to be asked of its tables instead, with all answers shown, `QUERY_FUZZ_SHOW`: what was refused is
//! shown.

mod answer;
mod duckdb;
mod fixed;
mod generate;
mod known;
mod random;
mod tables;

use answer::Answer;
use duckdb::DuckDb;
use generate::{Generator, Query};
use random::Random;
use std::{
    collections::BTreeMap,
    path::PathBuf,
    str::FromStr,
    time::{Duration, Instant},
};
use tables::{Oddities, Table};
use voxelflow::{Error, Result, Session};

/// Queries over the same tables.
const ROUND: usize = 20;
/// How long one query may take at one place.
const PATIENCE: Duration = Duration::from_secs(60);

/// A number of the environment.
fn setting<T: FromStr>(name: &str) -> Result<Option<T>> {
    let wrong = |text: &str| Error::input(name, format!("`{text}` is no number"));
    std::env::var(name).ok().map(|text| text.parse().map_err(|_| wrong(&text))).transpose()
}

/// Where queries run on executors.
struct Place {
    name: String,
    session: Session,
}

struct Fuzz {
    here: Session,
    places: Vec<Place>,
    duckdb: Option<DuckDb>,
    counts: BTreeMap<&'static str, usize>,
    differences: usize,
    folder: PathBuf,
}

#[voxelflow::main]
async fn main(session: Session) -> Result<()> {
    let begun = Instant::now();
    let queries = setting("QUERY_FUZZ_QUERIES")?.unwrap_or(200_usize);
    let seed = setting("QUERY_FUZZ_SEED")?.unwrap_or(1_u64);
    let most = Duration::from_secs(setting("QUERY_FUZZ_SECONDS")?.unwrap_or(u64::MAX));
    let folder = std::env::temp_dir().join(format!("voxelflow-query-fuzz-{}", std::process::id()));
    let mut places = Vec::new();
    for executors in 1..=3_usize {
        let out = folder.join(format!("out-{executors}"));
        let builder = Session::builder().out(out).executors(executors).slots(2).partitions(executors + 2);
        places.push(Place { name: format!("{executors} executors"), session: builder.start().await? });
    }
    let mut fuzz = Fuzz {
        here: session,
        places,
        duckdb: DuckDb::start()?,
        counts: BTreeMap::new(),
        differences: 0,
        folder: folder.clone(),
    };
    let ended = fuzz.run(seed, queries, most.saturating_sub(begun.elapsed())).await;
    let _ = std::fs::remove_dir_all(&folder);
    ended?;
    let seconds = begun.elapsed().as_secs();
    println!("seed {seed}: {:?}, {} differences, {seconds} s", fuzz.counts, fuzz.differences);
    match fuzz.differences {
        0 => Ok(()),
        some => Err(Error::input("query_fuzz", format!("{some} queries have different answers"))),
    }
}

impl Fuzz {
    async fn run(&mut self, seed: u64, queries: usize, most: Duration) -> Result<()> {
        let begun = Instant::now();
        let folder = self.folder.clone();
        let tables = fixed::tables(&folder.join("fixed"))?;
        self.know(&tables).await?;
        for case in fixed::CASES {
            self.count("fixed");
            self.check_fixed(case, &tables).await?;
        }
        let only = std::env::var("QUERY_FUZZ_ONLY").ok();
        let begin = setting("QUERY_FUZZ_FIRST")?.unwrap_or(0_usize) / ROUND * ROUND;
        for first in (begin..queries).step_by(ROUND) {
            let round = seed.wrapping_mul(1_000_003).wrapping_add(first as u64);
            let mut random = Random::new(round);
            let odd = Oddities { nan: random.chance(40), negative_zero: random.chance(25) };
            let below = folder.join(format!("round-{first}"));
            let tables = (0..4).map(|n| Table::random(&format!("r{n}"), &below, odd, &mut random));
            let tables: Vec<Table> = tables.collect::<Result<_>>()?;
            self.know(&tables).await?;
            if let Some(only) = &only {
                for sql in only.split("\n\n") {
                    self.ask(sql).await?;
                }
                return Ok(());
            }
            for number in first..queries.min(first + ROUND) {
                if begun.elapsed() > most {
                    println!("stopped after {number} queries: the time is over");
                    return Ok(());
                }
                let query = Generator::new(&tables, &mut random).query();
                self.count("queries");
                self.check(&format!("seed {seed}, query {number}"), &query, &tables).await?;
            }
        }
        Ok(())
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// Makes the tables known everywhere, instead of those of the same names.
    async fn know(&mut self, tables: &[Table]) -> Result<()> {
        let sessions = std::iter::once(&self.here).chain(self.places.iter().map(|place| &place.session));
        tables::know(tables, sessions, self.duckdb.as_mut()).await
    }

    /// Shows all answers to one query, and its plans.
    async fn ask(&mut self, sql: &str) -> Result<()> {
        println!("\n== {sql}\n-- one process: {}", answer::shown(&run(&self.here, sql).await));
        println!("{}", answer::plan(&run(&self.here, &format!("EXPLAIN {sql}")).await));
        for place in &self.places {
            println!("{}", sent(&place.session, sql).await.unwrap_or_else(|e| e.to_string()));
            println!("-- {}: {}", place.name, answer::shown(&run(&place.session, sql).await));
        }
        if let Some(duckdb) = &mut self.duckdb {
            println!("-- DuckDB: {}", answer::shown(&duckdb.query(sql)?));
        }
        Ok(())
    }

    async fn check_fixed(&mut self, case: &fixed::Case, tables: &[Table]) -> Result<()> {
        let query =
            Query { sql: case.query.to_owned(), ordered: false, features: std::collections::BTreeSet::new() };
        let here = run(&self.here, case.query).await;
        let given: Vec<String> = match &here {
            Ok(rows) => answer::sorted(rows).iter().map(|row| row.join(" ")).collect(),
            Err(error) => vec![error.clone()],
        };
        if given != case.rows {
            self.differs("a fixed case", &query, tables, &here, "what is written down", &Ok(case.written()));
        }
        self.check(case.query, &query, tables).await
    }

    async fn check(&mut self, name: &str, query: &Query, tables: &[Table]) -> Result<()> {
        let here = run(&self.here, &query.sql).await;
        let there =
            futures::future::join_all(self.places.iter().map(|place| run(&place.session, &query.sql))).await;
        let names: Vec<String> = self.places.iter().map(|place| place.name.clone()).collect();
        for (place, there) in names.iter().zip(there) {
            let same = match (&here, &there) {
                (Ok(here), Ok(there)) if query.ordered => here == there,
                (Ok(here), Ok(there)) => answer::sorted(here) == answer::sorted(there),
                // What cannot be planned at all is no fault of executors.
                (Err(here), Err(there)) => is_plain(there) || here == there,
                _ => false,
            };
            if !same {
                self.differs(name, query, tables, &here, place, &there);
            }
        }
        let Ok(rows) = &here else {
            self.count("refused");
            if std::env::var_os("QUERY_FUZZ_SHOW").is_some() {
                println!("refused: {}\n  {}", query.sql, answer::shown(&here));
            }
            return Ok(());
        };
        let Some(duckdb) = &mut self.duckdb else { return Ok(()) };
        let known = duckdb.query(&query.for_duckdb())?;
        match &known {
            Err(e) => {
                self.count("refused by DuckDB");
                if std::env::var_os("QUERY_FUZZ_SHOW").is_some() {
                    println!("refused by DuckDB: {}\n  {e}", query.sql);
                }
            }
            Ok(known) if answer::comparable(known) == answer::comparable(rows) => {
                self.count("same in DuckDB")
            }
            Ok(_) => match known::reason(query, tables, &self.folder, &self.here, duckdb).await? {
                Some(reason) => self.count(reason),
                None => self.differs(name, query, tables, &here, "DuckDB", &known),
            },
        }
        Ok(())
    }

    fn differs(
        &mut self,
        name: &str,
        query: &Query,
        tables: &[Table],
        here: &Answer,
        place: &str,
        there: &Answer,
    ) {
        self.differences += 1;
        println!("\n== DIFFERENCE, {name}: one process and {place}\n{}", query.sql);
        println!("-- made of {:?}", query.features);
        println!("-- one process: {}\n-- {place}: {}", answer::shown(here), answer::shown(there));
        for table in tables.iter().filter(|table| query.sql.contains(&table.name)) {
            println!("-- {}", table.shown());
        }
    }
}

/// What a session answers. What panics is an answer too.
async fn run(session: &Session, query: &str) -> Answer {
    let (session, query) = (session.clone(), query.to_owned());
    let work = async move {
        let rows = session.sql(&query).await?.collect().await?;
        Ok::<_, voxelflow::dataset::Error>(answer::rows(&rows))
    };
    match tokio::time::timeout(PATIENCE, tokio::spawn(work)).await {
        Err(_) => Err(format!("panicked: no answer within {PATIENCE:?}")),
        Ok(Err(e)) => Err(format!("panicked: {}", words(e))),
        Ok(Ok(Err(e))) => Err(e.to_string()),
        Ok(Ok(Ok(rows))) => Ok(rows),
    }
}

/// What a panic said.
fn words(error: tokio::task::JoinError) -> String {
    match error.try_into_panic() {
        Ok(panic) => match panic.downcast::<String>() {
            Ok(said) => *said,
            Err(panic) => panic.downcast_ref::<&str>().copied().unwrap_or("without a word").to_owned(),
        },
        Err(error) => error.to_string(),
    }
}

/// The plan that is sent to a session's executors.
async fn sent(session: &Session, sql: &str) -> datafusion::error::Result<String> {
    let plan = session.context().sql(sql).await?.create_physical_plan().await?;
    let context = session.context().task_ctx();
    let plan = voxelflow::dataset::distributed::distribute(plan, session.runner().as_ref(), &context).await?;
    Ok(datafusion::physical_plan::displayable(plan.as_ref()).indent(false).to_string())
}

/// Whether an error says what is wrong, and is no accident.
fn is_plain(error: &str) -> bool {
    !["Internal error", "panicked", "backtrace"].iter().any(|sign| error.contains(sign))
}
