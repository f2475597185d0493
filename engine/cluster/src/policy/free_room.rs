//! Free room while a decision is made: what is bound or kept is taken from it.

use super::cluster_view::{Executor, Room, is_of};
use std::cmp::Reverse;

/// Executors in the order of their ids, and what is left of each.
pub(super) struct FreeRoom<'a> {
    executors: Vec<&'a Executor>,
    free: Vec<Room>,
}

impl<'a> FreeRoom<'a> {
    pub(super) fn new(executors: &'a [Executor]) -> Self {
        let mut executors: Vec<&Executor> = executors.iter().collect();
        executors.sort_by(|a, b| a.id.cmp(&b.id));
        let free = executors.iter().map(|e| e.free).collect();
        Self { executors, free }
    }

    pub(super) fn executor(&self, index: usize) -> &'a Executor {
        self.executors[index]
    }

    /// How many times `each` fits into what is left, in executors of `pool`.
    pub(super) fn fits(&self, each: &Room, pool: Option<&str>) -> u32 {
        let all = self.executors.iter().zip(&self.free);
        all.filter(|(e, _)| is_of(e, pool))
            .fold(0, |sum: u32, (_, free)| sum.saturating_add(free.times(each)))
    }

    /// Takes `each` from the executor of `pool` that has most slots left, so that work spreads. Executors with
    /// cards come last for those who need none.
    pub(super) fn take(&mut self, each: &Room, pool: Option<&str>) -> Option<usize> {
        let fitting = |i: &usize| is_of(self.executors[*i], pool) && self.free[*i].times(each) > 0;
        let index = (0..self.executors.len()).filter(fitting).min_by_key(|i| {
            let wasted = each.cards == 0 && self.executors[*i].total.cards > 0;
            (wasted, Reverse(self.free[*i].slots), *i)
        })?;
        self.free[index] = self.free[index].without(each, 1);
        Some(index)
    }

    /// Gives back what [`take`](Self::take) took.
    pub(super) fn give_back(&mut self, index: usize, each: &Room) {
        let free = &mut self.free[index];
        free.slots += each.slots;
        free.memory_bytes += each.memory_bytes;
        free.cards += each.cards;
    }
}
