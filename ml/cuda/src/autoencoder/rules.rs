//! Update rules, and what a step's kernels are told.

/// An update rule, with the formulas of `voxelflow-sync`; kernels number it so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// `G += g²; w −= γ·g/(√G + ε)`; it remembers G.
    Adagrad = 0,
    /// `w −= γ·g`.
    Sgd = 1,
    /// `v = μ·v + g; w −= γ·v`; it remembers v.
    Momentum = 2,
    /// `v = μ·v + g; w −= γ·(g + μ·v)`; it remembers v.
    Nesterov = 3,
    /// `m = β₁m + (1−β₁)g; v = β₂v + (1−β₂)g²; w −= γ·m̂/(√v̂ + ε)`; it remembers m and v. μ is β₁.
    Adam = 4,
}

impl Rule {
    /// Vectors that it remembers, each as long as the parameters.
    pub fn vectors(self) -> usize {
        match self {
            Self::Sgd => 0,
            Self::Adagrad | Self::Momentum | Self::Nesterov => 1,
            Self::Adam => 2,
        }
    }
}

/// The numbers of one step of a rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// γ.
    pub learning_rate: f32,
    /// ε.
    pub epsilon: f32,
    /// μ, or Adam's β₁.
    pub momentum: f32,
    /// Adam's β₂.
    pub beta_2: f32,
    /// The rule takes the mean of the samples' gradients; if false, their sum.
    pub mean: bool,
    /// The number of the step, from 1: Adam's corrections.
    pub step: u64,
}

/// 32-bit words of the kernels' `Control`.
pub(super) const CONTROL: usize = 8;

impl Rates {
    /// The kernels' `Control` for a card's `share` of a minibatch of `samples`; without any, nothing is updated.
    pub(super) fn control(&self, share: usize, samples: usize) -> [f32; CONTROL] {
        // As voxelflow-sync has it: powers close to 1 are taken in f64.
        let power = i32::try_from(self.step).unwrap_or(i32::MAX);
        let first = 1.0 - f64::from(self.momentum).powi(power);
        let second = 1.0 - f64::from(self.beta_2).powi(power);
        [
            f32::from_bits(share as u32),
            if self.mean { samples as f32 } else { samples.min(1) as f32 },
            self.learning_rate,
            self.epsilon,
            self.momentum,
            self.beta_2,
            (f64::from(self.learning_rate) / first) as f32,
            second.sqrt() as f32,
        ]
    }
}

/// The rates of passes outside of training.
pub(super) const NO_RATES: Rates =
    Rates { learning_rate: 0.0, epsilon: 0.0, momentum: 0.0, beta_2: 0.0, mean: false, step: 1 };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_holds_what_the_kernels_expect() {
        let rates =
            Rates { learning_rate: 0.1, epsilon: 1e-8, momentum: 0.9, beta_2: 0.999, mean: true, step: 2 };
        let control = rates.control(800, 1600);
        assert_eq!(control[0].to_bits(), 800);
        assert_eq!(control[1..6], [1600.0, 0.1, 1e-8, 0.9, 0.999]);
        assert!((control[6] - 0.1 / 0.19).abs() < 1e-6, "{control:?}");
        assert!((control[7] - 0.001_999_f32.sqrt()).abs() < 1e-5, "{control:?}");
        let sum = Rates { mean: false, ..rates };
        assert_eq!([sum.control(5, 5)[1], sum.control(0, 5)[1], rates.control(0, 5)[1]], [1.0, 1.0, 5.0]);
        assert_eq!([sum.control(0, 0)[1], rates.control(0, 0)[1]], [0.0, 0.0]);
    }
}
