//! What a fit needs of a process, before it runs: the solver's plan for each rank's share of the targets, and what
//! ranks hold beside it.

use crate::{
    message::PIECE,
    options::{Baseline, EncodingOptions, Precision, RidgeCvOptions, STAGE},
    repeats::TrainingRepeats,
    shares::Costs,
};
use voxelflow_ridge::plan::{FitSettings, PlannedPhase, Precision as Width, Rates, Workload};
use voxelflow_ridge::{RidgeSettings, Score};
use voxelflow_stage::{Error, Needs, Result, Room, Samples};
use voxelflow_sync::equal_ranges;

/// A fit whose targets are dealt out to ranks.
pub(crate) trait Shared: FitSettings {
    /// Name of the stage.
    const STAGE: &'static str;
    /// Targets of each rank.
    fn shares(of: &Workload<Self>, ranks: usize) -> Vec<usize>;
    /// Bytes of what ranks send each other in a phase.
    fn messages(of: &Workload<Self>, phase: &str) -> u64;
    /// Bytes that scores of a held-out sample take, beside those that all fits have.
    fn scored(of: &Workload<Self>) -> u64;
}

/// A fit and its gang, by their sizes.
pub(crate) struct FitPlan<S = RidgeSettings> {
    /// Of all targets.
    workload: Workload<S>,
    /// Samples that are held out.
    held_out: usize,
    /// Samples of training runs that are looked at once more, for what their repeats have in common.
    repeated: usize,
    permutations: usize,
    baseline: Option<Baseline>,
    /// Points of the series as they are read.
    points: usize,
    /// Ranks of the gang.
    ranks: usize,
    room: Room,
}

/// What a process holds that has read tables and found out what to fit, before any rank has begun; measured.
const PROGRAM: u64 = 72 << 20;
/// A fit that takes less than about so many seconds is not worth the second that it takes to measure this machine.
const WORTH_MEASURING: f64 = 30.0;

impl FitPlan {
    /// Of `ridge_cv`.
    ///
    /// # Errors
    /// Folds that the samples do not allow.
    pub fn of(
        RidgeCvOptions { encoding: options, baseline }: &RidgeCvOptions,
        samples: &Samples,
        held_out: Option<&Samples>,
        ranks: usize,
        room: Room,
    ) -> Result<Self> {
        let settings = options.settings(samples)?;
        let own = Self::new(options, settings, samples, held_out, ranks, room);
        let own = Self { baseline: *baseline, ..own };
        // Where all targets fit, in the basis of the features, they need not be read again.
        let settings = RidgeSettings { read_once: true, ..own.workload.settings.clone() };
        let once = Workload { settings, ..own.workload.clone() };
        Ok(if own.fits(&once) { Self { workload: once, ..own } } else { own })
    }
}

impl<S: Shared> FitPlan<S> {
    /// Of a stage with these options and settings of its solver.
    pub fn new(
        options: &EncodingOptions,
        settings: S,
        samples: &Samples,
        held_out: Option<&Samples>,
        ranks: usize,
        room: Room,
    ) -> Self {
        let workload = Workload {
            n_samples: samples.count(),
            n_features: options.n_features(samples.features.len()),
            n_targets: samples.targets(),
            precision: match options.precision {
                Precision::F32 => Width::F32,
                Precision::F64 => Width::F64,
            },
            settings,
        };
        // Runs that were joined lie in series of all their points.
        let points = samples.runs.iter().map(|run| run.offset + run.samples).max().unwrap_or(0);
        let repeats = TrainingRepeats::of(samples, held_out).ok().flatten();
        let repeated = repeats.map_or(0, |repeats| repeats.count());
        let (held_out, permutations) = (held_out.map_or(0, Samples::count), options.permutations);
        let (ranks, baseline) = (ranks.max(1), None);
        Self { workload, held_out, repeated, permutations, baseline, points, ranks, room }
    }

    /// The settings of the solver.
    pub fn into_settings(self) -> S {
        self.workload.settings
    }

    fn fits(&self, workload: &Workload<S>) -> bool {
        self.room.memory.is_none_or(|memory| self.memory(workload) <= memory)
    }

