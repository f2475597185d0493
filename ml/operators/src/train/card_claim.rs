//! Who has which card of this process. A rank that asks for cards of its own (`cards => 1`) opens those that `device`
//! names, so two such ranks of one executor would open the same card.

use super::job::TRAIN;
use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};
use voxelflow_stage::{Error, Placement, Result};

static TAKEN: Mutex<BTreeMap<usize, String>> = Mutex::new(BTreeMap::new());

fn taken() -> MutexGuard<'static, BTreeMap<usize, String>> {
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Cards that a rank has for itself; given back when this is dropped.
#[derive(Debug)]
pub(super) struct CardClaim(Vec<usize>);

impl CardClaim {
    /// Takes the cards that `device` names for `rank`.
    ///
    /// # Errors
    /// A device that is none; a card that another rank of this process has.
    pub fn take(device: &str, rank: &str) -> Result<Self> {
        let Placement::Cards(cards) = Placement::of(device)? else { return Ok(Self(Vec::new())) };
        let mut taken = taken();
        if let Some((card, other)) = cards.iter().find_map(|card| Some((card, taken.get(card)?))) {
            let reason = format!(
                "{rank} and {other} are in one process and would share cuda:{card}; start an executor for each card \
                 (with CUDA_VISIBLE_DEVICES), or write cards => 0 to share it"
            );
            return Err(Error::OptionValue { what: TRAIN.into(), option: "cards".into(), reason });
        }
        taken.extend(cards.iter().map(|card| (*card, rank.to_owned())));
        Ok(Self(cards))
    }
}

impl Drop for CardClaim {
    fn drop(&mut self) {
        let mut taken = taken();
        self.0.iter().for_each(|card| drop(taken.remove(card)));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_card_is_of_one_rank_at_a_time() {
        let first = CardClaim::take("cuda:90,91", "rank 0 of model a").unwrap();
        let error = CardClaim::take("cuda:91", "rank 1 of model a").unwrap_err();
        assert_eq!(error.option(), Some("cards"));
        assert!(
            error.to_string().contains("rank 1 of model a and rank 0 of model a") && error.is_input(),
            "{error}"
        );
        // A claim that was refused takes nothing away, and another card is free.
        CardClaim::take("cuda:92", "rank 1 of model a").unwrap();
        drop(first);
        CardClaim::take("cuda:91", "rank 1 of model a").unwrap();
        CardClaim::take("cpu", "rank 2 of model a").unwrap();
    }
}
