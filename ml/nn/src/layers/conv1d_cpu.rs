//! The convolution on the CPU as an operation of burn: tensors go into panels, [`crate::kernels::conv1d`] does the rest.
//!
//! Beside the kernels' arithmetic every tensor is copied once, `[n_samples, n_channels, length]` ↔ panels. Groups of
//! samples go in parallel; sums over samples are taken in their order, so equal inputs give equal bytes whatever the
//! number of threads.

use super::{
    conv1d::Padding,
    convolution_cpu::{CpuConvolution, apply},
};
use crate::kernels::{
    conv1d::{Conv1dShape, Filters, WeightGradient, add_bias_gradient},
    maps::{Maps, Side},
    real::Real,
};
use burn::{
    backend::flex::FlexTensor,
    tensor::{DType, Element, Tensor, TensorData},
};
use rayon::prelude::*;

/// Samples that one thread works on together.
const GROUP: usize = 4;
/// Samples whose maps are in memory at once.
const PIECE: usize = 64;

/// The convolution of [`super::Conv1d`], followed by `max(y, 0)` if so asked, if the tensors are on the CPU; otherwise
/// nothing.
pub(super) fn conv1d(
    x: &Tensor<3>,
    weight: &Tensor<3>,
    bias: &Tensor<1>,
    padding: Padding,
    relu: bool,
) -> Option<Tensor<3>> {
    apply(Convolution { padding, relu }, x, weight, bias)
}

#[derive(Clone, Copy, Debug)]
struct Convolution {
    padding: Padding,
    relu: bool,
}

impl CpuConvolution for Convolution {
    fn relu(self) -> bool {
        self.relu
    }

    fn forward(self, x: &FlexTensor, weight: &FlexTensor, bias: &FlexTensor) -> FlexTensor {
        let (x, weight, bias) = (x.to_contiguous(), weight.to_contiguous(), bias.to_contiguous());
        let shape = self.shape(&x, &weight);
        match x.dtype() {
            DType::F64 => self.output::<f64>(shape, &x, &weight, &bias),
            _ => self.output::<f32>(shape, &x, &weight, &bias),
        }
    }

    fn gradients(
        self,
        [x, weight, dy]: [&FlexTensor; 3],
        y: Option<&FlexTensor>,
        wants_x: bool,
    ) -> [Option<FlexTensor>; 3] {
        let (x, weight, dy) = (x.to_contiguous(), weight.to_contiguous(), dy.to_contiguous());
        let shape = self.shape(&x, &weight);
        let y = y.map(FlexTensor::to_contiguous);
        match x.dtype() {
            DType::F64 => gradients::<f64>(shape, [&x, &weight, &dy], y.as_ref(), wants_x),
            _ => gradients::<f32>(shape, [&x, &weight, &dy], y.as_ref(), wants_x),
        }
    }
}

impl Convolution {
    fn shape(self, x: &FlexTensor, weight: &FlexTensor) -> Conv1dShape {
        let (x, weight) = (x.layout().shape(), weight.layout().shape());
        let (channels, filters, kernel) = (x[1], weight[0], weight[2]);
        let side = |own: usize, other: usize| match own {
            1 if other > 1 => Side::SERIES,
            _ => Side::panels_of(own),
        };
        let (before, after) = self.padding.zeros(kernel);
        let (input, output) = (side(channels, filters), side(filters, channels));
        Conv1dShape { input, output, kernel, length: x[2], before, after }
    }

    fn output<E: Real + Element + bytemuck::Pod>(
        self,
        shape: Conv1dShape,
        x: &FlexTensor,
        weight: &FlexTensor,
        bias: &FlexTensor,
    ) -> FlexTensor {
        let mut filters = Filters::forward(&shape);
        filters.pack(values::<E>(weight), values(bias));
        let (from, to) = (shape.x(), shape.y());
        let x = values::<E>(x);
        let samples = x.len().checked_div(size(&from)).unwrap_or(0);
        let mut y = vec![E::default(); samples * size(&to)];
        y.par_chunks_mut((GROUP * size(&to)).max(1))
            .zip(x.par_chunks((GROUP * size(&from)).max(1)))
            .for_each_init(
                || (vec![E::default(); GROUP * from.len()], vec![E::default(); GROUP * to.len()]),
                |(x_maps, y_maps), (y, x)| {
                    let n = x.len() / size(&from);
                    let (x_maps, y_maps) = (&mut x_maps[..n * from.len()], &mut y_maps[..n * to.len()]);
                    take(&from, x, x_maps);
                    filters.apply(x_maps, y_maps, to.length);
                    give(&to, y_maps, y);
                    if self.relu {
                        y.iter_mut().for_each(|y| *y = if *y > E::default() { *y } else { E::default() });
                    }
                },
            );
        FlexTensor::from_data(TensorData::new(y, [samples, shape.output.channels, to.length]))
    }
}

