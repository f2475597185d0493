//! A tensor `[samples, channels, height, width]` of which threads write parts at once.
#![allow(unsafe_code)] // the parts of a thread are rows of many planes: no slice holds them

use std::marker::PhantomData;

/// The rows of a tensor, to be written by whoever they were given to.
#[derive(Debug)]
pub(crate) struct Planes<'a, E> {
    start: *mut E,
    rows: usize,
    columns: usize,
    tensor: PhantomData<&'a mut [E]>,
}

// SAFETY: a row is only reached through `row`, whose callers promise that no two have the same one.
unsafe impl<E: Send> Send for Planes<'_, E> {}
// SAFETY: as above.
unsafe impl<E: Send> Sync for Planes<'_, E> {}

impl<'a, E> Planes<'a, E> {
    /// A tensor with rows of `columns` values.
    pub fn new(tensor: &'a mut [E], columns: usize) -> Self {
        let rows = tensor.len() / columns.max(1);
        Self { start: tensor.as_mut_ptr(), rows, columns, tensor: PhantomData }
    }

    /// Row `row`, counted over all planes.
    ///
    /// # Safety
    /// While the slice lives, nobody else asks for the same row.
    ///
    /// # Panics
    /// If there is no such row.
    #[allow(clippy::mut_from_ref)] // that is what the type is for
    pub unsafe fn row(&self, row: usize) -> &mut [E] {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        // SAFETY: the row lies within the tensor, which is borrowed for `'a`; the caller promises to be the only one.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(row * self.columns), self.columns) }
    }
}
