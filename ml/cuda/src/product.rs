//! Matrix products on the card: many of the same shape at once, between matrices that lie anywhere in buffers.

use crate::{
    Card, Error, Result,
    error::During,
    memory::{Memory, Values},
};
use cudarc::cublas::{result::gemm_strided_batched_ex, sys};

/// How exact products are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    /// Float32 throughout, without tensor cores.
    F32,
    /// Float32 in memory; factors of products are rounded to 10 bits of mantissa.
    Tf32,
    /// Activations and factors in bfloat16 (7 bits of mantissa); sums, parameters and what optimizers remember in
    /// float32.
    #[default]
    Bf16,
}

impl Precision {
    /// All, with the names that settings use.
    pub const ALL: [(&'static str, Self); 3] =
        [("f32", Self::F32), ("tf32", Self::Tf32), ("bf16", Self::Bf16)];

    /// Its name in settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Tf32 => "tf32",
            Self::Bf16 => "bf16",
        }
    }

    /// What activations are kept as.
    pub fn values(self) -> Values {
        if self == Self::Bf16 { Values::Bf16 } else { Values::F32 }
    }
}

/// Where the matrices of one operand lie: row-major, `leading` values from row to row, `stride` from matrix to matrix.
/// Matrices may overlap where they are only read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// Values before the first matrix.
    pub offset: usize,
    /// From row to row, at least the row's length.
    pub leading: usize,
    /// From one matrix to the next.
    pub stride: usize,
    /// It lies transposed.
    pub transposed: bool,
}

/// `C_b = A_b · B_b` for `batches` b: `[rows, inner] · [inner, columns]`, 2·rows·inner·columns operations each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Product {
    /// Rows of A and C.
    pub rows: usize,
    /// Columns of B and C.
    pub columns: usize,
    /// Columns of A, rows of B.
    pub inner: usize,
    /// How many.
    pub batches: usize,
    /// The first factor.
    pub a: Operand,
    /// The second factor.
    pub b: Operand,
    /// The product; it never lies transposed.
    pub c: Operand,
}

impl Product {
    /// Floating-point operations of all.
    pub fn operations(&self) -> f64 {
        2.0 * (self.rows * self.columns * self.inner * self.batches) as f64
    }

    /// Values of a buffer that an operand needs at least.
    fn extent(operand: &Operand, rows: usize, columns: usize, batches: usize) -> usize {
        let (rows, columns) = if operand.transposed { (columns, rows) } else { (rows, columns) };
        operand.offset + (batches.max(1) - 1) * operand.stride + (rows.max(1) - 1) * operand.leading + columns
    }

    /// Puts the product of `a` and `b` into `c`, on the card's stream. `a` and `b` hold the precision's values, `c` these
    /// or float32; sums are in float32.
    ///
    /// # Errors
    /// A buffer that is too small or of other values; a card that fails.
    pub fn run(&self, card: &Card, precision: Precision, a: &Memory, b: &Memory, c: &Memory) -> Result<()> {
        let extents = [
            (a, Self::extent(&self.a, self.rows, self.inner, self.batches)),
            (b, Self::extent(&self.b, self.inner, self.columns, self.batches)),
            (c, Self::extent(&self.c, self.rows, self.columns, self.batches)),
        ];
        for (memory, needed) in extents {
            if memory.len() < needed {
                let reason = format!("a buffer holds {} values, {needed} are needed", memory.len());
                return Err(Error::Shape { what: "a matrix product", reason });
            }
        }
        if [a, b].iter().any(|m| m.kind() != precision.values()) {
            let reason = format!("a factor is not in {:?}", precision.values());
            return Err(Error::Shape { what: "a matrix product", reason });
        }
        let compute = match precision {
            Precision::Tf32 => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
            Precision::F32 | Precision::Bf16 => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
        };
        let turn = |operand: &Operand| match operand.transposed {
            true => sys::cublasOperation_t::CUBLAS_OP_T,
            false => sys::cublasOperation_t::CUBLAS_OP_N,
        };
        let int = |n: usize| {
            let reason = || format!("{n} is more than cuBLAS counts; use a smaller minibatch");
            i32::try_from(n).map_err(|_| Error::Shape { what: "a matrix product", reason: reason() })
        };
        let (one, zero) = (1.0f32, 0.0f32);
        // cuBLAS has columns where we have rows: Cᵀ = Bᵀ·Aᵀ.
        // SAFETY: all operands lie within their buffers, which live until the stream is done with them (`Memory`).
        unsafe {
            gemm_strided_batched_ex(
                *card.blas().handle(),
                turn(&self.b),
                turn(&self.a),
                int(self.columns)?,
                int(self.rows)?,
                int(self.inner)?,
                (&raw const one).cast(),
                b.at(self.b.offset) as *const _,
                b.kind().of_cublas(),
                int(self.b.leading)?,
                self.b.stride as i64,
                a.at(self.a.offset) as *const _,
                a.kind().of_cublas(),
                int(self.a.leading)?,
                self.a.stride as i64,
                (&raw const zero).cast(),
                c.at(self.c.offset) as *mut _,
                c.kind().of_cublas(),
                int(self.c.leading)?,
                self.c.stride as i64,
                int(self.batches)?,
                compute,
                sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
        }
        .during("a matrix product")
    }

    /// What [`Self::run`] computes, on the CPU; the reference of tests.
    pub fn run_on_cpu(&self, a: &[f64], b: &[f64], c: &mut [f64]) {
        let at = |o: &Operand, batch: usize, row: usize, column: usize| {
            let (row, column) = if o.transposed { (column, row) } else { (row, column) };
            o.offset + batch * o.stride + row * o.leading + column
        };
        for batch in 0..self.batches {
            for row in 0..self.rows {
                for column in 0..self.columns {
                    let term = |i: usize| a[at(&self.a, batch, row, i)] * b[at(&self.b, batch, i, column)];
                    c[at(&self.c, batch, row, column)] = (0..self.inner).map(term).sum();
                }
            }
        }
    }
}
