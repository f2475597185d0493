//! Two jobs at once, one of which no executor survives unharmed: the other one does not notice.

use super::{driver::Driver, tables::Tables};
use crate::{
    cluster_by_hand::{Cluster, Setup},
    processes::PATIENCE,
    program::program,
};
use std::{cell::Cell, fs, process::Command, time::Instant};

/// The poison is taken so often while the other job runs.
const DOSES: usize = 3;

/// Runs a driver to its end; its output, and the id of its job.
#[track_caller]
fn job_of(command: Command) -> (String, String) {
    finish(start(command))
}

fn start(mut command: Command) -> Driver {
    command.env("VOXELFLOW_LOG", "info");
    Driver::of(command)
}

#[track_caller]
fn finish(mut driver: Driver) -> (String, String) {
    let code = driver.wait(Instant::now() + PATIENCE);
    let said = driver.said();
    assert_eq!(code, Some(0), "{said}");
    let line = said.lines().find(|line| line.contains("job ") && line.contains(" runs on "));
    let words = line.unwrap_or_else(|| panic!("no job in {said}")).split(' ');
    let job = words.skip_while(|word| *word != "job").nth(1).unwrap();
    (driver.stdout(), job.to_owned())
}

/// Tasks of `job` that executors have begun.
#[track_caller]
fn tasks_begun(cluster: &Cluster, job: &str) -> usize {
    let logs: String = cluster.executors.iter().map(|executor| executor.log()).collect();
    let begun = logs.lines().filter(|line| line.contains("Execute task") && line.contains(job)).count();
    assert!(begun > 0, "no log says which tasks of {job} began");
    begun
}

/// Runs what `work` starts alone and beside what `poison` starts: it has the same rows, and begins as many tasks.
#[track_caller]
fn does_not_notice(cluster: &Cluster, work: impl Fn() -> Command, poison: impl Fn(usize) -> Command) {
    let (rows, alone) = job_of(work());
    let working = start(work());
    for dose in 0..DOSES {
        // Whether it fails is not the question here, but that it ends.
        let mut poisoned = Driver::of(poison(dose));
        let ended = poisoned.wait(Instant::now() + PATIENCE);
        assert!(ended.is_some(), "the poisoned job has not ended: {}", poisoned.said());
    }
    let (beside, job) = finish(working);
    assert_eq!(beside, rows);
    assert_eq!(tasks_begun(cluster, &job), tasks_begun(cluster, &alone), "tasks of {job} ran twice");
    assert_eq!(cluster.ask(&["jobs", "--list-executors", "--json"]).stdout.lines().count(), 2);
}

#[test]
fn a_query_beside_one_that_is_poisoned_runs_every_task_once() {
    let tables = Tables::write();
    let mut cluster = Cluster::start(&Setup::default());
    cluster.add(2, 2);
    let sql = |sql: &str| {
        let mut command = program("voxelflow");
        command.args(["sql", &tables.named(sql), "--format", "csv"]).args(cluster.flags());
        command
    };
    does_not_notice(
        &cluster,
        || {
            sql("SELECT a.g, count(*) AS rows, sum(a.v + b.v) AS v, max(b.t) AS t FROM FACTS a \
                 JOIN FACTS b ON a.n = b.n + 97 GROUP BY a.g ORDER BY a.g")
        },
        |_| sql("SELECT n FROM FACTS WHERE n < 100 UNION ALL SELECT k FROM KEYS WHERE k < 100 ORDER BY n"),
    );
}

#[test]
fn a_program_beside_one_that_executors_cannot_read_runs_every_batch_once() {
    const BATCHES: u64 = 160;
    let mut cluster = Cluster::start(&Setup { program: "gang_probe", ..Setup::default() });
    cluster.add(2, 4);
    let (ticks, batches) = (cluster.work.path().join("ticks"), BATCHES.to_string());
    let ticked = || fs::metadata(&ticks).map_or(0, |file| file.len());
    // The function is asked once for its columns, too: what counts is that nobody asks more often than without poison.
    let undisturbed = Cell::new(0);
    let poisons: [&[&str]; DOSES] = [&["poison", "refuses"], &["poison", "panics"], &["panic"]];
    does_not_notice(
        &cluster,
        || {
            undisturbed.set(ticked());
            let _ = fs::remove_file(&ticks);
            cluster.driver(&["slow", ticks.to_str().unwrap(), &batches])
        },
        |dose| cluster.driver(poisons[dose]),
    );
    assert_eq!(ticked(), undisturbed.get(), "a batch is read once");
    assert!(ticked() >= BATCHES);
}
