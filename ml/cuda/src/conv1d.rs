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

    /// x `[padded_rows, channels]` · W `[kernel · channels, filters]` → y `[output_rows, filters]`, without bias.
    pub fn forward(&self) -> Product {
        self.along(self.channels, self.filters, self.before())
    }

    /// dy `[padded_rows, filters]` · W `[kernel · filters, channels]`, its taps backwards → dx `[output_rows, channels]`.
    pub fn input_gradient(&self) -> Product {
        self.along(self.filters, self.channels, self.kernel - 1 - self.before())
    }

    fn along(&self, from: usize, to: usize, before: usize) -> Product {
        let phases = self.phases(0);
        Product {
            rows: (self.samples * self.stride()).div_ceil(phases),
            columns: to,
            inner: self.kernel * from,
            batches: phases,
            a: Operand {
                offset: (self.margin() - before) * from,
                leading: phases * from,
                stride: from,
                transposed: false,
            },
            b: Operand { offset: 0, leading: to, stride: 0, transposed: false },
            c: Operand { offset: 0, leading: phases * to, stride: to, transposed: false },
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
            let before = conv.before() as isize;

            let mut y = vec![9.0; conv.output_rows() * filters];
            conv.forward().run_on_cpu(&padded(&conv, &x, channels), &w, &mut y);
            let mut turned = vec![0.0; w.len()];
            for k in 0..kernel {
                for c in 0..channels {
                    for o in 0..filters {
                        turned[((kernel - 1 - k) * filters + o) * channels + c] =
                            w[(k * channels + c) * filters + o];
                    }
                }
            }
            let mut dx = vec![9.0; conv.output_rows() * channels];
            conv.input_gradient().run_on_cpu(&padded(&conv, &dy, filters), &turned, &mut dx);
            for n in 0..samples {
                for t in 0..length {
                    let row = n * conv.stride() + t;
                    for o in 0..filters {
                        let mut sum = 0.0;
                        for k in 0..kernel {
                            for c in 0..channels {
                                let t = t as isize + k as isize - before;
                                sum += at(&x, &conv, channels, n, t, c) * w[(k * channels + c) * filters + o];
                            }
                        }
                        assert!((y[row * filters + o] - sum).abs() < 1e-12, "{conv:?} {n} {t} {o}");
                    }
                    for c in 0..channels {
                        let mut sum = 0.0;
                        for k in 0..kernel {
                            for o in 0..filters {
                                let t = t as isize - k as isize + before;
                                sum += at(&dy, &conv, filters, n, t, o) * w[(k * channels + c) * filters + o];
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
