//! The parameters of a module as one flat vector, and that vector as a file.
//!
//! ```text
//!   module ── layout ─► [encoder.0.weight | encoder.0.bias | … | decoder.3.bias]   declaration order
//!      ▲                        │ flat [n_parameters], what ranks exchange
//!      └────────── unpack ──────┴── to_safetensors ─► names and shapes of PyTorch
//! ```

use burn::{
    module::{Module, ModuleMapper, ModuleVisitor, Param},
    tensor::{Device, Gradients, Tensor, TensorData},
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use safetensors::{Dtype, SafeTensors};
use std::{borrow::Cow, collections::HashMap, ops::Range};
use voxelflow_stage::{Error, Result};

/// One parameter tensor within the flat vector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterEntry {
    /// Path in the module, for example `encoder.0.weight`.
    pub name: String,
    /// Shape within the module, row-major.
    pub shape: Vec<usize>,
    /// Where its values lie in the flat vector.
    pub range: Range<usize>,
}

impl ParameterEntry {
    /// Weights of fully connected layers are the only matrices; PyTorch keeps them transposed.
    fn is_matrix(&self) -> bool {
        self.shape.len() == 2
    }
    fn file_shape(&self) -> Vec<usize> {
        if self.is_matrix() { vec![self.shape[1], self.shape[0]] } else { self.shape.clone() }
    }
}

/// Names and shapes of all parameters, in the order in which the module declares them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParameterLayout {
    entries: Vec<ParameterEntry>,
}

impl ParameterLayout {
    /// A layout of `(name, shape)`, in this order.
    pub fn new(parameters: impl IntoIterator<Item = (String, Vec<usize>)>) -> Self {
        let mut layout = Self::default();
        for (name, shape) in parameters {
            let start = layout.parameters();
            let range = start..start + shape.iter().product::<usize>();
            layout.entries.push(ParameterEntry { name, shape, range });
        }
        layout
    }

    /// The layout of a module's float parameters.
    pub fn of<M: Module>(module: &M) -> Self {
        let mut visitor = LayoutVisitor::default();
        module.visit(&mut visitor);
        Self::new(visitor.found)
    }

    /// Length of the flat vector.
    pub fn parameters(&self) -> usize {
        self.entries.last().map_or(0, |e| e.range.end)
    }

    /// The parameters in order.
    pub fn entries(&self) -> &[ParameterEntry] {
        &self.entries
    }

    /// Weights and biases uniform within ±1/√fan-in, PyTorch's default (He 2015 with a = √5). A bias has the
    /// fan-in of the weight before it.
    pub fn initial(&self, seed: u64) -> Vec<f32> {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut values = Vec::with_capacity(self.parameters());
        let mut bound = 1.0f32;
        for entry in &self.entries {
            let fan_in = match entry.shape.as_slice() {
                [inputs, _] => Some(*inputs),
                [_, rest @ ..] if !rest.is_empty() => Some(rest.iter().product()),
                _ => None,
            };
            bound = fan_in.map_or(bound, |f| 1.0 / (f.max(1) as f32).sqrt());
            values.extend(entry.range.clone().map(|_| random.random_range(-bound..=bound)));
        }
        values
    }

