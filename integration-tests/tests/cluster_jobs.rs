//! A cluster of real processes: which members of gangs ran, why jobs wait, and how they are ended.

use crate::{
    cluster_by_hand::{Cluster, Setup, strings},
    processes::{Running, command, wait_for},
    program::{Ended, program},
};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

const PROBE: &str = "gang_probe";

/// A cluster of the probe's build.
fn probes(executors: usize, slots: usize) -> Cluster {
    let mut cluster = Cluster::start(&Setup { program: PROBE, ..Setup::default() });
    cluster.add(executors, slots);
    cluster
}

fn gang(members: usize, at_least: usize, kind: &str, deadline: &str, folder: &Path) -> Vec<String> {
    let folder = folder.to_str().unwrap().to_owned();
    ["gang".to_owned(), folder, members.to_string(), at_least.to_string(), kind.into(), deadline.into()]
        .into()
}

/// Runs a gang and checks that every member has run once, and met as many as it was to meet.
#[track_caller]
fn runs_once(mut command: Command, members: usize, folder: &Path) -> BTreeSet<u64> {
    let ended = Ended::from(command.output().unwrap()).expect_code(0);
    let rows: Vec<Value> = ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut seen: Vec<u64> = rows.iter().map(|row| row["member"].as_u64().unwrap()).collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..members as u64).collect::<Vec<_>>());
    assert!(rows.iter().all(|row| row["met"] == true), "{rows:?}");
    let files = std::fs::read_dir(folder).unwrap().count();
    assert_eq!(files, members, "each member ran once: {:?}", std::fs::read_dir(folder).unwrap());
    rows.iter().map(|row| row["process"].as_u64().unwrap()).collect()
}

#[test]
fn every_member_of_a_gang_runs_once_in_one_process() {
    for members in [1, 2, 3, 5] {
        let folder = tempfile::tempdir().unwrap();
        let mut command = program(PROBE);
        command.args(gang(members, members, "strict", "20", folder.path()));
        let processes = runs_once(command, members, folder.path());
        assert_eq!(processes.len(), 1);
    }
}

#[test]
fn every_member_of_a_gang_runs_once_on_a_cluster_and_all_of_them_together() {
    let cluster = probes(2, 3);
    for members in [1, 2, 3, 5] {
        let folder = tempfile::tempdir().unwrap();
        let arguments = gang(members, members, "strict", "20", folder.path());
        let processes = runs_once(cluster.driver(&strings(&arguments)), members, folder.path());
        assert_eq!(processes.len(), members.min(2), "members are spread over the executors");
    }
}

#[test]
fn a_strict_gang_without_room_says_why_and_is_given_up_and_an_elastic_one_runs() {
    let cluster = probes(1, 2);
    let folder = tempfile::tempdir().unwrap();
    let arguments = gang(3, 3, "strict", "2", folder.path());
    let waiting =
        cluster.driver(&strings(&arguments)).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let job = cluster.job("a job that waits", |job| job["phase"] == "running");
    let id = job["id"].as_str().unwrap();
    let why = cluster.ask(&["why-waiting", id]).expect_code(0).stdout;
    assert!(why.contains("waits for 3 slots: the cluster has 2 in all"), "{why}");
    let given_up = Ended::from(waiting.wait_with_output().unwrap()).expect_code(1);
    assert!(
        given_up.stderr.contains("gang probe found no room within 2 s: it waits for 3 slots"),
        "{}",
        given_up.stderr
    );
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nobody has run");
    let ended = cluster.job("its end", |job| job["id"] == id && job["phase"] == "failed");
    assert!(ended["error"].as_str().unwrap().contains("found no room"), "{ended}");

    // Two of three are enough: the third runs when one of them has left.
    let arguments = gang(3, 2, "elastic", "20", folder.path());
    runs_once(cluster.driver(&strings(&arguments)), 3, folder.path());
}

#[test]
fn a_gang_waits_for_others_and_starts_when_they_end() {
    let cluster = probes(1, 2);
    let (ticks, folder) = (cluster.work.path().join("ticks"), tempfile::tempdir().unwrap());
    let mut slow = cluster.driver(&["slow", ticks.to_str().unwrap()]).stderr(Stdio::null()).spawn().unwrap();
    let busy = cluster.job("the slow job at work", |job| job["tasks"]["running"] == 2);
    let arguments = gang(2, 2, "strict", "60", folder.path());
    let gang = cluster.driver(&strings(&arguments)).stdout(Stdio::piped()).spawn().unwrap();
    let waits =
        cluster.job("a gang that waits", |job| job["tasks"]["waiting"] == 2 && job["id"] != busy["id"]);
    let why = cluster.ask(&["why-waiting", waits["id"].as_str().unwrap()]).expect_code(0).stdout;
    let id = busy["id"].as_str().unwrap();
    assert!(why.contains(&format!("waits for 2 slots: 0 free of 2, held by job {id}")), "{why}");
    cluster.ask(&["cancel", id]).expect_code(0);
    let ended = Ended::from(gang.wait_with_output().unwrap()).expect_code(0);
    assert_eq!(ended.stdout.lines().count(), 2, "{}", ended.stdout);
    assert!(!slow.wait().unwrap().success());
}

