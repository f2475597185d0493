//! `STORED AS BIDS` and `STORED AS HCP`: all runs of a folder that are asked for, as one table of series of
//! voxels, vertices or grayordinates.

use crate::bids_options::{BidsOptions, HcpOptions, Incomplete, RunImageOptions, RunKind};
use crate::mask::MaskChoice;
use crate::nifti_table::Parts;
use crate::series_file::SeriesFile;
use crate::{Error, Image, NiftiTable, Result, RunKeys, SeriesFormat, SeriesOptions, SeriesTable, Stores};
use datafusion::catalog::TableProvider;
use std::path::Path;
use std::sync::Arc;
use voxelflow_dataset::{Finding, Ledger, LedgerEntry, Level};
use voxelflow_formats::XformPolicy;
use voxelflow_formats::bids::{
    BidsDataset, BidsRun, ConfoundFiles, Effect, EventFiles as BidsEvents, Part, Problem, Root, Selection,
    select_hcp_runs, select_runs,
};
use voxelflow_stage::{EventFiles, Options, RunFiles, look_at_runs};
use voxelflow_storage::Listing;

/// Problems that one message lists.
const LISTED: usize = 10;

/// What is listed: the folder of the images, and the raw dataset beside it.
#[derive(Clone, Copy)]
struct Folders<'f> {
    images: &'f Listing,
    raw: Option<&'f Listing>,
}

/// The runs of a folder of BIDS derivatives; `location` is a path or a URL.
///
/// # Errors
/// An unknown option; a folder that cannot be listed; no run, or runs that exist in several variants; runs that
/// cannot be used, unless they are skipped; images (or masks) of different grids, lengths or repetition times.
pub(crate) fn bids_table(
    location: &str,
    options: &Options,
    stores: &Stores,
) -> Result<Arc<dyn TableProvider>> {
    let options = BidsOptions::parse(options)?;
    let listing = stores.list(location)?;
    let raw_listing = options.raw.as_deref().map(|raw| stores.list(raw)).transpose()?;
    let read = |path: &str| listing.read_text(path);
    let read_raw = |path: &str| raw_text(raw_listing.as_ref(), path);
    let dataset = BidsDataset::new(listing.paths(), &read);
    let raw = raw_listing.as_ref().map(|raw| BidsDataset::new(raw.paths(), &read_raw));
    let found = select_runs(&dataset, raw.as_ref(), &options.query());
    let folders = Folders { images: &listing, raw: raw_listing.as_ref() };
    table_of_kind(location, folders, found, &options.images, stores)
}

/// The runs of a folder of the HCP pipelines; `location` is a path or a URL.
///
/// # Errors
/// As [`bids_table`].
pub(crate) fn hcp_table(
    location: &str,
    options: &Options,
    stores: &Stores,
) -> Result<Arc<dyn TableProvider>> {
    let options = HcpOptions::parse(options)?;
    if options.images.kind == RunKind::Surface {
        let reason = "the HCP pipelines write surfaces as grayordinates: give kind 'grayordinates'".into();
        return Err(Error::Location { location: location.into(), reason });
    }
    let listing = stores.list(location)?;
    let found = select_hcp_runs(listing.paths(), &options.query());
    table_of_kind(location, Folders { images: &listing, raw: None }, found, &options.images, stores)
}

fn table_of_kind(
    location: &str,
    folders: Folders,
    found: Selection,
    options: &RunImageOptions,
    stores: &Stores,
) -> Result<Arc<dyn TableProvider>> {
    Ok(match options.kind {
        RunKind::Volume => Arc::new(table(location, folders, found, options, stores)?),
        RunKind::Surface => {
            Arc::new(series_table(SeriesFormat::Gifti, location, folders, found, options, stores)?)
        }
        RunKind::Grayordinates => {
            Arc::new(series_table(SeriesFormat::Cifti, location, folders, found, options, stores)?)
        }
    })
}

