//! The update rules over a flat range of parameters: what a shard of the parameter service, or a rank of a
//! ring, applies to its share once the mean gradient of a round is known.
//!
//! Every rule is one pass over slices of equal length, so the compiler turns it into vector instructions. Blocks of
//! them go in parallel; no element knows of another, so the number of threads changes no bit.

mod rule;

use crate::{Error, OptimizerKind, OptimizerSettings, OptimizerState, Rank, Reduction, Result};
use rayon::prelude::*;
use rule::Rule;
use std::ops::Range;

/// Elements that one thread works on at once: those of all arrays stay in a near cache.
const BLOCK: usize = 4096;

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
        if samples == 0 {
            return;
        }
        let reduction = self.settings.reduction;
        self.step_blocks(parameters, gradient.par_chunks_mut(BLOCK), |rule, w, g, memory| {
            reduce(reduction, g, samples);
            rule.step(w, g, memory);
        });
    }

    /// As [`Self::apply`], of a `gradient` that stays as it is: no more of it is copied at once than a cache holds.
    pub(crate) fn apply_to(&mut self, parameters: &mut [f32], gradient: &[f32], samples: u64) {
        if samples == 0 {
            return;
        }
        let reduction = self.settings.reduction;
        self.step_blocks(parameters, gradient.par_chunks(BLOCK), |rule, w, g, memory| {
            let mut reduced = [0.0; BLOCK];
            let reduced = &mut reduced[..g.len()];
            reduced.copy_from_slice(g);
            reduce(reduction, reduced, samples);
            rule.step(w, reduced, memory);
        });
    }

    /// Applies one step to `parameters` `[n]` with the reduced `gradient` `[n]` of a round (see [`reduce`]).
    pub fn step(&mut self, parameters: &mut [f32], gradient: &[f32]) {
        self.step_blocks(parameters, gradient.par_chunks(BLOCK), |rule, w, g, memory| {
            rule.step(w, g, memory)
        });
    }

    /// One step in place, block by block, in parallel: the rule, the block's parameters, its gradient, its memory.
    fn step_blocks<G: IndexedParallelIterator>(
        &mut self,
        parameters: &mut [f32],
        gradient: G,
        step: impl Fn(Rule, &mut [f32], G::Item, [&mut [f32]; 2]) + Sync + Send,
    ) {
        self.steps += 1;
        let rule = Rule::of(&self.settings, self.steps);
        let n = parameters.len();
        let memory = blocks_mut(&mut self.first, n).zip(blocks_mut(&mut self.second, n));
        let blocks = parameters.par_chunks_mut(BLOCK).zip(gradient).zip(memory);
        blocks.for_each(|((w, g), (first, second))| step(rule, w, g, [first, second]));
    }

    /// A step from (`of`, `from`) to (`self`, `into`), which keeps both: what was is read once, what will be is written
    /// once. `reduced` makes of the parameters of a range, and of what `gradient` holds there, what the rule takes.
    /// `self` becomes the same rule as `of`, one step later.
    pub(crate) fn step_from(
        &mut self,
        of: &Self,
        (from, into): (&[f32], &mut [f32]),
        gradient: &mut [f32],
        reduced: impl Fn(Range<usize>, &[f32], &mut [f32]) + Sync + Send,
    ) {
        self.follow(of);
        let rule = Rule::of(&self.settings, self.steps);
        let n = from.len();
        let memory = blocks_mut(&mut self.first, n).zip(blocks_mut(&mut self.second, n));
        let was = blocks(&of.first, n).zip(blocks(&of.second, n));
        let weights =
            into.par_chunks_mut(BLOCK).zip(from.par_chunks(BLOCK)).zip(gradient.par_chunks_mut(BLOCK));
        weights.zip(memory.zip(was)).enumerate().for_each(|(i, (((into, from), g), (memory, was)))| {
            reduced(i * BLOCK..i * BLOCK + g.len(), from, g);
            rule.step_between((from, g, [was.0, was.1]), (into, [memory.0, memory.1]));
        });
    }

    /// Makes room for a step from `of`: the same rule and as many parameters, one step later.
    fn follow(&mut self, of: &Self) {
        self.settings = of.settings.clone();
        self.first.resize(of.first.len(), 0.0);
        self.second.resize(of.second.len(), 0.0);
        self.steps = of.steps + 1;
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

/// The blocks of `n` values, or as many empty ones of a vector that the rule does not have.
fn blocks(values: &[f32], n: usize) -> impl IndexedParallelIterator<Item = &[f32]> {
    let block = move |i: usize| values.get(i * BLOCK..).map(|rest| &rest[..BLOCK.min(rest.len())]);
    (0..n.div_ceil(BLOCK)).into_par_iter().map(move |i| block(i).unwrap_or_default())
}

/// As [`blocks`], to be written.
fn blocks_mut(values: &mut [f32], n: usize) -> impl IndexedParallelIterator<Item = &mut [f32]> {
    let mut blocks: Vec<&mut [f32]> = values.chunks_mut(BLOCK).collect();
    blocks.resize_with(n.div_ceil(BLOCK), Default::default);
    blocks.into_par_iter()
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
        let n = 2 * BLOCK + 7;
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
        let n = 2 * BLOCK + 7;
        let wave = |rate: f32| (0..n).map(|i| (i as f32 * rate).sin()).collect::<Vec<f32>>();
        let gradients = [wave(0.37), wave(0.73)];
        for kind in KINDS {
            let mut in_place = Optimizer::new(settings(kind), n);
            let (mut w, mut here) = (vec![1.0; n], (in_place.clone(), vec![1.0; n]));
            for gradient in &gradients {
                in_place.step(&mut w, gradient);
                let mut there = (Optimizer::new(settings(kind), 0), vec![0.0; n]);
                let before = (format!("{:?}", here.0), here.1.clone());
                // Half of the gradient, which the closure makes whole.
                let mut half: Vec<f32> = gradient.iter().map(|g| 0.5 * g).collect();
                there.0.step_from(&here.0, (&here.1, &mut there.1), &mut half, |range, from, g| {
                    assert_eq!(from, &before.1[range]);
                    g.iter_mut().for_each(|g| *g *= 2.0);
                });
                assert_eq!((format!("{:?}", here.0), here.1.clone()), before);
                here = there;
                assert_eq!((&here.1, here.0.state()), (&w, in_place.state()), "{kind:?}");
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
