//! The loss of a dist-DCA on a rank's cards: for any gang with vectors of the host, and resident for a rank without peers.

use super::Architecture;
use crate::{device::card_failed, layers::Activation, objective::Resident};
use voxelflow_cuda::{AutoencoderShape, Card, Precision, Rates, Replicas, Rule};
use voxelflow_stage::{Error, Result, TrainSettings};
use voxelflow_sync::{Optimizer, OptimizerKind, OptimizerSettings, OptimizerState, Reduction};

/// Series at once, at least: validation goes in pieces of so many.
const SERIES: usize = 256;

/// An autoencoder on one card or several, and the settings that its steps take.
#[derive(Debug)]
pub(super) struct OnCards {
    model: Replicas,
    minibatch: usize,
    optimizer: OptimizerSettings,
    steps: u64,
}

impl OnCards {
    /// Opens the cards `ordinals` and makes room for the settings' minibatch.
    pub fn new(architecture: &Architecture, ordinals: &[usize], settings: &TrainSettings) -> Result<Self> {
        let name = settings.precision.as_deref().unwrap_or(Precision::default().name());
        let precision = Precision::ALL.into_iter().find(|(known, _)| *known == name);
        let precision = precision.map_or_else(Precision::default, |(_, precision)| precision);
        let cards = Card::open_all(ordinals).map_err(card_failed)?;
        let minibatch = settings.minibatch.max(1);
        let optimizer = settings.sync.optimizer.clone();
        let rule = Some(rule(optimizer.optimizer));
        let model = Replicas::new(&cards, &shape(architecture), precision, minibatch.max(SERIES), rule);
        Ok(Self { model: model.map_err(card_failed)?, minibatch, optimizer, steps: 0 })
    }

    /// As [`crate::Objective::gradient`].
    pub fn gradient(&mut self, parameters: &[f32], series: &[f32], gradient: &mut [f32]) -> Result<f64> {
        self.model.set_parameters(parameters).map_err(card_failed)?;
        let most = self.model.samples() * self.model.shape().time_points;
        if series.len() <= most {
            return self.model.gradient(series, gradient).map_err(card_failed);
        }
        let (mut sum, mut part) = (0.0, vec![0.0; gradient.len()]);
        gradient.fill(0.0);
        for piece in series.chunks(most) {
            sum += self.model.gradient(piece, &mut part).map_err(card_failed)?;
            gradient.iter_mut().zip(&part).for_each(|(sum, part)| *sum += part);
        }
        Ok(sum)
    }

    /// Of the next step.
    fn rates(&self) -> Rates {
        let OptimizerSettings { learning_rate, epsilon, momentum, beta_2, reduction, .. } = self.optimizer;
        let mean = reduction == Reduction::Mean;
        Rates { learning_rate, epsilon, momentum, beta_2, mean, step: self.steps + 1 }
    }

    /// As [`crate::Objective::loss`].
    pub fn loss(&mut self, parameters: &[f32], series: &[f32]) -> Result<f64> {
        self.model.set_parameters(parameters).map_err(card_failed)?;
        self.evaluate(series)
    }
}

impl Resident for OnCards {
    fn load(&mut self, parameters: &[f32], optimizer: Option<&OptimizerState>) -> Result<()> {
        self.model.set_parameters(parameters).map_err(card_failed)?;
        let fresh = Optimizer::new(self.optimizer.clone(), parameters.len()).state();
        let state = optimizer.unwrap_or(&fresh);
        let names =
            |state: &OptimizerState| state.vectors.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        if names(state) != names(&fresh) {
            let (found, expected) = (names(state), names(&fresh));
            let reason = format!("it holds {found:?}, {:?} needs {expected:?}", self.optimizer.optimizer);
            return Err(Error::Data { what: "the optimizer's state".into(), reason });
        }
        for (i, (_, vector)) in state.vectors.iter().enumerate() {
            self.model.set_remembered(i, vector).map_err(card_failed)?;
        }
        self.steps = state.steps;
        Ok(())
    }

