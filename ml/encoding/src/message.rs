//! What ranks send each other of the features: Gram matrices and decompositions. Matrices travel some columns at a time: a
//! message as large as a matrix would be held beside it by every rank that gets it, and as often as there are ranks by the
//! one that sends it.

use crate::options::{Precision, STAGE};
use faer::Mat;
use std::ops::Range;
use voxelflow_ridge::{Decomposition, DecompositionParts, Scalar};
use voxelflow_stage::{Error, Result};
use voxelflow_sync::{Communicator, CommunicatorExt, Element, Rank, ReduceOp};

/// Numbers that are computed with, sent and written.
pub(crate) trait Number: Scalar + Element {
    /// As safetensors name them.
    const DTYPE: &'static str;
    /// As options name them.
    const PRECISION: Precision;
}

impl Number for f32 {
    const DTYPE: &'static str = "F32";
    const PRECISION: Precision = Precision::F32;
}

impl Number for f64 {
    const DTYPE: &'static str = "F64";
    const PRECISION: Precision = Precision::F64;
}

/// Bytes of a message, unless a column is longer.
pub(crate) const PIECE: usize = 1 << 20;

/// Columns that are sent together, of `columns` with so many numbers.
fn pieces<T: Number>(rows: usize, columns: usize) -> impl Iterator<Item = Range<usize>> {
    let together = (PIECE / (rows * T::BYTES).max(1)).max(1);
    (0..columns).step_by(together).map(move |first| first..columns.min(first + together))
}

/// Replaces the symmetric `own` by its sum over all ranks: on every rank, or on the one that needs it.
///
/// # Errors
/// Ranks that are lost, or have a matrix of another size.
pub(crate) fn add_up(own: &mut Mat<f64>, only: Option<Rank>, c: &mut dyn Communicator) -> Result<()> {
    if c.world() == 1 {
        return Ok(());
    }
    for columns in pieces::<f64>(own.nrows(), own.ncols()) {
        // From the diagonal down.
        let lower = columns.clone().flat_map(|j| own.col(j).iter().skip(j).copied());
        let mut sums: Vec<f64> = lower.collect();
        match only {
            Some(root) => c.reduce(root, ReduceOp::Sum, &mut sums)?,
            None => c.all_reduce(ReduceOp::Sum, &mut sums)?,
        }
        let mut sums = sums.into_iter();
        for j in columns {
            for (i, sum) in (j..own.nrows()).zip(sums.by_ref()) {
                own[(i, j)] = sum;
                own[(j, i)] = sum;
            }
        }
    }
    Ok(())
}

/// Of `count` decompositions of features `[n_samples, n_features]`, dealt out to ranks one after the other, those of this
/// rank become all of them, in their order. The first of the size of `spare` takes its memory: what the system gives anew is
/// slow.
///
/// # Errors
/// Ranks that are lost; decompositions that cannot be of such features.
pub(crate) fn shared<T: Number>(
    own: Vec<Decomposition<T>>,
    count: usize,
    shape: [usize; 2],
    mut spare: Option<Mat<T>>,
    c: &mut dyn Communicator,
) -> Result<Vec<Decomposition<T>>> {
    let (rank, world) = (c.rank().0, c.world());
    if world == 1 {
        return Ok(own);
    }
    let mut own = own.into_iter();
    let next = |number: usize| {
        let root = number % world;
        let parts = if root == rank { own.next().map(Decomposition::into_parts) } else { None };
        Ok(sent(parts, Rank(root), shape, &mut spare, c)?.into())
    };
    (0..count).map(next).collect()
}

/// A decomposition that `root` has.
fn sent<T: Number>(
    parts: Option<DecompositionParts<T>>,
    root: Rank,
    shape: [usize; 2],
    spare: &mut Option<Mat<T>>,
    c: &mut dyn Communicator,
) -> Result<DecompositionParts<T>> {
    let header = parts.as_ref().map_or_else(Vec::new, header);
    let header = c.broadcast_bytes(root, f64::write(&header))?;
    let mut parts = match parts {
        Some(parts) => parts,
        None => room_for(&header, shape, spare).ok_or_else(|| Error::Data {
            what: STAGE.into(),
            reason: "a decomposition came damaged".into(),
        })?,
    };
    for matrix in [&mut parts.basis, &mut parts.z] {
        broadcast(matrix, root, c)?;
    }
    Ok(parts)
}

/// Whether it is wide, the sizes of the matrices, and the values.
fn header<T>(parts: &DecompositionParts<T>) -> Vec<f64> {
    let DecompositionParts { values, wide, basis, z } = parts;
    let sizes = [usize::from(*wide), basis.nrows(), basis.ncols(), z.nrows(), z.ncols()];
    sizes.iter().map(|size| *size as f64).chain(values.iter().copied()).collect()
}

