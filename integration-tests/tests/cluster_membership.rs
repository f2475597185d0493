//! Who trains: ranks that come late, too few ranks, and ranks that somebody ends.

use crate::{
    cluster_by_hand::Cluster,
    counting::{Counting, Member},
    processes::{PATIENCE, threads_of, wait_for},
};
use rustix::process::{Signal, kill_process};
use std::time::{Duration, Instant};

fn live(members: &[Member]) -> usize {
    members.iter().filter(|member| member.standing == "live").count()
}

#[test]
fn a_gang_begins_with_min_ranks_and_takes_in_one_that_comes_late() {
    let counting = Counting::new(24, "ranks => 3, min_ranks => 2, deadline_seconds => 4");
    let mut cluster = Cluster::with(2);
    let mut run = counting.start(&cluster.flags());
    run.wait_for_epoch(0);
    let members = counting.members();
    assert_eq!(live(&members), 2, "{members:?}");
    let late = members.iter().find(|member| member.standing == "awaited").unwrap().number;

    cluster.add(1, 1);
    run.wait_for(&format!("member {late} has come"), PATIENCE);
    let came = Instant::now();
    run.wait_for("ranks 0, 1, 2 train; it goes on from version", PATIENCE);
    // A round takes a fraction of this.
    assert!(came.elapsed() < Duration::from_secs(2), "it was let in after {:?}", came.elapsed());
    run.succeed();
    counting.assert_every_series_once_an_epoch();
    let gang = counting.gang();
    let late = gang.iter().find(|member| member["member"] == late).unwrap();
    assert!(late["samples"].as_u64().unwrap() > 0, "{gang:?}");
    let third = cluster.executors[2].pid().as_raw_nonzero().get();
    assert_eq!(late["pid"].as_i64(), Some(i64::from(third)), "{gang:?}");
}

#[test]
fn below_min_ranks_a_gang_pauses_says_who_is_missing_and_fails_at_its_deadline() {
    let counting = Counting::new(6, "ranks => 3, min_ranks => 2, deadline_seconds => 5");
    let flags = ["--executors", "3", "--slots", "1"];
    let mut run = counting.start(&flags);
    run.wait_for_epoch(1);
    wait_for("the checkpoint of an epoch", || (!counting.checkpoints().is_empty()).then_some(()));
    let killed = &run.parts("executor")[1..];
    let missing = counting.members().into_iter().filter(|member| killed.contains(&member.pid()));
    let missing: Vec<String> = missing.map(|member| format!("member {}", member.number)).collect();
    let missing = format!("missing: {}", missing.join(", "));
    killed.iter().for_each(|pid| kill_process(*pid, Signal::KILL).unwrap());
    let since = Instant::now();
    run.wait_for("the gang pauses: it trains with 2 ranks or more", Duration::from_secs(5));
    assert!(run.seen.last().unwrap().contains(&missing), "{missing} in {:?}", run.seen.last());
    let said = run.fail();
    println!("it failed {:?} after the loss", since.elapsed());
    assert!(since.elapsed() < Duration::from_secs(12), "{:?}", since.elapsed());
    assert!(said.contains(&format!("waited 5 s for members; {missing}")), "{said}");
    assert!(!counting.checkpoints().is_empty(), "what was reached is kept");

    let mut again = counting.start(&flags);
    again.next_epoch();
    assert!(!again.began_anew(), "{:?}", again.seen);
    again.succeed();
    counting.assert_every_series_once_an_epoch();
}

#[test]
fn a_cancelled_training_leaves_its_slots_and_no_rank_at_work() {
    let cluster = Cluster::with(2);
    let endless = Counting::new(100_000, "ranks => 2");
    let mut run = endless.start(&cluster.flags());
    run.wait_for_epoch(1);
    let job = endless.job();
    let at_work = || {
        let threads = cluster.executors.iter().flat_map(|executor| threads_of(executor.pid()));
        threads.filter(|name| name.starts_with("counts rank")).count()
    };
    // A thread that a rank has just started, as for a checkpoint, still has the rank's name for a moment.
    wait_for("two ranks at work", || ((at_work(), cluster.slots_used()) == (2, 2)).then_some(()));
    let since = Instant::now();
    cluster.ask(&["cancel", &job]).expect_code(0);
    let said = run.fail();
    assert!(said.contains("it was cancelled on request"), "{said}");
    wait_for("the ranks to end", || (at_work() == 0).then_some(()));
    wait_for("their slots to be free", || (cluster.slots_used() == 0).then_some(()));
    println!("all was over {:?} after the cancellation", since.elapsed());
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());

    let next = Counting::new(2, "ranks => 2");
    next.start(&cluster.flags()).succeed();
    next.assert_every_series_once_an_epoch();
}
