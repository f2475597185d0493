//! Pooling of images as burn and PyTorch lay them out, plane by plane: maxima with switches, their inverses, means, and
//! repetition.
//!
//! A plane is `[height, width]`. Every output is written once, every input read once a window. Windows may overlap; those
//! at the end may be cut off.

use super::real::Real;

/// The windows of a pooling and the image that they lie on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Windows {
    pub window: [usize; 2],
    pub stride: [usize; 2],
    /// Height and width before pooling.
    pub size: [usize; 2],
    /// And after it.
    pub pooled: [usize; 2],
}

impl Windows {
    /// Points of the windows of output line or column `i` along an axis.
    fn range(&self, axis: usize, i: usize) -> std::ops::Range<usize> {
        let first = i * self.stride[axis];
        first..self.size[axis].min(first + self.window[axis])
    }

    fn overlap(&self) -> bool {
        self.stride[0] < self.window[0] || self.stride[1] < self.window[1]
    }

    /// Height and width before, in the order of values.
    pub fn plane(&self) -> usize {
        self.size[0] * self.size[1]
    }

    pub fn pooled_plane(&self) -> usize {
        self.pooled[0] * self.pooled[1]
    }
}

/// The maxima of a plane's windows, and their places within them, line by line; the first of equal values wins, and a
/// value that is no number wins over all before it.
pub(crate) fn max_pool<E: Real>(windows: &Windows, x: &[E], y: &mut [E], switches: &mut [u8]) {
    let (width, pooled) = (windows.size[1], windows.pooled[1]);
    // Columns whose windows are whole.
    let whole = match (width + windows.stride[1]).checked_sub(windows.window[1]) {
        Some(room) => pooled.min(room / windows.stride[1]),
        None => 0,
    };
    let lines = y.chunks_exact_mut(pooled).zip(switches.chunks_exact_mut(pooled));
    for (i, (y, switches)) in lines.enumerate() {
        let rows = windows.range(0, i);
        let first = rows.start;
        for j in 0..pooled {
            (y[j], switches[j]) = (x[first * width + j * windows.stride[1]], 0);
        }
        for row in rows {
            let (x, place) = (&x[row * width..(row + 1) * width], (row - first) * windows.window[1]);
            for column in 0..windows.window[1] {
                let place = (place + column) as u8;
                match windows.stride[1] {
                    1 => raise::<E, 1>(&x[column.min(width)..], 1, place, &mut y[..whole], switches),
                    2 => raise::<E, 2>(&x[column.min(width)..], 2, place, &mut y[..whole], switches),
                    stride => {
                        raise::<E, 0>(&x[column.min(width)..], stride, place, &mut y[..whole], switches)
                    }
                }
            }
            for j in whole..pooled {
                for (column, x) in x[windows.range(1, j)].iter().enumerate() {
                    if wins(*x, y[j]) {
                        (y[j], switches[j]) = (*x, (place + column) as u8);
                    }
                }
            }
        }
    }
}

/// Whether `x` is larger than `y`, or is no number where `y` is one.
#[inline(always)]
fn wins<E: Real>(x: E, y: E) -> bool {
    let number = |v: E| v.partial_cmp(&v).is_some();
    x > y || !number(x) && number(y)
}

/// Where a value of `x`, `stride` apart, is larger than that of `y`, it takes its place. `STRIDE` is `stride` where the
/// compiler shall know it.
#[inline(always)]
fn raise<E: Real, const STRIDE: usize>(x: &[E], stride: usize, place: u8, y: &mut [E], switches: &mut [u8]) {
    let stride = if STRIDE > 0 { STRIDE } else { stride };
    for (j, (y, switch)) in y.iter_mut().zip(switches).enumerate() {
        let x = x[j * stride];
        let larger = wins(x, *y);
        *switch = if larger { place } else { *switch };
        *y = if larger { x } else { *y };
    }
}

