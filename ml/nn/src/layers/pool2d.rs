//! Pooling of images, with switches and by means, and what undoes it: unpooling and up-sampling.

use super::pool2d_cpu::{self, Kind};
use crate::operations::MaxPool2d;
use burn::tensor::{IndexingUpdateOp, Int, Tensor, module, ops::MaxPoolOptions};
use std::sync::Arc;

/// Where the maxima of a pooling of images were.
#[derive(Clone, Debug)]
pub struct Switches2d {
    places: Places,
    /// Height and width before pooling.
    size: [usize; 2],
}

#[derive(Clone, Debug)]
enum Places {
    /// On the CPU: the place within the window of every pooled value, one byte each.
    Bytes(MaxPool2d, Arc<[u8]>),
    /// Elsewhere: the position in the plane, `[n_samples, n_channels, height', width']`.
    Positions(Tensor<4, Int>),
}

/// `[n_samples, n_channels, height, width]` → `[n_samples, n_channels, height', width']`: the maximum of each window of
/// `window` lines and columns, `stride` apart; a last window may reach beyond the image (`ceil_mode` of PyTorch). The first
/// of equal values wins.
///
/// Cost: a comparison for every point of every window; on the CPU the switches are a byte each.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use voxelflow_nn::layers::{max_pool2d_with_switches, unpool2d};
/// let x = Tensor::<1>::from_floats([1.0, 5.0, 2.0, 7.0, 3.0, 4.0], &Device::flex()).reshape([1, 1, 2, 3]);
/// let (y, switches) = max_pool2d_with_switches(x, [2, 2], [2, 2]);
/// assert_eq!(y.dims(), [1, 1, 1, 2]);
/// assert_eq!(unpool2d(y, &switches).dims(), [1, 1, 2, 3]);
/// ```
///
/// # Panics
/// If window or stride are zero, or a window has more than 256 points.
pub fn max_pool2d_with_switches(
    x: Tensor<4>,
    window: [usize; 2],
    stride: [usize; 2],
) -> (Tensor<4>, Switches2d) {
    let [_, _, height, width] = x.dims();
    let size = [height, width];
    let pool = MaxPool2d::new(window, stride, true, size);
    if let Some((y, switches)) = pool2d_cpu::max_pool(&x, pool) {
        return (y, Switches2d { places: Places::Bytes(pool, switches), size });
    }
    let options = MaxPoolOptions::new(window).with_stride(stride).with_ceil_mode(true);
    let (y, positions) = module::max_pool2d_with_indices(x, options);
    (y, Switches2d { places: Places::Positions(positions), size })
}

/// `[n_samples, n_channels, height', width']` → `[n_samples, n_channels, height, width]`: every value where its maximum
/// was, zero elsewhere (Zeiler and Fergus 2014). Where windows overlap and meet, values are added up.
///
/// Cost: every value is moved, every point written.
///
/// # Panics
/// If `x` has another shape than the switches, or is on another device.
pub fn unpool2d(x: Tensor<4>, switches: &Switches2d) -> Tensor<4> {
    let ([samples, channels, pooled_height, pooled_width], [height, width]) = (x.dims(), switches.size);
    match &switches.places {
        Places::Bytes(pool, places) => {
            let kind = Kind::Unpool(*pool, places.clone());
            let shape = [samples, channels, height, width];
            let y = pool2d_cpu::apply(&x, kind, shape);
            assert!(y.is_some(), "switches of the CPU, values of another device");
            y.unwrap_or(x)
        }
        Places::Positions(positions) => {
            let rows = [samples * channels, pooled_height * pooled_width];
            let zeros: Tensor<2> = Tensor::zeros([rows[0], height * width], (&x.device(), x.dtype()));
            let placed =
                zeros.scatter(1, positions.clone().reshape(rows), x.reshape(rows), IndexingUpdateOp::Add);
            placed.reshape([samples, channels, height, width])
        }
    }
}

/// `[n_samples, n_channels, height, width]` → `[n_samples, n_channels, height', width']`: every value
/// `window[0]·window[1]` times, then cropped to `size`, height and width, or padded to it with the last value.
///
/// Cost: every point is written once.
///
/// # Panics
/// If a size or the window is zero.
pub fn upsample2d(x: Tensor<4>, window: [usize; 2], size: [usize; 2]) -> Tensor<4> {
    let [samples, channels, height, width] = x.dims();
    let kind = Kind::Upsample { window, from: [height, width], to: size };
    if let Some(y) = pool2d_cpu::apply(&x, kind, [samples, channels, size[0], size[1]]) {
        return y;
    }
    let lines = repeat(x, 2, window[0], size[0]);
    repeat(lines, 3, window[1], size[1])
}

/// Repetition along one axis, by operations that every device has.
fn repeat(x: Tensor<4>, axis: usize, window: usize, length: usize) -> Tensor<4> {
    let mut shape = x.dims();
    shape[axis] *= window;
    let repeated: Tensor<4> = x.unsqueeze_dim::<5>(axis + 1).repeat_dim(axis + 1, window).reshape(shape);
    match length.checked_sub(shape[axis]) {
        Some(0) => repeated,
        None => repeated.narrow(axis, 0, length),
        Some(missing) => {
            let last = repeated.clone().narrow(axis, shape[axis] - 1, 1).repeat_dim(axis, missing);
            Tensor::cat(vec![repeated, last], axis)
        }
    }
}
