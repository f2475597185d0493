//! A pipeline file and the values of its variables.

use crate::{Error, Result};
use std::{path::Path, sync::Arc};
use voxelflow_pipeline::{Source, Statement, Variables, parse};

/// A pipeline file, parsed.
#[derive(Debug)]
pub struct PipelineFile {
    /// Its path as given.
    pub name: String,
    /// Its text.
    pub text: String,
    /// Its statements, variables filled in.
    pub statements: Vec<Statement>,
}

impl PipelineFile {
    /// Reads and parses a file.
    ///
    /// # Errors
    /// A file that cannot be read; a statement that cannot be parsed, shown at its line.
    pub fn read(path: &Path, variables: &Variables) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|e| Error::io(path, e))?;
        Self::parse(&path.display().to_string(), text, variables)
    }

    /// Parses a text; `name` stands for its file in messages.
    ///
    /// # Errors
    /// A statement that cannot be parsed, or a text without any.
    pub fn parse(name: &str, text: String, variables: &Variables) -> Result<Self> {
        let source = Arc::new(Source::new(name, text.clone()));
        let statements = parse(&source, variables)?;
        if statements.is_empty() {
            let reason =
                "there is no statement in it, so there is nothing to run; write one, for example SELECT 1;";
            return Err(Error::input(name, reason));
        }
        Ok(Self { name: name.to_owned(), text, statements })
    }
}
