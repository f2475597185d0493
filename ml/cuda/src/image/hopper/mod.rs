//! Convolutions of images by Hopper's copy engine and matrix units: what `image_patches.cu` is told.
//!
//! ```text
//!   patch of points (128 or 256) × 128 bytes of channels ─┐
//!                                                         ├─ for each tap ─► sums in registers ─► bias, ReLU ─► y
//!   weights of a tap, 64 to 256 filters × 128 bytes ──────┘
//! ```
//! How an image is cut into patches is chosen by what it costs: rounds of the multiprocessors, points beyond the image,
//! bytes from the second-level cache.

mod cut;
mod map;
mod strips;

use super::shape::Conv2dShape;
use crate::{Card, Error, Precision, Result, launch::Launch, memory::Memory};
use cut::Pass;
use map::{map, plain, rounded};

/// Bytes of a row in shared memory.
const ROW: usize = 128;
/// Bytes of shared memory to begin at a whole kilobyte, and those of barriers.
const BESIDE: usize = 1024;
const BARRIERS: usize = 512;
/// Bytes a cycle that a multiprocessor gets from the second-level cache, about.
const CACHE: f64 = 30.0;

/// The convolution of one shape on a card of capability 9.0.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hopper {
    shape: Conv2dShape,
    precision: Precision,
    multiprocessors: usize,
    most_shared: usize,
}

impl Hopper {
    /// If this card and these kernels can do it.
    pub fn of(card: &Card, shape: &Conv2dShape, precision: Precision) -> Option<Self> {
        let (multiprocessors, most_shared) = (card.multiprocessors(), card.most_shared());
        let can = card.capability().0 == 9 && Self::can(shape, precision);
        can.then_some(Self { shape: *shape, precision, multiprocessors, most_shared })
    }

    fn can(shape: &Conv2dShape, precision: Precision) -> bool {
        let sides = [shape.channels, shape.filters];
        let enough = sides.iter().all(|n| *n >= 16 && n.is_multiple_of(8));
        precision != Precision::F32 && shape.stride == [1, 1] && enough
    }

    /// Channels in a row of shared memory.
    fn chunk(&self) -> usize {
        ROW / self.precision.values().size()
    }

    fn forward_pass(&self) -> Pass {
        let shape = &self.shape;
        Pass {
            from: shape.channels,
            to: shape.filters,
            read: shape.size,
            written: shape.output(),
            kernel: shape.kernel,
            before: shape.before.map(|n| n as isize),
        }
    }

    /// The gradient of the input: the taps backwards.
    fn backward_pass(&self) -> Pass {
        let shape = &self.shape;
        Pass {
            from: shape.filters,
            to: shape.channels,
            read: shape.output(),
            written: shape.size,
            kernel: shape.kernel,
            before: std::array::from_fn(|i| shape.kernel[i] as isize - 1 - shape.before[i] as isize),
        }
    }

    pub fn forward(
        &self,
        card: &Card,
        samples: usize,
        x: &Memory,
        weights: &Memory,
        bias: u64,
        y: &Memory,
    ) -> Result<()> {
        self.run(card, samples, &self.forward_pass(), [x, weights, y], bias, self.shape.relu)
    }

    pub fn input_gradient(
        &self,
        card: &Card,
        samples: usize,
        dy: &Memory,
        weights: &Memory,
        dx: &Memory,
    ) -> Result<()> {
        self.run(card, samples, &self.backward_pass(), [dy, weights, dx], 0, false)
    }

