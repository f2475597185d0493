//! `ridge_cv` before it is fitted.

use crate::{
    FittedEncoding,
    message::Number,
    needs::FitPlan,
    options::{Precision, RidgeCvOptions, STAGE},
    ranks, solver,
};
use std::path::Path;
use voxelflow_cuda::regression::HostNumber;
use voxelflow_stage::{
    Estimator, Explained, Fitted, Gang, Model, Needs, Options, Placement, Result, Room, Samples, StageKind,
    TrainSettings,
};

/// A configured `ridge_cv`.
#[derive(Clone, Debug)]
pub struct RidgeCvEstimator {
    options: RidgeCvOptions,
}

/// The stage `ridge_cv`.
#[derive(Clone, Copy, Debug, Default)]
pub struct RidgeCvKind;

impl Estimator for RidgeCvEstimator {
    fn stage(&self) -> &'static str {
        STAGE
    }

    fn check(&self, _time_points: usize, settings: &TrainSettings) -> Result<()> {
        match Placement::of(&settings.device)? {
            Placement::Cpu => Ok(()),
            Placement::Cards(cards) => solver::check_stream(&self.options, settings, &cards),
        }
    }

    fn check_validation(&self, validated: bool) -> Result<()> {
        if validated { Ok(()) } else { self.options.encoding.untested() }
    }

    fn explains(&self) -> bool {
        true
    }

    fn check_samples(&self, samples: &Samples) -> Result<()> {
        self.options.encoding.check_samples(samples)
    }

    fn fit_features(
        &self,
        train: Explained<'_>,
        validation: Option<Explained<'_>>,
        gang: &mut Gang,
    ) -> Result<Fitted> {
        match self.options.encoding.precision {
            Precision::F32 => self.fit_as::<f32>(train, validation, gang),
            Precision::F64 => self.fit_as::<f64>(train, validation, gang),
        }
    }

    fn needs(
        &self,
        samples: &Samples,
        held_out: Option<&Samples>,
        settings: &TrainSettings,
        room: &Room,
    ) -> Result<Option<Needs>> {
        if Placement::of(&settings.device)? != Placement::Cpu {
            // The card itself is asked, by the rank that has it.
            return Ok(None);
        }
        let plan = FitPlan::of(&self.options, samples, held_out, settings.ranks, *room)?;
        plan.check()?;
        Ok(Some(plan.needs()))
    }

    fn target_columns(&self) -> Vec<String> {
        self.options.encoding.columns()
    }
}

impl RidgeCvEstimator {
    fn fit_as<T: Number + HostNumber>(
        &self,
        mut train: Explained<'_>,
        validation: Option<Explained<'_>>,
        gang: &mut Gang,
    ) -> Result<Fitted> {
        let stream = match Placement::of(&gang.settings.device)? {
            Placement::Cpu => None,
            Placement::Cards(cards) => {
                let held_out = validation.as_ref().map(|explained| explained.samples);
                let memory = gang.room.memory;
                Some(solver::on_card::<T>(&cards, &self.options.encoding, &mut train, held_out, memory)?)
            }
        };
        ranks::fit(&self.options, train, validation, gang, stream)
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
        Ok(Box::new(RidgeCvEstimator { options: RidgeCvOptions::from_options(options)? }))
    }

    fn load(&self, folder: &Path) -> Result<Box<dyn Model>> {
        Ok(Box::new(FittedEncoding::read(folder, STAGE)?))
    }
}
