//! The update rules over a flat range of parameters: what a shard of the parameter service, or a rank of a
//! ring, applies to its share once the mean gradient of a round is known.
//!
//! Every rule is one pass over slices of equal length, so the compiler turns it into vector instructions.

use crate::{Error, OptimizerKind, OptimizerSettings, OptimizerState, Rank, Reduction, Result};
use std::ops::Range;

/// Elements of a gradient that are copied at once: they stay in the nearest cache.
const CHUNK: usize = 4096;

/// Elements that fill vector registers.
const LANES: usize = 8;
type Lanes = [f32; LANES];

/// An update rule and its memory for `n` parameters.
#[derive(Clone, Debug)]
pub struct Optimizer {
    settings: OptimizerSettings,
    first: Vec<f32>,
    second: Vec<f32>,
    steps: u64,
}

/// Names of the vectors that a rule remembers, in the order of [`Optimizer::vectors`].
fn names(kind: OptimizerKind) -> &'static [&'static str] {
    match kind {
        OptimizerKind::Adagrad => &["sum_of_squares"],
        OptimizerKind::Sgd => &[],
        OptimizerKind::Momentum | OptimizerKind::Nesterov => &["velocity"],
        OptimizerKind::Adam => &["first_moment", "second_moment"],
    }
}

impl Optimizer {
    /// A fresh optimizer for `n` parameters.
    pub fn new(settings: OptimizerSettings, n: usize) -> Self {
        let vectors = names(settings.optimizer).len();
        let first = vec![0.0; if vectors > 0 { n } else { 0 }];
        let second = vec![0.0; if vectors > 1 { n } else { 0 }];
        Self { settings, first, second, steps: 0 }
    }

    /// An optimizer for the parameters `range` of the state of a whole model.
    ///
    /// # Errors
    /// [`Error::Message`] for a state of another rule, [`Error::Length`] for one of another model.
    pub fn restore(
        settings: OptimizerSettings,
        state: &OptimizerState,
        range: Range<usize>,
        n_parameters: usize,
    ) -> Result<Self> {
        let what = "the optimizer's state";
        let mut optimizer = Self::new(settings, range.len());
        let expected = names(optimizer.settings.optimizer);
        let found: Vec<&str> = state.vectors.iter().map(|(name, _)| name.as_str()).collect();
        if found != expected {
            let reason = format!("it holds {found:?}, {:?} needs {expected:?}", optimizer.settings.optimizer);
            return Err(Error::Message { rank: Rank(0), what, reason });
        }
        for ((_, from), into) in state.vectors.iter().zip(optimizer.vectors_mut()) {
            if from.len() != n_parameters {
                return Err(Error::Length { rank: Rank(0), what, found: from.len(), expected: n_parameters });
            }
            into.copy_from_slice(&from[range.clone()]);
        }
        optimizer.steps = state.steps;
        Ok(optimizer)
    }

    /// Ends a round: one step with `gradient` `[n]`, summed over `samples`, which becomes what the rule took; none
    /// without samples.
    pub fn apply(&mut self, parameters: &mut [f32], gradient: &mut [f32], samples: u64) {
        if samples > 0 {
            reduce(self.settings.reduction, gradient, samples);
            self.step(parameters, gradient);
        }
    }

    /// As [`Self::apply`], of a `gradient` that stays as it is: no more of it is copied at once than a cache holds.
    pub(crate) fn apply_to(&mut self, parameters: &mut [f32], gradient: &[f32], samples: u64) {
        if samples == 0 {
            return;
        }
        self.steps += 1;
        let mut reduced = [0.0; CHUNK];
        for start in (0..parameters.len()).step_by(CHUNK) {
            let range = start..parameters.len().min(start + CHUNK);
            let reduced = &mut reduced[..range.len()];
            reduced.copy_from_slice(&gradient[range.clone()]);
            reduce(self.settings.reduction, reduced, samples);
            self.step_in_place(range.clone(), &mut parameters[range], reduced);
        }
    }

    /// Applies one step to `parameters` `[n]` with the reduced `gradient` `[n]` of a round (see [`reduce`]).
    pub fn step(&mut self, parameters: &mut [f32], gradient: &[f32]) {
        self.steps += 1;
        self.step_in_place(0..parameters.len(), parameters, gradient);
    }

