//! What a card does in a second, measured before a plan is made for it.

use super::card::{failed, owned};
use super::{COEFFICIENT_BYTES, plan::CardRates};
use crate::Result;
use std::time::Instant;
use voxelflow_cuda::{
    Card,
    matrix::{self, Matrix, RatedPrecision},
    regression::{Blocks, Numbers, PinnedBlock},
};

/// The largest matrix that is decomposed to measure: a smaller one costs more in proportion.
const LARGEST: usize = 8192;
/// Seconds of products that are measured first, and of those that show what a card keeps up.
const ROUGH: f64 = 0.1;
const SUSTAINED: f64 = 2.0;

impl CardRates {
    /// Measures products, an eigendecomposition of at most 8,192 of the `size` rows, and copies; takes about a second, or
    /// what the decomposition does. `targets`: bytes a second that are read or made.
    ///
    /// # Errors
    /// A card that fails, or without the libraries that are needed.
    pub fn measure(card: &Card, size: usize, targets: f64) -> Result<Self> {
        let measured = || {
            let products = products(card, size, ROUGH)?;
            let eigen = eigen(card, size.min(LARGEST))?;
            let (copies, taken) = (copies(card)?, taken(card)?);
            let memory = card.memory()?.0 as u64;
            let eigen_workspace = matrix::eigen_workspace(card, size)? as u64;
            Ok(Self { products, eigen, copies, targets, taken, memory, limit: u64::MAX, eigen_workspace })
        };
        measured().map_err(failed)
    }

    /// The same with products as the card keeps them up when it is warm: for fits that take longer than the two seconds of
    /// this.
    ///
    /// # Errors
    /// A card that fails.
    pub fn sustained(self, card: &Card, size: usize) -> Result<Self> {
        Ok(Self { products: products(card, size, SUSTAINED).map_err(failed)?, ..self })
    }
}

fn products(card: &Card, size: usize, seconds: f64) -> voxelflow_cuda::Result<f64> {
    matrix::product_rate(card, size.clamp(512, LARGEST), RatedPrecision::Double, seconds)
}

/// Seconds divided by the third power of the size.
fn eigen(card: &Card, size: usize) -> voxelflow_cuda::Result<f64> {
    let rows = size + size / 4;
    // Spread like the features' own: a product of numbers without a pattern.
    let mut state = 1u64;
    let numbers: Vec<f64> = (0..rows * size)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
        })
        .collect();
    let x = Matrix::of(card, &numbers, rows, "measuring")?;
    let mut square = Matrix::zeros(card, size, size, "measuring")?;
    matrix::add_square(card, (x.whole(), true), &mut square)?;
    card.wait()?;
    let clock = Instant::now();
    matrix::eigen(card, &mut square)?;
    Ok(clock.elapsed().as_secs_f64() / (size as f64).powi(3))
}

/// Bytes a second from locked memory to the card.
fn copies(card: &Card) -> voxelflow_cuda::Result<f64> {
    const BYTES: usize = 512 << 20;
    let mut values = PinnedBlock::<f32>::zeros(card, BYTES / 4)?;
    let mut blocks = Blocks::new(card, BYTES / 4)?;
    let values = values.values()?;
    blocks.copy(card, values)?;
    blocks.release(card)?;
    card.wait()?;
    let clock = Instant::now();
    blocks.copy(card, values)?;
    Ok(BYTES as f64 / clock.elapsed().as_secs_f64())
}

/// Bytes a second from the card into matrices of this machine.
fn taken(card: &Card) -> voxelflow_cuda::Result<f64> {
    const ROWS: usize = 1 << 13;
    const PIECES: usize = 16;
    let len = COEFFICIENT_BYTES / size_of::<f32>();
    let (from, mut to) =
        (Numbers::<f32>::zeros(card, len, "measuring")?, PinnedBlock::<f32>::zeros(card, len)?);
    let mut clock = Instant::now();
    // The first piece asks the system for its pages.
    for piece in 0..=PIECES {
        let values = to.values()?;
        from.copy_to(card, values)?;
        std::hint::black_box(owned(values, ROWS));
        if piece == 0 {
            clock = Instant::now();
        }
    }
    Ok((PIECES * COEFFICIENT_BYTES) as f64 / clock.elapsed().as_secs_f64())
}
