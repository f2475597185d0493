//! One run of one subject, with the files that belong to it, and what is wrong with those that do not.

use super::BoldKind;
use std::fmt;

/// Which of two datasets a file lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root {
    /// The dataset of the images.
    Dataset,
    /// The raw dataset beside it.
    Raw,
}

/// A file of one of two datasets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    /// The dataset.
    pub root: Root,
    /// The path in it.
    pub path: String,
}

/// Where the confounds of a run are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfoundFiles {
    /// A table with named columns, and the sidecars that describe them, the farthest first.
    Table {
        /// The `.tsv` file.
        path: String,
        /// JSON files; of a key that several have, the last counts.
        sidecars: Vec<String>,
    },
    /// HCP's `Movement_Regressors.txt`: twelve columns without names, six of motion (mm, degrees) and their derivatives.
    MovementRegressors(String),
}

/// Where the events of a run are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventFiles {
    /// A BIDS table: `onset`, `duration`, `trial_type`.
    Table(Located),
    /// FSL's three columns (onset, duration, weight), a file for each condition: its name and its path.
    ThreeColumns(Vec<(String, String)>),
}

/// One run of one subject: its image and what belongs to it. Paths are relative to the dataset.
#[derive(Clone, Debug, PartialEq)]
pub struct BidsRun {
    /// `sub-`
    pub subject: String,
    /// `ses-`
    pub session: Option<String>,
    /// `task-`
    pub task: Option<String>,
    /// `run-`; of scans that are runs of their own also what tells them apart: `acq-a_run-1`.
    pub run: Option<String>,
    /// `space-`
    pub space: Option<String>,
    /// What the image is made of.
    pub kind: BoldKind,
    /// The image; of surfaces the left and the right hemisphere, or one that was asked for.
    pub bold: Vec<String>,
    /// The brain on the image's grid; surfaces and grayordinates have none.
    pub mask: Option<String>,
    /// Confounds.
    pub confounds: Option<ConfoundFiles>,
    /// Events.
    pub events: Option<EventFiles>,
    /// `RepetitionTime` of the sidecars in seconds, which outranks the image's header.
    pub t_r: Option<f64>,
    /// `StartTime` of the sidecars: seconds from the beginning of a volume to the moment that its values stand for.
    pub start_time: Option<f64>,
}

impl BidsRun {
    /// `sub-01 ses-a task-x run-1`, for messages.
    pub fn label(&self) -> String {
        let mut label = format!("sub-{}", self.subject);
        for (key, value) in [("ses", &self.session), ("task", &self.task), ("run", &self.run)] {
            match value {
                Some(scan) if scan.contains('-') => label += &format!(" {}", scan.replace('_', " ")),
                Some(value) => label += &format!(" {key}-{value}"),
                None => {}
            }
        }
        label
    }
}

/// What a problem does to the runs that are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// Nothing can be read before it is solved.
    Refused,
    /// A run (or a file) is not among those found.
    LeftOut,
    /// A run is there, but this part of it is not.
    Lacking(Part),
}

/// What belongs to an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The brain mask.
    Mask,
    /// The confounds.
    Confounds,
    /// The events.
    Events,
}

/// Something that is wrong with a dataset or a query, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What it does.
    pub effect: Effect,
    /// A file, a run or an option.
    pub about: String,
    /// What is wrong, what was found instead, and what to do.
    pub reason: String,
}

impl Problem {
    pub(super) fn refused(about: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { effect: Effect::Refused, about: about.into(), reason: reason.into() }
    }

    pub(super) fn left_out(about: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { effect: Effect::LeftOut, about: about.into(), reason: reason.into() }
    }

    pub(super) fn lacking(part: Part, about: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { effect: Effect::Lacking(part), about: about.into(), reason: reason.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.about, self.reason)
    }
}

/// Runs that a query found, in the order of their paths, and what is wrong.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// Runs.
    pub runs: Vec<BidsRun>,
    /// Problems.
    pub problems: Vec<Problem>,
}

impl Selection {
    /// Problems that forbid to go on.
    pub fn refusals(&self) -> impl Iterator<Item = &Problem> {
        self.problems.iter().filter(|problem| problem.effect == Effect::Refused)
    }
}
