//! Launching kernels of our own.

use crate::{Card, Error, Result, error::During};
use cudarc::driver::{result, sys::CUfunction_attribute};
use std::ffi::c_void;

/// Shared memory that a block gets without being asked for more.
const PLENTY: u32 = 48 << 10;
/// The most that a block can get on every card that we run on.
pub(crate) const MOST_SHARED: usize = 99 << 10;

/// Points of a sample and rows from one sample to the next: the kernels' `Level`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// Points.
    pub length: usize,
    /// Rows.
    pub stride: usize,
}

/// A kernel with its arguments, of at most 8 bytes each.
pub(crate) struct Launch<'a> {
    card: &'a Card,
    name: String,
    arguments: Vec<u64>,
}

impl<'a> Launch<'a> {
    pub fn of(card: &'a Card, name: impl Into<String>) -> Self {
        Self { card, name: name.into(), arguments: Vec::new() }
    }

    pub fn pointer(mut self, pointer: u64) -> Self {
        self.arguments.push(pointer);
        self
    }

    /// An `int`.
    pub fn int(mut self, value: usize) -> Self {
        self.arguments.push(u64::from(value as u32));
        self
    }

    pub fn float(mut self, value: f32) -> Self {
        self.arguments.push(u64::from(value.to_bits()));
        self
    }

    pub fn level(mut self, level: Level) -> Self {
        self.arguments.push(u64::from(level.length as u32) | u64::from(level.stride as u32) << 32);
        self
    }

    /// Runs it on the card's stream.
    ///
    /// # Errors
    /// A card that fails, or that lacks the shared memory.
    ///
    /// # Safety
    /// The arguments must be those of the kernel, and pointers must have what it reads and writes.
    pub unsafe fn run(mut self, grid: [usize; 3], block: [usize; 2], shared: usize) -> Result<()> {
        if grid.contains(&0) {
            return Ok(());
        }
        if shared > MOST_SHARED {
            let reason = format!(
                "{} needs {shared} bytes of shared memory, a card has {MOST_SHARED}; use shorter series or filters, or device => 'cpu'",
                self.name
            );
            return Err(Error::Shape { what: "a kernel on the card", reason });
        }
        let function = self.card.kernel(&self.name)?;
        let shared = shared as u32;
        if shared > PLENTY {
            let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            function.set_attribute(attribute, shared as i32).during("a kernel's shared memory")?;
        }
        let mut pointers: Vec<*mut c_void> =
            self.arguments.iter_mut().map(|argument| (&raw mut *argument).cast()).collect();
        let [x, y, z] = grid.map(|n| n as u32);
        self.card.context().bind_to_thread().during("a kernel")?;
        // SAFETY: the caller's.
        unsafe {
            result::launch_kernel(
                function.cu_function(),
                (x, y, z),
                (block[0] as u32, block[1] as u32, 1),
                shared,
                self.card.stream().cu_stream(),
                &mut pointers,
            )
        }
        .map_err(|e| Error::failed("a kernel", format!("{}: {:?}", self.name, e.0)))
    }
}
