//! What a process holds beside its matrices, and what the system has to give for them.

use crate::spectrum;

/// The program itself, its threads, and the buffers of products.
const PROCESS: f64 = 12e6;
/// glibc maps pieces over this size one by one and gives them back.
const MAPPED: f64 = 32.0 * 1048576.0;
/// What the allocator keeps of the freed memory of smaller ones: at most twice as much at the end of its heap, and this about.
const KEPT: f64 = MAPPED;

/// Copies of the matrix that an eigendecomposition makes beside it: vectors, a tridiagonal form, and room to work.
pub(super) const EIGEN_COPIES: f64 = 3.0;
/// Rows that a Gram matrix widens at once.
pub(super) const GRAM_ROWS: f64 = spectrum::GRAM_ROWS as f64;

/// What the system has to give for a matrix of so many `bytes`: nothing where memory that was freed is used again.
pub(super) fn fresh(bytes: f64) -> f64 {
    if bytes > MAPPED { bytes } else { 0.0 }
}

/// The most that a process holds: `held` bytes of matrices, and those that it makes and frees `on_the_way`.
pub(super) fn of_process(held: f64, on_the_way: f64) -> u64 {
    (PROCESS + held + on_the_way + KEPT.min(on_the_way)) as u64
}
