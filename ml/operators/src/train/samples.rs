//! Which samples a fit has, and where the series of its targets lie: from the keys of the spooled rows and the runs of
//! the features.

use super::{
    row_order::{Known, Origin},
    spool::Spool,
};
use crate::{
    Result,
    features::{FeatureRun, Features, refused, run_name},
};
use arrow::datatypes::Schema;
use std::cmp::Ordering;
use voxelflow_dataset::RunKey;
use voxelflow_stage::{KEY_COLUMNS, KeptVolumes, RunVolumes, SampleRun, Samples, Segments, run_index};

/// Targets of one subject in one space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TargetGroup {
    pub subject: Option<String>,
    pub space: Option<String>,
    /// Their voxels, ascending.
    pub voxels: Vec<u32>,
}

/// The samples, the features' runs in their order, and who the targets are.
#[derive(Clone, Debug)]
pub(super) struct Gathered {
    pub samples: Samples,
    /// Numbers of the features' runs.
    pub order: Vec<usize>,
    pub groups: Vec<TargetGroup>,
}

/// The rows of one run of a group.
struct RunRows<'a> {
    origin: &'a Origin,
    /// Points of the series.
    points: usize,
    first: usize,
    rows: &'a [Known],
}

/// What the schema of the series says of their runs.
#[derive(Clone, Debug)]
pub(super) struct RunMetadata {
    /// Where runs lie in series that were joined.
    segments: Option<Segments>,
    /// Which volumes they have.
    volumes: Option<RunVolumes>,
}

impl RunMetadata {
    /// # Errors
    /// Metadata that cannot be read.
    pub fn of(schema: &Schema) -> Result<Self> {
        Ok(Self { segments: Segments::of(schema)?, volumes: RunVolumes::of(schema)? })
    }
}

