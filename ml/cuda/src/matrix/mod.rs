//! Matrices in double precision on a card: products, and the decomposition of symmetric ones.
//!
//! On the cards that are made for it, double precision runs on the matrix units at the rate that single precision has
//! without them, so there is nothing to gain from less.

mod eigen;
mod rates;

pub use eigen::{eigen, eigen_workspace};
pub use rates::{RatedPrecision, product_rate};

use crate::{Card, During, Error, Result};
use cudarc::{
    cublas::{
        result as blas,
        sys::{cublasDsyrk_v2, cublasFillMode_t::CUBLAS_FILL_MODE_LOWER, cublasOperation_t},
    },
    driver::{CudaSlice, DevicePtr},
};
use std::ops::Range;

/// A matrix on a card, column by column.
#[derive(Debug)]
pub struct Matrix {
    pub(crate) values: CudaSlice<f64>,
    rows: usize,
    columns: usize,
}

/// Some rows and columns of a matrix.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    matrix: &'a Matrix,
    offset: usize,
    rows: usize,
    columns: usize,
}

impl Matrix {
    /// All zero.
    ///
    /// # Errors
    /// A card without room for it.
    pub fn zeros(card: &Card, rows: usize, columns: usize, what: &'static str) -> Result<Self> {
        Ok(Self { values: card.zeros(rows * columns, what)?, rows, columns })
    }

    /// Of `values`, column by column, whole columns of `rows`.
    ///
    /// # Errors
    /// A card without room for it, or that fails.
    pub fn of(card: &Card, values: &[f64], rows: usize, what: &'static str) -> Result<Self> {
        let columns = values.len() / rows.max(1);
        let mut matrix = Self::zeros(card, rows, columns, what)?;
        let mut place = matrix.values.slice_mut(..rows * columns);
        card.stream().memcpy_htod(&values[..rows * columns], &mut place).during(what)?;
        card.wait()?;
        Ok(matrix)
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// All of it.
    pub fn whole(&self) -> Part<'_> {
        self.part(0..self.rows, 0..self.columns)
    }

    /// Its columns `range`.
    pub fn of_columns(&self, range: Range<usize>) -> Part<'_> {
        self.part(0..self.rows, range)
    }

    /// Its rows `range`.
    pub fn of_rows(&self, range: Range<usize>) -> Part<'_> {
        self.part(range, 0..self.columns)
    }

    /// Some rows of some columns.
    pub fn part(&self, rows: Range<usize>, columns: Range<usize>) -> Part<'_> {
        let offset = columns.start * self.rows + rows.start;
        Part { matrix: self, offset, rows: rows.len(), columns: columns.len() }
    }

    /// Waits for the card, and gives its first values.
    ///
    /// # Errors
    /// Fewer values than `count`; a card that fails.
    pub fn first_values(&self, card: &Card, count: usize) -> Result<Vec<f64>> {
        let Some(first) = self.values.try_slice(..count) else {
            return wrong("a matrix on the card", format!("{count} values of {}", self.values.len()));
        };
        let values = card.stream().clone_dtoh(&first).during("copying from the card")?;
        card.wait()?;
        Ok(values)
    }

    /// The address of column `column` on the card.
    pub(crate) fn column(&self, card: &Card, column: usize) -> u64 {
        self.values.device_ptr(card.stream()).0 + (column * self.rows * size_of::<f64>()) as u64
    }
}

impl Part<'_> {
    fn pointer(&self, card: &Card) -> *const f64 {
        (self.matrix.column(card, 0) + (self.offset * size_of::<f64>()) as u64) as *const f64
    }

    fn is_within(&self) -> bool {
        let last = self.offset + self.rows + self.columns.saturating_sub(1) * self.matrix.rows;
        self.columns == 0 || last <= self.matrix.rows * self.matrix.columns
    }
}

/// As the libraries want sizes.
fn int(value: usize, what: &'static str) -> Result<i32> {
    i32::try_from(value)
        .map_err(|_| Error::Shape { what, reason: format!("{value} is more than 2,147,483,647") })
}

fn wrong<T>(what: &'static str, reason: String) -> Result<T> {
    Err(Error::Shape { what, reason })
}

/// `into[columns] = a · b + keep · into[columns]`, `a` and `b` transposed as told.
///
/// # Errors
/// Shapes that do not match; a card that fails.
pub fn product(
    card: &Card,
    (a, a_transposed): (Part<'_>, bool),
    (b, b_transposed): (Part<'_>, bool),
    keep: f64,
    into: &mut Matrix,
    columns: Range<usize>,
) -> Result<()> {
    const WHAT: &str = "a product on the card";
    let (rows, inner) = if a_transposed { (a.columns, a.rows) } else { (a.rows, a.columns) };
    let (same, width) = if b_transposed { (b.columns, b.rows) } else { (b.rows, b.columns) };
    let fits = into.rows >= rows && columns.end <= into.columns && columns.len() == width;
    if inner != same || !fits || !a.is_within() || !b.is_within() {
        let reason = format!("{rows} × {inner} by {same} × {width} into {} × {}", into.rows, columns.len());
        return wrong(WHAT, reason);
    }
    if rows == 0 || width == 0 {
        return Ok(());
    }
    let operation = |t| if t { cublasOperation_t::CUBLAS_OP_T } else { cublasOperation_t::CUBLAS_OP_N };
    // SAFETY: shapes and bounds were checked; all is on the card's one computing stream.
    unsafe {
        blas::dgemm(
            *card.blas().handle(),
            operation(a_transposed),
            operation(b_transposed),
            int(rows, WHAT)?,
            int(width, WHAT)?,
            int(inner, WHAT)?,
            &1.0,
            a.pointer(card),
            int(a.matrix.rows, WHAT)?,
            b.pointer(card),
            int(b.matrix.rows, WHAT)?,
            &keep,
            into.column(card, columns.start) as *mut f64,
            int(into.rows, WHAT)?,
        )
    }
    .during(WHAT)
}

/// `into += a · aᵀ`, or `aᵀ · a`; the lower triangle.
///
/// # Errors
/// Shapes that do not match; a card that fails.
pub fn add_square(card: &Card, (a, transposed): (Part<'_>, bool), into: &mut Matrix) -> Result<()> {
    const WHAT: &str = "a square on the card";
    let (size, inner) = if transposed { (a.columns, a.rows) } else { (a.rows, a.columns) };
    if into.rows != size || into.columns != size || !a.is_within() {
        return wrong(WHAT, format!("{size} × {size} into {} × {}", into.rows, into.columns));
    }
    let operation = if transposed { cublasOperation_t::CUBLAS_OP_T } else { cublasOperation_t::CUBLAS_OP_N };
    // SAFETY: shapes and bounds were checked.
    unsafe {
        cublasDsyrk_v2(
            *card.blas().handle(),
            CUBLAS_FILL_MODE_LOWER,
            operation,
            int(size, WHAT)?,
            int(inner, WHAT)?,
            &1.0,
            a.pointer(card),
            int(a.matrix.rows, WHAT)?,
            &1.0,
            into.column(card, 0) as *mut f64,
            int(size, WHAT)?,
        )
    }
    .result()
    .during(WHAT)
}
