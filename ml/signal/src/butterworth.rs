//! Design of digital Butterworth filters as second-order sections.
//!
//! Analogue prototype → frequency transformation → bilinear transformation with pre-warping → sections, each
//! pole paired with the nearest zeros (Oppenheim & Schafer, Discrete-Time Signal Processing, ch. 7), so that the
//! coefficients are those of `scipy.signal.butter(…, output='sos')`.

use crate::{Error, Result};
use num_complex::Complex64;
use std::f64::consts::PI;

/// Order of the filter in `nilearn.signal.butterworth`.
pub(crate) const ORDER: usize = 5;

/// What a filter lets through; frequencies in hertz.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Band {
    /// Frequencies under the cut-off.
    LowPass(f64),
    /// Frequencies over the cut-off.
    HighPass(f64),
    /// Frequencies between the two.
    BandPass(f64, f64),
}

/// One second-order section, `H(z) = (b0 + b1 z⁻¹ + b2 z⁻²) / (1 + a1 z⁻¹ + a2 z⁻²)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Section {
    /// Numerator.
    pub b: [f64; 3],
    /// Denominator without its leading 1.
    pub a: [f64; 2],
    /// State for a unit step that has lasted for ever (transposed direct form II).
    pub steady_state: [f64; 2],
}

/// A digital filter and the padding that `sosfiltfilt` gives it.
#[derive(Clone, Debug, PartialEq)]
pub struct Butterworth {
    pub(crate) sections: Vec<Section>,
    pub(crate) padding: usize,
}

/// Zeros, poles and gain.
struct Zpk {
    zeros: Vec<Complex64>,
    poles: Vec<Complex64>,
    gain: f64,
}

impl Butterworth {
    /// A filter of `order` for series sampled every `t_r` seconds.
    ///
    /// # Errors
    /// Cut-offs outside (0, half the sampling rate), or a band whose ends are not in order.
    pub fn try_new(order: usize, band: Band, t_r: f64) -> Result<Self> {
        check(band, t_r)?;
        if order == 0 {
            return Err(Error::Setting { setting: "order", reason: "must be at least 1".to_owned() });
        }
        // With a nominal sampling rate of 2, half of it is 1 and the pre-warped frequency is 4 tan(π w / 2).
        let warp = |hertz: f64| 4.0 * (PI * (hertz / (0.5 / t_r)) / 2.0).tan();
        let prototype = prototype(order);
        let analogue = match band {
            Band::LowPass(cut) => low_pass(prototype, warp(cut)),
            Band::HighPass(cut) => high_pass(prototype, warp(cut)),
            Band::BandPass(from, to) => band_pass(prototype, warp(from), warp(to)),
        };
        let mut sections = sections(bilinear(analogue));
        steady_states(&mut sections);
        let order_one = |last: fn(&Section) -> f64| sections.iter().filter(|s| last(s) == 0.0).count();
        let taps = 2 * sections.len() + 1 - order_one(|s| s.b[2]).min(order_one(|s| s.a[1]));
        Ok(Self { sections, padding: 3 * taps })
    }

    /// The sections in the order in which they are applied; the first one holds the gain.
    pub fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// The fewest time points that a series must have: one more than the padding at each end.
    pub fn min_time_points(&self) -> usize {
        self.padding + 1
    }
}

fn check(band: Band, t_r: f64) -> Result<()> {
    if !(t_r.is_finite() && t_r > 0.0) {
        let reason = format!("{t_r} s is no repetition time; give seconds over 0");
        return Err(Error::Setting { setting: "t_r", reason });
    }
    let nyquist = 0.5 / t_r;
    let inside = |setting, hertz: f64| {
        if hertz > 0.0 && hertz < nyquist {
            return Ok(());
        }
        let reason = format!(
            "{hertz} Hz must be over 0 and under half the sampling rate, {nyquist} Hz for t_r {t_r} s"
        );
        Err(Error::Setting { setting, reason })
    };
    match band {
        Band::LowPass(cut) => inside("low_pass", cut),
        Band::HighPass(cut) => inside("high_pass", cut),
        Band::BandPass(from, to) => {
            inside("high_pass", from)?;
            inside("low_pass", to)?;
            if from < to {
                return Ok(());
            }
            let reason =
                format!("{from} Hz must be under low_pass, {to} Hz: nothing would be left between them");
            Err(Error::Setting { setting: "high_pass", reason })
        }
    }
}

