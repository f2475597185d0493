//! The text files that stand beside images, each kind with its columns.

use crate::image_files::Wanted;
use std::fmt;

/// What a table of text files is made from. Each is a factory, to be registered under its [`name`](Self::name).
///
/// All begin with the keys `subject`, `session`, `task` and `run`, from the options, else from the file's name or (EV,
/// MOVEMENT) its place in a folder of the HCP pipelines; where a file has a column of such a name, that one stays. Keys
/// are texts, `run` an index, and empty where they are absent. `n/a` is null elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextTables {
    /// `*_events.tsv`: `onset` and `duration` in seconds, `trial_type`, and what else there is.
    Events,
    /// `*_desc-confounds_timeseries.tsv`: `volume` and a number in each column.
    Confounds,
    /// Any table of BIDS; with `participant_id`, also as `subject` without `sub-`.
    Tsv,
    /// `participants.tsv`: a table with `participant_id`.
    Participants,
    /// Files of `phenotype/`: tables with `participant_id`.
    Phenotype,
    /// Three columns of FSL: `condition` (the file's name), `onset`, `duration`, `amplitude`.
    Ev,
    /// HCP's `Movement_Regressors.txt`: `volume` and twelve columns by fMRIPrep's names (mm, degrees).
    Movement,
    /// `.bval` with its `.bvec`: `volume`, `b_value` in s/mm², and the direction `x`, `y`, `z`.
    Gradients,
}

impl TextTables {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Events,
        Self::Confounds,
        Self::Tsv,
        Self::Participants,
        Self::Phenotype,
        Self::Ev,
        Self::Movement,
        Self::Gradients,
    ];

    /// The name after `STORED AS`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Events => "EVENTS",
            Self::Confounds => "CONFOUNDS",
            Self::Tsv => "TSV",
            Self::Participants => "PARTICIPANTS",
            Self::Phenotype => "PHENOTYPE",
            Self::Ev => "EV",
            Self::Movement => "MOVEMENT",
            Self::Gradients => "GRADIENTS",
        }
    }

    /// Files of this kind.
    pub(crate) fn wanted(self) -> Wanted {
        let (what, endings): (_, &[&str]) = match self {
            Self::Events => ("_events.tsv file", &["_events.tsv"]),
            Self::Confounds => (
                "_desc-confounds_timeseries.tsv file",
                &["confounds_timeseries.tsv", "confounds_regressors.tsv", "bold_confounds.tsv"],
            ),
            Self::Tsv | Self::Participants | Self::Phenotype => (".tsv file", &[".tsv"]),
            Self::Ev => ("three-column .txt file", &[".txt"]),
            Self::Movement => ("Movement_Regressors.txt", &["Movement_Regressors.txt"]),
            Self::Gradients => (".bval file", &[".bval", "bvals"]),
        };
        Wanted { what, endings, choose: if self == Self::Ev { in_evs } else { all } }
    }

    /// Whether rows are of participants, and say so.
    pub(crate) fn needs_participants(self) -> bool {
        matches!(self, Self::Participants | Self::Phenotype)
    }

    /// Whether rows are volumes of a run.
    pub(crate) fn counts_volumes(self) -> bool {
        matches!(self, Self::Confounds | Self::Movement | Self::Gradients)
    }

    /// The type of a column that has one whatever its cells hold: true for numbers, false for text.
    pub(crate) fn is_number(self, column: &str) -> Option<bool> {
        match (self, column) {
            (Self::Events, "onset" | "duration") => Some(true),
            (Self::Events, "trial_type") | (_, "participant_id" | "session_id") => Some(false),
            _ => None,
        }
    }
}

impl fmt::Display for TextTables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn all(files: Vec<&str>) -> Vec<&str> {
    files
}

/// In a folder of the HCP pipelines events lie in `EVs`, beside other text files; `Sync` is no condition.
fn in_evs(mut files: Vec<&str>) -> Vec<&str> {
    let lies_there = |file: &&str| file.rsplit('/').nth(1) == Some("EVs");
    if files.iter().any(lies_there) {
        files.retain(|file| lies_there(file) && !file.ends_with("/Sync.txt"));
    }
    files
}
