//! Fully connected layers over many samples: outputs, and both gradients.
//!
//! ```text
//!   yᵀ  = Wᵀ·xᵀ + b        [outputs, samples]      W is row-major, [inputs, outputs]
//!   dxᵀ = W·dyᵀ            [inputs, samples]
//!   dW += xᵀ·dy            [inputs, outputs]
//! ```
//! Weights are read, and their gradient is summed up, where they lie. Samples are the columns of all products: values of
//! samples lie in [`Columns`].
//!
//! Cost: 2·inputs·outputs floating-point operations a sample for each of the three, samples rounded up to 32; with fewer
//! samples than that the way of the weights from memory takes longer than the arithmetic.

use super::{
    real::Real,
    tile::{Block, Depth, PANEL, Strides, tile},
};
use rayon::prelude::*;

/// Rows of a product that are worked on together.
const ROWS: usize = 24;
/// Steps of a sum on one thread; a longer one is cut into slices, which are added up in order.
const SLICE: usize = 1152;
/// Steps of a slice after which the next rows take their turn, so that what they share stays in a near cache.
const STEPS: usize = 128;

/// A matrix `[rows, columns]` in panels of columns, `[⌈columns/32⌉][rows][32]`, zero beyond the last column.
#[derive(Clone, Debug, Default)]
pub(crate) struct Columns<E> {
    rows: usize,
    values: Vec<[E; PANEL]>,
    /// Of a product: `[panel][slice of the sum][rows][32]`.
    slices: Vec<[E; PANEL]>,
}

impl<E: Real> Columns<E> {
    /// The same matrix, of as many rows and columns as named; its values are those of before.
    fn resize(&mut self, rows: usize, columns: usize) {
        self.rows = rows;
        self.values.resize(rows * columns.div_ceil(PANEL), [E::default(); PANEL]);
    }

    fn panels(&self) -> usize {
        self.values.len() / self.rows.max(1)
    }

    /// Takes over a row-major matrix with rows of `columns`, and rows of zeros up to `rows`.
    pub fn pack(&mut self, matrix: &[E], rows: usize, columns: usize) {
        self.resize(rows, columns);
        self.values.par_chunks_mut(rows).enumerate().for_each(|(panel, block)| {
            let (first, n) = (panel * PANEL, PANEL.min(columns - panel * PANEL));
            let mut matrix = matrix.chunks_exact(columns);
            for to in block {
                match matrix.next() {
                    Some(row) => to[..n].copy_from_slice(&row[first..first + n]),
                    None => to.fill(E::default()),
                }
            }
        });
    }

    /// Takes over the transpose of a row-major matrix with rows of `rows`: these become columns.
    pub fn pack_transposed(&mut self, matrix: &[E], rows: usize) {
        let columns = matrix.len() / rows;
        self.resize(rows, columns);
        self.values.par_chunks_mut(rows).zip(matrix.par_chunks(PANEL * rows)).for_each(|(block, matrix)| {
            block.par_chunks_mut(ROWS).enumerate().for_each(|(i, block)| {
                block.fill([E::default(); PANEL]);
                for (lane, row) in matrix.chunks_exact(rows).enumerate() {
                    block.iter_mut().zip(&row[i * ROWS..]).for_each(|(to, value)| to[lane] = *value);
                }
            });
        });
    }

    /// Gives the transpose as a row-major matrix with rows of `self.rows`.
    pub fn unpack_transposed(&self, matrix: &mut [E]) {
        let blocks = self.values.par_chunks(self.rows);
        matrix.par_chunks_mut(PANEL * self.rows).zip(blocks).for_each(|(matrix, block)| {
            matrix.par_chunks_mut(self.rows).enumerate().for_each(|(lane, row)| {
                row.iter_mut().zip(block).for_each(|(to, from)| *to = from[lane]);
            });
        });
    }

    /// `self = A·b` with A `[rows, b.rows]` where `strides` (of a row and of a step) say, plus `bias` in every column.
    pub fn product(&mut self, a: &[E], strides: (usize, usize), bias: &[E], rows: usize, b: &Self) {
        self.resize(rows, b.panels() * PANEL);
        let slices = b.rows.div_ceil(SLICE);
        self.slices.resize(if slices > 1 { slices * self.values.len() } else { 0 }, [E::default(); PANEL]);
        let blocks = self.values.par_chunks_mut(rows).zip(b.values.par_chunks(b.rows));
        if slices <= 1 {
            blocks.for_each(|(block, b)| {
                block.par_chunks_mut(ROWS).enumerate().for_each(|(i, block)| {
                    set_rows(block, bias.get(i * ROWS..).unwrap_or_default());
                    add_product(&a[i * ROWS * strides.0..], strides, b, block);
                });
            });
            return;
        }
        blocks.zip(self.slices.par_chunks_mut(slices * rows)).for_each(|((block, b), sums)| {
            sums.par_chunks_mut(rows).zip(b.par_chunks(SLICE)).enumerate().for_each(|(i, (sum, b))| {
                set_rows(sum, &[]);
                add_product(&a[i * SLICE * strides.1..], strides, b, sum);
            });
            set_rows(block, bias);
            for sum in sums.chunks_exact(rows) {
                let values = block.as_flattened_mut().iter_mut().zip(sum.as_flattened());
                values.for_each(|(to, value)| *to += *value);
            }
        });
    }

