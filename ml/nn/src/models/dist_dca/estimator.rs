//! dist-DCA as a stage: options → estimator → gang → model, and back from a folder.

use super::{DcaObjective, DistDca, DistDcaConfig, config::STAGE};
use crate::{device::device, trainer::train};
use std::path::Path;
use voxelflow_stage::{
    Error, Estimator, Fitted, Gang, Model, ModelFunction, Options, Placement, Result, SeriesFeed, StageKind,
    TrainSettings,
};

/// A configured dist-DCA, ready to be trained.
#[derive(Clone, Debug)]
pub struct DistDcaEstimator {
    /// The options.
    pub config: DistDcaConfig,
}

impl Estimator for DistDcaEstimator {
    fn stage(&self) -> &'static str {
        STAGE
    }

    fn check(&self, time_points: usize, settings: &TrainSettings) -> Result<()> {
        self.config.architecture(time_points)?;
        Placement::of(&settings.device)?;
        settings.validate()
    }

    fn parameters(&self, time_points: usize) -> usize {
        self.config.architecture(time_points).map_or(0, |a| a.parameters())
    }

    fn functions(&self, time_points: usize) -> Vec<ModelFunction> {
        self.config.architecture(time_points).map_or_else(|_| Vec::new(), |a| super::model::functions(&a))
    }

    fn fit(
        &self,
        feed: &mut dyn SeriesFeed,
        validation: Option<&mut dyn SeriesFeed>,
        gang: &mut Gang,
    ) -> Result<Fitted> {
        self.check(feed.time_points(), &gang.settings)?;
        if let Some(validation) = &validation
            && validation.time_points() != feed.time_points()
        {
            let (found, expected) = (validation.time_points(), feed.time_points());
            let reason = format!("series of {found} points, but the training rows have {expected}");
            return Err(Error::Data { what: "validation rows".into(), reason });
        }
        let architecture = self.config.architecture(feed.time_points())?;
        let mut objective = DcaObjective::placed(&architecture, &gang.settings)?;
        let identity = serde_json::json!({ "stage": STAGE, "options": self.config.to_options() });
        let trained = train(&mut objective, &identity, feed, validation, gang)?;
        let model = DistDca::try_new(&architecture, &trained.parameters, &device("cpu")?)?;
        Ok(Fitted { model: Box::new(model), history: trained.history })
    }
}

/// Makes dist-DCA estimators and reads dist-DCA models.
#[derive(Clone, Copy, Debug, Default)]
pub struct DistDcaKind;

impl StageKind for DistDcaKind {
    fn name(&self) -> &'static str {
        STAGE
    }

    fn functions(&self) -> &'static [&'static str] {
        &super::model::FUNCTIONS
    }

    fn estimator(&self, options: &Options) -> Result<Box<dyn Estimator>> {
        Ok(Box::new(DistDcaEstimator { config: DistDcaConfig::from_options(options)? }))
    }

    fn load(&self, folder: &Path) -> Result<Box<dyn Model>> {
        Ok(Box::new(DistDca::load(folder)?))
    }
}
