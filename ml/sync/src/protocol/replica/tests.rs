#![allow(clippy::unwrap_used, clippy::panic)]
use super::*;
use crate::{
    OptimizerKind, Reduction,
    protocol::{Attendant, Holders, Incarnation, Placement, Role},
};

const RUN: RunId = RunId(7);

fn replica(member: u32, pace: Pace, delay_compensation: f32) -> Replica {
    let optimizer = OptimizerSettings {
        optimizer: OptimizerKind::Momentum,
        learning_rate: 0.5,
        reduction: Reduction::Mean,
        ..OptimizerSettings::default()
    };
    let settings = ReplicaSettings { optimizer, pace, delay_compensation };
    Replica::new(MemberId(member), ShardId(0), RUN, settings)
}

/// Ranks 0 and 1; member 0 holds the shard, member 1 its copy if there is one.
fn view(generation: u64, begin: Begin, version: u64, backup: bool) -> View {
    let attendant = |member| Attendant {
        member: MemberId(member),
        incarnation: Incarnation(1),
        role: Role::Rank,
        address: None,
        host: String::new(),
    };
    let backup = backup.then_some(MemberId(1));
    let holders = vec![Holders { primary: MemberId(0), backup, copy: false, version }];
    let members = vec![attendant(0), attendant(1)];
    View { generation: Generation(generation), members, placement: Placement { holders }, version, begin }
}

fn request(generation: u64, from: u32, id: u64, ask: Ask) -> ShardRequest {
    let stamp = Stamp { run: RUN, generation: Generation(generation) };
    ShardRequest { stamp, from: MemberId(from), shard: ShardId(0), id, ask }
}

fn values(values: &[f32]) -> Vec<Values> {
    vec![Arc::new(values.to_vec())]
}

fn push(round: u64, samples: u64) -> Ask {
    Ask::Push { round, seq: round + 1, samples, read: round, alone: false, differences: false }
}

fn install(version: u64) -> Ask {
    Ask::Install { version, steps: 0, vectors: Vec::new() }
}

/// Answers, with their values, by caller.
fn answers(actions: &[ReplicaAction]) -> Vec<(u64, Answer, Vec<f32>)> {
    let answer = |action: &ReplicaAction| match action {
        ReplicaAction::Reply { to, reply, arrays } => {
            Some((to.0, reply.answer.clone(), arrays.first().map(|v| v.to_vec()).unwrap_or_default()))
        }
        ReplicaAction::Ask { .. } => None,
    };
    actions.iter().filter_map(answer).collect()
}

/// A primary that is ready at version 0 with the parameters [1, 2].
fn ready(pace: Pace, delay_compensation: f32) -> Replica {
    let mut primary = replica(0, pace, delay_compensation);
    assert!(primary.view(&view(1, Begin::Bring { lost: false }, 0, false)).is_empty());
    let actions = primary.request(Caller(9), request(1, 0, 1, install(0)), values(&[1.0, 2.0]));
    assert_eq!(answers(&actions), [(9, Answer::Installed, vec![])]);
    primary
}

#[test]
fn a_round_closes_with_the_last_rank_once() {
    let mut primary = ready(Pace::Sync, 0.0);
    let fetch = request(1, 0, 2, Ask::Fetch(Wanted::Version(1)));
    assert!(primary.request(Caller(0), fetch, vec![]).is_empty());
    for caller in [0, 5] {
        // Asked again after a lost connection: it counts once.
        let actions = primary.request(Caller(caller), request(1, 0, 3, push(0, 1)), values(&[1.0, 0.0]));
        assert_eq!(answers(&actions), [(caller, Answer::Pushed { version: 0 }, vec![])]);
    }
    let actions = primary.request(Caller(1), request(1, 1, 3, push(0, 3)), values(&[3.0, 4.0]));
    let parameters = vec![1.0 - 0.5 * 1.0, 2.0 - 0.5 * 1.0];
    assert_eq!(answers(&actions)[1..], [(0, Answer::Parameters { version: 1 }, parameters)]);
    let actions = primary.request(Caller(1), request(1, 1, 4, push(0, 3)), values(&[3.0, 4.0]));
    assert_eq!(answers(&actions), [(1, Answer::Pushed { version: 0 }, vec![])]);
    assert_eq!(primary.status().unwrap().newest, 1);
}

