//! What belongs to a functional image: its mask, its confounds, its events, its timing.

use super::run::{ConfoundFiles, EventFiles, Located, Part, Root};
use super::{BidsDataset, BidsFile, Problem, Role};
use crate::{Error, sidecar::Sidecar};

/// Entities of an image that its mask lacks.
const NOT_IN_MASK: [&str; 5] = ["desc", "echo", "part", "hemi", "variant"];
/// Entities of an image that its confounds lack: those of the grid, and what the image was made of.
const NOT_IN_CONFOUNDS: [&str; 9] =
    ["space", "cohort", "res", "den", "hemi", "desc", "echo", "part", "variant"];
/// Candidates that a message lists.
const LISTED: usize = 3;

/// The brain mask on the grid of `bold`.
pub(super) fn mask(dataset: &BidsDataset, bold: &BidsFile) -> Result<String, Problem> {
    let rule = "a brain mask has the entities of the image (space and res too) and desc-brain_mask";
    beside(dataset, bold, (Part::Mask, "brain mask"), Role::BrainMask, &NOT_IN_MASK, rule)
        .map(|file| file.path.clone())
}

/// The confounds of the run of `bold`.
pub(super) fn confounds(dataset: &BidsDataset, bold: &BidsFile) -> Result<ConfoundFiles, Problem> {
    let rule = "a confounds file has the entities of the run, without space and res, and \
                desc-confounds_timeseries.tsv (earlier desc-confounds_regressors.tsv or bold_confounds.tsv)";
    let file =
        beside(dataset, bold, (Part::Confounds, "confounds file"), Role::Confounds, &NOT_IN_CONFOUNDS, rule)?;
    let sidecars = dataset.sidecars_of(&file.name, file.folder());
    Ok(ConfoundFiles::Table {
        path: file.path.clone(),
        sidecars: sidecars.into_iter().map(|sidecar| sidecar.path.clone()).collect(),
    })
}

/// The one file of a role in the folder of `bold` that has all its entities but those in `lacks`.
fn beside<'d>(
    dataset: &'d BidsDataset,
    bold: &BidsFile,
    (part, what): (Part, &str),
    role: Role,
    lacks: &[&str],
    rule: &str,
) -> Result<&'d BidsFile, Problem> {
    let fits = |file: &&BidsFile| {
        Role::of(&file.name) == role
            && file.name.says_no_more_than(&bold.name, |key| key != "desc")
            && bold.name.says_no_more_than(&file.name, |key| !lacks.contains(&key))
    };
    let found: Vec<&BidsFile> = dataset.in_folder(bold.folder()).iter().filter(fits).collect();
    match found[..] {
        [file] => Ok(file),
        [] => {
            let near = candidates(dataset, bold, role, lacks);
            Err(Problem::lacking(part, &bold.path, format!("no {what}: {rule}; {near}")))
        }
        _ => {
            let names: Vec<String> = found.iter().map(|file| file.name.to_string()).collect();
            Err(Problem::lacking(
                part,
                &bold.path,
                format!("more than one {what}: {}; remove all but one", names.join(", ")),
            ))
        }
    }
}

/// Files of a role that are most like what `bold` needs, and in what they differ.
fn candidates(dataset: &BidsDataset, bold: &BidsFile, role: Role, lacks: &[&str]) -> String {
    let subject = bold.folder().split('/').next().unwrap_or_default();
    let mut found: Vec<(Vec<&str>, &BidsFile)> = dataset
        .under(subject)
        .filter(|file| Role::of(&file.name) == role)
        .map(|file| {
            let mut keys = file.name.differences(&bold.name);
            keys.retain(|key| *key != "desc" && (file.name.get(key).is_some() || !lacks.contains(key)));
            (keys, file)
        })
        .collect();
    found.sort_by_key(|(keys, file)| (keys.len(), file.path.clone()));
    if found.is_empty() {
        return format!("there is none in {}", if subject.is_empty() { "the dataset" } else { subject });
    }
    let more = found.len().saturating_sub(LISTED);
    let listed: Vec<String> = found
        .iter()
        .take(LISTED)
        .map(|(keys, file)| match keys[..] {
            [] => format!("{} (in another folder)", file.path),
            _ => format!("{} (other {})", file.name, keys.join(", ")),
        })
        .collect();
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("nearest: {}{more}", listed.join(", "))
}

/// Events of the run of `bold`: of those that apply, the nearest to the image, in the raw dataset first.
pub(super) fn events(
    dataset: &BidsDataset,
    raw: Option<&BidsDataset>,
    bold: &BidsFile,
) -> Option<EventFiles> {
    let in_root = |dataset: &BidsDataset, root| {
        let found = dataset.inherited(&bold.name, bold.folder(), |file| Role::of(&file.name) == Role::Events);
        found.last().map(|file| EventFiles::Table(Located { root, path: file.path.clone() }))
    };
    raw.and_then(|raw| in_root(raw, Root::Raw)).or_else(|| in_root(dataset, Root::Dataset))
}

/// Why a run has no events.
pub(super) fn no_events(dataset: &BidsDataset, raw: Option<&BidsDataset>, bold: &BidsFile) -> Problem {
    let near = candidates(raw.unwrap_or(dataset), bold, Role::Events, &NOT_IN_CONFOUNDS);
    let rule = "an events file has entities of the run and lies in its folder or above";
    Problem::lacking(Part::Events, &bold.path, format!("no events: {rule}; {near}"))
}

/// What the sidecars of an image say, and those of its raw image where they do not say how long a volume takes.
pub(super) fn sidecar(
    dataset: &BidsDataset,
    raw: Option<&BidsDataset>,
    bold: &BidsFile,
) -> Result<Sidecar, Problem> {
    let fault = |e: Error| Problem::left_out(&bold.path, format!("a sidecar of it cannot be used: {e}"));
    let mut sidecar = dataset.sidecar(&bold.name, bold.folder()).map_err(fault)?;
    if sidecar.repetition_time.is_none() {
        let raw = raw.unwrap_or(dataset).sidecar(&bold.name.as_raw(), bold.folder()).map_err(fault)?;
        sidecar.repetition_time = raw.repetition_time;
        sidecar.volume_timing = sidecar.volume_timing.or(raw.volume_timing);
    }
    if sidecar.repetition_time.is_none() && sidecar.volume_timing.is_some() {
        let reason = "VolumeTiming says that its volumes were not taken at regular times, which series need";
        return Err(Problem::left_out(&bold.path, reason));
    }
    Ok(sidecar)
}
