//! One query, disturbed, and what became of it.

use super::{
    dice::Dice,
    driver::{Driver, POLL},
    event::{Event, Kind},
    outcome::{Outcome, is_clear},
    queries::{Query, hidden, visible_parquet},
    standing::{SETTLING, Standing},
    tables::Tables,
};
use rustix::process::Signal;
use std::{
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// A run ends within this and twice its undisturbed time after the last event.
const PROMISE: Duration = Duration::from_secs(30);
/// The job of a driver that is gone ends within this.
const FAREWELL: Duration = Duration::from_secs(5);

/// A run that has not ended yet.
pub struct Run<'a> {
    cluster: &'a mut Standing,
    query: &'a Query,
    tables: &'a Tables,
    /// Events that have not happened yet, the next one last.
    planned: Vec<Event>,
    /// What is to be undone, when, and to whom it happened.
    undo: Vec<(Option<Instant>, Kind, usize)>,
    /// Executors to whom something happened.
    disturbed: Vec<usize>,
    /// When something happened last.
    last: Instant,
    report: Report,
}

/// What became of a run.
pub struct Report {
    /// What happened: a query may have ended before.
    pub happened: Vec<Event>,
    pub outcome: Outcome,
    /// What the driver said.
    pub said: String,
    /// The ends of all logs, if it failed.
    pub logs: String,
}

impl<'a> Run<'a> {
    pub fn new(
        cluster: &'a mut Standing,
        query: &'a Query,
        tables: &'a Tables,
        mut planned: Vec<Event>,
    ) -> Self {
        planned.reverse();
        let report =
            Report { happened: Vec::new(), outcome: Outcome::Rows, said: String::new(), logs: String::new() };
        let last = Instant::now();
        Self { cluster, query, tables, planned, undo: Vec::new(), disturbed: Vec::new(), last, report }
    }

    /// Runs the query to its end, with everything that happens.
    pub fn go(mut self, dice: &mut Dice) -> Report {
        let out = tempfile::tempdir().unwrap();
        let mut driver = Driver::start(&self.query.arguments(self.tables, out.path()), &self.cluster.flags());
        let started = Instant::now();
        self.last = started;
        let promise = PROMISE + 2 * self.query.takes;
        let code = loop {
            let ended = driver.ended();
            if ended.is_some() || self.last.elapsed() > promise {
                break ended;
            }
            while self.planned.last().is_some_and(|event| started.elapsed() >= event.after) {
                let event = self.planned.pop().unwrap();
                self.happen(event, &driver, dice);
            }
            self.undo(|until| until.is_some_and(|until| Instant::now() >= until));
            thread::sleep(POLL);
        };
        let stopped = self.report.happened.iter().any(|event| event.kind.is_about_the_driver());
        self.report.outcome = match code {
            None => Outcome::Hung(format!("not ended {promise:?} after the last event")),
            Some(_) if stopped && self.last.elapsed() > FAREWELL => {
                Outcome::Hung(format!("the driver ended {:?} after its signal", self.last.elapsed()))
            }
            Some(0) => match self.query.is_whole(&driver, out.path()) {
                Ok(()) => Outcome::Rows,
                Err(why) => Outcome::Wrong(why),
            },
            Some(_) if stopped => self.job_ends(),
            Some(1) => match is_clear(&driver.said()) {
                Ok(()) => Outcome::Error,
                Err(why) => Outcome::Unclear(why),
            },
            Some(code) => Outcome::Unclear(format!("exit code {code}")),
        };
        self.report.said = driver.said();
        drop(driver);
        let settled = self.settle();
        if let (Err(why), None) = (settled, self.report.outcome.failure()) {
            self.report.outcome = Outcome::LeftBehind(why);
        }
        if self.report.outcome.failure().is_none() {
            self.look_at_files(&out);
        }
        if self.report.happened.iter().any(|event| event.kind == Kind::RestartScheduler)
            && self.report.outcome.failure().is_none()
        {
            self.look_at_next_query();
        }
        if self.report.outcome.failure().is_some() {
            self.report.logs = self.cluster.ends_of_logs();
        }
        self.report
    }

    /// Undoes what is not undone yet, and waits until the cluster is as it was before.
    fn settle(&mut self) -> Result<(), String> {
        let by = Instant::now() + SETTLING;
        loop {
            self.undo(|_| true);
            if self.undo.is_empty() {
                return self.cluster.settle(by);
            }
            if Instant::now() > by {
                return Err(format!("an executor has not ended {SETTLING:?} after SIGTERM"));
            }
            thread::sleep(POLL);
        }
    }

