//! Training whose steps stay on a device: what a lone rank gets is what it gets by single steps, and stops and faults
//! are told alike. The device is this process: parameters and memory of its own, updated only by the room's series.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;
use voxelflow_nn::{Objective, Resident, Trained, parameters::ParameterLayout, train};
use voxelflow_stage::{Error, Gang, MemoryFeed, Result, TrainSettings};
use voxelflow_sync::{Optimizer, OptimizerKind, OptimizerSettings, OptimizerState, in_process_gang};

const T: usize = 5;
/// Over 128 minibatches of 4, so that rounds end within an epoch, and not a multiple of 4.
const ROWS: usize = 1501;

/// `½·|w − x|²` per series: the order of visits shows in the parameters.
struct Quadratic {
    layout: ParameterLayout,
    device: Option<Device>,
}

#[derive(Default)]
struct Device {
    w: Vec<f32>,
    optimizer: Option<Optimizer>,
    room: Vec<f32>,
    losses: Vec<f64>,
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
    fn load(&mut self, w: &[f32], settings: &OptimizerSettings, memory: &OptimizerState) -> Result<()> {
        self.w = w.to_vec();
        let fresh = memory.vectors.is_empty();
        self.optimizer = Some(if fresh {
            Optimizer::new(settings.clone(), w.len())
        } else {
            Optimizer::restore(settings.clone(), memory, 0..w.len(), w.len())?
        });
        Ok(())
    }
    fn room(&mut self, n: usize) -> Result<&mut [f32]> {
        self.room.resize(n * T, f32::NAN);
        Ok(&mut self.room)
    }
    fn step(&mut self) -> Result<()> {
        let mut gradient = [0.0; T];
        self.losses.push(loss_and_gradient(&self.w, &self.room, &mut gradient));
        let samples = (self.room.len() / T) as u64;
        self.optimizer.as_mut().expect("parameters come first").apply(&mut self.w, &mut gradient, samples);
        Ok(())
    }
    fn losses(&mut self) -> Result<Vec<f64>> {
        Ok(std::mem::take(&mut self.losses))
    }
    fn parameters(&mut self, into: &mut [f32]) -> Result<()> {
        into.copy_from_slice(&self.w);
        Ok(())
    }
    fn set_parameters(&mut self, parameters: &[f32]) -> Result<()> {
        self.w.copy_from_slice(parameters);
        Ok(())
    }
    fn memory(&mut self) -> Result<OptimizerState> {
        Ok(self.optimizer.as_ref().expect("parameters come first").state())
    }
}

fn rows() -> Vec<f32> {
    (0..ROWS * T).map(|i| (i as f32 * 0.73).sin() + (i % 7) as f32 * 0.1).collect()
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
        cancelled: Default::default(),
    };
    let layout = ParameterLayout::new([("w".to_owned(), vec![T])]);
    let mut objective = Quadratic { layout, device: on_device.then(Device::default) };
    let mut feed = MemoryFeed::try_new(rows, T).unwrap();
    train(&mut objective, &serde_json::json!("quadratic"), &mut feed, None, &mut gang)
}

#[test]
fn steps_on_a_device_are_single_steps() {
    for kind in [OptimizerKind::Adagrad, OptimizerKind::Momentum, OptimizerKind::Adam] {
        let settings = settings(kind);
        let single = run(&settings, false, rows(), None).unwrap();
        let stayed = run(&settings, true, rows(), None).unwrap();
        for (a, b) in single.parameters.iter().zip(&stayed.parameters) {
            assert!((a - b).abs() < 1e-5, "{kind:?}: {a} {b}");
        }
        assert_ne!(single.parameters, [0.0; T]);
        let (single, stayed) = (single.history, stayed.history);
        assert_eq!(stayed.steps.len(), 3 * ROWS.div_ceil(4));
        for (a, b) in single.steps.iter().zip(&stayed.steps) {
            assert_eq!((a.step, a.epoch, a.samples), (b.step, b.epoch, b.samples));
            assert!(
                (a.loss - b.loss).abs() < 1e-5 * a.loss,
                "{kind:?}, step {}: {} {}",
                a.step,
                a.loss,
                b.loss
            );
        }
        assert_eq!(single.samples_per_rank, stayed.samples_per_rank);
        for (a, b) in single.epochs.iter().zip(&stayed.epochs) {
            assert_eq!((a.epoch, a.samples), (b.epoch, b.samples));
            assert!((a.loss - b.loss).abs() < 1e-5 * a.loss);
        }
    }
}

/// To the bit, with stops that do not fall on the ends of rounds or epochs.
#[test]
fn a_training_that_was_stopped_goes_on_where_it_was() {
    let mut settings = settings(OptimizerKind::Adam);
    settings.checkpoint_steps = 50;
    settings.max_steps = Some(650);
    let folder = || tempfile::tempdir().unwrap();
    let whole = run(&settings, true, rows(), Some(folder().path())).unwrap();
    let place = folder();
    for most in [130, 390, 650] {
        let stopped = TrainSettings { max_steps: Some(most), ..settings.clone() };
        let trained = run(&stopped, true, rows(), Some(place.path())).unwrap();
        assert_eq!(trained.history.steps.len() as u64, most);
        if most == 650 {
            let losses = |trained: &Trained| trained.history.steps.iter().map(|s| s.loss).collect::<Vec<_>>();
            // Stops at 130 and 390 end rounds that go on otherwise: the last digit may differ from there on.
            for (a, b) in losses(&trained).iter().zip(losses(&whole)) {
                assert!((a - b).abs() < 1e-5 * b, "{a} {b}");
            }
        }
    }
    // Stopped at a checkpoint, nothing differs.
    let place = folder();
    for most in [100, 450, 650] {
        let stopped = TrainSettings { max_steps: Some(most), ..settings.clone() };
        let trained = run(&stopped, true, rows(), Some(place.path())).unwrap();
        if most == 650 {
            assert_eq!(trained.parameters, whole.parameters);
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
                        cancelled: Default::default(),
                    };
                    let mut objective =
                        Shared(Quadratic { layout: layout(), device: None }, Device::default());
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