/// Every value of `x` to the place in its window that its switch names, zero elsewhere; where windows overlap, values that
/// meet are added up in their order.
pub(crate) fn unpool<E: Real>(windows: &Windows, x: &[E], switches: &[u8], y: &mut [E]) {
    let ([sh, sw], [_, kw], width) = (windows.stride, windows.window, windows.size[1]);
    y.fill(E::default());
    let overlap = windows.overlap();
    let lines = x.chunks_exact(windows.pooled[1]).zip(switches.chunks_exact(windows.pooled[1]));
    for (i, (x, switches)) in lines.enumerate() {
        for (j, (x, switch)) in x.iter().zip(switches).enumerate() {
            let place = usize::from(*switch);
            let at = (i * sh + place / kw) * width + j * sw + place % kw;
            if overlap {
                y[at] += *x;
            } else {
                y[at] = *x;
            }
        }
    }
}

/// The gradient of [`unpool`]: of every window of `dy` the value at its switch.
pub(crate) fn pick<E: Real>(windows: &Windows, dy: &[E], switches: &[u8], dx: &mut [E]) {
    let ([sh, sw], [_, kw], width) = (windows.stride, windows.window, windows.size[1]);
    let lines = dx.chunks_exact_mut(windows.pooled[1]).zip(switches.chunks_exact(windows.pooled[1]));
    for (i, (dx, switches)) in lines.enumerate() {
        for (j, (dx, switch)) in dx.iter_mut().zip(switches).enumerate() {
            let place = usize::from(*switch);
            *dx = dy[(i * sh + place / kw) * width + j * sw + place % kw];
        }
    }
}

/// The means of a plane's windows; of one that is cut off, of what is left of it.
pub(crate) fn average<E: Real>(windows: &Windows, x: &[E], y: &mut [E]) {
    let width = windows.size[1];
    for (i, y) in y.chunks_exact_mut(windows.pooled[1]).enumerate() {
        let rows = windows.range(0, i);
        for (j, y) in y.iter_mut().enumerate() {
            let columns = windows.range(1, j);
            let mut sum = E::default();
            for row in rows.clone() {
                x[row * width..][columns.clone()].iter().for_each(|x| sum += *x);
            }
            *y = sum * E::of(1.0 / (rows.len() * columns.len()) as f64);
        }
    }
}

/// The gradient of [`average`].
pub(crate) fn spread<E: Real>(windows: &Windows, dy: &[E], dx: &mut [E]) {
    let width = windows.size[1];
    dx.fill(E::default());
    for (i, dy) in dy.chunks_exact(windows.pooled[1]).enumerate() {
        let rows = windows.range(0, i);
        for (j, dy) in dy.iter().enumerate() {
            let columns = windows.range(1, j);
            let part = *dy * E::of(1.0 / (rows.len() * columns.len()) as f64);
            for row in rows.clone() {
                dx[row * width..][columns.clone()].iter_mut().for_each(|dx| *dx += part);
            }
        }
    }
}

/// Every value of a small plane as often as its window, as far as the large plane goes; beyond the last window the last
/// value again.
pub(crate) fn repeat<E: Real>(windows: &Windows, x: &[E], y: &mut [E]) {
    let ([kh, kw], [lines, columns]) = (windows.window, windows.pooled);
    for (i, y) in y.chunks_exact_mut(windows.size[1]).enumerate() {
        let x = &x[(i / kh).min(lines - 1) * columns..][..columns];
        let whole = y.len().min(kw * columns);
        y[..whole].chunks_mut(kw).zip(x).for_each(|(y, x)| y.fill(*x));
        y[whole..].fill(x[columns - 1]);
    }
}

/// The gradient of [`repeat`].
pub(crate) fn gather<E: Real>(windows: &Windows, dy: &[E], dx: &mut [E]) {
    let ([kh, kw], [lines, columns]) = (windows.window, windows.pooled);
    dx.fill(E::default());
    for (i, dy) in dy.chunks_exact(windows.size[1]).enumerate() {
        let dx = &mut dx[(i / kh).min(lines - 1) * columns..][..columns];
        for (j, dy) in dy.iter().enumerate() {
            dx[(j / kw).min(columns - 1)] += *dy;
        }
    }
}
