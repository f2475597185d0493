//! One rank of a gang as a process: real rounds over the real service, *compute replaced by waiting* for a step time
//! that was measured elsewhere. So the wire can be measured where there is neither a card nor a core for each rank.
//!
//! ```text
//! replayed_step host  --invitation FILE --ranks R [--bind IP] [--tls yes] [--codec bf16] [--local-steps auto]
//! replayed_step rank  --invitation FILE --rank r --step SECONDS [--bind IP] [--parameters N] [--minibatch M]
//!                     [--jitter 0.05] [--warm-up 4] [--rounds 10]
//! replayed_step choose < rounds.json        the number of local steps that `auto` takes for such measurements
//! ```
//! A step is over when its time is: `SECONDS·(1 + jitter·normal)`, counted from the end of the step before. Gradients
//! are noise of the right length, so every byte that training would move is moved. What a rank does besides (the update
//! rule of local steps, the shards' updates) is done, and counted where it happens.
//!
//! The first rank prints a JSON line: seconds a round, and where they go. Within a round the last rank to come does
//! nothing but communicate: its time there is `communicate`, what the others spend more is `wait`.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
    path::Path,
    thread,
    time::{Duration, Instant},
};
use voxelflow_sync::{
    Contribution, GangHost, GangSpec, GradientSync, Invitation, Membership, Seat, Start, StepTiming,
    SyncSettings, Traffic, Transport, enter, local_steps_for,
    network::Security,
    protocol::{Outcome, RunId},
};

/// Parameters of the published autoencoder.
const PARAMETERS: usize = 6_020_381;
/// For the others to come, and to leave.
const PATIENCE: Duration = Duration::from_secs(60);

/// `--name value …`
struct Flags(BTreeMap<String, String>);

impl Flags {
    fn parse(words: impl Iterator<Item = String>) -> Self {
        let words: Vec<_> = words.collect();
        let pairs = words.chunks(2).map(|pair| match pair {
            [name, value] if name.starts_with("--") => (name[2..].to_owned(), value.clone()),
            other => panic!("expected --name value, got {other:?}"),
        });
        Self(pairs.collect())
    }

    fn or<T: std::str::FromStr>(&self, name: &str, default: T) -> T {
        let parse = |text: &String| text.parse().unwrap_or_else(|_| panic!("--{name} cannot be {text}"));
        self.0.get(name).map_or(default, parse)
    }

    fn need<T: std::str::FromStr>(&self, name: &str) -> T {
        let text = self.0.get(name).unwrap_or_else(|| panic!("--{name} is missing"));
        text.parse().unwrap_or_else(|_| panic!("--{name} cannot be {text}"))
    }
}

fn main() {
    let mut words = std::env::args().skip(1);
    let role = words.next().expect("host, rank or choose");
    let flags = Flags::parse(words);
    match role.as_str() {
        "host" => host(&flags),
        "rank" => rank(&flags),
        "choose" => {
            let rounds: Vec<Vec<[f64; 2]>> = serde_json::from_reader(std::io::stdin()).unwrap();
            let timing = |[compute, round]: [f64; 2]| StepTiming { compute, round };
            let rounds: Vec<Vec<StepTiming>> =
                rounds.into_iter().map(|ranks| ranks.into_iter().map(timing).collect()).collect();
            println!("{}", local_steps_for(&rounds));
        }
        other => panic!("{other} is none of host, rank and choose"),
    }
}

/// The coordinator: invites, and waits for the end.
fn host(flags: &Flags) {
    let ip = flags.or("bind", IpAddr::V4(Ipv4Addr::LOCALHOST));
    let security =
        if flags.0.contains_key("tls") { Security::tls().unwrap() } else { Security::insecure().unwrap() };
    let local_steps = flags.or("local-steps", "1".to_owned());
    let local_steps = local_steps.parse::<u64>().map_or(serde_json::json!(local_steps), |n| n.into());
    let settings: SyncSettings = serde_json::from_value(serde_json::json!({
        "codec": flags.or("codec", "bf16".to_owned()), "local_steps": local_steps, "deadline_seconds": 600,
        "outer": flags.or("outer", "average".to_owned()),
    }))
    .unwrap();
    let spec = GangSpec {
        build: "replayed".into(),
        ..GangSpec::fixed(RunId(u128::from(std::process::id())), settings, flags.need("ranks"))
    };
    let host = GangHost::start(spec, Transport::Tcp { bind: ip, advertise: ip, security }).unwrap();
    let path: String = flags.need("invitation");
    let draft = format!("{path}.draft");
    std::fs::write(&draft, serde_json::to_vec(&host.invitation()).unwrap()).unwrap();
    std::fs::rename(draft, path).unwrap();
    let outcome = loop {
        if let Some(outcome) = host.outcome(Duration::from_secs(3600)) {
            break outcome;
        }
    };
    assert_eq!(outcome, Outcome::Finished);
}

