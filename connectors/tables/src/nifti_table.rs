//! `CREATE EXTERNAL TABLE … STORED AS NIFTI`: images of one grid and length as a table of voxel series.

use crate::image::Stamp;
use crate::image_files::find_images;
use crate::mask::{Mask, MaskChoice};
use crate::series_rows::schema;
use crate::{Error, Image, NiftiExec, NiftiOptions, Result};
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider, TableProviderFactory};
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::logical_expr::{CreateExternalTable, Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::{collections::HashMap, fmt::Write};
use voxelflow_stage::{Grid, Options};

/// The name after `STORED AS`, under which a [`NiftiTableFactory`] is registered.
pub const NIFTI: &str = "NIFTI";

/// Images as rows, one for each voxel of the mask: nine key columns and `series`, sorted by voxel, one
/// partition a file. The schema's metadata carry the [`Grid`].
///
/// Only headers (and a mask file) are read when the table is made. With `mask 'auto'` the voxels are not
/// known before the volumes are read, so the grid says `mask_voxels: 0` and its `mask_hash` is `auto:`
/// and a hash of the images' paths, lengths and times of change; else the hash is that of the voxels.
#[derive(Debug)]
pub struct NiftiTable {
    source: Arc<Source>,
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
    pub fn try_new<S: AsRef<str>>(locations: &[S], options: &Options) -> Result<Self> {
        let options = NiftiOptions::parse(options)?;
        let mask = MaskChoice::parse(&options.mask)?;
        let mut images: Vec<Image> = Vec::new();
        for location in locations {
            for path in find_images(location.as_ref())? {
                let image = Image::probe(&path, &options)?;
                if let Some(first) = images.first() {
                    image.must_fit(first)?;
                }
                images.push(image);
            }
        }
        let Some(first) = images.first() else {
            let reason = "no location was given: write LOCATION 'a file, a folder or a glob'".into();
            return Err(Error::Location { location: NIFTI.into(), reason });
        };
        let file_mask = match &mask {
            MaskChoice::File(path) => Some(Arc::new(Mask::from_file(path, first)?)),
            MaskChoice::Auto | MaskChoice::Everything => None,
        };
        let mut grid = first.grid.clone();
        grid.source = locations.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(", ");
        match (&mask, &file_mask) {
            (_, Some(mask)) => describe(&mut grid, mask),
            (MaskChoice::Auto, None) => grid.mask_hash = auto_hash(&images),
            (_, None) => describe(&mut grid, &Mask::everything(first)),
        }
        let source = Source::try_new(images, options, grid.to_metadata()?)?;
        if let Some(mask) = file_mask {
            source.file_mask.get_or_init(|| mask);
        }
        Ok(Self { source: Arc::new(source) })
    }
}

impl NiftiTable {
    /// A text that is equal, in every process, while the rows are: the images by path, length and time of change,
    /// the voxels of a mask file, the options. None when an image cannot be looked at.
    pub fn identity(&self) -> Option<String> {
        let Source { images, options, file_mask, .. } = self.source.as_ref();
        let options = serde_json::to_string(options).ok()?;
        let mask = file_mask.get().map(|mask| mask.hash()).unwrap_or_default();
        let mut text = format!("{NIFTI}\n{options}\n{mask}");
        for image in images {
            let path = std::path::absolute(&image.path).ok()?;
            write!(text, "\n{} {:?}", path.display(), image.stamp()?).ok()?;
        }
        Some(text)
    }
}

fn describe(grid: &mut Grid, mask: &Mask) {
    grid.mask_hash = mask.hash();
    grid.mask_voxels = mask.voxels.len();
}

fn auto_hash(images: &[Image]) -> String {
    let mut hasher = blake3::Hasher::new();
    for image in images {
        hasher.update(format!("{}\n{:?}\n", image.name(), image.stamp()).as_bytes());
    }
    format!("auto:{}", hasher.finalize().to_hex())
}

impl Source {
    /// `images` and the grid that they lie on, as metadata; a mask file is not read yet.
    pub fn try_new(
        images: Vec<Image>,
        options: NiftiOptions,
        metadata: HashMap<String, String>,
    ) -> Result<Self> {
        let mask = MaskChoice::parse(&options.mask)?;
        let schema = schema(metadata, images.first().map_or(0, |first| first.volumes));
        let found = Mutex::new(vec![None; images.len()]);
        Ok(Self { images, options, mask, file_mask: OnceLock::new(), schema, found })
    }

    /// Reads the mask file, if there is one and it was not read yet, and checks that it is the table's still.
    pub fn load_file_mask(&self) -> Result<()> {
        let (MaskChoice::File(path), None, Some(first)) =
            (&self.mask, self.file_mask.get(), self.images.first())
        else {
            return Ok(());
        };
        let mask = Mask::from_file(path, first)?;
        if mask.hash() != Grid::of(&self.schema)?.mask_hash {
            let reason = "the mask has changed since the table was made: create the table again".into();
            return Err(Error::Image { path: path.display().to_string(), reason });
        }
        self.file_mask.get_or_init(|| Arc::new(mask));
        Ok(())
    }

    /// The automatic mask of an image, if its file is still the one that it was found in.
    pub fn remembered(&self, partition: usize) -> Option<Arc<Mask>> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let (stamp, mask) = found.get(partition)?.as_ref()?;
        (self.images[partition].stamp() == Some(*stamp)).then(|| Arc::clone(mask))
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
        Ok(Arc::new(NiftiExec::try_new(Arc::clone(&self.source), projection, limit)?))
    }
}

/// Makes a [`NiftiTable`] of a `CREATE EXTERNAL TABLE … STORED AS NIFTI` statement.
#[derive(Clone, Copy, Debug, Default)]
pub struct NiftiTableFactory;

#[async_trait]
impl TableProviderFactory for NiftiTableFactory {
    async fn create(&self, _: &dyn Session, cmd: &CreateExternalTable) -> PlanResult<Arc<dyn TableProvider>> {
        let refuse = |what: &str| {
            let reason =
                format!("a NIFTI table takes no {what}; its columns are the key columns and `series`");
            Err(Error::Location { location: cmd.name.to_string(), reason })
        };
        if !cmd.schema.fields().is_empty() {
            refuse("column list")?;
        }
        if !cmd.table_partition_cols.is_empty() {
            refuse("PARTITIONED BY")?;
        }
        if !cmd.order_exprs.is_empty() {
            refuse("WITH ORDER")?;
        }
        // DataFusion's parser puts `format.` before option names without a dot.
        let options: Options = cmd
            .options
            .iter()
            .map(|(name, value)| {
                (name.strip_prefix("format.").unwrap_or(name).to_owned(), value.clone().into())
            })
            .collect();
        let locations = cmd.locations.clone();
        let table = tokio::task::spawn_blocking(move || NiftiTable::try_new(&locations, &options))
            .await
            .map_err(|e| DataFusionError::External(Box::new(e)))??;
        Ok(Arc::new(table))
    }
}
