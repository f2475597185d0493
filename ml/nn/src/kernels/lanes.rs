//! A few values that one instruction works on, and what a matrix product needs of them.
//!
//! [`Lanes`] is written with intrinsics for AVX-512 and for AVX2 with FMA, and with plain arrays for everything else:
//! those the compiler turns into what the target has at compile time (SSE2, NEON).
#![allow(unsafe_code)] // vector registers are loaded from and stored to raw pointers

/// `N` values side by side.
///
/// # Safety
/// Every function may only be called where the processor has the instructions of the implementing type. `load` reads
/// and `store` writes `N` values at the pointer.
pub(super) trait Lanes<E>: Copy {
    const N: usize;
    unsafe fn splat(value: E) -> Self;
    unsafe fn load(from: *const E) -> Self;
    unsafe fn store(self, to: *mut E);
    /// `self·b + c`.
    unsafe fn mul_add(self, b: Self, c: Self) -> Self;
}

/// Plain arrays: rounding differs from the fused instructions in the last bit.
macro_rules! portable {
    ($element:ty) => {
        impl Lanes<$element> for [$element; 4] {
            const N: usize = 4;
            #[inline(always)]
            unsafe fn splat(value: $element) -> Self {
                [value; 4]
            }
            #[inline(always)]
            unsafe fn load(from: *const $element) -> Self {
                // SAFETY: the caller promises four values at `from`.
                unsafe { from.cast::<Self>().read_unaligned() }
            }
            #[inline(always)]
            unsafe fn store(self, to: *mut $element) {
                // SAFETY: the caller promises room for four values at `to`.
                unsafe { to.cast::<Self>().write_unaligned(self) }
            }
            #[inline(always)]
            unsafe fn mul_add(self, b: Self, c: Self) -> Self {
                std::array::from_fn(|i| self[i] * b[i] + c[i])
            }
        }
    };
}

portable!(f32);
portable!(f64);

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Lanes;
    use std::arch::x86_64::*;

    macro_rules! vectors {
        ($vector:ty, $element:ty, $n:literal, $splat:ident, $load:ident, $store:ident, $mul_add:ident) => {
            // SAFETY (of every body): the caller promises the instructions, and `N` values at the pointer.
            impl Lanes<$element> for $vector {
                const N: usize = $n;
                #[inline(always)]
                unsafe fn splat(value: $element) -> Self {
                    unsafe { $splat(value) }
                }
                #[inline(always)]
                unsafe fn load(from: *const $element) -> Self {
                    unsafe { $load(from) }
                }
                #[inline(always)]
                unsafe fn store(self, to: *mut $element) {
                    unsafe { $store(to, self) }
                }
                #[inline(always)]
                unsafe fn mul_add(self, b: Self, c: Self) -> Self {
                    unsafe { $mul_add(self, b, c) }
                }
            }
        };
    }

    vectors!(__m256, f32, 8, _mm256_set1_ps, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_fmadd_ps);
    vectors!(__m512, f32, 16, _mm512_set1_ps, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_fmadd_ps);
}
