//! Convolutions along time as matrix products over the series as they lie, without a copy of every window.
//!
//! Series are rows `[time][channel]`, samples behind each other with rows of zeros between. The window of a point is then
//! one run of `kernel · channels` values, and the windows of points `p, p + P, p + 2P, …` are the rows of a matrix that
//! does not overlap itself if `P ≥ kernel`: P products, one for each p, are the convolution. Rows of zeros get results
//! too, which nobody reads; they cost `kernel / 2` of `length + kernel / 2` operations.
//!
//! | | product | operations |
//! |---|---|---|
//! | forward | windows of x · W | 2·samples·(length + gap)·kernel·channels·filters |
//! | input gradient | windows of dy · W, taps backwards, transposed | the same |
//! | weight gradient | (windows of x)ᵀ · dy, one sum for each p | the same |

use crate::product::{Operand, Product};

/// A convolution as long as its input: an even kernel reaches one point further to the right than to the left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conv1d {
    /// Series at once.
    pub samples: usize,
    /// Points of a series.
    pub length: usize,
    /// Channels of the input.
    pub channels: usize,
    /// Channels of the output.
    pub filters: usize,
    /// Points of a filter.
    pub kernel: usize,
}

/// Rows of zeros that a buffer of series has before its first and behind its last sample, beside the kernel's: the
/// products of the last phases read past the end.
pub const MARGIN: usize = 192;

impl Conv1d {
    /// Points before a point that its window reaches.
    pub fn before(&self) -> usize {
        (self.kernel - 1) / 2
    }

    /// Rows of zeros between samples.
    pub fn gap(&self) -> usize {
        self.kernel / 2
    }

    /// Rows from one sample to the next, of the input and of the output.
    pub fn stride(&self) -> usize {
        self.length + self.gap()
    }

    /// Rows of zeros around a buffer of inputs, or of gradients of outputs.
    pub fn margin(&self) -> usize {
        MARGIN + 2 * self.kernel
    }

    /// Rows of a buffer of inputs, or of gradients of outputs.
    pub fn padded_rows(&self) -> usize {
        self.samples * self.stride() + 2 * self.margin()
    }

    /// Rows of a buffer of outputs, or of gradients of inputs: the margin is behind the samples only.
    pub fn output_rows(&self) -> usize {
        self.samples * self.stride() + MARGIN + self.kernel
    }

    /// Values of a filter bank.
    pub fn weights(&self) -> usize {
        self.kernel * self.channels * self.filters
    }

    /// At least one a tap, and no more than the margin has room for.
    fn phases(&self, wanted: usize) -> usize {
        wanted.clamp(self.kernel, MARGIN + self.kernel)
    }

    /// x `[padded_rows, channels]` · W → y `[output_rows, filters]`, without bias; W is
    /// `[(kernel + together − 1) · channels, together · filters]`, as [`Self::spread`] has it.
    pub fn forward(&self, together: usize) -> Product {
        self.along(self.channels, self.filters, self.before(), together)
    }

    /// dy `[padded_rows, filters]` · W → dx `[output_rows, channels]`; W is
    /// `[(kernel + together − 1) · filters, together · channels]`, its taps backwards.
    pub fn input_gradient(&self, together: usize) -> Product {
        self.along(self.filters, self.channels, self.kernel - 1 - self.before(), together)
    }

    /// Values of weights for products that give `together` neighbouring points in a row: tap k of point j in rows
    /// `k + j`, zeros elsewhere.
    ///
    /// With few columns a product neither fills the tiles that it is computed in nor reads a window for more than one
    /// point. Points side by side cost `together − 1` taps of zeros and give columns `together` times.
    pub fn spread(&self, together: usize) -> usize {
        (self.kernel + together - 1) * self.channels * together * self.filters
    }

    fn along(&self, from: usize, to: usize, before: usize, together: usize) -> Product {
        let window = self.kernel + together - 1;
        // Rows of a matrix must not overlap: every so many groups of points are one.
        let groups = window.div_ceil(together);
        let period = groups * together;
        Product {
            rows: (self.samples * self.stride()).div_ceil(period),
            columns: together * to,
            inner: window * from,
            batches: groups,
            a: Operand {
                offset: (self.margin() - before) * from,
                leading: period * from,
                stride: together * from,
                transposed: false,
            },
            b: Operand { offset: 0, leading: together * to, stride: 0, transposed: false },
            c: Operand { offset: 0, leading: period * to, stride: together * to, transposed: false },
        }
    }