    /// Something happens.
    fn happen(&mut self, mut event: Event, driver: &Driver, dice: &mut Dice) {
        let taken: Vec<_> = self.planned.iter().filter_map(|event| event.kind.place()).collect();
        let free: Vec<usize> = (0..self.cluster.size())
            .filter(|at| !self.disturbed.contains(at))
            .filter(|at| {
                event.kind.place().map_or(!taken.contains(&self.cluster.place(*at)), |place| {
                    self.cluster.place(*at) == place
                })
            })
            .collect();
        let at = if free.is_empty() { 0 } else { free[dice.below(free.len() as u64) as usize] };
        match event.kind {
            Kind::KillExecutor => self.cluster.signal(at, Signal::KILL),
            Kind::TerminateExecutor => self.cluster.signal(at, Signal::TERM),
            Kind::PauseShortly | Kind::Pause => self.cluster.signal(at, Signal::STOP),
            Kind::FillDisk => self.cluster.fill_disk(at),
            Kind::CutShortly | Kind::Cut => self.cluster.cut(),
            Kind::RestartScheduler => self.cluster.restart_scheduler(),
            Kind::InterruptDriver => driver.signal(Signal::INT),
            Kind::TerminateDriver => driver.signal(Signal::TERM),
            Kind::KillDriver => driver.signal(Signal::KILL),
        }
        self.last = Instant::now();
        if event.kind.is_about_an_executor() {
            self.disturbed.push(at);
        }
        if event.kind.loses_an_executor() {
            // Somebody must be there to take over.
            event.replaced_at_once |= self.disturbed.len() + self.planned.len() >= self.cluster.size();
            let until = event.replaced_at_once.then_some(self.last);
            self.undo.push((until, event.kind, at));
        } else if let Some(lasts) = event.lasts {
            self.undo.push((self.last.checked_add(lasts), event.kind, at));
        }
        self.report.happened.push(event);
    }

    /// Undoes what is `due`.
    fn undo(&mut self, due: impl Fn(Option<Instant>) -> bool) {
        let (now, later): (Vec<_>, Vec<_>) = self.undo.drain(..).partition(|(until, ..)| due(*until));
        self.undo = later;
        for (_, kind, at) in now {
            match kind {
                Kind::PauseShortly | Kind::Pause => self.cluster.signal(at, Signal::CONT),
                Kind::FillDisk => self.cluster.free_disk(at),
                Kind::CutShortly | Kind::Cut => self.cluster.mend(),
                Kind::KillExecutor => self.cluster.replace(at),
                // It may take its time to end; it is replaced when it has.
                Kind::TerminateExecutor if self.cluster.has_ended(at) => self.cluster.replace(at),
                Kind::TerminateExecutor => {
                    self.undo.push((Some(Instant::now()), kind, at));
                    continue;
                }
                _ => {}
            }
            self.last = Instant::now();
        }
    }

    /// Waits until the job of a driver that is gone has ended.
    fn job_ends(&self) -> Outcome {
        loop {
            let open = self.cluster.open_jobs();
            if open.as_ref().is_ok_and(Vec::is_empty) {
                return Outcome::Stopped;
            }
            if self.last.elapsed() > FAREWELL {
                return Outcome::LeftBehind(format!("{FAREWELL:?} after the driver's end: {open:?}"));
            }
            thread::sleep(POLL);
        }
    }

    /// Looks for files that should not be there.
    fn look_at_files(&mut self, out: &TempDir) {
        if !self.query.writes() {
            return;
        }
        let (whole, hidden) = (visible_parquet(out.path()), hidden(out.path()));
        self.report.outcome = match &self.report.outcome {
            Outcome::Rows if !hidden.is_empty() => Outcome::LeftBehind(format!("files: {hidden:?}")),
            Outcome::Error if !whole.is_empty() => {
                Outcome::Wrong(format!("the statement failed, and these are there to be read: {whole:?}"))
            }
            // It may have been stopped when all was done.
            Outcome::Stopped if !whole.is_empty() => match self.query.has_written(out.path()) {
                Ok(()) => Outcome::Stopped,
                Err(why) => {
                    Outcome::Wrong(format!("the driver was stopped, and what it left is not whole: {why}"))
                }
            },
            outcome => outcome.clone(),
        };
    }

    /// A scheduler that was started again serves the next driver.
    fn look_at_next_query(&mut self) {
        let sql = self.tables.named("SELECT count(*) AS rows FROM KEYS");
        let mut next =
            Driver::start(&["sql".into(), sql, "--format".into(), "csv".into()], &self.cluster.flags());
        let code = next.wait(Instant::now() + PROMISE);
        if code != Some(0) || !next.stdout().starts_with("rows\n") {
            self.report.outcome =
                Outcome::LeftBehind(format!("the next query ended with {code:?}: {}", next.said()));
        }
    }
}