/// Surfaces and grayordinates, which have no mask.
fn series_table(
    format: SeriesFormat,
    location: &str,
    folders: Folders,
    found: Selection,
    options: &RunImageOptions,
    stores: &Stores,
) -> Result<SeriesTable> {
    let refuse = |reason: String| Err(Error::Location { location: location.into(), reason });
    if !matches!(options.mask(), "brain" | "none") {
        return refuse(format!("mask '{}' is for volumes: without it every vertex is read", options.mask()));
    }
    if options.volumes.compute() {
        return refuse(
            "smoothing_fwhm, target and atlas of a folder are for its volumes; surfaces are smoothed in a table of \
             their files, STORED AS GIFTI"
                .into(),
        );
    }
    if options.volumes.xform != XformPolicy::default() {
        return refuse("xform chooses a transform of volumes; leave it out".into());
    }
    let (runs, mut left_out) = usable(location, found, options.incomplete, false)?;
    let (runs, series) = looked_at(runs, &mut left_out, options.incomplete, |run| {
        let look = |bold: &String| {
            let (keys, t_r) = (RunKeys::from(run), options.t_r.or(run.t_r));
            SeriesFile::of_run(&folders.images.location_of(bold), format, keys, t_r, stores)
        };
        run.bold.iter().map(look).collect::<Result<Vec<_>>>()
    })?;
    let series: Vec<SeriesFile> = series.into_iter().flatten().collect();
    let (t_r, memory_limit) = (options.t_r, options.memory_limit);
    let reading = SeriesOptions { t_r, memory_limit, ..SeriesOptions::default() };
    let runs = runs.iter().map(|run| files(run, folders)).collect();
    let table = SeriesTable::of_files(location, series, reading, runs, history(&left_out), stores)?;
    Ok(table.with_ledger(told(&left_out)))
}

/// A text of the raw dataset, if there is one.
pub(crate) fn raw_text(raw: Option<&Listing>, path: &str) -> std::io::Result<String> {
    raw.ok_or(std::io::ErrorKind::NotFound)?.read_text(path)
}

fn table(
    location: &str,
    folders: Folders,
    found: Selection,
    options: &RunImageOptions,
    stores: &Stores,
) -> Result<NiftiTable> {
    let brain = MaskChoice::parse(options.mask())? == MaskChoice::Brain;
    let (runs, mut left_out) = usable(location, found, options.incomplete, brain)?;
    let (runs, images) = looked_at(runs, &mut left_out, options.incomplete, |run| {
        let bold = folders.images.location_of(run.bold.first().map_or("", String::as_str));
        let mask = run.mask.as_ref().filter(|_| brain).map(|mask| folders.images.location_of(mask));
        let (t_r, xform) = (options.t_r.or(run.t_r), options.volumes.xform);
        if let (Incomplete::Skip, Some(mask)) = (options.incomplete, &mask) {
            // Else it is opened when all grids are known.
            stores.open_image(mask, xform)?;
        }
        Image::of_run(&bold, RunKeys::from(run), t_r, mask, xform, stores)
    })?;
    NiftiTable::of_images(Parts {
        location: location.into(),
        images,
        options: options.for_reading(),
        runs: runs.iter().map(|run| files(run, folders)).collect(),
        ledger: told(&left_out),
        history: history(&left_out),
        stores: stores.clone(),
    })
}

/// Looks at `runs`, several at a time: those that can be read, and what was found of each. Where incomplete runs are
/// skipped, the others are `left_out`: files that cannot be opened, or that are damaged.
///
/// # Errors
/// What is wrong with each run; where they are skipped, what is no fault of the files, or that none is left.
fn looked_at<T: Send>(
    runs: Vec<BidsRun>,
    left_out: &mut Vec<Problem>,
    incomplete: Incomplete,
    look: impl Fn(&BidsRun) -> Result<T> + Sync,
) -> Result<(Vec<BidsRun>, Vec<T>)> {
    let looked = look_at_runs(runs.len(), |number| look(&runs[number]));
    let (mut kept, mut all, mut faults) = (Vec::new(), Vec::new(), Vec::new());
    for (run, found) in runs.into_iter().zip(looked) {
        match found {
            Ok(found) => {
                kept.push(run);
                all.push(found);
            }
            Err(fault) => faults.push((run, fault)),
        }
    }
    let skipped = incomplete == Incomplete::Skip
        && !kept.is_empty()
        && faults.iter().all(|(_, fault)| fault.is_input());
    if skipped {
        let problem = |(run, fault): (BidsRun, Error)| Problem {
            effect: Effect::LeftOut,
            about: run.bold.into_iter().next().unwrap_or_default(),
            reason: fault.to_string(),
        };
        left_out.extend(faults.into_iter().map(problem));
        return Ok((kept, all));
    }
    let mut faults: Vec<Error> = faults.into_iter().map(|(_, fault)| fault).collect();
    match faults.len() {
        0 => Ok((kept, all)),
        1 => Err(faults.remove(0)),
        _ => Err(Error::Images { faults }),
    }
}

