//! A network that is cut: an executor in a network namespace of its own, behind a bridge.

use crate::{
    cluster_by_hand::{Cluster, Setup},
    counting::Counting,
    processes::PATIENCE,
};
use std::{
    io::Write,
    process::{self, Command},
    time::{Duration, Instant},
};

/// In so much time the majority goes on.
const PROMISE: Duration = Duration::from_secs(5);

/// A bridge with a namespace behind it; both are gone when it is dropped.
struct Network {
    bridge: String,
    port: String,
    namespace: String,
    here: String,
    there: String,
}

impl Network {
    /// Nothing, said aloud, where such things may not be made. In CI that is a failure.
    fn build() -> Option<Self> {
        let id = process::id();
        let subnet = format!("10.213.{}", id % 250);
        let network = Self {
            bridge: format!("vfb{id}"),
            port: format!("vfp{id}"),
            namespace: format!("vf{id}"),
            here: format!("{subnet}.1"),
            there: format!("{subnet}.2"),
        };
        match network.make() {
            Ok(()) => Some(network),
            Err(reason) => {
                assert!(std::env::var_os("CI").is_none(), "CI needs network namespaces: {reason}");
                // Past the test harness, which shows what is printed for failures only.
                let skipped = format!("SKIPPED: no executor was cut off from the network: {reason}\n");
                let _ = std::io::stderr().write_all(skipped.as_bytes());
                None
            }
        }
    }

    fn make(&self) -> Result<(), String> {
        let Self { bridge, port, namespace, here, there } = self;
        let (here, there) = (format!("{here}/24"), format!("{there}/24"));
        ip(&["netns", "add", namespace])?;
        ip(&["link", "add", bridge, "type", "bridge"])?;
        ip(&["addr", "add", &here, "dev", bridge])?;
        ip(&["link", "set", bridge, "up"])?;
        ip(&["link", "add", port, "type", "veth", "peer", "name", "inside", "netns", namespace])?;
        ip(&["link", "set", port, "master", bridge])?;
        ip(&["-n", namespace, "addr", "add", &there, "dev", "inside"])?;
        ip(&["-n", namespace, "link", "set", "inside", "up"])?;
        ip(&["-n", namespace, "link", "set", "lo", "up"])?;
        ip(&["link", "set", port, "up"])
    }

    fn cut(&self) {
        ip(&["link", "set", &self.port, "down"]).unwrap();
    }

    fn mend(&self) {
        ip(&["link", "set", &self.port, "up"]).unwrap();
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = ip(&["netns", "del", &self.namespace]);
        let _ = ip(&["link", "del", &self.bridge]);
    }
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    let ended = Command::new("ip").args(arguments).output().map_err(|e| format!("ip: {e}"))?;
    let said = String::from_utf8_lossy(&ended.stderr);
    ended.status.success().then_some(()).ok_or_else(|| format!("ip {}: {}", arguments.join(" "), said.trim()))
}

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
