//! From a query to runs: images that are asked for, each with what belongs to it.

use super::query::{NONE, list, value_of, values_among};
use super::role::{hemisphere, is_raw};
use super::{BidsDataset, BidsFile, BidsQuery, BidsRun, BoldKind, Part, Problem, Role, Selection, partners};
use std::collections::{BTreeMap, BTreeSet};

/// Entities that tell one run from another; by all others, images are variants of one run.
const RUN: [&str; 4] = ["sub", "ses", "task", "run"];

/// Entities of the scan itself: where a query lists several values of one, each is a run of its own. (Spaces,
/// resolutions, descriptions and echoes are the same scan again.)
const SCAN: [&str; 4] = ["acq", "ce", "rec", "dir"];

/// The runs of `dataset` that `query` asks for. Events are looked for in `raw` too, if it is given.
///
/// A run that exists in several variants (two spaces, resolutions, descriptions) is refused with the choices. Scans
/// that differ in `acq`, `ce`, `rec` or `dir` are runs of their own if `query` lists those values (`acq 'a,b'`); then
/// [`BidsRun::run`] says which: `acq-a_run-1`. One
/// whose image cannot be used is left out; one that lacks its mask, confounds or events is there without. All of this is in
/// [`Selection::problems`].
pub fn select_runs(dataset: &BidsDataset, raw: Option<&BidsDataset>, query: &BidsQuery) -> Selection {
    let mut found = Selection { runs: Vec::new(), problems: dataset.problems().to_vec() };
    let derivative = dataset.says_derivative();
    let all: Vec<&BidsFile> =
        dataset.files().filter(|file| matches!(Role::of(&file.name), Role::Bold(_))).collect();
    let images: Vec<&BidsFile> =
        all.iter().copied().filter(|file| derivative || !is_raw(&file.name)).collect();
    if images.is_empty() {
        found.problems.push(no_images(dataset, all.first().copied()));
        return found;
    }
    let chosen: Vec<&BidsFile> = images.iter().copied().filter(|file| query.accepts(&file.name)).collect();
    if chosen.is_empty() {
        found.problems.push(query.nothing_found(&images));
        return found;
    }
    let groups = groups(chosen, query);
    let ambiguous: Vec<&Vec<&BidsFile>> = groups.iter().filter(|files| is_ambiguous(files)).collect();
    found.problems.extend(choices(&ambiguous));
    let mut without_events = Vec::new();
    for files in groups.iter().filter(|files| !is_ambiguous(files)) {
        match run(dataset, raw, query, files) {
            Ok((run, problems)) => {
                if run.events.is_none() && !at_rest(&run) {
                    without_events.extend(files.first().copied());
                }
                found.runs.push(run);
                found.problems.extend(problems);
            }
            Err(problem) => found.problems.push(problem),
        }
    }
    found.problems.extend(events_problems(dataset, raw, &without_events));
    found
}

/// A query for every variant that preprocessed images of `dataset` exist in: each gives every run once at most.
pub fn variants_of(dataset: &BidsDataset) -> BTreeSet<BidsQuery> {
    let derivative = dataset.says_derivative();
    let images = dataset.files().filter(|file| derivative || !is_raw(&file.name));
    let images: Vec<(&BidsFile, BoldKind)> = images
        .filter_map(|file| match Role::of(&file.name) {
            Role::Bold(kind) => Some((file, kind)),
            _ => None,
        })
        .collect();
    let keys: BTreeSet<&str> =
        images.iter().flat_map(|(file, _)| file.name.entities().map(|(key, _)| key)).collect();
    let query = |(file, kind): &(&BidsFile, BoldKind)| {
        let apart = keys.iter().filter(|key| !RUN.contains(key) && **key != "hemi");
        apart.fold(BidsQuery::default().of_kind(*kind), |query, key| {
            query.with(key, value_of(key, &file.name).unwrap_or(NONE))
        })
    };
    images.iter().map(query).collect()
}

