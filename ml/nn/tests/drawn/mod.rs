//! What the tests and the PyTorch scripts of `integration-tests/reference` draw alike, so that it need not be stored.
#![allow(dead_code)] // every test takes what it needs of it

use voxelflow_nn::{Objective, models::dist_dca::DcaObjective};

/// The generator of the reference scripts.
pub struct Generator(pub u64);

impl Generator {
    /// Between −1 and 1.
    pub fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f64 / f64::from(1 << 23) - 1.0
    }
}

/// The first parameters, in the order of the layout: up to `gain` over the root of the number of inputs.
pub fn initial(objective: &DcaObjective, gain: f64) -> Vec<f32> {
    let mut random = Generator(1);
    let mut scale = 0.0;
    let mut values = Vec::new();
    for entry in objective.layout().entries() {
        let fan_in = match entry.shape.as_slice() {
            [inputs, _] => Some(*inputs),
            [_, channels, length] => Some(channels * length),
            _ => None,
        };
        scale = fan_in.map_or(scale, |f| gain / (f as f64).sqrt());
        values.extend(entry.range.clone().map(|_| (random.next() * scale) as f32));
    }
    values
}
