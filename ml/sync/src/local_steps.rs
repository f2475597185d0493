//! Local steps: each rank takes H steps alone, then the gang makes one of what they came back with.
//!
//! ```text
//!   w ─► rank 0: H inner steps ─► w₀ ─ n₀·(w − w₀) ─┐
//!   w ─► rank 1: H inner steps ─► w₁ ─ n₁·(w − w₁) ─┴─► GradientSync::step ─► outer rule on Δ = Σ n·(w − w_r)/Σ n ─► w
//! ```
//! With the outer rule `w −= Δ` the result is the ranks' parameters averaged, weighted by their samples: local SGD
//! (Stich 2019, "Local SGD converges fast and communicates little"). With Nesterov momentum on Δ it is DiLoCo
//! (Douillard et al. 2023, arXiv 2311.08105). A round moves as many bytes as one without local steps, so there are H
//! times fewer of them.
//!
//! The inner rule's memory stays with its rank. Where a checkpoint is taken ([`GradientSync::optimizer_state`]) and
//! where a gang goes on ([`GradientSync::join`]) the ranks' memories are averaged and everyone takes the mean: so a run
//! that is resumed has what the run that was stopped would have gone on with.

use crate::{
    Contribution, Error, GradientSync, Lease, OptimizerSettings, OptimizerState, Place, Position, Rank,
    Result, Round, Start, SyncSettings, Totals, Traffic, contribution::Checked, optimizer::Optimizer,
};

/// A rank that takes several steps alone between two rounds of `inner`, whose update rule is the outer one
/// ([`SyncSettings::round_optimizer`]).
#[derive(Debug)]
pub struct LocalSteps<S> {
    inner: S,
    /// H.
    every: u64,
    settings: OptimizerSettings,
    optimizer: Optimizer,
    /// The parameters that the last round gave, `[n_parameters]`.
    anchor: Vec<f32>,
    /// `[n_parameters]`.
    difference: Vec<f32>,
    /// Local steps since the last round, and what was trained on in them.
    local: u64,
    totals: Totals,
    steps: u64,
    /// All ranks have stepped since they met last: else only the leader may have, alone.
    together: bool,
}

/// Prefix of the inner rule's vectors in an [`OptimizerState`].
const INNER: &str = "inner_";

impl<S: GradientSync> LocalSteps<S> {
    /// H steps alone, as `settings` say, between two rounds of `inner`.
    pub fn new(inner: S, settings: &SyncSettings) -> Self {
        Self {
            inner,
            every: settings.local_steps.max(1),
            settings: settings.optimizer.clone(),
            optimizer: Optimizer::new(settings.optimizer.clone(), 0),
            anchor: Vec::new(),
            difference: Vec::new(),
            local: 0,
            totals: Totals::default(),
            steps: 0,
            together: false,
        }
    }

    /// One step of this rank's own.
    fn step_locally(&mut self, parameters: &mut [f32], contribution: Contribution<'_>) {
        let Contribution { gradient, samples, loss } = contribution;
        self.difference.copy_from_slice(gradient);
        self.optimizer.apply(parameters, &mut self.difference, samples);
        self.local += 1;
        self.totals = self.totals.plus(Totals { samples, loss });
    }

    /// Brings the difference since the last round, if there is any, to the next one.
    fn exchange(&mut self, parameters: &mut [f32], alone: bool) -> Result<Round> {
        let Totals { samples, loss } = std::mem::take(&mut self.totals);
        self.local = 0;
        let weight = samples as f32;
        for ((difference, anchor), w) in self.difference.iter_mut().zip(&self.anchor).zip(parameters.iter()) {
            *difference = (anchor - w) * weight;
        }
        parameters.copy_from_slice(&self.anchor);
        let contribution = Contribution { gradient: &self.difference, samples, loss };
        let round = if alone {
            self.inner.step_alone(parameters, contribution)?
        } else {
            self.inner.step(parameters, contribution)?
        };
        self.anchor.copy_from_slice(parameters);
        Ok(round)
    }

