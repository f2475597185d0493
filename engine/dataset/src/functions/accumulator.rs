//! Accumulators: sums that functions add to and the driver reads after the action.
//!
//! A partition adds up on its own; its total reaches the driver once, when the partition ends well or is no
//! longer wanted (`take`). A partition that fails adds nothing. What is added while rows are persisted is kept beside them,
//! for a later process that reads them.

use super::FunctionContext;
use crate::row_width::with_config;
use datafusion::{
    execution::TaskContext,
    physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    marker::PhantomData,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// A sum so far.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Total {
    /// Of integers; stays at the bounds of `i64` rather than wrapping.
    Integer(i64),
    /// Of floats.
    Float(#[serde(with = "bits")] f64),
}

/// JSON has neither NaN nor infinity.
mod bits {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        value.to_bits().serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        u64::deserialize(deserializer).map(f64::from_bits)
    }
}

impl Total {
    fn add(&mut self, other: Self) {
        *self = match (*self, other) {
            (Self::Integer(a), Self::Integer(b)) => Self::Integer(a.saturating_add(b)),
            (a, b) => Self::Float(a.as_f64() + b.as_f64()),
        };
    }
    fn as_f64(self) -> f64 {
        match self {
            Self::Integer(i) => i as f64,
            Self::Float(x) => x,
        }
    }
}

/// Sums by the accumulator's key.
pub(crate) type Totals = BTreeMap<String, Total>;

/// A type that an accumulator can add up: `i64` or `f64`.
pub trait Accumulate: Copy + private::Sealed {
    #[doc(hidden)]
    fn into_total(self) -> Total;
    #[doc(hidden)]
    fn from_total(total: Option<Total>) -> Self;
}

impl Accumulate for i64 {
    fn into_total(self) -> Total {
        Total::Integer(self)
    }
    fn from_total(total: Option<Total>) -> Self {
        match total {
            None => 0,
            Some(Total::Integer(i)) => i,
            Some(Total::Float(x)) => x as Self,
        }
    }
}

impl Accumulate for f64 {
    fn into_total(self) -> Total {
        Total::Float(self)
    }
    fn from_total(total: Option<Total>) -> Self {
        total.map_or(0.0, Total::as_f64)
    }
}

mod private {
    pub trait Sealed {}
    impl Sealed for i64 {}
    impl Sealed for f64 {}
}

/// A named sum. Serialisable, so that it can ride along in a function's arguments. Two of one name are two sums.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Accumulator<T> {
    /// Its number among those of its name, a space, and the name: the same in every run of a program.
    key: String,
    #[serde(skip)]
    of: PhantomData<fn() -> T>,
}

impl<T: Accumulate> Accumulator<T> {
    /// The name that it was given.
    pub fn name(&self) -> &str {
        self.key.split_once(' ').map_or("", |(_, name)| name)
    }

    /// Adds within a named function; elsewhere there is nobody to add for, and nothing happens.
    pub fn add(&self, amount: T) {
        if let Some(context) = FunctionContext::current() {
            add(&mut lock(&context.totals), &self.key, amount.into_total());
        }
    }
}

/// The driver's sums. Lives in the session's configuration, where plans find it.
#[derive(Debug, Default)]
pub(crate) struct Accumulators {
    totals: Mutex<Totals>,
    /// How many accumulators there are of each name.
    named: Mutex<BTreeMap<String, u64>>,
}

impl Accumulators {
    /// Another sum, from 0.
    pub(crate) fn create<T: Accumulate>(&self, name: &str) -> Accumulator<T> {
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        let number = named.entry(name.to_owned()).or_default();
        *number += 1;
        Accumulator { key: format!("{number} {name}"), of: PhantomData }
    }

    /// The context of `task` in which functions add to these sums instead of the session's.
    pub(crate) fn in_place_of_session(self: &Arc<Self>, task: &TaskContext) -> Arc<TaskContext> {
        let config = task.session_config().clone().with_extension(Arc::clone(self));
        with_config(task, config)
    }

    /// Adds what a partition has added up, and empties it.
    pub(crate) fn merge(&self, partition: &Mutex<Totals>) {
        self.add(std::mem::take(&mut *lock(partition)));
    }

    /// Adds sums to those of the same key.
    pub(crate) fn add(&self, added: Totals) {
        let mut totals = lock(&self.totals);
        for (key, amount) in added {
            add(&mut totals, &key, amount);
        }
    }

    /// All sums.
    pub(crate) fn totals(&self) -> Totals {
        lock(&self.totals).clone()
    }

    /// Adds the sum that a metric of a plan that ran in another process holds; other metrics are none of its concern.
    pub(crate) fn absorb(&self, metric: &str, value: u64) {
        let amount = |prefix: &str| metric.strip_prefix(prefix);
        let (key, amount) = match (amount(INTEGER_METRIC), amount(FLOAT_METRIC)) {
            (Some(key), _) => (key, Total::Integer(value as i64)),
            (_, Some(key)) => (key, Total::Float(f64::from_bits(value))),
            (None, None) => return,
        };
        add(&mut lock(&self.totals), key, amount);
    }

    pub(crate) fn get<T: Accumulate>(&self, accumulator: &Accumulator<T>) -> T {
        T::from_total(lock(&self.totals).get(&accumulator.key).copied())
    }
}

const INTEGER_METRIC: &str = "accumulator i64 ";
const FLOAT_METRIC: &str = "accumulator f64 ";

/// Writes what a partition has added up as metrics, which are brought to the driver: the bits of each sum.
pub(crate) fn publish_totals(partition: &Mutex<Totals>, metrics: &ExecutionPlanMetricsSet, number: usize) {
    for (key, total) in std::mem::take(&mut *lock(partition)) {
        let (prefix, bits) = match total {
            Total::Integer(i) => (INTEGER_METRIC, i as u64),
            Total::Float(x) => (FLOAT_METRIC, x.to_bits()),
        };
        MetricBuilder::new(metrics).gauge(format!("{prefix}{key}"), number).set(bits as usize);
    }
}

fn add(totals: &mut Totals, key: &str, amount: Total) {
    match totals.get_mut(key) {
        Some(total) => total.add(amount),
        None => {
            totals.insert(key.to_owned(), amount);
        }
    }
}

/// The sums are whole between additions, so a panic elsewhere does not spoil them.
fn lock(totals: &Mutex<Totals>) -> MutexGuard<'_, Totals> {
    totals.lock().unwrap_or_else(PoisonError::into_inner)
}
