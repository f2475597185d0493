//! Pooling of images, and what undoes it.

use super::Float;
use crate::kernels::pooling2d::{Windows, average, gather, max_pool, pick, repeat, spread, unpool};
use rayon::prelude::*;

/// Max-pooling of images of one size.
///
/// A switch is the place of the maximum within its window, `line·window[1] + column`, one byte; the first of equal values
/// wins. Without padding; with `ceil` a last window that reaches beyond the image is cut off rather than left out, as
/// PyTorch's `ceil_mode`.
///
/// Cost: a comparison for every point of every window; the input is read once, the output written once with 4 + 1 bytes a
/// value in f32.
///
/// ```
/// use voxelflow_nn::operations::MaxPool2d;
/// let pool = MaxPool2d::new([2, 2], [2, 2], true, [2, 3]);
/// let (x, mut y, mut switches) = ([1.0, 5.0, 2.0, 7.0, 3.0, 4.0], [0.0; 2], [0; 2]);
/// pool.forward(&x, &mut y, &mut switches);
/// assert_eq!((y, switches), ([7.0, 4.0], [2, 2]));
/// let mut back = [9.0; 6];
/// pool.unpool(&y, &switches, &mut back);
/// assert_eq!(back, [0.0, 0.0, 0.0, 7.0, 0.0, 4.0]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxPool2d {
    windows: Windows,
}

impl MaxPool2d {
    /// Windows of `window` lines and columns, `stride` apart, on images of `size`, height and width.
    ///
    /// # Panics
    /// If window or stride are zero, the window is larger than the image or has more than 256 points.
    pub fn new(window: [usize; 2], stride: [usize; 2], ceil: bool, size: [usize; 2]) -> Self {
        assert!(window[0] * window[1] <= 256, "a window of {window:?} has more than 256 points");
        Self { windows: windows(window, stride, ceil, size) }
    }

    /// Height and width of the output.
    pub fn output_size(&self) -> [usize; 2] {
        self.windows.pooled
    }

    /// `x` `[n, c, h, w]` → `y` and `switches` `[n, c, h', w']`.
    ///
    /// # Panics
    /// If the slices are not of these shapes.
    pub fn forward<E: Float>(&self, x: &[E], y: &mut [E], switches: &mut [u8]) {
        let windows = &self.windows;
        check(windows, x.len(), y.len());
        assert_eq!(y.len(), switches.len(), "switches");
        let (large, small) = planes(windows);
        let planes = y.par_chunks_mut(small).zip(switches.par_chunks_mut(small)).zip(x.par_chunks(large));
        planes.for_each(|((y, switches), x)| max_pool(windows, x, y, switches));
    }

    /// `x` `[n, c, h', w']` → `y` `[n, c, h, w]`: every value where its switch says, zero elsewhere, and a sum where
    /// windows overlap and meet. The gradient of [`Self::forward`] too, from the output's to the input's.
    ///
    /// # Panics
    /// If the slices are not of these shapes, or the switches are of other windows.
    pub fn unpool<E: Float>(&self, x: &[E], switches: &[u8], y: &mut [E]) {
        let windows = &self.windows;
        check(windows, y.len(), x.len());
        assert_eq!(x.len(), switches.len(), "switches");
        let (large, small) = planes(windows);
        let planes = y.par_chunks_mut(large).zip(x.par_chunks(small)).zip(switches.par_chunks(small));
        planes.for_each(|((y, x), switches)| unpool(windows, x, switches, y));
    }

    /// The gradient of [`Self::unpool`]: `dy` `[n, c, h, w]` → `dx` `[n, c, h', w']`, the values at the switches.
    ///
    /// # Panics
    /// As [`Self::unpool`].
    pub fn unpool_backward<E: Float>(&self, dy: &[E], switches: &[u8], dx: &mut [E]) {
        let windows = &self.windows;
        check(windows, dy.len(), dx.len());
        assert_eq!(dx.len(), switches.len(), "switches");
        let (large, small) = planes(windows);
        let planes = dx.par_chunks_mut(small).zip(dy.par_chunks(large)).zip(switches.par_chunks(small));
        planes.for_each(|((dx, dy), switches)| pick(windows, dy, switches, dx));
    }
}