/// Images of one run together, in order of their paths.
fn groups<'d>(files: Vec<&'d BidsFile>, query: &BidsQuery) -> Vec<Vec<&'d BidsFile>> {
    let mut places: BTreeMap<([Option<&str>; 4], Option<String>), usize> = BTreeMap::new();
    let mut groups: Vec<Vec<&BidsFile>> = Vec::new();
    for file in files {
        let key = RUN.map(|key| {
            let value = file.name.get(key);
            // `run-1` and `run-01` are one run.
            if key == "run" { value.map(|v| v.trim_start_matches('0')) } else { value }
        });
        let key = (key, scan(file, query));
        let place = *places.entry(key).or_insert(groups.len());
        if place == groups.len() {
            groups.push(Vec::new());
        }
        groups[place].push(file);
    }
    groups
}

/// What tells scans of one run apart, where `query` lists several: `acq-a_dir-AP`.
fn scan(file: &BidsFile, query: &BidsQuery) -> Option<String> {
    let apart = SCAN.iter().filter(|key| query.lists_several(key));
    let said: Vec<String> = apart.filter_map(|key| Some(format!("{key}-{}", file.name.get(key)?))).collect();
    (!said.is_empty()).then(|| said.join("_"))
}

/// The name of a run among those of its task.
fn run_name(file: &BidsFile, query: &BidsQuery) -> Option<String> {
    let number = file.name.get("run");
    match (scan(file, query), number) {
        (Some(scan), Some(number)) => Some(format!("{scan}_run-{number}")),
        (Some(scan), None) => Some(scan),
        (None, number) => number.map(str::to_owned),
    }
}

/// Entities in which the images of one run differ, hemispheres excepted, with their values.
fn variants(files: &[&BidsFile]) -> BTreeMap<String, BTreeSet<String>> {
    let keys: BTreeSet<&str> =
        files.iter().flat_map(|file| file.name.entities().map(|(key, _)| key)).collect();
    keys.into_iter()
        .filter(|key| !RUN.contains(key) && *key != "hemi")
        .map(|key| (key.to_owned(), values_among(key, files.iter().map(|file| &file.name))))
        .filter(|(_, values)| values.len() > 1)
        .collect()
}

/// Whether the files are more than one image, or more than the hemispheres of one.
fn is_ambiguous(files: &[&BidsFile]) -> bool {
    let sides: BTreeSet<Option<&str>> = files.iter().map(|file| hemisphere(&file.name)).collect();
    files.len() > 1 && (sides.len() != files.len() || sides.contains(&None) || !variants(files).is_empty())
}

/// One problem for all runs that exist in several variants, with what can be chosen.
fn choices(ambiguous: &[&Vec<&BidsFile>]) -> Option<Problem> {
    let first = ambiguous.first()?;
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for files in ambiguous {
        for (key, values) in variants(files) {
            all.entry(key).or_default().extend(values);
        }
    }
    let names: Vec<String> = first.iter().map(|file| file.path.clone()).collect();
    let runs = match ambiguous.len() {
        1 => "1 run exists".to_owned(),
        n => format!("{n} runs exist"),
    };
    let example = format!("the first as {}", list(&names));
    let ways: Vec<String> = all
        .iter()
        .map(|(key, values)| format!("{key} is {}", list(&values.iter().cloned().collect::<Vec<_>>())))
        .collect();
    let reason = match all.iter().next() {
        Some((key, values)) => {
            let value = values.iter().next_back().cloned().unwrap_or_default();
            let ways = ways.join("; ");
            let apart = match all.iter().find(|(key, _)| SCAN.contains(&key.as_str())) {
                Some((key, values)) => {
                    let values: Vec<&str> = values.iter().map(String::as_str).collect();
                    format!(", or take them as separate runs: {key} '{}'", values.join(","))
                }
                None => String::new(),
            };
            format!(
                "{runs} in several variants ({example}): {ways}; choose, for example {key} '{value}'{apart}"
            )
        }
        None => format!("{runs} more than once ({example}): remove all but one"),
    };
    Some(Problem::refused("the dataset", reason))
}

