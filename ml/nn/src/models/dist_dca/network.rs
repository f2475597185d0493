//! The network itself: shapes in, shapes out; no data, no training.

use super::Architecture;
use crate::layers::{Conv1d, Linear, Switches, max_pool_with_switches, unpool, upsample};
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
            z = config.activation.forward(convolution.forward(z));
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
            y = convolution.forward(y);
            if j < last {
                y = config.activation.forward(y);
            }
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
