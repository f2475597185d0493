//! What becomes of a training whose gang changes, that is stopped, or that goes on with other ranks.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};
use voxelflow_nn::{
    Objective, Trained,
    models::histogram::{CountObjective, HistogramConfig},
    parameters::ParameterLayout,
    train,
};
use voxelflow_stage::{
    EpochRecord, Error, Gang, MemoryFeed, ProgressSink, Result, Room, SeriesFeed, StepRecord, TrainSettings,
};
use voxelflow_sync::{
    Consistency, Contribution, GradientSync, Lease, LocalStepCount, OptimizerKind, OptimizerState, Outer,
    Place, Position, Rank, Reduction, Round, Start, Totals, Traffic, in_process_gang,
};

const T: usize = 5;
const ROWS: usize = 61;

/// `½·|w − x|²` per series: the order of visits shows in the parameters.
struct Quadratic(ParameterLayout);

impl Objective for Quadratic {
    fn layout(&self) -> &ParameterLayout {
        &self.0
    }
    fn time_points(&self) -> usize {
        T
    }
    fn gradient(&mut self, w: &[f32], series: &[f32], gradient: &mut [f32]) -> Result<f64> {
        gradient.fill(0.0);
        for x in series.chunks_exact(T) {
            gradient.iter_mut().zip(w).zip(x).for_each(|((g, w), x)| *g += w - x);
        }
        self.loss(w, series)
    }
    fn loss(&mut self, w: &[f32], series: &[f32]) -> Result<f64> {
        let squares =
            series.chunks_exact(T).flat_map(|x| w.iter().zip(x).map(|(w, x)| f64::from(w - x).powi(2)));
        Ok(squares.sum::<f64>() / 2.0)
    }
}

fn quadratic() -> Box<dyn Objective> {
    Box::new(Quadratic(ParameterLayout::new([("w".to_owned(), vec![T])])))
}

fn series(rows: usize) -> Vec<f32> {
    (0..rows * T).map(|i| (i as f32 * 0.73).sin() + (i % 7) as f32 * 0.1).collect()
}

/// What happens to a rank instead of its `at`-th call.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Restart,
    Loss,
    Driver,
}

/// A gang in which every rank meets the same fault at the same call, and then goes on from the last closed round: in
/// the view of a gang that takes its place.
struct Faulty {
    inner: Box<dyn GradientSync>,
    /// Of the gang after the fault.
    next: Option<Box<dyn GradientSync>>,
    /// Of the gang before it: its shards are there until all ranks have what they held.
    before: Option<Box<dyn GradientSync>>,
    has_changed: bool,
    fault: Option<(Fault, u64)>,
    calls: u64,
    /// What the shards hold.
    newest: Vec<f32>,
    /// The gang goes on with what it has.
    goes_on: bool,
}

impl Faulty {
    fn call(&mut self) -> voxelflow_sync::Result<()> {
        self.calls += 1;
        let Some((fault, _)) = self.fault.take_if(|(_, at)| *at == self.calls) else { return Ok(()) };
        (self.has_changed, self.goes_on) = (true, fault != Fault::Loss);
        Err(match fault {
            Fault::Restart => voxelflow_sync::Error::Restarted { generation: 2 },
            Fault::Loss => voxelflow_sync::Error::StateLost,
            Fault::Driver => voxelflow_sync::Error::DriverLost { rank: self.rank(), seconds: 1.0 },
        })
    }
}

