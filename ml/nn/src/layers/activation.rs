//! The nonlinearity between layers.

use burn::tensor::{Tensor, activation};
use serde::{Deserialize, Serialize};

/// The nonlinearity after a layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// `max(x, 0)`.
    #[default]
    Relu,
    /// `max(x, 0.01·x)`.
    LeakyRelu,
    /// `tanh(x)`.
    Tanh,
    /// `x`.
    Linear,
}

impl Activation {
    /// Applies the nonlinearity element by element.
    pub fn forward<const D: usize>(self, x: Tensor<D>) -> Tensor<D> {
        match self {
            Self::Relu => activation::relu(x),
            Self::LeakyRelu => activation::leaky_relu(x, 0.01),
            Self::Tanh => activation::tanh(x),
            Self::Linear => x,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::layers::gradient_check::{check, ramp, tensor};

    #[test]
    fn values_and_gradients() {
        let x = tensor::<1>(&[-2.0, 0.5], [2]);
        let data = |a: Activation| a.forward(x.clone()).into_data_as::<f64>().try_into_vec::<f64>().unwrap();
        assert_eq!(data(Activation::Relu), [0.0, 0.5]);
        assert_eq!(data(Activation::LeakyRelu), [-0.02, 0.5]);
        assert_eq!(data(Activation::Tanh), [(-2f64).tanh(), 0.5f64.tanh()]);
        assert_eq!(data(Activation::Linear), [-2.0, 0.5]);
        for a in [Activation::Relu, Activation::LeakyRelu, Activation::Tanh, Activation::Linear] {
            check(&ramp(24, 1), [2, 3, 4], move |x| a.forward(x));
        }
    }
}
