//! Matrices in double precision on a card: products, and the decomposition of symmetric ones.
//!
//! On the cards that are made for it, double precision runs on the matrix units at the rate that single precision has
//! without them, so there is nothing to gain from less.

use crate::{Card, During, Error, Part as Library, Result, find};
use cudarc::{
    cublas::{
        result as blas,
        sys::{
            cublasDsyrk_v2, cublasFillMode_t::CUBLAS_FILL_MODE_LOWER, cublasMath_t, cublasOperation_t,
            cublasSetMathMode,
        },
    },
    cusolver::{
        result as solver,
        safe::DnHandle,
        sys::{
            cublasFillMode_t, cudaDataType, cusolverDnParams_t, cusolverDnXsyevd,
            cusolverDnXsyevd_bufferSize, cusolverEigMode_t,
        },
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
        Part { matrix: self, offset: 0, rows: self.rows, columns: self.columns }
    }

    /// Its columns `range`.
    pub fn of_columns(&self, range: Range<usize>) -> Part<'_> {
        Part { matrix: self, offset: range.start * self.rows, rows: self.rows, columns: range.len() }
    }

    /// Its rows `range`.
    pub fn of_rows(&self, range: Range<usize>) -> Part<'_> {
        Part { matrix: self, offset: range.start, rows: range.len(), columns: self.columns }
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

/// Decomposes the symmetric matrix whose lower triangle is in `a`: gives its eigenvalues, ascending, and leaves the
/// eigenvectors in the columns of `a`. `None`: it did not converge.
///
/// # Errors
/// A card without room for the workspace ([`eigen_workspace`]), or that fails; no cuSOLVER on this machine.
pub fn eigen(card: &Card, a: &mut Matrix) -> Result<Option<Vec<f64>>> {
    let solver = Solver::open(card)?;
    let [on_card, on_host] = solver.workspace(card, a)?;
    let values = card.zeros::<f64>(a.rows, "eigenvalues")?;
    let info = card.zeros::<i32>(1, "eigenvalues")?;
    let work = card.zeros::<u8>(on_card, "the eigendecomposition's workspace")?;
    let mut host = vec![0u8; on_host];
    // SAFETY: sizes are those that cuSOLVER asked for; everything lives until the stream is waited for below.
    let status = unsafe {
        cusolverDnXsyevd(
            solver.handle.cu(),
            solver.parameters,
            cusolverEigMode_t::CUSOLVER_EIG_MODE_VECTOR,
            cublasFillMode_t::CUBLAS_FILL_MODE_LOWER,
            a.rows as i64,
            F64,
            a.column(card, 0) as *mut _,
            a.rows as i64,
            F64,
            values.device_ptr(card.stream()).0 as *mut _,
            F64,
            work.device_ptr(card.stream()).0 as *mut _,
            on_card,
            host.as_mut_ptr().cast(),
            on_host,
            info.device_ptr(card.stream()).0 as *mut i32,
        )
    };
    status.result().during(SOLVER)?;
    let failed = card.stream().clone_dtoh(&info).during(SOLVER)?;
    let found = card.stream().clone_dtoh(&values).during(SOLVER)?;
    card.wait()?;
    Ok((failed == [0]).then_some(found))
}

/// Bytes that [`eigen`] needs on the card, beside a matrix of `size` rows.
///
/// # Errors
/// No cuSOLVER on this machine; a card that fails.
pub fn eigen_workspace(card: &Card, size: usize) -> Result<usize> {
    // What is asked for depends on the shape alone: the matrix is not looked at.
    let a = Matrix { values: card.zeros(1, "eigenvalues")?, rows: size, columns: size };
    Solver::open(card)?.workspace(card, &a).map(|[on_card, _]| on_card)
}

const SOLVER: &str = "an eigendecomposition on the card";
const F64: cudaDataType = cudaDataType::CUDA_R_64F;

/// cuSOLVER on the card's computing stream.
struct Solver {
    handle: DnHandle,
    parameters: cusolverDnParams_t,
}

impl Drop for Solver {
    fn drop(&mut self) {
        // SAFETY: made in `open`, and destroyed only here.
        let _ = unsafe { solver::dn_destroy_params(self.parameters) };
    }
}

impl Solver {
    fn open(card: &Card) -> Result<Self> {
        find(Library::Cusolver)?;
        let handle = DnHandle::new(card.stream().clone()).during(SOLVER)?;
        Ok(Self { handle, parameters: solver::dn_create_params().during(SOLVER)? })
    }

    /// Bytes on the card and in this machine's memory.
    fn workspace(&self, card: &Card, a: &Matrix) -> Result<[usize; 2]> {
        if a.rows != a.columns {
            return wrong(SOLVER, format!("{} × {} is not square", a.rows, a.columns));
        }
        let (mut on_card, mut on_host) = (0, 0);
        // SAFETY: both sizes are written; what the pointers point to is not looked at.
        let status = unsafe {
            cusolverDnXsyevd_bufferSize(
                self.handle.cu(),
                self.parameters,
                cusolverEigMode_t::CUSOLVER_EIG_MODE_VECTOR,
                cublasFillMode_t::CUBLAS_FILL_MODE_LOWER,
                a.rows as i64,
                F64,
                a.column(card, 0) as *const _,
                a.rows as i64,
                F64,
                a.column(card, 0) as *const _,
                F64,
                &mut on_card,
                &mut on_host,
            )
        };
        status.result().during(SOLVER)?;
        Ok([on_card, on_host])
    }
}

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

/// Seconds for which products are repeated to measure their rate.
const SUSTAINED: f64 = 2.0;

/// Floating-point operations a second of products of two `size × size` matrices, as a card keeps them up.
///
/// # Errors
/// A card without room for them, or that fails.
pub fn product_rate(card: &Card, size: usize, precision: RatedPrecision) -> Result<f64> {
    const WHAT: &str = "measuring products";
    let n = int(size, WHAT)?;
    // Numbers that are not zero, since zeros can run faster.
    let wide: Vec<f64> =
        (0..size * size).map(|i| ((i * 2_654_435_761) % 1009) as f64 / 504.5 - 1.0).collect();
    let narrow: Vec<f32> = wide.iter().map(|v| *v as f32).collect();
    let handle = *card.blas().handle();
    let none = cublasOperation_t::CUBLAS_OP_N;
    let mode = |mode| {
        // SAFETY: it sets how products are computed from here on.
        unsafe { cublasSetMathMode(handle, mode) }.result().during(WHAT)
    };
    let (double, single) = if precision == RatedPrecision::Double {
        (Some([card.stream().clone_htod(&wide).during(WHAT)?, card.zeros(size * size, WHAT)?]), None)
    } else {
        (None, Some([card.stream().clone_htod(&narrow).during(WHAT)?, card.zeros(size * size, WHAT)?]))
    };
    if precision == RatedPrecision::Short {
        mode(cublasMath_t::CUBLAS_TF32_TENSOR_OP_MATH)?;
    }
    // A card that works long gets warm and slows down; a rate is what it keeps up.
    let (begin, mut seconds) = (std::time::Instant::now(), Vec::new());
    while begin.elapsed().as_secs_f64() < SUSTAINED || seconds.len() < 4 {
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
        seconds.push(clock.elapsed().as_secs_f64());
    }
    if precision == RatedPrecision::Short {
        mode(cublasMath_t::CUBLAS_DEFAULT_MATH)?;
    }
    let late = &seconds[seconds.len() / 2..];
    Ok(2.0 * (size as f64).powi(3) * late.len() as f64 / late.iter().sum::<f64>())
}
