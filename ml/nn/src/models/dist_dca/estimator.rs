//! dist-DCA as a stage: options → estimator → gang → model, and back from a folder.

use super::{Architecture, DistDca, DistDcaConfig, Network, config::STAGE};
use crate::{
    device::device,
    objective::Objective,
    parameters::{ParameterLayout, device_failed, pack_gradients, unpack},
    trainer::train,
};
use burn::tensor::{Device, Tensor, TensorData};
use std::path::Path;
use voxelflow_stage::{
    Error, Estimator, Fitted, Gang, Model, ModelFunction, Options, Result, SeriesFeed, StageKind,
    TrainSettings,
};

/// Samples that are differentiated at once; a minibatch is the sum of such pieces. It bounds memory: a piece holds
/// about 3 MB a sample at 284 points.
const PIECE: usize = 64;

/// The loss of a dist-DCA with respect to its flat parameters.
#[derive(Debug)]
pub struct DcaObjective {
    template: Network,
    plain: Network,
    layout: ParameterLayout,
    device: Device,
}

impl DcaObjective {
    /// The objective on `device`.
    pub fn new(architecture: &Architecture, device: &Device) -> Self {
        let inner = device.clone().without_autodiff();
        let template = Network::zeros(architecture, &inner);
        let layout = ParameterLayout::of(&template);
        Self { plain: template.clone(), template, layout, device: inner.autodiff() }
    }

    fn pieces<'a>(&self, series: &'a [f32], device: &Device) -> impl Iterator<Item = Tensor<2>> + use<'a> {
        let (time_points, device) = (self.time_points(), device.clone());
        series.chunks(PIECE * time_points).map(move |piece| {
            let shape = [piece.len() / time_points, time_points];
            Tensor::from_data(TensorData::new(piece.to_vec(), shape), &device)
        })
    }
}

impl Objective for DcaObjective {
    fn layout(&self) -> &ParameterLayout {
        &self.layout
    }

    fn time_points(&self) -> usize {
        self.template.architecture().time_points()
    }

    fn gradient(&mut self, parameters: &[f32], series: &[f32], gradient: &mut [f32]) -> Result<f64> {
        self.layout.check(gradient.len(), "gradient")?;
        let network = unpack(self.template.clone(), parameters, &self.device)?;
        let mut sum = 0.0;
        gradient.fill(0.0);
        for piece in self.pieces(series, &self.device) {
            let loss = network.loss(piece);
            let gradients = loss.backward();
            sum += loss.try_into_scalar::<f32>().map_err(|e| device_failed(&e))? as f64;
            let part: Vec<f32> = pack_gradients(&network, gradients)?;
            gradient.iter_mut().zip(part).for_each(|(g, p)| *g += p);
        }
        Ok(sum)
    }

    fn loss(&mut self, parameters: &[f32], series: &[f32]) -> Result<f64> {
        let device = self.device.clone().without_autodiff();
        let network = unpack(self.plain.clone(), parameters, &device)?;
        let mut sum = 0.0;
        for piece in self.pieces(series, &device) {
            sum += network.loss(piece).try_into_scalar::<f32>().map_err(|e| device_failed(&e))? as f64;
        }
        Ok(sum)
    }
}

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
        device(&settings.device)?;
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
        let device = device(&gang.settings.device)?;
        let mut objective = DcaObjective::new(&architecture, &device);
        let identity = serde_json::json!({ "stage": STAGE, "options": self.config.to_options() });
        let trained = train(&mut objective, &identity, feed, validation, gang)?;
        let model = DistDca::try_new(&architecture, &trained.parameters, &device)?;
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
