//! What a synchronous step of six million parameters costs beside its gradient: ranks as threads of one process.
//!
//! ```text
//! cargo run -p voxelflow-sync --example sync_step -- [STEPS]
//! ```
//!
//! Prints a JSON line for each number of ranks and shards: milliseconds of a step of Adagrad, median and fastest.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::{sync::Barrier, thread, time::Instant};
use voxelflow_sync::{Contribution, Start, SyncSettings, in_process_gang};

/// Parameters of the published autoencoder.
const VALUES: usize = 6_000_000;

/// Seconds of `steps`, each timed at the slowest rank.
fn seconds(ranks: usize, steps: usize, parameter_servers: usize) -> Vec<f64> {
    let settings = SyncSettings { parameter_servers, ..SyncSettings::default() };
    let gang = in_process_gang(&settings, ranks).unwrap();
    let barrier = Barrier::new(ranks);
    thread::scope(|scope| {
        let threads: Vec<_> = gang
            .into_iter()
            .map(|mut sync| {
                let barrier = &barrier;
                scope.spawn(move || {
                    let mut parameters = vec![0.0; VALUES];
                    let gradient = vec![1e-3; VALUES];
                    sync.join(&mut parameters, Start::fresh(0)).unwrap();
                    let contribution = Contribution { gradient: &gradient, samples: 100, loss: 1.0 };
                    let mut times = Vec::new();
                    for step in 0..=steps {
                        barrier.wait();
                        let start = Instant::now();
                        sync.step(&mut parameters, contribution).unwrap();
                        barrier.wait();
                        // The first one warms up.
                        if step > 0 {
                            times.push(start.elapsed().as_secs_f64());
                        }
                    }
                    sync.synchronise(&mut parameters).unwrap();
                    times
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).next().unwrap()
    })
}

fn main() {
    let steps = std::env::args().nth(1).map_or(20, |text| text.parse().expect("the number of steps"));
    for ranks in [1, 2, 4] {
        for parameter_servers in [1, ranks] {
            let mut times = seconds(ranks, steps, parameter_servers);
            times.sort_by(f64::total_cmp);
            let line = serde_json::json!({
                "ranks": ranks, "parameter_servers": parameter_servers,
                "milliseconds": times[times.len() / 2] * 1e3, "fastest": times[0] * 1e3,
            });
            println!("{line}");
        }
    }
}
