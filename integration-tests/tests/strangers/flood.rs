//! One peer that sends too much, or holds too much open: the others are served, and memory stays bounded.

use super::{
    PROBE,
    knock::{Strangers, memory},
    of_all, works,
};
use crate::{
    cluster_by_hand::{Cluster, KEY_BYTE, Setup},
    cluster_nodes::{Agent, key_file},
    processes::PATIENCE,
    program::Ended,
};
use rustix::process::Pid;
use std::{
    io::{BufRead, BufReader},
    process::Stdio,
    time::{Duration, Instant},
};

/// Connections that a peer holds open.
const IDLE: &str = "2000";
/// MiB that a process may need for strangers.
const ROOM: u64 = 256;
/// Who has the key is answered within this.
const SOON: Duration = Duration::from_secs(10);

#[test]
fn a_flood_from_one_peer_takes_no_part_down() {
    let Some(strangers) = Strangers::new() else { return };
    let mut cluster = Cluster::start(&Setup { program: PROBE, ..Setup::default() });
    cluster.add(1, 2);
    let folder = tempfile::tempdir().unwrap();
    let agents_key = key_file(folder.path(), "agent.key", 'a');
    let agent = Agent::start(folder.path(), "agent", &agents_key, &["--cores", "1", "--memory-mib", "512"]);
    let key = strangers.key("cluster.key", KEY_BYTE);
    works(&cluster);
    let parts = [cluster.scheduler.pid(), cluster.executors[0].pid(), agent.pid()];
    let sizes = || parts.map(memory);
    let before = sizes();
    let bounded = |when: &str| {
        let now = sizes();
        let grown = now.iter().zip(before).all(|(now, before)| *now < before + ROOM);
        assert!(grown, "MiB of scheduler, executor and agent: {before:?} before, {now:?} {when}");
    };
    let served = |when: &str| {
        let asked = Instant::now();
        cluster.ask(&["jobs"]).expect_code(0);
        assert!(asked.elapsed() < SOON, "an answer took {:?} {when}", asked.elapsed());
        works(&cluster);
    };
    for address in of_all(parts) {
        let mut idle = strangers.program();
        idle.args(["idle", &address.to_string(), IDLE]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut idle = idle.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(idle.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("connections are open"), "{line}");
        served(&format!("with {line}"));
        bounded(&format!("with {line}"));
        drop(idle.stdin.take());
        idle.wait().unwrap();

        let mut flood = strangers.program();
        flood.args(["flood", &address.to_string(), "--key"]).arg(&key);
        let flood = flood.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        served("during a flood");
        let started = Instant::now();
        let said = Ended::from(flood.wait_with_output().unwrap()).expect_code(0).stdout;
        assert!(started.elapsed() < PATIENCE, "{said}");
        bounded(&format!("after a flood at {address}: {said}"));
    }
    let alive = |process: Pid| rustix::process::test_kill_process(process).is_ok();
    assert!(parts.into_iter().all(alive), "all parts live");
    works(&cluster);
}
