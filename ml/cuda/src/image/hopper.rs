//! Convolutions of images by Hopper's copy engine and matrix units: what `image_hopper.cu` is told.
//!
//! ```text
//!   patch of points (128 or 256) × 128 bytes of channels ─┐
//!                                                         ├─ for each tap ─► sums in registers ─► bias, ReLU ─► y
//!   weights of a tap, 64 or 128 filters × 128 bytes ──────┘
//! ```
//! How an image is cut into patches is chosen by what it costs: rounds of the multiprocessors, points beyond the image,
//! bytes from the second-level cache.

use super::shape::Conv2dShape;
use crate::{Card, Error, Precision, Result, Values, launch::Launch, memory::Memory};
use cudarc::driver::sys::{
    CUresult, CUtensorMap, CUtensorMapDataType, CUtensorMapFloatOOBfill, CUtensorMapInterleave,
    CUtensorMapL2promotion, CUtensorMapSwizzle, cuTensorMapEncodeTiled,
};

/// Bytes of a row in shared memory.
const ROW: usize = 128;
/// Patches, and slices of weights or stages, in shared memory at most.
const PATCHES: usize = 8;
const STAGES: usize = 10;
/// Bytes of shared memory beside those: to begin at a whole kilobyte; and those of barriers.
const BESIDE: usize = 1024;
const BARRIERS: usize = 512;
/// Filters of a block of the weights' gradient.
const STRIP: usize = 64;
/// Bytes with which two blocks fit a multiprocessor.
const HALF: usize = (228 << 10) / 2 - 1024 - BARRIERS;
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

/// A correlation of stride 1: what is read, what is written.
#[derive(Clone, Copy, Debug)]
struct Pass {
    from: usize,
    to: usize,
    read: [usize; 2],
    written: [usize; 2],
    kernel: [usize; 2],
    /// Lines and columns by which the first tap is before a point; less than zero if it is behind it.
    before: [isize; 2],
}

/// How a pass is cut: which kernel, and the tile of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cut {
    /// Blocks of 64 points of a warpgroup.
    blocks: usize,
    /// Channels that are written.
    wide: usize,
    /// Lines of the filter that a patch serves.
    lines: usize,
    /// Samples, lines and columns.
    tile: [usize; 3],
    patches: usize,
    stages: usize,
}

impl Cut {
    fn points(&self) -> usize {
        128 * self.blocks
    }

    fn patch_bytes(&self) -> usize {
        self.tile[0] * (self.tile[1] + self.lines - 1) * self.tile[2] * ROW
    }

    /// Rows from one block of 64 points to the next: if samples share a patch that serves several lines, each has its own.
    fn block_rows(&self) -> usize {
        if self.tile[0] > 1 && self.lines > 1 { (self.tile[1] + self.lines - 1) * self.tile[2] } else { 64 }
    }

    /// The multipliers read whole blocks, whatever is in the rows behind the patch.
    fn patch_room(&self) -> usize {
        let rows = self.points() + (self.lines - 1) * self.tile[2];
        self.patch_bytes().max(rows * ROW).next_multiple_of(1024)
    }

    /// Bytes of the weights of a tap.
    fn slice(&self) -> usize {
        self.wide * ROW
    }

    /// Bytes of the output, which has a place of its own where a tile is done so soon that its block shall go on to others.
    fn output(&self, element: usize) -> usize {
        self.points() * self.wide * element
    }

    fn goes_on(&self) -> bool {
        self.wide == 64
    }

    /// The same with as many patches and slices as `room` bytes have place for.
    fn filled(self, room: usize) -> Option<Self> {
        let (patch, slice) = (self.patch_room(), self.slice());
        let (patches, stages) = if self.lines == 1 {
            let both = (room / (patch + slice)).min(PATCHES);
            (both, both)
        } else {
            (2, (room.saturating_sub(2 * patch) / slice).min(STAGES))
        };
        (patches >= 2 && stages > self.lines.max(2) - 1).then_some(Self { patches, stages, ..self })
    }

    /// Bytes of patches and slices.
    fn stages(&self) -> usize {
        self.patches * self.patch_room() + self.stages * self.slice()
    }

    fn shared(&self, element: usize) -> usize {
        let output = self.output(element);
        BESIDE + if self.goes_on() { self.stages() + output } else { self.stages().max(output) }
    }

    /// Tiles of all samples, and of lines and columns of one.
    fn tiles(&self, samples: usize, written: [usize; 2]) -> [usize; 3] {
        let [many, lines, columns] = self.tile;
        [samples.div_ceil(many), written[0].div_ceil(lines), written[1].div_ceil(columns)]
    }
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

