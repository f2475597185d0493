//! What is simulated: drawn from the seed.

use crate::protocol::{MemberId, Pace, Rules, RunId};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Something that goes wrong.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// A process ends; its peers see their connections closed.
    Kill(MemberId),
    /// A machine ends; nobody is told.
    Vanish(MemberId),
    /// A process stops for so long.
    Pause(MemberId, u64),
    /// A machine is cut off for so long.
    Cut(MemberId, u64),
    /// The connection to the coordinator is lost.
    ResetControl(MemberId),
    /// All connections to and from other members are lost.
    ResetData(MemberId),
    /// The member shall go.
    Drain(MemberId),
    /// These two cannot reach each other for so long, though both reach the driver.
    CutPair(MemberId, MemberId, u64),
    /// The driver dies.
    KillCoordinator,
    /// The driver dies, and is started again after so long.
    RestartCoordinator(u64),
}

/// A gang, its data and its fate.
#[derive(Clone, Debug)]
pub struct Plan {
    pub rules: Rules,
    pub rows: usize,
    pub minibatch: usize,
    pub epochs: u64,
    pub warm_up: u64,
    pub n_push: u64,
    pub n_fetch: u64,
    /// When each member's first life begins.
    pub starts: Vec<u64>,
    pub faults: Vec<(u64, Fault)>,
    /// Longest delay of most messages, and of a few.
    pub delay: u64,
    pub slow_delay: u64,
    pub compute: u64,
    /// The launcher ends the tasks that it is told to cancel.
    pub cancels: bool,
}

impl Plan {
    /// Nothing goes wrong, but members come at different times.
    pub fn calm(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let ranks = rng.random_range(1..=5);
        let mut rules = Rules::fixed(RunId(u128::from(seed)), ranks, rng.random_range(1..=4));
        rules.min_ranks = rng.random_range(1..=ranks);
        rules.dedicated = if rng.random_bool(0.3) { rng.random_range(1..=2) } else { 0 };
        rules.deadline_ms = 60_000;
        rules.max_rank_restarts = 8;
        rules.hold_ms = 20_000;
        let members = ranks + rules.dedicated;
        Self {
            rows: rng.random_range(0..60),
            minibatch: rng.random_range(1..=4),
            epochs: rng.random_range(1..=3),
            warm_up: if rng.random_bool(0.3) { rng.random_range(1..=3) } else { 0 },
            n_push: 1,
            n_fetch: 1,
            starts: (0..members).map(|_| rng.random_range(0..2_000)).collect(),
            faults: Vec::new(),
            delay: rng.random_range(1..=10),
            slow_delay: 100,
            compute: rng.random_range(1..=60),
            cancels: true,
            rules,
        }
    }

    /// Whatever can go wrong, in sync mode.
    pub fn stormy(seed: u64) -> Self {
        let mut plan = Self::calm(seed ^ 0x5eed);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        plan.rules.gather_ms = rng.random_range(1_000..6_000);
        plan.rows = rng.random_range(0..200);
        plan.compute = rng.random_range(1..150);
        for start in &mut plan.starts {
            if rng.random_bool(0.1) {
                *start += 8_000;
            }
        }
        plan.cancels = rng.random_bool(0.7);
        plan.faults = faults(&mut rng, plan.starts.len() as u32, 16);
        plan
    }

    /// The same without rounds.
    pub fn asynchronous(seed: u64) -> Self {
        let mut plan = Self::stormy(seed ^ 0xa5);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        plan.rules.pace = if rng.random() { Pace::Async } else { Pace::Bounded(rng.random_range(0..4)) };
        plan.n_push = rng.random_range(1..=3);
        plan.n_fetch = rng.random_range(1..=3);
        plan
    }

    /// The coordinator dies, and perhaps something else.
    pub fn without_driver(seed: u64) -> Self {
        let mut plan = Self::calm(seed ^ 0xd1e);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        plan.rows += 20;
        plan.epochs = 3;
        plan.compute += 20;
        plan.faults = faults(&mut rng, plan.starts.len() as u32, 2);
        plan.faults.push((rng.random_range(1_500..4_000), Fault::KillCoordinator));
        plan
    }
}

fn faults(rng: &mut ChaCha8Rng, members: u32, most: usize) -> Vec<(u64, Fault)> {
    let count = rng.random_range(0..=most);
    let fault = |rng: &mut ChaCha8Rng| {
        let member = MemberId(rng.random_range(0..members));
        match rng.random_range(0..18) {
            0..=4 => Fault::Kill(member),
            5 => Fault::Vanish(member),
            6 | 7 => Fault::Pause(member, rng.random_range(10..6_000)),
            8 | 9 => Fault::Cut(member, rng.random_range(10..6_000)),
            10..=12 => Fault::ResetControl(member),
            13 | 14 => Fault::ResetData(member),
            15 => {
                Fault::CutPair(member, MemberId(rng.random_range(0..members)), rng.random_range(10..12_000))
            }
            16 => Fault::Drain(member),
            _ => Fault::RestartCoordinator(rng.random_range(10..9_000)),
        }
    };
    (0..count).map(|_| (rng.random_range(0..8_000), fault(rng))).collect()
}
