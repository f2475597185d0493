//! How many steps between two rounds, from what steps and rounds took.
//!
//! A round costs what its messages take, c, and what the ranks wait for the slowest of them, w; with H steps between two
//! rounds c is paid once in H steps, and w, where it comes of chance, grows with √H only. So a step costs
//!
//! ```text
//!   s·(1 + (w/√H + c/H)/s)        s: a step of the slowest rank
//! ```
//! and H is the smallest for which the bracket is at most 15/14: thirteen ranks do the work of twelve, and a hundredth is
//! left for what ten rounds do not show. Without chance that is H ≥ 14·c/s. A rank that is always slower costs the same with any H, so it has no part in w.

/// Seconds of one step that was a round, on one rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepTiming {
    /// From the end of the round before: feeding and computing.
    pub compute: f64,
    /// In the round: waiting for the slowest rank, and communicating.
    pub round: f64,
}

/// What rounds may cost beside the steps.
const COST: f64 = 1.0 / 14.0;
/// DiLoCo's 500 and a little more: nothing is known of what lies beyond.
const MOST: u64 = 512;

/// The number of local steps for which rounds cost a fourteenth of the steps, 1 to 512. `rounds`: by round, what each rank
/// measured.
pub fn local_steps_for(rounds: &[Vec<StepTiming>]) -> u64 {
    let ranks = rounds.iter().map(Vec::len).min().unwrap_or(0);
    if ranks == 0 {
        return 1;
    }
    let count = rounds.len() as f64;
    let slowest_of = |round: &Vec<StepTiming>| round.iter().map(|t| t.compute).fold(0.0, f64::max);
    let mean_of = |rank: usize| rounds.iter().map(|round| round[rank].compute).sum::<f64>() / count;
    let step = (0..ranks).map(mean_of).fold(0.0, f64::max);
    let wait = (rounds.iter().map(slowest_of).sum::<f64>() / count - step).max(0.0);
    // Who comes last does not wait.
    let last_of = |round: &Vec<StepTiming>| round.iter().map(|t| t.round).fold(f64::INFINITY, f64::min);
    let communication = median(rounds.iter().map(last_of).collect());
    smallest(wait, communication, COST * step)
}

/// The smallest H with w/√H + c/H ≤ `most`.
fn smallest(wait: f64, communication: f64, most: f64) -> u64 {
    // With x = 1/√H: c·x² + w·x − most = 0, in the form that cancels nothing.
    let root = wait + (wait * wait + 4.0 * communication * most).sqrt();
    let x = 2.0 * most / root;
    let steps = (1.0 / (x * x)).ceil();
    // Not a number: nothing took any time.
    if steps.is_nan() { 1 } else { (steps as u64).clamp(1, MOST) }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use proptest::prelude::*;

    fn rounds(computes: &[&[f64]], communication: f64) -> Vec<Vec<StepTiming>> {
        let round = |computes: &&[f64]| {
            let slowest = computes.iter().copied().fold(0.0, f64::max);
            let timing =
                |compute: &f64| StepTiming { compute: *compute, round: slowest - compute + communication };
            computes.iter().map(timing).collect()
        };
        computes.iter().map(round).collect()
    }

    #[test]
    fn steps_without_chance_follow_the_ratio() {
        for (communication, steps) in
            [(0.0, 1), (0.07, 1), (0.072, 2), (0.25, 4), (0.49, 7), (0.99, 14), (3.99, 56), (100.0, 512)]
        {
            assert_eq!(local_steps_for(&rounds(&[&[1.0, 1.0], &[1.0, 1.0]], communication)), steps);
        }
    }

    #[test]
    fn a_rank_that_is_always_slow_is_no_reason_for_local_steps() {
        assert_eq!(local_steps_for(&rounds(&[&[1.0, 3.0], &[1.0, 3.0]], 0.2)), 1);
        // Ranks that are slow in turn are: they wait for half a step in each.
        assert_eq!(local_steps_for(&rounds(&[&[1.0, 2.0], &[2.0, 1.0]], 0.0)), 22);
    }

    #[test]
    fn nothing_measured_is_one_step() {
        assert_eq!(local_steps_for(&[]), 1);
        assert_eq!(local_steps_for(&[vec![], vec![]]), 1);
        assert_eq!(local_steps_for(&rounds(&[&[0.0, 0.0]], 0.0)), 1);
        assert_eq!(local_steps_for(&rounds(&[&[1e-9, 1e-9]], 1.0)), MOST);
    }

    proptest! {
        /// It is enough, and one less is not.
        #[test]
        fn it_is_the_smallest(wait in 0.0..3.0_f64, communication in 0.0..3.0_f64, most in 0.01..3.0_f64) {
            let cost = |steps: u64| wait / (steps as f64).sqrt() + communication / steps as f64;
            let steps = smallest(wait, communication, most);
            prop_assert!(steps == MOST || cost(steps) <= most * (1.0 + 1e-9));
            prop_assert!(steps == 1 || cost(steps - 1) > most * (1.0 - 1e-9));
        }
    }
}
