//! What streamed ridge does on a card between its products: one function a kernel of `regression.cu` and `folds.cu`, and blocks
//! of targets that are copied while others are worked on.
//!
//! All is on the card's computing stream but copies of blocks, which events order.

mod blocks;
mod folds;
mod numbers;

pub use blocks::Blocks;
pub use folds::{Close, FoldRows, FoldScores, FoldTargets};
pub use numbers::{Columns, HostNumber, Numbers, PinnedBlock};

use crate::matrix::Matrix;
use crate::{Card, During, Error, Result, cache_folder, kernels};
use cudarc::{
    driver::{CudaModule, LaunchConfig, PushKernelArg},
    nvrtc::Ptx,
};
use numbers::short;
use std::{ops::Range, sync::Arc};

const SOURCE: &str = concat!(include_str!("regression.cu"), include_str!("folds.cu"));
/// Threads of a block that goes through a column.
const COLUMN_THREADS: u32 = 512;
/// Threads of a block of rows, or of values.
const THREADS: u32 = 128;

/// The kernels of streamed ridge on a card.
#[derive(Debug)]
pub struct Kernels {
    card: Arc<Card>,
    module: Arc<CudaModule>,
}

/// What squared errors of leave-one-out follow from, by row.
#[derive(Clone, Copy, Debug)]
pub struct RowErrors<'a> {
    /// Features in the spectrum's basis.
    pub z: &'a Matrix,
    /// Products of the rows that are asked for, at its beginning, with what [`Kernels::split`] left of `Σ M·Mᵀ`.
    pub apart: &'a Matrix,
    /// What it took out.
    pub close: &'a Close,
    /// `Σ Y·Mᵀ`.
    pub cross: &'a Matrix,
    /// `Σ y²`.
    pub squares: &'a Numbers<f64>,
    /// As in [`FoldScores`].
    pub shrink: &'a Matrix,
}

/// An argument of a kernel.
#[derive(Clone, Copy)]
enum Of {
    At(u64),
    Long(usize),
    Int(i32),
    Double(f64),
}

impl Kernels {
    /// Compiles them, or finds them compiled.
    ///
    /// # Errors
    /// No NVRTC on this machine; a card that fails.
    pub fn load(card: Arc<Card>) -> Result<Self> {
        let image = kernels::compiled(SOURCE, card.capability(), cache_folder().as_deref())?;
        let module = card.context().load_module(Ptx::from_binary(image)).during("loading kernels")?;
        Ok(Self { card, module })
    }

    /// The card.
    pub fn card(&self) -> &Card {
        &self.card
    }