    /// The parameters `range` of a step; slices are those of the range.
    fn step_in_place(&mut self, range: Range<usize>, parameters: &mut [f32], gradient: &[f32]) {
        let rates = Rates::of(&self.settings, self.steps);
        let weights = parameters.iter_mut().zip(gradient);
        let kind = self.settings.optimizer;
        if kind == OptimizerKind::Sgd {
            weights.for_each(|(w, g)| *w = rates.sgd(*w, *g));
            return;
        }
        if kind == OptimizerKind::Adagrad {
            let (w, w_rest) = parameters.as_chunks_mut();
            let (g, g_rest) = gradient.as_chunks();
            let (s, s_rest) = self.first[range].as_chunks_mut();
            w.iter_mut().zip(g).zip(s).for_each(|((w, g), s)| (*w, *s) = rates.adagrad_lanes(w, g, s));
            let rest = w_rest.iter_mut().zip(g_rest).zip(s_rest);
            return rest.for_each(|((w, g), s)| (*w, *s) = rates.adagrad(*w, *g, *s));
        }
        let both = weights.zip(&mut self.first[range.clone()]);
        match kind {
            OptimizerKind::Sgd | OptimizerKind::Adagrad => {}
            OptimizerKind::Momentum => both.for_each(|((w, g), v)| (*w, *v) = rates.heavy_ball(*w, *g, *v)),
            OptimizerKind::Nesterov => both.for_each(|((w, g), v)| (*w, *v) = rates.nesterov(*w, *g, *v)),
            OptimizerKind::Adam => {
                let all = both.zip(&mut self.second[range]);
                all.for_each(|(((w, g), m), v)| (*w, *m, *v) = rates.adam(*w, *g, *m, *v));
            }
        }
    }

    /// Makes room for [`Self::step_range`]: the same rule and as many parameters as `of`, one step later.
    pub(crate) fn follow(&mut self, of: &Self) {
        self.settings = of.settings.clone();
        self.first.resize(of.first.len(), 0.0);
        self.second.resize(of.second.len(), 0.0);
        self.steps = of.steps + 1;
    }

    /// The parameters `range` of a step from (`of`, `from`) to (`self`, `into`), which keeps both: what was is read
    /// once, what will be is written once. Slices are those of the range; `self` must [`Self::follow`] `of`.
    pub(crate) fn step_range(
        &mut self,
        of: &Self,
        range: Range<usize>,
        (from, gradient): (&[f32], &[f32]),
        into: &mut [f32],
    ) {
        let rates = Rates::of(&self.settings, self.steps);
        let weights = into.iter_mut().zip(from.iter().zip(gradient));
        let kind = self.settings.optimizer;
        if kind == OptimizerKind::Sgd {
            weights.for_each(|(to, (w, g))| *to = rates.sgd(*w, *g));
            return;
        }
        if kind == OptimizerKind::Adagrad {
            let (into, into_rest) = into.as_chunks_mut();
            let (w, w_rest) = from.as_chunks();
            let (g, g_rest) = gradient.as_chunks();
            let (s_into, s_into_rest) = self.first[range.clone()].as_chunks_mut();
            let (s, s_rest) = of.first[range].as_chunks();
            let lanes = into.iter_mut().zip(s_into).zip(w.iter().zip(g).zip(s));
            lanes.for_each(|((to, s_to), ((w, g), s))| (*to, *s_to) = rates.adagrad_lanes(w, g, s));
            let rest = into_rest.iter_mut().zip(s_into_rest).zip(w_rest.iter().zip(g_rest).zip(s_rest));
            return rest.for_each(|((to, s_to), ((w, g), s))| (*to, *s_to) = rates.adagrad(*w, *g, *s));
        }
        let first = self.first[range.clone()].iter_mut().zip(&of.first[range.clone()]);
        let both = weights.zip(first);
        match kind {
            OptimizerKind::Sgd | OptimizerKind::Adagrad => {}
            OptimizerKind::Momentum => {
                both.for_each(|((to, (w, g)), (v_to, v))| (*to, *v_to) = rates.heavy_ball(*w, *g, *v));
            }
            OptimizerKind::Nesterov => {
                both.for_each(|((to, (w, g)), (v_to, v))| (*to, *v_to) = rates.nesterov(*w, *g, *v));
            }
            OptimizerKind::Adam => {
                let second = self.second[range.clone()].iter_mut().zip(&of.second[range]);
                both.zip(second).for_each(|(((to, (w, g)), (m_to, m)), (v_to, v))| {
                    (*to, *m_to, *v_to) = rates.adam(*w, *g, *m, *v);
                });
            }
        }
    }

    /// What the rule takes of a sum of gradients.
    pub(crate) fn reduction(&self) -> Reduction {
        self.settings.reduction
    }

    /// The memory, for a checkpoint.
    pub fn state(&self) -> OptimizerState {
        let names = names(self.settings.optimizer).iter().map(|name| (*name).to_owned());
        OptimizerState { vectors: names.zip(self.vectors().cloned()).collect(), steps: self.steps }
    }

