//! The stage `line`: a tied linear autoencoder with one hidden unit, `x ≈ u·(uᵀx)`. Its options `fail` and
//! `panic` name a rank that does so at its second step.

use serde::{Deserialize, Serialize};
use std::{fs, path::Path};
use voxelflow_stage::{
    EpochRecord, Error, Estimator, Fitted, Gang, History, LayerFilters, Model, ModelFunction, Options,
    Result, SeriesFeed, StageKind, StepRecord, TrainSettings, parse_options,
};
use voxelflow_sync::{Contribution, Start};

#[derive(Debug)]
pub struct LineKind;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Line {
    pub fail: Option<usize>,
    pub panic: Option<usize>,
}

#[derive(Debug)]
pub struct LineModel {
    u: Vec<f32>,
}

impl StageKind for LineKind {
    fn name(&self) -> &'static str {
        "line"
    }
    fn functions(&self) -> &'static [&'static str] {
        &["encode", "reconstruct"]
    }
    fn estimator(&self, options: &Options) -> Result<Box<dyn Estimator>> {
        Ok(Box::new(parse_options::<Line>("line", options)?))
    }
    fn load(&self, folder: &Path) -> Result<Box<dyn Model>> {
        let bytes = fs::read(folder.join("model.safetensors")).unwrap();
        let u = bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
        Ok(Box::new(LineModel { u }))
    }
}

/// Loss summed over the series of `x`; adds the gradient to `gradient`.
fn loss(u: &[f32], x: &[f32], gradient: &mut [f32]) -> f64 {
    let mut loss = 0.0;
    for x in x.chunks_exact(u.len()) {
        let h: f32 = u.iter().zip(x).map(|(u, x)| u * x).sum();
        let e: Vec<f32> = u.iter().zip(x).map(|(u, x)| u * h - x).collect();
        let back: f32 = u.iter().zip(&e).map(|(u, e)| u * e).sum();
        for ((g, e), x) in gradient.iter_mut().zip(&e).zip(x) {
            *g += h * e + back * x;
        }
        loss += e.iter().map(|e| f64::from(e * e) / 2.0).sum::<f64>();
    }
    loss
}

/// Mean loss over all ranks' rows.
fn mean_loss(u: &[f32], feed: &mut dyn SeriesFeed, gang: &mut Gang) -> Result<f64> {
    let share: Vec<usize> = gang.sync.place().share(feed.rows()).collect();
    let mut x = vec![0.0; share.len() * feed.time_points()];
    feed.read(&share, &mut x)?;
    let mut sums = [loss(u, &x, &mut vec![0.0; u.len()]), share.len() as f64];
    gang.sync.sum(&mut sums)?;
    Ok(sums[0] / sums[1])
}

impl Line {
    fn step(
        &self,
        u: &mut [f32],
        feed: &mut dyn SeriesFeed,
        rows: &[usize],
        gang: &mut Gang,
        step: u64,
    ) -> Result<StepRecord> {
        gang.check_cancelled()?;
        let rank = gang.sync.rank().0;
        if step == 1 && self.fail == Some(rank) {
            return Err(Error::Data { what: "line".into(), reason: "was told to fail".into() });
        }
        assert!(step != 1 || self.panic != Some(rank), "was told to panic");
        let (mut x, mut gradient) = (vec![0.0; rows.len() * u.len()], vec![0.0; u.len()]);
        feed.read(rows, &mut x)?;
        let loss = loss(u, &x, &mut gradient);
        let contribution = Contribution { gradient: &gradient, samples: rows.len() as u64, loss };
        let round = gang.sync.step(u, contribution)?;
        Ok(StepRecord {
            epoch: u64::from(round.finished),
            step,
            samples: round.samples,
            loss: round.loss,
            staleness: round.staleness,
            feed_seconds: 0.0,
            compute_seconds: 0.0,
            sync_seconds: 0.0,
        })
    }
}

impl Estimator for Line {
    fn stage(&self) -> &'static str {
        "line"
    }
    fn check(&self, time_points: usize, _settings: &TrainSettings) -> Result<()> {
        if time_points >= 2 {
            return Ok(());
        }
        Err(Error::Data { what: "line".into(), reason: format!("{time_points} time points, needs 2") })
    }
    fn parameters(&self, time_points: usize) -> usize {
        time_points
    }
    fn functions(&self, time_points: usize) -> Vec<ModelFunction> {
        LineModel { u: vec![0.0; time_points] }.functions()
    }
    fn fit(
        &self,
        feed: &mut dyn SeriesFeed,
        mut validation: Option<&mut dyn SeriesFeed>,
        gang: &mut Gang,
    ) -> Result<Fitted> {
        let mut u = vec![0.1; feed.time_points()];
        gang.sync.join(&mut u, Start::fresh(feed.rows()))?;
        let mut history = History { initial_loss: mean_loss(&u, feed, gang)?, ..History::default() };
        for epoch in 0..gang.settings.epochs {
            let mut samples = 0;
            loop {
                let lease = gang.sync.lease(gang.settings.minibatch)?;
                let visits = lease.map(|l| (l.block_rows(feed.rows()).start, l.visits));
                let rows =
                    visits.map_or_else(Vec::new, |(first, visits)| visits.map(|v| first + v).collect());
                let record = self.step(&mut u, feed, &rows, gang, history.steps.len() as u64)?;
                if rows.is_empty() && record.epoch == 1 {
                    break;
                }
                if let Some(progress) = gang.progress.as_ref().filter(|_| gang.sync.place().leads()) {
                    progress.step(&record);
                }
                samples += record.samples;
                history.steps.push(record);
            }
            gang.sync.synchronise(&mut u)?;
            let validation_loss = match &mut validation {
                Some(feed) => Some(mean_loss(&u, &mut **feed, gang)?),
                None => None,
            };
            let loss = mean_loss(&u, feed, gang)?;
            history.epochs.push(EpochRecord { epoch, samples, loss, validation_loss, seconds: 0.0 });
        }
        Ok(Fitted { model: Box::new(LineModel { u }), history })
    }
}

impl Model for LineModel {
    fn stage(&self) -> &'static str {
        "line"
    }
    fn config(&self) -> Options {
        Options::new()
    }
    fn parameters(&self) -> usize {
        self.u.len()
    }
    fn functions(&self) -> Vec<ModelFunction> {
        let input_length = self.u.len();
        let function = |name, output_length| ModelFunction { name, input_length, output_length };
        vec![function("encode", 1), function("reconstruct", input_length)]
    }
    fn apply(&self, function: &str, series: &[f32]) -> Result<Vec<f32>> {
        let hidden = |x: &[f32]| self.u.iter().zip(x).map(|(u, x)| u * x).sum::<f32>();
        let rows = series.chunks_exact(self.u.len());
        Ok(match function {
            "encode" => rows.map(hidden).collect(),
            _ => rows.flat_map(|x| self.u.iter().map(|u| u * hidden(x)).collect::<Vec<_>>()).collect(),
        })
    }
    fn filters(&self) -> Vec<LayerFilters> {
        Vec::new()
    }
    fn save_weights(&self, folder: &Path) -> Result<()> {
        let bytes: Vec<u8> = self.u.iter().flat_map(|v| v.to_le_bytes()).collect();
        fs::write(folder.join("model.safetensors"), bytes).unwrap();
        Ok(())
    }
}
