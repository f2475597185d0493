//! Passes over matrices by all threads, column by column: between products they would take one of many cores. What a column
//! becomes does not depend on who makes it.

use crate::Scalar;
use faer::{ColMut, ColRef, Mat, MatRef};
use rayon::prelude::*;

/// A matrix of `value(row, column)`.
pub(crate) fn made<T: Scalar>(
    rows: usize,
    columns: usize,
    value: impl Fn(usize, usize) -> T + Sync,
) -> Mat<T> {
    let mut matrix = Mat::zeros(rows, columns);
    each_column(&mut matrix, |j, column| {
        column.iter_mut().enumerate().for_each(|(i, into)| *into = value(i, j));
    });
    matrix
}

/// Gives every column of `of`, and its number, to `each`.
pub(crate) fn each_column<T: Scalar>(of: &mut Mat<T>, each: impl Fn(usize, &mut [T]) + Sync) {
    of.par_col_iter_mut().enumerate().for_each(|(j, column)| each(j, numbers(column)));
}

/// Takes its mean from every column.
pub(crate) fn less<T: Scalar>(of: &mut Mat<T>, means: &[f64]) {
    each_column(of, |j, column| column.iter_mut().for_each(|value| *value = T::of(value.wide() - means[j])));
}

/// What `each` says of every column of `of`, in their order.
pub(crate) fn of_columns<T: Scalar, R: Send>(
    of: MatRef<'_, T>,
    each: impl Fn(usize, ColRef<'_, T>) -> R + Sync,
) -> Vec<R> {
    of.par_col_iter().enumerate().map(|(j, column)| each(j, column)).collect()
}

/// The numbers of a column, as [`numbers`].
pub(crate) fn column_of<'a, T>(of: MatRef<'a, T>, j: usize) -> &'a [T] {
    of.col(j).try_as_col_major().map(|column| column.as_slice()).unwrap_or(&[])
}

/// The numbers of a column of a matrix of this crate, which lie one behind the other.
pub(crate) fn numbers<T>(column: ColMut<'_, T>) -> &mut [T] {
    column.try_as_col_major_mut().map(|column| column.as_slice_mut()).unwrap_or(&mut [])
}
