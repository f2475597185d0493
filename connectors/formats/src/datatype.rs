//! The number types of files, and the tight loops from stored bytes to scaled `f32` and back.

use std::fmt;

/// Byte order of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endian {
    /// Least significant byte first.
    Little,
    /// Most significant byte first.
    Big,
}

/// A number type that a voxel, vertex or array element can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DataType {
    /// Unsigned 8 bit.
    U8,
    /// Signed 8 bit.
    I8,
    /// Signed 16 bit.
    I16,
    /// Unsigned 16 bit.
    U16,
    /// Signed 32 bit.
    I32,
    /// Unsigned 32 bit.
    U32,
    /// Signed 64 bit.
    I64,
    /// Unsigned 64 bit.
    U64,
    /// IEEE single precision.
    F32,
    /// IEEE double precision.
    F64,
}

/// `value = stored · slope + intercept`, computed in double precision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scaling {
    /// `scl_slope`, finite and not 0.
    pub slope: f64,
    /// `scl_inter`, finite.
    pub intercept: f64,
}

impl DataType {
    /// All types.
    pub const ALL: [Self; 10] = [
        Self::U8,
        Self::I8,
        Self::I16,
        Self::U16,
        Self::I32,
        Self::U32,
        Self::I64,
        Self::U64,
        Self::F32,
        Self::F64,
    ];

    /// The type of a NIfTI `datatype` code, or the standard's name of what it is instead.
    pub(crate) fn from_code(code: i16) -> Result<Self, &'static str> {
        if let Some(known) = Self::ALL.into_iter().find(|t| t.code() == code) {
            return Ok(known);
        }
        Err(match code {
            1 => "single bits (BINARY)",
            32 => "complex numbers (COMPLEX64)",
            128 => "colours (RGB24)",
            1536 => "quadruple precision (FLOAT128)",
            1792 => "complex numbers (COMPLEX128)",
            2048 => "complex numbers (COMPLEX256)",
            2304 => "colours (RGBA32)",
            _ => "of an unknown type",
        })
    }

    /// The NIfTI `datatype` code.
    pub const fn code(self) -> i16 {
        match self {
            Self::U8 => 2,
            Self::I16 => 4,
            Self::I32 => 8,
            Self::F32 => 16,
            Self::F64 => 64,
            Self::I8 => 256,
            Self::U16 => 512,
            Self::U32 => 768,
            Self::I64 => 1024,
            Self::U64 => 1280,
        }
    }

    /// Whether single precision would lose of these numbers, `scaling` applied, what can show in a series: they are of
    /// double precision or of over 24 bits, or their intercept is so large that steps of the stored numbers are small
    /// beside it.
    pub fn exceeds_single(self, scaling: Option<Scaling>) -> bool {
        // Integers of 16 bits differ by 2^16 steps at most; with an intercept of as many, single precision rounds by 2^-8
        // of a step.
        let far = |Scaling { slope, intercept }: Scaling| intercept.abs() > 65_536.0 * slope.abs();
        match self {
            Self::I32 | Self::U32 | Self::I64 | Self::U64 | Self::F64 => true,
            // How far its numbers lie apart is not known: any intercept may be a large one.
            Self::F32 => scaling.is_some_and(|scaling| scaling.intercept != 0.0),
            Self::U8 | Self::I8 | Self::I16 | Self::U16 => scaling.is_some_and(far),
        }
    }

    /// Bytes of one voxel.
    pub const fn size(self) -> usize {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::I16 | Self::U16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    /// The narrowest type that holds whole numbers from `min` to `max`: labels are widened, never
    /// wrapped.
    pub fn for_labels(min: f32, max: f32) -> Self {
        match () {
            () if min >= 0.0 && max <= f32::from(u8::MAX) => Self::U8,
            () if min >= f32::from(i16::MIN) && max <= f32::from(i16::MAX) => Self::I16,
            () if min >= -16_777_216.0 && max <= 16_777_216.0 => Self::I32,
            () => Self::F32,
        }
    }

    /// Appends the values of `raw`, whole voxels, to `out`.
    pub(crate) fn decode<T: Value>(
        self,
        raw: &[u8],
        endian: Endian,
        scaling: Option<Scaling>,
        out: &mut Vec<T>,
    ) {
        macro_rules! decode {
            ($number:ty, $size:literal) => {{
                let voxels = raw.as_chunks::<$size>().0.iter();
                match endian {
                    Endian::Little => append(voxels.map(|b| <$number>::from_le_bytes(*b)), scaling, out),
                    Endian::Big => append(voxels.map(|b| <$number>::from_be_bytes(*b)), scaling, out),
                }
            }};
        }
        match self {
            Self::U8 => decode!(u8, 1),
            Self::I8 => decode!(i8, 1),
            Self::I16 => decode!(i16, 2),
            Self::U16 => decode!(u16, 2),
            Self::I32 => decode!(i32, 4),
            Self::U32 => decode!(u32, 4),
            Self::I64 => decode!(i64, 8),
            Self::U64 => decode!(u64, 8),
            Self::F32 => decode!(f32, 4),
            Self::F64 => decode!(f64, 8),
        }
    }

    /// Appends `values` as little-endian bytes, or gives the index of the first value that this type
    /// cannot hold exactly.
    pub(crate) fn encode(self, values: &[f32], out: &mut Vec<u8>) -> Result<(), usize> {
        macro_rules! encode {
            ($number:ty) => {
                for (index, &value) in values.iter().enumerate() {
                    // The cast saturates: what differs from the same cast to a wider type did not fit.
                    let stored = value as $number;
                    if value.fract() != 0.0 || stored as i128 != value as i128 {
                        return Err(index);
                    }
                    out.extend_from_slice(&stored.to_le_bytes());
                }
            };
        }
        match self {
            Self::U8 => encode!(u8),
            Self::I8 => encode!(i8),
            Self::I16 => encode!(i16),
            Self::U16 => encode!(u16),
            Self::I32 => encode!(i32),
            Self::U32 => encode!(u32),
            Self::I64 => encode!(i64),
            Self::U64 => encode!(u64),
            Self::F32 => out.extend(values.iter().flat_map(|v| v.to_le_bytes())),
            Self::F64 => out.extend(values.iter().flat_map(|v| f64::from(*v).to_le_bytes())),
        }
        Ok(())
    }
}

