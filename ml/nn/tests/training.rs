//! Gangs of threads that train: what ranks, topologies, uneven shares, checkpoints and cancellation do to the result.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::{
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};
use voxelflow_nn::{DistDcaConfig, DistDcaEstimator, stages};
use voxelflow_stage::{
    EpochRecord, Error, Estimator, Fitted, Gang, MemoryFeed, ProgressSink, Result, Room, SeriesFeed,
    StepRecord, TrainSettings,
};
use voxelflow_sync::{Consistency, Topology, in_process_gang};

const T: usize = 20;

fn estimator() -> DistDcaEstimator {
    let config = DistDcaConfig {
        hidden: Some(6),
        filters: vec![3, 4],
        kernels: vec![5, 3],
        pools: 2,
        ..DistDcaConfig::default()
    };
    DistDcaEstimator { config }
}

/// Sines of various periods and phases, one row each.
fn rows(range: std::ops::Range<usize>) -> Vec<f32> {
    range
        .flat_map(|r| (0..T).map(move |t| ((t as f32) * (0.3 + 0.05 * (r % 7) as f32) + r as f32).sin()))
        .collect()
}

fn settings() -> TrainSettings {
    let mut settings =
        TrainSettings { minibatch: 4, shuffle: false, checkpoint_every: 0, ..TrainSettings::default() };
    settings.sync.deterministic = true;
    settings.sync.optimizer.learning_rate = 0.02;
    settings.sync.deadline_seconds = 60.0;
    settings
}

struct Options<'a> {
    settings: TrainSettings,
    /// By rank; together what every rank is given.
    feeds: Vec<Vec<f32>>,
    validation: Option<Vec<f32>>,
    checkpoints: Option<&'a Path>,
    progress: Option<Arc<dyn ProgressSink>>,
    cancelled: Arc<AtomicBool>,
}

impl Options<'_> {
    fn new(settings: TrainSettings, feeds: Vec<Vec<f32>>) -> Self {
        Self {
            settings,
            feeds,
            validation: None,
            checkpoints: None,
            progress: None,
            cancelled: Arc::default(),
        }
    }
}

fn try_train(options: Options<'_>) -> Vec<Result<Fitted>> {
    let gang = in_process_gang(&options.settings.sync, options.feeds.len()).unwrap();
    let rows = options.feeds.concat();
    thread::scope(|scope| {
        let ranks: Vec<_> = gang
            .into_iter()
            .map(|sync| {
                let feed = rows.clone();
                let mut gang = Gang {
                    sync,
                    settings: options.settings.clone(),
                    progress: options.progress.clone(),
                    checkpoints: options.checkpoints.map(Path::to_owned),
                    output: None,
                    room: Room::default(),
                    cancelled: options.cancelled.clone(),
                };
                let validation = options.validation.clone();
                scope.spawn(move || {
                    let mut feed = MemoryFeed::try_new(feed, T).unwrap();
                    let mut validation = validation.map(|v| MemoryFeed::try_new(v, T).unwrap());
                    let validation = validation.as_mut().map(|v| v as &mut dyn SeriesFeed);
                    estimator().fit(&mut feed, validation, &mut gang)
                })
            })
            .collect();
        ranks.into_iter().map(|r| r.join().unwrap()).collect()
    })
}

fn train(options: Options<'_>) -> Vec<Fitted> {
    try_train(options).into_iter().map(Result::unwrap).collect()
}

fn weights(fitted: &Fitted) -> Vec<f32> {
    let folder = tempfile::tempdir().unwrap();
    fitted.model.save_weights(folder.path()).unwrap();
    let bytes = std::fs::read(folder.path().join("model.safetensors")).unwrap();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    bytes[8 + header..].as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

fn furthest(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).fold(0f32, |m, (a, b)| m.max((a - b).abs()))
}

