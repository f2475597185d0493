//! Everything that is known of a training before it runs.

use crate::{
    Error, Result, SeriesColumn,
    features::{self, FeatureTable},
    series_column::UNKNOWN,
    train::GangMember,
};
use datafusion::{
    common::tree_node::TreeNodeRecursion, error::Result as PlanResult, logical_expr::LogicalPlan,
};
use serde::{Deserialize, Serialize};
use std::{fmt, ops::Range, path::PathBuf};
use voxelflow_dataset::TrainRequest;
use voxelflow_stage::{
    Estimator, Lineage, Options, RunVolumes, Segments, StageKind, TrainSettings, parse_options,
};
use voxelflow_sync::Topology;

/// What becomes of a subject with rows to train on and rows to validate on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SubjectOverlap {
    /// An error when more than one subject is trained on: the validation loss would be that of a subject
    /// already seen. With one subject its voxels or runs are split, and the loss says how well unseen ones are met;
    /// a series that is in both is an error.
    #[default]
    Auto,
    /// An error.
    Error,
    /// No error as long as no run is in both: validation across the runs of subjects that are seen.
    OtherRuns,
    /// No error.
    Allow,
}

/// What becomes of voxels that some run lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunVoxels {
    /// An error: all runs of a subject have the same voxels.
    #[default]
    Equal,
    /// They are left out: a model is of the voxels that all runs have, held-out ones too.
    Intersection,
}

/// The settings of `WITH (…)`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TrainOptions {
    /// Settings of the loop and of the gang.
    #[serde(flatten)]
    pub settings: TrainSettings,
    /// What becomes of a subject with rows to train on and rows to validate on.
    pub subject_overlap: SubjectOverlap,
    /// What becomes of voxels that some run lacks, of a stage that explains series.
    pub voxels: RunVoxels,
    /// Where the gang runs, and what it needs there.
    #[serde(flatten)]
    pub gang: GangOptions,
}

/// Where the gang of a training runs, and what it needs there. None of it changes what is trained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GangOptions {
    /// Folder or URL that rows are spooled to, which all ranks must see; if not given, beside the model, or, where
    /// the ranks are threads of this process, the session's folder for temporary files.
    pub spool: Option<String>,
    /// With so many ranks a training begins where there is no room for all; the others join when there is. With fewer
    /// it waits. If not given, it begins with all, and goes on with any. A ring needs all.
    pub min_ranks: Option<usize>,
    /// Times that a rank may be started anew after its machine has failed it.
    pub max_rank_restarts: u32,
    /// Pool of executors that ranks run on; any if not given.
    pub pool: Option<String>,
    /// Queue whose share of the cluster is used; the job's if not given.
    pub queue: Option<String>,
    /// Memory of each rank in MiB; 0: not counted.
    pub memory_mib: u64,
    /// Accelerator cards of each rank.
    pub cards: u32,
    /// Seconds that the gang may wait for room on the cluster, and for a scheduler that is lost.
    pub gang_deadline_seconds: f64,
}

impl Default for GangOptions {
    fn default() -> Self {
        Self {
            spool: None,
            min_ranks: None,
            max_rank_restarts: 3,
            pool: None,
            queue: None,
            memory_mib: 0,
            cards: 0,
            gang_deadline_seconds: 600.0,
        }
    }
}

/// A training that has been checked: names, options and the length of the series fit.
#[derive(Debug)]
pub struct TrainJob {
    /// The model's name.
    pub model: String,
    /// The folder that will hold the model.
    pub folder: PathBuf,
    /// The configured stage.
    pub estimator: Box<dyn Estimator>,
    /// Options of the stage as they were written.
    pub options: Options,
    /// Settings of the loop and of the gang.
    pub settings: TrainSettings,
    /// What becomes of a subject with rows to train on and rows to validate on.
    pub subject_overlap: SubjectOverlap,
    /// What becomes of voxels that some run lacks.
    pub voxels: RunVoxels,
    /// Where the gang runs, and what it needs there.
    pub gang: GangOptions,
    /// Models that the rows of this training go through, and what those were trained on.
    pub upstream: Lineage,
    /// The column to learn from.
    pub column: SeriesColumn,
    /// Parameters of the model.
    pub parameters: usize,
}