/// What such a header is of, without the numbers of its matrices; nothing where it cannot be of features `[n, p]`.
fn room_for<T: Number>(
    header: &[u8],
    [n, p]: [usize; 2],
    spare: &mut Option<Mat<T>>,
) -> Option<DecompositionParts<T>> {
    let mut numbers = vec![0.0; header.len() / f64::BYTES];
    f64::read(header, &mut numbers);
    let (sizes, values) = numbers.split_first_chunk::<5>()?;
    let [wide, basis_rows, basis_columns, z_rows, z_columns] = sizes.map(|size| size as usize);
    let fits = header.len().is_multiple_of(f64::BYTES)
        && basis_rows <= n.max(p)
        && z_rows <= n
        && values.len() <= n.min(p)
        && basis_columns == values.len()
        && (z_columns == values.len() || z_rows == 0 && z_columns == 0);
    fits.then(|| DecompositionParts {
        values: values.to_vec(),
        wide: wide != 0,
        basis: Mat::zeros(basis_rows, basis_columns),
        z: spare
            .take_if(|spare| (spare.nrows(), spare.ncols()) == (z_rows, z_columns))
            .unwrap_or_else(|| Mat::zeros(z_rows, z_columns)),
    })
}

/// Every rank's `matrix`, all of one size, becomes that of `root`.
fn broadcast<T: Number>(matrix: &mut Mat<T>, root: Rank, c: &mut dyn Communicator) -> Result<()> {
    let rows = matrix.nrows();
    for columns in pieces::<T>(rows, matrix.ncols()) {
        if c.rank() == root {
            let mut own: Vec<T> = columns.flat_map(|j| matrix.col(j).iter().copied()).collect();
            c.broadcast(root, &mut own)?;
            continue;
        }
        let mut came = vec![T::default(); rows * columns.len()];
        c.broadcast(root, &mut came)?;
        for (j, came) in columns.zip(came.chunks_exact(rows.max(1))) {
            matrix.col_mut(j).iter_mut().zip(came).for_each(|(to, value)| *to = *value);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::{thread, time::Duration};
    use voxelflow_sync::in_process_communicators;

    /// What every rank of a gang gives.
    fn ranks<R: Send>(world: usize, run: impl Fn(&mut dyn Communicator) -> R + Sync) -> Vec<R> {
        let (gang, run) = (in_process_communicators(world, Duration::from_secs(60)), &run);
        thread::scope(|scope| {
            let each = gang.into_iter().map(|mut c| scope.spawn(move || run(&mut c)));
            each.collect::<Vec<_>>().into_iter().map(|rank| rank.join().unwrap()).collect()
        })
    }

    fn parts(number: usize) -> DecompositionParts<f32> {
        DecompositionParts {
            values: vec![1.0, 2.5],
            wide: number == 1,
            // The second has more columns than a piece, the third no samples.
            basis: Mat::from_fn(3 + number * PIECE / 8, 2, |i, j| (i * 10 + j + number) as f32),
            z: if number == 2 { Mat::new() } else { Mat::from_fn(4, 2, |i, j| -((i + j) as f32)) },
        }
    }

    #[test]
    fn all_ranks_have_all_decompositions() {
        let all = ranks(2, |c| {
            let own = (c.rank().0..3).step_by(2).map(|number| parts(number).into()).collect();
            shared(own, 3, [4, PIECE], Some(Mat::from_fn(4, 2, |_, _| 9.0)), c).unwrap()
        });
        for found in all {
            assert_eq!(found.len(), 3);
            for (number, found) in found.into_iter().enumerate() {
                let (found, expected) = (found.into_parts(), parts(number));
                assert_eq!((found.values, found.wide), (expected.values, expected.wide));
                assert_eq!((found.basis, found.z), (expected.basis, expected.z));
            }
        }
    }

    #[test]
    fn what_cannot_be_of_the_features_is_refused() {
        let good = header(&parts(0));
        assert!(room_for::<f32>(&f64::write(&good), [4, 3], &mut None).is_some());
        assert!(
            room_for::<f32>(&f64::write(&good), [3, 3], &mut None).is_none(),
            "more samples than there are"
        );
        assert!(
            room_for::<f32>(&f64::write(&good), [4, 1], &mut None).is_none(),
            "more values than features"
        );
        assert!(room_for::<f32>(&f64::write(&good)[..39], [4, 3], &mut None).is_none(), "cut off");
        for (at, number) in [(1, 1e300), (2, 1.0), (3, f64::INFINITY), (4, 3.0), (2, f64::NAN), (3, -1.0)] {
            let mut other = good.clone();
            other[at] = number;
            let found = room_for::<f32>(&f64::write(&other), [4, 3], &mut None);
            assert!(found.is_none_or(|parts| parts.z.nrows() <= 4), "{at} {number}");
        }
        let lost = ranks(2, |c| match c.rank().0 {
            0 => c.broadcast_bytes(Rank(0), vec![1; 47]).map(|_| ()).map_err(Error::from),
            _ => shared::<f32>(Vec::new(), 1, [4, 3], None, c).map(|_| ()),
        });
        assert!(lost[0].is_ok() && lost[1].as_ref().unwrap_err().to_string().contains("damaged"));
    }

    #[test]
    fn gram_matrices_are_summed_piece_by_piece() {
        let size = 900;
        for only in [None, Some(Rank(0))] {
            let all = ranks(3, |c| {
                let own = |i: usize, j: usize| (c.rank().0 + 1) as f64 * (i * j + i + j) as f64;
                let mut own = Mat::from_fn(size, size, own);
                add_up(&mut own, only, c).unwrap();
                own
            });
            let expected = Mat::from_fn(size, size, |i, j| 6.0 * (i * j + i + j) as f64);
            let which = if only.is_some() { 1 } else { 3 };
            assert!(all.iter().take(which).all(|own| *own == expected), "{only:?}");
        }
    }
}
