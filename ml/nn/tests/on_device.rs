//! Training whose parameters stay on a device: a lone rank gets what it gets without, to the bit, and stops and faults are
//! told alike. The device is this process: parameters and memory of its own, updated only by the series brought to it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;
use voxelflow_nn::{Objective, Resident, Trained, parameters::ParameterLayout, train};
use voxelflow_stage::{Error, Gang, MemoryFeed, Result, Room, TrainSettings};
use voxelflow_sync::{Optimizer, OptimizerKind, OptimizerSettings, OptimizerState, in_process_gang};

const T: usize = 5;
/// Over 128 minibatches of 4, so that rounds end within an epoch, and not a multiple of 4.
const ROWS: usize = 1501;

/// `½·|w − x|²` per series: the order of visits shows in the parameters.
struct Quadratic {
    layout: ParameterLayout,
    device: Option<Device>,
}

struct Device {
    w: Vec<f32>,
    settings: OptimizerSettings,
    optimizer: Optimizer,
    minibatch: Vec<f32>,
    sent: Option<usize>,
    loss: f64,
}

impl Device {
    fn new(settings: &TrainSettings) -> Self {
        let rule = settings.sync.optimizer.clone();
        let minibatch = vec![f32::NAN; settings.minibatch * T];
        Self {
            w: vec![f32::NAN; T],
            optimizer: Optimizer::new(rule.clone(), T),
            settings: rule,
            minibatch,
            sent: None,
            loss: f64::NAN,
        }
    }
}

fn loss_and_gradient(w: &[f32], series: &[f32], gradient: &mut [f32]) -> f64 {
    gradient.fill(0.0);
    for x in series.chunks_exact(T) {
        gradient.iter_mut().zip(w).zip(x).for_each(|((g, w), x)| *g += w - x);
    }
    let squares = series.chunks_exact(T).flat_map(|x| w.iter().zip(x).map(|(w, x)| f64::from(w - x).powi(2)));
    squares.sum::<f64>() / 2.0
}

impl Objective for Quadratic {
    fn layout(&self) -> &ParameterLayout {
        &self.layout
    }
    fn time_points(&self) -> usize {
        T
    }
    fn gradient(&mut self, w: &[f32], series: &[f32], gradient: &mut [f32]) -> Result<f64> {
        assert!(self.device.is_none(), "gradients of a device that trains are not asked for");
        Ok(loss_and_gradient(w, series, gradient))
    }
    fn loss(&mut self, w: &[f32], series: &[f32]) -> Result<f64> {
        Ok(loss_and_gradient(w, series, &mut [0.0; T]))
    }
    fn resident(&mut self) -> Option<&mut dyn Resident> {
        self.device.as_mut().map(|device| device as &mut dyn Resident)
    }
}

impl Resident for Device {
    fn load(&mut self, w: &[f32], memory: Option<&OptimizerState>) -> Result<()> {
        self.w.copy_from_slice(w);
        self.optimizer = match memory {
            Some(memory) => Optimizer::restore(self.settings.clone(), memory, 0..T, T)?,
            None => Optimizer::new(self.settings.clone(), T),
        };
        Ok(())
    }
    fn parameters(&mut self, into: &mut [f32]) -> Result<()> {
        into.copy_from_slice(&self.w);
        Ok(())
    }
    fn optimizer_state(&mut self) -> Result<OptimizerState> {
        Ok(self.optimizer.state())
    }
    fn minibatch(&mut self) -> Result<&mut [f32]> {
        self.sent = None;
        Ok(&mut self.minibatch)
    }
    fn send(&mut self, samples: usize) -> Result<()> {
        assert!(self.minibatch[..samples * T].iter().any(|v| !v.is_nan()), "it is filled before it travels");
        self.sent = Some(samples);
        Ok(())
    }
    fn step(&mut self, samples: usize) -> Result<()> {
        assert_eq!(self.sent.take(), Some(samples), "a step is of what was sent last");
        let mut gradient = [0.0; T];
        self.loss = loss_and_gradient(&self.w, &self.minibatch[..samples * T], &mut gradient);
        self.optimizer.apply(&mut self.w, &mut gradient, samples as u64);
        // What was taken must not be used again.
        self.minibatch.fill(f32::NAN);
        Ok(())
    }
    fn step_loss(&mut self) -> Result<f64> {
        Ok(self.loss)
    }
    fn evaluate(&mut self, series: &[f32]) -> Result<f64> {
        Ok(loss_and_gradient(&self.w, series, &mut [0.0; T]))
    }
}

fn rows() -> Vec<f32> {
    (0..ROWS * T).map(|i| (i as f32 * 0.73).sin() + (i % 7) as f32 * 0.1).collect()
}

fn rows_for_validation() -> Vec<f32> {
    rows().into_iter().rev().take(300 * T).collect()
}

fn settings(kind: OptimizerKind) -> TrainSettings {
    let mut settings =
        TrainSettings { minibatch: 4, epochs: 3, checkpoint_every: 0, ..TrainSettings::default() };
    settings.sync.optimizer.optimizer = kind;
    settings.sync.optimizer.learning_rate = 0.01;
    settings.sync.deadline_seconds = 60.0;
    settings
}

fn run(
    settings: &TrainSettings,
    on_device: bool,
    rows: Vec<f32>,
    checkpoints: Option<&Path>,
) -> Result<Trained> {
    let sync = in_process_gang(&settings.sync, 1).unwrap().remove(0);
    let mut gang = Gang {
        sync,
        settings: settings.clone(),
        progress: None,
        checkpoints: checkpoints.map(Path::to_owned),
        output: None,
        room: Room::default(),
        cancelled: Default::default(),
    };
    let layout = ParameterLayout::new([("w".to_owned(), vec![T])]);
    let mut objective = Quadratic { layout, device: on_device.then(|| Device::new(settings)) };
    let mut feed = MemoryFeed::try_new(rows, T).unwrap();
    let mut validation = MemoryFeed::try_new(rows_for_validation(), T).unwrap();
    train(&mut objective, &serde_json::json!("quadratic"), &mut feed, Some(&mut validation), &mut gang)
}

