//! The formulas of the update rules, and their loops over slices.

use crate::{OptimizerKind, OptimizerSettings};

/// Elements that fill vector registers.
const LANES: usize = 8;
type Lanes = [f32; LANES];

/// A rule and the constants of one step. A step in place and one into another buffer round alike.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    kind: OptimizerKind,
    rates: Rates,
}

impl Rule {
    pub fn of(settings: &OptimizerSettings, step: u64) -> Self {
        Self { kind: settings.optimizer, rates: Rates::of(settings, step) }
    }

    /// A step in place of parameters with their reduced gradient and their memory.
    pub fn step(self, w: &mut [f32], g: &[f32], [first, second]: [&mut [f32]; 2]) {
        let rates = self.rates;
        let weights = w.iter_mut().zip(g);
        match self.kind {
            OptimizerKind::Sgd => weights.for_each(|(w, g)| *w = rates.sgd(*w, *g)),
            OptimizerKind::Adagrad => {
                let ((w, w_rest), (g, g_rest)) = (w.as_chunks_mut(), g.as_chunks());
                let (s, s_rest) = first.as_chunks_mut();
                w.iter_mut().zip(g).zip(s).for_each(|((w, g), s)| (*w, *s) = rates.adagrad_lanes(w, g, s));
                let rest = w_rest.iter_mut().zip(g_rest).zip(s_rest);
                rest.for_each(|((w, g), s)| (*w, *s) = rates.adagrad(*w, *g, *s));
            }
            OptimizerKind::Momentum => {
                weights.zip(first).for_each(|((w, g), v)| (*w, *v) = rates.heavy_ball(*w, *g, *v));
            }
            OptimizerKind::Nesterov => {
                weights.zip(first).for_each(|((w, g), v)| (*w, *v) = rates.nesterov(*w, *g, *v));
            }
            OptimizerKind::Adam => {
                let all = weights.zip(first).zip(second);
                all.for_each(|(((w, g), m), v)| (*w, *m, *v) = rates.adam(*w, *g, *m, *v));
            }
        }
    }

    /// A step from parameters, reduced gradient and memory to other parameters and memory.
    pub fn step_between(
        self,
        (w, g, [first, second]): (&[f32], &[f32], [&[f32]; 2]),
        (to, [first_to, second_to]): (&mut [f32], [&mut [f32]; 2]),
    ) {
        let rates = self.rates;
        if self.kind == OptimizerKind::Adagrad {
            let ((to, to_rest), (s_to, s_to_rest)) = (to.as_chunks_mut(), first_to.as_chunks_mut());
            let ((w, w_rest), (g, g_rest), (s, s_rest)) = (w.as_chunks(), g.as_chunks(), first.as_chunks());
            let lanes = to.iter_mut().zip(s_to).zip(w.iter().zip(g).zip(s));
            lanes.for_each(|((to, s_to), ((w, g), s))| (*to, *s_to) = rates.adagrad_lanes(w, g, s));
            let rest = to_rest.iter_mut().zip(s_to_rest).zip(w_rest.iter().zip(g_rest).zip(s_rest));
            return rest.for_each(|((to, s_to), ((w, g), s))| (*to, *s_to) = rates.adagrad(*w, *g, *s));
        }
        let weights = to.iter_mut().zip(w.iter().zip(g));
        let first = first_to.iter_mut().zip(first);
        match self.kind {
            OptimizerKind::Adagrad => {}
            OptimizerKind::Sgd => weights.for_each(|(to, (w, g))| *to = rates.sgd(*w, *g)),
            OptimizerKind::Momentum => {
                let both = weights.zip(first);
                both.for_each(|((to, (w, g)), (v_to, v))| (*to, *v_to) = rates.heavy_ball(*w, *g, *v));
            }
            OptimizerKind::Nesterov => {
                let both = weights.zip(first);
                both.for_each(|((to, (w, g)), (v_to, v))| (*to, *v_to) = rates.nesterov(*w, *g, *v));
            }
            OptimizerKind::Adam => {
                let all = weights.zip(first).zip(second_to.iter_mut().zip(second));
                all.for_each(|(((to, (w, g)), (m_to, m)), (v_to, v))| {
                    (*to, *m_to, *v_to) = rates.adam(*w, *g, *m, *v);
                });
            }
        }
    }
}

