//! From the settings that users write to the rules and settings of the protocol.

use crate::{
    Consistency, SyncSettings,
    protocol::{MemberSettings, Pace, ReplicaSettings, Rules, RunId},
};

/// How long members of a gang wait, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Deadlines {
    /// Between two heartbeats.
    pub heartbeat: f64,
    /// Silence after which a member is dead.
    pub dead: f64,
    /// For a member to come back after its connection is lost.
    pub reconnect: f64,
    /// For all members, before a gang of at least `min_ranks` begins.
    pub gather: f64,
    /// For members that are missing, before the gang fails.
    pub missing: f64,
    /// For a driver that is lost.
    pub hold: f64,
}

impl Deadlines {
    /// Those of the settings.
    pub fn of(settings: &SyncSettings) -> Self {
        Self {
            heartbeat: settings.heartbeat_seconds,
            dead: settings.heartbeat_timeout_seconds,
            reconnect: settings.heartbeat_timeout_seconds / 3.0,
            // A gang that may begin without some of them must not be late by then.
            gather: 10.0_f64.min(settings.deadline_seconds / 2.0),
            missing: settings.deadline_seconds,
            hold: settings.hold_seconds,
        }
    }
}

/// A gang to be.
#[derive(Clone, Debug)]
pub struct GangSpec {
    /// The run; a driver that starts over with the same one resumes it.
    pub run: RunId,
    /// How the ranks agree on parameters.
    pub settings: SyncSettings,
    /// Ranks that are wanted.
    pub ranks: usize,
    /// Ranks without which it pauses.
    pub min_ranks: usize,
    /// Members that only hold shards; none: the ranks hold them.
    pub dedicated_shards: usize,
    /// Lives of a member after its first.
    pub max_rank_restarts: u32,
    /// How long it waits.
    pub deadlines: Deadlines,
    /// The program, which must be the same in all members.
    pub build: String,
}

impl GangSpec {
    /// A gang of `ranks` ranks, all of them needed, that hold the shards themselves.
    pub fn fixed(run: RunId, settings: SyncSettings, ranks: usize) -> Self {
        let deadlines = Deadlines::of(&settings);
        let (min_ranks, dedicated_shards, max_rank_restarts) = (ranks, 0, 3);
        let build = String::new();
        Self { run, settings, ranks, min_ranks, dedicated_shards, max_rank_restarts, deadlines, build }
    }

    /// The rules of the protocol; `copies`: members may die one by one.
    pub(crate) fn rules(&self, copies: bool) -> Rules {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let milliseconds = |seconds: f64| (seconds * 1000.0).ceil() as u64;
        let Deadlines { heartbeat, dead, reconnect, gather, missing, hold } = self.deadlines;
        let (ranks, dedicated) = (count(self.ranks), count(self.dedicated_shards));
        // As many as hold them, so that all links carry the same; the results do not depend on it.
        let holders = if dedicated > 0 { dedicated } else { ranks };
        Rules {
            run: self.run,
            ranks,
            min_ranks: count(self.min_ranks),
            dedicated,
            shards: holders.max(count(self.settings.parameter_servers)),
            copies,
            pace: match (self.settings.consistency, self.settings.max_lead()) {
                (Consistency::Sync, _) => Pace::Sync,
                // Also with a lead of none: each push is an update of its own.
                (_, Some(steps)) => Pace::Bounded(steps),
                (_, None) => Pace::Async,
            },
            max_rank_restarts: self.max_rank_restarts,
            heartbeat_ms: milliseconds(heartbeat),
            dead_ms: milliseconds(dead),
            reconnect_ms: milliseconds(reconnect),
            gather_ms: milliseconds(gather),
            boundary_ms: 1_000,
            deadline_ms: milliseconds(missing),
            hold_ms: milliseconds(hold),
        }
    }
}

pub(crate) fn member_settings(rules: Rules, settings: &SyncSettings) -> MemberSettings {
    MemberSettings { rules, n_fetch: settings.n_fetch, n_push: settings.n_push }
}

pub(crate) fn replica_settings(rules: &Rules, settings: &SyncSettings) -> ReplicaSettings {
    let (optimizer, delay_compensation) = (settings.round_optimizer(), settings.delay_compensation);
    ReplicaSettings { optimizer, pace: rules.pace, delay_compensation }
}
