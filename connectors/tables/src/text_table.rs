//! `CREATE EXTERNAL TABLE … STORED AS EVENTS | CONFOUNDS | TSV | PARTICIPANTS | PHENOTYPE | EV | MOVEMENT | GRADIENTS`.
//!
//! Such files are small: they are read when the table is made, and are rows in memory from then on, which plans take
//! along to wherever they run.

use crate::image_files::find_files;
use crate::nifti_options::text;
use crate::table_factory::create;
use crate::text_columns::{batches, names};
use crate::text_file::TextFile;
use crate::{Error, Result, RunKeys, Stores, TextTables};
use async_trait::async_trait;
use datafusion::catalog::{MemTable, Session, TableProvider, TableProviderFactory};
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::CreateExternalTable;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use voxelflow_stage::{Options, parse_options};

/// Options of a table of text files. Values may be written as text or as numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TextOptions {
    /// Subject, instead of the file name's `sub-`.
    #[serde(deserialize_with = "text")]
    pub subject: Option<String>,
    /// Session, instead of `ses-`.
    #[serde(deserialize_with = "text")]
    pub session: Option<String>,
    /// Task, instead of `task-`.
    #[serde(deserialize_with = "text")]
    pub task: Option<String>,
    /// Run, instead of `run-`.
    #[serde(deserialize_with = "text")]
    pub run: Option<String>,
}

impl TextTables {
    /// Makes a table of the files at `locations`: files, folders or globs.
    ///
    /// # Errors
    /// A location without files; an unknown option; a file that is too large or not of this kind, with its line.
    pub fn open(
        self,
        locations: &[String],
        options: &Options,
        stores: &Stores,
    ) -> Result<Arc<dyn TableProvider>> {
        let options: TextOptions = parse_options(&format!("a table STORED AS {self}"), options)?;
        let TextOptions { subject, session, task, run } = options;
        let (has_subject, has_session) = (subject.is_some(), session.is_some());
        let said = RunKeys { subject, session, task, run, space: None };
        let mut files = Vec::new();
        for location in locations {
            for file in find_files(location, &self.wanted(), stores)? {
                files.push(TextFile::read(self, &file, &said, stores)?);
            }
        }
        if files.is_empty() {
            let reason = "no location was given: write LOCATION 'a file, a folder or a glob'".into();
            return Err(Error::Location { location: String::new(), reason });
        }
        // A table of participants says itself who each row is of.
        for (option, given, column) in
            [("subject", has_subject, "participant_id"), ("session", has_session, "session_id")]
        {
            if given && files.iter().any(|file| names(file).contains(&column)) {
                let reason =
                    format!("the option {option} says nothing beside the column {column}; leave it out");
                return Err(Error::Location { location: locations.join(", "), reason });
            }
        }
        let (schema, batches) = batches(self, &files)?;
        Ok(Arc::new(MemTable::try_new(schema, vec![batches])?))
    }
}

#[async_trait]
impl TableProviderFactory for TextTables {
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
