//! How fast rows reach the minibatches of a rank, with compute switched off: `feed PARQUET [MINIBATCH] [EPOCHS]`.
//!
//! Everything else is as in any training: the scan, the spool, the order, the gang, the trainer's loop. Prints one
//! JSON object: series, seconds of the first pass (from the plan to the end of epoch 0) and of each later one, by the
//! clock and of the processor. `integration-tests/bench/feed.py` compares it.

use datafusion::prelude::SessionContext;
use std::{
    error::Error,
    path::Path,
    sync::{Arc, Mutex},
    time::Instant,
};
use voxelflow::dataset::{Engine, EngineConfig, TrainConfig, session_context};
use voxelflow_nn::{Objective, parameters::ParameterLayout, train};
use voxelflow_operators::{StageCatalog, TrainObserver, extension_planners};
use voxelflow_stage::{
    EpochRecord, Estimator, Fitted, Gang, LayerFilters, Model, ModelFunction, Options, ProgressSink, Result,
    SeriesFeed, StageKind, StepRecord, TrainSettings,
};

/// A stage that looks at one value of each minibatch and learns nothing.
#[derive(Clone, Copy, Debug)]
struct NoCompute;

struct NoLoss {
    layout: ParameterLayout,
    time_points: usize,
}

impl Objective for NoLoss {
    fn layout(&self) -> &ParameterLayout {
        &self.layout
    }
    fn time_points(&self) -> usize {
        self.time_points
    }
    fn gradient(&mut self, parameters: &[f32], series: &[f32], gradient: &mut [f32]) -> Result<f64> {
        gradient.fill(0.0);
        self.loss(parameters, series)
    }
    fn loss(&mut self, _parameters: &[f32], series: &[f32]) -> Result<f64> {
        Ok(series.last().copied().map_or(0.0, f64::from))
    }
}

impl StageKind for NoCompute {
    fn name(&self) -> &'static str {
        "no_compute"
    }
    fn functions(&self) -> &'static [&'static str] {
        &[]
    }
    fn estimator(&self, _options: &Options) -> Result<Box<dyn Estimator>> {
        Ok(Box::new(*self))
    }
    fn load(&self, _folder: &Path) -> Result<Box<dyn Model>> {
        Ok(Box::new(*self))
    }
}

impl Estimator for NoCompute {
    fn stage(&self) -> &'static str {
        "no_compute"
    }
    fn check(&self, _time_points: usize, _settings: &TrainSettings) -> Result<()> {
        Ok(())
    }
    fn parameters(&self, _time_points: usize) -> usize {
        1
    }
    fn fit(
        &self,
        feed: &mut dyn SeriesFeed,
        validation: Option<&mut dyn SeriesFeed>,
        gang: &mut Gang,
    ) -> Result<Fitted> {
        let layout = ParameterLayout::new([("nothing".to_owned(), vec![1])]);
        let mut objective = NoLoss { layout, time_points: feed.time_points() };
        let trained = train(&mut objective, &serde_json::json!("no compute"), feed, validation, gang)?;
        Ok(Fitted { model: Box::new(*self), history: trained.history })
    }
}

impl Model for NoCompute {
    fn stage(&self) -> &'static str {
        "no_compute"
    }
    fn config(&self) -> Options {
        Options::new()
    }
    fn parameters(&self) -> usize {
        1
    }
    fn functions(&self) -> Vec<ModelFunction> {
        Vec::new()
    }
    fn apply(&self, _function: &str, _series: &[f32]) -> Result<Vec<f32>> {
        Ok(Vec::new())
    }
    fn filters(&self) -> Vec<LayerFilters> {
        Vec::new()
    }
    fn save_weights(&self, folder: &Path) -> Result<()> {
        std::fs::write(folder.join("model.safetensors"), b"").map_err(|e| voxelflow_stage::Error::Folder {
            path: folder.display().to_string(),
            reason: e.to_string(),
        })
    }
}

/// A moment, and the processor's time that the program had taken by then.
#[derive(Clone, Copy)]
struct Moment {
    clock: Instant,
    processor: f64,
}

impl Moment {
    /// Of the threads that run now; 0 where the system does not say.
    fn now() -> Self {
        let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let nanoseconds = tasks.filter_map(|task| {
            let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse::<f64>().ok()
        });
        Self { clock: Instant::now(), processor: nanoseconds.sum::<f64>() * 1e-9 }
    }

    /// Seconds since `before`, by the clock and of the processor.
    fn since(self, before: Self) -> (f64, f64) {
        ((self.clock - before.clock).as_secs_f64(), self.processor - before.processor)
    }
}

/// When each epoch ended, and its samples.
#[derive(Default)]
struct Epochs(Mutex<Vec<(Moment, u64)>>);

impl ProgressSink for Epochs {
    fn step(&self, _record: &StepRecord) {}
    fn epoch(&self, record: &EpochRecord) {
        if let Ok(mut ends) = self.0.lock() {
            ends.push((Moment::now(), record.samples));
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::result::Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let parquet = arguments.next().ok_or("usage: feed PARQUET [MINIBATCH] [EPOCHS]")?;
    let minibatch = arguments.next().map_or(Ok(1_600), |text| text.parse())?;
    let epochs = arguments.next().map_or(Ok(5), |text| text.parse())?;

    let work = tempfile::tempdir()?;
    let config = EngineConfig { target_partitions: Some(1), ..EngineConfig::default() };
    let context: SessionContext = session_context(extension_planners(), &config)?;
    let catalog = StageCatalog::new(vec![Arc::new(NoCompute)]);
    let ends = Arc::new(Epochs::default());
    {
        let state = context.state_ref();
        let mut state = state.write();
        let observer = TrainObserver::new(Arc::clone(&ends) as Arc<dyn ProgressSink>);
        state.config_mut().set_extension(Arc::new(observer));
    }
    let engine = Engine::new(context, Arc::new(catalog), work.path());

    let began = Moment::now();
    let rows = engine.read_parquet(&parquet).await?;
    let settings =
        TrainConfig::synchronous().minibatch(minibatch).epochs(epochs).setting("checkpoint_every", 0);
    rows.train("no_compute", settings).await?;
    let ends = ends.0.lock().map_err(|_| "an epoch was not noted")?.clone();
    let starts = std::iter::once(began).chain(ends.iter().map(|(end, _)| *end));
    let (clock, processor): (Vec<f64>, Vec<f64>) =
        ends.iter().zip(starts).map(|((end, _), start)| end.since(start)).unzip();
    let (first, later) = clock.split_first().ok_or("no epoch was trained")?;
    let series = ends.first().map_or(0, |(_, samples)| *samples);
    println!(
        "{}",
        serde_json::json!({"series": series, "first": first, "later": later, "processor": processor})
    );
    Ok(())
}
