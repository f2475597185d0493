//! Banded ridge as a stage: `TRAIN MODEL enc USING banded_ridge_cv (bands => {…}) ON (series) FEATURES (features)`.
//!
//! ```text
//!   X, band by band, on every rank ─► Gram matrices of the folds
//!   weights γ, some at a time ─► decompositions of every fold, dealt out ─ broadcast ─► every rank
//!   targets, a share each ────────► scores of every γ and α ─► γ and α of each target
//!   chosen γ ─► decompositions of all samples, dealt out ─ broadcast ─► coefficients ─► the model's one file
//! ```
//! Every rank makes the Gram matrices itself, `2·n·p²` multiply-adds beside the `(n_folds + 1)·n_gammas` decompositions
//! (some 10·p³ each), which are shared.

mod bands;
mod fit;
mod needs;
mod options;

pub use bands::Features;
pub use options::BandedOptions;

use crate::{FittedEncoding, options::Precision};
use std::path::Path;
use voxelflow_stage::{
    Error, Estimator, Explained, Fitted, Gang, Model, Needs, Options, Result, Room, Samples, StageKind,
    TrainSettings,
};

/// Name of the stage.
pub(crate) const STAGE: &str = "banded_ridge_cv";

/// A configured `banded_ridge_cv`.
#[derive(Clone, Debug)]
pub struct BandedRidgeCvEstimator {
    options: BandedOptions,
}

/// The stage `banded_ridge_cv`.
#[derive(Clone, Copy, Debug, Default)]
pub struct BandedRidgeCvKind;

/// An error of what both stages do, under the name of this one.
fn named(error: Error) -> Error {
    let own = |what: String| if what == crate::options::STAGE { STAGE.to_owned() } else { what };
    match error {
        Error::OptionValue { what, option, reason } => Error::OptionValue { what: own(what), option, reason },
        Error::Data { what, reason } => Error::Data { what: own(what), reason },
        other => other,
    }
}

impl Estimator for BandedRidgeCvEstimator {
    fn stage(&self) -> &'static str {
        STAGE
    }

    fn check(&self, _time_points: usize, settings: &TrainSettings) -> Result<()> {
        if settings.device != "cpu" {
            let reason = format!("'cpu' is what it runs on, not '{}'", settings.device);
            return Err(options::refused("device", reason));
        }
        Ok(())
    }

    fn check_validation(&self, validated: bool) -> Result<()> {
        if validated { Ok(()) } else { self.options.encoding.untested().map_err(named) }
    }

    fn explains(&self) -> bool {
        true
    }

    fn check_samples(&self, samples: &Samples) -> Result<()> {
        self.options.bands(samples)?;
        self.options.encoding.check_samples(samples).map_err(named)
    }

    fn fit_features(
        &self,
        train: Explained<'_>,
        validation: Option<Explained<'_>>,
        gang: &mut Gang,
    ) -> Result<Fitted> {
        let fitted = match self.options.encoding.precision {
            Precision::F32 => fit::fit::<f32>(&self.options, train, validation, gang),
            Precision::F64 => fit::fit::<f64>(&self.options, train, validation, gang),
        };
        fitted.map_err(named)
    }

    fn needs(
        &self,
        samples: &Samples,
        held_out: Option<&Samples>,
        settings: &TrainSettings,
        room: &Room,
    ) -> Result<Option<Needs>> {
        let plan = self.options.plan(samples, held_out, settings, *room)?;
        plan.check()?;
        Ok(Some(plan.needs()))
    }

    fn target_columns(&self) -> Vec<String> {
        self.options.columns()
    }
}

impl StageKind for BandedRidgeCvKind {
    fn name(&self) -> &'static str {
        STAGE
    }

    fn functions(&self) -> &'static [&'static str] {
        &[]
    }

    fn estimator(&self, options: &Options) -> Result<Box<dyn Estimator>> {
        Ok(Box::new(BandedRidgeCvEstimator { options: BandedOptions::from_options(options)? }))
    }

    fn load(&self, folder: &Path) -> Result<Box<dyn Model>> {
        Ok(Box::new(FittedEncoding::read(folder, STAGE)?))
    }
}
