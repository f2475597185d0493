//! Whole gangs in one thread and in simulated time: coordinator, members, replicas and trainers, with delays, lost
//! connections, crashes, restarts, silent pauses, cuts of the network and late arrivals, all from one seed.
//!
//! ```text
//!   seed ─► Plan (gang, data, faults) ─► World: queue of events by time ─► invariants
//! ```
//! The model counts: a sample's gradient is −1 at the sample's place, and the update is SGD with rate 1 on the sum, so
//! that each parameter says how often its sample was trained on. In sync mode that must be once an epoch, exactly,
//! also in every checkpoint on the way.
//!
//! A failing seed is printed; `VOXELFLOW_SIMULATION_SEED=17 cargo test -p voxelflow-sync simulation -- --nocapture`
//! runs it alone and tells what happens.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod plan;
mod process;
mod trainer;
mod world;

use plan::Plan;
use world::World;

/// Runs one seed; panics where a promise is broken.
fn run(seed: u64, plan: &Plan, trace: bool) -> world::Summary {
    let mut world = World::new(seed, plan.clone(), trace);
    world.run();
    world.summary()
}

/// Seeds, or the one of the environment; `VOXELFLOW_SIMULATION_SEEDS` says how many instead.
fn seeds(range: std::ops::Range<u64>) -> (Vec<u64>, bool) {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    match (number("VOXELFLOW_SIMULATION_SEED"), number("VOXELFLOW_SIMULATION_SEEDS")) {
        (Some(seed), _) => (vec![seed], true),
        (None, Some(seeds)) => ((0..seeds).collect(), false),
        (None, None) => (range.collect(), false),
    }
}

/// Runs all seeds of a kind of plan; tells the first that fails.
fn run_all(kind: fn(u64) -> Plan, range: std::ops::Range<u64>) -> Vec<world::Summary> {
    let (seeds, trace) = seeds(range);
    let run_one = |seed| {
        let plan = kind(seed);
        let result = std::panic::catch_unwind(|| run(seed, &plan, trace));
        result.unwrap_or_else(|panic| {
            eprintln!("VOXELFLOW_SIMULATION_SEED={seed} fails; its plan: {plan:?}");
            std::panic::resume_unwind(panic)
        })
    };
    seeds.into_iter().map(run_one).collect()
}

#[test]
fn simulation_without_faults_finishes() {
    for summary in run_all(Plan::calm, 0..300) {
        assert!(summary.finished, "{summary:?}");
        assert!(summary.views <= summary.late + 1, "{summary:?}");
    }
}

#[test]
fn simulation_counts_every_sample_once() {
    let summaries = run_all(Plan::stormy, 0..3000);
    let finished = summaries.iter().filter(|summary| summary.finished).count();
    let views: u64 = summaries.iter().map(|summary| summary.views).sum();
    let kills: u64 = summaries.iter().map(|summary| summary.kills).sum();
    let lost: u64 = summaries.iter().map(|summary| summary.states_lost).sum();
    for summary in summaries.iter().filter(|summary| !summary.finished) {
        eprintln!("seed {}: {}", summary.seed, summary.failure);
    }
    eprintln!(
        "{} gangs, {finished} finished; {views} views, {kills} crashes, {lost} times all holders of a shard lost",
        summaries.len()
    );
    assert!(
        summaries.len() == 1 || finished * 10 >= summaries.len() * 8,
        "{finished} of {} finish",
        summaries.len()
    );
}

#[test]
fn simulation_of_asynchronous_gangs_loses_no_sample() {
    let summaries = run_all(Plan::asynchronous, 0..1000);
    let finished = summaries.iter().filter(|summary| summary.finished).count();
    assert!(
        summaries.len() == 1 || finished * 10 >= summaries.len() * 8,
        "{finished} of {} finish",
        summaries.len()
    );
}

#[test]
fn simulation_of_a_lost_driver_leaves_a_checkpoint() {
    let summaries = run_all(Plan::without_driver, 0..300);
    let cut_short = summaries.iter().filter(|summary| !summary.finished && summary.views > 0).count();
    let rescues = summaries.iter().filter(|summary| summary.rescues > 0).count();
    assert!(
        summaries.len() == 1 || rescues * 10 >= cut_short * 7,
        "{rescues} of {cut_short} leave a checkpoint"
    );
}