/// Puts `spool` and `features` together.
///
/// # Errors
/// Voxels that some run lacks, runs without features, runs of another length than their features.
pub(super) fn gather(spool: &Spool, runs: &RunMetadata, features: &Features) -> Result<Gathered> {
    if spool.known.len() != spool.rows() {
        return Err(refused("the series have no column `voxel`, which tells the targets apart"));
    }
    let mut groups: Vec<(TargetGroup, Vec<RunRows<'_>>)> = Vec::new();
    let mut first = 0;
    for rows in spool.known.chunk_by(|a, b| a.origin == b.origin) {
        let Some((origin, points)) = rows.first().and_then(|row| {
            let number = row.origin as usize;
            Some((spool.origins.get(number)?, *spool.points.get(number)?))
        }) else {
            continue;
        };
        let run = RunRows { origin, points, first, rows };
        first += rows.len();
        let (subject, space) = (origin.key()[0].clone(), origin.space().map(str::to_owned));
        match groups.iter_mut().find(|(group, _)| group.subject == subject && group.space == space) {
            Some((_, runs)) => runs.push(run),
            None => {
                let voxels = rows.iter().map(|row| row.voxel).collect();
                groups.push((TargetGroup { subject, space, voxels }, vec![run]));
            }
        }
    }
    for (group, runs) in &mut groups {
        same_voxels(group, runs)?;
        runs.sort_by(|a, b| in_time(a.origin, b.origin));
    }
    let Some((_, lead)) = groups.first() else { return Err(refused("there are no series")) };
    for (_, runs) in &groups {
        same_runs(lead, runs)?;
    }
    let whole = [None];
    let named: Vec<Option<(&str, std::ops::Range<usize>)>> =
        runs.segments.iter().flat_map(|s| s.ranges().map(Some)).collect();
    let pieces = if named.is_empty() { &whole } else { named.as_slice() };
    let volumes = runs.volumes.as_ref();
    let (mut runs, mut order) = (Vec::new(), Vec::new());
    for (at, run) in lead.iter().enumerate() {
        for piece in pieces {
            let number = features_of(features, &groups, at, piece.as_ref().map(|(name, _)| *name))?;
            let (key, label) = (run.origin.key(), piece.as_ref().map(|(name, _)| *name));
            let name = match label {
                Some(label) => format!("{}, run {label}", run_name(&key)),
                None => run_name(&key),
            };
            let points = piece.as_ref().map_or(run.points, |(_, range)| range.len());
            let Some(own) = features.runs.get(number) else { return Err(refused("there are none")) };
            let run = SampleRun {
                samples: points,
                offset: piece.as_ref().map_or(0, |(_, range)| range.start),
                first_rows: groups.iter().map(|(_, runs)| runs[at].first).collect(),
                stimulus: own.stimulus.clone(),
                kept: volumes_of(volumes, &groups, at, label)?.cloned(),
                features_cut: own.kept.is_some(),
                name,
            };
            same_volumes(&run, own)?;
            runs.push(run);
            order.push(number);
        }
    }
    let sizes = groups.iter().map(|(group, _)| group.voxels.len()).collect();
    let samples = Samples { features: features.names.clone(), runs, groups: sizes };
    Ok(Gathered { samples, order, groups: groups.into_iter().map(|(group, _)| group).collect() })
}

/// Every run of a group has the group's voxels, each once.
fn same_voxels(group: &TargetGroup, runs: &[RunRows<'_>]) -> Result<()> {
    if let Some(twice) = group.voxels.windows(2).find(|pair| pair[0] == pair[1]) {
        let run = runs.first().map(|run| run_name(&run.origin.key())).unwrap_or_default();
        return Err(refused(format!("the series of voxel {} are there twice in {run}", twice[0])));
    }
    for run in runs {
        let own = run.rows.iter().map(|row| row.voxel);
        if own.clone().eq(group.voxels.iter().copied()) {
            continue;
        }
        let own: Vec<u32> = own.collect();
        let odd = group.voxels.iter().find(|voxel| own.binary_search(voxel).is_err());
        let more = own.iter().find(|voxel| group.voxels.binary_search(voxel).is_err());
        let (name, first) = (run_name(&run.origin.key()), runs.first().map(|r| run_name(&r.origin.key())));
        let (voxel, lacks) = match (odd, more) {
            (Some(voxel), _) => (voxel, name),
            (None, Some(voxel)) => (voxel, first.unwrap_or_default()),
            (None, None) => return Err(refused(format!("a voxel is there twice in {name}"))),
        };
        return Err(refused(format!(
            "{lacks} lacks voxel {voxel}, which another run has: fit the voxels that all runs have, with voxels => \
             'intersection' in WITH, or give one mask"
        )));
    }
    Ok(())
}

/// Every group has the same runs.
fn same_runs(lead: &[RunRows<'_>], runs: &[RunRows<'_>]) -> Result<()> {
    let name = |run: &RunRows<'_>| run.origin.key();
    let beside = |a: &RunKey, b: &RunKey| a[1..] == b[1..];
    let lacking = |of: &[RunRows<'_>], by: &[RunRows<'_>]| {
        of.iter().find(|run| !by.iter().any(|other| beside(&name(run), &name(other)))).map(name)
    };
    let Some(run) = lacking(lead, runs).or_else(|| lacking(runs, lead)) else {
        let other = lead.iter().zip(runs).find(|(a, b)| a.points != b.points);
        return other.map_or(Ok(()), |(a, b)| {
            let (first, second) = (run_name(&a.origin.key()), run_name(&b.origin.key()));
            Err(refused(format!(
                "{first} has series of {} points, {second} of {}: a model is of targets with the same samples; train a \
                 model for each subject, with WHERE subject = '…'",
                a.points, b.points
            )))
        });
    };
    Err(refused(format!(
        "{} has no counterpart in another subject or space: a model is of targets with the same samples; train a model \
         for each subject, with WHERE subject = '…'",
        run_name(&run)
    )))
}

/// The volumes that the series of run number `at` have in every group; none where they have all.
fn volumes_of<'v>(
    volumes: Option<&'v RunVolumes>,
    groups: &[(TargetGroup, Vec<RunRows<'_>>)],
    at: usize,
    label: Option<&str>,
) -> Result<Option<&'v KeptVolumes>> {
    let Some(volumes) = volumes else { return Ok(None) };
    let of = |runs: &[RunRows<'_>]| volumes.find(|run| is_of(&runs[at].origin.key(), label, [true; 4], run));
    let mut each = groups.iter().map(|(_, runs)| (of(runs), runs[at].origin.key()));
    let Some((first, lead)) = each.next() else { return Ok(None) };
    match each.find(|(own, _)| *own != first) {
        None => Ok(first),
        Some((_, other)) => Err(refused(format!(
            "{} and {} have lost different volumes: targets of one model have the same samples; train a model for each \
             subject, with WHERE subject = '…'",
            run_name(&lead),
            run_name(&other)
        ))),
    }
}

/// Features are of the volumes that the series have, or of all of their run.
fn same_volumes(run: &SampleRun, features: &FeatureRun) -> Result<()> {
    let (name, points, found) = (&run.name, run.samples, features.samples);
    let reason = match &run.kept {
        Some(kept) if kept.count() != points => format!(
            "{name} has series of {points} points, but {} of its volumes were kept: take the series as clean left them",
            kept.count()
        ),
        kept if features.kept.is_some() && features.kept != *kept => format!(
            "{name} has features of other volumes than its series: make the design of the table that is trained on, or of \
             the one from which no volumes were dropped"
        ),
        Some(kept) if found != run.feature_rows() => format!(
            "{name} has {found} samples of features, and its image {} volumes, of which the series have {points}: give a \
             row of features for every volume of the image; those of dropped volumes are left out",
            kept.stored()
        ),
        None if found != points => format!(
            "{name} has {found} samples of features, and series of {points} points: give a row of features for every \
             volume"
        ),
        _ => return Ok(()),
    };
    Err(refused(reason))
}

/// The features' run for run number `at` of every group.
fn features_of(
    features: &Features,
    groups: &[(TargetGroup, Vec<RunRows<'_>>)],
    at: usize,
    label: Option<&str>,
) -> Result<usize> {
    let mut found: Option<usize> = None;
    for (_, runs) in groups {
        let key = runs[at].origin.key();
        let matching = |run: &&FeatureRun| is_of(&key, label, features.keys, &run.key);
        let mut all = features.runs.iter().enumerate().filter(|(_, run)| matching(run));
        let name = run_name(&key) + &label.map(|label| format!(", run {label}")).unwrap_or_default();
        let Some((number, own)) = all.next() else {
            let there: Vec<String> = features.runs.iter().take(10).map(|run| run_name(&run.key)).collect();
            return Err(refused(format!("there are none for {name}; they are of {}", there.join("; "))));
        };
        if let Some((_, other)) = all.next() {
            return Err(refused(format!(
                "both {} and {} are features for {name}: choose one of them with WHERE",
                run_name(&own.key),
                run_name(&other.key)
            )));
        }
        match found.and_then(|before| features.runs.get(before)) {
            None => found = Some(number),
            Some(before) if before.values == own.values => {}
            Some(before) => {
                return Err(refused(format!(
                    "those of {} and of {} differ: targets of one model have the same features; train a model for each \
                     subject, with WHERE subject = '…'",
                    run_name(&before.key),
                    run_name(&own.key)
                )));
            }
        }
    }
    found.ok_or_else(|| refused("there are no series"))
}

/// Whether features of the run `features` are those of the run `series`, of which `label` is one of several that were
/// joined. A column that the table of features lacks says that they are the same for all of its values. A lab may have
/// written down run `01` where the table has `1`.
fn is_of(series: &RunKey, label: Option<&str>, there: [bool; 4], features: &RunKey) -> bool {
    let index = |at: usize, text: &str| match KEY_COLUMNS[at] {
        "run" => run_index(text).into_owned(),
        _ => text.to_owned(),
    };
    let mut rest = Vec::new();
    for (at, (series, features)) in series.iter().zip(features).enumerate().filter(|(at, _)| there[*at]) {
        let features = features.as_deref().map(|key| index(at, key));
        match series {
            Some(series) if features != Some(index(at, series)) => return false,
            Some(_) => {}
            None => rest.extend(features),
        }
    }
    let label = label.map(|label| match label.rsplit_once('/') {
        Some((before, run)) if there[3] => format!("{before}/{}", run_index(run)),
        None if there[3] => run_index(label).into_owned(),
        _ => label.to_owned(),
    });
    label.is_none_or(|label| rest.join("/") == label || rest.is_empty())
}

/// Runs by session, task and run, numbers by their value.
fn in_time(a: &Origin, b: &Origin) -> Ordering {
    let (a, b) = (a.key(), b.key());
    let number = |text: &Option<String>| text.as_ref().and_then(|text| text.parse::<u64>().ok());
    let mut each = a.iter().zip(&b).map(|(a, b)| match (number(a), number(b)) {
        (Some(x), Some(y)) => x.cmp(&y).then_with(|| a.cmp(b)),
        _ => a.cmp(b),
    });
    each.find(|order| *order != Ordering::Equal).unwrap_or(Ordering::Equal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(values: [&str; 4]) -> RunKey {
        values.map(|value| (!value.is_empty()).then(|| value.to_owned()))
    }

    #[test]
    fn features_are_of_a_run_by_the_keys_that_they_have() {
        let run = key(["01", "", "film", "2"]);
        let only_run = [false, false, false, true];
        assert!(is_of(&run, None, only_run, &key(["", "", "", "2"])));
        assert!(!is_of(&run, None, only_run, &key(["", "", "", "3"])));
        assert!(is_of(&run, None, only_run, &key(["", "", "", "02"])));
        assert!(!is_of(&run, None, [true, false, false, true], &key(["1", "", "", "2"])));
        assert!(is_of(&run, None, [true, false, false, true], &key(["01", "", "", "2"])));
        assert!(!is_of(&run, None, [true, false, false, true], &key(["02", "", "", "2"])));
        // Of runs that were joined.
        let joined = key(["01", "", "film", ""]);
        assert!(is_of(&joined, Some("2"), only_run, &key(["", "", "", "2"])));
        assert!(!is_of(&joined, Some("1"), only_run, &key(["", "", "", "2"])));
        assert!(is_of(&joined, Some("02"), only_run, &key(["", "", "", "2"])));
        let sessions = key(["01", "", "film", ""]);
        assert!(is_of(&sessions, Some("a/1"), [false, true, false, true], &key(["", "a", "", "1"])));
    }
}
