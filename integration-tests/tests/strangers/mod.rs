//! Strangers: who has no key reads nothing, writes nothing, runs nothing, ends nothing and learns nothing, whichever
//! port he tries; nor does he who listens to the network.
//!
//! ```text
//!   another user, another network ──► every port that any part of a cluster listens at (as the kernel has it)
//!        plain bytes, HTTP/1, calls of Ballista and Arrow Flight: in the clear, over TLS, with other keys
//!   a sniffer in the network ──► no name of a file, column or value
//!   one peer, 2,000 connections, endless messages ──► the others are served
//! ```

mod flood;
mod knock;
mod ports;
mod secrecy;
mod sniffer;

use crate::{
    cluster_by_hand::{Cluster, KEY_BYTE, Setup},
    cluster_nodes::{Agent, at_work},
    counting::Counting,
    network::Network,
    processes::Part,
    program::Ended,
};
use knock::{Strangers, Who, nobody_was_let_in};
use ports::listening;
use rustix::process::Pid;
use std::{
    collections::BTreeSet,
    fs,
    net::SocketAddr,
    path::Path,
    process::{Child, Stdio},
};

const PROBE: &str = "gang_probe";
/// Bytes of keys that no cluster has.
const WRONG: &str = "5d";
const OLD: &str = "5e";

/// A cluster of the probe's build: one executor here, and one behind the network.
fn cluster_on(network: &Network) -> Cluster {
    let mut cluster =
        Cluster::start(&Setup { program: PROBE, scheduler: &["--bind", &network.here], ..Setup::default() });
    cluster.executor(&["--bind", &network.here, "--slots", "2"], None);
    cluster.executor(&["--bind", &network.there, "--slots", "2"], Some(&network.namespace));
    cluster
}

/// Where all parts of `cluster` listen.
#[track_caller]
fn addresses(cluster: &Cluster) -> BTreeSet<SocketAddr> {
    let parts = [&cluster.scheduler].into_iter().chain(&cluster.executors);
    of_all(parts.map(Part::pid))
}

/// Where processes listen, each at one address at least.
#[track_caller]
fn of_all(processes: impl IntoIterator<Item = Pid>) -> BTreeSet<SocketAddr> {
    let all = processes.into_iter().map(|process| {
        let own = listening(process);
        assert!(!own.is_empty(), "process {} listens nowhere", process.as_raw_nonzero());
        own
    });
    all.flatten().collect()
}

/// Ids of a cluster's executors, and of its jobs with their phases.
fn standing(cluster: &Cluster) -> (BTreeSet<String>, Vec<String>) {
    let lines = |what: &[&str]| -> Vec<serde_json::Value> {
        let said = cluster.ask(what).expect_code(0).stdout;
        said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let executors = lines(&["jobs", "--list-executors", "--json"]);
    let jobs = lines(&["jobs", "--json"]);
    (
        executors.iter().map(|executor| executor["id"].to_string()).collect(),
        jobs.iter().map(|job| format!("{} {}", job["id"], job["phase"])).collect(),
    )
}

/// A job that takes minutes and does nothing, and its id.
#[track_caller]
fn long_job(cluster: &Cluster) -> (Child, String) {
    let ticks = cluster.work.path().join("ticks");
    let mut driver = cluster.driver(&["slow", ticks.to_str().unwrap()]);
    let driver = driver.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let job = cluster.job("a job at work", |job| job["tasks"]["running"] == 4);
    (driver, job["id"].as_str().unwrap().to_owned())
}

/// Runs a short job of `cluster`.
#[track_caller]
fn works(cluster: &Cluster) {
    let ticks = cluster.work.path().join("short");
    let driver = cluster.driver(&["slow", ticks.to_str().unwrap(), "4"]).output().unwrap();
    assert_eq!(Ended::from(driver).expect_code(0).stdout, "4\n");
}

fn host_name() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim().to_owned()
}

#[test]
fn a_cluster_lets_nobody_in_who_has_no_key() {
    let Some(network) = Network::build() else { return };
    let Some(strangers) = Strangers::new() else { return };
    let keys = [strangers.key("wrong.key", WRONG), strangers.key("old.key", OLD)];
    let keys: Vec<&Path> = keys.iter().map(AsRef::as_ref).collect();
    let cluster = cluster_on(&network);
    let (mut driver, job) = long_job(&cluster);
    let before = standing(&cluster);
    let executor = cluster.executors[0].ready.as_str();
    let work = cluster.work.path().display().to_string();
    let secrets = [job.clone(), work, executor.to_owned(), cluster.executors[1].ready.clone(), host_name()];
    for who in [Who::Nobody, Who::Behind(&network)] {
        let about = [("--job", job.as_str()), ("--executor", executor)];
        let attempts = strangers.knock(who, &addresses(&cluster), &keys, &about);
        nobody_was_let_in(&format!("{who:?}"), &attempts, &secrets);
    }
    assert_eq!(standing(&cluster), before, "executors, jobs, and what they do");
    assert!(driver.try_wait().unwrap().is_none(), "the job goes on");
    cluster.ask(&["cancel", &job]).expect_code(0);
    driver.wait().unwrap();
    works(&cluster);
}

