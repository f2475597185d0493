//! The convolution on the CPU: groups of samples in parallel, each one an im2col and a matrix product on one thread.
//!
//! ```text
//!   col[c·K + k, t] = x[c, t + k − left]        [n_channels·K, length], a few samples side by side
//!   Y = W·col + b      dW += dY·colᵀ      db += Σ_t dY      dX = col2im(Wᵀ·dY)
//! ```
//! burn's CPU backend takes the gradient of the weights through a convolution whose kernel is as long as the series,
//! which makes a training step several times slower. Sums over samples are taken in a fixed order, whatever the
//! number of threads, so equal inputs give equal bytes.

use burn::{
    backend::{
        Autodiff, Flex,
        autodiff::{
            NodeId,
            checkpoint::{base::Checkpointer, strategy::NoCheckpointing},
            grads::Gradients,
            ops::{Backward, Ops, OpsKind},
        },
        flex::FlexTensor,
        tensor::FloatTensor,
    },
    tensor::{DType, Element, Tensor, TensorData},
};
use gemm::Parallelism;
use rayon::prelude::*;

/// Partial sums of the weights' gradient; their number does not depend on the number of threads.
const PARTIAL_SUMS: usize = 8;
/// Time points that share a matrix product, about.
const GROUP_POINTS: usize = 288;

/// The convolution of [`super::Conv1d`] if the tensors are on the CPU, otherwise nothing.
pub(super) fn conv1d(x: &Tensor<3>, weight: &Tensor<3>, bias: &Tensor<1>) -> Option<Tensor<3>> {
    if !matches!(x.dtype(), DType::F32 | DType::F64) {
        return None;
    }
    if x.is_autodiff() {
        let x = x.clone().try_into_primitive::<Autodiff<Flex>>().ok()?;
        let weight = weight.clone().autodiff().try_into_primitive::<Autodiff<Flex>>().ok()?;
        let bias = bias.clone().autodiff().try_into_primitive::<Autodiff<Flex>>().ok()?;
        Some(Tensor::from_primitive::<Autodiff<Flex>>(differentiable(x, weight, bias)))
    } else {
        let x = x.clone().try_into_primitive::<Flex>().ok()?;
        let weight = weight.clone().try_into_primitive::<Flex>().ok()?;
        let bias = bias.clone().try_into_primitive::<Flex>().ok()?;
        Some(Tensor::from_primitive::<Flex>(forward(&x, &weight, &bias)))
    }
}

type Tracked = FloatTensor<Autodiff<Flex>>;

#[derive(Debug)]
struct Convolution;

impl Backward<Flex, 3> for Convolution {
    /// Where x and the weights are kept.
    type State = (NodeId, NodeId);

    fn backward(self, ops: Ops<Self::State, 3>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let [for_x, for_weight, for_bias] = ops.parents;
        let output = grads.consume::<Flex>(&ops.node);
        let x: FlexTensor = checkpointer.retrieve_node_output(ops.state.0);
        let weight: FlexTensor = checkpointer.retrieve_node_output(ops.state.1);
        let found = backward(&x, &weight, &output, for_x.is_some());
        if let (Some(node), Some(gradient)) = (for_x, found.x) {
            grads.register::<Flex>(node.id, gradient);
        }
        if let Some(node) = for_weight {
            grads.register::<Flex>(node.id, found.weight);
        }
        if let Some(node) = for_bias {
            grads.register::<Flex>(node.id, found.bias);
        }
    }
}

fn differentiable(x: Tracked, weight: Tracked, bias: Tracked) -> Tracked {
    let nodes = [x.node(), weight.node(), bias.node()];
    match Convolution.prepare::<NoCheckpointing>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(mut prep) => {
            let state = (prep.checkpoint(&x), prep.checkpoint(&weight));
            prep.finish(state, forward(x.primitive(), weight.primitive(), bias.primitive()))
        }
        OpsKind::UnTracked(prep) => prep.finish(forward(x.primitive(), weight.primitive(), bias.primitive())),
    }
}

/// Gradients of what went in.
struct Found {
    x: Option<FlexTensor>,
    weight: FlexTensor,
    bias: FlexTensor,
}

fn forward(x: &FlexTensor, weight: &FlexTensor, bias: &FlexTensor) -> FlexTensor {
    let (x, weight, bias) = (x.to_contiguous(), weight.to_contiguous(), bias.to_contiguous());
    let shape = Shape::of(&x, &weight);
    match x.dtype() {
        DType::F64 => shape.forward::<f64>(values(&x), values(&weight), values(&bias)),
        _ => shape.forward::<f32>(values(&x), values(&weight), values(&bias)),
    }
}