/// The rows of `n` ranks whose minibatches of 4, side by side, are the minibatches of one rank of 4·n rows.
fn shares(total: usize, ranks: usize) -> Vec<Vec<f32>> {
    let minibatch = |start: usize, rank: usize| rows(start + 4 * rank..start + 4 * rank + 4);
    (0..ranks).map(|r| (0..total).step_by(4 * ranks).flat_map(|s| minibatch(s, r)).collect()).collect()
}

#[test]
fn training_lowers_the_loss_and_tells_how() {
    let mut settings = settings();
    settings.epochs = 6;
    settings.shuffle = true;
    let mut options = Options::new(settings, vec![rows(0..64)]);
    options.validation = Some(rows(64..80));
    let fitted = train(options).remove(0);
    let h = &fitted.history;
    assert_eq!(h.epochs.len(), 6);
    assert_eq!(h.steps.len(), 6 * 16);
    assert!(h.steps.iter().enumerate().all(|(i, s)| s.step == i as u64 && s.samples == 4));
    assert!(h.epochs.iter().all(|e| e.samples == 64));
    assert!(h.initial_loss > 5.0, "a sine of 20 points has energy of about ½·10: {}", h.initial_loss);
    assert!(h.epochs[0].loss < h.initial_loss && h.last_loss() < 0.5 * h.initial_loss, "{h:?}");
    assert!(h.epochs[5].validation_loss.unwrap() < 0.6 * h.initial_loss);
    assert_eq!(h.samples_per_rank, [6 * 64]);
    assert_eq!(fitted.model.stage(), "dist_dca");
}

#[test]
fn four_ranks_equal_one_rank_with_the_whole_minibatch() {
    // 5 rounds of 16 series an epoch, 4 epochs: 20 steps.
    let mut one = settings();
    (one.minibatch, one.epochs) = (16, 4);
    let whole = train(Options::new(one, vec![rows(0..80)])).remove(0);
    assert_eq!(whole.history.steps.len(), 20);
    let expected = weights(&whole);
    let mut found = Vec::new();
    for topology in [Topology::ParameterService, Topology::Ring] {
        let mut four = settings();
        (four.sync.topology, four.epochs) = (topology, 4);
        let fitted = train(Options::new(four, shares(80, 4)));
        for (rank, fitted) in fitted.iter().enumerate() {
            assert_eq!(fitted.history.steps.len(), 20);
            let difference = furthest(&weights(fitted), &expected);
            assert!(difference < 1e-4, "{topology:?}, rank {rank}: {difference}");
        }
        assert_eq!(fitted[0].history.samples_per_rank, [80, 80, 80, 80]);
        for (a, b) in fitted[0].history.steps.iter().zip(&whole.history.steps) {
            assert_eq!(a.samples, b.samples);
            assert!((a.loss - b.loss).abs() < 1e-4 * b.loss, "{} != {}", a.loss, b.loss);
        }
        found.push(weights(&fitted[0]));
    }
    let difference = furthest(&found[0], &found[1]);
    assert!(difference < 1e-5, "ring and service differ by {difference}");
}

#[test]
fn uneven_and_empty_shares_finish_and_agree() {
    for topology in [Topology::ParameterService, Topology::Ring] {
        for consistency in [Consistency::Sync, Consistency::Async] {
            if (topology, consistency) == (Topology::Ring, Consistency::Async) {
                continue; // a ring has no server to push to
            }
            let mut s = settings();
            (s.epochs, s.sync.topology, s.sync.consistency) = (3, topology, consistency);
            s.sync.deterministic = consistency == Consistency::Sync;
            for (n, shares) in [(17, [5, 4, 4, 4]), (3, [1, 1, 1, 0])] {
                let fitted = train(Options::new(s.clone(), vec![rows(0..n), vec![], vec![], vec![]]));
                for f in &fitted {
                    assert_eq!(weights(f), weights(&fitted[0]), "{topology:?} {consistency:?}");
                    // Without rounds, or without rows of its own, a rank takes those of another that has not asked yet.
                    let trained = &f.history.samples_per_rank;
                    if consistency == Consistency::Sync && n >= 4 {
                        assert_eq!(*trained, shares.map(|rows| 3 * rows));
                    }
                    assert_eq!(trained.iter().sum::<u64>(), 3 * n as u64);
                    assert!(f.history.epochs.iter().all(|e| e.samples == n as u64));
                }
                if (consistency, n) == (Consistency::Sync, 17) {
                    // 5 rows in minibatches of 4 are 2 rounds; the others bring what they have.
                    let samples: Vec<_> = fitted[0].history.steps.iter().take(2).map(|s| s.samples).collect();
                    assert_eq!(samples, [16, 1]);
                }
            }
        }
    }
}

