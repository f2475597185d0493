//! Max-pooling of images with switches, what undoes it, and up-sampling by repetition.

use super::around::check;
use crate::{Card, Error, Result, Values, launch::Launch, memory::Memory};

const WHAT: &str = "a pooling of images";
const THREADS: usize = 256;

/// Windows on an image: the kernels' `Windows`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Windows {
    window: [usize; 2],
    stride: [usize; 2],
    size: [usize; 2],
    pooled: [usize; 2],
    channels: usize,
}

impl Windows {
    fn values(&self, samples: usize, size: [usize; 2]) -> usize {
        samples * size[0] * size[1] * self.channels
    }

    /// Checks buffers of large and small images, and launches `kernel` with `pointers` for every vector of images of `size`.
    fn run(
        &self,
        card: &Card,
        kernel: &str,
        samples: usize,
        [large, small]: [&Memory; 2],
        pointers: &[u64],
        size: [usize; 2],
    ) -> Result<()> {
        let values = large.kind();
        if ![Values::F32, Values::Bf16].contains(&values) {
            let reason = format!("images hold {values:?}, F32 or Bf16 are needed");
            return Err(Error::Shape { what: WHAT, reason });
        }
        check(WHAT, "the large image", large, values, self.values(samples, self.size))?;
        check(WHAT, "the small image", small, values, self.values(samples, self.pooled))?;
        let vector = if self.channels.is_multiple_of(8) { 8 } else { 1 };
        let mut launch = Launch::of_images(card, format!("image_{kernel}{vector}_{}", values.suffix()));
        for pointer in pointers {
            launch = launch.pointer(*pointer);
        }
        let pairs = [self.window, self.stride, self.size, self.pooled, [samples, self.channels]];
        let ints: Vec<i32> = pairs.iter().flatten().map(|n| *n as i32).collect();
        let blocks = (self.values(samples, size) / vector).div_ceil(THREADS);
        // SAFETY: the sizes of all buffers are checked, here and by the callers.
        unsafe { launch.ints(&ints).run([blocks.min(1 << 20), 1, 1], [THREADS, 1], 0) }
    }
}

/// Max-pooling of images of one size, as `voxelflow_nn::operations::MaxPool2d`.
///
/// A switch is the place of the maximum within its window, `line·window[1] + column`, one byte; the first of equal values
/// wins, and what is no number wins over all before it. Without padding; with `ceil` a last window that reaches beyond the
/// image is cut off rather than left out.
///
/// Cost of each pass: every value of the large and of the small image is read or written once, and a byte of each switch;
/// where windows overlap, values are read again from the card's caches. Images hold float32 or bfloat16.
///
/// ```
/// use voxelflow_cuda::image::Pool2d;
/// let pool = Pool2d::new([2, 2], [2, 2], true, [5, 8], 64).unwrap();
/// assert_eq!(pool.output(), [3, 4]);
/// assert!(Pool2d::new([3, 3], [2, 2], false, [2, 8], 64).is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool2d(Windows);

impl Pool2d {
    /// Windows of `window` lines and columns, `stride` apart, on images of `size`, height and width, with `channels`.
    ///
    /// # Errors
    /// Window, stride, size or channels of zero, a window that is larger than the image or has more than 256 points.
    pub fn new(
        window: [usize; 2],
        stride: [usize; 2],
        ceil: bool,
        size: [usize; 2],
        channels: usize,
    ) -> Result<Self> {
        let wrong = |reason: String| Err(Error::Shape { what: WHAT, reason });
        if [window, stride, size, [channels, 1]].iter().flatten().any(|n| *n == 0) {
            return wrong(format!(
                "a size of zero: window {window:?}, stride {stride:?}, image {size:?}, {channels} channels"
            ));
        }
        if window[0] * window[1] > 256 {
            return wrong(format!("a window of {window:?} has more than 256 points"));
        }
        if !ceil && (window[0] > size[0] || window[1] > size[1]) {
            return wrong(format!("an image of {size:?} is smaller than a window of {window:?}"));
        }
        let pooled = std::array::from_fn(|i| {
            let room = size[i].saturating_sub(window[i]);
            let whole = room / stride[i] + 1;
            // One more if it begins within the image.
            let more = ceil && !room.is_multiple_of(stride[i]) && whole * stride[i] < size[i];
            whole + usize::from(more)
        });
        Ok(Self(Windows { window, stride, size, pooled, channels }))
    }

