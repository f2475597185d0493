//! Where DataFusion and DuckDB mean different things by the same query.
//!
//! What they take differently is told by an experiment: the query is asked again of tables without such numbers. Where they
//! then agree, that was the reason. Faults of DataFusion, by which one process and executors give the same wrong rows or the
//! same error, are known by what a query is made of ([`FAULTS`]). All else is a difference.
//!
//! | what | DataFusion | DuckDB |
//! |---|---|---|
//! | -0.0 | stands before 0.0 and differs from it, by IEEE 754's total order | is 0.0 |
//! | NaN  | `min` and `max` pass over it where there are numbers | stands behind all numbers |

use crate::{
    answer,
    duckdb::DuckDb,
    generate::Query,
    run,
    tables::{Table, know},
};
use std::path::Path;
use voxelflow::{Result, Session};

/// What the two take differently, which numbers those are, and what stands for them in the experiment.
type Difference = (&'static str, fn(f64) -> bool, fn(f64) -> f64);

const DIFFERENCES: &[Difference] = &[
    ("known: -0.0", is_negative_zero, |number| if is_negative_zero(number) { 0.0 } else { number }),
    ("known: NaN", f64::is_nan, |number| if number.is_nan() { 7.5 } else { number }),
    ("known: -0.0 and NaN", f64::is_nan, |number| match number {
        _ if number.is_nan() => 7.5,
        _ if number == 0.0 => 0.0,
        _ => number,
    }),
];

/// Faults of DataFusion 55 that are left, and what a query that meets one is made of: one of each group.
const FAULTS: &[(&str, &[&[&str]])] = &[
    // Such a condition passes an outer join whose missing rows it would have seen.
    ("fault: IS DISTINCT FROM", &[&["IS DISTINCT FROM"], &["LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]]),
    // A list of constants for each row outside: the join that it becomes panics, or takes a NULL of one list for all.
    ("fault: correlated NOT IN", &[&["correlated IN"], &["NOT IN"]]),
];

fn fault(query: &Query) -> Option<&'static str> {
    let meets = |groups: &[&[&str]]| {
        groups.iter().all(|group| group.iter().any(|feature| query.features.contains(*feature)))
    };
    FAULTS.iter().find(|(_, groups)| meets(groups)).map(|(name, _)| *name)
}

fn is_negative_zero(number: f64) -> bool {
    number == 0.0 && number.is_sign_negative()
}

/// Why the answers of `here` and of DuckDB differ; nothing if they must not.
pub async fn reason(
    query: &Query,
    tables: &[Table],
    folder: &Path,
    here: &Session,
    duckdb: &mut DuckDb,
) -> Result<Option<&'static str>> {
    let mut found = None;
    for (reason, is_odd, instead) in DIFFERENCES {
        let used = || tables.iter().filter(|table| query.sql.contains(&table.name));
        if found.is_some() || !used().any(|table| table.has(*is_odd)) {
            continue;
        }
        let twins = tables.iter().map(|table| table.with_numbers(&folder.join("twins"), *instead));
        let twins: Vec<Table> = twins.collect::<Result<_>>()?;
        know(&twins, [here], Some(&mut *duckdb)).await?;
        if let (Ok(here), Ok(there)) = (run(here, &query.sql).await, duckdb.query(&query.for_duckdb())?)
            && answer::comparable(&here) == answer::comparable(&there)
        {
            found = Some(*reason);
        }
        know(tables, [here], Some(&mut *duckdb)).await?;
    }
    Ok(found.or_else(|| fault(query)))
}