fn backward(x: &FlexTensor, weight: &FlexTensor, output: &FlexTensor, wants_x: bool) -> Found {
    let (x, weight, output) = (x.to_contiguous(), weight.to_contiguous(), output.to_contiguous());
    let shape = Shape::of(&x, &weight);
    match x.dtype() {
        DType::F64 => shape.backward::<f64>(values(&x), values(&weight), values(&output), wants_x),
        _ => shape.backward::<f32>(values(&x), values(&weight), values(&output), wants_x),
    }
}

/// The values of a contiguous tensor.
fn values<E: Scalar>(tensor: &FlexTensor) -> &[E] {
    tensor.as_slice().unwrap_or_default()
}

trait Scalar: Element + bytemuck::Pod + std::ops::AddAssign + std::iter::Sum {
    const ZERO: Self;
    const ONE: Self;
}

impl Scalar for f32 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;
}

impl Scalar for f64 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;
}

#[derive(Clone, Copy, Debug)]
struct Shape {
    samples: usize,
    channels: usize,
    filters: usize,
    kernel: usize,
    length: usize,
}

impl Shape {
    fn of(x: &FlexTensor, weight: &FlexTensor) -> Self {
        let (x, weight) = (x.layout().shape(), weight.layout().shape());
        Self { samples: x[0], channels: x[1], length: x[2], filters: weight[0], kernel: weight[2] }
    }

    fn taps(&self) -> usize {
        self.channels * self.kernel
    }

    /// The part of row `k` of im2col that lies within the series, and where it starts there.
    fn overlap(&self, k: usize) -> (std::ops::Range<usize>, usize) {
        let left = (self.kernel - 1) / 2;
        let start = left.saturating_sub(k).min(self.length);
        let end = (self.length + left).saturating_sub(k).clamp(start, self.length);
        (start..end, (start + k).saturating_sub(left).min(self.length))
    }

    /// Samples that share a matrix product: short series are laid side by side, so that a product has enough
    /// columns for its weights to be packed once for many.
    fn group(&self) -> usize {
        (GROUP_POINTS / self.length.max(1)).max(1)
    }

    fn inputs(&self) -> usize {
        self.channels * self.length
    }

    fn outputs(&self) -> usize {
        self.filters * self.length
    }

    /// im2col of one sample, which takes the columns from `at` on of rows of `width`.
    fn columns<E: Scalar>(&self, x: &[E], columns: &mut [E], width: usize, at: usize) {
        for (row, to) in columns.chunks_exact_mut(width).enumerate() {
            let (channel, k) = (row / self.kernel, row % self.kernel);
            let (range, from) = self.overlap(k);
            let from = channel * self.length + from;
            let to = &mut to[at..at + self.length];
            to[..range.start].fill(E::ZERO);
            to[range.end..].fill(E::ZERO);
            to[range.clone()].copy_from_slice(&x[from..from + range.len()]);
        }
    }

    /// col2im of one sample: the transpose of [`Self::columns`], added to `x`.
    fn add_columns<E: Scalar>(&self, columns: &[E], x: &mut [E], width: usize, at: usize) {
        for (row, from) in columns.chunks_exact(width).enumerate() {
            let (channel, k) = (row / self.kernel, row % self.kernel);
            let (range, to) = self.overlap(k);
            let to = channel * self.length + to;
            let from = &from[at + range.start..at + range.end];
            x[to..to + from.len()].iter_mut().zip(from).for_each(|(x, c)| *x += *c);
        }
    }

    fn forward<E: Scalar>(&self, x: &[E], weight: &[E], bias: &[E]) -> FlexTensor {
        let (inputs, outputs, group) = (self.inputs(), self.outputs(), self.group());
        let mut y = vec![E::ZERO; self.samples * outputs];
        let weight = Matrix::new(weight, self.filters, self.taps());
        y.par_chunks_mut(group * outputs).zip(x.par_chunks(group * inputs)).for_each_init(
            || Scratch::new(self),
            |scratch, (y, x)| {
                let width = x.len() / inputs * self.length;
                let columns = self.group_columns(x, &mut scratch.columns);
                let rows = &mut scratch.rows[..self.filters * width];
                rows.chunks_exact_mut(width).zip(bias).for_each(|(row, b)| row.fill(*b));
                add_product(weight, columns, rows);
                for (sample, y) in y.chunks_exact_mut(outputs).enumerate() {
                    let points = sample * self.length..(sample + 1) * self.length;
                    let rows = rows.chunks_exact(width).map(|row| &row[points.clone()]);
                    y.chunks_exact_mut(self.length).zip(rows).for_each(|(y, row)| y.copy_from_slice(row));
                }
            },
        );
        FlexTensor::from_data(TensorData::new(y, [self.samples, self.filters, self.length]))
    }

