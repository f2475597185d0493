//! Fully connected layer.

use burn::{
    module::{Module, Param},
    tensor::{Device, Tensor, module::linear},
};

/// `y = x·W + b`.
#[derive(Module, Debug)]
pub struct Linear {
    /// `[n_inputs, n_outputs]` (PyTorch keeps the transpose; [`crate::parameters`] turns it when files are
    /// written and read).
    pub weight: Param<Tensor<2>>,
    /// `[n_outputs]`.
    pub bias: Param<Tensor<1>>,
}

impl Linear {
    /// A layer of zeros on `device`; its parameters are filled through [`crate::parameters`].
    pub fn zeros(inputs: usize, outputs: usize, device: &Device) -> Self {
        Self {
            weight: Param::from_tensor(Tensor::zeros([inputs, outputs], device)),
            bias: Param::from_tensor(Tensor::zeros([outputs], device)),
        }
    }

    /// `[n_samples, n_inputs]` → `[n_samples, n_outputs]`.
    pub fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        linear(x, self.weight.val(), Some(self.bias.val()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::layers::gradient_check::{check, ramp, tensor};

    fn layer(w: Tensor<2>, b: Tensor<1>) -> Linear {
        Linear {
            weight: Param::initialized(Default::default(), w),
            bias: Param::initialized(Default::default(), b),
        }
    }

    #[test]
    fn equals_its_definition() {
        let y = layer(tensor(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3]), tensor(&[0.5, 0.0, -1.0], [3]))
            .forward(tensor(&[1.0, 10.0], [1, 2]));
        assert_eq!(y.into_data_as::<f64>().try_into_vec::<f64>().unwrap(), [41.5, 52.0, 62.0]);
    }

    #[test]
    fn gradients_equal_finite_differences() {
        let (x, w, b) = (ramp(8, 1), ramp(12, 2), ramp(3, 3));
        let (xt, wt, bt) = (tensor::<2>(&x, [2, 4]), tensor::<2>(&w, [4, 3]), tensor::<1>(&b, [3]));
        check(&x, [2, 4], |x| layer(wt.clone(), bt.clone()).forward(x));
        check(&w, [4, 3], |w| layer(w, bt.clone()).forward(xt.clone()));
        check(&b, [3], |b| layer(wt.clone(), b).forward(xt.clone()));
    }
}
