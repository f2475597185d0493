//! Counts for the data-quality ledger: what nodes left out, set to zero or found odd, and why.
//!
//! Nodes count much else that is of interest to nobody but them. A count that belongs into the ledger has the
//! reason in its name, since names are all that comes back from another process.

use datafusion::physical_plan::{
    ExecutionPlan,
    metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder, MetricValue},
};
use std::collections::BTreeMap;

const PREFIX: &str = "ledger ";

/// A counter of `partition` for the ledger: `counter` says what is counted, `reason` why.
pub fn ledger_counter(
    metrics: &ExecutionPlanMetricsSet,
    counter: &str,
    reason: &str,
    partition: usize,
) -> Count {
    MetricBuilder::new(metrics).counter(format!("{PREFIX}{counter}: {reason}"), partition)
}

/// `counter: reason`, if `name` is that of a counter for the ledger.
pub fn ledger_entry(name: &str) -> Option<&str> {
    name.strip_prefix(PREFIX)
}

/// All counts for the ledger of `plan` so far, zeros left out.
pub(crate) fn counts(plan: &dyn ExecutionPlan) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    count_below(plan, &mut counts);
    counts
}

fn count_below(plan: &dyn ExecutionPlan, counts: &mut BTreeMap<String, u64>) {
    for metric in plan.metrics().iter().flat_map(|all| all.iter()) {
        if let MetricValue::Count { name, count } = metric.value()
            && let Some(entry) = ledger_entry(name)
            && count.value() > 0
        {
            *counts.entry(entry.to_owned()).or_default() += count.value() as u64;
        }
    }
    plan.children().into_iter().for_each(|child| count_below(child.as_ref(), counts));
}