impl GangOptions {
    /// Memory of each rank; 0: not counted.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_mib << 20
    }

    fn check(&self, settings: &TrainSettings) -> Result<()> {
        let (least, seconds) = (self.min_ranks.unwrap_or(1), self.gang_deadline_seconds);
        if least == 0 || least > settings.ranks {
            let most = settings.ranks;
            return Err(refused(
                "min_ranks",
                format!("must be 1 to {most}, the number of ranks, got {least}"),
            ));
        }
        if settings.sync.topology == Topology::Ring && self.min_ranks.is_some_and(|n| n < settings.ranks) {
            return Err(refused("min_ranks", "a ring needs all its ranks; leave it out".into()));
        }
        if settings.sync.topology == Topology::Ring
            && self.max_rank_restarts != Self::default().max_rank_restarts
        {
            let reason = "a ring that loses a rank fails, and none is started anew; leave it out";
            return Err(refused("max_rank_restarts", reason.into()));
        }
        if !(seconds > 0.0 && seconds.is_finite()) {
            return Err(refused("gang_deadline_seconds", format!("must be above 0, got {seconds}")));
        }
        Ok(())
    }
}

fn refused(option: &str, reason: String) -> Error {
    voxelflow_stage::Error::OptionValue { what: TRAIN.into(), option: option.to_owned(), reason }.into()
}

/// Settings that mean something to a stage whose ranks add up what they know, instead of taking steps.
const FOR_EXPLAINING: [&str; 16] = [
    "ranks",
    "device",
    "seed",
    "deterministic",
    "deadline_seconds",
    "hold_seconds",
    "heartbeat_seconds",
    "heartbeat_timeout_seconds",
    "subject_overlap",
    "voxels",
    "spool",
    "pool",
    "queue",
    "memory_mib",
    "cards",
    "gang_deadline_seconds",
];

/// The settings of a gang whose ranks talk to each other.
fn for_explaining(stage: &str, given: &Options) -> Result<Options> {
    // Unknown names are refused as always.
    let known = |name: &String| {
        parse_options::<TrainOptions>(TRAIN, &Options::from_iter([(name.clone(), given[name].clone())]))
    };
    for name in given.keys().filter(|name| !FOR_EXPLAINING.contains(&name.as_str())) {
        known(name)?;
        let (mine, ring) = (name.as_str(), given[name].as_str() == Some("ring"));
        if mine == "topology" && ring {
            continue;
        }
        let reason = format!("means nothing to {stage}, which takes no steps; leave it out");
        return Err(refused(name, reason));
    }
    let mut settings = given.clone();
    settings.insert("topology".into(), "ring".into());
    Ok(settings)
}

/// Features are there exactly where the stage explains, and are of a form that can be read.
fn check_features(estimator: &dyn Estimator, request: &TrainRequest) -> Result<()> {
    let stage = estimator.stage();
    match (&request.features, estimator.explains()) {
        (Some(features), true) => FeatureTable::find(features.schema().as_arrow()).map(drop),
        (None, false) => Ok(()),
        (None, true) => Err(features::refused(format!(
            "{stage} explains series by features: write FEATURES (SELECT …) after ON, or FEATURES design(…)"
        ))),
        (Some(_), false) => {
            Err(features::refused(format!("{stage} learns from series alone; leave FEATURES out")))
        }
    }
}

