//! Numbers that travel between ranks, and the ways to combine them.

/// How values of the ranks are combined, element by element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReduceOp {
    /// Sum.
    Sum,
    /// Sum divided by the number of ranks.
    Mean,
    /// Smallest; NaN if any is NaN.
    Min,
    /// Largest; NaN if any is NaN.
    Max,
    /// Product.
    Product,
}

/// A number that collectives can move and combine: `f32` or `f64`, little-endian on the wire.
pub trait Element: sealed::Sealed + Copy + Default + PartialEq + std::fmt::Debug + Send + 'static {
    /// Bytes of one element.
    const BYTES: usize;
    #[doc(hidden)]
    fn write(values: &[Self]) -> Vec<u8>;
    #[doc(hidden)]
    fn read(bytes: &[u8], into: &mut [Self]);
    #[doc(hidden)]
    fn combine(op: ReduceOp, into: &mut [Self], bytes: &[u8]);
    #[doc(hidden)]
    fn finish(op: ReduceOp, into: &mut [Self], world: usize);
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

macro_rules! element {
    ($t:ty, $bytes:literal) => {
        impl Element for $t {
            const BYTES: usize = $bytes;

            fn write(values: &[Self]) -> Vec<u8> {
                let mut bytes = vec![0; values.len() * Self::BYTES];
                for (to, value) in bytes.as_chunks_mut::<$bytes>().0.iter_mut().zip(values) {
                    *to = value.to_le_bytes();
                }
                bytes
            }

            fn read(bytes: &[u8], into: &mut [Self]) {
                for (to, from) in into.iter_mut().zip(bytes.as_chunks::<$bytes>().0) {
                    *to = Self::from_le_bytes(*from);
                }
            }

            fn combine(op: ReduceOp, into: &mut [Self], bytes: &[u8]) {
                // Generic over the closure, so that each operation gets a loop of its own that vectorises.
                fn each(into: &mut [$t], bytes: &[u8], f: impl Fn($t, $t) -> $t) {
                    for (a, b) in into.iter_mut().zip(bytes.as_chunks::<$bytes>().0) {
                        *a = f(*a, <$t>::from_le_bytes(*b));
                    }
                }
                match op {
                    ReduceOp::Sum | ReduceOp::Mean => each(into, bytes, |a, b| a + b),
                    ReduceOp::Product => each(into, bytes, |a, b| a * b),
                    ReduceOp::Min => each(into, bytes, |a, b| if a <= b || a.is_nan() { a } else { b }),
                    ReduceOp::Max => each(into, bytes, |a, b| if a >= b || a.is_nan() { a } else { b }),
                }
            }

            fn finish(op: ReduceOp, into: &mut [Self], world: usize) {
                if op == ReduceOp::Mean {
                    into.iter_mut().for_each(|value| *value /= world as $t);
                }
            }
        }
    };
}

element!(f32, 4);
element!(f64, 8);
