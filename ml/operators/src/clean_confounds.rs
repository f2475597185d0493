//! `FROM clean(bold, confounds => 'motion', …)`: the confounds of each run, removed from its series, and the volumes
//! that they leave.
//!
//! ```text
//!   options ─► ConfoundSettings ─┐
//!   the table's RunFiles ────────┴─► RunConfounds (planned: every run is looked at) ─► RunCleaners (as it runs)
//! ```

use crate::confounds_memory::{Chosen, remembered};
use crate::confounds_reader::{SessionStores, read_confounds, version_of_confounds};
use crate::{Error, Result, clean_ledger};
use arrow::{
    array::{Array, ArrayRef, RecordBatch},
    compute::partition,
    util::display::{ArrayFormatter, FormatOptions},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use voxelflow_dataset::Ledger;
use voxelflow_signal::confounds::ConfoundSettings;
use voxelflow_signal::{CleanSettings, Cleaner, select_confounds};
use voxelflow_stage::{KEY_COLUMNS, KeptVolumes, RunFiles, RunLengths, look_at_runs};

/// Key columns that tell runs apart.
const RUN_COLUMNS: usize = 4;
/// Cleaners of runs that are kept for the next batch, at least; else two for each thread, for as many partitions may be
/// under way at once.
const RECENT: usize = 16;
/// What the name of an image has that ICA-AROMA has cleaned.
const AROMA: &str = "smoothAROMAnonaggr";

/// Runs whose confounds were looked at, and how each is cleaned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunConfounds {
    pub runs: Vec<RunFiles>,
    pub confounds: ConfoundSettings,
    pub clean: CleanSettings,
    /// Volumes of every run, or of the longest.
    pub time_points: usize,
    /// How long each run is, where they are of several lengths.
    #[serde(default)]
    pub lengths: Option<RunLengths>,
    /// The bits of the number: one that was read from a header may have more digits than JSON keeps.
    t_r: Option<u64>,
    /// Volumes of each run that are kept.
    kept: Vec<KeptVolumes>,
    /// What is done, for the history of the data.
    pub description: String,
}

impl RunConfounds {
    /// Looks at the confounds of every run, several at a time, so that all faults are found and the lengths are known.
    ///
    /// # Errors
    /// A run without confounds, confounds that cannot be read or do not fit, no volume left.
    pub fn try_new(
        runs: Vec<RunFiles>,
        confounds: ConfoundSettings,
        clean: CleanSettings,
        (time_points, lengths): (usize, Option<RunLengths>),
        t_r: Option<f64>,
        stores: &SessionStores,
    ) -> Result<Self> {
        let t_r = t_r.map(f64::to_bits);
        let (kept, description) = (Vec::new(), String::new());
        let mut plan = Self { runs, confounds, clean, time_points, lengths, t_r, kept, description };
        let looked = look_at_runs(plan.runs.len(), |run| {
            let (cleaner, chosen) = plan.cleaner(run, stores)?;
            let names = || format!("{} ({})", cleaner.describe(), chosen.confounds.names.join(", "));
            let description = if run == 0 { names() } else { String::new() };
            Ok((plan.volumes(run, &cleaner)?, chosen.confounds.dropped.len(), description))
        });
        let (mut dropped, mut faults) = ((0, 0), Vec::new());
        for found in looked {
            match found {
                Ok((kept, volumes, description)) => {
                    plan.kept.push(kept);
                    plan.description += &description;
                    dropped = (dropped.0 + volumes, dropped.1 + usize::from(volumes > 0));
                }
                Err(fault) => faults.push(fault),
            }
        }
        match faults.len() {
            0 => {}
            1 => return Err(faults.remove(0)),
            _ => return Err(Error::Runs { faults }),
        }
        if plan.runs.len() > 1 {
            plan.description +=
                &format!("; this is {}, the other {} runs alike", plan.runs[0].label(), plan.runs.len() - 1);
        }
        if dropped.0 > 0 {
            plan.description += &format!("; {} volumes of {} runs dropped", dropped.0, dropped.1);
        }
        Ok(plan)
    }

