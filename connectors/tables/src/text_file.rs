//! One text file, read whole: it has a row per volume, event or participant.

use crate::{Error, Result, RunKeys, Stores, TextTables};
use std::path::Path;
use voxelflow_formats::bids::hcp_run_of;
use voxelflow_formats::table::{EvFile, Events, Gradients, MovementRegressors, Table};

/// Bytes of one file. What is larger is data of another kind, and belongs into Parquet.
const MOST_BYTES: u64 = 256 << 20;

/// What a file holds.
pub(crate) struct TextFile {
    /// Subject, session, task, run.
    pub keys: [Option<String>; 4],
    pub rows: usize,
    /// A text that is the same in all rows.
    pub condition: Option<String>,
    pub content: Content,
}

/// The columns of a file.
pub(crate) enum Content {
    /// By name, as text.
    Table(Table),
    /// Known columns of numbers.
    Numbers(Vec<(&'static str, Vec<f64>)>),
}

impl TextFile {
    /// Reads the file at `location`; `said` are keys that outrank those of its name.
    ///
    /// # Errors
    /// A file that is gone, too large, or not of this kind.
    pub fn read(kind: TextTables, location: &str, said: &RunKeys, stores: &Stores) -> Result<Self> {
        let named = RunKeys::of(Path::new(location));
        let keys = said.clone().or(named).or(of_hcp(location));
        let [subject, session, task, run, _] = keys.values().map(|value| value.map(str::to_owned));
        let bytes = bytes(location, stores)?;
        let (mut condition, bytes) = (None, bytes.as_slice());
        let content = match kind {
            TextTables::Events => Content::Table(Events::from_reader(bytes, location)?.table().clone()),
            TextTables::Confounds | TextTables::Tsv | TextTables::Participants | TextTables::Phenotype => {
                Content::Table(Table::from_reader(bytes, location)?)
            }
            TextTables::Ev => {
                condition = Some(stem(location).to_owned());
                Content::Numbers(ev(&EvFile::from_reader(bytes, location)?))
            }
            TextTables::Movement => {
                Content::Numbers(movement(&MovementRegressors::from_reader(bytes, location)?))
            }
            TextTables::Gradients => Content::Numbers(gradients(bytes, location, stores)?),
        };
        if let (Content::Table(table), true) = (&content, kind.needs_participants()) {
            table.text("participant_id")?;
        }
        let rows = match &content {
            Content::Table(table) => table.len(),
            Content::Numbers(columns) => columns.first().map_or(0, |(_, values)| values.len()),
        };
        Ok(Self { keys: [subject, session, task, run], rows, condition, content })
    }
}

fn bytes(location: &str, stores: &Stores) -> Result<Vec<u8>> {
    let refuse = |reason: String| Error::Image { path: location.into(), reason };
    if let Some(stamp) = stores.stamp(location)
        && stamp.length > MOST_BYTES
    {
        let reason =
            format!("it has {} bytes; a text table has 256 MiB at most: write it as Parquet", stamp.length);
        return Err(refuse(reason));
    }
    stores.read_if_there(location)?.ok_or_else(|| refuse("it is not there".into()))
}

/// Name of a file without folder and extension.
fn stem(location: &str) -> &str {
    let name = location.rsplit('/').next().unwrap_or(location);
    name.rsplit_once('.').map_or(name, |(stem, _)| stem)
}

/// Keys of a file in a folder of the HCP pipelines.
fn of_hcp(location: &str) -> RunKeys {
    let Some((subject, task, run)) = hcp_run_of(location) else { return RunKeys::default() };
    RunKeys {
        subject: Some(subject.into()),
        task: Some(task.into()),
        run: run.map(str::to_owned),
        ..RunKeys::default()
    }
}

fn ev(file: &EvFile) -> Vec<(&'static str, Vec<f64>)> {
    let events = &file.events;
    vec![
        ("onset", events.iter().map(|event| event.onset).collect()),
        ("duration", events.iter().map(|event| event.duration).collect()),
        ("amplitude", events.iter().map(|event| event.amplitude).collect()),
    ]
}

fn movement(regressors: &MovementRegressors) -> Vec<(&'static str, Vec<f64>)> {
    MovementRegressors::NAMES.iter().enumerate().map(|(at, name)| (*name, regressors.column(at))).collect()
}

fn gradients(bval: &[u8], location: &str, stores: &Stores) -> Result<Vec<(&'static str, Vec<f64>)>> {
    let partner = match location.strip_suffix(".bval") {
        Some(stem) => format!("{stem}.bvec"),
        None => format!("{}bvecs", location.strip_suffix("bvals").unwrap_or_default()),
    };
    let bvec = stores.read_if_there(&partner)?.ok_or_else(|| Error::Image {
        path: location.into(),
        reason: format!("the directions that belong to it, {partner}, are not there"),
    })?;
    let found = Gradients::from_readers((bval, location), (bvec.as_slice(), &partner))?;
    let axis = |axis: usize| found.directions.iter().map(|direction| direction[axis]).collect();
    Ok(vec![("b_value", found.b_values.clone()), ("x", axis(0)), ("y", axis(1)), ("z", axis(2))])
}
