//! The section on data quality: what was left out, filled or found odd, over all runs and run by run.

use crate::{LedgerRow, quantity::count};
use maud::{Markup, html};
use std::collections::{BTreeMap, BTreeSet};

/// Lines that the page shows; the table `ledger` has all.
const SHOWN: usize = 1000;

/// The section.
pub(crate) fn section(ledger: &[LedgerRow]) -> Markup {
    html! {
        section id="quality" {
            h2 { "Data quality" }
            @if ledger.is_empty() {
                p.empty { "Nothing to report: nothing was left out, filled, rescaled or found odd." }
            } @else {
                p { "What was left out, filled, changed or found odd on the way, and why. "
                    "The table " code { "ledger" } " has all of it." }
                (over_all_runs(ledger))
                (by_run(ledger))
            }
        }
    }
}

/// One line for each finding, whatever the run.
fn over_all_runs(ledger: &[LedgerRow]) -> Markup {
    let mut totals = BTreeMap::<(&str, &str), (u64, BTreeSet<&str>)>::new();
    for row in ledger {
        let (number, runs) = totals.entry((&row.what, &row.reason)).or_default();
        *number += row.count;
        runs.extend(Some(row.run.as_str()).filter(|run| !run.is_empty()));
    }
    html! {
        table.wide {
            thead { tr { th { "what" } th { "reason" } th.n { "runs" } th.n { "count" } } }
            tbody { @for ((what, reason), (number, runs)) in &totals { tr {
                td { (what) } td.list { (reason) }
                td.n { @if runs.is_empty() { "–" } @else { (count(runs.len() as u64)) } }
                td.n { (count(*number)) }
            } } }
        }
    }
}

fn by_run(ledger: &[LedgerRow]) -> Markup {
    let mut rows: Vec<&LedgerRow> = ledger.iter().collect();
    rows.sort_by_key(|row| (&row.run, &row.statement, &row.what, &row.reason));
    let more = rows.len().saturating_sub(SHOWN);
    html! {
        h3 { "By run" }
        table.wide {
            thead { tr { th { "run" } th { "what" } th { "reason" } th.n { "count" } th { "where" } th { "found by" } } }
            tbody { @for row in rows.iter().take(SHOWN) { tr {
                td { @if row.run.is_empty() { "–" } @else { (row.run) } }
                td { (row.what) } td.list { (row.reason) } td.n { (count(row.count)) }
                td.list { (row.places) } td { code { (row.statement) } }
            } } }
        }
        @if more > 0 { p { "… and " (count(more as u64)) " more lines." } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(run: &str, what: &str, number: u64) -> LedgerRow {
        LedgerRow {
            statement: "table series".into(),
            run: run.into(),
            what: what.into(),
            reason: "because".into(),
            count: number,
            places: "0-3,17".into(),
        }
    }

    #[test]
    fn findings_are_summed_over_runs_and_shown_by_run() {
        let rows =
            [row("sub-02", "dropped volume", 5), row("sub-01", "dropped volume", 2), row("", "noted run", 1)];
        let page = section(&rows).into_string();
        let place = |text: &str| page.find(text).unwrap_or_else(|| panic!("no {text} in {page}"));
        assert!(place("<td class=\"n\">2</td><td class=\"n\">7</td>") < place("By run"), "{page}");
        assert!(place("By run") < place("sub-01") && place("sub-01") < place("sub-02"), "{page}");
        assert!(page.contains("0-3,17") && page.contains("<code>table series</code>"), "{page}");
        assert!(!page.contains("more lines"), "{page}");
    }

    #[test]
    fn nothing_to_report_is_said_and_too_much_is_counted() {
        assert!(section(&[]).into_string().contains("Nothing to report"));
        let many: Vec<LedgerRow> = (0..SHOWN + 7).map(|n| row(&format!("sub-{n:04}"), "a", 1)).collect();
        let page = section(&many).into_string();
        assert!(page.contains("and 7 more lines") && !page.contains("sub-1000"), "too long");
    }
}
