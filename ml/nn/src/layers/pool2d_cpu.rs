//! Pooling of images on the CPU as operations of burn, on [`crate::operations`].

use crate::operations::{Float, MaxPool2d, upsample2d, upsample2d_backward};
use burn::{
    backend::{
        Autodiff, Flex,
        autodiff::{
            checkpoint::{base::Checkpointer, strategy::NoCheckpointing},
            grads::Gradients,
            ops::{Backward, Ops, OpsKind},
        },
        flex::FlexTensor,
    },
    tensor::{DType, Element, Tensor, TensorData},
};
use std::sync::Arc;

/// What is done to every plane of a tensor.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    MaxPool(MaxPool2d, Arc<[u8]>),
    Unpool(MaxPool2d, Arc<[u8]>),
    Upsample { window: [usize; 2], from: [usize; 2], to: [usize; 2] },
}

/// The maxima and where they were, if the tensor is on the CPU.
pub(super) fn max_pool(x: &Tensor<4>, pool: MaxPool2d) -> Option<(Tensor<4>, Arc<[u8]>)> {
    let [samples, channels, ..] = x.dims();
    let [height, width] = pool.output_size();
    let shape = [samples, channels, height, width];
    let plain = x.clone().try_into_primitive::<Flex>().ok();
    let values = match plain {
        Some(x) => x,
        None => x.clone().try_into_primitive::<Autodiff<Flex>>().ok()?.primitive().clone(),
    };
    let (y, switches) = match x.dtype() {
        DType::F64 => maxima::<f64>(pool, &values, shape),
        DType::F32 => maxima::<f32>(pool, &values, shape),
        _ => return None,
    };
    let kind = Kind::MaxPool(pool, switches.clone());
    Some((attach(x, kind, |_| y)?, switches))
}

fn maxima<E: Float + Element + bytemuck::Pod>(
    pool: MaxPool2d,
    x: &FlexTensor,
    shape: [usize; 4],
) -> (FlexTensor, Arc<[u8]>) {
    let n = shape.iter().product();
    let (mut y, mut switches) = (vec![E::default(); n], vec![0; n]);
    pool.forward(values::<E>(&x.to_contiguous()), &mut y, &mut switches);
    (FlexTensor::from_data(TensorData::new(y, shape)), switches.into())
}

/// The output of `kind`, of `shape`, if the tensor is on the CPU.
pub(super) fn apply(x: &Tensor<4>, kind: Kind, shape: [usize; 4]) -> Option<Tensor<4>> {
    if !matches!(x.dtype(), DType::F32 | DType::F64) {
        return None;
    }
    let forward = kind.clone();
    attach(x, kind, |x| run(&forward, x, &shape, true))
}

fn attach(x: &Tensor<4>, kind: Kind, output: impl FnOnce(&FlexTensor) -> FlexTensor) -> Option<Tensor<4>> {
    if !x.is_autodiff() {
        let x = x.clone().try_into_primitive::<Flex>().ok()?;
        return Some(Tensor::from_primitive::<Flex>(output(&x)));
    }
    let shape = x.dims();
    let x = x.clone().try_into_primitive::<Autodiff<Flex>>().ok()?;
    let y = output(x.primitive());
    let pass = Pass { kind, shape };
    let y = match pass.prepare::<NoCheckpointing>([x.node()]).compute_bound().stateful() {
        OpsKind::Tracked(prep) => prep.finish((), y),
        OpsKind::UnTracked(prep) => prep.finish(y),
    };
    Some(Tensor::from_primitive::<Autodiff<Flex>>(y))
}

#[derive(Clone, Debug)]
struct Pass {
    kind: Kind,
    /// Of the input.
    shape: [usize; 4],
}

impl Backward<Flex, 1> for Pass {
    type State = ();

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let [for_x] = ops.parents;
        let dy = grads.consume::<Flex>(&ops.node);
        if let Some(node) = for_x {
            grads.register::<Flex>(node.id, run(&self.kind, &dy, &self.shape, false));
        }
    }
}

/// The output from the input (`forward`), or the input's gradient from the output's.
fn run(kind: &Kind, from: &FlexTensor, shape: &[usize; 4], forward: bool) -> FlexTensor {
    match from.dtype() {
        DType::F64 => run_as::<f64>(kind, from, shape, forward),
        _ => run_as::<f32>(kind, from, shape, forward),
    }
}

fn run_as<E: Float + Element + bytemuck::Pod>(
    kind: &Kind,
    from: &FlexTensor,
    shape: &[usize; 4],
    forward: bool,
) -> FlexTensor {
    let from = from.to_contiguous();
    let from = values::<E>(&from);
    let mut to = vec![E::default(); shape.iter().product()];
    match kind {
        // The gradient of a maximum goes where the maximum was.
        Kind::MaxPool(pool, switches) => pool.unpool(from, switches, &mut to),
        Kind::Unpool(pool, switches) if forward => pool.unpool(from, switches, &mut to),
        Kind::Unpool(pool, switches) => pool.unpool_backward(from, switches, &mut to),
        Kind::Upsample { window, from: small, to: large } if forward => {
            upsample2d(*window, *small, *large, from, &mut to);
        }
        Kind::Upsample { window, from: small, to: large } => {
            upsample2d_backward(*window, *small, *large, from, &mut to);
        }
    }
    FlexTensor::from_data(TensorData::new(to, *shape))
}

/// The values of a contiguous tensor.
fn values<E: Element + bytemuck::Pod>(tensor: &FlexTensor) -> &[E] {
    tensor.as_slice().unwrap_or_default()
}