    /// # Safety
    /// Arguments must be those of the kernel, and what they point to must be large enough.
    unsafe fn launch(&self, name: &str, blocks: usize, threads: u32, arguments: &[Of]) -> Result<()> {
        const WHAT: &str = "a kernel of ridge";
        let Ok(blocks) = u32::try_from(blocks) else {
            return Err(Error::Shape { what: WHAT, reason: format!("{blocks} blocks are too many") });
        };
        if blocks == 0 {
            return Ok(());
        }
        let function = self.module.load_function(name).during(WHAT)?;
        let longs: Vec<i64> =
            arguments.iter().map(|a| if let Of::Long(v) = a { *v as i64 } else { 0 }).collect();
        let mut launch = self.card.stream().launch_builder(&function);
        for (argument, long) in arguments.iter().zip(&longs) {
            match argument {
                Of::At(address) => launch.arg(address),
                Of::Long(_) => launch.arg(long),
                Of::Int(value) => launch.arg(value),
                Of::Double(value) => launch.arg(value),
            };
        }
        let shape =
            LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (threads, 1, 1), shared_mem_bytes: 0 };
        // SAFETY: the caller's word.
        unsafe { launch.launch(shape) }.during(WHAT).map(|_| ())
    }

    fn whole(&self, matrix: &Matrix) -> Of {
        Of::At(matrix.column(&self.card, 0))
    }

    fn at<T: HostNumber>(&self, numbers: &Numbers<T>, index: usize) -> Of {
        Of::At(numbers.at(&self.card, index))
    }

    /// Centres `columns` of `from`, `[into.rows, columns]`, into the first columns of `into` from `to` on; what is found
    /// goes to `found` from `at` on. `by_variance`: they are divided by the root of their sums of squares. A column whose
    /// values differ by less than `epsilon` of the largest counts as constant.
    ///
    /// # Errors
    /// More columns than there is room for; a card that fails.
    #[allow(clippy::too_many_arguments)] // four of them say where
    pub fn centre<T: HostNumber>(
        &self,
        from: &Numbers<T>,
        columns: usize,
        (into, to): (&mut Matrix, usize),
        (found, at): (&mut Columns, usize),
        by_variance: bool,
        epsilon: f64,
    ) -> Result<()> {
        let rows = into.rows();
        if from.len() < rows * columns || into.columns() < to + columns || found.means.len() < at + columns {
            return short(
                "columns to centre",
                into.columns().min(found.means.len()),
                columns.max(to).max(at),
            );
        }
        let arguments = [
            self.at(from, 0),
            Of::At(into.column(&self.card, to)),
            Of::Long(rows),
            self.at(&found.means, at),
            self.at(&found.squares, at),
            self.at(&found.scales, at),
            self.at(&found.flat, at),
            Of::Int(i32::from(by_variance)),
            Of::Double(epsilon),
        ];
        // SAFETY: sizes were checked.
        unsafe { self.launch(&format!("centre_{}", T::SUFFIX), columns, COLUMN_THREADS, &arguments) }
    }

    /// `into *= scales`, column by column.
    ///
    /// # Errors
    /// Fewer scales than columns; a card that fails.
    pub fn scale_columns(&self, into: &mut Matrix, scales: &Numbers<f64>) -> Result<()> {
        if scales.len() < into.columns() {
            return short("scales", scales.len(), into.columns());
        }
        let (rows, columns) = (into.rows(), into.columns());
        let arguments = [self.whole(into), self.at(scales, 0), Of::Long(rows), Of::Long(columns)];
        // SAFETY: sizes were checked.
        unsafe { self.each("scale_columns", rows * columns, &arguments) }
    }

    /// Waits for the card, and gives the first `columns` of a matrix, column by column, as numbers of this machine.
    ///
    /// # Errors
    /// A `scratch` with less room; a card that fails.
    pub fn to_host<T: HostNumber>(
        &self,
        from: &Matrix,
        columns: usize,
        scratch: &mut Numbers<T>,
        into: &mut [T],
    ) -> Result<()> {
        let count = from.rows() * columns;
        if from.columns() < columns || scratch.len() < count || into.len() != count {
            return short("columns to copy", from.columns().min(scratch.len()), columns);
        }
        let arguments = [self.whole(from), self.at(scratch, 0), Of::Long(count)];
        // SAFETY: sizes were checked.
        unsafe { self.each(&format!("narrow_{}", T::SUFFIX), count, &arguments) }?;
        scratch.copy_to(&self.card, into)
    }

    /// `sums += Σ v²` of each row over the first `columns`.
    ///
    /// # Errors
    /// Fewer sums than rows; a card that fails.
    pub fn add_row_squares(&self, from: &Matrix, columns: usize, sums: &mut Numbers<f64>) -> Result<()> {
        if sums.len() < from.rows() || from.columns() < columns {
            return short("sums", sums.len(), from.rows());
        }
        let rows = from.rows();
        let arguments = [self.whole(from), self.at(sums, 0), Of::Long(rows), Of::Long(columns)];
        // SAFETY: sizes were checked.
        unsafe { self.each("add_row_squares", rows, &arguments) }
    }

    /// `into = M / (λ + α)`, of the columns of M from `from` on, as many as there are `alphas`; `scales` (from `from` on)
    /// are taken away again.
    ///
    /// # Errors
    /// Shapes that do not match; a card that fails.
    pub fn shrink(
        &self,
        (products, from): (&Matrix, usize),
        lambdas: &Numbers<f64>,
        alphas: &Numbers<f64>,
        (scales, scales_from): (&Numbers<f64>, usize),
        columns: usize,
        into: &mut Matrix,
    ) -> Result<()> {
        let rows = products.rows();
        let enough = products.columns() >= from + columns && scales.len() >= scales_from + columns;
        if !enough
            || into.rows() != rows
            || into.columns() < columns
            || alphas.len() < columns
            || lambdas.len() < rows
        {
            return short("columns to shrink", products.columns().min(into.columns()), from + columns);
        }
        let arguments = [
            Of::At(products.column(&self.card, from)),
            self.whole(into),
            self.at(lambdas, 0),
            self.at(alphas, 0),
            self.at(scales, scales_from),
            Of::Long(rows),
            Of::Long(columns),
        ];
        // SAFETY: sizes were checked.
        unsafe { self.each("shrink", rows * columns, &arguments) }
    }

    /// Squared errors of leave-one-out, summed over targets, of the rows `rows` with every penalty: `errors` is
    /// `[n_samples, n_alphas]`.
    ///
    /// # Errors
    /// Shapes that do not match; a card that fails.
    pub fn row_errors(&self, of: RowErrors<'_>, rows: Range<usize>, errors: &mut Matrix) -> Result<()> {
        let (n, size, alphas) = (of.z.rows(), of.z.columns(), of.shrink.columns() / 2);
        let same = of.cross.rows() == n && of.cross.columns() == size && of.squares.len() >= n;
        let fits = of.apart.rows() >= rows.len() && of.apart.columns() == size && of.close.size() == size;
        let room = errors.rows() == n && errors.columns() == alphas && of.shrink.rows() == size;
        if !same || !fits || !room || rows.end > n {
            return short("rows", n, rows.end);
        }
        let [near, starts, offsets] = self.pattern(of.close);
        let arguments = [
            self.whole(of.z),
            self.whole(of.apart),
            self.whole(of.cross),
            self.at(of.squares, 0),
            near,
            starts,
            offsets,
            self.whole(of.shrink),
            self.whole(errors),
            Of::Long(n),
            Of::Long(size),
            Of::Long(alphas),
            Of::Long(rows.start),
            Of::Long(rows.len()),
            Of::Long(of.apart.rows()),
        ];
        // SAFETY: sizes were checked; the pattern is within them where it was made.
        unsafe { self.each("row_errors", rows.len(), &arguments) }
    }

    /// Pearson's r of each column of `actual`, `[predicted.rows, columns]`, with that of `predicted`.
    ///
    /// # Errors
    /// Shapes that do not match; a card that fails.
    pub fn correlate<T: HostNumber>(
        &self,
        actual: &Numbers<T>,
        predicted: &Matrix,
        columns: usize,
        into: &mut Numbers<f64>,
    ) -> Result<()> {
        let rows = predicted.rows();
        if actual.len() < rows * columns || predicted.columns() < columns || into.len() < columns {
            return short("predictions", predicted.columns().min(into.len()), columns);
        }
        let arguments = [self.at(actual, 0), self.whole(predicted), self.at(into, 0), Of::Long(rows)];
        // SAFETY: sizes were checked.
        unsafe { self.launch(&format!("correlate_{}", T::SUFFIX), columns, COLUMN_THREADS, &arguments) }
    }

    /// # Safety
    /// As of [`Self::launch`].
    unsafe fn each(&self, name: &str, count: usize, arguments: &[Of]) -> Result<()> {
        // SAFETY: the caller's word.
        unsafe { self.launch(name, count.div_ceil(THREADS as usize), THREADS, arguments) }
    }
}
