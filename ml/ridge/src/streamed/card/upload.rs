//! Features on their way to the card.

use super::failed;
use crate::targets::blocks;
use crate::{Error, Result, Scalar};
use faer::MatRef;
use voxelflow_cuda::{
    matrix::Matrix,
    regression::{Blocks, Columns, HostNumber, Kernels, PinnedBlock},
};

/// Bytes of features that are copied at once.
const FEATURE_BYTES: usize = 128 << 20;

/// Features in double precision on the card, less their means.
pub(super) fn upload<T: Scalar + HostNumber>(
    kernels: &Kernels,
    x: MatRef<'_, T>,
) -> Result<(Matrix, Vec<f64>)> {
    let (card, n, p) = (kernels.card(), x.nrows(), x.ncols());
    let at_once = (FEATURE_BYTES / (n * size_of::<T>())).clamp(1, p);
    let copied = || {
        let mut into = Matrix::zeros(card, n, p, "features")?;
        let mut found = Columns::zeros(card, p)?;
        let (mut staging, mut places) =
            (PinnedBlock::zeros(card, n * at_once)?, Blocks::new(card, n * at_once)?);
        for range in blocks(p, at_once) {
            let values = &mut staging.values()?[..n * range.len()];
            for (column, into) in
                x.subcols(range.start, range.len()).col_iter().zip(values.chunks_exact_mut(n))
            {
                into.iter_mut().zip(column.iter()).for_each(|(into, value)| *into = *value);
            }
            let block = places.copy(card, values)?;
            // Only a feature that is constant to the last bit counts as constant.
            kernels.centre(
                block,
                range.len(),
                (&mut into, range.start),
                (&mut found, range.start),
                false,
                0.0,
            )?;
            places.release(card)?;
        }
        let means = found.means.get(card, 0..p)?;
        Ok((into, means))
    };
    let (into, means) = copied().map_err(failed)?;
    if let Some(feature) = means.iter().position(|mean| !mean.is_finite()) {
        let odd = x.col(feature).iter().enumerate().find(|(_, value)| !value.wide().is_finite());
        // Finite values whose sum is not are no features either.
        let (sample, value) = odd.map_or((0, f64::INFINITY), |(sample, value)| (sample, value.wide()));
        return Err(Error::NotFinite { feature, sample, value });
    }
    Ok((into, means))
}
