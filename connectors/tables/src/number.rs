//! The precision in which values of files are kept until they are cleaned: single, or double where a file's numbers need
//! it (a float64 image, integers beside a large intercept).

use arrow::array::{ArrayRef, Float32Array, Float64Array};
use std::sync::Arc;
use voxelflow_formats::Value;

/// `f32` or `f64`.
pub(crate) trait Number: Value + Into<f64> + PartialEq + Default + Send + Sync + 'static {
    /// Bytes of one.
    const BYTES: usize;

    /// Appends the little-endian bytes of `values`.
    fn encode(values: impl Iterator<Item = Self>, into: &mut Vec<u8>);

    /// Appends the values of little-endian bytes.
    fn decode(bytes: &[u8], into: &mut Vec<Self>);

    /// The nearest value.
    fn nearest(value: f64) -> Self;

    /// A column.
    fn column(values: Vec<Self>) -> ArrayRef;
}

macro_rules! number {
    ($number:ty, $bytes:literal, $array:ty) => {
        impl Number for $number {
            const BYTES: usize = $bytes;

            fn encode(values: impl Iterator<Item = Self>, into: &mut Vec<u8>) {
                into.extend(values.flat_map(<$number>::to_le_bytes));
            }

            fn decode(bytes: &[u8], into: &mut Vec<Self>) {
                into.extend(
                    bytes.as_chunks::<$bytes>().0.iter().map(|bytes| <$number>::from_le_bytes(*bytes)),
                );
            }

            fn nearest(value: f64) -> Self {
                value as Self
            }

            fn column(values: Vec<Self>) -> ArrayRef {
                Arc::new(<$array>::from(values))
            }
        }
    };
}
number!(f32, 4, Float32Array);
number!(f64, 8, Float64Array);
