//! Images of one grid as a table of voxel series: `CREATE EXTERNAL TABLE … STORED AS NIFTI`, and what
//! `BIDS` and `HCP` tables come to.

use crate::atlas::Atlas;
use crate::beside_runs::BesideRuns;
use crate::image_files::find_images;
use crate::mask::{Mask, MaskChoice};
use crate::run_keys::lengths;
use crate::series_rows::RowKind;
use crate::space::Space;
use crate::volume_options::Target;
use crate::{Error, Image, NiftiExec, NiftiOptions, Result, Stores, nifti_exec::ImageRows};
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::{collections::HashMap, fmt::Write};
use voxelflow_dataset::Ledger;
use voxelflow_stage::{Atlas as AtlasOrigin, Grid, Options, RunFiles, look_at_runs};
use voxelflow_storage::Stamp;

/// Images as rows, one for each voxel of the mask: nine key columns and `series`, sorted by voxel, one
/// partition a file. The schema's metadata carry the [`Grid`] and, where runs are of several lengths, so that series are lists
/// of several lengths, the [`RunLengths`](voxelflow_stage::RunLengths).
///
/// With an atlas there is a row for each parcel, whose number and name stand in the place of `voxel`, `i`, `j` and `k`,
/// and the metadata say which atlas it was. Where volumes are resampled, smoothed or divided into parcels
/// ([`crate::VolumeOptions`]) the grid is the one after that, and series are of Float64 until they are cleaned: rounded
/// before, they would lose digits that show in a z-score. So they are where single precision cannot hold the numbers of
/// an image: float64, wide integers, integers beside a large intercept.
///
/// Only headers (and a mask file, and an atlas) are read when the table is made. With `mask 'auto'` or `mask 'brain'` the voxels
/// are not known before the volumes are read, so the grid says `mask_voxels: 0` and its `mask_hash` is that word
/// and a hash of the files' paths, lengths and times of change; else the hash is that of the voxels.
#[derive(Debug)]
pub struct NiftiTable {
    source: Arc<Source>,
    runs: Vec<RunFiles>,
    ledger: Ledger,
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
    /// The same for the ledger.
    pub ledger: Ledger,
    pub stores: Stores,
}

/// What a table and its plans share.
#[derive(Debug)]
pub(crate) struct Source {
    pub images: Vec<Image>,
    pub options: NiftiOptions,
    pub mask: MaskChoice,
    /// The grid of the rows.
    pub space: Space,
    pub kind: RowKind,
    /// The voxels of a mask file, once it was read.
    pub file_mask: OnceLock<Arc<Mask>>,
    /// The atlas, once it was read.
    atlas: OnceLock<Arc<Atlas>>,
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
    /// of different grids or repetition times, two lengths of one run. Each names the files.
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
        if MaskChoice::parse(options.mask())? == MaskChoice::Brain {
            let reason = "mask 'brain' is for tables of BIDS and HCP folders, which know the mask of every run: give \
                          the path of a mask, 'auto' or 'none'";
            return Err(Error::Location { location: location.into(), reason: reason.into() });
        }
        let images: Vec<Image> = match options.one_run {
            true => vec![Image::of_volumes(named, &options, stores)?],
            false => {
                named.iter().map(|image| Image::probe(image, &options, stores)).collect::<Result<_>>()?
            }
        };
        let beside =
            BesideRuns { confounds: options.confounds.as_deref(), events: options.events.as_deref() };
        let files = images.iter().map(|image| (&image.keys, image.location.as_str()));
        let runs = beside.of(location, files, stores)?;
        Self::of_images(Parts {
            location: location.to_owned(),
            images,
            options,
            runs,
            history: Vec::new(),
            ledger: Ledger::default(),
            stores: stores.clone(),
        })
    }

    /// # Errors
    /// No images; images (or masks) of different grids or repetition times; two lengths of one run.
    pub(crate) fn of_images(parts: Parts) -> Result<Self> {
        let Parts { location, images, options, runs, history, mut ledger, stores } = parts;
        ledger.extend(images.iter().flat_map(|image| image.notes.clone()));
        let mask = MaskChoice::parse(options.mask())?;
        let Some((first, others)) = images.split_first() else {
            let reason = "no location was given: write LOCATION 'a file, a folder or a glob'".into();
            return Err(Error::Location { location, reason });
        };
        let space = Space::of(&options.volumes, first, &stores)?;
        others.iter().try_for_each(|image| image.must_fit(first, space.resampled))?;
        look_at_runs(images.len(), |number| {
            let image = &images[number];
            image.mask.as_ref().map_or(Ok(()), |mask| Mask::check(mask, image, &space, &stores))
        })
        .into_iter()
        .collect::<Result<()>>()?;
        let file_mask = match &mask {
            MaskChoice::File(path) => Some(Arc::new(Mask::from_file(path, first, &space, &stores)?)),
            MaskChoice::Auto | MaskChoice::Everything | MaskChoice::Brain => None,
        };
        let read = |path: &String| Atlas::read(path, &options.volumes, &space, file_mask.as_deref(), &stores);
        let atlas = options.volumes.atlas.as_ref().map(read).transpose()?;
        let mut grid = space.grid.clone();
        (grid.source, grid.history) = (location, history);
        grid.history.extend(crate::steps::describe(&options.volumes, &grid));
        grid.history.extend(atlas.as_ref().map(Atlas::describe));
        ledger.extend(atlas.as_ref().and_then(Atlas::told));
        match (&mask, &file_mask) {
            (_, Some(mask)) => describe(&mut grid, mask),
            (MaskChoice::Auto, None) => {
                let files =
                    images.iter().flat_map(|image| [&image.location].into_iter().chain(&image.further));
                let files = files.map(String::as_str);
                grid.mask_hash = format!("auto:{}", hash(files, &stores));
            }
            (MaskChoice::Brain, None) => {
                let files = images.iter().filter_map(|image| image.mask.as_deref());
                grid.mask_hash = format!("brain:{}", hash(files, &stores));
            }
            (_, None) => describe(&mut grid, &Mask::everything(&space)),
        }
        let mut metadata = grid.to_metadata()?;
        metadata.extend(lengths(images.iter().map(|image| (&image.keys, image.volumes, image.name())))?);
        if !runs.is_empty() {
            metadata.extend(RunFiles::to_metadata(&runs)?);
        }
        metadata.extend(
            atlas.as_ref().map(|atlas| atlas.origin().to_metadata()).transpose()?.unwrap_or_default(),
        );
        let source = Source::try_new(images, options, metadata, stores)?;
        if let Some(atlas) = atlas {
            source.atlas.get_or_init(|| Arc::new(atlas));
        }
        if source.kind.computed {
            // What does not suit an image shows before anything is read.
            let mask = file_mask.as_deref();
            source.images.iter().try_for_each(|image| source.steps(image, mask, None).map(|_| ()))?;
        }
        if let Some(mask) = file_mask {
            source.file_mask.get_or_init(|| mask);
        }
        Ok(Self { source: Arc::new(source), runs, ledger })
    }
}