/// Poles evenly spaced on the left half of the unit circle.
fn prototype(order: usize) -> Vec<Complex64> {
    let n = order as f64;
    (0..order)
        .map(|i| {
            let m = 2.0 * i as f64 + 1.0 - n;
            if m == 0.0 { Complex64::new(-1.0, 0.0) } else { -Complex64::from_polar(1.0, PI * m / (2.0 * n)) }
        })
        .collect()
}

fn low_pass(poles: Vec<Complex64>, cut: f64) -> Zpk {
    let gain = cut.powi(poles.len() as i32);
    Zpk { zeros: vec![], poles: poles.iter().map(|p| p * cut).collect(), gain }
}

fn high_pass(poles: Vec<Complex64>, cut: f64) -> Zpk {
    let gain = (Complex64::new(1.0, 0.0) / poles.iter().map(|p| -p).product::<Complex64>()).re;
    let zeros = vec![Complex64::new(0.0, 0.0); poles.len()];
    Zpk { zeros, poles: poles.iter().map(|p| cut / p).collect(), gain }
}

fn band_pass(poles: Vec<Complex64>, from: f64, to: f64) -> Zpk {
    let (width, centre) = (to - from, (from * to).sqrt());
    let halves: Vec<_> = poles.iter().map(|p| p * (width / 2.0)).collect();
    let root = |p: &Complex64| (p * p - centre * centre).sqrt();
    let poles: Vec<_> =
        halves.iter().map(|p| p + root(p)).chain(halves.iter().map(|p| p - root(p))).collect();
    let zeros = vec![Complex64::new(0.0, 0.0); halves.len()];
    Zpk { zeros, poles, gain: width.powi(halves.len() as i32) }
}

/// `z = (4 + s) / (4 − s)`; zeros at infinity come to −1.
fn bilinear(analogue: Zpk) -> Zpk {
    let Zpk { zeros, poles, gain } = analogue;
    let map = |s: &Complex64| (4.0 + s) / (4.0 - s);
    let distance = |roots: &[Complex64]| roots.iter().map(|s| 4.0 - s).product::<Complex64>();
    let gain = gain * (distance(&zeros) / distance(&poles)).re;
    let mut digital: Vec<_> = zeros.iter().map(map).collect();
    digital.resize(poles.len(), Complex64::new(-1.0, 0.0));
    Zpk { zeros: digital, poles: poles.iter().map(map).collect(), gain }
}

/// Pairs every pole (pair) with the nearest zeros, the poles nearest the unit circle last. The zeros of a
/// Butterworth filter are real.
fn sections(filter: Zpk) -> Vec<Section> {
    let mut zeros: Vec<f64> = filter.zeros.iter().map(|z| z.re).collect();
    let is_real = |p: &Complex64| p.im.abs() <= 100.0 * f64::EPSILON * p.norm();
    let mut reals: Vec<f64> = filter.poles.iter().filter(|p| is_real(p)).map(|p| p.re).collect();
    let mut pairs: Vec<Complex64> = filter.poles.into_iter().filter(|p| !is_real(p) && p.im > 0.0).collect();
    if reals.len() % 2 == 1 {
        reals.push(0.0);
        zeros.push(0.0);
    }
    // From the pole that is farthest from the circle to the nearest, taken from the end.
    pairs.sort_by(|a, b| a.norm().total_cmp(&b.norm()));
    reals.sort_by(|a, b| a.abs().total_cmp(&b.abs()));
    let mut sections = Vec::new();
    while !(pairs.is_empty() && reals.is_empty()) {
        let nearest_is_real = match (pairs.last(), reals.last()) {
            (Some(pair), Some(real)) => real.abs() > pair.norm(),
            (pair, _) => pair.is_none(),
        };
        let (pole, a) = if nearest_is_real {
            let (p, q) = (reals.pop().unwrap_or_default(), reals.pop().unwrap_or_default());
            (Complex64::new(p, 0.0), [-(p + q), p * q])
        } else {
            let p = pairs.pop().unwrap_or_default();
            (p, [-2.0 * p.re, p.norm_sqr()])
        };
        let (z, w) = (take_nearest(&mut zeros, pole), take_nearest(&mut zeros, pole));
        sections.push(Section { b: [1.0, -(z + w), z * w], a, steady_state: [0.0; 2] });
    }
    sections.reverse();
    if let Some(first) = sections.first_mut() {
        first.b = first.b.map(|b| b * filter.gain);
    }
    sections
}