    /// Points of the cleaned series, if they are the same in all runs.
    pub fn kept(&self) -> Option<usize> {
        let first = self.kept.first()?.count();
        self.kept.iter().all(|kept| kept.count() == first).then_some(first)
    }

    /// Every run, and its volumes that are kept.
    pub fn kept_of_runs(&self) -> impl Iterator<Item = ([Option<String>; RUN_COLUMNS], KeptVolumes)> {
        self.runs.iter().zip(&self.kept).map(|(run, kept)| (run.keys.clone(), kept.clone()))
    }

    /// The volumes of a run that its cleaner keeps.
    fn volumes(&self, run: usize, cleaner: &Cleaner) -> Result<KeptVolumes> {
        let mask = cleaner.sample_mask();
        KeptVolumes::of(mask.volumes(), mask.indices()).ok_or_else(|| Error::Confounds {
            run: self.runs[run].label(),
            keys: Box::new(self.runs[run].keys.clone()),
            reason: format!("{} volumes are too many", mask.volumes()),
        })
    }

    /// What cleans one run, and the confounds that it has of it.
    fn cleaner(&self, run: usize, stores: &SessionStores) -> Result<(Cleaner, Arc<Chosen>)> {
        let files = &self.runs[run];
        let wrong = |reason: String| Error::Confounds {
            run: files.label(),
            keys: Box::new(files.keys.clone()),
            reason,
        };
        if self.confounds.needs_aroma_image() && !files.image.contains(AROMA) {
            let reason = format!(
                "ica_aroma 'full' is for images that it has cleaned (desc '{AROMA}'), not for {}",
                files.image
            );
            return Err(wrong(reason));
        }
        let key = version_of_confounds(files, stores)
            .and_then(|version| serde_json::to_string(&(files, &self.confounds, version)).ok());
        let chosen = remembered(key, || self.choose(files, stores))?;
        let volumes = self.lengths.as_ref().and_then(|lengths| lengths.of_run(&files.keys));
        let volumes = volumes.unwrap_or(self.time_points);
        if chosen.volumes != volumes {
            let reason = format!(
                "{} has {} rows, but the image has {} volumes",
                files.confounds.as_deref().unwrap_or_default(),
                chosen.volumes,
                volumes
            );
            return Err(wrong(reason));
        }
        let t_r = self.t_r.map(f64::from_bits);
        let cleaner = Cleaner::try_with_confounds(&self.clean, t_r, &chosen.confounds);
        Ok((cleaner.map_err(|source| of_signal(files, source))?, chosen))
    }

    /// Reads the confounds of one run.
    fn choose(&self, files: &RunFiles, stores: &SessionStores) -> Result<Chosen> {
        let (table, components) = read_confounds(files, stores).map_err(|reason| Error::Confounds {
            run: files.label(),
            keys: Box::new(files.keys.clone()),
            reason,
        })?;
        let confounds = select_confounds(&table, &components, &self.confounds);
        let confounds = confounds.map_err(|source| of_signal(files, source))?;
        Ok(Chosen { volumes: table.volumes(), confounds })
    }
}

fn of_signal(run: &RunFiles, source: voxelflow_signal::Error) -> Error {
    Error::RunSignal { run: run.label(), keys: Box::new(run.keys.clone()), source }
}

/// Rows one after the other, and what cleans them.
pub(crate) type Stretch = (Range<usize>, Arc<RunCleaner>);

/// What cleans the rows of a run.
#[derive(Debug)]
pub(crate) struct RunCleaner {
    pub cleaner: Cleaner,
    /// What its confounds say of the run.
    pub ledger: Ledger,
}

/// Cleaners of runs, made when rows of them come: those of a thousand runs need not be in memory.
#[derive(Debug)]
pub(crate) struct RunCleaners {
    pub plan: RunConfounds,
    places: HashMap<[Option<String>; RUN_COLUMNS], usize>,
    recent: Mutex<Recent>,
    room: usize,
}

