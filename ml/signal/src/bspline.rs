//! Cubic B-splines through the voxels of a volume, as `scipy.ndimage.spline_filter` and its interpolation with
//! mirrored borders (Unser, Aldroubi & Eden 1993, B-spline signal processing, parts I and II).

/// The pole of the cubic B-spline, √3 − 2.
const POLE: f64 = -0.267_949_192_431_122_7;

/// Replaces the voxels of a volume (index `i + ni·(j + nj·k)`) by the coefficients of the spline through them.
pub(crate) fn coefficients(volume: &mut [f64], shape: [usize; 3]) {
    let mut stride = 1;
    let mut line = Vec::new();
    for length in shape {
        if length > 1 {
            for slab in volume.chunks_exact_mut(length * stride) {
                for start in 0..stride {
                    line.clear();
                    line.extend(slab[start..].iter().step_by(stride));
                    filter(&mut line);
                    slab[start..].iter_mut().step_by(stride).zip(&line).for_each(|(x, c)| *x = *c);
                }
            }
        }
        stride *= length;
    }
}

/// The recursive filter, forwards and backwards, of a line of at least two values.
fn filter(line: &mut [f64]) {
    let n = line.len();
    line.iter_mut().for_each(|x| *x *= (1.0 - POLE) * (1.0 - 1.0 / POLE));
    let last_power = POLE.powi((n - 1).min(i32::MAX as usize) as i32);
    let mut sum = line[0] + last_power * line[n - 1];
    let mut power = POLE;
    for i in 1..n - 1 {
        sum += power * (line[i] + last_power * line[n - 1 - i]);
        power *= POLE;
        if power.abs() < f64::MIN_POSITIVE {
            break;
        }
    }
    line[0] = sum / (1.0 - last_power * last_power);
    for i in 1..n {
        line[i] += POLE * line[i - 1];
    }
    line[n - 1] = (POLE * line[n - 2] + line[n - 1]) * POLE / (POLE * POLE - 1.0);
    for i in (0..n - 1).rev() {
        line[i] = POLE * (line[i + 1] - line[i]);
    }
}

/// Weights of the four coefficients around a position, `fraction` after the second of them.
pub(crate) fn weights(fraction: f64) -> [f64; 4] {
    let (y, z) = (fraction, 1.0 - fraction);
    let near = |d: f64| (d * d * (d - 2.0) * 3.0 + 4.0) / 6.0;
    let first = z * z * z / 6.0;
    let (second, third) = (near(y), near(z));
    [first, second, third, 1.0 - first - second - third]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn the_spline_meets_the_values_of_a_line() {
        let line = [3.0, -1.0, 4.0, 1.5, -9.0, 2.0];
        let mut c = line.to_vec();
        coefficients(&mut c, [6, 1, 1]);
        let at = |i: i64| {
            c[if i < 0 {
                -i
            } else if i > 5 {
                10 - i
            } else {
                i
            } as usize]
        };
        for (i, x) in line.iter().enumerate() {
            let i = i as i64;
            let value: f64 = weights(0.0).iter().zip(i - 1..).map(|(w, place)| w * at(place)).sum();
            assert!((value - x).abs() < 1e-12, "{i}: {value}");
        }
    }

    #[test]
    fn a_constant_volume_has_constant_coefficients() {
        let mut volume = vec![2.0; 5 * 3 * 2];
        coefficients(&mut volume, [5, 3, 2]);
        assert!(volume.iter().all(|c| (c - 2.0).abs() < 1e-12));
    }
}
