//! How feature maps lie in memory.
//!
//! ```text
//!   one sample: [⌈channels/width⌉][rows][width]     width 32: a panel of channels (zero beyond the last one),
//!                                                   width 1: a single series
//!   rows: zeros before, the points in time, zeros after
//! ```
//! A row of a panel is two AVX-512 registers. Padding lies in the buffer, is zeroed once, and never written again: a
//! convolution reads past both ends of a series without asking where they are.

use super::tile::PANEL;

/// The channels on one side of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Side {
    pub channels: usize,
    /// [`PANEL`], or 1 for a single series; the channels of an image's input if they are fewer.
    pub width: usize,
}

impl Side {
    /// A single series.
    pub const SERIES: Self = Self { channels: 1, width: 1 };

    /// Channels in panels.
    pub fn panels_of(channels: usize) -> Self {
        Self { channels, width: PANEL }
    }

    /// Channels in panels, or all of them side by side if they are fewer than a panel's.
    pub fn narrow(channels: usize) -> Self {
        Self { channels, width: channels.clamp(1, PANEL) }
    }

    pub fn panels(self) -> usize {
        self.channels.div_ceil(self.width)
    }

    pub fn is_series(self) -> bool {
        self.width == 1
    }
}

/// The maps of one sample, padded in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Maps {
    pub side: Side,
    pub before: usize,
    pub length: usize,
    pub after: usize,
}

impl Maps {
    /// Without padding.
    pub fn new(side: Side, length: usize) -> Self {
        Self { side, before: 0, length, after: 0 }
    }

    pub fn padded(self, before: usize, after: usize) -> Self {
        Self { before, after, ..self }
    }

    pub fn rows(&self) -> usize {
        self.before + self.length + self.after
    }

    /// Values of a panel.
    pub fn panel(&self) -> usize {
        self.rows() * self.side.width
    }

    /// Values of a sample.
    pub fn len(&self) -> usize {
        self.side.panels() * self.panel()
    }

    /// The points of every panel, without the padding.
    pub fn points<'a, E>(&self, sample: &'a [E]) -> impl Iterator<Item = &'a [E]> + use<'a, E> {
        let points = self.range();
        sample.chunks_exact(self.panel()).map(move |panel| &panel[points.clone()])
    }

    /// As [`Self::points`], to be written.
    pub fn points_mut<'a, E>(&self, sample: &'a mut [E]) -> impl Iterator<Item = &'a mut [E]> + use<'a, E> {
        let points = self.range();
        sample.chunks_exact_mut(self.panel()).map(move |panel| &mut panel[points.clone()])
    }

    fn range(&self) -> std::ops::Range<usize> {
        self.before * self.side.width..(self.before + self.length) * self.side.width
    }

    /// `[channels, length]`, as burn and PyTorch have it, into the points; lanes beyond the last channel become zero.
    pub fn take<E: Copy + Default>(&self, from: &[E], sample: &mut [E]) {
        let width = self.side.width;
        for (points, series) in self.points_mut(sample).zip(from.chunks(width * self.length)) {
            let channels = series.len() / self.length;
            if channels < width {
                points.chunks_exact_mut(width).for_each(|row| row[channels..].fill(E::default()));
            }
            for (lane, series) in series.chunks_exact(self.length).enumerate() {
                let to = points[lane..].iter_mut().step_by(width);
                to.zip(series).for_each(|(to, value)| *to = *value);
            }
        }
    }

    /// The points as `[channels, length]`.
    pub fn give<E: Copy>(&self, sample: &[E], to: &mut [E]) {
        let width = self.side.width;
        for (points, series) in self.points(sample).zip(to.chunks_mut(width * self.length)) {
            for (lane, series) in series.chunks_exact_mut(self.length).enumerate() {
                let values = points[lane..].iter().step_by(width);
                series.iter_mut().zip(values).for_each(|(to, value)| *to = *value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_come_back_as_they_went_in_and_padding_stays_zero() {
        for (side, length) in [(Side::SERIES, 5), (Side::panels_of(3), 4), (Side::panels_of(70), 3)] {
            let maps = Maps::new(side, length).padded(2, 1);
            let from: Vec<f32> = (0..side.channels * length).map(|i| 1.0 + i as f32).collect();
            // What was in the points before is gone, in lanes without a channel too.
            let mut sample = vec![0.0; maps.len()];
            maps.points_mut(&mut sample).for_each(|points| points.fill(f32::NAN));
            maps.take(&from, &mut sample);
            let mut to = vec![0.0; from.len()];
            maps.give(&sample, &mut to);
            assert_eq!(to, from);
            assert_eq!(sample.iter().filter(|v| **v != 0.0).count(), from.len());
            let rows: Vec<_> = sample.chunks_exact(side.width).collect();
            assert!(rows[..2].iter().chain(&rows[maps.rows() - 1..maps.rows()]).all(|row| row[0] == 0.0));
        }
    }
}
