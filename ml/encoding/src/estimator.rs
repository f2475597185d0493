//! `ridge_cv` before it is fitted.

use crate::{
    FittedEncoding, delays,
    options::{EncodingOptions, Precision, STAGE},
    ranks,
};
use std::path::Path;
use voxelflow_stage::{
    Error, Estimator, Explained, Fitted, Gang, Model, Options, Result, Samples, SeriesFeed, StageKind,
    TrainSettings,
};

/// A configured `ridge_cv`.
#[derive(Clone, Debug)]
pub struct RidgeCvEstimator {
    options: EncodingOptions,
}

/// The stage `ridge_cv`.
#[derive(Clone, Copy, Debug, Default)]
pub struct RidgeCvKind;

impl Estimator for RidgeCvEstimator {
    fn stage(&self) -> &'static str {
        STAGE
    }

    fn check(&self, _time_points: usize, settings: &TrainSettings) -> Result<()> {
        if settings.device != "cpu" {
            let (what, option) = (STAGE.to_owned(), "device".to_owned());
            let reason = format!("'cpu' is what it runs on, not '{}'", settings.device);
            return Err(Error::OptionValue { what, option, reason });
        }
        Ok(())
    }

    /// Known when features and targets are.
    fn parameters(&self, _time_points: usize) -> usize {
        0
    }

    fn fit(
        &self,
        _feed: &mut dyn SeriesFeed,
        _validation: Option<&mut dyn SeriesFeed>,
        _gang: &mut Gang,
    ) -> Result<Fitted> {
        let reason = "it needs features: write FEATURES (SELECT …) after ON".into();
        Err(Error::Data { what: STAGE.into(), reason })
    }

    fn explains(&self) -> bool {
        true
    }

    fn takes_not_finite(&self) -> bool {
        true
    }

    fn check_samples(&self, samples: &Samples) -> Result<()> {
        self.options.check_samples(samples)
    }

    fn fit_features(
        &self,
        train: Explained<'_>,
        validation: Option<Explained<'_>>,
        gang: &mut Gang,
    ) -> Result<Fitted> {
        match self.options.precision {
            Precision::F32 => ranks::fit::<f32>(&self.options, train, validation, gang),
            Precision::F64 => ranks::fit::<f64>(&self.options, train, validation, gang),
        }
    }

    fn target_columns(&self) -> Vec<String> {
        self.options.columns()
    }

    fn feature_names(&self, features: &[String]) -> Vec<String> {
        delays::names(features, &self.options.delays)
    }
}

impl StageKind for RidgeCvKind {
    fn name(&self) -> &'static str {
        STAGE
    }

    fn functions(&self) -> &'static [&'static str] {
        &[]
    }

    fn estimator(&self, options: &Options) -> Result<Box<dyn Estimator>> {
        Ok(Box::new(RidgeCvEstimator { options: EncodingOptions::from_options(options)? }))
    }

    fn load(&self, folder: &Path) -> Result<Box<dyn Model>> {
        Ok(Box::new(FittedEncoding::read(folder, STAGE)?))
    }
}