impl GradientSync for Faulty {
    fn rank(&self) -> Rank {
        self.inner.rank()
    }
    fn world(&self) -> usize {
        self.inner.world()
    }
    fn place(&self) -> Place {
        self.inner.place()
    }
    fn join(&mut self, parameters: &mut [f32], mut start: Start) -> voxelflow_sync::Result<Position> {
        if std::mem::take(&mut self.goes_on) {
            start.position = self.inner.position();
            start.optimizer = Some(self.inner.optimizer_state()?);
            parameters.copy_from_slice(&self.newest);
        }
        if let Some(next) = self.next.take_if(|_| self.has_changed) {
            self.before = Some(std::mem::replace(&mut self.inner, next));
        }
        let position = self.inner.join(parameters, start)?;
        self.newest = parameters.to_vec();
        Ok(position)
    }
    fn lease(&mut self, at_most: usize) -> voxelflow_sync::Result<Option<Lease>> {
        self.call()?;
        self.inner.lease(at_most)
    }
    fn step(
        &mut self,
        parameters: &mut [f32],
        contribution: Contribution<'_>,
    ) -> voxelflow_sync::Result<Round> {
        self.call()?;
        let round = self.inner.step(parameters, contribution)?;
        self.newest = parameters.to_vec();
        Ok(round)
    }
    fn average(
        &mut self,
        parameters: &mut [f32],
        contribution: Contribution<'_>,
    ) -> voxelflow_sync::Result<Round> {
        self.call()?;
        let round = self.inner.average(parameters, contribution)?;
        self.newest = parameters.to_vec();
        Ok(round)
    }
    fn step_alone(
        &mut self,
        parameters: &mut [f32],
        contribution: Contribution<'_>,
    ) -> voxelflow_sync::Result<Round> {
        let round = self.inner.step_alone(parameters, contribution)?;
        self.newest = parameters.to_vec();
        Ok(round)
    }
    fn synchronise(&mut self, parameters: &mut [f32]) -> voxelflow_sync::Result<Totals> {
        self.call()?;
        let totals = self.inner.synchronise(parameters)?;
        self.newest = parameters.to_vec();
        Ok(totals)
    }
    fn position(&self) -> Position {
        self.inner.position()
    }
    fn sum(&mut self, values: &mut [f64]) -> voxelflow_sync::Result<()> {
        self.call()?;
        self.inner.sum(values)
    }
    fn optimizer_state(&mut self) -> voxelflow_sync::Result<OptimizerState> {
        self.inner.optimizer_state()
    }
    fn traffic(&self) -> Traffic {
        self.inner.traffic()
    }
}

#[derive(Clone)]
struct Training<'a> {
    settings: TrainSettings,
    ranks: usize,
    objective: fn() -> Box<dyn Objective>,
    rows: Vec<f32>,
    validation: Vec<f32>,
    checkpoints: Option<&'a Path>,
    fault: Option<(Fault, u64)>,
    /// Cancels after this round.
    cancel_at: Option<u64>,
}