#[test]
fn what_a_rank_has_seen_the_backup_has() {
    let (mut primary, mut backup) = (replica(0, Pace::Sync, 0.0), replica(1, Pace::Sync, 0.0));
    let first = view(1, Begin::Bring { lost: false }, 0, true);
    primary.view(&first);
    backup.view(&first);
    // Asks go to the backup, answers come back.
    let mut relay = |primary: &mut Replica, actions: Vec<ReplicaAction>| {
        let [.., ReplicaAction::Ask { member: MemberId(1), request, arrays }] = &actions[..] else {
            panic!("{actions:?}")
        };
        assert_eq!(primary.unconfirmed.len() + usize::from(primary.installing.is_some()), 1);
        let told = backup.request(Caller(3), request.clone(), arrays.clone());
        let [ReplicaAction::Reply { reply, .. }] = &told[..] else { panic!("{told:?}") };
        (primary.answered(reply), backup.status().unwrap())
    };
    let actions = primary.request(Caller(9), request(1, 0, 1, install(0)), values(&[1.0, 2.0]));
    let (actions, _) = relay(&mut primary, actions);
    assert_eq!(answers(&actions), [(9, Answer::Installed, vec![])]);
    primary.request(Caller(0), request(1, 0, 2, push(0, 2)), values(&[2.0, 2.0]));
    primary.request(Caller(0), request(1, 0, 3, Ask::Fetch(Wanted::Version(1))), vec![]);
    let actions = primary.request(Caller(1), request(1, 1, 2, push(0, 2)), values(&[2.0, 2.0]));
    assert_eq!(
        answers(&actions),
        [(1, Answer::Pushed { version: 0 }, vec![])],
        "the fetch waits for the backup"
    );
    let (actions, status) = relay(&mut primary, actions);
    assert_eq!(answers(&actions), [(0, Answer::Parameters { version: 1 }, vec![0.5, 1.5])]);
    assert_eq!((status.newest, status.has_previous), (1, true));
    let (p, b) = (primary.values.unwrap().newest, backup.values.unwrap().newest);
    assert_eq!((p.parameters, p.optimizer.state()), (b.parameters, b.optimizer.state()));
}

#[test]
fn a_view_goes_back_one_version_with_the_optimizer() {
    let mut primary = ready(Pace::Sync, 0.0);
    for round in 0..3 {
        for rank in 0..2 {
            primary.request(Caller(0), request(1, rank, round, push(round, 1)), values(&[1.0, -1.0]));
        }
    }
    let second = primary.values.as_ref().unwrap().previous.clone().unwrap();
    assert_eq!(second.number, 2);
    assert!(primary.freeze(Generation(2)).is_empty());
    assert_eq!(
        primary.status().unwrap(),
        ReplicaStatus { shard: ShardId(0), newest: 3, has_previous: true, generation: Generation(1) }
    );
    primary.view(&view(2, Begin::Held, 2, false));
    let newest = &primary.values.as_ref().unwrap().newest;
    assert_eq!((newest.number, &newest.parameters), (2, &second.parameters));
    assert_eq!(newest.optimizer.state(), second.optimizer.state());
    primary.freeze(Generation(3));
    primary.view(&view(3, Begin::Held, 1, false));
    assert_eq!(primary.status(), None, "version 1 is gone");
}

#[test]
fn older_views_are_refused_and_newer_ones_awaited() {
    let mut primary = ready(Pace::Sync, 0.0);
    primary.request(Caller(0), request(1, 0, 5, Ask::Fetch(Wanted::Version(1))), vec![]);
    let stale = Answer::Refused(Refusal::Stale { generation: Generation(3) });
    assert_eq!(answers(&primary.freeze(Generation(3))), [(0, stale.clone(), vec![])]);
    let actions = primary.request(Caller(1), request(2, 1, 6, push(0, 1)), values(&[0.0; 2]));
    assert_eq!(answers(&actions), [(1, stale, vec![])]);
    let early = request(3, 1, 7, Ask::Fetch(Wanted::Version(0)));
    assert!(primary.request(Caller(1), early, vec![]).is_empty());
    let actions = primary.view(&view(3, Begin::Held, 0, false));
    assert_eq!(answers(&actions), [(1, Answer::Parameters { version: 0 }, vec![1.0, 2.0])]);
    let mut foreign = request(3, 1, 8, Ask::Fetch(Wanted::Version(0)));
    foreign.stamp.run = RunId(8);
    let actions = primary.request(Caller(1), foreign, vec![]);
    assert_eq!(answers(&actions), [(1, Answer::Refused(Refusal::NotHolder), vec![])]);
}

