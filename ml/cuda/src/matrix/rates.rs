//! How fast a card multiplies, so that a plan can be made and a precision chosen.

use super::int;
use crate::{Card, During, Result};
use cudarc::{
    cublas::{
        result as blas,
        sys::{cublasMath_t, cublasOperation_t, cublasSetMathMode},
    },
    driver::DevicePtr,
};

/// Precisions whose rates can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RatedPrecision {
    /// 64 bits.
    Double,
    /// 32 bits, exact to 24.
    Single,
    /// 32 bits, of which products see 11: NVIDIA's TF32.
    Short,
}

/// Floating-point operations a second of products of two `size × size` matrices, over the later half of `seconds`, or of
/// four products if these take longer: a card that works long gets warm and slows down.
///
/// # Errors
/// A card without room for them, or that fails.
pub fn product_rate(card: &Card, size: usize, precision: RatedPrecision, seconds: f64) -> Result<f64> {
    const WHAT: &str = "measuring products";
    let n = int(size, WHAT)?;
    // Numbers without a pattern: a card runs faster on zeros and on what repeats.
    let mut state = 1u64;
    let numbers = (0..size * size).map(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    });
    let handle = *card.blas().handle();
    let none = cublasOperation_t::CUBLAS_OP_N;
    let mode = |mode| {
        // SAFETY: it sets how products are computed from here on.
        unsafe { cublasSetMathMode(handle, mode) }.result().during(WHAT)
    };
    let (double, single) = if precision == RatedPrecision::Double {
        (
            Some([
                card.stream().clone_htod(&numbers.collect::<Vec<f64>>()).during(WHAT)?,
                card.zeros(size * size, WHAT)?,
            ]),
            None,
        )
    } else {
        (
            None,
            Some([
                card.stream().clone_htod(&numbers.map(|v| v as f32).collect::<Vec<_>>()).during(WHAT)?,
                card.zeros(size * size, WHAT)?,
            ]),
        )
    };
    if precision == RatedPrecision::Short {
        mode(cublasMath_t::CUBLAS_TF32_TENSOR_OP_MATH)?;
    }
    let (begin, mut each) = (std::time::Instant::now(), Vec::new());
    while begin.elapsed().as_secs_f64() < seconds || each.len() < 4 {
        card.wait()?;
        let clock = std::time::Instant::now();
        // SAFETY: all three are `size × size`.
        unsafe {
            if let Some([a, c]) = &double {
                let [a, c] = [a, c].map(|s| s.device_ptr(card.stream()).0);
                let (a, c) = (a as *const f64, c as *mut f64);
                blas::dgemm(handle, none, none, n, n, n, &1.0, a, n, a, n, &0.0, c, n).during(WHAT)?;
            }
            if let Some([a, c]) = &single {
                let [a, c] = [a, c].map(|s| s.device_ptr(card.stream()).0);
                let (a, c) = (a as *const f32, c as *mut f32);
                blas::sgemm(handle, none, none, n, n, n, &1.0, a, n, a, n, &0.0, c, n).during(WHAT)?;
            }
        }
        card.wait()?;
        each.push(clock.elapsed().as_secs_f64());
    }
    if precision == RatedPrecision::Short {
        mode(cublasMath_t::CUBLAS_DEFAULT_MATH)?;
    }
    let late = &each[each.len() / 2..];
    Ok(2.0 * (size as f64).powi(3) * late.len() as f64 / late.iter().sum::<f64>())
}
