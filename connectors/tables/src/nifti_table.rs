//! Images of one grid and length as a table of voxel series: `CREATE EXTERNAL TABLE … STORED AS NIFTI`, and what
//! `BIDS` and `HCP` tables come to.

use crate::image_files::find_images;
use crate::mask::{Mask, MaskChoice};
use crate::series_rows::schema;
use crate::{Error, Image, NiftiExec, NiftiOptions, Result, Stores, nifti_exec::ImageRows};
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::{collections::HashMap, fmt::Write};
use voxelflow_stage::{Grid, Options, RunFiles};
use voxelflow_storage::Stamp;

/// Images as rows, one for each voxel of the mask: nine key columns and `series`, sorted by voxel, one
/// partition a file. The schema's metadata carry the [`Grid`].
///
/// Only headers (and a mask file) are read when the table is made. With `mask 'auto'` or `mask 'brain'` the voxels
/// are not known before the volumes are read, so the grid says `mask_voxels: 0` and its `mask_hash` is that word
/// and a hash of the files' paths, lengths and times of change; else the hash is that of the voxels.
#[derive(Debug)]
pub struct NiftiTable {
    source: Arc<Source>,
    runs: Vec<RunFiles>,
}

/// What a table is made of.
pub(crate) struct Parts {
    /// As written.
    pub location: String,
    pub images: Vec<Image>,
    pub options: NiftiOptions,
    /// What is known of the runs beside their images.
    pub runs: Vec<RunFiles>,
    /// What was left out, for the grid's history.
    pub history: Vec<String>,
    pub stores: Stores,
}

/// What a table and its plans share.
#[derive(Debug)]
pub(crate) struct Source {
    pub images: Vec<Image>,
    pub options: NiftiOptions,
    pub mask: MaskChoice,
    /// The voxels of a mask file, once it was read.
    pub file_mask: OnceLock<Arc<Mask>>,
    pub schema: SchemaRef,
    pub stores: Stores,
    /// Automatic masks that were found, by image, with the file that they were found in.
    found: Mutex<Vec<Option<Found>>>,
}

/// A mask, and the state of the file that it was found in.
type Found = (Stamp, Arc<Mask>);

impl NiftiTable {
    /// Opens the images at `locations`: files, folders or globs.
    ///
    /// # Errors
    /// A location without images; an unknown option; an image that cannot be read; images (or a mask)
    /// of different grids, lengths or repetition times. Each names the files.
    pub fn try_new<S: AsRef<str>>(locations: &[S], options: &Options, stores: &Stores) -> Result<Self> {
        let mut images = Vec::new();
        for location in locations {
            images.extend(find_images(location.as_ref(), stores)?);
        }
        Self::of_named(&locations_text(locations), &images, options, stores)
    }

    /// Opens images, as [`NiftiTable::try_new`]; `location` is what was written.
    pub(crate) fn of_named(
        location: &str,
        named: &[String],
        options: &Options,
        stores: &Stores,
    ) -> Result<Self> {
        let options = NiftiOptions::parse(options)?;
        if MaskChoice::parse(&options.mask)? == MaskChoice::Brain {
            let reason = "mask 'brain' is for tables of BIDS and HCP folders, which know the mask of every run: give \
                          the path of a mask, 'auto' or 'none'";
            return Err(Error::Location { location: location.into(), reason: reason.into() });
        }
        let images =
            named.iter().map(|image| Image::probe(image, &options, stores)).collect::<Result<_>>()?;
        let (location, runs, history) = (location.to_owned(), Vec::new(), Vec::new());
        Self::of_images(Parts { location, images, options, runs, history, stores: stores.clone() })
    }

    /// # Errors
    /// No images; images (or masks) of different grids, lengths or repetition times.
    pub(crate) fn of_images(parts: Parts) -> Result<Self> {
        let Parts { location, images, options, runs, history, stores } = parts;
        let mask = MaskChoice::parse(&options.mask)?;
        let Some((first, others)) = images.split_first() else {
            let reason = "no location was given: write LOCATION 'a file, a folder or a glob'".into();
            return Err(Error::Location { location, reason });
        };
        others.iter().try_for_each(|image| image.must_fit(first))?;
        let file_mask = match &mask {
            MaskChoice::File(path) => Some(Arc::new(Mask::from_file(path, first, &stores)?)),
            MaskChoice::Auto | MaskChoice::Everything | MaskChoice::Brain => None,
        };
        let mut grid = first.grid.clone();
        (grid.source, grid.history) = (location, history);
        match (&mask, &file_mask) {
            (_, Some(mask)) => describe(&mut grid, mask),
            (MaskChoice::Auto, None) => {
                let files = images.iter().map(|image| image.location.as_str());
                grid.mask_hash = format!("auto:{}", hash(files, &stores));
            }
            (MaskChoice::Brain, None) => {
                let files = images.iter().filter_map(|image| image.mask.as_deref());
                grid.mask_hash = format!("brain:{}", hash(files, &stores));
            }
            (_, None) => describe(&mut grid, &Mask::everything(first)),
        }
        let mut metadata = grid.to_metadata()?;
        if !runs.is_empty() {
            metadata.extend(RunFiles::to_metadata(&runs)?);
        }
        let source = Source::try_new(images, options, metadata, stores)?;
        if let Some(mask) = file_mask {
            source.file_mask.get_or_init(|| mask);
        }
        Ok(Self { source: Arc::new(source), runs })
    }
}

