//! A trainer's values, where its member finds and puts them.

use crate::{
    OptimizerState,
    protocol::{Answer, Payload, Values},
};
use std::{ops::Range, sync::Arc};

/// A trainer's values, where the member finds and puts them.
#[derive(Debug, Default)]
pub(crate) struct Hands<'a> {
    pub parameters: Option<&'a mut [f32]>,
    pub gradient: &'a [f32],
    /// What it joins with.
    pub optimizer: Option<&'a OptimizerState>,
    /// The optimizer's memory, as it comes.
    pub memory: OptimizerState,
}

impl Hands<'_> {
    pub fn take_out(&self, payload: Payload) -> Vec<Values> {
        let part = |values: &[f32], range: &Range<usize>| {
            Arc::new(values.get(range.clone()).unwrap_or_default().to_vec())
        };
        match payload {
            Payload::Nothing => Vec::new(),
            Payload::Gradient(range) => vec![part(self.gradient, &range)],
            Payload::Start(range) => {
                let parameters = self.parameters.as_deref().unwrap_or_default();
                let vectors = self.optimizer.iter().flat_map(|state| &state.vectors);
                std::iter::once(parameters)
                    .chain(vectors.map(|(_, vector)| vector.as_slice()))
                    .map(|values| part(values, &range))
                    .collect()
            }
        }
    }

    /// Puts the values of an answer where they belong. False: they do not fit.
    pub fn put(&mut self, answer: &Answer, arrays: &[Values], range: Range<usize>, n: usize) -> bool {
        if arrays.len() != answer.arrays() || arrays.iter().any(|array| array.len() != range.len()) {
            return false;
        }
        match answer {
            Answer::Parameters { .. } => {
                let place = self.parameters.as_deref_mut().and_then(|p| p.get_mut(range));
                place.zip(arrays.first()).map(|(place, values)| place.copy_from_slice(values)).is_some()
            }
            Answer::State { vectors, .. } => {
                if self.memory.vectors.is_empty() {
                    self.memory.vectors = vectors.iter().map(|name| (name.clone(), vec![0.0; n])).collect();
                }
                let places = self.memory.vectors.iter_mut().zip(arrays);
                places.for_each(|((_, vector), values)| vector[range.clone()].copy_from_slice(values));
                true
            }
            _ => true,
        }
    }
}
