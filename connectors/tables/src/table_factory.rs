//! `CREATE EXTERNAL TABLE … STORED AS NIFTI | BIDS | HCP | GIFTI | CIFTI | MGH | NPY`.

use crate::image_files::find_images;
use crate::run_tables::{bids_table, hcp_table};
use crate::series_table::find_series;
use crate::{Error, NiftiTable, Result, SeriesFormat, SeriesTable, Stores};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider, TableProviderFactory};
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::logical_expr::CreateExternalTable;
use std::sync::Arc;
use voxelflow_formats::XformPolicy;
use voxelflow_stage::Options;

/// What tables of series are made from. Each is a factory, to be registered under its [`name`](Self::name).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageTables {
    /// Files, folders and globs of images.
    Nifti,
    /// A folder of BIDS derivatives.
    Bids,
    /// A folder of the HCP pipelines.
    Hcp,
    /// Files, folders and globs of data on surfaces.
    Gifti,
    /// Files, folders and globs of CIFTI-2.
    Cifti,
    /// Files, folders and globs of FreeSurfer's: volumes, or data on surfaces.
    Mgh,
    /// Files, folders and globs of numpy's arrays.
    Npy,
}

impl ImageTables {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Nifti, Self::Bids, Self::Hcp, Self::Gifti, Self::Cifti, Self::Mgh, Self::Npy];

    /// The name after `STORED AS`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nifti => "NIFTI",
            Self::Bids => "BIDS",
            Self::Hcp => "HCP",
            Self::Gifti => "GIFTI",
            Self::Cifti => "CIFTI",
            Self::Mgh => "MGH",
            Self::Npy => "NPY",
        }
    }

    /// Makes a table.
    ///
    /// # Errors
    /// Locations without files or runs, unknown options, files that are damaged or do not fit each other. Each names
    /// the file or the option.
    pub fn open(
        self,
        locations: &[String],
        options: &Options,
        stores: &Stores,
    ) -> Result<Arc<dyn TableProvider>> {
        let series = |format| -> Result<Arc<dyn TableProvider>> {
            Ok(Arc::new(SeriesTable::try_new(format, locations, options, stores)?))
        };
        Ok(match (self, locations) {
            (Self::Nifti, _) => return nifti(locations, options, stores),
            (Self::Bids, [folder]) => bids_table(folder, options, stores)?,
            (Self::Hcp, [folder]) => hcp_table(folder, options, stores)?,
            (Self::Bids | Self::Hcp, _) => {
                let reason = "one folder is read as a table: make a table of each, and UNION them".into();
                return Err(Error::Location { location: locations.join(", "), reason });
            }
            (Self::Gifti, _) => series(SeriesFormat::Gifti)?,
            (Self::Cifti, _) => series(SeriesFormat::Cifti)?,
            (Self::Npy, _) => series(SeriesFormat::Npy)?,
            (Self::Mgh, _) => return mgh(locations, options, stores),
        })
    }
}

/// NIfTI as vertices where FreeSurfer has stored a surface in it, else as voxels.
fn nifti(locations: &[String], options: &Options, stores: &Stores) -> Result<Arc<dyn TableProvider>> {
    let mut files = Vec::new();
    for location in locations {
        files.extend(find_images(location, stores)?);
    }
    let location = locations.join(", ");
    let surface = match files.first() {
        // What is wrong with a header is told where it is read with the options.
        Some(first) => stores.open_image(first, XformPolicy::Sform).is_ok_and(|image| image.header().surface),
        None => false,
    };
    Ok(match surface {
        true => Arc::new(SeriesTable::of_named(SeriesFormat::Mgh, &location, &files, options, stores)?),
        false => Arc::new(NiftiTable::of_named(&location, &files, options, stores)?),
    })
}

/// MGH files as voxels where the first is a volume, else as vertices.
fn mgh(locations: &[String], options: &Options, stores: &Stores) -> Result<Arc<dyn TableProvider>> {
    let mut files = Vec::new();
    for location in locations {
        files.extend(find_series(SeriesFormat::Mgh, location, stores)?);
    }
    let shape = files
        .first()
        .map(|first| Ok::<_, Error>(stores.open_image(first, XformPolicy::Agree)?.header().shape));
    Ok(match shape.transpose()? {
        None | Some([_, 1, 1]) => {
            Arc::new(SeriesTable::try_new(SeriesFormat::Mgh, locations, options, stores)?)
        }
        Some(_) => Arc::new(NiftiTable::of_named(&locations.join(", "), &files, options, stores)?),
    })
}

#[async_trait]
impl TableProviderFactory for ImageTables {
    async fn create(
        &self,
        session: &dyn Session,
        cmd: &CreateExternalTable,
    ) -> PlanResult<Arc<dyn TableProvider>> {
        let kind = *self;
        create(self.name(), session, cmd, move |locations, options, stores| {
            kind.open(locations, options, stores)
        })
        .await
    }
}

/// Makes the table that a statement describes by `open`, on a thread that may block; `name` is what stands after
/// `STORED AS`.
pub(crate) async fn create(
    name: &'static str,
    session: &dyn Session,
    cmd: &CreateExternalTable,
    open: impl FnOnce(&[String], &Options, &Stores) -> Result<Arc<dyn TableProvider>> + Send + 'static,
) -> PlanResult<Arc<dyn TableProvider>> {
    let refuse = |what: &str| {
        let reason = format!("a table STORED AS {name} takes no {what}: its files say which columns it has");
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
        .map(|(name, value)| (name.strip_prefix("format.").unwrap_or(name).to_owned(), value.clone().into()))
        .collect();
    let (locations, stores) = (cmd.locations.clone(), Stores::of(session.runtime_env()));
    let table = tokio::task::spawn_blocking(move || open(&locations, &options, &stores));
    Ok(table.await.map_err(|e| DataFusionError::External(Box::new(e)))??)
}