/// A design has as many samples as the series that it explains, where both are told by their tables and no volumes were
/// dropped from the series.
fn check_samples(features: &LogicalPlan, rows: &LogicalPlan, series: &SeriesColumn) -> Result<()> {
    let rows = rows.schema().as_arrow();
    let points = match Segments::of(rows)? {
        Some(segments) => Some(segments.time_points),
        None => Some(series.time_points).filter(|points| series.lengths.is_none() && *points != UNKNOWN),
    };
    let points = if RunVolumes::of(rows)?.is_some() { None } else { points };
    match (FeatureTable::find(features.schema().as_arrow())?.time_points(), points) {
        (Some(found), Some(points)) if found != points => Err(features::refused(format!(
            "the design has {found} samples of a run, and the series have {points} points: give a row of features for every \
             volume"
        ))),
        _ => Ok(()),
    }
}

/// Whether two plans give the same rows: they are alike, and nothing in them is left to chance.
fn same_rows(a: &LogicalPlan, b: &LogicalPlan) -> PlanResult<bool> {
    if a != b {
        return Ok(false);
    }
    let mut chance = false;
    a.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            chance |= expr.is_volatile();
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(!chance)
}

/// Settings that a training may be gone on with changed: none of them is part of what a sample does to the model.
const MAY_CHANGE: [&str; 10] = [
    "ranks",
    "device",
    "checkpoint_every",
    "checkpoint_steps",
    "checkpoint_keep",
    "parameter_servers",
    "deadline_seconds",
    "hold_seconds",
    "heartbeat_seconds",
    "heartbeat_timeout_seconds",
];

/// Name of the operator in messages.
pub(crate) const TRAIN: &str = "TRAIN MODEL";

impl TrainJob {
    /// Checks `request` against the stage that it names.
    ///
    /// # Errors
    /// An option or setting that is unknown or cannot work, rows without series, series of a length that does
    /// not fit, validation rows of another length.
    pub fn try_new(kind: &dyn StageKind, request: &TrainRequest, upstream: Lineage) -> Result<Self> {
        let estimator = kind.estimator(&request.options)?;
        if let Some(column) = request.settings.get("per") {
            return Err(Error::Per { stage: kind.name().to_owned(), column: column.to_string() });
        }
        let settings = match estimator.explains() {
            true => for_explaining(estimator.stage(), &request.settings)?,
            false => request.settings.clone(),
        };
        let TrainOptions { settings, subject_overlap, voxels, gang } = parse_options(TRAIN, &settings)?;
        settings.validate()?;
        gang.check(&settings)?;
        if let Some((name, reason)) =
            settings.without_effect().into_iter().find(|(name, _)| request.settings.contains_key(*name))
        {
            return Err(refused(name, reason));
        }
        // Runs that features explain may be of several lengths.
        let explains = estimator.explains();
        if voxels != RunVoxels::default() && !explains {
            let reason =
                format!("is of models that features explain: {} takes every row; leave it out", kind.name());
            return Err(refused("voxels", reason));
        }
        estimator.check_validation(request.validation.is_some())?;
        let find = if explains { SeriesColumn::find_of_runs } else { SeriesColumn::find };
        let column = find(TRAIN, request.train.schema().as_arrow())?;
        if let Some(validation) = &request.validation {
            let found = find("VALIDATE ON", validation.schema().as_arrow())?;
            if found.time_points != column.time_points && !explains {
                return Err(Error::ValidationLength {
                    found: found.time_points,
                    expected: column.time_points,
                });
            }
        }
        check_features(&*estimator, request)?;
        if let Some(features) = &request.features {
            check_samples(features, &request.train, &column)?;
        }
        if let Some(validation) = &request.validation
            && subject_overlap != SubjectOverlap::Allow
            && same_rows(&request.train, validation).unwrap_or(false)
        {
            return Err(Error::SameRows);
        }
        estimator.check(column.time_points, &settings)?;
        let parameters = estimator.parameters(column.time_points);
        Ok(Self {
            model: request.model.clone(),
            folder: request.folder.clone(),
            estimator,
            options: request.options.clone(),
            settings,
            subject_overlap,
            voxels,
            gang,
            upstream,
            column,
            parameters,
        })
    }

