//! Operations on images, as slices and as layers of burn: against PyTorch (`integration-tests/reference/image_operations.py`),
//! against finite differences, on no images at all, and to the bit for any number of threads.
#![allow(clippy::unwrap_used)]

mod drawn;

use burn::tensor::{DType, Device, Tensor, TensorData};
use drawn::Generator;
use serde::Deserialize;
use voxelflow_nn::{
    layers::{self, Activation, Padding, max_pool2d_with_switches},
    operations::{
        Conv2d, Conv2dConfig, Float, MaxPool2d, average_pool2d, average_pool2d_backward, upsample2d,
        upsample2d_backward,
    },
};

#[derive(Deserialize)]
struct Reference {
    convolutions: Vec<Convolution>,
    poolings: Vec<Pooling>,
    upsamplings: Vec<Upsampling>,
}

#[derive(Deserialize)]
struct Convolution {
    n: usize,
    channels: usize,
    filters: usize,
    size: [usize; 2],
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: String,
    relu: bool,
    y: Vec<f64>,
    dx: Vec<f64>,
    dw: Vec<f64>,
    db: Vec<f64>,
}

#[derive(Deserialize)]
struct Pooling {
    n: usize,
    channels: usize,
    size: [usize; 2],
    window: [usize; 2],
    stride: [usize; 2],
    y: Vec<f64>,
    dx: Vec<f64>,
    means: Vec<f64>,
    means_dx: Vec<f64>,
    unpooled: Option<Vec<f64>>,
    unpooled_dx: Option<Vec<f64>>,
}

#[derive(Deserialize)]
struct Upsampling {
    n: usize,
    channels: usize,
    size: [usize; 2],
    window: [usize; 2],
    y: Vec<f64>,
    dx: Vec<f64>,
}

fn reference() -> Reference {
    serde_json::from_str(include_str!("fixtures/image_operations.json")).unwrap()
}

/// As the script draws them: through 32 bits.
fn values(random: &mut Generator, n: usize) -> Vec<f64> {
    (0..n).map(|_| f64::from(random.next() as f32)).collect()
}

fn as_type<E: From<f32>>(values: &[f64]) -> Vec<E> {
    values.iter().map(|v| E::from(*v as f32)).collect()
}

fn close<E: Into<f64> + Copy>(what: &str, found: &[E], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let scale = expected.iter().fold(1f64, |most, v| most.max(v.abs()));
    for (i, (a, b)) in found.iter().zip(expected).enumerate() {
        let a: f64 = (*a).into();
        assert!((a - b).abs() <= tolerance * scale, "{what}[{i}]: {a}, PyTorch {b}");
    }
}

impl Convolution {
    fn config(&self) -> Conv2dConfig {
        let padding = match self.padding.as_str() {
            "same" => Padding::Same,
            "valid" => Padding::Valid,
            _ => Padding::Full,
        };
        Conv2dConfig {
            channels: self.channels,
            filters: self.filters,
            kernel: self.kernel,
            stride: self.stride,
            padding,
            relu: self.relu,
        }
    }

    fn inputs(&self) -> [Vec<f64>; 4] {
        let mut random = Generator(3);
        let [weights, points] = [self.kernel, self.size].map(|[a, b]| a * b * self.channels);
        [self.n * points, self.filters * weights, self.filters, self.y.len()].map(|n| values(&mut random, n))
    }

    fn check<E: Float + From<f32> + Into<f64>>(&self, tolerance: f64) {
        let [x, w, b, dy] = self.inputs().map(|v| as_type::<E>(&v));
        let mut operation = Conv2d::<E>::new(self.config(), self.size);
        let (mut y, mut dx) = (dy.clone(), x.clone());
        let (mut dw, mut db) = (w.clone(), b.clone());
        operation.forward(&x, &w, &b, &mut y);
        operation.backward([&x, &w, &y, &dy], Some(&mut dx), &mut dw, &mut db);
        let name = format!("{} of {:?} at {:?} on {:?}", self.padding, self.kernel, self.stride, self.size);
        close(&format!("y, {name}"), &y, &self.y, tolerance);
        close(&format!("dx, {name}"), &dx, &self.dx, tolerance);
        close(&format!("dw, {name}"), &dw, &self.dw, tolerance);
        close(&format!("db, {name}"), &db, &self.db, tolerance);
        // Without the input's gradient the others are the same.
        let (again, bias) = (dw.clone(), db.clone());
        operation.backward([&x, &w, &y, &dy], None, &mut dw, &mut db);
        assert!(again == dw && bias == db, "{name}");
    }
}