    /// x `[padded_rows, channels]`, dy `[padded_rows, filters]` → parts of dW `[phases][kernel · channels, filters]`,
    /// to be summed; their number is the product's `batches`, `phases` if that many can be.
    pub fn weight_gradient(&self, phases: usize) -> Product {
        let phases = self.phases(phases);
        let windows = self.kernel * self.channels;
        Product {
            rows: windows,
            columns: self.filters,
            inner: (self.samples * self.stride()).div_ceil(phases),
            batches: phases,
            a: Operand {
                offset: (self.margin() - self.before()) * self.channels,
                leading: phases * self.channels,
                stride: self.channels,
                transposed: true,
            },
            b: Operand {
                offset: self.margin() * self.filters,
                leading: phases * self.filters,
                stride: self.filters,
                transposed: false,
            },
            c: Operand {
                offset: 0,
                leading: self.filters,
                stride: windows * self.filters,
                transposed: false,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wave(n: usize, rate: f64) -> Vec<f64> {
        (0..n).map(|i| (i as f64 * rate).sin()).collect()
    }

    /// Samples `[samples][length][channels]` as a padded buffer.
    fn padded(conv: &Conv1d, values: &[f64], channels: usize) -> Vec<f64> {
        let mut rows = vec![0.0; conv.padded_rows() * channels];
        for (n, sample) in values.chunks(conv.length * channels).enumerate() {
            let at = (conv.margin() + n * conv.stride()) * channels;
            rows[at..at + sample.len()].copy_from_slice(sample);
        }
        rows
    }

    fn shapes() -> Vec<Conv1d> {
        let shape = |samples, length, channels, filters, kernel| Conv1d {
            samples,
            length,
            channels,
            filters,
            kernel,
        };
        vec![
            shape(3, 7, 2, 3, 3),
            shape(2, 5, 1, 2, 4),
            shape(1, 4, 3, 1, 9),
            shape(5, 6, 2, 2, 1),
            shape(2, 3, 1, 1, 40),
        ]
    }

    /// What is at (sample, point, channel), zero outside the sample.
    fn at(values: &[f64], conv: &Conv1d, channels: usize, n: usize, t: isize, c: usize) -> f64 {
        match usize::try_from(t) {
            Ok(t) if t < conv.length => values[(n * conv.length + t) * channels + c],
            _ => 0.0,
        }
    }

    #[test]
    fn products_by_phases_are_the_convolution_and_its_gradients() {
        for conv in shapes() {
            let Conv1d { samples, length, channels, filters, kernel } = conv;
            let x = wave(samples * length * channels, 0.7);
            let dy = wave(samples * length * filters, 0.9);
            let w = wave(conv.weights(), 0.3);
            for together in [1, 2, 3, 8] {
                let spread = |from: usize, to: usize, tap: &dyn Fn(usize, usize, usize) -> f64| {
                    let mut spread = vec![0.0; conv.spread(together)];
                    for j in 0..together {
                        for k in 0..kernel {
                            for c in 0..from {
                                for o in 0..to {
                                    spread[(((k + j) * from + c) * together + j) * to + o] = tap(k, c, o);
                                }
                            }
                        }
                    }
                    spread
                };
                let straight = |k: usize, c: usize, o: usize| w[(k * channels + c) * filters + o];
                let mut y = vec![9.0; conv.output_rows() * filters];
                let weights = spread(channels, filters, &straight);
                conv.forward(together).run_on_cpu(&padded(&conv, &x, channels), &weights, &mut y);
                let weights = spread(filters, channels, &|k, o, c| straight(kernel - 1 - k, c, o));
                let mut dx = vec![9.0; conv.output_rows() * channels];
                conv.input_gradient(together).run_on_cpu(&padded(&conv, &dy, filters), &weights, &mut dx);
                compare(&conv, &x, &dy, &w, &y, &dx);
            }
        }
    }

    /// y and dx against the definition.
    fn compare(conv: &Conv1d, x: &[f64], dy: &[f64], w: &[f64], y: &[f64], dx: &[f64]) {
        let Conv1d { samples, length, channels, filters, kernel } = *conv;
        let before = conv.before() as isize;
        {
            for n in 0..samples {
                for t in 0..length {
                    let row = n * conv.stride() + t;
                    for o in 0..filters {
                        let mut sum = 0.0;
                        for k in 0..kernel {
                            for c in 0..channels {
                                let t = t as isize + k as isize - before;
                                sum += at(x, conv, channels, n, t, c) * w[(k * channels + c) * filters + o];
                            }
                        }
                        assert!((y[row * filters + o] - sum).abs() < 1e-12, "{conv:?} {n} {t} {o}");
                    }
                    for c in 0..channels {
                        let mut sum = 0.0;
                        for k in 0..kernel {
                            for o in 0..filters {
                                let t = t as isize - k as isize + before;
                                sum += at(dy, conv, filters, n, t, o) * w[(k * channels + c) * filters + o];
                            }
                        }
                        assert!((dx[row * channels + c] - sum).abs() < 1e-12, "{conv:?} {n} {t} {c}");
                    }
                }
            }
        }
    }

    #[test]
    fn parts_of_the_weight_gradient_sum_to_it() {
        for conv in shapes() {
            let Conv1d { samples, length, channels, filters, kernel } = conv;
            let x = wave(samples * length * channels, 0.7);
            let dy = wave(samples * length * filters, 0.9);
            for phases in [0, kernel + 3, 1000] {
                let product = conv.weight_gradient(phases);
                assert!(product.batches >= kernel);
                let mut parts = vec![9.0; product.batches * conv.weights()];
                product.run_on_cpu(&padded(&conv, &x, channels), &padded(&conv, &dy, filters), &mut parts);
                for k in 0..kernel {
                    for c in 0..channels {
                        for o in 0..filters {
                            let mut sum = 0.0;
                            for n in 0..samples {
                                for t in 0..length {
                                    let from = t as isize + k as isize - conv.before() as isize;
                                    sum += at(&x, &conv, channels, n, from, c)
                                        * at(&dy, &conv, filters, n, t as isize, o);
                                }
                            }
                            let i = (k * channels + c) * filters + o;
                            let found: f64 = parts.iter().skip(i).step_by(conv.weights()).sum();
                            assert!((found - sum).abs() < 1e-12, "{conv:?} {phases} {k} {c} {o}");
                        }
                    }
                }
            }
        }
    }
}
