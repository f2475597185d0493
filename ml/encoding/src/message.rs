//! Decompositions as messages between ranks: numbers little-endian, matrices column by column.

use crate::options::STAGE;
use faer::Mat;
use voxelflow_ridge::{Decomposition, DecompositionParts, Scalar};
use voxelflow_stage::{Error, Result};
use voxelflow_sync::Element;

/// Numbers that are computed with, sent and written.
pub(crate) trait Number: Scalar + Element {
    /// As safetensors name them.
    const DTYPE: &'static str;
}

impl Number for f32 {
    const DTYPE: &'static str = "F32";
}

impl Number for f64 {
    const DTYPE: &'static str = "F64";
}

/// Numbers of the header: wide, values, rows and columns of the basis, and of Z.
const HEADER: usize = 6;

/// Of a decomposition its message.
pub(crate) fn pack<T: Number>(decomposition: Decomposition<T>) -> Vec<u8> {
    let DecompositionParts { values, wide, basis, z } = decomposition.into_parts();
    let header = [usize::from(wide), values.len(), basis.nrows(), basis.ncols(), z.nrows(), z.ncols()];
    let numbers = basis.nrows() * basis.ncols() + z.nrows() * z.ncols();
    let mut bytes = Vec::with_capacity(8 * (HEADER + values.len()) + T::BYTES * numbers);
    header.iter().for_each(|n| bytes.extend((*n as u64).to_le_bytes()));
    bytes.extend(f64::write(&values));
    for matrix in [&basis, &z] {
        for column in matrix.col_iter() {
            bytes.extend(T::write(&column.iter().copied().collect::<Vec<T>>()));
        }
    }
    bytes
}

/// Of a message its decomposition.
///
/// # Errors
/// A message of another length than it says.
pub(crate) fn unpack<T: Number>(bytes: &[u8]) -> Result<Decomposition<T>> {
    let damaged = || Error::Data { what: STAGE.into(), reason: "a decomposition came damaged".into() };
    let (header, rest) = bytes.split_at_checked(8 * HEADER).ok_or_else(damaged)?;
    let mut numbers = [0_usize; HEADER];
    for (to, bytes) in numbers.iter_mut().zip(header.as_chunks().0) {
        *to = usize::try_from(u64::from_le_bytes(*bytes)).map_err(|_| damaged())?;
    }
    let [wide, n_values, basis_rows, basis_columns, z_rows, z_columns] = numbers;
    let size = |rows: usize, columns: usize| rows.checked_mul(columns)?.checked_mul(T::BYTES);
    let (basis_size, z_size) = (size(basis_rows, basis_columns), size(z_rows, z_columns));
    let (Some(basis_size), Some(z_size)) = (basis_size, z_size) else { return Err(damaged()) };
    let (values_bytes, rest) =
        n_values.checked_mul(8).and_then(|n| rest.split_at_checked(n)).ok_or_else(damaged)?;
    let (basis, z) =
        rest.split_at_checked(basis_size).filter(|(_, z)| z.len() == z_size).ok_or_else(damaged)?;
    let mut values = vec![0.0; n_values];
    f64::read(values_bytes, &mut values);
    let matrix = |bytes: &[u8], rows: usize, columns: usize| {
        let mut matrix = Mat::<T>::zeros(rows, columns);
        let mut column_values = vec![T::default(); rows];
        for (column, bytes) in matrix.col_iter_mut().zip(bytes.chunks_exact((rows * T::BYTES).max(1))) {
            T::read(bytes, &mut column_values);
            column.iter_mut().zip(&column_values).for_each(|(to, value)| *to = *value);
        }
        matrix
    };
    let (basis, z) = (matrix(basis, basis_rows, basis_columns), matrix(z, z_rows, z_columns));
    Ok(DecompositionParts { values, wide: wide != 0, basis, z }.into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_decomposition_comes_as_it_was_sent_or_not_at_all() {
        let parts = || DecompositionParts {
            values: vec![1.0, 2.5],
            wide: true,
            basis: Mat::from_fn(3, 2, |i, j| (i * 10 + j) as f32),
            z: Mat::from_fn(4, 2, |i, j| -((i + j) as f32)),
        };
        let bytes = pack(Decomposition::from(parts()));
        let came = unpack::<f32>(&bytes).unwrap().into_parts();
        assert_eq!((came.values, came.wide), (parts().values, true));
        assert_eq!((came.basis, came.z), (parts().basis, parts().z));
        for length in [0, 8, 47, bytes.len() - 1] {
            assert!(unpack::<f32>(&bytes[..length]).is_err());
        }
        let none = DecompositionParts {
            z: Mat::<f64>::zeros(0, 0),
            basis: Mat::zeros(2, 2),
            values: vec![],
            wide: false,
        };
        assert_eq!(unpack::<f64>(&pack(Decomposition::from(none))).unwrap().into_parts().z.nrows(), 0);
    }
}
