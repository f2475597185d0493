//! A stage before it is fitted, and the gang that fits it.

use crate::{
    Error, Explained, History, Model, ModelFunction, Needs, Options, Result, Room, Samples, SeriesFeed,
    TrainSettings,
};
use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use voxelflow_sync::GradientSync;

/// Where a rank reports how far it is.
pub trait ProgressSink: Send + Sync {
    /// Training begins and will visit about that many samples, all ranks and epochs together.
    fn started(&self, samples: u64) {
        let _ = samples;
    }
    /// Training is going to need this much.
    fn planned(&self, needs: &Needs) {
        let _ = needs;
    }
    /// One round is done.
    fn step(&self, record: &crate::StepRecord);
    /// One epoch is done.
    fn epoch(&self, record: &crate::EpochRecord);
}

/// One rank's view of the gang that trains.
pub struct Gang {
    /// Agreement with the other ranks.
    pub sync: Box<dyn GradientSync>,
    /// Settings, the same on all ranks.
    pub settings: TrainSettings,
    /// Told by the leader only.
    pub progress: Option<Arc<dyn ProgressSink>>,
    /// Where the leader writes checkpoints, on storage that all ranks see; `None`: nowhere. A valid one found here is
    /// resumed from.
    pub checkpoints: Option<PathBuf>,
    /// The folder that becomes the model's, on storage that all ranks see: ranks write into it what is too large for
    /// the one that leads. `None`: there is none.
    pub output: Option<PathBuf>,
    /// What this rank's process has.
    pub room: Room,
    /// Set from outside to stop at the next step.
    pub cancelled: Arc<AtomicBool>,
}

impl Gang {
    /// # Errors
    /// [`crate::Error::Cancelled`] once cancelled.
    pub fn check_cancelled(&self) -> Result<()> {
        if self.cancelled.load(Ordering::Relaxed) { Err(crate::Error::Cancelled) } else { Ok(()) }
    }
}

/// What `fit` gives, on every rank the same.
#[derive(Debug)]
pub struct Fitted {
    /// The model.
    pub model: Box<dyn Model>,
    /// What training did.
    pub history: History,
}

/// A configured stage, ready to be fitted.
pub trait Estimator: Send + Sync + std::fmt::Debug {
    /// The stage's name, for example `dist_dca`.
    fn stage(&self) -> &'static str;
    /// Whether series of `time_points` can be trained on with `settings`; called when a plan is checked.
    ///
    /// # Errors
    /// What does not fit, and what would.
    fn check(&self, time_points: usize, settings: &TrainSettings) -> Result<()>;
    /// Whether its options can work with rows to validate on, or without; called when a plan is checked.
    ///
    /// # Errors
    /// The option, and what to write.
    fn check_validation(&self, validated: bool) -> Result<()> {
        let _ = validated;
        Ok(())
    }
    /// Parameters of the model for series of `time_points` (for plans and `EXPLAIN`); 0: known when features and targets
    /// are.
    fn parameters(&self, time_points: usize) -> usize {
        let _ = time_points;
        0
    }
    /// The functions that a model for series of `time_points` will have, so that a plan can be checked before
    /// the model is trained; none: not known before.
    fn functions(&self, time_points: usize) -> Vec<ModelFunction> {
        let _ = time_points;
        Vec::new()
    }
    /// Trains as one rank of `gang`, blocking, on a thread of its own. `feed` and `validation` hold the rows of all
    /// ranks; leases and places of the gang say which of them are this rank's.
    ///
    /// # Errors
    /// Data that do not fit, ranks that are lost, a loss that is not finite; a stage that explains series.
    fn fit(
        &self,
        feed: &mut dyn SeriesFeed,
        validation: Option<&mut dyn SeriesFeed>,
        gang: &mut Gang,
    ) -> Result<Fitted> {
        let _ = (feed, validation, gang);
        Err(other_fit(self.stage(), "it explains series by features: write FEATURES (SELECT …) after ON"))
    }
    /// Whether the series are explained by features (`FEATURES` in a statement): then [`Self::fit_features`] is what such
    /// a stage has instead of [`Self::fit`], in a gang whose ranks can talk to each other
    /// ([`communicator`](voxelflow_sync::GradientSync::communicator)). Series that are null or not finite come to it as
    /// NaN: each is a target of its own, and says nothing to the others.
    fn explains(&self) -> bool {
        false
    }
    /// Whether it can be fitted to these samples; called before ranks are asked for.
    ///
    /// # Errors
    /// What does not fit, and what would.
    fn check_samples(&self, samples: &Samples) -> Result<()> {
        let _ = samples;
        Ok(())
    }
    /// What a fit to these samples, and scores of those `held_out`, will need of a process with this room; none: not
    /// known before it runs.
    ///
    /// # Errors
    /// What does not fit into the process's memory, and what would.
    fn needs(
        &self,
        samples: &Samples,
        held_out: Option<&Samples>,
        settings: &TrainSettings,
        room: &Room,
    ) -> Result<Option<Needs>> {
        let _ = (samples, held_out, settings, room);
        Ok(None)
    }
    /// Names of the numbers that its models have of each target ([`Model::targets`]); none: its models are of no targets.
    fn target_columns(&self) -> Vec<String> {
        Vec::new()
    }
    /// As [`Self::fit`], for a stage that [`explains`](Self::explains) series.
    ///
    /// # Errors
    /// As [`Self::fit`]; a stage that knows no features.
    fn fit_features(
        &self,
        train: Explained<'_>,
        validation: Option<Explained<'_>>,
        gang: &mut Gang,
    ) -> Result<Fitted> {
        let _ = (train, validation, gang);
        Err(other_fit(self.stage(), "it learns from series, not from features"))
    }
}

/// The error of the one of both fits that a stage does not have.
fn other_fit(stage: &str, reason: &str) -> Error {
    Error::Data { what: stage.into(), reason: reason.into() }
}

/// A kind of stage: makes estimators from options and reads fitted models back.
pub trait StageKind: Send + Sync + std::fmt::Debug {
    /// Name after `USING`.
    fn name(&self) -> &'static str;
    /// Names of the functions that its models have.
    fn functions(&self) -> &'static [&'static str];
    /// # Errors
    /// An unknown option or a value out of range.
    fn estimator(&self, options: &Options) -> Result<Box<dyn Estimator>>;
    /// Reads a model from its folder (`config.json`, `model.safetensors`).
    ///
    /// # Errors
    /// A folder that is missing, incomplete or of another stage.
    fn load(&self, folder: &Path) -> Result<Box<dyn Model>>;
}