    /// im2col of the samples in `x`, side by side.
    fn group_columns<'a, E: Scalar>(&self, x: &[E], columns: &'a mut [E]) -> Matrix<'a, E> {
        let width = x.len() / self.inputs() * self.length;
        let columns = &mut columns[..self.taps() * width];
        for (sample, x) in x.chunks_exact(self.inputs()).enumerate() {
            self.columns(x, columns, width, sample * self.length);
        }
        Matrix::new(columns, self.taps(), width)
    }

    fn backward<E: Scalar>(&self, x: &[E], weight: &[E], output: &[E], wants_x: bool) -> Found {
        let (inputs, outputs) = (self.inputs(), self.outputs());
        let part = self.samples.div_ceil(PARTIAL_SUMS).max(1);
        // Where the input's gradient is not wanted, every part gets an empty slice.
        let mut to_x = vec![E::ZERO; if wants_x { self.samples * inputs } else { 0 }];
        let mut x_parts: Vec<&mut [E]> = to_x.chunks_mut(part * inputs).collect();
        x_parts.resize_with(self.samples.div_ceil(part), Default::default);
        let weight = Matrix::new(weight, self.filters, self.taps());
        let sums: Vec<_> = x_parts
            .into_par_iter()
            .zip(x.par_chunks(part * inputs))
            .zip(output.par_chunks(part * outputs))
            .map(|((to_x, x), output)| self.backward_part(x, weight, output, to_x))
            .collect();
        let mut sums = sums.into_iter();
        let zeros = || (vec![E::ZERO; weight.rows * weight.columns], vec![E::ZERO; self.filters]);
        let (mut weight_sum, mut bias_sum) = sums.next().unwrap_or_else(zeros);
        for (weight, bias) in sums {
            weight_sum.iter_mut().zip(weight).for_each(|(sum, part)| *sum += part);
            bias_sum.iter_mut().zip(bias).for_each(|(sum, part)| *sum += part);
        }
        let tensor = |values: Vec<E>, shape: &[usize]| FlexTensor::from_data(TensorData::new(values, shape));
        Found {
            x: wants_x.then(|| tensor(to_x, &[self.samples, self.channels, self.length])),
            weight: tensor(weight_sum, &[self.filters, self.channels, self.kernel]),
            bias: tensor(bias_sum, &[self.filters]),
        }
    }

    /// The gradients of the weights and the bias summed over some samples; that of the input into `to_x`, unless
    /// it is empty.
    fn backward_part<E: Scalar>(
        &self,
        x: &[E],
        weight: Matrix<'_, E>,
        output: &[E],
        to_x: &mut [E],
    ) -> (Vec<E>, Vec<E>) {
        let (inputs, outputs, group) = (self.inputs(), self.outputs(), self.group());
        let mut scratch = Scratch::new(self);
        let mut weight_sum = vec![E::ZERO; self.filters * self.taps()];
        let mut bias_sum = vec![E::ZERO; self.filters];
        let mut to_x = to_x.chunks_mut(group * inputs);
        for (x, output) in x.chunks(group * inputs).zip(output.chunks(group * outputs)) {
            let width = x.len() / inputs * self.length;
            let rows = &mut scratch.rows[..self.filters * width];
            for (sample, output) in output.chunks_exact(outputs).enumerate() {
                let points = sample * self.length..(sample + 1) * self.length;
                let rows = rows.chunks_exact_mut(width).map(|row| &mut row[points.clone()]);
                rows.zip(output.chunks_exact(self.length)).for_each(|(row, dy)| row.copy_from_slice(dy));
            }
            let sums = rows.chunks_exact(width).map(|row| row.iter().copied().sum::<E>());
            bias_sum.iter_mut().zip(sums).for_each(|(bias, sum)| *bias += sum);
            let gradient = Matrix::new(rows, self.filters, width);
            let columns = self.group_columns(x, &mut scratch.columns);
            add_product(gradient, columns.transposed(), &mut weight_sum);
            if let Some(to_x) = to_x.next() {
                let columns = &mut scratch.columns[..self.taps() * width];
                columns.fill(E::ZERO);
                add_product(weight.transposed(), gradient, columns);
                for (sample, to_x) in to_x.chunks_exact_mut(inputs).enumerate() {
                    self.add_columns(columns, to_x, width, sample * self.length);
                }
            }
        }
        (weight_sum, bias_sum)
    }
}