#[test]
fn convolutions_equal_pytorch_s_in_both_precisions() {
    let reference = reference();
    assert_eq!(reference.convolutions.len(), 13);
    for case in &reference.convolutions {
        case.check::<f64>(1e-10);
        case.check::<f32>(2e-6);
    }
}

#[test]
fn poolings_equal_pytorch_s_in_both_precisions() {
    fn check<E: Float + From<f32> + Into<f64>>(case: &Pooling, tolerance: f64) {
        let mut random = Generator(4);
        let points = case.n * case.channels * case.size[0] * case.size[1];
        let [x, dy, z, du] =
            [points, case.y.len(), case.y.len(), points].map(|n| as_type::<E>(&values(&mut random, n)));
        let name = format!("{:?} at {:?} on {:?}", case.window, case.stride, case.size);
        let pool = MaxPool2d::new(case.window, case.stride, true, case.size);
        let (mut y, mut switches, mut dx) = (dy.clone(), vec![0; dy.len()], x.clone());
        pool.forward(&x, &mut y, &mut switches);
        close(&format!("maxima, {name}"), &y, &case.y, tolerance);
        pool.unpool(&dy, &switches, &mut dx);
        close(&format!("their gradient, {name}"), &dx, &case.dx, tolerance);
        if let (Some(unpooled), Some(gradient)) = (&case.unpooled, &case.unpooled_dx) {
            pool.unpool(&z, &switches, &mut dx);
            close(&format!("unpooled, {name}"), &dx, unpooled, tolerance);
            pool.unpool_backward(&du, &switches, &mut y);
            close(&format!("gradient of unpooling, {name}"), &y, gradient, tolerance);
        }
        average_pool2d(case.window, case.stride, true, case.size, &x, &mut y);
        close(&format!("means, {name}"), &y, &case.means, tolerance);
        average_pool2d_backward(case.window, case.stride, true, case.size, &dy, &mut dx);
        close(&format!("gradient of means, {name}"), &dx, &case.means_dx, tolerance);
    }
    let reference = reference();
    assert_eq!(reference.poolings.iter().filter(|case| case.unpooled.is_some()).count(), 3);
    for case in &reference.poolings {
        check::<f64>(case, 1e-11);
        check::<f32>(case, 1e-6);
    }
}

#[test]
fn upsampling_equals_pytorch_s_in_both_precisions() {
    fn check<E: Float + From<f32> + Into<f64>>(case: &Upsampling, tolerance: f64) {
        let mut random = Generator(5);
        let points = case.n * case.channels * case.size[0] * case.size[1];
        let [x, dy] = [points, case.y.len()].map(|n| as_type::<E>(&values(&mut random, n)));
        let to = [case.size[0] * case.window[0], case.size[1] * case.window[1]];
        let (mut y, mut dx) = (dy.clone(), x.clone());
        upsample2d(case.window, case.size, to, &x, &mut y);
        close("y", &y, &case.y, tolerance);
        upsample2d_backward(case.window, case.size, to, &dy, &mut dx);
        close("dx", &dx, &case.dx, tolerance);
    }
    for case in &reference().upsamplings {
        check::<f64>(case, 1e-11);
        check::<f32>(case, 1e-6);
    }
}

/// A 64-bit tensor on the differentiating CPU device.
fn tensor<const D: usize>(values: &[f64], shape: [usize; D]) -> Tensor<D> {
    Tensor::from_data(TensorData::new(values.to_vec(), shape), (&Device::flex().autodiff(), DType::F64))
}

fn plain<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data_as::<f64>().try_into_vec::<f64>().unwrap()
}

fn layer(case: &Convolution, w: Tensor<4>, b: Tensor<1>) -> layers::Conv2d {
    let config = case.config();
    let mut layer =
        layers::Conv2d::zeros(case.channels, case.filters, case.kernel, &Device::flex().autodiff())
            .with_padding(config.padding)
            .with_stride(case.stride);
    layer.weight = burn::module::Param::initialized(Default::default(), w);
    layer.bias = burn::module::Param::initialized(Default::default(), b);
    layer
}

