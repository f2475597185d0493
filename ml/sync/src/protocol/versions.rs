//! The parameters of a shard with the optimizer's memory, in two versions: an update is written beside what it
//! starts from, so that the newest one can be undone and what is being sent is never changed.

use super::replica::Values;
use crate::{
    OptimizerSettings, OptimizerState, Reduction, Result,
    optimizer::{Optimizer, compensate_delay, reduce},
};
use std::{ops::Range, sync::Arc};

/// Elements that are summed, averaged and stepped at once: they stay in the nearest cache.
const CHUNK: usize = 4096;

/// One version.
#[derive(Clone, Debug)]
pub(super) struct Version {
    pub number: u64,
    pub parameters: Values,
    pub optimizer: Arc<Optimizer>,
}

/// The newest version and, after an update, the one before.
#[derive(Clone, Debug)]
pub(super) struct Versions {
    pub newest: Version,
    pub previous: Option<Version>,
}

/// What an update is made of.
pub(super) struct Update {
    /// By rank, the gradients summed over `samples`; none in an empty round.
    pub gradients: Vec<Values>,
    /// Samples of all of them.
    pub samples: u64,
    /// They are differences of parameters: their mean is the update, the optimizer is not asked.
    pub differences: bool,
    /// Delay compensation λ and the parameters that the gradient was computed on (Zheng et al. 2017).
    pub read: Option<(f32, Values)>,
}

impl Versions {
    /// Version `number` as it was brought: parameters, then the optimizer's vectors by `names`.
    ///
    /// # Errors
    /// A state of another rule, vectors of other lengths.
    pub fn install(
        settings: &OptimizerSettings,
        (number, steps): (u64, u64),
        names: &[String],
        arrays: Vec<Values>,
    ) -> Result<Self> {
        let mut arrays = arrays.into_iter();
        let parameters = arrays.next().unwrap_or_default();
        let n = parameters.len();
        let optimizer = if names.is_empty() {
            let mut fresh = Optimizer::new(settings.clone(), n);
            fresh.set_steps(steps);
            fresh
        } else {
            let vectors = names.iter().cloned().zip(arrays.map(|values| values.to_vec())).collect();
            Optimizer::restore(settings.clone(), &OptimizerState { vectors, steps }, 0..n, n)?
        };
        let newest = Version { number, parameters, optimizer: Arc::new(optimizer) };
        Ok(Self { newest, previous: None })
    }

    /// Version `number`, if it is here.
    pub fn get(&self, number: u64) -> Option<&Version> {
        let previous = self.previous.as_ref();
        std::iter::once(&self.newest).chain(previous).find(|version| version.number == number)
    }

    /// Goes back to version `number`. False if it is not here.
    pub fn go_back(&mut self, number: u64) -> bool {
        if self.newest.number == number {
            return true;
        }
        match self.previous.take() {
            Some(previous) if previous.number == number => {
                self.newest = previous;
                true
            }
            previous => {
                self.previous = previous;
                false
            }
        }
    }

    /// Makes the next version, and gives the mean gradient that led to it (none for an empty round).
    pub fn apply(&mut self, update: Update) -> Option<Values> {
        let mut next = self.room();
        next.number = self.newest.number.saturating_add(1);
        let mut gradients = update.gradients.into_iter();
        let mean = match gradients.next() {
            Some(first) if update.samples > 0 => {
                // The buffer that the first gradient came in becomes the mean's.
                let mut mean = Arc::unwrap_or_clone(first);
                let rest: Vec<Values> = gradients.collect();
                if update.differences {
                    self.newest.average(&mut next, &mut mean, &rest, update.samples);
                } else {
                    self.newest.step(&mut next, &mut mean, &rest, update.samples, update.read.as_ref());
                }
                Some(Arc::new(mean))
            }
            _ => {
                next.parameters = Arc::clone(&self.newest.parameters);
                next.optimizer = Arc::clone(&self.newest.optimizer);
                None
            }
        };
        self.previous = Some(std::mem::replace(&mut self.newest, next));
        mean
    }

    /// Buffers for the next version: those of the version before the newest, if nobody is reading them.
    fn room(&mut self) -> Version {
        let n = self.newest.parameters.len();
        let fresh = || Arc::new(vec![0.0; n]);
        let Some(Version { parameters, optimizer, .. }) = self.previous.take() else {
            let optimizer = Arc::new(Optimizer::clone(&self.newest.optimizer));
            return Version { number: 0, parameters: fresh(), optimizer };
        };
        let unused = |values: Values| Arc::try_unwrap(values).map_or_else(|_| fresh(), Arc::new);
        Version { number: 0, parameters: unused(parameters), optimizer }
    }
}

impl Version {
    /// Sums, averages and steps, block by block: every array passes through memory once.
    fn step(
        &self,
        next: &mut Self,
        mean: &mut [f32],
        rest: &[Values],
        samples: u64,
        read: Option<&(f32, Values)>,
    ) {
        let optimizer = Arc::make_mut(&mut next.optimizer);
        let into = Arc::make_mut(&mut next.parameters);
        let reduction = self.optimizer.reduction();
        optimizer.step_from(&self.optimizer, (&self.parameters, into), mean, |range, from, chunk| {
            add(chunk, rest, &range);
            reduce(reduction, chunk, samples);
            if let Some((lambda, read)) = read {
                compensate_delay(*lambda, chunk, from, &read[range]);
            }
        });
    }

    /// Sums, averages and subtracts, likewise; the optimizer's memory stays as it is.
    fn average(&self, next: &mut Self, mean: &mut [f32], rest: &[Values], samples: u64) {
        next.optimizer = Arc::clone(&self.optimizer);
        let into = Arc::make_mut(&mut next.parameters);
        for start in (0..mean.len()).step_by(CHUNK) {
            let range = start..mean.len().min(start + CHUNK);
            let (chunk, from) = (&mut mean[range.clone()], &self.parameters[range.clone()]);
            add(chunk, rest, &range);
            reduce(Reduction::Mean, chunk, samples);
            let into = into[range].iter_mut().zip(from).zip(chunk);
            into.for_each(|((to, w), difference)| *to = w - *difference);
        }
    }

    /// The optimizer's vectors and their names.
    pub fn memory(&self) -> (Vec<String>, Vec<Values>) {
        self.optimizer.named().map(|(name, values)| (name.to_owned(), Arc::new(values.clone()))).unzip()
    }
}

fn add(sum: &mut [f32], others: &[Values], range: &Range<usize>) {
    for other in others {
        sum.iter_mut().zip(&other[range.clone()]).for_each(|(sum, g)| *sum += g);
    }
}