/// What stored numbers become: `f32` or `f64`.
pub trait Value: Copy + sealed::Sealed {
    /// The value of a stored number.
    #[doc(hidden)]
    fn of(stored: impl Stored) -> Self;
    /// A value that was computed in double precision.
    #[doc(hidden)]
    fn scaled(value: f64) -> Self;
}

impl Value for f32 {
    #[inline(always)]
    fn of(stored: impl Stored) -> Self {
        stored.single()
    }
    #[inline(always)]
    fn scaled(value: f64) -> Self {
        value as Self
    }
}

impl Value for f64 {
    #[inline(always)]
    fn of(stored: impl Stored) -> Self {
        stored.double()
    }
    #[inline(always)]
    fn scaled(value: f64) -> Self {
        value
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

/// A stored number, to single precision directly and to double precision for scaling.
#[doc(hidden)]
pub trait Stored: Copy {
    /// In single precision.
    fn single(self) -> f32;
    /// In double precision.
    fn double(self) -> f64;
}

macro_rules! stored {
    ($($number:ty),*) => {$(
        impl Stored for $number {
            #[inline(always)]
            fn single(self) -> f32 { self as f32 }
            #[inline(always)]
            fn double(self) -> f64 { self as f64 }
        }
    )*};
}
stored!(u8, i8, i16, u16, i32, u32, i64, u64, f32, f64);

#[inline(always)]
fn append<T: Value>(
    voxels: impl ExactSizeIterator<Item = impl Stored>,
    scaling: Option<Scaling>,
    out: &mut Vec<T>,
) {
    match scaling {
        None => out.extend(voxels.map(T::of)),
        Some(Scaling { slope, intercept }) => {
            out.extend(voxels.map(|v| T::scaled(v.double() * slope + intercept)));
        }
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::U8 => "uint8",
            Self::I8 => "int8",
            Self::I16 => "int16",
            Self::U16 => "uint16",
            Self::I32 => "int32",
            Self::U32 => "uint32",
            Self::I64 => "int64",
            Self::U64 => "uint64",
            Self::F32 => "float32",
            Self::F64 => "float64",
        })
    }
}
