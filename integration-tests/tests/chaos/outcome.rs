//! How runs end, and how often.

use super::{event::Kind, run::Report};
use std::{collections::BTreeMap, fmt};

/// How a disturbed run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The rows of one process.
    Rows,
    /// An error that says what happened.
    Error,
    /// The driver was ended, and its job with it.
    Stopped,
    /// An error that says nothing to its reader.
    Unclear(String),
    /// Other rows, or files that are not whole.
    Wrong(String),
    /// Nothing in time.
    Hung(String),
    /// A job that runs on, slots that are taken, executors that do not come back, files that nobody needs.
    LeftBehind(String),
}

/// Heads of the table, in the order of [`Outcome::column`].
const HEADS: [&str; 7] = ["rows", "error", "stopped", "unclear", "wrong", "hung", "left"];

impl Outcome {
    fn column(&self) -> usize {
        match self {
            Self::Rows => 0,
            Self::Error => 1,
            Self::Stopped => 2,
            Self::Unclear(_) => 3,
            Self::Wrong(_) => 4,
            Self::Hung(_) => 5,
            Self::LeftBehind(_) => 6,
        }
    }

    /// What is wrong, if anything is.
    pub fn failure(&self) -> Option<String> {
        match self {
            Self::Rows | Self::Error | Self::Stopped => None,
            Self::Unclear(why) | Self::Wrong(why) | Self::Hung(why) | Self::LeftBehind(why) => {
                Some(format!("{}: {why}", HEADS[self.column()]))
            }
        }
    }
}

/// Whether an error tells its reader what happened: whose fault it was, in words and not in a program's terms.
///
/// # Errors
/// What is unclear about it.
pub fn is_clear(said: &str) -> Result<(), String> {
    let error = said.lines().find(|line| line.starts_with("error")).ok_or("no line begins with `error`")?;
    let terms =
        ["panicked", "backtrace", "Status {", "Os {", "RecvError", "called `", "Internal error", "bug in"];
    if let Some(term) = terms.into_iter().find(|term| said.contains(term)) {
        return Err(format!("it says `{term}`: {error}"));
    }
    let culprits = ["executor", "scheduler", "No space left", "disk"];
    match culprits.into_iter().any(|culprit| said.contains(culprit)) {
        true => Ok(()),
        false => Err(format!("it does not say what happened: {error}")),
    }
}

/// Outcomes by kind of event. A run with two events counts for both.
#[derive(Default)]
pub struct Counts {
    by_kind: BTreeMap<Kind, [u64; HEADS.len()]>,
    runs: u64,
}

impl Counts {
    pub fn add(&mut self, run: &Report) {
        self.runs += 1;
        for event in &run.happened {
            self.by_kind.entry(event.kind).or_default()[run.outcome.column()] += 1;
        }
    }

    /// Events that have happened.
    pub fn events(&self) -> u64 {
        self.by_kind.values().flatten().sum()
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |name: &str, cells: &[String]| {
            write!(f, "{name:<28}")?;
            cells.iter().try_for_each(|cell| write!(f, "{cell:>9}"))?;
            writeln!(f)
        };
        let texts = |counts: &[u64]| counts.iter().map(u64::to_string).collect::<Vec<_>>();
        line("event", &HEADS.map(str::to_owned))?;
        let mut sums = [0; HEADS.len()];
        for (kind, counts) in &self.by_kind {
            line(kind.name(), &texts(counts))?;
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        line("all", &texts(&sums))?;
        writeln!(f, "{} events in {} runs", self.events(), self.runs)
    }
}
