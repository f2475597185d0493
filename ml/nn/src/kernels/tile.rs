//! The innermost loops: a few rows of a product, [`PANEL`] columns wide, kept in registers.
//!
//! ```text
//!   C[i, j] = start + Σ_q Σ_p A[i, (q, p)] · B[(q, p), j]       i < rows, j < 32
//! ```
//! A is read value by value at any strides, so a convolution's input serves as its own im2col; the rows of B of a round
//! lie one after the other, [`PANEL`] values each. The sum runs in the order of `(q, p)` whatever the tile, so a result
//! does not depend on how a product is cut into tiles.
#![allow(unsafe_code)] // the loops work on raw pointers; `tile` checks their bounds once for all of them

use super::lanes::Lanes;

/// Columns of a tile.
pub const PANEL: usize = 32;

/// Where values lie: row `i` of A in step `p` of round `q` at `i·row + q·round + p·step`, the row of B for them at
/// `q·round_of_b + p·PANEL`.
#[derive(Clone, Copy, Debug)]
pub struct Strides {
    pub row: usize,
    pub step: usize,
    pub round: usize,
    pub round_of_b: usize,
}

/// Length of the sum: `rounds` times `steps`.
#[derive(Clone, Copy, Debug)]
pub struct Depth {
    pub rounds: usize,
    pub steps: usize,
}

/// A tile of accumulators as it lies in memory.
pub type Block<E> = [[E; PANEL]];

/// Element types that there are tiles for.
pub trait Tiled: Copy + Default {
    /// Most rows of a tile.
    fn rows() -> usize;
    /// `block += A·B` for `block.len() ≤ Self::rows()` rows.
    ///
    /// # Safety
    /// `a` and `b` hold every value that `strides` and `depth` name for these rows.
    unsafe fn accumulate(
        a: *const Self,
        strides: Strides,
        b: *const Self,
        depth: Depth,
        block: &mut Block<Self>,
    );
}

/// `block += A·B`.
///
/// # Panics
/// If `a` or `b` is too short.
pub(crate) fn tile<E: Tiled>(a: &[E], strides: Strides, b: &[E], depth: Depth, block: &mut Block<E>) {
    if block.is_empty() || depth.rounds == 0 || depth.steps == 0 {
        return;
    }
    let (rounds, steps) = (depth.rounds - 1, depth.steps - 1);
    let last = (block.len() - 1) * strides.row + rounds * strides.round + steps * strides.step;
    let last_of_b = rounds * strides.round_of_b + steps * PANEL;
    assert!(last < a.len() && last_of_b + PANEL <= b.len(), "a tile beyond its operands");
    // Of equal heights: a few rows left over would not keep the processor's arithmetic busy.
    let rows = block.len().div_ceil(block.len().div_ceil(E::rows()));
    for (i, block) in block.chunks_mut(rows).enumerate() {
        // SAFETY: `last` is the last value of A that any row reads, `last_of_b` the last row of B; both were compared
        // with the lengths of the slices.
        unsafe { E::accumulate(a.as_ptr().add(i * rows * strides.row), strides, b.as_ptr(), depth, block) };
    }
}

/// `ROWS` rows and `VECTORS` vectors of columns.
#[inline(always)]
unsafe fn columns<E: Copy, V: Lanes<E>, const ROWS: usize, const VECTORS: usize>(
    a: *const E,
    strides: Strides,
    b: *const E,
    depth: Depth,
    block: *mut E,
) {
    // SAFETY: the caller of `Tiled::accumulate` promises the bounds of A and B; `block` has `ROWS` rows of `PANEL`.
    unsafe {
        let mut sums = [[V::splat(*a); VECTORS]; ROWS];
        for (i, row) in sums.iter_mut().enumerate() {
            for (j, sum) in row.iter_mut().enumerate() {
                *sum = V::load(block.add(i * PANEL + j * V::N));
            }
        }
        for q in 0..depth.rounds {
            let mut b = b.add(q * strides.round_of_b);
            // Every third row gets a pointer: the two below it are reached by address arithmetic of the load.
            let start = a.add(q * strides.round);
            // The pointers of rows that there are none of are not read from.
            let mut rows: [*const E; 4] = std::array::from_fn(|i| start.wrapping_add(3 * i * strides.row));
            for _ in 0..depth.steps {
                let columns: [V; VECTORS] = std::array::from_fn(|j| V::load(b.add(j * V::N)));
                for (i, sums) in sums.iter_mut().enumerate() {
                    let value = V::splat(*rows[i / 3].add(i % 3 * strides.row));
                    for (sum, column) in sums.iter_mut().zip(columns) {
                        *sum = value.mul_add(column, *sum);
                    }
                }
                for row in &mut rows {
                    *row = row.wrapping_add(strides.step);
                }
                b = b.wrapping_add(PANEL);
            }
        }
        for (i, row) in sums.into_iter().enumerate() {
            for (j, sum) in row.into_iter().enumerate() {
                sum.store(block.add(i * PANEL + j * V::N));
            }
        }
    }
}