    fn run(
        &self,
        card: &Card,
        samples: usize,
        pass: &Pass,
        [from, weights, to]: [&Memory; 3],
        bias: u64,
        relu: bool,
    ) -> Result<()> {
        if samples == 0 {
            return Ok(());
        }
        let Some(cut) = self.cut(samples, pass) else {
            let reason = format!("no cut of {pass:?} fits the card's shared memory; use device => 'cpu'");
            return Err(Error::Shape { what: "a convolution of images", reason });
        };
        let (values, chunk) = (self.precision.values(), self.chunk());
        let read_kind = rounded(self.precision);
        let [many, lines, columns] = cut.tile;
        let image = |memory: &Memory, kind, [height, width]: [usize; 2], channels: usize, lines: usize| {
            let sizes = [channels, width, height, samples];
            map(memory, kind, &sizes, &[chunk, columns, lines, many])
        };
        let x = image(from, read_kind, pass.read, pass.from, lines + cut.lines - 1)?;
        let taps = pass.kernel[0] * pass.kernel[1];
        let w = map(weights, read_kind, &[pass.from, pass.to, taps], &[chunk, cut.wide / 2, 1])?;
        let y = image(to, plain(values), pass.written, pass.to, lines)?;
        let [_, down, across] = cut.tiles(samples, pass.written);
        let blocks = self.blocks(samples, pass, &cut);
        let walk = [
            pass.kernel[0] as i32,
            pass.kernel[1] as i32,
            pass.before[0] as i32,
            pass.before[1] as i32,
            (pass.kernel[0] / cut.lines) as i32,
            pass.from.div_ceil(chunk) as i32,
            lines as i32,
            columns as i32,
            many as i32,
            down as i32,
            across as i32,
            pass.to.div_ceil(cut.wide) as i32,
            (blocks / 2) as i32,
            cut.patches as i32,
            cut.stages as i32,
            cut.patch_bytes() as i32,
            cut.patch_room() as i32,
            cut.block_rows() as i32,
            if cut.goes_on() { cut.stages() as i32 } else { 0 },
            pass.to as i32,
            relu.into(),
        ];
        let name =
            format!("image_patches_{}_{}_{}_{}", cut.blocks, cut.wide, cut.lines, self.precision.name());
        let launch = Launch::of_images(card, name).words(&x).words(&w).words(&y).pointer(bias).ints(&walk);
        let most = 2 * self.multiprocessors;
        let blocks = if cut.goes_on() { blocks.min(most) } else { blocks };
        // SAFETY: the copy engine keeps to the arrays that it was told of, which the caller has checked.
        unsafe { launch.run([blocks, 1, 1], [288, 1], cut.shared(values.size())) }
    }
}

#[cfg(test)]
mod tests {
    use super::cut::{PATCHES, STAGES, tiles};
    use super::*;

    fn hopper(shape: Conv2dShape, precision: Precision) -> Hopper {
        Hopper { shape, precision, multiprocessors: 132, most_shared: 227 << 10 }
    }

    #[test]
    fn cuts_fit_the_card_and_cover_the_image() {
        for size in [[1, 1], [5, 7], [14, 14], [28, 28], [56, 56], [224, 224], [13, 300]] {
            for (channels, filters, kernel) in
                [(64, 64, 3), (512, 512, 3), (16, 40, 5), (256, 64, 1), (96, 200, 3)]
            {
                for precision in [Precision::Tf32, Precision::Bf16] {
                    let shape = Conv2dShape::new(channels, filters, [kernel, kernel], size);
                    assert!(Hopper::can(&shape, precision));
                    let hopper = hopper(shape, precision);
                    for (samples, pass) in [(1, hopper.forward_pass()), (33, hopper.backward_pass())] {
                        let cut = hopper.cut(samples, &pass).unwrap_or_else(|| panic!("no cut of {shape:?}"));
                        let [many, lines, columns] = cut.tile;
                        assert!(many * lines * columns <= cut.points(), "{cut:?}");
                        assert!(
                            (2..=STAGES).contains(&cut.stages) && (2..=PATCHES).contains(&cut.patches),
                            "{cut:?}"
                        );
                        assert!(cut.shared(precision.values().size()) + BARRIERS <= 227 << 10, "{cut:?}");
                        assert!(cut.patch_bytes() <= cut.patch_room(), "{cut:?}");
                        assert!(
                            cut.lines == 1
                                || columns.is_multiple_of(8)
                                    && (many == 1 || lines * columns == 64)
                                    && cut.block_rows().is_multiple_of(8),
                            "{cut:?}"
                        );
                        assert!([lines + cut.lines - 1, columns, many].iter().all(|n| *n <= 256), "{cut:?}");
                        let count = cut.tiles(samples, pass.written);
                        assert!(count[0] * many >= samples && count[1] * lines >= pass.written[0], "{cut:?}");
                    }
                    let (lines, stages) = hopper.strip();
                    assert!(lines.is_multiple_of(2) && lines <= 16 && stages >= 2);
                }
            }
        }
    }

    #[test]
    fn a_small_image_shares_a_tile_with_others() {
        let shape = Conv2dShape::new(512, 512, [3, 3], [14, 14]);
        let hopper = hopper(shape, Precision::Bf16);
        let [many, lines, columns] = tiles(128, 1, 32, [14, 14])[0];
        assert_eq!(32usize.div_ceil(many) * 14usize.div_ceil(lines) * 14usize.div_ceil(columns), 49);
        assert_eq!((hopper.weight_tiles(), hopper.strip().0), (64, 14));
        assert!(!Hopper::can(&shape.with_stride([2, 1]), Precision::Bf16));
        assert!(!Hopper::can(&shape, Precision::F32));
        assert!(!Hopper::can(&Conv2dShape::new(3, 64, [3, 3], [224, 224]), Precision::Bf16));
    }
}
