//! A block of series interleaved: time by time, [`LANES`] voxels side by side, in f64.

/// Series of a block. Eight f64 and two filter states fit the vector registers of every x86-64.
pub const LANES: usize = 8;
/// One time point of the series of a block.
pub type Lanes = [f64; LANES];

/// Copies one lane of `block` back into its row.
pub fn store(block: &[Lanes], lane: usize, row: &mut [f32]) {
    for (x, values) in row.iter_mut().zip(block) {
        *x = values[lane] as f32;
    }
}

/// Mean over time of each series.
pub fn mean(block: &[Lanes]) -> Lanes {
    let mut sum = [0.0; LANES];
    for values in block {
        for (s, x) in sum.iter_mut().zip(values) {
            *s += x;
        }
    }
    sum.map(|s| s / block.len().max(1) as f64)
}

/// Adds `offset` to every time point.
pub fn add(block: &mut [Lanes], offset: &Lanes) {
    for values in block {
        for (x, o) in values.iter_mut().zip(offset) {
            *x += o;
        }
    }
}

/// Subtracts `offset` from every time point.
pub fn subtract(block: &mut [Lanes], offset: &Lanes) {
    add(block, &offset.map(|o| -o));
}

/// Multiplies every time point by `factor`.
pub fn scale(block: &mut [Lanes], factor: &Lanes) {
    for values in block {
        for (x, f) in values.iter_mut().zip(factor) {
            *x *= f;
        }
    }
}

/// Subtracts the projection on the unit vector `direction`, `[time_points]`.
pub fn project_out(block: &mut [Lanes], direction: &[f64]) {
    let mut dot = [0.0; LANES];
    for (values, d) in block.iter().zip(direction) {
        for (sum, x) in dot.iter_mut().zip(values) {
            *sum += d * x;
        }
    }
    for (values, d) in block.iter_mut().zip(direction) {
        for (x, p) in values.iter_mut().zip(&dot) {
            *x -= d * p;
        }
    }
}
