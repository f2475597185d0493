//! Confounds of a run as `clean` takes them: a table with named columns, movement regressors of the HCP pipelines, or
//! columns of numbers without names.

use crate::{Error, Result, Stores};
use std::collections::BTreeMap;
use voxelflow_formats::sidecar::{ConfoundNote, ConfoundsSidecar};
use voxelflow_formats::table::{Confounds, MovementRegressors, UnnamedColumns};
use voxelflow_signal::ConfoundTable;
use voxelflow_signal::confounds::{CompcorComponent, ConfoundValues};
use voxelflow_stage::RunFiles;

/// Reads the confounds of a run, and which components of CompCor its sidecars list as retained.
///
/// A column that holds something else than numbers, and sidecars that cannot be used, are faults for whoever takes them:
/// the table tells them then. `.tsv` files name their columns; those of `Movement_Regressors.txt` are known, and those of other `.txt` and `.1D`
/// files are called `column_01` and so on. Movement regressors get the squares that fMRIPrep's tables have, so that the same strategies serve both.
///
/// # Errors
/// A run without confounds; a file that is not there or cannot be read.
pub fn read_confounds(run: &RunFiles, stores: &Stores) -> Result<(ConfoundTable, Vec<CompcorComponent>)> {
    let missing = |path: &str, reason: &str| Error::Image { path: path.into(), reason: reason.into() };
    let Some(path) = &run.confounds else {
        return Err(missing(
            &run.image,
            "no confounds file was found for it; `voxelflow inspect` says what was looked for",
        ));
    };
    let bytes = stores
        .read_if_there(path)?
        .ok_or_else(|| missing(path, "the confounds file is not there any more"))?;
    let columns = match path.rsplit('/').next() {
        Some(name) if name.ends_with(".txt") && name.contains("Movement_Regressors") => {
            movement(&MovementRegressors::from_reader(bytes.as_slice(), path)?)
        }
        Some(name) if name.ends_with(".txt") || name.ends_with(".1D") => {
            unnamed(UnnamedColumns::from_reader(bytes.as_slice(), path)?)
        }
        _ => named(&Confounds::from_reader(bytes.as_slice(), path)?),
    };
    let table = ConfoundTable::of_columns(columns)
        .map_err(|e| Error::Image { path: path.clone(), reason: e.to_string() })?;
    Ok(match components(run, stores) {
        Ok(components) => (table, components),
        Err(fault) => (table.with_sidecar_fault(fault.to_string()), Vec::new()),
    })
}

/// The components of CompCor that the sidecars list as retained.
fn components(run: &RunFiles, stores: &Stores) -> Result<Vec<CompcorComponent>> {
    let mut notes: BTreeMap<String, ConfoundNote> = BTreeMap::new();
    for path in &run.confounds_sidecars {
        let gone = || Error::Image { path: path.clone(), reason: "the sidecar is not there any more".into() };
        let bytes = stores.read_if_there(path)?.ok_or_else(gone)?;
        notes.extend(ConfoundsSidecar::from_reader(bytes.as_slice(), path)?.notes);
    }
    let retained = notes.into_iter().filter(|(_, note)| note.retained != Some(false));
    let components = retained
        .filter(|(_, note)| note.method.as_deref().is_some_and(|method| method.ends_with("CompCor")))
        .map(|(name, note)| CompcorComponent { name, mask: note.mask });
    Ok(components.collect())
}

/// A text that changes when a file does that [`read_confounds`] reads: lengths, times of change and entity tags. None
/// when one of them cannot be looked at.
pub fn confounds_version(run: &RunFiles, stores: &Stores) -> Option<String> {
    let files = run.confounds.iter().chain(&run.confounds_sidecars);
    files.map(|file| Some(format!("{:?}\n", stores.stamp(file)?))).collect()
}

type Column = (String, ConfoundValues);

/// Every column, or why it holds no numbers.
fn named(confounds: &Confounds) -> Vec<Column> {
    let some = |values: Vec<f64>| values.iter().map(|x| (!x.is_nan()).then_some(*x)).collect();
    let column =
        |name: &String| (name.clone(), confounds.column(name).map(some).map_err(|fault| fault.to_string()));
    confounds.names().iter().map(column).collect()
}

/// Columns without names are called `column_01`, `column_02` … so that `column_*` takes them all.
fn unnamed(numbers: UnnamedColumns) -> Vec<Column> {
    let width = numbers.columns.len().to_string().len().max(2);
    let column = |(at, values): (usize, Vec<f64>)| {
        (format!("column_{:0width$}", at + 1), Ok(values.into_iter().map(Some).collect()))
    };
    numbers.columns.into_iter().enumerate().map(column).collect()
}

fn movement(regressors: &MovementRegressors) -> Vec<Column> {
    let columns =
        MovementRegressors::NAMES.iter().enumerate().map(|(at, name)| (name, regressors.column(at)));
    columns
        .flat_map(|(name, values)| {
            let squares = values.iter().map(|x| Some(x * x)).collect();
            [
                ((*name).to_owned(), Ok(values.into_iter().map(Some).collect())),
                (format!("{name}_power2"), Ok(squares)),
            ]
        })
        .collect()
}