#[test]
fn the_layer_differentiates_as_pytorch_does() {
    for case in &reference().convolutions {
        let [x, w, b, dy] = case.inputs();
        let [kh, kw] = case.kernel;
        let x = tensor(&x, [case.n, case.channels, case.size[0], case.size[1]]).require_grad();
        let w = tensor(&w, [case.filters, case.channels, kh, kw]).require_grad();
        let b = tensor(&b, [case.filters]).require_grad();
        let activation = if case.relu { Activation::Relu } else { Activation::Linear };
        let y = layer(case, w.clone(), b.clone()).forward_with(x.clone(), activation);
        close("y", &plain(y.clone()), &case.y, 1e-10);
        let gradients = (y.clone() * tensor(&dy, y.dims())).sum().backward();
        close("dx", &plain(x.grad(&gradients).unwrap()), &case.dx, 1e-10);
        close("dw", &plain(w.grad(&gradients).unwrap()), &case.dw, 1e-10);
        close("db", &plain(b.grad(&gradients).unwrap()), &case.db, 1e-10);
    }
}

/// The gradient of `Σ c·f(x)`, with fixed `c`, against central differences at every element.
fn differences(what: &str, x: &[f64], shape: [usize; 4], f: impl Fn(Tensor<4>) -> Tensor<4>) {
    let weighted = |x: Tensor<4>| {
        let y = f(x);
        let c = values(&mut Generator(9), y.dims().iter().product());
        (y.clone() * tensor(&c, y.dims())).sum()
    };
    let leaf = tensor(x, shape).require_grad();
    let found = plain(leaf.grad(&weighted(leaf.clone()).backward()).unwrap());
    for (i, found) in found.iter().enumerate() {
        let at = |delta: f64| {
            let mut moved = x.to_vec();
            moved[i] += delta;
            plain(weighted(tensor(&moved, shape)))[0]
        };
        let expected = (at(1e-6) - at(-1e-6)) / 2e-6;
        assert!(
            (found - expected).abs() < 1e-7 * (1.0 + expected.abs()),
            "{what}[{i}]: {found} != {expected}"
        );
    }
}

#[test]
fn gradients_of_layers_equal_finite_differences() {
    let shape = [2, 2, 7, 5];
    let x = values(&mut Generator(6), 140);
    for padding in [Padding::Same, Padding::Valid, Padding::Full] {
        for (stride, activation) in [([1, 1], Activation::Relu), ([2, 3], Activation::Linear)] {
            let mut random = Generator(7);
            let (w, b) = (values(&mut random, 3 * 2 * 3 * 2), values(&mut random, 3));
            let layer = |w: Tensor<4>| {
                let mut layer = layers::Conv2d::zeros(2, 3, [3, 2], &Device::flex().autodiff())
                    .with_padding(padding)
                    .with_stride(stride);
                layer.weight = burn::module::Param::initialized(Default::default(), w);
                layer.bias = burn::module::Param::initialized(Default::default(), tensor(&b, [3]));
                layer
            };
            let weight = tensor(&w, [3, 2, 3, 2]);
            differences("x", &x, shape, |x| layer(weight.clone()).forward_with(x, activation));
            let image = tensor(&x, shape);
            differences("w", &w, [3, 2, 3, 2], |w| layer(w).forward_with(image.clone(), activation));
        }
    }
    for (window, stride) in [([2, 2], [2, 2]), ([3, 2], [3, 2]), ([3, 3], [2, 2])] {
        differences("max-pool", &x, shape, |x| max_pool2d_with_switches(x, window, stride).0);
        let (pooled, switches) = max_pool2d_with_switches(tensor(&x, shape), window, stride);
        let z = values(&mut Generator(8), pooled.dims().iter().product());
        differences("unpool", &z, pooled.dims(), |z| layers::unpool2d(z, &switches));
    }
    for size in [[14, 10], [13, 9], [15, 12]] {
        differences("up-sampling", &x, shape, |x| layers::upsample2d(x, [2, 2], size));
    }
}

