//! Trainings that go on where they were, when whoever directs them has died.

use crate::{
    cluster_by_hand::Cluster,
    counting::{Counting, checkpoints_in},
    processes::{Running, wait_for},
    program::{program, root},
};
use rustix::process::{Signal, kill_process};
use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

#[test]
fn a_restarted_driver_goes_on_at_once_also_with_another_number_of_ranks() {
    let counting = Counting::new(8, "ranks => 2");
    let cluster = Cluster::with(3);
    let mut run = counting.start(&cluster.flags());
    run.wait_for_epoch(2);
    kill_process(run.pid(), Signal::KILL).unwrap();
    let (status, _) = run.end();
    assert!(!status.success());
    // Its ranks would wait for it for a minute: their slots are needed now.
    counting.set("ranks => 3");
    let mut again = counting.start(&cluster.flags());
    let pause = again.next_epoch();
    println!("training went on {pause:?} after the restart");
    assert!(pause < Duration::from_secs(8), "{pause:?}");
    assert!(!again.began_anew(), "{:?}", again.seen);
    again.succeed();
    counting.assert_every_series_once_an_epoch();
    assert_eq!(counting.gang().len(), 3);
}

#[test]
fn ranks_leave_a_driver_that_stays_away_with_a_checkpoint_and_for_good() {
    let counting = Counting::new(
        100_000,
        "ranks => 2, checkpoint_every => 0, checkpoint_steps => 100000, hold_seconds => 5",
    );
    let cluster = Cluster::with(2);
    let mut run = counting.start(&cluster.flags());
    run.wait_for_epoch(1);
    let job = counting.job();
    assert_eq!((cluster.slots_used(), counting.checkpoints()), (2, Vec::new()));
    kill_process(run.pid(), Signal::KILL).unwrap();
    let since = Instant::now();
    run.end();
    wait_for("the slots to be free", || (cluster.slots_used() == 0).then_some(()));
    println!("the ranks had left {:?} after their driver", since.elapsed());
    // They hold out for as long as they were told, and are not started again to wait anew.
    assert!(since.elapsed() > Duration::from_secs(4), "{:?}", since.elapsed());
    assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
    cluster.job("the job to be over", |listed| listed["id"] == job && listed["phase"] != "running");
    assert!(!counting.checkpoints().is_empty(), "what was reached is kept");
}

#[test]
fn a_scheduler_that_is_started_again_is_given_the_training_again() {
    let counting = Counting::new(30, "ranks => 2");
    let mut cluster = Cluster::with(2);
    let mut run = counting.start(&cluster.flags());
    run.wait_for_epoch(2);
    cluster.restart_scheduler();
    run.wait_for_epoch(29);
    let begun_anew = run.seen.iter().filter(|line| line.contains("\"epoch\":0,")).count();
    assert_eq!(begun_anew, 1, "{:?}", run.seen);
    run.succeed();
    counting.assert_every_series_once_an_epoch();
}

/// A hundred steps of a small autoencoder, with equal sums everywhere.
fn hundred_steps() -> String {
    format!(
        "CREATE EXTERNAL TABLE bold STORED AS NIFTI LOCATION '{}' OPTIONS (mask 'auto', subject '01');
         CREATE TABLE series AS SELECT * FROM clean(bold, detrend => true, standardize => 'zscore_sample');
         TRAIN MODEL dca USING dist_dca (hidden => 8, filters => [16, 32], kernels => [9, 5], pools => 1)
           ON series WITH (ranks => 2, minibatch => 32, epochs => 1000, max_steps => 100, checkpoint_steps => 10,
                           learning_rate => 0.01, seed => 1, deterministic => true);",
        root().join("examples/data/ds003_sub-01_mc.nii.gz").display()
    )
}

#[test]
fn a_hundred_steps_are_fifty_a_kill_and_fifty_more() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("p.vf");
    fs::write(&file, hundred_steps()).unwrap();
    let cluster = Cluster::with(2);
    let run = |out: &Path, flags: &[String]| {
        let mut command = program("voxelflow");
        command.args(["--json", "run"]).arg(&file).arg("--out").arg(out).args(flags);
        Running::start(command)
    };
    // Undisturbed, in one process: `deterministic` promises the same there.
    let (undisturbed, out) = (folder.path().join("undisturbed"), folder.path().join("out"));
    run(&undisturbed, &[]).succeed();

    let mut killed = run(&out, &cluster.flags());
    let models = out.join("models");
    wait_for("fifty steps", || checkpoints_in(&models).last().filter(|round| **round >= 50).map(drop));
    kill_process(killed.pid(), Signal::KILL).unwrap();
    let (status, said) = killed.end();
    assert!(!status.success(), "it ended before it was killed: {said}");
    run(&out, &cluster.flags()).succeed();

    let weights = |out: &Path| fs::read(out.join("models/dca/model.safetensors")).unwrap();
    assert!(weights(&out) == weights(&undisturbed), "the weights differ");
    let history = fs::read(models.join("dca/history.json")).unwrap();
    let history: serde_json::Value = serde_json::from_slice(&history).unwrap();
    assert_eq!(history["steps"].as_array().unwrap().len(), 100, "each step is told once");
}
