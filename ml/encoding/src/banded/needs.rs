//! What a banded fit needs, beside what every fit does.

use super::STAGE;
use crate::needs::Shared;
use voxelflow_ridge::BandedSettings;
use voxelflow_ridge::plan::Workload;
use voxelflow_sync::equal_ranges;

impl Shared for BandedSettings {
    const STAGE: &'static str = STAGE;

    fn shares(of: &Workload<Self>, ranks: usize) -> Vec<usize> {
        equal_ranges(of.n_targets, ranks).iter().map(|share| share.len()).collect()
    }

    /// Decompositions, which a rank may be sent before it has its own.
    fn messages(of: &Workload<Self>, phase: &str) -> u64 {
        let k = of.n_samples.min(of.n_features) as u64;
        let decomposition = |rows: u64| k * (rows * of.precision.bytes() as u64 + 8);
        match phase {
            // Values, the basis, and the samples that a fold holds out.
            "decompositions" => decomposition(k + of.n_samples as u64 / 2),
            "coefficients" => decomposition(k),
            _ => 0,
        }
    }

    /// The prediction of every band.
    fn scored(of: &Workload<Self>) -> u64 {
        (of.settings.bands.len() * of.settings.block.min(of.n_targets) * of.precision.bytes()) as u64
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{BandedOptions, needs::FitPlan};
    use serde_json::json;
    use voxelflow_stage::{Room, SampleRun, Samples, TrainSettings};

    fn samples(runs: usize) -> Samples {
        let run = |_| SampleRun { samples: 500, ..Default::default() };
        let names = |column: &'static str, count: usize| (0..count).map(move |i| format!("{column}[{i}]"));
        Samples {
            features: names("motion", 200).chain(names("words", 100)).collect(),
            runs: (0..runs).map(run).collect(),
            groups: vec![20_000],
        }
    }

    fn plan(block: usize, ranks: usize, room: Room) -> FitPlan<BandedSettings> {
        let options = json!({"bands": {"a": "motion", "b": "words"}, "n_iter": 10, "block": block});
        let options = BandedOptions::from_options(options.as_object().unwrap()).unwrap();
        let settings = TrainSettings { ranks, ..TrainSettings::default() };
        options.plan(&samples(4), Some(&samples(1)), &settings, room).unwrap()
    }

    #[test]
    fn targets_are_read_for_some_weights_at_a_time() {
        let needs = plan(1024, 1, Room::default()).needs();
        assert_eq!(needs.read, 4 * 20_000 * ((3 + 1) * 2000 + 500));
        assert_eq!(needs.coefficients, [300, 20_000]);
        let together = plan(1024, 4, Room { ranks: 4, memory: None }).needs().memory;
        assert!(together > 2 * needs.memory, "{together} {}", needs.memory);
    }

    #[test]
    fn what_does_not_fit_is_refused_with_what_would() {
        let memory = plan(4096, 1, Room::default()).needs().memory;
        let tight = Room { ranks: 1, memory: Some(memory * 3 / 4) };
        let refused = plan(4096, 1, tight).check().unwrap_err();
        let text = refused.to_string();
        assert!(refused.is_input() && text.starts_with(STAGE), "{text}");
        let block: usize =
            text.split("blocks of ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
        plan(block, 1, tight).check().unwrap();
        plan(2 * block, 1, tight).check().unwrap_err();
    }
}