/// A run of one image, or of two hemispheres, and what it lacks.
fn run(
    dataset: &BidsDataset,
    raw: Option<&BidsDataset>,
    query: &BidsQuery,
    files: &[&BidsFile],
) -> Result<(BidsRun, Vec<Problem>), Problem> {
    let Some(bold) = files.first() else { return Err(Problem::left_out("a run", "it has no image")) };
    let Role::Bold(kind) = Role::of(&bold.name) else {
        return Err(Problem::left_out(&bold.path, "it is no functional image"));
    };
    let Some(subject) = bold.name.get("sub") else {
        return Err(Problem::left_out(&bold.path, "its name has no `sub-`"));
    };
    if kind == BoldKind::Surface && files.len() == 1 && !query.asks_for("hemi") {
        let side = hemisphere(&bold.name).unwrap_or_default();
        let reason = format!("the other hemisphere is missing; hemi '{side}' reads this one alone");
        return Err(Problem::left_out(&bold.path, reason));
    }
    let sidecar = partners::sidecar(dataset, raw, bold)?;
    let mut problems = Vec::new();
    let mask = (kind == BoldKind::Volume).then(|| partners::mask(dataset, bold));
    let mask = mask.and_then(|mask| mask.map_err(|problem| problems.push(problem)).ok());
    let confounds = partners::confounds(dataset, bold).map_err(|problem| problems.push(problem)).ok();
    let value = |key| bold.name.get(key).map(str::to_owned);
    let mut sides: Vec<&&BidsFile> = files.iter().collect();
    sides.sort_by_key(|file| hemisphere(&file.name));
    let run = BidsRun {
        subject: subject.to_owned(),
        session: value("ses"),
        task: value("task"),
        run: run_name(bold, query),
        space: value("space"),
        kind,
        bold: sides.into_iter().map(|file| file.path.clone()).collect(),
        mask,
        confounds,
        events: partners::events(dataset, raw, bold),
        t_r: sidecar.repetition_time,
        start_time: sidecar.start_time,
    };
    Ok((run, problems))
}

fn at_rest(run: &BidsRun) -> bool {
    run.task.as_deref().is_none_or(|task| task.to_lowercase().contains("rest"))
}

/// One problem a run, or one in all where no events are known anywhere.
fn events_problems(dataset: &BidsDataset, raw: Option<&BidsDataset>, without: &[&BidsFile]) -> Vec<Problem> {
    let known = dataset.files().any(|file| Role::of(&file.name) == Role::Events);
    match without {
        [] => Vec::new(),
        [first, ..] if raw.is_none() && !known => {
            let reason = format!(
                "{} runs have no events, the first {}; they lie in the raw dataset: give it as raw",
                without.len(),
                first.path
            );
            vec![Problem::lacking(Part::Events, "the dataset", reason)]
        }
        _ => without.iter().map(|bold| partners::no_events(dataset, raw, bold)).collect(),
    }
}

/// Why there is nothing to read, and where to go.
fn no_images(dataset: &BidsDataset, raw: Option<&BidsFile>) -> Problem {
    let inside: Vec<String> = dataset.derivatives().map(str::to_owned).collect();
    let inside = match inside[..] {
        [] => String::new(),
        _ => format!(
            "; derivatives lie inside, in {}: give one of them as the location and this dataset as raw",
            list(&inside)
        ),
    };
    let reason = match raw {
        Some(raw) => format!(
            "it is a raw dataset ({}); raw images are not preprocessed here: run fMRIPrep (https://fmriprep.org) or the \
             HCP pipelines, and give the folder of their output{inside}",
            raw.path
        ),
        None if dataset.is_hcp() => {
            "it is a folder of the HCP pipelines (MNINonLinear/Results): read it as HCP".into()
        }
        None => format!(
            "it holds no preprocessed functional image, such as sub-01/func/sub-01_task-rest_space-T1w_desc-preproc_bold.nii.gz{inside}"
        ),
    };
    Problem::refused("the dataset", reason)
}
