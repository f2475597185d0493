//! The atlas of a table: what its image holds, and which parcels there are inside a mask.

use crate::mask::Mask;
use crate::space::Space;
use crate::volume_options::VolumeOptions;
use crate::{Error, Result, Stores};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use voxelflow_dataset::{Finding, LedgerEntry, Level, RunKey};
use voxelflow_formats::table::ParcelNames;
use voxelflow_signal::parcels::{LabelAtlas, MapAtlas, Parcellation, labels_of};
use voxelflow_stage::{Atlas as AtlasOrigin, AtlasKind};

/// Labels up to this one are whole numbers of float32, which images are read as.
const LARGEST_LABEL: f32 = 16_777_216.0;

/// An atlas image on the grid of a table.
pub(crate) struct Atlas {
    location: String,
    options: VolumeOptions,
    space: Space,
    names: Option<ParcelNames>,
    content: Content,
    hash: String,
    /// Its parcels inside the mask of the whole table, if there is one.
    whole: Option<Parcels>,
}

enum Content {
    /// A label for each voxel.
    Labels(Vec<i32>),
    /// `[maps]` of `[voxels]`.
    Maps(Vec<Vec<f32>>),
}

/// Parcels inside a mask, in the order of rows.
#[derive(Clone)]
pub(crate) struct Parcels {
    pub of_volume: Arc<dyn Parcellation + Send + Sync>,
    pub rows: Arc<Vec<Parcel>>,
    /// Those without a voxel in the mask, which have no row.
    pub lost: Arc<Vec<Parcel>>,
}

impl Parcels {
    /// What the ledger has of the parcels of a run, or of the whole table, that the mask removes.
    pub fn told(&self, run: RunKey) -> Option<LedgerEntry> {
        let name = |parcel: &Parcel| match &parcel.name {
            Some(name) => format!("{} ({name})", parcel.number),
            None => parcel.number.to_string(),
        };
        let reason = "no voxel of the parcel lies in the mask: it has no row";
        let entry = LedgerEntry::of_run(run, Level::Voxel, Finding::Dropped, reason, self.lost.len() as u64);
        (!self.lost.is_empty()).then(|| entry.named(self.lost.iter().map(name)))
    }
}

/// A row's parcel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parcel {
    /// Label, or number of the map, from 0.
    pub number: i32,
    pub name: Option<String>,
}

impl Atlas {
    /// Reads the atlas at `location`; `mask` is that of the whole table, if there is one.
    ///
    /// # Errors
    /// An atlas that does not lie on `space` or cannot be read, options that do not suit it, and names of which none is
    /// that of a parcel.
    pub fn read(
        location: &str,
        options: &VolumeOptions,
        space: &Space,
        mask: Option<&Mask>,
        stores: &Stores,
    ) -> Result<Self> {
        let mut reader = stores.open_image(location, options.xform)?;
        let advice = format!(
            "give target '{location}', to which images are then resampled, or an atlas on their grid"
        );
        space.holds("atlas", location, &reader.header(), &advice)?;
        let (mut volumes, mut volume) = (Vec::new(), Vec::<f32>::new());
        while reader.next_volume(&mut volume)? {
            volumes.push(std::mem::take(&mut volume));
        }
        let mut hasher = blake3::Hasher::new();
        for value in volumes.iter().flatten() {
            hasher.update(&value.to_le_bytes());
        }
        let names = options.atlas_labels.as_ref().map(|names| read_names(names, stores)).transpose()?;
        let mut atlas = Self {
            location: location.into(),
            options: options.clone(),
            space: space.clone(),
            names,
            content: content(volumes, location, options)?,
            hash: hasher.finalize().to_hex().to_string(),
            whole: None,
        };
        let whole = atlas.choose(mask)?;
        if let (Some(names), true) = (&options.atlas_labels, whole.rows.iter().all(|p| p.name.is_none())) {
            let numbers: Vec<String> = whole.rows.iter().take(5).map(|p| p.number.to_string()).collect();
            let reason = format!("it names none of the parcels of {location} ({}, …)", numbers.join(", "));
            return Err(Error::Location { location: names.clone(), reason });
        }
        atlas.whole = Some(whole);
        Ok(atlas)
    }

    /// The parcels inside the mask of one image, or else of the whole table; those without a voxel in it are left out.
    ///
    /// # Errors
    /// A mask that leaves nothing of the atlas, or of a map.
    pub fn parcels(&self, own_mask: Option<&Mask>) -> Result<Parcels> {
        match (own_mask, &self.whole) {
            (None, Some(whole)) => Ok(whole.clone()),
            (mask, _) => self.choose(mask),
        }
    }

