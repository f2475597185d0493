//! From volumes to one series per parcel, volume by volume.
//!
//! A [`LabelAtlas`] gives each voxel to one parcel, a [`MapAtlas`] a weight in each. Voxels that are not finite take
//! no part and are counted (nilearn sets them to zero, which draws the parcel's mean towards it).

mod labels;
mod maps;

pub use labels::{LabelAtlas, ParcelStrategy, labels_of};
pub use maps::MapAtlas;

use crate::{Error, Result};

/// An atlas that reduces a volume to one value per parcel.
pub trait Parcellation {
    /// Voxels of the volumes that it reads.
    fn voxels(&self) -> usize;

    /// Parcels, which is the number of values per volume.
    fn parcels(&self) -> usize;

    /// Reduces `volume`, `[voxels]`, to `values`, `[parcels]`; a parcel without a finite voxel is NaN. Returns how
    /// many voxels of parcels were not finite and took no part.
    ///
    /// # Errors
    /// Slices of other sizes.
    fn extract(&self, volume: &[f64], values: &mut [f64]) -> Result<usize>;
}

/// The series of all parcels, grown volume by volume.
#[derive(Clone, Debug)]
pub struct ParcelSeries<'a, P: ?Sized> {
    atlas: &'a P,
    /// `[volumes][parcels]`.
    rows: Vec<f64>,
    not_finite: usize,
}

impl<'a, P: Parcellation + ?Sized> ParcelSeries<'a, P> {
    /// Without volumes yet.
    pub fn new(atlas: &'a P) -> Self {
        Self { atlas, rows: Vec::new(), not_finite: 0 }
    }

    /// Adds the next volume.
    ///
    /// # Errors
    /// A volume of another size, which is not added.
    pub fn add(&mut self, volume: &[f64]) -> Result<()> {
        let start = self.rows.len();
        self.rows.resize(start + self.atlas.parcels(), f64::NAN);
        match self.atlas.extract(volume, &mut self.rows[start..]) {
            Ok(not_finite) => {
                self.not_finite += not_finite;
                Ok(())
            }
            Err(e) => {
                self.rows.truncate(start);
                Err(e)
            }
        }
    }

    /// Voxels of parcels that were not finite, over all volumes so far.
    pub fn not_finite(&self) -> usize {
        self.not_finite
    }

    /// The series, `[parcels, volumes]` row-major.
    pub fn finish(self) -> Vec<f64> {
        let parcels = self.atlas.parcels();
        let volumes = self.rows.len() / parcels.max(1);
        let value = |place: usize| self.rows[place % volumes * parcels + place / volumes];
        (0..self.rows.len()).map(value).collect()
    }
}

fn check(atlas: &impl Parcellation, volume: &[f64], values: &[f64]) -> Result<()> {
    for (what, found, expected) in
        [("volume", volume.len(), atlas.voxels()), ("parcel values", values.len(), atlas.parcels())]
    {
        if found != expected {
            return Err(Error::Shape { what, found, expected: expected.to_string() });
        }
    }
    Ok(())
}
