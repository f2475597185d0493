//! The network itself: shapes in, shapes out; no data, no training.

use super::Architecture;
use crate::layers::{Activation, Conv1d, Linear, Switches, max_pool_with_switches, unpool, upsample};
use burn::{
    module::Module,
    tensor::{Device, Tensor},
};

/// What the encoder gives.
pub struct Encoded {
    /// `[n_samples, hidden]`.
    pub hidden: Tensor<2>,
    /// Z, `[n_samples, n_channels, length]`, before the fully connected layer.
    pub top: Tensor<3>,
    /// Of each pooling, from the first.
    pub switches: Vec<Switches>,
}

/// What the decoder gives.
pub struct Decoded {
    /// Z′, `[n_samples, n_channels, length]`.
    pub top: Tensor<3>,
    /// X̂, `[n_samples, time_points]`.
    pub series: Tensor<2>,
}

/// The layers of a dist-DCA. Their order here is the order of the flat parameter vector.
#[derive(Module, Debug)]
pub struct Network {
    encoder: Vec<Conv1d>,
    to_hidden: Linear,
    from_hidden: Linear,
    decoder: Vec<Conv1d>,
    #[module(skip)]
    architecture: Architecture,
}

impl Network {
    /// A network whose parameters are all zero; see [`crate::parameters::unpack`].
    pub fn zeros(architecture: &Architecture, device: &Device) -> Self {
        let channels = architecture.channels();
        let kernels = &architecture.config.kernels;
        let features = architecture.top()[0] * architecture.top()[1];
        let layers = || channels.windows(2).zip(kernels);
        Self {
            encoder: layers().map(|(c, kernel)| Conv1d::zeros(c[0], c[1], *kernel, device)).collect(),
            to_hidden: Linear::zeros(features, architecture.hidden, device),
            from_hidden: Linear::zeros(architecture.hidden, features, device),
            decoder: layers().rev().map(|(c, kernel)| Conv1d::zeros(c[1], c[0], *kernel, device)).collect(),
            architecture: architecture.clone(),
        }
    }

    /// The shapes.
    pub fn architecture(&self) -> &Architecture {
        &self.architecture
    }

    /// The encoder's and the decoder's convolutions, each with its path.
    pub fn convolutions(&self) -> impl Iterator<Item = (String, &Conv1d)> {
        let encoder = self.encoder.iter().enumerate().map(|(i, c)| (format!("encoder.{i}"), c));
        encoder.chain(self.decoder.iter().enumerate().map(|(i, c)| (format!("decoder.{i}"), c)))
    }

    /// `[n_samples, time_points]` → hidden state, Z and switches.
    pub fn encode(&self, series: Tensor<2>) -> Encoded {
        let config = &self.architecture.config;
        let mut z: Tensor<3> = series.unsqueeze_dim(1);
        let mut switches = Vec::with_capacity(config.pools);
        for (layer, convolution) in self.encoder.iter().enumerate() {
            z = convolution.forward_with(z, config.activation);
            if layer < config.pools {
                let (pooled, kept) = max_pool_with_switches(z, config.pool_window);
                z = pooled;
                switches.push(kept);
            }
        }
        let hidden = self.to_hidden.forward(z.clone().flatten(1, 2));
        Encoded { hidden, top: z, switches }
    }

    /// `[n_samples, hidden]` → Z′ and series: unpooled by `switches` (one for each pooling), or by repetition.
    pub fn decode(&self, hidden: Tensor<2>, switches: Option<&[Switches]>) -> Decoded {
        let config = &self.architecture.config;
        let samples = hidden.dims()[0];
        let [channels, length] = self.architecture.top();
        let top = self.from_hidden.forward(hidden).reshape([samples, channels, length]);
        let mut y = top.clone();
        let last = self.decoder.len() - 1;
        for (j, convolution) in self.decoder.iter().enumerate() {
            // Before layer j of the decoder the features are those after layer `mirrored` of the encoder.
            let mirrored = last - j;
            if mirrored < config.pools {
                y = match switches.and_then(|s| s.get(mirrored)) {
                    Some(s) => unpool(y, s),
                    None => upsample(y, config.pool_window, self.architecture.lengths[mirrored]),
                };
            }
            y = convolution.forward_with(y, if j < last { config.activation } else { Activation::Linear });
        }
        Decoded { top, series: y.squeeze_dim(1) }
    }