/// The newest first.
type Recent = Vec<(usize, Arc<RunCleaner>)>;

impl RunCleaners {
    pub fn new(plan: RunConfounds) -> Self {
        let places = plan.runs.iter().enumerate().map(|(place, run)| (run.keys.clone(), place)).collect();
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self { plan, places, recent: Mutex::default(), room: RECENT.max(2 * threads) }
    }

    /// Stretches of rows of one run, and what cleans them.
    ///
    /// # Errors
    /// Rows of a run that the table did not know, confounds that have changed.
    pub fn of_rows(&self, batch: &RecordBatch, stores: &SessionStores) -> Result<Vec<Stretch>> {
        let columns = run_columns(batch)?;
        let stretches = partition(&columns).map_err(|e| failed(&e))?.ranges();
        let options = FormatOptions::default();
        let names: Vec<ArrayFormatter> = columns
            .iter()
            .map(|column| ArrayFormatter::try_new(column, &options).map_err(|e| failed(&e)))
            .collect::<Result<_>>()?;
        let mut found = Vec::with_capacity(stretches.len());
        for rows in stretches {
            let mut keys: [Option<String>; RUN_COLUMNS] = Default::default();
            for (key, (column, name)) in keys.iter_mut().zip(columns.iter().zip(&names)) {
                *key = column.is_valid(rows.start).then(|| name.value(rows.start).to_string());
                *key = key.take().filter(|key| !key.is_empty());
            }
            let place = self.places.get(&keys).copied().ok_or_else(|| Error::Confounds {
                run: RunFiles { keys: keys.clone(), ..RunFiles::default() }.label(),
                keys: Box::new(keys.clone()),
                reason: "the table that is cleaned has no such run: keep its key columns as they are".into(),
            })?;
            found.push((rows, self.cleaner(place, stores)?));
        }
        Ok(found)
    }

    fn cleaner(&self, place: usize, stores: &SessionStores) -> Result<Arc<RunCleaner>> {
        if let Some(cleaner) = find(&self.recent(), place) {
            return Ok(cleaner);
        }
        // Others go on meanwhile: this may wait for a store.
        let (cleaner, chosen) = self.plan.cleaner(place, stores)?;
        if self.plan.kept.get(place) != Some(&self.plan.volumes(place, &cleaner)?) {
            let reason = "its confounds have changed since the statement was planned: run it again".into();
            let RunFiles { keys, .. } = &self.plan.runs[place];
            return Err(Error::Confounds {
                run: self.plan.runs[place].label(),
                keys: Box::new(keys.clone()),
                reason,
            });
        }
        let RunConfounds { runs, confounds, .. } = &self.plan;
        let ledger = clean_ledger::of_run(&runs[place].keys, &chosen.confounds, confounds);
        let mut recent = self.recent();
        if let Some(cleaner) = find(&recent, place) {
            return Ok(cleaner);
        }
        let cleaner = Arc::new(RunCleaner { cleaner, ledger });
        recent.truncate(self.room - 1);
        recent.insert(0, (place, Arc::clone(&cleaner)));
        Ok(cleaner)
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn find(recent: &Recent, place: usize) -> Option<Arc<RunCleaner>> {
    recent.iter().find(|(known, _)| *known == place).map(|(_, cleaner)| Arc::clone(cleaner))
}

fn run_columns(batch: &RecordBatch) -> Result<Vec<ArrayRef>> {
    let column = |name: &&'static str| {
        batch.column_by_name(name).cloned().ok_or_else(|| Error::Column {
            operator: crate::CLEAN,
            column: name,
            needed: "Utf8, to find the confounds of a row's run",
            found: "which the table lacks".into(),
            columns: batch.schema().fields().iter().map(|field| field.name().clone()).collect(),
        })
    };
    KEY_COLUMNS[..RUN_COLUMNS].iter().map(column).collect()
}

fn failed(e: &dyn std::fmt::Display) -> Error {
    Error::Confounds { run: "rows".into(), keys: Box::default(), reason: e.to_string() }
}
