//! The loss of a dist-DCA as the training loop sees it: by hand-written steps on the CPU and on cards, by burn elsewhere.

use super::{Architecture, Measured, Network, on_card::OnCards, step::Step};
use crate::{
    objective::{Objective, Resident},
    parameters::{ParameterLayout, device_failed, pack_gradients, unpack},
};
use burn::tensor::{Device, Tensor, TensorData};
use voxelflow_stage::{Placement, Result, TrainSettings};

/// Samples that burn differentiates at once; a minibatch is the sum of such pieces. It bounds memory: a piece holds
/// about 3 MB a sample at 284 points.
const PIECE: usize = 64;

/// The loss of a dist-DCA with respect to its flat parameters.
#[derive(Debug)]
pub struct DcaObjective {
    layout: ParameterLayout,
    time_points: usize,
    place: Place,
}

/// Where the loss is computed.
#[derive(Debug)]
enum Place {
    Cpu(Box<Step<f32>>),
    Cards(Box<OnCards>),
    Device(Box<Graph>),
}

impl DcaObjective {
    /// The objective on `device`.
    pub fn new(architecture: &Architecture, device: &Device) -> Self {
        let inner = device.clone().without_autodiff();
        let template = Network::zeros(architecture, &inner);
        let layout = ParameterLayout::of(&template);
        let place = if inner == Device::flex() {
            Place::Cpu(Box::new(Step::new(architecture, &layout)))
        } else {
            Place::Device(Box::new(Graph { template, device: inner.autodiff() }))
        };
        Self { layout, time_points: architecture.time_points(), place }
    }

    /// The objective where the settings say.
    ///
    /// # Errors
    /// A device that is none, or a card that this machine does not have.
    pub fn placed(architecture: &Architecture, settings: &TrainSettings) -> Result<Self> {
        let on_cpu = Self::new(architecture, &Device::flex());
        let place = match Placement::of(&settings.device)? {
            Placement::Cpu => on_cpu.place,
            Placement::Cards(ordinals) => {
                Place::Cards(Box::new(OnCards::new(architecture, &ordinals, settings)?))
            }
        };
        Ok(Self { place, ..on_cpu })
    }

    /// Where the time of the last call went, on the CPU; elsewhere nothing is measured.
    pub fn phases(&self) -> Vec<Measured> {
        match &self.place {
            Place::Cpu(step) => step.phases(),
            Place::Cards(_) | Place::Device(_) => Vec::new(),
        }
    }
}

impl Objective for DcaObjective {
    fn layout(&self) -> &ParameterLayout {
        &self.layout
    }

    fn time_points(&self) -> usize {
        self.time_points
    }

    fn gradient(&mut self, parameters: &[f32], series: &[f32], gradient: &mut [f32]) -> Result<f64> {
        self.layout.check(parameters.len(), "flat vector")?;
        self.layout.check(gradient.len(), "gradient")?;
        match &mut self.place {
            Place::Cpu(step) => Ok(step.gradient(parameters, series, gradient)),
            Place::Cards(cards) => cards.gradient(parameters, series, gradient),
            Place::Device(graph) => graph.gradient(parameters, series, gradient),
        }
    }

    fn loss(&mut self, parameters: &[f32], series: &[f32]) -> Result<f64> {
        self.layout.check(parameters.len(), "flat vector")?;
        match &mut self.place {
            Place::Cpu(step) => Ok(step.loss(parameters, series)),
            Place::Cards(cards) => cards.loss(parameters, series),
            Place::Device(graph) => graph.loss(parameters, series),
        }
    }

    fn resident(&mut self) -> Option<&mut dyn Resident> {
        match &mut self.place {
            Place::Cards(cards) => Some(cards.as_mut()),
            Place::Cpu(_) | Place::Device(_) => None,
        }
    }
}

/// The loss as burn differentiates it, on any of its devices.
#[derive(Debug)]
struct Graph {
    template: Network,
    device: Device,
}