    /// Height and width of the output.
    pub fn output(&self) -> [usize; 2] {
        self.0.pooled
    }

    /// Values of an output, and bytes of its switches.
    pub fn output_values(&self) -> usize {
        self.0.values(1, self.0.pooled)
    }

    /// `x` `[samples][line][column][channel]` → `y` and `switches` (bytes) `[samples][line'][column'][channel]`.
    ///
    /// # Errors
    /// A buffer that is too small or of other values; a card that fails.
    pub fn forward(
        &self,
        card: &Card,
        samples: usize,
        x: &Memory,
        y: &mut Memory,
        switches: &mut Memory,
    ) -> Result<()> {
        self.check_switches(samples, switches)?;
        let pointers = [x.at(0), y.at(0), switches.at(0)];
        self.0.run(card, "max", samples, [x, y], &pointers, self.0.pooled)
    }

    /// `x` `[samples][line'][column'][channel]` → `y` `[samples][line][column][channel]`: every value where its switch says,
    /// zero elsewhere, and a sum where windows overlap and meet. The gradient of [`Self::forward`] too, from the output's
    /// to the input's.
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub fn unpool(
        &self,
        card: &Card,
        samples: usize,
        x: &Memory,
        switches: &Memory,
        y: &mut Memory,
    ) -> Result<()> {
        self.check_switches(samples, switches)?;
        let pointers = [x.at(0), switches.at(0), y.at(0)];
        self.0.run(card, "unpool", samples, [y, x], &pointers, self.0.size)
    }

    /// The gradient of [`Self::unpool`]: of every window of `dy` the value at its switch, to `dx`. The switches must be of
    /// [`Self::forward`].
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub fn unpool_backward(
        &self,
        card: &Card,
        samples: usize,
        dy: &Memory,
        switches: &Memory,
        dx: &mut Memory,
    ) -> Result<()> {
        self.check_switches(samples, switches)?;
        let pointers = [dy.at(0), switches.at(0), dx.at(0)];
        self.0.run(card, "pick", samples, [dy, dx], &pointers, self.0.pooled)
    }

    fn check_switches(&self, samples: usize, switches: &Memory) -> Result<()> {
        check(WHAT, "the switches", switches, Values::U8, self.0.values(samples, self.0.pooled))
    }
}

/// Up-sampling of images by repetition, as `voxelflow_nn::operations::upsample2d`: every value `window[0]·window[1]` times,
/// cropped to a size or padded to it with the last value.
///
/// Cost of each pass: every value of the large and of the small image is read or written once. Images hold float32 or
/// bfloat16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeat2d(Windows);

impl Repeat2d {
    /// From images of `from`, height and width, to images of `to`, with `channels`.
    ///
    /// # Errors
    /// A size of zero.
    pub fn new(window: [usize; 2], from: [usize; 2], to: [usize; 2], channels: usize) -> Result<Self> {
        if [window, from, to, [channels, 1]].iter().flatten().any(|n| *n == 0) {
            let reason = format!("a size of zero: {window:?}, {from:?}, {to:?}, {channels} channels");
            return Err(Error::Shape { what: WHAT, reason });
        }
        Ok(Self(Windows { window, stride: window, size: to, pooled: from, channels }))
    }

    /// `x`, small, → `y`, large: `[samples][line][column][channel]`.
    ///
    /// # Errors
    /// A buffer that is too small or of other values; a card that fails.
    pub fn forward(&self, card: &Card, samples: usize, x: &Memory, y: &mut Memory) -> Result<()> {
        self.0.run(card, "repeat", samples, [y, x], &[x.at(0), y.at(0)], self.0.size)
    }

    /// The gradient: `dy`, large, → `dx`, small, the sums of windows.
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub fn backward(&self, card: &Card, samples: usize, dy: &Memory, dx: &mut Memory) -> Result<()> {
        self.0.run(card, "gather", samples, [dy, dx], &[dy.at(0), dx.at(0)], self.0.pooled)
    }
}