impl<'a> Training<'a> {
    fn new(ranks: usize) -> Self {
        let mut settings = TrainSettings {
            minibatch: 4,
            epochs: 3,
            seed: 9,
            checkpoint_every: 0,
            ..TrainSettings::default()
        };
        settings.sync.deterministic = true;
        settings.sync.deadline_seconds = 60.0;
        settings.sync.optimizer.learning_rate = 0.1;
        Self {
            settings,
            ranks,
            objective: quadratic,
            rows: series(ROWS),
            validation: series(7),
            checkpoints: None,
            fault: None,
            cancel_at: None,
        }
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn try_run(&self) -> Vec<Result<Trained>> {
        let gang = in_process_gang(&self.settings.sync, self.ranks).unwrap();
        let mut others = match self.fault {
            Some(_) => in_process_gang(&self.settings.sync, self.ranks).unwrap().into_iter(),
            None => Vec::new().into_iter(),
        };
        let cancelled = Arc::new(AtomicBool::new(false));
        thread::scope(|scope| {
            let mut run = |inner| {
                let sync = Faulty {
                    inner,
                    next: others.next(),
                    before: None,
                    has_changed: false,
                    fault: self.fault,
                    calls: 0,
                    newest: Vec::new(),
                    goes_on: false,
                };
                let cancel = self.cancel_at.map(|at| (at, cancelled.clone()));
                let mut gang = Gang {
                    sync: Box::new(sync),
                    settings: self.settings.clone(),
                    progress: Some(Arc::new(Canceller(cancel))),
                    checkpoints: self.checkpoints.map(Path::to_owned),
                    output: None,
                    room: Room::default(),
                    cancelled: cancelled.clone(),
                };
                move || {
                    let mut feed = MemoryFeed::try_new(self.rows.clone(), T).unwrap();
                    let mut validation = MemoryFeed::try_new(self.validation.clone(), T).unwrap();
                    let validation: Option<&mut dyn SeriesFeed> = Some(&mut validation);
                    let identity = serde_json::json!("test");
                    train(&mut *(self.objective)(), &identity, &mut feed, validation, &mut gang)
                }
            };
            let ranks: Vec<_> = gang.into_iter().map(|inner| scope.spawn(run(inner))).collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        })
    }

    /// What all ranks give: equal parameters.
    fn run(&self) -> Trained {
        let mut all: Vec<Trained> = self.try_run().into_iter().map(Result::unwrap).collect();
        assert!(all.iter().all(|t| t.parameters == all[0].parameters), "ranks differ");
        all.swap_remove(0)
    }
}

struct Canceller(Option<(u64, Arc<AtomicBool>)>);

impl ProgressSink for Canceller {
    fn step(&self, record: &StepRecord) {
        if let Some((at, flag)) = &self.0
            && record.step + 1 == *at
        {
            flag.store(true, Ordering::Relaxed);
        }
    }
    fn epoch(&self, _record: &EpochRecord) {}
}

/// All that a history says but times. Losses to nine digits: a manifest's numbers may be off in the last bit.
fn told(trained: &Trained) -> Vec<String> {
    let h = &trained.history;
    let steps = h.steps.iter().map(|s| format!("{} {} {} {:.9}", s.epoch, s.step, s.samples, s.loss));
    let epochs = h.epochs.iter();
    let epochs = epochs.map(|e| format!("{} {} {:.9} {:.9?}", e.epoch, e.samples, e.loss, e.validation_loss));
    [format!("{:.9}", h.initial_loss)].into_iter().chain(steps).chain(epochs).collect()
}

#[test]
fn a_gang_that_changes_at_any_call_trains_as_if_it_had_not() {
    let whole = Training::new(3).run();
    assert_eq!(whole.history.steps.len(), 3 * 6);
    assert_eq!(whole.history.samples_per_rank, [63, 60, 60]);
    for at in 1..=60 {
        for fault in [Fault::Restart, Fault::Driver] {
            let changed = Training::new(3).with(|t| t.fault = Some((fault, at))).run();
            assert_eq!(changed.parameters, whole.parameters, "{fault:?} at call {at}");
            assert_eq!(told(&changed), told(&whole), "{fault:?} at call {at}");
            // Who takes the last rows of an epoch may differ, not how many they are.
            assert_eq!(changed.history.samples_per_rank.iter().sum::<u64>(), 183, "at call {at}");
        }
    }
}

#[test]
fn a_gang_that_lost_its_state_goes_on_from_the_newest_checkpoint() {
    let whole = Training::new(3).run();
    for at in 1..=60 {
        let folder = tempfile::tempdir().unwrap();
        let changed = Training::new(3).with(|t| {
            (t.fault, t.checkpoints) = (Some((Fault::Loss, at)), Some(folder.path()));
            t.settings.checkpoint_steps = 4;
        });
        let changed = changed.run();
        assert_eq!(changed.parameters, whole.parameters, "at call {at}");
        assert_eq!(told(&changed), told(&whole), "at call {at}");
    }
}

#[test]
fn the_leader_writes_a_checkpoint_when_the_driver_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let training = Training::new(2).with(|t| {
        (t.fault, t.checkpoints) = (Some((Fault::Driver, 8)), Some(folder.path()));
    });
    training.run();
    let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(names.iter().any(|name| name == "round-0000003.json"), "{names:?}");
}

#[test]
fn warm_up_goes_on_where_it_was_interrupted() {
    let warm = |fault| Training::new(2).with(|t| (t.settings.sync.warm_up, t.fault) = (11, fault)).run();
    let whole = warm(None);
    assert_eq!(whole.history.epochs[0].samples, 61 + 31 + 3 * 4);
    for at in 1..=5 {
        let changed = warm(Some((Fault::Restart, at)));
        assert_eq!(changed.parameters, whole.parameters, "at call {at}");
        assert_eq!(told(&changed), told(&whole), "at call {at}");
    }
}

/// A hundred steps, or fifty, a stop of either kind, and fifty more.
#[test]
fn a_hundred_steps_equal_fifty_and_fifty() {
    let steps =
        |most: u64| Training::new(3).with(|t| (t.settings.epochs, t.settings.max_steps) = (100, Some(most)));
    let whole = steps(100).run();
    assert_eq!(whole.history.steps.len(), 100);
    for stop in ["max_steps", "cancel"] {
        let folder = tempfile::tempdir().unwrap();
        let saved = |most| {
            steps(most).with(|t| {
                t.checkpoints = Some(folder.path());
                t.settings.checkpoint_steps = 25;
            })
        };
        if stop == "max_steps" {
            saved(50).run();
        } else {
            let results = saved(100).with(|t| t.cancel_at = Some(51)).try_run();
            assert!(results.iter().all(|r| matches!(r, Err(Error::Cancelled))), "{results:?}");
        }
        let resumed = saved(100).run();
        assert_eq!(resumed.parameters, whole.parameters, "{stop}");
        assert_eq!(told(&resumed), told(&whole), "{stop}");
        assert_eq!(resumed.history.samples_per_rank.iter().sum::<u64>(), 512, "{stop}");
    }
}

