//! Training on executors: the same files as in one process, and what it promises when processes of the gang die, with
//! real processes and real signals.

use crate::{
    cluster_by_hand::Cluster,
    counting::Counting,
    program::{Ended, files_below, program, root},
};
use rustix::process::{Signal, kill_process};
use std::{collections::BTreeMap, fs, path::Path, time::Duration};

/// In so much time training goes on after a loss.
const PROMISE: Duration = Duration::from_secs(5);

#[test]
fn four_ranks_on_four_executors_count_every_series_once_an_epoch() {
    let counting = Counting::new(3, "ranks => 4");
    counting.start(&["--executors", "4", "--slots", "1"]).succeed();
    counting.assert_every_series_once_an_epoch();
}

#[test]
fn a_killed_executor_costs_no_sample() {
    let counting = Counting::new(6, "ranks => 4, min_ranks => 2");
    let mut run = counting.start(&["--executors", "4", "--slots", "1"]);
    run.wait_for_epoch(1);
    kill_process(run.parts("executor")[2], Signal::KILL).unwrap();
    run.wait_for("goes on from version", PROMISE);
    println!("the next epoch ended {:?} later", run.next_epoch());
    run.succeed();
    counting.assert_every_series_once_an_epoch();
}

#[test]
fn a_lost_rank_is_placed_again_where_there_is_room() {
    let counting = Counting::new(30, "ranks => 2");
    let mut run = counting.start(&["--executors", "3", "--slots", "1"]);
    run.wait_for_epoch(1);
    let lost = counting.members().into_iter().find(|member| member.number == 1).unwrap();
    kill_process(lost.pid(), Signal::KILL).unwrap();
    run.wait_for("ranks 0, 1 train", PROMISE);
    println!("the next epoch ended {:?} later", run.next_epoch());
    run.succeed();
    counting.assert_every_series_once_an_epoch();
    assert_eq!(counting.ranks_at_end(), 2);
}

#[test]
fn a_training_says_with_how_many_ranks_it_ended() {
    let counting = Counting::new(10, "ranks => 2");
    let mut run = counting.start(&["--executors", "2", "--slots", "1"]);
    run.wait_for_epoch(1);
    let lost = counting.members().into_iter().find(|member| member.number == 1).unwrap();
    kill_process(lost.pid(), Signal::KILL).unwrap();
    let said = run.succeed();
    counting.assert_every_series_once_an_epoch();
    assert_eq!(counting.ranks_at_end(), 1);
    assert!(said.contains("1 of 2 ranks"), "{said}");
}

#[test]
fn an_executor_that_hangs_is_left_behind_and_taken_in_when_it_comes_back() {
    let counting = Counting::new(30, "ranks => 3, min_ranks => 2");
    let mut run = counting.start(&["--executors", "3", "--slots", "1"]);
    run.wait_for_epoch(1);
    let hung = run.parts("executor")[1];
    kill_process(hung, Signal::STOP).unwrap();
    run.wait_for("goes on from version", PROMISE);
    println!("the next epoch ended {:?} later", run.next_epoch());
    kill_process(hung, Signal::CONT).unwrap();
    run.wait_for("ranks 0, 1, 2 train", PROMISE);
    run.succeed();
    counting.assert_every_series_once_an_epoch();
}

#[test]
fn a_killed_holder_of_shards_costs_no_update() {
    let counting = Counting::new(6, "ranks => 2, parameter_servers => 2");
    let mut run = counting.start(&["--executors", "4", "--slots", "1"]);
    run.wait_for_epoch(1);
    let members = counting.members();
    let holder = members.iter().find(|member| !member.trains).unwrap();
    assert!(members.iter().all(|m| m.number == holder.number || m.pid != holder.pid), "{members:?}");
    kill_process(holder.pid(), Signal::KILL).unwrap();
    run.wait_for("goes on from version", PROMISE);
    println!("the next epoch ended {:?} later", run.next_epoch());
    run.succeed();
    counting.assert_every_series_once_an_epoch();
}