    /// `Σ ½‖X − X̂‖² + ½λ‖Z − Z′‖²` over the samples, as the network was configured to train, `[1]`.
    pub fn loss(&self, series: Tensor<2>) -> Tensor<1> {
        let config = &self.architecture.config;
        let encoded = self.encode(series.clone());
        let decoded = self.decode(encoded.hidden, config.switches.then_some(encoded.switches.as_slice()));
        let (signal, features) = (series - decoded.series, encoded.top - decoded.top);
        signal.square().sum() * 0.5 + features.square().sum() * (0.5 * f64::from(config.lambda))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{
        layers::gradient_check::{ramp, tensor},
        models::dist_dca::DistDcaConfig,
        parameters::{ParameterLayout, pack_gradients, unpack},
    };

    fn small(switches: bool, pools: usize) -> DistDcaConfig {
        DistDcaConfig {
            hidden: Some(3),
            filters: vec![2, 3],
            kernels: vec![3, 4],
            pools,
            switches,
            lambda: 0.3,
            ..DistDcaConfig::default()
        }
    }

    #[test]
    fn the_module_has_the_parameters_that_the_arithmetic_promises() {
        let device = Device::flex();
        let small = small(true, 2);
        for (config, time_points) in [(&DistDcaConfig::default(), 284), (&small, 11), (&small, 4)] {
            let architecture = config.architecture(time_points).unwrap();
            let layout = ParameterLayout::of(&Network::zeros(&architecture, &device));
            assert_eq!(layout.parameters(), architecture.parameters());
        }
        let architecture = DistDcaConfig::default().architecture(284).unwrap();
        let layout = ParameterLayout::of(&Network::zeros(&architecture, &device));
        assert_eq!(layout.parameters(), 6_020_381);
        let names: Vec<_> = layout.entries().iter().map(|e| e.name.as_str()).collect();
        assert_eq!(names[0], "encoder.0.weight");
        assert_eq!(
            names[8..12],
            ["to_hidden.weight", "to_hidden.bias", "from_hidden.weight", "from_hidden.bias"]
        );
        assert_eq!(names[19], "decoder.3.bias");
    }

    #[test]
    fn any_length_comes_back_as_it_went_in() {
        let device = Device::flex();
        let config = DistDcaConfig { filters: vec![2, 2, 2, 2], ..DistDcaConfig::default() };
        for time_points in (8..40).chain([71, 142, 176, 284, 1200, 4096]) {
            let network = Network::zeros(&config.architecture(time_points).unwrap(), &device);
            let encoded = network.encode(Tensor::ones([2, time_points], &device));
            assert_eq!(encoded.hidden.dims(), [2, time_points]);
            let switches = encoded.switches;
            assert_eq!(
                network.decode(encoded.hidden.clone(), Some(&switches)).series.dims(),
                [2, time_points]
            );
            assert_eq!(network.decode(encoded.hidden, None).series.dims(), [2, time_points]);
        }
    }

    #[test]
    fn gradients_of_the_whole_loss_equal_finite_differences() {
        let device = Device::flex().autodiff();
        for (switches, pools, time_points) in [(true, 2, 11), (false, 2, 11), (true, 1, 8), (false, 0, 5)] {
            let architecture = small(switches, pools).architecture(time_points).unwrap();
            let template = Network::zeros(&architecture, &device);
            let values: Vec<f64> = ramp(architecture.parameters(), 5).into_iter().map(|v| 0.7 * v).collect();
            let series = tensor::<2>(&ramp(3 * time_points, 6), [3, time_points]);
            let loss = |values: &[f64]| {
                let network = unpack(template.clone(), values, &device).unwrap();
                let loss = network.loss(series.clone());
                (network, loss)
            };
            let (network, value) = loss(&values);
            let found: Vec<f64> = pack_gradients(&network, value.backward()).unwrap();
            let step = 1e-6;
            for i in 0..values.len() {
                let at = |delta: f64| {
                    let mut moved = values.clone();
                    moved[i] += delta;
                    loss(&moved).1.into_scalar::<f64>()
                };
                let expected = (at(step) - at(-step)) / (2.0 * step);
                let tolerance = 1e-6 * (1.0 + expected.abs());
                assert!((found[i] - expected).abs() < tolerance, "parameter {i}: {} != {expected}", found[i]);
            }
        }
    }
}
