//! How a pass is cut into tiles, and what is in shared memory at once.

use super::{BARRIERS, BESIDE, CACHE, Hopper, ROW};
use crate::Precision;

/// Patches, and slices of weights or stages, in shared memory at most.
pub(super) const PATCHES: usize = 8;
pub(super) const STAGES: usize = 10;
/// Bytes with which two blocks fit a multiprocessor.
const HALF: usize = (228 << 10) / 2 - 1024 - BARRIERS;

/// A correlation of stride 1: what is read, what is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pass {
    pub from: usize,
    pub to: usize,
    pub read: [usize; 2],
    pub written: [usize; 2],
    pub kernel: [usize; 2],
    /// Lines and columns by which the first tap is before a point; less than zero if it is behind it.
    pub before: [isize; 2],
}

/// How a pass is cut: which kernel, and the tile of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// Blocks of 64 points of a warpgroup.
    pub blocks: usize,
    /// Channels that are written.
    pub wide: usize,
    /// Lines of the filter that a patch serves.
    pub lines: usize,
    /// Samples, lines and columns.
    pub tile: [usize; 3],
    pub patches: usize,
    pub stages: usize,
}

impl Cut {
    pub fn points(&self) -> usize {
        128 * self.blocks
    }

    pub fn patch_bytes(&self) -> usize {
        self.tile[0] * (self.tile[1] + self.lines - 1) * self.tile[2] * ROW
    }

    /// Rows from one block of 64 points to the next: if samples share a patch that serves several lines, each has its own.
    pub fn block_rows(&self) -> usize {
        if self.tile[0] > 1 && self.lines > 1 { (self.tile[1] + self.lines - 1) * self.tile[2] } else { 64 }
    }

    /// The multipliers read whole blocks, whatever is in the rows behind the patch.
    pub fn patch_room(&self) -> usize {
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

    pub fn goes_on(&self) -> bool {
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
    pub fn stages(&self) -> usize {
        self.patches * self.patch_room() + self.stages * self.slice()
    }

    pub fn shared(&self, element: usize) -> usize {
        let output = self.output(element);
        BESIDE + if self.goes_on() { self.stages() + output } else { self.stages().max(output) }
    }

    /// Tiles of all samples, and of lines and columns of one.
    pub fn tiles(&self, samples: usize, written: [usize; 2]) -> [usize; 3] {
        let [many, lines, columns] = self.tile;
        [samples.div_ceil(many), written[0].div_ceil(lines), written[1].div_ceil(columns)]
    }
}

impl Hopper {
    /// The cheapest cut.
    pub(super) fn cut(&self, samples: usize, pass: &Pass) -> Option<Cut> {
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
    pub(super) fn blocks(&self, samples: usize, pass: &Pass, cut: &Cut) -> usize {
        let tiles = cut.tiles(samples, pass.written).iter().product::<usize>();
        tiles.next_multiple_of(2) * pass.to.div_ceil(cut.wide)
    }
}

/// Tiles of at most `points` points. If a patch serves several lines of the filter, its blocks of 64 points are whole lines
/// of 8 or 16; else the tiles that make the fewest.
pub(super) fn tiles(
    points: usize,
    lines: usize,
    samples: usize,
    [height, width]: [usize; 2],
) -> Vec<[usize; 3]> {
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
