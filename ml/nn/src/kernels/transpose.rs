//! Channels that lie one after the other into lanes side by side, and back: what a convolution in panels pays for tensors
//! in the order of PyTorch.
//!
//! Blocks of 8 × 8 values of f32 are turned in registers where the processor has AVX2; all else goes value by value.
#![allow(unsafe_code)] // blocks are read and written through raw pointers; both sides' bounds are checked before

/// The rows and columns of a matrix that count.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    pub rows: usize,
    pub columns: usize,
}

/// Element types that can be transposed.
pub trait Transposed: Copy {
    /// `to[j·to_stride + i] = from[i·stride + j]` for all `i < extent.rows` and `j < extent.columns`.
    ///
    /// # Panics
    /// If a slice is too short.
    fn transpose(from: &[Self], stride: usize, to: &mut [Self], to_stride: usize, extent: Extent);
}

fn plain<E: Copy>(from: &[E], stride: usize, to: &mut [E], to_stride: usize, extent: Extent) {
    for j in 0..extent.columns {
        for i in 0..extent.rows {
            to[j * to_stride + i] = from[i * stride + j];
        }
    }
}

fn check(from: usize, stride: usize, to: usize, to_stride: usize, extent: Extent) {
    let (rows, columns) = (extent.rows - 1, extent.columns - 1);
    assert!(rows * stride + columns < from && columns * to_stride + rows < to, "a matrix beyond its slice");
}

impl Transposed for f64 {
    fn transpose(from: &[f64], stride: usize, to: &mut [f64], to_stride: usize, extent: Extent) {
        plain(from, stride, to, to_stride, extent);
    }
}

impl Transposed for f32 {
    fn transpose(from: &[f32], stride: usize, to: &mut [f32], to_stride: usize, extent: Extent) {
        let Extent { rows, columns } = extent;
        if rows == 0 || columns == 0 {
            return;
        }
        check(from.len(), stride, to.len(), to_stride, extent);
        #[cfg(target_arch = "x86_64")]
        if rows >= 8 && columns >= 8 && is_x86_feature_detected!("avx2") {
            // The last block of a line that is no multiple of 8 begins earlier: some values are written twice.
            for j in (0..columns.div_ceil(8)).map(|j| (8 * j).min(columns - 8)) {
                for i in (0..rows.div_ceil(8)).map(|i| (8 * i).min(rows - 8)) {
                    // SAFETY: the processor has AVX2; rows `i..i + 8` and columns `j..j + 8` were compared with both
                    // slices.
                    unsafe {
                        let from = from.as_ptr().add(i * stride + j);
                        x86::block(from, stride, to.as_mut_ptr().add(j * to_stride + i), to_stride);
                    }
                }
            }
            return;
        }
        plain(from, stride, to, to_stride, extent);
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    /// 8 × 8 values.
    ///
    /// # Safety
    /// The processor has AVX2; 8 values can be read at each of 8 rows of `from`, and written at each of `to`.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn block(from: *const f32, stride: usize, to: *mut f32, to_stride: usize) {
        // SAFETY: as the caller promises.
        let row: [__m256; 8] = std::array::from_fn(|i| unsafe { _mm256_loadu_ps(from.add(i * stride)) });
        let pairs: [__m256; 8] = std::array::from_fn(|i| {
            let (a, b) = (row[i & !1], row[i | 1]);
            if i & 1 == 0 { _mm256_unpacklo_ps(a, b) } else { _mm256_unpackhi_ps(a, b) }
        });
        // Of rows 0 to 3 and 4 to 7: columns k and k + 4 of four rows in the halves of a register.
        let fours: [__m256; 8] = std::array::from_fn(|i| {
            let (base, k) = (i & 4, i & 3);
            let (a, b) = (pairs[base + (k >> 1)], pairs[base + 2 + (k >> 1)]);
            if k & 1 == 0 { _mm256_shuffle_ps::<0x44>(a, b) } else { _mm256_shuffle_ps::<0xee>(a, b) }
        });
        for k in 0..4 {
            let low = _mm256_permute2f128_ps::<0x20>(fours[k], fours[k + 4]);
            let high = _mm256_permute2f128_ps::<0x31>(fours[k], fours[k + 4]);
            // SAFETY: as the caller promises.
            unsafe {
                _mm256_storeu_ps(to.add(k * to_stride), low);
                _mm256_storeu_ps(to.add((k + 4) * to_stride), high);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_columns_for_every_extent() {
        for (rows, columns) in [(1, 1), (7, 9), (8, 8), (16, 31), (32, 48), (33, 5), (3, 40)] {
            let (stride, to_stride) = (columns + 3, rows + 2);
            let from: Vec<f32> = (0..(rows - 1) * stride + columns).map(|i| 1.0 + i as f32).collect();
            let mut to = vec![0.0; (columns - 1) * to_stride + rows];
            f32::transpose(&from, stride, &mut to, to_stride, Extent { rows, columns });
            for (i, j) in (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j))) {
                assert_eq!(to[j * to_stride + i], from[i * stride + j], "{rows} x {columns}: {i}, {j}");
            }
            assert_eq!(to.iter().filter(|v| **v != 0.0).count(), rows * columns);
        }
    }

    #[test]
    #[should_panic(expected = "beyond its slice")]
    fn a_slice_that_is_too_short_is_refused() {
        f32::transpose(&[0.0; 63], 8, &mut [0.0; 64], 8, Extent { rows: 8, columns: 8 });
    }
}