    fn parameters(&mut self, into: &mut [f32]) -> Result<()> {
        self.model.parameters(into).map_err(card_failed)
    }

    fn optimizer_state(&mut self) -> Result<OptimizerState> {
        let n = self.model.shape().parameters();
        let mut state = Optimizer::new(self.optimizer.clone(), n).state();
        for (i, (_, vector)) in state.vectors.iter_mut().enumerate() {
            self.model.remembered(i, vector).map_err(card_failed)?;
        }
        state.steps = self.steps;
        Ok(state)
    }

    fn minibatch(&mut self) -> Result<&mut [f32]> {
        let values = self.minibatch * self.model.shape().time_points;
        Ok(&mut self.model.minibatch().map_err(card_failed)?[..values])
    }

    fn send(&mut self, samples: usize) -> Result<()> {
        let rates = self.rates();
        self.model.send(samples, &rates).map_err(card_failed)
    }

    fn step(&mut self, samples: usize) -> Result<()> {
        let rates = self.rates();
        self.steps += 1;
        self.model.train(samples, &rates).map_err(card_failed)
    }

    fn step_loss(&mut self) -> Result<f64> {
        self.model.step_loss().map_err(card_failed)
    }

    fn evaluate(&mut self, series: &[f32]) -> Result<f64> {
        let most = self.model.samples() * self.model.shape().time_points;
        series.chunks(most).map(|piece| self.model.loss(piece).map_err(card_failed)).sum()
    }
}

fn rule(kind: OptimizerKind) -> Rule {
    match kind {
        OptimizerKind::Adagrad => Rule::Adagrad,
        OptimizerKind::Sgd => Rule::Sgd,
        OptimizerKind::Momentum => Rule::Momentum,
        OptimizerKind::Nesterov => Rule::Nesterov,
        OptimizerKind::Adam => Rule::Adam,
    }
}

fn shape(architecture: &Architecture) -> AutoencoderShape {
    let config = &architecture.config;
    AutoencoderShape {
        time_points: architecture.time_points(),
        filters: config.filters.clone(),
        kernels: config.kernels.clone(),
        pools: config.pools,
        window: config.pool_window,
        switches: config.switches,
        hidden: architecture.hidden,
        activation: match config.activation {
            Activation::Relu => voxelflow_cuda::Activation::Relu,
            Activation::LeakyRelu => voxelflow_cuda::Activation::LeakyRelu,
            Activation::Tanh => voxelflow_cuda::Activation::Tanh,
            Activation::Linear => voxelflow_cuda::Activation::Linear,
        },
        lambda: config.lambda,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{
        models::dist_dca::{DistDcaConfig, Network},
        parameters::ParameterLayout,
    };
    use burn::tensor::Device;

    #[test]
    fn a_card_s_shapes_are_the_network_s() {
        let small = DistDcaConfig {
            hidden: Some(3),
            filters: vec![2, 3],
            kernels: vec![3, 4],
            pools: 1,
            ..DistDcaConfig::default()
        };
        for (config, time_points) in [(DistDcaConfig::default(), 284), (small, 11)] {
            let architecture = config.architecture(time_points).unwrap();
            let shape = shape(&architecture);
            assert_eq!(shape.lengths(), architecture.lengths);
            let layout = ParameterLayout::of(&Network::zeros(&architecture, &Device::flex()));
            assert_eq!(shape.parameters(), layout.parameters());
        }
    }

    #[test]
    fn a_machine_without_the_cards_refuses_the_setting() {
        let architecture = DistDcaConfig::default().architecture(284).unwrap();
        for ordinals in [&[93][..], &[0, 93]] {
            let e = OnCards::new(&architecture, ordinals, &TrainSettings::default()).unwrap_err();
            assert!(e.is_input() && e.option() == Some("device"), "{e}");
        }
    }
}
