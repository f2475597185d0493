//! Buffers on the card, of one kind of value each.

use crate::{Card, Error, Result, error::During};
use cudarc::{
    cublas::sys::cudaDataType,
    driver::{CudaSlice, DevicePtr, result},
};

/// Kinds of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// Float32.
    F32,
    /// bfloat16.
    Bf16,
    /// Float64.
    F64,
    /// Bytes.
    U8,
    /// 32-bit whole numbers.
    U32,
}

impl Values {
    /// Bytes of one.
    pub fn size(self) -> usize {
        match self {
            Self::F64 => 8,
            Self::F32 | Self::U32 => 4,
            Self::Bf16 => 2,
            Self::U8 => 1,
        }
    }

    pub(crate) fn of_cublas(self) -> cudaDataType {
        match self {
            Self::F32 => cudaDataType::CUDA_R_32F,
            Self::Bf16 => cudaDataType::CUDA_R_16BF,
            Self::F64 => cudaDataType::CUDA_R_64F,
            Self::U8 => cudaDataType::CUDA_R_8U,
            Self::U32 => cudaDataType::CUDA_R_32U,
        }
    }

    /// The end of the names of kernels for it.
    pub(crate) fn suffix(self) -> &'static str {
        if self == Self::Bf16 { "bf16" } else { "f32" }
    }
}

/// A buffer on the card. It is freed in the order of the card's stream, so that what was asked for before still finds it.
#[derive(Debug)]
pub struct Memory {
    slice: CudaSlice<u8>,
    pointer: u64,
    kind: Values,
    len: usize,
}

impl Memory {
    /// Room for `len` values of `kind`, all zero.
    ///
    /// # Errors
    /// A card without room for it.
    pub fn zeros(card: &Card, kind: Values, len: usize, what: &'static str) -> Result<Self> {
        let slice: CudaSlice<u8> = card.zeros(len * kind.size(), what)?;
        let pointer = slice.device_ptr(card.stream()).0;
        Ok(Self { slice, pointer, kind, len })
    }

    /// A buffer with the bytes of `values`.
    ///
    /// # Errors
    /// A card without room for it, or that fails.
    pub fn of(card: &Card, kind: Values, bytes: &[u8], what: &'static str) -> Result<Self> {
        let mut memory = Self::zeros(card, kind, bytes.len() / kind.size(), what)?;
        if !bytes.is_empty() {
            card.stream().memcpy_htod(bytes, &mut memory.slice).during(what)?;
            // The bytes may go once this returns.
            card.stream().synchronize().during(what)?;
        }
        Ok(memory)
    }

    /// How many values it holds.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if it holds none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What it holds.
    pub fn kind(&self) -> Values {
        self.kind
    }

    /// Bytes of it.
    pub fn bytes(&self) -> usize {
        self.len * self.kind.size()
    }

    /// The address of value `i` on the card.
    pub(crate) fn at(&self, i: usize) -> u64 {
        self.pointer + (i * self.kind.size()) as u64
    }

    /// Waits for the card's stream, then copies values from `from` on into `into`, which is bytes of this kind.
    ///
    /// # Errors
    /// A range that is not in it; a card that fails.
    pub fn read(&self, card: &Card, from: usize, into: &mut [u8]) -> Result<()> {
        let end = from * self.kind.size() + into.len();
        if end > self.bytes() {
            let reason = format!("{end} bytes were asked for, it has {}", self.bytes());
            return Err(Error::Shape { what: "a buffer on the card", reason });
        }
        card.context().bind_to_thread().during("reading")?;
        // SAFETY: the range is within the buffer; the stream is waited for before `into` is used.
        unsafe { result::memcpy_dtoh_async(into, self.at(from), card.stream().cu_stream()) }
            .during("reading")?;
        card.stream().synchronize().during("reading")
    }

    /// Copies `from` to the values from `to` on, in the order of the card's stream; it is done when this returns.
    ///
    /// # Errors
    /// A range that is not in it; a card that fails.
    pub fn write(&mut self, card: &Card, to: usize, from: &[u8]) -> Result<()> {
        let end = to * self.kind.size() + from.len();
        if end > self.bytes() {
            let reason = format!("{end} bytes were given, it has {}", self.bytes());
            return Err(Error::Shape { what: "a buffer on the card", reason });
        }
        card.context().bind_to_thread().during("writing")?;
        // SAFETY: the range is within the buffer; the stream is waited for before `from` can go.
        unsafe { result::memcpy_htod_async(self.at(to), from, card.stream().cu_stream()) }
            .during("writing")?;
        card.stream().synchronize().during("writing")
    }

    /// Makes all of it zero, in the order of the card's stream.
    ///
    /// # Errors
    /// A card that fails.
    pub fn clear(&mut self, card: &Card) -> Result<()> {
        card.stream().memset_zeros(&mut self.slice).during("clearing")
    }
}

/// Numbers as the bytes that the card takes.
pub(crate) fn bytes_of<T: Plain>(values: &[T]) -> &[u8] {
    // SAFETY: plain numbers have no padding, and every byte of them is initialised.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// As [`bytes_of`], to be written.
pub(crate) fn bytes_of_mut<T: Plain>(values: &mut [T]) -> &mut [u8] {
    // SAFETY: as above, and every pattern of bits is a value.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) }
}

/// Numbers without padding of which every pattern of bits is valid.
pub(crate) trait Plain: Copy {}
impl Plain for f32 {}
impl Plain for f64 {}
impl Plain for u32 {}
impl Plain for i32 {}
impl Plain for i64 {}
impl Plain for u64 {}
impl Plain for u8 {}
