//! Up-sampling by repetition, for a decoder that has no switches.

use burn::tensor::Tensor;

/// `[n_samples, n_channels, n]` → `[n_samples, n_channels, length]`: every value `window` times, then cropped to
/// `length`, or padded to it with the last value.
pub fn upsample(x: Tensor<3>, window: usize, length: usize) -> Tensor<3> {
    let [samples, channels, n] = x.dims();
    let repeated: Tensor<3> = if window == 1 {
        x
    } else {
        x.unsqueeze_dim::<4>(3).repeat_dim(3, window).reshape([samples, channels, n * window])
    };
    match length.checked_sub(n * window) {
        Some(0) => repeated,
        None => repeated.narrow(2, 0, length),
        Some(missing) => {
            let last = repeated.clone().narrow(2, n * window - 1, 1).repeat_dim(2, missing);
            Tensor::cat(vec![repeated, last], 2)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::layers::gradient_check::{check, ramp, tensor};

    #[test]
    fn repeats_crops_and_pads() {
        let x = tensor::<3>(&[1.0, 2.0, 3.0, 4.0], [1, 2, 2]);
        let up = |window, length| {
            upsample(x.clone(), window, length).into_data_as::<f64>().try_into_vec::<f64>().unwrap()
        };
        assert_eq!(up(2, 4), [1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0]);
        assert_eq!(up(2, 3), [1.0, 1.0, 2.0, 3.0, 3.0, 4.0]);
        assert_eq!(up(2, 5), [1.0, 1.0, 2.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0, 4.0]);
        assert_eq!(up(1, 2), [1.0, 2.0, 3.0, 4.0]);
    }

    #[test]
    fn gradients_equal_finite_differences() {
        for (window, length) in [(2, 8), (2, 7), (2, 10), (3, 11), (1, 4)] {
            check(&ramp(24, 1), [2, 3, 4], |x| upsample(x, window, length));
        }
    }
}
