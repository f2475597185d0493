//! Clusters of real processes that are disturbed at random moments while they work.
//!
//! Whatever happens to an executor, the scheduler or the driver, a query ends in time: with the rows that one process
//! gives, or with an error that says what happened. Nothing half-written is left for others to read, all slots are free
//! afterwards, and no job runs on.
//!
//! ```text
//!   dice (seed) ──► a query, and one or two events at moments of its work
//!                        │
//!   standing cluster ◄───┴──► driver ──► outcome: rows | error | stopped | unclear | wrong | hung | left behind
//! ```
//!
//! `VOXELFLOW_CHAOS_SEED` repeats what the dice have thrown, and `VOXELFLOW_CHAOS_EVENTS` says how many events there
//! are. What happened is counted in a table:
//!
//! ```text
//! VOXELFLOW_CHAOS_EVENTS=300 cargo test -p voxelflow-integration-tests --test integration --locked -- --nocapture chaos::disturbed
//! ```

mod dice;
mod driver;
mod event;
mod outcome;
mod poison;
mod queries;
mod run;
mod standing;
mod tables;

use dice::Dice;
use event::{Bag, Event};
use outcome::Counts;
use queries::Query;
use run::Run;
use standing::Standing;
use std::{env, time::Instant};
use tables::Tables;

/// Executors of the clusters that are disturbed in turn.
const CLUSTERS: [usize; 2] = [2, 3];
/// Events, unless the environment says how many.
const EVENTS: u64 = 40;

fn number_of_environment(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|e| panic!("{name} is `{text}`: {e}")))
}

#[test]
fn disturbed_clusters_give_the_rows_or_say_what_happened() {
    let seed = number_of_environment("VOXELFLOW_CHAOS_SEED").unwrap_or_else(Dice::seed);
    let events = number_of_environment("VOXELFLOW_CHAOS_EVENTS").unwrap_or(EVENTS);
    println!("VOXELFLOW_CHAOS_SEED={seed}, {events} events");
    let started = Instant::now();
    let [Some(two), Some(three)] = CLUSTERS.map(Standing::start) else { return };
    let (mut clusters, tables) = ([two, three], Tables::write());
    let mut queries: Vec<Query> = queries::all();
    for query in &mut queries {
        query.learn(&tables, &clusters[0]);
    }
    println!("undisturbed, {:.1} s after the start:", started.elapsed().as_secs_f64());
    for query in &queries {
        println!("  {:<10} {:>5.2} s", query.name, query.takes.as_secs_f64());
    }

    let mut counts = Counts::default();
    let mut failures = Vec::new();
    let mut bag = Bag::default();
    let mut hand: Vec<usize> = Vec::new();
    for number in 0.. {
        if counts.events() >= events {
            break;
        }
        let mut dice = Dice::new(seed.wrapping_add(number));
        let cluster = &mut clusters[dice.below(CLUSTERS.len() as u64) as usize];
        if hand.is_empty() {
            hand = dice.shuffled(queries.len());
        }
        let query = &queries[hand.pop().unwrap_or_default()];
        let planned = bag.draw(&mut dice, query.takes);
        let run = Run::new(cluster, query, &tables, planned).go(&mut dice);
        counts.add(&run);
        if let Some(reason) = run.outcome.failure() {
            let events: Vec<String> = run.happened.iter().map(Event::to_string).collect();
            let report = format!(
                "seed {seed}, run {number}, {} executors, query `{}`, {}: {reason}",
                cluster.size(),
                query.name,
                events.join("; "),
            );
            eprintln!("{report}\nthe driver said:\n{}\n{}", run.said, run.logs);
            failures.push(report);
            // Whatever is wrong with it must not be held against the next event.
            *cluster = Standing::start(cluster.size()).unwrap();
        }
    }
    println!("{counts}{:.0} s in all", started.elapsed().as_secs_f64());
    assert!(failures.is_empty(), "{counts}\n{}", failures.join("\n"));
}
