//! What a process holds beside its matrices, and what the system has to give for them.

/// The program itself, its threads, and the buffers of products.
const PROCESS: f64 = 12e6;
/// glibc maps pieces over this size one by one and gives them back.
const MAPPED: f64 = 32.0 * 1048576.0;
/// What the allocator keeps of the freed memory of smaller ones, at the end of its heap.
const KEPT: f64 = 2.0 * MAPPED;

/// What the system has to give for a matrix of so many `bytes`: nothing where memory that was freed is used again.
pub(super) fn fresh(bytes: f64) -> f64 {
    if bytes > MAPPED { bytes } else { 0.0 }
}

/// Of the process, where so many `bytes` are of matrices.
pub(super) fn of_process(bytes: f64) -> u64 {
    (PROCESS + bytes + KEPT.min(bytes)) as u64
}
