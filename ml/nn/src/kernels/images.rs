//! How images lie in memory: feature maps of two dimensions.
//!
//! ```text
//!   one sample: [lines][⌈channels/width⌉][columns][width]     width 32: panels of channels (zero beyond the last),
//!                                                             fewer: all channels of a side that has fewer
//!   lines, columns: zeros before, the image, zeros after
//! ```
//! For one line of a convolution's output the values of all taps of a line of the input lie one after the other, and the
//! lines of all panels and taps at equal distances: the image is its own im2col.

use super::{maps::Side, real::Real, tile::PANEL, transpose::Extent};

/// The image of one sample, padded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Images {
    pub side: Side,
    /// Lines and columns without padding.
    pub size: [usize; 2],
    pub before: [usize; 2],
    pub after: [usize; 2],
}

/// Columns that go through the small buffer of masked values at once.
const COLUMNS: usize = 32;

impl Images {
    pub fn lines(&self) -> usize {
        self.before[0] + self.size[0] + self.after[0]
    }

    pub fn columns(&self) -> usize {
        self.before[1] + self.size[1] + self.after[1]
    }

    /// Values of a line of one panel.
    pub fn panel_line(&self) -> usize {
        self.columns() * self.side.width
    }

    /// Values of a line of all panels.
    pub fn line(&self) -> usize {
        self.side.panels() * self.panel_line()
    }

    /// Values of a sample.
    pub fn len(&self) -> usize {
        self.lines() * self.line()
    }

    /// Values of a sample as burn and PyTorch have it, `[channels, height, width]`.
    pub fn plain_len(&self) -> usize {
        self.side.channels * self.size[0] * self.size[1]
    }

    /// Line `line` of a sample `from` `[channels, height, width]`, padding and all, into `to`, which is overwritten.
    /// Where `mask` `[channels, height, width]` is not above zero, zero is taken.
    pub fn take_line<E: Real>(&self, from: &[E], mask: Option<&[E]>, line: usize, to: &mut [E]) {
        let [height, columns] = self.size;
        let zero = E::default();
        let Some(row) = line.checked_sub(self.before[0]).filter(|row| *row < height) else {
            return to.fill(zero);
        };
        let (width, plane) = (self.side.width, height * columns);
        let image = self.before[1] * width..(self.before[1] + columns) * width;
        for (panel, to) in to.chunks_exact_mut(self.panel_line()).enumerate() {
            let channels = width.min(self.side.channels - panel * width);
            to[..image.start].fill(zero);
            to[image.end..].fill(zero);
            let to = &mut to[image.clone()];
            if channels < width {
                to.chunks_exact_mut(width).for_each(|point| point[channels..].fill(zero));
            }
            let start = panel * width * plane + row * columns;
            let extent = Extent { rows: channels, columns };
            match mask {
                None => E::transpose(&from[start..], plane, to, width, extent),
                Some(mask) => take_masked((&from[start..], &mask[start..]), plane, to, width, extent),
            }
        }
    }
}

fn take_masked<E: Real>(
    (from, mask): (&[E], &[E]),
    plane: usize,
    to: &mut [E],
    width: usize,
    extent: Extent,
) {
    let zero = E::default();
    let mut kept = [zero; PANEL * COLUMNS];
    for first in (0..extent.columns).step_by(COLUMNS) {
        let columns = COLUMNS.min(extent.columns - first);
        for (channel, kept) in kept.chunks_exact_mut(COLUMNS).take(extent.rows).enumerate() {
            let at = channel * plane + first;
            let both = from[at..at + columns].iter().zip(&mask[at..at + columns]);
            kept.iter_mut().zip(both).for_each(|(k, (v, m))| *k = if *m > zero { *v } else { zero });
        }
        let part = Extent { rows: extent.rows, columns };
        E::transpose(&kept, COLUMNS, &mut to[first * width..], width, part);
    }
}