#[test]
fn lengths_and_versions_that_cannot_be_are_refused() {
    let mut primary = ready(Pace::Sync, 0.0);
    let mut refusal = |ask, arrays| {
        let actions = primary.request(Caller(1), request(1, 1, 5, ask), arrays);
        match answers(&actions).remove(0).1 {
            Answer::Refused(refusal) => refusal,
            other => panic!("{other:?}"),
        }
    };
    let length = |found, expected| Refusal::Length { found, expected };
    assert_eq!(refusal(push(0, 1), values(&[1.0; 3])), length(3, 2));
    assert_eq!(refusal(push(0, 1), vec![]), length(0, 1));
    assert_eq!(refusal(push(1, 1), values(&[1.0; 2])), Refusal::NoSuchVersion { newest: 0 });
    assert_eq!(refusal(Ask::Fetch(Wanted::Version(u64::MAX)), vec![]), Refusal::NoSuchVersion { newest: 0 });
    assert_eq!(
        refusal(Ask::Replicate { version: 1, samples: 0, differences: false }, vec![]),
        Refusal::NotHolder
    );
    assert_eq!(refusal(install(4), values(&[1.0; 2])), Refusal::NoSuchVersion { newest: 0 });
}

#[test]
fn late_gradients_are_compensated() {
    let lambda = 0.1;
    let mut primary = ready(Pace::Async, lambda);
    for rank in 0..2 {
        let fetch = request(1, rank, 1, Ask::Fetch(Wanted::Newest));
        primary.request(Caller(u64::from(rank)), fetch, vec![]);
    }
    primary.request(Caller(0), request(1, 0, 2, push(0, 1)), values(&[2.0, 0.0]));
    // 1 − 0.5·2 = 0 by now, 1 when rank 1 read it: g = 4 + λ·16·(0 − 1); v = 0.9·2 + g; w = 0 − 0.5·v.
    let actions = primary.request(Caller(1), request(1, 1, 2, push(0, 1)), values(&[4.0, 0.0]));
    assert_eq!(answers(&actions), [(1, Answer::Pushed { version: 1 }, vec![])]);
    let g = 4.0 - lambda * 16.0;
    let actions = primary.request(Caller(1), request(1, 1, 3, Ask::Fetch(Wanted::Newest)), vec![]);
    let (_, answer, parameters) = answers(&actions).remove(0);
    assert_eq!(answer, Answer::Parameters { version: 2 });
    assert!((parameters[0] + 0.5 * (1.8 + g)).abs() < 1e-6, "{parameters:?}");
    // The same push again is no update.
    primary.request(Caller(2), request(1, 1, 2, push(0, 1)), values(&[4.0, 0.0]));
    assert_eq!(primary.status().unwrap().newest, 2);
}

#[test]
fn buffers_are_used_again_when_nobody_reads_them() {
    let mut primary = ready(Pace::Sync, 0.0);
    let round = |primary: &mut Replica, round| {
        for rank in 0..2 {
            primary.request(Caller(0), request(1, rank, round, push(round, 1)), values(&[1.0, 1.0]));
        }
        primary.values.as_ref().unwrap().newest.parameters.as_ptr()
    };
    let buffers: Vec<_> = (0..5).map(|r| round(&mut primary, r)).collect();
    assert_eq!(buffers[2], buffers[0]);
    assert_eq!(buffers[3], buffers[1]);
    // What is being sent is not written to.
    let held = primary.values.as_ref().unwrap().newest.parameters.clone();
    let before = held.to_vec();
    for r in 5..8 {
        round(&mut primary, r);
    }
    assert_eq!(*held, before);
}