/// `x` `[n, c, h, w]` → the means of its windows, `y` `[n, c, h', w']`, with windows, strides and `ceil` as in
/// [`MaxPool2d`]; of a window that is cut off the mean of what is left. Returns height and width of the output.
///
/// Cost: an addition for every point of every window.
///
/// ```
/// # use voxelflow_nn::operations::average_pool2d;
/// let mut y = [0.0; 2];
/// average_pool2d([2, 2], [2, 2], true, [2, 3], &[1.0, 5.0, 2.0, 7.0, 3.0, 4.0], &mut y);
/// assert_eq!(y, [4.0, 3.0]);
/// ```
///
/// # Panics
/// If the slices are not of these shapes, or as [`MaxPool2d::new`].
pub fn average_pool2d<E: Float>(
    window: [usize; 2],
    stride: [usize; 2],
    ceil: bool,
    size: [usize; 2],
    x: &[E],
    y: &mut [E],
) {
    let windows = windows(window, stride, ceil, size);
    check(&windows, x.len(), y.len());
    let (large, small) = planes(&windows);
    y.par_chunks_mut(small).zip(x.par_chunks(large)).for_each(|(y, x)| average(&windows, x, y));
}

/// The gradient of [`average_pool2d`]: `dy` `[n, c, h', w']` → `dx` `[n, c, h, w]`.
///
/// # Panics
/// As [`average_pool2d`].
pub fn average_pool2d_backward<E: Float>(
    window: [usize; 2],
    stride: [usize; 2],
    ceil: bool,
    size: [usize; 2],
    dy: &[E],
    dx: &mut [E],
) {
    let windows = windows(window, stride, ceil, size);
    check(&windows, dx.len(), dy.len());
    let (large, small) = planes(&windows);
    dx.par_chunks_mut(large).zip(dy.par_chunks(small)).for_each(|(dx, dy)| spread(&windows, dy, dx));
}

/// `x` `[n, c, h, w]` → `y` `[n, c, h', w']`, every value `window[0]·window[1]` times, cropped to `to`, height and width, or
/// padded to it with the last value.
///
/// Cost: a value moved for every one written.
///
/// ```
/// # use voxelflow_nn::operations::upsample2d;
/// let mut y = [0.0; 6];
/// upsample2d([2, 2], [1, 2], [2, 3], &[1.0, 2.0], &mut y);
/// assert_eq!(y, [1.0, 1.0, 2.0, 1.0, 1.0, 2.0]);
/// ```
///
/// # Panics
/// If the slices are not of these shapes, or a size or window is zero.
pub fn upsample2d<E: Float>(window: [usize; 2], from: [usize; 2], to: [usize; 2], x: &[E], y: &mut [E]) {
    let windows = repetition(window, from, to);
    check(&windows, y.len(), x.len());
    let (large, small) = planes(&windows);
    y.par_chunks_mut(large).zip(x.par_chunks(small)).for_each(|(y, x)| repeat(&windows, x, y));
}

/// The gradient of [`upsample2d`]: `dy` `[n, c, h', w']` → `dx` `[n, c, h, w]`, the sums of windows.
///
/// # Panics
/// As [`upsample2d`].
pub fn upsample2d_backward<E: Float>(
    window: [usize; 2],
    from: [usize; 2],
    to: [usize; 2],
    dy: &[E],
    dx: &mut [E],
) {
    let windows = repetition(window, from, to);
    check(&windows, dy.len(), dx.len());
    let (large, small) = planes(&windows);
    dx.par_chunks_mut(small).zip(dy.par_chunks(large)).for_each(|(dx, dy)| gather(&windows, dy, dx));
}

pub(crate) fn windows(window: [usize; 2], stride: [usize; 2], ceil: bool, size: [usize; 2]) -> Windows {
    assert!(window.iter().chain(&stride).all(|n| *n > 0), "a window of {window:?}, {stride:?} apart");
    let pooled = std::array::from_fn(|i| {
        assert!(ceil || window[i] <= size[i], "an image of {size:?} is smaller than a window of {window:?}");
        let room = size[i].saturating_sub(window[i]);
        let whole = room / stride[i] + 1;
        // One more if it begins within the image.
        let more = ceil && !room.is_multiple_of(stride[i]) && whole * stride[i] < size[i];
        if size[i] == 0 { 0 } else { whole + usize::from(more) }
    });
    Windows { window, stride, size, pooled }
}

fn repetition(window: [usize; 2], from: [usize; 2], to: [usize; 2]) -> Windows {
    let sizes = window.iter().chain(&from).chain(&to);
    assert!(sizes.into_iter().all(|n| *n > 0), "a size of zero: {window:?}, {from:?}, {to:?}");
    Windows { window, stride: window, size: to, pooled: from }
}

/// Values of a plane before and after pooling; of one without any, 1.
fn planes(windows: &Windows) -> (usize, usize) {
    (windows.plane().max(1), windows.pooled_plane().max(1))
}

fn check(windows: &Windows, large: usize, small: usize) {
    let (plane, pooled) = planes(windows);
    let count = large / plane;
    assert_eq!(large, count * plane, "no number of planes of {:?}", windows.size);
    assert_eq!(small, count * pooled, "{count} planes of {:?}", windows.pooled);
}