    /// `None` if nothing is wrong with a contribution. What is wrong is refused by `inner`, so that the others learn
    /// of it.
    fn refused(&mut self, parameters: &mut [f32], contribution: Contribution<'_>) -> Option<Error> {
        let (rank, step) = (self.rank(), self.steps);
        self.steps += 1;
        let check = Checked { rank, step, expected: self.anchor.len() };
        let error = check.contribution(parameters, &contribution).err()?;
        match self.inner.step(parameters, contribution) {
            Err(first) if !matches!(first, Error::NotFinite { .. }) => Some(first),
            _ => Some(error),
        }
    }

    /// Averages the inner rule's memory over the ranks: over those that restored it from a checkpoint, or else over
    /// those that have stepped.
    fn average_memory(&mut self, restored: bool, steps: u64) -> Result<()> {
        let stepped = self.optimizer.steps() > 0;
        let mut holders = [f64::from(u8::from(restored)), f64::from(u8::from(stepped))];
        self.inner.sum(&mut holders)?;
        let (counts, holders) = if holders[0] > 0.0 { (restored, holders[0]) } else { (stepped, holders[1]) };
        if holders == 0.0 {
            return Ok(());
        }
        for vector in self.optimizer.vectors_mut() {
            let weight = if counts { 1.0 / holders } else { 0.0 };
            let mut sums: Vec<f64> = vector.iter().map(|v| weight * f64::from(*v)).collect();
            self.inner.sum(&mut sums)?;
            vector.iter_mut().zip(sums).for_each(|(v, sum)| *v = sum as f32);
        }
        self.optimizer.set_steps(steps * self.every);
        Ok(())
    }

    /// Takes the inner rule's memory out of `state`; true if it was there.
    fn restore(&mut self, state: &mut Option<OptimizerState>, n: usize) -> Result<bool> {
        let Some(state) = state else { return Ok(false) };
        let (inner, outer): (Vec<_>, Vec<_>) =
            std::mem::take(&mut state.vectors).into_iter().partition(|(name, _)| name.starts_with(INNER));
        state.vectors = outer;
        let vectors = inner.into_iter().map(|(name, v)| (name[INNER.len()..].to_owned(), v)).collect();
        let inner = OptimizerState { vectors, steps: state.steps * self.every };
        self.optimizer = Optimizer::restore(self.settings.clone(), &inner, 0..n, n)?;
        Ok(true)
    }
}

impl<S: GradientSync> GradientSync for LocalSteps<S> {
    fn rank(&self) -> Rank {
        self.inner.rank()
    }

    fn world(&self) -> usize {
        self.inner.world()
    }

    fn place(&self) -> Place {
        self.inner.place()
    }

    fn join(&mut self, parameters: &mut [f32], mut start: Start) -> Result<Position> {
        let n = parameters.len();
        if self.anchor.len() != n {
            self.optimizer = Optimizer::new(self.settings.clone(), n);
        }
        let brought = start.position.clone();
        let restored = self.restore(&mut start.optimizer, n)?;
        let position = self.inner.join(parameters, start)?;
        self.anchor = parameters.to_vec();
        self.difference = vec![0.0; n];
        (self.local, self.totals, self.together) = (0, Totals::default(), false);
        if position.round > 0 {
            // A checkpoint that the gang did not begin with is of no use to it.
            self.average_memory(restored && position == brought, position.round)?;
        }
        Ok(position)
    }

    fn lease(&mut self, at_most: usize) -> Result<Option<Lease>> {
        self.inner.lease(at_most)
    }

    fn step(&mut self, parameters: &mut [f32], contribution: Contribution<'_>) -> Result<Round> {
        if let Some(error) = self.refused(parameters, contribution) {
            return Err(error);
        }
        self.together = true;
        if contribution.samples > 0 {
            self.step_locally(parameters, contribution);
            if self.local < self.every {
                let round = self.inner.position().round;
                return Ok(Round { round, samples: 0, loss: 0.0, staleness: 0, finished: false });
            }
        }
        self.exchange(parameters, false)
    }

    fn step_alone(&mut self, parameters: &mut [f32], contribution: Contribution<'_>) -> Result<Round> {
        if let Some(error) = self.refused(parameters, contribution) {
            return Err(error);
        }
        if !self.place().leads() {
            return self.inner.step_alone(parameters, contribution);
        }
        self.step_locally(parameters, contribution);
        self.exchange(parameters, true)
    }