#[test]
fn no_rows_at_all_is_an_error_that_says_so() {
    for result in try_train(Options::new(settings(), vec![vec![], vec![]])) {
        let e = result.unwrap_err();
        assert!(e.is_input() && e.to_string().contains("there are none"), "{e}");
    }
}

#[test]
fn max_steps_stops_within_an_epoch_on_every_rank() {
    let mut s = settings();
    (s.epochs, s.max_steps) = (9, Some(7));
    let fitted = train(Options::new(s, shares(80, 4)));
    for f in &fitted {
        assert_eq!(f.history.steps.len(), 7);
        assert_eq!(f.history.epochs.len(), 2);
        assert_eq!(weights(f), weights(&fitted[0]));
    }
}

#[test]
fn warm_up_is_rank_zero_alone() {
    let mut s = settings();
    (s.epochs, s.sync.warm_up) = (1, 6);
    let fitted = train(Options::new(s, shares(80, 2)));
    let h = &fitted[0].history;
    assert_eq!(h.samples_per_rank, [40 + 24, 40]);
    assert_eq!(h.steps.iter().map(|s| s.samples).collect::<Vec<_>>(), [[4; 6].as_slice(), &[8; 10]].concat());
    assert!(h.steps.iter().enumerate().all(|(i, s)| s.step == i as u64 && s.epoch == 0));
    assert_eq!(fitted[1].history.steps[0].step, 6);
    assert_eq!(h.epochs[0].samples, 80 + 24);
    assert_eq!(weights(&fitted[0]), weights(&fitted[1]));
}

#[test]
fn deterministic_training_gives_equal_bytes_twice() {
    let run = || {
        let mut s = settings();
        (s.epochs, s.shuffle, s.seed) = (2, true, 11);
        weights(&train(Options::new(s, shares(96, 3)))[0])
    };
    assert_eq!(run(), run());
}

#[test]
fn a_resumed_run_equals_one_that_was_never_stopped() {
    let with = |epochs: u64, ranks: usize, folder: Option<&Path>| {
        let mut s = settings();
        (s.epochs, s.shuffle, s.checkpoint_every) = (epochs, true, 1);
        let mut options = Options::new(s, shares(48, ranks));
        options.checkpoints = folder;
        train(options)
    };
    let whole = with(2, 2, None);
    let folder = tempfile::tempdir().unwrap();
    let first = with(1, 2, Some(folder.path()));
    assert_ne!(weights(&first[0]), weights(&whole[0]));
    let second = with(2, 2, Some(folder.path()));
    assert_eq!(weights(&second[0]), weights(&whole[0]));
    assert_eq!(weights(&second[1]), weights(&whole[0]));
    let (a, b) = (&second[0].history, &whole[0].history);
    assert_eq!(a.initial_loss, b.initial_loss);
    assert_eq!(
        a.steps.iter().map(|s| (s.epoch, s.step, s.loss)).collect::<Vec<_>>(),
        b.steps.iter().map(|s| (s.epoch, s.step, s.loss)).collect::<Vec<_>>()
    );
    // Another number of ranks goes on from the same checkpoint.
    let third = with(3, 3, Some(folder.path()));
    assert_eq!(third[0].history.epochs.len(), 3);
}