fn gradients<E: Real + Element + bytemuck::Pod>(
    shape: Conv1dShape,
    [x, weight, dy]: [&FlexTensor; 3],
    y: Option<&FlexTensor>,
    wants_x: bool,
) -> [Option<FlexTensor>; 3] {
    let (from, to, into) = (shape.x(), shape.dy(), shape.dx());
    let (weight, mut dy) = (values::<E>(weight), values::<E>(dy).to_vec());
    if let Some(y) = y {
        let zero = E::default();
        dy.iter_mut().zip(values::<E>(y)).for_each(|(dy, y)| *dy = if *y > zero { *dy } else { zero });
    }
    let x = values::<E>(x);
    let (inputs, outputs) = (size(&from).max(1), size(&to).max(1));
    let samples = x.len() / inputs;
    let mut filters = Filters::backward(&shape);
    filters.pack_backward(weight);
    let mut sum = WeightGradient::zeros(shape);
    let (mut dw, mut db) = (vec![E::default(); weight.len()], vec![E::default(); shape.output.channels]);
    // Where the input's gradient is not wanted, every group gets nothing to write to.
    let mut dx = vec![E::default(); if wants_x { x.len() } else { 0 }];
    let mut to_x = dx.chunks_mut(GROUP * inputs);
    let (mut x_maps, mut dy_maps) = (Vec::new(), Vec::new());
    for (x, dy) in x.chunks(PIECE * inputs).zip(dy.chunks(PIECE * outputs)) {
        let n = x.len() / inputs;
        x_maps.resize(n * from.len(), E::default());
        dy_maps.resize(n * to.len(), E::default());
        let groups: Vec<&mut [E]> = (0..n.div_ceil(GROUP)).map(|_| to_x.next().unwrap_or_default()).collect();
        x.par_chunks(GROUP * inputs)
            .zip(x_maps.par_chunks_mut(GROUP * from.len()))
            .zip(dy.par_chunks(GROUP * outputs).zip(dy_maps.par_chunks_mut(GROUP * to.len())))
            .zip(groups)
            .for_each_init(
                || vec![E::default(); GROUP * into.len()],
                |dx_maps, (((x, x_maps), (dy, dy_maps)), dx)| {
                    take(&from, x, x_maps);
                    take(&to, dy, dy_maps);
                    if !dx.is_empty() {
                        let dx_maps = &mut dx_maps[..dx.len() / inputs * into.len()];
                        filters.apply(dy_maps, dx_maps, into.length);
                        give(&into, dx_maps, dx);
                    }
                },
            );
        sum.add(x_maps.chunks(GROUP * from.len()).zip(dy_maps.chunks(GROUP * to.len())));
        add_bias_gradient(&to, &dy_maps, &mut db);
    }
    sum.give(&mut dw);
    let tensor =
        |values: Vec<E>, shape: &[usize]| Some(FlexTensor::from_data(TensorData::new(values, shape)));
    let (channels, filters) = (shape.input.channels, shape.output.channels);
    [
        if wants_x { tensor(dx, &[samples, channels, shape.length]) } else { None },
        tensor(dw, &[filters, channels, shape.kernel]),
        tensor(db, &[filters]),
    ]
}

/// The values of a contiguous tensor.
fn values<E: Element + bytemuck::Pod>(tensor: &FlexTensor) -> &[E] {
    tensor.as_slice().unwrap_or_default()
}

/// Values of a sample in a tensor.
fn size(maps: &Maps) -> usize {
    maps.side.channels * maps.length
}

fn take<E: Real>(maps: &Maps, samples: &[E], panels: &mut [E]) {
    let samples = samples.chunks_exact(size(maps));
    samples.zip(panels.chunks_exact_mut(maps.len())).for_each(|(sample, panels)| maps.take(sample, panels));
}

fn give<E: Real>(maps: &Maps, panels: &[E], samples: &mut [E]) {
    let samples = samples.chunks_exact_mut(size(maps));
    samples.zip(panels.chunks_exact(maps.len())).for_each(|(sample, panels)| maps.give(panels, sample));
}
