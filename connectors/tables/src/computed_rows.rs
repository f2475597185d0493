//! Rows of an image whose volumes are resampled, smoothed or divided into parcels.
//!
//! ```text
//!   once, where an automatic mask or the range of a spline asks for it: volumes ─► mean, least and greatest value
//!   volumes ─► VolumeFlow ─► values in f64 ─► Differences ─► kept as float32 ─► batches in f64
//! ```

use crate::differences::Differences;
use crate::mask::Mask;
use crate::mean_image::add;
use crate::nifti_exec::ReadTask;
use crate::number::Number;
use crate::volume_flow::VolumeFlow;
use crate::{Image, Result};
use std::sync::Arc;
use voxelflow_dataset::{Finding, LedgerEntry, Level};
use voxelflow_signal::{MeanVolume, VolumeReport};

/// A mask (none: every voxel), and the range of a run's values and 0.
type Foreseen = (Option<Arc<Mask>>, Option<(f64, f64)>);

impl ReadTask {
    /// Reads, computes and sends the rows of an image; its mask may be known already.
    ///
    /// # Errors
    /// A file that cannot be read, options that do not suit it, no room for the series.
    pub fn compute<T: Number>(&mut self, image: &Image, mask: Option<Option<Arc<Mask>>>) -> Result<()> {
        if self.limit == 0 {
            return Ok(());
        }
        let (mask, range) = self.look_ahead::<T>(image, mask)?;
        let mask = match (self.source.kind.parcels, mask) {
            (false, mask) => Some(Arc::new(Mask { voxels: self.voxels(mask.as_deref()) })),
            (true, mask) => mask,
        };
        let steps = self.source.steps(image, mask.as_deref(), range)?;
        let (plan, rows) = (steps.plan, steps.rows);
        steps.note.into_iter().for_each(|entry| self.notes.note(entry));
        let (values, count) = (plan.values(), rows.len().min(self.limit));
        if !self.rows.needs_series() || count == 0 {
            return self.send_keys(&rows, count);
        }
        let flow = VolumeFlow::new::<T>(&plan, image.voxels(), image.volumes, self.room.limit() / 2);
        let mut store = self.room.store(&image.location, values, image.volumes)?;
        self.room.grow(flow.bytes + Differences::BYTES * values);
        let (mut differences, mut steps) = (Differences::default(), Vec::with_capacity(values));
        let found = flow.run::<T>(
            &plan,
            image,
            &self.source.stores,
            || self.check_listener(),
            |values| {
                differences.encode(values, &mut steps);
                store.push(&steps, None)
            },
        )?;
        self.room.shrink(flow.bytes);
        not_finite_of(image, &found, self.source.kind.parcels).for_each(|entry| self.notes.note(entry));
        self.room.for_each_batch(&mut store, count, image.volumes, self.batch_rows, |range, steps| {
            let series = differences.decode(range.clone(), &steps, image.volumes);
            self.send(self.rows.batch(&rows, range, Some(f64::column(series)))?)
        })
    }

    /// What must be known of a run before its first volume is computed.
    fn look_ahead<T: Number>(&self, image: &Image, mask: Option<Option<Arc<Mask>>>) -> Result<Foreseen> {
        let needs_range = self.source.needs_range() && self.rows.needs_series();
        if let (Some(mask), false) = (&mask, needs_range) {
            return Ok((mask.clone(), None));
        }
        let mut mean = mask.is_none().then(|| MeanVolume::new(image.voxels()));
        let (mut low, mut high) = (0.0_f64, 0.0_f64);
        let stamp = image.stamp(&self.source.stores);
        image.for_each_volume(&self.source.stores, |volume: &[T]| {
            self.check_listener()?;
            for x in volume.iter().map(|x| (*x).into()).filter(|x: &f64| x.is_finite()) {
                (low, high) = (low.min(x), high.max(x));
            }
            mean.as_mut().map_or(Ok(()), |mean| add(mean, volume, image))
        })?;
        let mask = match (mask, mean) {
            (None, Some(mean)) => Some(self.found_mask(mean, image, stamp)?),
            (mask, _) => mask.flatten(),
        };
        Ok((mask, Some((low, high))))
    }
}

/// What the ledger has of values that were not finite and took no part in what was computed of others.
fn not_finite_of(image: &Image, found: &VolumeReport, parcels: bool) -> impl Iterator<Item = LedgerEntry> {
    // Rows of voxels that are not finite are noted as rows.
    let of_parcels = if parcels { found.not_finite } else { 0 };
    let entry = |what, reason, count: usize| {
        (count > 0).then(|| LedgerEntry::of_rows(image.keys.run(), Level::Value, what, reason, count as u64))
    };
    let entries = [
        entry(
            Finding::NotFinite,
            "NaN or infinity in the file: resampled as it is",
            found.resampled.not_finite,
        ),
        entry(
            Finding::Zeroed,
            "NaN or infinity in the file: 0 before smoothing",
            found.not_finite_when_smoothed,
        ),
        entry(Finding::Dropped, "NaN or infinity: no part of its parcel", of_parcels),
    ];
    entries.into_iter().flatten()
}