#[test]
fn an_agent_and_what_it_has_started_let_nobody_in_who_has_no_key() {
    let Some(strangers) = Strangers::new() else { return };
    let keys = [strangers.key("wrong.key", WRONG)];
    let keys: Vec<&Path> = keys.iter().map(AsRef::as_ref).collect();
    let folder = tempfile::tempdir().unwrap();
    let key = crate::cluster_nodes::key_file(folder.path(), "cluster.key", 'a');
    let agent = Agent::start(folder.path(), "agent", &key, &["--cores", "2", "--memory-mib", "1024"]);
    let mut driver = at_work(&agent, &key, folder.path(), 2);
    let started = agent.processes();
    assert_eq!(started.len(), 2, "scheduler and executor");
    let started = started.iter().map(|pid| Pid::from_raw(i32::try_from(*pid).unwrap()).unwrap());
    let addresses = of_all(started.chain([agent.pid()]));
    let attempts = strangers.knock(Who::Nobody, &addresses, &keys, &[]);
    let work = agent.work_dir.display().to_string();
    nobody_was_let_in("another user", &attempts, &[work, host_name()]);
    assert!(driver.try_wait().unwrap().is_none(), "the driver goes on");
    assert_eq!(agent.processes().len(), 2, "and so does what it has started");
    driver.kill().unwrap();
    driver.wait().unwrap();
}

#[test]
fn a_training_and_its_executors_let_nobody_in_who_has_no_key() {
    let Some(strangers) = Strangers::new() else { return };
    let keys = [strangers.key("wrong.key", WRONG)];
    let keys: Vec<&Path> = keys.iter().map(AsRef::as_ref).collect();
    let counting = Counting::new(1_000_000, "ranks => 2, min_ranks => 2");
    let mut run = counting.start(&["--executors", "2", "--slots", "1"]);
    run.wait_for_epoch(1);
    let parts: Vec<Pid> = ["scheduler", "executor"].into_iter().flat_map(|part| run.parts(part)).collect();
    assert_eq!(parts.len(), 3);
    let addresses = of_all(parts.into_iter().chain([run.pid()]));
    let attempts = strangers.knock(Who::Nobody, &addresses, &keys, &[]);
    let out = counting.out().display().to_string();
    nobody_was_let_in("another user", &attempts, &[out, host_name()]);
    run.next_epoch();
    assert!(run.began_anew(), "it has trained without a break: {:?}", run.seen.last());
}

/// What a command line hears that brings the key in `file`.
fn ask_with(cluster: &Cluster, file: &Path) -> Ended {
    let file = file.to_str().unwrap();
    crate::program::voxelflow(["jobs", "--cluster", &cluster.url, "--cluster-key", file])
}

#[test]
fn a_second_key_is_accepted_until_it_is_removed() {
    let Some(network) = Network::build() else { return };
    let Some(strangers) = Strangers::new() else { return };
    let mut cluster = cluster_on(&network);
    let key = cluster.work.path().join("cluster.key");
    let (first, second) = (KEY_BYTE.repeat(32), OLD.repeat(32));
    let file = strangers.key("second.key", OLD);
    // The client shows the second key and knows the cluster by the first.
    let both = strangers.key("both.key", OLD);
    fs::write(&both, format!("{second}\n{first}\n")).unwrap();
    let restart_with = |cluster: &mut Cluster, keys: String| {
        fs::write(&key, keys).unwrap();
        cluster.executors.clear();
        cluster.restart_scheduler();
        cluster.executor(&["--bind", &network.here, "--slots", "2"], None);
    };
    ask_with(&cluster, &both).expect_code(1);
    restart_with(&mut cluster, format!("{first}\n{second}\n"));
    ask_with(&cluster, &both).expect_code(0);
    // Else what other tests see of strangers would say nothing about those whom a service answers.
    let attempts = strangers.knock(Who::Owner, &addresses(&cluster), &[&file], &[]);
    let reached: BTreeSet<&str> =
        attempts.iter().filter(|attempt| attempt.reached).map(|attempt| attempt.address.as_str()).collect();
    assert_eq!(reached.len(), addresses(&cluster).len(), "every part accepts the key: {reached:?}");
    assert!(attempts.iter().all(|attempt| !attempt.reached || attempt.wire == "TLS with second.key"));

    restart_with(&mut cluster, first.clone());
    ask_with(&cluster, &both).expect_code(1);
    let attempts = strangers.knock(Who::Owner, &addresses(&cluster), &[&file], &[]);
    nobody_was_let_in("who has the old key", &attempts, &[host_name()]);
    works(&cluster);
}