impl Graph {
    fn pieces<'a>(&self, series: &'a [f32], device: &Device) -> impl Iterator<Item = Tensor<2>> + use<'a> {
        let (time_points, device) = (self.template.architecture().time_points(), device.clone());
        series.chunks(PIECE * time_points).map(move |piece| {
            let shape = [piece.len() / time_points, time_points];
            Tensor::from_data(TensorData::new(piece.to_vec(), shape), &device)
        })
    }

    fn gradient(&self, parameters: &[f32], series: &[f32], gradient: &mut [f32]) -> Result<f64> {
        let network = unpack(self.template.clone(), parameters, &self.device)?;
        let mut sum = 0.0;
        gradient.fill(0.0);
        for piece in self.pieces(series, &self.device) {
            let loss = network.loss(piece);
            let gradients = loss.backward();
            sum += f64::from(loss.try_into_scalar::<f32>().map_err(|e| device_failed(&e))?);
            let part: Vec<f32> = pack_gradients(&network, gradients)?;
            gradient.iter_mut().zip(part).for_each(|(g, p)| *g += p);
        }
        Ok(sum)
    }

    fn loss(&self, parameters: &[f32], series: &[f32]) -> Result<f64> {
        let device = self.device.clone().without_autodiff();
        let network = unpack(self.template.clone(), parameters, &device)?;
        let losses = self.pieces(series, &device).map(|piece| {
            let loss = network.loss(piece).try_into_scalar::<f32>();
            loss.map(f64::from).map_err(|e| device_failed(&e))
        });
        losses.sum()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{
        layers::{Activation, gradient_check::ramp},
        models::dist_dca::DistDcaConfig,
    };

    fn configs() -> impl Iterator<Item = (DistDcaConfig, usize)> {
        let config = |filters: &[usize], kernels: &[usize], pools, pool_window, switches, activation| {
            let (filters, kernels) = (filters.to_vec(), kernels.to_vec());
            let hidden = Some(3);
            DistDcaConfig { filters, kernels, pools, pool_window, switches, activation, hidden, lambda: 0.3 }
        };
        [
            (config(&[2, 3], &[3, 4], 2, 2, true, Activation::Relu), 11),
            (config(&[2, 3], &[3, 4], 2, 2, false, Activation::Relu), 11),
            (config(&[1], &[5], 1, 3, true, Activation::Tanh), 8),
            (config(&[33, 2], &[1, 2], 0, 2, false, Activation::Linear), 5),
            (config(&[4, 3, 2], &[40, 3, 9], 2, 3, true, Activation::LeakyRelu), 29),
            (config(&[3, 2], &[3, 3], 1, 1, true, Activation::Relu), 6),
        ]
        .into_iter()
    }

    /// In f64, over more samples than one group, and a group that is not whole.
    #[test]
    fn the_step_s_gradient_is_burn_s() {
        for (config, time_points) in configs() {
            let architecture = config.architecture(time_points).unwrap();
            let device = Device::flex().autodiff();
            let template = Network::zeros(&architecture, &device);
            let layout = ParameterLayout::of(&template);
            let parameters: Vec<f64> = ramp(layout.parameters(), 5).into_iter().map(|v| 0.7 * v).collect();
            let series = ramp(10 * time_points, 6);
            let network = unpack(template, &parameters, &device).unwrap();
            let data = TensorData::new(series.clone(), [10, time_points]);
            let tensor = Tensor::from_data(data, (&device, burn::tensor::DType::F64));
            let loss = network.loss(tensor);
            let expected: Vec<f64> = pack_gradients(&network, loss.backward()).unwrap();
            let expected_loss = loss.into_scalar::<f64>();

            let mut step = Step::<f64>::new(&architecture, &layout);
            let mut found = vec![9.0; expected.len()];
            // Twice: nothing of the first time is left.
            step.gradient(&parameters, &series[..3 * time_points], &mut found);
            let found_loss = step.gradient(&parameters, &series, &mut found);
            assert!((found_loss - expected_loss).abs() < 1e-10 * expected_loss, "{config:?}");
            assert!((step.loss(&parameters, &series) - expected_loss).abs() < 1e-10 * expected_loss);
            let scale = expected.iter().fold(0f64, |most, g| most.max(g.abs()));
            for (entry, i) in layout.entries().iter().flat_map(|e| e.range.clone().map(move |i| (e, i))) {
                let difference = (found[i] - expected[i]).abs();
                let name = &entry.name;
                assert!(
                    difference < 1e-11 * scale,
                    "{name}[{i}]: {} != {} {config:?}",
                    found[i],
                    expected[i]
                );
            }
        }
    }
}
