//! The convolution of images on the CPU as an operation of burn, on [`crate::kernels::conv2d`].
//!
//! The output and the gradients are new tensors; the panels in between are kept by the thread that called, for the next
//! convolution.

use super::convolution_cpu::{CpuConvolution, apply};
use crate::{
    kernels::{
        conv2d::operation::{Convolution2d, Scratch},
        real::Real,
    },
    operations::Conv2dConfig,
};
use burn::{
    backend::flex::FlexTensor,
    tensor::{DType, Element, Tensor, TensorData},
};
use std::{any::Any, cell::RefCell};

/// The convolution of [`super::Conv2d`], if the tensors are on the CPU; otherwise nothing.
pub(super) fn conv2d(
    x: &Tensor<4>,
    weight: &Tensor<4>,
    bias: &Tensor<1>,
    config: Conv2dConfig,
) -> Option<Tensor<4>> {
    apply(Convolution { config }, x, weight, bias)
}

#[derive(Clone, Copy, Debug)]
struct Convolution {
    config: Conv2dConfig,
}

impl CpuConvolution for Convolution {
    fn relu(self) -> bool {
        self.config.relu
    }

    fn forward(self, x: &FlexTensor, weight: &FlexTensor, bias: &FlexTensor) -> FlexTensor {
        let (x, weight, bias) = (x.to_contiguous(), weight.to_contiguous(), bias.to_contiguous());
        match x.dtype() {
            DType::F64 => self.output::<f64>(&x, &weight, &bias),
            _ => self.output::<f32>(&x, &weight, &bias),
        }
    }

    fn gradients(
        self,
        [x, weight, dy]: [&FlexTensor; 3],
        y: Option<&FlexTensor>,
        wants_x: bool,
    ) -> [Option<FlexTensor>; 3] {
        let (x, weight, dy) = (x.to_contiguous(), weight.to_contiguous(), dy.to_contiguous());
        let y = y.map(FlexTensor::to_contiguous);
        match x.dtype() {
            DType::F64 => self.all_gradients::<f64>([&x, &weight, &dy], y.as_ref(), wants_x),
            _ => self.all_gradients::<f32>([&x, &weight, &dy], y.as_ref(), wants_x),
        }
    }
}

impl Convolution {
    fn output<E: Real + Element + bytemuck::Pod>(
        self,
        x: &FlexTensor,
        weight: &FlexTensor,
        bias: &FlexTensor,
    ) -> FlexTensor {
        let (samples, mut operation) = self.operation::<E>(x);
        let [height, width] = self.config.shape(size(x)).output();
        let shape = [samples, self.config.filters, height, width];
        let mut y = vec![E::default(); shape.iter().product()];
        operation.forward(values::<E>(x), values(weight), values(bias), &mut y);
        keep(operation.into_scratch());
        FlexTensor::from_data(TensorData::new(y, shape))
    }

    /// Of x, the weights and the bias; x's only if it is wanted.
    fn all_gradients<E: Real + Element + bytemuck::Pod>(
        self,
        [x, weight, dy]: [&FlexTensor; 3],
        y: Option<&FlexTensor>,
        wants_x: bool,
    ) -> [Option<FlexTensor>; 3] {
        let (_, mut operation) = self.operation::<E>(x);
        let zeros = |n: usize| vec![E::default(); n];
        let mut dx = wants_x.then(|| zeros(values::<E>(x).len()));
        let (mut dw, mut db) = (zeros(values::<E>(weight).len()), zeros(self.config.filters));
        let from = [values::<E>(x), values(weight), y.map(values).unwrap_or_default(), values(dy)];
        operation.backward(from, dx.as_deref_mut(), &mut dw, &mut db);
        keep(operation.into_scratch());
        let tensor = |values: Vec<E>, shape: &[usize]| FlexTensor::from_data(TensorData::new(values, shape));
        [
            dx.map(|dx| tensor(dx, x.layout().shape())),
            Some(tensor(dw, weight.layout().shape())),
            Some(tensor(db, &[self.config.filters])),
        ]
    }

    fn operation<E: Real>(self, x: &FlexTensor) -> (usize, Convolution2d<E>) {
        let shape = self.config.shape(size(x));
        (x.layout().shape()[0], Convolution2d::with_scratch(shape, self.config.relu, kept()))
    }
}

/// Height and width.
fn size(x: &FlexTensor) -> [usize; 2] {
    let shape = x.layout().shape();
    [shape[2], shape[3]]
}

/// The values of a contiguous tensor.
fn values<E: Element + bytemuck::Pod>(tensor: &FlexTensor) -> &[E] {
    tensor.as_slice().unwrap_or_default()
}

thread_local! {
    /// One for each element type.
    static KEPT: RefCell<Vec<Box<dyn Any>>> = const { RefCell::new(Vec::new()) };
}

fn kept<E: Real>() -> Scratch<E> {
    KEPT.with_borrow_mut(|kept| {
        let scratch = kept.iter_mut().find_map(|scratch| scratch.downcast_mut::<Scratch<E>>());
        scratch.map(std::mem::take).unwrap_or_default()
    })
}

fn keep<E: Real>(scratch: Scratch<E>) {
    KEPT.with_borrow_mut(|kept| {
        match kept.iter_mut().find_map(|scratch| scratch.downcast_mut::<Scratch<E>>()) {
            Some(place) => *place = scratch,
            None => kept.push(Box::new(scratch)),
        }
    });
}