/// Example 01 with equal sums everywhere.
fn deterministic_example() -> tempfile::NamedTempFile {
    let text = fs::read_to_string(root().join("examples/01_autoencoder.vf")).unwrap();
    let deterministic = text.replace("seed => 1)", "seed => 1, deterministic => true)");
    assert_ne!(text, deterministic, "the example's settings end with its seed");
    let file = tempfile::Builder::new().suffix(".vf").tempfile().unwrap();
    fs::write(file.path(), deterministic).unwrap();
    file
}

/// What a run has written, but for times, paths and processes.
fn results(out: &Path) -> Vec<(String, Vec<u8>)> {
    let told = ["gang.json", "history.json", "report.html", "voxelflow.json"];
    let files = files_below(out).into_iter().filter(|f| !told.iter().any(|name| f.ends_with(name)));
    files.map(|f| (f.clone(), fs::read(out.join(f)).unwrap())).collect()
}

/// Fails unless every process of the gang has trained and sent.
#[track_caller]
fn assert_all_worked(model: &Path, processes: usize) {
    let gang: serde_json::Value =
        serde_json::from_slice(&fs::read(model.join("gang.json")).unwrap()).unwrap();
    let mut of_process: BTreeMap<u64, [u64; 2]> = BTreeMap::new();
    for member in gang["members"].as_array().unwrap() {
        let sums = of_process.entry(member["pid"].as_u64().unwrap()).or_default();
        sums[0] += member["samples"].as_u64().unwrap();
        sums[1] += member["bytes_sent"].as_u64().unwrap();
    }
    assert_eq!(of_process.len(), processes, "{gang}");
    assert!(of_process.values().all(|[samples, bytes]| *samples > 0 && *bytes > 0), "{gang}");
}

#[test]
fn the_example_gives_equal_files_in_one_process_on_own_executors_and_on_a_cluster() {
    let example = deterministic_example();
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::with(4);
    let places = [vec![], vec!["--executors".to_owned(), "2".to_owned()], cluster.flags()];
    let runs: Vec<_> = places
        .iter()
        .enumerate()
        .map(|(number, flags)| {
            let out = folder.path().join(number.to_string());
            let mut command = program("voxelflow");
            command.arg("run").arg(example.path()).arg("--out").arg(&out).args(flags);
            Ended::from(command.output().unwrap()).expect_code(0);
            (results(&out), out)
        })
        .collect();
    let names = |run: &[(String, Vec<u8>)]| run.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert!(
        names(&runs[0].0).iter().any(|name| name.ends_with("model.safetensors")),
        "{:?}",
        names(&runs[0].0)
    );
    for (place, (run, _)) in places.iter().zip(&runs).skip(1) {
        assert_eq!(names(&runs[0].0), names(run), "{place:?}");
        for ((name, expected), (_, found)) in runs[0].0.iter().zip(run) {
            assert!(expected == found, "{name} differs with {place:?}");
        }
    }
    assert_all_worked(&runs[1].1.join("models/dca"), 2);
}

#[test]
fn the_example_program_is_the_same_on_executors() {
    let folder = tempfile::tempdir().unwrap();
    let loss = |number: usize, executors: &str| {
        let out = folder.path().join(number.to_string());
        let mut command = program("01_autoencoder");
        command.env("VOXELFLOW_OUT", &out).env("VOXELFLOW_EXECUTORS", executors);
        let ended = Ended::from(command.output().unwrap()).expect_code(0);
        let line = ended.stdout.lines().find(|line| line.starts_with("loss ")).unwrap().to_owned();
        (line.split(' ').nth(1).unwrap().parse::<f64>().unwrap(), out)
    };
    let (here, _) = loss(0, "");
    let (there, out) = loss(1, "2");
    assert!(
        (here - there).abs() <= 1e-5 * here.abs().max(1.0),
        "loss {here} in one process, {there} on two executors"
    );
    assert_all_worked(&out.join("models/dca"), 2);
}