fn take_nearest(zeros: &mut Vec<f64>, pole: Complex64) -> f64 {
    let nearest = zeros
        .iter()
        .enumerate()
        .min_by(|a, b| (pole - a.1).norm().total_cmp(&(pole - b.1).norm()))
        .map(|(index, _)| index);
    nearest.map_or(0.0, |index| zeros.remove(index))
}

/// The state of each section once a unit step has come to rest, scaled by the gain of those before it.
fn steady_states(sections: &mut [Section]) {
    let mut gain = 1.0;
    for s in sections {
        let ([b0, b1, b2], [a1, a2]) = (s.b, s.a);
        let first = ((b1 - a1 * b0) + (b2 - a2 * b0)) / (1.0 + a1 + a2);
        let second = (1.0 + a1) * first - (b1 - a1 * b0);
        s.steady_state = [gain * first, gain * second];
        gain *= (b0 + b1 + b2) / (1.0 + a1 + a2);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    /// Magnitude of the response at `hertz`.
    fn response(filter: &Butterworth, hertz: f64, t_r: f64) -> f64 {
        let z = Complex64::from_polar(1.0, -2.0 * PI * hertz * t_r);
        let sections = filter.sections().iter();
        sections
            .map(|s| ((s.b[0] + s.b[1] * z + s.b[2] * z * z) / (1.0 + s.a[0] * z + s.a[1] * z * z)).norm())
            .product()
    }

    #[test]
    fn half_the_power_passes_at_the_cut_off() {
        let (from, to) = (0.01, 0.1);
        let half = 0.5f64.sqrt();
        for order in 1..=6 {
            let low = Butterworth::try_new(order, Band::LowPass(to), 2.0).unwrap();
            let high = Butterworth::try_new(order, Band::HighPass(from), 2.0).unwrap();
            let band = Butterworth::try_new(order, Band::BandPass(from, to), 2.0).unwrap();
            for (filter, hertz) in [(&low, to), (&high, from), (&band, from), (&band, to)] {
                assert!((response(filter, hertz, 2.0) - half).abs() < 1e-6, "order {order}, {hertz} Hz");
            }
            assert!((response(&low, 1e-6, 2.0) - 1.0).abs() < 1e-6);
            assert!(response(&high, 1e-6, 2.0) < 1e-3);
        }
    }

    #[test]
    fn cut_offs_outside_the_spectrum_are_refused() {
        for (band, setting) in [
            (Band::LowPass(0.25), "low_pass"),
            (Band::HighPass(0.0), "high_pass"),
            (Band::HighPass(f64::NAN), "high_pass"),
            (Band::BandPass(0.1, 0.1), "high_pass"),
        ] {
            assert_eq!(Butterworth::try_new(5, band, 2.0).unwrap_err().setting(), Some(setting));
        }
        assert_eq!(Butterworth::try_new(5, Band::LowPass(0.1), 0.0).unwrap_err().setting(), Some("t_r"));
    }

    #[test]
    fn the_padding_is_that_of_scipy() {
        let min = |band| Butterworth::try_new(5, band, 2.0).unwrap().min_time_points();
        assert_eq!(min(Band::HighPass(0.01)), 19);
        assert_eq!(min(Band::LowPass(0.1)), 19);
        assert_eq!(min(Band::BandPass(0.01, 0.1)), 34);
    }
}