    /// `values` as a safetensors file. Names get `prefix`; matrices are transposed to PyTorch's `[out, in]`.
    pub fn views<'a>(&self, prefix: &str, values: &'a [f32]) -> Result<Vec<(String, StoredTensor<'a>)>> {
        self.check(values.len(), "flat vector")?;
        let view = |entry: &ParameterEntry| {
            let own = &values[entry.range.clone()];
            let stored = if entry.is_matrix() {
                Cow::Owned(transposed(own, entry.shape[0], entry.shape[1]))
            } else {
                Cow::Borrowed(own)
            };
            (format!("{prefix}{}", entry.name), StoredTensor { shape: entry.file_shape(), values: stored })
        };
        Ok(self.entries.iter().map(view).collect())
    }

    /// The flat vector out of a safetensors file written by [`to_safetensors`] from [`Self::views`], or by PyTorch.
    ///
    /// # Errors
    /// A tensor that is missing or has another shape or type.
    pub fn read(&self, prefix: &str, file: &SafeTensors<'_>) -> Result<Vec<f32>> {
        let mut values = Vec::with_capacity(self.parameters());
        for entry in &self.entries {
            let name = format!("{prefix}{}", entry.name);
            let wrong = |reason: String| Error::Data { what: format!("tensor `{name}`"), reason };
            let stored = file.tensor(&name).map_err(|_| wrong("is not in the file".into()))?;
            if stored.dtype() != Dtype::F32 || stored.shape() != entry.file_shape() {
                let expected = entry.file_shape();
                return Err(wrong(format!(
                    "is {:?} {:?}, expected F32 {expected:?}",
                    stored.dtype(),
                    stored.shape()
                )));
            }
            let own: Vec<f32> =
                stored.data().as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
            values.extend(if entry.is_matrix() {
                transposed(&own, entry.shape[1], entry.shape[0])
            } else {
                own
            });
        }
        Ok(values)
    }

    /// Whether a flat vector of `length` is one of this layout.
    ///
    /// # Errors
    /// [`Error::Data`] when it is not.
    pub fn check(&self, length: usize, what: &str) -> Result<()> {
        if length == self.parameters() {
            return Ok(());
        }
        let reason = format!("has {length} values, the model has {} parameters", self.parameters());
        Err(Error::Data { what: what.into(), reason })
    }
}

/// A tensor ready to be written.
#[derive(Clone, Debug)]
pub struct StoredTensor<'a> {
    shape: Vec<usize>,
    values: Cow<'a, [f32]>,
}

impl safetensors::View for StoredTensor<'_> {
    fn dtype(&self) -> Dtype {
        Dtype::F32
    }
    fn shape(&self) -> &[usize] {
        &self.shape
    }
    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Owned(self.values.iter().flat_map(|v| v.to_le_bytes()).collect())
    }
    fn data_len(&self) -> usize {
        4 * self.values.len()
    }
}

/// The bytes of a safetensors file.
///
/// # Errors
/// Two tensors of one name.
pub fn to_safetensors(
    tensors: Vec<(String, StoredTensor<'_>)>,
    metadata: Option<HashMap<String, String>>,
) -> Result<Vec<u8>> {
    safetensors::serialize(tensors, metadata)
        .map_err(|e| Error::Data { what: "weights".into(), reason: e.to_string() })
}

fn transposed(values: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    (0..columns).flat_map(|c| (0..rows).map(move |r| values[r * columns + c])).collect()
}

/// `module` with the parameters of the flat vector `values` (f32, or f64 in gradient checks), on `device`;
/// they require gradients if the device differentiates.
///
/// # Errors
/// A vector of another length.
pub fn unpack<M: Module, E: burn::tensor::Element>(module: M, values: &[E], device: &Device) -> Result<M> {
    let mut mapper = Unpacker { values, next: 0, device, short: false };
    let module = module.map(&mut mapper);
    if mapper.short || mapper.next != values.len() {
        let reason = format!("has {} values, which is not the number of parameters", values.len());
        return Err(Error::Data { what: "flat vector".into(), reason });
    }
    Ok(module)
}

/// The flat vector of `module`.
///
/// # Errors
/// A device that fails.
pub fn pack<M: Module>(module: &M) -> Result<Vec<f32>> {
    let mut visitor = Packer { gradients: None, parts: Vec::new() };
    module.visit(&mut visitor);
    visitor.into_values()
}

/// The gradients of `module`'s parameters as a flat vector; zero where the loss does not depend on one.
///
/// # Errors
/// A device that fails.
pub fn pack_gradients<M: Module, E: burn::tensor::Element>(
    module: &M,
    gradients: Gradients,
) -> Result<Vec<E>> {
    let mut visitor = Packer { gradients: Some(gradients), parts: Vec::new() };
    module.visit(&mut visitor);
    visitor.into_values()
}

#[derive(Default)]
struct LayoutVisitor {
    path: Vec<String>,
    found: Vec<(String, Vec<usize>)>,
}

impl ModuleVisitor for LayoutVisitor {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.found.push((self.path.join("."), param.lazy_shape().to_vec()));
    }
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.push(name.to_owned());
    }
    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }
}

