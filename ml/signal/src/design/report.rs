//! What became of events that are not simply in their condition's regressor.

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It has the condition, the onset and the duration of an event before it, which got its modulation too.
    Merged {
        /// That event, by its position among those given.
        into: usize,
    },
    /// Left out: it has no condition, while others of its run have.
    WithoutCondition,
    /// Left out: what it calls forth is over before the first volume, or it ended before `min_onset`.
    BeforeRun,
    /// Left out: what it calls forth begins after the last volume.
    AfterRun,
    /// It began before `min_onset` and lasted longer: it counts from there.
    Cut,
}

impl Outcome {
    /// The outcome in words, for people.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Merged { .. } => "same condition, onset and duration as another event: modulations added",
            Self::WithoutCondition => "no trial_type, while others of the run have one: left out",
            Self::BeforeRun => "its response is over before the first volume: left out",
            Self::AfterRun => "its response begins after the last volume: left out",
            Self::Cut => "begins before min_onset: counted from there",
        }
    }
}

/// An event, and what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventNote {
    /// Its position among those given.
    pub event: usize,
    /// What became of it.
    pub outcome: Outcome,
}

/// What a design did not simply take over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DesignReport {
    /// Events that were merged, left out or cut, by position.
    pub notes: Vec<EventNote>,
    /// Whether no event had a condition, so that all are `dummy`.
    pub dummy: bool,
    /// Columns that are zero in every volume.
    pub empty: Vec<String>,
    /// Independent columns; fewer than there are where some depend on others.
    pub rank: usize,
}

impl DesignReport {
    pub(super) fn note(&mut self, event: usize, outcome: Outcome) {
        self.notes.push(EventNote { event, outcome });
    }

    /// Adds what is known at the end.
    pub(super) fn conclude(&mut self, names: &[String], columns: &[Vec<f64>], rank: usize) {
        self.notes.sort_by_key(|note| note.event);
        let zero = |(_, column): &(&String, &Vec<f64>)| column.iter().all(|x| *x == 0.0);
        self.empty = names.iter().zip(columns).filter(zero).map(|(name, _)| name.clone()).collect();
        self.rank = rank;
    }

    /// Events that have no part in the design.
    pub fn left_out(&self) -> impl Iterator<Item = &EventNote> {
        self.notes.iter().filter(|note| {
            matches!(note.outcome, Outcome::WithoutCondition | Outcome::BeforeRun | Outcome::AfterRun)
        })
    }
}