#[test]
fn a_job_that_takes_long_is_cancelled_within_seconds() {
    let cluster = probes(2, 2);
    let ticks = cluster.work.path().join("ticks");
    let mut slow = cluster.driver(&["slow", ticks.to_str().unwrap()]);
    let slow = slow.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let ticked = || std::fs::metadata(&ticks).map_or(0, |file| file.len());
    wait_for("the job at work", || (ticked() >= 8).then_some(()));
    let job = cluster.job("the job", |job| job["phase"] == "running");
    let id = job["id"].as_str().unwrap();
    let table = cluster.ask(&["jobs"]).expect_code(0).stdout;
    assert!(table.contains(id) && table.contains("4 running"), "{table}");
    let executors = cluster.ask(&["jobs", "--list-executors"]).expect_code(0).stdout;
    assert_eq!(executors.matches(" 2/2 ").count(), 2, "{executors}");

    let started = Instant::now();
    cluster.ask(&["cancel", id]).expect_code(0);
    let ended = Ended::from(slow.wait_with_output().unwrap()).expect_code(1);
    assert!(ended.stderr.contains("it was cancelled on request"), "{}", ended.stderr);
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    // Whoever is in a batch, a tenth of a second long, ends it; nobody takes another one.
    let still_for = Duration::from_secs(1);
    let (mut after, mut since) = (ticked(), Instant::now());
    while since.elapsed() < still_for {
        std::thread::sleep(Duration::from_millis(20));
        if ticked() != after {
            (after, since) = (ticked(), Instant::now());
        }
        assert!(started.elapsed() < Duration::from_secs(5) + still_for, "its tasks work on");
    }
    cluster.ask(&["cancel", id]).expect_code(2);
    cluster.ask(&["why-waiting", "nonsense"]).expect_code(2);
    let slots = cluster.ask(&["jobs", "--list-executors"]).expect_code(0).stdout;
    assert_eq!(slots.matches(" 0/2 ").count(), 2, "{slots}");
}

#[test]
fn log_lines_of_members_are_read_at_the_scheduler() {
    let cluster = probes(2, 1);
    let folder = tempfile::tempdir().unwrap();
    let arguments = gang(2, 2, "strict", "20", folder.path());
    runs_once(cluster.driver(&strings(&arguments)), 2, folder.path());
    let job = cluster.job("the job", |job| job["phase"] == "done");
    let id = job["id"].as_str().unwrap();
    wait_for("the lines of both members", || {
        let lines = cluster.ask(&["logs", id]).expect_code(0).stdout;
        (lines.contains("member 0 is here") && lines.contains("member 1 is here")).then_some(())
    });
    let one = cluster.ask(&["logs", id, "--last", "1", "--json"]).expect_code(0).stdout;
    assert_eq!(one.lines().count(), 1, "{one}");
    let line: Value = serde_json::from_str(&one).unwrap();
    assert!(line["process"].as_str().unwrap().starts_with("cpu-"), "{line}");
}

#[test]
fn a_log_is_followed_to_the_end_of_its_job() {
    let mut cluster = probes(1, 1);
    let folder = tempfile::tempdir().unwrap();
    let arguments = gang(2, 2, "strict", "60", folder.path());
    let driver = Running::start(cluster.driver(&strings(&arguments)));
    let job = cluster.job("a job that waits", |job| job["phase"] == "running");
    let job = job["id"].as_str().unwrap();
    let (flags, follow) = (cluster.flags(), ["logs", job, "--follow"]);
    let follower = Running::start(command("voxelflow", &[&follow[..], &strings(&flags)].concat(), None));
    cluster.why_waiting(job, "waits for 2 slots");
    cluster.add(1, 1);
    driver.succeed();
    // It ends by itself, with all that was said after it had begun.
    let said = follower.succeed();
    assert!(said.contains("member 0 is here") && said.contains("member 1 is here"), "{said}");
}

#[test]
fn a_panic_in_a_function_names_it_and_its_partition() {
    let says = |ended: &Ended| {
        let expected =
            ["partition 2 of 4: function `careless` at ", "gang_probe.rs:", "it panicked: out of cheese"];
        expected.iter().for_each(|part| assert!(ended.stderr.contains(part), "{part}: {}", ended.stderr));
    };
    says(&Ended::from(program(PROBE).arg("panic").output().unwrap()).expect_code(1));
    let cluster = probes(2, 1);
    says(&Ended::from(cluster.driver(&["panic"]).output().unwrap()).expect_code(1));
}