    /// Refuses what does not fit into the process.
    ///
    /// # Errors
    /// It says what would fit.
    pub fn check(&self) -> Result<()> {
        let Some(memory) = self.room.memory else { return Ok(()) };
        if self.fits(&self.workload) {
            return Ok(());
        }
        let needed = self.memory(&self.workload);
        let Workload { n_samples, n_features, n_targets, .. } = self.workload;
        let way_out = self.workload.what_fits(&|other| self.fits(other));
        let ranks = match self.room.ranks {
            1 => String::new(),
            ranks => format!(" in {ranks} ranks of one process"),
        };
        let mib = |bytes: u64| bytes.div_ceil(1 << 20);
        let reason = format!(
            "{n_samples} samples, {n_features} features and {n_targets} targets need {} MiB{ranks}, and {} MiB are \
             given; {way_out} (options block and precision), or give more memory (--memory)",
            mib(needed),
            mib(memory)
        );
        Err(Error::Data { what: S::STAGE.into(), reason })
    }

    /// What it needs; measures this machine where that matters.
    pub fn needs(&self) -> Needs {
        let seconds = match self.seconds(&Rates::about()) {
            short if short < WORTH_MEASURING => short,
            _ => self.seconds(&Rates::measure(self.workload.largest_eigen())),
        };
        Needs {
            coefficients: [self.workload.n_features, self.workload.n_targets],
            memory: self.memory(&self.workload),
            card_memory: 0,
            read: 4
                * (self.workload.passes() as usize * self.workload.n_samples + self.held_out + self.repeated)
                    as u64
                * self.workload.n_targets as u64,
            seconds,
        }
    }

    fn seconds(&self, rates: &Rates) -> f64 {
        let (models, targets) = match self.baseline {
            None => (1, self.workload.n_targets),
            Some(Baseline::BMor) => (self.ranks, self.workload.n_targets.div_ceil(self.ranks)),
            Some(Baseline::Mor) => (self.workload.n_targets, 1),
        };
        let plan = Workload { n_targets: targets, ..self.workload.clone() }.plan(rates);
        let of = |phase: &PlannedPhase| format!("{} {:.2} s", phase.name, phase.seconds);
        log::info!("planned for one rank: {}", plan.phases.iter().map(of).collect::<Vec<_>>().join(", "));
        // Every rank makes all that is of the features alone. The rest is dealt out; ranks of one process share its cores.
        let features = plan.phases.first().map_or(0.0, |phase| phase.seconds);
        let processes = (self.ranks / self.room.ranks.max(1)).max(1) as f64;
        features + (models as f64 * plan.seconds - features) / processes
    }

    /// The most that a process holds: its ranks together.
    fn memory(&self, of: &Workload<S>) -> u64 {
        let rank = |targets: usize| self.rank_memory(&Workload { n_targets: targets, ..of.clone() });
        let mut ranks: Vec<u64> = self.targets(of).into_iter().map(rank).collect();
        ranks.sort_unstable_by(|a, b| b.cmp(a));
        PROGRAM + ranks.iter().take(self.room.ranks.max(1)).sum::<u64>()
    }

    /// Of each rank.
    fn targets(&self, of: &Workload<S>) -> Vec<usize> {
        match self.baseline {
            None => S::shares(of, self.ranks),
            Some(Baseline::Mor) => vec![1; self.ranks],
            Some(Baseline::BMor) => {
                equal_ranges(of.n_targets, self.ranks).iter().map(|share| share.len()).collect()
            }
        }
    }

    /// Of one rank: as its solver's plan says, and what the stage holds.
    fn rank_memory(&self, of: &Workload<S>) -> u64 {
        let [n, p, held] = [of.n_samples, of.n_features, self.held_out].map(|size| size as u64);
        let block = of.settings.block().min(of.n_targets) as u64;
        let width = of.precision.bytes() as u64;
        // Series as they are read.
        let read = 4 * block * self.points as u64;
        let others = u64::from(self.ranks > 1);
        let repeats = match self.repeated {
            0 => 0,
            repeated => block * (repeated * TrainingRepeats::BYTES + 4 * self.points) as u64,
        };
        let beside = |phase: &str| match phase {
            "features" | "decompositions" => 0,
            "penalties" => read,
            // Coefficients as they are written; held-out features, series, and predictions in each rearrangement. After
            // them, repeats among the training runs.
            _ => {
                let own = S::scored(of) + 8 * self.permutations as u64;
                let scored = p * width + block * (8 + 2 * width) + own;
                (read + 2 * p * block * width + held * scored).max(repeats)
            }
        };
        let phases = S::phases(of);
        let messages = |phase: &str| others * S::messages(of, phase);
        let bytes = phases.iter().map(|phase| phase.bytes + beside(phase.name) + messages(phase.name));
        // Those who fit one piece after the other centre a copy for each.
        let whole = if self.baseline.is_some() { n * p * width } else { 0 };
        bytes.max().unwrap_or(0) + whole
    }
}

