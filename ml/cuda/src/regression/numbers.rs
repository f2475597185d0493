//! Numbers on a card, and memory of this machine that it copies from.

use crate::{Card, During, Error, Result};
use cudarc::driver::{CudaSlice, DevicePtr, DeviceRepr, PinnedHostSlice, ValidAsZeroBits};
use std::ops::Range;

/// A number that targets may be of on this machine.
pub trait HostNumber: DeviceRepr + ValidAsZeroBits + Copy + Default + Send + 'static {
    /// At the end of the names of kernels for it.
    const SUFFIX: &'static str;
    /// The distance from 1 to the next number.
    const EPSILON: f64;
}

impl HostNumber for f32 {
    const SUFFIX: &'static str = "f32";
    const EPSILON: f64 = f32::EPSILON as f64;
}

impl HostNumber for f64 {
    const SUFFIX: &'static str = "f64";
    const EPSILON: f64 = f64::EPSILON;
}

/// Memory of this machine that a card copies from at full speed.
#[derive(Debug)]
pub struct PinnedBlock<T>(PinnedHostSlice<T>);

impl<T: HostNumber> PinnedBlock<T> {
    /// Room for `len` numbers, all zero.
    ///
    /// # Errors
    /// A machine that has not so much memory to lock.
    pub fn zeros(card: &Card, len: usize) -> Result<Self> {
        // SAFETY: all of it is written below, before it is read.
        let mut memory = unsafe { card.context().alloc_pinned_with_flags(len.max(1), 0) }
            .during("locking this machine's memory")?;
        memory.as_mut_slice().during("locking this machine's memory")?.fill(T::default());
        Ok(Self(memory))
    }

    /// All of it.
    ///
    /// # Errors
    /// A card that fails.
    pub fn values(&mut self) -> Result<&mut [T]> {
        self.0.as_mut_slice().during("this machine's memory")
    }
}

/// Numbers on a card.
#[derive(Debug)]
pub struct Numbers<T>(CudaSlice<T>);

impl<T: HostNumber> Numbers<T> {
    /// All zero.
    ///
    /// # Errors
    /// A card without room for them.
    pub fn zeros(card: &Card, len: usize, what: &'static str) -> Result<Self> {
        card.zeros(len, what).map(Self)
    }

    /// A copy of `values`.
    ///
    /// # Errors
    /// A card without room for them, or that fails.
    pub fn of(card: &Card, values: &[T], what: &'static str) -> Result<Self> {
        let mut numbers = Self::zeros(card, values.len(), what)?;
        card.stream().memcpy_htod(values, &mut numbers.0.slice_mut(..values.len())).during(what)?;
        card.wait()?;
        Ok(numbers)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    /// Waits for the card, and gives those of `range`.
    ///
    /// # Errors
    /// A range that is not there; a card that fails.
    pub fn get(&self, card: &Card, range: Range<usize>) -> Result<Vec<T>> {
        let Some(some) = self.0.try_slice(range.clone()) else {
            return short("numbers on the card", self.len(), range.end);
        };
        let mut values = vec![T::default(); range.len()];
        card.stream().memcpy_dtoh(&some, &mut values).during("copying from the card")?;
        card.wait()?;
        Ok(values)
    }

    /// Waits for the card, and fills `into` with the first of them.
    ///
    /// # Errors
    /// Fewer than `into` has; a card that fails.
    pub fn copy_to(&self, card: &Card, into: &mut [T]) -> Result<()> {
        let enough = self.0.try_slice(..into.len());
        let Some(first) = enough else { return short("numbers on the card", self.len(), into.len()) };
        card.stream().memcpy_dtoh(&first, into).during("copying from the card")?;
        card.wait()
    }

    pub(super) fn at(&self, card: &Card, index: usize) -> u64 {
        self.0.device_ptr(card.stream()).0 + (index * size_of::<T>()) as u64
    }
}

/// Positions on a card.
#[derive(Debug)]
pub(super) struct Indices(CudaSlice<i64>);

impl Indices {
    /// A copy of `values`.
    pub fn of(card: &Card, values: &[usize], what: &'static str) -> Result<Self> {
        let values: Vec<i64> = values.iter().map(|value| *value as i64).collect();
        let mut indices = card.zeros(values.len(), what)?;
        card.stream().memcpy_htod(&values, &mut indices.slice_mut(..values.len())).during(what)?;
        card.wait()?;
        Ok(Self(indices))
    }

    pub(super) fn at(&self, card: &Card, index: usize) -> u64 {
        self.0.device_ptr(card.stream()).0 + (index * size_of::<i64>()) as u64
    }
}

pub(super) fn short<T>(what: &'static str, found: usize, needed: usize) -> Result<T> {
    Err(Error::Shape { what, reason: format!("there are {found}, {needed} are needed") })
}

/// What centring finds out about columns.
#[derive(Debug)]
pub struct Columns {
    /// Means; not finite where a value is not.
    pub means: Numbers<f64>,
    /// `Σ (v − mean)²`; zero where a column is constant or not finite, and has become zero.
    pub squares: Numbers<f64>,
    /// What columns were multiplied with.
    pub scales: Numbers<f64>,
    /// The variance that the rounding of their numbers alone may make.
    pub flat: Numbers<f64>,
}

impl Columns {
    /// For `count` columns.
    ///
    /// # Errors
    /// A card without room for them.
    pub fn zeros(card: &Card, count: usize) -> Result<Self> {
        let zeros = || Numbers::zeros(card, count, "means");
        Ok(Self { means: zeros()?, squares: zeros()?, scales: zeros()?, flat: zeros()? })
    }
}