/// The runs that can be read, and what was left out and why.
///
/// # Errors
/// Problems that forbid to go on, or that leave out runs where none may be.
fn usable(
    location: &str,
    found: Selection,
    incomplete: Incomplete,
    brain: bool,
) -> Result<(Vec<BidsRun>, Vec<Problem>)> {
    let refused: Vec<String> = found.refusals().map(text).collect();
    if !refused.is_empty() {
        return Err(Error::Location { location: location.into(), reason: refused.join("; ") });
    }
    let lacks_mask = |problem: &Problem| brain && problem.effect == Effect::Lacking(Part::Mask);
    let left_out: Vec<&Problem> = found
        .problems
        .iter()
        .filter(|problem| problem.effect == Effect::LeftOut || lacks_mask(problem))
        .collect();
    let runs: Vec<BidsRun> = found.runs.into_iter().filter(|run| !brain || run.mask.is_some()).collect();
    if (incomplete == Incomplete::Refuse || runs.is_empty()) && !left_out.is_empty() {
        return Err(Error::Location { location: location.into(), reason: all_faults(&left_out, brain) });
    }
    let left_out = left_out.into_iter().cloned().collect();
    Ok((runs, left_out))
}

/// What was left out, for the history of the data.
fn history(left_out: &[Problem]) -> Vec<String> {
    left_out.iter().map(|problem| format!("left out: {problem}")).collect()
}

/// What was left out, for the ledger.
fn told(left_out: &[Problem]) -> Ledger {
    let entry = |problem: &Problem| {
        let run = RunKeys::of(Path::new(&problem.about)).run();
        LedgerEntry::of_run(run, Level::Run, Finding::Dropped, problem.to_string(), 1)
    };
    left_out.iter().map(entry).collect()
}

/// A problem, without saying again that it is about the whole folder.
fn text(problem: &Problem) -> String {
    match problem.about.as_str() {
        "the dataset" | "the folder" => problem.reason.clone(),
        _ => problem.to_string(),
    }
}

fn all_faults(problems: &[&Problem], brain: bool) -> String {
    let more = problems.len().saturating_sub(LISTED);
    let listed: Vec<String> = problems.iter().take(LISTED).map(|problem| text(problem)).collect();
    let more = if more == 0 { String::new() } else { format!("; and {more} more") };
    let masks = if brain { ", mask 'auto' or 'none' does without brain masks" } else { "" };
    format!("{}{more}; incomplete 'skip' leaves such runs out{masks}", listed.join("; "))
}

fn files(run: &BidsRun, folders: Folders) -> RunFiles {
    let listing = folders.images;
    let (confounds, sidecars) = match &run.confounds {
        Some(ConfoundFiles::Table { path, sidecars }) => (Some(path), sidecars.as_slice()),
        Some(ConfoundFiles::MovementRegressors(path)) => (Some(path), &[][..]),
        None => (None, &[][..]),
    };
    let events = run.events.as_ref().map(|events| match events {
        BidsEvents::Table(file) => EventFiles::Table(match (file.root, folders.raw) {
            (Root::Raw, Some(raw)) => raw.location_of(&file.path),
            _ => listing.location_of(&file.path),
        }),
        BidsEvents::ThreeColumns(files) => EventFiles::ThreeColumns(
            files.iter().map(|(name, path)| (name.clone(), listing.location_of(path))).collect(),
        ),
    });
    RunFiles {
        keys: RunKeys::from(run).run(),
        image: run.bold.first().map(|path| listing.location_of(path)).unwrap_or_default(),
        confounds: confounds.map(|path| listing.location_of(path)),
        confounds_sidecars: sidecars.iter().map(|path| listing.location_of(path)).collect(),
        events,
        start_time: run.start_time,
        cleaned: false,
    }
}
