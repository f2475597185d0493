//! The inverse of max-pooling as far as there is one: every value back where its maximum was, zero elsewhere.

use super::Switches;
use burn::tensor::{IndexingUpdateOp, Tensor};

/// `[n_samples, n_channels, ⌈length/window⌉]` → `[n_samples, n_channels, length]` (Zeiler 2014).
pub fn unpool(x: Tensor<3>, switches: &Switches) -> Tensor<3> {
    let [samples, channels, pooled] = x.dims();
    // As rows of a matrix, for which burn's CPU backend has a fast path.
    let rows = [samples * channels, pooled];
    let zeros: Tensor<2> = Tensor::zeros([samples * channels, switches.length], (&x.device(), x.dtype()));
    let positions = switches.positions.clone().reshape(rows);
    // The windows do not overlap, so each position is written at most once and adding is placing.
    zeros.scatter(1, positions, x.reshape(rows), IndexingUpdateOp::Add).reshape([
        samples,
        channels,
        switches.length,
    ])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::layers::{
        gradient_check::{check, ramp, tensor},
        max_pool_with_switches,
    };

    #[test]
    fn values_return_to_their_places() {
        let (y, switches) = max_pool_with_switches(tensor(&[1.0, 3.0, 2.0, 2.0, -5.0], [1, 1, 5]), 2);
        let back = unpool(y, &switches).into_data_as::<f64>().try_into_vec::<f64>().unwrap();
        assert_eq!(back, [0.0, 3.0, 2.0, 0.0, -5.0]);
    }

    #[test]
    fn gradients_equal_finite_differences() {
        for (length, window) in [(8usize, 2), (7, 2), (7, 3)] {
            let (_, switches) = max_pool_with_switches(tensor(&ramp(6 * length, 1), [2, 3, length]), window);
            let pooled = length.div_ceil(window);
            check(&ramp(6 * pooled, 2), [2, 3, pooled], |x| unpool(x, &switches));
        }
    }
}