    /// What the ledger has of its parcels that the mask of the whole table removes.
    pub fn told(&self) -> Option<LedgerEntry> {
        self.whole.as_ref()?.told(RunKey::default())
    }

    /// What the metadata of a table say of it.
    pub fn origin(&self) -> AtlasOrigin {
        let parcels = self.whole.as_ref().map_or(0, |whole| whole.rows.len());
        AtlasOrigin { source: self.location.clone(), kind: self.kind(), hash: self.hash.clone(), parcels }
    }

    /// blake3 of its values.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    fn kind(&self) -> AtlasKind {
        match self.content {
            Content::Labels(_) => AtlasKind::Labels,
            Content::Maps(_) => AtlasKind::Maps,
        }
    }

    /// What is done with it, for the history of a table.
    pub fn describe(&self) -> String {
        match self.kind() {
            AtlasKind::Maps => format!("parcels: least squares on the maps of {}", self.location),
            AtlasKind::Labels => {
                let strategy =
                    serde_json::to_value(self.options.strategy.unwrap_or_default()).unwrap_or_default();
                format!("parcels: {} of the labels of {}", strategy.as_str().unwrap_or("mean"), self.location)
            }
        }
    }

    fn choose(&self, mask: Option<&Mask>) -> Result<Parcels> {
        let failed = |source| Error::Volumes { path: self.location.clone(), source };
        let mask = mask.map(|mask| mask.volume(self.space.grid.shape)).transpose().map_err(failed)?;
        let inside = mask.as_ref().map(|mask| mask.voxels.as_slice());
        let named = |number: i32| Parcel { number, name: self.name(number) };
        match &self.content {
            Content::Labels(labels) => {
                let (background, strategy) =
                    (self.options.background_label.unwrap_or(0), self.options.strategy.unwrap_or_default());
                let atlas = LabelAtlas::try_new(labels, background, inside, strategy).map_err(failed)?;
                let rows = atlas.labels().iter().map(|label| named(*label)).collect();
                let kept: BTreeSet<i32> = atlas.labels().iter().copied().collect();
                let all: BTreeSet<i32> =
                    labels.iter().copied().filter(|label| *label != background).collect();
                let lost = all.difference(&kept).map(|label| named(*label)).collect();
                Ok(Parcels { of_volume: Arc::new(atlas), rows: Arc::new(rows), lost: Arc::new(lost) })
            }
            Content::Maps(maps) => {
                let atlas = MapAtlas::try_new(maps, inside).map_err(failed)?;
                let rows = (0..).take(maps.len()).map(named).collect();
                // A map of which nothing is left is an error.
                Ok(Parcels { of_volume: Arc::new(atlas), rows: Arc::new(rows), lost: Arc::default() })
            }
        }
    }

    fn name(&self, number: i32) -> Option<String> {
        self.names.as_ref()?.of(number).map(str::to_owned)
    }
}

impl fmt::Debug for Atlas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Atlas").field("location", &self.location).field("hash", &self.hash).finish()
    }
}

fn content(mut volumes: Vec<Vec<f32>>, path: &str, options: &VolumeOptions) -> Result<Content> {
    if volumes.len() > 1 {
        let for_labels = [
            ("strategy", options.strategy.is_some()),
            ("background_label", options.background_label.is_some()),
        ];
        return match for_labels.iter().find(|(_, given)| *given) {
            Some((option, _)) => {
                let reason =
                    format!("{option} is for atlases of labels, this one has {} maps", volumes.len());
                Err(Error::Image { path: path.into(), reason })
            }
            None => Ok(Content::Maps(volumes)),
        };
    }
    let values = volumes.pop().unwrap_or_default();
    if let Some(label) = values.iter().find(|x| x.abs() > LARGEST_LABEL) {
        let reason = format!("its label {label} is over 16,777,216: number the parcels from 1");
        return Err(Error::Image { path: path.into(), reason });
    }
    let values: Vec<f64> = values.into_iter().map(f64::from).collect();
    let failed = |source| Error::Volumes { path: path.into(), source };
    labels_of(&values).map(Content::Labels).map_err(failed)
}

fn read_names(location: &str, stores: &Stores) -> Result<ParcelNames> {
    match stores.read_if_there(location)? {
        Some(bytes) => Ok(ParcelNames::from_reader(bytes.as_slice(), location)?),
        None => Err(Error::Location { location: location.into(), reason: "no such file".into() }),
    }
}