/// All that is told of a training but times.
fn told(trained: &Trained) -> Vec<String> {
    let history = &trained.history;
    let steps = history.steps.iter().map(|s| format!("{} {} {} {}", s.epoch, s.step, s.samples, s.loss));
    let epochs = history
        .epochs
        .iter()
        .map(|e| format!("{} {} {} {:?}", e.epoch, e.samples, e.loss, e.validation_loss));
    let whole = format!("{} {:?}", history.initial_loss, history.samples_per_rank);
    steps.chain(epochs).chain([whole]).collect()
}

#[test]
fn steps_on_a_device_are_those_of_the_gang() {
    for kind in [OptimizerKind::Adagrad, OptimizerKind::Momentum, OptimizerKind::Adam] {
        let settings = settings(kind);
        let plain = run(&settings, false, rows(), None).unwrap();
        let stayed = run(&settings, true, rows(), None).unwrap();
        assert_eq!(stayed.history.steps.len(), 3 * ROWS.div_ceil(4));
        assert_eq!(told(&plain), told(&stayed), "{kind:?}");
        assert_eq!(plain.parameters, stayed.parameters, "{kind:?}");
        assert_ne!(plain.parameters, [0.0; T]);
    }
}

/// Stopped in the midst of an epoch, and taken up with or without the device.
#[test]
fn a_training_that_was_stopped_goes_on_where_it_was() {
    let settings =
        TrainSettings { checkpoint_steps: 50, max_steps: Some(650), ..settings(OptimizerKind::Adam) };
    let whole = run(&settings, false, rows(), None).unwrap();
    for places in [[true, true, true], [true, false, true], [false, true, false]] {
        let folder = tempfile::tempdir().unwrap();
        let part = |(most, on_device)| {
            let stopped = TrainSettings { max_steps: Some(most), ..settings.clone() };
            run(&stopped, on_device, rows(), Some(folder.path())).unwrap()
        };
        let mut parts: Vec<Trained> = [130, 390, 650].into_iter().zip(places).map(part).collect();
        let last = parts.pop().unwrap();
        assert_eq!(last.parameters, whole.parameters, "{places:?}");
        // Losses of the parts before have been through the text of a checkpoint.
        assert_eq!(last.history.steps.len(), whole.history.steps.len());
        for (a, b) in last.history.steps.iter().zip(&whole.history.steps) {
            assert_eq!(a.step, b.step);
            assert!(
                (a.loss - b.loss).abs() < 1e-12 * b.loss,
                "step {}: {} {}, {places:?}",
                a.step,
                a.loss,
                b.loss
            );
        }
    }
}

#[test]
fn what_is_not_finite_is_named() {
    let mut bad = rows();
    bad[7 * T + 2] = f32::NAN;
    let mut settings = TrainSettings { shuffle: false, ..settings(OptimizerKind::Adagrad) };
    let error = run(&settings, true, bad, None).unwrap_err().to_string();
    assert!(error.contains("row 7") && error.contains("time point 2"), "{error}");
    settings.sync.optimizer.optimizer = OptimizerKind::Sgd;
    settings.sync.optimizer.learning_rate = 1e6;
    let error = run(&settings, true, rows(), None).unwrap_err();
    let loss = |what: &str| what == "loss";
    assert!(
        matches!(&error, Error::Sync(voxelflow_sync::Error::NotFinite { what, step, .. }) if loss(what) && *step > 1),
        "{error}"
    );
}

/// With other ranks each step is a round, whatever the device could.
#[test]
fn ranks_of_a_gang_share_their_gradients() {
    let settings = TrainSettings { ranks: 2, epochs: 1, ..settings(OptimizerKind::Adagrad) };
    let layout = || ParameterLayout::new([("w".to_owned(), vec![T])]);
    let ranks = in_process_gang(&settings.sync, 2).unwrap();
    let parameters: Vec<Vec<f32>> = std::thread::scope(|scope| {
        let ranks: Vec<_> = ranks
            .into_iter()
            .map(|sync| {
                let settings = settings.clone();
                scope.spawn(move || {
                    let mut gang = Gang {
                        sync,
                        settings,
                        progress: None,
                        checkpoints: None,
                        output: None,
                        room: Room::default(),
                        cancelled: Default::default(),
                    };
                    let mut objective =
                        Shared(Quadratic { layout: layout(), device: None }, Device::new(&gang.settings));
                    let mut feed = MemoryFeed::try_new(rows(), T).unwrap();
                    train(&mut objective, &serde_json::json!("quadratic"), &mut feed, None, &mut gang)
                        .unwrap()
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap().parameters).collect()
    });
    assert_eq!(parameters[0], parameters[1]);
}

/// Could keep its steps to itself, and does not.
struct Shared(Quadratic, Device);

impl Objective for Shared {
    fn layout(&self) -> &ParameterLayout {
        self.0.layout()
    }
    fn time_points(&self) -> usize {
        T
    }
    fn gradient(&mut self, w: &[f32], series: &[f32], gradient: &mut [f32]) -> Result<f64> {
        self.0.gradient(w, series, gradient)
    }
    fn loss(&mut self, w: &[f32], series: &[f32]) -> Result<f64> {
        self.0.loss(w, series)
    }
    fn resident(&mut self) -> Option<&mut dyn Resident> {
        Some(&mut self.1)
    }
}