    /// `gradient += self·b`, or `gradient = self·b` if it is `fresh`, with `gradient` `[self.rows, columns]` row-major;
    /// columns of `self` are rows of `b`.
    pub fn outer_product(&self, b: &Self, gradient: &mut [E], fresh: bool) {
        assert_eq!(self.panels() * PANEL, b.rows, "samples");
        let columns = gradient.len() / self.rows;
        let strides = Strides { row: PANEL, step: 1, round: self.rows * PANEL, round_of_b: PANEL * PANEL };
        let depth = Depth { rounds: self.panels(), steps: PANEL };
        gradient.par_chunks_mut(ROWS * columns).enumerate().for_each(|(i, rows)| {
            let a = &self.values.as_flattened()[i * ROWS * PANEL..];
            let mut block = [[E::default(); PANEL]; ROWS];
            let block = &mut block[..rows.len() / columns];
            for (panel, b) in b.values.chunks_exact(b.rows).enumerate() {
                let (first, n) = (panel * PANEL, PANEL.min(columns - panel * PANEL));
                let places = |row: usize| row * columns + first..row * columns + first + n;
                if fresh {
                    set_rows(block, &[]);
                } else {
                    let values = block.iter_mut().enumerate();
                    values.for_each(|(row, values)| values[..n].copy_from_slice(&rows[places(row)]));
                }
                tile(a, strides, b.as_flattened(), depth, block);
                for (row, values) in block.iter().enumerate() {
                    rows[places(row)].copy_from_slice(&values[..n]);
                }
            }
        });
    }
}

/// Fills rows with one value each, those without one with zero.
fn set_rows<E: Real>(block: &mut Block<E>, values: &[E]) {
    let values = values.iter().copied().chain(std::iter::repeat(E::default()));
    block.iter_mut().zip(values).for_each(|(row, value)| row.fill(value));
}

/// `block += A·b`, all of the block's rows for some steps before the next steps.
fn add_product<E: Real>(a: &[E], (row, step): (usize, usize), b: &Block<E>, block: &mut Block<E>) {
    let strides = Strides { row, step, round: 0, round_of_b: 0 };
    for (i, b) in b.chunks(STEPS).enumerate() {
        let depth = Depth { rounds: 1, steps: b.len() };
        tile(&a[i * STEPS * step..], strides, b.as_flattened(), depth, block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::gradient_check::ramp;

    /// `[rows, depth]·[depth, columns]`, all row-major.
    fn product(a: &[f64], b: &[f64], [rows, depth, columns]: [usize; 3]) -> Vec<f64> {
        let value = |i: usize, j: usize| (0..depth).map(|p| a[i * depth + p] * b[p * columns + j]).sum();
        (0..rows * columns).map(|i| value(i / columns, i % columns)).collect()
    }

    fn transposed(a: &[f64], columns: usize) -> Vec<f64> {
        let rows = a.len() / columns;
        (0..a.len()).map(|i| a[i % rows * columns + i / rows]).collect()
    }

    fn close(found: &[f64], expected: &[f64]) {
        assert_eq!(found.len(), expected.len());
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12), "{found:?} != {expected:?}");
    }

    #[test]
    fn all_products_equal_their_definitions() {
        for [samples, inputs, outputs] in [[1, 1, 1], [3, 50, 33], [40, 2 * ROWS + 1, 7], [33, SLICE + 1, 2]]
        {
            let (x, dy) = (ramp(samples * inputs, 1), ramp(samples * outputs, 2));
            let (w, bias) = (ramp(inputs * outputs, 3), ramp(outputs, 4));
            let (mut xt, mut yt) = (Columns::default(), Columns::default());
            xt.pack_transposed(&x, inputs);
            yt.product(&w, (1, outputs), &bias, outputs, &xt);
            let mut y = vec![0.0; samples * outputs];
            yt.unpack_transposed(&mut y);
            let mut expected = product(&x, &w, [samples, inputs, outputs]);
            expected.iter_mut().enumerate().for_each(|(i, y)| *y += bias[i % outputs]);
            close(&y, &expected);

            let (mut dyt, mut dxt, mut dx) = (Columns::default(), Columns::default(), vec![0.0; x.len()]);
            dyt.pack_transposed(&dy, outputs);
            dxt.product(&w, (outputs, 1), &[], inputs, &dyt);
            dxt.unpack_transposed(&mut dx);
            close(&dx, &product(&dy, &transposed(&w, outputs), [samples, outputs, inputs]));

            let (mut rows, mut gradient) = (Columns::default(), w.clone());
            rows.pack(&dy, samples.next_multiple_of(PANEL), outputs);
            xt.outer_product(&rows, &mut gradient, false);
            let mut expected = product(&transposed(&x, inputs), &dy, [inputs, samples, outputs]);
            expected.iter_mut().zip(&w).for_each(|(g, w)| *g += w);
            close(&gradient, &expected);
            let mut again = gradient.clone();
            xt.outer_product(&rows, &mut again, true);
            xt.outer_product(&rows, &mut again, false);
            let twice = gradient.iter().zip(&w).map(|(g, w)| 2.0 * (g - w));
            close(&again, &twice.collect::<Vec<_>>());
        }
    }
}