    fn synchronise(&mut self, parameters: &mut [f32]) -> Result<Totals> {
        // What the leader did alone is with the gang already.
        if std::mem::take(&mut self.together) && parameters.len() == self.anchor.len() {
            self.exchange(parameters, false)?;
        }
        let totals = self.inner.synchronise(parameters)?;
        self.anchor.copy_from_slice(parameters);
        Ok(totals)
    }

    fn position(&self) -> Position {
        self.inner.position()
    }

    fn sum(&mut self, values: &mut [f64]) -> Result<()> {
        self.inner.sum(values)
    }

    fn optimizer_state(&mut self) -> Result<OptimizerState> {
        let mut state = self.inner.optimizer_state()?;
        match self.average_memory(false, state.steps) {
            // Without a driver nobody adds up: then the leader's memory stands for all.
            Err(error) if error.wants_join() => {}
            other => other?,
        }
        let own = self.optimizer.state().vectors.into_iter();
        state.vectors.extend(own.map(|(name, values)| (format!("{INNER}{name}"), values)));
        Ok(state)
    }

    fn traffic(&self) -> Traffic {
        self.inner.traffic()
    }
}

/// `sync` as it is, or with the local steps that `settings` ask for.
pub fn with_local_steps(sync: Box<dyn GradientSync>, settings: &SyncSettings) -> Box<dyn GradientSync> {
    if settings.local_steps > 1 { Box::new(LocalSteps::new(sync, settings)) } else { sync }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::{
        OptimizerKind, Outer, Topology,
        conformance::{on_every_rank, values},
        in_process_gang,
    };

    const N: usize = 11;
    const RANKS: usize = 3;
    const H: u64 = 4;

    fn settings(inner: OptimizerKind, outer: Outer) -> SyncSettings {
        let optimizer =
            OptimizerSettings { optimizer: inner, learning_rate: 0.05, ..OptimizerSettings::default() };
        SyncSettings { local_steps: H, outer, deadline_seconds: 60.0, optimizer, ..SyncSettings::default() }
    }

    /// Samples of a rank's step; ranks bring different numbers.
    fn minibatch(rank: usize, step: u64) -> Vec<Vec<f64>> {
        (0..=rank as u64).map(|i| values(1000 * rank as u64 + 10 * step + i, N)).collect()
    }

    fn gradient(w: &[f64], minibatch: &[Vec<f64>]) -> Vec<f64> {
        (0..N).map(|i| minibatch.iter().map(|x| w[i] - x[i]).sum()).collect()
    }

    /// One rank's `steps`, from `w`.
    fn steps(sync: &mut dyn GradientSync, w: &mut [f32], steps: std::ops::Range<u64>) -> Vec<Round> {
        let step = |step| {
            let (minibatch, rank) = (minibatch(sync.rank().0, step), sync.rank().0 as u64);
            let wide: Vec<f64> = w.iter().map(|v| f64::from(*v)).collect();
            let gradient: Vec<f32> = gradient(&wide, &minibatch).iter().map(|g| *g as f32).collect();
            sync.step(w, Contribution { gradient: &gradient, samples: rank + 1, loss: 1.0 }).unwrap()
        };
        steps.map(step).collect()
    }

    /// Local SGD and DiLoCo as their papers write them, in 64 bits, with no gang at all.
    fn reference(settings: &SyncSettings, rounds: u64) -> Vec<f64> {
        let OptimizerSettings { optimizer, learning_rate, epsilon, .. } = settings.optimizer;
        let (rate, epsilon) = (f64::from(learning_rate), f64::from(epsilon));
        let (outer_rate, momentum) = match settings.outer {
            Outer::Average => (1.0, 0.0),
            Outer::Sgd => (0.5, 0.0),
            Outer::Nesterov => (0.7, f64::from(settings.outer_momentum)),
        };
        let (mut w, mut velocity) = (vec![0.0; N], [0.0; N]);
        let mut squares = vec![vec![0.0; N]; RANKS];
        for round in 0..rounds {
            let mut delta = [0.0; N];
            for (rank, squares) in squares.iter_mut().enumerate() {
                let (mut own, n) = (w.clone(), (rank + 1) as f64);
                for step in round * H..(round + 1) * H {
                    let gradient = gradient(&own, &minibatch(rank, step));
                    for i in 0..N {
                        let g = gradient[i] / n;
                        squares[i] += g * g;
                        let root: f64 = squares[i];
                        own[i] -= match optimizer {
                            OptimizerKind::Sgd => rate * g,
                            _ => rate * g / (root.sqrt() + epsilon),
                        };
                    }
                }
                // Weights: every step of rank r has r + 1 of the 1 + 2 + 3 samples.
                delta.iter_mut().zip(&w).zip(&own).for_each(|((d, w), own)| *d += n / 6.0 * (w - own));
            }
            for i in 0..N {
                velocity[i] = momentum * velocity[i] + delta[i];
                w[i] -= outer_rate * (delta[i] + momentum * velocity[i]);
            }
        }
        w
    }

    #[test]
    fn rounds_equal_the_papers_formulas() {
        for topology in [Topology::ParameterService, Topology::Ring] {
            for inner in [OptimizerKind::Sgd, OptimizerKind::Adagrad] {
                for outer in [Outer::Average, Outer::Sgd, Outer::Nesterov] {
                    let mut settings = SyncSettings { topology, ..settings(inner, outer) };
                    settings.outer_learning_rate = (outer == Outer::Sgd).then_some(0.5);
                    let expected = reference(&settings, 5);
                    on_every_rank(in_process_gang(&settings, RANKS).unwrap(), |_, mut sync| {
                        let mut w = vec![0.0; N];
                        sync.join(&mut w, Start::fresh(0)).unwrap();
                        let rounds = steps(&mut *sync, &mut w, 0..5 * H);
                        for (i, round) in rounds.iter().enumerate() {
                            let samples = if i as u64 % H == H - 1 { 6 * H } else { 0 };
                            assert_eq!((round.round, round.samples), (i as u64 / H, samples), "step {i}");
                        }
                        for (found, expected) in w.iter().zip(&expected) {
                            let far = (f64::from(*found) - expected).abs();
                            assert!(far < 1e-5, "{inner:?} {outer:?}: {found} != {expected}");
                        }
                    });
                }
            }
        }
    }

    /// What is resumed from a checkpoint equals what went on from it, to the bit, with the memory of the inner rule.
    #[test]
    fn a_resumed_run_equals_the_one_that_went_on() {
        let settings = settings(OptimizerKind::Adam, Outer::Nesterov);
        let gang = || in_process_gang(&settings, RANKS).unwrap();
        let whole = on_every_rank(gang(), |_, mut sync| {
            let mut w = vec![0.0; N];
            sync.join(&mut w, Start::fresh(0)).unwrap();
            steps(&mut *sync, &mut w, 0..2 * H);
            let start = Start {
                optimizer: Some(sync.optimizer_state().unwrap()),
                position: sync.position(),
                rows: 0,
            };
            let half = w.clone();
            steps(&mut *sync, &mut w, 2 * H..4 * H);
            (w, half, start)
        });
        let (end, half, start) = &whole[0];
        assert_eq!(start.position.round, 2);
        let names: Vec<_> =
            start.optimizer.iter().flat_map(|o| &o.vectors).map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["velocity", "inner_first_moment", "inner_second_moment"]);
        on_every_rank(gang(), |rank, mut sync| {
            let (mut w, mut own) = (vec![0.5; N], Start::fresh(0));
            if rank == 0 {
                (w, own) = (half.clone(), start.clone());
            }
            sync.join(&mut w, own).unwrap();
            steps(&mut *sync, &mut w, 2 * H..4 * H);
            assert_eq!(&w, end);
        });
    }

    /// Steps that no round has taken yet are not lost at the end of an epoch.
    #[test]
    fn an_epoch_s_end_takes_what_is_left() {
        let settings = settings(OptimizerKind::Sgd, Outer::Average);
        let all = on_every_rank(in_process_gang(&settings, RANKS).unwrap(), |_, mut sync| {
            let mut w = vec![0.0; N];
            sync.join(&mut w, Start::fresh(0)).unwrap();
            steps(&mut *sync, &mut w, 0..H);
            let before = w.clone();
            steps(&mut *sync, &mut w, H..H + 1);
            let totals = sync.synchronise(&mut w).unwrap();
            assert_eq!((totals.samples, sync.position().round), (6 * (H + 1), 2));
            assert_ne!(w, before);
            w
        });
        assert!(all.iter().all(|w| *w == all[0]));
    }
}