    /// Updates applied so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    pub(crate) fn set_steps(&mut self, steps: u64) {
        self.steps = steps;
    }

    fn vectors(&self) -> impl Iterator<Item = &Vec<f32>> {
        [&self.first, &self.second].into_iter().take(names(self.settings.optimizer).len())
    }

    /// What a rule remembers, by name.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&'static str, &Vec<f32>)> {
        names(self.settings.optimizer).iter().copied().zip(self.vectors())
    }

    pub(crate) fn vectors_mut(&mut self) -> impl Iterator<Item = &mut Vec<f32>> {
        [&mut self.first, &mut self.second].into_iter().take(names(self.settings.optimizer).len())
    }
}

/// What the rule takes of a gradient summed over `samples`: the mean or, if so set, the sum.
pub fn reduce(reduction: Reduction, gradient: &mut [f32], samples: u64) {
    if reduction == Reduction::Mean {
        let n = samples as f32;
        gradient.iter_mut().for_each(|g| *g /= n);
    }
}

/// `g + λ·g⊙g⊙(w_now − w_read)`: what the gradient at `read` would be at `now`, to first order with `λ·g⊙g` for the
/// Hessian (Zheng et al. 2017, "Asynchronous stochastic gradient descent with delay compensation").
pub fn compensate_delay(lambda: f32, gradient: &mut [f32], now: &[f32], read: &[f32]) {
    for ((g, now), read) in gradient.iter_mut().zip(now).zip(read) {
        *g += lambda * *g * *g * (now - read);
    }
}

