//! Which card takes which samples of a minibatch.

use std::ops::Range;

/// The samples of each of `cards`: runs that follow each other and differ by one at most, the larger ones first. With
/// fewer samples than cards the last ones are empty.
pub(super) fn shares(samples: usize, cards: usize) -> impl Iterator<Item = Range<usize>> {
    let (each, more) = (samples / cards.max(1), samples % cards.max(1));
    (0..cards).map(move |card| card * each + card.min(more)..(card + 1) * each + (card + 1).min(more))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_first_cards_take_more() {
        let of = |samples, cards| shares(samples, cards).collect::<Vec<_>>();
        assert_eq!(of(1600, 1), vec![0..1600; 1]);
        assert_eq!(of(1603, 4), [0..401, 401..802, 802..1203, 1203..1603]);
        assert_eq!(of(2, 3), [0..1, 1..2, 2..2]);
        assert_eq!(of(0, 2), [0..0, 0..0]);
    }

    proptest! {
        /// Every sample is one card's, and no card takes more than there is room for.
        #[test]
        fn every_sample_is_taken_once(most in 1usize..5000, part in 0f64..=1.0, cards in 1usize..9) {
            let samples = (part * most as f64) as usize;
            let all: Vec<_> = shares(samples, cards).collect();
            prop_assert_eq!(all.len(), cards);
            prop_assert_eq!(all.iter().cloned().flatten().collect::<Vec<_>>(), (0..samples).collect::<Vec<_>>());
            prop_assert!(all.windows(2).all(|two| two[0].len() >= two[1].len()));
            prop_assert!(all.iter().all(|share| share.len() <= most.div_ceil(cards)));
            prop_assert!(all[0].len() - all[cards - 1].len() <= 1);
        }
    }
}