    /// The cheapest cut.
    fn cut(&self, samples: usize, pass: &Pass) -> Option<Cut> {
        let chunks = pass.from.div_ceil(self.chunk());
        let mut best: Option<(f64, Cut)> = None;
        for (blocks, wide) in [(1, 256), (2, 128), (1, 128), (1, 64)] {
            if wide >= 2 * pass.to.next_multiple_of(64) {
                continue;
            }
            for lines in [1, 3] {
                if !pass.kernel[0].is_multiple_of(lines) {
                    continue;
                }
                for tile in tiles(128 * blocks, lines, samples, pass.written) {
                    let cut = Cut { blocks, wide, lines, tile, patches: 0, stages: 0 };
                    let element = self.precision.values().size();
                    let fits = |room: usize| {
                        let output = if cut.goes_on() { cut.output(element) } else { 0 };
                        cut.filled(room - BESIDE - output).filter(|cut| cut.shared(element) <= room)
                    };
                    let (small, large) = (fits(HALF), fits(self.most_shared - BARRIERS));
                    let (at_once, cut) = match (small, large) {
                        (Some(cut), _) if blocks * wide <= 128 => (2, cut),
                        (_, Some(cut)) => (1, cut),
                        _ => continue,
                    };
                    let blocks = self.blocks(samples, pass, &cut);
                    let rounds = blocks.div_ceil(self.multiprocessors * at_once);
                    // Cycles of a tap's 128 bytes of channels: products, copies from the second-level cache, and
                    // shared memory, which copies write and products read, a row of 64 points at a time.
                    let rate = if self.precision == Precision::Bf16 { 2048.0 } else { 1024.0 };
                    let products = (cut.points() * wide * self.chunk()) as f64 / rate;
                    let patch = cut.patch_room() / lines;
                    let copies = (patch + cut.slice() / 2) as f64 / CACHE;
                    let read = cut.points() / 64 * (64 * ROW + cut.slice());
                    let shared = (patch + cut.slice() + read) as f64 / 128.0;
                    let step = products.max(copies).max(shared);
                    let steps = (pass.kernel[0] * pass.kernel[1] * chunks) as f64;
                    let ends = if at_once == 2 { 1000.0 } else { 7000.0 };
                    let cost = (rounds * at_once) as f64 * (steps * step + ends);
                    if best.is_none_or(|(least, _)| cost < least) {
                        best = Some((cost, cut));
                    }
                }
            }
        }
        best.map(|(_, cut)| cut)
    }