fn counter() -> Box<dyn Objective> {
    Box::new(CountObjective::new(&HistogramConfig { bins: ROWS }, T))
}

/// Series that each have a bin of their own.
fn counting(ranks: usize) -> Training<'static> {
    Training::new(ranks).with(|t| {
        t.rows = (0..ROWS * T).map(|i| (i / T) as f32).collect();
        t.validation = t.rows[..3 * T].to_vec();
        t.objective = counter;
        let optimizer = &mut t.settings.sync.optimizer;
        (optimizer.optimizer, optimizer.learning_rate) = (OptimizerKind::Sgd, 1.0);
        optimizer.reduction = Reduction::Sum;
    })
}

#[test]
fn every_sample_counts_once_an_epoch_however_the_gang_changes() {
    for consistency in [Consistency::Sync, Consistency::Ssp(Some(2)), Consistency::Async] {
        let plain = counting(4).with(|t| {
            (t.settings.sync.consistency, t.settings.epochs) = (consistency, 2);
            t.settings.sync.deterministic = consistency == Consistency::Sync;
        });
        assert_eq!(plain.run().parameters, [-2.0; ROWS], "{consistency}");
    }
    for at in 1..=40 {
        let changed = counting(4).with(|t| t.fault = Some((Fault::Restart, at))).run();
        assert_eq!(changed.parameters, [-3.0; ROWS], "at call {at}");
    }
}

#[test]
fn another_number_of_ranks_ends_an_epoch_that_was_begun() {
    for (first, second) in [(3, 2), (2, 3), (1, 4), (4, 1)] {
        for stop in [1, 2, 3] {
            let folder = tempfile::tempdir().unwrap();
            let run = |ranks: usize, most| {
                let training = counting(ranks).with(|t| {
                    (t.checkpoints, t.settings.max_steps) = (Some(folder.path()), most);
                    (t.settings.epochs, t.settings.checkpoint_every) = (2, 1);
                });
                training.run()
            };
            let cut = run(first, Some(stop));
            let seen = -cut.parameters.iter().sum::<f32>();
            assert!(seen > 0.0 && seen < ROWS as f32, "{seen} samples before the stop");
            let whole = run(second, None);
            assert_eq!(whole.parameters, [-2.0; ROWS], "{first} ranks, {stop} rounds, then {second} ranks");
            assert_eq!(whole.history.epochs.iter().map(|e| e.samples).collect::<Vec<_>>(), [61, 61]);
        }
    }
}

/// Local steps: rounds that are saved at the same places go on alike, whether the run was stopped there or not.
#[test]
fn local_steps_go_on_from_a_checkpoint_to_the_bit() {
    for (optimizer, outer) in
        [(OptimizerKind::Adagrad, Outer::Average), (OptimizerKind::Adam, Outer::Nesterov)]
    {
        let run = |folder: &Path, most| {
            let training = Training::new(3).with(|t| {
                (t.checkpoints, t.settings.max_steps) = (Some(folder), Some(most));
                (t.settings.epochs, t.settings.checkpoint_steps) = (100, 4);
                (t.settings.sync.local_steps, t.settings.sync.outer) = (LocalStepCount::Fixed(3), outer);
                let rule = &mut t.settings.sync.optimizer;
                (rule.optimizer, rule.learning_rate) = (optimizer, 0.02);
            });
            training.run()
        };
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let whole = run(one.path(), 16);
        // 21, 20 and 20 rows in minibatches of 4: rounds of 3 steps, then of what is left.
        let samples: Vec<_> = whole.history.steps.iter().map(|s| s.samples).take(3).collect();
        assert_eq!(samples, [36, 25, 36]);
        assert!(whole.history.epochs[7].loss < whole.history.initial_loss);
        run(two.path(), 8);
        let resumed = run(two.path(), 16);
        assert_eq!(resumed.parameters, whole.parameters, "{outer:?}");
        assert_eq!(told(&resumed), told(&whole), "{outer:?}");
    }
}

#[test]
fn local_steps_survive_a_change_at_any_call() {
    for at in 1..=30 {
        let changed = Training::new(3).with(|t| {
            t.settings.sync.local_steps = LocalStepCount::Fixed(3);
            t.fault = Some((Fault::Restart, at));
        });
        let changed = changed.run();
        let epochs: Vec<_> = changed.history.epochs.iter().map(|e| e.samples).collect();
        assert_eq!(epochs, [61; 3], "at call {at}");
        assert!(changed.history.epochs[2].loss < changed.history.initial_loss, "at call {at}");
    }
}