/// The constants of one step; its rules, element by element, so that a step in place and one into another buffer
/// round alike.
#[derive(Clone, Copy)]
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn settings(optimizer: OptimizerKind) -> OptimizerSettings {
        OptimizerSettings { optimizer, learning_rate: 0.1, epsilon: 1e-8, ..OptimizerSettings::default() }
    }

    const KINDS: [OptimizerKind; 5] = [
        OptimizerKind::Adagrad,
        OptimizerKind::Sgd,
        OptimizerKind::Momentum,
        OptimizerKind::Nesterov,
        OptimizerKind::Adam,
    ];

    #[test]
    fn two_steps_equal_the_formulas_worked_by_hand() {
        // w = 1, gradients 0.5 then -0.25, rate 0.1.
        let expected = [
            // 1 - 0.1·0.5/0.5 = 0.9; G = 0.3125, √G = 0.559017: 0.9 + 0.025/0.559017
            (OptimizerKind::Adagrad, 0.9, 0.944_721_4),
            (OptimizerKind::Sgd, 0.95, 0.975),
            // v = 0.5, then 0.45 - 0.25 = 0.2
            (OptimizerKind::Momentum, 0.95, 0.93),
            // v = 0.5, g + 0.9·v = 0.95; then v = 0.2, -0.25 + 0.18 = -0.07
            (OptimizerKind::Nesterov, 0.905, 0.912),
            // m̂/√v̂ = 1; then m = 0.02, v = 0.00031225: m̂ = 0.105263, √v̂ = 0.395227
            (OptimizerKind::Adam, 0.9, 0.873_366_3),
        ];
        for (kind, first, second) in expected {
            let mut optimizer = Optimizer::new(settings(kind), 1);
            let mut w = [1.0];
            optimizer.step(&mut w, &[0.5]);
            assert!((w[0] - first).abs() < 1e-6, "{kind:?}: {w:?}");
            optimizer.step(&mut w, &[-0.25]);
            assert!((w[0] - second).abs() < 1e-6, "{kind:?}: {w:?}");
            assert_eq!(optimizer.steps(), 2);
        }
    }

    /// integration-tests/reference/optimizers.py.
    #[test]
    fn twenty_steps_equal_torch() {
        let text = include_str!("../tests/fixtures/optimizers.json");
        let reference: serde_json::Value = serde_json::from_str(text).unwrap();
        let vector = |v: &serde_json::Value| serde_json::from_value::<Vec<f32>>(v.clone()).unwrap();
        for kind in KINDS.into_iter().filter(|kind| *kind != OptimizerKind::Nesterov) {
            let settings =
                OptimizerSettings { optimizer: kind, learning_rate: 0.05, ..OptimizerSettings::default() };
            let mut w = vector(&reference["start"]);
            let mut optimizer = Optimizer::new(settings, w.len());
            let name = serde_json::to_value(kind).unwrap();
            let trace = reference["parameters"][name.as_str().unwrap()].as_array().unwrap();
            assert_eq!(trace.len(), 20);
            for (step, (g, expected)) in
                reference["gradients"].as_array().unwrap().iter().zip(trace).enumerate()
            {
                optimizer.step(&mut w, &vector(g));
                for (a, b) in w.iter().zip(vector(expected)) {
                    assert!(
                        (a - b).abs() <= 2e-6 * b.abs().max(1.0),
                        "{kind:?}, step {step}: {a}, torch {b}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_step_that_leaves_the_gradient_gives_the_same_bits() {
        let n = 2 * CHUNK + 7;
        let gradient: Vec<f32> = (0..n).map(|i| (i as f32 * 0.37).sin()).collect();
        for kind in KINDS {
            let (mut one, mut other) = (Optimizer::new(settings(kind), n), Optimizer::new(settings(kind), n));
            let (mut w, mut v) = (vec![0.5; n], vec![0.5; n]);
            for samples in [3, 0, 7] {
                one.apply(&mut w, &mut gradient.clone(), samples);
                other.apply_to(&mut v, &gradient, samples);
            }
            assert_eq!((w, one.state()), (v, other.state()), "{kind:?}");
        }
    }

    #[test]
    fn a_sum_of_whole_numbers_stays_exact() {
        let settings = OptimizerSettings {
            optimizer: OptimizerKind::Sgd,
            learning_rate: 1.0,
            reduction: Reduction::Sum,
            ..OptimizerSettings::default()
        };
        let (mut optimizer, mut w) = (Optimizer::new(settings, 2), [0.0; 2]);
        for _ in 0..3 {
            optimizer.apply(&mut w, &mut [5_592_405.0, 3.0], 5_592_408);
        }
        optimizer.apply(&mut w, &mut [9.0, 9.0], 0);
        assert_eq!((w, optimizer.steps()), ([-16_777_215.0, -9.0], 3));
    }

    #[test]
    fn a_late_gradient_is_compensated_to_first_order() {
        // Loss ½·h·w², gradient h·w: with λ·g² = h the gradient at `now` comes out exactly.
        let (read, now, h) = (2.0_f32, 1.5, 0.3);
        let mut gradient = [h * read];
        compensate_delay(h / (gradient[0] * gradient[0]), &mut gradient, &[now], &[read]);
        assert!((gradient[0] - h * now).abs() < 1e-6, "{gradient:?}");
        compensate_delay(0.5, &mut gradient, &[now], &[now]);
        assert!((gradient[0] - h * now).abs() < 1e-6, "no delay, no change: {gradient:?}");
    }

    #[test]
    fn a_zero_gradient_moves_nothing() {
        for kind in KINDS {
            let mut w = [1.0, -2.0];
            Optimizer::new(settings(kind), 2).step(&mut w, &[0.0, 0.0]);
            assert_eq!(w, [1.0, -2.0], "{kind:?}");
        }
    }

    #[test]
    fn shards_step_as_the_whole_does() {
        let gradients = [[0.5, -1.0, 2.0, 0.1, -0.3], [1.5, 0.2, -0.7, 0.0, 0.9]];
        for kind in KINDS {
            let (mut whole, mut parts) = ([1.0; 5], [1.0; 5]);
            let mut optimizer = Optimizer::new(settings(kind), 5);
            optimizer.step(&mut whole, &gradients[0]);
            parts.copy_from_slice(&whole);
            let state = optimizer.state();
            optimizer.step(&mut whole, &gradients[1]);
            for range in [0..2, 2..5] {
                let mut shard = Optimizer::restore(settings(kind), &state, range.clone(), 5).unwrap();
                shard.step(&mut parts[range.clone()], &gradients[1][range]);
            }
            assert_eq!(whole, parts, "{kind:?}");
        }
    }

    #[test]
    fn a_step_into_another_buffer_is_the_same_step() {
        let gradients = [[0.5, -1.0, 2.0, 0.1, -0.3], [1.5, 0.2, -0.7, 0.0, 0.9]];
        for kind in KINDS {
            let mut in_place = Optimizer::new(settings(kind), 5);
            let (mut w, mut here) = ([1.0; 5], (in_place.clone(), [1.0; 5]));
            for gradient in &gradients {
                in_place.step(&mut w, gradient);
                let mut there = (Optimizer::new(settings(kind), 0), [0.0; 5]);
                let before = (format!("{:?}", here.0), here.1);
                there.0.follow(&here.0);
                for range in [0..2, 2..5] {
                    let values = (&here.1[range.clone()], &gradient[range.clone()]);
                    there.0.step_range(&here.0, range.clone(), values, &mut there.1[range]);
                }
                assert_eq!((format!("{:?}", here.0), here.1), before);
                here = there;
                assert_eq!((here.1, here.0.state()), (w, in_place.state()), "{kind:?}");
            }
        }
    }

    #[test]
    fn a_foreign_state_is_refused() {
        let adam = Optimizer::new(settings(OptimizerKind::Adam), 3).state();
        let error = Optimizer::restore(settings(OptimizerKind::Adagrad), &adam, 0..3, 3).unwrap_err();
        assert!(error.to_string().contains("sum_of_squares"), "{error}");
        let error = Optimizer::restore(settings(OptimizerKind::Adam), &adam, 0..4, 4).unwrap_err();
        assert!(matches!(error, Error::Length { found: 3, expected: 4, .. }), "{error}");
    }
}
