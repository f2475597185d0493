//! Options of the tables of surfaces, grayordinates and arrays, by the names that the language takes.

use crate::nifti_options::{ByteSize, NiftiOptions, seconds, text};
use crate::{Result, RunKeys, SeriesFormat};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::Value;
use voxelflow_stage::{Options, parse_options};

/// Options of a GIFTI, CIFTI, MGH or NPY table. Values may be written as text or as numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeriesOptions {
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
    /// Space, instead of `space-`.
    #[serde(deserialize_with = "text")]
    pub space: Option<String>,
    /// Repetition time in seconds, instead of the sidecar's `RepetitionTime` or the file's own.
    #[serde(deserialize_with = "seconds")]
    pub t_r: Option<f64>,
    /// Confounds, one file for each run in the order of the files, separated by commas: `.tsv` with named columns, HCP's
    /// `Movement_Regressors.txt`, or columns of numbers without names.
    #[serde(deserialize_with = "text")]
    pub confounds: Option<String>,
    /// Events, in the same way: `.tsv` files, or folders with a `.txt` file of FSL's three columns for each condition.
    #[serde(deserialize_with = "text")]
    pub events: Option<String>,
    /// Full width at half maximum, in millimetres along the surface, of the smoothing of every time point; vertices
    /// without signal (constant over time) take no part.
    #[serde(deserialize_with = "width")]
    pub smoothing_fwhm: Option<f64>,
    /// The `.surf.gii` of each hemisphere that is smoothed, separated by commas.
    #[serde(deserialize_with = "text")]
    pub mesh: Option<String>,
    /// Memory for the series of one file that is being read; more is kept in a temporary file.
    pub memory_limit: ByteSize,
}

impl Default for SeriesOptions {
    fn default() -> Self {
        let NiftiOptions { memory_limit, .. } = NiftiOptions::default();
        Self {
            subject: None,
            session: None,
            task: None,
            run: None,
            space: None,
            t_r: None,
            confounds: None,
            events: None,
            smoothing_fwhm: None,
            mesh: None,
            memory_limit,
        }
    }
}

/// A width; 0 is none.
fn width<'de, D: Deserializer<'de>>(d: D) -> Result<Option<f64>, D::Error> {
    let number = match Value::deserialize(d)? {
        Value::Null => return Ok(None),
        Value::Number(n) => n.as_f64(),
        Value::String(s) => s.trim().parse().ok(),
        _ => None,
    };
    match number.filter(|width| width.is_finite() && *width >= 0.0) {
        Some(width) => Ok((width > 0.0).then_some(width)),
        None => Err(D::Error::custom("it is a width in millimetres of at least 0, for example 6")),
    }
}

impl SeriesOptions {
    /// Reads the options of a table of files of `format` by name.
    ///
    /// # Errors
    /// An unknown name, with the nearest and the list; a value of the wrong kind.
    pub fn parse(format: SeriesFormat, options: &Options) -> Result<Self> {
        Ok(parse_options(&format!("a table of {format} files"), options)?)
    }

    /// The keys that are given here instead of by names of files.
    pub(crate) fn keys(&self) -> RunKeys {
        RunKeys {
            subject: self.subject.clone(),
            session: self.session.clone(),
            task: self.task.clone(),
            run: self.run.clone(),
            space: self.space.clone(),
        }
    }
}
