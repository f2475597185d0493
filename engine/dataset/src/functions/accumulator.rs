//! Accumulators: sums that functions add to and the driver reads after the action.
//!
//! A partition adds up on its own; its total reaches the driver once, when the partition ends well or is no
//! longer wanted (`take`). A partition that fails adds nothing.

use super::FunctionContext;
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder};
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    marker::PhantomData,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// A sum so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Total {
    /// Of integers; stays at the bounds of `i64` rather than wrapping.
    Integer(i64),
    /// Of floats.
    Float(f64),
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

/// Sums by the accumulator's name.
pub(crate) type Totals = HashMap<String, Total>;

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

/// A named sum. Serialisable, so that it can ride along in a function's arguments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Accumulator<T> {
    name: String,
    #[serde(skip)]
    of: PhantomData<fn() -> T>,
}

impl<T: Accumulate> Accumulator<T> {
    pub(crate) fn named(name: &str) -> Self {
        Self { name: name.to_owned(), of: PhantomData }
    }

    /// The name, as [`Engine::accumulated`](crate::Engine::accumulated) takes it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds within a named function; elsewhere there is nobody to add for, and nothing happens.
    pub fn add(&self, amount: T) {
        if let Some(context) = FunctionContext::current() {
            add(&mut lock(&context.totals), &self.name, amount.into_total());
        }
    }
}

/// The driver's sums. Lives in the session's configuration, where plans find it.
#[derive(Debug, Default)]
pub(crate) struct Accumulators(Mutex<Totals>);

impl Accumulators {
    /// Adds what a partition has added up, and empties it.
    pub(crate) fn merge(&self, partition: &Mutex<Totals>) {
        let added = std::mem::take(&mut *lock(partition));
        let mut totals = lock(&self.0);
        for (name, amount) in added {
            add(&mut totals, &name, amount);
        }
    }

    /// Adds the sum that a metric of a plan that ran in another process holds; other metrics are none of its concern.
    pub(crate) fn absorb(&self, metric: &str, value: u64) {
        let amount = |prefix: &str| metric.strip_prefix(prefix);
        let (name, amount) = match (amount(INTEGER_METRIC), amount(FLOAT_METRIC)) {
            (Some(name), _) => (name, Total::Integer(value as i64)),
            (_, Some(name)) => (name, Total::Float(f64::from_bits(value))),
            (None, None) => return,
        };
        add(&mut lock(&self.0), name, amount);
    }

    pub(crate) fn get(&self, name: &str) -> Option<Total> {
        lock(&self.0).get(name).copied()
    }

    pub(crate) fn reset(&self, name: &str) {
        lock(&self.0).remove(name);
    }
}

const INTEGER_METRIC: &str = "accumulator i64 ";
const FLOAT_METRIC: &str = "accumulator f64 ";

/// Writes what a partition has added up as metrics, which are brought to the driver: the bits of each sum.
pub(crate) fn publish_totals(partition: &Mutex<Totals>, metrics: &ExecutionPlanMetricsSet, number: usize) {
    for (name, total) in std::mem::take(&mut *lock(partition)) {
        let (prefix, bits) = match total {
            Total::Integer(i) => (INTEGER_METRIC, i as u64),
            Total::Float(x) => (FLOAT_METRIC, x.to_bits()),
        };
        MetricBuilder::new(metrics).gauge(format!("{prefix}{name}"), number).set(bits as usize);
    }
}

fn add(totals: &mut Totals, name: &str, amount: Total) {
    match totals.get_mut(name) {
        Some(total) => total.add(amount),
        None => {
            totals.insert(name.to_owned(), amount);
        }
    }
}

/// The sums are whole between additions, so a panic elsewhere does not spoil them.
fn lock(totals: &Mutex<Totals>) -> MutexGuard<'_, Totals> {
    totals.lock().unwrap_or_else(PoisonError::into_inner)
}
