//! Max-pooling with switches, its inverse, up-sampling by repetition, and their gradients, on maps in panels.
//!
//! A switch is the place of the maximum within its window, one byte a pooled value; the first of equal values wins.
//! Every element of an output is written once, padding never. Cost: one pass over input and output each.

use super::{
    maps::Maps,
    real::Real,
    tile::{Block, PANEL},
};

type Row<E> = [E; PANEL];

/// Points after pooling: the last window may be shorter.
pub(crate) fn pooled(maps: &Maps, window: usize) -> Maps {
    Maps::new(maps.side, maps.length.div_ceil(window))
}

/// The rows of every panel, without padding.
fn rows<'a, E>(maps: &Maps, sample: &'a [E]) -> impl Iterator<Item = &'a Block<E>> + use<'a, E> {
    maps.points(sample).map(|points| points.as_chunks().0)
}

fn rows_mut<'a, E>(maps: &Maps, sample: &'a mut [E]) -> impl Iterator<Item = &'a mut Block<E>> + use<'a, E> {
    maps.points_mut(sample).map(|points| points.as_chunks_mut().0)
}

/// Maps `from` → the maxima of their windows, and where they were, `[panel][pooled point][32]`.
pub(crate) fn max_pool<E: Real>(
    window: usize,
    (from, x): (&Maps, &[E]),
    (to, y): (&Maps, &mut [E]),
    switches: &mut [u8],
) {
    let switches = switches.as_chunks_mut::<PANEL>().0.chunks_exact_mut(to.length);
    for ((x, y), switches) in rows(from, x).zip(rows_mut(to, y)).zip(switches) {
        for ((window, y), switches) in x.chunks(window).zip(y).zip(switches) {
            (*y, *switches) = (window[0], [0; PANEL]);
            for (place, row) in (1u8..).zip(&window[1..]) {
                for ((y, switch), x) in y.iter_mut().zip(switches.iter_mut()).zip(row) {
                    let larger = *x > *y;
                    *switch = if larger { place } else { *switch };
                    *y = if larger { *x } else { *y };
                }
            }
        }
    }
}

/// Every value of `x` to the place in its window that its switch names, zero elsewhere: un-pooling (Zeiler 2014), and
/// the gradient of [`max_pool`].
pub(crate) fn unpool<E: Real>(
    window: usize,
    (from, x): (&Maps, &[E]),
    switches: &[u8],
    (to, y): (&Maps, &mut [E]),
) {
    let switches = switches.as_chunks::<PANEL>().0.chunks_exact(from.length);
    for ((x, y), switches) in rows(from, x).zip(rows_mut(to, y)).zip(switches) {
        for ((x, window), switches) in x.iter().zip(y.chunks_mut(window)).zip(switches) {
            for (place, y) in (0u8..).zip(window) {
                for ((y, x), switch) in y.iter_mut().zip(x).zip(switches) {
                    *y = if *switch == place { *x } else { E::default() };
                }
            }
        }
    }
}

/// The gradient of [`unpool`]: of every window of `dy` the value at its switch.
pub(crate) fn pick<E: Real>(
    window: usize,
    (from, dy): (&Maps, &[E]),
    switches: &[u8],
    (to, dx): (&Maps, &mut [E]),
) {
    let switches = switches.as_chunks::<PANEL>().0.chunks_exact(to.length);
    for ((dy, dx), switches) in rows(from, dy).zip(rows_mut(to, dx)).zip(switches) {
        for ((window, dx), switches) in dy.chunks(window).zip(dx).zip(switches) {
            *dx = window[0];
            for (place, dy) in (1u8..).zip(&window[1..]) {
                for ((dx, dy), switch) in dx.iter_mut().zip(dy).zip(switches) {
                    *dx = if *switch == place { *dy } else { *dx };
                }
            }
        }
    }
}

/// Every point `window` times, the last perhaps less often.
pub(crate) fn repeat<E: Real>(window: usize, (from, x): (&Maps, &[E]), (to, y): (&Maps, &mut [E])) {
    for (x, y) in rows(from, x).zip(rows_mut(to, y)) {
        x.iter().zip(y.chunks_mut(window)).for_each(|(x, y)| y.fill(*x));
    }
}

/// The gradient of [`repeat`]: the sum of every window.
pub(crate) fn sum_windows<E: Real>(window: usize, (from, dy): (&Maps, &[E]), (to, dx): (&Maps, &mut [E])) {
    for (dy, dx) in rows(from, dy).zip(rows_mut(to, dx)) {
        for (window, dx) in dy.chunks(window).zip(dx) {
            *dx = window[1..].iter().fold(window[0], |sum, row| add(sum, row));
        }
    }
}

fn add<E: Real>(mut sum: Row<E>, row: &Row<E>) -> Row<E> {
    sum.iter_mut().zip(row).for_each(|(sum, value)| *sum += *value);
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::maps::Side;

    /// One channel of `values` in a panel of maps.
    fn maps(length: usize) -> Maps {
        Maps::new(Side::panels_of(1), length).padded(1, 2)
    }

    fn taken(values: &[f64]) -> Vec<f64> {
        let maps = maps(values.len());
        let mut sample = vec![0.0; maps.len()];
        maps.take(values, &mut sample);
        sample
    }

    fn given(length: usize, sample: &[f64]) -> Vec<f64> {
        let mut values = vec![0.0; length];
        maps(length).give(sample, &mut values);
        values
    }

    #[test]
    fn windows_give_their_maxima_and_values_return_to_their_places() {
        let x = taken(&[1.0, 3.0, 2.0, 2.0, -5.0]);
        let (long, short) = (maps(5), maps(3));
        let (mut y, mut switches, mut back) = (taken(&[9.0; 3]), vec![7; 3 * PANEL], taken(&[9.0; 5]));
        max_pool(2, (&long, &x), (&short, &mut y), &mut switches);
        assert_eq!(given(3, &y), [3.0, 2.0, -5.0]);
        assert_eq!([switches[0], switches[PANEL], switches[2 * PANEL]], [1, 0, 0]);
        unpool(2, (&short, &y), &switches, (&long, &mut back));
        assert_eq!(given(5, &back), [0.0, 3.0, 2.0, 0.0, -5.0]);
        pick(2, (&long, &taken(&[1.0, 2.0, 3.0, 4.0, 5.0])), &switches, (&short, &mut y));
        assert_eq!(given(3, &y), [2.0, 3.0, 5.0]);
    }

    #[test]
    fn repetition_and_its_gradient() {
        let (long, short) = (maps(5), maps(2));
        let (mut y, mut x) = (taken(&[9.0; 5]), taken(&[9.0; 2]));
        repeat(3, (&short, &taken(&[1.0, 2.0])), (&long, &mut y));
        assert_eq!(given(5, &y), [1.0, 1.0, 1.0, 2.0, 2.0]);
        sum_windows(3, (&long, &taken(&[1.0, 2.0, 3.0, 4.0, 5.0])), (&short, &mut x));
        assert_eq!(given(2, &x), [6.0, 9.0]);
        assert!(y[..PANEL].iter().all(|v| *v == 0.0), "padding stays as it was");
    }
}