/// The constants of one step; its formulas, element by element.
#[derive(Clone, Copy, Debug)]
struct Rates {
    learning_rate: f32,
    epsilon: f32,
    momentum: f32,
    beta_2: f32,
    /// Adam: γ/(1 − β₁ᵗ).
    corrected_rate: f32,
    /// Adam: √(1 − β₂ᵗ).
    corrected_root: f32,
}

impl Rates {
    fn of(settings: &OptimizerSettings, step: u64) -> Self {
        let OptimizerSettings { learning_rate, epsilon, momentum, beta_2, .. } = *settings;
        // The bias corrections are powers close to 1: f64 keeps their difference from 1 exact enough.
        let power = i32::try_from(step).unwrap_or(i32::MAX);
        let first_correction = 1.0 - f64::from(momentum).powi(power);
        let second_correction = 1.0 - f64::from(beta_2).powi(power);
        Self {
            learning_rate,
            epsilon,
            momentum,
            beta_2,
            corrected_rate: (f64::from(learning_rate) / first_correction) as f32,
            corrected_root: second_correction.sqrt() as f32,
        }
    }

    /// `w −= γ·g`.
    fn sgd(&self, w: f32, g: f32) -> f32 {
        w - self.learning_rate * g
    }

    /// `G += g²; w −= γ·g/(√G + ε)` (Duchi, Hazan and Singer 2011, diagonal form).
    fn adagrad(&self, w: f32, g: f32, sum: f32) -> (f32, f32) {
        let sum = sum + g * g;
        (w - self.learning_rate * g / (sum.sqrt() + self.epsilon), sum)
    }

    /// As [`Self::adagrad`], element by element to the same bits. Roots in a loop of their own become vector instructions,
    /// which takes half the time; in a loop over slices of any length they do not.
    fn adagrad_lanes(&self, w: &Lanes, g: &Lanes, sum: &Lanes) -> (Lanes, Lanes) {
        let (mut w, mut sum, mut root) = (*w, *sum, [0.0; LANES]);
        sum.iter_mut().zip(g).for_each(|(sum, g)| *sum += g * g);
        root.iter_mut().zip(&sum).for_each(|(root, sum)| *root = sum.sqrt());
        let weights = w.iter_mut().zip(g).zip(&root);
        weights.for_each(|((w, g), root)| *w -= self.learning_rate * g / (root + self.epsilon));
        (w, sum)
    }

    /// `v = μ·v + g; w −= γ·v` (Polyak 1964, as PyTorch scales it).
    fn heavy_ball(&self, w: f32, g: f32, v: f32) -> (f32, f32) {
        let v = self.momentum * v + g;
        (w - self.learning_rate * v, v)
    }

    /// `v = μ·v + g; w −= γ·(g + μ·v)` (Nesterov 1983, as PyTorch writes it).
    fn nesterov(&self, w: f32, g: f32, v: f32) -> (f32, f32) {
        let v = self.momentum * v + g;
        (w - self.learning_rate * (g + self.momentum * v), v)
    }

    /// `m = β₁m + (1−β₁)g; v = β₂v + (1−β₂)g²; w −= γ·m̂/(√v̂ + ε)` (Kingma and Ba 2015, algorithm 1).
    fn adam(&self, w: f32, g: f32, m: f32, v: f32) -> (f32, f32, f32) {
        let m = self.momentum * m + (1.0 - self.momentum) * g;
        let v = self.beta_2 * v + (1.0 - self.beta_2) * g * g;
        (w - self.corrected_rate * m / (v.sqrt() / self.corrected_root + self.epsilon), m, v)
    }
}