impl Shared for RidgeSettings {
    const STAGE: &'static str = STAGE;

    fn shares(of: &Workload, ranks: usize) -> Vec<usize> {
        let folds = of.folds().len();
        let [n, p, alphas] = [of.n_samples, of.n_features, of.settings.alphas.len()];
        let shared = !of.settings.alpha_per_target && of.settings.score != Score::Pearson;
        let costs = Costs {
            n: n as f64,
            p: p as f64,
            v: n.min(p) as f64,
            alphas: alphas as f64,
            folds,
            without_predictions: shared && folds == 0,
            wide: 8.0 / of.precision.bytes() as f64,
        };
        let shares = costs.shares(of.n_targets, ranks);
        shares.into_iter().map(|share| share.len()).collect()
    }

    fn messages(of: &Workload, phase: &str) -> u64 {
        let [n, p, alphas] = [of.n_samples, of.n_features, of.settings.alphas.len()].map(|size| size as u64);
        let (k, width) = (n.min(p), of.precision.bytes() as u64);
        match phase {
            // Some columns of the Gram matrix, and a decomposition that is sent to a rank before it has its own.
            "decompositions" => 4 * PIECE as u64 + width * k * (n + p),
            "penalties" => 8 * (k * (k + 1) / 2 + (alphas + 1) * n),
            _ => 0,
        }
    }

    fn scored(_of: &Workload) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;
    use voxelflow_stage::SampleRun;

    fn samples(runs: usize) -> Samples {
        let run = |_| SampleRun { samples: 500, ..Default::default() };
        Samples {
            features: vec![String::new(); 300],
            runs: (0..runs).map(run).collect(),
            groups: vec![20_000],
        }
    }

    fn plan(options: serde_json::Value, ranks: usize, room: Room) -> FitPlan {
        let options = RidgeCvOptions::from_options(options.as_object().unwrap()).unwrap();
        FitPlan::of(&options, &samples(4), Some(&samples(1)), ranks, room).unwrap()
    }

    #[test]
    fn ranks_of_one_process_add_up() {
        let needs = |ranks, together| {
            plan(json!({"cv": "run"}), ranks, Room { ranks: together, memory: None }).needs()
        };
        let (one, apart, together) = (needs(1, 1), needs(4, 1), needs(4, 4));
        assert!(apart.memory < one.memory + (64 << 20) && apart.memory > one.memory / 4, "{apart} {one}");
        let rank = apart.memory - PROGRAM;
        let both = together.memory - PROGRAM;
        assert!(both > 3 * rank && both <= 4 * rank, "{together} {apart}");
        assert_eq!(one.read, 4 * 20_000 * (2000 + 500));
        assert_eq!(one.coefficients, [300, 20_000]);
    }

    #[test]
    fn what_does_not_fit_is_refused_with_what_would() {
        let tight = Room { ranks: 1, memory: Some(PROGRAM + (100 << 20)) };
        let reason = plan(json!({"cv": "run", "block": 4096}), 1, tight).check().unwrap_err();
        assert!(reason.is_input(), "{reason}");
        let text = reason.to_string();
        let block: usize =
            text.split("blocks of ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
        plan(json!({"cv": "run", "block": block}), 1, tight).check().unwrap();
        plan(json!({"cv": "run", "block": 2 * block}), 1, tight).check().unwrap_err();
        let two = Room { ranks: 2, ..tight };
        let text = plan(json!({"cv": "run", "block": block}), 2, two).check().unwrap_err().to_string();
        assert!(text.contains("in 2 ranks of one process"), "{text}");
        plan(json!({"cv": "run"}), 1, Room::default()).check().unwrap();
    }
}
