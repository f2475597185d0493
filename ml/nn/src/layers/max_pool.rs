//! Max-pooling that remembers where each maximum was.

use burn::tensor::{Int, Tensor, module::max_pool1d_with_indices, ops::MaxPoolOptions};

/// Where the maxima of a pooling were.
#[derive(Clone, Debug)]
pub struct Switches {
    /// Position in the unpooled series of each pooled value, `[n_samples, n_channels, ⌈length/window⌉]`.
    pub positions: Tensor<3, Int>,
    /// Length before pooling.
    pub length: usize,
}

/// `[n_samples, n_channels, length]` → `[n_samples, n_channels, ⌈length/window⌉]`: the maximum of each window;
/// the windows do not overlap, and the last one may be shorter (71 points and a window of 2 give 36).
/// The first of equal values wins.
pub fn max_pool_with_switches(x: Tensor<3>, window: usize) -> (Tensor<3>, Switches) {
    let length = x.dims()[2];
    let options = MaxPoolOptions::new([window]).with_stride([window]).with_ceil_mode(true);
    let (pooled, positions) = max_pool1d_with_indices(x, options);
    (pooled, Switches { positions, length })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::layers::gradient_check::{check, ramp, tensor};

    #[test]
    fn odd_lengths_keep_their_last_point() {
        let (y, switches) = max_pool_with_switches(tensor(&[1.0, 3.0, 2.0, 2.0, -5.0], [1, 1, 5]), 2);
        assert_eq!(y.into_data_as::<f64>().try_into_vec::<f64>().unwrap(), [3.0, 2.0, -5.0]);
        assert_eq!(switches.positions.into_data_as::<i64>().try_into_vec::<i64>().unwrap(), [1, 2, 4]);
        assert_eq!(switches.length, 5);
        assert_eq!(max_pool_with_switches(tensor(&ramp(71, 1), [1, 1, 71]), 2).0.dims(), [1, 1, 36]);
        assert_eq!(max_pool_with_switches(tensor(&ramp(7, 1), [1, 1, 7]), 3).0.dims(), [1, 1, 3]);
    }

    #[test]
    fn gradients_equal_finite_differences() {
        for (length, window) in [(8, 2), (7, 2), (7, 3), (5, 1), (3, 4)] {
            check(&ramp(6 * length, 1), [2, 3, length], |x| max_pool_with_switches(x, window).0);
        }
    }
}
