//! What happens to a cluster, and to whom.

use super::{dice::Dice, standing::Place};
use std::{fmt, time::Duration};

/// A kind of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    KillExecutor,
    TerminateExecutor,
    /// SIGSTOP, and SIGCONT before the executor counts as lost.
    PauseShortly,
    /// SIGSTOP, and SIGCONT after others have taken over.
    Pause,
    FillDisk,
    /// A network that comes back before the executor counts as lost.
    CutShortly,
    Cut,
    /// SIGKILL, and another scheduler at the same address.
    RestartScheduler,
    InterruptDriver,
    TerminateDriver,
    KillDriver,
}

/// How long a short disturbance and a long one last. An executor counts as lost after two seconds.
const LASTS: [Duration; 2] = [Duration::from_millis(700), Duration::from_millis(4500)];

impl Kind {
    pub const ALL: [Self; 11] = [
        Self::KillExecutor,
        Self::TerminateExecutor,
        Self::PauseShortly,
        Self::Pause,
        Self::FillDisk,
        Self::CutShortly,
        Self::Cut,
        Self::RestartScheduler,
        Self::InterruptDriver,
        Self::TerminateDriver,
        Self::KillDriver,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::KillExecutor => "SIGKILL of an executor",
            Self::TerminateExecutor => "SIGTERM of an executor",
            Self::PauseShortly => "SIGSTOP, soon SIGCONT",
            Self::Pause => "SIGSTOP, late SIGCONT",
            Self::FillDisk => "full disk of an executor",
            Self::CutShortly => "network cut, soon back",
            Self::Cut => "network cut, late back",
            Self::RestartScheduler => "scheduler killed, started",
            Self::InterruptDriver => "Ctrl-C of the driver",
            Self::TerminateDriver => "SIGTERM of the driver",
            Self::KillDriver => "SIGKILL of the driver",
        }
    }

    /// Whether it happens to the driver, whose job ends then.
    pub fn is_about_the_driver(self) -> bool {
        matches!(self, Self::InterruptDriver | Self::TerminateDriver | Self::KillDriver)
    }

    pub fn is_about_an_executor(self) -> bool {
        !self.is_about_the_driver() && self != Self::RestartScheduler
    }

    /// The executor that it can happen to, if not to any.
    pub fn place(self) -> Option<Place> {
        match self {
            Self::FillDisk => Some(Place::Small),
            Self::CutShortly | Self::Cut => Some(Place::Apart),
            _ => None,
        }
    }

    pub fn loses_an_executor(self) -> bool {
        matches!(self, Self::KillExecutor | Self::TerminateExecutor)
    }

    /// How long it lasts; nothing where there is nothing to undo.
    fn lasts(self) -> Option<Duration> {
        match self {
            Self::PauseShortly | Self::CutShortly => Some(LASTS[0]),
            Self::Pause | Self::Cut => Some(LASTS[1]),
            // Until the query has ended.
            Self::FillDisk => Some(Duration::MAX),
            _ => None,
        }
    }
}

/// An event at a moment of a query's work.
#[derive(Clone, Debug)]
pub struct Event {
    pub kind: Kind,
    /// After so much time.
    pub after: Duration,
    /// It is undone after so much time more, or when the query has ended.
    pub lasts: Option<Duration>,
    /// Whether a lost executor is replaced at once, or when the query has ended.
    pub replaced_at_once: bool,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} after {} ms", self.kind.name(), self.after.as_millis())?;
        if self.kind.loses_an_executor() {
            f.write_str(if self.replaced_at_once { ", replaced at once" } else { ", replaced in the end" })?;
        }
        Ok(())
    }
}

/// All kinds of events, drawn until none is left: each comes as often as the others.
#[derive(Default)]
pub struct Bag(Vec<Kind>);

impl Bag {
    /// One event, or two to different executors, within a query that takes so long.
    pub fn draw(&mut self, dice: &mut Dice, takes: Duration) -> Vec<Event> {
        let mut kinds = vec![self.pick(dice)];
        if kinds[0].is_about_an_executor() && dice.once_in(3) {
            let second = self.pick(dice);
            let elsewhere = second.place().is_none() || second.place() != kinds[0].place();
            if second.is_about_an_executor() && elsewhere {
                kinds.push(second);
            } else {
                self.0.push(second);
            }
        }
        let mut event = |kind: Kind| Event {
            kind,
            after: dice.moment(takes, 10, 90),
            lasts: kind.lasts(),
            replaced_at_once: dice.once_in(2),
        };
        let mut events: Vec<Event> = kinds.into_iter().map(&mut event).collect();
        events.sort_by_key(|event| event.after);
        events
    }

    fn pick(&mut self, dice: &mut Dice) -> Kind {
        if self.0.is_empty() {
            self.0 = dice.shuffled(Kind::ALL.len()).into_iter().map(|at| Kind::ALL[at]).collect();
        }
        self.0.remove(0)
    }
}