#[test]
fn repetition_is_cropped_and_padded_with_the_last_value() {
    let mut y = [0.0f32; 20];
    upsample2d([2, 2], [2, 2], [5, 4], &[1.0, 2.0, 3.0, 4.0], &mut y);
    assert_eq!(y[..4], [1.0, 1.0, 2.0, 2.0]);
    assert_eq!([&y[8..12], &y[16..20]], [&[3.0, 3.0, 4.0, 4.0]; 2]);
    let mut y = [0.0f32; 10];
    upsample2d([1, 2], [2, 2], [2, 5], &[1.0, 2.0, 3.0, 4.0], &mut y);
    assert_eq!(y, [1.0, 1.0, 2.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0, 4.0]);
    let mut dx = [0.0f32; 4];
    upsample2d_backward([1, 2], [2, 2], [2, 5], &[1.0; 10], &mut dx);
    assert_eq!(dx, [2.0, 3.0, 2.0, 3.0]);
}

#[test]
fn equal_maxima_go_to_the_first_and_what_is_no_number_is_seen() {
    let pool = MaxPool2d::new([2, 2], [2, 2], true, [2, 4]);
    let (mut y, mut switches) = ([0.0f32; 2], [9; 2]);
    pool.forward(&[3.0, 3.0, 1.0, 2.0, 3.0, 1.0, f32::NAN, 5.0], &mut y, &mut switches);
    assert_eq!((y[0], switches), (3.0, [0, 2]));
    assert!(y[1].is_nan());
}

#[test]
fn no_images_give_no_output_and_no_gradient() {
    let case = &reference().convolutions[0];
    let [_, w, b, _] = case.inputs();
    let [kh, kw] = case.kernel;
    let w = tensor(&w, [case.filters, case.channels, kh, kw]).require_grad();
    let b = tensor(&b, [case.filters]);
    let x = tensor(&[], [0, case.channels, 6, 7]);
    let y = layer(case, w.clone(), b).forward_with(x, Activation::Relu);
    assert_eq!(y.dims(), [0, case.filters, 6, 7]);
    let (pooled, switches) = max_pool2d_with_switches(y, [2, 2], [2, 2]);
    assert_eq!(pooled.dims(), [0, case.filters, 3, 4]);
    let back = layers::unpool2d(pooled, &switches);
    assert_eq!(back.dims(), [0, case.filters, 6, 7]);
    let gradient = plain(w.grad(&back.sum().backward()).unwrap());
    assert_eq!(gradient, vec![0.0; w.dims().iter().product::<usize>()]);
}

#[test]
fn equal_bits_whatever_the_number_of_threads() {
    let config = Conv2dConfig::new(3, 40, [5, 3]).with_relu(true);
    let (size, n) = ([33, 29], 3);
    let run = || {
        let mut random = Generator(6);
        let mut draw = |n: usize| as_type::<f32>(&values(&mut random, n));
        let mut operation = Conv2d::<f32>::new(config, size);
        let pool = MaxPool2d::new([3, 3], [2, 2], true, size);
        let [height, width] = pool.output_size();
        let (x, w, b) = (draw(n * 3 * 33 * 29), draw(40 * 3 * 15), draw(40));
        let dp = draw(n * 40 * height * width);
        let (mut y, mut dy) = (vec![0.0; n * 40 * 33 * 29], vec![0.0; n * 40 * 33 * 29]);
        let (mut p, mut switches) = (dp.clone(), vec![0; dp.len()]);
        let (mut dx, mut dw, mut db) = (x.clone(), w.clone(), b.clone());
        operation.forward(&x, &w, &b, &mut y);
        pool.forward(&y, &mut p, &mut switches);
        pool.unpool(&dp, &switches, &mut dy);
        operation.backward([&x, &w, &y, &dy], Some(&mut dx), &mut dw, &mut db);
        [p, dx, dw, db].concat().into_iter().map(f32::to_bits).collect::<Vec<_>>()
    };
    let with =
        |threads: usize| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(run);
    let one = with(1);
    assert!(one.iter().filter(|bits| **bits != 0).count() > one.len() / 2);
    assert_eq!(one, with(2));
    assert_eq!(one, with(5));
}
