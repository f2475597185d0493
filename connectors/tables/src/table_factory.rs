//! `CREATE EXTERNAL TABLE … STORED AS NIFTI | BIDS | HCP`.

use crate::{Error, NiftiTable, Result, Stores};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider, TableProviderFactory};
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::logical_expr::CreateExternalTable;
use std::sync::Arc;
use voxelflow_stage::Options;

/// What tables of images are made from. Each is a factory, to be registered under its [`name`](Self::name).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageTables {
    /// Files, folders and globs of images.
    Nifti,
    /// A folder of BIDS derivatives.
    Bids,
    /// A folder of the HCP pipelines.
    Hcp,
}

impl ImageTables {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Nifti, Self::Bids, Self::Hcp];

    /// The name after `STORED AS`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nifti => "NIFTI",
            Self::Bids => "BIDS",
            Self::Hcp => "HCP",
        }
    }

    /// Makes a table.
    ///
    /// # Errors
    /// Those of [`NiftiTable::try_new`], [`NiftiTable::of_bids`] and [`NiftiTable::of_hcp`].
    pub fn open(self, locations: &[String], options: &Options, stores: &Stores) -> Result<NiftiTable> {
        match (self, locations) {
            (Self::Nifti, _) => NiftiTable::try_new(locations, options, stores),
            (Self::Bids, [folder]) => NiftiTable::of_bids(folder, options, stores),
            (Self::Hcp, [folder]) => NiftiTable::of_hcp(folder, options, stores),
            (Self::Bids | Self::Hcp, _) => {
                let reason = "one folder is read as a table: make a table of each, and UNION them".into();
                Err(Error::Location { location: locations.join(", "), reason })
            }
        }
    }
}

#[async_trait]
impl TableProviderFactory for ImageTables {
    async fn create(
        &self,
        session: &dyn Session,
        cmd: &CreateExternalTable,
    ) -> PlanResult<Arc<dyn TableProvider>> {
        let refuse = |what: &str| {
            let reason = format!(
                "a {} table takes no {what}; its columns are the key columns and `series`",
                self.name()
            );
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
        let (kind, locations, stores) = (*self, cmd.locations.clone(), Stores::of(session.runtime_env()));
        let table = tokio::task::spawn_blocking(move || kind.open(&locations, &options, &stores))
            .await
            .map_err(|e| DataFusionError::External(Box::new(e)))??;
        Ok(Arc::new(table))
    }
}
