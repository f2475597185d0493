//! Host memory that cards read and write by themselves, while this process goes on.

use crate::{Card, Result, error::During};
use cudarc::driver::{CudaContext, result, sys};
use std::{ffi::c_void, sync::Arc};

/// Pinned for all cards, not only for the one that asks.
const PORTABLE: u32 = sys::CU_MEMHOSTALLOC_PORTABLE;

/// Float32 values that stay where they are in physical memory.
#[derive(Debug)]
pub struct Pinned {
    pointer: *mut f32,
    len: usize,
    context: Arc<CudaContext>,
}

// SAFETY: it owns what it points to.
unsafe impl Send for Pinned {}
// SAFETY: it is written through `&mut` only.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// `len` zeros.
    ///
    /// # Errors
    /// A machine that has no more memory to pin.
    pub fn new(card: &Card, len: usize) -> Result<Self> {
        let len = len.max(1);
        card.context().bind_to_thread().during("pinned memory")?;
        // SAFETY: freed by drop alone, and filled before it is read.
        let pointer: *mut c_void =
            unsafe { result::malloc_host(len * size_of::<f32>(), PORTABLE) }.during("pinned memory")?;
        let pointer = pointer.cast::<f32>();
        // SAFETY: there is room for `len`.
        unsafe { pointer.write_bytes(0, len) };
        Ok(Self { pointer, len, context: card.context().clone() })
    }

    /// What it holds.
    pub fn values(&self) -> &[f32] {
        // SAFETY: allocated and filled for `len` by `new`.
        unsafe { std::slice::from_raw_parts(self.pointer, self.len) }
    }

    /// What it holds, to be written. Nothing may be on its way to or from it.
    pub fn values_mut(&mut self) -> &mut [f32] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.pointer, self.len) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _ = self.context.bind_to_thread();
        // SAFETY: allocated by `malloc_host`; the driver waits for copies before it frees.
        let _ = unsafe { result::free_host(self.pointer.cast()) };
    }
}
