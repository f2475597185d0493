//! What every implementation refuses before it lets a rank's values reach the others.

use crate::{Contribution, Error, Rank, Result};

/// The rank whose contribution is looked at.
pub(crate) struct Checked {
    pub rank: Rank,
    /// The rank's step, from 0.
    pub step: u64,
    /// Parameters that were joined with.
    pub expected: usize,
}

impl Checked {
    /// # Errors
    /// [`Error::Length`] and [`Error::NotFinite`].
    pub fn contribution(&self, parameters: &[f32], contribution: &Contribution<'_>) -> Result<()> {
        let Self { rank, step, expected } = *self;
        for found in [parameters.len(), contribution.gradient.len()] {
            if found != expected {
                return Err(Error::Length { rank, what: "step", found, expected });
            }
        }
        if !all_finite(contribution.gradient) {
            return Err(Error::NotFinite { rank, what: "gradient", step });
        }
        if !contribution.loss.is_finite() {
            return Err(Error::NotFinite { rank, what: "loss", step });
        }
        Ok(())
    }

    /// # Errors
    /// For every rank but 0: warm-up is its alone.
    pub fn alone(rank: Rank) -> Result<()> {
        if rank == Rank(0) {
            return Ok(());
        }
        Err(Error::Setting { name: "warm_up", reason: format!("only rank 0 trains alone, not {rank}") })
    }
}

/// Whole blocks without a branch inside, so that the loop vectorises.
fn all_finite(values: &[f32]) -> bool {
    const EXPONENT: u32 = 0x7f80_0000;
    values.chunks(4096).all(|block| {
        let odd = block.iter().fold(0, |odd, v| odd | u32::from(v.to_bits() & EXPONENT == EXPONENT));
        odd == 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_odd_value_is_found_wherever_it_is() {
        for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for place in [0, 1, 4095, 4096, 9000, 9999] {
                let mut values = vec![f32::MAX; 10_000];
                assert!(all_finite(&values));
                values[place] = odd;
                assert!(!all_finite(&values), "{odd} at {place}");
            }
        }
    }
}