/// What one thread writes on while it works through groups of samples.
struct Scratch<E> {
    columns: Vec<E>,
    rows: Vec<E>,
}

impl<E: Scalar> Scratch<E> {
    fn new(shape: &Shape) -> Self {
        let width = shape.group() * shape.length;
        Self { columns: vec![E::ZERO; shape.taps() * width], rows: vec![E::ZERO; shape.filters * width] }
    }
}

/// A matrix over values of someone else.
#[derive(Clone, Copy)]
struct Matrix<'a, E> {
    values: &'a [E],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a, E> Matrix<'a, E> {
    /// Row-major values.
    fn new(values: &'a [E], rows: usize, columns: usize) -> Self {
        assert_eq!(values.len(), rows * columns, "a matrix of {rows} x {columns}");
        Self { values, rows, columns, row_stride: columns, column_stride: 1 }
    }

    fn transposed(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }
}

/// `to += a·b` on this thread, `to` row-major.
fn add_product<E: Scalar>(a: Matrix<'_, E>, b: Matrix<'_, E>, to: &mut [E]) {
    assert_eq!(a.columns, b.rows, "inner dimensions");
    assert_eq!(to.len(), a.rows * b.columns, "outer dimensions");
    // SAFETY: `Matrix::new` and the assertions above keep every access within the three slices, and `to` is
    // borrowed exclusively.
    #[allow(unsafe_code)] // gemm has no safe interface
    unsafe {
        gemm::gemm(
            a.rows,
            b.columns,
            a.columns,
            to.as_mut_ptr(),
            1,
            b.columns as isize,
            true,
            a.values.as_ptr(),
            a.column_stride as isize,
            a.row_stride as isize,
            b.values.as_ptr(),
            b.column_stride as isize,
            b.row_stride as isize,
            E::ONE,
            E::ONE,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::layers::gradient_check::{ramp, tensor};
    use burn::tensor::{module::conv1d as burn_conv1d, ops::ConvOptions};

    #[test]
    fn equals_burn_s_convolution_and_its_gradients() {
        for (samples, kernel, length) in
            [(1, 3, 5), (2, 5, 7), (37, 3, 6), (3, 9, 4), (700, 3, 3), (3, 5, 300)]
        {
            let (channels, filters) = (3, 2);
            let x = tensor::<3>(&ramp(samples * channels * length, 1), [samples, channels, length]);
            let w = tensor::<3>(&ramp(filters * channels * kernel, 2), [filters, channels, kernel]);
            let b = tensor::<1>(&ramp(filters, 3), [filters]);
            let weights = tensor::<3>(&ramp(samples * filters * length, 4), [samples, filters, length]);
            let gradients = |own: bool| {
                let (x, w, b) =
                    (x.clone().require_grad(), w.clone().require_grad(), b.clone().require_grad());
                let y = if own {
                    conv1d(&x, &w, &b).unwrap()
                } else {
                    let options = ConvOptions::new([1], [(kernel - 1) / 2], [1], 1);
                    burn_conv1d(x.clone(), w.clone(), Some(b.clone()), options)
                };
                let g = (y.clone() * weights.clone()).sum().backward();
                let flat = |data: TensorData| data.try_into_vec::<f64>().unwrap();
                [
                    flat(y.inner().into_data()),
                    flat(x.grad(&g).unwrap().into_data()),
                    flat(w.grad(&g).unwrap().into_data()),
                    flat(b.grad(&g).unwrap().into_data()),
                ]
            };
            for (own, burn) in gradients(true).iter().zip(&gradients(false)) {
                assert_eq!(own.len(), burn.len());
                assert!(own.iter().zip(burn).all(|(a, b)| (a - b).abs() < 1e-12), "{own:?} != {burn:?}");
            }
        }
    }

    #[test]
    fn no_samples_give_zero_gradients() {
        let x = tensor::<3>(&[], [0, 2, 5]);
        let w = tensor::<3>(&ramp(18, 2), [3, 2, 3]).require_grad();
        let b = tensor::<1>(&ramp(3, 3), [3]).require_grad();
        let y = conv1d(&x, &w, &b).unwrap();
        assert_eq!(y.dims(), [0, 3, 5]);
    }
}
