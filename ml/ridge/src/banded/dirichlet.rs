//! Weights of bands, drawn at random.

use crate::{Error, Result};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use rand_distr::{Distribution, Gamma};

/// `count` weights of `bands` bands that sum to 1: the first equal for all, the others from Dirichlet distributions
/// with the `concentrations` in turn. 1 is uniform on the simplex; less leans to its corners, where few bands count.
///
/// The same seed gives the same weights on every machine (himalaya's generator is another: give it these weights to
/// compare).
///
/// # Errors
/// No bands; concentrations that are none or not over 0.
pub fn dirichlet(count: usize, bands: usize, concentrations: &[f64], seed: u64) -> Result<Vec<Vec<f64>>> {
    if bands == 0 {
        return Err(Error::Setting { option: "bands", reason: "there are none".into() });
    }
    let wrong = |c: f64| Error::Setting {
        option: "concentration",
        reason: format!("{c} is not a finite number over 0; give for example [0.1, 1]"),
    };
    if concentrations.is_empty() {
        return Err(wrong(f64::NAN));
    }
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut gammas = vec![vec![1.0 / bands as f64; bands]];
    for concentration in concentrations.iter().cycle().skip(1).take(count.saturating_sub(1)) {
        if !(concentration.is_finite() && *concentration > 0.0) {
            return Err(wrong(*concentration));
        }
        let law = Gamma::new(*concentration, 1.0).map_err(|_| wrong(*concentration))?;
        // Draws of small concentrations can all be too small for a number.
        let drawn = (0..1000).map(|_| (0..bands).map(|_| law.sample(&mut random)).collect::<Vec<f64>>());
        let sound = drawn.map(|g| (g.iter().sum::<f64>(), g)).find(|(sum, _)| *sum > 0.0);
        let (sum, gamma) = sound.ok_or_else(|| wrong(*concentration))?;
        gammas.push(gamma.into_iter().map(|g| g / sum).collect());
    }
    gammas.truncate(count);
    Ok(gammas)
}
