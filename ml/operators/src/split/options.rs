//! Options of `split`, as they are written and as they are meant.

use super::{SPLIT, assignment::Division};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Options of `split`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SplitOptions {
    /// Columns whose values make a group, as `'subject'`, `'subject, session'` or a list; the rows of a group stay
    /// together.
    pub by: Value,
    /// Share of the groups that is for testing, from 0 to below 1.
    pub test: f64,
    /// Share of the groups that is for validation while training.
    pub validation: f64,
    /// Number of folds, instead of shares: the column `fold` numbers them from 0.
    pub folds: Option<u32>,
    /// Which of the possible splits it is.
    pub seed: u64,
    /// Columns whose values are to be as frequent in every part, as `'sex'`; one value for each group.
    pub stratify: Value,
}

impl Default for SplitOptions {
    fn default() -> Self {
        let by = Value::String("subject".into());
        Self { by, test: 0.0, validation: 0.0, folds: None, seed: 0, stratify: Value::Null }
    }
}

pub(super) fn refused(option: &str, reason: impl Into<String>) -> Error {
    voxelflow_stage::Error::OptionValue { what: SPLIT.into(), option: option.into(), reason: reason.into() }
        .into()
}

/// Names in an option's value: `'a, b'` or `['a', 'b']`.
///
/// # Errors
/// A value that is neither.
pub(crate) fn names(what: &str, option: &str, value: &Value) -> Result<Vec<String>> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let names: Option<Vec<String>> = match value {
        Value::Null => Some(Vec::new()),
        Value::String(text) => Some(text.split(',').map(|name| name.trim().to_owned()).collect()),
        Value::Array(values) => values.iter().map(text).collect(),
        _ => None,
    };
    names.filter(|names| names.iter().all(|name| !name.is_empty())).ok_or_else(|| {
        let reason = format!("must be names, as 'subject' or ['subject', 'session'], got {value}");
        voxelflow_stage::Error::OptionValue { what: what.into(), option: option.into(), reason }.into()
    })
}

impl SplitOptions {
    /// How groups are divided.
    ///
    /// # Errors
    /// Options that contradict each other, or leave nothing to train on.
    pub(super) fn division(&self) -> Result<Division> {
        let (test, validation) = (self.test, self.validation);
        for (option, share) in [("test", test), ("validation", validation)] {
            if !(0.0..1.0).contains(&share) {
                return Err(refused(option, format!("must be from 0 to below 1, got {share}")));
            }
        }
        match self.folds {
            Some(_) if test > 0.0 || validation > 0.0 => {
                Err(refused("folds", "stands for itself: leave `test` and `validation` out, or `folds`"))
            }
            Some(folds) if folds < 2 => Err(refused("folds", format!("must be 2 or more, got {folds}"))),
            Some(folds) => Ok(Division::Folds(folds)),
            None if test + validation >= 1.0 => {
                let all = test + validation;
                Err(refused("validation", format!("and `test` are {all}: nothing is left to train on")))
            }
            None if test + validation == 0.0 => {
                Err(refused("test", "is not given: write for example test => 0.2, or folds => 5"))
            }
            None => Ok(Division::Shares { test, validation }),
        }
    }
}