    /// Blocks of a pass: for every slice of what is written an even number, since two share the weights.
    fn blocks(&self, samples: usize, pass: &Pass, cut: &Cut) -> usize {
        let tiles = cut.tiles(samples, pass.written).iter().product::<usize>();
        tiles.next_multiple_of(2) * pass.to.div_ceil(cut.wide)
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
        let read_kind = self.read_kind();
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

    /// The kernels of the weights' gradient take 3 × 3 taps at a time.
    pub fn has_weight_gradient(&self) -> bool {
        let taps = self.shape.kernel.map(|k| k.next_multiple_of(3));
        taps[0] * taps[1] <= 3 * self.shape.taps()
    }

    /// Blocks of a part of the weights' gradient: of 64 filters and a chunk of channels each.
    pub fn weight_tiles(&self) -> usize {
        let shape = &self.shape;
        let [lines, columns] = shape.kernel.map(|k| k.div_ceil(3));
        shape.filters.div_ceil(STRIP) * shape.channels.div_ceil(self.chunk()) * lines * columns
    }

    /// Bytes of a tile of the weights' gradient: the gradients of the output, and patches for 3 columns of the filter.
    fn strip_room(&self, lines: usize) -> usize {
        (STRIP / self.chunk() * lines + 3 * (lines + 2)) * 1024
    }

    /// Lines of a tile of the weights' gradient, an even number, and stages.
    fn strip(&self) -> (usize, usize) {
        let height = self.shape.output()[0];
        let stages =
            |lines: usize| ((self.most_shared - BESIDE - BARRIERS) / self.strip_room(lines)).min(STAGES);
        // Cycles of a line's products, by rate.
        let line = if self.precision == Precision::Bf16 { 144 } else { 240 };
        let cost = |lines: usize| {
            height.div_ceil(lines) * ((line * lines).max(self.strip_room(lines) / CACHE as usize) + 100)
        };
        let lines = (2..=16).step_by(2).filter(|lines| stages(*lines) >= 2);
        let lines = lines.min_by_key(|lines| (cost(*lines), 16 - lines)).unwrap_or(2);
        (lines, stages(lines))
    }

    /// Parts of the weights' gradient, `wanted` of them or fewer, `[part][tap][filter][channel]`; returns how many.
    pub fn weight_gradient(
        &self,
        card: &Card,
        samples: usize,
        [x, dy, parts]: [&Memory; 3],
        wanted: usize,
    ) -> Result<usize> {
        let (shape, (lines, stages), chunk) = (&self.shape, self.strip(), self.chunk());
        let [height, width] = shape.output();
        let (down, across) = (height.div_ceil(lines), width.div_ceil(8));
        let tiles = samples * down * across;
        let share = tiles.div_ceil(wanted.max(1)).max(1);
        let found = tiles.div_ceil(share);
        let kind = self.read_kind();
        let sizes = [shape.channels, shape.size[1], shape.size[0], samples];
        let x = map(x, kind, &sizes, &[chunk, 8, lines + 2, 1])?;
        let dy = map(dy, kind, &[shape.filters, width, height, samples], &[chunk, 8, lines, 1])?;
        let walk = [
            shape.kernel[0],
            shape.kernel[1],
            shape.before[0],
            shape.before[1],
            lines,
            down,
            across,
            tiles,
            share,
            shape.filters.div_ceil(STRIP),
            shape.channels.div_ceil(chunk),
            shape.kernel[0].div_ceil(3),
            stages,
            (lines + 2) * 1024,
            shape.channels,
            shape.filters,
        ]
        .map(|n| n as i32);
        let launch = Launch::of_images(card, format!("image_strips_{}", self.precision.name()))
            .words(&x)
            .words(&dy)
            .pointer(parts.at(0))
            .ints(&walk);
        let shared = stages * self.strip_room(lines) + BESIDE;
        // SAFETY: as in `run`; the caller has room for the parts that it wants.
        unsafe { launch.run([self.weight_tiles(), found, 1], [416, 1], shared)? };
        Ok(found)
    }

    fn read_kind(&self) -> CUtensorMapDataType {
        match self.precision {
            Precision::Bf16 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            // Rounded on the way to shared memory.
            _ => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_TFLOAT32,
        }
    }
}

/// Tiles of at most `points` points. If a patch serves several lines of the filter, its blocks of 64 points are whole lines
/// of 8 or 16; else the tiles that make the fewest.
fn tiles(points: usize, lines: usize, samples: usize, [height, width]: [usize; 2]) -> Vec<[usize; 3]> {
    if lines > 1 {
        return vec![[1, points / 8, 8], [1, points / 16, 16], [points / 64, 8, 8]];
    }
    let mut best = (usize::MAX, [1, 1, 1]);
    for columns in (1..=width.min(points)).rev() {
        for lines in (1..=height.min(points / columns)).rev() {
            let many = samples.min(points / (columns * lines)).max(1);
            let count = samples.div_ceil(many) * height.div_ceil(lines) * width.div_ceil(columns);
            if count < best.0 {
                best = (count, [many, lines, columns]);
            }
        }
    }
    vec![best.1]
}

fn plain(values: Values) -> CUtensorMapDataType {
    match values {
        Values::Bf16 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        _ => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
    }
}

/// The driver's description of an array of `sizes`, innermost first, without gaps, of which boxes are copied.
fn map(memory: &Memory, kind: CUtensorMapDataType, sizes: &[usize], of_box: &[usize]) -> Result<[u64; 16]> {
    let rank = sizes.len();
    let (mut dimensions, mut strides, mut boxes, ones) = ([1u64; 5], [0u64; 5], [1u32; 5], [1u32; 5]);
    let mut bytes = memory.kind().size() as u64;
    for i in 0..rank {
        dimensions[i] = sizes[i] as u64;
        boxes[i] = of_box[i] as u32;
        bytes *= dimensions[i];
        strides[i] = bytes;
    }
    let mut found = CUtensorMap { opaque: [0; 16] };
    // SAFETY: all pointers are to arrays of at least `rank` values, which live until it returns.
    let result = unsafe {
        cuTensorMapEncodeTiled(
            &raw mut found,
            kind,
            rank as u32,
            memory.at(0) as *mut _,
            dimensions.as_ptr(),
            strides.as_ptr(),
            boxes.as_ptr(),
            ones.as_ptr(),
            CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
            CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    };
    if result != CUresult::CUDA_SUCCESS {
        let reason = format!("{result:?} for an array of {sizes:?} in boxes of {of_box:?}");
        return Err(Error::failed("describing an image", reason));
    }
    Ok(found.opaque)
}

#[cfg(test)]
mod tests {
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
