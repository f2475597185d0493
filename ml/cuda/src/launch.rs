//! Launching kernels of our own.

use crate::{Card, Error, Result, card::Set, error::During};
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

/// A kernel with its arguments.
pub(crate) struct Launch<'a> {
    card: &'a Card,
    set: Set,
    name: String,
    /// One after the other, and where each begins.
    arguments: Vec<u64>,
    starts: Vec<usize>,
}

impl<'a> Launch<'a> {
    pub fn of(card: &'a Card, name: impl Into<String>) -> Self {
        Self { card, set: Set::Series, name: name.into(), arguments: Vec::new(), starts: Vec::new() }
    }

    /// A kernel for images.
    pub fn of_images(card: &'a Card, name: impl Into<String>) -> Self {
        Self { set: Set::Images, ..Self::of(card, name) }
    }

    fn argument(mut self, words: &[u64]) -> Self {
        self.starts.push(self.arguments.len());
        self.arguments.extend_from_slice(words);
        self
    }

    pub fn pointer(self, pointer: u64) -> Self {
        self.argument(&[pointer])
    }

    /// A structure of 8-byte words.
    pub fn words(self, words: &[u64]) -> Self {
        self.argument(words)
    }

    /// A structure of `int`s.
    pub fn ints(self, values: &[i32]) -> Self {
        let word = |pair: &[i32]| {
            let half = |i: usize| u64::from(pair.get(i).copied().unwrap_or(0) as u32);
            half(0) | half(1) << 32
        };
        let words: Vec<u64> = values.chunks(2).map(word).collect();
        self.argument(&words)
    }

    /// An `int`.
    pub fn int(self, value: usize) -> Self {
        self.argument(&[u64::from(value as u32)])
    }

    pub fn float(self, value: f32) -> Self {
        self.argument(&[u64::from(value.to_bits())])
    }

    pub fn level(self, level: Level) -> Self {
        self.argument(&[u64::from(level.length as u32) | u64::from(level.stride as u32) << 32])
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
        let most = self.card.most_shared();
        if shared > most {
            let reason = format!(
                "{} needs {shared} bytes of shared memory, this card has {most}; use shorter series or filters, or device => 'cpu'",
                self.name
            );
            return Err(Error::Shape { what: "a kernel on the card", reason });
        }
        let function = self.card.kernel_of(self.set, &self.name)?;
        let shared = shared as u32;
        if shared > PLENTY {
            let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            function.set_attribute(attribute, shared as i32).during("a kernel's shared memory")?;
        }
        let arguments = &mut self.arguments;
        let mut pointers: Vec<*mut c_void> =
            self.starts.iter().map(|start| (&raw mut arguments[*start]).cast()).collect();
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