struct Unpacker<'a, E> {
    values: &'a [E],
    next: usize,
    device: &'a Device,
    short: bool,
}

impl<E: burn::tensor::Element> ModuleMapper for Unpacker<'_, E> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let shape: [usize; D] = param.dims();
        let length: usize = shape.iter().product();
        let Some(values) = self.values.get(self.next..self.next + length) else {
            self.short = true;
            return param;
        };
        self.next += length;
        let data = TensorData::new(values.to_vec(), shape);
        let value = Tensor::from_data(data, (self.device, E::dtype()));
        let value = if self.device.is_autodiff() { value.require_grad() } else { value };
        Param::initialized(param.id, value)
    }
}

struct Packer {
    gradients: Option<Gradients>,
    parts: Vec<Tensor<1>>,
}

impl Packer {
    /// One read-back for all, not one for each: on a card every read-back waits for the device.
    fn into_values<E: burn::tensor::Element>(self) -> Result<Vec<E>> {
        let data = Tensor::cat(self.parts, 0).try_into_data().map_err(|e| device_failed(&e))?;
        data.try_into_vec::<E>().map_err(|e| device_failed(&e))
    }
}

impl ModuleVisitor for Packer {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let value = param.val();
        let length = value.shape().num_elements();
        let part = match &mut self.gradients {
            None => value.inner(),
            Some(gradients) => {
                let gradient = value.grad_remove(gradients);
                gradient.unwrap_or_else(|| value.inner().zeros_like())
            }
        };
        self.parts.push(part.reshape([length]));
    }
}

/// The error of a device that could not compute or give back a result.
pub(crate) fn device_failed(e: &dyn std::fmt::Debug) -> Error {
    Error::Device { reason: format!("{e:?}") }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::layers::{Conv1d, Linear};

    #[derive(Module, Debug)]
    struct Small {
        conv: Vec<Conv1d>,
        head: Linear,
    }

    fn small(device: &Device) -> Small {
        Small { conv: vec![Conv1d::zeros(1, 2, 3, device)], head: Linear::zeros(2, 3, device) }
    }

    #[test]
    fn order_is_declaration_order_and_packing_round_trips() {
        let device = Device::flex();
        let layout = ParameterLayout::of(&small(&device));
        let names: Vec<_> = layout.entries().iter().map(|e| e.name.as_str()).collect();
        assert_eq!(names, ["conv.0.weight", "conv.0.bias", "head.weight", "head.bias"]);
        let flat = layout.initial(7);
        assert_eq!(flat.len(), 6 + 2 + 6 + 3);
        let module = unpack(small(&device), &flat, &device).unwrap();
        assert_eq!(pack(&module).unwrap(), flat);
        assert!(unpack(small(&device), &flat[1..], &device).is_err());
        assert!(unpack(small(&device), &[flat.clone(), vec![0.0]].concat(), &device).is_err());
    }

    #[test]
    fn initial_values_keep_to_their_bounds_and_follow_the_seed() {
        let layout = ParameterLayout::of(&small(&Device::flex()));
        let (a, b) = (layout.initial(1), layout.initial(2));
        assert_eq!(a, layout.initial(1));
        assert_ne!(a, b);
        let bound = |range: Range<usize>| a[range].iter().fold(0f32, |m, v| m.max(v.abs()));
        assert!(bound(0..8) <= 1.0 / 3f32.sqrt() && bound(0..8) > 0.2);
        assert!(bound(8..17) <= 1.0 / 2f32.sqrt() && bound(8..17) > 0.3);
    }

    #[test]
    fn files_hold_pytorch_shapes_and_read_back() {
        let layout = ParameterLayout::of(&small(&Device::flex()));
        let flat = layout.initial(3);
        let bytes = to_safetensors(layout.views("", &flat).unwrap(), None).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let head = file.tensor("head.weight").unwrap();
        assert_eq!(head.shape(), [3, 2]);
        assert_eq!(head.data()[4..8], flat[8 + 3].to_le_bytes());
        assert_eq!(layout.read("", &file).unwrap(), flat);
        let error = layout.read("other/", &file).unwrap_err().to_string();
        assert!(error.contains("other/conv.0.weight"), "{error}");
    }
}
