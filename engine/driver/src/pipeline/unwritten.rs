//! What the statements of a file will have written when later ones read it: known while a file is checked or planned,
//! and nothing of it is there.

use datafusion::logical_expr::{DdlStatement, LogicalPlan, dml::CopyTo};
use std::sync::Arc;
use voxelflow_pipeline::{Planned, PlannedTable, Statement};

/// Locations that statements write, in order.
#[derive(Debug, Default)]
pub(super) struct Unwritten {
    folders: Vec<Folder>,
}

#[derive(Debug)]
struct Folder {
    location: String,
    /// The rows, of Parquet.
    rows: Option<Arc<LogicalPlan>>,
}

impl Unwritten {
    /// Takes note of what a statement writes. False for rows that go where nobody can follow them.
    pub fn note(&mut self, planned: &Planned) -> bool {
        let (location, rows) = match planned {
            Planned::Train(train) => match &train.publish {
                Some(location) => (location, None),
                None => return true,
            },
            Planned::Other(LogicalPlan::Copy(copy)) => {
                (&copy.output_url, is_parquet_folder(copy).then(|| Arc::clone(&copy.input)))
            }
            Planned::Other(LogicalPlan::Dml(_)) => return false,
            _ => return true,
        };
        self.folders.push(Folder { location: location.clone(), rows });
        true
    }

    /// A table over a folder that an earlier statement fills is one of that statement's rows; what else is planned stays
    /// as it is.
    pub fn table_over(&self, planned: Planned) -> Planned {
        match &planned {
            Planned::CreateExternalTable(LogicalPlan::Ddl(DdlStatement::CreateExternalTable(command))) => {
                let rows = match command.locations.as_slice() {
                    [location] => self.rows_at(location),
                    _ => None,
                };
                rows.map(|rows| {
                    let (name, plan) = (command.name.clone(), rows.as_ref().clone());
                    let exists = false;
                    Planned::CreateTable(PlannedTable { name, plan, or_replace: command.or_replace, exists })
                })
                .unwrap_or(planned)
            }
            _ => planned,
        }
    }

    fn rows_at(&self, location: &str) -> Option<&Arc<LogicalPlan>> {
        let same = |folder: &&Folder| folder.location.trim_end_matches('/') == location.trim_end_matches('/');
        self.folders.iter().rev().find(same)?.rows.as_ref()
    }

    /// Whether a statement names, other than as the location of a table, what is not there yet: it cannot be planned.
    pub fn is_read_by(&self, statement: &Statement) -> bool {
        let named = |folder: &Folder| statement.normalised().contains(folder.location.trim_end_matches('/'));
        let tables = statement.normalised().starts_with("create external table");
        self.folders.iter().any(|folder| named(folder) && !(tables && folder.rows.is_some()))
    }
}

/// Rows that are written as a folder of Parquet files, in the one way that this program has.
pub(crate) fn is_parquet_folder(copy: &CopyTo) -> bool {
    copy.output_url.ends_with('/')
        && copy.file_type.get_ext() == "parquet"
        && copy.partition_by.is_empty()
        && copy.options.is_empty()
}