fn locations_text<S: AsRef<str>>(locations: &[S]) -> String {
    locations.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(", ")
}

impl NiftiTable {
    /// What the data-quality ledger has of the table before its rows are read: runs that were left out, and images whose
    /// numbers are rescaled.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

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
            write!(text, "\n{} {:?} {:?}", image.location, image.keys, image.stamp(stores)?).ok()?;
        }
        let masks = images.iter().filter_map(|image| image.mask.as_deref());
        let volumes = &self.source.options.volumes;
        let target = match &volumes.target {
            Some(Target::Image(location)) => Some(location),
            Some(Target::VoxelSize(_)) | None => None,
        };
        let atlas = volumes.atlas.iter().chain(&volumes.atlas_labels).chain(target).map(String::as_str);
        for file in masks.chain(self.runs.iter().flat_map(RunFiles::beside)).chain(atlas) {
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
        let mask = MaskChoice::parse(options.mask())?;
        let Some(first) = images.first() else {
            return Err(Error::Location {
                location: "a table of images".into(),
                reason: "it has none".into(),
            });
        };
        let computed = options.volumes.compute();
        let double = computed || images.iter().any(|image| image.double);
        let kind = RowKind { parcels: options.volumes.atlas.is_some(), computed, double };
        let one_length = images.iter().all(|image| image.volumes == first.volumes);
        let schema = kind.schema(metadata, one_length.then_some(first.volumes));
        let space = Space::known(&options.volumes, first, Grid::of(&schema)?);
        let found = Mutex::new(vec![None; images.len()]);
        let (file_mask, atlas) = (OnceLock::new(), OnceLock::new());
        Ok(Self { images, options, mask, space, kind, file_mask, atlas, schema, stores, found })
    }

    /// The atlas of the table, if it has one; it is read unless it was before, and is the table's still.
    pub fn atlas(&self) -> Result<Option<Arc<Atlas>>> {
        let Some(path) = &self.options.volumes.atlas else { return Ok(None) };
        if let Some(atlas) = self.atlas.get() {
            return Ok(Some(Arc::clone(atlas)));
        }
        let mask = self.file_mask.get().map(Arc::as_ref);
        let atlas = Atlas::read(path, &self.options.volumes, &self.space, mask, &self.stores)?;
        if AtlasOrigin::of(&self.schema)?.is_none_or(|origin| origin.hash != atlas.hash()) {
            let reason = "the atlas has changed since the table was made: create the table again".into();
            return Err(Error::Image { path: path.clone(), reason });
        }
        Ok(Some(Arc::clone(self.atlas.get_or_init(|| Arc::new(atlas)))))
    }

    /// Rows of an image, where that is known without reading volumes.
    pub fn rows(&self, image: usize) -> Option<usize> {
        let mask = self.known_mask(image)?;
        match (self.kind.parcels, mask) {
            (true, _) if self.mask == MaskChoice::Auto => None,
            (true, _) => Some(self.atlas.get()?.parcels(None).ok()?.rows.len()),
            (false, Some(mask)) => Some(mask.voxels.len()),
            (false, None) => Some(self.space.volume_grid().voxels()),
        }
    }

    /// Reads the mask file, if there is one and it was not read yet, and checks that it is the table's still.
    pub fn load_file_mask(&self) -> Result<()> {
        let (MaskChoice::File(path), None, Some(first)) =
            (&self.mask, self.file_mask.get(), self.images.first())
        else {
            return Ok(());
        };
        let mask = Mask::from_file(path, first, &self.space, &self.stores)?;
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
