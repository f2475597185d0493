//! Pools and queues, as the command line sees them.

use crate::{
    cluster_by_hand::{Cluster, Setup},
    counting::Counting,
    processes::Running,
};

/// A training that is there until it is cancelled, and its job.
fn endless(cluster: &Cluster, with: &str) -> (Counting, Running, String) {
    let training = Counting::new(1_000_000, with);
    let run = training.start(&cluster.flags());
    let job = training.job();
    (training, run, job)
}

#[test]
fn a_full_pool_is_waited_for_while_another_one_is_free() {
    let mut cluster = Cluster::start(&Setup::default());
    cluster.executor(&["--slots", "1", "--pool", "gpu"], None);
    cluster.executor(&["--slots", "2", "--pool", "cpu"], None);
    let (_first, mut run, first) = endless(&cluster, "ranks => 1, pool => 'gpu'");
    run.wait_for_epoch(0);
    let second = Counting::new(2, "ranks => 1, pool => 'gpu'");
    let waiting = second.start(&cluster.flags());
    let job = second.job();
    let why = cluster.why_waiting(&job, "in pool gpu");
    assert!(
        why.contains(&format!("waits for a slot in pool gpu: 0 free of 1, held by job {first}")),
        "{why}"
    );
    // Whoever does not ask for that pool is served by the other one.
    let elsewhere = Counting::new(1, "ranks => 2, pool => 'cpu'");
    elsewhere.start(&cluster.flags()).succeed();
    elsewhere.assert_every_series_once_an_epoch();

    cluster.ask(&["cancel", &first]).expect_code(0);
    run.fail();
    waiting.succeed();
    second.assert_every_series_once_an_epoch();
}

#[test]
fn a_queue_has_its_share_while_another_one_has_work_waiting() {
    let mut cluster = Cluster::start(&Setup { scheduler: &["--weight", "big=3"], ..Setup::default() });
    cluster.add(1, 4);
    let (_first, mut run, first) = endless(&cluster, "ranks => 3, queue => 'big'");
    run.wait_for_epoch(0);
    let (_second, waiting, second) = endless(&cluster, "ranks => 3, queue => 'big'");
    let why = cluster.why_waiting(&second, "waits for 3 slots");
    assert!(why.contains(&format!("1 free of 4, held by job {first}")), "{why}");
    let (_third, over, third) = endless(&cluster, "ranks => 2, queue => 'small'");
    let why = cluster.why_waiting(&third, "waits for 2 slots");
    assert!(why.contains("queue small may have 1 of 4 while queue big has work waiting"), "{why}");
    // Its share is its own, though others were there before.
    let fourth = Counting::new(1, "ranks => 1, queue => 'small'");
    fourth.start(&cluster.flags()).succeed();
    fourth.assert_every_series_once_an_epoch();
    for (job, run) in [(third, over), (second, waiting), (first, run)] {
        cluster.ask(&["cancel", &job]).expect_code(0);
        let said = run.fail();
        assert!(said.contains("it was cancelled on request"), "{said}");
    }
}