/// A function for `block.len()` rows of at most those listed, every number of rows with a loop of its own.
macro_rules! tiles {
    ($name:ident, $element:ty, $vector:ty, $vectors:literal, [$($rows:literal)*] $(, $feature:meta)*) => {
        $(#[$feature])*
        unsafe fn $name(
            a: *const $element,
            strides: Strides,
            b: *const $element,
            depth: Depth,
            block: &mut Block<$element>,
        ) {
            let at = block.as_mut_ptr().cast::<$element>();
            let width = $vectors * <$vector as Lanes<$element>>::N;
            for column in (0..PANEL).step_by(width) {
                // SAFETY: as promised by the caller; the columns are within a panel.
                unsafe {
                    let (b, at) = (b.add(column), at.add(column));
                    match block.len() {
                        $($rows => columns::<_, $vector, $rows, $vectors>(a, strides, b, depth, at),)*
                        _ => {}
                    }
                }
            }
        }
    };
}

tiles!(portable_f32, f32, [f32; 4], 2, [1 2 3 4]);
tiles!(portable_f64, f64, [f64; 4], 2, [1 2 3 4]);

#[cfg(target_arch = "x86_64")]
tiles!(avx512, f32, std::arch::x86_64::__m512, 2, [1 2 3 4 5 6 7 8 9 10 11 12], target_feature(enable = "avx512f"));
#[cfg(target_arch = "x86_64")]
tiles!(avx2, f32, std::arch::x86_64::__m256, 2, [1 2 3 4 5 6], target_feature(enable = "avx2,fma"));

/// What the processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Instructions {
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    Portable,
}

impl Instructions {
    fn found() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") {
                return Self::Avx512;
            }
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                return Self::Avx2;
            }
        }
        Self::Portable
    }
}

impl Tiled for f32 {
    fn rows() -> usize {
        match Instructions::found() {
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512 => 12,
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2 => 6,
            Instructions::Portable => 4,
        }
    }

    unsafe fn accumulate(
        a: *const f32,
        strides: Strides,
        b: *const f32,
        depth: Depth,
        block: &mut Block<f32>,
    ) {
        // SAFETY: the caller promises the bounds, `found` the instructions.
        unsafe {
            match Instructions::found() {
                #[cfg(target_arch = "x86_64")]
                Instructions::Avx512 => avx512(a, strides, b, depth, block),
                #[cfg(target_arch = "x86_64")]
                Instructions::Avx2 => avx2(a, strides, b, depth, block),
                Instructions::Portable => portable_f32(a, strides, b, depth, block),
            }
        }
    }
}

impl Tiled for f64 {
    fn rows() -> usize {
        4
    }

    unsafe fn accumulate(
        a: *const f64,
        strides: Strides,
        b: *const f64,
        depth: Depth,
        block: &mut Block<f64>,
    ) {
        // SAFETY: as promised by the caller; plain code runs anywhere.
        unsafe { portable_f64(a, strides, b, depth, block) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Accumulate = unsafe fn(*const f32, Strides, *const f32, Depth, &mut Block<f32>);

    /// What this processor can run, each with its most rows.
    fn variants() -> Vec<(&'static str, Accumulate, usize)> {
        let mut variants: Vec<(_, Accumulate, _)> = vec![("portable", portable_f32, 4)];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                variants.push(("avx2", avx2, 6));
            }
            if is_x86_feature_detected!("avx512f") {
                variants.push(("avx512", avx512, 12));
            }
        }
        variants
    }

    #[test]
    fn every_instruction_set_gives_the_definition_for_every_number_of_rows() {
        // Small whole numbers: all sums are exact, so the order of rounding does not matter.
        let value = |i: usize| (i * 7 % 11) as f32 - 5.0;
        let strides = Strides { row: 3, step: 5, round: 29, round_of_b: 5 * PANEL + 2 };
        let depth = Depth { rounds: 2, steps: 5 };
        for (name, accumulate, most) in variants() {
            for rows in 1..=most {
                // Exactly as long as is read: a stray access past the end is seen by a sanitizer.
                let a: Vec<f32> = (0..(rows - 1) * 3 + 29 + 4 * 5 + 1).map(value).collect();
                let b: Vec<f32> = (0..strides.round_of_b + 5 * PANEL).map(value).collect();
                let mut block = vec![[0.5; PANEL]; rows];
                // SAFETY: the processor has the instructions, and the slices are as long as the strides say.
                unsafe { accumulate(a.as_ptr(), strides, b.as_ptr(), depth, &mut block) };
                for (i, row) in block.iter().enumerate() {
                    for (j, found) in row.iter().enumerate() {
                        let steps = (0..2).flat_map(|q| (0..5).map(move |p| (q, p)));
                        let terms = steps.map(|(q, p)| {
                            a[i * 3 + q * 29 + p * 5] * b[q * strides.round_of_b + p * PANEL + j]
                        });
                        assert_eq!(*found, 0.5 + terms.sum::<f32>(), "{name}: {rows} rows, [{i}, {j}]");
                    }
                }
            }
        }
    }

    #[test]
    fn a_tile_of_any_height_is_cut_into_what_fits() {
        let (a, b) = ([1.0f64, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], [2.0; PANEL]);
        let strides = Strides { row: 1, step: 1, round: 0, round_of_b: 0 };
        let mut block = [[0.0; PANEL]; 7];
        tile(&a, strides, &b, Depth { rounds: 1, steps: 1 }, &mut block);
        assert!(block.iter().zip(a).all(|(row, a)| row.iter().all(|v| *v == 2.0 * a)));
        let before = block;
        tile(&a, strides, &b, Depth { rounds: 0, steps: 1 }, &mut block);
        tile(&a, strides, &b, Depth { rounds: 1, steps: 0 }, &mut block);
        assert_eq!(block, before);
    }

    #[test]
    #[should_panic(expected = "beyond its operands")]
    fn an_operand_that_is_too_short_is_refused() {
        let strides = Strides { row: 1, step: 1, round: 0, round_of_b: 0 };
        tile(&[1.0f32; 3], strides, &[1.0; 2 * PANEL], Depth { rounds: 1, steps: 2 }, &mut [[0.0; PANEL]; 3]);
    }
}