    /// The ranks and the parameter shards, as a plan shows them; a stage that explains has ranks only.
    pub fn members(&self) -> Vec<GangMember> {
        let (ranks, sync) = (self.settings.ranks, &self.settings.sync);
        let shards: Vec<Range<usize>> = match sync.topology {
            Topology::ParameterService => sync.shards(self.parameters, ranks),
            Topology::Ring => Vec::new(),
        };
        let ring = sync.topology == Topology::Ring;
        let ranks = (0..ranks).map(|rank| GangMember::Rank { rank, world: ranks, ring });
        ranks
            .chain(shards.into_iter().enumerate().map(|(shard, range)| GangMember::shard(shard, range)))
            .collect()
    }

    /// What distinguishes this training from another one on the same rows.
    pub(crate) fn identity(&self) -> String {
        self.identity_with(&serde_json::to_string(&self.settings).unwrap_or_default())
    }

    /// What distinguishes it from trainings that may go on from its checkpoints: these may have another number of
    /// ranks, compute elsewhere, keep other checkpoints, and wait for longer or shorter.
    pub(crate) fn lineage(&self) -> String {
        self.identity_with(&lasting(&self.settings))
    }

    fn identity_with(&self, settings: &str) -> String {
        let options = serde_json::Value::Object(self.options.clone());
        let (overlap, voxels) = (self.subject_overlap, self.voxels);
        format!(
            "{} {} {options} {settings} {overlap:?} {voxels:?} {}",
            self.model,
            self.estimator.stage(),
            self.folder.display()
        )
    }
}

/// The settings that a training cannot be gone on with changed.
fn lasting(settings: &TrainSettings) -> String {
    let mut settings = serde_json::to_value(settings).unwrap_or_default();
    if let Some(settings) = settings.as_object_mut() {
        settings.retain(|name, _| !MAY_CHANGE.contains(&name.as_str()));
    }
    settings.to_string()
}

/// One line, for plans.
impl fmt::Display for TrainJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sync = &self.settings.sync;
        let name = |value: serde_json::Result<serde_json::Value>| {
            value.ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default()
        };
        write!(f, "model={} stage={}", self.model, self.estimator.stage())?;
        if self.estimator.explains() {
            // It takes no steps, and how many coefficients it has follows from its targets.
            write!(f, " ranks={}", self.settings.ranks)?;
        } else {
            write!(
                f,
                " parameters={} ranks={} topology={} consistency={} optimizer={}",
                thousands(self.parameters),
                self.settings.ranks,
                name(serde_json::to_value(sync.topology)),
                name(serde_json::to_value(sync.consistency)),
                name(serde_json::to_value(sync.optimizer.optimizer)),
            )?;
        }
        write!(f, " series={}[{}]", self.column.name, self.column.time_points)?;
        match self.settings.device.as_str() {
            "cpu" => Ok(()),
            cards => write!(f, " device={cards}"),
        }
    }
}

/// `1652341` as `1,652,341`.
fn thousands(n: usize) -> String {
    let digits = n.to_string();
    let first = digits.len() % 3;
    let separated = digits.char_indices().map(|(i, c)| {
        let comma = i > 0 && i % 3 == first;
        if comma { format!(",{c}") } else { c.to_string() }
    });
    separated.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_training_goes_on_with_other_ranks_and_devices_but_not_with_another_seed() {
        let settings = TrainSettings::default();
        let moved = TrainSettings { ranks: 3, device: "cuda:0,1".into(), ..settings.clone() };
        assert_eq!(lasting(&moved), lasting(&settings));
        assert_ne!(
            lasting(&TrainSettings { seed: settings.seed + 1, ..settings.clone() }),
            lasting(&settings)
        );
    }

    #[test]
    fn numbers_are_grouped_by_thousands() {
        let texts = [0, 12, 999, 1_000, 65_536, 1_652_341].map(thousands);
        assert_eq!(texts, ["0", "12", "999", "1,000", "65,536", "1,652,341"]);
    }
}