#[test]
fn a_checkpoint_of_other_settings_is_not_resumed_from() {
    let folder = tempfile::tempdir().unwrap();
    let with = |rate: f32| {
        let mut s = settings();
        s.checkpoint_every = 1;
        s.sync.optimizer.learning_rate = rate;
        let mut options = Options::new(s, vec![rows(0..16)]);
        options.checkpoints = Some(folder.path());
        train(options).remove(0).history.steps.len()
    };
    assert_eq!(with(0.02), 4);
    assert_eq!(with(0.03), 4);
}

#[test]
fn values_that_are_not_finite_are_refused_with_their_place() {
    let mut bad = rows(0..16);
    bad[9 * T + 3] = f32::NAN;
    let e = try_train(Options::new(settings(), vec![bad])).remove(0).unwrap_err();
    assert!(e.is_input() && e.to_string().contains("row 9") && e.to_string().contains("time point 3"), "{e}");

    let mut s = settings();
    s.sync.optimizer.learning_rate = 1e30;
    let e = try_train(Options::new(s, vec![rows(0..16)])).remove(0).unwrap_err();
    assert!(e.to_string().contains("learning_rate") && e.to_string().contains("step 1"), "{e}");
}

#[derive(Default)]
struct Listener {
    steps: Mutex<Vec<u64>>,
    epochs: Mutex<Vec<u64>>,
    cancel_at: Option<(u64, Arc<AtomicBool>)>,
}

impl ProgressSink for Listener {
    fn step(&self, record: &StepRecord) {
        self.steps.lock().unwrap().push(record.step);
        if let Some((at, flag)) = &self.cancel_at
            && record.step == *at
        {
            flag.store(true, Ordering::Relaxed);
        }
    }
    fn epoch(&self, record: &EpochRecord) {
        self.epochs.lock().unwrap().push(record.epoch);
    }
}

#[test]
fn progress_is_told_once_by_rank_zero() {
    let listener = Arc::new(Listener::default());
    let mut s = settings();
    s.epochs = 2;
    let mut options = Options::new(s, shares(48, 3));
    options.progress = Some(listener.clone());
    train(options);
    assert_eq!(*listener.steps.lock().unwrap(), (0..8).collect::<Vec<_>>());
    assert_eq!(*listener.epochs.lock().unwrap(), [0, 1]);
}

#[test]
fn cancelling_stops_every_rank() {
    let cancelled = Arc::new(AtomicBool::new(false));
    let listener = Listener { cancel_at: Some((2, cancelled.clone())), ..Listener::default() };
    let mut s = settings();
    s.epochs = 1000;
    let mut options = Options::new(s, shares(48, 3));
    options.progress = Some(Arc::new(listener));
    options.cancelled = cancelled;
    for result in try_train(options) {
        assert!(matches!(result, Err(Error::Cancelled)), "{result:?}");
    }
}

#[test]
fn what_cannot_be_trained_is_refused_before() {
    let estimator = estimator();
    assert!(estimator.check(20, &TrainSettings::default()).is_ok());
    assert!(estimator.check(3, &TrainSettings::default()).unwrap_err().to_string().contains("at least 4"));
    let with = |f: fn(&mut TrainSettings)| {
        let mut s = TrainSettings::default();
        f(&mut s);
        estimator.check(20, &s).unwrap_err().option().map(str::to_owned)
    };
    assert_eq!(with(|s| s.minibatch = 0).as_deref(), Some("minibatch"));
    assert_eq!(with(|s| s.device = "tpu".into()).as_deref(), Some("device"));
    let stages = stages();
    assert_eq!(stages[0].name(), "dist_dca");
    let options = serde_json::json!({"lamda": 0.1});
    let e = stages[0].estimator(options.as_object().unwrap()).unwrap_err();
    assert!(e.to_string().contains("did you mean `lambda`"), "{e}");
    assert_eq!(stages[0].estimator(&Default::default()).unwrap().parameters(284), 6_020_381);
}