fn invitation(path: &Path) -> Invitation {
    let start = Instant::now();
    while !path.exists() {
        assert!(start.elapsed() < PATIENCE, "{} is not there after {PATIENCE:?}", path.display());
        thread::sleep(Duration::from_millis(5));
    }
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Seconds of one round of this rank.
#[derive(Clone, Copy, Default)]
struct Spent {
    /// Waiting for the end of replayed steps.
    compute: f64,
    /// In steps that were no rounds: the update rule, on this rank alone.
    update: f64,
    /// In the step that was the round.
    round: f64,
}

/// What is replayed.
struct Replay {
    step: f64,
    jitter: f64,
    minibatch: u64,
    gradient: Vec<f32>,
    random: ChaCha8Rng,
}

impl Replay {
    /// Standard normal (Box and Muller 1958).
    fn normal(&mut self) -> f64 {
        let (u, v): (f64, f64) = (self.random.random(), self.random.random());
        (-2.0 * (1.0 - u).ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }

    /// Steps until one of them is a round, and the samples in it.
    fn round(&mut self, sync: &mut dyn GradientSync, parameters: &mut [f32]) -> (Spent, u64) {
        let mut spent = Spent::default();
        loop {
            let began = Instant::now();
            let seconds = self.step * (1.0 + self.jitter * self.normal()).max(0.0);
            thread::sleep(Duration::from_secs_f64(seconds));
            let computed = Instant::now();
            let contribution = Contribution {
                gradient: &self.gradient,
                samples: self.minibatch,
                loss: self.minibatch as f64,
            };
            let round = sync.step(parameters, contribution).unwrap();
            let stepped = computed.elapsed().as_secs_f64();
            spent.compute += (computed - began).as_secs_f64();
            if round.samples > 0 {
                spent.round = stepped;
                return (spent, round.samples);
            }
            spent.update += stepped;
        }
    }
}

fn rank(flags: &Flags) {
    let invitation = invitation(Path::new(&flags.need::<String>("invitation")));
    let (rank, parameters): (usize, usize) = (flags.need("rank"), flags.or("parameters", PARAMETERS));
    let seat =
        Seat { bind: flags.0.get("bind").map(|ip| ip.parse().unwrap()), ..Seat::first(rank, "replayed") };
    let mut random = ChaCha8Rng::seed_from_u64(rank as u64);
    let mut replay = Replay {
        step: flags.need("step"),
        jitter: flags.or("jitter", 0.0),
        minibatch: flags.or("minibatch", 1600),
        gradient: (0..parameters).map(|_| random.random_range(-1.0..1.0)).collect(),
        random,
    };
    let mut weights = vec![0.0; parameters];
    let mut member = enter(&invitation, &seat).unwrap();
    member.join(&mut weights, Start::fresh(0)).unwrap();
    for _ in 0..flags.or("warm-up", 4) {
        replay.round(&mut member, &mut weights);
    }
    // All begin to count at once.
    member.sum(&mut [0.0]).unwrap();
    let (began, before) = (Instant::now(), member.traffic());
    let rounds = flags.or("rounds", 10);
    let rounds: Vec<_> = (0..rounds).map(|_| replay.round(&mut member, &mut weights)).collect();
    let seconds = began.elapsed().as_secs_f64();
    let after = member.traffic();
    let moved = Traffic { sent: after.sent - before.sent, received: after.received - before.received };
    report(&mut member, &replay, seconds, &rounds, moved);
    member.synchronise(&mut weights).unwrap();
    assert!(member.finish(PATIENCE), "rank {rank} was not released within {PATIENCE:?}");
}

/// Puts together what all ranks measured; the first prints it.
fn report(sync: &mut Membership, replay: &Replay, seconds: f64, rounds: &[(Spent, u64)], moved: Traffic) {
    const COLUMNS: usize = 3;
    let (rank, world, n) = (sync.rank().0, sync.world(), rounds.len());
    let mut table = vec![0.0; world * (n * COLUMNS + 2)];
    let own = &mut table[rank * (n * COLUMNS + 2)..][..n * COLUMNS + 2];
    for (place, (spent, _)) in own.chunks_exact_mut(COLUMNS).zip(rounds) {
        place.copy_from_slice(&[spent.compute, spent.update, spent.round]);
    }
    own[n * COLUMNS..].copy_from_slice(&[moved.sent as f64, moved.received as f64]);
    sync.sum(&mut table).unwrap();
    if rank > 0 {
        return;
    }
    let by_rank: Vec<&[f64]> = table.chunks_exact(n * COLUMNS + 2).collect();
    let cell = |rank: &[f64], round: usize, column: usize| rank[round * COLUMNS + column];
    let mean = |column| {
        let sum: f64 = by_rank.iter().map(|rank| (0..n).map(|t| cell(rank, t, column)).sum::<f64>()).sum();
        sum / (world * n) as f64
    };
    let last = |t| by_rank.iter().map(|rank| cell(rank, t, 2)).fold(f64::INFINITY, f64::min);
    let communicate: Vec<f64> = (0..n).map(last).collect();
    let mean_communicate = communicate.iter().sum::<f64>() / n as f64;
    let per_round =
        |column: usize| by_rank.iter().map(|rank| rank[n * COLUMNS + column] / n as f64).fold(0.0, f64::max);
    let samples = rounds.last().map_or(0, |(_, samples)| *samples);
    let line = serde_json::json!({
        "ranks": world, "parameters": replay.gradient.len(), "step_seconds": replay.step, "jitter": replay.jitter,
        "minibatch": replay.minibatch, "local_steps": samples / (world as u64 * replay.minibatch).max(1),
        "rounds": n, "round_seconds": seconds / n as f64, "rounds_per_second": n as f64 / seconds,
        "series_per_second": rounds.iter().map(|(_, samples)| *samples as f64).sum::<f64>() / seconds,
        "compute_replayed": mean(0), "update": mean(1), "communicate": mean_communicate,
        "wait": mean(2) - mean_communicate, "communicate_by_round": communicate,
        "bytes_sent_a_round_by_the_busiest_rank": per_round(0),
        "bytes_received_a_round_by_the_busiest_rank": per_round(1),
    });
    println!("{line}");
}