fn locations_text<S: AsRef<str>>(locations: &[S]) -> String {
    locations.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(", ")
}

impl NiftiTable {
    /// A text that is equal, in every process, while the rows and what operators read beside them are: images, their
    /// masks, confounds and events by path, length and time of change, the voxels of a mask file, the options. None
    /// when an image cannot be looked at.
    pub fn identity(&self) -> Option<String> {
        let Source { images, options, file_mask, stores, .. } = self.source.as_ref();
        let options = serde_json::to_string(options).ok()?;
        let mask = file_mask.get().map(|mask| mask.hash()).unwrap_or_default();
        let keys = serde_json::to_string(&self.runs).ok()?;
        let mut text = format!("images\n{options}\n{mask}\n{keys}");
        for image in images {
            write!(text, "\n{} {:?} {:?}", image.location, image.keys, stores.stamp(&image.location)?)
                .ok()?;
        }
        let masks = images.iter().filter_map(|image| image.mask.as_deref());
        for file in masks.chain(self.runs.iter().flat_map(RunFiles::beside)) {
            write!(text, "\n{file} {:?}", stores.stamp(file)).ok()?;
        }
        Some(text)
    }
}

fn describe(grid: &mut Grid, mask: &Mask) {
    grid.mask_hash = mask.hash();
    grid.mask_voxels = mask.voxels.len();
}

/// Of files by path, length and time of change.
fn hash<'f>(files: impl Iterator<Item = &'f str>, stores: &Stores) -> String {
    let mut hasher = blake3::Hasher::new();
    for file in files {
        hasher.update(format!("{file}\n{:?}\n", stores.stamp(file)).as_bytes());
    }
    hasher.finalize().to_hex().to_string()
}

impl Source {
    /// `images` and the grid that they lie on, as metadata; a mask file is not read yet.
    pub fn try_new(
        images: Vec<Image>,
        options: NiftiOptions,
        metadata: HashMap<String, String>,
        stores: Stores,
    ) -> Result<Self> {
        let mask = MaskChoice::parse(&options.mask)?;
        let schema = schema(metadata, images.first().map_or(0, |first| first.volumes));
        let found = Mutex::new(vec![None; images.len()]);
        Ok(Self { images, options, mask, file_mask: OnceLock::new(), schema, stores, found })
    }

    /// Reads the mask file, if there is one and it was not read yet, and checks that it is the table's still.
    pub fn load_file_mask(&self) -> Result<()> {
        let (MaskChoice::File(path), None, Some(first)) =
            (&self.mask, self.file_mask.get(), self.images.first())
        else {
            return Ok(());
        };
        let mask = Mask::from_file(path, first, &self.stores)?;
        if mask.hash() != Grid::of(&self.schema)?.mask_hash {
            let reason = "the mask has changed since the table was made: create the table again".into();
            return Err(Error::Image { path: path.clone(), reason });
        }
        self.file_mask.get_or_init(|| Arc::new(mask));
        Ok(())
    }

    /// The automatic mask of an image, if its file is still the one that it was found in.
    pub fn remembered(&self, partition: usize) -> Option<Arc<Mask>> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let (stamp, mask) = found.get(partition)?.as_ref()?;
        (self.images[partition].stamp(&self.stores).as_ref() == Some(stamp)).then(|| Arc::clone(mask))
    }

    /// Keeps an automatic mask for the next plan.
    pub fn remember(&self, partition: usize, stamp: Option<Stamp>, mask: Arc<Mask>) {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(stamp), Some(place)) = (stamp, found.get_mut(partition)) {
            *place = Some((stamp, mask));
        }
    }
}

#[async_trait]
impl TableProvider for NiftiTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.source.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        limit: Option<usize>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let rows = ImageRows::try_new(Arc::clone(&self.source), projection, limit)?;
        Ok(Arc::new(NiftiExec::new(rows, None)))
    }
}
