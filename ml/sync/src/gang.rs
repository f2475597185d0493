//! A gang at work: the state machines of [`crate::protocol`] with threads, clocks and links around them.
//!
//! ```text
//!   driver process                         process of a member
//!   GangHost ─ Desk ─ Coordinator ◄─────► Node ─ Member, Replicas ◄── Links ──► other members
//!                ▲                          ▲
//!              clock                        └─ ServiceRank (GradientSync) ◄─ trainer
//! ```
//! Within a process [`local`] carries messages as calls; over a network [`remote`] carries control by tonic and
//! tensors by frames. Everything else is the same.

mod desk;
mod entering;
mod hands;
mod host;
mod links;
mod local;
mod membership;
mod node;
mod remote;
mod ring_rank;
mod rules;
mod service_rank;
#[cfg(test)]
mod tests;

use crate::{
    GradientSync, Result, Ring, SyncSettings, Topology, in_process_communicators,
    protocol::{Incarnation, LinkId, Member, MemberId, Replica, Role, Rules, RunId, ShardId},
    with_local_steps,
};
use desk::Desk;
use local::LocalLinks;
use node::{Event, Node};
use service_rank::ServiceRank;
use std::{sync::Arc, time::Duration};

pub use desk::Signal;
pub use entering::{Seat, enter, serve};
pub use host::{GangHost, Invitation, Transport};
pub use membership::{Line, Membership};
pub use rules::{Deadlines, GangSpec};

/// One [`GradientSync`] for each of `ranks` threads of this process, by rank.
///
/// # Errors
/// [`Error::Setting`](crate::Error::Setting) for settings that cannot work.
pub fn in_process_gang(settings: &SyncSettings, ranks: usize) -> Result<Vec<Box<dyn GradientSync>>> {
    settings.validate(ranks)?;
    let ranks: Result<Vec<Box<dyn GradientSync>>> = match settings.topology {
        Topology::ParameterService => service_here(settings, ranks),
        Topology::Ring => in_process_communicators(ranks, Duration::from_secs_f64(settings.deadline_seconds))
            .into_iter()
            .map(|c| Ok(Box::new(Ring::try_new(c, settings)?) as Box<dyn GradientSync>))
            .collect(),
    };
    Ok(ranks?.into_iter().map(|rank| with_local_steps(rank, settings)).collect())
}

fn service_here(settings: &SyncSettings, ranks: usize) -> Result<Vec<Box<dyn GradientSync>>> {
    // Nobody of this process is lost silently, and nobody starts it anew: clocks need not be fast.
    let hour = 3600.0;
    let deadlines = Deadlines {
        heartbeat: 60.0,
        dead: hour,
        reconnect: hour,
        gather: hour,
        missing: settings.deadline_seconds,
        hold: 24.0 * hour,
    };
    let spec =
        GangSpec { deadlines, max_rank_restarts: 0, ..GangSpec::fixed(RunId(0), settings.clone(), ranks) };
    let rules = spec.rules(false);
    let desk = Desk::new(rules.clone());
    let member = |rank| {
        let node = member_here(&desk, &rules, settings, MemberId(rank as u32), Incarnation(0))?;
        Ok(Box::new(ServiceRank::new(node, settings, ranks)) as Box<dyn GradientSync>)
    };
    (0..ranks).map(member).collect()
}

/// The state machines of one member.
fn node_of(
    rules: &Rules,
    settings: &SyncSettings,
    (member, incarnation): (MemberId, Incarnation),
    (address, host): (Option<std::net::SocketAddr>, String),
) -> Arc<Node> {
    let replica = |shard| {
        let settings = rules::replica_settings(rules, settings);
        Replica::new(member, ShardId(shard), rules.run, settings)
    };
    let holds = rules.dedicated == 0 || rules.copies || rules.role(member) == Some(Role::Shards);
    let replicas = if holds { (0..rules.shards).map(replica).collect() } else { Vec::new() };
    let settings = rules::member_settings(rules.clone(), settings);
    let state = Member::new(settings, member, incarnation, (address, host), 0);
    Node::new(rules.clone(), state, replicas)
}

/// A member in the process of its coordinator.
fn member_here(
    desk: &Arc<Desk>,
    rules: &Rules,
    settings: &SyncSettings,
    member: MemberId,
    incarnation: Incarnation,
) -> Result<Arc<Node>> {
    let node = node_of(rules, settings, (member, incarnation), (None, "here".into()));
    let link = LinkId(desk.next_link());
    desk.housemates.enter(member, Arc::downgrade(&node));
    desk.attend(link, Arc::downgrade(&node));
    let links = Arc::new(LocalLinks::new(Arc::clone(desk), link));
    node.start(links, || {})?;
    node.post(Event::Connected);
    Ok(node)
}
