//! A network that is cut: an executor in a network namespace of its own, behind a bridge.

use crate::{
    cluster_by_hand::{Cluster, Setup},
    counting::Counting,
    network::Network,
    processes::PATIENCE,
};
use std::time::{Duration, Instant};

/// In so much time the majority goes on.
const PROMISE: Duration = Duration::from_secs(5);

#[test]
fn an_executor_that_is_cut_off_is_left_behind_and_taken_in_again() {
    let Some(network) = Network::build() else { return };
    let (here, there) = (network.here.as_str(), network.there.as_str());
    let mut cluster = Cluster::start(&Setup { scheduler: &["--bind", here], ..Setup::default() });
    for (address, namespace) in [(here, None), (here, None), (there, Some(network.namespace.as_str()))] {
        cluster.executor(&["--bind", address, "--slots", "1"], namespace);
    }
    let counting = Counting::new(30, "ranks => 3, min_ranks => 2");
    let mut run = counting.start(&cluster.flags());
    run.wait_for_epoch(1);
    let apart = cluster.executors[2].pid();
    let apart = counting.members().into_iter().find(|member| member.pid() == apart).unwrap().number;

    network.cut();
    let cut = Instant::now();
    run.wait_for(&format!("member {apart} is lost"), PROMISE);
    run.wait_for("goes on from version", PROMISE.saturating_sub(cut.elapsed()));
    assert!(!run.seen.last().unwrap().contains("ranks 0, 1, 2 train"), "{:?}", run.seen.last());
    println!("the next epoch of the majority ended {:?} later", run.next_epoch());

    network.mend();
    let mended = Instant::now();
    run.wait_for("ranks 0, 1, 2 train", PATIENCE);
    println!("the executor was back {:?} after the network", mended.elapsed());
    run.next_epoch();
    run.succeed();
    counting.assert_every_series_once_an_epoch();
}
